"""From names in a folder tree to clips and frame numbers; no file is opened."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from framewin.errors import SourceError
from framewin.schema import Int64Array
from framewin.sources import SOURCES

# ASCII digits only: \d takes superscripts and other scripts' digits, which int() may refuse.
_DIGIT_CHARACTERS = "0123456789"
_AFTER_LAST_DIGIT = re.compile(r"[^0-9]*\Z")
_DIGITS = re.compile(r"([0-9]+)")
_ENDS_LIKE_DECIMAL = re.compile(r"[0-9][.,]\Z")
_INT64_DIGITS = 18


@dataclass(frozen=True, slots=True, eq=False)
class ListedClip:
    """The frames of one folder, in the order of their numbers."""

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


@dataclass(slots=True)
class Skipped:
    """Files that are not frames, by reason."""

    count: int
    example: str
    """Path of the first one below the source."""


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """Everything found below a source."""

    clips: list[ListedClip]
    skipped: dict[str, Skipped]
    """Reason to what was passed over for it."""


def list_frames(source: Path) -> Listing:
    """Find the frames below a folder; each folder that holds frames is a clip.

    A file is a frame when its suffix is in `SOURCES`, in upper or lower case, and its name does
    not start with a dot. Its number is the last run of digits in the name. Linked folders are
    followed, each real folder once.

    Raises:
        SourceError: No folder, no frames, or names that leave the order of frames in doubt.
    """
    if not source.is_dir():
        found = "is a file" if source.exists() else "does not exist"
        raise SourceError(f"{source} {found}; expected a folder of {_suffixes()} frames")
    skipped: dict[str, Skipped] = {}
    folders = [
        (relative, folder, names) for relative, folder, names in _walk(source, skipped) if names
    ]
    if not folders:
        others = sum(entry.count for entry in skipped.values())
        raise SourceError(f"{source} holds no {_suffixes()} frame ({others} other files)")
    names_below = {str(relative) for relative, _, _ in folders}
    own_name = source.resolve().name or "frames"
    own_name = "." if own_name in names_below else own_name
    clips = [
        _clip(own_name if relative == PurePosixPath(".") else str(relative), folder, names)
        for relative, folder, names in folders
    ]
    return Listing(clips, skipped)


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Sort key that puts cam2 before cam10.

    >>> sorted(["cam10", "cam2", "cam"], key=natural_key)
    ['cam', 'cam2', 'cam10']
    """
    pieces = _DIGITS.split(text)
    return [(0, int(p), p) if p[:1] in _DIGIT_CHARACTERS else (1, 0, p) for p in pieces if p]


def _walk(
    source: Path, skipped: dict[str, Skipped]
) -> Iterator[tuple[PurePosixPath, Path, list[str]]]:
    """Yield (path below source, folder, frame names) for each real folder, in natural order."""
    waiting = [PurePosixPath(".")]
    seen: set[tuple[int, int]] = set()
    while waiting:
        relative = waiting.pop()
        folder = source / relative
        try:
            status = folder.stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            subfolders, names = _scan(folder, relative, skipped)
        except OSError as exc:
            raise SourceError(f"{folder} cannot be listed: {exc.strerror}") from exc
        yield relative, folder, names
        waiting += [relative / name for name in sorted(subfolders, key=natural_key, reverse=True)]


def _scan(
    folder: Path, relative: PurePosixPath, skipped: dict[str, Skipped]
) -> tuple[list[str], list[str]]:
    """The subfolders and the frame names of one folder; the rest is counted as skipped."""
    subfolders, names = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            reason = None
            if entry.is_dir():
                subfolders.append(entry.name)
                if os.path.splitext(entry.name)[1].lower() in SOURCES:
                    reason = "folder named like a frame"
            elif entry.name.startswith("."):
                reason = "hidden"
            elif os.path.splitext(entry.name)[1].lower() not in SOURCES:
                reason = f"not {_suffixes()}"
            elif entry.is_symlink() and not entry.is_file():
                raise SourceError(f"{entry.path} is a link to nothing; remove or repair it")
            else:
                names.append(entry.name)
            if reason:
                example = str(relative / entry.name)
                skipped.setdefault(reason, Skipped(0, example)).count += 1
    return subfolders, names


def _clip(name: str, folder: Path, file_names: list[str]) -> ListedClip:
    numbers = _frame_numbers(folder, file_names)
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    ordered = [file_names[i] for i in order]
    tie = np.flatnonzero(np.diff(numbers) == 0)
    if len(tie):
        first, second = sorted(ordered[tie[0] : tie[0] + 2])
        raise SourceError(
            f"{folder / first} and {second} both have frame number {numbers[tie[0]]}; "
            "rename or remove one"
        )
    return ListedClip(name, folder, ordered, numbers)


def _frame_numbers(folder: Path, file_names: list[str]) -> Int64Array:
    """The last number of each name, where all names differ in nothing else."""
    numbers = np.empty(len(file_names), dtype=np.int64)
    pattern: tuple[str, str] | None = None
    widths = set()
    for i, file_name in enumerate(file_names):
        before, digits, after = _last_number(file_name[: file_name.rindex(".")])
        if not digits:
            raise SourceError(
                f"{folder / file_name} has no number in its name; expected one that gives its "
                "place in time, as in frame_0001.png"
            )
        if pattern is None:
            pattern = (before, after)
        elif pattern != (before, after):
            first, second = sorted((file_names[0], file_name), key=natural_key)
            raise SourceError(
                f"{folder / first} and {second} differ in more than their last number; "
                "put the frames of each recording into a folder of their own"
            )
        if len(digits) > _INT64_DIGITS and len(digits.lstrip("0")) > _INT64_DIGITS:
            raise SourceError(
                f"{folder / file_name} has a frame number of more than {_INT64_DIGITS} digits"
            )
        widths.add(len(digits))
        numbers[i] = int(digits)
    if len(widths) > 1 and pattern is not None and _ENDS_LIKE_DECIMAL.search(pattern[0]):
        shortest, longest = (pick(file_names, key=len) for pick in (min, max))
        raise SourceError(
            f"{folder / longest} and {shortest} look like decimal numbers of different length, "
            "whose order is in doubt; pad them to the same number of digits"
        )
    return numbers


def _last_number(stem: str) -> tuple[str, str, str]:
    """A name without suffix as (text before its last number, the digits, text after them).

    >>> _last_number("cam2_f07"), _last_number("t0012.depth")
    (('cam2_f', '07', ''), ('t', '0012', '.depth'))
    """
    with_number = stem if stem[-1:] in _DIGIT_CHARACTERS else _AFTER_LAST_DIGIT.sub("", stem)
    before = with_number.rstrip(_DIGIT_CHARACTERS)
    return before, with_number[len(before) :], stem[len(with_number) :]


def _suffixes() -> str:
    return ", ".join(SOURCES)
