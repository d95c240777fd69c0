"""PNG frames, decoded exactly by libpng.

Gray of 1, 2 and 4 bits is scaled to 0..255, palettes become colours, transparency by colour
(tRNS) becomes an alpha channel, 16-bit samples stay 16 bits. Gamma and colour profiles are not
applied.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import BinaryIO

import imagecodecs
import numpy as np

from framewin.errors import SourceError
from framewin.schema import FrameFormat

HEADER_BYTES = 2**12

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_IHDR = struct.Struct(">4sIIBB")
_CHUNK = struct.Struct(">I4s")
_FIRST_CHUNK = len(_SIGNATURE)
_CHUNK_OVERHEAD = 12
_IEND = b"\0\0\0\0IEND\xaeB`\x82"

_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
"""IHDR colour type -> channels once decoded, without tRNS."""
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
"""IHDR colour type -> bits per sample that the PNG standard allows."""
_ALPHA_COLOUR_TYPES = (4, 6)

# libpng's notes about harmless oddities are logged by imagecodecs; without a handler Python
# would print them between the progress lines.
logging.getLogger("imagecodecs").addHandler(logging.NullHandler())


def header(file: BinaryIO) -> bytes:
    """The bytes of a PNG file up to its first IDAT chunk, and some more.

    Long texts and profiles may stand before it, so all of the file is read where it comes late.
    """
    start = file.read(HEADER_BYTES)
    if any(name == b"IDAT" for name, _ in _chunks(start)):
        return start
    return start + file.read()


def frame_format(data: bytes, path: str) -> FrameFormat:
    """Shape and dtype that `decode` gives, from the chunks before the pixels.

    Args:
        data: The file's bytes, at least up to its first IDAT chunk.
        path: Named in errors.

    Raises:
        SourceError: Not a PNG file, or a header that the standard does not allow.
    """
    if not data.startswith(_SIGNATURE):
        found = "is empty" if not data else f"starts with {data[:8]!r}"
        raise SourceError(f"{path} {found}; expected a PNG file")
    if len(data) < _FIRST_CHUNK + 4 + _IHDR.size:
        raise SourceError(f"{path} ends inside its PNG header; copy it again or remove it")
    name, width, height, depth, colour = _IHDR.unpack_from(data, _FIRST_CHUNK + 4)
    if name != b"IHDR" or width == 0 or height == 0 or depth not in _DEPTHS.get(colour, ()):
        raise SourceError(
            f"{path} has a PNG header that the standard does not allow "
            f"({width}x{height}, colour type {colour}, {depth} bits)"
        )
    channels = _CHANNELS[colour]
    if colour not in _ALPHA_COLOUR_TYPES and _has_transparency(data):
        channels += 1
    return _shared_format(height, width, channels, "uint16" if depth == 16 else "uint8")


def decode(data: bytes, out: np.ndarray, path: str) -> None:
    """Decode a PNG file into `out`, (H, W, C) of the format that `frame_format` gave.

    Raises:
        SourceError: The file is damaged. Checksums are verified; a missing IEND chunk behind
            complete pixels is not damage.
    """
    data = _whole(data, path)
    try:
        imagecodecs.png_decode(data, out=out)
    # What imagecodecs raises depends on how far libpng came: PngError is a RuntimeError, a
    # garbled message a UnicodeDecodeError, which is a ValueError.
    except (ValueError, RuntimeError, MemoryError) as exc:
        reason = "damaged data" if isinstance(exc, UnicodeDecodeError) else str(exc)
        raise SourceError(f"{path} cannot be decoded ({reason}); repair or remove it") from exc


def _whole(data: bytes, path: str) -> bytes:
    """The file, of which no chunk may be cut short, up to its IEND chunk, or with one added.

    libpng must never meet the end of the data: the callback by which imagecodecs tells it so
    corrupts memory, and the process crashes some time later.
    """
    name = b"IHDR"
    end = _FIRST_CHUNK
    for name, end in _chunks(data):
        if end > len(data):
            break
        if name == b"IEND":
            return data
    if name == b"IDAT" and end == len(data):
        return data + _IEND
    raise SourceError(
        f"{path} is cut short: its {len(data)} bytes end in or behind a "
        f"{name.decode('latin-1')!r} chunk; copy it again or remove it"
    )


def _chunks(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Name of each chunk and the position behind it, which may lie past the end of the data."""
    position = _FIRST_CHUNK
    while position + _CHUNK.size <= len(data):
        length, name = _CHUNK.unpack_from(data, position)
        position += length + _CHUNK_OVERHEAD
        yield name, position


@lru_cache(maxsize=64)
def _shared_format(height: int, width: int, channels: int, dtype: str) -> FrameFormat:
    """One object for all frames alike: making and checking it costs as much as a small read."""
    return FrameFormat(height, width, channels, dtype)


def _has_transparency(data: bytes) -> bool:
    """Whether a tRNS chunk stands before the pixels, where the standard wants it."""
    for name, _ in _chunks(data):
        if name in (b"tRNS", b"IDAT"):
            return name == b"tRNS"
    return False
