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
from framewin.stores.chunks import (
    ChunkPlace,
    StoredChunk,
    compressed_chunks,
    read_right,
    summed_chunks,
)
from framewin.stores.codecs import Codec
from framewin.stores.durable import DataFile


class BlockFile(Protocol):
    """A file that a task writes blocks into, in the order of rows."""

    file: DataFile
    spill: Path | None
    """Where chunks wait for their places; None where they were written there."""

    def write_block(self, first_row: int, frames: np.ndarray) -> list[StoredChunk]:
        """Write (n, H, W, C) frames of whole chunks; returns them without their data.

        The first row is the first of a chunk, and n is a multiple of a chunk's frames unless the
        block is the last one.
        """


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


@dataclass(frozen=True, slots=True)
class SpillPlaces:
    """A folder for files of compressed chunks that wait for their places."""

    folder: Path
    chunk_frames: int
    codec: Codec

    def open(self) -> BlockFile:
        """See `Places`; a task that runs twice leaves two files."""
        return _SpilledBlocks(self, DataFile(self.folder / uuid.uuid4().hex, 0))


class _SpilledBlocks:
    def __init__(self, places: SpillPlaces, file: DataFile) -> None:
        self.places = places
        self.file = file
        self.spill: Path | None = file.path
        self._end = 0

    def write_block(self, first_row: int, frames: np.ndarray) -> list[StoredChunk]:
        encode = self.places.codec.encode
        chunks = compressed_chunks(first_row, frames, self.places.chunk_frames, encode)
        for chunk in chunks:
            self.file.write_at(chunk.data, self._end)
            self._end += chunk.nbytes
        return [replace(chunk, data=b"") for chunk in chunks]


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
