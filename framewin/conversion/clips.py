"""The clips of a listing, once their first headers have been read.

Only then is it known whether `walk_1.tif` and `walk_2.tif` are two frames or two stacks.
"""

from __future__ import annotations

import errno
import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from framewin.errors import (
    FrameFormatError,
    FramewinError,
    MissingDependencyError,
    SourceAccessError,
    SourceChangedError,
    SourceError,
)
from framewin.schema import (
    TIME_UNITS,
    Int64Array,
    coarsest_unit,
    listed,
    most_frequent,
    shown_number,
)
from framewin.sources import (
    CLIP_SUFFIXES,
    USUAL_CLIP_SUFFIXES,
    clip_decoder,
    frame_decoder,
    kind_suffix,
)
from framewin.sources.info import STORE_KIND, ClipPart, FileInfo, ReadOptions
from framewin.sources.listing import ListedClip, ListedFile, Listing, named_files

_LARGEST_COMMON_STEP = 2**40
# The others are also what decoders and libraries say of damaged bytes.
_SYSTEM_ERRORS = errno.errorcode.keys() - {
    errno.EDOM, errno.EILSEQ, errno.EINVAL, errno.ENOSYS, errno.EOVERFLOW, errno.EPERM,
    errno.ERANGE, errno.ESPIPE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Damaged:
    """A frame, or a whole file of frames, that was left out because it is damaged."""

    file: str
    """Path of the file."""
    clip: str
    number: int | None
    """Frame number; None where a clip, or its end, is lost."""
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class FileClip:
    """The frames of one file that is a clip by itself."""

    name: str
    folder: Path
    file_name: str
    info: FileInfo
    numbers: Int64Array
    """Increasing, one per frame."""
    indices: Int64Array
    """Which of the file's frames they are."""

    @property
    def path(self) -> str:
        """Path of the file."""
        return f"{self.folder}{os.sep}{self.file_name}"

    @property
    def is_store(self) -> bool:
        """Whether framewin wrote the file."""
        return self.info.kind == STORE_KIND

    @property
    def file_names(self) -> Sequence[str]:
        """The file's name, once per frame."""
        return [self.file_name] * len(self.numbers)

    def paths(self, begin: int, end: int) -> list[str]:
        """The file's path, once for each of the frames [begin, end)."""
        return [self.path] * (min(end, len(self.numbers)) - begin)


Clip = ListedClip | FileClip


@dataclass(slots=True, eq=False)
class Resolved:
    """Clips, each with what its first readable frame is like."""

    clips: list[Clip]
    infos: list[FileInfo]
    damaged: list[Damaged]

    def add(self, clip: Clip, info: FileInfo) -> None:
        """Add a clip behind the others."""
        self.clips.append(clip)
        self.infos.append(info)


def resolve(
    source: Path,
    listing: Listing,
    options: ReadOptions,
    *,
    gaps: bool,
    named: bool = False,
    stated: bool = False,
) -> Resolved:
    """Read the header of each clip's first frame, and of each file that is a clip by itself.

    Args:
        source: What was listed.
        listing: Its clips.
        options: How files are read.
        gaps: Whether damaged files are left out; otherwise they are errors.
        named: Whether names tell the order of files of one frame each, whatever time they hold.
        stated: Whether the step, or its tolerance, is given in numbers of such files.

    Raises:
        SourceError: A file that is damaged or not what its suffix says.
    """
    found = Resolved([], [], [])
    names = {entry.name for entry in listing.clips}
    for entry in listing.clips:
        if isinstance(entry, ListedFile):
            _add_file(found, entry, options, gaps=gaps, alone=len(listing.clips) == 1)
        elif not _add_frames(found, entry, options, gaps=gaps, named=named):
            # The first file is a clip by itself, so all of them are.
            for file in _as_files(entry, source, names):
                _add_file(found, file, options, gaps=gaps)
    if len(found.clips) > 1:
        _refuse_frames_among(found.clips, options, named=named)
        _refuse_zarr_frames(found.clips)
        _join_steps(found, source)
    found.clips = _with_common_step(found.clips, stated=stated)
    found.infos = [
        clip.info if isinstance(clip, FileClip) else info
        for clip, info in zip(found.clips, found.infos, strict=True)
    ]
    return found


def read_info(path: str, options: ReadOptions) -> FileInfo:
    """What a file holds, from its header.

    Raises:
        SourceError: Not readable, or not of the kind its suffix says.
    """
    try:
        if kind_suffix(path, options.kind) in CLIP_SUFFIXES | USUAL_CLIP_SUFFIXES:
            return clip_decoder(path, options.kind).inspect_clip(path, options)
        decoder = frame_decoder(path, options.kind)
        with open(path, "rb") as file:
            return decoder.inspect(decoder.header(file), path, options)
    except OSError as exc:
        raise unreadable(path, exc) from exc


def unreadable(path: str, exc: BaseException) -> SourceError:
    """The error for a source file that the system does not let us read."""
    kind = SourceChangedError if isinstance(exc, FileNotFoundError) else SourceAccessError
    reason = "there is too little memory" if isinstance(exc, MemoryError) else str(exc)
    return kind(f"{path} cannot be read: {getattr(exc, 'strerror', None) or reason}")


def no_damage(path: str, exc: SourceError) -> FramewinError | None:
    """The error for a file that may be right, such as one on a disk that fails; None of damage.

    A frame of another format is no damage: leaving it out would be a decision of the user's.
    """
    if isinstance(exc, FrameFormatError | SourceAccessError | SourceChangedError):
        return exc
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, MissingDependencyError):
            return cause
        known = getattr(cause, "errno", None) in _SYSTEM_ERRORS
        # Of numcodecs, for a codec of Zarr that is not installed.
        known |= type(cause).__name__ == "UnknownCodecError"
        if known or isinstance(cause, MemoryError | ImportError):
            return unreadable(path, cause)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return None


def without(clip: Clip, positions: Sequence[int]) -> Clip:
    """A clip without some of its frames."""
    kept = np.setdiff1d(np.arange(len(clip.numbers)), positions)
    if isinstance(clip, FileClip):
        return replace(clip, numbers=clip.numbers[kept], indices=clip.indices[kept])
    names = [clip.file_names[i] for i in kept]
    return replace(clip, file_names=names, numbers=clip.numbers[kept])


def part_of(clip: Clip, first: int, last: int) -> Clip:
    """Frames [first, last) of a clip; of its file, only what reading them takes."""
    rows = slice(first, last)
    if isinstance(clip, FileClip):
        info = replace(clip.info, numbers=None, parts=(), coordinates={})
        return replace(clip, info=info, numbers=clip.numbers[rows], indices=clip.indices[rows])
    return replace(clip, file_names=clip.file_names[rows], numbers=clip.numbers[rows])


def is_clip(info: FileInfo, *, named: bool) -> bool:
    """Whether a file is a clip, not a frame whose time its name tells, or the file itself."""
    # The header of a PNG file does not tell how many frames follow.
    if info.frames > 1 or not info.is_clip or info.kind == "PNG":
        return info.is_clip
    return info.kind == STORE_KIND or (info.time_unit is not None and not named)


def _add_frames(
    found: Resolved, clip: ListedClip, options: ReadOptions, *, gaps: bool, named: bool
) -> bool:
    """Add a clip of files of one frame each; False where they turn out to be clips themselves."""
    lost: list[Damaged] = []
    info: FileInfo | None = None
    while info is None and len(lost) < len(clip.numbers):
        [path] = clip.paths(len(lost), len(lost) + 1)
        try:
            info = read_info(path, options)
        except SourceError as exc:
            _raise_unless_gap(path, exc, gaps=gaps)
            lost.append(Damaged(path, clip.name, int(clip.numbers[len(lost)]), str(exc)))
    if info is not None and is_clip(info, named=named):
        return False
    found.damaged += lost
    if info is not None:
        info = replace(info, is_clip=False, numbers=None, time_unit=None)
        found.add(without(clip, range(len(lost))) if lost else clip, info)
    return True


def _raise_unless_gap(path: str, exc: SourceError, *, gaps: bool) -> None:
    stop = no_damage(path, exc)
    if stop is not None:
        raise stop
    if not gaps:
        raise exc


def _as_files(clip: ListedClip, source: Path, names: set[str]) -> list[ListedFile]:
    relative = clip.folder.relative_to(source).as_posix()
    places = [("" if relative == "." else relative, name) for name in clip.file_names]
    return [file for _, file in named_files(source, places, names - {clip.name})]


def _add_file(
    found: Resolved, file: ListedFile, options: ReadOptions, *, gaps: bool, alone: bool = False
) -> None:
    """Add the clips of a file; those of one that is `alone` keep their names as they are."""
    try:
        info = clip_decoder(file.path, options.kind).inspect_clip(file.path, options)
        if info.frames > options.max_pixels:
            raise SourceError(
                f"{file.path} claims {info.frames:,} frames, more than the "
                f"{options.max_pixels:,} allowed; raise max_pixels= if it is right"
            )
        if info.cut is not None and not gaps:
            raise SourceError(
                f"{file.path} {info.cut}, it is cut short; copy it again, or keep what there is "
                "by on_error='gap'"
            )
    except OSError as exc:
        raise unreadable(file.path, exc) from exc
    except SourceError as exc:
        _raise_unless_gap(file.path, exc, gaps=gaps)
        found.damaged.append(Damaged(file.path, file.name, None, str(exc)))
        return
    if info.cut is not None:
        found.damaged.append(Damaged(file.path, file.name, None, info.cut))
    if found.infos and info.coordinates == found.infos[0].coordinates:
        # Kept once: those of thousands of files of one grid would fill the memory.
        info = replace(info, coordinates=found.infos[0].coordinates)
    indices = np.arange(info.frames, dtype=np.int64)
    numbers = indices if info.numbers is None else info.numbers
    parts = info.parts or (ClipPart("", 0, info.frames),)
    for part in parts:
        name = "/".join(filter(None, (file.name if not alone or not part.name else "", part.name)))
        rows = slice(part.begin, part.end)
        clip = FileClip(name, file.folder, file.file_name, info, numbers[rows], indices[rows])
        found.add(clip, info)


def _refuse_frames_among(clips: Sequence[Clip], options: ReadOptions, *, named: bool) -> None:
    """Refuse a folder of frames whose first file is a clip; with it out, they are one clip."""
    folders: dict[Path, dict[str, bool]] = {}
    for clip in clips:
        if isinstance(clip, FileClip) and kind_suffix(clip.path, options.kind) not in CLIP_SUFFIXES:
            files = folders.setdefault(clip.folder, {})
            files[clip.file_name] = is_clip(clip.info, named=named)
    for folder, files in folders.items():
        frames = [name for name, several in files.items() if not several]
        if len(files) > len(frames) > len(files) / 2:
            others = listed(name for name, several in files.items() if several)
            raise SourceError(
                f"{folder} holds {len(frames)} files of a single frame, such as {frames[0]}, "
                f"beside {others} of several; choose one kind by include= or exclude="
            )


def _refuse_zarr_frames(clips: Sequence[Clip]) -> None:
    """Refuse Zarr folders of one frame each: nothing tells their order, and none has a window."""
    files = [clip for clip in clips if isinstance(clip, FileClip) and not clip.is_store]
    single = [clip for clip in files if clip.info.frames == 1 and Path(clip.path).is_dir()]
    if len(single) == len(clips):
        raise SourceError(
            f"{single[0].folder} holds {len(single)} Zarr folders of a single frame each, such as "
            f"{single[0].file_name}; join them along time, as by xarray.open_mfdataset, or save "
            "each frame as .npy, HDF5 or netCDF4"
        )


def _join_steps(found: Resolved, source: Path) -> None:
    """Make one clip of a folder's files of one frame each, in the order of their own times."""
    by_folder: dict[Path, list[int]] = {}
    for place, clip in enumerate(found.clips):
        if isinstance(clip, FileClip):
            by_folder.setdefault(clip.folder, []).append(place)
    gone: set[int] = set()
    for folder, places in by_folder.items():
        clips = [clip for clip in (found.clips[p] for p in places) if isinstance(clip, FileClip)]
        if len(clips) > 1 and all(_is_step(clip) for clip in clips):
            relative = folder.relative_to(source).as_posix()
            taken = {clip.name for clip in found.clips}
            name = (source.resolve().name or "frames") if relative == "." else relative
            joined, unit = _in_order(clips, name if name not in taken else ".")
            found.clips[places[0]] = joined
            info = replace(clips[0].info, is_clip=False, numbers=None, time_unit=unit)
            found.infos[places[0]] = info
            gone.update(places[1:])
    found.clips = [clip for place, clip in enumerate(found.clips) if place not in gone]
    found.infos = [info for place, info in enumerate(found.infos) if place not in gone]


def _is_step(clip: FileClip) -> bool:
    """Whether a file is one frame with a time, that is read like any file of a frame."""
    timed = clip.info.time_unit is not None and clip.info.frames == 1 and not clip.is_store
    return timed and Path(clip.path).is_file()


def _in_order(clips: list[FileClip], name: str) -> tuple[ListedClip, str]:
    """Files of one frame each as a clip, and the unit of its times."""
    microseconds = [
        int(clip.numbers[0]) * (10**6 // TIME_UNITS[clip.info.time_unit or "us"]) for clip in clips
    ]
    order = sorted(range(len(clips)), key=microseconds.__getitem__)
    for one, other in itertools.pairwise(order):
        if microseconds[one] == microseconds[other]:
            raise SourceError(
                f"{clips[one].path} and {clips[other].path} both hold the frame of "
                f"{shown_number(microseconds[one], 'us')}; leave one out by exclude="
            )
    stamps = np.array([microseconds[place] for place in order], dtype=np.int64)
    unit = coarsest_unit([stamps], None)
    names = [clips[place].file_name for place in order]
    numbers = stamps // (10**6 // TIME_UNITS[unit])
    return ListedClip(name, clips[0].folder, names, numbers), unit


def _with_common_step(clips: list[Clip], *, stated: bool) -> list[Clip]:
    """Stretch the numbers of clips whose usual steps differ, for a store has but one step.

    That is so where the frame rate of one varies: its numbers are time stamps in ticks. Clips of
    files of one frame each have one step together. Times since 1970 stay what they are, in the
    finest of their units.
    """
    timed = [c for c in clips if isinstance(c, FileClip) and c.info.time_unit is not None]
    if timed and len(timed) == len(clips):
        return _in_common_unit(timed)
    steps = {clip.info.step for clip in clips if isinstance(clip, FileClip)}
    apart = [np.diff(clip.numbers) for clip in clips if isinstance(clip, ListedClip)]
    step = 0
    if steps and not stated and any(map(len, apart)):
        steps.add(step := most_frequent(np.concatenate(apart)))
    if len(steps) < 2:
        return clips
    common = math.lcm(*steps)
    if common > _LARGEST_COMMON_STEP:
        raise SourceError(
            f"{len(steps)} videos of variable frame rate have no common step; convert them into "
            "stores of their own"
        )
    factors = [
        common // clip.info.step if isinstance(clip, FileClip) else common // (step or common)
        for clip in clips
    ]
    return [
        replace(clip, numbers=clip.numbers * factor)
        for clip, factor in zip(clips, factors, strict=True)
    ]


def _in_common_unit(clips: list[FileClip]) -> list[Clip]:
    units = {clip.info.time_unit or "s" for clip in clips}
    finest = max(units, key=lambda unit: TIME_UNITS[unit])
    found: list[Clip] = []
    for clip in clips:
        factor = TIME_UNITS[finest] // TIME_UNITS[clip.info.time_unit or "s"]
        info = replace(clip.info, time_unit=finest, tolerance=clip.info.tolerance * factor)
        found.append(replace(clip, info=info, numbers=clip.numbers * factor))
    return found
