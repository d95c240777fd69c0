"""`framewin.augment` in a TensorFlow graph: built-in augmentations without Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from framewin import augment as aug
from framewin.augment import Augment
from framewin.optional import require
from framewin.windows import order

if TYPE_CHECKING:
    import tensorflow as tf

    from framewin.batches import Batches
else:
    tf = require("tensorflow", extra="tensorflow")

AugmentBatch = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, dict[str, tf.Tensor]], tf.Tensor]
"""Joined frames (B, T, H, W, C), window numbers (B,), what random numbers come from (B,), and the
epoch, to augmented frames."""


def augmenter(batches: Batches) -> AugmentBatch:
    """The augmentation of a batch: in the graph, or one call of Python for what is not built in."""
    augment = batches.augment
    spec, frame_format = batches.dataset.spec, batches.dataset.frame_format
    if isinstance(augment, Augment):

        @tf.function(jit_compile=True, autograph=False)
        def change(frames: tf.Tensor, drawn: tf.Tensor) -> tf.Tensor:
            return changed(augment, frames, drawn, spec.input_frames)

        def built_in(
            frames: tf.Tensor, windows: tf.Tensor, draws: tf.Tensor, epoch: dict[str, tf.Tensor]
        ) -> tf.Tensor:
            result = change(frames, _draw(epoch["key"], draws))
            return tf.ensure_shape(
                result, (frames.shape[0], frames.shape[1], *augment.shape(frames.shape[2:]))
            )

        return built_in

    def numpy(
        frames: np.ndarray, windows: np.ndarray, draws: np.ndarray, epoch: np.ndarray
    ) -> np.ndarray:
        return aug.augment_windows(
            augment,
            frames,
            seed=batches.seed,
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


def changed(augment: Augment, frames: tf.Tensor, drawn: tf.Tensor, input_frames: int) -> tf.Tensor:
    """`Augment.apply` in the graph.

    It is compiled as a whole (XLA), so that each pixel is looked up, computed and stored in one
    pass: op by op, every one of them writes all frames to memory, at four bytes a value.

    Args:
        augment: What to do.
        frames: Stored dtype, (B, T, H, W, C).
        drawn: float64 (B, len(DRAWS)).
        input_frames: How many of the T frames are inputs.
    """
    if augment.reverse_time:
        frames = _where(drawn, "reverse", tf.reverse(frames, [1]), frames)
    dtype, size = frames.dtype, tuple(frames.shape[2:4])
    computed = tf.float64 if dtype.name in aug.WIDE_DTYPES else tf.float32
    if augment.moves:
        turned = aug.orientations(augment, drawn, size, _Ops)
        places = aug.composed(turned, aug.matrices(augment, drawn, size, _Ops), _Ops)
        frames = _warped(frames, places, computed)
    else:
        frames = _turned(augment, frames, drawn)
    if augment.crop is not None:
        frames = _cropped(frames, aug.crop_corners(augment, drawn, size), augment.crop)
    if augment.changes_values:
        factor, offset = (
            tf.cast(values, computed)[:, None, None, None, None]
            for values in aug.tones(augment, drawn, dtype.as_numpy_dtype)
        )
        frames = tf.cast(frames, computed) * factor + offset
    if augment.noise:
        frames += aug.noise(augment, frames, drawn, dtype.as_numpy_dtype, input_frames, _Ops)
    return _stored(frames, dtype)


class _Ops:
    """What `framewin.augment` computes with, on tensors."""

    cos, sin, tan, stack = tf.cos, tf.sin, tf.tan, tf.stack
    floor, round = tf.floor, tf.round
    abs, log, sqrt, where = tf.abs, tf.math.log, tf.sqrt, tf.where
    cast, reshape = tf.cast, tf.reshape

    @staticmethod
    def arange(number: int) -> tf.Tensor:
        return tf.cast(tf.range(number, dtype=tf.int64), tf.uint32)

    @staticmethod
    def right_shift(numbers: tf.Tensor, bits: int) -> tf.Tensor:
        return tf.bitwise.right_shift(numbers, tf.constant(bits, tf.uint32))


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


def _where(drawn: tf.Tensor, name: str, yes: tf.Tensor, no: tf.Tensor) -> tf.Tensor:
    """One or the other for each window, by its draw."""
    chosen = drawn[:, aug.DRAWS.index(name)] < 0.5
    return tf.where(tf.reshape(chosen, [-1, 1, 1, 1, 1]), yes, no)


def _turned(augment: Augment, frames: tf.Tensor, drawn: tf.Tensor) -> tf.Tensor:
    """Mirrored, then turned by quarters."""
    if augment.flip_horizontal:
        frames = _where(drawn, "horizontal", tf.reverse(frames, [3]), frames)
    if augment.flip_vertical:
        frames = _where(drawn, "vertical", tf.reverse(frames, [2]), frames)
    if augment.turns:
        quarters = tf.floor(4 * drawn[:, aug.DRAWS.index("turns")])
        quarters = tf.reshape(quarters, [-1, 1, 1, 1, 1])
        # A quarter is the diagonal and a mirror: two choices make all four.
        odd = tf.math.floormod(quarters, 2.0) == 1.0
        frames = tf.where(odd, tf.reverse(_transposed(frames), [2]), frames)
        frames = tf.where(quarters >= 2.0, tf.reverse(frames, [2, 3]), frames)
    return frames


def _transposed(frames: tf.Tensor) -> tf.Tensor:
    return tf.transpose(frames, [0, 1, 3, 2, 4])


def _warped(frames: tf.Tensor, places: tf.Tensor, computed: tf.DType) -> tf.Tensor:
    """Bilinear values at the places that the matrices (B, 6) say; the edges go on outside."""
    _, length, height, width, channels = frames.shape
    y, x = (tf.cast(axis, places.dtype) for axis in np.divmod(np.arange(height * width), width))
    a, b, c, d, e, f = (places[:, i : i + 1] for i in range(6))
    across = tf.clip_by_value(a * x + b * y + c, 0, width - 1)
    along = tf.clip_by_value(d * x + e * y + f, 0, height - 1)
    left, top = tf.floor(across), tf.floor(along)
    over, down = (
        tf.cast(part, computed)[:, None, :, None] for part in (across - left, along - top)
    )
    left, top = tf.cast(left, tf.int32), tf.cast(top, tf.int32)
    right, bottom = tf.minimum(left + 1, width - 1), tf.minimum(top + 1, height - 1)
    pixels = tf.reshape(frames, [-1, length, height * width, channels])

    def at(rows: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
        found = tf.gather(pixels, rows * width + columns, axis=2, batch_dims=1)
        return tf.cast(found, computed)

    upper = at(top, left) * (1 - over) + at(top, right) * over
    lower = at(bottom, left) * (1 - over) + at(bottom, right) * over
    return tf.reshape(upper * (1 - down) + lower * down, [-1, length, height, width, channels])


def _cropped(
    frames: tf.Tensor, corners: tuple[tf.Tensor, tf.Tensor], size: tuple[int, int]
) -> tf.Tensor:
    _, length, height, width, channels = frames.shape
    top, left = (tf.cast(corner, tf.int32)[:, None, None] for corner in corners)
    rows = (top + np.arange(size[0])[:, None]) * width + left + np.arange(size[1])
    pixels = tf.reshape(frames, [-1, length, height * width, channels])
    kept = tf.gather(pixels, tf.reshape(rows, [-1, size[0] * size[1]]), axis=2, batch_dims=1)
    return tf.reshape(kept, [-1, length, *size, channels])


def _stored(values: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    if values.dtype == dtype:
        return values
    if dtype.is_integer:
        rounded = tf.floor(values + 0.5)
        least, greatest = (tf.cast(limit, values.dtype) for limit in (dtype.min, dtype.max))
        values = tf.clip_by_value(rounded, least, greatest)
    return tf.cast(values, dtype)
