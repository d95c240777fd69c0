"""Running functions: side by side with results in order, and again where a failure may pass."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered_map(
    pool: Executor | None, function: Callable[[Item], Result], items: Iterable[Item], ahead: int
) -> Iterator[Result]:
    """Results in the order of the items, of which at most `ahead` are under way at any time.

    The first exception in that order ends it, as does closing the iterator; what has not begun
    then never does.

    Args:
        pool: Runs the function; without one it is called here.
        function: Takes an item.
        items: Taken one after the other, as results are asked for.
        ahead: Items that are under way in the pool, 1 or more.
    """
    if pool is None:
        yield from map(function, items)
        return
    running: deque[Future[Result]] = deque()
    try:
        for item in items:
            running.append(pool.submit(function, item))
            if len(running) >= ahead:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        for future in running:
            future.cancel()


def repeated(
    attempt: Callable[[], Result], times: int, may_pass: Callable[[Exception], bool]
) -> Result:
    """What an attempt returns, which is made so many times where its failure may pass."""
    for _ in range(times - 1):
        try:
            return attempt()
        except Exception as exc:
            if not may_pass(exc):
                raise
    return attempt()
