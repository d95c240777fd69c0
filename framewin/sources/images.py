"""JPEG, BMP, WebP and GIF, decoded by Pillow; WebP and GIF may hold several frames.

Colours are stored as they are coded: no orientation, gamma or colour profile is applied.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from framewin.errors import FrameFormatError, SourceError
from framewin.schema import FrameFormat
from framewin.sources import kind_suffix
from framewin.sources.damage import as_damage, broken, cut_short
from framewin.sources.info import (
    FileInfo,
    ReadOptions,
    check_kind,
    check_pixels,
    orientation_note,
)
from framewin.sources.timing import with_delays

_KINDS = {
    **dict.fromkeys((".jpg", ".jpeg"), ("JPEG", "Jpeg")),
    ".bmp": ("BMP", "Bmp"),
    ".webp": ("WebP", "WebP"),
    ".gif": ("GIF", "Gif"),
}
"""Suffix -> the kind, and how the names of its module and class in Pillow begin."""
_CHANNELS = {"1": 1, "L": 1, "LA": 2, "P": 3, "RGB": 3, "RGBA": 4}
"""Pillow's mode -> channels once decoded."""
_MODES = {"1": "gray, 1 bits", "L": "gray, 8 bits", "LA": "gray and alpha, 8 bits"}
_GIF_HEADER_BYTES, _GIF_BLOCK_BYTES = 13, 10
_GIF_IMAGE, _GIF_EXTENSION, _GIF_TRAILER = 0x2C, 0x21, 0x3B
_GIF_GRAPHIC_CONTROL = 0xF9
_GIF_TO_BACKGROUND = 2
_GIF_TICK, _WEBP_TICK = Fraction(1, 100), Fraction(1, 1000)
_WEBP_FIRST_CHUNK, _WEBP_CANVAS, _WEBP_CANVAS_END = 12, b"VP8X", 30
_JPEG_END = b"\xff\xd9"
_NO_PIXELS = bytes(range(1, 251)) * 16
_CORNER = 4
_OLDEST_BMP_HEADER = 12


def header(file: BinaryIO) -> bytes:
    """All of a file: these are small, and Pillow wants to look where it likes."""
    return file.read()


def inspect(data: bytes, path: str, options: ReadOptions) -> FileInfo:
    """What the file holds, from its header."""
    kind, _ = _KINDS[kind_suffix(path, options.kind)]
    check_kind(data, path, kind)
    if kind == "GIF":
        return _inspect_gif(data, path, options)
    if kind == "WebP":
        _check_webp(data, path, options)
    image = _open(data, path, options)
    check_pixels(image.height, image.width, path, options)
    if image.mode not in _CHANNELS:
        raise SourceError(
            f"{path} has {image.mode} pixels; expected gray, RGB or RGBA, convert it first"
        )
    if image.mode == "L" and kind == "BMP" and _bmp_bits(data) < 8:
        raise SourceError(
            f"{path} has {_bmp_bits(data)} bits and a palette of grays, which Pillow misreads; "
            "save it with 8"
        )
    channels = _CHANNELS[image.mode] + (image.mode == "P" and "transparency" in image.info)
    if image.mode == "P" and options.palette == "index":
        channels = 1
    frames = getattr(image, "n_frames", 1)
    info = FileInfo(
        FrameFormat(image.height, image.width, channels, "uint8"),
        kind,
        _MODES.get(image.mode, f"{image.mode.replace('P', 'palette', 1)}, 8 bits"),
        _notes(image, data),
        is_clip=frames > 1,
        frames=frames,
    )
    return with_delays(info, _webp_delays(data), _WEBP_TICK, path) if frames > 1 else info


def decode(data: bytes, out: np.ndarray, path: str, options: ReadOptions) -> None:
    """Decode a file of a single frame into `out`, (H, W, C)."""
    image = _open(data, path, options)
    if getattr(image, "n_frames", 1) > 1:
        raise FrameFormatError(
            f"{path} holds {image.n_frames} frames in a place for single frames; leave it out by "
            "exclude="
        )
    with as_damage(f"{path} cannot be decoded"):
        image.load()
    out[:] = _pixels(image, out.shape[-1], path, options).reshape(out.shape)
    if image.format == "JPEG" and (out[-_CORNER:, -_CORNER:] == out[-1, -1]).all():
        _check_end(data, out, path, options)


def _check_end(data: bytes, pixels: np.ndarray, path: str, options: ReadOptions) -> None:
    """Refuse a JPEG file whose pixels end early, which libjpeg fills with one colour and no error.

    It would take anything before the end for pixels, if it missed some.
    """
    end = data.rfind(_JPEG_END)
    longer = _open(b"".join([data[:end], _NO_PIXELS, data[end:]]), path, options)
    with as_damage(f"{path} cannot be decoded"):
        again = np.asarray(longer).reshape(pixels.shape)
    if not np.array_equal(again, pixels):
        raise cut_short(f"{path} ends before its pixels do")


def inspect_clip(path: str, options: ReadOptions) -> FileInfo:
    """What `read_clip` gives, from headers."""
    return inspect(Path(path).read_bytes(), path, options)


def read_clip(path: str, options: ReadOptions) -> Iterator[np.ndarray]:
    """Each frame as a viewer shows it, (H, W, C); none after a damaged one, which they may need."""
    data = Path(path).read_bytes()
    info = inspect(data, path, options)
    form = info.frame_format
    if not info.is_clip:
        out = np.empty(form.shape, form.dtype)
        decode(data, out, path, options)
        yield out
        return
    image = _open(data, path, options)
    for index in range(info.frames):
        label = f"{path} (frame {index})"
        with as_damage(f"{label} cannot be decoded"):
            image.seek(index)
            frame = np.asarray(image.convert("RGBA"))
        if frame.shape[:2] != form.shape[:2]:
            raise broken(f"{label} has the shape {frame.shape}")
        if form.channels == 3 and frame[..., 3].min() < 255:
            raise broken(f"{label} is transparent against its header")
        yield frame[..., : form.channels]


def _open(data: bytes, path: str, options: ReadOptions) -> Any:
    """A file as Pillow's image, of which only the header has been read.

    The class of its kind is called directly: `Image.open` would compare the size with a limit
    that the whole process shares.
    """
    kind, name = _KINDS[kind_suffix(path, options.kind)]
    image_class = getattr(import_module(f"PIL.{name}ImagePlugin"), f"{name}ImageFile")
    with as_damage(f"{path} has a damaged {kind} header"):
        return image_class(io.BytesIO(data))


def _pixels(image: Any, channels: int, path: str, options: ReadOptions) -> np.ndarray:
    """Of a loaded image."""
    if image.mode == "P" and image.format == "BMP":
        colours = len(image.palette.palette) // len(image.palette.mode)
        largest = int(np.asarray(image).max())
        if largest >= colours:
            raise broken(
                f"{path} has the palette index {largest} in a palette of {colours} colours"
            )
    # Pillow calls a GIF gray where its palette is.
    if options.palette != "index" and (image.mode == "P" or image.format == "GIF"):
        image = image.convert("RGBA" if channels == 4 else "RGB")
    pixels = np.asarray(image)
    if image.mode == "1":
        pixels = pixels * np.uint8(1 if options.palette == "index" else 255)
    return pixels


def _notes(image: Any, data: bytes) -> tuple[str, ...]:
    notes = ["ICC profile"] if image.info.get("icc_profile") else []
    if "mp" in image.info:
        notes.append("further pictures behind the first")
    if image.format == "BMP" and image.mode == "RGB" and _bmp_bits(data) == 32:
        start = int.from_bytes(data[10:14], "little")
        notes += ["a fourth byte in pixels"] * bool(data[start + 3 :: 4].strip(b"\0"))
    return (*notes, *orientation_note(image.info.get("exif") or b""))


def _bmp_bits(data: bytes) -> int:
    """Bits of a pixel; the oldest header has them elsewhere."""
    at = 24 if data[14] == _OLDEST_BMP_HEADER else 28
    return int.from_bytes(data[at : at + 2], "little")


def _check_webp(data: bytes, path: str, options: ReadOptions) -> None:
    if int.from_bytes(data[4:8], "little") + 8 > len(data):
        raise cut_short(f"{path} is cut short at {len(data)} bytes")
    if data[12:16] == _WEBP_CANVAS and len(data) >= _WEBP_CANVAS_END:
        # Pillow takes memory for the canvas when it opens the file.
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        check_pixels(height, width, path, options)


def _webp_delays(data: bytes) -> list[int]:
    """How long each frame of an animation is shown."""
    delays = []
    position = _WEBP_FIRST_CHUNK
    while position + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, position)
        if name == b"ANMF":
            delays.append(int.from_bytes(data[position + 20 : position + 23], "little"))
        position += 8 + size + size % 2
    return delays


def _inspect_gif(data: bytes, path: str, options: ReadOptions) -> FileInfo:
    """Of the blocks alone, for Pillow paints frames to count them."""
    if len(data) < _GIF_HEADER_BYTES:
        raise cut_short(f"{path} ends inside its GIF header")
    width, height = struct.unpack_from("<HH", data, 6)
    check_pixels(height, width, path, options)
    delays, transparent, covered = _scan_gif(data, path, width, height)
    frames = len(delays)
    if frames == 0:
        raise SourceError(f"{path} holds no frame; remove it")
    if options.palette == "index" and (frames > 1 or not covered):
        raise SourceError(
            f"{path} is a GIF whose {frames} frames are laid over a canvas as colours; "
            "palette='index' takes GIF files of a single frame that covers it"
        )
    channels = 1 if options.palette == "index" else 4 if transparent or not covered else 3
    form = FrameFormat(height, width, channels, "uint8")
    info = FileInfo(form, "GIF", "palette, 8 bits", is_clip=frames > 1, frames=frames)
    return with_delays(info, delays, _GIF_TICK, path)


def _scan_gif(data: bytes, path: str, width: int, height: int) -> tuple[list[int], bool, bool]:
    """Delay of each frame, whether transparency shows, whether the first covers the canvas."""
    position = _GIF_HEADER_BYTES + _colour_table_bytes(data[10])
    delays: list[int] = []
    delay, transparent, covered = 0, False, True
    while position < len(data) and data[position] != _GIF_TRAILER:
        block = data[position : position + _GIF_BLOCK_BYTES]
        if block[0] == _GIF_EXTENSION and len(block) > 4:
            # Later frames show through to the first, unless one is cleared to the background.
            clears = (block[3] >> 2) & 7 == _GIF_TO_BACKGROUND
            if block[1] == _GIF_GRAPHIC_CONTROL:
                transparent |= clears or (not delays and bool(block[3] & 1))
                delay = int.from_bytes(block[4:6], "little")
            position += 2
        elif block[0] == _GIF_IMAGE and len(block) == _GIF_BLOCK_BYTES:
            left, top, columns, rows = struct.unpack_from("<HHHH", block, 1)
            if left + columns > width or top + rows > height or min(columns, rows) < 1:
                place = f"{rows}x{columns} at {top},{left} of {height}x{width}"
                raise broken(f"{path} (frame {len(delays)}) covers {place}")
            if not delays:
                covered = (columns, rows) == (width, height)
            delays.append(delay)
            delay = 0
            position += _GIF_BLOCK_BYTES + _colour_table_bytes(block[9]) + 1
        else:
            raise broken(f"{path} is damaged at byte {position}")
        while position < len(data) and data[position]:
            position += data[position] + 1
        position += 1
    if position > len(data):
        raise cut_short(f"{path} is cut short at {len(data)} bytes")
    return delays, transparent, covered


def _colour_table_bytes(flags: int) -> int:
    return 3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0
