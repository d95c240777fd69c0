"""Frame numbers of a clip from the times at which its frames are shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from framewin.errors import SourceError
from framewin.schema import Int64Array, most_frequent
from framewin.sources.info import FileInfo

_USUAL_RATES = tuple(
    Fraction(rate * 1000, base)
    for rate in (24, 25, 30, 48, 50, 60, 15, 12, 10, 20, 100, 120)
    for base in (1000, 1001)
)
_ROUNDING_TICKS = 1.001
_LEAST_TICKS = 3
_COARSEST_ROUNDING = Fraction(1, 100)
"""Seconds; delays that differ by more are meant to."""
_MOST_TICKS = 2**53
VARIABLE = ", variable frame rate"
"""What is said behind the mode of such a clip."""


@dataclass(frozen=True, slots=True, eq=False)
class Timing:
    """When frames are shown."""

    numbers: Int64Array
    step: int
    """Usual difference of `numbers`; 1 unless the frame rate varies."""
    usual: int
    """Usual difference of time stamps, in ticks."""
    frame_seconds: Fraction


def timing_of(stamps: Int64Array, tick: Fraction, rates: Iterable[Fraction]) -> Timing:
    """Number frames by one rate where there is one that explains all their times.

    Args:
        stamps: Increasing times, in ticks.
        tick: In seconds.
        rates: Frames per second that are tried before the usual ones.
    """
    since = stamps - stamps[0]
    differences = np.diff(stamps)
    usual = most_frequent(differences)
    if not (differences % usual).any():
        return Timing(since // usual, 1, usual, usual * tick)
    # Many containers round stamps to milliseconds, in which few rates have whole durations.
    for rate in (*rates, *_USUAL_RATES):
        ticks = 1 / (rate * tick)
        numbers = np.rint(since / float(ticks)).astype(np.int64)
        error = abs(since - numbers * float(ticks)).max()
        steps = np.diff(numbers)
        rounded = ticks >= _LEAST_TICKS and error <= _ROUNDING_TICKS
        if rounded and (steps > 0).all() and most_frequent(steps) == 1:
            return Timing(numbers, 1, usual, ticks * tick)
    return Timing(since, usual, usual, usual * tick)


def with_delays(info: FileInfo, delays: Sequence[int], tick: Fraction, path: str) -> FileInfo:
    """An animation whose frames are each shown for so many ticks, with the numbers by its times.

    The delay of the last frame counts for nothing. Where no other has one, numbers stay as they
    are, and where only some have one that is noted. Delays that differ by a tick of at most 10 ms
    are one rate, rounded.

    Raises:
        SourceError: Delays in ticks too fine to be counted.
    """
    before = delays[:-1]
    if not any(before):
        return info
    if 0 in before:
        return replace(info, notes=(*info.notes, "delays, some of which are 0"))
    total = sum(before)
    if total > _MOST_TICKS:
        raise SourceError(f"{path} has delays too fine to be counted; write it again")
    stamps = np.cumsum([0, *before], dtype=np.int64)
    mean = total * tick / len(before)
    timing = timing_of(stamps, tick, [*_USUAL_RATES, 1 / mean])
    # Of one rate, such as 40 a second by delays of 2 and 3: no usual step, and no gap either.
    rounded = max(before) - min(before) <= 1 and tick <= _COARSEST_ROUNDING
    if rounded and (timing.step != 1 or (np.diff(timing.numbers) > 1).any()):
        timing = Timing(np.arange(len(delays)), 1, timing.usual, mean)
    return replace(
        info,
        mode=info.mode if timing.step == 1 else f"{info.mode}{VARIABLE}",
        numbers=timing.numbers,
        step=timing.step,
        frame_seconds=str(timing.frame_seconds),
    )
