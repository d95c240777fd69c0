"""The codecs of compressed chunks.

Chunks are compressed and decompressed here, by numcodecs, zlib and imagecodecs, in threads that
hold no interpreter lock, and in the framing that each format prescribes, so that zarr-python,
tensorstore and h5py read them with their own codecs.
"""

from __future__ import annotations

import struct
import zlib
from typing import Protocol

import numpy as np
from numcodecs import blosc, lz4, zstd

from framewin.schema import FrameFormat
from framewin.stores.layout import ResolvedLayout

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


class Codec(Protocol):
    """Compresses and decompresses chunks."""

    def encode(self, frames: np.ndarray) -> bytes:
        """Compress a full chunk, C-contiguous."""

    def decode(self, data: bytes, out: np.ndarray) -> None:
        """Decompress a chunk into `out`, C-contiguous, which it must fill."""


class ZarrCodec:
    """Chunks as Zarr's own codecs `zstd`, `gzip` and `blosc` (with lz4) write them."""

    def __init__(self, layout: ResolvedLayout, frame_format: FrameFormat) -> None:
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
            _inflate("gzip_decode", data, out)
        else:
            _check_size(_BLOSC_SIZE.unpack_from(data, _BLOSC_SIZE_AT)[0], out)
            blosc.decompress(data, out)


class Hdf5Codec:
    """Chunks as HDF5's filters deflate, zstd (32015) and lz4 (32004) write them."""

    def __init__(self, layout: ResolvedLayout) -> None:
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
            _inflate("zlib_decode", data, out)
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


def _inflate(decoder: str, data: bytes, out: np.ndarray) -> None:
    # Not needed to read raw frames, and slow to import; it decodes in half the time of zlib.
    import imagecodecs

    found = getattr(imagecodecs, decoder)(data, out=out.reshape(-1).view(np.uint8))
    _check_size(len(found), out)


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
