"""Zarr arrays of strangers: no link leads out of them, and no chunk inflates without bound."""

from __future__ import annotations

import asyncio
import bz2
import lzma
import math
import os
import shlex
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zarr
from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import ShardingCodec
from zarr.codecs._v2 import V2Codec
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.storage import LocalStore

from framewin.errors import StoreError

_SLACK_BYTES = 2**16
_MOST_TEXT_BYTES = 2**28
"""Of a chunk whose values have no size of their own, or that does not say its own."""
_INDEX_ENTRY_BYTES = 16
_ZSTD_BLOCK_BYTES = 2**17
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class InsideStore(LocalStore):
    """A folder out of which no link leads."""

    def __init__(self, root: Path, *, read_only: bool = True) -> None:
        super().__init__(root, read_only=read_only)
        self._real = os.path.realpath(root)

    async def get(self, key: str, *args: Any, **options: Any) -> Any:
        self._check(key)
        return await super().get(key, *args, **options)

    def get_sync(self, key: str, **options: Any) -> Any:
        self._check(key)
        return super().get_sync(key, **options)

    async def get_partial_values(self, prototype: Any, key_ranges: Any) -> list[Any]:
        ranges = list(key_ranges)
        for key, _ in ranges:
            self._check(key)
        return await super().get_partial_values(prototype, ranges)

    def _check(self, key: str) -> None:
        real = os.path.realpath(self.root / key)
        if real != self._real and not real.startswith(self._real + os.sep):
            raise StoreError(
                f"{self.root / key} is reached by a link out of {self.root}; copy what it links "
                f"to, as by cp -rL {shlex.quote(str(self.root))} COPY, and read the copy"
            )


def open_node(path: Path, name: str = "") -> Any:
    """A group or array, by its own metadata: consolidated metadata may be older than the arrays."""
    return zarr.open(InsideStore(path), path=name, mode="r", use_consolidated=False)


def bound_chunks(array: Any, what: str) -> None:
    """Have chunks that inflate to much more than they declare refused; `what` is for errors."""
    metadata = array.metadata
    codecs: list[Any]
    if metadata.zarr_format == 2:
        most = _most(metadata.chunks, metadata.dtype)
        compressor: Any = metadata.compressor and _Compressor(metadata.compressor, most, what)
        codecs = [V2Codec(filters=metadata.filters, compressor=compressor)]
    else:
        codecs = [_bounded(codec, what) for codec in metadata.codecs]
    pipeline = BatchedCodecPipeline.from_codecs(codecs)
    object.__setattr__(array.async_array, "codec_pipeline", pipeline)


def _bounded(codec: Any, what: str) -> Any:
    """A codec whose output is bounded, that of codecs inside shards too."""
    if isinstance(codec, ShardingCodec):
        return ShardingCodec(
            chunk_shape=codec.chunk_shape,
            codecs=[_bounded(inner, what) for inner in codec.codecs],
            index_codecs=codec.index_codecs,
            index_location=codec.index_location,
        )
    return _Bounded(codec, what) if isinstance(codec, BytesBytesCodec) else codec


class _Bounded(BytesBytesCodec):
    """A codec of Zarr 3 that decodes no more than its chunk declares."""

    def __init__(self, codec: BytesBytesCodec, what: str) -> None:
        self._codec = codec
        self._what = what
        self.is_fixed_size = codec.is_fixed_size

    def to_dict(self) -> Any:
        return self._codec.to_dict()

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        return int(self._codec.compute_encoded_size(input_byte_length, chunk_spec))

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        most = _most(chunk_spec.shape, chunk_spec.dtype)
        name = str(self._codec.to_dict()["name"]).removeprefix("numcodecs.")
        inner = getattr(self._codec, "_codec", None)
        data = memoryview(chunk_bytes.to_bytes())
        decoded = await asyncio.to_thread(_decode, name, inner, data, most, self._what)
        if decoded is not None:
            return chunk_spec.prototype.buffer.from_bytes(decoded)
        return await self._codec._decode_single(chunk_bytes, chunk_spec)


class _Compressor:
    """A compressor of Zarr 2 that decodes no more than its chunk declares."""

    def __init__(self, codec: Any, most: int, what: str) -> None:
        self._codec = codec
        self._most = most
        self._what = what

    def decode(self, data: Any) -> Any:
        view = memoryview(data).cast("B")
        decoded = _decode(self._codec.codec_id, self._codec, view, self._most, self._what)
        return self._codec.decode(data) if decoded is None else decoded


def _most(shape: tuple[int, ...], dtype: Any) -> int:
    """Bytes that what is to be decoded may have: filters and indexes may make it larger."""
    native = dtype.to_native_dtype()
    elements = int(math.prod(shape))
    if native.kind in "OT" or not native.itemsize:
        return _MOST_TEXT_BYTES + elements * _INDEX_ENTRY_BYTES
    return elements * (2 * max(int(native.itemsize), 8) + _INDEX_ENTRY_BYTES) + _SLACK_BYTES


def _decode(name: str, codec: Any, data: memoryview, most: int, what: str) -> bytes | None:
    """What data of a codec inflate to; None where the codec itself may decode them.

    Raises:
        StoreError: They inflate to more than is allowed.
    """
    found, decoded = 0, None
    if name in ("blosc", "lz4") and len(data) >= 8:
        found = int.from_bytes(data[4:8] if name == "blosc" else data[:4], "little")
    elif name == "zstd":
        found, said = _zstd_bytes(data)
        most = most if said else max(most, _MOST_TEXT_BYTES)
    elif name in _STREAMS:
        decoded = _inflated(lambda: _STREAMS[name](codec), data, most)
        found = len(decoded)
    if found > most:
        raise StoreError(
            f"{what} has a chunk of {len(data)} bytes that inflates to more than the {most} which "
            "its shape allows; it is damaged or made to harm"
        )
    return decoded


_STREAMS: dict[str, Callable[[Any], Any]] = {
    "gzip": lambda codec: zlib.decompressobj(31),
    "zlib": lambda codec: zlib.decompressobj(),
    "bz2": lambda codec: bz2.BZ2Decompressor(),
    "lzma": lambda codec: lzma.LZMADecompressor(codec.format, filters=codec.filters),
}
"""Codecs whose data do not say what they inflate to -> what inflates them piece by piece."""


def _inflated(start: Callable[[], Any], data: memoryview | bytes, most: int) -> bytes:
    """What compressed streams inflate to, or a byte more than is allowed."""
    pieces: list[bytes] = []
    left = most + 1
    while len(data) and left > 0:
        stream = start()
        piece = stream.decompress(data, left)
        pieces.append(piece)
        left -= len(piece)
        if left > 0 and not stream.eof:
            raise ValueError("compressed data end early")
        data = stream.unused_data
    return b"".join(pieces)


def _zstd_bytes(data: memoryview) -> tuple[int, bool]:
    """What a frame of Zstandard inflates to: as it says, or else by its blocks at most."""
    if len(data) < 6 or data[:4] != _ZSTD_MAGIC:
        return 0, True
    flags = data[4]
    single = flags >> 5 & 1
    place = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
    size = (single, 2, 4, 8)[flags >> 6]
    if size:
        said = int.from_bytes(data[place : place + size], "little")
        return said + (256 if size == 2 else 0), True
    total, last = 0, 0
    while not last and place + 3 <= len(data):
        header = int.from_bytes(data[place : place + 3], "little")
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        # Raw, one byte repeated, or compressed.
        total += _ZSTD_BLOCK_BYTES if kind == 2 else size
        place += 3 + (1 if kind == 1 else size)
    return total, False
