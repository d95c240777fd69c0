"""PNG files: single frames, and animations as clips.

Gamma, colour profiles and orientation are not applied.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np

from framewin.errors import SourceError
from framewin.schema import FrameFormat
from framewin.sources import apng
from framewin.sources.info import FileInfo, ReadOptions, check_pixels, orientation_note
from framewin.sources.png_pixels import (
    CHANNELS,
    PALETTE,
    PIECE_BYTES,
    Head,
    chunks,
    decode_parts,
    read_head,
    read_parts,
)

KIND = "PNG"
_HEADER_BYTES = 2**12
_COLOUR_NAMES = {0: "gray", 2: "RGB", PALETTE: "palette", 4: "gray and alpha", 6: "RGBA"}
_ALPHA_COLOUR_TYPES = (4, 6)
_NOTED_CHUNKS = {b"gAMA": "gamma", b"iCCP": "ICC profile", b"cICP": "colour code points"}
_RAW_EXIF = b"Raw profile type exif\0"


class _Kept(threading.local):
    """What a thread keeps from one frame for the next, which is mostly of the same kind."""

    last: tuple[bytes, ReadOptions | None, FileInfo | None, Head | None] = b"", None, None, None
    """The bytes of a file up to its pixels, and what `inspect` said of it."""


_kept = _Kept()


def header(file: BinaryIO) -> bytes:
    """The bytes of a PNG file up to its first IDAT chunk, and some more.

    Long texts and profiles may come before it, so all of the file is read where it is late.
    """
    start = file.read(_HEADER_BYTES)
    if any(name == b"IDAT" for name, _, _ in chunks(start)):
        return start
    return start + file.read()


def inspect(data: bytes, path: str, options: ReadOptions | None = None) -> FileInfo:
    """What `decode` gives, from the chunks up to the first of pixels."""
    start, last_options, info, _ = _kept.last
    if info is not None and options is last_options and _begins(data, start):
        return info
    options = options or ReadOptions()
    head = read_head(data, path)
    check_pixels(head.height, head.width, path, options)
    found, end = _before_pixels(data)
    transparent = b"tRNS" in found
    channels = CHANNELS[head.colour] + (transparent and head.colour not in _ALPHA_COLOUR_TYPES)
    if head.colour == PALETTE and options.palette == "index":
        channels = 1
    # An animation of one frame may still have another picture before it.
    animated = b"acTL" in found and (found[b"acTL"][:4] != b"\0\0\0\1" or b"fcTL" not in found)
    info = _shared_info(head, channels, transparent, _notes(found), animated)
    if end:
        _kept.last = data[:end], options, info, head
    return info


def _begins(data: bytes, start: bytes) -> bool:
    """Whether a file has these bytes before the chunk of its pixels."""
    return data.startswith(start) and data.startswith(b"IDAT", len(start) + 4)


def decode(data: bytes, out: np.ndarray, path: str, options: ReadOptions | None = None) -> None:
    """Decode a file into `out`, (H, W, C) of the format that `inspect` gave.

    Checksums are verified; a missing IEND chunk after complete pixels is not damage.
    """
    start, _, _, head = _kept.last
    if head is None or not _begins(data, start):
        head = read_head(data, path)
    decode_parts(head, read_parts(data, path), out, path)


def check(data: bytes, path: str) -> None:
    """Find damage without decoding: chunks that are cut short, or whose checksum is wrong.

    Raises:
        SourceError: See `decode`.
    """
    read_parts(data, path)


def inspect_clip(path: str, options: ReadOptions) -> FileInfo:
    """What `read_clip` gives; the whole structure of an animation is checked."""
    data = Path(path).read_bytes()
    info = inspect(data, path, options)
    return apng.inspect(data, info, path, options) if apng.is_animated(data) else info


def read_clip(path: str, options: ReadOptions) -> Iterator[np.ndarray | SourceError]:
    """The frames of an animation, each as a viewer would show it; or the one of another file."""
    data = Path(path).read_bytes()
    info = inspect(data, path, options)
    if apng.is_animated(data):
        yield from apng.read(data, info, path, options)
        return
    out = np.empty(info.frame_format.shape, info.frame_format.dtype)
    decode(data, out, path)
    yield out


def _before_pixels(data: bytes) -> tuple[dict[bytes, bytes], int]:
    """Content of each kind of chunk before the pixels, the first where there are several.

    Returns also the position of the chunk of pixels; 0 without one.
    """
    found: dict[bytes, bytes] = {}
    for name, start, end in chunks(data):
        if name == b"IDAT":
            return found, start - 8
        content = data[start : end - 4]
        if name in (b"tEXt", b"zTXt") and content.startswith(_RAW_EXIF):
            name, content = b"eXIf", _raw_profile(name, content[len(_RAW_EXIF) :])
        found.setdefault(name, content)
    return found, 0


def _notes(found: dict[bytes, bytes]) -> tuple[str, ...]:
    notes = tuple(note for name, note in _NOTED_CHUNKS.items() if name in found)
    return (*notes, *orientation_note(found.get(b"eXIf", b"")))


def _raw_profile(name: bytes, text: bytes) -> bytes:
    """EXIF data that ImageMagick wrote as a text of hexadecimal digits; b"" where it is not."""
    try:
        if name == b"zTXt":
            text = zlib.decompressobj().decompress(text[1:], PIECE_BYTES)
        return bytes.fromhex(text.split(b"\n", 3)[3].decode("ascii"))
    except (zlib.error, ValueError, IndexError):
        return b""


@lru_cache(maxsize=64)
def _shared_info(
    head: Head, channels: int, transparent: bool, notes: tuple[str, ...], is_clip: bool
) -> FileInfo:
    """One object for all frames alike: making and checking it costs as much as a small read."""
    form = FrameFormat(head.height, head.width, channels, "uint16" if head.depth == 16 else "uint8")
    beside = " with transparency" if head.colour == PALETTE else " and a transparent colour"
    mode = f"{_COLOUR_NAMES[head.colour]}{beside * transparent}, {head.depth} bits"
    return FileInfo(form, KIND, mode, notes, is_clip=is_clip)
