"""From stored pixel values to what a model takes, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from framewin.metrics import FULL_SCALE, to_unit
from framewin.optional import require
from framewin.windows.statistics import ChannelStatistics, missing_values

Normalize = Literal["unit", "standard"] | tuple[float | Sequence[float], float | Sequence[float]]
"""`"unit"`, `"standard"`, or a mean and a standard deviation, each a number or one per channel."""

SCALED_DTYPES = ("float32", "float16", "bfloat16")
_WIDE = ("uint32", "int32", "float64")
"""Stored dtypes with values that float32 does not hold."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """`(frames - offset) / divisor`, computed in float32 (float64 for wide stored dtypes).

    >>> scaling = Scaling(offset=(0.0,), divisor=(255.0,), dtype="float32", stored="uint8")
    >>> scaling(np.array([[0], [51]], np.uint8)).tolist()
    [[0.0], [0.20000000298023224]]
    >>> scaling.invert(np.array([[-0.1], [0.2], [1.5]])).tolist()
    [[0], [51], [255]]
    """

    offset: tuple[float, ...]
    """Stored unit, one for all channels or one for each."""
    divisor: tuple[float, ...]
    """The same."""
    dtype: str
    """One of `SCALED_DTYPES`."""
    stored: str
    """Dtype of the frames."""

    def __post_init__(self) -> None:
        if self.dtype not in SCALED_DTYPES:
            allowed = ", ".join(SCALED_DTYPES)
            raise ValueError(f"dtype must be None or one of {allowed}, got {self.dtype!r}")
        if not np.isfinite(self.offset).all():
            raise ValueError(f"the mean must be finite, got {self.offset}")
        if not (np.isfinite(self.divisor).all() and np.min(self.divisor) > 0):
            raise ValueError(f"the standard deviation must be above 0, got {self.divisor}")

    @property
    def computed(self) -> str:
        """The dtype in which it is computed."""
        return "float64" if self.stored in _WIDE else "float32"

    def __call__(self, frames: np.ndarray) -> np.ndarray:
        """Scale frames of the stored dtype, (..., C)."""
        values = frames.astype(self.computed)
        if any(self.offset):
            values -= np.array(self.offset, self.computed)
        if set(self.divisor) != {1.0}:
            values /= np.array(self.divisor, self.computed)
        scaled: np.ndarray = values.astype(_numpy_dtype(self.dtype))
        return scaled

    def invert(self, values: Any) -> np.ndarray:
        """Scaled values, such as a forecast, as pixels of the stored dtype.

        Args:
            values: An array or tensor of (..., C); outside the stored dtype's range is clipped,
                integers are rounded half up, and what is not a number becomes 0 in integers.

        Returns:
            Stored dtype, the shape of `values`.
        """
        pixels = np.asarray(values).astype(np.float64) * np.array(self.divisor)
        pixels += np.array(self.offset)
        if np.dtype(self.stored).kind != "f":
            limits = np.iinfo(self.stored)
            whole = np.floor(np.nan_to_num(pixels) + 0.5)
            pixels = np.clip(whole, limits.min, limits.max)
        stored: np.ndarray = pixels.astype(self.stored)
        return stored


def make_scaling(
    normalize: Normalize | None,
    dtype: str | None,
    *,
    stored: str,
    channels: int,
    statistics: Callable[[], ChannelStatistics],
) -> Scaling | None:
    """The scaling that `normalize=` and `dtype=` ask for; None where frames stay as stored.

    Args:
        normalize: None keeps the values; `"unit"` divides integers by their greatest value;
            `"standard"` and (mean, standard deviation) subtract and divide.
        dtype: float32 by default, wherever anything is to be done.
        stored: Dtype of the frames.
        channels: Of the frames.
        statistics: Called for `"standard"` only.

    Raises:
        ValueError: Another value.
    """
    if normalize is None and dtype is None:
        return None
    offset, divisor = _moments(normalize, stored, statistics)
    for values in (offset, divisor):
        if len(values) not in (1, channels):
            raise ValueError(
                f"normalize needs one number or one for each of {channels} channels, got {values}"
            )
    scaling = Scaling(offset, divisor, dtype or "float32", stored)
    if (
        normalize is None
        and dtype == "float16"
        and FULL_SCALE[stored] > float(np.finfo("float16").max)
    ):
        raise ValueError(f'{stored} values do not fit into float16; give normalize="unit" too')
    return scaling


def _moments(
    normalize: Any, stored: str, statistics: Callable[[], ChannelStatistics]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if normalize is None:
        return (0.0,), (1.0,)
    if isinstance(normalize, str) and normalize == "unit":
        return (0.0,), (FULL_SCALE[stored],)
    if isinstance(normalize, str) and normalize == "standard":
        found = statistics()
        # A channel that never changes is only shifted.
        return found.mean, tuple(std or 1.0 for std in found.std)
    if isinstance(normalize, tuple | list) and len(normalize) == 2:
        mean, std = (tuple(np.atleast_1d(np.asarray(v, float)).tolist()) for v in normalize)
        return mean, std
    raise ValueError(
        f"normalize must be None, 'unit', 'standard' or (mean, std), got {normalize!r}"
    )


def _numpy_dtype(name: str) -> Any:
    # numpy has no bfloat16 of its own; TensorFlow and JAX bring this one.
    return require("ml_dtypes", extra="tensorflow").bfloat16 if name == "bfloat16" else name


def shown_values(frames: np.ndarray, nodata: float | None) -> np.ndarray:
    """Stored frames in unit scale, NaN where there is no data; any shape."""
    values, missing = to_unit(frames), missing_of(frames, nodata)
    if missing is not None:
        values[missing] = np.nan
    return values


def missing_of(frames: np.ndarray, nodata: float | None) -> np.ndarray | None:
    """Where frames hold no data, or no finite number; None where every value is data."""
    missing = missing_values(frames, nodata)
    if frames.dtype.kind == "f":
        lost = ~np.isfinite(frames)
        missing = lost if missing is None else missing | lost
    return missing if missing is not None and missing.any() else None
