"""Ways that end in a `tf.data.Dataset`, and what they share."""

from __future__ import annotations

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
        rows = start[:, tf.newaxis] + tf.range(plan.span, dtype=tf.int64)
        inputs, targets = rows[:, : plan.input_frames], rows[:, plan.input_frames :]
        return tf.gather(frames, inputs), tf.gather(frames, targets)

    return endless(batched(starts(scene), scene).map(load, num_parallel_calls=PARALLEL_CALLS))


def numpy_function(scene: Scene) -> Iterator[Any]:
    """The mapped frames read by one Python call per batch."""
    plan, frames = scene.plan, scene.memmap
    dtype = tf.as_dtype(scene.dtype)

    def read(start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = start[:, np.newaxis] + np.arange(plan.span)
        return frames[rows[:, : plan.input_frames]], frames[rows[:, plan.input_frames :]]

    def load(start: tf.Tensor) -> Any:
        return tf.numpy_function(read, [start], [dtype, dtype])

    return endless(batched(starts(scene), scene).map(load, num_parallel_calls=PARALLEL_CALLS))


def from_generator(scene: Scene) -> Iterator[Any]:
    """The mapped frames handed over window by window from a Python generator."""
    plan, frames = scene.plan, scene.memmap

    def windows() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for batch in plan.each_batch():
            for start in batch.tolist():
                middle = start + plan.input_frames
                yield frames[start:middle], frames[middle : start + plan.span]

    signature = window_specs(scene)
    dataset = tf.data.Dataset.from_generator(windows, output_signature=signature)
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
    else:
        mix = _mixed if plan.shuffle else _one_after_the_other
        dataset = mix(datasets)
        dataset = dataset.batch(plan.batch_size, drop_remainder=True)
    return endless(dataset.map(lambda b: (b[:, : plan.input_frames], b[:, plan.input_frames :])))


def _mixed(datasets: list[tf.data.Dataset]) -> tf.data.Dataset:
    return tf.data.Dataset.sample_from_datasets(datasets, seed=0)


def _one_after_the_other(datasets: list[tf.data.Dataset]) -> tf.data.Dataset:
    joined = datasets[0]
    for dataset in datasets[1:]:
        joined = joined.concatenate(dataset)
    return joined


def in_memory(scene: Scene) -> np.ndarray:
    """A copy of all frames, (num_frames, H, W, C)."""
    frames = np.empty((scene.dataset.clips.num_frames, *scene.frame_shape), scene.dtype)
    for row, some in scene.dataset.blocks(0, len(frames)):
        frames[row : row + len(some)] = some
    return frames


def starts(scene: Scene) -> tf.data.Dataset:
    """First rows of windows, one by one, an epoch of them."""
    dataset = tf.data.Dataset.from_tensor_slices(scene.plan.starts)
    if not scene.plan.shuffle:
        return dataset
    return dataset.shuffle(min(len(scene.plan.starts), SHUFFLE_BUFFER), seed=0)


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


def window_specs(scene: Scene) -> tuple[tf.TensorSpec, tf.TensorSpec]:
    """What one window is to TensorFlow."""
    shape = scene.frame_shape
    return (
        tf.TensorSpec((scene.plan.input_frames, *shape), scene.dtype),
        tf.TensorSpec((scene.plan.predict_frames, *shape), scene.dtype),
    )


def fed_by(batches: Callable[[], Iterator[Any]], scene: Scene) -> Iterator[Any]:
    """Python batches as Keras's `fit` takes those of a PyDataset with one worker."""
    size = scene.plan.batch_size
    signature = tuple(tf.TensorSpec((size, *s.shape), s.dtype) for s in window_specs(scene))
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    return endless(dataset, repeat=False)
