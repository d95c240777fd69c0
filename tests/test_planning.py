"""What reading will take: against counts of what really was decoded, and of pages in memory."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from framewin import FrameWindowDataset, plan, planning
from framewin.frames import open_frames
from framewin.windows import order
from framewin.windows.blocks import BlockOrder, BlockShape
from tests.conftest import MakeClips
from tests.helpers.windows import open_windows

FRAMEWIN = Path(sys.executable).parent / "framewin"
PAGE = 4096


@pytest.fixture
def packed(make_store: MakeClips) -> Path:
    return make_store(
        {"a": range(150), "b": range(120)},
        name="packed",
        shape=(16, 16, 1),
        converted={"compression": "zstd", "chunk_frames": 8},
    )


@pytest.mark.parametrize("cache_bytes", [2**28, 20 * 8 * 256, 3 * 8 * 256, 0])
def test_decoded_chunks_are_counted(packed: Path, cache_bytes: int) -> None:
    """As many as an epoch decodes, for each way to shuffle and any room for them."""
    shape = {"input_frames": 4, "predict_frames": 3, "frame_step": 2}
    found = plan(packed, batch_size=4, cache_bytes=cache_bytes, **shape)
    used = found.windows * 7 * 256
    for cost in found.costs:
        ds = FrameWindowDataset(open_frames(packed, cache_bytes=cache_bytes), **shape)
        decoded: list[int] = []
        read = ds.source.stored._read_chunk
        ds.source.stored._read_chunk = lambda n, to=decoded, read=read: (to.append(n), read(n))[1]
        blocks = {"shuffle_blocks": found.block_shape} if cost.shuffle == "blocks" else {}
        for _ in ds.batches(batch_size=4, shuffle=cost.shuffle, **blocks):
            pass
        assert cost.read_bytes == len(decoded) * 8 * 256
        assert cost.amplification == pytest.approx(cost.read_bytes / used)
        assert cost.whole


def pages_in_memory(path: Path, rows: np.ndarray, frame_bytes: int) -> int:
    """Pages that come into memory when frames of a file of that size are touched, by mincore.

    A file that is one hole has no page in memory yet, on a disk and on a tmpfs.
    """
    hole = path.with_name("hole")
    with hole.open("wb+") as file:
        file.truncate(path.stat().st_size)
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    hole.unlink()
    # Otherwise the system reads what lies around, too.
    mapping.madvise(mmap.MADV_RANDOM)
    pixels = np.frombuffer(mapping, np.uint8)
    for row in rows.tolist():
        pixels[row * frame_bytes : (row + 1) * frame_bytes].sum()
    found = (ctypes.c_ubyte * -(-len(pixels) // PAGE))()
    libc = ctypes.CDLL(None, use_errno=True)
    address = ctypes.c_void_p(pixels.ctypes.data)
    assert libc.mincore(address, ctypes.c_size_t(len(pixels)), found) == 0
    return sum(each & 1 for each in found)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mincore of Linux")
@pytest.mark.parametrize("shape", [(100, 100, 1), (30, 40, 1)])
def test_pages_are_counted(make_store: MakeClips, shape: tuple[int, int, int]) -> None:
    """As many as are in memory once every window was touched, and no other."""
    store = make_store({"a": range(90), "b": range(60)}, shape=shape, dtype="uint8")
    options = {"input_frames": 2, "predict_frames": 1, "window_stride": 20}
    ds = open_windows(store, **options)
    rows = np.unique(np.concatenate(ds.index.frame_rows(np.arange(len(ds))), axis=1))
    frame_bytes = int(np.prod(shape))
    frames = store / "frames" / "c" / "0" / "0" / "0" / "0"
    found = pages_in_memory(frames, rows, frame_bytes)
    assert found < -(-150 * frame_bytes // PAGE)
    assert planning.pages_of(rows, frame_bytes) == found
    for cost in plan(store, batch_size=2, memory_bytes=2**30, **options).costs:
        assert cost.read_bytes == cost.disk_bytes == found * PAGE
        assert cost.later_disk_bytes == 0


def test_pages_of_frames_of_any_size() -> None:
    """Against sets of page numbers."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        rows = np.unique(rng.integers(0, 50, rng.integers(1, 20)))
        size, offset = int(rng.integers(1, 20_000)), int(rng.integers(0, 9_000))
        pages = {
            page
            for row in rows.tolist()
            for page in range(
                (offset + row * size) // PAGE, (offset + row * size + size - 1) // PAGE + 1
            )
        }
        assert planning.pages_of(rows, size, offset) == len(pages)


def test_little_memory_reads_frames_again(make_store: MakeClips) -> None:
    """Of a store that does not fit: a full shuffle reads windows anew, blocks each frame once."""
    store = make_store({"a": range(3000)}, shape=(64, 64, 1))
    found = plan(store, memory_bytes=600 * PAGE, disk_mbps=1.0)
    unshuffled, full, blocks = found.costs
    assert unshuffled.read_bytes == 3000 * PAGE
    # A window's frames are there by chance, with 600 of 3000 frames in memory.
    assert 0.7 < full.amplification < 0.9
    # A block of n windows needs n + 9 frames, a window has 10; a tenth of the store is there from
    # groups before.
    n, groups = found.block_shape.block_windows, found.block_shape.group_blocks
    assert (n, groups) == (14, 13)
    assert blocks.amplification == pytest.approx(0.9 * (n + 9) / (10 * n), rel=0.05)
    assert full.later_disk_bytes == full.read_bytes
    assert full.later_seconds == pytest.approx(full.read_bytes / 1e6)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_part_of_the_batches_tells_as_much(
    make_store: MakeClips, compressed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scaled counts of a part are near those of the whole epoch."""
    converted = {"compression": "zstd", "chunk_frames": 5} if compressed else {}
    store = make_store({"a": range(2500)}, shape=(64, 64, 1), converted=converted)
    options = {"memory_bytes": 600 * PAGE, "cache_bytes": 1000 * PAGE}
    whole = plan(store, **options).costs
    monkeypatch.setattr(planning, "COUNTED_FRAMES", 12_000)
    for part, all_of_it in zip(plan(store, **options).costs, whole, strict=True):
        assert all_of_it.whole
        assert not part.whole
        assert part.read_bytes == pytest.approx(all_of_it.read_bytes, rel=0.08)


def test_advice_by_memory_and_disk(make_store: MakeClips, packed: Path) -> None:
    """Frames that fit stay there; else the quickest layout, by blocks where the disk is slow."""
    rng = np.random.default_rng(0)
    path = make_store({"a": range(2)}).with_name("noise.npy")
    np.save(path, rng.integers(0, 256, (1500, 64, 64), dtype=np.uint8))
    from framewin import convert

    store = path.with_name("noise.zarr")
    convert(path, store)
    fits = plan(store, memory_bytes=2**30)
    assert (fits.layout, fits.cache, fits.shuffle, fits.read_ahead) == ("none", None, True, 0)
    decoded = plan(packed, memory_bytes=2**30)
    assert (decoded.layout, decoded.cache, decoded.shuffle) == ("zstd", "memory", True)
    # Noise does not shrink: the disk says all, then nothing.
    slow = plan(store, memory_bytes=1000 * PAGE, disk_mbps=0.1, cache_bytes=700 * PAGE)
    assert (slow.layout, slow.shuffle, slow.read_ahead) == ("none", "blocks", 3)
    fast = plan(store, memory_bytes=1000 * PAGE, disk_mbps=1e9, cache_bytes=700 * PAGE)
    assert (fast.layout, fast.shuffle, fast.cache) == ("none", True, None)
    assert [reason.partition(":")[0] for reason in slow.reasons] == [
        "layout",
        "cache",
        "shuffle",
        "shuffle_blocks",
    ]
    assert fast.shuffle_blocks is fits.shuffle_blocks is None
    # What shrinks to less than memory is read from the disk once.
    zeros = path.with_name("zeros.npy")
    np.save(zeros, np.zeros((1500, 64, 64), np.uint8))
    convert(zeros, path.with_name("zeros.zarr"))
    small = plan(path.with_name("zeros.zarr"), memory_bytes=400 * PAGE, disk_mbps=0.001)
    assert small.layout in ("lz4", "zstd")
    assert small.cache_bytes == 2**28


@pytest.fixture
def noise(tmp_path: Path) -> Path:
    """2000 frames of a page each that do not shrink, compressed nevertheless."""
    from framewin import convert

    rng = np.random.default_rng(0)
    np.save(tmp_path / "noise.npy", rng.integers(0, 256, (2000, 64, 64), dtype=np.uint8))
    convert(tmp_path / "noise.npy", tmp_path / "noise.zarr", compression="zstd", chunk_frames=4)
    return tmp_path / "noise.zarr"


def test_the_blocks_that_are_advised_fit(noise: Path) -> None:
    """Regression: in little memory, blocks were counted that nothing told a dataset to use.

    Those of the store in `cache_bytes`; with a file of raw frames, in half of the memory.
    """
    found = plan(noise, memory_bytes=400 * PAGE, disk_mbps=0.5, cache_bytes=100 * PAGE)
    assert (found.layout, found.cache, found.shuffle) == ("none", "PATH", "blocks")
    shape = {"input_frames": 5, "predict_frames": 5}
    ds = FrameWindowDataset(noise, **shape)
    given = {"rows_per_window": ds.index.rows_per_window, "frame_bytes": PAGE}
    raw = BlockShape.usual(ds.spec, **given, chunk_frames=1, group_bytes=200 * PAGE)
    assert found.shuffle_blocks == raw
    assert found.block_shape == ds.block_shape(group_bytes=100 * PAGE) != ds.block_shape()
    assert (
        found.reasons[-1] == "shuffle_blocks: a group takes 0.8 MB, which memory_bytes has room for"
    )
    cached = FrameWindowDataset(open_frames(noise, cache=noise.with_name("frames.cache")), **shape)
    order = {"shuffle": found.shuffle, "shuffle_blocks": found.shuffle_blocks}
    blocks = cached.batches(batch_size=8, **order).schedule.order
    rows = [
        len(np.unique(np.concatenate(cached.index.frame_rows(blocks.windows(0, group)), axis=1)))
        for group in np.split(
            np.arange(len(ds)), blocks.group_begins(np.arange(1, blocks.num_groups))
        )
    ]
    # A block may lie across the ends of the store.
    assert max(rows) <= 200 + 10


def test_too_little_for_blocks_is_said(noise: Path) -> None:
    """Which option to raise, and to what; then it is gone."""
    options = {"memory_bytes": 1000 * PAGE, "disk_mbps": 0.5}
    small = plan(noise, **options, cache_bytes=30 * PAGE)
    needed = 2 * (2 * 12 + 2) * PAGE
    message = (
        "blocks: of zstd frames not two useful ones fit into 0.1 MB; a group needs 0.2 MB, raise "
        "cache_bytes"
    )
    assert message in small.reasons
    assert not [
        each for each in plan(noise, **options, cache_bytes=needed).reasons if "useful" in each
    ]


@pytest.mark.parametrize(("memory", "batches"), [(1000, 3), (300, 0)])
def test_no_more_is_read_ahead_than_stays(noise: Path, memory: int, batches: int) -> None:
    """Regression: 16 batches, whatever their size. A quarter of the memory, here of 80 pages."""
    found = plan(noise, memory_bytes=memory * PAGE, disk_mbps=0.5, cache_bytes=0)
    assert (found.layout, found.read_ahead) == ("none", batches)


def test_nothing_is_read_ahead_without_the_call(
    noise: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system that lacks it would refuse the option."""
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    assert plan(noise, memory_bytes=1000 * PAGE, disk_mbps=0.5, cache_bytes=0).read_ahead == 0


def test_decoding_gzip_takes_its_time(
    make_store: MakeClips, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: only the usual layouts were tried, so gzip seemed to cost nothing."""
    store = make_store(
        {"a": range(150), "b": range(120)},
        shape=(16, 16, 1),
        converted={"compression": "gzip", "chunk_frames": 8},
    )
    monkeypatch.setattr("framewin.conversion.estimate._shortest", lambda work: (work(), 1.0)[1])
    monkeypatch.setattr(planning, "usable_cores", lambda: 2)
    found = plan(store, memory_bytes=2**30, disk_mbps=1e12)
    assert [cost.layout for cost in found.layouts] == [
        name for name in ("none", "lz4", "zstd", "gzip") for _ in range(2)
    ]
    # In the second that each try took, 24 chunks of 8 frames were decoded, by one core.
    decoded = 24 * 8 * 256
    copied = 24 * 16 * 256
    for cost in found.costs:
        wanted = cost.read_bytes / (2 * decoded) + found.window_bytes / copied
        assert cost.first_seconds == pytest.approx(wanted)


def test_large_groups_of_blocks_are_sampled(
    make_store: MakeClips, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: of large frames, each of thousands of small groups was counted, for minutes."""
    store = make_store({"a": range(3000)}, shape=(64, 64, 1))
    options = {"memory_bytes": 200 * PAGE, "disk_mbps": 1.0}
    whole = plan(store, **options)
    assert all(cost.whole for cost in whole.costs)
    monkeypatch.setattr(planning, "COUNTED_GROUPS", 12)
    permuted = []
    monkeypatch.setattr(
        "framewin.windows.blocks.permuted",
        lambda *given: (permuted.append(given), order.permuted(*given))[1],
    )
    part = plan(store, **options)
    assert [cost.whole for cost in part.costs] == [True, True, False]
    assert part.costs[2].read_bytes == pytest.approx(whole.costs[2].read_bytes, rel=0.08)
    # Twelve groups and their blocks, of raw frames and of chunks.
    assert len(permuted) <= 2 * 2 * 12


def test_the_command_prints_the_same(packed: Path) -> None:
    """Numbers as JSON, or a table; and the memory in words."""
    command = [FRAMEWIN, "plan", packed, "--memory", "1.5GB", "--disk-mbps", "100"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    wanted = plan(packed, memory_bytes=1_500_000_000, disk_mbps=100.0).as_json()
    got = json.loads(done.stdout)
    assert got["memory_bytes"] == 1_500_000_000
    for key in ("windows", "batches", "window_bytes", "block_shape", "cache", "shuffle"):
        assert got[key] == wanted[key]
    counts = [[cost["read_bytes"] for cost in each["costs"]] for each in (got, wanted)]
    assert counts[0] == counts[1]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.search(r"^shuffle +read/used +a batch", done.stdout, re.MULTILINE)
    assert [line.split()[0] for line in done.stdout.splitlines()[-3:]] == [
        "False",
        "True",
        "blocks",
    ]


def test_the_command_names_the_blocks(noise: Path) -> None:
    """As an option of datasets, and as JSON of two numbers."""
    command = [FRAMEWIN, "plan", noise, "--memory", "1.6MB", "--disk-mbps", "0.5"]
    command += ["--cache-bytes", "1200000"]
    wanted = plan(noise, memory_bytes=1_600_000, disk_mbps=0.5, cache_bytes=1_200_000)
    assert wanted.shuffle_blocks is not None
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    n, count = wanted.shuffle_blocks.block_windows, wanted.shuffle_blocks.group_blocks
    assert f"shuffle 'blocks', shuffle_blocks ({n}, {count}); read_ahead" in " ".join(
        done.stdout.split()
    )
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["shuffle_blocks"] == [n, count]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--memory", "much"], "--memory must be a size such as 16GB or 500MB, got 'much'"),
        (["--memory", "0"], "memory_bytes must be > 0, got 0"),
        (["--disk-mbps", "0"], "--disk-mbps must be > 0, got 0.0"),
        (["--batch-size", "999"], "--batch-size must be in 1..252, got 999"),
        (["--input-frames", "999"], "no window fits, each spans 1004 frames"),
    ],
)
def test_bad_usage(packed: Path, option: list[str], message: str) -> None:
    """One line, exit code 2."""
    done = subprocess.run(
        [FRAMEWIN, "plan", packed, *option], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert message in re.sub(r"\s+", " ", done.stderr)


def test_no_store(tmp_path: Path) -> None:
    """One line, exit code 1."""
    done = subprocess.run(
        [FRAMEWIN, "plan", tmp_path / "no.zarr"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "does not exist; expected a store made by framewin convert" in done.stderr


def test_blocks_of_the_plan_are_those_of_the_dataset(packed: Path) -> None:
    """What is planned is what shuffle="blocks" does."""
    ds = FrameWindowDataset(packed, input_frames=5, predict_frames=5)
    shape = plan(packed).block_shape
    assert shape == ds.block_shape()
    order = ds.batches(batch_size=8, shuffle="blocks").schedule.order
    assert isinstance(order, BlockOrder)
    assert order.block_windows == shape.block_windows
