"""Forecasts of any length from a model of a fixed one, by feeding back its own frames."""

from __future__ import annotations

from typing import Any

import numpy as np

from framewin.errors import TrainingError
from framewin.forecast.scoring import as_stored, without_nan


class Forecaster:
    """A model that forecasts `horizon` frames, with the method that evaluation calls.

    A model that gives fewer frames sees its own last ones as inputs for the next ones, rounded
    to the stored dtype; where the last input has no data, they have none, either. Of a next-frame
    model, whose output k follows input k, only the last output is new.
    """

    def __init__(
        self,
        model: Any,
        horizon: int,
        *,
        output_frames: int,
        next_frame: bool = False,
        lead_gap: int = 0,
        nodata: float | None = None,
    ) -> None:
        """Wrap a model.

        Args:
            model: From stored frames (B, T_in, H, W, C) to unit scale (B, T_out, H, W, C).
            horizon: Frames to forecast, at least 1.
            output_frames: T_out.
            next_frame: Whether output k is the frame after input k.
            nodata: Pixel value that stands for no data.
            lead_gap: Frames between the last input and the first forecast that the model skips.

        Raises:
            ValueError: A horizon below 1.
            TrainingError: A horizon beyond that of a model with a gap, whose own forecasts
                cannot become its inputs.
        """
        if horizon < 1:
            raise ValueError(f"horizon must be >= 1, got {horizon}")
        steps = 1 if next_frame else output_frames
        if lead_gap and horizon > steps:
            raise TrainingError(
                f"a horizon of {horizon} frames cannot follow from a model of {steps} with a "
                f"lead gap of {lead_gap}: its forecasts do not join its inputs"
            )
        self.model, self.horizon, self.next_frame = model, horizon, next_frame
        self.nodata = nodata

    def predict_on_batch(self, inputs: np.ndarray) -> np.ndarray:
        """Forecasts of a batch.

        Args:
            inputs: Stored dtype, (B, T_in, H, W, C).

        Returns:
            float32, (B, horizon, H, W, C), in unit scale, also where the last input has no data;
            see `framewin.forecast.scoring.as_stored`.
        """
        seen, forecasts, done = without_nan(inputs), [], 0
        while done < self.horizon:
            made = np.asarray(self.model.predict_on_batch(seen), np.float32)
            made = made[:, -1:] if self.next_frame else made
            forecasts.append(made)
            done += made.shape[1]
            if done < self.horizon:
                own = without_nan(as_stored(made, inputs, self.nodata))
                joined = np.concatenate([seen, own], axis=1)
                seen = joined[:, -inputs.shape[1] :]
        return np.concatenate(forecasts, axis=1)[:, : self.horizon]

    def count_params(self) -> int:
        """Weights of the model."""
        return int(self.model.count_params())
