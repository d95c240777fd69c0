"""Lanes: each row of a batch continues the row of the batch before, or says that it does not."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framewin import FrameWindowDataset
from framewin.windows.lanes import LaneSchedule
from framewin.windows.order import EpochOrder
from framewin.windows.spec import Runs, WindowIndex, WindowSpec
from tests.conftest import MakeClips, import_or_skip


@given(
    st.lists(st.integers(6, 30), min_size=1, max_size=6),
    st.integers(1, 4),
    st.integers(1, 2),
    st.booleans(),
    st.integers(0, 5),
)
def test_inputs_follow_one_another(
    lengths: list[int], batch_size: int, step: int, shuffle: bool, epoch: int
) -> None:
    """Unless it is reset, a row's first input is one step behind its last one, in the same run."""
    spec = WindowSpec(2, 1, frame_step=step)
    starts = np.cumsum([0, *(n + 3 for n in lengths[:-1])])
    index = WindowIndex(spec, Runs(starts, np.array(lengths)))
    hop = 2 * step
    chains = -(-np.diff(index.window_ends, prepend=0) // hop)
    enough = chains.sum() >= batch_size
    lanes = LaneSchedule(index, batch_size, shuffle=shuffle) if enough else None
    seen: list[int] = []
    last = last_runs = np.zeros(0)
    for number in range(lanes.num_batches if lanes else 0):
        windows, resets = lanes.windows(epoch, number), lanes.resets(epoch, number)
        seen += windows.tolist()
        inputs, _ = index.frame_rows(windows)
        runs = np.searchsorted(starts, inputs[:, 0], side="right")
        if number:
            goes_on = (inputs[:, 0] - last[:, -1] == step) & (runs == last_runs)
            assert (goes_on | resets).all()
        else:
            assert resets.all()
        last, last_runs = inputs, runs
    assert len(set(seen)) == len(seen)


@given(
    st.lists(st.integers(1, 25), min_size=1, max_size=6),
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from([(0, 1), (0, 2), (1, 2), (2, 3)]),
    st.booleans(),
    st.integers(0, 3),
)
def test_lanes_are_chains_cut_to_equal_length(
    lengths: list[int], batch_size: int, step: int, shard: tuple[int, int], shuffle: bool, seed: int
) -> None:
    """As by plain lists: chains in their order, one after the other, cut into rows."""
    span = 2 * step + 1
    chains, first = [], 0
    for length in lengths:
        count = max(0, length - span + 1)
        chains += [list(range(first, first + count, 2 * step))] if count else []
        first += count
    if not chains:
        return
    order = np.arange(len(chains))
    if shuffle:
        order = EpochOrder(len(chains), seed=seed).windows(2, order)
    flat = [window for chain in order for window in chains[chain]]
    num_batches = len(flat) // (batch_size * shard[1])
    starts = np.cumsum([0, *(n + 3 for n in lengths[:-1])])
    index = WindowIndex(WindowSpec(2, 1, frame_step=step), Runs(starts, np.array(lengths)))
    options = {"shuffle": shuffle, "seed": seed, "shard": shard}
    if num_batches < 1:
        message = f"is above the number of windows whose inputs follow one another, {len(flat)}"
        with pytest.raises(ValueError, match=message):
            LaneSchedule(index, batch_size, **options)
        return
    rows = range(shard[0] * batch_size, (shard[0] + 1) * batch_size)
    lanes = LaneSchedule(index, batch_size, **options)
    assert lanes.num_batches == num_batches
    for schedule in (lanes, pickle.loads(pickle.dumps(lanes))):
        for number in range(num_batches):
            wanted = [flat[row * num_batches + number] for row in rows]
            begins = [number == 0 or any(w == chain[0] for chain in chains) for w in wanted]
            assert schedule.windows(2, number).tolist() == wanted
            assert schedule.draws_of(2, number).tolist() == wanted
            assert schedule.resets(2, number).tolist() == begins
            assert schedule.resets(2, number).dtype == bool


def test_lanes_by_default() -> None:
    """Nothing is shuffled; a shuffle has the seed 0; a window every few frames may be enough."""
    index = WindowIndex(WindowSpec(2, 1), Runs(np.arange(9) * 10, np.full(9, 4)))
    plain, shuffled = LaneSchedule(index, 1), LaneSchedule(index, 1, shuffle=True)
    got = [[s.windows(1, n)[0] for n in range(s.num_batches)] for s in (plain, shuffled)]
    order = EpochOrder(9, seed=0).windows(1, np.arange(9))
    assert got == [[2 * n for n in range(9)], [2 * n for n in order]]
    assert (plain.place(9), plain.place(8)) == ((1, 0), (0, 8))
    for step in (-1, 9):
        with pytest.raises(IndexError, match=f"step {step} is out of range, an epoch has 9"):
            plain.windows(0, step)
    sparse = WindowIndex(WindowSpec(4, 1, window_stride=2), Runs(np.array([0]), np.array([13])))
    assert LaneSchedule(sparse, 1).num_batches == 3
    assert [LaneSchedule(sparse, 1).windows(0, n)[0] for n in range(3)] == [0, 2, 4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed must be in [0, 2**63), got -1"),
        ({"shuffle": "block"}, "shuffle must be True, False or 'blocks', got 'block'"),
        ({"shuffle": "blocks"}, "lanes read every clip from front to back, so there are no blocks"),
        ({"shard": (1, 1)}, "shard must be (index, count) with 0 <= index < count, got (1, 1)"),
    ],
)
def test_lanes_check_what_they_are_given(options: dict, message: str) -> None:
    """Once, when they are made."""
    index = WindowIndex(WindowSpec(2, 1), Runs(np.array([0]), np.array([9])))
    with pytest.raises(ValueError, match=re.escape(message)):
        LaneSchedule(index, 1, **options)


def test_batches_bring_the_mask(make_store: MakeClips) -> None:
    """batches(lanes=True): the windows of the lanes, and the resets among the inputs."""
    store = make_store({"a": range(12), "b": range(9)})
    ds = FrameWindowDataset(store, input_frames=2, predict_frames=1)
    batches = ds.batches(batch_size=2, lanes=True, shuffle=True, epochs=2)
    lanes = LaneSchedule(ds.index, 2, shuffle=True)
    assert len(batches) == 2 * lanes.num_batches
    for number, (inputs, targets) in enumerate(pickle.loads(pickle.dumps(batches))):
        epoch, step = divmod(number, lanes.num_batches)
        expected = ds.batch(lanes.windows(epoch, step))
        assert np.array_equal(inputs["frames"], expected[0])
        assert np.array_equal(targets, expected[1])
        assert np.array_equal(inputs["resets"], lanes.resets(epoch, step))
    with pytest.raises(IndexError, match="step 9 is out of range, an epoch has"):
        lanes.windows(0, 9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be >= 1, got 0"),
        ({"batch_size": 9}, "batch_size 9 is above the number of windows whose inputs follow one"),
        (
            {"batch_size": 4, "num_shards": 2},
            "batch_size 4 x 2 shards is above the number of win",
        ),
        (
            {"batch_size": 1, "num_shards": 2, "shard_index": 2},
            "shard_index must be in [0, 2), the shards, got 2",
        ),
    ],
)
def test_bad_lanes(make_store: MakeClips, options: dict, message: str) -> None:
    """The message says what does not fit."""
    store = make_store({"a": range(12)})
    ds = FrameWindowDataset(store, input_frames=2, predict_frames=1)
    with pytest.raises(ValueError, match=re.escape(message)):
        ds.batches(lanes=True, **options)
    sparse = FrameWindowDataset(store, input_frames=2, predict_frames=1, window_stride=3)
    with pytest.raises(ValueError, match="lanes need a window every 2 frames"):
        sparse.batches(lanes=True, batch_size=1)
    weighed = FrameWindowDataset(store, input_frames=2, predict_frames=1, weights="mean")
    with pytest.raises(ValueError, match="lanes follow the clips, so windows with weights= cannot"):
        weighed.batches(lanes=True, batch_size=1)


def parts(batch: tuple) -> list[np.ndarray]:
    inputs, *others = batch
    first = [inputs[name] for name in sorted(inputs)] if isinstance(inputs, dict) else [inputs]
    return [np.asarray(part) for part in (*first, *others)]


def same(ones: object, others: object) -> bool:
    pairs = zip(ones, others, strict=True)
    return all(
        all(np.array_equal(a, b) for a, b in zip(parts(one), parts(other), strict=True))
        for one, other in pairs
    )


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("input_name", [None, "pictures"])
def test_every_adapter_gives_the_same_lanes(
    make_store: MakeClips, shuffle: bool, input_name: str | None
) -> None:
    """Two epochs of tf.data, of Keras and of torch are those of numpy, resumed as well."""
    store = make_store({"a": [*range(12), *range(20, 31)], "b": range(9)})
    ds = FrameWindowDataset(store, input_frames=2, predict_frames=1)
    options = {"batch_size": 2, "lanes": True, "shuffle": shuffle, "input_name": input_name}
    numpy = ds.batches(**options, epochs=2)
    steps = numpy.steps_per_epoch
    epochs = list(numpy)[:steps], list(numpy)[steps:]
    state = ds.batches(batch_size=2, lanes=True, shuffle=shuffle).state(steps + 2)
    import_or_skip("tensorflow")
    batches = ds.to_tf_dataset(**options)
    assert b"PyFunc" not in batches._as_serialized_graph().numpy()
    for epoch in epochs:
        assert same(batches.as_numpy_iterator(), epoch)
    rest = ds.to_tf_dataset(**state, input_name=input_name)
    assert same(rest.as_numpy_iterator(), epochs[1][2:])
    keras = ds.to_keras_dataset(**options)
    assert same([keras[step] for step in range(steps)], epochs[0])
    assert set(keras[0][0]) == set(batches.element_spec[0]) == {input_name or "frames", "resets"}


def test_torch_gives_the_same_lanes(make_store: MakeClips) -> None:
    """As numpy, by name."""
    import_or_skip("torch")
    ds = FrameWindowDataset(make_store({"a": range(30)}), input_frames=2, predict_frames=1)
    options = {"batch_size": 2, "lanes": True, "shuffle": True}
    assert same(ds.to_torch_loader(**options), ds.batches(**options))


def test_shards_of_lanes_are_their_union(make_store: MakeClips) -> None:
    """Step s of three shards of two lanes, one behind the other, is step s of six lanes."""
    ds = FrameWindowDataset(
        make_store({"a": range(20), "b": range(31), "c": range(9)}),
        input_frames=2,
        predict_frames=1,
    )
    whole = ds.batches(batch_size=6, lanes=True, shuffle=True)
    shards = [
        ds.batches(batch_size=2, lanes=True, shuffle=True, num_shards=3, shard_index=index)
        for index in range(3)
    ]
    for step, wanted in zip(zip(*shards, strict=True), whole, strict=True):
        columns = zip(*map(parts, step), strict=True)
        assert all(map(np.array_equal, map(np.concatenate, columns), parts(wanted)))
    import_or_skip("tensorflow")
    for index, shard in enumerate(shards):
        batches = ds.to_tf_dataset(
            batch_size=2, lanes=True, shuffle=True, num_shards=3, shard_index=index
        )
        assert same(batches.as_numpy_iterator(), shard)


def test_a_stateful_model_is_fed_its_resets(make_store: MakeClips) -> None:
    """Without input_name, too, fit takes the mask as the input "resets", never for weights."""
    keras = import_or_skip("keras")
    import_or_skip("tensorflow")
    ds = FrameWindowDataset(make_store({"a": range(30)}), input_frames=2, predict_frames=1)
    frames = keras.Input((2, 4, 6, 1), name="frames")
    resets = keras.Input((), dtype="bool", name="resets")
    kept = keras.ops.cast(keras.ops.logical_not(resets), "float32")
    moved = keras.layers.Conv3D(1, (2, 1, 1))(frames) * keras.ops.reshape(kept, (-1, 1, 1, 1, 1))
    model = keras.Model({"frames": frames, "resets": resets}, moved)
    model.compile(optimizer="sgd", loss="mse")
    options = {"batch_size": 2, "lanes": True, "normalize": "unit"}
    for batches in (ds.to_keras_dataset(**options), ds.to_tf_dataset(**options)):
        history = model.fit(batches, verbose=0, shuffle=False)
        assert np.isfinite(history.history["loss"]).all()
