"""Scores of a predictor and of baselines on the windows of a dataset, batch by batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from framewin.dataset import FrameWindowDataset
from framewin.errors import TrainingError
from framewin.forecast.baselines import BASELINES, Limits
from framewin.metrics import (
    FSS_WINDOW,
    FULL_SCALE,
    SSIM_WINDOW,
    Scores,
    ScoreSums,
    to_unit,
)
from framewin.scaling import missing_of
from framewin.schema import FrameFormat, Progress

MODEL = "model"
"""The predictor's name among the scores."""
FULL_RANGE_DTYPES = ("uint8", "uint16")
"""Dtypes that frames use to their limits, as the formats of pictures have it."""


@dataclass(frozen=True, slots=True)
class DataRange:
    """Between which values frames lie, in the stored unit."""

    low: float
    high: float
    source: str
    """Where it is from, in words."""

    @property
    def width(self) -> float:
        """`high` minus `low`."""
        return self.high - self.low


@dataclass(frozen=True, slots=True, eq=False)
class WindowScores:
    """Scores of several predictors on the same windows."""

    total: dict[str, Scores]
    """Predictor -> its scores, the model first."""
    per_lead_time: dict[str, tuple[Scores, ...]]
    squared: dict[str, np.ndarray]
    """Predictor -> squared error summed over each window, unit scale, (windows,)."""
    values: np.ndarray
    """Values of each window's target that have data, (windows,)."""


def data_range_of(
    frame_format: FrameFormat,
    training: FrameWindowDataset | None,
    given: tuple[float, float] | None,
) -> DataRange:
    """The range that PSNR and SSIM refer to; never that of the frames that are scored.

    Of uint8 and uint16 all values of the dtype, as the papers have it for uint8. Other dtypes
    are seldom used to their limits, so theirs is what the frames trained on hold.

    Args:
        frame_format: Of the stored frames.
        training: Windows trained on, which are read if the dtype does not say.
        given: Least and greatest value, stored unit; wins.

    Raises:
        ValueError: `given` is not two numbers, the second greater.
        TrainingError: The range is not known, or is empty.
    """
    if given is not None:
        low, high = given
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"data_range must be LOW:HIGH with LOW below HIGH, got {low}:{high}")
        return DataRange(low, high, "given")
    if frame_format.dtype in FULL_RANGE_DTYPES:
        return DataRange(0.0, FULL_SCALE[frame_format.dtype], f"all values of {frame_format.dtype}")
    if training is None:
        raise TrainingError(
            f"{frame_format.dtype} does not say between which values frames lie; give data_range"
        )
    low, high = _extremes(training)
    if not low < high:
        raise TrainingError("the frames trained on hold a single value or none; give data_range")
    return DataRange(low, high, "least and greatest value of the frames trained on")


def _extremes(dataset: FrameWindowDataset) -> tuple[float, float]:
    """Least and greatest value that is data in any frame of the windows."""
    low, high = math.inf, -math.inf
    for begin, end in dataset.index.row_ranges().tolist():
        for _, frames in dataset.blocks(begin, end):
            missing = missing_of(frames, dataset.nodata)
            values = frames if missing is None else frames[~missing]
            if values.size:
                low, high = min(low, float(values.min())), max(high, float(values.max()))
    return low, high


def dtype_limits(dtype: str, otherwise: Limits) -> Limits:
    """Between which values a forecast can lie, unit scale; `otherwise` of floats."""
    if np.dtype(dtype).kind == "f":
        return otherwise
    info = np.iinfo(dtype)
    return info.min / FULL_SCALE[dtype], 1.0


def forecast(model: Any, inputs: np.ndarray) -> np.ndarray:
    """A batch of forecasts in unit scale, (B, T_out, H, W, C); of integers clipped to the dtype.

    Where inputs are NaN, a model that is no `Forecaster` sees 0, as in training.
    """
    from framewin.forecast.rollout import Forecaster

    given = inputs if isinstance(model, Forecaster) else without_nan(inputs)
    predicted: np.ndarray = np.asarray(model.predict_on_batch(given))
    return predicted.clip(*dtype_limits(inputs.dtype.name, (-math.inf, math.inf)))


def score_windows(
    model: Any,
    dataset: FrameWindowDataset,
    *,
    baselines: Sequence[str] = ("persistence",),
    data_range: DataRange | None = None,
    thresholds: Sequence[float] = (),
    fss_window: int = FSS_WINDOW,
    with_ssim: bool = False,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> WindowScores:
    """Score a predictor and baselines on all windows of a dataset.

    Values without data are left out of the scores of truth and forecast. The baselines see, in
    place of an input without data, the pixel's last value before it, else the next one, else 0.

    Args:
        model: Anything with `predict_on_batch` from (B, T_in, H, W, C) in the stored dtype to
            (B, T_out, H, W, C) in unit scale.
        dataset: The windows, none of which the model was trained on.
        baselines: Some of `BASELINES`.
        data_range: Of PSNR and SSIM; by default 1 in unit scale.
        thresholds: Stored unit; for CSI, POD, FAR and FSS.
        fss_window: Pixels of the neighbourhood along each axis, odd.
        with_ssim: Whether SSIM is computed, where frames are large enough.
        batch_size: Windows per forecast.
        progress: Called with (windows done, windows in all).

    Raises:
        TrainingError: A forecast that is not a number.
    """
    full = FULL_SCALE[dataset.frame_format.dtype]
    spec = dataset.spec
    leads = spec.lead_gap + np.arange(1, spec.predict_frames + 1)
    own = data_range or DataRange(0.0, full, "unit scale")
    limits = dtype_limits(dataset.frame_format.dtype, (own.low / full, own.high / full))
    large = min(dataset.frame_format.shape[:2]) >= SSIM_WINDOW
    sums = {
        name: ScoreSums(
            data_range=own.width / full,
            with_ssim=with_ssim and large,
            thresholds=[threshold / full for threshold in thresholds],
            fss_window=fss_window,
        )
        for name in (MODEL, *baselines)
    }
    squared = {name: np.zeros(len(dataset)) for name in sums}
    values = np.zeros(len(dataset), np.int64)
    for first in range(0, len(dataset), batch_size):
        windows = np.arange(first, min(first + batch_size, len(dataset)))
        inputs, targets = dataset.read(windows)
        truth, missing = to_unit(targets), missing_of(targets, dataset.nodata)
        valid = None if missing is None else ~missing
        values[windows] = targets[0].size if valid is None else valid.sum(axis=(1, 2, 3, 4))
        made = {MODEL: model_forecast(model, dataset, windows, inputs)}
        seen = filled(inputs, dataset.nodata)
        made |= {name: BASELINES[name](seen, leads, limits) for name in baselines}
        for name, predicted in made.items():
            squared[name][windows] = sums[name].add(truth, predicted, valid=valid)
        if progress is not None:
            progress(int(windows[-1]) + 1, len(dataset))
    return WindowScores(
        {name: each.scores() for name, each in sums.items()},
        {name: each.per_lead_time() for name, each in sums.items()},
        squared,
        values,
    )


def model_forecast(
    model: Any, dataset: FrameWindowDataset, windows: np.ndarray, inputs: np.ndarray
) -> np.ndarray:
    """Forecasts of some windows, (B, T_out, H, W, C) in unit scale.

    Raises:
        TrainingError: One of them is not a number.
    """
    predicted = forecast(model, inputs)
    lost = ~np.isfinite(predicted).all(axis=(1, 2, 3, 4))
    if lost.any():
        where = dataset.window(int(windows[np.argmax(lost)]))
        raise TrainingError(
            f"the forecast for clip {where.clip}, frame {where.predict_frame_numbers[0]} on is "
            "not a number; train again with a lower learning rate"
        )
    return predicted


def without_nan(inputs: np.ndarray) -> np.ndarray:
    """Inputs as in training: 0 where they are NaN."""
    if inputs.dtype.kind == "f":
        return np.where(np.isnan(inputs), inputs.dtype.type(0), inputs)
    return inputs


def as_stored(predicted: np.ndarray, inputs: np.ndarray, nodata: float | None) -> np.ndarray:
    """Forecasts in the stored dtype: no data where the last input has none, and nowhere else.

    Args:
        predicted: Unit scale, (B, T_out, H, W, C).
        inputs: Stored dtype, (B, T_in, H, W, C).
        nodata: Pixel value that stands for no data.

    Returns:
        The dtype of `inputs`, (B, T_out, H, W, C).
    """
    frames = stored(predicted, inputs.dtype.name)
    if nodata is not None and inputs.dtype.kind != "f":
        # A forecast that happens to be that value would be read as no data.
        taken, limit = inputs.dtype.type(nodata), np.iinfo(inputs.dtype).max
        frames[frames == taken] = taken - 1 if nodata == limit else taken + 1
    missing = missing_of(inputs[:, -1:], nodata)
    return frames if missing is None else np.where(missing, inputs[:, -1:], frames)


def stored(frames: np.ndarray, dtype: str) -> np.ndarray:
    """Frames of unit scale in a stored dtype, integers clipped to it and rounded; any shape."""
    if np.dtype(dtype).kind == "f":
        return frames.astype(dtype)
    limits = np.iinfo(dtype)
    values = np.rint(frames.astype(np.float64) * FULL_SCALE[dtype])
    return np.clip(values, limits.min, limits.max).astype(dtype)


def score_text(value: float | None, digits: int | None = None) -> str:
    """A score to print: with so many decimals, or else with four significant digits.

    >>> score_text(0.0123456), score_text(0.00000123456), score_text(204.8), score_text(17.5, 2)
    ('0.01235', '1.235e-06', '204.8', '17.50')
    """
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "infinite"
    return f"{value:#.4g}".rstrip(".") if digits is None else f"{value:.{digits}f}"


def filled(inputs: np.ndarray, nodata: float | None) -> np.ndarray:
    """Stored inputs (B, T_in, H, W, C) in unit scale, with values in place of no data.

    A pixel without data has its last value before, else the next one, else 0.
    """
    found = to_unit(inputs)
    missing = missing_of(inputs, nodata)
    if missing is None:
        return found
    found[missing] = np.nan
    times = [*range(1, found.shape[1])]
    for time, source in [*((t, t - 1) for t in times), *((t - 1, t) for t in reversed(times))]:
        found[:, time] = np.where(np.isnan(found[:, time]), found[:, source], found[:, time])
    found[np.isnan(found)] = 0
    return found
