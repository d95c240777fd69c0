"""How the frames of a store lie on disk, and the codecs of compressed chunks.

Chunks are compressed and decompressed here, by numcodecs and zlib, in threads that hold no
interpreter lock, and in the framing that each format prescribes, so that zarr-python,
tensorstore and h5py read them with their own codecs.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numcodecs import blosc, lz4, zstd

from framewin.errors import StoreError
from framewin.schema import FrameFormat

NONE = "none"
LEVELS = {NONE: None, "lz4": None, "zstd": range(1, 23), "gzip": range(1, 10)}
"""Compression -> its levels; None where there is nothing to choose."""
DEFAULT_LEVELS = {"zstd": 3, "gzip": 5}
PLUGIN_FILTERS = {"zstd": 32015, "lz4": 32004}
"""Compression -> number of its HDF5 filter, which hdf5plugin brings."""

RAW_CHUNK_BYTES = 2**20
COMPRESSED_CHUNK_BYTES = 2**16
MAX_COMPRESSED_CHUNK_FRAMES = 16
BLOSC_LZ4_LEVEL = 5

_LZ4_HEADER = struct.Struct(">QI")
_LZ4_BLOCK = struct.Struct(">I")
# numcodecs puts the size of the data before an LZ4 block; HDF5 has a header of its own.
_LZ4_PREFIX = struct.Struct("<I")
_GZIP_WINDOW_BITS = 31
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# In the header of blosc, the size of what was compressed.
_BLOSC_SIZE = struct.Struct("<I")
_BLOSC_SIZE_AT = 4
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

    def resolved(self, frame_format: FrameFormat, num_frames: int) -> Layout:
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
        return Layout(self.compression, level, chunk)

    def __str__(self) -> str:
        level = "" if self.level is None else f" level {self.level}"
        return f"{self.compression}{level}" if self.compressed else "raw"


def _usual_chunk_frames(compressed: bool, frame_format: FrameFormat) -> int:
    """About a mebibyte of raw frames, and a few frames where a window must decompress them all."""
    if compressed:
        chunk = min(COMPRESSED_CHUNK_BYTES // frame_format.nbytes, MAX_COMPRESSED_CHUNK_FRAMES)
    else:
        chunk = RAW_CHUNK_BYTES // frame_format.nbytes
    return max(1, chunk)


class Codec(Protocol):
    """Compresses and decompresses chunks."""

    def encode(self, frames: np.ndarray) -> bytes:
        """Compress a full chunk, C-contiguous."""

    def decode(self, data: bytes, out: np.ndarray) -> None:
        """Decompress a chunk into `out`, C-contiguous, which it must fill."""


class ZarrCodec:
    """Chunks as Zarr's own codecs `zstd`, `gzip` and `blosc` (with lz4) write them."""

    def __init__(self, layout: Layout, frame_format: FrameFormat) -> None:
        self.layout = layout
        self.item_bytes = np.dtype(frame_format.dtype).itemsize

    def encode(self, frames: np.ndarray) -> bytes:
        """Compress a full chunk, C-contiguous."""
        level = self.layout.level
        if self.layout.compression == "zstd":
            return bytes(zstd.compress(frames, level))
        if self.layout.compression == "gzip":
            compressor = zlib.compressobj(level or 0, wbits=_GZIP_WINDOW_BITS)
            return compressor.compress(frames.data) + compressor.flush()
        shuffle = blosc.SHUFFLE if self.item_bytes > 1 else blosc.NOSHUFFLE
        return bytes(blosc.compress(frames, b"lz4", BLOSC_LZ4_LEVEL, shuffle))

    def decode(self, data: bytes, out: np.ndarray) -> None:
        """Decompress a chunk into `out`, C-contiguous, which it must fill."""
        if not self.layout.compressed:
            _copy(data, out)
        elif self.layout.compression == "zstd":
            _decode_zstd(data, out)
        elif self.layout.compression == "gzip":
            _inflate(data, out, _GZIP_WINDOW_BITS)
        else:
            _check_size(_BLOSC_SIZE.unpack_from(data, _BLOSC_SIZE_AT)[0], out)
            blosc.decompress(data, out)


class Hdf5Codec:
    """Chunks as HDF5's filters deflate, zstd (32015) and lz4 (32004) write them."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def encode(self, frames: np.ndarray) -> bytes:
        """Compress a full chunk, C-contiguous."""
        if self.layout.compression == "zstd":
            return bytes(zstd.compress(frames, self.layout.level))
        if self.layout.compression == "gzip":
            return zlib.compress(frames.data, self.layout.level or 0)
        size = frames.nbytes
        block = lz4.compress(frames)[_LZ4_PREFIX.size :]
        # A block that did not shrink is kept as it was; its length says so.
        block = block if len(block) < size else frames.tobytes()
        return _LZ4_HEADER.pack(size, size) + _LZ4_BLOCK.pack(len(block)) + block

    def decode(self, data: bytes, out: np.ndarray) -> None:
        """Decompress a chunk into `out`, C-contiguous, which it must fill."""
        if not self.layout.compressed:
            _copy(data, out)
        elif self.layout.compression == "zstd":
            _decode_zstd(data, out)
        elif self.layout.compression == "gzip":
            _inflate(data, out, zlib.MAX_WBITS)
        else:
            _decode_lz4(data, out)


def _decode_zstd(data: bytes, out: np.ndarray) -> None:
    """A frame whose header states the size, as zstd writes it where it knows that."""
    if data[: len(_ZSTD_MAGIC)] != _ZSTD_MAGIC:
        raise ValueError("it is no frame of zstd")
    descriptor = data[len(_ZSTD_MAGIC)]
    single, kind = descriptor >> 5 & 1, descriptor >> 6
    # Behind the descriptor: a byte for the window, unless the frame is a single segment, the
    # number of the dictionary, which is of 0, 1, 2 or 4 bytes, and the size.
    begin = len(_ZSTD_MAGIC) + 1 + (1 - single) + (0, 1, 2, 4)[descriptor & 3]
    length = (single, 2, 4, 8)[kind]
    size = int.from_bytes(data[begin : begin + length], "little") + (256 if length == 2 else 0)
    _check_size(size, out)
    zstd.decompress(data, out)


def _check_size(size: int, out: np.ndarray) -> None:
    """Codecs leave the rest as it was where there are fewer pixels."""
    if size != out.nbytes:
        raise ValueError(f"it holds {size:,} bytes of pixels, expected {out.nbytes:,}")


def _inflate(data: bytes, out: np.ndarray, window_bits: int) -> None:
    # Bounded, since a few bytes may claim to be any number of pixels.
    _copy(zlib.decompressobj(window_bits).decompress(data, out.nbytes + 1), out)


def _copy(pixels: bytes, out: np.ndarray) -> None:
    _check_size(len(pixels), out)
    out.reshape(-1).view(np.uint8)[:] = np.frombuffer(pixels, np.uint8)


def _decode_lz4(data: bytes, out: np.ndarray) -> None:
    """A chunk of one block, as `Hdf5Codec` writes it."""
    start = _LZ4_HEADER.size + _LZ4_BLOCK.size
    block = data[start:]
    if len(block) == out.nbytes:
        out.reshape(-1).view(np.uint8)[:] = np.frombuffer(block, np.uint8)
    else:
        lz4.decompress(_LZ4_PREFIX.pack(out.nbytes) + block, out)
