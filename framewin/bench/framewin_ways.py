"""The ways of framewin itself."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from framewin.augment import Augment
from framewin.bench.scene import Scene


def numpy_batches(scene: Scene) -> Iterator[Any]:
    """`ds.batch`, on one thread."""
    return (scene.dataset.batch(scene.plan.windows(step).tolist()) for step in count())


def tf_dataset(scene: Scene) -> Iterator[Any]:
    """`ds.to_tf_dataset`."""
    return iter(scene.dataset.to_tf_dataset(**_options(scene)).repeat())


def tf_dataset_flipped(scene: Scene) -> Iterator[Any]:
    """`ds.to_tf_dataset` with half of the windows mirrored."""
    augment = Augment(flip_horizontal=True)
    return iter(scene.dataset.to_tf_dataset(**_options(scene), augment=augment).repeat())


def keras_dataset(scene: Scene) -> Iterator[Any]:
    """`ds.to_keras_dataset`, as `fit` reads it."""
    from framewin.bench.tf_ways import fed_by

    sequence = scene.dataset.to_keras_dataset(**_options(scene))

    def batches() -> Iterator[Any]:
        while True:
            yield from (sequence[step] for step in range(sequence.num_batches))
            sequence.on_epoch_end()

    return fed_by(batches, scene)


def torch_loader(scene: Scene) -> Iterator[Any]:
    """`ds.to_torch_loader`."""
    loader = scene.dataset.to_torch_loader(**_options(scene))
    while True:
        yield from loader


def _options(scene: Scene) -> dict[str, Any]:
    plan = scene.plan
    return {"batch_size": plan.batch_size, "shuffle": plan.shuffle, "drop_remainder": True}
