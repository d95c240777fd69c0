"""Scores of a predictor beside the last-frame baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from framewin.dataset import FrameWindowDataset
from framewin.forecast.figures import Example
from framewin.metrics import Scores, ScoreSums, last_frame, to_unit


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A predictor and the baseline, scored on the same windows."""

    windows: int
    model: Scores
    last_frame: Scores

    @property
    def skill(self) -> float:
        """Share of the baseline's mean squared error that the model removes."""
        return self.model.skill(self.last_frame)


def evaluate(model: Any, dataset: FrameWindowDataset, *, batch_size: int = 8) -> Evaluation:
    """Score a predictor on all windows of a dataset.

    Args:
        model: A Keras model from (B, T_in, H, W, C) in the stored dtype to (B, T_out, H, W, C)
            in unit scale. Forecasts of unsigned integers are clipped to 0..1 first.
        dataset: The windows, none of which the model was trained on.
        batch_size: Windows per forecast.
    """
    model_sums, baseline_sums = ScoreSums(), ScoreSums()
    for first in range(0, len(dataset), batch_size):
        windows = range(first, min(first + batch_size, len(dataset)))
        inputs, targets = dataset.batch(windows)[:2]
        truth = to_unit(targets)
        model_sums.add(truth, forecast(model, inputs))
        baseline_sums.add(truth, last_frame(to_unit(inputs), dataset.spec.predict_frames))
    return Evaluation(len(dataset), model_sums.scores(), baseline_sums.scores())


def examples(model: Any, dataset: FrameWindowDataset, count: int) -> list[Example]:
    """Windows spread evenly over a dataset, with their forecasts."""
    count = min(count, len(dataset))
    windows = np.linspace(0, len(dataset) - 1, count + 2)[1:-1].round().astype(int)
    inputs, targets = dataset.batch(windows.tolist())[:2]
    forecasts = forecast(model, inputs)
    return [
        Example(_title(dataset, window), to_unit(i), to_unit(t), f)
        for window, i, t, f in zip(windows, inputs, targets, forecasts, strict=True)
    ]


def forecast(model: Any, inputs: np.ndarray) -> np.ndarray:
    """A batch of forecasts in unit scale, (B, T_out, H, W, C)."""
    predicted = np.asarray(model.predict_on_batch(inputs))
    return np.clip(predicted, 0, 1) if inputs.dtype.kind == "u" else predicted


def _title(dataset: FrameWindowDataset, window: int) -> str:
    source = dataset.window(window)
    numbers = (source.predict_frame_numbers[0], source.predict_frame_numbers[-1])
    return f"{source.clip}, frames {numbers[0]} to {numbers[1]}"
