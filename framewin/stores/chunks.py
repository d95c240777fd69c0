"""Chunks as they lie in a file: written with a checksum each, and checked when read."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import google_crc32c
import numpy as np

from framewin.errors import StoreError
from framewin.schema import StoreMeta
from framewin.stores.chunked import ChunkedFrames
from framewin.stores.codecs import Layout

MOST_READ_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """Where a chunk's bytes are."""

    path: Path
    offset: int
    nbytes: int
    trailer_bytes: int = 0
    """Behind it, its crc32c as a little-endian integer of so many bytes."""


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk that was compressed, or written, and its checksum."""

    number: int
    crc32c: int
    """Of the bytes in the file."""
    nbytes: int
    """In the file, without a checksum."""
    data: bytes = b""
    """Compressed; empty where the frames were written as they are."""


class ChunkStore(Protocol):
    """What reading a chunk takes of a store."""

    meta: StoreMeta
    layout: Layout
    chunks: dict[str, np.ndarray]

    def place(self, chunk: int) -> ChunkPlace:
        """Where a chunk's bytes are."""

    def decode(self, data: bytes, out: np.ndarray) -> None:
        """Decompress a chunk into `out`, (chunk_frames, H, W, C)."""


def summed_chunks(first_row: int, frames: np.ndarray, chunk_frames: int) -> list[StoredChunk]:
    """Checksums of uncompressed chunks; a last one that is not full counts as padded with zeros.

    Args:
        first_row: Row of the first frame, the first of a chunk.
        frames: (n, H, W, C), C-contiguous.
        chunk_frames: Frames of a chunk.
    """
    found = []
    for begin in range(0, len(frames), chunk_frames):
        chunk = frames[begin : begin + chunk_frames]
        checksum = google_crc32c.value(chunk)
        lacking = (chunk_frames - len(chunk)) * frames[0].nbytes
        if lacking:
            checksum = google_crc32c.extend(checksum, bytes(lacking))
        number = (first_row + begin) // chunk_frames
        found.append(StoredChunk(number, checksum, chunk_frames * frames[0].nbytes))
    return found


def compressed_chunks(
    first_row: int,
    frames: np.ndarray,
    chunk_frames: int,
    encode: Callable[[np.ndarray], bytes],
) -> list[StoredChunk]:
    """Frames as compressed chunks; a last one that is not full is padded with zeros.

    Args:
        first_row: Row of the first frame, the first of a chunk.
        frames: (n, H, W, C), C-contiguous.
        chunk_frames: Frames of a chunk.
        encode: Compresses one full chunk.
    """
    found = []
    for begin in range(0, len(frames), chunk_frames):
        chunk = frames[begin : begin + chunk_frames]
        if len(chunk) < chunk_frames:
            padding = np.zeros((chunk_frames - len(chunk), *frames.shape[1:]), frames.dtype)
            chunk = np.concatenate([chunk, padding])
        data = encode(chunk)
        number = (first_row + begin) // chunk_frames
        found.append(StoredChunk(number, google_crc32c.value(data), len(data), data))
    return found


def compressed_frames(store: ChunkStore, cache_bytes: int) -> ChunkedFrames:
    """The frames of a store with compressed chunks."""
    chunk_frames = store.layout.chunk_frames or 1
    num_frames, frame_format = store.meta.clips.num_frames, store.meta.frame_format

    def read_chunk(number: int) -> np.ndarray:
        frames = np.empty((chunk_frames, *frame_format.shape), frame_format.dtype)
        data = read_checked(store, number)
        try:
            store.decode(data, frames)
        # What it was written as, but not what it claims to be; each codec has errors of its own.
        except Exception as exc:
            raise StoreError(
                f"{store.place(number).path} cannot be decoded in {frame_range(store, number)} "
                f"({exc}); convert it again"
            ) from exc
        return frames[: num_frames - number * chunk_frames]

    return ChunkedFrames(
        read_chunk,
        frame_format,
        num_frames,
        chunk_frames=chunk_frames,
        cache_bytes=cache_bytes,
    )


def read_checked(store: ChunkStore, number: int) -> bytes:
    """The bytes of a chunk.

    Raises:
        StoreError: They are not those that were written.
    """
    place = store.place(number)
    data = read_right(place, int(store.chunks["crc32c"][number]))
    if data is not None:
        return data
    raise StoreError(
        f"{place.path} is damaged: not what was written in {frame_range(store, number)}; convert "
        "it again"
    )


def read_right(place: ChunkPlace, crc32c: int) -> bytes | None:
    """The bytes there; None where they are not all there, or of another checksum."""
    data = read_place(place)
    right = len(data) == place.nbytes and google_crc32c.value(data) == crc32c
    return data if right else None


def frame_range(store: ChunkStore, number: int) -> str:
    """The frames of a chunk in words."""
    size = store.layout.chunk_frames or 1
    last = min((number + 1) * size, store.meta.clips.num_frames) - 1
    return f"frames {number * size} to {last}" if last > number * size else f"frame {last}"


def read_place(place: ChunkPlace) -> bytes:
    """The bytes there, fewer where the file is too short."""
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
