"""Scaled values and the way back."""

from __future__ import annotations

import re

import numpy as np
import pytest

from framewin.scaling import Scaling, make_scaling
from framewin.schema import FRAME_DTYPES
from framewin.windows.statistics import ChannelStatistics

STATISTICS = ChannelStatistics((10.0, 20.0), (2.0, 0.0), (0.0, 20.0), (30.0, 20.0), 4)


def scaling_of(normalize: object, stored: str = "uint8", dtype: str | None = None) -> Scaling:
    return make_scaling(normalize, dtype, stored=stored, channels=2, statistics=lambda: STATISTICS)


def test_standard_is_per_channel() -> None:
    """Mean 0 and deviation 1 per channel; a constant channel is only shifted."""
    frames = np.array([[[8, 20], [14, 20]]], np.uint8)
    assert scaling_of("standard")(frames).tolist() == [[[-1, 0], [2, 0]]]


@pytest.mark.parametrize("stored", FRAME_DTYPES)
@pytest.mark.parametrize("normalize", ["unit", "standard", (7, (2, 3))])
def test_invert_undoes_it(stored: str, normalize: object) -> None:
    """Small integers come back exactly, floats nearly, in the stored dtype."""
    frames = np.arange(24).reshape(3, 4, 2).astype(stored)
    scaling = scaling_of(normalize, stored)
    back = scaling.invert(scaling(frames))
    assert back.dtype == frames.dtype
    assert back == pytest.approx(frames, rel=1e-2 if stored == "float16" else 1e-6, abs=1e-2)


def test_invert_stays_in_range() -> None:
    """A forecast beyond black and white, or not a number, is clipped, never wrapped."""
    values = np.array([[-5, 0.5], [np.inf, np.nan]])
    assert scaling_of("unit").invert(values).tolist() == [[0, 128], [255, 0]]


def test_nothing_asked_is_nothing_done() -> None:
    """No scaling; a dtype alone only casts."""
    assert scaling_of(None) is None
    cast = scaling_of(None, dtype="float16")(np.array([[3, 255]], np.uint8))
    assert (cast.dtype, cast.tolist()) == (np.float16, [[3, 255]])


@pytest.mark.parametrize(
    ("normalize", "dtype", "message"),
    [
        ("zscore", None, "normalize must be None, 'unit', 'standard' or (mean, std), got 'zscore'"),
        ((1, 2, 3), None, "normalize must be None, 'unit', 'standard' or (mean, std), got (1, 2"),
        ((1, 0), None, "the standard deviation must be above 0, got (0.0,)"),
        ((np.nan, 1), None, "the mean must be finite, got (nan,)"),
        (([1, 2, 3], 1), None, "one number or one for each of 2 channels, got (1.0, 2.0, 3.0)"),
        ("unit", "float64", "dtype must be None or one of float32, float16, bfloat16, got 'floa"),
        (None, "float16", 'uint16 values do not fit into float16; give normalize="unit" too'),
    ],
)
def test_bad_scalings(normalize: object, dtype: str | None, message: str) -> None:
    """The message says what was given and what is allowed."""
    with pytest.raises(ValueError, match=re.escape(message)):
        scaling_of(normalize, "uint16", dtype)
