"""From a folder tree to clips and frame numbers; no file is opened unless its name is in doubt."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from pathlib import Path, PurePosixPath
from unicodedata import normalize

from framewin.arrays.containers import is_zarr
from framewin.errors import SourceError
from framewin.schema import TIME_UNITS, Int64Array, coarsest_unit, listed
from framewin.sources import (
    CLIP_SUFFIXES,
    SOURCES,
    USUAL_CLIP_SUFFIXES,
    kind_suffix,
    suffix_of,
)
from framewin.sources.names import (
    NameRule,
    Stream,
    natural_key,
    parse_step,
    streams_by_last_number,
    streams_by_regex,
    with_common_places,
    without_number,
)

_SYSTEM_FOLDERS = ("@eaDir", "__MACOSX", "$RECYCLE.BIN", "System Volume Information")
"""Folders that systems put beside files, with copies of them in another form."""

Probe = Callable[[str], bool | None]
"""Whether the file at a path is a clip, as its kind may be either; None if that is not known."""


@dataclass(frozen=True, slots=True, eq=False)
class ListedClip:
    """Files of one frame each, in the order of their numbers."""

    name: str
    """Path below the source, with forward slashes; the source's own name for its own frames."""
    folder: Path
    file_names: list[str]
    """One per frame, in `folder`."""
    numbers: Int64Array
    """Increasing, one per frame."""

    def paths(self, begin: int, end: int) -> list[str]:
        """Paths of the files of frames [begin, end)."""
        return [f"{self.folder}{os.sep}{name}" for name in self.file_names[begin:end]]


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file that is a clip by itself."""

    name: str
    """Path below the source without suffix; with it where that is taken."""
    folder: Path
    file_name: str

    @property
    def path(self) -> str:
        """Path of the file."""
        return f"{self.folder}{os.sep}{self.file_name}"


@dataclass(slots=True)
class Skipped:
    """Files that are not frames, by reason."""

    count: int
    example: str
    """Path of the first one below the source."""


@dataclass(frozen=True, slots=True)
class ListRule:
    """Which files count, and how their names are read."""

    names: NameRule = field(default_factory=NameRule)
    include: tuple[str, ...] = ()
    """Globs of paths below the source, of which a file must match one; `*` takes slashes too."""
    exclude: tuple[str, ...] = ()
    """Globs of paths below the source, of which it must match none."""
    step: int | str | None = None
    """Difference of neighbouring frame numbers, or a time such as "5min"."""
    step_tolerance: int | str | None = None
    """By how much differences may miss the step; like `step`."""
    kind: str | None = None
    """One of `KINDS`: what files of any suffix are."""

    def chosen(self) -> Callable[[str], bool]:
        """A test of paths below the source."""
        include = _any_glob(self.include)
        exclude = _any_glob(self.exclude)

        def chosen(path: str) -> bool:
            path = normalize("NFC", path)
            return (include is None or bool(include(path))) and not (exclude and exclude(path))

        return chosen


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """Everything found below a source."""

    clips: list[ListedClip | ListedFile]
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
    chosen: Callable[[str], bool] | None
    kind: str | None
    skipped: dict[str, Skipped] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    """Links to nothing."""

    def skip(self, reason: str, path: str) -> None:
        if reason not in self.skipped:
            # A name need not be text that can be printed.
            shown = os.fsencode(path).decode(errors="backslashreplace")
            self.skipped[reason] = Skipped(0, shown)
        self.skipped[reason].count += 1


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
        name = normalize("NFC", source.stem)
        return Listing([ListedFile(name, source.parent, source.name)], {})
    if not source.is_dir():
        found = "is a pipe, socket or device" if source.exists() else "does not exist"
        found = "is a file" if source.is_file() else found
        raise SourceError(
            f"{source} {found}; expected a folder of frames or clips, or one {_suffixes()} file, "
            "or state what it is by kind="
        )
    wanted = rule.chosen() if rule.include or rule.exclude else None
    scan = _Scan(source, wanted, rule.kind)
    folders = [(relative, names) for relative, names in _walk(scan) if names]
    if scan.broken:
        links = "is a broken link" if len(scan.broken) == 1 else "are broken links"
        raise SourceError(f"{listed(scan.broken)} {links}; remove or repair them")
    if not folders:
        others = sum(entry.count for entry in scan.skipped.values())
        raise SourceError(
            f"{source} holds no frame or clip ({others} other files); expected {_suffixes()}, or "
            "change include= and exclude=, or state what other files are by kind="
        )
    return _listing(scan, folders, rule, probe)


def _listing(
    scan: _Scan, folders: list[tuple[str, list[str]]], rule: ListRule, probe: Probe
) -> Listing:
    files: list[tuple[str, str]] = []
    frames: list[tuple[str, list[str]]] = []
    for relative, names in folders:
        suffixes = {name: kind_suffix(name, rule.kind) for name in names}
        clip_suffixes = _clip_suffixes(scan.source / relative, suffixes, probe)
        single = [name for name in names if suffixes[name] not in clip_suffixes]
        if len(single) < len(names):
            clip_files = (name for name in names if suffixes[name] in clip_suffixes)
            files += [(relative, name) for name in sorted(clip_files, key=natural_key)]
        if single:
            frames.append((relative, single))
    streams = _streams(scan, frames, rule.names, probe, files)
    with_common_places([stream for _, _, stream in streams])
    time_unit = _in_one_unit([stream for _, _, stream in streams], rule)
    own_name = _own_name(scan.source, [relative for relative, _ in folders])
    placed: list[tuple[str, ListedClip | ListedFile]] = []
    for relative, folder, stream in streams:
        name = _joined(own_name, relative, stream.name)
        placed.append((relative, ListedClip(name, folder, stream.file_names, stream.numbers)))
    placed += named_files(scan.source, files, {clip.name for _, clip in placed})
    placed.sort(key=_place)
    places = max((stream.places for _, _, stream in streams), default=0)
    clips = _unique([clip for _, clip in placed])
    return Listing(clips, scan.skipped, time_unit, places)


def _clip_suffixes(folder: Path, names: Mapping[str, str], probe: Probe) -> set[str]:
    """Of the suffixes of files in a folder, by name, those of clips by themselves."""
    suffixes = set(names.values())
    for suffix in suffixes & USUAL_CLIP_SUFFIXES:
        alike = sorted((name for name in names if names[name] == suffix), key=natural_key)
        # A clip of a single frame may be the first of clips.
        answers: set[bool | None] = set()
        for name in alike:
            answers.add(_answer(probe, f"{folder}{os.sep}{name}"))
            if True in answers:
                break
        if False in answers and True not in answers:
            suffixes.remove(suffix)
    return suffixes & (CLIP_SUFFIXES | USUAL_CLIP_SUFFIXES)


def _answer(probe: Probe, path: str) -> bool | None:
    try:
        return probe(path)
    except SourceError:
        return None


def _place(placed: tuple[str, ListedClip | ListedFile]) -> tuple[list[object], list[object]]:
    """Sort key that puts a folder's own clips before those of the folders in it."""
    relative, clip = placed
    folders: list[object] = [natural_key(part) for part in relative.split("/") if part]
    return folders, [*natural_key(clip.name)]


def _streams(
    scan: _Scan,
    frames: list[tuple[str, list[str]]],
    rule: NameRule,
    probe: Probe,
    files: list[tuple[str, str]],
) -> list[tuple[str, Path, Stream]]:
    """(path below the source, folder, stream) of all frames; clips among them go to `files`."""
    if rule.names_clips:
        paths = [
            f"{relative}/{name}" if relative else name for relative, ns in frames for name in ns
        ]
        found = streams_by_regex(paths, "", rule, lambda path: f"{scan.source}{os.sep}{path}")
        # The clip's name is all of it: neither the folder nor the source's name stands before it.
        return [(stream.name, scan.source, _nameless(stream)) for stream in found]
    result, reasons = [], []
    for relative, names in frames:
        folder = scan.source / relative
        try:
            result += [
                (relative, folder, s) for s in _folder_streams(folder, relative, names, rule)
            ]
        except SourceError as exc:
            unnumbered = () if rule.frame_regex else without_number(names)
            first = min(unnumbered or names, key=natural_key)
            try:
                if not probe(f"{folder}{os.sep}{first}"):
                    reasons.append(exc)
                    continue
            except SourceError as inside:
                reasons.append(inside if unnumbered else exc)
                continue
            files += [(relative, name) for name in sorted(names, key=natural_key)]
    if reasons:
        more = f" (and {len(reasons) - 1} more folders are refused)" if len(reasons) > 1 else ""
        raise SourceError(f"{reasons[0]}{more}")
    return result


def _folder_streams(
    folder: Path, relative: str, names: Sequence[str], rule: NameRule
) -> list[Stream]:
    def show(name: str) -> str:
        return f"{folder}{os.sep}{name}"

    if rule.frame_regex is None:
        return streams_by_last_number(names, show)
    return streams_by_regex(names, f"{relative}/" if relative else "", rule, show)


def _nameless(stream: Stream) -> Stream:
    stream.name = ""
    return stream


def _in_one_unit(streams: Sequence[Stream], rule: ListRule) -> str | None:
    """Bring time stamps to the coarsest unit that is exact, for the stated step, too."""
    if not rule.names.reads_times or not streams:
        return None
    step, tolerance = stated_steps(rule, "us")
    unit = coarsest_unit([stream.numbers for stream in streams], math.gcd(step or 0, tolerance))
    for stream in streams:
        stream.numbers = stream.numbers // (10**6 // TIME_UNITS[unit])
    return unit


def stated_steps(rule: ListRule, time_unit: str | None) -> tuple[int | None, int]:
    """The stated step and its tolerance, 0 by default, in the unit of the numbers.

    Raises:
        SourceError: A time for numbers that are no times, or the reverse, or a finer one than
            their unit.
    """
    found = []
    for name in ("step", "step_tolerance"):
        given = getattr(rule, name)
        value, is_duration = (
            (0, time_unit is not None) if given is None else parse_step(given, name)
        )
        factor = 10**6 // TIME_UNITS[time_unit] if time_unit else 1
        if is_duration != (time_unit is not None) or value % factor:
            expected = "a number, for names are not read as times"
            if time_unit:
                expected = f"a time such as 5min, in whole {time_unit}"
            raise SourceError(f"{name}={given!r} does not fit; expected {expected}")
        found.append(value // factor)
    return found[0] or None, found[1]


def _walk(scan: _Scan) -> Iterator[tuple[str, list[str]]]:
    """Yield (path below source, frame names) for each real folder, in natural order."""
    waiting = [PurePosixPath(".")]
    seen: set[tuple[int, int]] = set()
    while waiting:
        relative = waiting.pop()
        folder = scan.source / relative
        try:
            status = folder.stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            subfolders, names = _scan_folder(folder, relative, scan)
        except OSError as exc:
            raise SourceError(f"{folder} cannot be listed: {exc.strerror}") from exc
        yield "" if relative == PurePosixPath(".") else str(relative), names
        waiting += [relative / name for name in sorted(subfolders, key=natural_key, reverse=True)]


def _scan_folder(folder: Path, relative: PurePosixPath, scan: _Scan) -> tuple[list[str], list[str]]:
    """The subfolders and the frame names of one folder; the rest is counted as skipped."""
    subfolders, names = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            path = str(relative / entry.name)
            is_folder = entry.is_dir()
            is_plain_folder = is_folder and not is_zarr(Path(entry.path))
            if entry.name.startswith(".") or (is_folder and entry.name in _SYSTEM_FOLDERS):
                scan.skip("hidden", path)
            elif is_plain_folder:
                subfolders.append(entry.name)
                if suffix_of(entry.name) in SOURCES:
                    scan.skip("folder named like a frame", path)
            elif reason := _no_frame(entry, path, scan):
                scan.skip(reason, path)
            else:
                names.append(entry.name)
    return subfolders, names


def _no_frame(entry: os.DirEntry[str], path: str, scan: _Scan) -> str | None:
    """Why an entry that is no folder is not taken; None if it is."""
    is_folder = entry.is_dir()
    usual = is_folder or suffix_of(entry.name) in SOURCES
    # Those that are taken for any kind of file are never folders of Zarr.
    if is_folder if scan.kind is not None else not usual:
        return "of another kind"
    if scan.chosen is not None and not scan.chosen(path):
        return "not chosen"
    if entry.is_file() or entry.is_dir():
        return None
    if not Path(entry.path).exists():
        scan.broken.append(entry.path)
        return None
    # Opening one would wait for ever.
    return "a pipe, socket or device"


def _own_name(source: Path, relatives: Sequence[str]) -> str:
    own_name = source.resolve().name or "frames"
    taken = any(relative.split("/")[0] == own_name for relative in relatives)
    return "." if taken else own_name


def _joined(own_name: str, relative: str, stream: str) -> str:
    return normalize("NFC", "/".join(part for part in (relative or own_name, stream) if part))


def named_files(
    source: Path, files: Sequence[tuple[str, str]], taken: set[str]
) -> list[tuple[str, ListedFile]]:
    """Each clip file with its folder below the source, called by its path without suffix.

    Where that is not unique the suffix is kept.
    """
    stems = [
        normalize("NFC", f"{relative}/{Path(name).stem}".lstrip("/")) for relative, name in files
    ]
    counts = Counter([*stems, *taken])
    return [
        (
            relative,
            ListedFile(
                stem if counts[stem] == 1 else normalize("NFC", f"{relative}/{name}".lstrip("/")),
                source / relative,
                name,
            ),
        )
        for stem, (relative, name) in zip(stems, files, strict=True)
    ]


def _unique(clips: list[ListedClip | ListedFile]) -> list[ListedClip | ListedFile]:
    seen: dict[str, ListedClip | ListedFile] = {}
    for clip in clips:
        other = seen.setdefault(clip.name, clip)
        if other is not clip:
            raise SourceError(
                f"{_place_of(other)} and {_place_of(clip)} both give a clip named {clip.name}; "
                "rename one, or leave one out by exclude="
            )
    return clips


def _place_of(clip: ListedClip | ListedFile) -> str:
    """Where a clip is, in a way that tells names apart that look alike."""
    path = clip.path if isinstance(clip, ListedFile) else str(clip.folder)
    return (
        path if path == normalize("NFC", path) else f"{path} (accents as characters of their own)"
    )


def _any_glob(globs: Sequence[str]) -> Callable[[str], object] | None:
    # Names typed and names of files need not be composed alike.
    composed = (translate(normalize("NFC", glob)) for glob in globs)
    return re.compile("|".join(composed)).match if globs else None


def _suffixes() -> str:
    return ", ".join(SOURCES)
