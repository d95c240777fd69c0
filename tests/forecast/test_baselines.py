"""Forecasts without training, on motion that is known."""

from __future__ import annotations

import re

import numpy as np
import pytest

from framewin import MissingDependencyError
from framewin.forecast import baselines
from framewin.forecast.baselines import BASELINES, TITLES
from tests.conftest import import_or_skip

UNIT = (0.0, 1.0)


def leads(*times: int) -> np.ndarray:
    return np.array(times)


def moving_blob(times: list[int], channels: int = 1) -> np.ndarray:
    """A smooth blob that goes two pixels right and one down in each step: (T, H, W, C)."""
    y, x = np.mgrid[:40, :48]
    frames = [np.exp(-((x - 15 - 2 * t) ** 2 + (y - 18 - t) ** 2) / 30) for t in times]
    return np.repeat(np.array(frames)[..., np.newaxis], channels, axis=-1)


def test_the_table_is_complete() -> None:
    """Each baseline has a title and gives what its type says."""
    assert set(BASELINES) == set(TITLES)
    import_or_skip("cv2")
    inputs = np.random.default_rng(0).random((2, 3, 20, 24, 2))
    for forecast in BASELINES.values():
        for count in (1, 3):
            made = forecast(inputs[:, :count], leads(1, 2, 3, 4), UNIT)
            assert made.shape == (2, 4, 20, 24, 2)
            assert np.isfinite(made).all()


def test_simple_baselines_by_hand() -> None:
    """One pixel that goes 0.2, 0.4, 0.5."""
    inputs = np.array([0.2, 0.4, 0.5]).reshape(1, 3, 1, 1, 1)
    for name, expected in (
        ("persistence", [0.5, 0.5, 0.5]),
        ("mean_of_inputs", [1.1 / 3] * 3),
        ("linear_extrapolation", [0.6, 0.7, 1.0]),
    ):
        made = BASELINES[name](inputs, leads(1, 2, 9), UNIT)
        assert made.ravel() == pytest.approx(expected), name
    alone = baselines.linear_extrapolation(inputs[:, :1], leads(1, 2), UNIT)
    assert alone.ravel().tolist() == [0.2, 0.2]


@pytest.mark.parametrize("channels", [1, 3])
def test_optical_flow_follows_what_moves(channels: int) -> None:
    """At every lead time, also behind a gap, far better than repeating the last frame."""
    import_or_skip("cv2")
    inputs = moving_blob([0, 1], channels)[np.newaxis]
    times = leads(2, 3, 4)
    truth = moving_blob([3, 4, 5], channels)
    moved = baselines.optical_flow(inputs, times, UNIT)[0]
    still = baselines.persistence(inputs, times, UNIT)[0]
    for made, last, true in zip(moved, still, truth, strict=True):
        assert np.square(made - true).mean() < 0.01 * np.square(last - true).mean()


def test_still_frames_stay() -> None:
    """Also frames of a single value, where the flow has nothing to go by."""
    import_or_skip("cv2")
    for frame in (np.zeros((20, 20, 1)), moving_blob([0])[0]):
        inputs = np.stack([frame, frame])[np.newaxis]
        made = baselines.optical_flow(inputs, leads(1, 5), UNIT)
        assert made[0] == pytest.approx(np.stack([frame, frame]), abs=1e-6)


def test_flow_without_opencv_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """As all optional packages do."""
    monkeypatch.setitem(__import__("sys").modules, "cv2", None)
    message = "needs cv2; run: pip install 'framewin[flow]'"
    with pytest.raises(MissingDependencyError, match=re.escape(message)):
        baselines.optical_flow(np.zeros((1, 2, 8, 8, 1)), leads(1), UNIT)
