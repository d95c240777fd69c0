"""From a folder tree to clips and frame numbers; no file is opened unless its name is in doubt."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unicodedata import normalize

import numpy as np

from framewin.arrays.file_kinds import is_zarr
from framewin.errors import SourceError
from framewin.schema import Int64Array, listed
from framewin.sources import CLIP_SUFFIXES, SOURCES, USUAL_CLIP_SUFFIXES, kind_suffix, suffix_of
from framewin.sources.clips import Clip
from framewin.sources.info import ListRule
from framewin.sources.names import (
    Stream,
    natural_key,
    streams_by_last_number,
    streams_by_regex,
    with_common_places,
    without_number,
)
from framewin.sources.steps import in_one_unit

_SYSTEM_FOLDERS = ("@eaDir", "__MACOSX", "$RECYCLE.BIN", "System Volume Information")
"""Folders that systems put beside files, with copies of them in another form."""
_NOTHING: Int64Array = np.empty(0, np.int64)

Probe = Callable[[str], bool | None]
"""Whether the file at a path is a clip, as its kind may be either; None if that is not known."""


@dataclass(slots=True)
class Skipped:
    """Files that are not frames, by reason."""

    count: int
    example: str
    """Path of the first one below the source."""


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """Everything found below a source."""

    clips: list[Clip]
    skipped: dict[str, Skipped]
    """Reason to what was passed over for it."""
    time_unit: str | None = None
    """Where the names are read as time stamps, the unit of the numbers."""
    places: int = 0
    """Decimal places that frame numbers have been multiplied away."""


@dataclass(slots=True)
class _Scan:
    """What is passed along while folders are walked."""

    source: Path
    rule: ListRule
    probe: Probe
    skipped: dict[str, Skipped] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    """Links whose target does not exist."""

    def skip(self, reason: str, path: str) -> None:
        if reason not in self.skipped:
            # A name need not be text that can be printed.
            shown = os.fsencode(path).decode(errors="backslashreplace")
            self.skipped[reason] = Skipped(0, shown)
        self.skipped[reason].count += 1

    def path(self, relative: str, name: str) -> str:
        return f"{self.source / relative}{os.sep}{name}"


def list_frames(
    source: Path, rule: ListRule | None = None, probe: Probe = lambda path: None
) -> Listing:
    """Find the frames below a folder, and which of them follow one another.

    A file counts when its suffix is in `SOURCES`, in upper or lower case, and neither its name nor
    that of a folder above it starts with a dot. Each folder that holds frames is a clip, or
    several where names carry several streams; each video, animation or stack is one. Linked
    folders are followed, each real folder once.

    Args:
        source: A folder, or a file that is a clip by itself.
        rule: How names are read; by default the last number is the frame's.
        probe: Called with the first file of a folder whose names are in doubt: files that are
            clips by themselves may be called anything, and what it raises comes before doubts
            about names; and with the GIF, APNG or .npz files of each folder up to a clip.

    Raises:
        SourceError: No folder, no frames, or names that leave the order of frames in doubt.
    """
    rule = rule or ListRule()
    usual = rule.kind is not None or suffix_of(source.name) in SOURCES
    if is_zarr(source) or (source.is_file() and usual):
        return Listing(
            [_of_file(source.parent, normalize("NFC", source.stem), "", source.name)], {}
        )
    if not source.is_dir():
        found = "is a pipe, socket or device" if source.exists() else "does not exist"
        found = "is a file" if source.is_file() else found
        raise SourceError(
            f"{source} {found}; expected a folder of frames or clips, or one "
            f"{', '.join(SOURCES)} file, or state what it is by kind="
        )
    scan = _Scan(source, rule, probe)
    folders = [(relative, names) for relative, names in _walk(scan) if names]
    if scan.broken:
        links = "is a broken link" if len(scan.broken) == 1 else "are broken links"
        raise SourceError(f"{listed(scan.broken)} {links}; remove or repair them")
    if not folders:
        others = sum(entry.count for entry in scan.skipped.values())
        raise SourceError(
            f"{source} holds no frame or clip ({others} other files); expected "
            f"{', '.join(SOURCES)}, or change include= and exclude=, or state what other files "
            "are by kind="
        )
    return _listing(scan, folders)


def _listing(scan: _Scan, folders: list[tuple[str, dict[str, str]]]) -> Listing:
    files: list[tuple[str, str]] = []
    frames: list[tuple[str, list[str]]] = []
    for relative, suffixes in folders:
        clips = _clip_suffixes(scan, relative, suffixes)
        single = [name for name, suffix in suffixes.items() if suffix not in clips]
        if len(single) < len(suffixes):
            found = (name for name, suffix in suffixes.items() if suffix in clips)
            files += [(relative, name) for name in sorted(found, key=natural_key)]
        if single:
            frames.append((relative, single))
    own = scan.source.resolve().name or "frames"
    if any(relative.split("/")[0] == own for relative, _ in folders):
        own = "."
    streams = _streams(scan, frames, files, own)
    with_common_places([stream for _, _, stream in streams])
    time_unit = in_one_unit([stream for _, _, stream in streams], scan.rule)
    placed = [
        (place, Clip(s.name, scan.source / relative, relative, s.file_names, s.numbers))
        for place, relative, s in streams
    ]
    taken = {clip.name for _, clip in placed}
    placed += [(clip.relative, clip) for clip in named_files(scan.source, files, taken)]
    placed.sort(key=_place)
    places = max((stream.places for _, _, stream in streams), default=0)
    return Listing(_unique([clip for _, clip in placed]), scan.skipped, time_unit, places)


def _clip_suffixes(scan: _Scan, relative: str, names: Mapping[str, str]) -> set[str]:
    """Of the suffixes of files in a folder, by name, those of clips by themselves."""
    suffixes = set(names.values())
    for suffix in suffixes & USUAL_CLIP_SUFFIXES:
        alike = sorted((name for name in names if names[name] == suffix), key=natural_key)
        # A clip of a single frame may be the first of clips.
        answers: set[bool | None] = set()
        for name in alike:
            with suppress(SourceError):
                answers.add(scan.probe(scan.path(relative, name)))
            if True in answers:
                break
        if False in answers and True not in answers:
            suffixes.remove(suffix)
    return suffixes & (CLIP_SUFFIXES | USUAL_CLIP_SUFFIXES)


def _place(placed: tuple[str, Clip]) -> tuple[list[object], list[object]]:
    """Sort key that puts a folder's own clips before those of the folders in it."""
    relative, clip = placed
    return [natural_key(part) for part in relative.split("/") if part], [*natural_key(clip.name)]


def _streams(
    scan: _Scan, frames: list[tuple[str, list[str]]], files: list[tuple[str, str]], own: str
) -> list[tuple[str, str, Stream]]:
    """(place in the order of clips, folder, stream) of all frames, each stream with its clip's
    name; files among them that are clips go to `files`."""
    rule = scan.rule.names
    if rule.names_clips:
        paths = [f"{folder}/{name}" if folder else name for folder, ns in frames for name in ns]
        found = streams_by_regex(paths, "", rule, lambda path: f"{scan.source}{os.sep}{path}")
        return [(s.name, "", _named(s, s.name or own)) for s in found]
    result, reasons = [], []
    by_regex = rule.frame_regex is not None
    for relative, names in frames:
        try:
            if by_regex:
                prefix = f"{relative}/" if relative else ""
                found = streams_by_regex(names, prefix, rule, partial(scan.path, relative))
            else:
                found = streams_by_last_number(names, partial(scan.path, relative))
            for stream in found:
                name = "/".join(filter(None, (relative or own, stream.name)))
                result.append((relative, relative, _named(stream, name)))
        except SourceError as exc:
            unnumbered = () if by_regex else without_number(names)
            first = min(unnumbered or names, key=natural_key)
            try:
                if scan.probe(scan.path(relative, first)):
                    files += [(relative, name) for name in sorted(names, key=natural_key)]
                else:
                    reasons.append(exc)
            except SourceError as inside:
                reasons.append(inside if unnumbered else exc)
    if reasons:
        more = f" (and {len(reasons) - 1} more folders are refused)" if len(reasons) > 1 else ""
        raise SourceError(f"{reasons[0]}{more}")
    return result


def _named(stream: Stream, name: str) -> Stream:
    stream.name = normalize("NFC", name)
    return stream


def _walk(scan: _Scan) -> Iterator[tuple[str, dict[str, str]]]:
    """Each real folder below the source, in natural order, and its frames: name -> suffix."""
    waiting = [""]
    seen: set[tuple[int, int]] = set()
    chosen = scan.rule.chosen()
    while waiting:
        prefix = waiting.pop()
        folder = scan.source / prefix
        try:
            status = folder.stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            subfolders, names = _scan_folder(folder, prefix, scan, chosen)
        except OSError as exc:
            raise SourceError(f"{folder} cannot be listed: {exc.strerror}") from exc
        yield prefix[:-1], names
        below = sorted(subfolders, key=natural_key, reverse=True)
        waiting += [f"{prefix}{name}/" for name in below]


def _scan_folder(
    folder: Path, prefix: str, scan: _Scan, chosen: Callable[[str], bool] | None
) -> tuple[list[str], dict[str, str]]:
    """The subfolders and the frames of one folder, name -> suffix; the rest is skipped."""
    subfolders, names = [], {}
    kind = scan.rule.kind
    with os.scandir(folder) as entries:
        for entry in entries:
            name, is_folder, reason = entry.name, entry.is_dir(), ""
            suffix = suffix_of(name)
            if name.startswith(".") or (is_folder and name in _SYSTEM_FOLDERS):
                reason = "hidden"
            elif is_folder and not is_zarr(Path(entry.path)):
                subfolders.append(name)
                reason = "folder named like a frame" if suffix in SOURCES else ""
            # Where any kind of file is taken, folders of Zarr are not.
            elif is_folder if kind is not None else not (is_folder or suffix in SOURCES):
                reason = "of another kind"
            elif chosen is not None and not chosen(prefix + name):
                reason = "not chosen"
            elif is_folder or entry.is_file():
                names[name] = kind_suffix(name, kind)
            elif not Path(entry.path).exists():
                scan.broken.append(entry.path)
            else:
                # Opening one would wait for ever.
                reason = "a pipe, socket or device"
            if reason:
                scan.skip(reason, prefix + name)
    return subfolders, names


def named_files(source: Path, files: Sequence[tuple[str, str]], taken: set[str]) -> list[Clip]:
    """A clip for each file, (folder below the source, name), called by its path without suffix.

    Where that is not unique the suffix is kept.
    """
    stems = [
        normalize("NFC", f"{relative}/{Path(name).stem}".lstrip("/")) for relative, name in files
    ]
    counts = Counter([*stems, *taken])
    return [
        _of_file(
            source,
            stem if counts[stem] == 1 else normalize("NFC", f"{relative}/{name}".lstrip("/")),
            relative,
            name,
        )
        for stem, (relative, name) in zip(stems, files, strict=True)
    ]


def _of_file(source: Path, name: str, relative: str, file_name: str) -> Clip:
    return Clip(name, source / relative, relative, [file_name], _NOTHING, _NOTHING)


def _unique(clips: list[Clip]) -> list[Clip]:
    seen: dict[str, Clip] = {}
    for clip in clips:
        other = seen.setdefault(clip.name, clip)
        if other is not clip:
            raise SourceError(
                f"{_shown_place(other)} and {_shown_place(clip)} both give a clip named "
                f"{clip.name}; rename one, or leave one out by exclude="
            )
    return clips


def _shown_place(clip: Clip) -> str:
    """Where a clip is, in a way that tells names apart that look alike."""
    path = clip.path if clip.in_order else str(clip.folder)
    return (
        path if path == normalize("NFC", path) else f"{path} (accents as characters of their own)"
    )
