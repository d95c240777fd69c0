"""Batches in which each row goes on where it ended in the batch before, for stateful models."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from framewin.schema import Int64Array
from framewin.windows.order import EpochOrder, seed_key
from framewin.windows.spec import WindowIndex, WindowSpec


class LaneSchedule:
    """Windows in chains whose inputs follow one another without a break, laid side by side.

    The chains of an epoch, one behind the other, are cut into as many lanes of equal length as a
    batch has rows; what is left over at the end is not seen in that epoch.

    A run of 8 frames and one of 5, windows of 2 + 1 frames: the chains 0, 2, 4 and 6, 8.

    >>> from framewin.windows.spec import Runs
    >>> index = WindowIndex(WindowSpec(2, 1), Runs(np.array([0, 10]), np.array([8, 5])))
    >>> lanes = LaneSchedule(index, batch_size=2)
    >>> [lanes.windows(0, step).tolist() for step in range(lanes.num_batches)]
    [[0, 4], [2, 6]]
    >>> [lanes.resets(0, step).tolist() for step in range(lanes.num_batches)]
    [[True, True], [False, True]]
    """

    def __init__(
        self, index: WindowIndex, batch_size: int, *, shuffle: bool = False, seed: int = 0
    ) -> None:
        """Find the chains.

        Args:
            index: The windows.
            batch_size: Lanes.
            shuffle: Another order of the chains in each epoch.
            seed: Chooses the orders.

        Raises:
            ValueError: Windows that cannot follow one another, or too few of them.
        """
        seed_key(seed)
        if batch_size < 1:
            raise ValueError(f"batch_size must be >= 1, got {batch_size}")
        self.hop = _hop(index.spec)
        self.batch_size, self.shuffle, self.seed = batch_size, shuffle, seed
        counts = np.diff(index.window_ends, prepend=0)
        self._firsts = index.window_ends - counts
        self._lengths = -(-counts // self.hop)
        self.num_batches = int(self._lengths.sum()) // batch_size
        if self.num_batches < 1:
            raise ValueError(
                f"batch_size {batch_size} is above the number of windows whose inputs follow one "
                f"another, {int(self._lengths.sum())}"
            )
        self._laid = lru_cache(maxsize=2)(self._lay)

    def windows(self, epoch: int, step: int) -> Int64Array:
        """Windows of a batch, (B,).

        Raises:
            IndexError: No such step.
        """
        chains, places = self._place(epoch, step)
        found: Int64Array = self._firsts[chains] + places * self.hop
        return found

    def resets(self, epoch: int, step: int) -> np.ndarray:
        """Which rows begin anew, so that a model's state must be cleared: bool (B,)."""
        _, places = self._place(epoch, step)
        return places == 0 if step else np.ones(self.batch_size, dtype=bool)

    def _place(self, epoch: int, step: int) -> tuple[Int64Array, Int64Array]:
        """The chain of each row, and the place in it."""
        if not 0 <= step < self.num_batches:
            raise IndexError(f"step {step} is out of range, an epoch has {self.num_batches}")
        order, ends = self._laid(epoch if self.shuffle else 0)
        positions = np.arange(self.batch_size) * self.num_batches + step
        at = np.searchsorted(ends, positions, side="right")
        chains = order[at]
        return chains, positions - ends[at] + self._lengths[chains]

    def _lay(self, epoch: int) -> tuple[Int64Array, Int64Array]:
        """The order of the chains in an epoch, and where each ends."""
        order = np.arange(len(self._lengths))
        if self.shuffle:
            order = EpochOrder(len(order), seed=self.seed).windows(epoch, order)
        return order, np.cumsum(self._lengths[order])

    def __reduce__(self) -> tuple[object, ...]:
        state = (self.hop, self.batch_size, self.shuffle, self.seed, self._firsts, self._lengths)
        return _restored, (*state, self.num_batches)


def _restored(
    hop: int,
    batch_size: int,
    shuffle: bool,
    seed: int,
    firsts: Int64Array,
    lengths: Int64Array,
    num_batches: int,
) -> LaneSchedule:
    lanes = object.__new__(LaneSchedule)
    lanes.hop, lanes.batch_size, lanes.shuffle, lanes.seed = hop, batch_size, shuffle, seed
    lanes._firsts, lanes._lengths, lanes.num_batches = firsts, lengths, num_batches
    lanes._laid = lru_cache(maxsize=2)(lanes._lay)
    return lanes


def _hop(spec: WindowSpec) -> int:
    """Windows from one to that whose inputs follow its own."""
    rows = spec.input_frames * spec.frame_step
    if rows % spec.window_stride:
        raise ValueError(
            f"lanes need a window every {rows} frames (input_frames x frame_step), but "
            f"window_stride is {spec.window_stride}; use one that divides {rows}"
        )
    return rows // spec.window_stride
