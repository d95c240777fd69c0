"""PBM, PGM and PPM, plain or packed by gzip: samples are kept as they are counted.

Where the largest value is not 255 or 65535 nothing is scaled; one bit becomes 0 and 255, and as
1 is black there, the scale is turned.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from framewin.errors import SourceError
from framewin.schema import FrameFormat
from framewin.sources.damage import broken, cut_short
from framewin.sources.info import FileInfo, ReadOptions, check_kind, check_pixels

_HEADER_BYTES = 2**12
_GZIP_MAGIC = b"\x1f\x8b"
_GAP = rb"(?:\s|#[^\r\n]*[\r\n])"
_NUMBER = _GAP + rb"+([0-9]{1,9})"
_HEADER = re.compile(rb"P(?:([14])%b%b|([2356])%b%b%b)\s" % ((_NUMBER,) * 5))
_TEXTS, _COLOURS = (1, 2, 3), (3, 6)
_TEXT_BYTES = 12
"""Of a sample, blanks and comments, as far as a packed file of text may be believed."""


class _Head(NamedTuple):
    """What comes before the pixels."""

    kind: int
    form: FrameFormat
    largest: int
    end: int
    """Where the pixels begin."""

    @property
    def is_bitmap(self) -> bool:
        return self.kind in (1, 4)


def header(file: BinaryIO) -> bytes:
    """The beginning of a file."""
    return file.read(_HEADER_BYTES)


def inspect(data: bytes, path: str, options: ReadOptions) -> FileInfo:
    """What `decode` gives, from the header."""
    head = _head(data, path, options)
    is_usual = head.is_bitmap or head.largest in (255, 65535)
    return FileInfo(
        head.form,
        "PNM",
        f"{'RGB' if head.form.channels == 3 else 'gray'}, {head.largest.bit_length()} bits",
        () if is_usual else (f"largest value {head.largest}",),
    )


def decode(data: bytes, out: np.ndarray, path: str, options: ReadOptions) -> None:
    """Decode a file of one picture into `out`, (H, W, C)."""
    head = _head(data, path, options)
    height, row, channels = head.form.shape
    row = -(-row // 8) if head.kind == 4 else row * channels
    dtype = np.dtype(head.form.dtype).newbyteorder(">")
    size = height * row * (_TEXT_BYTES if head.kind in _TEXTS else dtype.itemsize)
    data = _unpacked(data, path, head.end + size + _HEADER_BYTES)
    if head.kind in _TEXTS:
        pixels = _text(data[head.end :], head, path)
    else:
        _check_size(len(data) - head.end, size, data[head.end + size :], path)
        pixels = np.frombuffer(data, dtype, size // dtype.itemsize, head.end)
    if head.kind == 4:
        pixels = np.unpackbits(pixels.reshape(height, row), axis=1)[:, : head.form.width]
    if pixels.max() > head.largest and not head.is_bitmap:
        beyond = f"the value {pixels.max()} above the largest of its header, {head.largest}"
        raise broken(f"{path} has {beyond}")
    out[:] = ((1 - pixels) * np.uint8(255) if head.is_bitmap else pixels).reshape(out.shape)


def inspect_clip(path: str, options: ReadOptions) -> FileInfo:
    """The single frame of a file that is a source by itself."""
    with open(path, "rb") as file:
        return inspect(header(file), path, options)


def read_clip(path: str, options: ReadOptions) -> Iterator[np.ndarray]:
    """That frame, (H, W, C)."""
    data = Path(path).read_bytes()
    form = inspect(data, path, options).frame_format
    out = np.empty(form.shape, form.dtype)
    decode(data, out, path, options)
    yield out


def _head(data: bytes, path: str, options: ReadOptions) -> _Head:
    data = _unpacked(data, path)
    check_kind(data, path, "PNM")
    found = _HEADER.match(data[:_HEADER_BYTES])
    kind, width, height, *rest = (
        (int(part) for part in found.groups() if part) if found else [0] * 4
    )
    largest = rest[0] if rest else 1
    if found is None or largest >= 2**16:
        raise broken(f"{path} has a damaged PNM header")
    if largest == 0:
        raise broken(f"{path} has 0 for the largest value")
    check_pixels(height, width, path, options)
    dtype = "uint8" if largest < 256 else "uint16"
    form = FrameFormat(height, width, 3 if kind in _COLOURS else 1, dtype)
    return _Head(kind, form, largest, found.end())


def _check_size(found: int, size: int, rest: bytes, path: str) -> None:
    if found < size:
        raise cut_short(f"{path} is cut short: its pixels need {size} bytes and have {found}")
    if rest.strip():
        raise SourceError(
            f"{path} goes on behind its pixels, as files of several pictures do; save each as a "
            "file of its own"
        )


def _text(data: bytes, head: _Head, path: str) -> np.ndarray:
    """Samples that are written as numbers; those of one bit need no blanks between them."""
    words = re.sub(rb"#[^\r\n]*", b"", data).split()
    digits = [*b"".join(words)] if head.kind == 1 else words
    try:
        values = np.array(digits, np.int64)
    except (ValueError, OverflowError):
        values = np.array([-1])
    if head.kind == 1:
        values -= ord("0")
    count = int(np.prod(head.form.shape))
    if len(values) != count or values.min() < 0 or (head.kind == 1 and values.max() > 1):
        raise cut_short(f"{path} has {len(digits)} values where {count} numbers are expected")
    return values


def _unpacked(data: bytes, path: str, limit: int | None = None) -> bytes:
    """The bytes of a file; of a gzip file the beginning, or all of at most `limit`."""
    if not data.startswith(_GZIP_MAGIC):
        return data
    try:
        if limit is None:
            return zlib.decompressobj(wbits=31).decompress(data, _HEADER_BYTES)
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            found = file.read(limit)
            if file.read(1):
                raise broken(f"{path} holds more bytes than its header says")
            return found
    except (OSError, EOFError, zlib.error) as exc:
        raise cut_short(f"{path} is a damaged gzip file ({exc})") from exc
