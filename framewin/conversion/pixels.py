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
        return self._keeps_colours and self.settings.crop is None and self.settings.size is None

    @property
    def _keeps_colours(self) -> bool:
        chosen = self.settings
        return chosen.mode == "keep" and not chosen.drop_alpha and chosen.background is None

    def result_format(self, form: FrameFormat, path: str, alpha: str = "straight") -> FrameFormat:
        """What a frame of this format becomes; `alpha` is that of its `FileInfo`.

        Raises:
            FrameFormatError: The frame does not allow what is asked for; `path` names it.
        """
        top, bottom, left, right = self.settings.crop or (0, form.height, 0, form.width)
        if bottom > form.height or right > form.width:
            raise FrameFormatError(
                f"{path} has {form.height}x{form.width} pixels, too few for crop= of "
                f"rows {top}:{bottom} and columns {left}:{right}; crop less"
            )
        channels = self._channels(form, path, alpha)
        height, width = self.settings.size or (bottom - top, right - left)
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

    def _channels(self, form: FrameFormat, path: str, alpha: str) -> int:
        if alpha == "bands" or form.channels > _RGBA:
            if self._keeps_colours:
                return form.channels
            what = "channels" if form.channels > _RGBA else "channels of data that is not alpha"
            raise FrameFormatError(
                f"{path} has {form.channels} {what}; mode=, drop_alpha= and background= are for "
                "gray, RGB and alpha; leave them out, or save the colours alone"
            )
        mode, background = self.settings.mode, self.settings.background
        has_alpha = form.channels in (_GRAY_ALPHA, _RGBA)
        if has_alpha and background is not None and form.dtype in _NOT_BLENDED:
            raise FrameFormatError(
                f"{path} has {form.dtype} pixels; background= is for uint8, uint16 and floats"
            )
        if mode == "keep" and form.channels == _GRAY_ALPHA and len(set(background or ())) > 1:
            raise FrameFormatError(
                f"{path} is gray, the background {background} is not; try mode='rgb'"
            )
        gray = form.channels in (_GRAY, _GRAY_ALPHA) if mode == "keep" else mode == "gray"
        keeps_alpha = has_alpha and not self.settings.drop_alpha and background is None
        return (_GRAY if gray else _RGB) + keeps_alpha

    def _without_alpha(self, frame: np.ndarray, path: str, *, premultiplied: bool) -> np.ndarray:
        colours, alpha = frame[..., :-1], frame[..., -1:]
        full = int(np.iinfo(frame.dtype).max) if frame.dtype.kind in "iu" else 1
        if self.settings.drop_alpha:
            if (transparent := alpha != full).any():
                raise FrameFormatError(
                    f"{path} is transparent in {np.count_nonzero(transparent)} pixels, which "
                    "drop_alpha=True would show; try background="
                )
            return colours
        if self.settings.background is None:
            return frame
        background = np.array([[self.settings.background]], np.uint8)
        if colours.shape[-1] == 1:
            background = _luma(background)
        return _blended(colours, alpha, background, full, premultiplied=premultiplied)


def _blended(
    colours: np.ndarray,
    alpha: np.ndarray,
    background: np.ndarray,
    full: int,
    *,
    premultiplied: bool,
) -> np.ndarray:
    dtype = colours.dtype
    wide = np.float64 if dtype.kind == "f" else np.int64
    alpha = alpha.astype(wide)
    beneath: np.ndarray = background / 255
    if dtype.kind != "f":
        beneath = background.astype(wide) * (full // 255)
    mixed = colours * (wide(full) if premultiplied else alpha) + beneath * (full - alpha)
    if dtype.kind != "f":
        # A premultiplied colour is at most its alpha, but files need not keep to that.
        mixed = np.minimum((mixed + full // 2) // full, full)
    return np.asarray(mixed.astype(dtype))


def _luma(colours: np.ndarray) -> np.ndarray:
    """(H, W, 3) to (H, W, 1) by BT.601."""
    if colours.dtype.kind == "f":
        weighted = colours.astype(np.float64) @ np.array(_LUMA) / 1000
    else:
        wide = np.dtype("int64" if colours.dtype.name in _NOT_BLENDED else "uint32")
        red, green, blue = (colours[..., i].astype(wide) * _LUMA[i] for i in range(3))
        weighted = (red + green + blue + 500) // 1000
    return np.asarray(weighted.astype(colours.dtype)[..., np.newaxis])


def _fitted(frame: np.ndarray, size: tuple[int, int], fit: str, *, nearest: bool) -> np.ndarray:
    height, width = frame.shape[:2]
    if fit == "crop":
        # As much of the middle as has the new proportions.
        rows = min(height, max(1, _rounded(width * size[0], size[1])))
        columns = min(width, max(1, _rounded(height * size[1], size[0])))
        frame = frame[_middle(height, rows), _middle(width, columns)]
    if fit != "pad":
        return _resized(frame, size, nearest=nearest)
    rows = min(size[0], max(1, _rounded(height * size[1], width)))
    columns = min(size[1], max(1, _rounded(width * size[0], height)))
    padded = np.zeros((*size, frame.shape[-1]), frame.dtype)
    inner = _resized(frame, (rows, columns), nearest=nearest)
    padded[_middle(size[0], rows), _middle(size[1], columns)] = inner
    return padded


def _middle(length: int, part: int) -> slice:
    return slice((length - part) // 2, (length - part) // 2 + part)


def _rounded(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)


def _resized(frame: np.ndarray, size: tuple[int, int], *, nearest: bool) -> np.ndarray:
    if frame.shape[:2] == size:
        return frame
    resized = frame
    for axis, after in enumerate(size):
        before = frame.shape[axis]
        if nearest:
            # The old pixel in whose area each new one has its middle.
            middles = (2 * np.arange(after) + 1) * before // (2 * after)
            resized = np.take(resized, middles, axis)
        else:
            resized = _weighted(resized, before, after, axis)
    if frame.dtype.kind in "iu" and not nearest:
        resized = np.floor(resized + 0.5 + _HALF_UP)
    return resized.astype(frame.dtype)


def _weighted(frame: np.ndarray, before: int, after: int, axis: int) -> np.ndarray:
    """Weighted sums along an axis."""
    lines = frame.swapaxes(0, axis)
    total = np.float64(0)
    for places, weights in zip(*_taps(before, after), strict=True):
        total = total + weights.reshape(-1, 1, 1) * lines[places]
    return np.asarray(total).swapaxes(0, axis)


@lru_cache(maxsize=16)
def _taps(before: int, after: int) -> tuple[np.ndarray, np.ndarray]:
    """Which old pixels of an axis count for each new one and how much, (taps, after) each.

    A tap without weight repeats a pixel that counts, so that no value, such as NaN, reaches
    further than its area.
    """
    if after <= before:
        # In whole parts of a pixel, so that areas which only touch have no share at all.
        new, old = np.arange(after + 1)[:, np.newaxis] * before, np.arange(before + 1) * after
        overlap = np.minimum(new[1:], old[1:]) - np.maximum(new[:-1], old[:-1])
        shares = np.maximum(overlap, 0) / before
    else:
        middles = np.clip((np.arange(after) + 0.5) * before / after - 0.5, 0, before - 1)
        shares = np.maximum(1 - abs(middles[:, np.newaxis] - np.arange(before)), 0)
    counts = np.count_nonzero(shares, axis=1)
    taps = np.arange(counts.max())[:, np.newaxis]
    places = (shares > 0).argmax(axis=1) + np.minimum(taps, counts - 1)
    return places, np.where(taps < counts, shares[np.arange(after), places], 0)
