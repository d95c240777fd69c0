"""Forecasts that need no training, which a predictor must beat to be worth anything."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from framewin.metrics import last_frame
from framewin.optional import require

Limits = tuple[float, float]
"""Least and greatest value that a frame can have, unit scale."""
Baseline = Callable[[np.ndarray, np.ndarray, Limits], np.ndarray]
"""(inputs (B, T_in, H, W, C) in unit scale, lead times (T_out,), limits) -> (B, T_out, H, W, C).

Lead times count steps between neighbouring input frames: the last input has 0."""

FLOW_TRACING_STEPS = 3
"""Times that the way back of a pixel is corrected by the flow where it comes from."""


def persistence(inputs: np.ndarray, leads: np.ndarray, limits: Limits) -> np.ndarray:
    """The last input frame, repeated."""
    return last_frame(inputs, len(leads))


def mean_of_inputs(inputs: np.ndarray, leads: np.ndarray, limits: Limits) -> np.ndarray:
    """The mean of the input frames, repeated: the best of these where frames are mostly noise."""
    return np.repeat(inputs.mean(axis=1, keepdims=True), len(leads), axis=1)


def linear_extrapolation(inputs: np.ndarray, leads: np.ndarray, limits: Limits) -> np.ndarray:
    """Each pixel goes on as it changed between the last two inputs, clipped to the limits.

    Of a single input, the same as `persistence`.
    """
    change = inputs[:, -1:] - inputs[:, -2:-1] if inputs.shape[1] > 1 else np.zeros(())
    moved: np.ndarray = inputs[:, -1:] + leads.reshape(1, -1, 1, 1, 1) * change
    return moved.clip(*limits)


def optical_flow(inputs: np.ndarray, leads: np.ndarray, limits: Limits) -> np.ndarray:
    """The last input frame, moved on along the motion between the last two inputs.

    Dense flow by Farneback (2003, SCIA), on the mean of the channels, and backward
    semi-Lagrangian advection (Germann and Zawadzki, 2002, Monthly Weather Review 130): a pixel's
    value is fetched from where it comes from, a steady flow being followed back step by step.
    What comes from beyond the edge is the edge. Of a single input, the same as `persistence`.

    Raises:
        MissingDependencyError: OpenCV is not installed.
    """
    cv2 = require("cv2", extra="flow")
    if inputs.shape[1] == 1:
        return persistence(inputs, leads, limits)
    return np.stack([_advected(cv2, window[-2], window[-1], leads) for window in inputs])


def _advected(cv2: Any, before: np.ndarray, last: np.ndarray, leads: np.ndarray) -> np.ndarray:
    """(H, W, C) frames -> (T_out, H, W, C)."""
    flow = cv2.calcOpticalFlowFarneback(
        *_as_bytes(before, last),
        None,
        pyr_scale=0.5,
        levels=3,
        winsize=15,
        iterations=3,
        poly_n=5,
        poly_sigma=1.2,
        flags=0,
    )
    height, width = flow.shape[:2]
    here = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1).astype(np.float32)
    fetch = partial(
        cv2.remap, map2=None, interpolation=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
    )
    way, found = np.zeros_like(here), {}
    for lead in range(1, int(leads.max()) + 1):
        way = _one_step_back(fetch, flow, here, way)
        found[lead] = way
    channels = np.moveaxis(last, -1, 0).astype(np.float32)
    moved = [[fetch(channel, here - found[int(lead)]) for channel in channels] for lead in leads]
    frames: np.ndarray = np.moveaxis(np.array(moved, np.float64), 1, -1)
    return frames


def _one_step_back(
    fetch: Callable[..., np.ndarray], flow: np.ndarray, here: np.ndarray, way: np.ndarray
) -> np.ndarray:
    """How far pixels have come one step later, (H, W, 2), by the flow in the middle of the step."""
    step: np.ndarray = np.zeros_like(way)
    for _ in range(FLOW_TRACING_STEPS):
        step = fetch(flow, here - way - step / 2)
    moved: np.ndarray = way + step
    return moved


def _as_bytes(*frames: np.ndarray) -> tuple[np.ndarray, ...]:
    """Gray uint8 pictures that use the whole range, as the flow needs them."""
    gray = [frame.mean(axis=-1) for frame in frames]
    low = min(float(frame.min()) for frame in gray)
    spread = max(float(frame.max()) for frame in gray) - low or 1.0
    return tuple(np.rint((frame - low) / spread * 255).astype(np.uint8) for frame in gray)


BASELINES: dict[str, Baseline] = {
    "persistence": persistence,
    "mean_of_inputs": mean_of_inputs,
    "linear_extrapolation": linear_extrapolation,
    "optical_flow": optical_flow,
}
"""Name -> forecast. `optical_flow` needs OpenCV: `pip install 'framewin[flow]'`."""
TITLES = {
    "persistence": "persistence",
    "mean_of_inputs": "mean of inputs",
    "linear_extrapolation": "linear extrapolation",
    "optical_flow": "optical flow",
}
