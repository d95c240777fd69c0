"""Files of frames under construction: filled in blocks, and taken up again after an interruption.

They lie in a folder of their own, by number, and are moved into the store when it is whole.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from framewin.stores import durable
from framewin.stores.chunk_io import (
    ChunkPlace,
    StoredChunk,
    compressed_chunks,
    read_place,
    read_right,
)
from framewin.stores.codecs import Codec
from framewin.stores.durable import DataFile
from framewin.stores.places import Places, RawPlaces, SpillPlaces

CRC_BYTES = 4

Blocks = Sequence[list[StoredChunk] | None]
"""Blocks in row order: their chunks, where they were written before."""


class FrameFiles(Protocol):
    """The frames of a store under construction."""

    def resume(self, blocks: Blocks) -> set[int]:
        """Check what was written before; returns which blocks need not be written again."""

    def write_block(self, first_row: int, frames: np.ndarray) -> list[StoredChunk]:
        """Compress or write (n, H, W, C) frames of whole chunks; any thread, any order.

        The first row is the first of a chunk, and n is a multiple of a chunk's frames unless the
        block is the last one.
        """

    def read_block(self, first_row: int, out: np.ndarray) -> None:
        """Read (n, H, W, C) frames that were written before, any thread; rows as for writing."""

    def commit(self, chunks: list[StoredChunk]) -> None:
        """Take what `write_block` made; from one thread, in the order of rows."""

    def places(self, spill: Path) -> Places:
        """Where other processes write blocks: in their places, or into this folder."""

    def sync(self) -> None:
        """Wait until all that was committed is on disk; any thread."""

    def close(self) -> None:
        """Release the files; also after a failure."""


class RawFile:
    """One file with all frames, one behind the other."""

    def __init__(
        self, folder: Path, *, offset: int, frame_bytes: int, chunk_frames: int, num_chunks: int
    ) -> None:
        """Open the file, or make it.

        Args:
            folder: Where it is.
            offset: Byte at which the frames begin.
            frame_bytes: Of a frame.
            chunk_frames: Frames of a chunk.
            num_chunks: In all, the last one padded with zeros.
        """
        self.path = folder / "0"
        self.offset = offset
        self._places = RawPlaces(self.path.absolute(), offset, chunk_frames)
        self._frame_bytes = frame_bytes
        self._chunk_bytes = chunk_frames * frame_bytes
        self.end = offset + num_chunks * self._chunk_bytes
        self.file = DataFile(self.path, self.end)
        durable.sync(folder)

    def resume(self, blocks: Blocks) -> set[int]:
        """See `FrameFiles`; each block stands by itself."""
        return {
            number
            for number, chunks in enumerate(blocks)
            if chunks and all(map(self._is_right, chunks))
        }

    def write_block(self, first_row: int, frames: np.ndarray) -> list[StoredChunk]:
        """See `FrameFiles`."""
        return self._places.write(self.file, first_row, frames)

    def read_block(self, first_row: int, out: np.ndarray) -> None:
        """See `FrameFiles`."""
        place = ChunkPlace(self.path, self.offset + first_row * self._frame_bytes, out.nbytes)
        pixels = np.frombuffer(read_place(place), out.dtype)
        out[:] = pixels.reshape(out.shape)

    def commit(self, chunks: list[StoredChunk]) -> None:
        """Nothing is left to do."""

    def places(self, spill: Path) -> RawPlaces:
        """See `FrameFiles`."""
        return self._places

    def sync(self) -> None:
        """See `FrameFiles`."""
        self.file.sync()

    def close(self) -> None:
        """See `FrameFiles`."""
        self.file.close()

    def _is_right(self, chunk: StoredChunk) -> bool:
        offset = self.offset + chunk.number * self._chunk_bytes
        place = ChunkPlace(self.path, offset, self._chunk_bytes)
        return read_right(place, chunk.crc32c) is not None


class ShardFiles:
    """Compressed chunks one behind the other, a new file every so many chunks."""

    def __init__(
        self,
        folder: Path,
        *,
        chunk_frames: int,
        num_chunks: int,
        shard_chunks: int,
        trailers: bool,
        codec: Codec,
        index: Callable[[int], bytes],
    ) -> None:
        """Open the first file.

        Args:
            folder: Where the files are.
            chunk_frames: Frames of a chunk.
            num_chunks: In all.
            shard_chunks: Chunks of a file.
            trailers: Whether each chunk is followed by its crc32c.
            codec: Compresses a chunk, and decodes it again.
            index: What stands at the end of a file, by its number, once its chunks are written.
        """
        self.offsets = np.zeros(num_chunks, np.int64)
        """Of each chunk in its file."""
        self.sizes = np.zeros(num_chunks, np.int64)
        """Of each chunk without its checksum."""
        self._folder = folder
        self._chunk_frames = chunk_frames
        self._shard_chunks = shard_chunks
        self._trailer_bytes = CRC_BYTES if trailers else 0
        self._codec = codec
        self._index = index
        self._shard = 0
        self._end = 0
        # So that `sync`, in another thread, never has a file that is being closed.
        self._closing = threading.Lock()
        self._file = self._open(0, 0, keep=True)

    def resume(self, blocks: Blocks) -> set[int]:
        """See `FrameFiles`; the blocks before the first that is not right."""
        kept: set[int] = set()
        for number, chunks in enumerate(blocks):
            if not chunks or not all(map(self._take_up, chunks)):
                break
            kept.add(number)
        count = sum(len(blocks[number] or ()) for number in kept)
        self.offsets[count:] = self.sizes[count:] = 0
        self._shard = max(0, count - 1) // self._shard_chunks
        self._end = 0
        if count:
            self._end = int(self.offsets[count - 1] + self.sizes[count - 1]) + self._trailer_bytes
        self._file.close()
        self._file = self._open(self._shard, self._end)
        for path in self._folder.iterdir():
            if int(path.name) > self._shard:
                path.unlink()
        return kept

    def write_block(self, first_row: int, frames: np.ndarray) -> list[StoredChunk]:
        """See `FrameFiles`."""
        return compressed_chunks(first_row, frames, self._chunk_frames, self._codec.encode)

    def read_block(self, first_row: int, out: np.ndarray) -> None:
        """See `FrameFiles`."""
        chunk = np.empty((self._chunk_frames, *out.shape[1:]), out.dtype)
        for begin in range(0, len(out), self._chunk_frames):
            number = (first_row + begin) // self._chunk_frames
            path = self._folder / str(number // self._shard_chunks)
            place = ChunkPlace(path, int(self.offsets[number]), int(self.sizes[number]))
            self._codec.decode(read_place(place), chunk)
            frames = out[begin : begin + self._chunk_frames]
            frames[:] = chunk[: len(frames)]

    def commit(self, chunks: list[StoredChunk]) -> None:
        """Write chunks behind those before them."""
        for chunk in chunks:
            shard = chunk.number // self._shard_chunks
            if shard != self._shard:
                self.finish()
                self._shard, self._end = shard, 0
                self._file = self._open(shard, 0)
            self.offsets[chunk.number] = self._end
            self.sizes[chunk.number] = chunk.nbytes
            trailer = chunk.crc32c.to_bytes(CRC_BYTES, "little")[: self._trailer_bytes]
            self._file.write_at(chunk.data + trailer, self._end)
            self._end += chunk.nbytes + len(trailer)

    def places(self, spill: Path) -> SpillPlaces:
        """See `FrameFiles`."""
        return SpillPlaces(spill.absolute(), self._chunk_frames, self._codec)

    def finish(self) -> None:
        """Complete the file of the last chunk."""
        self._file.write_at(self._index(self._shard), self._end)
        with self._closing:
            self._file.sync()
            self._file.close()

    def sync(self) -> None:
        """See `FrameFiles`."""
        with self._closing:
            # Files that are closed were put on disk when they were completed.
            if not self._file.closed:
                self._file.sync()

    def close(self) -> None:
        """See `FrameFiles`."""
        with self._closing:
            self._file.close()

    def _open(self, shard: int, size: int, *, keep: bool = False) -> DataFile:
        file = DataFile(self._folder / str(shard), None if keep else size)
        durable.sync(self._folder)
        return file

    def _take_up(self, chunk: StoredChunk) -> bool:
        """Find a chunk where it must be, and note its place."""
        number = chunk.number
        first_of_shard = number % self._shard_chunks == 0
        before = number - 1
        offset = 0
        if not first_of_shard:
            offset = int(self.offsets[before] + self.sizes[before]) + self._trailer_bytes
        path = self._folder / str(number // self._shard_chunks)
        self.offsets[number], self.sizes[number] = offset, chunk.nbytes
        if not path.exists():
            return False
        return read_right(ChunkPlace(path, offset, chunk.nbytes), chunk.crc32c) is not None
