"""Ways that end in a `tf.data.Dataset`, and what they share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from framewin.bench.scene import Scene
from framewin.optional import require

if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = require("tensorflow", extra="tensorflow")

PREFETCH = 2
PARALLEL_CALLS = 2
SHUFFLE_BUFFER = 2**20
"""Start rows, not frames: a full shuffle of all but the largest stores."""


def preloaded(scene: Scene) -> Iterator[Any]:
    """All frames in memory as one tensor, windows gathered from it in the graph."""
    plan = scene.plan
    frames = tf.constant(in_memory(scene))

    def load(start: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        inputs, targets = parted(start[:, tf.newaxis] + tf.range(plan.span, dtype=tf.int64), scene)
        return tf.gather(frames, inputs), tf.gather(frames, targets)

    return endless(batched(starts(scene), scene).map(load, num_parallel_calls=PARALLEL_CALLS))


def from_generator(scene: Scene) -> Iterator[Any]:
    """The mapped frames handed over window by window from a Python generator."""
    plan, frames = scene.plan, scene.memmap

    def windows() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for batch in plan.each_batch():
            for start in batch.tolist():
                middle = start + plan.input_frames
                yield frames[start:middle], frames[middle : start + plan.span]

    dataset = tf.data.Dataset.from_generator(windows, output_signature=specs(scene))
    return endless(dataset.batch(plan.batch_size), repeat=False)


def timeseries(scene: Scene) -> Iterator[Any]:
    """Keras's windows of arrays in memory: of one run of frames, or of each and then mixed."""
    import keras

    plan, frames, runs = scene.plan, in_memory(scene), scene.runs
    whole = len(runs) == 1
    datasets = [
        keras.utils.timeseries_dataset_from_array(
            frames[begin:end],
            targets=None,
            sequence_length=plan.span,
            batch_size=plan.batch_size if whole else None,
            shuffle=plan.shuffle,
            seed=0,
        )
        for begin, end in runs
    ]
    if whole:
        dataset = datasets[0].filter(lambda batch: tf.shape(batch)[0] == plan.batch_size)
    elif plan.shuffle:
        dataset = batched(tf.data.Dataset.sample_from_datasets(datasets, seed=0), scene)
    else:
        dataset = batched(functools.reduce(tf.data.Dataset.concatenate, datasets), scene)
    return endless(dataset.map(lambda batch: parted(batch, scene)))


def in_memory(scene: Scene) -> np.ndarray:
    """A copy of all frames, (num_frames, H, W, C)."""
    return scene.copied_to(np.empty(scene.shape, scene.dtype))


def starts(scene: Scene) -> tf.data.Dataset:
    """First rows of windows, one by one, an epoch of them."""
    dataset = tf.data.Dataset.from_tensor_slices(scene.plan.starts)
    if not scene.plan.shuffle:
        return dataset
    return dataset.shuffle(min(len(scene.plan.starts), SHUFFLE_BUFFER), seed=0)


def parted(windows: tf.Tensor, scene: Scene, axis: int = 1) -> tuple[tf.Tensor, tf.Tensor]:
    """Inputs and targets."""
    middle = scene.plan.input_frames
    if axis == 0:
        return windows[:middle], windows[middle:]
    return windows[:, :middle], windows[:, middle:]


def batched(dataset: tf.data.Dataset, scene: Scene) -> tf.data.Dataset:
    """Full batches."""
    return dataset.batch(scene.plan.batch_size, drop_remainder=True)


def endless(dataset: tf.data.Dataset, *, repeat: bool = True) -> Iterator[Any]:
    """Epoch after epoch, with a fixed prefetch.

    Left to itself, tf.data enlarges its buffers until a turn is served from them alone.
    """
    again = dataset.repeat() if repeat else dataset
    return iter(fixed(again.prefetch(PREFETCH)))


def fixed(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Without automatic tuning of buffers and threads."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def specs(scene: Scene, *batch_size: int) -> tuple[tf.TensorSpec, ...]:
    """What one window, or a batch of them, is to TensorFlow."""
    lengths = (scene.plan.input_frames, scene.plan.predict_frames)
    shapes = [(*batch_size, length, *scene.shape[1:]) for length in lengths]
    return tuple(tf.TensorSpec(shape, scene.dtype) for shape in shapes)


def python_batches(batches: Callable[[], Iterator[Any]], scene: Scene) -> tf.data.Dataset:
    """Batches of a Python generator, without end."""
    signature = specs(scene, scene.plan.batch_size)
    return tf.data.Dataset.from_generator(batches, output_signature=signature)


def fed_by(batches: Callable[[], Iterator[Any]], scene: Scene) -> Iterator[Any]:
    """Python batches as Keras's `fit` takes those of a PyDataset with one worker."""
    return endless(python_batches(batches, scene), repeat=False)
