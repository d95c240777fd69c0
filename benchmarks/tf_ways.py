"""Other ways through TensorFlow: numpy_function, and flips by Keras and Albumentations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from framewin.bench import png_ways, tf_ways
from framewin.bench.scene import Scene
from framewin.optional import require

if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = require("tensorflow", extra="tensorflow")


def numpy_function(scene: Scene) -> Iterator[Any]:
    """The mapped frames read by one Python call per batch."""
    plan, frames = scene.plan, scene.memmap
    dtype = tf.as_dtype(scene.dtype)

    def read(start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        inputs, targets = plan.parted(start[:, np.newaxis] + np.arange(plan.span))
        return frames[inputs], frames[targets]

    def load(start: tf.Tensor) -> Any:
        return tf.numpy_function(read, [start], [dtype, dtype])

    batches = tf_ways.batched(tf_ways.starts(scene), scene)
    return tf_ways.endless(batches.map(load, num_parallel_calls=tf_ways.PARALLEL_CALLS))


class AlbumentationsFlip:
    """Half of the windows mirrored left to right, all frames of a window alike."""

    def __init__(self) -> None:
        import albumentations

        self._compose = albumentations.Compose([albumentations.HorizontalFlip(p=0.5)])

    def __call__(self, window: np.ndarray) -> np.ndarray:
        """(T, H, W, C) to the same."""
        flipped: np.ndarray = self._compose(images=window)["images"]
        return np.ascontiguousarray(flipped).reshape(window.shape)


def sequence_albumentations(scene: Scene) -> Iterator[Any]:
    """A PyDataset with one worker, augmented by Albumentations."""
    sequence = png_ways.PngSequence(scene, AlbumentationsFlip())
    return tf_ways.fed_by(png_ways.steps(sequence), scene)


def png_albumentations(scene: Scene) -> Iterator[Any]:
    """tf.data over the files, augmented by Albumentations."""
    flip, dtype = AlbumentationsFlip(), tf.as_dtype(scene.dtype)

    def augment(window: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        flipped = tf.numpy_function(flip, [window], dtype)
        whole = tf.ensure_shape(flipped, (scene.plan.span, *scene.frame_shape))
        return tf_ways.parted(whole, scene, axis=0)

    windows = png_ways.whole_windows(scene)
    windows = windows.map(augment, num_parallel_calls=tf_ways.PARALLEL_CALLS)
    return tf_ways.endless(tf_ways.batched(windows, scene))


def sequence_keras_layers(scene: Scene) -> Iterator[Any]:
    """A PyDataset with one worker, augmented by a preprocessing layer of Keras."""
    batches = tf_ways.python_batches(png_ways.steps(png_ways.PngSequence(scene)), scene)
    return tf_ways.endless(batches.map(_keras_flip(scene)), repeat=False)


def _keras_flip(scene: Scene) -> Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """Half of the windows mirrored; frames become channels, so that all of a window are alike."""
    import keras

    layer = keras.layers.RandomFlip("horizontal", seed=0)
    plan, (height, width, channels) = scene.plan, scene.frame_shape
    size = plan.batch_size

    def flip(inputs: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        frames = tf.transpose(tf.concat([inputs, targets], axis=1), (0, 2, 3, 1, 4))
        flat = tf.reshape(frames, (size, height, width, plan.span * channels))
        flipped = tf.cast(layer(flat, training=True), inputs.dtype)
        back = tf.reshape(flipped, (size, height, width, plan.span, channels))
        return tf_ways.parted(tf.transpose(back, (0, 3, 1, 2, 4)), scene)

    return flip
