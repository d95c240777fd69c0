"""Frames of a store under construction, written by other processes than the one that builds it.

Raw frames go to their places in the file of frames. The place of a compressed chunk depends on the
sizes of all chunks before it, so those are left in files of their own, from which the process that
builds the store takes them. No folder and no file of the store is made here: a process that comes
too late finds none.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from framewin.errors import StoreError
from framewin.stores.chunk_io import (
    ChunkPlace,
    StoredChunk,
    compressed_chunks,
    read_right,
    summed_chunks,
)
from framewin.stores.codecs import Codec
from framewin.stores.durable import DataFile

SPILL_BYTES = 2**24


class BlockFile(Protocol):
    """A file that a task writes blocks into, in the order of rows."""

    file: DataFile
    spill: Path | None
    """Where the last block's chunks wait for their places; None where they were written there."""

    def write_block(self, first_row: int, frames: np.ndarray) -> list[StoredChunk]:
        """Write (n, H, W, C) frames of whole chunks; returns them without their data.

        The first row is the first of a chunk, and n is a multiple of a chunk's frames unless the
        block is the last one. May be repeated after a failure.
        """

    def discard(self) -> None:
        """Remove what was spilled, for nobody will be told of it."""


class Places(Protocol):
    """Where blocks are to be written; can be pickled."""

    def open(self) -> BlockFile:
        """Open the file of a task.

        Raises:
            FileNotFoundError: The store is not, or no longer, under construction there.
        """


@dataclass(frozen=True, slots=True)
class RawPlaces:
    """One file with all frames, one behind the other."""

    path: Path
    offset: int
    """Byte at which the frames begin."""
    chunk_frames: int

    def open(self) -> BlockFile:
        """See `Places`."""
        return _RawBlocks(self, DataFile(self.path, make=False))

    def write(self, file: DataFile, first_row: int, frames: np.ndarray) -> list[StoredChunk]:
        """Write a block into the opened file; see `BlockFile`."""
        file.write_at(frames.data, self.offset + first_row * frames[0].nbytes)
        return summed_chunks(first_row, frames, self.chunk_frames)


class _RawBlocks:
    spill: Path | None = None

    def __init__(self, places: RawPlaces, file: DataFile) -> None:
        self.places = places
        self.file = file

    def write_block(self, first_row: int, frames: np.ndarray) -> list[StoredChunk]:
        return self.places.write(self.file, first_row, frames)

    def discard(self) -> None:
        """Nothing was."""


@dataclass(frozen=True, slots=True)
class SpillPlaces:
    """A folder for files of compressed chunks that wait for their places."""

    folder: Path
    chunk_frames: int
    codec: Codec

    def open(self) -> BlockFile:
        """See `Places`; a task that runs twice leaves two files."""
        return _SpilledBlocks(self)

    def new(self) -> DataFile:
        """Make a file."""
        return DataFile(self.folder / uuid.uuid4().hex, 0)


class _SpilledBlocks:
    """Files of about `SPILL_BYTES`, so that each can be removed as soon as it was taken."""

    def __init__(self, places: SpillPlaces) -> None:
        self.places = places
        self.file = places.new()
        self.spill: Path | None = self.file.path
        self._paths = [self.file.path]
        self._end = 0

    def write_block(self, first_row: int, frames: np.ndarray) -> list[StoredChunk]:
        encode = self.places.codec.encode
        chunks = compressed_chunks(first_row, frames, self.places.chunk_frames, encode)
        if self._end >= SPILL_BYTES:
            self._next()
        end = self._end
        for chunk in chunks:
            self.file.write_at(chunk.data, end)
            end += chunk.nbytes
        # Behind all that can fail: when it is repeated it writes at the same place.
        self._end = end
        return [replace(chunk, data=b"") for chunk in chunks]

    def discard(self) -> None:
        for path in self._paths:
            path.unlink(missing_ok=True)

    def _next(self) -> None:
        self.file.sync()
        self.file.close()
        self.file = self.places.new()
        self.spill = self.file.path
        self._paths.append(self.file.path)
        self._end = 0


def with_data(path: Path, offset: int, chunks: list[StoredChunk]) -> list[StoredChunk]:
    """Chunks that were spilled one behind the other, from a byte offset on, with their data.

    Raises:
        StoreError: They are not what was written.
        OSError: The file is not there.
    """
    found = []
    for chunk in chunks:
        data = read_right(ChunkPlace(path, offset, chunk.nbytes), chunk.crc32c)
        if data is None:
            raise StoreError(
                f"{path} does not hold what a worker wrote; repeat the command to go on"
            )
        found.append(replace(chunk, data=data))
        offset += chunk.nbytes
    return found
