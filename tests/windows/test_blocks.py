"""Shuffling by blocks: against lists that are cut and permuted, in numpy and in TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framewin import FrameWindowDataset
from framewin.frames import open_frames
from framewin.stores.chunked_frames import DEFAULT_CACHE_BYTES
from framewin.windows.blocks import BlockOrder, BlockShape, least_group_bytes, ring_start
from framewin.windows.order import epoch_key
from framewin.windows.schedule import BatchSchedule, cumulative_draws
from framewin.windows.spec import WindowSpec
from tests.conftest import MakeClips

CLIPS = {"a": [*range(12), *range(20, 29)], "b": range(5), "c": range(40, 60)}


def cut_into_groups(found: list[int], shape: BlockShape) -> list[list[int]]:
    """An epoch's windows, cut where groups of equal numbers of blocks end, but for a block."""
    size = shape.block_windows
    blocks = -(-len(found) // size)
    count = -(-blocks // shape.group_blocks)
    bounds = [blocks * group // count * size for group in range(count + 1)]
    return [found[begin:end] for begin, end in pairwise(bounds)]


def is_an_epoch_of_blocks(groups: list[list[int]], size: int) -> bool:
    """Whether blocks that begin at some window make up the groups, the short one in the last."""
    n = sum(map(len, groups))
    windows = np.concatenate(groups)
    owner = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    for start in range(n):
        blocks = (windows - start) % n // size
        owners = [set(owner[blocks == block].tolist()) for block in range(-(-n // size))]
        short_is_last = n % size == 0 or owners[-1] == {len(groups) - 1}
        if short_is_last and all(len(found) == 1 for found in owners):
            return True
    return False


@settings(max_examples=30)
@given(
    st.integers(1, 200), st.integers(1, 30), st.integers(1, 9), st.integers(0, 9), st.integers(0, 3)
)
def test_an_epoch_goes_from_group_to_group(n: int, size: int, most: int, seed: int, e: int) -> None:
    """Each window once; each stretch of positions has the windows of its group, no others."""
    shape = BlockShape(size, most)
    order = BlockOrder(n, seed=seed, shape=shape)
    found = order.windows(e, np.arange(n)).tolist()
    assert sorted(found) == list(range(n))
    groups = cut_into_groups(found, shape)
    assert all(len(group) <= size * most for group in groups)
    assert is_an_epoch_of_blocks(groups, size)
    one_by_one = [int(order.windows(e, np.array([place]))[0]) for place in range(min(n, 20))]
    assert one_by_one == found[:20]
    mixed = np.random.default_rng(n).permutation(np.arange(2 * n) % n).reshape(2, n)
    assert np.array_equal(order.windows(e, mixed), np.array(found)[mixed])
    assert order.windows(e, np.arange(0)).shape == (0,)


@pytest.mark.parametrize(
    ("num_windows", "shape"),
    [
        (1, (1, 1)),
        (7, (9, 2)),
        (1000, (16, 4)),
        (1024, (16, 16)),
        (65537, (300, 50)),
        (400_000, (5, 60_000)),
        (10**12, (10**3, 10**3)),
    ],
)
def test_the_graph_gives_the_same_order(
    tf: ModuleType, num_windows: int, shape: tuple[int, int]
) -> None:
    """Window by window, with the order of blocks stored and not."""
    from framewin.adapters import tf_data

    schedule = BatchSchedule(num_windows, 1, "blocks", 3, shuffle_blocks=BlockShape(*shape))
    positions = np.unique(np.linspace(0, num_windows - 1, 300).astype(np.int64))
    expected = schedule.order.windows(5, positions)
    key = tf_data._epoch_key(3, tf.constant(5, tf.int64))
    epochs = [{"key": key}]
    if tf_data._stores_order(schedule):
        whole = tf_data._whole_order(tf_data._num_permuted(schedule), key, shuffle=True)
        epochs.append({"key": key, "order": whole})
    for epoch in epochs:
        found = tf_data._block_windows(tf.constant(positions), epoch, schedule.order)
        assert np.array_equal(found, expected)


def test_every_adapter_reads_the_same_batches(make_store: MakeClips, tf: ModuleType) -> None:
    """numpy and TensorFlow: resumed, in shards, with windows left out; no Python runs per batch."""
    store = make_store(CLIPS)
    for extra in ({}, {"where": "frame_number != 7 and frame_number != 44"}):
        ds = FrameWindowDataset(store, input_frames=2, predict_frames=1, **extra)
        for shard in ({}, {"num_shards": 2, "shard_index": 1}):
            options = {"batch_size": 3, "shuffle": "blocks", "seed": 2, **shard}
            schedule = ds.batches(**options, shuffle_blocks=(4, 3)).schedule
            steps = schedule.num_batches
            for done in (0, 2, steps + 1):
                state = ds.batches(**options, shuffle_blocks=(4, 3)).state(done)
                assert state["shuffle_blocks"] == (4, 3)
                batches = ds.to_tf_dataset(**state)
                assert b"PyFunc" not in batches._as_serialized_graph().numpy()
                resumed = list(ds.batches(**state))
                assert len(resumed) == steps - done % steps
                for step, (numpy, graph) in enumerate(zip(resumed, batches, strict=True)):
                    windows = schedule.windows(*schedule.place(done + step))
                    for wanted, a, b in zip(ds.batch(windows), numpy, graph, strict=True):
                        assert np.array_equal(wanted, a)
                        assert np.array_equal(wanted, b)


def test_batches_mix_blocks_as_stated() -> None:
    """Pairs of a batch from one block, and the distance of neighbours: as by numpy's shuffling."""
    n, size, most, batch = 1600, 20, 8, 8
    order = BlockOrder(n, seed=4, shape=BlockShape(size, most))
    pairs, distances, firsts = [], [], np.zeros(n)
    for epoch in range(25):
        windows = order.windows(epoch, np.arange(n))
        blocks = (windows - ring_start(epoch_key(4, epoch), n)) % n // size
        in_batches = blocks.reshape(-1, batch)
        same = in_batches[:, :, None] == in_batches[:, None, :]
        pairs.append((same.sum() - n) / (n * (batch - 1)))
        places = np.argsort(windows)
        near = blocks[places[:-1]] == blocks[places[1:]]
        distances.append(np.abs(np.diff(places))[near].mean())
        firsts[windows[0]] += 1
    rng = np.random.default_rng(0)
    wanted = [_shuffled_share(rng, size, most, batch) for _ in range(600)]
    assert np.mean(pairs) == pytest.approx(np.mean(wanted), rel=0.05)
    assert np.mean(pairs) == pytest.approx((size - 1) / (size * most - 1), rel=0.02)
    assert np.mean(distances) == pytest.approx((size * most + 1) / 3, rel=0.02)
    # Anything may come first.
    assert firsts.max() <= 2


def _shuffled_share(rng: np.random.Generator, size: int, most: int, batch: int) -> float:
    """Of the pairs in the batches of a shuffled group, those from one block."""
    batches = rng.permutation(np.repeat(np.arange(most), size)).reshape(-1, batch)
    return float(np.mean([(row[:, None] == row).sum() - batch for row in batches])) / (
        batch * (batch - 1)
    )


def test_orders_by_blocks_stay_as_they_are() -> None:
    """Pinned answers: a change would end every run that is to be resumed in another order."""
    small = BlockOrder(14, seed=3, shape=BlockShape(3, 2))
    assert small.windows(0, np.arange(14)).tolist() == PINNED_SMALL
    large = BlockOrder(10**12, seed=3, shape=BlockShape(1000, 1000))
    assert large.windows(1, np.array([0, 1, 10**11])).tolist() == PINNED_LARGE


PINNED_SMALL = [9, 11, 10, 0, 2, 12, 13, 1, 3, 6, 4, 7, 8, 5]
PINNED_LARGE = [451506898269, 55686955165, 420492035499]


def test_blocks_change_places() -> None:
    """Even two of them: each is the first in some epoch; so is each window of a single one."""
    two = BlockOrder(20, seed=0, shape=BlockShape(10, 1))
    first = set()
    for epoch in range(30):
        start = ring_start(epoch_key(0, epoch), 20)
        first.add(int((two.windows(epoch, np.array([0]))[0] - start) % 20 // 10))
    assert first == {0, 1}
    one = BlockOrder(5, seed=0, shape=BlockShape(5, 1))
    assert {int(one.windows(epoch, np.array([0]))[0]) for epoch in range(99)} == set(range(5))


def test_blocks_begin_anywhere() -> None:
    """Over many epochs each window is about as often the first of a block."""
    n, epochs = 23, 1000
    counts = np.bincount([ring_start(epoch_key(1, epoch), n) for epoch in range(epochs)])
    expected = epochs / n
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_squared - (n - 1)) < 6 * np.sqrt(2 * (n - 1))
    # Also of more windows than one number of a key can count.
    starts = np.array([ring_start(epoch_key(1, epoch), 2**50) for epoch in range(99)])
    assert 0.4 < (starts / 2**50).mean() < 0.6
    assert len(np.unique(starts % 2**20)) == 99


def test_a_compressed_chunk_is_decoded_about_once_per_group(make_store: MakeClips) -> None:
    """No more often than the groups touch it; a full shuffle decodes it for every batch."""
    store = make_store(
        {"a": range(150), "b": range(120)},
        shape=(16, 16, 1),
        converted={"compression": "zstd", "chunk_frames": 8},
    )
    ds = FrameWindowDataset(
        open_frames(store, cache_bytes=24 * 8 * 256), input_frames=4, predict_frames=4
    )
    shape = BlockShape(30, 3)
    decoded: list[int] = []
    read = ds.source.stored._read_chunk
    ds.source.stored._read_chunk = lambda number: (decoded.append(number), read(number))[1]
    for _ in ds.batches(batch_size=4, shuffle="blocks", shuffle_blocks=(30, 3)):
        pass
    touched = 0
    order = ds.batches(batch_size=4, shuffle="blocks", shuffle_blocks=(30, 3)).schedule.order
    for group in cut_into_groups(order.windows(0, np.arange(len(ds))).tolist(), shape):
        rows = np.concatenate([part.ravel() for part in ds.index.frame_rows(np.array(group))])
        touched += len(np.unique(rows // 8))
    assert len(set(decoded)) == -(-270 // 8)
    assert touched / 2 < len(decoded) <= touched
    by_blocks = len(decoded)
    decoded.clear()
    for _ in ds.batches(batch_size=4, shuffle=True):
        pass
    assert len(decoded) > 3 * by_blocks


def some_windows() -> Iterator[tuple[WindowSpec, dict[str, float], int]]:
    """Windows of any shape in any store: spec, the other arguments of shapes, and group bytes."""
    rng = np.random.default_rng(1)
    for _ in range(300):
        numbers = rng.integers(1, 20, 5).tolist()
        spec = WindowSpec(numbers[0], numbers[1], numbers[2] % 3 + 1, numbers[3])
        rows = min(float(numbers[3]), float(spec.span))
        frame_bytes, chunk = int(10 ** rng.uniform(1, 7)), numbers[4]
        given = {"rows_per_window": rows, "frame_bytes": frame_bytes, "chunk_frames": chunk}
        for group_bytes in (2**24, 2**28, 2**30):
            yield spec, given, group_bytes


def test_usual_shapes_keep_to_the_bytes() -> None:
    """A group's frames fit, for any window, chunk and frame."""
    for spec, frames, group_bytes in some_windows():
        shape = BlockShape.usual(spec, **frames, group_bytes=group_bytes)
        beyond = spec.span - 1 + frames["chunk_frames"] - 1
        block_rows = shape.block_windows * frames["rows_per_window"] + beyond
        taken = shape.group_blocks * block_rows * frames["frame_bytes"]
        assert taken <= group_bytes or shape == BlockShape(1, 1)


def test_usual_blocks_stay_useful_while_two_fit() -> None:
    """Regression: to have 16 blocks in a group, they became single windows of large frames."""
    few = 0
    for spec, frames, group_bytes in some_windows():
        shape = BlockShape.usual(spec, **frames, group_bytes=group_bytes)
        beyond = spec.span - 1 + frames["chunk_frames"] - 1
        starts = shape.block_windows * frames["rows_per_window"]
        if least_group_bytes(spec, **frames) <= group_bytes:
            assert shape.group_blocks >= 2
            assert starts >= beyond - frames["rows_per_window"]
            # Fewer than 16 only where blocks could not be any shorter.
            shortest = 1.5 * beyond + frames["rows_per_window"] + 1
            assert shape.group_blocks >= 16 or starts <= shortest
            few += shape.group_blocks < 16
    assert few > 20


@pytest.mark.parametrize(
    ("frame_bytes", "group_bytes", "shape"),
    [
        (6_220_800, 2**30, (15, 7)),
        (2_764_800, 2**28, (15, 4)),
        # Two blocks of 21 rows, then two of 10, of which a window needs all.
        (6_220_800, 2**28, (12, 2)),
        (6_220_800, 2**27, (1, 2)),
        (6_220_800, 0, (1, 1)),
        # 81 rows, of which a ninth are the 9 beyond the starts of windows.
        (100_000, 2**30, (72, 132)),
    ],
)
def test_usual_shapes_of_large_frames(
    frame_bytes: int, group_bytes: int, shape: tuple[int, int]
) -> None:
    """1080p, 720p and smaller ones, in windows of 5 + 5 frames."""
    given = {"rows_per_window": 1.0, "frame_bytes": frame_bytes, "chunk_frames": 1}
    assert BlockShape.usual(WindowSpec(5, 5), **given, group_bytes=group_bytes) == BlockShape(
        *shape
    )


@pytest.mark.parametrize("packed", [False, True])
def test_the_usual_shape_is_that_of_the_store(
    make_store: MakeClips, tmp_path: Path, packed: bool
) -> None:
    """Regression: shards with other caches cut other blocks, and so did not share one order."""
    converted = {"compression": "zstd", "chunk_frames": 8} if packed else {}
    store = make_store({"a": range(400)}, shape=(64, 64, 1), converted=converted)
    shapes = []
    for options in ({}, {"cache_bytes": 100_000}, {"cache": "memory"}, {"cache": tmp_path / "c"}):
        frames = open_frames(store, **options)
        ds = FrameWindowDataset(frames, input_frames=5, predict_frames=5)
        order = ds.batches(
            batch_size=2, shuffle="blocks", num_shards=2, shard_index=1
        ).schedule.order
        assert order.block_windows == ds.block_shape().block_windows
        shapes.append(ds.block_shape())
    given = {"rows_per_window": 400 / 391, "frame_bytes": 4096, "chunk_frames": 8 if packed else 1}
    group_bytes = DEFAULT_CACHE_BYTES if packed else 2**30
    wanted = BlockShape.usual(WindowSpec(5, 5), **given, group_bytes=group_bytes)
    assert shapes == [wanted] * 4


@pytest.mark.parametrize("shape", [BlockShape(4, 3), (4, 3), [4, 3], (np.int64(4), np.int32(3))])
def test_shapes_that_are_taken(make_store: MakeClips, shape: object) -> None:
    """What `block_shape` returns, a tuple, and the list that JSON makes of one."""
    ds = FrameWindowDataset(make_store({"a": range(30)}), input_frames=2, predict_frames=1)
    options = {"batch_size": 1, "shuffle": "blocks", "shuffle_blocks": shape}
    assert ds.batches(**options).schedule.shuffle_blocks == BlockShape(4, 3)
    assert ds.batches(**options).state(2)["shuffle_blocks"] == (4, 3)
    assert ds.batches(**options).schedule.shuffle_blocks == BlockShape(4, 3)


def test_the_usual_shape_counts_windows_left_out(make_store: MakeClips) -> None:
    """Of every tenth window a block has as many rows, and fewer windows."""
    store = make_store({"a": range(200)})
    every = FrameWindowDataset(store, input_frames=2, predict_frames=1)
    some = FrameWindowDataset(
        store,
        input_frames=2,
        predict_frames=1,
        where=lambda table: table["frame_number"] % 10 == 0,
    )
    assert every.index.rows_per_window == pytest.approx(200 / 198)
    assert some.index.rows_per_window == pytest.approx(3)
    sizes = [ds.block_shape(group_bytes=10_000).block_windows for ds in (every, some)]
    assert sizes == [23, 8]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": "block"}, "shuffle must be True, False or 'blocks', got 'block'"),
        ({"shuffle": 2}, "shuffle must be True, False or 'blocks', got 2"),
        (
            {"shuffle": "blocks", "shuffle_blocks": (0, 3)},
            "shuffle_blocks must be (windows of a block, blocks of a group), integers >= 1, got ",
        ),
        ({"shuffle": "blocks", "shuffle_blocks": (1, 2, 3)}, "integers >= 1, got (1, 2, 3)"),
        ({"shuffle": "blocks", "shuffle_blocks": 5}, "integers >= 1, got 5"),
        ({"shuffle": "blocks", "shuffle_blocks": "12"}, "integers >= 1, got '12'"),
        ({"shuffle": "blocks", "shuffle_blocks": {1: 2}}, "integers >= 1, got {1: 2}"),
        ({"shuffle": "blocks", "shuffle_blocks": (2, True)}, "integers >= 1, got (2, True)"),
        ({"shuffle": "blocks", "shuffle_blocks": (2, 2.5)}, "integers >= 1, got (2, 2.5)"),
        (
            {"shuffle": "blocks", "shuffle_blocks": BlockShape(0, 2)},
            "integers >= 1, got BlockShape(block_windows=0, group_blocks=2)",
        ),
        ({"shuffle": True, "shuffle_blocks": (2, 3)}, "shuffle_blocks goes with shuffle='blocks'"),
        (
            {"shuffle": "blocks", "lanes": True},
            "lanes read every clip from front to back, so there are no blocks to shuffle; give ",
        ),
        (
            {"shuffle": True, "lanes": True, "shuffle_blocks": (2, 3)},
            "no blocks to shuffle; leave shuffle_blocks out, got (2, 3)",
        ),
    ],
)
def test_bad_options(make_store: MakeClips, options: dict, message: str) -> None:
    """The message says what was given and what to give."""
    ds = FrameWindowDataset(make_store({"a": range(9)}), input_frames=2, predict_frames=1)
    with pytest.raises(ValueError, match=re.escape(message)):
        ds.batches(batch_size=1, **options)


def test_weights_are_not_drawn_by_blocks() -> None:
    """Draws come from anywhere; the message says what to give."""
    draws = cumulative_draws(np.array([1, 2, 3]))
    with pytest.raises(ValueError, match="drawn from anywhere, not by blocks; give shuffle=True"):
        BatchSchedule(3, 1, "blocks", draws=draws, shuffle_blocks=BlockShape(1, 1))


def test_a_trillion_windows_cost_a_batch() -> None:
    """Nothing is as long as the windows, the blocks or the groups are many."""
    import tracemalloc

    schedule = BatchSchedule(10**12, 8, "blocks", 1, shuffle_blocks=BlockShape(10**4, 10**4))
    tracemalloc.start()
    windows = schedule.windows(3, 5_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(set(windows.tolist())) == 8
    assert peak < 1e6
