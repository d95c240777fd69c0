"""Places where stores are built: syncs, locks, links, rights, and file systems that lack things."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from framewin import FrameWindowDataset, StoreError, convert
from framewin import plan as fitting_plan
from framewin.conversion.fingerprints import Fingerprints
from framewin.conversion.plan import draft_conversion, plan_conversion
from framewin.errors import AppearedError, InUseError
from framewin.frames import open_frames
from framewin.schema import ClipTable, FrameFormat, StoreMeta
from framewin.sources.clips import Clip
from framewin.stores import cache, durable, folder_lock
from framewin.stores import layout as layouts
from framewin.stores.layout import Layout
from framewin.stores.writer import Part
from framewin.stores.zarr_writer import Writer
from tests.conftest import MakeClips, make_frame
from tests.faults.job import CHUNK_FRAMES, Failpoint, bytes_of, convert_with

CLIPS = {"a": range(30)}


class StopError(Exception):
    """What stops a conversion in these tests."""


def interrupted(source: Path, dest: Path, compression: str = "none") -> dict[str, bytes]:
    """Stop a conversion once some blocks are on disk; returns what is kept."""

    def stop(done: int, total: int) -> None:
        if done >= 15:
            raise StopError

    with pytest.raises(StopError):
        convert_with(source, dest, compression, Failpoint(), progress=stop)
    return bytes_of(durable.partial_path(dest))


def test_a_part_is_taken_while_others_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal's thread waits for the disk while the next shard is committed."""
    meta = StoreMeta(FrameFormat(2, 3, 1, "uint8"), ClipTable.from_frame_numbers(["a"], [range(9)]))
    files = [("", ["0.png"] * 9)]
    monkeypatch.setattr(layouts, "SHARD_BYTES", 1)
    site = durable.Site(tmp_path / "clips.zarr")
    site.folder.mkdir()
    site.begin({}, resume=False)
    writer = Writer(site, meta, files, Layout("gzip", chunk_frames=1))
    frames = np.arange(54, dtype=np.uint8).reshape(9, 2, 3, 1)

    def part(number: int) -> Part:
        block = writer.parts.write_block(number, frames[number : number + 1])
        return writer.parts.write_part(number, [block])

    writer.commit(part(0))
    syncing, committed, fdatasync = threading.Event(), threading.Event(), os.fdatasync

    def slow(descriptor: int) -> None:
        syncing.set()
        assert committed.wait(20)
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", slow)
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(writer.sync)
        assert syncing.wait(20)
        for number in range(1, 9):
            writer.commit(part(number))
        committed.set()
        done.result()
        writer.sync()
    assert sorted(path.name for path in site.frames.iterdir()) == [*map(str, range(9))]
    assert not any(site.writing.iterdir())
    assert np.array_equal(writer.frames().take(np.arange(9)), frames)
    writer.close()


def test_a_failed_sync_fails_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system tells of lost data once; a second call that succeeds proves nothing."""
    file = durable.DataFile(tmp_path / "file", 0)
    with monkeypatch.context() as patch:
        patch.setattr(durable, "failpoint", Failpoint(1, "EIO once"))
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.close()


def test_what_can_be_resumed_is_kept_where_the_store_exists(
    make_clips: MakeClips, tmp_path: Path
) -> None:
    """Neither a dry run nor a refusal removes it; the command goes on once the place is free."""
    source, dest = make_clips(CLIPS), tmp_path / "clips.zarr"
    kept = interrupted(source, dest)
    dest.mkdir()
    for lenient in (False, True):
        with pytest.raises(StoreError, match=r"clips\.zarr exists already; remove it or choose"):
            draft_conversion(source, dest, lenient=lenient)
        assert bytes_of(durable.partial_path(dest)) == kept
    with pytest.raises(AppearedError), durable.building(dest, resumes=True):
        pass
    assert bytes_of(durable.partial_path(dest)) == kept
    dest.rmdir()
    report = convert(source, dest, chunk_frames=CHUNK_FRAMES)
    assert report.resumed_frames >= 15


def test_other_work_does_not_clear_what_can_be_resumed(
    make_clips: MakeClips, tmp_path: Path
) -> None:
    """A prediction or cache of the same name is refused."""
    source, dest = make_clips(CLIPS), tmp_path / "clips.zarr"
    kept = interrupted(source, dest)
    message = f"{dest}.partial holds an unfinished conversion; repeat its command to go on with it"
    with pytest.raises(StoreError, match=re.escape(message)), durable.building(dest):
        pass
    assert bytes_of(durable.partial_path(dest)) == kept


@pytest.mark.parametrize("place", ["", durable.MARKER, durable.FRAMES, "frames/0", "journal"])
def test_links_are_not_followed(make_clips: MakeClips, tmp_path: Path, place: str) -> None:
    """Where a partial folder, or anything in it, is a link, nothing behind it is touched."""
    source, dest = make_clips(CLIPS), tmp_path / "clips.zarr"
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("thesis.txt", durable.MARKER):
        (outside / name).write_text("chapter 1")
    partial = durable.partial_path(dest)
    link = partial / place
    if place:
        link.parent.mkdir(parents=True)
        (partial / durable.MARKER).touch()
        link.unlink(missing_ok=True)
    link.symlink_to(outside if place in ("", durable.FRAMES) else outside / "thesis.txt")
    with pytest.raises(StoreError, match=r"is a link, which|is in the way and was not made by"):
        convert(source, dest)
    durable.sweep(dest)
    assert bytes_of(outside) == {"thesis.txt": b"chapter 1", durable.MARKER: b"chapter 1"}


def test_a_file_that_becomes_a_link_is_not_opened(tmp_path: Path) -> None:
    """Not even where it was none when the folder was looked at."""
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic link"):
        durable.DataFile(tmp_path / "link", 10)
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
@pytest.mark.parametrize("mask", [0o002, 0o027])
def test_the_umask_decides_who_may_read(
    make_clips: MakeClips, tmp_path: Path, mask: int, suffix: str, compression: str
) -> None:
    """Of every file and folder."""
    source, dest = make_clips(CLIPS), tmp_path / f"clips{suffix}"
    before = os.umask(mask)
    try:
        convert(source, dest, compression=compression)
        durable.write_whole(tmp_path / "whole.json", b"{}")
    finally:
        os.umask(before)
    for path in (dest, *dest.rglob("*"), tmp_path / "whole.json"):
        expected = (0o777 if path.is_dir() else 0o666) & ~mask
        assert path.stat().st_mode & 0o777 == expected, path


def refusing(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """A file system without links, locks or the syncing of folders, that answers so."""
    fsync = os.fsync

    def refuse(*arguments: object) -> None:
        raise OSError(code, os.strerror(code))

    def fsync_files(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            refuse()
        fsync(descriptor)

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(os, "fsync", fsync_files)


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
def test_file_systems_that_lack_things(
    make_clips: MakeClips,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    suffix: str,
    code: int,
) -> None:
    """The store is the same; that there are no locks is said in one line."""
    source, dest, whole = make_clips(CLIPS), tmp_path / f"clips{suffix}", tmp_path / f"w{suffix}"
    convert_with(source, whole, "none", Failpoint())
    refusing(monkeypatch, code)
    monkeypatch.delattr(os, "fdatasync")
    interrupted(source, dest)
    with contextlib.suppress(StopError), durable.building(dest, resumes=True):
        with pytest.raises(InUseError, match=f"is in use by process {os.getpid()} on"):
            convert(source, dest)
        raise StopError
    report = convert(source, dest, compression="none", chunk_frames=CHUNK_FRAMES)
    assert report.resumed_frames >= 15
    assert bytes_of(dest) == bytes_of(whole)
    assert "is on a file system without locks; framewin.lock in it" in capsys.readouterr().err


def lock_of(partial: Path, **changed: object) -> str:
    """Write the lock file of another process."""
    holder = {**folder_lock.this_process(), **changed}
    partial.mkdir(exist_ok=True)
    (partial / folder_lock.LOCK).write_text(json.dumps(holder))
    return f"process {holder['pid']} on {holder['host']}"


def test_two_machines_on_one_disk(
    make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock of the system may end at the machine's border, so a file names who is at work."""
    source, dest = make_clips(CLIPS), tmp_path / "clips.zarr"
    partial = durable.partial_path(dest)
    holder = lock_of(partial, pid=12, host="elsewhere", machine="m", boot="b")
    message = (
        f"{partial} is in use by {holder}; wait for it or choose another name; if it has ended, "
        f"remove {partial / folder_lock.LOCK}"
    )
    with pytest.raises(StoreError, match=re.escape(message)):
        convert(source, dest)
    for text in ("torn", ""):
        (partial / folder_lock.LOCK).write_text(text)
        with monkeypatch.context() as patch:
            refusing(patch, errno.ENOLCK)
            message = r"in use by another process; .* if it has ended, remove"
            with pytest.raises(StoreError, match=message):
                convert(source, dest)
        # With the lock of the system it is what a kill or a full disk has left.
        with durable.building(dest) as site:
            site.store.touch()
        assert not partial.exists()
        dest.unlink()
        partial.mkdir()


@pytest.mark.parametrize("place", ["write", "fsync"])
def test_a_lock_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """On a full disk it is removed, so that the next attempt is not kept out."""

    def fail(*_: object) -> int:
        if place == "write":
            return 3
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, place, fail)
        with pytest.raises(OSError, match="No space left"), durable.building(tmp_path / "x"):
            pass
    assert not (durable.partial_path(tmp_path / "x") / folder_lock.LOCK).exists()
    with durable.building(tmp_path / "x") as site:
        site.store.touch()
    assert (tmp_path / "x").exists()


def test_one_of_two_takes_a_dead_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has seen it, but comes after the other, leaves the other's as it is."""
    refusing(monkeypatch, errno.ENOLCK)
    partial = durable.partial_path(tmp_path / "x")
    lock_of(partial, pid=2**22 + 1)
    lock = partial / folder_lock.LOCK
    ended = folder_lock.has_ended

    def overtaken(holder: dict[str, object], *, alone: bool) -> bool:
        lock_of(partial, host="faster")
        return ended(holder, alone=alone)

    monkeypatch.setattr(folder_lock, "has_ended", overtaken)
    with pytest.raises(InUseError, match="on faster"), durable.building(tmp_path / "x"):
        pass
    assert json.loads(lock.read_text())["host"] == "faster"
    assert [path.name for path in partial.iterdir()] == [folder_lock.LOCK]


@pytest.mark.parametrize("seen", ["lstat", "iterdir"])
def test_a_folder_that_has_just_been_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: str
) -> None:
    """Its process has ended meanwhile; that is no folder of another program in the way."""
    partial = durable.partial_path(tmp_path / "x")
    partial.mkdir()
    look = getattr(Path, seen)

    def gone(path: Path) -> object:
        if path == partial and partial.exists():
            partial.rmdir()
        return look(path)

    monkeypatch.setattr(Path, seen, gone)
    with (
        pytest.raises(InUseError, match="in use by another"),
        durable.building(tmp_path / "x"),
    ):
        pass


@pytest.mark.parametrize(
    ("changed", "locks", "ended"),
    [
        ({"pid": 2**22 + 1}, True, True),
        ({"pid": 2**22 + 1}, False, True),
        ({}, True, True),  # a number used again: the system's lock was free
        ({}, False, False),
        ({"boot": "before"}, False, True),
        ({"host": "container"}, True, True),  # of the same machine, by its boot
        ({"host": "container"}, False, False),
        ({"host": "container", "boot": "before"}, True, False),
    ],
)
def test_locks_of_processes_that_ended(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, object],
    locks: bool,
    ended: bool,
) -> None:
    """They hinder nobody, as far as it is known that they ended."""
    this = {"pid": os.getpid(), "host": "here", "machine": "m", "boot": "now"}
    monkeypatch.setattr(folder_lock, "this_process", lambda: this)
    if not locks:
        refusing(monkeypatch, errno.ENOLCK)
    lock_of(durable.partial_path(tmp_path / "x"), **changed)
    assert folder_lock.has_ended({**this, **changed}, alone=locks) is ended
    try:
        with durable.building(tmp_path / "x") as site:
            site.store.write_bytes(np.arange(3).tobytes())
    except InUseError:
        assert not ended
    assert (tmp_path / "x").exists() is ended


def test_a_resumed_conversion_counts_what_it_did(make_clips: MakeClips, tmp_path: Path) -> None:
    """All bytes of the source, but a rate of the frames that it converted itself."""
    source, dest = make_clips(CLIPS), tmp_path / "clips.zarr"
    interrupted(source, dest)
    report = convert(source, dest, chunk_frames=CHUNK_FRAMES)
    assert report.bytes_in == sum(path.stat().st_size for path in source.rglob("*.png"))
    assert report.frames_per_second == (30 - report.resumed_frames) / report.seconds


def test_fingerprints_of_a_long_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block costs what it holds, not what the file holds."""
    np.save(tmp_path / "long.npy", np.zeros((640, 4, 6), np.uint8))
    plan = plan_conversion(tmp_path / "long.npy", tmp_path / "long.zarr")
    known, made = Fingerprints(plan), []
    monkeypatch.setattr(Clip, "names_of_frames", made.append)
    found = {known.of_rows(row, row + 10) for row in range(0, 640, 10)}
    assert made == []
    assert len(found) == 1  # one file, of equal parts


def test_systems_that_lack_calls_of_linux(
    make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but reading ahead needs them: macOS has neither these nor /proc."""
    source, dest = make_clips(CLIPS), tmp_path / "clips.zarr"
    for name in ("fdatasync", "posix_fadvise", "posix_fallocate", "sched_getaffinity"):
        monkeypatch.delattr(os, name)
    for module, name in (
        (folder_lock, "_BOOT_ID"),
        (folder_lock, "_MACHINE_ID"),
        (cache, "_MEMORY"),
    ):
        monkeypatch.setattr(module, name, tmp_path / "none")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    convert(source, dest, compression="gzip")
    ds = FrameWindowDataset(open_frames(dest, cache="memory"), input_frames=1, predict_frames=1)
    assert len(ds) == 29
    assert np.array_equal(ds[3][0][0], make_frame(0, 3))
    assert fitting_plan(dest, input_frames=1, predict_frames=1, batch_size=2).read_ahead == 0


def test_a_folder_that_cannot_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found before any work."""
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    message = f"{tmp_path} cannot be written to; choose another name"
    with pytest.raises(StoreError, match=re.escape(message)):
        durable.check_new(tmp_path / "clips.zarr")
