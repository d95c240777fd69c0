"""Frames of a slow store, decoded once into a raw region that is mapped.

On disk the region is a file: the frames from byte 0, then a JSON record with the identity of the
store that they come from, then the record's length and a name. It appears whole or not at all.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from framewin.errors import AppearedError, HeldElsewhereError, InUseError, StoreError, one_line
from framewin.remote import Location
from framewin.schema import Int64Array, Progress, StoreMeta
from framewin.stores import durable
from framewin.stores.chunk_io import range_crc32c
from framewin.stores.chunked_frames import ChunkedFrames
from framewin.stores.mapped_frames import MappedFrames

Rows = Sequence[tuple[int, int]]
"""Half-open ranges of rows, increasing."""

WAIT_SECONDS = 0.1

_MEMORY = Path("/proc/meminfo")
_GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_END = struct.Struct("<Q16s")
_MAGIC = b"framewin cache 1"
_MAX_RECORD_BYTES = 2**12


class FrameStore(Protocol):
    """What a dataset needs of a store."""

    meta: StoreMeta

    @property
    def path(self) -> Location:
        """Where it is."""

    @property
    def frames(self) -> MappedFrames | ChunkedFrames:
        """All frames."""

    @property
    def identity(self) -> str:
        """Changes with the store's content."""

    def statistics(self) -> dict[str, np.ndarray] | None:
        """The recorded statistics of frames, if there are any; see `framewin.stores.Store`."""

    def source_files(self, rows: Int64Array) -> list[str]:
        """Where each row came from."""


class CachedStore:
    """A store with its frames in another place."""

    def __init__(self, store: FrameStore, frames: MappedFrames) -> None:
        self.path = store.path
        self.meta = store.meta
        self.frames = frames
        self.source_files = store.source_files
        self.statistics = store.statistics
        self.store = store
        """Whose frames these are."""

    @property
    def identity(self) -> str:
        """Of the store whose frames these are."""
        return self.store.identity

    @property
    def stored_frames(self) -> MappedFrames | ChunkedFrames:
        """The frames in the place that they come from."""
        return self.store.frames


def stored_frames(store: FrameStore) -> MappedFrames | ChunkedFrames:
    """The frames of a store as they are there, whether or not a cache holds them."""
    return store.stored_frames if isinstance(store, CachedStore) else store.frames


def in_memory(store: FrameStore, rows: Rows, progress: Progress | None) -> CachedStore:
    """Decode the frames of some rows into memory; the other rows hold nothing.

    Of a store whose frames are in memory already, these rows are added to them.

    Raises:
        StoreError: They take more memory than there is.
    """
    source = store.store if isinstance(store, CachedStore) else store
    meta = store.meta
    needed = sum(end - begin for begin, end in rows) * meta.frame_format.nbytes
    available = available_memory()
    try:
        if needed > available:
            raise MemoryError
        if isinstance(store, CachedStore):
            frames = store.frames
        else:
            frames = MappedFrames.in_memory(meta.frame_format, meta.clips.num_frames)
    except (MemoryError, OSError, OverflowError):
        raise StoreError(
            f"cache='memory' takes {needed:,} bytes for the frames of {store.path} but "
            f"{available:,} are available; name a file to cache them in, or leave cache out"
        ) from None

    def sink(first_row: int, decoded: np.ndarray) -> None:
        frames.array[first_row : first_row + len(decoded)] = decoded

    _decode(source, rows, sink, progress)
    return CachedStore(source, frames)


def available_memory() -> int:
    """Bytes that this process could still take, as far as the system says."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    # A group's limit may be "max"; macOS has neither file.
    with suppress(OSError, ValueError):
        found.append(int(_GROUP_LIMIT.read_text()))
    with suppress(OSError, ValueError, IndexError):
        found.append(1024 * int(_MEMORY.read_text().partition("MemAvailable:")[2].split()[0]))
    return min(found)


def on_disk(
    store: FrameStore, path: Path, progress: Progress | None, *, verify: bool = False
) -> CachedStore:
    """Decode all frames into a file, or use the one that is there.

    Several processes may do so at once: one fills the file, the others wait for it.

    Raises:
        StoreError: The file holds the frames of another store, or of this one before it was
            changed, or it cannot be written.
    """
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "no file"
        raise StoreError(f"{path} is {kind}; name the file to cache the frames in")
    if not path.parent.is_dir():
        raise StoreError(f"{path.parent} is not a folder; make it first")
    told = False
    while not path.exists():
        try:
            with durable.building(path) as site:
                _fill(store, site.store, progress)
        except (InUseError, AppearedError) as exc:
            if isinstance(exc, HeldElsewhereError) and not told:
                print(f"framewin: waiting, {exc}", file=sys.stderr, flush=True)
                told = True
            time.sleep(WAIT_SECONDS)
        except OSError as exc:
            raise StoreError(f"{path} cannot be written: {one_line(exc)}") from exc
    checksum = _check(store, path)
    if verify and range_crc32c(path, 0, store.meta.frame_bytes) != checksum:
        raise StoreError(f"{path} is damaged; remove it")
    num_frames, frame_format = store.meta.clips.num_frames, store.meta.frame_format
    return CachedStore(store, MappedFrames.of_file(path, frame_format, num_frames))


def _fill(store: FrameStore, target: Path, progress: Progress | None) -> None:
    frame_bytes = store.meta.frame_format.nbytes
    file = durable.DataFile(target, store.meta.frame_bytes)
    try:
        _decode(
            store,
            [(0, store.meta.clips.num_frames)],
            lambda first_row, decoded: file.write_at(decoded.data, first_row * frame_bytes),
            progress,
        )
        checksum = range_crc32c(target, 0, store.meta.frame_bytes)
        file.write_at(_record(store, checksum), store.meta.frame_bytes)
        file.sync()
    finally:
        file.close()


def _check(store: FrameStore, path: Path) -> int:
    """Refuse a file that does not hold this store's frames; returns their checksum."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - _END.size))
        end = file.read()
        length, magic = _END.unpack(end) if len(end) == _END.size else (0, b"")
        if magic != _MAGIC or length > min(size - _END.size, _MAX_RECORD_BYTES):
            raise StoreError(f"{path} is not a cache of frames, or cut short; choose another name")
        file.seek(-(_END.size + length), os.SEEK_END)
        record = file.read()
    try:
        checksum = int(json.loads(record[: -_END.size])["crc32c"])
    except (ValueError, KeyError, TypeError):
        checksum = -1
    if record != _record(store, checksum) or size != store.meta.frame_bytes + len(record):
        raise StoreError(
            f"{path} holds the frames of another store than {store.path}, or of this one before "
            "it was changed, or is cut short; remove it or choose another name"
        )
    return checksum


def _record(store: FrameStore, checksum: int) -> bytes:
    shape = (store.meta.clips.num_frames, *store.meta.frame_format.shape)
    record: dict[str, Any] = {
        "identity": store.identity,
        "shape": shape,
        "dtype": store.meta.frame_format.dtype,
    }
    record["crc32c"] = checksum
    text = json.dumps(record).encode()
    return text + _END.pack(len(text), _MAGIC)


def _decode(
    store: FrameStore,
    rows: Rows,
    sink: Callable[[int, np.ndarray], None],
    progress: Progress | None,
) -> None:
    for done in store.frames.each_chunk(rows, sink):
        if progress is not None:
            progress(done, store.meta.clips.num_frames)
