"""Scores of forecasts, on numpy arrays of frames; every name carries its definition.

Nothing but numpy is needed. Truth and forecast are arrays of the same shape with axes
(..., T, H, W, C): any number of windows of T predicted frames. All arithmetic is float64, so
integers neither wrap nor overflow. `valid` marks the values that have data; what it leaves out is
left out of every score.

    mse_pixel            mean of squared differences
    mse_sum              squared differences summed over each frame, mean of the frames
    mae, rmse            mean of absolute differences, root of mse_pixel
    psnr_of_mean_mse     one ratio, of the mean squared error of all frames
    psnr_frame_mean      mean of the frames' ratios, each at most 100 dB: mostly higher, as the
                         logarithm is concave
    ssim                 structural similarity
    csi, pod, far        hits and misses of values at or above a threshold
    fss                  the same, forgiving displacements within a neighbourhood

Two frames of 64x64 whose errors are 0.1 and 0.3 everywhere:

>>> truth = np.zeros((2, 64, 64, 1))
>>> forecast = truth + np.array([0.1, 0.3]).reshape(2, 1, 1, 1)
>>> round(mse_pixel(truth, forecast), 6), round(mse_sum(truth, forecast), 6)
(0.05, 204.8)
>>> round(psnr_of_mean_mse(truth, forecast, data_range=1), 2)
13.01
>>> round(psnr_frame_mean(truth, forecast, data_range=1), 2)
15.23
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from framewin.schema import FRAME_DTYPES

FULL_SCALE = {
    dtype: 1.0 if np.dtype(dtype).kind == "f" else float(np.iinfo(dtype).max)
    for dtype in FRAME_DTYPES
}
"""Stored dtype -> the value that is 1 in unit scale: an integer's largest, 1 of floats."""

SSIM_WINDOW = 11
"""Pixels of the Gaussian window, along each axis."""
SSIM_SIGMA = 1.5
"""Pixels."""
PSNR_LIMIT = 100.0
"""Most dB of a frame in `psnr_frame_mean`: differences beyond are of numbers, not of pictures."""
FSS_WINDOW = 5
"""Pixels of the neighbourhood of `fss`, along each axis, unless another is given."""
BOOTSTRAP_DRAWS = 2000
_SSIM_K1, _SSIM_K2 = 0.01, 0.03
# Values that are worked on at once, so that temporaries stay in the processor's cache.
_CHUNK_VALUES = 2**18


def to_unit(frames: np.ndarray) -> np.ndarray:
    """Frames of a stored dtype in unit scale.

    Args:
        frames: One of `FRAME_DTYPES`, any shape.

    Returns:
        float64 of the same shape; integers divided by the largest value of their dtype (uint8
        by 255, uint16 by 65535), floats unchanged.
    """
    return frames.astype(np.float64) / FULL_SCALE[frames.dtype.name]


def last_frame(inputs: np.ndarray, predict_frames: int) -> np.ndarray:
    """The persistence forecast: the last input frame, repeated.

    Args:
        inputs: (B, T_in, H, W, C).
        predict_frames: T_out.

    Returns:
        (B, T_out, H, W, C), the dtype of `inputs`.
    """
    return np.repeat(inputs[:, -1:], predict_frames, axis=1)


def mse_pixel(truth: np.ndarray, forecast: np.ndarray, *, valid: np.ndarray | None = None) -> float:
    """Mean squared error per pixel and channel.

    What the OpenSTL benchmark (Tan et al. 2023, NeurIPS) tabulates as MSE of normalised weather
    variables (`spatial_norm=True`). Papers that sum over the frame mean `mse_sum`.

    Args:
        truth: (..., H, W, C), any real dtype.
        forecast: The same shape, the same unit.
        valid: bool, broadcast to the same shape; all values by default.

    Returns:
        In the square of the frames' unit, 0 or above; NaN where no value is valid.
    """
    error, count = _errors(truth, forecast, valid)
    return _ratio(np.square(error).sum(), count)


def mse_sum(truth: np.ndarray, forecast: np.ndarray, *, valid: np.ndarray | None = None) -> float:
    """Squared error summed over the pixels and channels of a frame, mean over frames.

    What the OpenSTL benchmark (Tan et al. 2023, NeurIPS) tabulates as MSE of Moving MNIST and
    most of the papers before it, on frames scaled to 0..1. It grows with the frame: of equal
    errors in every pixel it is H * W * C times `mse_pixel`.

    Args:
        truth: (..., H, W, C), any real dtype, in 0..1 to compare with those tables.
        forecast: The same shape, the same unit.
        valid: As in `mse_pixel`. Frames in which nothing is valid are not counted.

    Returns:
        In the square of the frames' unit, 0 or above; NaN where no value is valid.
    """
    error, _ = _errors(truth, forecast, valid)
    return _ratio(np.square(error).sum(), _valid_per_frame(error, valid).astype(bool).sum())


def mae(truth: np.ndarray, forecast: np.ndarray, *, valid: np.ndarray | None = None) -> float:
    """Mean absolute error per pixel and channel.

    Args and shapes as in `mse_pixel`.

    Returns:
        In the frames' unit, 0 or above; NaN where no value is valid.
    """
    error, count = _errors(truth, forecast, valid)
    return _ratio(np.abs(error).sum(), count)


def rmse(truth: np.ndarray, forecast: np.ndarray, *, valid: np.ndarray | None = None) -> float:
    """Root of `mse_pixel`: of the mean over everything, not the mean of the frames' roots.

    Args and shapes as in `mse_pixel`.

    Returns:
        In the frames' unit, 0 or above; NaN where no value is valid.
    """
    return math.sqrt(mse_pixel(truth, forecast, valid=valid))


def psnr_of_mean_mse(
    truth: np.ndarray,
    forecast: np.ndarray,
    *,
    data_range: float,
    valid: np.ndarray | None = None,
) -> float:
    """Peak signal-to-noise ratio of the mean squared error of all frames together.

    10 log10(data_range^2 / mse_pixel), as in Huynh-Thu and Ghanbari (2008, Electronics Letters).
    Never above `psnr_frame_mean`.

    Args:
        truth: (..., H, W, C), any real dtype.
        forecast: The same shape, the same unit.
        data_range: Greatest minus least value that frames can have, in their unit: 255 of uint8,
            1 of frames scaled to 0..1. It is never guessed from the values.
        valid: As in `mse_pixel`.

    Returns:
        dB; infinite for a perfect forecast, NaN where no value is valid.

    Raises:
        ValueError: `data_range` is not above 0.
    """
    _check_range(data_range)
    return _decibel(mse_pixel(truth, forecast, valid=valid), data_range)


def psnr_frame_mean(
    truth: np.ndarray,
    forecast: np.ndarray,
    *,
    data_range: float,
    valid: np.ndarray | None = None,
) -> float:
    """Mean of the peak signal-to-noise ratios of the single frames.

    The convention of the OpenSTL benchmark and of most video papers. The ratio of a frame that
    is forecast perfectly, such as an all-black one, is infinite: each ratio counts as 100 dB at
    most, so that one such frame does not hide all others, and every forecast is averaged over
    the same frames.

    Args and shapes as in `psnr_of_mean_mse`.

    Returns:
        dB, 100 where all frames are perfect; NaN where no value is valid.

    Raises:
        ValueError: `data_range` is not above 0.
    """
    _check_range(data_range)
    error, _ = _errors(truth, forecast, valid)
    counts = _valid_per_frame(error, valid)
    squared = np.square(error).sum(axis=(-3, -2, -1))
    ratios, _ = _frame_ratios(squared, counts, data_range)
    known = ratios[~np.isnan(ratios)]
    return float(known.mean()) if known.size else math.nan


def ssim(
    truth: np.ndarray,
    forecast: np.ndarray,
    *,
    data_range: float,
    valid: np.ndarray | None = None,
) -> float:
    """Mean structural similarity, after Wang et al. (2004, IEEE Trans. Image Processing 13).

    Gaussian window of 11x11 pixels, sigma 1.5, K1 = 0.01, K2 = 0.03, population covariance; mean
    over the pixels whose whole window lies in the frame, then over channels, then over frames.
    The same numbers as scikit-image with `gaussian_weights=True, use_sample_covariance=False`.

    A pixel whose window holds a value that is not valid is left out.

    Args:
        truth: (..., H, W, C), any real dtype.
        forecast: The same shape, the same unit.
        data_range: As in `psnr_of_mean_mse`.
        valid: As in `mse_pixel`.

    Returns:
        In -1..1, 1 for equal frames; NaN where no window is valid.

    Raises:
        ValueError: Frames smaller than the window, or `data_range` not above 0.
    """
    per_frame = ssim_per_frame(truth, forecast, data_range=data_range, valid=valid)
    known = per_frame[~np.isnan(per_frame)]
    return float(known.mean()) if len(known) else math.nan


def ssim_per_frame(
    truth: np.ndarray,
    forecast: np.ndarray,
    *,
    data_range: float,
    valid: np.ndarray | None = None,
) -> np.ndarray:
    """`ssim` of each frame: float64 (...), NaN where no window of a frame is valid."""
    _check_range(data_range)
    _check_shapes(truth, forecast)
    lead, shape = truth.shape[:-3], truth.shape[-3:]
    if min(shape[:2]) < SSIM_WINDOW:
        raise ValueError(
            f"ssim needs frames of {SSIM_WINDOW}x{SSIM_WINDOW} pixels or more, "
            f"got {shape[0]}x{shape[1]}"
        )
    masks = None if valid is None else np.broadcast_to(valid, truth.shape).reshape(-1, *shape)
    pairs = truth.reshape(-1, *shape), forecast.reshape(-1, *shape)
    found = np.empty(len(pairs[0]))
    size = max(1, _CHUNK_VALUES // math.prod(shape))
    for first in range(0, len(found), size):
        part = slice(first, first + size)
        mask = None if masks is None else masks[part]
        found[part] = _ssim_of_frames(pairs[0][part], pairs[1][part], data_range, mask)
    return found.reshape(lead)


class Contingency(NamedTuple):
    """How often truth and forecast are at or above a threshold."""

    hits: int
    """Both."""
    misses: int
    """The truth only."""
    false_alarms: int
    """The forecast only."""


def contingency(
    truth: np.ndarray,
    forecast: np.ndarray,
    threshold: float,
    *,
    valid: np.ndarray | None = None,
) -> Contingency:
    """Count the values that are at or above a threshold, in truth, forecast or both.

    Args:
        truth: (...), any real dtype.
        forecast: The same shape, the same unit.
        threshold: In the same unit.
        valid: As in `mse_pixel`.
    """
    _check_shapes(truth, forecast)
    seen, said = _events(truth, threshold, valid), _events(forecast, threshold, valid)
    both = np.count_nonzero(seen & said)
    return Contingency(
        int(both), int(np.count_nonzero(seen) - both), int(np.count_nonzero(said) - both)
    )


def csi(counts: Contingency) -> float:
    """Critical success index (threat score): hits / (hits + misses + false alarms).

    Schaefer (1990, Weather and Forecasting 5). In 0..1, 1 best; NaN where nothing reaches the
    threshold. Counts are pooled, so it is not the mean of the frames' indices.
    """
    return _ratio(counts.hits, sum(counts))


def pod(counts: Contingency) -> float:
    """Probability of detection: hits / (hits + misses).

    Wilks (2011, Statistical Methods in the Atmospheric Sciences, ch. 8). In 0..1, 1 best; NaN
    where the truth never reaches the threshold.
    """
    return _ratio(counts.hits, counts.hits + counts.misses)


def far(counts: Contingency) -> float:
    """False alarm ratio: false alarms / (hits + false alarms), of what was forecast.

    Wilks (2011, ch. 8). Not the false alarm rate, which is of what did not happen. In 0..1, 0
    best; NaN where the forecast never reaches the threshold.
    """
    return _ratio(counts.false_alarms, counts.hits + counts.false_alarms)


def fss(
    truth: np.ndarray,
    forecast: np.ndarray,
    threshold: float,
    *,
    window: int = FSS_WINDOW,
    valid: np.ndarray | None = None,
) -> float:
    """Fractions skill score, after Roberts and Lean (2008, Monthly Weather Review 136).

    Of each pixel's neighbourhood, the fraction at or above the threshold is taken in truth and
    forecast; the score is 1 - sum((f - t)^2) / sum(f^2 + t^2), summed over all pixels, channels
    and frames. Beyond the edge of a frame nothing reaches the threshold.

    A value that is not valid reaches no threshold, in truth and forecast alike, and its own
    neighbourhood is left out of the sums.

    Args:
        truth: (..., H, W, C), any real dtype.
        forecast: The same shape, the same unit.
        threshold: In the same unit.
        window: Pixels of the neighbourhood along each axis, odd.
        valid: As in `mse_pixel`.

    Returns:
        In 0..1, 1 best; NaN where nothing reaches the threshold.

    Raises:
        ValueError: `window` is not odd and above 0.
    """
    error, reference = fss_sums(truth, forecast, threshold, window=window, valid=valid)
    return 1 - _ratio(error.sum(), reference.sum())


def fss_sums(
    truth: np.ndarray,
    forecast: np.ndarray,
    threshold: float,
    *,
    window: int,
    valid: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The two sums of `fss` for each frame: sum((f - t)^2) and sum(f^2 + t^2), float64 (...)."""
    if window < 1 or window % 2 == 0:
        raise ValueError(f"window must be odd and >= 1, got {window}")
    _check_shapes(truth, forecast)
    seen, said = (
        _neighbour_counts(_events(frames, threshold, valid), window) / window**2
        for frames in (truth, forecast)
    )
    if valid is not None:
        seen, said = seen * valid, said * valid
    axes = (-3, -2, -1)
    return np.square(said - seen).sum(axis=axes), (seen**2 + said**2).sum(axis=axes)


def bootstrap_skill(
    errors: np.ndarray, baseline_errors: np.ndarray, *, seed: int = 0, draws: int = BOOTSTRAP_DRAWS
) -> tuple[float, float] | None:
    """95 % interval of 1 - sum(errors) / sum(baseline_errors), by the percentile bootstrap.

    Efron and Tibshirani (1993, An Introduction to the Bootstrap, ch. 13): groups are drawn with
    replacement, as many as there are, and the skill of each draw is computed.

    Args:
        errors: Summed error of each group, (G,). Groups must be independent: clips, or stretches
            of one clip, not the overlapping windows of a clip.
        baseline_errors: Of the baseline, (G,).
        seed: Of the draws.
        draws: How many.

    Returns:
        Least and greatest of the middle 95 %; None of fewer than two groups, or where the
        baseline has no error in some draw.
    """
    groups = len(errors)
    if groups < 2:
        return None
    rng = np.random.default_rng(seed)
    skills = []
    for _ in range(draws):
        chosen = rng.integers(groups, size=groups)
        below = float(baseline_errors[chosen].sum())
        if below == 0:
            return None
        skills.append(1 - float(errors[chosen].sum()) / below)
    low, high = np.percentile(skills, [2.5, 97.5])
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class ThresholdScores:
    """Scores of what is at or above a threshold; None where they are undefined."""

    threshold: float
    """In the unit of the frames that were added."""
    csi: float | None
    pod: float | None
    far: float | None
    fss: float | None


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of a forecast over everything that was added; see the functions of these names."""

    mse: float
    """`mse_pixel`: mean squared error per pixel and channel, unit scale squared."""
    mae: float
    """Mean absolute error per pixel and channel, unit scale."""
    psnr_of_mean_mse: float
    """Peak signal-to-noise ratio of `mse`, dB; infinite for a perfect forecast. Not the mean of
    the frames' ratios, which is higher."""
    mse_per_lead_time: tuple[float, ...]
    """`mse` of the first, second, ... predicted frame."""
    mse_sum: float
    """Squared error summed over each frame, mean of the frames."""
    psnr_frame_mean: float
    """Mean of the frames' ratios, each 100 dB at most."""
    perfect_frames: int
    """Frames without any error, whose ratio counts as 100 dB."""
    frames: int
    """Frames with a valid value."""
    ssim: float | None = None
    """Mean structural similarity; None where it was not asked for, or no window was valid."""
    thresholds: tuple[ThresholdScores, ...] = ()

    @property
    def mse_pixel(self) -> float:
        """`mse`, by the name that says what it is."""
        return self.mse

    @property
    def rmse(self) -> float:
        """Root of `mse`, unit scale."""
        return math.sqrt(self.mse)

    def skill(self, baseline: Scores) -> float | None:
        """Share of the baseline's mean squared error that is gone: 1 perfect, 0 no better; None
        where the baseline is perfect."""
        return 1 - self.mse / baseline.mse if baseline.mse else None

    def as_json(self) -> dict[str, Any]:
        """All scores by name; null where undefined, and `"infinity"`, which JSON has not."""
        found: dict[str, Any] = {"mse_pixel": self.mse, "mse_sum": self.mse_sum, "mae": self.mae}
        found["rmse"] = self.rmse
        for name in ("psnr_of_mean_mse", "psnr_frame_mean", "perfect_frames", "frames", "ssim"):
            found[name] = getattr(self, name)
        found = {name: _json_number(value) for name, value in found.items()}
        return found | {"thresholds": [asdict(scores) for scores in self.thresholds]}


class ScoreSums:
    """Running sums, so that forecasts of any number of windows are scored batch by batch.

    The scores are the same in any grouping of windows into batches.

    >>> sums = ScoreSums()
    >>> truth = np.zeros((1, 2, 4, 4, 1))
    >>> sums.add(truth, truth + np.array([0.1, 0.3]).reshape(1, 2, 1, 1, 1)).round(6).tolist()
    [1.6]
    >>> scores = sums.scores()
    >>> round(scores.mse, 6), round(scores.mae, 6), round(scores.psnr_of_mean_mse, 2)
    (0.05, 0.2, 13.01)
    """

    def __init__(
        self,
        *,
        data_range: float = 1.0,
        with_ssim: bool = False,
        thresholds: Sequence[float] = (),
        fss_window: int = FSS_WINDOW,
    ) -> None:
        """Nothing added yet.

        Args:
            data_range: Greatest minus least value that frames can have, in their unit.
            with_ssim: Whether `ssim` is computed; frames must then be 11x11 pixels or more.
            thresholds: For CSI, POD, FAR and FSS, in the frames' unit.
            fss_window: Pixels of the neighbourhood along each axis, odd.
        """
        _check_range(data_range)
        self.data_range = data_range
        self.with_ssim = with_ssim
        self.thresholds = tuple(thresholds)
        self.fss_window = fss_window
        # Name -> sums per lead time, (T,).
        self._sums: dict[str, np.ndarray] = {}

    def add(
        self, truth: np.ndarray, forecast: np.ndarray, *, valid: np.ndarray | None = None
    ) -> np.ndarray:
        """Score one batch.

        Args:
            truth: Unit scale, (B, T_out, H, W, C).
            forecast: The same shape.
            valid: bool, the same shape; False where there is no data.

        Returns:
            Squared error of each window, summed over its frames: float64 (B,).

        Raises:
            ValueError: The shapes differ, or another number of lead times than before.
        """
        error, _ = _errors(truth, forecast, valid)
        if self._sums and len(self._sums["squared"]) != error.shape[1]:
            raise ValueError(
                f"got {error.shape[1]} lead times, {len(self._sums['squared'])} before"
            )
        squared = np.square(error).sum(axis=(2, 3, 4))
        counts = _valid_per_frame(error, valid)
        ratios, perfect = _frame_ratios(squared, counts, self.data_range)
        self._sum("squared", squared)
        self._sum("absolute", np.abs(error).sum(axis=(2, 3, 4)))
        self._sum("values", counts)
        self._sum("frames", counts > 0)
        self._sum("perfect", perfect)
        self._sum("ratios", np.nan_to_num(ratios))
        if self.with_ssim:
            found = ssim_per_frame(truth, forecast, data_range=self.data_range, valid=valid)
            self._sum("ssim", np.nan_to_num(found))
            self._sum("ssim frames", ~np.isnan(found))
        for threshold in self.thresholds:
            self._add_threshold(threshold, truth, forecast, valid)
        total: np.ndarray = squared.sum(axis=1)
        return total

    def scores(self) -> Scores:
        """Over everything added so far; at least one batch."""
        return self._scores({name: float(sums.sum()) for name, sums in self._sums.items()})

    def per_lead_time(self) -> tuple[Scores, ...]:
        """Of the first, second, ... predicted frame alone."""
        leads = range(len(self._sums["squared"]))
        return tuple(
            self._scores({name: float(sums[lead]) for name, sums in self._sums.items()})
            for lead in leads
        )

    def _sum(self, name: str, per_frame: np.ndarray) -> None:
        """Add values of frames (B, T) to the sums of their lead times."""
        self._sums[name] = self._sums.get(name, 0) + per_frame.sum(axis=0, dtype=np.float64)

    def _add_threshold(
        self, threshold: float, truth: np.ndarray, forecast: np.ndarray, valid: np.ndarray | None
    ) -> None:
        for lead in range(truth.shape[1]):
            mask = None if valid is None else np.broadcast_to(valid, truth.shape)[:, lead]
            counts = contingency(truth[:, lead], forecast[:, lead], threshold, valid=mask)
            for name, count in counts._asdict().items():
                sums = self._sums.setdefault(f"{name} {threshold}", np.zeros(truth.shape[1]))
                sums[lead] += count
        error, reference = fss_sums(truth, forecast, threshold, window=self.fss_window, valid=valid)
        self._sum(f"fss error {threshold}", error)
        self._sum(f"fss reference {threshold}", reference)

    def _scores(self, sums: dict[str, float]) -> Scores:
        with np.errstate(invalid="ignore"):
            leads = self._sums["squared"] / self._sums["values"]
        mse = _ratio(sums["squared"], sums["values"])
        return Scores(
            mse=mse,
            mae=_ratio(sums["absolute"], sums["values"]),
            psnr_of_mean_mse=_decibel(mse, self.data_range),
            mse_per_lead_time=tuple(leads.tolist()),
            mse_sum=_ratio(sums["squared"], sums["frames"]),
            psnr_frame_mean=_ratio(sums["ratios"], sums["frames"]),
            perfect_frames=int(sums["perfect"]),
            frames=int(sums["frames"]),
            ssim=_defined(_ratio(sums["ssim"], sums["ssim frames"])) if self.with_ssim else None,
            thresholds=tuple(self._of_threshold(threshold, sums) for threshold in self.thresholds),
        )

    def _of_threshold(self, threshold: float, sums: dict[str, float]) -> ThresholdScores:
        counts = Contingency(*(int(sums[f"{name} {threshold}"]) for name in Contingency._fields))
        error, reference = (sums[f"fss {name} {threshold}"] for name in ("error", "reference"))
        return ThresholdScores(
            threshold,
            csi=_defined(csi(counts)),
            pod=_defined(pod(counts)),
            far=_defined(far(counts)),
            fss=_defined(1 - _ratio(error, reference)),
        )


def _errors(
    truth: np.ndarray, forecast: np.ndarray, valid: np.ndarray | None
) -> tuple[np.ndarray, int]:
    """Forecast minus truth, 0 where not valid, and how many values are valid."""
    _check_shapes(truth, forecast)
    error = np.asarray(forecast, np.float64) - np.asarray(truth, np.float64)
    if valid is None:
        return error, error.size
    mask = np.broadcast_to(valid, error.shape)
    return np.where(mask, error, 0.0), int(np.count_nonzero(mask))


def _valid_per_frame(error: np.ndarray, valid: np.ndarray | None) -> np.ndarray:
    """Number of valid values of each frame of (..., H, W, C)."""
    if valid is None:
        return np.full(error.shape[:-3], math.prod(error.shape[-3:]))
    counts: np.ndarray = np.broadcast_to(valid, error.shape).sum(axis=(-3, -2, -1))
    return counts


def _frame_ratios(
    squared: np.ndarray, counts: np.ndarray, data_range: float
) -> tuple[np.ndarray, np.ndarray]:
    """The frames' PSNR, at most `PSNR_LIMIT`, NaN of empty ones, and which are perfect."""
    perfect = (squared == 0) & (counts > 0)
    known = (counts > 0) & ~perfect
    mean = np.divide(squared, counts, out=np.ones(squared.shape), where=known)
    ratios = np.where(known, 20 * math.log10(data_range) - 10 * np.log10(mean), np.nan)
    return np.where(perfect, PSNR_LIMIT, np.minimum(ratios, PSNR_LIMIT)), perfect


def _decibel(mse: float, data_range: float) -> float:
    # Differences of logarithms: the square of a small range may not be a float any more.
    return 20 * math.log10(data_range) - 10 * math.log10(mse) if mse else math.inf


def _ssim_of_frames(
    truth: np.ndarray, forecast: np.ndarray, data_range: float, valid: np.ndarray | None
) -> np.ndarray:
    """(n, H, W, C) frames -> (n,)."""
    x, y = truth.astype(np.float64), forecast.astype(np.float64)
    if valid is not None:
        x, y = np.where(valid, x, 0.0), np.where(valid, y, 0.0)
    mean_x, mean_y = _blurred(x), _blurred(y)
    var_x = _blurred(x * x) - mean_x**2
    var_y = _blurred(y * y) - mean_y**2
    covariance = _blurred(x * y) - mean_x * mean_y
    c1, c2 = (_SSIM_K1 * data_range) ** 2, (_SSIM_K2 * data_range) ** 2
    similarity = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    similarity /= (mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2)
    if valid is None:
        plain: np.ndarray = similarity.mean(axis=(1, 2, 3))
        return plain
    whole = _moving_sums(valid, SSIM_WINDOW) == SSIM_WINDOW**2
    counts = whole.sum(axis=(1, 2, 3))
    total = np.where(whole, similarity, 0.0).sum(axis=(1, 2, 3))
    found: np.ndarray = np.full(len(total), np.nan)
    np.divide(total, counts, out=found, where=counts > 0)
    return found


def _blurred(frames: np.ndarray) -> np.ndarray:
    """(n, H, W, C) under the Gaussian window, where all of it lies in the frame."""
    away = np.arange(SSIM_WINDOW) - SSIM_WINDOW // 2
    weights = np.exp(-0.5 * np.square(away / SSIM_SIGMA))
    weights /= weights.sum()
    for axis in (1, 2):
        along = np.moveaxis(frames, axis, 0)
        kept = len(along) - SSIM_WINDOW + 1
        total = np.zeros((kept, *along.shape[1:]))
        for start, weight in enumerate(weights):
            total += weight * along[start : start + kept]
        frames = np.moveaxis(total, 0, axis)
    return frames


def _moving_sums(events: np.ndarray, window: int) -> np.ndarray:
    """Sums over all windows that lie in the frame: (..., H, W, C) -> (..., H-n+1, W-n+1, C)."""
    total = events.astype(np.int64)
    for axis in (-3, -2):
        total = np.cumsum(total, axis=axis)
        pad = [(0, 0)] * total.ndim
        pad[axis] = (1, 0)
        total = np.moveaxis(np.pad(total, pad), axis, 0)
        total = np.moveaxis(total[window:] - total[: len(total) - window], 0, axis)
    return total


def _neighbour_counts(events: np.ndarray, window: int) -> np.ndarray:
    """Events in the neighbourhood of each pixel, none beyond the edge; the shape of `events`."""
    half = window // 2
    pad = [(0, 0)] * (events.ndim - 3) + [(half, half), (half, half), (0, 0)]
    return _moving_sums(np.pad(events, pad), window)


def _events(frames: np.ndarray, threshold: float, valid: np.ndarray | None) -> np.ndarray:
    found: np.ndarray = np.asarray(frames) >= threshold
    return found if valid is None else found & valid


def _check_shapes(truth: np.ndarray, forecast: np.ndarray) -> None:
    if truth.shape != forecast.shape:
        raise ValueError(f"forecast has shape {forecast.shape}, the truth {truth.shape}")


def _check_range(data_range: float) -> None:
    if not (data_range > 0 and math.isfinite(data_range)):
        raise ValueError(f"data_range must be above 0, got {data_range}")


def _ratio(part: float, whole: float) -> float:
    return float(part) / float(whole) if whole else math.nan


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else value


def _json_number(value: float | None) -> float | str | None:
    if value is None or math.isnan(value):
        return None
    return "infinity" if math.isinf(value) else value
