"""One unit and one step for the frame numbers of all clips of a source."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from framewin.errors import SourceError
from framewin.schema import MICROSECONDS, coarsest_unit, most_frequent, shown_number
from framewin.sources.clips import Clip
from framewin.sources.info import ListRule
from framewin.sources.names import Stream, parse_step

_LARGEST_COMMON_STEP = 2**40


def microseconds(unit: str | None) -> int:
    """Microseconds of a unit of time stamps; 1 of none."""
    return MICROSECONDS[unit] if unit else 1


def in_one_unit(streams: Sequence[Stream], rule: ListRule) -> str | None:
    """Bring time stamps to the coarsest unit that is exact, for the stated step, too."""
    if not rule.names.reads_times or not streams:
        return None
    step, tolerance = stated_steps(rule, "us")
    unit = coarsest_unit([stream.numbers for stream in streams], math.gcd(step or 0, tolerance))
    for stream in streams:
        stream.numbers = stream.numbers // microseconds(unit)
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
        factor = microseconds(time_unit)
        if is_duration != (time_unit is not None) or value % factor:
            expected = "a number, for names are not read as times"
            if time_unit:
                expected = f"a time such as 5min, in whole {time_unit}"
            raise SourceError(f"{name}={given!r} does not fit; expected {expected}")
        found.append(value // factor)
    return found[0] or None, found[1]


def joined(clips: Sequence[Clip], name: str) -> Clip:
    """Files of one frame each, which know their times, as one clip."""
    stamps = [int(c.numbers[0]) * microseconds(c.info.time_unit) for c in clips]
    order = sorted(range(len(clips)), key=stamps.__getitem__)
    for one, other in itertools.pairwise(order):
        if stamps[one] == stamps[other]:
            raise SourceError(
                f"{clips[one].path} and {clips[other].path} both hold the frame of "
                f"{shown_number(stamps[one], 'us')}; leave one out by exclude="
            )
    numbers = np.array([stamps[place] for place in order], dtype=np.int64)
    unit = coarsest_unit([numbers], None)
    return replace(
        clips[0],
        name=name,
        file_names=[clips[place].file_names[0] for place in order],
        numbers=numbers // microseconds(unit),
        indices=None,
        info=replace(clips[0].info, is_clip=False, numbers=None, time_unit=unit),
    )


def with_common_step(clips: list[Clip], *, stated: bool) -> list[Clip]:
    """Stretch the numbers of clips whose usual steps differ, for a store has but one step.

    That is so where the frame rate of one varies: its numbers are time stamps in ticks. Clips of
    files of one frame each have one step together. Times since 1970 stay what they are, in the
    finest of their units.
    """
    if all(clip.in_order and clip.info.time_unit is not None for clip in clips):
        finest = min((clip.info.time_unit for clip in clips), key=microseconds, default=None)
        factors = [microseconds(c.info.time_unit) // microseconds(finest) for c in clips]
        infos = [
            replace(clip.info, time_unit=finest, tolerance=clip.info.tolerance * factor)
            for clip, factor in zip(clips, factors, strict=True)
        ]
    else:
        factors, infos = _factors(clips, stated=stated), [clip.info for clip in clips]
    return [
        clip if factor == 1 else replace(clip, numbers=clip.numbers * factor, info=info)
        for clip, factor, info in zip(clips, factors, infos, strict=True)
    ]


def _factors(clips: list[Clip], *, stated: bool) -> list[int]:
    """By how much the numbers of each clip are stretched."""
    steps = {clip.info.step for clip in clips if clip.in_order}
    apart = [np.diff(clip.numbers) for clip in clips if not clip.in_order]
    step = 0
    if steps and not stated and any(map(len, apart)):
        steps.add(step := most_frequent(np.concatenate(apart)))
    if len(steps) < 2:
        return [1] * len(clips)
    common = math.lcm(*steps)
    if common > _LARGEST_COMMON_STEP:
        raise SourceError(
            f"{len(steps)} videos of variable frame rate have no common step; convert them into "
            "stores of their own"
        )
    return [common // (clip.info.step if clip.in_order else step or common) for clip in clips]
