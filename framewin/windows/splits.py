"""Parts of a store for training and scoring that share no frame."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from framewin.schema import ClipTable
from framewin.windows.order import EpochOrder
from framewin.windows.spec import Runs, WindowSpec

ROUNDING = 1e-9


def split_by_clip(
    clips: ClipTable, spec: WindowSpec, fractions: Mapping[str, float], *, seed: int
) -> dict[str, Runs]:
    """Give whole clips to the parts, in a seeded order that is the same on every machine.

    Clips too short for a window are given to no part.

    Args:
        clips: All clips of the store.
        spec: The windows that will be cut.
        fractions: Part name to share of the clips, for example
            `{"train": 0.8, "validation": 0.2}`; every part gets at least one clip.
        seed: Chooses which clips go where.

    Raises:
        ValueError: Bad fractions, or fewer clips with a window than parts.
    """
    _check(fractions)
    runs = Runs.of(clips)
    run_clips = clips.segment_clips
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
    clips: ClipTable, spec: WindowSpec, fractions: Mapping[str, float]
) -> dict[str, Runs]:
    """Cut every clip into consecutive parts with one window span left out between them.

    The span left out (embargo) keeps the last frames of one part from being near copies of the
    first frames of the next; the fractions are of the other frames. A clip of 100 frames, windows
    that span 10:

    >>> clips = ClipTable.from_frame_numbers(["a"], [range(100)])
    >>> parts = split_by_time(clips, WindowSpec(5, 5), {"train": 0.8, "validation": 0.2})
    >>> [(name, int(r.starts[0]), int(r.lengths[0])) for name, r in parts.items()]
    [('train', 0, 72), ('validation', 82, 18)]

    Raises:
        ValueError: Bad fractions, or a part in which no window fits.
    """
    _check(fractions)
    runs = Runs.of(clips)
    pieces: dict[str, list[Runs]] = {name: [] for name in fractions}
    for first, length in zip(clips.clip_starts, clips.clip_lengths, strict=True):
        used = int(length) - spec.span * (len(fractions) - 1)
        for place, (name, begin, end) in enumerate(_shares(fractions, used)):
            shift = int(first) + place * spec.span
            pieces[name].append(runs.within(begin + shift, end + shift))
    parts = {name: _join(found) for name, found in pieces.items()}
    for name, part in parts.items():
        longest = int(part.lengths.max(initial=0))
        if longest < spec.span:
            raise ValueError(
                f"no window fits into the {name} part: a window spans {spec.span} frames, the "
                f"part's longest run has {longest}; shorten the window or give it a larger share"
            )
    return parts


def _check(fractions: Mapping[str, float]) -> None:
    if not fractions or min(fractions.values()) <= 0 or sum(fractions.values()) > 1 + ROUNDING:
        raise ValueError(f"fractions must be above 0 and sum to at most 1, got {dict(fractions)}")


def _shares(fractions: Mapping[str, float], total: int) -> list[tuple[str, int, int]]:
    """Half-open ranges of `total` items, one per part, each with at least one item if possible."""
    total = max(total, 0)
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
