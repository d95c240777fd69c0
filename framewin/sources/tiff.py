"""TIFF, decoded exactly by tifffile: files of one page are frames, stacks of pages are clips.

Samples of 8 to 64 bits are kept, bilevel ones are scaled to 0..255, palettes become colours (or
stay indices), and where 0 is white the scale of unsigned samples is turned so that 0 is black.
"""

from __future__ import annotations

import io
import logging
import mmap
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import tifffile

from framewin.errors import FrameFormatError, SourceError
from framewin.schema import FRAME_DTYPES, FrameFormat, fits
from framewin.sources.info import FileInfo, ReadOptions, check_kind, check_pixels

_ORIENTATION_TAG, _DATE_TAG = 274, 306
_METADATA_TAG, _NODATA_TAG = 42112, 42113
_NOTED_TAGS = {
    280: "MinSampleValue",
    281: "MaxSampleValue",
    301: "transfer function",
    340: "SMinSampleValue",
    341: "SMaxSampleValue",
    34675: "ICC profile",
}
_SCALE = re.compile(r'role="(scale|offset)"[^>]*>\s*([^<\s]{1,40})\s*<')
_TIME_AXES = "TIQ"
"""Of the axes that tifffile names: time, a sequence, and unknown."""
_WHITE_IS_0, _BLACK_IS_0, _RGB, _PALETTE, _YCBCR = 0, 1, 2, 3, 6
_PHOTOMETRIC = {_WHITE_IS_0: "gray, 0 is white", _BLACK_IS_0: "gray", _RGB: "RGB"}
_JPEG_COMPRESSIONS = (6, 7)
_ASSOCIATED, _UNASSOCIATED = 1, 2
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
        return _stack_info(tiff, _pages(tiff, len(data), path, options), path, options)


def _stack_info(tiff: Any, pages: list[Any], path: str, options: ReadOptions) -> FileInfo:
    infos = [_page_info(page, path, options) for page in pages]
    first, kinds = infos[0], [_kind(info) for info in infos]
    if len(set(kinds)) > 1:
        index = next(index for index, kind in enumerate(kinds) if kind != kinds[0])
        raise SourceError(
            f"{path} has page {index} of {kinds[index]}, page 0 is {kinds[0]}; save them as files "
            "of their own"
        )
    calibration = (tiff.imagej_metadata or {}) if tiff.is_imagej else {}
    of_file = [f"ImageJ {key} {calibration[key]}" for key in ("c0", "c1") if key in calibration]
    of_file += ["uneven page times"] if _has_uneven_times(tiff, pages) else []
    return replace(
        first,
        notes=tuple(dict.fromkeys([*of_file, *(note for info in infos for note in info.notes)])),
        is_clip=len(pages) > 1,
        frames=len(pages),
    )


def _has_uneven_times(tiff: Any, pages: list[Any]) -> bool:
    """Whether pages say when they were taken, in OME metadata or whole seconds, with pauses."""
    delays = re.findall(r'DeltaT="([0-9]+[.]?[0-9]*)"', tiff.ome_metadata or "")
    stamps, rounding = [float(delay) for delay in delays], 0
    if not delays and len(pages) > 2:
        texts = [str(page.tags.valueof(_DATE_TAG, "")) for page in pages]
        try:
            dates = [datetime.strptime(text, "%Y:%m:%d %H:%M:%S") for text in texts]
        except ValueError:
            return False
        stamps, rounding = [(date - dates[0]).total_seconds() for date in dates], 1
    if len(stamps) != len(pages) or len(stamps) < 3:
        return False
    steps = np.diff(stamps)
    usual = float(np.median(steps))
    return bool(abs(steps - usual).max() > max(rounding, abs(usual) / 2))


def _kind(info: FileInfo) -> str:
    """What all pages must have in common."""
    alpha = "" if info.alpha == "straight" else f", {info.alpha}"
    nodata = "" if info.nodata is None else f", {info.nodata:g} for no data"
    return f"{info.frame_format}{alpha}{nodata}"


def decode(data: bytes, out: np.ndarray, path: str, options: ReadOptions) -> None:
    """Decode a file of a single page into `out`, (H, W, C).

    Raises:
        SourceError: The file is damaged, or holds several pages.
    """
    with _open(data, path) as tiff:
        pages = _pages(tiff, len(data), path, options)
        if len(pages) > 1:
            raise FrameFormatError(
                f"{path} holds {len(pages)} pages in a place for single frames; leave it out by "
                "exclude="
            )
        out[:] = _pixels(pages[0], path, options)


def inspect_clip(path: str, options: ReadOptions) -> FileInfo:
    """What `read_clip` gives, from the file's directories."""
    with _opened(path) as (tiff, size):
        return _stack_info(tiff, _pages(tiff, size, path, options), path, options)


def read_clip(path: str, options: ReadOptions) -> Iterator[np.ndarray | SourceError]:
    """The pages of a stack, (H, W, C) each; an error in the place of a damaged one."""
    with _opened(path) as (tiff, size):
        for index, page in enumerate(_pages(tiff, size, path, options)):
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
            tiff = tifffile.TiffFile(file, _multifile=False)
        yield tiff, size


def _open(data: bytes, path: str) -> Any:
    check_kind(data, path, "TIFF")
    _check_directories(data, path)
    with _guarded(path):
        return tifffile.TiffFile(io.BytesIO(data), _multifile=False)


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


def _pages(tiff: Any, size: int, path: str, options: ReadOptions) -> list[Any]:
    """The pages at full size, whose pixels must all lie within the file."""
    with _guarded(path):
        pages = [page for page in tiff.pages if not page.is_reduced]
        images = (tiff.imagej_metadata or {}).get("images", 1) if tiff.is_imagej else 1
        for index, page in enumerate(pages):
            page = page.aspage()
            pages[index] = page
            _check_pieces(page, size, f"{path} (page {index})", options)
    if not pages:
        raise SourceError(f"{path} holds no image at full size; remove it")
    if len(pages) > 1 or tiff.is_imagej or tiff.is_ome or tiff.is_shaped:
        _check_axes(tiff, path, options)
    if images > len(pages):
        raise SourceError(
            f"{path} keeps {images} ImageJ images behind {len(pages)} directories; save it as a "
            "plain stack of pages"
        )
    return pages


def _check_pieces(page: Any, size: int, path: str, options: ReadOptions) -> None:
    """Refuse strips or tiles that are missing; those of a sparse file are not there on purpose."""
    pieces = list(zip(page.dataoffsets, page.databytecounts, strict=True))
    there = [(at, n) for at, n in pieces if (at, n) != (0, 0)]
    whole = pieces and all(at > 0 and n > 0 and at + n <= size for at, n in there)
    if not whole or len(pieces) < int(np.prod(page.chunked)):
        raise SourceError(
            f"{path} has pixels that are missing or lie behind its end; copy it again or remove it"
        )
    if len(there) < len(pieces) and not options.allow_missing_chunks:
        raise SourceError(
            f"{path} is sparse: {len(pieces) - len(there)} of its {len(pieces)} strips or tiles "
            "are left out; allow_missing_chunks=True takes their pixels for GDAL_NODATA, or else 0"
        )


def _check_axes(tiff: Any, path: str, options: ReadOptions) -> None:
    """Refuse pages that are not one behind the other in time, as far as the file says."""
    if options.axes not in (None, "tyx", "tyxc", "yx", "yxc"):
        raise SourceError(
            f"{path} is a TIFF file, which axes={options.axes!r} does not fit; expected tyx, by "
            "which its pages are frames in time"
        )
    with _guarded(path):
        series = tiff.series[0]
        axes = [(axis, size) for axis, size in zip(series.axes, series.shape, strict=True)]
    of_pages = [axis for axis, size in axes if axis not in "YXS" and size > 1]
    if len(of_pages) > 1 or (options.axes is None and not set(of_pages) <= set(_TIME_AXES)):
        shown = ", ".join(f"{axis} {size}" for axis, size in axes)
        stated = ", or give axes='tyx' if they are frames in time" if len(of_pages) == 1 else ""
        raise SourceError(
            f"{path} has the axes {shown}; expected pages along one axis of time, save each "
            f"channel or plane as a file of its own{stated}"
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
    palette = photometric == _PALETTE and samples == 1
    stored = photometric in _PHOTOMETRIC or palette or _is_jpeg(page)
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
    name = "palette" if palette else _PHOTOMETRIC.get(photometric, "RGB")
    alpha, extra = _alpha(page)
    nodata = _nodata(page, options)
    notes = _notes(page)
    if _NODATA_TAG in page.tags and nodata is None:
        notes = (*notes, f"GDAL_NODATA {_short(page.tags.valueof(_NODATA_TAG))}")
    if palette and options.palette != "index":
        samples, dtype = 3, "uint8"
    return FileInfo(
        FrameFormat(height, width, samples, dtype),
        "TIFF",
        f"{name}{extra}, {bits} bits",
        notes,
        nodata=nodata,
        alpha=alpha,
    )


def _alpha(page: Any) -> tuple[str, str]:
    """What `FileInfo.alpha` says of a page, and how its mode names the samples behind colours."""
    extra = int(page.samplesperpixel) - (3 if int(page.photometric) in (_RGB, _YCBCR) else 1)
    kinds = [int(kind) for kind in page.extrasamples]
    if extra == 1 and kinds == [_ASSOCIATED]:
        return "premultiplied", " and premultiplied alpha"
    if extra == 0 or (extra == 1 and kinds == [_UNASSOCIATED]):
        return "straight", " and alpha" * extra
    return "bands", f" and {extra} more samples" if extra > 1 else " and 1 more sample"


def _nodata(page: Any, options: ReadOptions) -> float | None:
    """The pixel value that GDAL_NODATA gives, once decoded; None if no pixel can have it."""
    if int(page.photometric) == _PALETTE and options.palette != "index":
        return None
    try:
        text = str(page.tags.valueof(_NODATA_TAG, "")).strip("\0 ").replace(",", ".")
        value = float(text)
        # As the file's type has it: the largest float32 is written with too few digits by some.
        value = float(np.array(value).astype(page.dtype)) if page.dtype.kind == "f" else value
    except ValueError:
        return None
    if page.dtype.kind not in "iuf" or not fits(value, str(page.dtype)):
        return None
    return np.iinfo(page.dtype).max - value if _is_turned(page) else value


def _is_turned(page: Any) -> bool:
    return int(page.photometric) == _WHITE_IS_0 and page.dtype.kind in "bu"


def _notes(page: Any) -> tuple[str, ...]:
    orientation = page.tags.valueof(_ORIENTATION_TAG, 1)
    notes = [f"orientation {_short(orientation)}"] if orientation != 1 else []
    notes += [note for tag, note in _NOTED_TAGS.items() if tag in page.tags]
    scales = _SCALE.findall(str(page.tags.valueof(_METADATA_TAG, "")))
    notes += [f"GDAL {role} {value}" for role, value in scales]
    if int(page.photometric) == _WHITE_IS_0 and not _is_turned(page):
        notes.append("0 is white")
    if int(page.photometric) == _PALETTE and not _is_8_bit(table := np.asarray(page.colormap)):
        low, high = table & 255, table >> 8
        notes += ["palette of 16 bits"] * bool(((low != 0) & (low != high)).any())
    return tuple(dict.fromkeys(notes))


def _short(value: object) -> str:
    return " ".join(str(value).split())[:40]


def _is_8_bit(table: np.ndarray) -> bool:
    """Whether a table of colours has 0..255 where TIFF has 0..65535, as some programs write it."""
    return int(table.max()) < 256


def _is_jpeg(page: Any) -> bool:
    """Whether the decoder gives RGB for what is stored as luma and chroma."""
    return int(page.photometric) == _YCBCR and int(page.compression) in _JPEG_COMPRESSIONS


def _pixels(page: Any, path: str, options: ReadOptions) -> np.ndarray:
    info = _page_info(page, path, options)
    with _guarded(path):
        return _decoded(page, info, path, options)


def _decoded(page: Any, info: FileInfo, path: str, options: ReadOptions) -> np.ndarray:
    if info.nodata is not None:
        # What tifffile fills the pixels of missing tiles with.
        top = np.iinfo(page.dtype).max if _is_turned(page) else 0
        page.nodata = top - info.nodata if top else info.nodata
    pixels = np.asarray(page.asarray())
    if int(page.planarconfig) == 2 and pixels.ndim == 3:
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.dtype == np.bool_:
        pixels = pixels * np.uint8(255)
    if _is_turned(page):
        pixels = np.iinfo(pixels.dtype).max - pixels
    if int(page.photometric) == _PALETTE and options.palette != "index":
        table = np.asarray(page.colormap)
        colours = (table if _is_8_bit(table) else table >> 8).astype(np.uint8).T
        if pixels.max() >= len(colours):
            raise SourceError(f"{path} has an index outside of its palette; repair or remove it")
        pixels = colours[pixels]
    if pixels.size != int(np.prod(info.frame_format.shape)):
        raise SourceError(
            f"{path} decodes to {pixels.shape}, its header says {info.frame_format}; remove it"
        )
    return pixels.reshape(info.frame_format.shape)
