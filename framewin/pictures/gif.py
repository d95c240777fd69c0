"""GIF files with exactly the frames they are given, at the speed they are given.

Pillow merges neighbouring frames that are equal, and everything that writes GIF through it with
them. So each frame is encoded as a picture of its own, and the file is put together here.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from PIL import Image

HUNDREDTH = Fraction(1, 100)
LEAST_DELAY = 2
"""Hundredths of a second below which players slow a GIF down."""
_LARGEST_DELAY = 2**16 - 1
_LOOP = b"\x21\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"


class _Picture(NamedTuple):
    """The parts of a GIF of one frame."""

    size: bytes
    palette: bytes
    palette_bits: int
    pixels: bytes


def gif_bytes(frames: Iterable[np.ndarray], seconds: Iterable[Fraction]) -> bytes:
    """A GIF that plays without end, as one piece; see `gif_pieces`."""
    return b"".join(gif_pieces(frames, seconds))


def gif_pieces(frames: Iterable[np.ndarray], seconds: Iterable[Fraction]) -> Iterator[bytes]:
    """A GIF that plays without end, a piece for each frame.

    Delays are whole hundredths of a second. They are rounded so that frames appear as close to
    their true time as they can: 30 frames a second are delays of 3, 3 and 4 hundredths in turn.

    Args:
        frames: uint8, (H, W) or (H, W, 3), all of one shape; at least one.
        seconds: How long each is shown, at least one for each frame; what is below 0.02 s is
            shown for 0.02 s.
    """
    begun = False
    for frame, delay in zip(frames, _hundredths(seconds), strict=False):
        picture = _encoded(frame)
        if not begun:
            yield b"GIF89a" + picture.size + b"\x00\x00\x00" + _LOOP
            begun = True
        yield _frame(picture, delay)
    yield b"\x3b"


def _hundredths(seconds: Iterable[Fraction]) -> Iterator[int]:
    due, shown = Fraction(0), 0
    for duration in seconds:
        due += max(duration / HUNDREDTH, Fraction(LEAST_DELAY))
        delay = min(max(round(due) - shown, LEAST_DELAY), _LARGEST_DELAY)
        shown += delay
        yield delay


def _frame(picture: _Picture, delay: int) -> bytes:
    # Disposal 1: the next frame covers this one, whole.
    control = b"\x21\xf9\x04" + struct.pack("<BHB", 1 << 2, delay, 0) + b"\x00"
    descriptor = b"\x2c\x00\x00\x00\x00" + picture.size
    flags = bytes([0x80 | (picture.palette_bits - 1)])
    return control + descriptor + flags + picture.palette + picture.pixels


def _encoded(frame: np.ndarray) -> _Picture:
    file = io.BytesIO()
    image = Image.fromarray(np.ascontiguousarray(frame))
    # Gray keeps its 256 levels; colours are reduced to the 256 that serve the frame best.
    indexed = image if image.mode == "L" else image.quantize(256)
    indexed.save(file, format="GIF", interlace=False)
    data = file.getvalue()
    flags = data[10]
    bits = (flags & 7) + 1
    palette_end = 13 + 3 * 2**bits
    position = palette_end
    while data[position] == 0x21:
        position = _behind_blocks(data, position + 2)
    # The descriptor of the picture is ten bytes, then the size of codes.
    pixels = data[position + 10 : _behind_blocks(data, position + 11)]
    return _Picture(data[6:10], data[13:palette_end], bits, pixels)


def _behind_blocks(data: bytes, position: int) -> int:
    """Behind a chain of blocks, each with its length before it, that ends with an empty one."""
    while data[position]:
        position += data[position] + 1
    return position + 1
