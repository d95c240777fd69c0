"""Ways that decode PNG files for every window, as people do without a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from framewin.bench import tf_ways
from framewin.bench.scene import Scene
from framewin.optional import require
from framewin.process import silenced

if TYPE_CHECKING:
    import keras
    import tensorflow as tf
else:
    tf = require("tensorflow", extra="tensorflow")
    keras = require("keras", extra="tensorflow")

EPOCH_WINDOWS = 256
"""Windows of the short epochs of `epochs`: all of them stay in memory with a cache."""
EPOCH_BYTES = 2**30
LATER_EPOCHS = 3
QUEUED_BATCHES = 10

Transform = Callable[[np.ndarray], np.ndarray]


class PngSequence(keras.utils.PyDataset):
    """Batches decoded frame by frame; without end, so that workers are started once."""

    def __init__(self, scene: Scene, transform: Transform | None = None, **workers: Any) -> None:
        super().__init__(max_queue_size=QUEUED_BATCHES, **workers)
        self.plan, self.files, self.shape = scene.plan, scene.files, scene.frame_shape
        self.transform = transform

    @property
    def num_batches(self) -> None:
        """No end."""
        return

    def __getitem__(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs (B, T_in, H, W, C) and targets (B, T_out, H, W, C)."""
        windows = [self._window(start) for start in self.plan.batch_starts(step).tolist()]
        return self.plan.parted(np.stack(windows))

    def _window(self, start: int) -> np.ndarray:
        frames = [read_png(name, self.shape) for name in self.files[start : start + self.plan.span]]
        window = np.stack(frames)
        return window if self.transform is None else self.transform(window)


def read_png(path: str, shape: tuple[int, int, int]) -> np.ndarray:
    """A frame, (H, W, C), by libpng."""
    import imagecodecs

    with open(path, "rb") as file:
        frame: np.ndarray = imagecodecs.png_decode(file.read())
    return frame.reshape(shape)


def sequence_one(scene: Scene) -> Iterator[Any]:
    """A PyDataset with one worker."""
    return tf_ways.fed_by(steps(PngSequence(scene)), scene)


def sequence_threads(scene: Scene) -> Iterator[Any]:
    """A PyDataset with several threads."""
    # With fewer, Keras starts none.
    return _many_workers(PngSequence(scene, workers=max(2, scene.processes)))


def sequence_processes(scene: Scene) -> Iterator[Any]:
    """A PyDataset with several processes."""
    return _many_workers(PngSequence(scene, workers=scene.processes, use_multiprocessing=True))


def steps(sequence: PngSequence) -> Callable[[], Iterator[Any]]:
    """Batch after batch in this process."""
    return lambda: (sequence[step] for step in count())


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


def tf_png(scene: Scene) -> Iterator[Any]:
    """tf.data over the files: decoded in parallel, prefetched."""
    return tf_ways.endless(tf_ways.batched(_windows(scene), scene))


def whole_windows(scene: Scene) -> tf.data.Dataset:
    """Windows (T, H, W, C), one by one, decoded in the graph."""
    files, shape = tf.constant(scene.files), scene.frame_shape

    def decode(path: tf.Tensor) -> tf.Tensor:
        frame = tf.io.decode_png(tf.io.read_file(path), shape[-1], tf.as_dtype(scene.dtype))
        return tf.ensure_shape(frame, shape)

    def load(start: tf.Tensor) -> tf.Tensor:
        return tf.stack([decode(files[start + i]) for i in range(scene.plan.span)])

    return tf_ways.starts(scene).map(load, num_parallel_calls=tf_ways.PARALLEL_CALLS)


def _windows(scene: Scene) -> tf.data.Dataset:
    return whole_windows(scene).map(lambda window: tf_ways.parted(window, scene, axis=0))


def epochs(scene: Scene) -> list[dict[str, Any]]:
    """tf.data over the files with and without cache and prefetch: first epoch and later ones.

    Epochs are short, `EPOCH_WINDOWS` windows at most, so that a cache holds them.

    Returns:
        For each combination `cache`, `prefetch`, and milliseconds per batch of the first epoch,
        `first_ms`, and of the others on average, `later_ms`.
    """
    size = scene.plan.batch_size
    window_bytes = scene.plan.span * scene.dataset.frame_format.nbytes
    number = min(len(scene.plan.starts), EPOCH_WINDOWS, max(size, EPOCH_BYTES // window_bytes))
    found = []
    for cache in (False, True):
        for prefetch in (False, True):
            dataset = _windows(scene).take(number // size * size)
            dataset = tf_ways.batched(dataset.cache() if cache else dataset, scene)
            dataset = tf_ways.fixed(dataset.prefetch(tf_ways.PREFETCH) if prefetch else dataset)
            first, *later = (_epoch_ms(dataset) for _ in range(1 + LATER_EPOCHS))
            times = {"first_ms": first, "later_ms": sum(later) / LATER_EPOCHS}
            found.append({"cache": cache, "prefetch": prefetch, **times})
    return found


def _epoch_ms(dataset: tf.data.Dataset) -> float:
    """Per batch."""
    started = time.perf_counter()
    batches = sum(1 for _ in dataset)
    return (time.perf_counter() - started) / batches * 1e3
