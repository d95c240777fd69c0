"""Frames of coming batches, asked for ahead: so that a disk has many reads to do at a time.

A mapped frame that is not in the page cache is read when it is touched, and the batch waits for
each place in turn. Which windows come is known for all time, so a thread asks the system for them
before they are touched. It does not copy, holds no lock while the system works, and learns from a
number that the batches count up where they are: no batch waits for it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from framewin.windows.lanes import LaneSchedule
from framewin.windows.order import as_integer
from framewin.windows.spec import WindowSpec

if TYPE_CHECKING:
    from framewin.batches import Batches

BATCHES_AT_ONCE = 256
POLL_SECONDS = 0.002
IDLE_SECONDS = 0.05
IDLE_AFTER = 500
"""Looks without news until they become rare."""

StepsDone = Callable[[], int | None]
"""Batches that were begun, counted through all epochs; None once no more will be."""


class ReadAhead:
    """Asks for the frames of the batches that follow, each once in a pass."""

    def __init__(self, batches: Batches, count: int) -> None:
        """Ask for nothing yet.

        Args:
            batches: Whose frames are asked for.
            count: How many batches to be ahead.

        Raises:
            TypeError: No integer.
            ValueError: A number below 0, frames that are not mapped, or a system that cannot.
        """
        as_integer("read_ahead", count, 0)
        dataset = batches.dataset
        if count and dataset.mapped is None:
            raise ValueError(
                f"read_ahead is for frames that are mapped, those of {dataset.path} are decoded; "
                "leave it out, or give the dataset a cache"
            )
        if count and not hasattr(os, "posix_fadvise"):
            raise ValueError("read_ahead needs posix_fadvise, which this system has not; leave out")
        self._frames = dataset.mapped
        self._index = dataset.index
        self._pieces = list(pieces_of(dataset.spec))
        self._schedule = batches.schedule
        self._batches = count
        self._asked = 0
        self._known: list[list[int]] = []
        self._known_from = 0

    def follow(self, done: int) -> bool:
        """Ask for what comes next, once a quarter of it was not asked for.

        Args:
            done: Batches that were begun.

        Returns:
            Whether anything was asked for.

        Raises:
            OSError: The system does not take requests for this file.
        """
        if done + 2 * self._batches < self._asked:
            # Another pass began, or a checkpoint was restored; what was read may be gone by now.
            self._asked = done
        end = done + self._batches
        begin = max(done, min(self._asked, end))
        if self._frames is None or end - begin < max(1, self._batches // 4):
            return False
        self._asked = end
        for number in range(begin, end):
            for start in self._starts_of(number):
                for first, count in self._pieces:
                    self._frames.will_need(start + first, start + first + count)
        return True

    def _starts_of(self, number: int) -> list[int]:
        """First row of each window of a batch; numpy takes as long for one as for many."""
        place = number - self._known_from
        if not 0 <= place < len(self._known):
            self._known_from, place = number, 0
            self._known = list(self._next_starts(number))
        return self._known[place]

    def _next_starts(self, number: int) -> Iterator[list[int]]:
        """`_starts_of` a batch and of those behind it, to the end of the epoch at most."""
        schedule = self._schedule
        epoch, step = schedule.place(number)
        last = min(step + BATCHES_AT_ONCE, schedule.num_batches)
        if isinstance(schedule, LaneSchedule):
            parts = [schedule.windows(epoch, each) for each in range(step, last)]
            windows = np.concatenate(parts)
        else:
            parts = [schedule.positions(each) for each in range(step, last)]
            windows = schedule.windows_at(epoch, np.concatenate(parts))
        starts = self._index.start_rows(windows).tolist()
        end = 0
        for part in parts:
            begin, end = end, end + len(part)
            yield starts[begin:end]


def pieces_of(spec: WindowSpec) -> Iterator[tuple[int, int]]:
    """Rows of a window that lie one behind the other: offset of the first, and how many.

    >>> list(pieces_of(WindowSpec(3, 2, lead_gap=4))), list(pieces_of(WindowSpec(1, 1, 5)))
    ([(0, 3), (7, 2)], [(0, 1), (5, 1)])
    """
    rows = np.concatenate([spec.input_offsets, spec.predict_offsets])
    for piece in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
        yield int(piece[0]), len(piece)


def start(ahead: ReadAhead, steps_done: StepsDone) -> threading.Thread:
    """A thread that follows the batches until no more will come, or the program ends.

    It also ends where the system does not take its requests: the batches then come without.
    """
    thread = threading.Thread(target=_run, args=(ahead, steps_done), name="framewin-read-ahead")
    thread.start()
    return thread


def _run(ahead: ReadAhead, steps_done: StepsDone) -> None:
    looks = 0
    # Python waits for its threads at the end, when the main one has ended.
    while threading.main_thread().is_alive() and (done := steps_done()) is not None:
        try:
            asked = ahead.follow(done)
        except OSError:
            return
        looks = 0 if asked else looks + 1
        time.sleep(IDLE_SECONDS if looks > IDLE_AFTER else POLL_SECONDS)
