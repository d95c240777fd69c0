"""What a conversion will do, decided before anything is written."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from framewin.errors import FrameFormatError, SourceError, StoreError
from framewin.schema import ClipTable, FrameFormat, StoreMeta
from framewin.sources import decoder_for
from framewin.sources.listing import ListedClip, Skipped, list_frames
from framewin.stores import format_module
from framewin.stores.codecs import Layout

Progress = Callable[[int, int], None]
"""Called with (frames done, frames in all)."""


@dataclass(frozen=True, slots=True, eq=False)
class ConversionPlan:
    """A checked intention: which files become which rows of which store."""

    source: Path
    dest: Path
    listed: list[ListedClip]
    """The clips, in store order."""
    skipped: dict[str, Skipped]
    """Files that are not frames, by reason."""
    meta: StoreMeta
    layout: Layout
    """How the frames shall lie."""
    format: Any
    """The module that writes the store."""
    needed_bytes: int
    """Disk space that the store takes at most."""

    def paths(self, begin: int, end: int) -> Iterator[str]:
        """The files that become rows [begin, end) of the store."""
        starts = self.meta.clips.clip_starts
        clip = int(np.searchsorted(starts, begin, side="right")) - 1
        while begin < end:
            first = int(starts[clip])
            paths = self.listed[clip].paths(begin - first, end - first)
            yield from paths
            begin += len(paths)
            clip += 1

    def relative_files(self) -> list[tuple[str, list[str]]]:
        """Per clip, its folder below the source ("" for the source itself) and its file names."""
        folders = [clip.folder.relative_to(self.source).as_posix() for clip in self.listed]
        return [
            ("" if folder == "." else folder, clip.file_names)
            for folder, clip in zip(folders, self.listed, strict=True)
        ]


def plan_conversion(
    source: str | Path,
    dest: str | Path,
    *,
    format: str | None = None,
    layout: Layout | None = None,
    nodata: float | None = None,
) -> ConversionPlan:
    """List the frames of a source, and refuse what cannot be converted.

    Reads the header of the first frame of each clip and writes nothing.

    Args:
        source: A folder of frames, or of folders of frames at any depth.
        dest: The store to make; its suffix chooses the format where `format` does not.
        format: One of `framewin.stores.FORMATS`.
        layout: How the frames shall lie; raw by default.
        nodata: Pixel value that stands for no data.

    Raises:
        SourceError: See `list_frames`; or a first frame that is not an image of its kind.
        FrameFormatError: Frames of different shape or dtype.
        StoreError: `dest` exists, lies inside `source` or holds it, has an unknown suffix, or
            there is too little room for it.
        ValueError: A no-data value that no pixel can have.
    """
    source, dest = Path(source), Path(dest)
    module = format_module(dest, format)
    _check_places(source, dest)
    listing = list_frames(source)
    clips = ClipTable.from_frame_numbers(
        [clip.name for clip in listing.clips], [clip.numbers for clip in listing.clips]
    )
    first_formats = [read_format(clip.paths(0, 1)[0]) for clip in listing.clips]
    layout = layout or Layout()
    meta = StoreMeta(first_formats[0], clips, nodata=nodata)
    names = [(clip.name, clip.file_names) for clip in listing.clips]
    name_bytes = sum(len(name) + len(file) for name, files in names for file in files)
    plan = ConversionPlan(
        source,
        dest,
        listing.clips,
        listing.skipped,
        meta,
        layout,
        module,
        module.estimate_bytes(meta, layout, name_bytes),
    )
    _check_names(plan)
    if any(found != first_formats[0] for found in first_formats):
        # An earlier frame, inside a clip, may differ already: name the first that does.
        check_formats(plan)
    _check_space(plan)
    return plan


def check_formats(plan: ConversionPlan, progress: Progress | None = None) -> None:
    """Read the header of every frame.

    Raises:
        FrameFormatError: Names the first frame and the first that differs from it.
    """
    total = plan.meta.clips.num_frames
    for row, path in enumerate(plan.paths(0, total)):
        check_format(plan, read_format(path), path)
        if progress is not None:
            progress(row + 1, total)


def check_format(plan: ConversionPlan, found: FrameFormat, path: str) -> None:
    """Raise FrameFormatError unless a frame is like the first one of the plan."""
    expected = plan.meta.frame_format
    if found != expected:
        first = next(plan.paths(0, 1))
        raise FrameFormatError(
            f"{path} is {found}, {first} is {expected}; all frames of a store must have one "
            "shape and dtype, convert them into stores of their own"
        )


def read_format(path: str) -> FrameFormat:
    """Shape and dtype of a frame file, from its header.

    Raises:
        SourceError: Not readable, or not an image of its kind.
    """
    decoder = decoder_for(path)
    try:
        with open(path, "rb") as file:
            return decoder.frame_format(decoder.header(file), path)
    except OSError as exc:
        raise unreadable(path, exc) from exc


def unreadable(path: str, exc: OSError) -> SourceError:
    """The error for a source file that the system does not let us read."""
    return SourceError(f"{path} cannot be read: {exc.strerror or exc}")


def _check_places(source: Path, dest: Path) -> None:
    if dest.exists() or dest.is_symlink():
        raise StoreError(f"{dest} exists already; remove it or choose another name")
    if not dest.parent.is_dir():
        raise StoreError(f"{dest.parent} is not a folder; make it first")
    real_source, real_dest = source.resolve(), dest.resolve()
    if real_dest.is_relative_to(real_source):
        raise StoreError(f"{dest} lies inside the source {source}; choose a place outside it")
    if real_source.is_relative_to(real_dest):
        raise StoreError(f"the source {source} lies inside {dest}; choose another place")


def _check_names(plan: ConversionPlan) -> None:
    for clip in plan.listed:
        for text in (str(clip.folder), *clip.file_names):
            try:
                text.encode()
            except UnicodeEncodeError:
                shown = ascii(str(clip.folder / text))
                raise SourceError(f"{shown} is not valid UTF-8; rename it") from None


def _check_space(plan: ConversionPlan) -> None:
    free = shutil.disk_usage(plan.dest.parent).free
    if plan.needed_bytes > free:
        raise StoreError(
            f"{plan.dest} needs {plan.needed_bytes:,} bytes but {plan.dest.parent} has "
            f"{free:,} bytes free; make room or choose another disk"
        )
