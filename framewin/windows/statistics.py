"""Statistics of frames, from decoded frames, block after block.

Values are in the stored unit. Pixels without data are left out; where nothing is left the
statistic is NaN. A segment's first frame has no motion: NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from framewin.schema import STATISTICS

PIECE_BYTES = 2**17
BYTES_PER_UINT16 = 256
"""How many bytes a uint16 can sum up."""
LONG_ROW = 2**17

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
        end = first_row + len(frames)
        self.mean[first_row:end], self.nodata[first_row:end] = frame_means(frames, nodata)
        self.motion[first_row + 1 : end] = frame_motions(frames[:-1], frames[1:], nodata)
        if previous is not None:
            self.put_motion(first_row, previous, frames[0], nodata=nodata)

    def put_motion(
        self, row: int, previous: np.ndarray, frame: np.ndarray, *, nodata: float | None
    ) -> None:
        """Take the motion of one row from its frame and the one before it, (H, W, C) each."""
        pair = previous[np.newaxis], frame[np.newaxis]
        self.motion[row : row + 1] = frame_motions(*pair, nodata)


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


def frame_means(frames: np.ndarray, nodata: float | None) -> tuple[Float64Array, Float64Array]:
    """Mean of each frame's values with data, and the fraction without: float64, (n,) each.

    Each frame by itself, in one fixed way, so that blocks of any size give the same bits.

    Args:
        frames: (n, H, W, C), C-contiguous.
        nodata: Value that stands for no data.
    """
    means, fractions = np.empty(len(frames)), np.zeros(len(frames))
    for rows, values in _pieces(frames):
        missing = missing_values(values, nodata)
        means[rows] = _means(values, missing)
        if missing is not None:
            fractions[rows] = missing.mean(axis=1)
    return means, fractions


def frame_motions(before: np.ndarray, after: np.ndarray, nodata: float | None) -> Float64Array:
    """Mean absolute difference of frames and those before them, where both have data: (n,).

    Args:
        before: (n, H, W, C), C-contiguous.
        after: The same.
        nodata: Value that stands for no data.
    """
    motions = np.empty(len(after))
    for (rows, old), (_, new) in zip(_pieces(before), _pieces(after), strict=True):
        missing = missing_values(old, nodata)
        others = missing_values(new, nodata)
        if missing is not None and others is not None:
            missing |= others
        motions[rows] = _means(_differences(old, new), missing)
    return motions


def _pieces(frames: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """As many frames at a time as stay in a core's cache: their places, and (m, H * W * C)."""
    values = frames.reshape(len(frames), math.prod(frames.shape[1:]))
    size = max(1, PIECE_BYTES // (values.shape[1] * values.itemsize))
    for first in range(0, len(values), size):
        yield slice(first, first + size), values[first : first + size]


def _means(values: np.ndarray, missing: np.ndarray | None) -> Float64Array:
    """Mean of each row's values that are not missing, NaN where all are: (n,)."""
    count = np.full(len(values), values.shape[1])
    if missing is not None:
        count -= np.count_nonzero(missing, axis=1)
        values = np.where(missing, values.dtype.type(0), values)
    means: Float64Array = np.full(len(values), np.nan)
    np.divide(_sums(values), count, out=means, where=count > 0)
    return means


def _sums(values: np.ndarray) -> np.ndarray:
    """Sum of each row, exact for integers."""
    if values.dtype.kind == "f":
        # One by one: a sum of floats depends on how numpy cuts what it is given.
        with np.errstate(invalid="ignore", over="ignore"):
            return np.array([row.sum(dtype=np.float64) for row in values])
    if values.dtype != np.uint8:
        sums: np.ndarray = values.sum(axis=1, dtype=np.int64)
        return sums
    # In the narrowest type that holds them, which is several times as fast.
    whole = values.shape[1] // BYTES_PER_UINT16 * BYTES_PER_UINT16
    if whole < LONG_ROW:
        whole = 0
    groups = values[:, :whole].reshape(len(values), BYTES_PER_UINT16, -1)
    rest: np.ndarray = values[:, whole:].sum(axis=1, dtype=np.uint32).astype(np.int64)
    rest += groups.sum(axis=1, dtype=np.uint16).sum(axis=1, dtype=np.int64)
    return rest


def _differences(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Absolute differences: of integers in their unsigned dtype, which holds them, else float64."""
    if before.dtype.kind == "f":
        with np.errstate(invalid="ignore", over="ignore"):
            floats: np.ndarray = np.abs(after.astype(np.float64) - before)
        return floats
    differences = np.maximum(before, after)
    differences -= np.minimum(before, after)
    unsigned: np.ndarray = differences.view(f"u{differences.itemsize}")
    return unsigned
