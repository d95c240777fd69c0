"""What a model computes with where the values of frames are a small part of their dtype's range."""

from __future__ import annotations

import math

import numpy as np

from framewin.dataset import FrameWindowDataset
from framewin.metrics import FULL_SCALE
from framewin.model_table import ModelScale
from framewin.scaling import missing_of
from framewin.windows.statistics import ChannelStatistics, ChannelSums

SAMPLED_FRAMES = 200
FILLED = 0.25
"""Share of the dtype's largest value, or of 1 of floats, from which on values are used as they are
in unit scale."""


def model_scale(training: FrameWindowDataset, normalize: str) -> ModelScale | None:
    """The scale that a model of the table computes with; None for unit scale.

    Args:
        training: The windows trained on, of which some frames, evenly spread, are read.
        normalize: `"unit"`; `"range"` makes the least value 0 and the greatest 1, `"standard"` the
            mean 0 and the standard deviation 1, by channel; `"auto"` is `"range"` where values are
            small in unit scale, or larger than 1, and else `"unit"`.
    """
    if normalize == "unit":
        return None
    try:
        found = _statistics(training, normalize)
    except ValueError:
        return None  # No pixel of a channel has data.
    if found is None:
        return None
    offset, divisor = found.min, np.subtract(found.max, found.min)
    if normalize == "standard":
        offset, divisor = found.mean, np.array(found.std)
    elif normalize == "auto" and _fills(found, training.frame_format.dtype):
        # Only a value of no data that is far from all others has to be left out then.
        blank = _blank(training.nodata, found)
        if blank is None or abs(blank) <= 1:
            return None
        return ModelScale((0.0,) * len(offset), (1.0,) * len(offset), blank)
    # A channel of a single value is only shifted.
    widths = tuple(float(each) or 1.0 for each in divisor)
    return ModelScale(offset, widths, _blank(training.nodata, found))


def _statistics(training: FrameWindowDataset, normalize: str) -> ChannelStatistics | None:
    """Of a sample of frames; None as soon as one is seen that fills an integer dtype."""
    dtype = training.frame_format.dtype
    ranges = training.index.row_ranges()
    rows = np.concatenate([np.arange(begin, end) for begin, end in ranges.tolist()])
    chosen = np.linspace(0, len(rows) - 1, min(len(rows), SAMPLED_FRAMES)).astype(int)
    sums = ChannelSums(training.frame_format.channels)
    for row in rows[chosen].tolist():
        [(_, frame)] = training.blocks(row, row + 1)
        missing = missing_of(frame, training.nodata)
        values = frame.astype(np.float64)
        if missing is not None:
            values[missing] = math.nan
        sums.add(values, nodata=math.nan)
        reached = sums.max.max() >= FILLED * FULL_SCALE[dtype]
        if normalize == "auto" and np.dtype(dtype).kind != "f" and reached:
            return None
    return sums.result()


def _fills(found: ChannelStatistics, dtype: str) -> bool:
    """Whether values use the unit scale; integers that do were seen before."""
    largest = max(*map(abs, found.min), *map(abs, found.max))
    return np.dtype(dtype).kind == "f" and FILLED <= largest <= 1


def _blank(nodata: float | None, found: ChannelStatistics) -> float | None:
    """What stands among the inputs where there is no data; 0 in the place of NaN."""
    if nodata is None or not math.isnan(nodata):
        return nodata
    return None if min(found.min) <= 0 <= max(found.max) else 0.0
