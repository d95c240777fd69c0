"""What a conversion will do, decided before anything is written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from framewin.conversion.clips import (
    Clip,
    Damaged,
    FileClip,
    Resolved,
    is_clip,
    part_of,
    read_info,
    resolve,
    without,
)
from framewin.conversion.pixels import PixelRule
from framewin.conversion.settings import ConvertSettings
from framewin.errors import FrameFormatError, SourceError, StoreError
from framewin.remote import Location, location, refuse_url
from framewin.schema import PACKING, ClipTable, FrameFormat, Progress, StoreMeta
from framewin.sources import is_clip_path
from framewin.sources.info import FileInfo
from framewin.sources.listing import Listing, Skipped, list_frames, stated_steps
from framewin.stores import durable, format_module, format_of
from framewin.stores.codecs import Layout


@dataclass(frozen=True, slots=True)
class Target:
    """What kind of store is wanted."""

    format: str | None = None
    """One of `framewin.stores.FORMATS`; by default what the store's suffix says."""
    layout: Layout = field(default_factory=Layout)
    """How the frames shall lie."""
    nodata: float | None = None
    """Pixel value that stands for no data."""
    statistics: bool = False
    """Whether mean, motion and no-data of each frame are recorded."""


@dataclass(frozen=True, slots=True, eq=False)
class ConversionPlan:
    """A checked intention: which files become which rows of which store."""

    source: Path
    dest: Path
    settings: ConvertSettings
    clips: list[Clip]
    """In store order."""
    formats: list[FrameFormat]
    """Of each clip's first frame, as it will be stored."""
    skipped: dict[str, Skipped]
    """Files that are not frames, by reason."""
    damaged: list[Damaged]
    """Frames that are left out, as far as they are known."""
    meta: StoreMeta
    target: Target
    """How the store shall be."""
    format: Any
    """The module that writes it; None where a store is compared."""
    needed_bytes: int
    """Disk space that the store takes at most."""
    tolerance: int = 0
    """By how much differences of neighbouring frame numbers may miss the step."""
    notes: tuple[str, ...] = ()
    """What is present in the first file of a clip but not applied."""
    first_path: str = ""
    """Of a part of a plan, path of the whole plan's first frame, which all must be like."""
    alpha: str = "straight"
    """Of the first frame, see `FileInfo`."""
    nodata_in_files: bool = False
    """Whether the no-data value is what all files say; otherwise it was given."""
    packing: Mapping[str, Any] = field(default_factory=dict)
    """Of the first frame, see `FileInfo`."""

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

    def part(self, begin: int, end: int) -> ConversionPlan:
        """Rows [begin, end) as a plan that can be read, and pickled: it holds nothing else."""
        found = list(self.pieces(begin, end))
        clips = [part_of(self.clips[index], first, last) for index, first, last in found]
        table = self.meta.clips
        meta = StoreMeta(
            self.meta.frame_format,
            ClipTable.from_frame_numbers(
                [clip.name for clip in clips],
                [clip.numbers for clip in clips],
                step=table.step,
                time_unit=table.time_unit,
            ),
            nodata=self.meta.nodata,
        )
        return replace(
            self,
            clips=clips,
            formats=[self.formats[index] for index, _, _ in found],
            skipped={},
            damaged=[],
            meta=meta,
            format=None,
            first_path=next(self.paths(0, 1)),
        )

    def relative_files(self) -> list[tuple[str, Sequence[str]]]:
        """Per clip, its folder below the source ("" for the source itself) and its file names."""
        return [(self.relative_folder(clip), clip.file_names) for clip in self.clips]

    def relative_folder(self, clip: Clip) -> str:
        """The folder of a clip below the source; "" for the source itself."""
        if clip.folder == self.source.parent and is_clip_path(self.source):
            return ""
        folder = clip.folder.relative_to(self.source).as_posix()
        return "" if folder == "." else folder

    def without(self, damaged: Mapping[int, Damaged]) -> ConversionPlan:
        """The plan that leaves out some more rows.

        Raises:
            SourceError: Nothing is left.
        """
        starts = self.meta.clips.clip_starts
        rows = np.array(sorted(damaged), dtype=np.int64)
        owners = self.meta.clips.clips_of(rows)
        kept = [
            without(clip, (rows[owners == index] - starts[index]).tolist())
            for index, clip in enumerate(self.clips)
        ]
        alive = [index for index, clip in enumerate(kept) if len(clip.numbers)]
        gone = [*self.damaged, *(damaged[row] for row in rows.tolist())]
        # The step stays, for the frames that are left may seem to have another.
        return _plan(
            replace(self, damaged=gone),
            [kept[index] for index in alive],
            [self.formats[index] for index in alive],
            step=self.meta.clips.step,
            time_unit=self.meta.clips.time_unit,
            extra={},
        )


def plan_conversion(
    source: str | Path,
    dest: str | Path,
    settings: ConvertSettings | None = None,
    target: Target | None = None,
) -> ConversionPlan:
    """List the frames of a source, and refuse what cannot be converted.

    Reads the header of the first frame of each clip and writes nothing.

    Args:
        source: A folder of frames or clips, at any depth, or a file that is a clip by itself.
        dest: The store to make; its suffix chooses the format where `target` does not.
        settings: How files are read and what becomes of frames.
        target: How the store shall be.

    Raises:
        SourceError: See `list_frames`; or a first frame that is not an image of its kind.
        FrameFormatError: Frames of different shape or dtype.
        StoreError: `dest` exists, lies inside `source` or holds it, has an unknown suffix, or
            there is too little room for it.
        ValueError: A no-data value that no pixel can have.
    """
    plan = draft_conversion(source, dest, settings, target)
    if any(found != plan.formats[0] for found in plan.formats):
        # An earlier frame, inside a clip, may differ already: name the first that does.
        check_formats(plan)
    _check_space(plan)
    return plan


def draft_conversion(
    source: str | Path,
    dest: str | Location,
    settings: ConvertSettings | None = None,
    target: Target | None = None,
    *,
    lenient: bool = False,
    new_dest: bool = True,
) -> ConversionPlan:
    """Like `plan_conversion`, but clips may differ in their formats, and space may be short.

    A lenient draft leaves damaged files out even where they would stop the conversion. Without
    `new_dest`, the store may be there: it is to be compared.
    """
    refuse_url(
        source, "framewin convert reads files of this machine; framewin fetch brings a store"
    )
    source = Path(source)
    settings, target = settings or ConvertSettings(), target or Target()
    if new_dest:
        refuse_url(
            dest, "framewin convert writes to this machine; convert to a path, then upload it"
        )
    # Remote only if it is not new, and not written to.
    place = cast(Path, location(dest))
    if new_dest:
        module = format_module(place, target.format)
        _check_places(source, place, dry=lenient)
    else:
        format_of(place)
        module = None
    _check_nodata(target, settings)
    options = settings.read_options
    named = settings.frame_regex is not None
    # Indices are refused of animations, which are clips all the same.
    probed = replace(options, palette="color")
    listing = list_frames(
        source, settings.list_rule, lambda path: is_clip(read_info(path, probed), named=named)
    )
    gaps = lenient or settings.on_error == "gap"
    folder = source.parent if is_clip_path(source) else source
    stated = (settings.step, settings.step_tolerance) != (None, None)
    found = resolve(folder, listing, options, gaps=gaps, named=named, stated=stated)
    if listing.time_unit is not None and any(isinstance(c, FileClip) for c in found.clips):
        raise SourceError(
            f"{source} holds frames with time stamps beside clips without; choose one kind by "
            "include="
        )
    empty = StoreMeta(FrameFormat(1, 1, 1, "uint8"), ClipTable.from_frame_numbers(["-"], [[0]]))
    draft = ConversionPlan(
        source,
        place,
        settings,
        clips=[],
        formats=[],
        skipped=listing.skipped,
        damaged=found.damaged,
        meta=empty,
        target=target,
        format=module,
        needed_bytes=0,
        nodata_in_files=new_dest and target.nodata is None,
    )
    return _first_plan(draft, listing, found)


def check_formats(plan: ConversionPlan, progress: Progress | None = None) -> None:
    """Read the header of every frame.

    Raises:
        FrameFormatError: Names the first frame and the first that differs from it.
    """
    total = plan.meta.clips.num_frames
    done = 0
    for clip, form in zip(plan.clips, plan.formats, strict=True):
        if isinstance(clip, FileClip):
            check_format(plan, form, clip.path)
        for path in clip.paths(0, len(clip.numbers)) if not isinstance(clip, FileClip) else ():
            check_format(plan, stored_format(plan, path), path)
            done += 1
            if progress is not None:
                progress(done, total)


def stored_format(plan: ConversionPlan, path: str) -> FrameFormat:
    """What the frame in a file will be stored as, from its header."""
    info = read_info(path, plan.settings.read_options)
    check_meaning(plan, info, path)
    return PixelRule(plan.settings).result_format(info.frame_format, path, info.alpha)


def check_meaning(plan: ConversionPlan, info: FileInfo, path: str) -> None:
    """Raise FrameFormatError unless a frame's values mean what those of the first one do."""
    expected = plan.meta.nodata
    if plan.nodata_in_files and repr(info.nodata) != repr(expected):
        raise FrameFormatError(
            f"{path} has {_shown_nodata(info.nodata)}, {_first(plan)} has {_shown_nodata(expected)}"
            "; give the one that all frames have by nodata=, or convert them into stores of their "
            "own"
        )
    chosen = plan.settings
    blended = chosen.background is not None or chosen.drop_alpha
    if info.alpha != plan.alpha and not (blended and info.alpha != "bands"):
        raise FrameFormatError(
            f"{path} has channels of the kind {info.alpha}, {_first(plan)} has {plan.alpha}; "
            "choose one kind by include=, or convert them into stores of their own"
        )
    if info.packing or plan.packing:
        for name in PACKING:
            here, there = info.packing.get(name), plan.packing.get(name)
            if here != there:
                raise FrameFormatError(
                    f"{path} has the {name} {here}, {_first(plan)} has {there}; convert them into "
                    "stores of their own"
                )


def _shown_nodata(value: float | None) -> str:
    return "no value for no data" if value is None else f"{value:g} for no data"


def _first(plan: ConversionPlan) -> str:
    return plan.first_path or next(plan.paths(0, 1))


def check_format(plan: ConversionPlan, found: FrameFormat, path: str) -> None:
    """Raise FrameFormatError unless a frame is like the first one of the plan."""
    expected = plan.meta.frame_format
    if found == expected:
        return
    first = _first(plan)
    advice = "try size="
    if found.channels != expected.channels:
        advice = "try mode=, drop_alpha= or background="
    if found.dtype != expected.dtype:
        advice = "choose one kind by include="
    raise FrameFormatError(
        f"{path} is {found}, {first} is {expected}; all frames of a store must have one "
        f"shape and dtype, {advice}, leave some out by exclude=, or convert them into "
        "stores of their own"
    )


def relative_path(plan: ConversionPlan, path: str) -> str:
    """A frame's path below the source."""
    root = plan.source.parent if is_clip_path(plan.source) else plan.source
    return path.removeprefix(f"{root}{os.sep}")


def _first_plan(draft: ConversionPlan, listing: Listing, found: Resolved) -> ConversionPlan:
    rule = PixelRule(draft.settings)
    formats = [
        rule.result_format(info.frame_format, clip.paths(0, 1)[0], info.alpha)
        for clip, info in zip(found.clips, found.infos, strict=True)
    ]
    seconds = {
        clip.name: clip.info.frame_seconds
        for clip in found.clips
        if isinstance(clip, FileClip) and clip.info.frame_seconds is not None
    }
    extra: dict[str, Any] = {"frame_seconds": seconds} if seconds else {}
    if listing.places:
        extra["frame_number_places"] = listing.places
    units = {info.time_unit for info in found.infos}
    if len(units) > 1:
        raise SourceError(
            f"{draft.source} holds clips whose frames are numbered by time in different units; "
            "convert them into stores of their own"
        )
    time_unit = listing.time_unit or next(iter(units), None)
    step, tolerance = stated_steps(draft.settings.list_rule, time_unit)
    tolerance = max([tolerance, *(info.tolerance for info in found.infos)])
    if found.infos:
        first = found.infos[0]
        nodata = first.nodata if draft.nodata_in_files else draft.target.nodata
        if nodata in first.merged:
            raise SourceError(
                f"{draft.source} has several values of no data, and all become {first.nodata:g}; "
                "leave nodata= out"
            )
        target = replace(draft.target, nodata=nodata)
        draft = replace(draft, alpha=first.alpha, packing=first.packing, target=target)
        extra |= _kept(draft, found.infos)
        if first.alpha == "bands" or formats[0].channels not in (1, 3):
            extra["alpha"] = first.alpha
    if draft.nodata_in_files:
        _check_nodata(draft.target, draft.settings)
    notes = tuple(dict.fromkeys(note for info in found.infos for note in info.notes))
    draft = replace(draft, tolerance=tolerance, notes=notes)
    plan = _plan(draft, found.clips, formats, step=step, time_unit=time_unit, extra=extra)
    for clip, info in zip(found.clips, found.infos, strict=True):
        check_meaning(plan, info, clip.paths(0, 1)[0])
    return plan


def _kept(draft: ConversionPlan, infos: list[FileInfo]) -> dict[str, Any]:
    """What is recorded of the meaning of values: what all clips share."""
    first, chosen = infos[0], draft.settings
    packing = {
        name: value
        for name, value in first.packing.items()
        if all(info.packing.get(name) == value for info in infos)
    }
    kept = {"packing": packing} if packing else {}
    alike = all(info.coordinates == first.coordinates for info in infos)
    if first.coordinates and alike and chosen.size is None:
        top, bottom, left, right = chosen.crop or (0, None, 0, None)
        parts = {"y": slice(top, bottom), "x": slice(left, right)}
        kept["coordinates"] = {
            name: {**found, "values": found["values"][parts[name]]}
            for name, found in first.coordinates.items()
        }
    return kept


def _plan(
    draft: ConversionPlan,
    clips: list[Clip],
    formats: list[FrameFormat],
    *,
    step: int | None,
    time_unit: str | None,
    extra: Mapping[str, Any],
) -> ConversionPlan:
    """A draft with its clips, and what follows from them."""
    if not clips:
        raise SourceError(
            f"{draft.source} has no frame that can be converted; the first of "
            f"{len(draft.damaged)}: {draft.damaged[0].reason}"
        )
    table = ClipTable.from_frame_numbers(
        [clip.name for clip in clips],
        [clip.numbers for clip in clips],
        step=step,
        time_unit=time_unit,
        tolerance=draft.tolerance,
    )
    _check_step(draft, table)
    kept = {key: draft.meta.conversion[key] for key in _EXTRAS if key in draft.meta.conversion}
    damaged = [
        {
            "file": relative_path(draft, d.file),
            "clip": d.clip,
            "number": d.number,
            "reason": d.reason,
        }
        for d in draft.damaged
    ]
    conversion = {**draft.settings.as_json(), **kept, **extra, "damaged": damaged}
    meta = StoreMeta(formats[0], table, nodata=draft.target.nodata, conversion=conversion)
    name_bytes = sum(len(clip.name) + len(file) for clip in clips for file in clip.file_names)
    needed = 0
    if draft.format is not None:
        needed = draft.format.estimate_bytes(meta, draft.target.layout, name_bytes)
    # Attributes are written several times over.
    needed += 4 * len(str(conversion))
    plan = replace(draft, clips=clips, formats=formats, meta=meta, needed_bytes=needed)
    _check_names(plan)
    return plan


_EXTRAS = ("frame_seconds", "frame_number_places", "packing", "coordinates", "alpha")


def _check_places(source: Path, dest: Path, *, dry: bool) -> None:
    durable.check_new(dest, dry=dry)
    real_source, real_dest = source.resolve(), dest.resolve()
    if real_dest.is_relative_to(real_source):
        raise StoreError(f"{dest} lies inside the source {source}; choose a place outside it")
    if real_source.is_relative_to(real_dest):
        raise StoreError(f"the source {source} lies inside {dest}; choose another place")


def _check_step(draft: ConversionPlan, table: ClipTable) -> None:
    """Refuse a stated step by which no frame follows another."""
    stated = draft.settings.step
    alone = len(table.segment_starts) == table.num_frames > len(table.names)
    if stated is not None and alone:
        raise SourceError(
            f"{draft.source} has no two frames that are {stated} apart; leave step= out, allow for "
            "uneven steps by step_tolerance=, or take every n-th frame of a window by frame_step"
        )


def _check_nodata(target: Target, settings: ConvertSettings) -> None:
    """Refuse to mix the value of no data with data."""
    averaged = settings.size is not None and settings.palette != "index"
    if target.nodata is not None and (
        averaged or settings.mode == "gray" or settings.background is not None
    ):
        raise ValueError(
            "size, mode gray and background would mix the nodata value with data; use crop, or "
            "keep the frames as they are"
        )


def _check_names(plan: ConversionPlan) -> None:
    for clip in plan.clips:
        names = [clip.file_name] if isinstance(clip, FileClip) else clip.file_names
        for text in (str(clip.folder), clip.name, *names):
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
