"""Scores of forecasts, on numpy arrays of frames in unit scale (0..1).

Every score is computed in float64 and per lead time first, so that means over frames, windows
and pixels are the same in any grouping.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from framewin.schema import FRAME_DTYPES

FULL_SCALE = {
    dtype: 1.0 if np.dtype(dtype).kind == "f" else float(np.iinfo(dtype).max)
    for dtype in FRAME_DTYPES
}
"""Stored dtype -> the value that is 1 in unit scale: an integer's largest, 1 of floats."""


def to_unit(frames: np.ndarray) -> np.ndarray:
    """Frames of a stored dtype in unit scale.

    Args:
        frames: One of `FRAME_DTYPES`, any shape.

    Returns:
        float64 of the same shape; integers divided by the largest value of their dtype (uint8
        by 255, uint16 by 65535), floats unchanged.
    """
    return frames.astype(np.float64) / FULL_SCALE[frames.dtype.name]


def last_frame(inputs: np.ndarray, predict_frames: int) -> np.ndarray:
    """The persistence forecast: the last input frame, repeated.

    Args:
        inputs: (B, T_in, H, W, C).
        predict_frames: T_out.

    Returns:
        (B, T_out, H, W, C), the dtype of `inputs`.
    """
    return np.repeat(inputs[:, -1:], predict_frames, axis=1)


@dataclass(frozen=True, slots=True)
class Scores:
    """Errors of a forecast over all windows scored."""

    mse: float
    """Mean squared error per pixel and channel, unit scale squared."""
    mae: float
    """Mean absolute error per pixel and channel, unit scale."""
    psnr_of_mean_mse: float
    """Peak signal-to-noise ratio of `mse` for the data range 1, dB; infinite for a perfect
    forecast. Not the mean of the frames' ratios, which is higher."""
    mse_per_lead_time: tuple[float, ...]
    """`mse` of the first, second, ... predicted frame."""

    def skill(self, baseline: Scores) -> float:
        """Share of the baseline's mean squared error that is gone: 1 perfect, 0 no better."""
        return 1 - self.mse / baseline.mse if baseline.mse else 0.0


@dataclass(slots=True)
class ScoreSums:
    """Running sums, so that forecasts of any number of windows are scored batch by batch.

    >>> sums = ScoreSums()
    >>> truth = np.zeros((1, 2, 4, 4, 1))
    >>> sums.add(truth, truth + np.array([0.1, 0.3]).reshape(1, 2, 1, 1, 1))
    >>> scores = sums.scores()
    >>> round(scores.mse, 6), round(scores.mae, 6), round(scores.psnr_of_mean_mse, 2)
    (0.05, 0.2, 13.01)
    """

    squared: np.ndarray = field(default_factory=lambda: np.zeros(1))
    absolute: np.ndarray = field(default_factory=lambda: np.zeros(1))
    values_per_lead_time: int = 0

    def add(self, truth: np.ndarray, forecast: np.ndarray) -> None:
        """Score one batch.

        Args:
            truth: Unit scale, (B, T_out, H, W, C).
            forecast: The same shape.

        Raises:
            ValueError: The shapes differ.
        """
        if truth.shape != forecast.shape:
            raise ValueError(f"forecast has shape {forecast.shape}, the truth {truth.shape}")
        error = np.asarray(forecast, np.float64) - np.asarray(truth, np.float64)
        self.squared = self.squared + np.square(error).sum(axis=(0, 2, 3, 4))
        self.absolute = self.absolute + np.abs(error).sum(axis=(0, 2, 3, 4))
        self.values_per_lead_time += error.size // error.shape[1]

    def scores(self) -> Scores:
        """The means over everything added so far; at least one batch."""
        per_lead_time = self.squared / self.values_per_lead_time
        mse = float(per_lead_time.mean())
        return Scores(
            mse=mse,
            mae=float((self.absolute / self.values_per_lead_time).mean()),
            psnr_of_mean_mse=-10 * math.log10(mse) if mse else math.inf,
            mse_per_lead_time=tuple(per_lead_time.tolist()),
        )
