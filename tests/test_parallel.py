"""Functions run side by side in order, and again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from framewin.parallel import ordered_map, repeated


@pytest.mark.parametrize("workers", [None, 1, 3])
def test_results_come_in_order(workers: int | None) -> None:
    """Whoever ends first, and without a pool."""
    pool = ThreadPoolExecutor(workers) if workers else None
    second_done = threading.Event()

    def square(number: int) -> int:
        if number == 0 and workers == 3:
            assert second_done.wait(10)
        if number == 1:
            second_done.set()
        return number**2

    assert list(ordered_map(pool, square, range(9), ahead=4)) == [n**2 for n in range(9)]
    assert list(ordered_map(pool, square, [], ahead=4)) == []


def test_few_are_under_way() -> None:
    """Items are taken as results are: a source without end needs no memory."""
    taken = []

    def items() -> Iterator[int]:
        for number in range(10**9):
            taken.append(number)
            yield number

    with ThreadPoolExecutor(2) as pool:
        results = ordered_map(pool, str, items(), ahead=3)
        assert [next(results) for _ in range(5)] == list("01234")
        assert len(taken) == 3 + 4
        results.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("fails", [True, False])
def test_what_has_not_begun_is_cancelled(fails: bool) -> None:
    """After an exception, and where nobody asks for results any more."""
    begun, may_end = [], threading.Event()

    def work(number: int) -> int:
        begun.append(number)
        if number == 0:
            if fails:
                raise OSError(f"item {number}")
            return 0
        may_end.wait(10)
        return number

    with ThreadPoolExecutor(1) as pool:
        results = ordered_map(pool, work, range(100), ahead=5)
        if fails:
            with pytest.raises(OSError, match="item 0"):
                next(results)
        else:
            assert next(results) == 0
            results.close()  # type: ignore[attr-defined]
        may_end.set()
    # The second had begun, or was about to, when the first ended.
    assert begun in ([0], [0, 1])


def test_attempts_are_repeated_while_it_may_help() -> None:
    """So many times in all, and not after a failure that will not pass."""
    left = [OSError("a"), OSError("b"), ValueError("stays")]

    def attempt() -> str:
        if left:
            raise left.pop(0)
        return "done"

    def may_pass(exc: Exception) -> bool:
        return isinstance(exc, OSError)

    with pytest.raises(OSError, match="a"):
        repeated(attempt, 1, may_pass)
    with pytest.raises(ValueError, match="stays"):
        repeated(attempt, 9, may_pass)
    assert repeated(attempt, 1, may_pass) == "done"
    left[:] = [OSError(), OSError()]
    assert repeated(attempt, 3, may_pass) == "done"
