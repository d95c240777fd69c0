"""What happens to a frame between decoding and the store: crop, alpha, colours, size.

In this order, each only if asked for. Integers are rounded half up, and no step leaves the
frame's dtype:

- crop: rows and columns, half-open.
- background: `(colour * alpha + background * (full - alpha)) / full` of each channel; where
  colours are premultiplied, `colour + background * (full - alpha) / full`.
- mode gray: 0.299 R + 0.587 G + 0.114 B (BT.601). Mode rgb: gray three times.
- size: an axis that shrinks is averaged over the area of each new pixel, one that grows is
  interpolated bilinearly, each channel by itself; palette indices are taken from the nearest
  pixel, for a mean of indices is no index.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from framewin.conversion.settings import ConvertSettings
from framewin.errors import FrameFormatError
from framewin.schema import FrameFormat

_LUMA = (299, 587, 114)
# Sums of weights that are no binary fractions may miss a half by far less than this.
_HALF_UP = 1e-6
_GRAY, _GRAY_ALPHA, _RGB, _RGBA = 1, 2, 3, 4
_NOT_BLENDED = ("uint32", "int8", "int16", "int32")


@dataclass(frozen=True, slots=True)
class PixelRule:
    """The part of the settings that changes pixels."""

    settings: ConvertSettings

    @property
    def changes_nothing(self) -> bool:
        """Whether frames are stored as they are decoded."""
        chosen = self.settings
        return (
            not chosen.drop_alpha
            and (chosen.mode, chosen.background, chosen.crop, chosen.size)
            == ("keep",) + (None,) * 3
        )

    def result_format(self, form: FrameFormat, path: str, alpha: str = "straight") -> FrameFormat:
        """What a frame of this format becomes; `alpha` is that of its `FileInfo`.

        Raises:
            FrameFormatError: The frame does not allow what is asked for; `path` names it.
        """
        height, width = self._cropped(form, path)
        if alpha == "bands" or form.channels > _RGBA:
            channels = self._kept(form.channels, path)
        else:
            channels = self._channels(form, path)
        if self.settings.size is not None:
            height, width = self.settings.size
        return FrameFormat(height, width, channels, form.dtype)

    def apply(self, frame: np.ndarray, out: np.ndarray, path: str, alpha: str = "straight") -> None:
        """Write what a decoded frame, (H, W, C), becomes into `out`."""
        chosen = self.settings
        if chosen.crop is not None:
            top, bottom, left, right = chosen.crop
            frame = frame[top:bottom, left:right]
        if chosen.mode == "rgb" and frame.shape[-1] in (_GRAY, _GRAY_ALPHA):
            frame = np.concatenate([frame[..., :1]] * 3 + [frame[..., 1:]], axis=-1)
        if frame.shape[-1] in (_GRAY_ALPHA, _RGBA):
            frame = self._without_alpha(frame, path, premultiplied=alpha == "premultiplied")
        if chosen.mode == "gray" and frame.shape[-1] in (_RGB, _RGBA):
            frame = np.concatenate([_luma(frame[..., :3]), frame[..., 3:]], axis=-1)
        if chosen.size is not None:
            frame = _fitted(frame, chosen.size, chosen.fit, nearest=chosen.palette == "index")
        out[:] = frame

    def _cropped(self, form: FrameFormat, path: str) -> tuple[int, int]:
        if self.settings.crop is None:
            return form.height, form.width
        top, bottom, left, right = self.settings.crop
        if bottom > form.height or right > form.width:
            raise FrameFormatError(
                f"{path} has {form.height}x{form.width} pixels, too few for crop= of "
                f"rows {top}:{bottom} and columns {left}:{right}; crop less"
            )
        return bottom - top, right - left

    def _channels(self, form: FrameFormat, path: str) -> int:
        mode, background, channels = self.settings.mode, self.settings.background, form.channels
        has_alpha = channels in (_GRAY_ALPHA, _RGBA)
        if has_alpha and background is not None and form.dtype in _NOT_BLENDED:
            raise FrameFormatError(
                f"{path} has {form.dtype} pixels; background= is for uint8, uint16 and floats"
            )
        laid = mode == "keep" and channels == _GRAY_ALPHA and background is not None
        if laid and len(set(background or ())) > 1:
            raise FrameFormatError(
                f"{path} is gray, the background {background} is not; try mode='rgb'"
            )
        alpha = has_alpha and not self.settings.drop_alpha and background is None
        gray = channels in (_GRAY, _GRAY_ALPHA) if mode == "keep" else mode == "gray"
        return (_GRAY if gray else _RGB) + alpha

    def _kept(self, channels: int, path: str) -> int:
        chosen = self.settings
        if chosen.mode != "keep" or chosen.drop_alpha or chosen.background is not None:
            what = "channels" if channels > _RGBA else "channels of data that is not alpha"
            raise FrameFormatError(
                f"{path} has {channels} {what}; mode=, drop_alpha= and background= are for "
                "gray, RGB and alpha; leave them out, or save the colours alone"
            )
        return channels

    def _without_alpha(self, frame: np.ndarray, path: str, *, premultiplied: bool) -> np.ndarray:
        chosen = self.settings
        colours, alpha = frame[..., :-1], frame[..., -1:]
        full = _full(frame.dtype)
        if chosen.drop_alpha:
            if (alpha != full).any():
                raise FrameFormatError(
                    f"{path} is transparent in {np.count_nonzero(alpha != full)} pixels, which "
                    "drop_alpha=True would show; try background="
                )
            return colours
        if chosen.background is None:
            return frame
        if colours.shape[-1] == 1:
            background = _luma(np.array([[chosen.background]], np.uint8))[0, 0]
        else:
            background = np.array(chosen.background)
        return _blended(colours, alpha, background, premultiplied=premultiplied)


def _full(dtype: np.dtype) -> float | int:
    return int(np.iinfo(dtype).max) if dtype.kind in "iu" else 1.0


def _blended(
    colours: np.ndarray, alpha: np.ndarray, background: np.ndarray, *, premultiplied: bool
) -> np.ndarray:
    full = _full(colours.dtype)
    if colours.dtype.kind == "f":
        light, alpha = background.astype(np.float64) / 255, alpha.astype(np.float64)
        mixed: np.ndarray = colours * (1 if premultiplied else alpha) + light * (1 - alpha)
        return mixed.astype(colours.dtype)
    wide = alpha.astype(np.int64)
    share = np.int64(full) if premultiplied else wide
    behind = background.astype(np.int64) * (int(full) // 255)
    blended: np.ndarray = (colours * share + behind * (full - wide) + full // 2) // full
    # A premultiplied colour is at most its alpha, but files need not keep to that.
    kept: np.ndarray = np.minimum(blended, full).astype(colours.dtype)
    return kept


def _luma(colours: np.ndarray) -> np.ndarray:
    """(H, W, 3) to (H, W, 1) by BT.601."""
    weighted: np.ndarray
    if colours.dtype.kind == "f":
        weighted = colours.astype(np.float64) @ np.array(_LUMA) / 1000
    else:
        wide: np.dtype = np.dtype("int64" if colours.dtype.name in _NOT_BLENDED else "uint32")
        red, green, blue = (colours[..., i].astype(wide) * _LUMA[i] for i in range(3))
        weighted = (red + green + blue + 500) // 1000
    return weighted.astype(colours.dtype)[..., np.newaxis]


def _fitted(frame: np.ndarray, size: tuple[int, int], fit: str, *, nearest: bool) -> np.ndarray:
    height, width = frame.shape[:2]
    if fit == "crop":
        # As much of the middle as has the new proportions.
        rows = min(height, max(1, _rounded(width * size[0], size[1])))
        columns = min(width, max(1, _rounded(height * size[1], size[0])))
        top, left = (height - rows) // 2, (width - columns) // 2
        frame = frame[top : top + rows, left : left + columns]
    if fit != "pad":
        return _resized(frame, size, nearest=nearest)
    rows = min(size[0], max(1, _rounded(height * size[1], width)))
    columns = min(size[1], max(1, _rounded(width * size[0], height)))
    padded = np.zeros((*size, frame.shape[-1]), frame.dtype)
    top, left = (size[0] - rows) // 2, (size[1] - columns) // 2
    inner = _resized(frame, (rows, columns), nearest=nearest)
    padded[top : top + rows, left : left + columns] = inner
    return padded


def _rounded(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)


def _resized(frame: np.ndarray, size: tuple[int, int], *, nearest: bool) -> np.ndarray:
    height, width = frame.shape[:2]
    if (height, width) == size:
        return frame
    if nearest:
        rows, columns = _nearest(height, size[0]), _nearest(width, size[1])
        picked: np.ndarray = frame[rows[:, np.newaxis], columns]
        return picked
    narrow = _weighted(frame, _taps(height, size[0]))
    resized = _weighted(narrow.swapaxes(0, 1), _taps(width, size[1])).swapaxes(0, 1)
    if frame.dtype.kind in "iu":
        resized = np.floor(resized + 0.5 + _HALF_UP)
    return resized.astype(frame.dtype)


def _weighted(frame: np.ndarray, taps: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Weighted sums along the first axis."""
    total: np.ndarray | float = 0.0
    for places, weights in zip(*taps, strict=True):
        total = total + weights.reshape(-1, 1, 1) * frame[places]
    assert isinstance(total, np.ndarray)
    return total


@lru_cache(maxsize=16)
def _taps(before: int, after: int) -> tuple[np.ndarray, np.ndarray]:
    """Which old pixels of an axis count for each new one and how much, (taps, after) each.

    A tap without weight repeats a pixel that counts, so that no value, such as NaN, reaches
    further than its area.
    """
    shares = _weights(before, after)
    counts = np.count_nonzero(shares, axis=1)
    first = (shares > 0).argmax(axis=1)
    taps = np.arange(counts.max())[:, np.newaxis]
    places = np.minimum(first + taps, first + counts - 1)
    weights = np.where(taps < counts, shares[np.arange(after), places], 0)
    return places, weights


def _weights(before: int, after: int) -> np.ndarray:
    """Share of each old pixel of an axis in each new one, (after, before)."""
    if after <= before:
        # In whole parts of a pixel, so that areas which only touch have no share at all.
        new, old = np.arange(after + 1)[:, np.newaxis] * before, np.arange(before + 1) * after
        overlap = np.minimum(new[1:], old[1:]) - np.maximum(new[:-1], old[:-1])
        shares: np.ndarray = np.maximum(overlap, 0) / before
        return shares
    places = np.clip((np.arange(after) + 0.5) * before / after - 0.5, 0, before - 1)
    return np.maximum(1 - abs(places[:, np.newaxis] - np.arange(before)), 0)


def _nearest(before: int, after: int) -> np.ndarray:
    """Index of the old pixel of an axis in whose area each new one has its middle."""
    return (2 * np.arange(after) + 1) * before // (2 * after)
