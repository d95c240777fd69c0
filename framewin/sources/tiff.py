"""TIFF, decoded exactly by tifffile: files of one page are frames, stacks of pages are clips.

Samples of 8 to 64 bits are kept, bilevel ones are scaled to 0..255, palettes become colours (or
stay indices), and where 0 is white the scale of unsigned samples is turned so that 0 is black.
"""

from __future__ import annotations

import io
import logging
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, BinaryIO

import numpy as np
import tifffile

from framewin.errors import FrameFormatError, SourceError
from framewin.schema import FRAME_DTYPES, FrameFormat, fits
from framewin.sources.damage import as_damage, broken, cut_short
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
    """All of a file: its directories may be anywhere."""
    return file.read()


def inspect(data: bytes, path: str, options: ReadOptions) -> FileInfo:
    """What the file holds, from its directories."""
    return _inspect(io.BytesIO(data), path, options)


def inspect_clip(path: str, options: ReadOptions) -> FileInfo:
    """What `read_clip` gives, from the file's directories."""
    with open(path, "rb") as file:
        return _inspect(file, path, options)


def decode(data: bytes, out: np.ndarray, path: str, options: ReadOptions) -> None:
    """Decode a file of a single page into `out`, (H, W, C)."""
    with _opened(io.BytesIO(data), path, options) as (_, pages):
        if len(pages) > 1:
            raise FrameFormatError(
                f"{path} holds {len(pages)} pages in a place for single frames; leave it out by "
                "exclude="
            )
        out[:] = _pixels(pages[0], path, options)


def read_clip(path: str, options: ReadOptions) -> Iterator[np.ndarray | SourceError]:
    """The pages of a stack, (H, W, C) each; an error in the place of a damaged one."""
    with open(path, "rb") as file, _opened(file, path, options) as (_, pages):
        for index, page in enumerate(pages):
            label = f"{path} (page {index})"
            try:
                with as_damage(f"{label} is a damaged TIFF file"):
                    pixels = _pixels(page, label, options)
            except SourceError as exc:
                yield exc
            else:
                yield pixels


@contextmanager
def _opened(file: BinaryIO, path: str, options: ReadOptions) -> Iterator[tuple[Any, list[Any]]]:
    """A file as tifffile has it, and its pages at full size, with all pixels within the file."""
    check_kind(file.read(16), path, "TIFF")
    size = file.seek(0, io.SEEK_END)
    _check_directories(file, size, path)
    file.seek(0)
    with as_damage(f"{path} is a damaged TIFF file"):
        tiff: Any = tifffile.TiffFile(file, _multifile=False)
        pages = [page.aspage() for page in tiff.pages if not page.is_reduced]
        for index, page in enumerate(pages):
            _check_pieces(page, size, f"{path} (page {index})", options)
        if not pages:
            raise SourceError(f"{path} holds no image at full size; remove it")
        if len(pages) > 1 or tiff.is_imagej or tiff.is_ome or tiff.is_shaped:
            _check_axes(tiff, path, options)
        images = (tiff.imagej_metadata or {}).get("images", 1) if tiff.is_imagej else 1
        if images > len(pages):
            raise SourceError(
                f"{path} keeps {images} ImageJ images behind {len(pages)} directories; save it as "
                "a plain stack of pages"
            )
        yield tiff, pages


def _check_directories(file: BinaryIO, size: int, path: str) -> None:
    """Follow the chain of directories, where tifffile would stop at a cut without a word."""

    def number(place: int, form: str) -> int:
        file.seek(place)
        [found] = struct.unpack(order + form, file.read(struct.calcsize(order + form)))
        return int(found)

    file.seek(0)
    start = file.read(4)
    order = "<" if start[:2] == b"II" else ">"
    big = start[2:4] in (b"+\0", b"\0+")
    link, count, entry_bytes = ("Q", "Q", 20) if big else ("I", "H", 12)
    seen: set[int] = set()
    try:
        directory = number(8 if big else 4, link)
        while directory:
            if directory in seen or len(seen) > _MAX_PAGES:
                raise broken(f"{path} has a circle of directories")
            seen.add(directory)
            entries = directory + struct.calcsize(order + count)
            directory = number(entries + number(directory, count) * entry_bytes, link)
    except (struct.error, OverflowError, OSError):
        problem = f"{path} is cut short: its {size} bytes end before its directories do"
        raise cut_short(problem) from None
    if not seen:
        raise SourceError(f"{path} holds no image; remove it")


def _check_pieces(page: Any, size: int, path: str, options: ReadOptions) -> None:
    """Refuse strips or tiles that are missing; those of a sparse file are not there on purpose."""
    pieces = list(zip(page.dataoffsets, page.databytecounts, strict=True))
    there = [(at, n) for at, n in pieces if (at, n) != (0, 0)]
    whole = pieces and all(at > 0 and n > 0 and at + n <= size for at, n in there)
    if not whole or len(pieces) < int(np.prod(page.chunked)):
        raise cut_short(f"{path} has pixels that are missing or lie behind its end")
    if len(there) < len(pieces) and not options.allow_missing_chunks:
        raise SourceError(
            f"{path} is sparse: {len(pieces) - len(there)} of its {len(pieces)} strips or tiles "
            "are left out; allow_missing_chunks=True takes their pixels for GDAL_NODATA, or else 0"
        )


def _check_axes(tiff: Any, path: str, options: ReadOptions) -> None:
    """Refuse pages that are not frames in time, as far as the file says."""
    if options.axes not in (None, "tyx", "tyxc", "yx", "yxc"):
        raise SourceError(
            f"{path} is a TIFF file, which axes={options.axes!r} does not fit; expected tyx, by "
            "which its pages are frames in time"
        )
    series = tiff.series[0]
    axes = list(zip(series.axes, series.shape, strict=True))
    of_pages = [axis for axis, size in axes if axis not in "YXS" and size > 1]
    if len(of_pages) > 1 or (options.axes is None and not set(of_pages) <= set(_TIME_AXES)):
        shown = ", ".join(f"{axis} {size}" for axis, size in axes)
        stated = ", or give axes='tyx' if they are frames in time" if len(of_pages) == 1 else ""
        raise SourceError(
            f"{path} has the axes {shown}; expected pages along one axis of time, save each "
            f"channel or plane as a file of its own{stated}"
        )


def _inspect(file: BinaryIO, path: str, options: ReadOptions) -> FileInfo:
    with _opened(file, path, options) as (tiff, pages):
        infos = [_page_info(page, path, options) for page in pages]
        calibration = (tiff.imagej_metadata or {}) if tiff.is_imagej else {}
        notes = [f"ImageJ {key} {calibration[key]}" for key in ("c0", "c1") if key in calibration]
        notes += ["uneven page times"] * _has_uneven_times(tiff, pages)
    kinds = [_kind(info) for info in infos]
    for index, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise SourceError(
                f"{path} has page {index} of {kind}, page 0 is {kinds[0]}; save them as files of "
                "their own"
            )
    notes += [note for info in infos for note in info.notes]
    count = len(pages)
    return replace(infos[0], notes=tuple(dict.fromkeys(notes)), is_clip=count > 1, frames=count)


def _has_uneven_times(tiff: Any, pages: list[Any]) -> bool:
    """Whether pages say when they were taken, in OME metadata or whole seconds, with pauses."""
    delays = re.findall(r'DeltaT="([0-9]+[.]?[0-9]*)"', tiff.ome_metadata or "")
    stamps, rounding = [float(delay) for delay in delays], 0
    if not delays:
        texts = [str(page.tags.valueof(_DATE_TAG, "")) for page in pages]
        with suppress(ValueError):
            dates = [datetime.strptime(text, "%Y:%m:%d %H:%M:%S") for text in texts]
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


def _page_info(page: Any, path: str, options: ReadOptions) -> FileInfo:
    height, width = int(page.imagelength), int(page.imagewidth)
    check_pixels(height, width, path, options)
    samples, bits = int(page.samplesperpixel), page.bitspersample
    dtype = "uint8" if page.dtype == np.bool_ else str(page.dtype)
    photometric = int(page.photometric)
    palette = photometric == _PALETTE and samples == 1
    # The decoder gives RGB for luma and chroma of JPEG.
    jpeg = photometric == _YCBCR and int(page.compression) in _JPEG_COMPRESSIONS
    stored = photometric in _PHOTOMETRIC or palette or jpeg
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
        raise broken(f"{path} claims tiles of {page.chunks} samples")
    name = "palette" if palette else _PHOTOMETRIC.get(photometric, "RGB")
    alpha, beside = _alpha(page)
    nodata = _nodata(page, options)
    if palette and options.palette != "index":
        samples, dtype = 3, "uint8"
    form = FrameFormat(height, width, samples, dtype)
    mode = f"{name}{beside}, {bits} bits"
    return FileInfo(form, "TIFF", mode, _notes(page, nodata), nodata=nodata, alpha=alpha)


def _alpha(page: Any) -> tuple[str, str]:
    """`FileInfo.alpha` of a page, and how its mode names the samples beside colours."""
    extra = int(page.samplesperpixel) - (3 if int(page.photometric) in (_RGB, _YCBCR) else 1)
    kinds = [int(kind) for kind in page.extrasamples]
    if extra == 1 and kinds == [_ASSOCIATED]:
        return "premultiplied", " and premultiplied alpha"
    if extra == 0 or (extra == 1 and kinds == [_UNASSOCIATED]):
        return "straight", " and alpha" * extra
    return "bands", f" and {max(extra, 1)} more sample{'s' * (extra > 1)}"


def _nodata(page: Any, options: ReadOptions) -> float | None:
    """The pixel value that GDAL_NODATA gives, once decoded; None if no pixel can have it."""
    if int(page.photometric) == _PALETTE and options.palette != "index":
        return None
    try:
        value = float(str(page.tags.valueof(_NODATA_TAG, "")).strip("\0 ").replace(",", "."))
        # As the file's type has it: the largest float32 is written with too few digits by some.
        value = float(np.array(value).astype(page.dtype)) if page.dtype.kind == "f" else value
    except ValueError:
        return None
    if page.dtype.kind not in "iuf" or not fits(value, str(page.dtype)):
        return None
    return np.iinfo(page.dtype).max - value if _is_turned(page) else value


def _is_turned(page: Any) -> bool:
    return int(page.photometric) == _WHITE_IS_0 and page.dtype.kind in "bu"


def _notes(page: Any, nodata: float | None) -> tuple[str, ...]:
    orientation = page.tags.valueof(_ORIENTATION_TAG, 1)
    notes = [f"orientation {_short(orientation)}"] if orientation != 1 else []
    notes += [note for tag, note in _NOTED_TAGS.items() if tag in page.tags]
    scales = _SCALE.findall(str(page.tags.valueof(_METADATA_TAG, "")))
    notes += [f"GDAL {role} {value}" for role, value in scales]
    if int(page.photometric) == _WHITE_IS_0 and not _is_turned(page):
        notes.append("0 is white")
    if int(page.photometric) == _PALETTE:
        low, high = (table := np.asarray(page.colormap)) & 255, table >> 8
        notes += ["palette of 16 bits"] * bool((high.any() & (low != 0) & (low != high)).any())
    if _NODATA_TAG in page.tags and nodata is None:
        notes.append(f"GDAL_NODATA {_short(page.tags.valueof(_NODATA_TAG))}")
    return tuple(dict.fromkeys(notes))


def _short(value: object) -> str:
    return " ".join(str(value).split())[:40]


def _pixels(page: Any, path: str, options: ReadOptions) -> np.ndarray:
    info = _page_info(page, path, options)
    if info.nodata is not None:
        # What tifffile fills the pixels of missing tiles with.
        turned = _is_turned(page)
        page.nodata = np.iinfo(page.dtype).max - info.nodata if turned else info.nodata
    pixels = np.asarray(page.asarray())
    if int(page.planarconfig) == 2 and pixels.ndim == 3:
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.dtype == np.bool_:
        pixels = pixels * np.uint8(255)
    if _is_turned(page):
        pixels = np.iinfo(pixels.dtype).max - pixels
    if int(page.photometric) == _PALETTE and options.palette != "index":
        table = np.asarray(page.colormap)
        # Some programs write 0..255 where TIFF has 0..65535.
        colours = (table >> 8 if table.max() > 255 else table).astype(np.uint8).T
        if pixels.max() >= len(colours):
            raise broken(f"{path} has an index outside of its palette")
        pixels = colours[pixels]
    if pixels.size != int(np.prod(info.frame_format.shape)):
        raise SourceError(
            f"{path} decodes to {pixels.shape}, its header says {info.frame_format}; remove it"
        )
    return pixels.reshape(info.frame_format.shape)
