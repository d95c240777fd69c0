"""Statistics of frames, from decoded frames, block after block.

Values are in the stored unit. Pixels without data are left out; where nothing is left the
statistic is NaN. A segment's first frame has no motion: NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

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
        return cls(*(np.full(num_frames, np.nan) for _ in range(3)))

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
            frames: As stored.
            previous: The frame before them in their segment, (H, W, C); None of the first.
            nodata: Value that stands for no data.
        """
        rows = slice(first_row, first_row + len(frames))
        missing = missing_values(frames, nodata)
        self.mean[rows] = _mean(frames, missing)
        self.nodata[rows] = 0.0 if missing is None else missing.mean(axis=(1, 2, 3))
        if previous is not None:
            frames = np.concatenate([previous[np.newaxis], frames])
            missing = missing_values(frames, nodata)
        if len(frames) < 2:
            return
        either = None if missing is None else missing[1:] | missing[:-1]
        end = first_row + len(frames) - (previous is not None)
        self.motion[end - len(frames) + 1 : end] = _mean(_differences(frames), either)


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


def _mean(values: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
    """Mean of each frame's values that are not missing, (n,)."""
    if missing is None:
        plain: np.ndarray = values.mean(axis=(1, 2, 3), dtype=np.float64)
        return plain
    count = (~missing).sum(axis=(1, 2, 3))
    total = np.where(missing, 0, values).sum(axis=(1, 2, 3), dtype=np.float64)
    means: np.ndarray = np.full(len(values), np.nan)
    np.divide(total, count, out=means, where=count > 0)
    return means


def _differences(frames: np.ndarray) -> np.ndarray:
    """Absolute differences of neighbours, (n - 1, H, W, C), in a dtype that holds them."""
    wide = {1: np.int16, 2: np.int32}.get(frames.dtype.itemsize, np.float64)
    values = frames.astype(np.float64 if frames.dtype.kind == "f" else wide)
    differences: np.ndarray = np.abs(np.diff(values, axis=0))
    return differences
