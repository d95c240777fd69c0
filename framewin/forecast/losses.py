"""What training makes small, by name; on any Keras backend.

A loss takes the truth and the forecast in unit scale, (B, T, H, W, C), and perhaps weights of
the truth's pixels, (B, T, H, W), and gives a value per window, (B,): the mean over its pixels,
each times its weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from framewin.optional import require

if TYPE_CHECKING:
    from keras import ops
else:
    ops = require("keras", extra="tensorflow").ops

SSIM_WINDOW = 11
SSIM_SIGMA = 1.5
SSIM_SHARE = 0.84
"""Of the mixed loss; the rest is the absolute error (Zhao et al., 2017)."""
SSIM_CONSTANTS = (0.01**2, 0.03**2)
LEAST_PROBABILITY = 1e-4
"""Kept between a forecast and 0 or 1, whose logarithms have no end."""

Loss = Callable[..., Any]


def mse(truth: Any, forecast: Any, weights: Any = None) -> Any:
    """Squared error."""
    return _mean(ops.square(forecast - truth), weights)


def mae(truth: Any, forecast: Any, weights: Any = None) -> Any:
    """Absolute error."""
    return _mean(ops.abs(forecast - truth), weights)


def mae_mse(truth: Any, forecast: Any, weights: Any = None) -> Any:
    """The sum of both: sharp and without outliers."""
    return mae(truth, forecast, weights) + mse(truth, forecast, weights)


def bce(truth: Any, forecast: Any, weights: Any = None) -> Any:
    """Binary cross-entropy, for frames that are probabilities or masks, in 0..1."""
    share = ops.clip(forecast, 0.0, 1.0) * (1 - 2 * LEAST_PROBABILITY) + LEAST_PROBABILITY
    # Beyond the range the cross-entropy is flat; a linear wall leads back.
    beyond = ops.abs(forecast - ops.clip(forecast, 0.0, 1.0))
    entropy = -(truth * ops.log(share) + (1 - truth) * ops.log(1 - share))
    return _mean(entropy + beyond, weights)


def ssim_mixed(truth: Any, forecast: Any, weights: Any = None) -> Any:
    """0.84 (1 - SSIM) + 0.16 MAE, with SSIM's window of 11 pixels and sigma 1.5.

    Smaller frames have the largest odd window that fits. At the edges the similarity is not
    defined and does not count; nor does it where any pixel of the window has the weight 0.
    """
    similarity = ssim_map(truth, forecast)
    inner = None
    if weights is not None:
        inner = _least_of_windows(weights, truth.shape[2] - similarity.shape[2] + 1)
    absolute = mae(truth, forecast, weights)
    return SSIM_SHARE * _mean(1 - similarity, inner) + (1 - SSIM_SHARE) * absolute


LOSS_FUNCTIONS: dict[str, Loss] = {
    "mse": mse,
    "mae": mae,
    "mae+mse": mae_mse,
    "bce": bce,
    "ssim": ssim_mixed,
}


def ssim_map(truth: Any, forecast: Any) -> Any:
    """Structural similarity (Wang et al., 2004) of each pixel whose window lies in the frame.

    Args:
        truth: Unit scale, (B, T, H, W, C).
        forecast: The same shape.

    Returns:
        (B, T, H - 10, W - 10, C).
    """
    size = min(SSIM_WINDOW, *(side - 1 + side % 2 for side in truth.shape[2:4]))
    mean_t, mean_f = _blurred(truth, size), _blurred(forecast, size)
    var_t = _blurred(truth * truth, size) - mean_t * mean_t
    var_f = _blurred(forecast * forecast, size) - mean_f * mean_f
    both = _blurred(truth * forecast, size) - mean_t * mean_f
    c1, c2 = SSIM_CONSTANTS
    above = (2 * mean_t * mean_f + c1) * (2 * both + c2)
    return above / ((mean_t**2 + mean_f**2 + c1) * (var_t + var_f + c2))


def _blurred(frames: Any, size: int) -> Any:
    """Gaussian means where the window fits, row by row and column by column."""
    time, height, width, channels = frames.shape[1:]
    places = np.arange(size) - size // 2
    kernel = np.exp(-(places**2) / (2 * SSIM_SIGMA**2))
    line = (kernel / kernel.sum()).astype(np.float32)
    x = ops.reshape(ops.transpose(frames, (0, 1, 4, 2, 3)), (-1, height, width, 1))
    x = ops.conv(x, ops.convert_to_tensor(line.reshape(size, 1, 1, 1)), padding="valid")
    x = ops.conv(x, ops.convert_to_tensor(line.reshape(1, size, 1, 1)), padding="valid")
    x = ops.reshape(x, (-1, time, channels, height - size + 1, width - size + 1))
    return ops.transpose(x, (0, 1, 3, 4, 2))


def _least_of_windows(weights: Any, size: int) -> Any:
    """The least weight in each window that fits: (B, T, H, W) -> (B, T, H - 10, W - 10)."""
    time, height, width = weights.shape[1:]
    lacking = ops.reshape(1 - weights, (-1, height, width, 1))
    lacking = ops.max_pool(lacking, size, strides=1, padding="valid")
    return 1 - ops.reshape(lacking, (-1, time, height - size + 1, width - size + 1))


def _mean(errors: Any, weights: Any) -> Any:
    """(B, T, H, W, C) -> (B,)."""
    if weights is not None:
        errors = errors * weights[..., None]
    return ops.sum(errors, axis=(1, 2, 3, 4)) / math.prod(errors.shape[1:])
