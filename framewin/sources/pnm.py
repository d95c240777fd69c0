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
from framewin.sources.info import FileInfo, ReadOptions, check_kind, check_pixels

_HEADER_BYTES = 2**12
_GZIP_MAGIC = b"\x1f\x8b"
_GAP = rb"(?:\s|#[^\r\n]*[\r\n])"
_HEADER = re.compile(rb"P([1-6])" + (_GAP + rb"+([0-9]{1,9})") * 2)
_LARGEST = re.compile(_GAP + rb"+([0-9]{1,5})")
_BITMAPS, _TEXTS, _COLOURS = (1, 4), (1, 2, 3), (3, 6)
_TEXT_BYTES = 6
"""Of a sample and the blank before it, as far as a file of text may be believed."""


class _Head(NamedTuple):
    """What stands before the pixels."""

    kind: int
    width: int
    height: int
    largest: int
    end: int
    """Where the pixels begin."""

    @property
    def channels(self) -> int:
        """Samples of a pixel."""
        return 3 if self.kind in _COLOURS else 1

    @property
    def dtype(self) -> str:
        """Of a sample in the file."""
        return "u1" if self.largest < 256 else ">u2"


def header(file: BinaryIO) -> bytes:
    """The beginning of a file."""
    return file.read(_HEADER_BYTES)


def inspect(data: bytes, path: str, options: ReadOptions) -> FileInfo:
    """What `decode` gives, from the header.

    Raises:
        SourceError: Not a PNM file, or a header that is damaged.
    """
    head = _head(_beginning(data, path), path)
    check_pixels(head.height, head.width, path, options)
    usual = (1,) if head.kind in _BITMAPS else (255, 65535)
    return FileInfo(
        FrameFormat(head.height, head.width, head.channels, np.dtype(head.dtype).name),
        "PNM",
        f"{'RGB' if head.channels == 3 else 'gray'}, {head.largest.bit_length()} bits",
        () if head.largest in usual else (f"largest value {head.largest}",),
    )


def decode(data: bytes, out: np.ndarray, path: str, options: ReadOptions) -> None:
    """Decode a file into `out`, (H, W, C).

    Raises:
        SourceError: The file is damaged, or holds several pictures.
    """
    head = _head(_beginning(data, path), path)
    row = -(-head.width // 8) if head.kind == 4 else head.width * head.channels
    size = head.height * row * np.dtype(head.dtype).itemsize
    text = head.kind in _TEXTS
    limit = head.end + (head.height * row * _TEXT_BYTES * 2 if text else size + _HEADER_BYTES)
    data = _unpacked(data, limit, path)
    pixels = _text(data[head.end :], head, path) if text else _binary(data, head, row, size, path)
    if head.kind not in _BITMAPS and pixels.max() > head.largest:
        raise SourceError(
            f"{path} has the value {pixels.max()} above the largest of its header, "
            f"{head.largest}; repair or remove it"
        )
    out[:] = pixels.reshape(out.shape)


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


def _head(data: bytes, path: str) -> _Head:
    check_kind(data, path, "PNM")
    found = _HEADER.match(data)
    kind, width, height = (int(part) for part in found.groups()) if found else (0, 0, 0)
    largest = _LARGEST.match(data, found.end()) if found and kind not in _BITMAPS else None
    last = largest or found
    value = int(largest[1]) if largest else 1
    blank = last is not None and data[last.end() : last.end() + 1].isspace()
    if last is None or (largest is None and kind not in _BITMAPS) or not blank or not value < 2**16:
        raise SourceError(f"{path} has a damaged PNM header; repair or remove it")
    if value == 0:
        raise SourceError(f"{path} has 0 for the largest value; repair or remove it")
    return _Head(kind, width, height, value, last.end() + 1)


def _binary(data: bytes, head: _Head, row: int, size: int, path: str) -> np.ndarray:
    found = len(data) - head.end
    if found < size:
        raise SourceError(
            f"{path} is cut short: its pixels need {size} bytes and have {found}; copy it again or "
            "remove it"
        )
    if data[head.end + size :].strip():
        raise SourceError(
            f"{path} goes on behind its pixels, as files of several pictures do; save each as a "
            "file of its own"
        )
    samples = np.frombuffer(data, head.dtype, size // np.dtype(head.dtype).itemsize, head.end)
    if head.kind != 4:
        return samples
    bits = np.unpackbits(samples.reshape(head.height, row), axis=1)[:, : head.width]
    return (1 - bits) * np.uint8(255)


def _text(data: bytes, head: _Head, path: str) -> np.ndarray:
    """Samples that are written as numbers; those of one bit need no blanks between them."""
    data = re.sub(rb"#[^\r\n]*", b"", data)
    words = list(b"".join(data.split())) if head.kind == 1 else data.split()
    try:
        values = np.array(words, np.int64) - (ord("0") if head.kind == 1 else 0)
    except (ValueError, OverflowError):
        values = np.array([-1])
    count = head.width * head.height * head.channels
    if len(values) != count or values.min() < 0 or (head.kind == 1 and values.max() > 1):
        raise SourceError(
            f"{path} has {len(words)} values where {count} numbers are expected; copy it again or "
            "remove it"
        )
    return (1 - values) * 255 if head.kind == 1 else values


def _beginning(data: bytes, path: str) -> bytes:
    """The beginning of a file, once it is unpacked."""
    if not data.startswith(_GZIP_MAGIC):
        return data[:_HEADER_BYTES]
    try:
        return zlib.decompressobj(wbits=31).decompress(data[:_HEADER_BYTES], _HEADER_BYTES)
    except zlib.error as exc:
        raise _damaged(path, exc) from exc


def _unpacked(data: bytes, limit: int, path: str) -> bytes:
    """The bytes of a file, of a gzip file at most `limit` of those in it."""
    if not data.startswith(_GZIP_MAGIC):
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            found = file.read(limit)
            if file.read(1):
                raise SourceError(
                    f"{path} holds more bytes than its header says; repair or remove it"
                )
            return found
    except (OSError, EOFError, zlib.error) as exc:
        raise _damaged(path, exc) from exc


def _damaged(path: str, exc: Exception) -> SourceError:
    return SourceError(f"{path} is a damaged gzip file ({exc}); copy it again or remove it")
