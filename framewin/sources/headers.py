"""The clips of a listing, once their first headers have been read.

Only then is it known whether `walk_1.tif` and `walk_2.tif` are two frames or two stacks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from framewin.errors import SourceError
from framewin.schema import listed
from framewin.sources import (
    CLIP_SUFFIXES,
    USUAL_CLIP_SUFFIXES,
    clip_decoder,
    frame_decoder,
    kind_suffix,
)
from framewin.sources.clips import Clip
from framewin.sources.damage import Damaged, reason_for_gap, unreadable
from framewin.sources.info import STORE_KIND, ClipPart, FileInfo, ReadOptions
from framewin.sources.listing import Listing, named_files
from framewin.sources.steps import joined


@dataclass(slots=True, eq=False)
class Headers:
    """Reads the header of each clip's first frame, and of each file that is a clip by itself."""

    source: Path
    """The folder that was listed."""
    options: ReadOptions
    gaps: bool
    """Whether damaged files are left out; otherwise they are errors."""
    named: bool
    """Whether names tell the order of files of one frame each, whatever time they hold."""
    store_info: Callable[[str], FileInfo]
    """What a file holds that is a store of framewin's."""
    clips: list[Clip] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)

    def read(self, listing: Listing) -> None:
        """Fill `clips` and `damaged`.

        Raises:
            SourceError: A file that is damaged or not what its suffix says.
        """
        names = {clip.name for clip in listing.clips}
        for clip in listing.clips:
            if clip.in_order:
                self._add_file(clip, alone=len(listing.clips) == 1)
            elif not self._add_frames(clip):
                # The first file is a clip by itself, so all of them are.
                files = [(clip.relative, name) for name in clip.file_names]
                for file in named_files(self.source, files, names - {clip.name}):
                    self._add_file(file)
        if len(self.clips) > 1:
            self._refuse_frames_among_clips()
            self._refuse_zarr_frames()
            self._join_files_of_one_frame()

    def _add_frames(self, clip: Clip) -> bool:
        """Add a clip of files of one frame each; False where they turn out to be clips."""
        lost: list[Damaged] = []
        for place, number in enumerate(clip.numbers):
            [path] = clip.paths(place, place + 1)
            try:
                info = read_info(path, self.options)
                break
            except SourceError as exc:
                reason = reason_for_gap(path, exc, gaps=self.gaps)
                lost.append(Damaged(path, clip.name, int(number), reason))
        else:
            self.damaged += lost
            return True
        if is_clip(info, named=self.named):
            return False
        self.damaged += lost
        info = replace(info, is_clip=False, numbers=None, time_unit=None)
        self.clips.append(replace(clip.without(range(len(lost))) if lost else clip, info=info))
        return True

    def _add_file(self, clip: Clip, *, alone: bool = False) -> None:
        """Add the clips of a file; those of one that is `alone` keep their names as they are."""
        path = clip.path
        try:
            info = self._clip_info(path)
        except (SourceError, OSError) as exc:
            reason = reason_for_gap(path, exc, gaps=self.gaps)
            self.damaged.append(Damaged(path, clip.name, None, reason))
            return
        if info.cut is not None:
            self.damaged.append(Damaged(path, clip.name, None, info.cut))
        first = self.clips[0].info if self.clips else info
        if info.coordinates == first.coordinates:
            # Kept once: those of thousands of files of one grid would fill the memory.
            info = replace(info, coordinates=first.coordinates)
        indices = np.arange(info.frames, dtype=np.int64)
        numbers = indices if info.numbers is None else info.numbers
        for part in info.parts or (ClipPart("", 0, info.frames),):
            names = ("" if alone and part.name else clip.name, part.name)
            rows = slice(part.begin, part.end)
            self.clips.append(
                replace(
                    clip,
                    name="/".join(filter(None, names)),
                    numbers=numbers[rows],
                    indices=indices[rows],
                    info=info,
                )
            )

    def _clip_info(self, path: str) -> FileInfo:
        options = self.options
        info = clip_decoder(path, options.kind).inspect_clip(path, options)
        if info.kind == STORE_KIND:
            info = self.store_info(path)
        if info.frames > options.max_pixels:
            raise SourceError(
                f"{path} claims {info.frames:,} frames, more than the {options.max_pixels:,} "
                "allowed; raise max_pixels= if it is right"
            )
        if info.cut is not None and not self.gaps:
            raise SourceError(
                f"{path} {info.cut}, it is cut short; copy it again, or keep what there is by "
                "on_error='gap'"
            )
        return info

    def _refuse_frames_among_clips(self) -> None:
        """Refuse a folder of frames whose first file is a clip; with it out, they are one clip."""
        folders: dict[Path, dict[str, bool]] = {}
        for clip in self.clips:
            suffix = kind_suffix(clip.path, self.options.kind)
            if clip.in_order and suffix not in CLIP_SUFFIXES:
                several = is_clip(clip.info, named=self.named)
                folders.setdefault(clip.folder, {})[clip.file_names[0]] = several
        for folder, files in folders.items():
            frames = [name for name, several in files.items() if not several]
            if len(files) > len(frames) > len(files) / 2:
                others = listed(name for name, several in files.items() if several)
                raise SourceError(
                    f"{folder} holds {len(frames)} files of a single frame, such as {frames[0]}, "
                    f"beside {others} of several; choose one kind by include= or exclude="
                )

    def _refuse_zarr_frames(self) -> None:
        """Refuse Zarr folders of one frame each: nothing tells their order, none has a window."""
        single = [c for c in self.clips if _is_single(c) and Path(c.path).is_dir()]
        if len(single) == len(self.clips):
            raise SourceError(
                f"{single[0].folder} holds {len(single)} Zarr folders of a single frame each, such "
                f"as {single[0].file_names[0]}; join them along time, as by "
                "xarray.open_mfdataset, or save each frame as .npy, HDF5 or netCDF4"
            )

    def _join_files_of_one_frame(self) -> None:
        """Make one clip of a folder's files of one frame each, in the order of their own times."""
        folders: dict[str, list[Clip]] = {}
        for clip in self.clips:
            if clip.in_order:
                folders.setdefault(clip.relative, []).append(clip)
        taken = {clip.name for clip in self.clips}
        replaced: dict[int, Clip | None] = {}
        for relative, clips in folders.items():
            if len(clips) > 1 and all(map(_is_timed_frame, clips)):
                name = relative or self.source.resolve().name or "frames"
                replaced |= dict.fromkeys(map(id, clips))
                replaced[id(clips[0])] = joined(clips, "." if name in taken else name)
        kept = (replaced.get(id(clip), clip) for clip in self.clips)
        self.clips = [clip for clip in kept if clip is not None]


def _is_single(clip: Clip) -> bool:
    return clip.in_order and clip.info.frames == 1 and not clip.is_store


def _is_timed_frame(clip: Clip) -> bool:
    """Whether a file is one frame with a time, that is read like any file of a frame."""
    return _is_single(clip) and clip.info.time_unit is not None and Path(clip.path).is_file()


def is_clip(info: FileInfo, *, named: bool) -> bool:
    """Whether a file is a clip, not a frame whose time its name tells, or the file itself."""
    # The header of a PNG file does not tell how many frames follow.
    if info.frames > 1 or not info.is_clip or info.kind == "PNG":
        return info.is_clip
    return info.kind == STORE_KIND or (info.time_unit is not None and not named)


def read_info(path: str, options: ReadOptions) -> FileInfo:
    """What a file holds, from its header; of a store of framewin's, only that it is one.

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
