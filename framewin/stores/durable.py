"""Every write that must survive: positioned writes, fsync, and the rename that publishes a store.

A store is built inside the folder `DST.partial`, next to where it will be, and renamed to DST
once every file and folder of it is on disk. So DST is whole or not there. The partial folder holds

    framewin.partial   who is working on it; by this file a later run knows that it is framewin's
    plan.json          what is being made
    journal            which blocks are on disk; see `framewin.conversion.journal`
    run                which run is at work, where processes elsewhere write for it
    frames/            files of frames, kept when a conversion is resumed
    store, ...         the rest of the store, made anew by each run

All of it is done here, through `_step`, so that tests can fail or stop at any operation.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framewin.errors import StoreError

MARKER = "framewin.partial"
PLAN = "plan.json"
JOURNAL = "journal"
FRAMES = "frames"
STORE = "store"
SPILL = "spill"
RUN = "run"
KEPT = (MARKER, PLAN, JOURNAL, FRAMES)
CLEARING_TRIES = 5

_locks: set[int] = set()
"""Descriptors of the folders that this process has locked."""

failpoint: Callable[[str, Path], None] | None = None
"""Called before each durable operation with its name and path; only tests set it."""


class InUseError(StoreError):
    """Another process is building the same store."""


class AppearedError(StoreError):
    """Another process made the same store."""


class Site:
    """The partial folder of a store under construction, locked by this process."""

    def __init__(self, dest: Path) -> None:
        self.dest = dest
        self.folder = partial_path(dest)
        self.store = self.folder / STORE
        self.frames = self.folder / FRAMES
        self.journal = self.folder / JOURNAL
        self.spill = self.folder / SPILL
        """Where other processes leave what has no place yet."""
        self.keep = self.has_blocks
        """Whether what is there is worth keeping if the construction stops."""

    @property
    def has_blocks(self) -> bool:
        """Whether an interrupted run has left blocks that are on disk."""
        return self.journal.exists() and self.journal.stat().st_size > 0

    def plan(self) -> Any:
        """The plan of an interrupted run; None without one that is whole."""
        try:
            return json.loads((self.folder / PLAN).read_text())
        except (OSError, ValueError):
            return None

    def begin(self, plan: Mapping[str, Any], *, resume: bool) -> None:
        """Keep the frames of an interrupted run or not, clear away the rest, record the plan."""
        kept = KEPT if resume else (MARKER,)
        (self.folder / RUN).unlink(missing_ok=True)
        _clear(self.folder, kept)
        self.frames.mkdir(exist_ok=True)
        self.keep = resume
        if not resume:
            write_whole(self.folder / PLAN, json.dumps(plan).encode())
        sync(self.folder)

    def view(self) -> SiteView:
        """The site as other processes must find it; behind `begin`, which ends all views before."""
        self.spill.mkdir(exist_ok=True)
        token = uuid.uuid4().hex
        (self.folder / RUN).write_text(token)
        return SiteView(self.folder.absolute(), token)


@dataclass(frozen=True, slots=True)
class SiteView:
    """A partial folder as a process elsewhere must find it, that writes frames into it."""

    folder: Path
    """Absolute."""
    token: str
    """Of the run that the process writes for."""

    def is_right(self) -> bool:
        """Whether that run is still at work.

        The next run, also of the same plan, and the publication remove the token before anything
        else. A process that opens a file of frames first, and asks this before each block that it
        writes there, writes at most the one block that it was about to write when the run ended.

        Raises:
            OSError: No run is at work that others write for.
        """
        return (self.folder / RUN).read_text() == self.token


@contextmanager
def building(dest: Path) -> Iterator[Site]:
    """A place to build a store at, which becomes `dest` if the block succeeds.

    Otherwise it is removed, or kept where the block has set `keep`.

    Raises:
        InUseError: Another process is building the same store.
        AppearedError: `dest` appeared in the meantime.
        StoreError: A folder that is not framewin's is in the way.
    """
    site = Site(dest)
    _claim(site.folder)
    with _locked(site.folder):
        (site.folder / MARKER).write_text(f"{os.getpid()} on {socket.gethostname()}\n")
        try:
            _refuse_existing(dest)
            yield site
            _publish(site)
        except AppearedError:
            site.keep = False
            raise
        finally:
            if not site.keep:
                _remove(site.folder)


class DataFile:
    """A file that is written at byte offsets, by several threads at once."""

    def __init__(self, path: Path, size: int | None = None, *, make: bool = True) -> None:
        """Open a file, or make one unless it has to be there; with a size, of so many bytes."""
        self.path = path
        _step("open", path)
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if make else 0)
        self._descriptor = os.open(path, flags, 0o644)
        if size is not None:
            self.truncate(size)

    def truncate(self, size: int) -> None:
        """Cut or extend the file."""
        _step("truncate", self.path)
        os.ftruncate(self._descriptor, size)

    def write_at(self, data: memoryview | bytes, offset: int) -> None:
        """Write all of `data` at a byte offset; any thread."""
        view = memoryview(data).cast("B")
        while view:
            _step("write", self.path)
            written = os.pwrite(self._descriptor, view, offset)
            view = view[written:]
            offset += written

    def sync(self) -> None:
        """Wait until all that was written is on disk."""
        _step("fdatasync", self.path)
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Release the file, if that was not done before; also after a failure."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def check_new(dest: Path, another: str = "name") -> None:
    """Refuse a place that is taken, or whose folder is not there.

    Args:
        dest: What is to be made.
        another: What to choose anew, for the error.

    Raises:
        StoreError: See above.
    """
    if dest.exists() or dest.is_symlink():
        sweep(dest)
        raise StoreError(f"{dest} exists already; remove it or choose another {another}")
    if not dest.absolute().parent.is_dir():
        raise StoreError(f"{dest.parent} is not a folder; make it first")


def sweep(dest: Path) -> None:
    """Remove what a process that was killed after publishing `dest` has left beside it."""
    partial = partial_path(dest)
    if not (partial / MARKER).is_file():
        return
    with suppress(InUseError, OSError), _locked(partial):
        _remove(partial)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there with all its bytes or as it was before."""
    new = path.with_name(path.name + ".new")
    file = DataFile(new, 0)
    try:
        file.write_at(data, 0)
        file.sync()
    finally:
        file.close()
    _step("rename", path)
    new.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    _step("fsync", path)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def move(path: Path, target: Path) -> None:
    """Rename within the partial folder; it is on disk once the store is published."""
    target.parent.mkdir(parents=True, exist_ok=True)
    _step("rename", target)
    path.rename(target)


def partial_path(dest: Path) -> Path:
    """The folder in which a store is built."""
    return dest.with_name(dest.name + ".partial")


def tree_bytes(root: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    if root.is_file():
        return root.stat().st_size
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def _step(operation: str, path: Path) -> None:
    if failpoint is not None:
        failpoint(operation, path)


def _claim(partial: Path) -> None:
    """Make the folder, or find it to be framewin's."""
    try:
        _step("mkdir", partial)
        partial.mkdir()
    except FileExistsError:
        ours = partial.is_dir() and ((partial / MARKER).exists() or not any(partial.iterdir()))
        if not ours:
            raise StoreError(
                f"{partial} is in the way and was not made by framewin; move it or choose "
                "another name"
            ) from None


@contextmanager
def _locked(partial: Path) -> Iterator[None]:
    """Hold the lock of a folder, which ends with this process, however that ends.

    Raises:
        InUseError: Another one has it.
    """
    lock = os.open(partial, os.O_RDONLY)
    _locks.add(lock)
    try:
        _lock(lock, partial)
        yield
    finally:
        # A process forked from this one has let go of it.
        if lock in _locks:
            _locks.remove(lock)
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)


def _let_go() -> None:
    """In a forked process, which would hold the lock when the one that took it has ended."""
    while _locks:
        os.close(_locks.pop())


os.register_at_fork(after_in_child=_let_go)


def _lock(descriptor: int, partial: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The other conversion may have ended, and removed its folder, while this one opened it.
        if os.path.samestat(os.fstat(descriptor), partial.stat()):
            return
    except (BlockingIOError, FileNotFoundError):
        pass
    holder = "another process"
    with suppress(OSError):
        text = (partial / MARKER).read_text().strip()
        holder = f"process {text}" if text else holder
    raise InUseError(f"{partial} is in use by {holder}; wait for it or choose another name")


def _clear(folder: Path, kept: tuple[str, ...]) -> None:
    for entry in folder.iterdir():
        if entry.name in kept:
            continue
        if entry.is_dir() and not entry.is_symlink():
            _remove_tree(entry)
        else:
            entry.unlink()


def _remove_tree(folder: Path) -> None:
    """Remove a folder in which a process elsewhere may make or remove a file meanwhile."""
    for tries_left in reversed(range(CLEARING_TRIES)):
        try:
            shutil.rmtree(folder)
            return
        except OSError as exc:
            if not tries_left or exc.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                raise


def _publish(site: Site) -> None:
    """Put everything on disk, then rename, then put the rename on disk."""
    store, dest = site.store, site.dest
    (site.folder / RUN).unlink(missing_ok=True)
    if store.is_file():
        sync(store)
    for folder, _, names in os.walk(store, topdown=False):
        for name in names:
            sync(Path(folder, name))
        sync(Path(folder))
    _refuse_existing(dest)
    _step("rename", dest)
    if store.is_file():
        # A rename would replace a file that has just appeared; a link does not.
        try:
            os.link(store, dest)
        except FileExistsError:
            raise _appeared(dest) from None
    else:
        store.rename(dest)
    site.keep = False
    sync(dest.parent)


def _refuse_existing(dest: Path) -> None:
    if dest.exists():
        raise _appeared(dest)


def _appeared(dest: Path) -> AppearedError:
    return AppearedError(f"{dest} appeared while it was being written; it was left as it is")


def _remove(partial: Path) -> None:
    """Remove the folder; the marker last, so that it is framewin's as long as it is there."""
    # What is still in it after an error here is cleared by the next run.
    with suppress(OSError):
        _clear(partial, (MARKER,))
        (partial / MARKER).unlink()
        partial.rmdir()
