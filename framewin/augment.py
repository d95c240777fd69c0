"""Augmentations that act alike on all frames of a window, inputs and targets together.

Whatever is random is a pure function of (seed, epoch, window), or of (seed, epoch, place in the
epoch) where windows are drawn by their weights, so that one that is drawn twice is changed in two
ways: the number of workers, the batch size and a resume change nothing. Random numbers come from
the cipher that also orders the windows, so that the graph and numpy draw the same ones. Frames are
augmented when a batch is made and are never kept.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from framewin.metrics import FULL_SCALE
from framewin.schema import Int64Array
from framewin.windows import order

DRAWS = (
    "reverse",
    "horizontal",
    "vertical",
    "turns",
    "shift_x",
    "shift_y",
    "rotation",
    "zoom",
    "shear",
    "crop_y",
    "crop_x",
    "contrast",
    "brightness",
    "noise_1",
    "noise_2",
)
"""What is drawn for each window, in this order."""
FIRST_DRAW = 2**61
"""Index of the first draw: apart from those that draw weighted windows with the same key."""
DRAW_BITS = 53
WIDE_DTYPES = ("uint32", "int32", "float64")
"""Dtypes whose values are augmented in float64, the others in float32."""
NOISE_SEEDS = 2**31
GOLDEN = 0x9E3779B9
"""2**32 over the golden ratio: sets a second number of a place apart from the first."""

WindowFunction = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""(T, H, W, C) of the stored dtype and a generator, to the same dtype, T and C."""


@dataclass(frozen=True, slots=True)
class Augment:
    """Built-in augmentations; what is not named is left as it is.

    In this order: time is reversed, frames are flipped, turned, moved (shift, rotation, zoom and
    shear in one bilinear resampling, in which the edge pixels go on outside), cropped, and their
    values changed. Integers are rounded half up and clipped to their dtype, floats not clipped.
    """

    reverse_time: bool = False
    """Half of the windows run backwards, inputs and targets as one."""
    flip_horizontal: bool = False
    """Half of the windows are mirrored left to right."""
    flip_vertical: bool = False
    """Half of the windows are mirrored top to bottom."""
    turns: bool = False
    """Turned by 0, 90, 180 or 270 degrees; frames must be square."""
    shift: float = 0.0
    """Moved by up to this share of height and width each."""
    rotation: float = 0.0
    """Turned by up to as many degrees, either way."""
    zoom: tuple[float, float] = (1.0, 1.0)
    """Enlarged by a factor between these."""
    shear: float = 0.0
    """Slanted by up to as many degrees, either way."""
    crop: tuple[int, int] | None = None
    """Height and width of a random part to keep."""
    contrast: tuple[float, float] = (1.0, 1.0)
    """Distance from mid-gray, half the full scale, times a factor between these."""
    brightness: float = 0.0
    """Up to this share of the full scale (255, 65535, 1 of floats) added or taken away."""
    noise: float = 0.0
    """Standard deviation of normal noise of each pixel, as a share of the full scale."""
    noise_inputs_only: bool = False
    """Leave the targets without noise."""

    def __post_init__(self) -> None:
        for flag in fields(self):
            if flag.default is False and not isinstance(getattr(self, flag.name), bool):
                raise TypeError(
                    f"{flag.name} must be True or False, got {getattr(self, flag.name)!r}"
                )
        for name in ("shift", "rotation", "shear", "brightness", "noise"):
            value = getattr(self, name)
            if isinstance(value, bool | str) or not 0 <= value < math.inf:
                raise ValueError(f"{name} must be >= 0, got {value!r}")
        if self.shear >= 90:
            raise ValueError(f"shear must be below 90 degrees, got {self.shear!r}")
        for name in ("zoom", "contrast"):
            pair = getattr(self, name)
            if not _is_pair(pair) or not 0 < pair[0] <= pair[1] < math.inf:
                raise ValueError(f"{name} must be (low, high) with 0 < low <= high, got {pair}")
        if self.crop is not None and not (
            _is_pair(self.crop, int | np.integer) and min(self.crop) > 0
        ):
            raise ValueError(f"crop must be (height, width) of at least 1, got {self.crop}")

    @property
    def moves(self) -> bool:
        """Whether pixels are resampled."""
        return bool(self.shift or self.rotation or self.shear or self.zoom != (1.0, 1.0))

    @property
    def changes_values(self) -> bool:
        """Whether pixel values are changed."""
        return bool(self.brightness or self.noise or self.contrast != (1.0, 1.0))

    def check(self, shape: Sequence[int], nodata: float | None) -> None:
        """Refuse what cannot be done with these frames.

        Args:
            shape: (H, W, C).
            nodata: Value that stands for no data.
        """
        height, width = shape[:2]
        if self.turns and height != width:
            raise ValueError(
                f"turns needs square frames, these are {height}x{width}; crop or resize them when "
                "converting, or flip them instead"
            )
        if self.crop is not None and (self.crop[0] > height or self.crop[1] > width):
            raise ValueError(f"crop {self.crop} is larger than the frames, {height}x{width}")
        if nodata is not None and (self.moves or self.changes_values):
            used = [f.name for f in fields(self) if getattr(self, f.name) != f.default]
            raise ValueError(
                f"{', '.join(used)} would mix the no-data value {nodata:g} with data; use only "
                "reverse_time, flips, turns and crop"
            )

    def shape(self, shape: Sequence[int]) -> tuple[int, int, int]:
        """Of frames (H, W, C) once they are augmented."""
        height, width, channels = shape
        return (*(self.crop or (height, width)), channels)

    def apply(
        self, frames: np.ndarray, *, seed: int, epoch: int, windows: Int64Array, input_frames: int
    ) -> np.ndarray:
        """Augment whole windows.

        Args:
            frames: Stored dtype, (B, T, H, W, C), inputs and targets joined.
            seed: In [0, 2**63).
            epoch: At least 0.
            windows: (B,).
            input_frames: How many of the T frames are inputs.

        Returns:
            The same dtype, (B, T, h, w, C).
        """
        drawn = draw(seed, epoch, windows)
        frames = self._turned(frames, drawn)
        dtype = frames.dtype
        computed = np.float64 if dtype.name in WIDE_DTYPES else np.float32
        if self.moves:
            frames = _warped(frames.astype(computed), matrices(self, drawn, frames.shape[2:4]))
        if self.crop is not None:
            frames = _cropped(frames, crop_corners(self, drawn, frames.shape[2:4]), self.crop)
        if self.changes_values:
            factor, offset = (
                v[:, None, None, None, None].astype(computed) for v in tones(self, drawn, dtype)
            )
            frames = frames.astype(computed) * factor + offset
        if self.noise:
            frames = frames + noise(self, frames, drawn, dtype, input_frames)
        return _stored(frames, dtype)

    def _turned(self, frames: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        """Reversed, mirrored and turned by quarters: pixels change place only."""
        yes = {name: drawn[:, place] < 0.5 for place, name in enumerate(DRAWS)}
        out = []
        for place, window in enumerate(frames):
            if self.reverse_time and yes["reverse"][place]:
                window = window[::-1]
            if self.flip_horizontal and yes["horizontal"][place]:
                window = window[:, :, ::-1]
            if self.flip_vertical and yes["vertical"][place]:
                window = window[:, ::-1]
            if self.turns:
                window = np.rot90(window, int(4 * drawn[place, DRAWS.index("turns")]), (1, 2))
            out.append(window)
        return np.stack(out)


def draw(seed: int, epoch: int, windows: Int64Array) -> np.ndarray:
    """Uniform numbers in [0, 1) for each window: float64 (B, len(DRAWS))."""
    indices = draw_indices(np.asarray(windows, np.int64)[:, np.newaxis])
    numbers = order.permute(
        indices, order.epoch_key(seed, epoch), order.KEY_MAX_INDEX, rounds=order.KEY_ROUNDS
    )
    # 62 bits, of which a float64 holds 53.
    drawn: np.ndarray = (numbers >> (62 - DRAW_BITS)) * 2.0**-DRAW_BITS
    return drawn


def draw_indices(windows: Any) -> Any:
    """What is enciphered for windows (B, 1), an array or tensor: int64 (B, len(DRAWS))."""
    return FIRST_DRAW + windows * len(DRAWS) + np.arange(len(DRAWS))


def matrices(augment: Augment, drawn: Any, size: tuple[int, ...], ops: Any = np) -> Any:
    """Where each new pixel comes from: (B, 6).

    Pixel (x, y) of the new frame is the old one's (a x + b y + c, d x + e y + f).

    Args:
        augment: What to do.
        drawn: (B, len(DRAWS)), an array or tensor.
        size: Height and width.
        ops: The module with `cos`, `sin`, `tan` and `stack` for `drawn`.
    """
    height, width = size
    value = {name: drawn[:, place] for place, name in enumerate(DRAWS)}
    angle = (2 * value["rotation"] - 1) * math.radians(augment.rotation)
    slant = ops.tan((2 * value["shear"] - 1) * math.radians(augment.shear))
    zoom = _between(augment.zoom, value["zoom"])
    a, b = ops.cos(angle) / zoom, (ops.cos(angle) * slant - ops.sin(angle)) / zoom
    d, e = ops.sin(angle) / zoom, (ops.sin(angle) * slant + ops.cos(angle)) / zoom
    middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
    x = middle_x + (2 * value["shift_x"] - 1) * augment.shift * width
    y = middle_y + (2 * value["shift_y"] - 1) * augment.shift * height
    return ops.stack([a, b, middle_x - a * x - b * y, d, e, middle_y - d * x - e * y], 1)


def orientations(augment: Augment, drawn: Any, size: tuple[int, ...], ops: Any = np) -> Any:
    """`matrices` of the flips and quarter turns alone: (B, 6), whole numbers.

    The old pixel of a frame that is mirrored, then turned by k quarters.
    """
    height, width = size
    one = drawn[:, 0] * 0 + 1
    value = {name: drawn[:, place] for place, name in enumerate(DRAWS)}
    # 1 or -1; a draw of exactly one half mirrors nothing.
    mirror_x = 2 * ops.floor(value["horizontal"] + 0.5) - 1 if augment.flip_horizontal else one
    mirror_y = 2 * ops.floor(value["vertical"] + 0.5) - 1 if augment.flip_vertical else one
    quarters = ops.floor(4 * value["turns"]) if augment.turns else one * 0
    angle = quarters * (math.pi / 2)
    cos, sin = ops.round(ops.cos(angle)), ops.round(ops.sin(angle))
    middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
    a, b, d, e = mirror_x * cos, -mirror_x * sin, mirror_y * sin, mirror_y * cos
    right = middle_x - a * middle_x - b * middle_y
    down = middle_y - d * middle_x - e * middle_y
    return ops.stack([a, b, right, d, e, down], 1)


def composed(outer: Any, inner: Any, ops: Any = np) -> Any:
    """The matrices (B, 6) that look up `inner`'s place in `outer`."""
    a, b, c, d, e, f = (outer[:, i] for i in range(6))
    g, h, i, j, k, m = (inner[:, n] for n in range(6))
    upper = [a * g + b * j, a * h + b * k, a * i + b * m + c]
    lower = [d * g + e * j, d * h + e * k, d * i + e * m + f]
    return ops.stack([*upper, *lower], 1)


def crop_corners(augment: Augment, drawn: Any, size: tuple[int, ...]) -> tuple[Any, Any]:
    """Top and left of the part that is kept, not yet whole numbers: (B,) each, to be cut off."""
    height, width = augment.crop or size
    top = drawn[:, DRAWS.index("crop_y")] * (size[0] - height + 1)
    left = drawn[:, DRAWS.index("crop_x")] * (size[1] - width + 1)
    return top, left


def tones(augment: Augment, drawn: Any, dtype: Any) -> tuple[Any, Any]:
    """Factor and offset of a window's values, (B,) each."""
    full = FULL_SCALE[np.dtype(dtype).name]
    factor = _between(augment.contrast, drawn[:, DRAWS.index("contrast")])
    light = (2 * drawn[:, DRAWS.index("brightness")] - 1) * augment.brightness
    return factor, (0.5 - 0.5 * factor + light) * full


class _Numpy:
    """What `noise` computes with, on arrays."""

    abs, log, sqrt, where = np.abs, np.log, np.sqrt, np.where
    cast, reshape, right_shift = np.asarray, np.reshape, np.right_shift

    @staticmethod
    def arange(number: int) -> np.ndarray:
        return np.arange(number, dtype=np.uint32)


def noise(
    augment: Augment, frames: Any, drawn: Any, dtype: Any, input_frames: int, ops: Any = _Numpy
) -> Any:
    """Normal numbers (Box and Muller, 1958) from a hash of each value's place and its window.

    A generator would draw them one after the other, at fifty times the cost in a graph.

    Args:
        augment: What to do.
        frames: In the dtype that is computed with, (B, T, H, W, C).
        drawn: (B, len(DRAWS)), an array or tensor.
        dtype: The stored one.
        input_frames: How many of the T frames are inputs.
        ops: As for `matrices`.

    Returns:
        What to add to the frames, the same shape; the graph's logarithm may differ from numpy's by
        1e-5 of the standard deviation.
    """
    shape = tuple(frames.shape[1:])
    first = DRAWS.index("noise_1")
    seeds = ops.cast(drawn[:, first : first + 2] * NOISE_SEEDS, "uint32")
    seeds = ops.reshape(seeds, (-1, 2, 1, 1, 1, 1))
    # Made where they are used: as a constant they would be as large as the frames.
    places = ops.reshape(ops.arange(math.prod(shape)), shape)
    one = _mixed(_mixed(places ^ seeds[:, 0], ops) + seeds[:, 1], ops)
    other = _mixed(one + seeds[:, 0] + np.uint32(GOLDEN), ops)
    # In (0, 1), of which the logarithm is finite.
    share, turn = (
        (ops.cast(ops.right_shift(part, 8), frames.dtype) + 0.5) * 2.0**-24 for part in (one, other)
    )
    scale = augment.noise * FULL_SCALE[np.dtype(dtype).name]
    normal = ops.sqrt(ops.log(share) * -2.0) * _wave(turn, ops) * scale
    if not augment.noise_inputs_only:
        return normal
    is_input = np.arange(shape[0]).reshape(-1, 1, 1, 1) < input_frames
    return ops.where(is_input, normal, normal * 0.0)


def _wave(turn: Any, ops: Any) -> Any:
    """A wave of period 1, to 1e-5: a library's cosine takes five times as long.

    The series of sin(pi/2 z), of which z runs from -1 to 1 and back.
    """
    z = 1.0 - ops.abs(turn - 0.5) * 4.0
    result = z * 0.0
    for n in (9, 7, 5, 3, 1):
        result = result * z * z + (-1) ** (n // 2) * (math.pi / 2) ** n / math.factorial(n)
    return result * z


def _mixed(numbers: Any, ops: Any) -> Any:
    """A bijection of uint32 in which a bit of the input changes about half of the result's.

    The constants are those of "lowbias32", found by a search for little bias.
    """
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        numbers = (numbers ^ ops.right_shift(numbers, shift)) * np.uint32(factor)
    return numbers ^ ops.right_shift(numbers, 16)


def _is_pair(value: Any, kind: Any = int | float | np.number) -> bool:
    is_two = isinstance(value, tuple | list) and len(value) == 2
    return is_two and all(isinstance(part, kind) for part in value)


def _between(limits: tuple[float, float], value: Any) -> Any:
    return limits[0] + (limits[1] - limits[0]) * value


def _stored(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Values as pixels of the stored dtype."""
    if values.dtype == dtype:
        return values
    if dtype.kind != "f":
        limits = np.iinfo(dtype)
        values = np.clip(np.floor(values + 0.5), limits.min, limits.max)
    pixels: np.ndarray = values.astype(dtype)
    return pixels


def _cropped(
    frames: np.ndarray, corners: tuple[np.ndarray, np.ndarray], size: tuple[int, int]
) -> np.ndarray:
    tops, lefts = (corner.astype(np.int64).tolist() for corner in corners)
    return np.stack(
        [
            window[:, top : top + size[0], left : left + size[1]]
            for window, top, left in zip(frames, tops, lefts, strict=True)
        ]
    )


def _warped(frames: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Bilinear values at the places that the matrices (B, 6) say; the edges go on outside."""
    height, width = frames.shape[2:4]
    y, x = np.mgrid[:height, :width]
    out = np.empty_like(frames)
    for window, (a, b, c, d, e, f), result in zip(frames, places, out, strict=True):
        source_x = np.clip(a * x + b * y + c, 0, width - 1)
        source_y = np.clip(d * x + e * y + f, 0, height - 1)
        left, top = np.floor(source_x).astype(int), np.floor(source_y).astype(int)
        right, bottom = np.minimum(left + 1, width - 1), np.minimum(top + 1, height - 1)
        over = (source_x - left)[..., np.newaxis].astype(frames.dtype)
        down = (source_y - top)[..., np.newaxis].astype(frames.dtype)
        upper = window[:, top, left] * (1 - over) + window[:, top, right] * over
        lower = window[:, bottom, left] * (1 - over) + window[:, bottom, right] * over
        result[:] = upper * (1 - down) + lower * down
    return out


def augment_windows(
    augment: Any,
    frames: np.ndarray,
    *,
    seed: int,
    epoch: int,
    windows: Int64Array,
    input_frames: int,
    draws: Int64Array | None = None,
) -> np.ndarray:
    """Augment whole windows, with `Augment` or anything that `window_function` takes.

    Args and returns as `Augment.apply`, and:

    Args:
        draws: What the random numbers come from instead of `windows`, (B,).

    Raises:
        ValueError: A function gave frames of another number, channels or dtype.
    """
    draws = windows if draws is None else draws
    if isinstance(augment, Augment):
        return augment.apply(
            frames, seed=seed, epoch=epoch, windows=draws, input_frames=input_frames
        )
    change = window_function(augment)
    results = []
    numbers = (np.asarray(part).tolist() for part in (windows, draws))
    for window, number, draw_number in zip(frames, *numbers, strict=True):
        try:
            rng = np.random.default_rng((seed, epoch, draw_number))
            result = np.asarray(change(window, rng))
        except Exception as exc:
            exc.add_note(f"while window {number} of epoch {epoch} was augmented")
            raise
        _check_result(window, result, number)
        results.append(result)
    if len({result.shape for result in results}) > 1:
        shapes = sorted({result.shape for result in results})
        raise ValueError(f"augment gave windows of different shapes, {shapes}; crop them alike")
    return np.stack(results)


def window_function(augment: Any) -> WindowFunction:
    """What `augment=` accepts, as a function of a window and a generator.

    Args:
        augment: An Albumentations `Compose` (2.x), which gets all frames of a window as
            `images=`; a Keras preprocessing layer, which gets them as channels of one image; or
            a function `(window, rng) -> window`.

    Raises:
        TypeError: Anything else.
    """
    package = type(augment).__module__.partition(".")[0]
    if package == "albumentations":
        return AlbumentationsWindow(augment)
    if package == "keras" or any(c.__module__.startswith("keras.") for c in type(augment).__mro__):
        return KerasWindow(augment)
    if callable(augment):
        return augment  # type: ignore[no-any-return]
    raise TypeError(
        "augment must be a framewin.Augment, an Albumentations Compose, a Keras layer or a "
        f"function (window, rng) -> window, got {augment!r}"
    )


@dataclass(frozen=True, slots=True)
class AlbumentationsWindow:
    """An Albumentations `Compose`, called once for all frames of a window."""

    compose: Any

    def __post_init__(self) -> None:
        if not hasattr(self.compose, "set_random_seed"):
            raise TypeError("augment needs a Compose of albumentations 2.x; wrap the transforms")

    def __call__(self, window: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """One `images=` call, seeded by the window's generator."""
        with _lock(os.getpid()):
            self.compose.set_random_seed(int(rng.integers(2**31)))
            return np.asarray(self.compose(images=np.ascontiguousarray(window))["images"])


@dataclass(frozen=True, slots=True)
class KerasWindow:
    """A Keras preprocessing layer, or a model of several, called once for a window."""

    layer: Any

    def __call__(self, window: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The frames are channels of one image, so that all are treated alike."""
        import keras

        frames, height, width, channels = window.shape
        image = np.moveaxis(window, 0, 2).reshape(1, height, width, frames * channels)
        with _lock(os.getpid()):
            for layer in self.layer._flatten_layers():
                for state in vars(layer).values():
                    if isinstance(state, keras.random.SeedGenerator):
                        state.state.assign(rng.integers(2**31, size=2).astype("uint32"))
            result = self.layer(image.astype("float32"), training=True)
        pixels = keras.ops.convert_to_numpy(result)[0]
        pixels = pixels.reshape(*pixels.shape[:2], frames, channels)
        return _stored(np.moveaxis(pixels, 2, 0), window.dtype)


@lru_cache(maxsize=2)
def _lock(process: int) -> threading.Lock:
    """Seeding and calling a transform must not be torn apart by another thread.

    A lock for each process: one that is held while the process forks stays held in the child.
    """
    return threading.Lock()


def _check_result(window: np.ndarray, result: np.ndarray, number: int) -> None:
    fits = (
        result.ndim == 4
        and (result.shape[0], result.shape[3]) == (window.shape[0], window.shape[3])
        and result.dtype == window.dtype
    )
    if not fits:
        raise ValueError(
            f"augment gave {result.dtype} {result.shape} for window {number}, expected "
            f"{window.dtype} ({window.shape[0]}, height, width, {window.shape[3]})"
        )
