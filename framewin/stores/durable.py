"""Every write that must survive: positioned writes, fsync, and the rename that publishes a store.

A store is built inside the folder `DST.partial`, next to where it will be, and renamed to DST
once every file and folder of it is on disk. So DST is whole or not there. The partial folder holds

    framewin.partial   by this file a later run knows that the folder is framewin's
    framewin.lock      who is working on it, also for other machines; gone when nobody is
    plan.json          what is being made
    journal            which parts are on disk; see `framewin.conversion.journal`
    run                which run is at work, where processes elsewhere write for it
    frames/            files of frames, kept when a conversion is resumed
    writing/           files of frames that are being written, removed by the next run
    store, ...         the rest of the store, made anew by each run

All of it is done here, through `_step`, so that tests can fail or stop at any operation.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framewin.errors import AppearedError, StoreError
from framewin.parallel import repeated
from framewin.stores.folder_lock import LACKING, LOCK, in_use, locked

MARKER = "framewin.partial"
PLAN = "plan.json"
JOURNAL = "journal"
FRAMES = "frames"
STORE = "store"
WRITING = "writing"
RUN = "run"
KEPT = (MARKER, LOCK, PLAN, JOURNAL, FRAMES)
CLEARING_TRIES = 5

failpoint: Callable[[str, Path], None] | None = None
"""Called before each durable operation with its name and path; only tests set it."""


class Site:
    """The partial folder of a store under construction, locked by this process."""

    def __init__(self, dest: Path) -> None:
        self.dest = dest
        self.folder = partial_path(dest)
        self.store = self.folder / STORE
        self.frames = self.folder / FRAMES
        self.journal = self.folder / JOURNAL
        self.writing = self.folder / WRITING
        """Where files of frames are that are not whole yet."""
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

    @property
    def unfinished(self) -> str:
        """What an interrupted run has left that can go on: a conversion, a fetch, or nothing."""
        if "fetch" in (self.plan() or ()):
            return "fetch"
        return "conversion" if self.has_blocks else ""

    def begin(self, plan: Mapping[str, Any], *, resume: bool) -> None:
        """Keep the frames of an interrupted run or not, clear away the rest, record the plan."""
        kept = KEPT if resume else (MARKER, LOCK)
        (self.folder / RUN).unlink(missing_ok=True)
        _clear(self.folder, kept)
        self.frames.mkdir(exist_ok=True)
        self.writing.mkdir()
        self.keep = resume
        if not resume:
            write_whole(self.folder / PLAN, json.dumps(plan).encode())
        sync(self.folder)

    def view(self) -> SiteView:
        """The site as other processes must find it; behind `begin`, which ends all views before."""
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
def building(dest: Path, *, resumes: bool = False) -> Iterator[Site]:
    """A place to build a store at, which becomes `dest` if the block succeeds.

    Otherwise it is removed, or kept where the block has set `keep`.

    Args:
        dest: What is built.
        resumes: Whether the block decides what becomes of interrupted work that can go on.

    Raises:
        InUseError: Another process is building the same store.
        AppearedError: `dest` appeared in the meantime.
        StoreError: A folder that is not framewin's is in the way, or interrupted work.
    """
    site = Site(dest)
    _claim(site.folder)
    with locked(site.folder):
        os.close(os.open(site.folder / MARKER, os.O_CREAT | os.O_NOFOLLOW, 0o666))
        # Another process may have worked there since the folder was looked at.
        site.keep = bool(site.unfinished)
        try:
            refuse_existing(dest)
            if site.unfinished and not resumes:
                raise StoreError(
                    f"{site.folder} holds an unfinished {site.unfinished}; repeat its command to "
                    "go on with it, or choose another name"
                )
            yield site
            _publish(site)
        finally:
            if not site.keep:
                _remove(site.folder)


class DataFile:
    """A file that is written at byte offsets, by several threads at once."""

    def __init__(self, path: Path, size: int | None = None, *, make: bool = True) -> None:
        """Open a file, or make one unless it has to be there; with a size, of so many bytes."""
        self.path = path
        _step("open", path)
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if make else 0)
        self._descriptor = os.open(path, flags, 0o666)
        self._failed: OSError | None = None
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
        """Wait until all that was written is on disk.

        The system reports lost data once, and takes it for written then; so an error is repeated.
        """
        if self._failed is not None:
            raise self._failed
        try:
            _step("fdatasync", self.path)
            _put_on_disk(self._descriptor)
        except OSError as exc:
            self._failed = exc
            raise

    @property
    def closed(self) -> bool:
        """Whether the file was released."""
        return self._descriptor < 0

    def close(self) -> None:
        """Release the file, if that was not done before; also after a failure."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def check_new(dest: Path, another: str = "name", *, dry: bool = False) -> None:
    """Refuse a place that is taken, or whose folder is not there or cannot be written to.

    Args:
        dest: What is to be made.
        another: What to choose anew, for the error.
        dry: Whether nothing may be changed, not even what a killed process has left.

    Raises:
        StoreError: See above.
    """
    if os.path.lexists(dest):
        if not dry:
            sweep(dest)
        raise StoreError(f"{dest} exists already; remove it or choose another {another}")
    folder = dest.absolute().parent
    if not folder.is_dir():
        raise StoreError(f"{dest.parent} is not a folder; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreError(f"{dest.parent} cannot be written to; choose another {another}")


def check_room(dest: Path, needed: int) -> None:
    """Refuse what takes more bytes than are free where it is to be.

    Raises:
        StoreError: See above.
    """
    free = shutil.disk_usage(dest.absolute().parent).free
    if needed > free:
        raise StoreError(
            f"{dest} needs {needed:,} bytes but {dest.parent} has {free:,} bytes free; make room "
            "or choose another disk"
        )


def sweep(dest: Path) -> None:
    """Remove what a process that was killed after publishing `dest` has left beside it.

    What an interrupted run has left that can go on stays.
    """
    partial = partial_path(dest)
    if partial.is_symlink() or not (partial / MARKER).is_file() or not dest.exists():
        return
    store, frames = partial / STORE, partial / FRAMES
    with suppress(StoreError, OSError), locked(partial):
        if store.samefile(dest) if store.exists() else not frames.exists() or _is_empty(frames):
            _remove(partial)


def refuse_existing(dest: Path) -> None:
    """Refuse to go on where another process has made the same store.

    Raises:
        AppearedError: See above.
    """
    if os.path.lexists(dest):
        raise _appeared(dest)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there with all its bytes or as it was before."""
    new = path.with_name(path.name + ".new")
    file = DataFile(new, 0)
    try:
        file.write_at(data, 0)
        file.sync()
    except OSError:
        # It would take the room that the next attempt needs.
        with suppress(OSError):
            new.unlink()
        raise
    finally:
        file.close()
    replace(new, path)
    sync(path.parent)


def replace(path: Path, target: Path) -> None:
    """Rename, over what is there; it is on disk once the folder is synced."""
    _step("rename", target)
    path.replace(target)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    _step("fsync", path)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as exc:
        # Not every file system can do so with a folder.
        if exc.errno not in LACKING or not path.is_dir():
            raise
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


def _put_on_disk(descriptor: int) -> None:
    if hasattr(fcntl, "F_FULLFSYNC"):
        # macOS leaves what is synced in the cache of the disk, but for this.
        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    getattr(os, "fdatasync", os.fsync)(descriptor)


def _is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


def _claim(partial: Path) -> None:
    """Make the folder, or find it to be framewin's."""
    try:
        _step("mkdir", partial)
        partial.mkdir()
    except FileExistsError:
        try:
            ours = stat.S_ISDIR(partial.lstat().st_mode) and _is_ours(partial)
        except FileNotFoundError:
            # Who worked there has just ended.
            raise in_use(partial) from None
        if not ours:
            raise StoreError(
                f"{partial} is in the way and was not made by framewin; move it or choose "
                "another name"
            ) from None
        for folder, folders, files in os.walk(partial):
            for path in (Path(folder, name) for name in (*folders, *files)):
                if path.is_symlink():
                    raise StoreError(
                        f"{path} is a link, which framewin never makes; remove {partial} or choose "
                        "another name"
                    ) from None


def _is_ours(partial: Path) -> bool:
    # The marker is made once the lock is held, and removed before it; so one look tells.
    names = {path.name for path in partial.iterdir()}
    if MARKER in names:
        return not (partial / MARKER).is_dir()
    return all(name == LOCK or name.startswith(f"{LOCK}.") for name in names)


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

    def may_pass(exc: Exception) -> bool:
        return isinstance(exc, OSError) and exc.errno in (errno.ENOTEMPTY, errno.ENOENT)

    repeated(lambda: shutil.rmtree(folder), CLEARING_TRIES, may_pass)


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
    refuse_existing(dest)
    _step("rename", dest)
    # A rename would replace a file that has just appeared; a link does not.
    if not (store.is_file() and _linked(store, dest)):
        store.rename(dest)
    site.keep = False
    sync(dest.parent)


def _linked(store: Path, dest: Path) -> bool:
    """Give a file a second name; False where the file system has no links."""
    try:
        os.link(store, dest)
    except FileExistsError:
        raise _appeared(dest) from None
    except OSError as exc:
        if exc.errno not in LACKING:
            raise
        return False
    return True


def _appeared(dest: Path) -> AppearedError:
    return AppearedError(f"{dest} appeared while it was being written; it was left as it is")


def _remove(partial: Path) -> None:
    """Remove the folder; what makes it framewin's last."""
    # What is still in it after an error here is cleared by the next run.
    with suppress(OSError):
        _clear(partial, (MARKER, LOCK))
        (partial / MARKER).unlink()
        (partial / LOCK).unlink(missing_ok=True)
        partial.rmdir()
