"""Shuffling for disks: runs of neighbouring windows, in an order of their own in each epoch.

Neighbouring windows share most of their frames, so a disk that is read block by block reads each
frame about once per epoch, not once per window. Windows are cut into blocks of consecutive ones,
the blocks are permuted, so many of them at a time make a group, and the windows of a group are
permuted among themselves:

    windows   0 1 2 3 4 5 6 7 8 9 10 11       blocks of 3, groups of 2 blocks
    blocks    6 7 8 | 0 1 2 || 9 10 11 | 3 4 5
    epoch     1 7 0 8 6 2 || 4 10 9 5 3 11

All of it is computed point by point with the cipher of `framewin.windows.order`, so it takes no
memory. In each epoch the blocks begin at another window, counted in a ring; the one block that is
shorter than the others comes last, and holds other windows each time.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import cast

import numpy as np

from framewin.schema import Int64Array
from framewin.windows.order import derived_key, epoch_key, permuted
from framewin.windows.spec import WindowSpec

MAPPED_GROUP_BYTES = 2**30
DECODED_GROUP_BYTES = 2**28
"""As many as of decoded chunks are kept by default."""
LEAST_BLOCK_BYTES = 2**22
USEFUL_ROWS = 8
"""Rows of a block for each row that it needs beyond its windows' starts, where they fit."""
LEAST_USEFUL_ROWS = 1.5
"""The same where they do not: rows that neighbouring blocks read twice are two fifths then."""
WANTED_GROUP_BLOCKS = 16


@dataclass(frozen=True, slots=True)
class BlockShape:
    """How many windows make a block, and how many blocks a group.

    Of a batch, a share of about 1 / group_blocks comes from the block of any one of its windows:
    another window is from there with a chance of (block_windows - 1) / (windows of the group - 1).
    Two neighbours of one block are, on average, a third of a group apart in the epoch.
    """

    block_windows: int
    group_blocks: int

    @classmethod
    def of(cls, given: ShuffleBlocks) -> BlockShape:
        """The shape that a user gives.

        Raises:
            ValueError: Neither a shape nor two integers, or one below 1.
        """
        numbers = astuple(given) if isinstance(given, BlockShape) else given
        if not isinstance(numbers, tuple | list) or [*map(_counts, numbers)] != [True, True]:
            raise ValueError(
                "shuffle_blocks must be (windows of a block, blocks of a group), integers >= 1, "
                f"got {given!r}"
            )
        return cls(int(numbers[0]), int(numbers[1]))

    @classmethod
    def usual(
        cls,
        spec: WindowSpec,
        *,
        rows_per_window: float,
        frame_bytes: int,
        chunk_frames: int,
        group_bytes: int,
    ) -> BlockShape:
        """The shape of which a group's frames take so many bytes.

        Blocks are as short as makes the rows that neighbouring blocks read twice a ninth of all,
        and reads of 4 MiB; shorter where a group would have fewer than 16 of them, but not so
        short that those rows become more than two fifths: groups have fewer blocks then, down to
        two. In fewer bytes than `least_group_bytes` they are shorter still, at last of a window
        each, and frames are read about as often as in a full shuffle.

        Windows of 5 + 5 frames of 10 kB, of 2.8 MB and of 6.2 MB in a gibibyte:

        >>> usual = {"rows_per_window": 1.0, "chunk_frames": 1, "group_bytes": 2**30}
        >>> BlockShape.usual(WindowSpec(5, 5), frame_bytes=10_000, **usual)
        BlockShape(block_windows=411, group_blocks=255)
        >>> BlockShape.usual(WindowSpec(5, 5), frame_bytes=2_764_800, **usual)
        BlockShape(block_windows=15, group_blocks=16)
        >>> BlockShape.usual(WindowSpec(5, 5), frame_bytes=6_220_800, **usual)
        BlockShape(block_windows=15, group_blocks=7)

        Args:
            spec: Of the windows.
            rows_per_window: Rows of the store between neighbouring windows, on average.
            frame_bytes: Of a frame.
            chunk_frames: Frames that are read or decoded together; 1 of mapped frames.
            group_bytes: That may be kept.
        """
        beyond = _beyond(spec, chunk_frames)
        group_rows = group_bytes // frame_bytes
        wanted = max((USEFUL_ROWS + 1) * beyond, -(-LEAST_BLOCK_BYTES // frame_bytes))
        least = math.ceil((LEAST_USEFUL_ROWS + 1) * beyond + rows_per_window)
        block_rows = max(
            min(wanted, group_rows // WANTED_GROUP_BLOCKS), min(least, group_rows // 2)
        )
        block_windows = max(1, int((block_rows - beyond) / rows_per_window))
        taken = block_windows * rows_per_window + beyond
        return cls(block_windows, max(1, int(group_rows / taken)))


ShuffleBlocks = BlockShape | tuple[int, int] | list[int]
"""What `shuffle_blocks=` takes."""


def least_group_bytes(
    spec: WindowSpec, *, rows_per_window: float, frame_bytes: int, chunk_frames: int
) -> int:
    """Bytes of a group that has room for two blocks which read no frame more than about twice.

    >>> least_group_bytes(
    ...     WindowSpec(5, 5), rows_per_window=1.0, frame_bytes=6_220_800, chunk_frames=1
    ... )
    236390400
    """
    block_rows = math.ceil(2 * _beyond(spec, chunk_frames) + rows_per_window)
    return 2 * block_rows * frame_bytes


def _beyond(spec: WindowSpec, chunk_frames: int) -> int:
    """Rows that a block needs beyond its windows' starts."""
    return spec.span - 1 + chunk_frames - 1


def _counts(number: object) -> bool:
    """Whether it is an integer that can count something."""
    whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
    return whole and int(cast(int, number)) >= 1


class BlockOrder:
    """Orders of epochs that read a store in groups of blocks, in constant memory.

    >>> order = BlockOrder(num_windows=10, seed=0, shape=BlockShape(3, 2))
    >>> sorted(order.windows(0, np.arange(10)).tolist()) == list(range(10))
    True
    """

    def __init__(self, num_windows: int, *, seed: int, shape: BlockShape) -> None:
        self.num_windows = num_windows
        self.seed = seed
        self.block_windows = shape.block_windows
        self.full_blocks = num_windows // shape.block_windows
        self.all_blocks = -(-num_windows // shape.block_windows)
        self.num_groups = -(-self.all_blocks // shape.group_blocks)
        """Groups are of equal length but for a block."""

    def windows(self, epoch: int, positions: Int64Array) -> Int64Array:
        """The windows at positions in [0, num_windows) of an epoch >= 0, same shape."""
        key = epoch_key(self.seed, epoch)
        places = self._mixed(key, positions)
        blocks = places // self.block_windows
        full = blocks < self.full_blocks
        blocks[full] = permuted(blocks[full], key, self.full_blocks)
        windows = blocks * self.block_windows + places % self.block_windows
        found: Int64Array = (windows + ring_start(key, self.num_windows)) % self.num_windows
        return found

    def groups(self, positions: Int64Array) -> Int64Array:
        """The group of each position, same shape."""
        blocks = positions // self.block_windows
        found: Int64Array = ((blocks + 1) * self.num_groups - 1) // self.all_blocks
        return found

    def group_begins(self, groups: Int64Array) -> Int64Array:
        """First position of each group, same shape; that of the one behind the last is the end."""
        begins = groups * self.all_blocks // self.num_groups * self.block_windows
        return np.minimum(begins, self.num_windows)

    def _mixed(self, key: tuple[int, int, int], positions: Int64Array) -> Int64Array:
        """Positions, each exchanged for one of the same group."""
        mixed = positions.flatten()
        groups = self.groups(mixed)
        by_group = np.argsort(groups, kind="stable")
        parts = np.split(by_group, np.flatnonzero(np.diff(groups[by_group])) + 1)
        for part in parts if len(by_group) else []:
            group = int(groups[part[0]])
            begin, end = self.group_begins(np.array([group, group + 1])).tolist()
            inner = permuted(mixed[part] - begin, derived_key(key, group), end - begin)
            mixed[part] = begin + inner
        return mixed.reshape(positions.shape)


def ring_start(key: tuple[int, int, int], num_windows: int) -> int:
    """The window at which the blocks of an epoch begin."""
    return (key[0] * 2**31 + key[1] // 2) % num_windows
