"""Statistics of frames, from decoded frames, block after block.

Values are in the stored unit. Pixels without data are left out; where nothing is left the
statistic is NaN. A segment's first frame has no motion: NaN.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from framewin.schema import STATISTICS

TILE_BYTES = 2**19
BYTES_PER_UINT16 = 256
"""How many bytes a uint16 can sum up."""
LONG_ROW = 2**17
_local = threading.local()

Float64Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, eq=False)
class FrameStatistics:
    """One value per frame of a store, NaN for frames that were not looked at."""

    mean: Float64Array
    """Mean of a frame's values, (num_frames,)."""
    motion: Float64Array
    """Mean absolute difference to the frame before it in its segment, (num_frames,)."""
    nodata: Float64Array
    """Fraction of values without data, (num_frames,)."""

    @classmethod
    def empty(cls, num_frames: int) -> FrameStatistics:
        """Room for the statistics of a store."""
        return cls(*(np.full(num_frames, np.nan) for _ in STATISTICS))

    def put(
        self,
        first_row: int,
        frames: np.ndarray,
        *,
        previous: np.ndarray | None,
        nodata: float | None,
    ) -> None:
        """Take frames (n, H, W, C) of one segment.

        Args:
            first_row: Of the first one.
            frames: As stored, C-contiguous.
            previous: The frame before them in their segment, (H, W, C); None of the first.
            nodata: Value that stands for no data.
        """
        self.put_block(first_row, frames, nodata=nodata)
        if previous is not None:
            pair = previous[np.newaxis], frames[:1]
            self.motion[first_row : first_row + 1] = frame_motions(*pair, nodata)

    def put_block(self, first_row: int, frames: np.ndarray, *, nodata: float | None) -> np.ndarray:
        """Take frames without the motion of the first one; returns the sum of each, (n,)."""
        end = first_row + len(frames)
        totals = _Totals.of(frames, nodata)
        sums = totals.sums
        self.mean[first_row:end] = totals.means()
        self.nodata[first_row:end] = totals.missing / totals.width
        self.motion[first_row + 1 : end] = frame_motions(
            frames[:-1], frames[1:], nodata, sums=(sums[:-1], sums[1:])
        )
        return sums


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """Of all values with data, one number per channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    """Of the population."""
    min: tuple[float, ...]
    max: tuple[float, ...]
    frames: int
    """How many were counted."""


class ChannelSums:
    """Running moments per channel, merged block by block in float64.

    The blocks' own means are merged (Chan, Golub and LeVeque, 1979), because the sum of squares
    of large values that differ little loses all digits.
    """

    def __init__(self, channels: int) -> None:
        self.count = np.zeros(channels)
        self.mean = np.zeros(channels)
        self.squares = np.zeros(channels)
        self.min = np.full(channels, math.inf)
        self.max = np.full(channels, -math.inf)
        self.frames = 0

    def add(self, frames: np.ndarray, *, nodata: float | None) -> None:
        """Take frames (n, H, W, C)."""
        missing = missing_values(frames, nodata)
        for channel in range(frames.shape[-1]):
            values = frames[..., channel]
            if missing is not None:
                values = values[~missing[..., channel]]
            if values.size:
                self._merge(channel, values.astype(np.float64))
        self.frames += len(frames)

    def _merge(self, channel: int, values: np.ndarray) -> None:
        mean = values.mean()
        before, count = self.count[channel], values.size
        shift = mean - self.mean[channel]
        self.count[channel] = before + count
        self.mean[channel] += shift * count / (before + count)
        between = shift**2 * before * count / (before + count)
        self.squares[channel] += np.square(values - mean).sum() + between
        self.min[channel] = min(self.min[channel], values.min())
        self.max[channel] = max(self.max[channel], values.max())

    def result(self) -> ChannelStatistics:
        """The statistics of everything added so far.

        Raises:
            ValueError: A channel without any data.
        """
        if not self.count.all():
            channel = int(np.flatnonzero(self.count == 0)[0])
            raise ValueError(f"channel {channel} has no data in any frame, so no statistics")
        return ChannelStatistics(
            mean=tuple(self.mean.tolist()),
            std=tuple(np.sqrt(self.squares / self.count).tolist()),
            min=tuple(self.min.tolist()),
            max=tuple(self.max.tolist()),
            frames=self.frames,
        )


def missing_values(frames: np.ndarray, nodata: float | None) -> np.ndarray | None:
    """Where frames hold no data, bool of the same shape; None where every value is data."""
    if nodata is None:
        return None
    missing: np.ndarray = (
        np.isnan(frames) if math.isnan(nodata) else frames == frames.dtype.type(nodata)
    )
    return missing


def frame_motions(
    before: np.ndarray,
    after: np.ndarray,
    nodata: float | None,
    *,
    sums: tuple[np.ndarray, np.ndarray] | None = None,
) -> Float64Array:
    """Mean absolute difference of frames and those before them, where both have data: (n,).

    Each frame by itself, in one fixed way, so that blocks of any size give the same bits.

    Args:
        before: (n, H, W, C), C-contiguous.
        after: The same.
        nodata: Value that stands for no data.
        sums: Of the values of each, (n,), where known; they save work.
    """
    totals = _Totals(after)
    if sums is not None and nodata is None and after.dtype.kind != "f":
        # |a - b| = a + b - 2 min(a, b), and integer sums are exact.
        for rows, columns in _tiles(after):
            old, new = _flat(before)[rows, columns], _flat(after)[rows, columns]
            totals.add(rows, np.minimum(old, new, out=_memory(old, 0)), None)
        totals.sums = sums[0] + sums[1] - 2 * totals.sums
        return totals.means()
    for rows, columns in _tiles(after):
        old, new = _flat(before)[rows, columns], _flat(after)[rows, columns]
        missing, others = missing_values(old, nodata), missing_values(new, nodata)
        if missing is not None and others is not None:
            missing |= others
        totals.add(rows, _differences(old, new), missing)
    return totals.means()


class _Totals:
    """Sums of each frame's values with data, from tiles."""

    def __init__(self, frames: np.ndarray) -> None:
        self.sums = np.zeros(len(frames), np.float64 if frames.dtype.kind == "f" else np.int64)
        self.missing = np.zeros(len(frames), np.int64)
        self.width = math.prod(frames.shape[1:])

    @classmethod
    def of(cls, frames: np.ndarray, nodata: float | None) -> _Totals:
        """Those of frames (n, H, W, C), C-contiguous."""
        totals = cls(frames)
        for rows, columns in _tiles(frames):
            values = _flat(frames)[rows, columns]
            totals.add(rows, values, missing_values(values, nodata))
        return totals

    def add(self, rows: slice, values: np.ndarray, missing: np.ndarray | None) -> None:
        if missing is not None:
            self.missing[rows] += np.count_nonzero(missing, axis=1)
            values = np.where(missing, values.dtype.type(0), values)
        with np.errstate(invalid="ignore", over="ignore"):
            self.sums[rows] += _sums(values)

    def means(self) -> Float64Array:
        """NaN where every value is missing."""
        count = self.width - self.missing
        means: Float64Array = np.full(len(count), np.nan)
        np.divide(self.sums, count, out=means, where=count > 0)
        return means


def _flat(frames: np.ndarray) -> np.ndarray:
    return frames.reshape(len(frames), math.prod(frames.shape[1:]))


def _tiles(frames: np.ndarray) -> Iterator[tuple[slice, slice]]:
    """Whole frames, or parts of one that is large: rows and columns of `_flat(frames)`.

    Few large ones rather than many that would stay in a core's cache: numpy lets go of the
    interpreter in each call, and has to wait for it again.
    """
    item_bytes, width = frames.itemsize, math.prod(frames.shape[1:])
    height = max(1, TILE_BYTES // (width * item_bytes))
    part = min(width, TILE_BYTES // item_bytes)
    for row in range(0, len(frames), height):
        for column in range(0, width, part):
            yield slice(row, row + height), slice(column, column + part)


def _sums(values: np.ndarray) -> np.ndarray:
    """Sum of each row, exact for integers."""
    if values.dtype.kind == "f":
        # One by one: a sum of floats depends on how numpy cuts what it is given.
        return np.array([row.sum(dtype=np.float64) for row in values])
    if values.dtype != np.uint8:
        sums: np.ndarray = values.sum(axis=1, dtype=np.int64)
        return sums
    # In the narrowest type that holds them, which is several times as fast.
    whole = values.shape[1] // BYTES_PER_UINT16 * BYTES_PER_UINT16
    if whole < LONG_ROW:
        short: np.ndarray = values.sum(axis=1, dtype=np.uint32)
        return short
    groups = values[:, :whole].reshape(len(values), BYTES_PER_UINT16, -1)
    long: np.ndarray = groups.sum(axis=1, dtype=np.uint16).sum(axis=1, dtype=np.int64)
    long += values[:, whole:].sum(axis=1, dtype=np.int64)
    return long


def _differences(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Absolute differences: of integers in their unsigned dtype, which holds them, else float64."""
    if before.dtype.kind == "f":
        with np.errstate(invalid="ignore", over="ignore"):
            floats: np.ndarray = np.abs(after.astype(np.float64) - before)
        return floats
    above = np.maximum(before, after, out=_memory(before, 0))
    below = np.minimum(before, after, out=_memory(before, 1))
    np.subtract(above, below, out=above)
    unsigned: np.ndarray = above.view(f"u{above.itemsize}")
    return unsigned


def _memory(like: np.ndarray, which: int) -> np.ndarray:
    """One of two arrays like a tile, in memory that each thread keeps: fresh memory costs more."""
    if not hasattr(_local, "memory"):
        _local.memory = np.empty((2, TILE_BYTES), np.uint8)
    kept: np.ndarray = _local.memory[which, : like.nbytes].view(like.dtype).reshape(like.shape)
    return kept
