"""What frames there are, in what order, and how one is decoded.

A file holds one frame, or several: then it is a clip by itself. Kinds that may do either say so
from their header.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import numpy as np

from framewin.arrays.file_kinds import is_zarr
from framewin.errors import SourceError
from framewin.sources.info import FileInfo, ReadOptions

_MODULES = {
    "framewin.sources.png": ".png .apng",
    "framewin.sources.images": ".jpg .jpeg .bmp .webp .gif",
    "framewin.sources.tiff": ".tif .tiff",
    "framewin.sources.pnm": ".pnm .pbm .pgm .ppm .pgm.gz",
    "framewin.sources.arrays": ".npy .npz .h5 .hdf5 .hdf .he5 .nc .nc4 .cdf .zarr",
    "framewin.sources.video": (
        ".mp4 .avi .mov .mkv .webm .m4v .3gp .mpg .mpeg .ts .mts .m2ts .wmv .flv .ogv"
    ),
}
SOURCES = {suffix: module for module, names in _MODULES.items() for suffix in names.split()}
"""File name suffix -> the module that decodes such files; a `FrameDecoder`, a `ClipDecoder` or
both."""

CLIP_SUFFIXES = frozenset((".zarr", *_MODULES["framewin.sources.video"].split()))
"""Suffixes of files that are clips by themselves, however many frames they hold."""

USUAL_CLIP_SUFFIXES = frozenset({".apng", ".gif", ".npz"})
"""Suffixes of files that are clips, unless they hold a single frame."""

KINDS = dict(
    zip(
        ["png", "jpeg", "bmp", "webp", "gif", "tiff", "pnm", "npy", "hdf5", "video"],
        [".png", ".jpg", ".bmp", ".webp", ".gif", ".tif", ".pnm", ".npy", ".h5", ".mkv"],
        strict=True,
    )
)
"""What files of any suffix may be said to be -> a suffix of such files."""


class FrameDecoder(Protocol):
    """One kind of file that may hold a single frame."""

    def header(self, file: BinaryIO) -> bytes:
        """As much of a file, opened at its beginning, as `inspect` needs."""

    def inspect(self, data: bytes, path: str, options: ReadOptions) -> FileInfo:
        """What `decode` will give, from the header alone; `path` is for errors."""

    def decode(self, data: bytes, out: np.ndarray, path: str, options: ReadOptions) -> None:
        """Decode a file of a single frame of the right format into `out`, (H, W, C)."""


class ClipDecoder(Protocol):
    """One kind of file that may hold several frames.

    Where `read_clip_from(path, options, first)` exists, it need not begin at the first frame.
    """

    def inspect_clip(self, path: str, options: ReadOptions) -> FileInfo:
        """How many frames of what kind, and their numbers; no pixel is decoded."""

    def read_clip(self, path: str, options: ReadOptions) -> Iterator[np.ndarray | SourceError]:
        """All frames in order, (H, W, C); an error in the place of each that is damaged.

        An error that is raised instead says that all frames from there on are lost.
        """


def frame_decoder(path: str, kind: str | None = None) -> FrameDecoder:
    """The decoder of a file of a single frame that `listing` took for one; `kind` as stated."""
    return cast(FrameDecoder, _decoder(kind_suffix(path, kind)))


def clip_decoder(path: str, kind: str | None = None) -> ClipDecoder:
    """The decoder of a file of several frames."""
    return cast(ClipDecoder, _decoder(kind_suffix(path, kind)))


def read_frames(
    path: str, options: ReadOptions, first: int
) -> tuple[int, Iterator[np.ndarray | SourceError]]:
    """The frames of a clip from one at or before `first` on, and which that is."""
    decoder: Any = clip_decoder(path, options.kind)
    if is_seekable(path, options.kind):
        return first, decoder.read_clip_from(path, options, first)
    return 0, decoder.read_clip(path, options)


def is_seekable(path: str, kind: str | None = None) -> bool:
    """Whether the frames of a clip file can be read from any of them on."""
    # Archives are decoded from their beginning.
    return suffix_of(path) != ".npz" and hasattr(clip_decoder(path, kind), "read_clip_from")


def is_clip_path(path: Path) -> bool:
    """Whether a path is a clip by itself as a source: a file, or a folder of Zarr."""
    return path.is_file() or is_zarr(path)


def kind_suffix(path: str, kind: str | None = None) -> str:
    """The suffix that says what a file that was listed is; a folder of Zarr may have any name.

    Where a kind is stated, files may have any suffix.
    """
    suffix = suffix_of(path)
    if kind is not None:
        alike = SOURCES.get(suffix) == SOURCES[KINDS[kind]] and kind == "video"
        return suffix if alike else KINDS[kind]
    return suffix if suffix in SOURCES else ".zarr"


def suffix_of(name: str) -> str:
    """The lower-case suffix of a name or path, with its dot; "" without one.

    >>> suffix_of("a.b/Frame_1.PNG"), suffix_of("a.b/README"), suffix_of(".png")
    ('.png', '', '')
    >>> suffix_of("rain_0005.PGM.gz")
    '.pgm.gz'
    """
    base = name[name.rfind("/") + 1 :]
    dot = base.rfind(".")
    if base.lower().endswith(".pgm.gz"):
        dot -= len(".pgm")
    return base[dot:].lower() if dot > 0 else ""


@cache
def _decoder(suffix: str) -> Any:
    return import_module(SOURCES[suffix])
