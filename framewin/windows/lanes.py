"""Batches in which each row goes on where it ended in the batch before, for stateful models."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from framewin.schema import Int64Array
from framewin.windows.order import EpochOrder, as_integer, seed_key
from framewin.windows.schedule import BLOCKS, Shuffle, check_shard, check_shuffle, place
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
        self,
        index: WindowIndex,
        batch_size: int,
        *,
        shuffle: Shuffle = False,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
    ) -> None:
        """Find the chains.

        Args:
            index: The windows.
            batch_size: Lanes of this shard.
            shuffle: Another order of the chains in each epoch; not by blocks.
            seed: Chooses the orders.
            shard: (index, count): of count x batch_size lanes, those from index x batch_size on,
                so that a step of all shards is a step of that many lanes.

        Raises:
            ValueError: Windows that cannot follow one another, or too few of them.
        """
        seed_key(seed)
        as_integer("batch_size", batch_size, 1)
        check_shard(shard)
        check_shuffle(shuffle)
        if shuffle == BLOCKS:
            raise ValueError(
                "lanes read every clip from front to back, so there are no blocks to shuffle; give "
                f"shuffle=True, got {shuffle!r}"
            )
        self.hop = _hop(index.spec)
        self.batch_size, self.seed, self.shard = batch_size, seed, shard
        self.shuffle = bool(shuffle)
        counts = np.diff(index.window_ends, prepend=0)
        self.firsts = index.window_ends - counts
        """Of each chain its first window, (chains,)."""
        self.lengths = -(-counts // self.hop)
        """Of each chain its number of windows, (chains,)."""
        self.num_batches = int(self.lengths.sum()) // (batch_size * shard[1])
        """Of an epoch."""
        if self.num_batches < 1:
            shards = f" x {shard[1]} shards" if shard[1] > 1 else ""
            raise ValueError(
                f"batch_size {batch_size}{shards} is above the number of windows whose inputs "
                f"follow one another, {int(self.lengths.sum())}"
            )
        self._laid = lru_cache(maxsize=2)(self._lay)

    @property
    def first_positions(self) -> Int64Array:
        """Where each row begins in the chains of an epoch, one behind the other: (B,)."""
        first = self.shard[0] * self.batch_size
        return np.arange(first, first + self.batch_size) * self.num_batches

    def windows(self, epoch: int, step: int) -> Int64Array:
        """Windows of a batch, (B,).

        Raises:
            IndexError: No such step.
        """
        chains, places = self._place(epoch, step)
        found: Int64Array = self.firsts[chains] + places * self.hop
        return found

    def draws_of(self, epoch: int, step: int) -> Int64Array:
        """What the random numbers of a batch's windows come from: the windows, (B,)."""
        return self.windows(epoch, step)

    def place(self, steps_done: int) -> tuple[int, int]:
        """Epoch and step of the batch that follows after this many."""
        return place(steps_done, self.num_batches)

    def resets(self, epoch: int, step: int) -> np.ndarray:
        """Which rows begin anew, so that a model's state must be cleared: bool (B,)."""
        _, places = self._place(epoch, step)
        return places == 0 if step else np.ones(self.batch_size, dtype=bool)

    def _place(self, epoch: int, step: int) -> tuple[Int64Array, Int64Array]:
        """The chain of each row, and the place in it."""
        if not 0 <= step < self.num_batches:
            raise IndexError(f"step {step} is out of range, an epoch has {self.num_batches}")
        order, ends = self._laid(epoch if self.shuffle else 0)
        positions = self.first_positions + step
        at = np.searchsorted(ends, positions, side="right")
        chains = order[at]
        return chains, positions - ends[at] + self.lengths[chains]

    def _lay(self, epoch: int) -> tuple[Int64Array, Int64Array]:
        """The order of the chains in an epoch, and where each ends."""
        order = np.arange(len(self.lengths))
        if self.shuffle:
            order = EpochOrder(len(order), seed=self.seed).windows(epoch, order)
        return order, np.cumsum(self.lengths[order])

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_laid"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._laid = lru_cache(maxsize=2)(self._lay)


def _hop(spec: WindowSpec) -> int:
    """Windows from one to that whose inputs follow its own."""
    rows = spec.input_frames * spec.frame_step
    if rows % spec.window_stride:
        raise ValueError(
            f"lanes need a window every {rows} frames (input_frames x frame_step), but "
            f"window_stride is {spec.window_stride}; use one that divides {rows}"
        )
    return rows // spec.window_stride
