"""Scores against plain numpy, with the conventions that their names state."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framewin import metrics
from framewin.metrics import Scores, ScoreSums, last_frame, to_unit
from tests.conftest import import_or_skip
from tests.helpers.processes import loaded_after


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
    """No error, an infinite ratio instead of a division by zero, and no skill against itself."""
    truth = np.zeros((1, 2, 2, 2, 1))
    scores = scored(truth, truth)
    assert (scores.mse, scores.mae, scores.psnr_of_mean_mse) == (0, 0, math.inf)
    assert scores.skill(scores) is None


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
    """Broadcasting would score something else, whichever score it is."""
    truth, forecast = np.zeros((1, 3, 12, 12, 1)), np.zeros((1, 1, 12, 12, 1))
    message = "forecast has shape (1, 1, 12, 12, 1), the truth (1, 3, 12, 12, 1)"
    for score in (
        scored,
        metrics.mse_pixel,
        metrics.mse_sum,
        metrics.mae,
        metrics.rmse,
        lambda *pair: metrics.psnr_of_mean_mse(*pair, data_range=1),
        lambda *pair: metrics.psnr_frame_mean(*pair, data_range=1),
        lambda *pair: metrics.ssim(*pair, data_range=1),
        lambda *pair: metrics.contingency(*pair, 0.5),
        lambda *pair: metrics.fss(*pair, 0.5),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            score(truth, forecast)


def test_definitions_are_told_apart() -> None:
    """Two frames of 64x64, errors 0.1 and 0.3: the numbers that papers mix up."""
    truth = np.zeros((2, 64, 64, 1))
    forecast = truth + np.array([0.1, 0.3]).reshape(2, 1, 1, 1)
    assert metrics.mse_pixel(truth, forecast) == pytest.approx(0.05)
    assert metrics.mse_sum(truth, forecast) == pytest.approx(204.8)
    frames = [metrics.psnr_frame_mean(truth[i], forecast[i], data_range=1) for i in (0, 1)]
    assert frames == pytest.approx([20.00, 10.46], abs=0.005)
    mean = metrics.psnr_frame_mean(truth, forecast, data_range=1)
    assert mean == pytest.approx(15.23, abs=0.005)
    assert metrics.psnr_of_mean_mse(truth, forecast, data_range=1) == pytest.approx(
        13.01, abs=0.005
    )
    assert metrics.rmse(truth, forecast) == pytest.approx(math.sqrt(0.05))
    assert metrics.mae(truth, forecast) == pytest.approx(0.2)


def test_integer_differences_do_not_wrap() -> None:
    """16 against 0 is 256 and 255 against 0 is 65025, in uint8 as in float."""
    for value, squared in ((16, 256), (255, 65025)):
        truth = np.full((1, 4, 4, 1), value, np.uint8)
        assert metrics.mse_pixel(truth, np.zeros_like(truth)) == squared
        assert metrics.mse_pixel(np.zeros_like(truth), truth) == squared
    wide = np.full((1, 2, 2, 1), 65535, np.uint16)
    assert metrics.mse_sum(np.zeros_like(wide), wide) == 4 * 65535.0**2


def test_the_data_range_is_stated_and_never_guessed() -> None:
    """Sigma 0.05 is 26 dB whatever the values are, and uint8 agrees with float to 0.01 dB."""
    rng = np.random.default_rng(0)
    truth = rng.random((32, 32, 1))
    noisy = truth + rng.normal(0, 0.05, truth.shape)
    expected = -10 * math.log10(0.05**2)
    assert metrics.psnr_of_mean_mse(truth, noisy, data_range=1) == pytest.approx(expected, abs=0.3)
    lower = truth.copy()
    lower[0, 0, 0] = -1e-3  # by which other tools guess a range of 2
    moved = noisy + (lower - truth)
    assert metrics.psnr_of_mean_mse(lower, moved, data_range=1) == pytest.approx(
        metrics.psnr_of_mean_mse(truth, noisy, data_range=1)
    )
    pair = [np.rint(x.clip(0, 1) * 255).astype(np.uint8) for x in (truth, noisy)]
    for score in (metrics.psnr_of_mean_mse, metrics.psnr_frame_mean):
        in_unit = score(*(to_unit(x) for x in pair), data_range=1)
        assert score(*pair, data_range=255) == pytest.approx(in_unit, abs=0.01)
    with pytest.raises(TypeError, match="data_range"):
        metrics.ssim(truth, noisy)
    for wrong in (0, -1, math.inf, math.nan):
        with pytest.raises(ValueError, match="data_range must be above 0"):
            metrics.psnr_frame_mean(truth, noisy, data_range=wrong)


def test_perfect_frames_do_not_hide_the_others() -> None:
    """Regression: they were left out of each forecast's own mean, so that the worse one of two led.

    Each counts as 100 dB, as does a difference that no picture shows.
    """
    truth = np.zeros((1, 3, 4, 4, 1))
    forecast = truth.copy()
    forecast[0, 1] = 0.1
    assert metrics.psnr_frame_mean(truth, forecast, data_range=1) == pytest.approx(220 / 3)
    assert metrics.psnr_frame_mean(truth, truth, data_range=1) == 100
    assert metrics.psnr_frame_mean(truth, truth + 1e-7, data_range=1) == 100
    worse = truth + 0.01
    assert metrics.psnr_frame_mean(truth, worse, data_range=1) == pytest.approx(40)
    scores = scored(truth, forecast)
    assert (scores.perfect_frames, scores.frames) == (2, 3)
    assert scores.psnr_frame_mean == pytest.approx(220 / 3)
    assert scored(truth, truth).as_json()["psnr_of_mean_mse"] == "infinity"


@pytest.mark.parametrize("shape", [(11, 11, 1), (40, 31, 2), (12, 64, 3)])
@pytest.mark.parametrize(("dtype", "data_range"), [("uint8", 255), ("float32", 1.0)])
def test_ssim_is_that_of_scikit_image(
    shape: tuple[int, int, int], dtype: str, data_range: float
) -> None:
    """To 1e-6, for every kind of frame, and the mean of the frames."""
    similarity = import_or_skip("skimage.metrics").structural_similarity
    rng = np.random.default_rng(1)
    truth = rng.random((2, *shape))
    pair = [truth, np.clip(truth + rng.normal(0, 0.2, truth.shape), 0, 1)]
    if dtype == "uint8":
        pair = [np.rint(x * 255) for x in pair]
    pair = [x.astype(dtype) for x in pair]
    expected = [
        similarity(
            t.astype(np.float64),
            f.astype(np.float64),
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            data_range=data_range,
            channel_axis=-1,
        )
        for t, f in zip(*pair, strict=True)
    ]
    found = metrics.ssim_per_frame(*pair, data_range=data_range)
    assert found == pytest.approx(expected, abs=1e-6)
    assert metrics.ssim(*pair, data_range=data_range) == pytest.approx(np.mean(expected), abs=1e-6)


def test_ssim_leaves_out_windows_without_data() -> None:
    """What stands in a pixel without data changes nothing, not even beside it."""
    rng = np.random.default_rng(2)
    truth, forecast = rng.random((2, 1, 24, 24, 1))
    valid = np.ones(truth.shape, bool)
    valid[:, :6] = False
    expected = metrics.ssim(truth[:, 6:], forecast[:, 6:], data_range=1)
    truth[:, :6] = np.nan
    assert metrics.ssim(truth, forecast, data_range=1, valid=valid) == pytest.approx(expected)
    assert math.isnan(metrics.ssim(truth, forecast, data_range=1, valid=np.zeros_like(valid)))
    message = "ssim needs frames of 11x11 pixels or more, got 10x64"
    with pytest.raises(ValueError, match=re.escape(message)):
        metrics.ssim(np.zeros((10, 64, 1)), np.zeros((10, 64, 1)), data_range=1)


def test_the_constants_of_ssim() -> None:
    """Flat frames (0, K1 L) are half alike; low contrast is told by K2, as in scikit-image."""
    for data_range in (1.0, 255.0):
        black = np.zeros((1, 11, 11, 1))
        dark = black + 0.01 * data_range
        assert metrics.ssim(black, dark, data_range=data_range) == pytest.approx(0.5, rel=1e-9)
    similarity = import_or_skip("skimage.metrics").structural_similarity
    truth, forecast = 0.5 + 0.03 * np.random.default_rng(3).random((2, 16, 13))
    options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    expected = similarity(truth, forecast, data_range=1, **options)
    found = metrics.ssim(truth[..., np.newaxis], forecast[..., np.newaxis], data_range=1)
    assert found == pytest.approx(expected, rel=1e-9)


def test_each_large_frame_has_its_own_mask_in_ssim() -> None:
    """Frames that are scored in several parts: columns without data are as if cut off."""
    similarity = import_or_skip("skimage.metrics").structural_similarity
    truth, forecast = np.random.default_rng(4).random((2, 5, 300, 310, 1))
    valid = np.ones(truth.shape, bool)
    expected = []
    for frame, columns in enumerate((0, 250, 20, 150, 295)):
        valid[frame, :, :columns] = False
        pair = (x[frame, :, columns:, 0] for x in (truth, forecast))
        options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
        expected.append(similarity(*pair, data_range=1, **options))
    found = metrics.ssim_per_frame(truth, forecast, data_range=1, valid=valid)
    assert found == pytest.approx(expected, abs=1e-9)


def counts_by_loops(truth: np.ndarray, forecast: np.ndarray, threshold: float) -> tuple:
    """Hits, misses and false alarms, value by value."""
    found = [0, 0, 0]
    for t, f in zip(truth.ravel().tolist(), forecast.ravel().tolist(), strict=True):
        found[0] += t >= threshold and f >= threshold
        found[1] += t >= threshold and not f >= threshold
        found[2] += f >= threshold and not t >= threshold
    return tuple(found)


def fss_by_loops(
    truth: np.ndarray, forecast: np.ndarray, threshold: float, window: int, valid: np.ndarray
) -> float:
    """Roberts and Lean, pixel by pixel of (n, H, W, C)."""
    error = reference = 0.0
    n, height, width, channels = truth.shape
    half = window // 2
    for i, y, x, c in np.ndindex(n, height, width, channels):
        if not valid[i, y, x, c]:
            continue
        seen = said = 0
        for v in range(max(0, y - half), min(height, y + half + 1)):
            for u in range(max(0, x - half), min(width, x + half + 1)):
                seen += bool(valid[i, v, u, c] and truth[i, v, u, c] >= threshold)
                said += bool(valid[i, v, u, c] and forecast[i, v, u, c] >= threshold)
        error += ((said - seen) / window**2) ** 2
        reference += (said / window**2) ** 2 + (seen / window**2) ** 2
    return 1 - error / reference if reference else math.nan


@settings(max_examples=25)
@given(
    data=st.data(),
    window=st.sampled_from([1, 3, 5, 9]),
    threshold=st.sampled_from([0, 0.25, 0.5, 2]),
)
def test_thresholds_agree_with_plain_loops(
    data: st.DataObject, window: int, threshold: float
) -> None:
    """CSI, POD, FAR and FSS, with pixels left out, at thresholds that nothing or all reaches."""
    shape = (1, data.draw(st.integers(1, 6)), data.draw(st.integers(1, 7)), 1)
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    truth, forecast = rng.integers(0, 5, (2, *shape)) / 4
    valid = rng.random(shape) < 0.8
    counts = metrics.contingency(truth, forecast, threshold, valid=valid)
    hits, misses, alarms = counts_by_loops(truth[valid], forecast[valid], threshold)
    assert counts == (hits, misses, alarms)
    for score, part, whole in (
        (metrics.csi, hits, hits + misses + alarms),
        (metrics.pod, hits, hits + misses),
        (metrics.far, alarms, hits + alarms),
    ):
        expected = part / whole if whole else math.nan
        assert score(counts) == pytest.approx(expected, nan_ok=True)
    expected = fss_by_loops(truth, forecast, threshold, window, valid)
    found = metrics.fss(truth, forecast, threshold, window=window, valid=valid)
    assert found == pytest.approx(expected, nan_ok=True, abs=1e-12)


def test_fss_forgives_a_displacement_within_its_window() -> None:
    """One pixel beside is no hit at all, but nearly right in a neighbourhood of five."""
    truth, forecast = np.zeros((2, 1, 16, 16, 1))
    truth[0, 8, 8], forecast[0, 8, 9] = 1, 1
    assert metrics.csi(metrics.contingency(truth, forecast, 0.5)) == 0
    assert metrics.fss(truth, forecast, 0.5, window=1) == 0
    assert metrics.fss(truth, forecast, 0.5, window=5) == pytest.approx(0.8)
    with pytest.raises(ValueError, match="window must be odd and >= 1, got 4"):
        metrics.fss(truth, forecast, 0.5, window=4)


def test_a_threshold_is_reached_by_its_own_value_in_unit_scale() -> None:
    """Every uint8 value, scaled as frames are, is at or above itself and below the next."""
    frames = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    for value in range(256):
        found = metrics.contingency(to_unit(frames), to_unit(frames), value / 255)
        assert found == (256 - value, 0, 0)


@settings(max_examples=20)
@given(st.data())
def test_sums_are_the_same_in_any_grouping(data: st.DataObject) -> None:
    """Batches of any size give the scores of all windows at once, by name and by lead time."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    count = data.draw(st.integers(1, 6))
    truth, forecast = rng.random((2, count, 2, 12, 11, 1))
    valid = rng.random(truth.shape) < 0.999
    cuts = sorted(data.draw(st.sets(st.integers(1, count - 1)))) if count > 1 else []
    sums = ScoreSums(with_ssim=True, thresholds=(0.5,), fss_window=3)
    parts = [np.split(each, cuts) for each in (truth, forecast, valid)]
    squared = [sums.add(t, f, valid=v) for t, f, v in zip(*parts, strict=True)]
    per_window = np.where(valid, (truth - forecast) ** 2, 0).sum(axis=(1, 2, 3, 4))
    assert np.concatenate(squared) == pytest.approx(per_window)
    whole = (slice(None), slice(None))
    for scores, at in [(sums.scores(), whole)] + [
        (each, (slice(None), slice(lead, lead + 1)))
        for lead, each in enumerate(sums.per_lead_time())
    ]:
        t, f, v = truth[at], forecast[at], valid[at]
        assert scores.mse_pixel == pytest.approx(metrics.mse_pixel(t, f, valid=v))
        assert scores.mse_sum == pytest.approx(metrics.mse_sum(t, f, valid=v))
        assert scores.mae == pytest.approx(metrics.mae(t, f, valid=v))
        for name in ("psnr_of_mean_mse", "psnr_frame_mean", "ssim"):
            expected = getattr(metrics, name)(t, f, data_range=1, valid=v)
            assert _or_nan(getattr(scores, name)) == pytest.approx(expected, nan_ok=True)
        counts = metrics.contingency(t, f, 0.5, valid=v)
        [found] = scores.thresholds
        expected = [metrics.csi(counts), metrics.pod(counts), metrics.far(counts)]
        expected.append(metrics.fss(t, f, 0.5, window=3, valid=v))
        assert [found.csi, found.pod, found.far, found.fss] == pytest.approx(expected)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def test_pixels_without_data_are_left_out() -> None:
    """Whatever stands in them, also NaN; a frame without any data is no frame."""
    truth, forecast = np.zeros((1, 2, 4, 4, 1)), np.full((1, 2, 4, 4, 1), 0.5)
    valid = np.zeros(truth.shape, bool)
    valid[0, 0, :2] = True
    truth[~valid] = np.nan
    sums = ScoreSums()
    sums.add(truth, forecast, valid=valid)
    scores = sums.scores()
    assert (scores.mse, scores.mae, scores.frames) == (0.25, 0.5, 1)
    assert scores.mse_sum == 8 * 0.25
    assert math.isnan(scores.mse_per_lead_time[1])
    nothing = np.zeros_like(valid)
    assert math.isnan(metrics.mse_pixel(truth, forecast, valid=nothing))
    assert math.isnan(metrics.psnr_frame_mean(truth, forecast, data_range=1, valid=nothing))


def test_lead_times_must_agree() -> None:
    """Batches of windows of another length would be added to the wrong lead times."""
    sums = ScoreSums()
    sums.add(np.zeros((1, 2, 4, 4, 1)), np.zeros((1, 2, 4, 4, 1)))
    with pytest.raises(ValueError, match="got 3 lead times, 2 before"):
        sums.add(np.zeros((1, 3, 4, 4, 1)), np.zeros((1, 3, 4, 4, 1)))


def test_the_bootstrap_interval_covers_the_truth() -> None:
    """Of 100 samples whose skill is 0.5, some 95 intervals hold it; the seed repeats them."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(100):
        baseline = rng.gamma(4, size=40)
        errors = 0.5 * baseline * rng.gamma(9, 1 / 9, size=40)
        low, high = metrics.bootstrap_skill(errors, baseline, seed=1, draws=300)
        covered += low <= 0.5 <= high
    assert 85 <= covered <= 100
    assert (low, high) == metrics.bootstrap_skill(errors, baseline, seed=1, draws=300)
    assert metrics.bootstrap_skill(errors[:1], baseline[:1]) is None
    assert metrics.bootstrap_skill(errors, np.zeros(40)) is None


def test_the_bootstrap_interval_is_the_middle_of_all_draws() -> None:
    """Of six groups all 6**6 draws can be listed: the interval leaves out 2.5 % at each end."""
    errors = np.array([1.0, 2.0, 4.0, 3.0, 7.0, 1.5])
    baseline = np.array([5.0, 3.0, 6.0, 8.0, 9.0, 2.0])
    every = np.array(list(itertools.product(range(6), repeat=6)))
    skills = np.sort(1 - errors[every].sum(axis=1) / baseline[every].sum(axis=1))
    left_out = round(0.025 * len(skills))
    low, high = metrics.bootstrap_skill(errors, baseline, draws=10_000)
    assert low == pytest.approx(skills[left_out], abs=0.005)
    assert high == pytest.approx(skills[-left_out], abs=0.005)
    few = {metrics.bootstrap_skill(errors, baseline, seed=seed, draws=9) for seed in range(4)}
    assert len(few) == 4
    assert metrics.bootstrap_skill(errors[:2], baseline[:2]) == (1 - 2 / 3, 1 - 1 / 5)


def test_every_score_by_hand() -> None:
    """Three frames of 2x2 with errors (1, 0, 0, 0), (2, 2, 2, 2) and none, of a range of 10."""
    truth = np.full((1, 3, 2, 2, 1), 5.0)
    forecast = truth.copy()
    forecast[0, 0, 0, 0] += 1
    forecast[0, 1] -= 2
    sums = ScoreSums(data_range=10, thresholds=(5, 6, 99), fss_window=1)
    assert sums.add(truth, forecast).tolist() == [17]
    scores = sums.scores()
    mse = 17 / 12
    ratios = [20 - 10 * math.log10(1 / 4), 20 - 10 * math.log10(4), 100]
    assert scores.mse_per_lead_time == (0.25, 4, 0)
    assert [each.perfect_frames for each in sums.per_lead_time()] == [0, 0, 1]
    found = scores.as_json()
    # Of 12 values at 5 or above, 8 are forecast so; one value is forecast at 6 or above.
    assert found.pop("thresholds") == [
        {"threshold": 5, "csi": 8 / 12, "pod": 8 / 12, "far": 0, "fss": pytest.approx(1 - 4 / 20)},
        {"threshold": 6, "csi": 0, "pod": None, "far": 1, "fss": 0},
        {"threshold": 99, "csi": None, "pod": None, "far": None, "fss": None},
    ]
    assert found == {
        "mse_pixel": pytest.approx(mse),
        "mse_sum": pytest.approx(17 / 3),
        "mae": pytest.approx(9 / 12),
        "rmse": pytest.approx(math.sqrt(mse)),
        "psnr_of_mean_mse": pytest.approx(20 - 10 * math.log10(mse)),
        "psnr_frame_mean": pytest.approx(sum(ratios) / 3),
        "perfect_frames": 1,
        "frames": 3,
        "ssim": None,
    }
    assert (scores.rmse, scores.mse_pixel) == (found["rmse"], found["mse_pixel"])


def test_ranges_whose_square_is_no_float() -> None:
    """Errors 10**15 times a range of 1e-170 are -300 dB, 1e-50 of one of 1e200 are 1000 dB."""
    truth = np.zeros((1, 4, 4, 1))
    for score in (metrics.psnr_of_mean_mse, metrics.psnr_frame_mean):
        assert score(truth, truth + 1e-155, data_range=1e-170) == pytest.approx(-300)
    assert metrics.psnr_of_mean_mse(truth, truth + 1e150, data_range=1e200) == pytest.approx(1000)


@pytest.mark.parametrize(
    ("dtype", "greatest"),
    [
        ("uint8", 255),
        ("uint16", 65535),
        ("uint32", 2**32 - 1),
        ("int8", 127),
        ("int16", 32767),
        ("int32", 2**31 - 1),
        ("float16", 1),
        ("float32", 1),
        ("float64", 1),
    ],
)
def test_unit_scale_is_float64(dtype: str, greatest: int) -> None:
    """The greatest integer is 1; floats stay."""
    found = to_unit(np.array([0, 1, greatest], dtype))
    assert (found.dtype, found.tolist()) == (np.float64, [0, 1 / greatest, 1])


def test_defaults_of_neighbourhood_and_draws() -> None:
    """Five pixels and 2000 draws, in the function as in the sums."""
    truth, forecast = np.random.default_rng(5).random((2, 1, 2, 9, 9, 1))
    five = metrics.fss(truth, forecast, 0.5, window=5)
    sums = ScoreSums(thresholds=(0.5,))
    sums.add(truth, forecast)
    assert metrics.fss(truth, forecast, 0.5) == five
    assert sums.scores().thresholds[0].fss == pytest.approx(five)
    assert five != metrics.fss(truth, forecast, 0.5, window=3)
    errors, baseline = np.random.default_rng(6).random((2, 9))
    expected = metrics.bootstrap_skill(errors, baseline, seed=0, draws=2000)
    assert metrics.bootstrap_skill(errors, baseline) == expected


def test_every_range_and_window_is_checked() -> None:
    """By every score that has one."""
    truth = np.zeros((1, 12, 12, 1))
    for score in (metrics.psnr_of_mean_mse, metrics.psnr_frame_mean, metrics.ssim):
        for wrong in (0, -1, math.inf):
            with pytest.raises(ValueError, match=f"data_range must be above 0, got {wrong}"):
                score(truth, truth, data_range=wrong)
    with pytest.raises(ValueError, match="data_range must be above 0, got 0"):
        ScoreSums(data_range=0)
    for wrong in (-1, 0, 2):
        with pytest.raises(ValueError, match=f"window must be odd and >= 1, got {wrong}"):
            metrics.fss(truth, truth, 0.5, window=wrong)


def test_one_valid_pixel_is_a_frame() -> None:
    """The other values are left out, of rmse too; no value at all is null in JSON."""
    truth, forecast = np.zeros((1, 2, 2, 2, 1)), np.full((1, 2, 2, 2, 1), 0.1)
    valid = np.zeros(truth.shape, bool)
    valid[0, :, 0, 0] = True
    forecast[0, 0, 0, 0] = 0
    sums = ScoreSums()
    sums.add(truth, forecast, valid=valid)
    scores = sums.scores()
    assert (scores.frames, scores.perfect_frames) == (2, 1)
    assert scores.psnr_frame_mean == pytest.approx((100 + 20) / 2)
    found = metrics.psnr_frame_mean(truth, forecast, data_range=1, valid=valid)
    assert found == pytest.approx((100 + 20) / 2)
    assert metrics.rmse(truth, forecast, valid=valid) == pytest.approx(math.sqrt(0.005))
    nothing = ScoreSums(with_ssim=False)
    nothing.add(truth, forecast, valid=np.zeros_like(valid))
    json = nothing.scores().as_json()
    assert (json.pop("frames"), json.pop("perfect_frames"), json.pop("thresholds")) == (0, 0, [])
    assert set(json.values()) == {None}


def test_wide_integers_keep_their_last_digit() -> None:
    """4294967295 and 4294967294 differ by one, whichever is the forecast."""
    wide = np.full((1, 2, 2, 1), 2**32 - 1, np.uint32)
    assert metrics.mse_pixel(wide, wide - 1) == metrics.mse_pixel(wide - 1, wide) == 1
    assert metrics.mae(wide, wide.astype(np.float64) - 0.25) == 0.25


def test_ssim_of_the_smallest_and_of_large_frames() -> None:
    """One window, with a mask too; more pixels than are worked on at once."""
    truth, forecast = np.random.default_rng(7).random((2, 1, 11, 11, 1))
    everything = np.ones(truth.shape, bool)
    found = metrics.ssim(truth, forecast, data_range=1, valid=everything)
    assert found == pytest.approx(metrics.ssim(truth, forecast, data_range=1), rel=1e-12)
    black = np.zeros((2, 520, 520, 1))
    found = metrics.ssim_per_frame(black, black + 0.01, data_range=1)
    assert found == pytest.approx([0.5, 0.5], rel=1e-9)


def test_metrics_need_numpy_alone() -> None:
    """They are usable where no other package of framewin is installed."""
    loaded = loaded_after("import framewin.metrics")
    heavy = {"zarr", "h5py", "scipy", "PIL", "imageio", "imagecodecs", "tensorflow", "keras"}
    assert "numpy" in loaded
    assert not loaded & heavy
