"""An opened source: which frames there are, in what order, and what all of them must be like."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from framewin.conversion.pixels import PixelRule
from framewin.conversion.settings import ConvertSettings
from framewin.conversion.store_source import inspect_store
from framewin.errors import FrameFormatError, SourceError
from framewin.remote import refuse_url
from framewin.schema import PACKING, ClipTable, FrameFormat, Progress, StoreMeta
from framewin.sources import is_clip_path
from framewin.sources.clips import Clip
from framewin.sources.damage import Damaged
from framewin.sources.headers import Headers, is_clip, read_info
from framewin.sources.info import FileInfo
from framewin.sources.listing import Skipped, list_frames
from framewin.sources.steps import stated_steps, with_common_step

_UNKNOWN = StoreMeta(FrameFormat(1, 1, 1, "uint8"), ClipTable.from_frame_numbers(["-"], [[0]]))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OpenSource:
    """Clips in store order, and what their frames become: row r is the r-th frame."""

    source: Path
    settings: ConvertSettings
    clips: list[Clip]
    skipped: dict[str, Skipped]
    """Files that are not frames, by reason."""
    damaged: list[Damaged]
    """Frames that are left out, as far as they are known."""
    meta: StoreMeta
    """Of a store of these frames."""
    tolerance: int
    """By how much differences of neighbouring frame numbers may miss the step."""
    first: tuple[str, FileInfo]
    """Path and header of the first frame of the source, which all must be like."""
    nodata_in_files: bool
    """Whether the no-data value is what all files say; otherwise it was given."""
    recorded: Mapping[str, Any] = field(default_factory=dict)
    """What a store records of the source besides its settings."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What is present in the first file of a clip but not applied."""
        return tuple(dict.fromkeys(note for clip in self.clips for note in clip.info.notes))

    def pieces(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Rows [begin, end) as (index of clip, first frame in it, end frame in it)."""
        starts = self.meta.clips.clip_starts
        clip = int(np.searchsorted(starts, begin, side="right")) - 1
        while begin < end:
            first = begin - int(starts[clip])
            last = min(first + end - begin, len(self.clips[clip].numbers))
            yield clip, first, last
            begin += last - first
            clip += 1

    def paths(self, begin: int, end: int) -> Iterator[str]:
        """The files that rows [begin, end) of the store come from."""
        for clip, first, last in self.pieces(begin, end):
            yield from self.clips[clip].paths(first, last)

    def part(self, begin: int, end: int) -> Self:
        """Rows [begin, end) as a source that can be read, and pickled: it holds nothing else."""
        clips = [self.clips[i].part(first, last) for i, first, last in self.pieces(begin, end)]
        part = replace(self, clips=clips, skipped={}, damaged=[], recorded={})
        meta, whole = self.meta, self.meta.clips
        table = part._table(whole.step, whole.time_unit)
        return replace(part, meta=StoreMeta(meta.frame_format, table, nodata=meta.nodata))

    def without(self, damaged: Mapping[int, Damaged]) -> Self:
        """The source that leaves out some more rows; the step stays.

        Raises:
            SourceError: Nothing is left.
        """
        table, rows = self.meta.clips, np.array(sorted(damaged), dtype=np.int64)
        owners = table.clips_of(rows)
        kept = [
            clip.without((rows[owners == index] - table.clip_starts[index]).tolist())
            for index, clip in enumerate(self.clips)
        ]
        gone = [*self.damaged, *(damaged[row] for row in rows.tolist())]
        fewer = replace(self, clips=[c for c in kept if len(c.numbers)], damaged=gone)
        _check_any(self.source, fewer.clips, gone)
        return fewer.with_meta(table.step, table.time_unit, self.meta.nodata)

    def with_meta(self, step: int | None, time_unit: str | None, nodata: float | None) -> Self:
        """With the meta that follows from the rest."""
        table, stated = self._table(step, time_unit), self.settings.step
        alone = len(table.segment_starts) == table.num_frames > len(table.names)
        if stated is not None and alone:
            raise SourceError(
                f"{self.source} has no two frames that are {stated} apart; leave step= out, allow "
                "for uneven steps by step_tolerance=, or take every n-th frame of a window by "
                "frame_step"
            )
        root = f"{_root(self.source)}{os.sep}"
        damaged = [{**asdict(d), "file": d.file.removeprefix(root)} for d in self.damaged]
        conversion = {**self.settings.as_json(), **self.recorded, "damaged": damaged}
        form = _stored_format(self.settings, self.clips[0].info, self.clips[0].path)
        meta = StoreMeta(form, table, nodata=nodata, conversion=conversion)
        return replace(self, meta=meta)

    def _table(self, step: int | None, time_unit: str | None) -> ClipTable:
        return ClipTable.from_frame_numbers(
            [clip.name for clip in self.clips],
            [clip.numbers for clip in self.clips],
            step=step,
            time_unit=time_unit,
            tolerance=self.tolerance,
        )


def open_source(
    source: str | Path,
    settings: ConvertSettings | None = None,
    *,
    nodata_in_files: bool = True,
    lenient: bool = False,
) -> OpenSource:
    """List the frames of a source and read the header of the first frame of each clip.

    Clips may differ in their formats, see `check_formats`.

    Args:
        source: A folder of frames or clips, at any depth, or a file that is a clip by itself.
        settings: How files are read and what becomes of frames.
        nodata_in_files: Whether the no-data value is what files say where none is given.
        lenient: Leave damaged files out even where they would stop the conversion.

    Raises:
        SourceError: See `list_frames`; or a first frame that is not an image of its kind.
        FrameFormatError: A frame to which the settings cannot be applied.
        ValueError: A no-data value that the settings would mix with data.
    """
    refuse_url(
        source, "framewin convert reads files of this machine; framewin fetch brings a store"
    )
    source, settings = Path(source), settings or ConvertSettings()
    nodata = settings.nodata
    check_nodata(nodata, settings)
    options, named = settings.read_options, settings.frame_regex is not None
    # Indices are refused of animations, which are clips all the same.
    probed = replace(options, palette="color")
    listing = list_frames(
        source, settings.list_rule, lambda path: is_clip(read_info(path, probed), named=named)
    )
    gaps = lenient or settings.on_error == "gap"
    headers = Headers(_root(source), options, gaps, named, inspect_store)
    headers.read(listing)
    _check_any(source, headers.clips, headers.damaged)
    stated = (settings.step, settings.step_tolerance) != (None, None)
    clips = with_common_step(headers.clips, stated=stated)
    step, tolerance, time_unit = _numbering(source, settings, clips, listing.time_unit)
    nodata_in_files = nodata_in_files and nodata is None
    first = clips[0].info
    if nodata_in_files:
        nodata = first.nodata
        check_nodata(nodata, settings)
    elif nodata in first.merged:
        raise SourceError(
            f"{source} has several values of no data, and all become {first.nodata:g}; leave "
            "nodata= out"
        )
    opened = OpenSource(
        source=source,
        settings=settings,
        clips=clips,
        skipped=listing.skipped,
        damaged=headers.damaged,
        meta=_UNKNOWN,
        tolerance=tolerance,
        first=(clips[0].path, clips[0].part(0, 1).info),
        nodata_in_files=nodata_in_files,
        recorded=_recorded(settings, clips, listing.places),
    )
    opened = opened.with_meta(step, time_unit, nodata)
    for clip in clips:
        _stored_format(settings, clip.info, clip.path)
        check_meaning(opened, clip.info, clip.path)
    return opened


def check_formats(opened: OpenSource, progress: Progress | None = None) -> None:
    """Read the header of every frame.

    Raises:
        FrameFormatError: Names the first frame and the first that differs from it.
    """
    done, total = 0, opened.meta.clips.num_frames
    for clip in opened.clips:
        for path in clip.files():
            info = clip.info if clip.in_order else read_info(path, opened.settings.read_options)
            check_frame(opened, info, path)
            done += len(clip.numbers) if clip.in_order else 1
            if progress is not None:
                progress(done, total)


def check_first_formats(opened: OpenSource) -> None:
    """Refuse clips whose first frames differ in format, naming the first frame that differs.

    Raises:
        FrameFormatError: See `check_formats`.
    """
    settings, expected = opened.settings, opened.meta.frame_format
    if any(_stored_format(settings, c.info, c.path) != expected for c in opened.clips):
        # An earlier frame, inside a clip, may differ already.
        check_formats(opened)


def check_frame(opened: OpenSource, info: FileInfo, path: str) -> None:
    """Raise FrameFormatError unless a frame will be like the first one of the source."""
    check_meaning(opened, info, path)
    first_path, first = opened.first
    # Nearly all are, and need not be worked out.
    if (info.frame_format, info.alpha) == (first.frame_format, first.alpha):
        return
    found, expected = _stored_format(opened.settings, info, path), opened.meta.frame_format
    if found == expected:
        return
    advice = "try size="
    if found.channels != expected.channels:
        advice = "try mode=, drop_alpha= or background="
    if found.dtype != expected.dtype:
        advice = "choose one kind by include="
    raise FrameFormatError(
        f"{path} is {found}, {first_path} is {expected}; all frames of a store must have one "
        f"shape and dtype, {advice}, leave some out by exclude=, or convert them into "
        "stores of their own"
    )


def check_meaning(opened: OpenSource, info: FileInfo, path: str) -> None:
    """Raise FrameFormatError unless a frame's values mean what those of the first one do."""
    first_path, first = opened.first
    if opened.nodata_in_files and repr(info.nodata) != repr(opened.meta.nodata):
        here, there = (_shown_nodata(value) for value in (info.nodata, opened.meta.nodata))
        raise FrameFormatError(
            f"{path} has {here}, {first_path} has {there}; give the one that all frames have by "
            "nodata=, or convert them into stores of their own"
        )
    chosen = opened.settings
    blended = chosen.background is not None or chosen.drop_alpha
    if info.alpha != first.alpha and not (blended and info.alpha != "bands"):
        raise FrameFormatError(
            f"{path} has channels of the kind {info.alpha}, {first_path} has {first.alpha}; "
            "choose one kind by include=, or convert them into stores of their own"
        )
    for name in PACKING if info.packing or first.packing else ():
        if info.packing.get(name) != first.packing.get(name):
            raise FrameFormatError(
                f"{path} has the {name} {info.packing.get(name)}, {first_path} has "
                f"{first.packing.get(name)}; convert them into stores of their own"
            )


def check_nodata(nodata: float | None, settings: ConvertSettings) -> None:
    """Refuse to mix the value of no data with data."""
    averaged = settings.size is not None and settings.palette != "index"
    if nodata is not None and (
        averaged or settings.mode == "gray" or settings.background is not None
    ):
        raise ValueError(
            "size, mode gray and background would mix the nodata value with data; use crop, or "
            "keep the frames as they are"
        )


def _root(source: Path) -> Path:
    return source.parent if is_clip_path(source) else source


def _check_any(source: Path, clips: list[Clip], damaged: list[Damaged]) -> None:
    if not clips:
        raise SourceError(
            f"{source} has no frame that can be converted; the first of {len(damaged)}: "
            f"{damaged[0].reason}"
        )


def _stored_format(settings: ConvertSettings, info: FileInfo, path: str) -> FrameFormat:
    return PixelRule(settings).result_format(info.frame_format, path, info.alpha)


def _numbering(
    source: Path, settings: ConvertSettings, clips: list[Clip], time_unit: str | None
) -> tuple[int | None, int, str | None]:
    """The stated step, the tolerance and the unit of times of all clips."""
    if time_unit is not None and any(clip.in_order for clip in clips):
        raise SourceError(
            f"{source} holds frames with time stamps beside clips without; choose one kind by "
            "include="
        )
    units = {clip.info.time_unit for clip in clips}
    if len(units) > 1:
        raise SourceError(
            f"{source} holds clips whose frames are numbered by time in different units; convert "
            "them into stores of their own"
        )
    time_unit = time_unit or units.pop()
    step, tolerance = stated_steps(settings.list_rule, time_unit)
    return step, max([tolerance, *(clip.info.tolerance for clip in clips)]), time_unit


def _recorded(settings: ConvertSettings, clips: list[Clip], places: int) -> dict[str, Any]:
    """What is recorded of the source: of the meaning of values, what all clips share."""
    first, infos = clips[0].info, [clip.info for clip in clips]
    found: dict[str, Any] = {
        "frame_seconds": {
            clip.name: clip.info.frame_seconds
            for clip in clips
            if clip.in_order and clip.info.frame_seconds is not None
        },
        "frame_number_places": places,
        "packing": {
            name: value
            for name, value in first.packing.items()
            if all(info.packing.get(name) == value for info in infos)
        },
    }
    alike = all(info.coordinates == first.coordinates for info in infos)
    if alike and settings.size is None:
        top, bottom, left, right = settings.crop or (0, None, 0, None)
        parts = {"y": slice(top, bottom), "x": slice(left, right)}
        found["coordinates"] = {
            name: {**axis, "values": axis["values"][parts[name]]}
            for name, axis in first.coordinates.items()
        }
    channels = _stored_format(settings, first, clips[0].path).channels
    if first.alpha == "bands" or channels not in (1, 3):
        found["alpha"] = first.alpha
    return {name: value for name, value in found.items() if value}


def _shown_nodata(value: float | None) -> str:
    return "no value for no data" if value is None else f"{value:g} for no data"
