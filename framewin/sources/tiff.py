"""TIFF, decoded exactly by tifffile: files of one page are frames, stacks of pages are clips.

Samples of 8 and 16 bits and float32 are kept, bilevel ones are scaled to 0..255, palettes become
colours (or stay indices), and where 0 is white the scale is turned so that 0 is black.
"""

from __future__ import annotations

import io
import logging
import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import tifffile

from framewin.errors import FrameFormatError, SourceError
from framewin.schema import FRAME_DTYPES, FrameFormat
from framewin.sources.info import FileInfo, ReadOptions, check_kind, check_pixels

_ORIENTATION_TAG = 274
_PROFILE_TAG = 34675
_WHITE_IS_0, _BLACK_IS_0, _RGB, _PALETTE, _YCBCR = 0, 1, 2, 3, 6
_PHOTOMETRIC = {_WHITE_IS_0: "gray, 0 is white", _BLACK_IS_0: "gray", _RGB: "RGB"}
_JPEG_COMPRESSIONS = (6, 7)
_MAX_PAGES = 10**6

# tifffile logs what it finds odd; framewin says itself what it refuses.
logging.getLogger("tifffile").addHandler(logging.NullHandler())
logging.getLogger("tifffile").propagate = False


def header(file: BinaryIO) -> bytes:
    """All of a file: its directories may stand anywhere."""
    return file.read()


def inspect(data: bytes, path: str, options: ReadOptions) -> FileInfo:
    """What the file holds, from its directories.

    Raises:
        SourceError: Not a TIFF file, cut short, too large, or with samples that are not stored.
    """
    with _open(data, path) as tiff:
        return _stack_info(_pages(tiff, len(data), path), path, options)


def _stack_info(pages: list[Any], path: str, options: ReadOptions) -> FileInfo:
    infos = [_page_info(page, path, options) for page in pages]
    if any(info.frame_format != infos[0].frame_format for info in infos):
        index, other = next(
            (i, info) for i, info in enumerate(infos) if info.frame_format != infos[0].frame_format
        )
        raise SourceError(
            f"{path} has page {index} of {other.frame_format}, page 0 is {infos[0].frame_format}; "
            "save them as files of their own"
        )
    first = infos[0]
    return FileInfo(
        first.frame_format,
        first.kind,
        first.mode,
        first.notes,
        is_clip=len(pages) > 1,
        frames=len(pages),
    )


def decode(data: bytes, out: np.ndarray, path: str, options: ReadOptions) -> None:
    """Decode a file of a single page into `out`, (H, W, C).

    Raises:
        SourceError: The file is damaged, or holds several pages.
    """
    with _open(data, path) as tiff:
        pages = _pages(tiff, len(data), path)
        if len(pages) > 1:
            raise FrameFormatError(
                f"{path} holds {len(pages)} pages in a place for single frames; leave it out by "
                "--exclude"
            )
        out[:] = _pixels(pages[0], path, options)


def inspect_clip(path: str, options: ReadOptions) -> FileInfo:
    """What `read_clip` gives, from the file's directories."""
    with _opened(path) as (tiff, size):
        return _stack_info(_pages(tiff, size, path), path, options)


def read_clip(path: str, options: ReadOptions) -> Iterator[np.ndarray | SourceError]:
    """The pages of a stack, (H, W, C) each; an error in the place of a damaged one."""
    with _opened(path) as (tiff, size):
        for index, page in enumerate(_pages(tiff, size, path)):
            try:
                yield _pixels(page, f"{path} (page {index})", options)
            except SourceError as exc:
                yield exc


@contextmanager
def _opened(path: str) -> Iterator[tuple[Any, int]]:
    """A file that may be larger than memory, and its size."""
    size = Path(path).stat().st_size
    with open(path, "rb") as file:
        check_kind(file.read(16), path, "TIFF")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _check_directories(data, path)
        file.seek(0)
        with _guarded(path):
            tiff = tifffile.TiffFile(file)
        yield tiff, size


def _open(data: bytes, path: str) -> Any:
    check_kind(data, path, "TIFF")
    _check_directories(data, path)
    with _guarded(path):
        return tifffile.TiffFile(io.BytesIO(data))


@contextmanager
def _guarded(path: str) -> Iterator[None]:
    """Make SourceError of what tifffile raises on damaged files, which is nearly anything."""
    try:
        yield
    except SourceError:
        raise
    except Exception as exc:
        reason = str(exc).splitlines()[0] if str(exc) else type(exc).__name__
        raise SourceError(f"{path} is a damaged TIFF file ({reason}); repair or remove it") from exc


def _check_directories(data: bytes | mmap.mmap, path: str) -> None:
    """Follow the chain of directories, which tifffile would end in silence where it is cut."""
    order = "<" if data[:2] == b"II" else ">"
    big = data[2:4] in (b"+\0", b"\0+")
    place, link, count, entry = (8, "Q", "Q", 20) if big else (4, "I", "H", 12)
    seen: set[int] = set()
    try:
        [directory] = struct.unpack_from(f"{order}{link}", data, place)
        while directory:
            if directory in seen or len(seen) > _MAX_PAGES:
                raise SourceError(f"{path} has a circle of directories; repair or remove it")
            seen.add(directory)
            [entries] = struct.unpack_from(f"{order}{count}", data, directory)
            place = directory + struct.calcsize(count) + entries * entry
            [directory] = struct.unpack_from(f"{order}{link}", data, place)
    except struct.error:
        raise SourceError(
            f"{path} is cut short: its {len(data)} bytes end before its directories do; copy it "
            "again or remove it"
        ) from None
    if not seen:
        raise SourceError(f"{path} holds no image; remove it")


def _pages(tiff: Any, size: int, path: str) -> list[Any]:
    """The pages at full size, whose pixels must all lie within the file."""
    with _guarded(path):
        pages = [page for page in tiff.pages if not page.is_reduced]
        images = (tiff.imagej_metadata or {}).get("images", 1) if tiff.is_imagej else 1
        for index, page in enumerate(pages):
            page = page.aspage()
            pages[index] = page
            pieces = list(zip(page.dataoffsets, page.databytecounts, strict=True))
            whole = pieces and all(at > 0 and n > 0 and at + n <= size for at, n in pieces)
            if not whole or len(pieces) < int(np.prod(page.chunked)):
                raise SourceError(
                    f"{path} (page {index}) has pixels that are missing or lie behind its end; "
                    "copy it again or remove it"
                )
    if not pages:
        raise SourceError(f"{path} holds no image at full size; remove it")
    if tiff.is_imagej or tiff.is_ome or tiff.is_shaped:
        _check_axes(tiff, path)
    if images > len(pages):
        raise SourceError(
            f"{path} keeps {images} ImageJ images behind {len(pages)} directories; save it as a "
            "plain stack of pages"
        )
    return pages


def _check_axes(tiff: Any, path: str) -> None:
    """Refuse pages of several channels, or of two axes, of which either could be time."""
    with _guarded(path):
        series = tiff.series[0]
        axes = [(axis, size) for axis, size in zip(series.axes, series.shape, strict=True)]
    of_pages = [(axis, size) for axis, size in axes if axis not in "YXS" and size > 1]
    if len(of_pages) > 1 or any(axis == "C" for axis, _ in of_pages):
        shown = ", ".join(f"{axis} {size}" for axis, size in axes)
        raise SourceError(
            f"{path} has the axes {shown}; expected pages along one axis of time, save each "
            "channel or plane as a file of its own"
        )


def _page_info(page: Any, path: str, options: ReadOptions) -> FileInfo:
    with _guarded(path):
        return _described(page, path, options)


def _described(page: Any, path: str, options: ReadOptions) -> FileInfo:
    height, width = int(page.imagelength), int(page.imagewidth)
    check_pixels(height, width, path, options)
    samples, bits = int(page.samplesperpixel), page.bitspersample
    dtype = "uint8" if page.dtype == np.bool_ else str(page.dtype)
    photometric = int(page.photometric)
    stored = photometric in _PHOTOMETRIC or photometric == _PALETTE or _is_jpeg(page)
    if dtype not in FRAME_DTYPES or not stored or samples > 4 or page.imagedepth != 1:
        raise SourceError(
            f"{path} has {samples} samples of {page.dtype}, "
            f"{getattr(page.photometric, 'name', page.photometric)}, for a pixel; "
            "expected gray, RGB or palette of uint8, uint16 or float32, convert it first"
        )
    if bits not in (1, np.dtype(dtype).itemsize * 8):
        raise SourceError(
            f"{path} has samples of {bits} bits; expected 1, 8, 16 or 32, convert it first"
        )
    if int(np.prod(page.chunks, dtype=object)) > 4 * options.max_pixels:
        raise SourceError(f"{path} claims tiles of {page.chunks} samples; repair or remove it")
    if photometric == _PALETTE:
        samples = 1 if options.palette == "index" else 3
        dtype = dtype if options.palette == "index" else "uint8"
    name = "palette" if photometric == _PALETTE else _PHOTOMETRIC.get(photometric, "RGB")
    extra = " and alpha" if samples in (2, 4) else ""
    return FileInfo(
        FrameFormat(height, width, samples, dtype),
        "TIFF",
        f"{name}{extra}, {bits} bits",
        _notes(page),
    )


def _notes(page: Any) -> tuple[str, ...]:
    orientation = page.tags.valueof(_ORIENTATION_TAG, 1)
    notes = (f"orientation {int(orientation)}",) if orientation != 1 else ()
    return (*notes, "ICC profile") if _PROFILE_TAG in page.tags else notes


def _is_jpeg(page: Any) -> bool:
    """Whether the decoder gives RGB for what is stored as luma and chroma."""
    return int(page.photometric) == _YCBCR and int(page.compression) in _JPEG_COMPRESSIONS


def _pixels(page: Any, path: str, options: ReadOptions) -> np.ndarray:
    info = _page_info(page, path, options)
    with _guarded(path):
        return _decoded(page, info, path, options)


def _decoded(page: Any, info: FileInfo, path: str, options: ReadOptions) -> np.ndarray:
    pixels = np.asarray(page.asarray())
    if int(page.planarconfig) == 2 and pixels.ndim == 3:
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.dtype == np.bool_:
        pixels = pixels * np.uint8(255)
    if int(page.photometric) == _WHITE_IS_0 and pixels.dtype != np.float32:
        pixels = np.iinfo(pixels.dtype).max - pixels
    if int(page.photometric) == _PALETTE and options.palette != "index":
        colours = (np.asarray(page.colormap) >> 8).astype(np.uint8).T
        if pixels.max() >= len(colours):
            raise SourceError(f"{path} has an index outside of its palette; repair or remove it")
        pixels = colours[pixels]
    if pixels.size != int(np.prod(info.frame_format.shape)):
        raise SourceError(
            f"{path} decodes to {pixels.shape}, its header says {info.frame_format}; remove it"
        )
    return pixels.reshape(info.frame_format.shape)
