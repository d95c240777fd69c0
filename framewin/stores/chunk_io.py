"""Chunks as they lie in a file: written with a checksum each, and checked when read.

Whatever is read of a store is read by `read_place`, and the size of a file asked by `size_of`,
whether the file is on this machine or an object in an object store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import google_crc32c
import numpy as np

from framewin.errors import StoreError, one_line
from framewin.remote import Location, RemotePath
from framewin.schema import StoreMeta
from framewin.stores.chunked_frames import ChunkedFrames, RunReader, pieces
from framewin.stores.layout import ResolvedLayout

MOST_READ_BYTES = 2**30
SUMMED_BYTES = 2**24
"""Read at once where only a checksum is wanted."""
RUN_BYTES = 2**22
"""Most bytes of chunks that one request to an object store brings, unless one chunk has more."""
RUN_PIXEL_BYTES = 2**26
"""Most bytes of pixels of such a run, which one thread decodes, unless one chunk has more."""
GAP_BYTES = 2**16
"""Of chunks that are not wanted between two that are, which cost less than another request."""
REQUESTS_AT_ONCE = 16
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """Where a chunk's bytes are."""

    path: Location
    offset: int
    nbytes: int
    trailer_bytes: int = 0
    """Behind it, its crc32c as a little-endian integer of so many bytes."""


class ChunkStore(Protocol):
    """What reading a chunk takes of a store."""

    path: Location
    meta: StoreMeta
    layout: ResolvedLayout
    chunks: dict[str, np.ndarray]

    def place(self, chunk: int) -> ChunkPlace:
        """Where a chunk's bytes are."""

    def decode(self, data: bytes, out: np.ndarray) -> None:
        """Decompress a chunk into `out`, (chunk_frames, H, W, C)."""


def chunked_frames(store: ChunkStore, cache_bytes: int) -> ChunkedFrames:
    """The frames of a store that cannot be mapped: its chunks are compressed, or not here."""
    chunk_frames = store.layout.chunk_frames
    num_frames, frame_format = store.meta.clips.num_frames, store.meta.frame_format

    def decoded(number: int, data: bytes) -> np.ndarray:
        frames = np.empty((chunk_frames, *frame_format.shape), frame_format.dtype)
        try:
            store.decode(data, frames)
        # What it was written as, but not what it claims to be; each codec has errors of its own.
        except Exception as exc:
            raise StoreError(
                f"{store.place(number).path} cannot be decoded in {frame_range(store, number)} "
                f"({exc}); convert it again"
            ) from exc
        return frames[: num_frames - number * chunk_frames]

    def read_chunks(run: list[int]) -> Iterator[np.ndarray]:
        found = read_run(store, run)
        for number in found.wrong(trailers=False):
            raise _damaged(store, number)
        for number in run:
            yield decoded(number, found.chunk(number))

    most_chunks = max(1, RUN_PIXEL_BYTES // (chunk_frames * frame_format.nbytes))
    is_remote = isinstance(store.path, RemotePath)
    return ChunkedFrames(
        lambda number: decoded(number, read_checked(store, number)),
        frame_format,
        num_frames,
        chunk_frames=chunk_frames,
        cache_bytes=cache_bytes,
        workers=REQUESTS_AT_ONCE if is_remote else None,
        in_runs=RunReader(partial(runs, store, most_chunks=most_chunks), read_chunks)
        if is_remote
        else None,
    )


class ChunkRun:
    """The bytes of chunks near to one another in a file."""

    def __init__(self, store: ChunkStore, numbers: list[int], begin: int, data: bytes) -> None:
        self.begin = begin
        self.data = data
        self._store = store
        self._numbers = numbers

    def chunk(self, number: int) -> bytes:
        """The bytes of a chunk."""
        place = self._store.place(number)
        first = place.offset - self.begin
        return self.data[first : first + place.nbytes]

    def wrong(self, *, trailers: bool) -> list[int]:
        """Which chunks are not what was written.

        Args:
            trailers: Whether the checksums behind the chunks count, too.
        """
        return [number for number in self._numbers if not self._is_right(number, trailers)]

    def _is_right(self, number: int, trailers: bool) -> bool:
        place = self._store.place(number)
        crc32c = int(self._store.chunks["crc32c"][number])
        data = self.chunk(number)
        if len(data) != place.nbytes or google_crc32c.value(data) != crc32c:
            return False
        end = place.offset + place.nbytes - self.begin
        trailer = crc32c.to_bytes(4, "little")[: place.trailer_bytes]
        return not trailers or self.data[end : end + place.trailer_bytes] == trailer


def runs(
    store: ChunkStore,
    numbers: list[int],
    *,
    gap_bytes: int = GAP_BYTES,
    most_chunks: int | None = None,
) -> list[list[int]]:
    """Chunks in runs that are read at once, in the order given.

    Args:
        store: Says where they are.
        numbers: Of the chunks.
        gap_bytes: Most bytes between two chunks of a run.
        most_chunks: Of a run; by default any number.
    """
    found: list[list[int]] = []
    path, begin, end = None, 0, 0
    for number in numbers:
        place = store.place(number)
        last = place.offset + place.nbytes + place.trailer_bytes
        near = place.path == path and 0 <= place.offset - end <= gap_bytes
        full = bool(found) and len(found[-1]) == most_chunks
        if near and not full and last - begin <= RUN_BYTES:
            found[-1].append(number)
        else:
            found.append([number])
            path, begin = place.path, place.offset
        end = last
    return found


def read_run(store: ChunkStore, numbers: list[int]) -> ChunkRun:
    """Chunks that lie near to one another, asked for twice if they are not what was written."""
    first, last = store.place(numbers[0]), store.place(numbers[-1])
    end = last.offset + last.nbytes + last.trailer_bytes
    place = ChunkPlace(first.path, first.offset, end - first.offset)
    found = ChunkRun(store, numbers, first.offset, read_place(place))
    if found.wrong(trailers=True) and isinstance(place.path, RemotePath):
        place.path.forget()
        found = ChunkRun(store, numbers, first.offset, read_place(place))
    return found


def read_checked(store: ChunkStore, number: int) -> bytes:
    """The bytes of a chunk.

    Raises:
        StoreError: They are not those that were written.
    """
    place = store.place(number)
    with still_there(place.path):
        data = read_right(place, int(store.chunks["crc32c"][number]))
    if data is not None:
        return data
    raise _damaged(store, number)


@contextmanager
def still_there(path: Location) -> Iterator[None]:
    """A file of an opened store that the system does not let us read any more, as one line."""
    try:
        yield
    except OSError as exc:
        raise StoreError(
            f"{path} cannot be read: {one_line(exc)}; was the store moved or removed "
            "since it was opened?"
        ) from exc


def _damaged(store: ChunkStore, number: int) -> StoreError:
    path = store.place(number).path
    again = "upload" if isinstance(path, RemotePath) else "convert"
    return StoreError(
        f"{path} is damaged: not what was written in {frame_range(store, number)}; {again} it again"
    )


def read_right(place: ChunkPlace, crc32c: int) -> bytes | None:
    """The bytes there; None where they are not all there, or of another checksum."""

    def right() -> bytes | None:
        data = read_place(place)
        return data if len(data) == place.nbytes and google_crc32c.value(data) == crc32c else None

    return once_more(place.path, right)


def once_more(path: Location, read: Callable[[], _T | None]) -> _T | None:
    """What is read of a file; of an object it is asked for twice before it counts as wrong.

    Args:
        path: Of the file.
        read: Reads, and returns None where it was not what was written.
    """
    found = read()
    if found is None and isinstance(path, RemotePath):
        path.forget()
        found = read()
    return found


def frame_range(store: ChunkStore, number: int) -> str:
    """The frames of a chunk in words."""
    size = store.layout.chunk_frames
    last = min((number + 1) * size, store.meta.clips.num_frames) - 1
    return f"frames {number * size} to {last}" if last > number * size else f"frame {last}"


def read_place(place: ChunkPlace) -> bytes:
    """The bytes there, fewer where the file is too short."""
    if isinstance(place.path, RemotePath):
        return place.path.read(place.offset, place.offset + place.nbytes)
    # Opened for each chunk: that costs little beside decompressing, and nothing is left open
    # for a fork or a pickle to carry along.
    descriptor = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
    parts, done = [], 0
    try:
        # The system reads no more than 2 GiB at once.
        while done < place.nbytes:
            size = min(place.nbytes - done, MOST_READ_BYTES)
            part = os.pread(descriptor, size, place.offset + done)
            if not part:
                break
            parts.append(part)
            done += len(part)
    finally:
        os.close(descriptor)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def range_crc32c(path: Location, begin: int, end: int, checksum: int = 0) -> int:
    """CRC32C of bytes [begin, end) of a file, behind those that `checksum` is of."""
    for first, last in pieces(end - begin, SUMMED_BYTES):
        data = read_place(ChunkPlace(path, begin + first, last - first))
        checksum = google_crc32c.extend(checksum, data)
    return checksum


def size_of(path: Location) -> int:
    """Bytes of a file."""
    return path.size() if isinstance(path, RemotePath) else path.stat().st_size
