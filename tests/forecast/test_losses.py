"""Losses against plain numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("tf")
SHAPE = (2, 3, 14, 16, 2)


def pair(shape: tuple[int, ...] = SHAPE) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    truth = rng.random(shape).astype(np.float32)
    return truth, np.clip(truth + rng.normal(0, 0.2, shape), 0, 1).astype(np.float32)


def plain_ssim(truth: np.ndarray, forecast: np.ndarray, size: int) -> np.ndarray:
    """Of one gray frame (H, W), window by window."""
    places = np.arange(size) - size // 2
    line = np.exp(-(places**2) / (2 * 1.5**2))
    window = np.outer(line, line) / np.outer(line, line).sum()
    height, width = (side - size + 1 for side in truth.shape)
    found = np.zeros((height, width))
    for y in range(height):
        for x in range(width):
            t, f = (frame[y : y + size, x : x + size].astype(float) for frame in (truth, forecast))
            mt, mf = (window * t).sum(), (window * f).sum()
            vt, vf = (window * (t - mt) ** 2).sum(), (window * (f - mf) ** 2).sum()
            both = (window * (t - mt) * (f - mf)).sum()
            c1, c2 = 0.01**2, 0.03**2
            above = (2 * mt * mf + c1) * (2 * both + c2)
            found[y, x] = above / ((mt**2 + mf**2 + c1) * (vt + vf + c2))
    return found


def loss(name: str, *arguments: np.ndarray) -> np.ndarray:
    from framewin.forecast.losses import LOSS_FUNCTIONS

    return np.asarray(LOSS_FUNCTIONS[name](*arguments))


def test_every_setting_has_a_loss() -> None:
    """The table of functions and the names that settings allow are the same."""
    from framewin.forecast.losses import LOSS_FUNCTIONS
    from framewin.forecast.settings import LOSSES

    assert tuple(LOSS_FUNCTIONS) == LOSSES


def test_errors_are_means_per_window() -> None:
    """mse, mae and their sum."""
    truth, forecast = pair()
    error = (forecast - truth).astype(float)
    squared, absolute = (values.mean(axis=(1, 2, 3, 4)) for values in (error**2, abs(error)))
    np.testing.assert_allclose(loss("mse", truth, forecast), squared, rtol=1e-5)
    np.testing.assert_allclose(loss("mae", truth, forecast), absolute, rtol=1e-5)
    np.testing.assert_allclose(loss("mae+mse", truth, forecast), squared + absolute, rtol=1e-5)


def test_cross_entropy() -> None:
    """Finite and least at the truth, also for a forecast that is certain and wrong."""
    truth = np.array([0.0, 1.0, 1.0, 0.0], np.float32).reshape(4, 1, 1, 1, 1)
    forecast = np.array([0.25, 0.25, 1.0, 1.0], np.float32).reshape(4, 1, 1, 1, 1)
    wanted = [-math.log(0.75), -math.log(0.25), 1e-4, -math.log(1e-4)]
    np.testing.assert_allclose(loss("bce", truth, forecast), wanted, rtol=2e-3, atol=2e-5)
    assert loss("bce", truth, forecast + 2)[2] > 1


@pytest.mark.parametrize(("shape", "size"), [(SHAPE, 11), ((1, 2, 6, 9, 1), 5)])
def test_ssim_is_that_of_plain_loops(shape: tuple[int, ...], size: int) -> None:
    """With an 11x11 Gaussian window, or the largest odd one that fits."""
    from framewin.forecast.losses import ssim_map

    truth, forecast = pair(shape)
    found = np.asarray(ssim_map(truth, forecast))
    plain = plain_ssim(truth[0, 1, :, :, -1], forecast[0, 1, :, :, -1], size)
    np.testing.assert_allclose(found[0, 1, :, :, -1], plain, atol=1e-4)
    mixed = 0.84 * (1 - found.mean(axis=(1, 2, 3, 4))) + 0.16 * loss("mae", truth, forecast)
    np.testing.assert_allclose(loss("ssim", truth, forecast), mixed, rtol=1e-5)


@pytest.mark.parametrize("name", ["mse", "mae", "mae+mse", "bce", "ssim"])
def test_weights_leave_pixels_out(name: str) -> None:
    """What is wrong only where the weight is 0 costs nothing; all weights 1 change nothing."""
    truth, forecast = pair()
    ones = np.ones(SHAPE[:4], np.float32)
    np.testing.assert_allclose(
        loss(name, truth, forecast, ones), loss(name, truth, forecast), rtol=1e-5
    )
    assert loss(name, truth, forecast, 0 * ones) == pytest.approx(0)


@pytest.mark.parametrize("name", ["mse", "mae", "mae+mse", "bce", "ssim"])
def test_what_lies_without_data_does_not_matter(name: str) -> None:
    """Regression: a window of SSIM counted if its middle had data, whatever was around it."""
    shape = (2, 3, 26, 28, 2)
    truth, forecast = pair(shape)
    weights = np.ones(shape[:4], np.float32)
    weights[..., :14] = 0
    weights[0, 1, 20, 22] = 0
    garbage = np.where(weights[..., np.newaxis] == 0, np.float32(0.9), truth)
    expected = loss(name, truth, forecast, weights)
    np.testing.assert_array_less(0, expected)
    np.testing.assert_allclose(loss(name, garbage, forecast, weights), expected, rtol=1e-5)


def test_windows_without_a_pixel_of_data_are_left_out_of_ssim() -> None:
    """Those of plain loops that hold only pixels with data."""
    from framewin.forecast.losses import ssim_map

    shape = (1, 1, 14, 16, 1)
    truth, forecast = pair(shape)
    weights = np.ones(shape[:4], np.float32)
    weights[0, 0, 4, 2] = 0
    rows, columns = np.mgrid[:4, :6]
    whole = ~((rows <= 4) & (columns <= 2))
    similarity = np.asarray(ssim_map(truth, forecast))[0, 0, :, :, 0]
    absolute = loss("mae", truth, forecast, weights)[0]
    expected = 0.84 * ((1 - similarity) * whole).sum() / whole.size + 0.16 * absolute
    assert loss("ssim", truth, forecast, weights)[0] == pytest.approx(expected, rel=1e-5)
