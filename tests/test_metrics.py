"""Scores against plain numpy, with the conventions that their names state."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from framewin.metrics import Scores, ScoreSums, last_frame, to_unit


def scored(truth: np.ndarray, forecast: np.ndarray, batches: int = 1) -> Scores:
    sums = ScoreSums()
    for t, f in zip(np.array_split(truth, batches), np.array_split(forecast, batches), strict=True):
        sums.add(t, f)
    return sums.scores()


@pytest.mark.parametrize("batches", [1, 2, 7])
def test_scores_equal_plain_numpy(batches: int) -> None:
    """In any grouping of windows, also with a shorter last batch."""
    rng = np.random.default_rng(0)
    truth, forecast = rng.random((2, 15, 3, 4, 5, 2))
    scores = scored(truth, forecast.astype(np.float32), batches)
    error = forecast.astype(np.float32).astype(np.float64) - truth
    assert scores.mse == pytest.approx((error**2).mean(), rel=1e-12)
    assert scores.mae == pytest.approx(abs(error).mean(), rel=1e-12)
    assert scores.psnr_of_mean_mse == pytest.approx(-10 * math.log10((error**2).mean()))
    per_lead_time = (error**2).mean(axis=(0, 2, 3, 4))
    assert scores.mse_per_lead_time == pytest.approx(per_lead_time.tolist(), rel=1e-12)


def test_uint8_frames_do_not_wrap() -> None:
    """A difference of 255 is 1 in unit scale, whatever its sign."""
    black, white = (np.full((1, 1, 2, 2, 1), v, np.uint8) for v in (0, 255))
    assert scored(to_unit(black), to_unit(white)).mse == 1
    assert scored(to_unit(white), to_unit(black)).mse == 1


def test_a_perfect_forecast() -> None:
    """No error, and an infinite ratio instead of a division by zero."""
    truth = np.zeros((1, 2, 2, 2, 1))
    scores = scored(truth, truth)
    assert (scores.mse, scores.mae, scores.psnr_of_mean_mse) == (0, 0, math.inf)
    assert scores.skill(scores) == 0


def test_skill_is_the_share_of_error_removed() -> None:
    """Half of the baseline's error left is a skill of one half; twice as much is -1."""
    truth = np.zeros((1, 1, 2, 2, 1))
    baseline = scored(truth, truth + np.sqrt(0.02))
    assert scored(truth, truth + 0.1).skill(baseline) == pytest.approx(0.5)
    assert scored(truth, truth + 0.2).skill(baseline) == pytest.approx(-1)


def test_last_frame_repeats_the_last_input() -> None:
    """Every predicted frame is the last input, in its dtype."""
    inputs = np.arange(12, dtype=np.uint8).reshape(2, 3, 2, 1, 1)
    forecast = last_frame(inputs, 4)
    assert (forecast.shape, forecast.dtype) == ((2, 4, 2, 1, 1), np.uint8)
    assert (forecast == inputs[:, 2:]).all()


def test_shapes_must_agree() -> None:
    """Broadcasting would score something else."""
    message = "forecast has shape (1, 1, 2, 2, 1), the truth (1, 3, 2, 2, 1)"
    with pytest.raises(ValueError, match=re.escape(message)):
        scored(np.zeros((1, 3, 2, 2, 1)), np.zeros((1, 1, 2, 2, 1)))
