"""Parts of a store for training and scoring that share no frame."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any
from unicodedata import normalize

import numpy as np

from framewin.schema import ClipTable, listed
from framewin.windows.order import EpochOrder
from framewin.windows.spec import Runs, WindowSpec

ROUNDING = 1e-9
SPLIT_FILE_VERSION = 1

ClipChoice = str | Sequence[str] | re.Pattern[str]
"""Clips of a part: a name or glob pattern, several, or a regular expression that is searched."""


@dataclass(frozen=True, slots=True, eq=False)
class SplitTable:
    """Which rows of a store belong to which part, in a form that can be kept."""

    by: str
    """`"clip"` or `"time"`."""
    span: int
    """Rows of the windows that it was made for; by time, parts are as far apart."""
    parts: Mapping[str, Runs]

    def to_json(self, clips: ClipTable, identity: str) -> str:
        """Text of a split file.

        Args:
            clips: Of the store.
            identity: Of the store, which is checked when the file is read.
        """
        record = {
            "framewin_split": SPLIT_FILE_VERSION,
            "store": identity,
            "by": self.by,
            "span": self.span,
            "parts": {name: _in_clips(clips, runs) for name, runs in self.parts.items()},
        }
        return json.dumps(record, indent=1)

    @classmethod
    def from_json(cls, text: str, clips: ClipTable, identity: str) -> SplitTable:
        """What `to_json` wrote.

        Raises:
            ValueError: Not a split file, or one of another store.
        """
        try:
            record = json.loads(text)
            version = record["framewin_split"]
            if version != SPLIT_FILE_VERSION:
                raise ValueError(f"is of version {version}, this framewin reads 1; update it")
            store, by, span, parts = (record[key] for key in ("store", "by", "span", "parts"))
        except (json.JSONDecodeError, KeyError, TypeError, RecursionError) as exc:
            raise ValueError(f"is not a split file ({exc!r})") from None
        if store != identity:
            raise ValueError("is of another store, or of this one before it changed; split again")
        try:
            found = {name: _in_rows(clips, kept) for name, kept in parts.items()}
            if type(span) is not int or not all(_lie_in_segments(clips, r) for r in found.values()):
                raise ValueError("frames that are not in a row")
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as exc:
            raise ValueError(f"is damaged: {exc!r}; split again") from None
        return cls(by, span, found)


def split_by_clip(
    clips: ClipTable,
    spec: WindowSpec,
    fractions: Mapping[str, float],
    *,
    seed: int,
    used: Runs | None = None,
) -> dict[str, Runs]:
    """Give whole clips to the parts, in a seeded order that is the same on every machine.

    Clips too short for a window are given to no part.

    Args:
        clips: All clips of the store.
        spec: The windows that will be cut.
        fractions: Part name to share of the clips, for example
            `{"train": 0.8, "validation": 0.2}`; every part gets at least one clip.
        seed: Chooses which clips go where.
        used: Of the clips to split; all by default.

    Raises:
        ValueError: Bad fractions, or fewer clips with a window than parts.
    """
    _check(fractions)
    runs = Runs.of(clips) if used is None else used
    run_clips = clips.clips_of(runs.starts)
    usable = np.unique(run_clips[runs.lengths >= spec.span])
    if len(usable) < len(fractions):
        raise ValueError(
            f"cannot split {len(usable)} clips with windows of {spec.span} frames into "
            f"{len(fractions)} parts; split by time instead"
        )
    shuffled = usable[EpochOrder(len(usable), seed=seed).windows(0, np.arange(len(usable)))]
    return {
        name: runs[np.isin(run_clips, shuffled[begin:end])]
        for name, begin, end in _shares(fractions, len(usable))
    }


def split_by_time(
    clips: ClipTable, spec: WindowSpec, fractions: Mapping[str, float], *, used: Runs | None = None
) -> dict[str, Runs]:
    """Cut every clip into consecutive parts with one window span left out between them.

    Stretches that are too short for a window are given to no part. The span left out (embargo)
    keeps the last frames of one part from being near copies of the first frames of the next; the
    fractions are of the other frames. Where a part would have no window in any of several clips,
    the windows of all clips are cut in a row instead, as far apart.

    A clip of 100 frames, windows that span 10:

    >>> clips = ClipTable.from_frame_numbers(["a"], [range(100)])
    >>> parts = split_by_time(clips, WindowSpec(5, 5), {"train": 0.8, "validation": 0.2})
    >>> [(name, int(r.starts[0]), int(r.lengths[0])) for name, r in parts.items()]
    [('train', 0, 72), ('validation', 82, 18)]

    Raises:
        ValueError: Bad fractions, or a part in which no window fits.
    """
    _check(fractions)
    runs = Runs.of(clips) if used is None else used
    members = np.unique(clips.clips_of(runs.starts))
    pieces: dict[str, list[Runs]] = {name: [] for name in fractions}
    ranges = zip(clips.clip_starts[members], clips.clip_lengths[members], strict=True)
    for first, length in ranges:
        kept = int(length) - spec.span * (len(fractions) - 1)
        for place, (name, begin, end) in enumerate(_shares(fractions, kept)):
            shift = int(first) + place * spec.span
            pieces[name].append(runs.within(begin + shift, end + shift))
    parts = {name: _join(found) for name, found in pieces.items()}
    if len(members) > 1 and not _all_hold_windows(parts, spec):
        in_a_row = _cut_in_a_row(runs, spec, fractions)
        parts = in_a_row if _all_hold_windows(in_a_row, spec) else parts
    for name, part in parts.items():
        longest = int(part.lengths.max(initial=0))
        if longest < spec.span:
            raise ValueError(
                f"no window fits into the {name} part: a window spans {spec.span} frames, the "
                f"part's longest run has {longest}; shorten the window or give it a larger share"
            )
    return {name: part[part.lengths >= spec.span] for name, part in parts.items()}


def _all_hold_windows(parts: Mapping[str, Runs], spec: WindowSpec) -> bool:
    return all(int(part.lengths.max(initial=0)) >= spec.span for part in parts.values())


def _cut_in_a_row(runs: Runs, spec: WindowSpec, fractions: Mapping[str, float]) -> dict[str, Runs]:
    """Cut the windows of all runs, one run after the other; most parts lie in one clip then."""
    counts = np.maximum(0, runs.lengths - spec.span + 1)
    firsts = np.cumsum(counts) - counts
    # Windows that overlap the last one of a part, or the span behind it.
    apart = 2 * spec.span - 1
    kept = int(counts.sum()) - apart * (len(fractions) - 1)
    parts = {}
    for place, (name, begin, end) in enumerate(_shares(fractions, kept)):
        first, last = (np.clip(n + place * apart - firsts, 0, counts) for n in (begin, end))
        starts, lengths = runs.starts + first, last - first + spec.span - 1
        parts[name] = Runs(starts[last > first], lengths[last > first])
    return parts


def split_by_choice(
    clips: ClipTable,
    spec: WindowSpec,
    choices: Mapping[str, ClipChoice],
    *,
    used: Runs | None = None,
) -> dict[str, Runs]:
    """Give the clips that are named to the parts; clips that no part names are left out.

    Args:
        clips: All clips of the store.
        spec: The windows that will be cut.
        choices: Part name to the clips it gets.
        used: Of the clips that may be given; all by default.

    Raises:
        ValueError: A name or pattern that no clip has, a clip in two parts, or a part in which
            no window fits.
    """
    owner: dict[int, str] = {}
    parts: dict[str, Runs] = {}
    runs = Runs.of(clips) if used is None else used
    for part, choice in choices.items():
        members = _members(clips.names, choice)
        for clip in members:
            if clip in owner:
                raise ValueError(
                    f"clip {clips.names[clip]!r} is in the parts {owner[clip]} and {part}; "
                    "a clip may be in one"
                )
            owner[clip] = part
        parts[part] = runs[np.isin(clips.clips_of(runs.starts), members)]
        if int(parts[part].lengths.max(initial=0)) < spec.span:
            raise ValueError(f"no window of {spec.span} frames fits into the {part} part")
    return parts


def clips_called(names: Sequence[str], wanted: Sequence[str]) -> list[int | None]:
    """Which clip each of the wanted names means: the one of just that name, or composed alike.

    Args:
        names: Of all clips.
        wanted: As typed; letters with accents need not be composed as in the names of files.

    Returns:
        Clip numbers, with None for names that no clip has.

    Raises:
        ValueError: Several clips have a name, but for the composition of its letters.
    """
    exact = {name: i for i, name in enumerate(names)}
    alike: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        alike.setdefault(normalize("NFC", name), []).append(i)
    found: list[int | None] = []
    for name in wanted:
        same = alike.get(normalize("NFC", name), [])
        if len(same) > 1 and name not in exact:
            raise ValueError(
                f"{name!r} may mean {len(same)} clips, whose names differ only in how letters are "
                f"composed: {listed(ascii(names[i]) for i in same)}; write one of them as it is"
            )
        found.append(exact.get(name, same[0] if same else None))
    return found


def _members(names: Sequence[str], choice: ClipChoice) -> list[int]:
    composed = [normalize("NFC", name) for name in names]
    forms = list(enumerate(zip(names, composed, strict=True)))
    if isinstance(choice, re.Pattern):
        found = [i for i, form in forms if any(map(choice.search, form))]
        if not found:
            raise ValueError(f"no clip matches {choice.pattern!r}; there are {listed(names)}")
        return found
    wanted = [choice] if isinstance(choice, str) else list(choice)
    found = []
    for given, exact in zip(wanted, clips_called(names, wanted), strict=True):
        pattern = normalize("NFC", given)
        matching = (
            [i for i, form in forms if fnmatchcase(form[0], given) or fnmatchcase(form[1], pattern)]
            if exact is None
            else [exact]
        )
        if not matching:
            raise ValueError(f"no clip is called or matches {given!r}; there are {listed(names)}")
        found += matching
    return sorted(set(found))


def _in_clips(clips: ClipTable, runs: Runs) -> list[list[Any]]:
    """Runs as [clip, first frame in it, end]."""
    owners = clips.clips_of(runs.starts)
    begins = runs.starts - clips.clip_starts[owners]
    rows = zip(owners.tolist(), begins.tolist(), runs.lengths.tolist(), strict=True)
    return [[clips.names[clip], begin, begin + length] for clip, begin, length in rows]


def _in_rows(clips: ClipTable, kept: list[list[Any]]) -> Runs:
    places = dict(zip(clips.names, clips.clip_starts.tolist(), strict=True))
    starts = [places[clip] + begin for clip, begin, _ in kept]
    lengths = [end - begin for _, begin, end in kept]
    return Runs(np.array(starts, dtype=np.int64), np.array(lengths, dtype=np.int64))


def _lie_in_segments(clips: ClipTable, runs: Runs) -> bool:
    """Whether no run leaves the store, its clip or the frames between two gaps."""
    if len(runs.starts) and (runs.starts.min() < 0 or runs.lengths.min() < 1):
        return False
    segments = np.searchsorted(clips.segment_starts, runs.starts, side="right") - 1
    ends = clips.segment_starts + clips.segment_lengths
    return bool((runs.starts + runs.lengths <= ends[segments]).all())


def _check(fractions: Mapping[str, float]) -> None:
    if not fractions or min(fractions.values()) <= 0 or sum(fractions.values()) > 1 + ROUNDING:
        raise ValueError(f"fractions must be above 0 and sum to at most 1, got {dict(fractions)}")


def _shares(fractions: Mapping[str, float], total: int) -> list[tuple[str, int, int]]:
    """Half-open ranges of `total` items, one per part, each with at least one item if possible."""
    bounds = [0]
    for place, share in enumerate(np.cumsum(list(fractions.values())), start=1):
        left_for_others = len(fractions) - place
        bound = min(round(float(share) * total), total - left_for_others)
        bounds.append(max(bound, bounds[-1] + 1))
    return [(name, a, b) for name, (a, b) in zip(fractions, pairwise(bounds), strict=True)]


def _join(pieces: list[Runs]) -> Runs:
    return Runs(
        np.concatenate([piece.starts for piece in pieces]),
        np.concatenate([piece.lengths for piece in pieces]),
    )
