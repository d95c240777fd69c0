"""Which windows each batch of each epoch holds: the one answer that every adapter gives.

The order of an epoch is one list of positions, whatever the number of workers. It is cut into
batches, and the batches are dealt to the shards in turn, so that step s of all shards together
is one stretch of that list. Where a run was interrupted changes nothing: step s of epoch e is
computed, not reached.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from framewin.schema import Int64Array
from framewin.windows import order
from framewin.windows.blocks import BlockOrder, BlockShape
from framewin.windows.order import EpochOrder, as_integer

Shuffle = bool | Literal["blocks"]
"""Windows in row order, in a full permutation, or in one that reads the store block by block."""
BLOCKS: Literal["blocks"] = "blocks"

DRAW_LIMIT = order.KEY_MAX_INDEX + 1


@dataclass(frozen=True, slots=True, eq=False)
class BatchSchedule:
    """The batches of every epoch.

    Ten windows in batches of 3, dealt to two shards:

    >>> for index in (0, 1):
    ...     shard = BatchSchedule(num_windows=10, batch_size=3, shard=(index, 2))
    ...     [shard.windows(0, step).tolist() for step in range(shard.num_batches)]
    [[0, 1, 2], [6, 7, 8]]
    [[3, 4, 5], [9]]
    """

    num_windows: int
    """Of the dataset."""
    batch_size: int
    """Windows in a batch of one shard."""
    shuffle: Shuffle = False
    """A new order in each epoch; without it, every window once, in row order."""
    seed: int = 0
    """Chooses the orders, in [0, 2**63)."""
    drop_remainder: bool = False
    """Only full batches, and as many for each shard."""
    shard: tuple[int, int] = (0, 1)
    """(index, count): this one's place among the shards, and how many there are."""
    draws: Int64Array | None = field(default=None, repr=False)
    """What `cumulative_draws` gives: a shuffled epoch then draws with replacement."""
    shuffle_blocks: BlockShape | None = None
    """Of the shuffle "blocks", which must have it, and no other."""

    def __post_init__(self) -> None:
        as_integer("batch_size", self.batch_size, 1)
        order.seed_key(self.seed)
        check_shard(self.shard)
        check_shuffle(self.shuffle)
        self._check_blocks()
        index, count = self.shard
        if self.drop_remainder and self.batch_size > self.num_windows:
            raise ValueError(
                f"batch_size {self.batch_size} is above the number of windows, {self.num_windows}"
            )
        if self.num_batches < 1:
            raise ValueError(
                f"shard {index} of {count} gets no batch: {self.num_windows} windows make "
                f"{self._all_batches} of {self.batch_size}; use fewer shards or smaller batches"
            )

    def _check_blocks(self) -> None:
        if (self.shuffle == BLOCKS) != (self.shuffle_blocks is not None):
            raise ValueError(
                f"shuffle_blocks goes with shuffle={BLOCKS!r}, got {self.shuffle_blocks!r} with "
                f"shuffle={self.shuffle!r}"
            )
        if self.shuffle == BLOCKS and self.draws is not None:
            raise ValueError(
                f"windows with weights= are drawn from anywhere, not by blocks; give shuffle=True, "
                f"got {self.shuffle!r}"
            )

    @property
    def order(self) -> EpochOrder | BlockOrder:
        """Of shuffled epochs without draws."""
        if self.shuffle_blocks is None:
            return EpochOrder(self.num_windows, seed=self.seed)
        return BlockOrder(self.num_windows, seed=self.seed, shape=self.shuffle_blocks)

    @property
    def _all_batches(self) -> int:
        if self.drop_remainder:
            return self.num_windows // self.batch_size
        return -(-self.num_windows // self.batch_size)

    @property
    def num_batches(self) -> int:
        """Batches of this shard in an epoch."""
        index, count = self.shard
        if self.drop_remainder:
            return self._all_batches // count
        return -(-(self._all_batches - index) // count)

    def positions(self, step: int) -> Int64Array:
        """Places in the order of an epoch that a batch takes, (B,).

        Raises:
            IndexError: No such step.
        """
        if not 0 <= step < self.num_batches:
            raise IndexError(f"step {step} is out of range, an epoch has {self.num_batches}")
        index, count = self.shard
        first = (step * count + index) * self.batch_size
        return np.arange(first, min(first + self.batch_size, self.num_windows), dtype=np.int64)

    def windows(self, epoch: int, step: int) -> Int64Array:
        """Windows of a batch, (B,).

        Raises:
            IndexError: No such step.
        """
        return self.windows_at(epoch, self.positions(step))

    def windows_at(self, epoch: int, positions: Int64Array) -> Int64Array:
        """Windows at places in the order of an epoch, same shape."""
        if not self.shuffle:
            return positions
        if self.draws is not None:
            return drawn(self.draws, order.epoch_key(self.seed, epoch), positions)
        return self.order.windows(epoch, positions)

    def draws_of(self, epoch: int, step: int) -> Int64Array:
        """What the random numbers of a batch's windows come from, (B,).

        The windows themselves; where they are drawn with replacement, their places in the order
        of the epoch, so that a window that is drawn twice is augmented in two ways.
        """
        return self.windows(epoch, step) if self.draws is None else self.positions(step)

    def place(self, steps_done: int) -> tuple[int, int]:
        """Epoch and step of the batch that follows after this many."""
        return place(steps_done, self.num_batches)


def place(steps_done: int, num_batches: int) -> tuple[int, int]:
    """Epoch and step of the batch that follows after this many, of so many in an epoch."""
    return divmod(as_integer("steps_done", steps_done, 0), num_batches)


def check_shard(shard: tuple[int, int]) -> None:
    """Refuse what is no (index, count)."""
    try:
        index, count = map(operator.index, shard)
    except (TypeError, ValueError):
        index = count = 0
    if not 0 <= index < count:
        raise ValueError(f"shard must be (index, count) with 0 <= index < count, got {shard}")


def check_shuffle(shuffle: object) -> None:
    """Refuse what is no way to shuffle."""
    known = shuffle == BLOCKS if isinstance(shuffle, str) else shuffle in (True, False)
    if not known:
        raise ValueError(f"shuffle must be True, False or {BLOCKS!r}, got {shuffle!r}")


def check_step(start_step: int, num_batches: int) -> None:
    """Refuse a first step that an epoch does not have."""
    if as_integer("start_step", start_step, 0) >= num_batches:
        raise ValueError(
            f"start_step must be in [0, {num_batches}), the steps of an epoch, got {start_step}"
        )


def cumulative_draws(weights: np.ndarray) -> Int64Array:
    """Running sums of weights as integers up to 2**62, so that draws are exact on any machine.

    Args:
        weights: (windows,), finite, at least 0, not all 0.

    Raises:
        ValueError: Weights that are not.
    """
    values = np.asarray(weights, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any() or not values.any():
        raise ValueError(
            "weights must be one finite number >= 0 for each window, not all of them 0; "
            f"got shape {values.shape}"
        )
    sums = np.cumsum(values)
    scaled: Int64Array = np.rint(sums / sums[-1] * DRAW_LIMIT).astype(np.int64)
    return scaled


def drawn(draws: Int64Array, key: tuple[int, int, int], positions: Int64Array) -> Int64Array:
    """The windows that an epoch's key draws at positions, same shape."""
    numbers = order.permute(positions, key, order.KEY_MAX_INDEX, rounds=order.KEY_ROUNDS)
    found: Int64Array = np.searchsorted(draws, numbers, side="right")
    return found
