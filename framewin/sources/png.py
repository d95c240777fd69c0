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

_IHDR = struct.Struct(">4sIIBB")
_IHDR_END = 33
_COLOUR_TYPE_AT = 25
_CHUNK = struct.Struct(">I4s")
_FIRST_CHUNK = len(SIGNATURE)
_CHUNK_OVERHEAD = 12
_IEND = b"\0\0\0\0IEND\xaeB`\x82"

_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
"""IHDR colour type -> channels once decoded, without tRNS."""
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
"""IHDR colour type -> bits per sample that the PNG standard allows."""
_COLOUR_NAMES = {0: "gray", 2: "RGB", 3: "palette", 4: "gray and alpha", 6: "RGBA"}
_SHAPE = struct.Struct(">IIBB2xB")
_ZLIB_HEADER = b"\x78\x01"
_STORED_HEADER = struct.Struct("<BHH")
_LARGEST_STORED = 2**16 - 1
_FEWEST_INFLATED_BYTES = 2**13
"""Below, the calls take more time than they save."""
_MOST_INFLATED_BYTES = 2**26
"""Above, the copies would take much memory; a chunk of PNG ends at 2 GiB anyway."""
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


class _Kept(threading.local):
    """What a thread keeps from one frame for the next, which is mostly of the same kind."""

    last: tuple[bytes, ReadOptions | None, FileInfo | None] = b"", None, None
    """The bytes of a file up to its pixels, and what `inspect` said of it."""
    pixels = bytearray()


_kept = _Kept()

# libpng's notes about harmless oddities are logged by imagecodecs; without a handler Python
# would print them between the progress lines.
logging.getLogger("imagecodecs").addHandler(logging.NullHandler())


class Head(NamedTuple):
    """What the IHDR chunk says."""

    width: int
    height: int
    depth: int
    colour: int


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
    start, last_options, info = _kept.last
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
        _kept.last = data[:end], options, info
    return info


def _begins(data: bytes, start: bytes) -> bool:
    """Whether a file has these bytes before the chunk of its pixels."""
    return data.startswith(start) and data.startswith(b"IDAT", len(start) + 4)


def decode(data: bytes, out: np.ndarray, path: str, options: ReadOptions | None = None) -> None:
    """Decode a PNG file into `out`, (H, W, C) of the format that `inspect` gave.

    Raises:
        SourceError: The file is damaged. Checksums are verified; a missing IEND chunk behind
            complete pixels is not damage.
    """
    data = _whole(data, path)
    if data[_COLOUR_TYPE_AT] != _PALETTE:
        decode_pixels(data, out, path)
        return
    head = read_head(data, path)
    palette = _palette(data, head, path)
    indices = out[..., 0] if out.shape[-1] == 1 else np.empty(out.shape[:2], np.uint8)
    _decode_indices(data, head, indices, path)
    if (largest := int(indices.max())) >= len(palette):
        raise SourceError(
            f"{path} has the palette index {largest} in a palette of {len(palette)} colours; "
            "repair or remove it"
        )
    if out.shape[-1] > 1:
        np.take(palette, indices, axis=0, out=out, mode="clip")


def check(data: bytes, path: str) -> None:
    """Find damage without decoding: chunks that are cut short, or whose checksum is wrong.

    Raises:
        SourceError: See `decode`.
    """
    for name, _, right in contents(_whole(data, path)):
        # A wrong checksum does no harm in chunks that say nothing of the pixels.
        if not right and name[:1].isupper():
            shown = name.decode("latin-1")
            raise SourceError(f"{path} cannot be decoded ({shown}: CRC error); repair or remove it")


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
    name, width, height, depth, colour = _IHDR.unpack_from(data, _FIRST_CHUNK + 4)
    if name != b"IHDR" or width == 0 or height == 0 or depth not in _DEPTHS.get(colour, ()):
        raise SourceError(
            f"{path} has a PNG header that the standard does not allow "
            f"({width}x{height}, colour type {colour}, {depth} bits); repair or remove it"
        )
    if zlib.crc32(data[_FIRST_CHUNK + 4 : _IHDR_END - 4]) != _checksum(data, _IHDR_END):
        raise SourceError(f"{path} has a PNG header with a wrong checksum; repair or remove it")
    return Head(width, height, depth, colour)


def decode_pixels(data: bytes, out: np.ndarray, path: str) -> None:
    """Decode a whole PNG file, no palette, by libpng."""
    try:
        imagecodecs.png_decode(_inflated(data, out) or data, out=out)
    # What imagecodecs raises depends on how far libpng came: PngError is a RuntimeError, a
    # garbled message a UnicodeDecodeError, which is a ValueError.
    except (ValueError, RuntimeError, MemoryError) as exc:
        reason = "damaged data" if isinstance(exc, UnicodeDecodeError) else str(exc)
        raise SourceError(f"{path} cannot be decoded ({reason}); repair or remove it") from exc


def _inflated(data: bytes, out: np.ndarray) -> bytes | None:
    """A whole PNG file, no palette, with its pixels stored instead of compressed, or None.

    The zlib in libpng takes most of the time of decoding, and libdeflate a third of zlib's; of
    stored pixels, libpng only undoes the filters. Where anything is unusual or damaged, the file
    is left to libpng.
    """
    width, height, depth, colour, interlaced = _SHAPE.unpack_from(data, _FIRST_CHUNK + 8)
    row_bytes = (width * depth * _CHANNELS[colour] + 7) // 8
    nbytes = height * (1 + row_bytes)
    if not _FEWEST_INFLATED_BYTES <= nbytes <= _MOST_INFLATED_BYTES:
        return None
    if interlaced or out.shape[:2] != (height, width):
        return None
    found = _compressed_pixels(data)
    if found is None:
        return None
    begin, compressed = found
    if len(_kept.pixels) != nbytes:
        _kept.pixels = bytearray(nbytes)
    pixels = _kept.pixels
    try:
        if len(imagecodecs.deflate_decode(compressed, out=pixels)) != nbytes:
            return None
    except imagecodecs.DeflateError:
        return None
    chunk = b"".join([b"IDAT", *_stored(pixels)])
    length, checksum = len(chunk) - 4, imagecodecs.deflate_crc32(chunk)
    return b"".join(
        (data[:begin], length.to_bytes(4, "big"), chunk, checksum.to_bytes(4, "big"), _IEND)
    )


def _stored(data: bytearray) -> Iterator[bytes | memoryview]:
    """The pieces of a zlib stream of stored blocks (RFC 1950 and 1951)."""
    view, nbytes = memoryview(data), len(data)
    yield _ZLIB_HEADER
    for begin in range(0, nbytes, _LARGEST_STORED):
        block = view[begin : begin + _LARGEST_STORED]
        last = begin + _LARGEST_STORED >= nbytes
        yield _STORED_HEADER.pack(last, len(block), len(block) ^ 0xFFFF)
        yield block
    yield imagecodecs.deflate_adler32(data).to_bytes(4, "big")


def _compressed_pixels(data: bytes) -> tuple[int, bytes] | None:
    """Where the IDAT chunks begin and what is in them, one behind the other, if all is right."""
    pieces: list[bytes] = []
    previous = b""
    begin = start = _FIRST_CHUNK
    for name, end in chunks(data):
        if name == b"IDAT":
            if pieces and previous != b"IDAT":
                return None
            if imagecodecs.deflate_crc32(data[start + 4 : end - 4]) != _checksum(data, end):
                return None
            begin = begin if pieces else start
            pieces.append(data[start + _CHUNK.size : end - 4])
        elif name == b"IEND":
            break
        # A critical chunk behind the pixels is for libpng to refuse.
        elif pieces and name[:1].isupper():
            return None
        previous, start = name, end
    return begin, pieces[0] if len(pieces) == 1 else b"".join(pieces)


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


def _whole(data: bytes, path: str) -> bytes:
    """The file, of which no chunk may be cut short, up to its IEND chunk, or with one added.

    libpng must never meet the end of the data: the callback by which imagecodecs tells it so
    corrupts memory, and the process crashes some time later. Nor does it see chunks that it
    would inflate to any size.
    """
    name = b"IHDR"
    end = start = _FIRST_CHUNK
    drop: list[tuple[int, int]] = []
    for name, end in chunks(data):
        if end > len(data):
            break
        if name == b"fdAT":
            raise FrameFormatError(
                f"{path} is an animation in a place for single frames; rename it to .apng or "
                "leave it out by --exclude"
            )
        if name in _INFLATED_CHUNKS:
            _check_text(name, data[start + _CHUNK.size : end - 4], path)
            drop.append((start, end))
        if name == b"IEND":
            return _without(data, drop)
        start = end
    if name == b"IDAT" and end == len(data):
        return _without(data, drop) + _IEND
    raise SourceError(
        f"{path} is cut short: its {len(data)} bytes end in or behind a "
        f"{name.decode('latin-1')!r} chunk; copy it again or remove it"
    )


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


def _without(data: bytes, drop: list[tuple[int, int]]) -> bytes:
    if not drop:
        return data
    kept, position = [], 0
    for start, end in drop:
        kept.append(data[position:start])
        position = end
    return b"".join([*kept, data[position:]])


def _palette(data: bytes, head: Head, path: str) -> np.ndarray:
    """The colours of a palette, (colours, 3 or 4)."""
    found: dict[bytes, bytes] = {}
    for name, content, intact in contents(data):
        if name == b"IDAT":
            break
        if name in (b"PLTE", b"tRNS"):
            if not intact:
                raise SourceError(
                    f"{path} has a {name.decode()} chunk with a wrong checksum; repair or remove it"
                )
            found.setdefault(name, content)
    colours = found.get(b"PLTE", b"")
    if not colours or len(colours) % 3 or len(colours) > 3 * _LARGEST_PALETTE:
        raise SourceError(
            f"{path} has a palette of {len(colours)} bytes; expected 3 for each of at most "
            f"{_LARGEST_PALETTE} colours, repair or remove it"
        )
    palette = np.frombuffer(colours, np.uint8).reshape(-1, 3)[: 2**head.depth]
    if b"tRNS" not in found:
        return palette
    alpha = np.full((len(palette), 1), 255, np.uint8)
    given = np.frombuffer(found[b"tRNS"], np.uint8)[: len(palette)]
    alpha[: len(given), 0] = given
    return np.hstack([palette, alpha])


def _decode_indices(data: bytes, head: Head, out: np.ndarray, path: str) -> None:
    """Decode the indices of a palette file, which libpng would replace by colours.

    It is given the same pixels as gray ones, and scales those of less than 8 bits to 0..255.
    """
    ihdr = bytearray(data[_FIRST_CHUNK + 8 : _IHDR_END - 4])
    ihdr[9] = 0
    start, pieces = _FIRST_CHUNK, [SIGNATURE, chunk_bytes(b"IHDR", bytes(ihdr))]
    for name, end in chunks(data):
        # Critical chunks begin with an upper-case letter; an unknown one is for libpng to refuse.
        if name[:1].isupper() and name not in (b"IHDR", b"PLTE"):
            pieces.append(data[start:end])
        start = end
        if name == b"IEND":
            break
    decode_pixels(b"".join(pieces), out, path)
    if head.depth < 8:
        out //= 255 // (2**head.depth - 1)


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


def _checksum(data: bytes, end: int) -> int:
    return int.from_bytes(data[end - 4 : end], "big")


@lru_cache(maxsize=64)
def _shared_info(
    head: Head, channels: int, transparency: bool, notes: tuple[str, ...], is_clip: bool
) -> FileInfo:
    """One object for all frames alike: making and checking it costs as much as a small read."""
    form = FrameFormat(head.height, head.width, channels, "uint16" if head.depth == 16 else "uint8")
    return FileInfo(form, "PNG", _mode(head, transparency), notes, is_clip=is_clip)
