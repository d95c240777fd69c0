"""The chunks of a PNG file, and their pixels, decoded exactly by libdeflate and libpng.

Gray of 1, 2 and 4 bits is scaled to 0..255, palettes become colours (or stay indices),
transparency by colour (tRNS) becomes an alpha channel, 16-bit samples stay 16 bits.
"""

from __future__ import annotations

import logging
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import imagecodecs
import numpy as np

from framewin.errors import FrameFormatError, SourceError
from framewin.sources.damage import broken, cut_short
from framewin.sources.info import check_kind

SIGNATURE = b"\x89PNG\r\n\x1a\n"
PALETTE = 3
CHANNELS = {0: 1, 2: 3, PALETTE: 3, 4: 2, 6: 4}
"""IHDR colour type -> channels once decoded, without tRNS."""
PIECE_BYTES = 2**16
"""Of what is inflated to be thrown away."""

_IHDR = struct.Struct(">4sIIBBBBB")
_IHDR_START, _IHDR_END = 16, 33
_CHUNK = struct.Struct(">I4s")
_IEND = b"\0\0\0\0IEND\xaeB`\x82"
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), PALETTE: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
"""IHDR colour type -> bits per sample that the PNG standard allows."""
_FEW_BYTES = 2**13
"""Below, calls of libdeflate take more time than they save."""
_MOST_KEPT_BYTES = 2**26
_LARGEST_CHUNK = 2**30
_LONGEST_SIDE = 10**6
"""What libpng reads."""
_FILTERS = bytes(range(5))
_ADAM7 = (
    (0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)
)  # fmt: skip
"""First row and column of each pass, and the distances of its rows and columns."""
_TRANSPARENT_BYTES = {0: 2, 2: 6}
"""IHDR colour type -> bytes of the colour in tRNS that is transparent."""
_ANCILLARY = 0x20
"""Bit of the first letter of a chunk that need not be understood."""
_KNOWN_CHUNKS = (b"IHDR", b"PLTE", b"IDAT", b"tRNS")
_LARGEST_PALETTE = 256
_INFLATED_CHUNKS = (b"zTXt", b"iTXt", b"iCCP")
_LARGEST_TEXT_BYTES = 2**20
_LARGEST_TEXT_RATIO = 100


class Head(NamedTuple):
    """What the IHDR chunk says."""

    width: int
    height: int
    depth: int
    colour: int
    interlaced: int


class Parts(NamedTuple):
    """What the chunks of a file say of its pixels."""

    compressed: Any
    """Bytes, or a view of them."""
    palette: bytes
    transparency: bytes | None


class _Kept(threading.local):
    """The inflated pixels of a thread's last frame, whose memory the next one mostly fits."""

    pixels = bytearray()


_kept = _Kept()

# libpng's notes about harmless oddities are logged by imagecodecs; without a handler Python
# would print them between the progress lines.
logging.getLogger("imagecodecs").addHandler(logging.NullHandler())


def chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Name of each chunk, where its content begins, and its end, which may be past the data's."""
    end = len(SIGNATURE)
    while (start := end + _CHUNK.size) <= len(data):
        length, name = _CHUNK.unpack_from(data, end)
        end = start + length + 4
        yield name, start, end


def check_checksum(data: bytes, start: int, end: int, path: str) -> None:
    """Raise SourceError for a chunk whose checksum is wrong."""
    found = _crc32(memoryview(data)[start - 4 : end - 4])
    if found != int.from_bytes(data[end - 4 : end], "big"):
        raise _undecodable(path, f"{data[start - 4 : start].decode('latin-1')}: CRC error")


def read_head(data: bytes, path: str) -> Head:
    """The image header; SourceError where it is damaged, not allowed, or of another kind."""
    check_kind(data, path, "PNG")
    if len(data) < _IHDR_END:
        raise cut_short(f"{path} ends inside its PNG header")
    name, *values = _IHDR.unpack_from(data, len(SIGNATURE) + 4)
    if name == b"CgBI":
        raise SourceError(
            f"{path} is in Apple's variant of PNG (it begins with a CgBI chunk), which is not "
            "standard; convert it back, for example by pngcrush -revert-iphone-optimizations"
        )
    width, height, depth, colour, compression, filters, interlaced = values
    allowed = min(width, height) > 0 and depth in _DEPTHS.get(colour, ())
    if name != b"IHDR" or not allowed or (compression, filters) != (0, 0) or interlaced > 1:
        claimed = f"{width}x{height}, colour type {colour}, {depth} bits"
        raise broken(f"{path} has a PNG header that the standard does not allow ({claimed})")
    if zlib.crc32(data[12:29]).to_bytes(4, "big") != data[29:_IHDR_END]:
        raise broken(f"{path} has a PNG header with a wrong checksum")
    if max(width, height) > _LONGEST_SIDE:
        raise SourceError(
            f"{path} is {height}x{width}; expected at most {_LONGEST_SIDE:,} pixels on a side, "
            "convert it first"
        )
    return Head(width, height, depth, colour, interlaced)


def read_parts(data: bytes, path: str) -> Parts:
    """What the pixels of a single picture are made of, all that they need checked."""
    compressed: list[memoryview] = []
    found: dict[bytes, bytes] = {}
    previous = name = b"IHDR"
    end, view = 0, memoryview(data)
    for name, start, end in chunks(data):
        if name == b"IEND" or end > len(data):
            break
        if name == b"fdAT":
            raise FrameFormatError(
                f"{path} is an animation in a place for single frames; rename it to .apng or "
                "leave it out by exclude="
            )
        if name == b"IDAT" or name[0] & _ANCILLARY == 0 or not name.isalpha() or name == b"tRNS":
            check_checksum(data, start, end, path)
            if name not in _KNOWN_CHUNKS or (name == b"IHDR" and start != _IHDR_START):
                raise _undecodable(path, f"{name.decode('latin-1')}: unknown critical chunk")
        elif name in _INFLATED_CHUNKS:
            _check_text(name, data[start : end - 4], path)
        if name == b"IDAT":
            if compressed and previous != b"IDAT":
                raise _undecodable(path, "its IDAT chunks do not follow one another")
            compressed.append(view[start : end - 4])
        elif not compressed:
            found.setdefault(name, data[start : end - 4])
        previous = name
    if end > len(data) or (name != b"IEND" and (name, end) != (b"IDAT", len(data))):
        last = f"{name.decode('latin-1')!r} chunk"
        raise cut_short(f"{path} is cut short: its {len(data)} bytes end in or behind a {last}")
    if not compressed:
        raise _undecodable(path, "it has no IDAT chunk")
    pixels = compressed[0] if len(compressed) == 1 else b"".join(compressed)
    return Parts(pixels, found.get(b"PLTE", b""), found.get(b"tRNS"))


def _check_text(name: bytes, content: bytes, path: str) -> None:
    """Refuse a text or profile that is made to fill memory, at the cost of a bounded part of it."""
    _, _, rest = content.partition(b"\0")
    if name == b"iTXt":
        # Whether it is compressed, how, a language, a translated keyword, and then the text.
        rest = rest[2:].split(b"\0", 2)[-1] if rest[:1] == b"\1" else b""
    else:
        rest = rest[1:]
    inflater, size = zlib.decompressobj(), 0
    limit = max(_LARGEST_TEXT_BYTES, _LARGEST_TEXT_RATIO * len(rest))
    with suppress(zlib.error):  # What cannot be inflated does no harm.
        while rest and size <= limit:
            size += len(inflater.decompress(rest, PIECE_BYTES))
            rest = inflater.unconsumed_tail
    if size > limit:
        raise SourceError(
            f"{path} has a {name.decode()} chunk of {len(content)} bytes that inflates to more "
            f"than {limit}; remove the file, or the text from it"
        )


def decode_parts(head: Head, parts: Parts, out: np.ndarray, path: str) -> None:
    """Decode pixels into `out`, (H, W, C); one channel of a palette is its indices."""
    if head.colour != PALETTE:
        _decode_samples(head, parts, out, path)
        return
    palette = _palette(parts, head.depth, path)
    # As gray, for libpng would replace indices by colours. It scales shallow gray to 0..255.
    indices = out if out.shape[-1] == 1 else np.empty((*out.shape[:2], 1), np.uint8)
    _decode_samples(head._replace(colour=0), parts._replace(transparency=None), indices, path)
    if head.depth < 8:
        indices //= 255 // (2**head.depth - 1)
    if (largest := int(indices.max())) >= len(palette):
        raise broken(
            f"{path} has the palette index {largest} in a palette of {len(palette)} colours"
        )
    if out.shape[-1] > 1:
        np.take(palette, indices[..., 0], axis=0, out=out, mode="clip")


def _palette(parts: Parts, depth: int, path: str) -> np.ndarray:
    """The colours of a palette, (colours, 3 or 4)."""
    colours = parts.palette
    if not colours or len(colours) % 3 or len(colours) > 3 * _LARGEST_PALETTE:
        raise SourceError(
            f"{path} has a palette of {len(colours)} bytes; expected 3 for each of at most "
            f"{_LARGEST_PALETTE} colours, repair or remove it"
        )
    palette = np.frombuffer(colours, np.uint8).reshape(-1, 3)[: 2**depth]
    if parts.transparency is None:
        return palette
    alpha = parts.transparency[: len(palette)].ljust(len(palette), b"\xff")
    return np.column_stack([palette, np.frombuffer(alpha, np.uint8)])


def _decode_samples(head: Head, parts: Parts, out: np.ndarray, path: str) -> None:
    """Decode pixels, no palette, by libpng, which only undoes the filters and unpacks samples.

    An error inside libpng makes imagecodecs miscount the references to `out`, and the process
    crashes. So libpng is only given what it cannot refuse: checked rows, stored instead of
    compressed, for the zlib in libpng takes three times as long as libdeflate.
    """
    transparency = parts.transparency if head.colour in _TRANSPARENT_BYTES else None
    if transparency is not None and len(transparency) != _TRANSPARENT_BYTES[head.colour]:
        raise _undecodable(path, f"tRNS: {len(transparency)} bytes")
    pixels = _filtered(head, parts.compressed, path)
    few = len(pixels) < _FEW_BYTES
    stream = zlib.compress(pixels, 0) if few else imagecodecs.deflate_encode(pixels, level=0)
    pieces = [_before_pixels(head, transparency)]
    for begin in range(0, len(stream), _LARGEST_CHUNK):
        pieces += _chunk(b"IDAT", memoryview(stream)[begin : begin + _LARGEST_CHUNK])
    file = b"".join([*pieces, _IEND])
    # Of the shape that libpng gives: then there is no view of it that imagecodecs could free.
    imagecodecs.png_decode(file, out=out[..., 0] if out.shape[-1] == 1 else out)


@lru_cache(maxsize=64)
def _before_pixels(head: Head, transparency: bytes | None) -> bytes:
    """The beginning of a file for libpng."""
    ihdr = _IHDR.pack(b"IHDR", *head[:4], 0, 0, head.interlaced)[4:]
    trns = [] if transparency is None else _chunk(b"tRNS", transparency)
    return b"".join([SIGNATURE, *_chunk(b"IHDR", ihdr), *trns])


def _chunk(name: bytes, content: Any) -> tuple[bytes, Any, bytes]:
    checksum = _crc32(content, zlib.crc32(name))
    return _CHUNK.pack(len(content), name), content, checksum.to_bytes(4, "big")


def _filtered(head: Head, compressed: Any, path: str) -> bytearray:
    """The inflated pixels, with the number of a filter before each row; all of them right."""
    passes = _passes(head)
    nbytes = sum(rows * stride for rows, stride in passes)
    pixels = _kept.pixels
    if len(pixels) != nbytes:
        pixels = bytearray(nbytes)
        if nbytes <= _MOST_KEPT_BYTES:
            _kept.pixels = pixels
    try:
        found = len(imagecodecs.deflate_decode(compressed, out=pixels))
    except imagecodecs.DeflateError:
        found = _inflate(compressed, pixels, path)
    if found != nbytes:
        raise _undecodable(path, f"{found:,} bytes of pixels, expected {nbytes:,}")
    begin = 0
    for rows, stride in passes:
        end = begin + rows * stride
        if unknown := pixels[begin:end:stride].translate(None, _FILTERS):
            raise _undecodable(path, f"bad adaptive filter value {unknown[0]}")
        begin = end
    return pixels


def _inflate(compressed: Any, pixels: bytearray, path: str) -> int:
    """Inflate what libdeflate does not take; libpng lets more pixels pass than there are places."""
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(compressed, len(pixels))
        pixels[: len(found)] = found
        while not inflater.eof and inflater.decompress(inflater.unconsumed_tail, PIECE_BYTES):
            pass
    except zlib.error as exc:
        raise _undecodable(path, f"IDAT: {exc}") from exc
    if not inflater.eof:
        raise _undecodable(path, "the compressed pixels end early")
    return len(found)


@lru_cache(maxsize=64)
def _passes(head: Head) -> list[tuple[int, int]]:
    """Rows, and bytes of each with its filter, of the whole picture or of Adam7's seven parts."""
    bits = head.depth * CHANNELS[head.colour]
    steps = _ADAM7 if head.interlaced else ((0, 0, 1, 1),)
    sizes = (
        (-(-(head.height - top) // down), -(-(head.width - left) // right))
        for top, left, down, right in steps
    )
    return [(rows, 1 + (columns * bits + 7) // 8) for rows, columns in sizes if rows > 0 < columns]


def _undecodable(path: str, reason: str) -> SourceError:
    return broken(f"{path} cannot be decoded ({reason})")


def _crc32(data: Any, value: int = 0) -> int:
    if len(data) < _FEW_BYTES:
        return zlib.crc32(data, value)
    return int(imagecodecs.deflate_crc32(data, value))
