"""Scaled values and the way back."""

from __future__ import annotations

import re

import numpy as np
import pytest

from framewin.scaling import Scaling, make_scaling
from framewin.schema import FRAME_DTYPES
from framewin.windows.statistics import ChannelStatistics
from tests.conftest import import_or_skip

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


@pytest.mark.parametrize(
    ("stored", "base", "result"),
    [
        ("uint32", 2**32 - 4, "float32"),
        ("int32", -(2**31), "float32"),
        ("float64", 2**52, "float32"),
        ("uint32", 2**31, "float16"),
    ],
)
def test_wide_values_keep_their_last_digit(stored: str, base: int, result: str) -> None:
    """0 to 3 above a mean that float32 cannot tell from them."""
    frames = (base + np.arange(4, dtype="int64")).astype(stored).reshape(2, 2)
    scaled = scaling_of((base, 0.5), stored, result)(frames)
    assert (scaled.dtype, scaled.tolist()) == (result, [[0, 2], [4, 6]])
    assert np.array_equal(scaling_of((base, 0.5), stored, result).invert(scaled), frames)


@pytest.mark.parametrize("stored", ["uint8", "uint16", "int8", "int16", "float16", "float32"])
def test_others_are_computed_in_float32(stored: str) -> None:
    """Each step, as on the GPU: float64 would give another last digit."""
    scaled = scaling_of((0.1, 0.3), stored)(np.array([[1, 2], [3, 4]], stored))
    mean, deviation = np.float32(0.1), np.float32(0.3)
    expected = [[(np.float32(v) - mean) / deviation for v in row] for row in ((1, 2), (3, 4))]
    assert scaled.dtype == np.float32
    assert scaled.tolist() == expected
    assert scaled.tolist() != np.float32((np.array([[1, 2], [3, 4]]) - 0.1) / 0.3).tolist()


def test_channels_have_their_own_numbers() -> None:
    """A mean of 0 or a deviation near 1 of one channel does not stop the other's."""
    frames = np.array([[8, 8]], "float64")
    assert scaling_of(((0, 6), 1), "float64")(frames).tolist() == [[8, 2]]
    assert scaling_of((0, (1, 4)), "float64")(frames).tolist() == [[8, 2]]
    assert scaling_of((0, 1.01), "float64")(frames * 1.01).tolist() == [[8, 8]]


def test_bfloat16_has_its_own_type() -> None:
    """numpy's is that of ml_dtypes: seven bits after the point."""
    kind = import_or_skip("ml_dtypes").bfloat16
    scaled = scaling_of(None, dtype="bfloat16")(np.array([[1, 255], [128, 129]], np.uint8))
    assert scaled.dtype == kind
    assert scaled.astype(float).tolist() == [[1, 255], [128, 129]]
    third = scaling_of((0, 3), dtype="bfloat16")(np.array([[1, 2]], np.uint8))
    assert third.astype(float).tolist() == [[171 / 512, 171 / 256]]


def test_forecasts_keep_all_their_digits() -> None:
    """A float64 forecast becomes the integer it is, which no float32 is."""
    plain = Scaling((0.0,), (1.0,), "float32", "int32")
    assert plain.invert(np.array([[2.0**24 + 1]])).tolist() == [[2**24 + 1]]


def test_integers_are_rounded_half_up() -> None:
    """Not to even, and below 0 towards it."""
    values = np.array([[-1.5, -0.5], [0.5, 1.5], [2.5, 2.499]])
    plain = Scaling((0.0,), (1.0,), "float32", "int16")
    assert plain.invert(values).tolist() == [[-1, 0], [1, 2], [3, 2]]
    assert plain.invert(np.array([[-9e9, 9e9]])).tolist() == [[-32768, 32767]]


def test_small_deviations_divide_too() -> None:
    """Channels that vary by less than 1 get the deviation 1 like others."""
    found = ChannelStatistics((0.25, 0.5), (0.125, 0.0), (0.0, 0.5), (0.5, 0.5), 4)
    scaling = make_scaling("standard", None, stored="float32", channels=2, statistics=lambda: found)
    frames = np.array([[0.375, 0.5], [0.0, 0.75]], "float32")
    assert scaling(frames).tolist() == [[1, 0], [-2, 0.25]]


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
        ((1, -2), None, "the standard deviation must be above 0, got (-2.0,)"),
        ((1, np.inf), None, "the standard deviation must be above 0, got (inf,)"),
        ((1, (2, np.inf)), None, "the standard deviation must be above 0, got (2.0, inf)"),
        (np.ones(2), None, "normalize must be None, 'unit', 'standard' or (mean, std), got array"),
        ((1, np.nan), None, "the standard deviation must be above 0, got (nan,)"),
        ((1, (2, 0)), None, "the standard deviation must be above 0, got (2.0, 0.0)"),
        (((1, -np.inf), 1), None, "the mean must be finite, got (1.0, -inf)"),
        ((1, [1, 2, 3]), None, "one number or one for each of 2 channels, got (1.0, 2.0, 3.0)"),
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
