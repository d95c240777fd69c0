"""Time ways that take turns, so that a noisy machine disturbs all of them alike.

Iterators are made once. A turn begins with some batches that do not count, which use up what was
prefetched, and ends with a pause in which prefetching comes to rest.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, NamedTuple

from framewin.parallel import ordered_map
from framewin.schema import Progress

LEAD_IN_BATCHES = 6
"""More than a way with a prefetch of 2 holds ready or under way."""
SETTLE_SECONDS = 0.3
FEWEST_BATCHES, MOST_BATCHES = 2, 300


class Spread(NamedTuple):
    """The middle of some values, and the middle half of them."""

    low: float
    """Lower quartile."""
    median: float
    high: float
    """Upper quartile."""


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles.

    >>> spread([1.0, 2.0, 3.0, 4.0, 5.0])
    Spread(low=2.0, median=3.0, high=4.0)
    """
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    return Spread(*statistics.quantiles(values, n=4, method="inclusive"))


def timed(action: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def draw(batches: Iterator[Any], number: int) -> None:
    """Take some batches and forget them."""
    for _ in range(number):
        next(batches)


def pull(
    batches: Iterator[Any], number: int, *, lead_in: int = LEAD_IN_BATCHES
) -> Callable[[], float]:
    """A turn: seconds for `number` batches, after some that do not count."""

    def turn() -> float:
        draw(batches, lead_in)
        return timed(lambda: draw(batches, number))

    return turn


def batches_per_turn(batches: Iterator[Any], seconds: float, *, lead_in: int) -> int:
    """How many batches take about this long, within bounds; at least `FEWEST_BATCHES`."""
    draw(batches, lead_in)
    number, started = 0, time.perf_counter()
    while number < MOST_BATCHES and time.perf_counter() - started < seconds:
        next(batches)
        number += 1
    return max(FEWEST_BATCHES, number)


def take_turns(
    ways: Mapping[Any, Callable[[], float]], rounds: int, progress: Progress | None = None
) -> dict[Any, list[float]]:
    """Seconds of each way in each round, after one round that does not count."""
    seconds: dict[Any, list[float]] = {name: [] for name in ways}
    turns = len(ways) * (rounds + 1)
    for turn in range(turns):
        name = list(ways)[turn % len(ways)]
        taken = ways[name]()
        time.sleep(SETTLE_SECONDS)
        if turn >= len(ways):
            seconds[name].append(taken)
        if progress is not None:
            progress(turn + 1, turns)
    return seconds


def wait_share(batches: Iterator[Any], step_seconds: float, *, steps: int, lead_in: int) -> float:
    """Share of the time that a consumer waits for batches, between steps in which it sleeps.

    As a device that computes, it leaves the processor alone during a step. Some steps come first
    that do not count, until prefetching runs as evenly as it will.
    """
    waited = elapsed = 0.0
    for step in range(-lead_in, steps):
        started = time.perf_counter()
        next(batches)
        got = time.perf_counter()
        time.sleep(step_seconds)
        if step >= 0:
            waited += got - started
            elapsed += time.perf_counter() - started
    return waited / elapsed


def ahead(batches: Iterator[Any], depth: int = 2) -> Iterator[Any]:
    """The same batches, made by a thread that keeps up to `depth` ready."""
    with ThreadPoolExecutor(1) as pool:
        yield from ordered_map(pool, lambda _: next(batches), count(), depth + 1)
