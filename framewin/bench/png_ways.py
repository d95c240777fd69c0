"""Ways that decode PNG files for every window, as people do without a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from framewin.bench import tf_ways
from framewin.bench.scene import Scene
from framewin.bench.sequence import AlbumentationsFlip, PngSequence
from framewin.optional import require
from framewin.process import silenced

if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = require("tensorflow", extra="tensorflow")

EPOCH_WINDOWS = 256
"""Windows of the short epochs of `epochs`: all of them stay in memory with a cache."""
EPOCH_BYTES = 2**30
LATER_EPOCHS = 3


def sequence_one(scene: Scene) -> Iterator[Any]:
    """A PyDataset with one worker."""
    return _one_worker(PngSequence(scene), scene)


def sequence_threads(scene: Scene) -> Iterator[Any]:
    """A PyDataset with several threads."""
    # With fewer, Keras starts none.
    return _many_workers(PngSequence(scene, workers=max(2, scene.processes)))


def sequence_processes(scene: Scene) -> Iterator[Any]:
    """A PyDataset with several processes."""
    sequence = PngSequence(scene, workers=scene.processes, use_multiprocessing=True)
    return _many_workers(sequence)


def sequence_albumentations(scene: Scene) -> Iterator[Any]:
    """A PyDataset with one worker, augmented by Albumentations."""
    return _one_worker(PngSequence(scene, AlbumentationsFlip()), scene)


def sequence_keras_layers(scene: Scene) -> Iterator[Any]:
    """A PyDataset with one worker, augmented by a preprocessing layer of Keras."""
    batches = tf.data.Dataset.from_generator(
        _steps(PngSequence(scene)), output_signature=_batch_specs(scene)
    )
    return tf_ways.endless(batches.map(_keras_flip(scene)), repeat=False)


def tf_png(scene: Scene) -> Iterator[Any]:
    """tf.data over the files: decoded in parallel, prefetched."""
    return tf_ways.endless(tf_ways.batched(_windows(scene), scene))


def tf_png_albumentations(scene: Scene) -> Iterator[Any]:
    """tf.data over the files, augmented by Albumentations."""
    plan, flip = scene.plan, AlbumentationsFlip()
    dtype = tf.as_dtype(scene.dtype)

    def augment(window: tf.Tensor) -> tf.Tensor:
        flipped = tf.numpy_function(flip, [window], dtype)
        return tf.ensure_shape(flipped, (plan.span, *scene.frame_shape))

    windows = _whole_windows(scene).map(augment, num_parallel_calls=tf_ways.PARALLEL_CALLS)
    return tf_ways.endless(tf_ways.batched(windows.map(_parts(scene)), scene))


def epochs(scene: Scene) -> list[dict[str, Any]]:
    """tf.data over the files with and without cache and prefetch: first epoch and later ones.

    Epochs are short, `EPOCH_WINDOWS` windows at most, so that a cache holds them.

    Returns:
        For each combination `cache`, `prefetch`, and milliseconds per batch of the first epoch,
        `first_ms`, and of the others on average, `later_ms`.
    """
    size = scene.plan.batch_size
    window_bytes = scene.plan.span * scene.dataset.frame_format.nbytes
    count = min(len(scene.plan.starts), EPOCH_WINDOWS, max(size, EPOCH_BYTES // window_bytes))
    found = []
    for cache in (False, True):
        for prefetch in (False, True):
            dataset = _windows(scene).take(count // size * size)
            dataset = tf_ways.batched(dataset.cache() if cache else dataset, scene)
            dataset = tf_ways.fixed(dataset.prefetch(tf_ways.PREFETCH) if prefetch else dataset)
            seconds = [_epoch_seconds(dataset) for _ in range(1 + LATER_EPOCHS)]
            later = sum(seconds[1:]) / LATER_EPOCHS
            times = {"first_ms": seconds[0] * 1e3, "later_ms": later * 1e3}
            found.append({"cache": cache, "prefetch": prefetch, **times})
    return found


def _epoch_seconds(dataset: tf.data.Dataset) -> float:
    """Per batch."""
    started = time.perf_counter()
    batches = sum(1 for _ in dataset)
    return (time.perf_counter() - started) / batches


def _one_worker(sequence: PngSequence, scene: Scene) -> Iterator[Any]:
    return tf_ways.fed_by(_steps(sequence), scene)


def _steps(sequence: PngSequence) -> Callable[[], Iterator[Any]]:
    def batches() -> Iterator[Any]:
        step = 0
        while True:
            yield sequence[step]
            step += 1

    return batches


def _many_workers(sequence: PngSequence) -> Iterator[Any]:
    """As `fit` does: what starts the workers is no public part of Keras."""
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

    adapter = PyDatasetAdapter(sequence)
    try:
        batches = iter(adapter.get_tf_dataset())
        # Each worker process imports TensorFlow, which talks.
        with silenced() if sequence.use_multiprocessing else nullcontext():
            first = next(batches)
        yield first
        yield from batches
    finally:
        adapter.enqueuer.stop()


def _windows(scene: Scene) -> tf.data.Dataset:
    return _whole_windows(scene).map(_parts(scene))


def _whole_windows(scene: Scene) -> tf.data.Dataset:
    plan, shape = scene.plan, scene.frame_shape
    files = tf.constant(scene.files)

    def decode(path: tf.Tensor) -> tf.Tensor:
        frame = tf.io.decode_png(tf.io.read_file(path), shape[-1], tf.as_dtype(scene.dtype))
        return tf.ensure_shape(frame, shape)

    def load(start: tf.Tensor) -> tf.Tensor:
        return tf.stack([decode(files[start + i]) for i in range(plan.span)])

    return tf_ways.starts(scene).map(load, num_parallel_calls=tf_ways.PARALLEL_CALLS)


def _parts(scene: Scene) -> Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    middle = scene.plan.input_frames
    return lambda window: (window[:middle], window[middle:])


def _batch_specs(scene: Scene) -> tuple[tf.TensorSpec, ...]:
    size = scene.plan.batch_size
    return tuple(tf.TensorSpec((size, *s.shape), s.dtype) for s in tf_ways.window_specs(scene))


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
        windows = tf.transpose(back, (0, 3, 1, 2, 4))
        return windows[:, : plan.input_frames], windows[:, plan.input_frames :]

    return flip
