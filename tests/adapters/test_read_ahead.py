"""Reading ahead: the right rows in time, nothing twice, and no trace when it is over."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from framewin import FrameWindowDataset
from framewin.adapters.read_ahead import ReadAhead, pieces_of, start
from framewin.frames import open_frames
from tests.conftest import MakeClips

pytestmark = pytest.mark.skipif(
    not hasattr(os, "posix_fadvise"), reason="this system has no posix_fadvise"
)


@pytest.fixture
def ds(make_store: MakeClips) -> FrameWindowDataset:
    return FrameWindowDataset(
        make_store({"a": range(40), "b": range(30)}),
        input_frames=2,
        predict_frames=2,
        frame_step=2,
        lead_gap=1,
    )


def asked_rows(ds: FrameWindowDataset, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows that are asked for from now on, in their order."""
    rows: list[int] = []
    monkeypatch.setattr(
        type(ds.mapped), "will_need", lambda self, begin, end: rows.extend(range(begin, end))
    )
    return rows


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 4},
        {"batch_size": 4, "shuffle": True, "seed": 3},
        {
            "batch_size": 3,
            "shuffle": "blocks",
            "shuffle_blocks": (5, 3),
            "num_shards": 2,
            "shard_index": 1,
        },
        {"batch_size": 2, "lanes": True},
    ],
)
def test_all_rows_of_coming_batches_are_asked_for_once(
    ds: FrameWindowDataset, options: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Across the ends of epochs, batch by batch or in jumps, in the order they are needed."""
    if "lanes" in options:
        ds = FrameWindowDataset(ds.path, input_frames=2, predict_frames=2)
    rows = asked_rows(ds, monkeypatch)
    batches = ds.batches(**options)
    schedule = batches.schedule
    ahead = ReadAhead(batches, 5)
    for done in range(3 * schedule.num_batches):
        ahead.follow(done)
        wanted = []
        for number in range(done + 5):
            windows = schedule.windows(*schedule.place(number))
            for window in windows:
                parts = ds.index.frame_rows(np.array([window]))
                wanted += np.concatenate(parts, axis=1).ravel().tolist()
        assert rows == wanted
    del rows[:]
    assert ahead.follow(100 * schedule.num_batches)
    assert len(rows) == sum(
        len(schedule.windows(*schedule.place(100 * schedule.num_batches + n))) * ds_frames(ds)
        for n in range(5)
    )


def ds_frames(ds: FrameWindowDataset) -> int:
    return ds.spec.input_frames + ds.spec.predict_frames


def test_few_batches_wait_until_there_are_more(
    ds: FrameWindowDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of the batches are asked for together."""
    rows = asked_rows(ds, monkeypatch)
    ahead = ReadAhead(ds.batches(batch_size=1), 8)
    assert [ahead.follow(done) for done in range(6)] == [True, False, True, False, True, False]
    assert len(rows) == 12 * ds_frames(ds)


def test_the_graph_is_followed(
    ds: FrameWindowDataset, tf: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batches are those without; the thread asks for later ones, and ends with the pipeline."""
    rows = asked_rows(ds, monkeypatch)
    options = {"batch_size": 2, "shuffle": "blocks", "shuffle_blocks": (6, 2), "repeat": True}
    plain = ds.to_tf_dataset(**options)
    batches = ds.to_tf_dataset(**options, read_ahead=3, prefetch=1)
    assert b"PyFunc" not in batches._as_serialized_graph().numpy()
    schedule = ds.batches(batch_size=2, shuffle="blocks", shuffle_blocks=(6, 2)).schedule
    steps = schedule.num_batches + 4
    for got, want in zip(batches.take(steps), plain.take(steps), strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
    windows = schedule.windows(*schedule.place(steps))
    last = ds.index.start_rows(windows[-1:])[0]
    wait_until(lambda: last in rows)
    del batches, got, want
    wait_until(lambda: not followers())


def followers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "framewin-read-ahead"]


def wait_until(happened: object, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_an_iterator_with_it_can_be_checkpointed(
    ds: FrameWindowDataset, tf: ModuleType, tmp_path: Path
) -> None:
    """The number that is counted is no part of the iterator's state."""
    options = {"batch_size": 3, "shuffle": True, "seed": 2, "read_ahead": 2}
    iterator = iter(ds.to_tf_dataset(**options))
    next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "checkpoint")
    rest = [batch[0].numpy() for batch in iterator]
    other = iter(ds.to_tf_dataset(**options))
    tf.train.Checkpoint(iterator=other).restore(saved)
    assert all(np.array_equal(got[0], want) for got, want in zip(other, rest, strict=True))


ENDS = """
import sys
from framewin import FrameWindowDataset
ds = FrameWindowDataset(sys.argv[1], input_frames=2, predict_frames=2)
batches = ds.to_tf_dataset(batch_size=2, shuffle=True, read_ahead=4, repeat=True)
next(iter(batches))
print("done")
"""


def test_the_program_ends(ds: FrameWindowDataset, tf: ModuleType) -> None:
    """Though the pipeline is still there, and without a word."""
    command = [sys.executable, "-c", ENDS, ds.path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    # What TensorFlow logs when it starts is no fault of the thread.
    logged = re.compile(r"WARNING: All log messages before|[IWE]\d{4} ")
    assert [line for line in done.stderr.splitlines() if not logged.match(line)] == []


@pytest.fixture
def file_on_disk(tmp_path: Path) -> Iterator[Path]:
    """A path on a disk, also where the temporary folder is in memory."""
    for folder in (tmp_path, Path(__file__).parent, Path("/var/tmp")):
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".npy") as file:
            file.write(bytes(2**20))
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if not in_memory(file.fileno(), 4):
                yield Path(file.name)
                return
    pytest.skip("all folders are in memory")


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="this system has no RWF_NOWAIT")
def test_pages_are_read_ahead_of_their_use(file_on_disk: Path) -> None:
    """What is asked for comes into the page cache without being touched."""
    rng = np.random.default_rng(0)
    path = file_on_disk
    np.save(path, rng.integers(0, 255, (64, 256, 256), dtype=np.uint8))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert not in_memory(file.fileno(), 50)
        ds = FrameWindowDataset(open_frames(path, axes="tyx"), input_frames=2, predict_frames=1)
        ahead = ReadAhead(ds.batches(batch_size=1, shuffle=True), 4)
        ahead.follow(0)
        schedule = ds.batches(batch_size=1, shuffle=True).schedule
        windows = [int(schedule.windows(0, n)[0]) for n in range(4)]
        for window in windows:
            wait_until(lambda row=window: in_memory(file.fileno(), row + 1))


def in_memory(descriptor: int, row: int) -> bool:
    """Whether the middle of a frame can be read without the disk."""
    try:
        return os.preadv(descriptor, [bytearray(1)], 128 + row * 2**16 + 2**15, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False
    except OSError:  # A file system in memory, which does not tell.
        return True


def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The bytes [begin, end) of each request from now on."""
    found: list[tuple[int, int]] = []

    def fadvise(descriptor: int, offset: int, count: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_WILLNEED
        found.append((offset, offset + count))

    monkeypatch.setattr(os, "posix_fadvise", fadvise)
    return found


def times_open(path: Path) -> int:
    """How many descriptors of this process are of a file; what else it has open comes and goes."""
    found, file = 0, path.stat()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found += os.path.samestat(descriptor.stat(), file)
    return found


@pytest.fixture
def large(tmp_path: Path) -> FrameWindowDataset:
    """Frames of 3 MB, of which most disks read only a part for one request."""
    path = tmp_path / "large.npy"
    np.lib.format.open_memmap(path, "w+", np.uint8, (12, 1000, 3000)).flush()
    return FrameWindowDataset(open_frames(path, axes="tyx"), input_frames=3, predict_frames=2)


@pytest.mark.parametrize("readahead", [None, 0, 2**20])
def test_large_windows_are_asked_for_in_pieces(
    large: FrameWindowDataset, monkeypatch: pytest.MonkeyPatch, readahead: int | None
) -> None:
    """Regression: Linux cuts a request to what it reads ahead, so most of a window was missing."""
    monkeypatch.setattr("framewin.stores.mapped_frames.readahead_bytes", lambda device: readahead)
    found = requests(monkeypatch)
    assert ReadAhead(large.batches(batch_size=1), 1).follow(2)
    assert found[0][0] == 128 + 2 * 3_000_000
    assert found[-1][1] == 128 + 7 * 3_000_000
    assert [end for _, end in found[:-1]] == [begin for begin, _ in found[1:]]
    assert max(end - begin for begin, end in found) == (readahead or 2**17)
    assert len(found) == -(-15_000_000 // (readahead or 2**17))


def test_a_file_is_opened_for_it_only_when_needed(
    ds: FrameWindowDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: each dataset kept one more file open, though nothing was read ahead."""
    requests(monkeypatch)
    frames = ds.path / "frames" / "c" / "0" / "0" / "0" / "0"
    other = FrameWindowDataset(ds.path, input_frames=2, predict_frames=2)
    assert times_open(frames) == 0
    other.batch([0])
    # The mapping has its own.
    assert times_open(frames) == 1
    ReadAhead(other.batches(batch_size=1), 2).follow(0)
    assert times_open(frames) == 2
    del other
    gc.collect()
    assert times_open(frames) == 0


def test_another_pass_asks_again(ds: FrameWindowDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: after a pass to its end, a second one or a restored iterator asked for nothing.

    Two batches that are made side by side are no reason to ask again.
    """
    rows = asked_rows(ds, monkeypatch)
    ahead = ReadAhead(ds.batches(batch_size=1), 4)
    assert ahead.follow(0)
    first = list(rows)
    assert ahead.follow(1000)
    del rows[:]
    assert not ahead.follow(999)
    assert ahead.follow(0)
    assert rows == first


def test_frames_in_memory_need_nothing(
    make_store: MakeClips, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache in memory takes the option, and the system is asked for nothing."""
    store = make_store({"a": range(9)}, converted={"compression": "zstd"})
    for cache, count in (("memory", 0), (store.with_name("frames.cache"), 4)):
        found = requests(monkeypatch)
        ds = FrameWindowDataset(open_frames(store, cache=cache), input_frames=2, predict_frames=1)
        assert ReadAhead(ds.batches(batch_size=1), 4).follow(0)
        assert len(found) == count


def test_a_system_that_refuses_ends_the_thread(
    ds: FrameWindowDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a traceback; so does a file that is gone."""

    def refuse(*_: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "posix_fadvise", refuse)
    thread = start(ReadAhead(ds.batches(batch_size=1), 4), lambda: 0)
    thread.join(60)
    assert not thread.is_alive()
    moved = FrameWindowDataset(ds.path, input_frames=2, predict_frames=2)
    assert moved.mapped is not None
    ds.path.rename(ds.path.with_name("elsewhere.zarr"))
    thread = start(ReadAhead(moved.batches(batch_size=1), 4), lambda: 0)
    thread.join(60)
    assert not thread.is_alive()


def test_what_cannot_be_read_ahead(make_store: MakeClips, tf: ModuleType) -> None:
    """Decoded frames, and numbers below 0; the message says what to do."""
    store = make_store({"a": range(9)}, converted={"compression": "zstd"})
    ds = FrameWindowDataset(store, input_frames=2, predict_frames=1)
    message = "read_ahead is for frames that are mapped, those of"
    with pytest.raises(ValueError, match=f"{message} .* leave it out, or give the dataset a cache"):
        ds.to_tf_dataset(batch_size=1, read_ahead=2)
    with pytest.raises(ValueError, match=re.escape("read_ahead must be >= 0, got -1")):
        ds.to_tf_dataset(batch_size=1, read_ahead=-1)
    for wrong in (2.5, "2", True):
        with pytest.raises(TypeError, match=f"read_ahead must be an integer, got {wrong!r}"):
            ds.to_tf_dataset(batch_size=1, read_ahead=wrong)
    assert list(pieces_of(ds.spec)) == [(0, 3)]
