"""What is known of a file before its pixels are decoded, and of what kind it really is."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Any
from unicodedata import normalize

import numpy as np

from framewin.errors import SourceError
from framewin.schema import ClipTable, FrameFormat, Int64Array
from framewin.sources.names import NameRule

MAX_PIXELS = 2**28
STORE_KIND = "framewin store"
"""Kind of a file that framewin wrote."""

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "PNG", ".png"),
    (b"\xff\xd8\xff", "JPEG", ".jpg"),
    (b"GIF87a", "GIF", ".gif"),
    (b"GIF89a", "GIF", ".gif"),
    (b"BM", "BMP", ".bmp"),
    (b"II*\0", "TIFF", ".tif"),
    (b"MM\0*", "TIFF", ".tif"),
    (b"II+\0", "TIFF", ".tif"),
    (b"MM\0+", "TIFF", ".tif"),
    (b"\x93NUMPY", "NumPy", ".npy"),
    (b"PK\x03\x04", "NumPy archive", ".npz"),
    (b"\x1aE\xdf\xa3", "Matroska", ".mkv"),
    (b"\0\0\1\xba", "MPEG", ".mpg"),
    (b"\0\0\1\xb3", "MPEG", ".mpg"),
    (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "ASF", ".wmv"),
    (b"FLV\1", "FLV", ".flv"),
    (b"OggS", "Ogg", ".ogv"),
    (b"\x89HDF\r\n\x1a\n", "HDF5", ".h5"),
    (b"%PDF-", "PDF", ".pdf"),
    (b"\x1f\x8b", "gzip", ".gz"),
)
_ORIENTATION_TAG = 0x0112
_IFD_ENTRY_BYTES = 12


@dataclass(frozen=True, slots=True)
class ClipPart:
    """One of several clips in a file."""

    name: str
    begin: int
    """Its first frame."""
    end: int
    """The frame behind its last."""


@dataclass(frozen=True, slots=True)
class ListRule:
    """Which files count, and how their names are read: settings of a conversion."""

    names: NameRule = field(default_factory=NameRule)
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    step: int | str | None = None
    step_tolerance: int | str | None = None
    kind: str | None = None

    def chosen(self) -> Callable[[str], bool] | None:
        """A test of paths below the source; None where all are chosen."""
        if not self.include and not self.exclude:
            return None
        include, exclude = _globs(self.include or ("*",)), _globs(self.exclude)

        def chosen(path: str) -> bool:
            path = normalize("NFC", path)
            return bool(include.match(path)) and not exclude.match(path)

        return chosen


def _globs(globs: Sequence[str]) -> re.Pattern[str]:
    # Names typed and names of files need not be composed alike.
    either = "|".join(translate(normalize("NFC", glob)) for glob in globs)
    return re.compile(either or "(?!)")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How files are read, without what becomes of pixels: settings of a conversion."""

    palette: str = "color"
    stream: int | None = None
    max_pixels: int = MAX_PIXELS
    array: str | None = None
    axes: str | None = None
    clip_ids: str | None = None
    frame_numbers: str | None = None
    kind: str | None = None
    allow_missing_chunks: bool = False
    pixels_only: bool = False
    """Leave out what reading a single frame does not take, such as its time and coordinates."""


@dataclass(frozen=True, slots=True, eq=False)
class FileInfo:
    """What a file's header promises."""

    frame_format: FrameFormat
    """Of each frame, once decoded."""
    kind: str
    """The file's kind, such as "PNG"."""
    mode: str
    """Kind of pixels and bits as they are in the file, such as "palette, 8 bits"."""
    notes: tuple[str, ...] = ()
    """What is present in the file but not applied."""
    is_clip: bool = False
    """Whether the file is a clip by itself."""
    frames: int = 1
    numbers: Int64Array | None = None
    """Frame number of each frame of a clip; 0, 1, 2, ... by default."""
    step: int = 1
    """Usual difference of neighbouring `numbers`."""
    frame_seconds: str | None = None
    """Time from one frame to the next of a video, in seconds, as a fraction."""
    parts: tuple[ClipPart, ...] = ()
    """The clips of a file that holds several, and names them; they cover its frames."""
    tolerance: int = 0
    """By how much differences of neighbouring `numbers` may miss the step."""
    time_unit: str | None = None
    """Where `numbers` are time stamps: the unit they count since 1970, UTC."""
    nodata: float | None = None
    """Pixel value that the file says stands for no data."""
    alpha: str = "straight"
    """What channels are beside gray or RGB: alpha, `"straight"` or `"premultiplied"` into the
    colours; or `"bands"` of data, where the channels are no colours with alpha."""
    packing: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of the values, such as `scale_factor` and units: kept, not applied."""
    merged: tuple[float, ...] = ()
    """More values of no data in the file, in whose place frames have `nodata`."""
    coordinates: Mapping[str, Any] = field(default_factory=dict)
    """Those of rows and columns, as `StoreMeta` keeps them."""
    cut: str | None = None
    """What shows that frames are missing at the end of the file."""


def alpha_of_array(channels: int) -> str:
    """`FileInfo.alpha` of an array, which does not say that the last of 2 or 4 is alpha."""
    return "straight" if channels in (1, 3) else "bands"


def packing_notes(packing: Mapping[str, Any]) -> tuple[str, ...]:
    """A note on each attribute that would change values, or say which are valid."""
    return tuple(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in packing.items()
        if name in ("scale_factor", "add_offset") or name.startswith("valid_")
    )


def clip_fields(clips: ClipTable, *, named: bool) -> dict[str, Any]:
    """The fields of `FileInfo` that say what clips a file holds, by their names where `named`."""
    tolerance = 0
    if clips.uneven is not None:
        misses = np.abs(np.diff(clips.uneven) - clips.step)
        tolerance = int(np.delete(misses, clips.segment_starts[1:] - 1).max(initial=0))
    rows = zip(clips.names, clips.clip_starts.tolist(), clips.clip_lengths.tolist(), strict=True)
    return {
        "numbers": clips.frame_numbers(np.arange(clips.num_frames)),
        "step": clips.step,
        "tolerance": tolerance,
        "time_unit": clips.time_unit,
        "parts": tuple(ClipPart(n, begin, begin + length) for n, begin, length in rows) * named,
    }


def check_kind(data: bytes, path: str, kind: str) -> None:
    """Raise SourceError, naming what it is, unless a file begins like its suffix says."""
    found = kind_of(data)
    if found is not None and found[0] == kind:
        return
    refuse_pointer(data, path)
    if not data:
        raise SourceError(f"{path} is empty; expected a {kind} file, copy it again or remove it")
    if found is None:
        raise SourceError(
            f"{path} starts with {data[:8]!r}; expected a {kind} file, copy it again or remove it"
        )
    raise SourceError(f"{path} is a {found[0]} file, not a {kind} file; rename it to {found[1]}")


def refuse_pointer(data: bytes, path: str) -> None:
    """Raise SourceError for a text that Git LFS left in the place of a file."""
    if data.startswith(b"version https://"):
        raise SourceError(
            f"{path} is a pointer of Git LFS, in the place of a file that was not fetched; run git "
            "lfs pull"
        )


def kind_of(data: bytes) -> tuple[str, str] | None:
    """Kind and usual suffix of a file, from its first bytes; None where they say nothing."""
    for magic, kind, suffix in _MAGIC:
        if data.startswith(magic):
            return kind, suffix
    if data[:1] == b"P" and data[1:2] in b"123456" and (data[2:3].isspace() or data[2:3] == b"#"):
        return "PNM", ".pnm"
    if data[:4] == b"RIFF" and data[8:12] in (b"WEBP", b"AVI "):
        return ("WebP", ".webp") if data[8:12] == b"WEBP" else ("AVI", ".avi")
    if data[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"):
        return ("QuickTime", ".mov") if data[4:12] != b"ftyp" + data[8:12] else ("MP4", ".mp4")
    return None


def check_pixels(height: int, width: int, path: str, options: ReadOptions) -> None:
    """Raise SourceError unless a frame of this size may be decoded."""
    if min(height, width) < 1:
        raise SourceError(f"{path} claims {height}x{width} pixels; expected at least one")
    if height * width > options.max_pixels:
        raise SourceError(
            f"{path} claims {height}x{width} pixels, more than the {options.max_pixels:,} "
            "allowed; raise max_pixels= if it is right"
        )


def orientation_note(exif: bytes) -> tuple[str, ...]:
    """A note on the orientation in EXIF data, where it is not upright."""
    exif = exif.removeprefix(b"Exif\0\0")
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if order is None or len(exif) < 10:
        return ()
    [start] = struct.unpack_from(f"{order}I", exif, 4)
    if start + 2 > len(exif):
        return ()
    [count] = struct.unpack_from(f"{order}H", exif, start)
    for place in range(start + 2, start + 2 + count * _IFD_ENTRY_BYTES, _IFD_ENTRY_BYTES):
        if place + _IFD_ENTRY_BYTES > len(exif):
            break
        tag, _, _, value = struct.unpack_from(f"{order}HHIH", exif, place)
        if tag == _ORIENTATION_TAG and value != 1:
            return (f"EXIF orientation {value}",)
    return ()
