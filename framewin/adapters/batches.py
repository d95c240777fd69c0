"""Batches as numpy arrays by number: for Grain, JAX and loops without a framework.

The adapters that have no graph of their own are made of these.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np

from framewin.augment import Augment, augment_windows, window_function
from framewin.dataset import FrameWindowDataset
from framewin.scaling import Normalize
from framewin.windows.blocks import ShuffleBlocks
from framewin.windows.lanes import LaneSchedule
from framewin.windows.order import as_integer
from framewin.windows.schedule import Shuffle, check_step

Batch = tuple[Any, ...]
"""What `element` gives."""

RESETS = "resets"
"""Name of the mask of lanes among named inputs."""
FRAMES = "frames"
"""Name of the inputs beside a mask where no other is given."""


def check_input_name(name: str | None) -> None:
    """Refuse what is no name of inputs, or that of the mask beside them."""
    if name is not None and (not isinstance(name, str) or name in ("", RESETS)):
        raise ValueError(f"input_name must be a name other than {RESETS!r}, got {name!r}")


def refuse_epochs(options: Mapping[str, Any]) -> None:
    """Of adapters of which each pass is an epoch."""
    if "epochs" in options:
        raise TypeError("epochs is for to_batches; every pass is an epoch here, leave it out")


def element(
    input_name: str | None, inputs: Any, targets: Any, weights: Sequence[Any], resets: Sequence[Any]
) -> Batch:
    """The parts of a batch: inputs, targets, weights if the dataset has them.

    With an `input_name`, or a mask of lanes, the inputs are a dict, which holds the mask, too:
    `fit` takes what comes after the targets for weights of their loss.
    """
    if input_name is None and not resets:
        return inputs, targets, *weights
    masks = dict(zip([RESETS], resets, strict=False))
    return {input_name or FRAMES: inputs, **masks}, targets, *weights


class WindowBatches(Sequence[Batch]):
    """The batches of some epochs, numbered through: a random-access source.

    Batch i is step `i % steps_per_epoch` of epoch `start_epoch + i // steps_per_epoch`, whoever
    reads it and in whatever order.
    """

    def __init__(
        self,
        dataset: FrameWindowDataset,
        *,
        batch_size: int,
        shuffle: Shuffle = False,
        shuffle_blocks: ShuffleBlocks | None = None,
        seed: int = 0,
        drop_remainder: bool = False,
        normalize: Normalize | None = None,
        dtype: str | None = None,
        augment: Any = None,
        input_name: str | None = None,
        start_epoch: int = 0,
        start_step: int = 0,
        shard: tuple[int, int] = (0, 1),
        epochs: int = 1,
        lanes: bool = False,
    ) -> None:
        """Number the batches; reads none. Parameters as for `to_tf_dataset`, but for `prefetch`,
        `read_ahead` and `repeat`, and:

        Args:
            epochs: How many epochs to number, the first without its first `start_step` batches.

        Raises:
            ValueError: A parameter out of its range.
        """
        self.dataset = dataset
        self.schedule = dataset.schedule(
            batch_size=batch_size,
            shuffle=shuffle,
            shuffle_blocks=shuffle_blocks,
            seed=seed,
            drop_remainder=drop_remainder,
            shard=shard,
            lanes=lanes,
        )
        self.scaling = dataset.scaling(normalize, dtype=dtype)
        self.augment, self.input_name = augment, input_name
        self.start_epoch, self.start_step, self.epochs = start_epoch, start_step, epochs
        as_integer("start_epoch", start_epoch, 0)
        as_integer("epochs", epochs, 1)
        check_input_name(input_name)
        check_step(start_step, self.steps_per_epoch)
        if isinstance(augment, Augment):
            augment.check(dataset.frame_format.shape, dataset.nodata)
        elif augment is not None:
            window_function(augment)

    @property
    def steps_per_epoch(self) -> int:
        """Batches of a whole epoch."""
        return self.schedule.num_batches

    def __len__(self) -> int:
        return self.epochs * self.steps_per_epoch - self.start_step

    def __getitem__(self, index: SupportsIndex) -> Batch:  # type: ignore[override]
        """One batch.

        Raises:
            IndexError: No such batch.
        """
        number = operator.index(index)
        if not -len(self) <= number < len(self):
            raise IndexError(f"batch {number} is out of range, there are {len(self)}")
        epoch, step = divmod(number % len(self) + self.start_step, self.steps_per_epoch)
        return self.batch(self.start_epoch + epoch, step)

    def __iter__(self) -> Iterator[Batch]:
        return (self[number] for number in range(len(self)))

    def __repr__(self) -> str:
        return f"WindowBatches({len(self)} batches of {self.schedule.batch_size}, {self.dataset!r})"

    def batch(self, epoch: int, step: int) -> Batch:
        """The batch of a step of any epoch >= 0; `epochs` and `start_step` do not matter."""
        frames = self._frames(epoch, step)
        inputs, targets, *weights = self.dataset.weigh(*frames)
        if self.scaling is not None:
            inputs, targets = self.scaling(inputs), self.scaling(targets)
        resets = []
        if isinstance(self.schedule, LaneSchedule):
            resets.append(self.schedule.resets(epoch, step))
        return element(self.input_name, inputs, targets, weights, resets)

    def _frames(self, epoch: int, step: int) -> tuple[np.ndarray, np.ndarray]:
        windows = self.schedule.windows(epoch, step)
        inputs, targets = self.dataset.read(windows)
        if self.augment is None:
            return inputs, targets
        count = inputs.shape[1]
        frames = augment_windows(
            self.augment,
            np.concatenate([inputs, targets], axis=1),
            seed=self.schedule.seed,
            epoch=epoch,
            windows=windows,
            draws=self.schedule.draws_of(epoch, step),
            input_frames=count,
        )
        return frames[:, :count], frames[:, count:]
