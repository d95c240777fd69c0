"""How the frames of a store lie on disk: compressed or not, and how many in a chunk."""

from __future__ import annotations

from dataclasses import dataclass

from framewin.errors import StoreError
from framewin.schema import FrameFormat, StoreMeta

NONE = "none"
LEVELS = {NONE: None, "lz4": None, "zstd": range(1, 23), "gzip": range(1, 10)}
"""Compression -> its levels; None where there is nothing to choose."""
DEFAULT_LEVELS = {"zstd": 3, "gzip": 5}
PLUGIN_FILTERS = {"zstd": 32015, "lz4": 32004}
"""Compression -> number of its HDF5 filter, which hdf5plugin brings."""

RAW_CHUNK_BYTES = 2**20
COMPRESSED_CHUNK_BYTES = 2**16
MAX_COMPRESSED_CHUNK_FRAMES = 16
SHARD_BYTES = 2**26
_MAX_CHUNK_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Layout:
    """How the frames of a store lie on disk."""

    compression: str = NONE
    """One of `LEVELS`. Uncompressed frames lie one behind the other and are mapped."""
    level: int | None = None
    """Compression level; None is the usual one of the compression."""
    chunk_frames: int | None = None
    """Frames of a chunk, the least that is read or decompressed; None chooses by frame size."""

    def __post_init__(self) -> None:
        if self.compression not in LEVELS:
            raise ValueError(
                f"compression must be one of {', '.join(LEVELS)}, got {self.compression!r}"
            )
        levels = LEVELS[self.compression]
        if self.level is not None and levels is None:
            raise ValueError(f"compression {self.compression} has no level, got {self.level}")
        if self.level is not None and levels is not None and self.level not in levels:
            raise ValueError(
                f"level of {self.compression} must be in {levels.start}..{levels.stop - 1}, "
                f"got {self.level}"
            )
        if self.chunk_frames is not None and self.chunk_frames < 1:
            raise ValueError(f"chunk_frames must be >= 1, got {self.chunk_frames}")

    @property
    def compressed(self) -> bool:
        """Whether frames must be decompressed to be read."""
        return self.compression != NONE

    def resolved(self, frame_format: FrameFormat, num_frames: int) -> ResolvedLayout:
        """The same with nothing left open.

        Raises:
            StoreError: A chunk of more bytes than codecs can take.
        """
        chunk = self.chunk_frames
        if chunk is None:
            chunk = _usual_chunk_frames(self.compressed, frame_format)
        chunk = min(chunk, num_frames)
        if self.compressed and chunk * frame_format.nbytes > _MAX_CHUNK_BYTES:
            raise StoreError(
                f"a chunk of {chunk} frames of {frame_format} has "
                f"{chunk * frame_format.nbytes:,} bytes; compressed chunks may have "
                f"{_MAX_CHUNK_BYTES:,}, lower chunk_frames="
            )
        level = DEFAULT_LEVELS.get(self.compression) if self.level is None else self.level
        return ResolvedLayout(self.compression, level, chunk)

    def __str__(self) -> str:
        level = "" if self.level is None else f" level {self.level}"
        return f"{self.compression}{level}" if self.compressed else "raw"


@dataclass(frozen=True, slots=True)
class ResolvedLayout(Layout):
    """A layout with nothing left open."""

    chunk_frames: int = 1
    """Frames of a chunk."""

    def num_chunks(self, num_frames: int) -> int:
        """Chunks that hold so many frames; the last one may not be full."""
        return -(-num_frames // self.chunk_frames)


def shard_chunks(layout: ResolvedLayout, meta: StoreMeta) -> int:
    """Chunks of a shard: all raw ones, about 64 MiB of pixels compressed."""
    num_chunks = layout.num_chunks(meta.clips.num_frames)
    if not layout.compressed:
        return num_chunks
    return max(1, min(num_chunks, SHARD_BYTES // (layout.chunk_frames * meta.frame_format.nbytes)))


def _usual_chunk_frames(compressed: bool, frame_format: FrameFormat) -> int:
    """About a mebibyte of raw frames, and a few frames where a window must decompress them all."""
    if compressed:
        chunk = min(COMPRESSED_CHUNK_BYTES // frame_format.nbytes, MAX_COMPRESSED_CHUNK_FRAMES)
    else:
        chunk = RAW_CHUNK_BYTES // frame_format.nbytes
    return max(1, chunk)
