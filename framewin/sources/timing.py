"""Frame numbers of a clip from the times at which its frames are shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from framewin.errors import SourceError
from framewin.schema import Int64Array, most_frequent

_USUAL_RATES = tuple(
    Fraction(rate * 1000, base)
    for rate in (24, 25, 30, 48, 50, 60, 15, 12, 10, 20, 100, 120)
    for base in (1000, 1001)
)
_ROUNDING_TICKS = 1.001
_LEAST_TICKS = 3


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


def timing_of_delays(delays: Sequence[int], tick: Fraction, path: str) -> Timing | None:
    """Like `timing_of`, of an animation whose frames are each shown for so many ticks.

    None where no frame says how long. The delay of the last one counts for nothing.

    Raises:
        SourceError: Some frames say it, and others do not.
    """
    before = delays[:-1]
    if not any(before):
        return None
    if 0 in before:
        raise SourceError(
            f"{path} (frame {before.index(0)}) has no delay, others have: when frames are shown "
            "is in doubt; write it again with a delay for each, or save its frames as PNG files"
        )
    stamps = np.cumsum([0, *before], dtype=np.int64)
    mean = Fraction(len(before)) / (int(stamps[-1]) * tick)
    return timing_of(stamps, tick, (mean,))
