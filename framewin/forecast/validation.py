"""A predictor beside the last-frame baseline, as training reports it, with examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from framewin.dataset import FrameWindowDataset
from framewin.forecast.scoring import (
    MODEL,
    DataRange,
    as_stored,
    forecast,
    score_windows,
)
from framewin.metrics import FULL_SCALE, Scores
from framewin.pictures.figures import Example
from framewin.pictures.playback import in_minutes, true_pace
from framewin.scaling import shown_values
from framewin.schema import shown_number


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A predictor and the baseline, scored on the same windows."""

    windows: int
    model: Scores
    last_frame: Scores

    @property
    def skill(self) -> float | None:
        """Share of the baseline's mean squared error that the model removes; None where the
        baseline is perfect."""
        return self.model.skill(self.last_frame)


def evaluate(
    model: Any,
    dataset: FrameWindowDataset,
    *,
    data_range: DataRange | None = None,
    batch_size: int = 8,
) -> Evaluation:
    """Score a predictor on all windows of a dataset.

    Args:
        model: Anything with `predict_on_batch` from (B, T_in, H, W, C) in the stored dtype to
            (B, T_out, H, W, C) in unit scale. Forecasts of integers are clipped to their dtype.
        dataset: The windows, none of which the model was trained on.
        data_range: Of PSNR; by default 1 in unit scale.
        batch_size: Windows per forecast.
    """
    found = score_windows(model, dataset, data_range=data_range, batch_size=batch_size).total
    return Evaluation(len(dataset), found[MODEL], found["persistence"])


def examples(model: Any, dataset: FrameWindowDataset, count: int) -> list[Example]:
    """Windows spread evenly over a dataset, with their forecasts."""
    count = min(count, len(dataset))
    # Neither the first nor the last one, where there are others.
    ends = 1 if len(dataset) >= count + 2 else 0
    windows = np.linspace(0, len(dataset) - 1, count + 2 * ends).round().astype(int)
    windows = windows[ends : ends + count]
    return examples_of(model, dataset, windows.tolist())


def examples_of(model: Any, dataset: FrameWindowDataset, windows: Sequence[int]) -> list[Example]:
    """Some windows with their forecasts."""
    inputs, targets = dataset.batch(windows)[:2]
    nodata = dataset.nodata
    frames = [inputs, targets, as_stored(forecast(model, inputs), inputs, nodata)]
    shown = zip(windows, *(shown_values(each, nodata) for each in frames), strict=True)
    seconds = true_pace(dataset.clips, dataset.conversion, dataset.spec.frame_step).true_seconds
    minutes = in_minutes(seconds)
    gap, full = dataset.spec.lead_gap, FULL_SCALE[dataset.frame_format.dtype]
    return [Example(title_of(dataset, w), i, t, f, gap, minutes, full) for w, i, t, f in shown]


def title_of(dataset: FrameWindowDataset, window: int) -> str:
    """A window's clip and the numbers, or times, of its predicted frames."""
    source = dataset.window(window)
    ends = (source.predict_frame_numbers[0], source.predict_frame_numbers[-1])
    first, last = (shown_number(number, dataset.clips.time_unit) for number in ends)
    what = "frames" if dataset.clips.time_unit is None else "times"
    return f"{source.clip}, {what} {first} to {last}"
