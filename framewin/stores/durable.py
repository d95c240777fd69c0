"""Every write that must survive: positioned writes, fsync, and the rename that publishes a store.

A store is built inside the folder `DST.partial`, next to where it will be, and renamed to DST
once every file and folder of it is on disk. So DST is whole or not there. The partial folder also
holds a marker file, by which a later run knows that it may clear away what an interrupted one left.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from framewin.errors import StoreError

MARKER = "framewin.partial"
STORE = "store"
SEND_BYTES = 2**24


class InUseError(StoreError):
    """Another process is building the same store."""


class AppearedError(StoreError):
    """Another process made the same store."""


@contextmanager
def building(dest: Path) -> Iterator[Path]:
    """A path to build a store at, which is renamed to `dest` if the block succeeds, else removed.

    Raises:
        InUseError: Another process is building the same store.
        AppearedError: `dest` appeared in the meantime.
        StoreError: A folder that is not framewin's is in the way.
    """
    partial = dest.with_name(dest.name + ".partial")
    lock = _claim(partial)
    try:
        _lock(lock, partial)
        try:
            (partial / MARKER).touch()
            _empty(partial)
            _refuse_existing(dest)
            yield partial / STORE
            _publish(partial / STORE, dest)
        finally:
            _remove(partial)
    finally:
        os.close(lock)


class SizedFile:
    """A file of known size, filled by several threads at once.

    A thread of its own sends what was written to the disk along the way, so that the fsync
    which ends the conversion finds little left to do.
    """

    def __init__(self, path: Path, size: int | None) -> None:
        """Make a file of `size` bytes, or with None open one that is there already."""
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR if size is None else os.O_RDWR | os.O_CREAT | os.O_EXCL
        self.descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
        if size is not None:
            os.truncate(self.descriptor, size)
        self._lock = threading.Lock()
        self._unsent_bytes = 0
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="framewin-sync")
        self._sent: list[Future[None]] = []

    def write_at(self, data: memoryview | bytes, offset: int) -> None:
        """Write all of `data` at a byte offset; any thread."""
        view = memoryview(data).cast("B")
        with self._lock:
            self._unsent_bytes += len(view)
            send = self._unsent_bytes >= SEND_BYTES
            self._unsent_bytes = 0 if send else self._unsent_bytes
        while view:
            written = os.pwrite(self.descriptor, view, offset)
            view = view[written:]
            offset += written
        if send:
            self._sent.append(self._sender.submit(os.fdatasync, self.descriptor))

    def wait(self) -> None:
        """Wait until all that was sent is on disk; raises OSError if any of it failed."""
        for sent in self._sent:
            sent.result()

    def close(self) -> None:
        """Release the file; also after a failure."""
        self._sender.shutdown(cancel_futures=True)
        os.close(self.descriptor)


def tree_bytes(root: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    if root.is_file():
        return root.stat().st_size
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def _claim(partial: Path) -> int:
    """Make the folder, or find it to be framewin's; returns a descriptor of it."""
    try:
        partial.mkdir()
    except FileExistsError:
        ours = partial.is_dir() and ((partial / MARKER).exists() or not any(partial.iterdir()))
        if not ours:
            raise StoreError(
                f"{partial} is in the way and was not made by framewin; move it or choose "
                "another name"
            ) from None
    return os.open(partial, os.O_RDONLY)


def _lock(descriptor: int, partial: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The other conversion may have ended, and removed its folder, while this one opened it.
        if os.path.samestat(os.fstat(descriptor), partial.stat()):
            return
    except (BlockingIOError, FileNotFoundError):
        pass
    raise InUseError(
        f"{partial} is in use by another conversion; wait for it or choose another name"
    )


def _empty(folder: Path) -> None:
    """Clear what an interrupted run left, but for the marker that says it may be cleared."""
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != MARKER:
            entry.unlink()


def _publish(store: Path, dest: Path) -> None:
    """Put everything on disk, then rename, then put the rename on disk."""
    if store.is_file():
        _sync(store)
    for folder, _, names in os.walk(store, topdown=False):
        for name in names:
            _sync(Path(folder, name))
        _sync(Path(folder))
    _refuse_existing(dest)
    store.rename(dest)
    _sync(dest.parent)


def _refuse_existing(dest: Path) -> None:
    if dest.exists():
        raise AppearedError(f"{dest} appeared while it was being written; it was left as it is")


def _remove(partial: Path) -> None:
    """Remove the folder; the marker last, so that it is framewin's as long as it is there."""
    # What is still in it after an error here is cleared by the next run.
    with suppress(OSError):
        _empty(partial)
        (partial / MARKER).unlink()
        partial.rmdir()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
