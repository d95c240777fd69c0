"""Writing a store: its frames in parts, which are journalled and resumed one by one.

Raw frames all lie in one file, and a part is a block of them, written at its place. Compressed
frames lie in shards: a part is a shard, a file of its own in which chunks lie one after the other,
each followed by its crc32c. Parts may be written in any order, by any process that sees the partial
folder, and more than once. Files of frames are moved into the store when it is whole.
"""

from __future__ import annotations

import sys
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, cast

import google_crc32c
import numpy as np

from framewin.errors import StoreError
from framewin.remote import Location
from framewin.schema import StoreMeta
from framewin.stores import durable, record, tables
from framewin.stores.chunk_io import ChunkPlace, chunked_frames, read_right
from framewin.stores.chunked_frames import ChunkedFrames, pieces
from framewin.stores.codecs import Codec
from framewin.stores.durable import DataFile
from framewin.stores.layout import Layout, shard_chunks
from framewin.stores.mapped_frames import MappedFrames

BLOCK_BYTES = 2**20
"""Pixels that are decoded at once, unless a chunk has more."""
CRC_BYTES = 4


class Chunk(NamedTuple):
    """A chunk that was written or compressed."""

    crc32c: int
    """Of the bytes in the file."""
    nbytes: int
    """In the file, without the checksum after it."""
    data: bytes = b""
    """Compressed; empty where the frames were written as they are."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part that was written."""

    number: int
    crc32c: list[int]
    """Of each chunk."""
    nbytes: list[int]
    """Of each chunk."""
    path: Path | None = None
    """Where a shard is until it is committed."""
    file: DataFile | None = None
    """The same, still open, where it is not known to be on disk."""

    @property
    def file_bytes(self) -> int:
        """Size of a shard's file as it is committed."""
        return sum(self.nbytes) + CRC_BYTES * len(self.nbytes)


@dataclass(frozen=True, slots=True)
class PartGrid:
    """Where parts, and the blocks in which they are written, begin and end."""

    part_frames: int
    """Frames of a part, but for the last."""
    block_frames: int
    """Frames of a block, but for the last of a part."""
    chunk_frames: int
    num_frames: int

    @property
    def num_parts(self) -> int:
        """Parts in all."""
        return -(-self.num_frames // self.part_frames)

    def rows(self, part: int) -> tuple[int, int]:
        """The rows of a part, half-open."""
        begin = part * self.part_frames
        return begin, min(begin + self.part_frames, self.num_frames)

    def blocks(self, part: int) -> list[tuple[int, int]]:
        """The rows of each block of a part, half-open."""
        first, end = self.rows(part)
        return [(first + a, first + b) for a, b in pieces(end - first, self.block_frames)]

    def chunks(self, part: int) -> tuple[int, int]:
        """The numbers of a part's chunks, half-open."""
        begin, end = self.rows(part)
        return begin // self.chunk_frames, -(-end // self.chunk_frames)


@dataclass(frozen=True, slots=True)
class FramePlaces:
    """Where frames are written, as other processes find it; can be pickled."""

    folder: Path
    """Absolute, of the files of frames."""
    writing: Path
    """Absolute, of shards that are being written."""
    offset: int
    """Byte at which raw frames begin."""
    grid: PartGrid
    codec: Codec | None
    """Compresses a chunk; None where frames are raw."""


class PartWriter:
    """Writes parts of a store's frames; makes no folder, so it fails where the store is gone."""

    def __init__(
        self,
        places: FramePlaces,
        raw: DataFile | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Open what there is to write to.

        Args:
            places: Where.
            raw: The file of raw frames, where it is open already.
            check: Called before anything is written.

        Raises:
            FileNotFoundError: The store is not, or no longer, under construction there.
        """
        self.places = places
        self._check = check
        self._raw = raw
        if places.codec is None and raw is None:
            self._raw = DataFile(places.folder / "0", make=False)

    def write_block(self, first_row: int, frames: np.ndarray) -> list[Chunk]:
        """Write raw frames, or compress them; any thread, any order, and again after a failure.

        Args:
            first_row: The first of a chunk.
            frames: (n, H, W, C), whole chunks unless they are the last of the store.
        """
        chunk_frames, codec = self.places.grid.chunk_frames, self.places.codec
        if codec is not None:
            packed = [codec.encode(chunk) for chunk in _whole_chunks(frames, chunk_frames)]
            return [Chunk(google_crc32c.value(data), len(data), data) for data in packed]
        assert self._raw is not None
        self._check()
        self._raw.write_at(frames.data, self.places.offset + first_row * frames[0].nbytes)
        found = _whole_chunks(frames, chunk_frames)
        return [Chunk(google_crc32c.value(chunk), chunk.nbytes) for chunk in found]

    def write_part(self, number: int, blocks: Iterable[list[Chunk]]) -> Part:
        """Write the blocks of a part one after the other, each as soon as it is there."""
        if self.places.codec is None:
            chunks = [chunk for block in blocks for chunk in block]
            return Part(number, [c.crc32c for c in chunks], [c.nbytes for c in chunks])
        self._check()
        file = DataFile(self.places.writing / uuid.uuid4().hex, 0)
        part = Part(number, [], [], file.path, file)
        try:
            end = 0
            for block in blocks:
                data = b"".join(c.data + c.crc32c.to_bytes(CRC_BYTES, "little") for c in block)
                file.write_at(data, end)
                end += len(data)
                part.crc32c.extend(chunk.crc32c for chunk in block)
                part.nbytes.extend(chunk.nbytes for chunk in block)
        except BaseException:
            discard(part)
            raise
        return part

    def settled(self, part: Part) -> Part:
        """Wait until a shard is on disk; the same part, with its file closed."""
        _settle(part)
        return replace(part, file=None)

    def sync(self) -> None:
        """Wait until all raw frames are on disk."""
        if self._raw is not None:
            self._raw.sync()

    def close(self) -> None:
        """Release the file of raw frames."""
        if self._raw is not None:
            self._raw.close()


class StoreWriter:
    """A store under construction in the partial folder of its destination; a format completes it.

    A format says where raw frames begin and how a chunk is compressed, writes the metadata, and
    puts files of frames where they belong.
    """

    def __init__(
        self, site: durable.Site, meta: StoreMeta, source_files: tables.SourceFiles, layout: Layout
    ) -> None:
        """Open the files of frames.

        Args:
            site: Where to build it; begun.
            meta: What it will hold.
            source_files: The files that the frames come from.
            layout: How the frames shall lie.
        """
        if sys.byteorder != "little":
            raise StoreError("stores can only be written on little-endian machines")
        num_frames, frame_format = meta.clips.num_frames, meta.frame_format
        self.site = site
        self.path: Location = site.store
        self.meta = meta
        self.source_files = source_files
        self.layout = layout.resolved(frame_format, num_frames)
        """With nothing left open."""
        self.chunk_frames = self.layout.chunk_frames
        self.num_chunks = self.layout.num_chunks(num_frames)
        self.shard_chunks = shard_chunks(self.layout, meta)
        self.chunk_bytes = self.chunk_frames * frame_format.nbytes
        columns = tables.chunk_columns(self.layout).items()
        self.chunks = {name: np.zeros(self.num_chunks, dtype) for name, dtype in columns}
        """The table of chunks, as far as they are committed."""
        self.statistics: dict[str, np.ndarray] | None = None
        """None, or statistics of frames to be recorded; set before the metadata is written, and
        with their values before the store is completed."""
        self.pieces = record.Pieces()
        self.offset = self._begin()
        self._waiting: deque[Part] = deque()
        self.grid = self._grid()
        folder, writing = site.frames.absolute(), site.writing.absolute()
        codec = self._codec() if self.layout.compressed else None
        self.places = FramePlaces(folder, writing, self.offset, self.grid, codec)
        self.parts = PartWriter(self.places, None if self.layout.compressed else self._open_raw())
        """Writes parts in this process."""

    def _begin(self) -> int:
        """Make what the format needs; returns the byte at which raw frames begin."""
        return 0

    def _codec(self) -> Codec:
        """Compresses chunks."""
        raise NotImplementedError

    def write_metadata(self) -> None:
        """Write what stands beside the frames; may run beside the writing of frames."""
        raise NotImplementedError

    def finish(self) -> None:
        """Complete the store once all parts are committed and the metadata is written."""
        raise NotImplementedError

    def resume(self, parts: Iterable[Part]) -> set[int]:
        """Take parts that were committed before, if they are what was written; their numbers."""
        kept = set()
        for part in parts:
            first, end = self.grid.chunks(part.number)
            path = cast(Path, self.place(first).path)
            if len(part.crc32c) == end - first and self._is_right(part, path):
                kept.add(part.number)
        return kept

    def write(self, first_row: int, frames: np.ndarray) -> None:
        """Write and commit raw frames (n, H, W, C) of whole chunks, in one thread."""
        chunks = self.parts.write_block(first_row, frames)
        first = first_row // self.chunk_frames
        self.chunks["crc32c"][first : first + len(chunks)] = [chunk.crc32c for chunk in chunks]

    def commit(self, part: Part) -> None:
        """Take a part; it counts once it is synced. From one thread, any order."""
        self._note(part)
        if part.path is not None:
            if part.file is None and not (
                part.path.stat().st_size == part.file_bytes and self._is_right(part, part.path)
            ):
                raise StoreError(
                    f"{part.path} does not hold what a worker wrote; repeat the command to go on"
                )
            self._waiting.append(part)

    def sync(self) -> None:
        """Wait until all that was committed before the call is on disk; one thread at a time."""
        self.parts.sync()
        waiting = len(self._waiting)
        for _ in range(waiting):
            part = self._waiting.popleft()
            _settle(part)
            assert part.path is not None
            durable.replace(part.path, self.site.frames / str(part.number))
        if waiting:
            durable.sync(self.site.frames)

    def place(self, chunk: int) -> ChunkPlace:
        """Where the bytes of a committed chunk are, until the store is completed."""
        path = self.site.frames / str(chunk // self.shard_chunks)
        if not self.layout.compressed:
            return ChunkPlace(path, self.offset + chunk * self.chunk_bytes, self.chunk_bytes)
        return ChunkPlace(
            path, int(self.chunks["offset"][chunk]), int(self.chunks["nbytes"][chunk])
        )

    def decode(self, data: bytes, out: np.ndarray) -> None:
        """Decompress a chunk into `out`, (chunk_frames, H, W, C)."""
        assert self.places.codec is not None
        self.places.codec.decode(data, out)

    def frames(self) -> MappedFrames | ChunkedFrames:
        """All frames, once they are committed and synced, until the store is completed."""
        if self.layout.compressed:
            # Whoever reads on from a chunk also needs the last frame of the one before.
            return chunked_frames(self, 4 * self.chunk_bytes)
        form, count = self.meta.frame_format, self.meta.clips.num_frames
        return MappedFrames.of_file(self.site.frames / "0", form, count, offset=self.offset)

    def frame_files(self) -> Iterator[tuple[Path, int]]:
        """Each file of frames, and the byte behind its last chunk."""
        for first in range(0, self.num_chunks, self.shard_chunks):
            place = self.place(min(first + self.shard_chunks, self.num_chunks) - 1)
            trailer = CRC_BYTES if self.layout.compressed else 0
            yield cast(Path, place.path), place.offset + place.nbytes + trailer

    @property
    def late_tables(self) -> tables.Tables:
        """Those that are known once all frames are written."""
        statistics = {} if self.statistics is None else {"statistics": self.statistics}
        return {"chunks": self.chunks, **statistics}

    def close(self) -> None:
        """Release all files; also after a failure."""
        for part in self._waiting:
            discard(part)
        self.parts.close()

    def _open_raw(self) -> DataFile:
        # The last chunk is padded with zeros.
        size = self.offset + self.num_chunks * self.chunk_bytes
        file = DataFile(self.site.frames / "0", size)
        durable.sync(self.site.frames)
        return file

    def _grid(self) -> PartGrid:
        block = self.chunk_frames * max(1, BLOCK_BYTES // self.chunk_bytes)
        shard = self.shard_chunks * self.chunk_frames
        part = shard if self.layout.compressed else block
        return PartGrid(part, min(part, block), self.chunk_frames, self.meta.clips.num_frames)

    def _note(self, part: Part) -> None:
        """Enter the chunks of a part into their table."""
        rows = slice(*self.grid.chunks(part.number))
        self.chunks["crc32c"][rows] = part.crc32c
        if self.layout.compressed:
            self.chunks["nbytes"][rows] = part.nbytes
            ends = np.cumsum(self.chunks["nbytes"][rows] + CRC_BYTES)
            self.chunks["offset"][rows] = ends - self.chunks["nbytes"][rows] - CRC_BYTES

    def _is_right(self, part: Part, path: Path) -> bool:
        """Note the chunks of a part, and say whether a file holds them."""
        self._note(part)
        first, _ = self.grid.chunks(part.number)
        places = (replace(self.place(first + k), path=path) for k in range(len(part.crc32c)))
        return path.is_file() and all(
            read_right(place, checksum) is not None
            for place, checksum in zip(places, part.crc32c, strict=True)
        )


def discard(part: Part) -> None:
    """Remove the file of a part of which nobody will be told."""
    if part.file is not None:
        part.file.close()
    if part.path is not None:
        with suppress(OSError):
            part.path.unlink()


def _settle(part: Part) -> None:
    """Wait until the file of a shard that is still open is on disk, and close it."""
    if part.file is not None:
        try:
            part.file.sync()
        finally:
            part.file.close()


def _whole_chunks(frames: np.ndarray, chunk_frames: int) -> Iterator[np.ndarray]:
    """Frames (n, H, W, C) in chunks; a last one that is not full is padded with zeros."""
    for begin, end in pieces(len(frames), chunk_frames):
        chunk = frames[begin:end]
        lacking = chunk_frames - len(chunk)
        if lacking:
            chunk = np.concatenate([chunk, np.zeros((lacking, *frames.shape[1:]), frames.dtype)])
        yield chunk
