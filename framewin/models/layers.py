"""Layers that several models share: patches, and a forecast made from the input frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from framewin.metrics import FULL_SCALE
from framewin.model_table import ModelScale
from framewin.optional import require
from framewin.schema import FrameFormat

if TYPE_CHECKING:
    import keras
    from keras import ops
else:
    keras = require("keras", extra="tensorflow")
    ops = keras.ops

PATCH_SIZES = (1, 2, 4, 8, 16)
START_LOGIT = 6.0
"""Of the moved last frame against each input frame, before training."""
LOGIT_SCALE = 20.0
"""A weight that Adam moves by thousandths must be able to turn the mix round in some steps."""


def default_patch_size(height: int, width: int, across: int = 8) -> int:
    """The smallest patch that leaves at most so many across the shorter side, or the largest known.

    >>> default_patch_size(64, 64), default_patch_size(240, 320), default_patch_size(5, 7)
    (8, 16, 1)
    """
    shorter = min(height, width)
    return next((p for p in PATCH_SIZES if shorter <= across * p), PATCH_SIZES[-1])


def chosen_patch_size(patch_size: int | None, frame_format: FrameFormat, across: int) -> int:
    """The patch size that was asked for, or the one for frames of this size.

    Raises:
        ValueError: A patch larger than a frame.
    """
    shorter = min(frame_format.height, frame_format.width)
    if patch_size is None:
        return default_patch_size(frame_format.height, frame_format.width, across)
    if not 1 <= patch_size <= shorter:
        raise ValueError(f"patch_size must be from 1 to {shorter}, got {patch_size}")
    return patch_size


def frame_input(
    input_frames: int, frame_format: FrameFormat, scale: ModelScale | None = None
) -> tuple[Any, Any]:
    """The input of a model, of the stored dtype, and the same frames as float32, in unit scale or
    another."""
    dtype = frame_format.dtype
    frames = keras.Input((input_frames, *frame_format.shape), dtype=dtype, name="frames")
    if scale is not None:
        layer = ToScale(scale.offset, scale.divisor, scale.blank, dtype="float32", name="to_scale")
    else:
        layer = keras.layers.Rescaling(1 / FULL_SCALE[dtype], dtype="float32", name="unit_scale")
    return frames, layer(frames)


def in_unit(forecast: Any, frame_format: FrameFormat, scale: ModelScale | None) -> Any:
    """The output of a model, in unit scale."""
    if scale is None:
        return forecast
    full = FULL_SCALE[frame_format.dtype]
    factors, shifts = ([each / full for each in v] for v in (scale.divisor, scale.offset))
    return keras.layers.Rescaling(factors, shifts, dtype="float32", name="unit")(forecast)


def is_bounded(frame_format: FrameFormat, scale: ModelScale | None = None) -> bool:
    """Whether no frame can leave 0..1: those of unsigned integers in unit scale."""
    return frame_format.dtype.startswith("uint") and scale is None


def clipped(x: Any) -> Any:
    """x in 0..1. A plain clip would pass no gradient to a pixel that is out of range and wrong."""
    return x + ops.stop_gradient(ops.clip(x, 0.0, 1.0) - x)


@keras.saving.register_keras_serializable(package="framewin")
class ToScale(keras.layers.Layer):
    """Stored frames as `(frames - offset) / divisor`, 0 where they are blank."""

    def __init__(
        self,
        offset: Sequence[float],
        divisor: Sequence[float],
        blank: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.offset, self.divisor, self.blank = list(offset), list(divisor), blank

    def call(self, frames: Any) -> Any:
        values = ops.cast(frames, "float32")
        scaled = (values - ops.array(self.offset, "float32")) / ops.array(self.divisor, "float32")
        if self.blank is None:
            return scaled
        return ops.where(values == ops.array(self.blank, "float32"), 0.0, scaled)

    def get_config(self) -> dict[str, Any]:
        own = {"offset": self.offset, "divisor": self.divisor, "blank": self.blank}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="framewin")
class ToPatches(keras.layers.Layer):
    """(B, T, H, W, C) -> (B, T, H/p, W/p, p*p*C); H and W are first padded to multiples of p."""

    def __init__(self, patch_size: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.patch_size = patch_size

    def call(self, frames: Any) -> Any:
        p = self.patch_size
        time, height, width, channels = frames.shape[1:]
        x = _mirrored(_mirrored(frames, 2, -height % p), 3, -width % p)
        rows, cols = x.shape[2] // p, x.shape[3] // p
        x = ops.reshape(x, (-1, time, rows, p, cols, p, channels))
        x = ops.transpose(x, (0, 1, 2, 4, 3, 5, 6))
        return ops.reshape(x, (-1, time, rows, cols, p * p * channels))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "patch_size": self.patch_size}


def _mirrored(frames: Any, axis: int, count: int) -> Any:
    """Frames with their last rows or columns once more, backwards.

    `ops.pad` does it, too, but not for five axes on every backend.
    """
    if count == 0:
        return frames
    size = frames.shape[axis]
    behind = ops.flip(ops.take(frames, range(size - count, size), axis=axis), axis=axis)
    return ops.concatenate([frames, behind], axis=axis)


def from_patches(patches: Any, patch_size: int, height: int, width: int) -> Any:
    """Inverse of ToPatches: (B, T, h, w, p*p*C) -> (B, T, H, W, C), cropped."""
    p = patch_size
    time, rows, cols, size = patches.shape[1:]
    x = ops.reshape(patches, (-1, time, rows, cols, p, p, size // p**2))
    x = ops.transpose(x, (0, 1, 2, 4, 3, 5, 6))
    x = ops.reshape(x, (-1, time, rows * p, cols * p, size // p**2))
    return x[:, :, :height, :width]


@keras.saving.register_keras_serializable(package="framewin")
class FromPatches(keras.layers.Layer):
    """Inverse of ToPatches: (B, T, h, w, p*p*C) -> (B, T, H, W, C); clipped to 0..1 if bounded."""

    def __init__(
        self,
        patch_size: int,
        frame_shape: tuple[int, int, int],
        bounded: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.patch_size, self.frame_shape, self.bounded = patch_size, tuple(frame_shape), bounded

    def call(self, patches: Any) -> Any:
        x = from_patches(patches, self.patch_size, *self.frame_shape[:2])
        return clipped(x) if self.bounded else x

    def get_config(self) -> dict[str, Any]:
        own = {"patch_size": self.patch_size, "frame_shape": self.frame_shape}
        return {**super().get_config(), **own, "bounded": self.bounded}


def warp(image: Any, flow: Any) -> Any:
    """What lies at each pixel plus its flow, bilinear; the edge pixels go on outside.

    Args:
        image: (B, H, W, C).
        flow: (B, K, H, W, 2), pixels down and to the right.

    Returns:
        (B, K, H, W, C).
    """
    height, width, channels = image.shape[1:]
    steps = flow.shape[1]
    batch = ops.shape(image)[0]
    y = ops.clip(flow[..., 0] + ops.arange(height, dtype="float32")[:, None], 0.0, height - 1.0)
    x = ops.clip(flow[..., 1] + ops.arange(width, dtype="float32"), 0.0, width - 1.0)
    top, left = ops.floor(y), ops.floor(x)
    down, right = (y - top)[..., None], (x - left)[..., None]
    # A flow that is no number must give a loss that is none, not an index out of range.
    rows, cols = (ops.cast(ops.nan_to_num(each), "int32") for each in (top, left))
    lower = ops.minimum(rows + 1, height - 1)
    farther = ops.minimum(cols + 1, width - 1)
    pixels = ops.reshape(image, (-1, channels))
    # Rows of one list of all pixels: a gather along a batch axis is far slower.
    first = ops.reshape(ops.arange(batch, dtype="int32") * (height * width), (-1, 1, 1, 1))

    def at(row: Any, col: Any) -> Any:
        found = ops.take(pixels, first + row * width + col, axis=0)
        return ops.reshape(found, (-1, steps, height, width, channels))

    upper = at(rows, cols) * (1 - right) + at(rows, farther) * right
    under = at(lower, cols) * (1 - right) + at(lower, farther) * right
    return upper * (1 - down) + under * down


@keras.saving.register_keras_serializable(package="framewin")
class ForecastHead(keras.layers.Layer):
    """Forecasts made of the input frames: moved, mixed, changed and refined.

    Each pixel of each lead time is a convex mix of the input frames at that pixel, a learnt colour,
    and the last frame moved by a flow that adds up over lead times; to it a change is added, and
    two small convolutions over pixels smooth what the patches leave. So repeating the last
    frame and the mean of the inputs are both within reach, per pixel; and what is not where it
    was can fade into the colour whole, where a change that is learnt for each patch would leave its
    outlines. Before training it is the last frame but for less than a per cent per other part.

    Call with frames (B, T_in, H, W, C), float32, and features (B, T_out, h, w, D) of patches;
    gives float32 (B, T_out, H, W, C).
    """

    def __init__(
        self, patch_size: int, bounded: bool, detail: int = 8, seed: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**{"dtype": "float32", **kwargs})
        self.patch_size, self.bounded, self.detail, self.seed = patch_size, bounded, detail, seed

    def build(self, frames_shape: Any, features_shape: Any) -> None:
        _, inputs, height, width, channels = frames_shape
        steps, size = features_shape[1], features_shape[-1]
        init = keras.initializers.GlorotUniform(self.seed)
        area = self.patch_size**2

        def dense(outputs: int, initializer: Any, name: str) -> Any:
            layer = keras.layers.Dense(
                area * outputs, kernel_initializer=initializer, dtype="float32", name=name
            )
            layer.build((None, size))
            return layer

        self.flow = dense(2, "zeros", "flow")
        self.mix = dense(inputs + 2, "zeros", "mix")
        self.change = dense(channels, "zeros", "change")
        self.details = dense(self.detail, init, "details")
        self.lead_mix = self.add_weight(
            (steps, inputs + 2), initializer="zeros", name="lead_mix", dtype="float32"
        )
        self.colour = self.add_weight(
            (channels,), initializer="zeros", name="colour", dtype="float32"
        )
        self.refine_1 = keras.layers.Conv2D(
            2 * self.detail,
            3,
            padding="same",
            activation="relu",
            kernel_initializer=keras.initializers.HeNormal(self.seed + 1),
            dtype="float32",
            name="refine_1",
        )
        self.refine_1.build((None, height, width, 3 * channels + self.detail))
        self.refine_2 = keras.layers.Conv2D(
            channels,
            3,
            padding="same",
            kernel_initializer="zeros",
            dtype="float32",
            name="refine_2",
        )
        self.refine_2.build((None, height, width, 2 * self.detail))

    def call(self, frames: Any, features: Any) -> Any:
        height, width, channels = frames.shape[2:]
        steps = features.shape[1]

        def pixels(layer: Any) -> Any:
            return from_patches(layer(features), self.patch_size, height, width)

        last = frames[:, -1]
        moved = warp(last, ops.cumsum(pixels(self.flow), axis=1))
        changed = self._mixed(frames, moved, pixels(self.mix)) + pixels(self.change)
        still = ops.repeat(last[:, None], steps, axis=1)
        seen = ops.concatenate([changed, moved, still, pixels(self.details)], axis=-1)
        refined = ops.reshape(seen, (-1, height, width, seen.shape[-1]))
        refined = self.refine_2(self.refine_1(refined))
        forecast = changed + ops.reshape(refined, (-1, steps, height, width, channels))
        return clipped(forecast) if self.bounded else forecast

    def _mixed(self, frames: Any, moved: Any, logits: Any) -> Any:
        """The convex mix, (B, T_out, H, W, C), of the inputs, the colour and the moved frame."""
        start = ops.cast(ops.arange(logits.shape[-1]) == logits.shape[-1] - 1, "float32")
        of_lead = START_LOGIT * start + LOGIT_SCALE * self.lead_mix
        shares = ops.softmax(logits + of_lead[:, None, None, :], axis=-1)
        mixed = shares[..., -1:] * moved + shares[..., -2:-1] * self.colour
        for place in range(frames.shape[1]):
            mixed = mixed + shares[..., place : place + 1] * frames[:, place][:, None]
        return mixed

    def compute_output_shape(self, frames_shape: Any, features_shape: Any) -> Any:
        return (frames_shape[0], features_shape[1], *frames_shape[2:])

    def get_config(self) -> dict[str, Any]:
        own = {"patch_size": self.patch_size, "bounded": self.bounded, "detail": self.detail}
        return {**super().get_config(), **own, "seed": self.seed}
