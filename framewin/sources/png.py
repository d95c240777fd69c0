"""PNG frames, decoded exactly by libdeflate and libpng, and the files of animated PNG.

Gray of 1, 2 and 4 bits is scaled to 0..255, palettes become colours (or stay indices),
transparency by colour (tRNS) becomes an alpha channel, 16-bit samples stay 16 bits. Gamma,
colour profiles and orientation are not applied.
"""

from __future__ import annotations

import logging
import struct
import threading
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

import imagecodecs
import numpy as np

from framewin.errors import FrameFormatError, SourceError
from framewin.schema import FrameFormat
from framewin.sources.info import (
    FileInfo,
    ReadOptions,
    check_kind,
    check_pixels,
    orientation_note,
)

HEADER_BYTES = 2**12
SIGNATURE = b"\x89PNG\r\n\x1a\n"

_IHDR = struct.Struct(">4sIIBBBBB")
_IHDR_END = 33
_CHUNK = struct.Struct(">I4s")
_FIRST_CHUNK = len(SIGNATURE)
_CHUNK_OVERHEAD = 12
_IEND = b"\0\0\0\0IEND\xaeB`\x82"

_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
"""IHDR colour type -> channels once decoded, without tRNS."""
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
"""IHDR colour type -> bits per sample that the PNG standard allows."""
_COLOUR_NAMES = {0: "gray", 2: "RGB", 3: "palette", 4: "gray and alpha", 6: "RGBA"}
_ZLIB_HEADER = b"\x78\x01"
_STORED_HEADER = struct.Struct("<BHH")
_LARGEST_STORED = 2**16 - 1
_FEW_BYTES = 2**12
"""Below, calls of libdeflate take more time than they save."""
_MOST_KEPT_BYTES = 2**26
_PIECES_OF_CHUNK = 2**14
"""Of at most 64 KiB, because a chunk must be smaller than 2 GiB."""
_LONGEST_SIDE = 10**6
"""What libpng reads."""
_FILTERS = bytes(range(5))
_ADAM7 = (
    (0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)
)  # fmt: skip
"""First row and column of each pass, and the distances of its rows and columns."""
_IN_ONE = ((0, 0, 1, 1),)
_TRANSPARENT_BYTES = {0: 2, 2: 6}
"""IHDR colour type -> bytes of the colour in tRNS that is transparent."""
_ANCILLARY = 0x20
"""Bit of the first letter of a chunk that need not be understood."""
_KNOWN_CHUNKS = (b"IHDR", b"PLTE", b"IDAT", b"tRNS")
_PALETTE = 3
_LARGEST_PALETTE = 256
_ALPHA_COLOUR_TYPES = (4, 6)
_INFLATED_CHUNKS = (b"zTXt", b"iTXt", b"iCCP")
_ANIMATION_CHUNKS = (b"acTL", b"fcTL", b"fdAT")
_NOTED_CHUNKS = {b"gAMA": "gamma", b"iCCP": "ICC profile", b"cICP": "colour code points"}
_RAW_EXIF = b"Raw profile type exif\0"
_LARGEST_TEXT_BYTES = 2**20
_LARGEST_TEXT_RATIO = 100
_TEXT_PIECE_BYTES = 2**16


class Head(NamedTuple):
    """What the IHDR chunk says."""

    width: int
    height: int
    depth: int
    colour: int
    interlaced: int


class _Kept(threading.local):
    """What a thread keeps from one frame for the next, which is mostly of the same kind."""

    last: tuple[bytes, ReadOptions | None, FileInfo | None, Head | None] = b"", None, None, None
    """The bytes of a file up to its pixels, and what `inspect` said of it."""
    pixels = bytearray()


_kept = _Kept()

# libpng's notes about harmless oddities are logged by imagecodecs; without a handler Python
# would print them between the progress lines.
logging.getLogger("imagecodecs").addHandler(logging.NullHandler())


class _Parts(NamedTuple):
    """What the chunks of a file say of its pixels."""

    compressed: bytes
    palette: bytes
    transparency: bytes | None


def header(file: BinaryIO) -> bytes:
    """The bytes of a PNG file up to its first IDAT chunk, and some more.

    Long texts and profiles may stand before it, so all of the file is read where it comes late.
    """
    start = file.read(HEADER_BYTES)
    if any(name == b"IDAT" for name, _ in chunks(start)):
        return start
    return start + file.read()


def inspect(data: bytes, path: str, options: ReadOptions | None = None) -> FileInfo:
    """What `decode` gives, from the chunks before the pixels.

    Args:
        data: The file's bytes, at least up to its first IDAT chunk.
        path: Named in errors.
        options: `palette` and `max_pixels` count.

    Raises:
        SourceError: Not a PNG file, or a header that the standard does not allow.
    """
    start, last_options, info, _ = _kept.last
    if info is not None and options is last_options and _begins(data, start):
        return info
    options = options or ReadOptions()
    head = read_head(data, path)
    check_pixels(head.height, head.width, path, options)
    found, end = _before_pixels(data)
    channels = _CHANNELS[head.colour]
    if head.colour not in _ALPHA_COLOUR_TYPES and b"tRNS" in found:
        channels += 1
    if head.colour == _PALETTE and options.palette == "index":
        channels = 1
    # An animation of one frame may still have another picture before it.
    animated = b"acTL" in found and (found[b"acTL"][:4] != b"\0\0\0\1" or b"fcTL" not in found)
    info = _shared_info(head, channels, b"tRNS" in found, _notes(found), animated)
    if end:
        _kept.last = data[:end], options, info, head
    return info


def _begins(data: bytes, start: bytes) -> bool:
    """Whether a file has these bytes before the chunk of its pixels."""
    return data.startswith(start) and data.startswith(b"IDAT", len(start) + 4)


def decode(data: bytes, out: np.ndarray, path: str, options: ReadOptions | None = None) -> None:
    """Decode a PNG file into `out`, (H, W, C) of the format that `inspect` gave.

    Raises:
        SourceError: The file is damaged. Checksums are verified; a missing IEND chunk after
            complete pixels is not damage.
    """
    start, _, _, head = _kept.last
    if head is None or not _begins(data, start):
        head = read_head(data, path)
    parts = _parts(data, path)
    if head.colour != _PALETTE:
        _decode_pixels(head, parts, out, path)
        return
    palette = _palette(parts, head.depth, path)
    # As gray, for libpng would replace indices by colours. It scales shallow gray to 0..255.
    indices = out if out.shape[-1] == 1 else np.empty((*out.shape[:2], 1), np.uint8)
    _decode_pixels(head._replace(colour=0), parts._replace(transparency=None), indices, path)
    if head.depth < 8:
        indices //= 255 // (2**head.depth - 1)
    if (largest := int(indices.max())) >= len(palette):
        raise SourceError(
            f"{path} has the palette index {largest} in a palette of {len(palette)} colours; "
            "repair or remove it"
        )
    if out.shape[-1] > 1:
        np.take(palette, indices[..., 0], axis=0, out=out, mode="clip")


def check(data: bytes, path: str) -> None:
    """Find damage without decoding: chunks that are cut short, or whose checksum is wrong.

    Raises:
        SourceError: See `decode`.
    """
    _parts(data, path)


def inspect_clip(path: str, options: ReadOptions) -> FileInfo:
    """What `read_clip` gives; the whole structure of an animation is checked."""
    from framewin.sources import apng

    data = Path(path).read_bytes()
    info = inspect(data, path, options)
    return apng.inspect_animation(data, info, path, options) if _is_animated(data) else info


def read_clip(path: str, options: ReadOptions) -> Iterator[np.ndarray | SourceError]:
    """The frames of an animation, each as a viewer would show it."""
    from framewin.sources import apng

    data = Path(path).read_bytes()
    if _is_animated(data):
        yield from apng.read_animation(data, path, options)
        return
    form = inspect(data, path, options).frame_format
    out = np.empty(form.shape, form.dtype)
    decode(data, out, path, options)
    yield out


def read_head(data: bytes, path: str) -> Head:
    """The image header, checked.

    Raises:
        SourceError: Not a PNG file, or a header that is damaged or not allowed.
    """
    check_kind(data, path, "PNG")
    if len(data) < _IHDR_END:
        raise SourceError(f"{path} ends inside its PNG header; copy it again or remove it")
    name, *values = _IHDR.unpack_from(data, _FIRST_CHUNK + 4)
    if name == b"CgBI":
        raise SourceError(
            f"{path} is in Apple's variant of PNG (it begins with a CgBI chunk), which is not "
            "standard; convert it back, for example by pngcrush -revert-iphone-optimizations"
        )
    width, height, depth, colour, compression, filters, interlaced = values
    allowed = min(width, height) > 0 and depth in _DEPTHS.get(colour, ())
    if name != b"IHDR" or not allowed or (compression, filters) != (0, 0) or interlaced > 1:
        raise SourceError(
            f"{path} has a PNG header that the standard does not allow "
            f"({width}x{height}, colour type {colour}, {depth} bits); repair or remove it"
        )
    if zlib.crc32(data[_FIRST_CHUNK + 4 : _IHDR_END - 4]) != _checksum(data, _IHDR_END):
        raise SourceError(f"{path} has a PNG header with a wrong checksum; repair or remove it")
    if max(width, height) > _LONGEST_SIDE:
        raise SourceError(
            f"{path} is {height}x{width}; expected at most {_LONGEST_SIDE:,} pixels on a side, "
            "convert it first"
        )
    return Head(width, height, depth, colour, interlaced)


def _decode_pixels(head: Head, parts: _Parts, out: np.ndarray, path: str) -> None:
    """Decode pixels, no palette, by libpng, which only undoes the filters and unpacks samples.

    An error inside libpng makes imagecodecs miscount the references to `out`, and the process
    crashes. So libpng is only given what it cannot refuse.
    """
    pixels = _filtered(head, parts, path)
    file = _stored_file(head, parts, pixels, path)
    # Of the shape that libpng gives: then there is no view of it that imagecodecs could free.
    imagecodecs.png_decode(file, out=out[..., 0] if out.shape[-1] == 1 else out)


def _stored_file(head: Head, parts: _Parts, pixels: bytearray, path: str) -> bytes:
    """A file of as few chunks as possible, with its pixels stored instead of compressed.

    The zlib in libpng takes most of the time of decoding, and libdeflate a third of zlib's.
    """
    transparency = parts.transparency if head.colour in _TRANSPARENT_BYTES else None
    if transparency is not None and len(transparency) != _TRANSPARENT_BYTES[head.colour]:
        raise _undecodable(path, f"tRNS: {len(transparency)} bytes")
    pieces = [_before_stored(head, transparency)]
    stream = list(_stored(pixels))
    for begin in range(0, len(stream), _PIECES_OF_CHUNK):
        chunk = b"".join([b"IDAT", *stream[begin : begin + _PIECES_OF_CHUNK]])
        pieces += [(len(chunk) - 4).to_bytes(4, "big"), chunk, _crc32(chunk).to_bytes(4, "big")]
    return b"".join([*pieces, _IEND])


@lru_cache(maxsize=64)
def _before_stored(head: Head, transparency: bytes | None) -> bytes:
    """The beginning of a file for libpng."""
    ihdr = _IHDR.pack(b"IHDR", *head[:4], 0, 0, head.interlaced)[4:]
    trns = b"" if transparency is None else chunk_bytes(b"tRNS", transparency)
    return SIGNATURE + chunk_bytes(b"IHDR", ihdr) + trns


def _filtered(head: Head, parts: _Parts, path: str) -> bytearray:
    """The inflated pixels, with the number of a filter before each row; all of them right."""
    passes = _passes(head)
    nbytes = sum(rows * stride for rows, stride in passes)
    pixels = _kept.pixels
    if len(pixels) != nbytes:
        pixels = bytearray(nbytes)
        if nbytes <= _MOST_KEPT_BYTES:
            _kept.pixels = pixels
    try:
        found = len(imagecodecs.deflate_decode(parts.compressed, out=pixels))
    except imagecodecs.DeflateError:
        found = _inflate(parts.compressed, pixels, path)
    if found != nbytes:
        raise _undecodable(path, f"{found:,} bytes of pixels, expected {nbytes:,}")
    begin = 0
    for rows, stride in passes:
        end = begin + rows * stride
        if unknown := pixels[begin:end:stride].translate(None, _FILTERS):
            raise _undecodable(path, f"bad adaptive filter value {unknown[0]}")
        begin = end
    return pixels


def _inflate(compressed: bytes, pixels: bytearray, path: str) -> int:
    """Inflate what libdeflate does not take; libpng lets more pixels pass than there are places."""
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(compressed, len(pixels))
        pixels[: len(found)] = found
        more = not inflater.eof
        while more:
            rest = inflater.decompress(inflater.unconsumed_tail, _TEXT_PIECE_BYTES)
            more = bool(rest) and not inflater.eof
    except zlib.error as exc:
        raise _undecodable(path, f"IDAT: {exc}") from exc
    if not inflater.eof:
        raise _undecodable(path, "the compressed pixels end early")
    return len(found)


@lru_cache(maxsize=64)
def _passes(head: Head) -> list[tuple[int, int]]:
    """Rows, and bytes of each with its filter, of the whole picture or of Adam7's seven parts."""
    bits = head.depth * _CHANNELS[head.colour]
    steps = _ADAM7 if head.interlaced else _IN_ONE
    sizes = (
        (-(-(head.height - top) // down), -(-(head.width - left) // right))
        for top, left, down, right in steps
    )
    return [(rows, 1 + (columns * bits + 7) // 8) for rows, columns in sizes if rows > 0 < columns]


def _stored(data: bytearray) -> Iterator[bytes | memoryview]:
    """The pieces of a zlib stream of stored blocks (RFC 1950 and 1951)."""
    view, nbytes = memoryview(data), len(data)
    yield _ZLIB_HEADER
    for begin in range(0, nbytes, _LARGEST_STORED):
        block = view[begin : begin + _LARGEST_STORED]
        last = begin + _LARGEST_STORED >= nbytes
        yield _STORED_HEADER.pack(last, len(block), len(block) ^ 0xFFFF)
        yield block
    adler32 = zlib.adler32 if nbytes < _FEW_BYTES else imagecodecs.deflate_adler32
    yield adler32(data).to_bytes(4, "big")


def _parts(data: bytes, path: str) -> _Parts:
    """What the pixels of a whole file are made of; no chunk of it may be cut short.

    Chunks that say nothing of the pixels may have wrong checksums.
    """
    compressed: list[bytes] = []
    beside: dict[bytes, bytes] = {}
    previous = name = b"IHDR"
    end = start = _FIRST_CHUNK
    for name, end in chunks(data):
        if name == b"IEND" or end > len(data):
            break
        if name == b"fdAT":
            raise FrameFormatError(
                f"{path} is an animation in a place for single frames; rename it to .apng or "
                "leave it out by exclude="
            )
        if name == b"IDAT" or name[0] & _ANCILLARY == 0 or not name.isalpha() or name == b"tRNS":
            _check_chunk(data, name, start, end, path)
        content = data[start + _CHUNK.size : end - 4]
        if name in _INFLATED_CHUNKS:
            _check_text(name, content, path)
        if name == b"IDAT":
            if compressed and previous != b"IDAT":
                raise _undecodable(path, "its IDAT chunks do not follow one another")
            compressed.append(content)
        elif not compressed:
            beside.setdefault(name, content)
        previous, start = name, end
    if end > len(data) or (name != b"IEND" and (name, end) != (b"IDAT", len(data))):
        raise SourceError(
            f"{path} is cut short: its {len(data)} bytes end in or behind a "
            f"{name.decode('latin-1')!r} chunk; copy it again or remove it"
        )
    if not compressed:
        raise _undecodable(path, "it has no IDAT chunk")
    pixels = compressed[0] if len(compressed) == 1 else b"".join(compressed)
    return _Parts(pixels, beside.get(b"PLTE", b""), beside.get(b"tRNS"))


def _check_chunk(data: bytes, name: bytes, start: int, end: int, path: str) -> None:
    """Refuse a chunk that the pixels need and that is damaged, or unknown."""
    if _crc32(data[start + 4 : end - 4]) != _checksum(data, end):
        raise _undecodable(path, f"{name.decode('latin-1')}: CRC error")
    if name not in _KNOWN_CHUNKS or (name == b"IHDR" and start != _FIRST_CHUNK):
        raise _undecodable(path, f"{name.decode('latin-1')}: unknown critical chunk")


def chunks(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Name of each chunk and the position behind it, which may lie past the end of the data."""
    position = _FIRST_CHUNK
    while position + _CHUNK.size <= len(data):
        length, name = _CHUNK.unpack_from(data, position)
        position += length + _CHUNK_OVERHEAD
        yield name, position


def chunk_bytes(name: bytes, content: bytes) -> bytes:
    """A chunk with its length and checksum."""
    checksum = zlib.crc32(content, zlib.crc32(name))
    return _CHUNK.pack(len(content), name) + content + checksum.to_bytes(4, "big")


def contents(data: bytes) -> Iterator[tuple[bytes, bytes, bool]]:
    """Name and content of each chunk that is all there, and whether its checksum is right."""
    start = _FIRST_CHUNK
    for name, end in chunks(data):
        if end > len(data):
            return
        content = data[start + _CHUNK.size : end - 4]
        yield name, content, zlib.crc32(content, zlib.crc32(name)) == _checksum(data, end)
        start = end


def _is_animated(data: bytes) -> bool:
    """Whether a file has any part of an animation, be it damaged."""
    return any(name in _ANIMATION_CHUNKS for name, _ in chunks(data))


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
    try:
        while rest and size <= limit:
            size += len(inflater.decompress(rest, _TEXT_PIECE_BYTES))
            rest = inflater.unconsumed_tail
    except zlib.error:
        return  # What cannot be inflated does no harm.
    if size > limit:
        raise SourceError(
            f"{path} has a {name.decode()} chunk of {len(content)} bytes that inflates to more "
            f"than {limit}; remove the file, or the text from it"
        )


def _palette(parts: _Parts, depth: int, path: str) -> np.ndarray:
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
    alpha = np.full((len(palette), 1), 255, np.uint8)
    given = np.frombuffer(parts.transparency, np.uint8)[: len(palette)]
    alpha[: len(given), 0] = given
    return np.hstack([palette, alpha])


def _before_pixels(data: bytes) -> tuple[dict[bytes, bytes], int]:
    """Content of each kind of chunk before the pixels, the first where there are several.

    Returns also the position of the chunk of pixels; 0 without one.
    """
    found: dict[bytes, bytes] = {}
    start = _FIRST_CHUNK
    for name, end in chunks(data):
        if name == b"IDAT":
            return found, start
        content = data[start + _CHUNK.size : end - 4]
        if name in (b"tEXt", b"zTXt") and content.startswith(_RAW_EXIF):
            name, content = b"eXIf", _raw_profile(name, content[len(_RAW_EXIF) :])
        found.setdefault(name, content)
        start = end
    return found, 0


def _mode(head: Head, transparency: bool) -> str:
    behind = " and a transparent colour" if transparency and head.colour != _PALETTE else ""
    behind = " with transparency" if transparency and head.colour == _PALETTE else behind
    return f"{_COLOUR_NAMES[head.colour]}{behind}, {head.depth} bits"


def _notes(found: dict[bytes, bytes]) -> tuple[str, ...]:
    if len(found) == 1:
        return ()
    notes = tuple(note for name, note in _NOTED_CHUNKS.items() if name in found)
    return (*notes, *orientation_note(found.get(b"eXIf", b"")))


def _raw_profile(name: bytes, text: bytes) -> bytes:
    """EXIF data that ImageMagick wrote as a text of hexadecimal digits; b"" where it is not."""
    try:
        if name == b"zTXt":
            text = zlib.decompressobj().decompress(text[1:], _TEXT_PIECE_BYTES)
        return bytes.fromhex(text.split(b"\n", 3)[3].decode("ascii"))
    except (zlib.error, ValueError, IndexError):
        return b""


def _undecodable(path: str, reason: str) -> SourceError:
    return SourceError(f"{path} cannot be decoded ({reason}); repair or remove it")


def _crc32(data: bytes) -> int:
    return zlib.crc32(data) if len(data) < _FEW_BYTES else int(imagecodecs.deflate_crc32(data))


def _checksum(data: bytes, end: int) -> int:
    return int.from_bytes(data[end - 4 : end], "big")


@lru_cache(maxsize=64)
def _shared_info(
    head: Head, channels: int, transparency: bool, notes: tuple[str, ...], is_clip: bool
) -> FileInfo:
    """One object for all frames alike: making and checking it costs as much as a small read."""
    form = FrameFormat(head.height, head.width, channels, "uint16" if head.depth == 16 else "uint8")
    return FileInfo(form, "PNG", _mode(head, transparency), notes, is_clip=is_clip)
