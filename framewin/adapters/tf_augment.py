"""`framewin.augment` in a TensorFlow graph: built-in augmentations without Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from framewin import augment as aug
from framewin.augment import Augment
from framewin.dataset import FrameWindowDataset
from framewin.metrics import FULL_SCALE
from framewin.optional import require
from framewin.windows import order

if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = require("tensorflow", extra="tensorflow")

AugmentBatch = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, dict[str, tf.Tensor]], tf.Tensor]
"""Joined frames (B, T, H, W, C), window numbers (B,), what random numbers come from (B,), and the
epoch, to augmented frames."""


def augmenter(augment: Any, dataset: FrameWindowDataset, seed: int) -> AugmentBatch:
    """The augmentation of a batch: in the graph, or one call of Python for what is not built in."""
    spec, frame_format = dataset.spec, dataset.frame_format
    if isinstance(augment, Augment):
        augment.check(frame_format.shape, dataset.nodata)

        def built_in(
            frames: tf.Tensor, windows: tf.Tensor, draws: tf.Tensor, epoch: dict[str, tf.Tensor]
        ) -> tf.Tensor:
            return augmented(augment, frames, draws, epoch["key"], spec.input_frames)

        return built_in

    def numpy(
        frames: np.ndarray, windows: np.ndarray, draws: np.ndarray, epoch: np.ndarray
    ) -> np.ndarray:
        return aug.augment_windows(
            augment,
            frames,
            seed=seed,
            epoch=int(epoch),
            windows=windows,
            draws=draws,
            input_frames=spec.input_frames,
        )

    length = spec.input_frames + spec.predict_frames
    trial = np.zeros((1, length, *frame_format.shape), frame_format.dtype)
    zero = np.zeros(1, np.int64)
    shape = numpy(trial, zero, zero, np.zeros(())).shape

    def called(
        frames: tf.Tensor, windows: tf.Tensor, draws: tf.Tensor, epoch: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        given = [frames, windows, draws, epoch["number"]]
        result = tf.numpy_function(numpy, given, frames.dtype)
        result.set_shape((frames.shape[0], *shape[1:]))
        return result

    return called


def augmented(
    augment: Augment, frames: tf.Tensor, windows: tf.Tensor, key: tf.Tensor, input_frames: int
) -> tf.Tensor:
    """`Augment.apply` in the graph, but for its noise, which is drawn by TensorFlow.

    Args:
        augment: What to do.
        frames: Stored dtype, (B, T, H, W, C).
        windows: int64 (B,).
        key: Of the epoch, uint32 (3,).
        input_frames: How many of the T frames are inputs.
    """
    drawn = _draw(key, windows)
    if augment.reverse_time:
        frames = _reversed(frames, drawn)
    dtype, size = frames.dtype, tuple(frames.shape[2:4])
    computed = tf.float64 if dtype.name in aug.WIDE_DTYPES else tf.float32
    turned = aug.orientations(augment, drawn, size, _Ops)
    if augment.moves:
        places = aug.composed(turned, aug.matrices(augment, drawn, size, _Ops), _Ops)
        frames = _warped(tf.cast(frames, computed), places)
    elif augment.flip_horizontal or augment.flip_vertical or augment.turns:
        frames = _turned(frames, turned)
    if augment.crop is not None:
        frames = _cropped(frames, aug.crop_corners(augment, drawn, size), augment.crop)
    if augment.changes_values:
        factor, offset = (
            tf.cast(values, computed)[:, None, None, None, None]
            for values in aug.tones(augment, drawn, dtype.as_numpy_dtype)
        )
        frames = tf.cast(frames, computed) * factor + offset
    if augment.noise:
        frames += _noise(augment, frames, drawn, FULL_SCALE[dtype.name], input_frames)
    return _stored(frames, dtype)


class _Ops:
    """What `framewin.augment` computes with, on tensors."""

    cos, sin, tan, stack = tf.cos, tf.sin, tf.tan, tf.stack
    floor, round = tf.floor, tf.round


def _draw(key: tf.Tensor, windows: tf.Tensor) -> tf.Tensor:
    """`framewin.augment.draw` in the graph."""
    indices = tf.reshape(aug.draw_indices(windows[:, tf.newaxis]), [-1])
    numbers = tf.raw_ops.RandomIndexShuffle(
        index=indices,
        seed=key,
        max_index=tf.constant(order.KEY_MAX_INDEX, tf.int64),
        rounds=order.KEY_ROUNDS,
    )
    kept = tf.bitwise.right_shift(numbers, tf.constant(62 - aug.DRAW_BITS, tf.int64))
    drawn = tf.cast(kept, tf.float64) * 2.0**-aug.DRAW_BITS
    return tf.reshape(drawn, [-1, len(aug.DRAWS)])


def _reversed(frames: tf.Tensor, drawn: tf.Tensor) -> tf.Tensor:
    last = frames.shape[1] - 1
    backwards = drawn[:, aug.DRAWS.index("reverse")][:, tf.newaxis] < 0.5
    forwards = tf.range(last + 1)[tf.newaxis]
    return tf.gather(frames, tf.where(backwards, last - forwards, forwards), batch_dims=1)


def _images(frames: tf.Tensor) -> tf.Tensor:
    """All frames of a window as channels of one image: (B, H * W, T * C)."""
    _, length, height, width, channels = frames.shape
    pixels = tf.reshape(frames, [-1, length, height * width, channels])
    return tf.reshape(tf.transpose(pixels, [0, 2, 1, 3]), [-1, height * width, length * channels])


def _frames(images: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """What `_images` was made of."""
    _, length, height, width, channels = like.shape
    pixels = tf.reshape(images, [-1, height * width, length, channels])
    frames = tf.transpose(pixels, [0, 2, 1, 3])
    return tf.ensure_shape(tf.reshape(frames, [-1, length, height, width, channels]), like.shape)


def _turned(frames: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Each pixel looked up once: flips and turns are the same work together as alone."""
    height, width = frames.shape[2:4]
    y, x = (tf.cast(axis, tf.int32) for axis in np.divmod(np.arange(height * width), width))
    a, b, c, d, e, f = (tf.cast(tf.round(places[:, i : i + 1]), tf.int32) for i in range(6))
    rows = (d * x + e * y + f) * width + a * x + b * y + c
    rows += tf.range(tf.shape(rows)[0])[:, tf.newaxis] * (height * width)
    images = _images(frames)
    flat = tf.reshape(images, [-1, images.shape[2]])
    return _frames(tf.gather(flat, rows), frames)


def _warped(frames: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """All frames of a window as channels of one image, so that it is resampled once."""
    _, length, height, width, channels = frames.shape
    nothing = tf.zeros_like(places[:, :2])
    moved = tf.raw_ops.ImageProjectiveTransformV3(
        images=tf.reshape(_images(frames), [-1, height, width, length * channels]),
        transforms=tf.cast(tf.concat([places, nothing], axis=1), tf.float32),
        output_shape=tf.constant([height, width]),
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="NEAREST",
    )
    return _frames(moved, frames)


def _cropped(
    frames: tf.Tensor, corners: tuple[tf.Tensor, tf.Tensor], size: tuple[int, int]
) -> tf.Tensor:
    for axis, corner, length in zip((2, 3), corners, size, strict=True):
        rows = tf.cast(corner, tf.int32)[:, tf.newaxis] + tf.range(length)
        # Both axes before the one that is gathered from belong to the window.
        rows = tf.repeat(rows[:, tf.newaxis], frames.shape[1], axis=1)
        if axis == 3:
            rows = tf.repeat(rows[:, :, tf.newaxis], size[0], axis=2)
        frames = tf.gather(frames, rows, axis=axis, batch_dims=axis)
    return frames


def _noise(
    augment: Augment, frames: tf.Tensor, drawn: tf.Tensor, full_scale: float, input_frames: int
) -> tf.Tensor:
    length = frames.shape[1]
    noisy_frames = input_frames if augment.noise_inputs_only else length
    shape = [noisy_frames, *frames.shape[2:]]
    first = aug.DRAWS.index("noise_1")
    seeds = tf.cast(drawn[:, first : first + 2] * aug.NOISE_SEEDS, tf.int32)
    noise = tf.map_fn(
        lambda seed: tf.random.stateless_normal(shape, seed, dtype=frames.dtype),
        seeds,
        fn_output_signature=tf.TensorSpec(shape, frames.dtype),
    )
    noise = noise * tf.cast(augment.noise * full_scale, frames.dtype)
    return tf.pad(noise, [[0, 0], [0, length - noisy_frames], [0, 0], [0, 0], [0, 0]])


def _stored(values: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    if values.dtype == dtype:
        return values
    if dtype.is_integer:
        rounded = tf.floor(values + 0.5)
        least, greatest = (tf.cast(limit, values.dtype) for limit in (dtype.min, dtype.max))
        values = tf.clip_by_value(rounded, least, greatest)
    return tf.cast(values, dtype)
