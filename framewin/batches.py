"""Batches of windows: the one value that every framework is fed from.

Which windows a batch holds, and what its random numbers are, follows from (seed, epoch, step)
alone, so numpy, TensorFlow, Keras and torch get the same batches to the last bit, whatever the
number of workers, and training goes on after an interruption with the batch that comes next.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, SupportsIndex, TypedDict, TypeVar

import numpy as np

from framewin.augment import Augment, augment_windows, window_function
from framewin.scaling import Normalize, Scaling
from framewin.windows.blocks import BlockShape, ShuffleBlocks
from framewin.windows.lanes import LaneSchedule
from framewin.windows.order import as_integer
from framewin.windows.schedule import BLOCKS, BatchSchedule, Shuffle, check_step

if TYPE_CHECKING:
    import tensorflow as tf

    from framewin.adapters.keras_dataset import KerasDataset
    from framewin.adapters.torch_dataset import WindowLoader
    from framewin.dataset import FrameWindowDataset

Batch = tuple[Any, ...]
"""(inputs, targets), or (inputs, targets, sample_weights)."""

RESETS = "resets"
"""Name of the mask of lanes among named inputs."""
FRAMES = "frames"
"""Name of the inputs beside a mask where no other is given."""
PARALLEL_BATCHES = 2


class BatchOptions(TypedDict, total=False):
    """The fields of `Batches` but for the dataset, for type checkers."""

    batch_size: int
    shuffle: Shuffle
    shuffle_blocks: ShuffleBlocks | None
    seed: int
    drop_remainder: bool
    normalize: Normalize | None
    dtype: str | None
    augment: Any
    input_name: str | None
    lanes: bool
    num_shards: int
    shard_index: int
    start_epoch: int
    start_step: int
    epochs: int


@dataclass(frozen=True, eq=False, repr=False)
class Batches(Sequence[Batch]):
    """The batches of some epochs, numbered through, as numpy arrays: a random-access source.

    Batch i is step `i % steps_per_epoch` of epoch `start_epoch + i // steps_per_epoch`, whoever
    reads it and in whatever order.

    >>> batches = ds.batches(batch_size=8, shuffle=True, normalize="unit")  # doctest: +SKIP
    >>> len(batches), batches[3][0].shape                                  # doctest: +SKIP
    (93, (8, 5, 64, 64, 1))
    >>> batches.shard(num_shards=2, index=1).at(epoch=4, step=10).to_tf()  # doctest: +SKIP
    """

    dataset: FrameWindowDataset
    """The windows."""
    batch_size: int = field(kw_only=True)
    """Windows in a batch, B below."""
    shuffle: Shuffle = field(default=False, kw_only=True)
    """A new full permutation of all windows in each epoch, without a buffer; with the dataset's
    `weights`, draws with replacement instead. `"blocks"` permutes blocks of consecutive windows,
    and the windows within groups of such blocks, so that frames are read, or decoded, about once
    per epoch: for stores larger than memory on a disk or network, and for compressed ones. Of the
    other windows of a batch, one in about as many as a group has blocks is from the same block;
    see `framewin.windows.blocks`."""
    shuffle_blocks: ShuffleBlocks | None = field(default=None, kw_only=True)
    """(windows of a block, blocks of a group) of `"blocks"`, of which the order depends; by default
    what `dataset.block_shape()` says, whatever the cache. The frames of a group must stay in
    memory, or in `cache_bytes`, while they are used."""
    seed: int = field(default=0, kw_only=True)
    """Chooses the orders, in [0, 2**63)."""
    drop_remainder: bool = field(default=False, kw_only=True)
    """Leave out a last batch that is not full. With several replicas of a tf.distribute strategy,
    fit cannot train on a batch that has fewer windows than replicas; that is an error, within the
    strategy's scope here."""
    normalize: Normalize | None = field(default=None, kw_only=True)
    """`None` keeps the values. `"unit"` divides integers by the largest value of their dtype (uint8
    by 255), which is 0..1 for unsigned ones, and keeps floats. `"standard"` and `(mean, std)`
    subtract and divide per channel; see `FrameWindowDataset.scaling`, which also gives the
    inverse."""
    dtype: str | None = field(default=None, kw_only=True)
    """What scaled frames are: `"float32"` (the default then), `"float16"` or `"bfloat16"`. Where
    `normalize` is None, too, frames keep the stored dtype."""
    augment: Any = field(default=None, kw_only=True)
    """A `framewin.augment.Augment`, which TensorFlow does in its graph; or an Albumentations
    `Compose`, a Keras preprocessing layer or a function `(window, rng) -> window`, which are called
    from one call of Python per batch. Changes all frames of a window alike, before they are scaled,
    by (seed, epoch, window)."""
    input_name: str | None = field(default=None, kw_only=True)
    """Gives `{input_name: inputs}` instead of inputs, for a model whose inputs have names."""
    lanes: bool = field(default=False, kw_only=True)
    """Row k of each batch continues row k of the batch before, for stateful models. Inputs are
    `{"frames": inputs, "resets": mask}`, or with `input_name` instead of "frames"; the mask, bool
    (B,), is True where a row does not continue, so that its state must be cleared. See
    `framewin.windows.lanes`."""
    num_shards: int = field(default=1, kw_only=True)
    """Among how many workers the batches of each epoch are dealt in turn."""
    shard_index: int = field(default=0, kw_only=True)
    """The share of this one: batch `shard_index`, `shard_index + num_shards`, ... of each epoch; of
    lanes, its share of the lanes."""
    start_epoch: int = field(default=0, kw_only=True)
    """Number of the first epoch, at least 0."""
    start_step: int = field(default=0, kw_only=True)
    """Batches of the first epoch that are left out; it costs nothing."""
    epochs: int = field(default=1, kw_only=True)
    """How many epochs to number, the first without its first `start_step` batches."""
    schedule: BatchSchedule | LaneSchedule = field(init=False)
    """Which windows every batch of every epoch holds."""
    scaling: Scaling | None = field(init=False)
    """What is done to frames last; its `invert` undoes it."""

    def __post_init__(self) -> None:
        as_integer("num_shards", self.num_shards, 1)
        if as_integer("shard_index", self.shard_index, 0) >= self.num_shards:
            raise ValueError(
                f"shard_index must be in [0, {self.num_shards}), the shards, got {self.shard_index}"
            )
        object.__setattr__(self, "schedule", self._schedule())
        scaling = self.dataset.scaling(self.normalize, dtype=self.dtype)
        object.__setattr__(self, "scaling", scaling)
        as_integer("start_epoch", self.start_epoch, 0)
        as_integer("epochs", self.epochs, 1)
        name = self.input_name
        if name is not None and (not isinstance(name, str) or name in ("", RESETS)):
            raise ValueError(f"input_name must be a name other than {RESETS!r}, got {name!r}")
        check_step(self.start_step, self.steps_per_epoch)
        if isinstance(self.augment, Augment):
            self.augment.check(self.dataset.frame_format.shape, self.dataset.nodata)
        elif self.augment is not None:
            window_function(self.augment)

    def _schedule(self) -> BatchSchedule | LaneSchedule:
        dataset, shard = self.dataset, (self.shard_index, self.num_shards)
        if self.lanes and dataset.draws is not None:
            raise ValueError("lanes follow the clips, so windows with weights= cannot be drawn")
        if self.lanes and self.shuffle_blocks is not None:
            raise ValueError(
                "lanes read every clip from front to back, so there are no blocks to shuffle; "
                f"leave shuffle_blocks out, got {self.shuffle_blocks!r}"
            )
        if self.lanes:
            return LaneSchedule(
                dataset.index, self.batch_size, shuffle=self.shuffle, seed=self.seed, shard=shard
            )
        shape = None
        if self.shuffle_blocks is not None:
            shape = BlockShape.of(self.shuffle_blocks)
        elif self.shuffle == BLOCKS:
            shape = dataset.block_shape()
        return BatchSchedule(
            len(dataset),
            self.batch_size,
            self.shuffle,
            self.seed,
            self.drop_remainder,
            shard,
            dataset.draws,
            shape,
        )

    @property
    def steps_per_epoch(self) -> int:
        """Batches of a whole epoch."""
        return self.schedule.num_batches

    def __len__(self) -> int:
        return self.epochs * self.steps_per_epoch - self.start_step

    def __getitem__(self, index: SupportsIndex) -> Batch:  # type: ignore[override]
        """One batch.

        Returns:
            inputs: (B, input_frames, H, W, C); targets: (B, predict_frames, H, W, C); with the
            dataset's `sample_weight` also weights, float32 (B, predict_frames, H, W).

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
        return f"Batches({len(self)} of {self.batch_size}, {self.dataset!r})"

    def batch(self, epoch: int, step: int) -> Batch:
        """The batch of a step of any epoch >= 0; `epochs` and `start_step` do not matter."""
        inputs, targets, *weights = self.dataset.weigh(*self._frames(epoch, step))
        if self.scaling is not None:
            inputs, targets = self.scaling(inputs), self.scaling(targets)
        resets = []
        if isinstance(self.schedule, LaneSchedule):
            resets.append(self.schedule.resets(epoch, step))
        return self.element(inputs, targets, weights, resets)

    def element(
        self, inputs: Any, targets: Any, weights: Sequence[Any], resets: Sequence[Any]
    ) -> Batch:
        """The parts of a batch: inputs, targets, weights if the dataset has them.

        With an `input_name`, or a mask of lanes, the inputs are a dict, which holds the mask, too:
        `fit` takes what comes after the targets for weights of their loss.
        """
        if self.input_name is None and not resets:
            return inputs, targets, *weights
        masks = dict(zip([RESETS], resets, strict=False))
        return {self.input_name or FRAMES: inputs, **masks}, targets, *weights

    def at(self, *, epoch: int, step: int = 0) -> Batches:
        """The same batches from a step of an epoch on."""
        return replace(self, start_epoch=epoch, start_step=step)

    def shard(self, *, num_shards: int, index: int) -> Batches:
        """The share of one of several workers: every `num_shards`-th batch from `index` on.

        Raises:
            ValueError: They are a share already, or `index` is not in [0, num_shards).
        """
        if self.num_shards != 1:
            raise ValueError(
                f"these batches are shard {self.shard_index} of {self.num_shards}; shard the whole"
            )
        return replace(self, num_shards=num_shards, shard_index=index)

    def refuse_epochs(self) -> None:
        """Of adapters of which each pass is an epoch."""
        if self.epochs != 1:
            raise ValueError(
                f"epochs={self.epochs} is for numpy; every pass is an epoch here, leave it out"
            )

    def state(self, steps_done: int = 0) -> dict[str, Any]:
        """Where training stands after some steps of these batches, as JSON values.

        `ds.batches(**state)` goes on with the batch after the last one, as do `to_tf_dataset` and
        the other short cuts; it costs nothing. What is done to the frames (`normalize`, `dtype`,
        `augment`, `input_name`) is to be given again.
        """
        begun = self.start_epoch * self.steps_per_epoch + self.start_step
        as_integer("steps_done", steps_done, 0)
        epoch, step = self.schedule.place(begun + steps_done)
        blocks = self.schedule.shuffle_blocks if isinstance(self.schedule, BatchSchedule) else None
        return {
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            **({} if blocks is None else {"shuffle_blocks": astuple(blocks)}),
            "seed": self.seed,
            "drop_remainder": self.drop_remainder,
            "lanes": self.lanes,
            "num_shards": self.num_shards,
            "shard_index": self.shard_index,
            "start_epoch": epoch,
            "start_step": step,
        }

    def memory_estimate(
        self, *, prefetch: int = 2, parallel_batches: int = PARALLEL_BATCHES
    ) -> int:
        """Bytes of the batches that `to_tf` holds: the one in use, those that are ready and those
        that are being made; what augmentation takes on the way is not counted.

        Neither shuffling nor the size of the store adds to them; what was read of a mapped store
        is cache that the operating system takes back when it needs it.

        Args:
            prefetch: As for `to_tf`.
            parallel_batches: Likewise.
        """
        as_integer("prefetch", prefetch, 0)
        as_integer("parallel_batches", parallel_batches, 1)
        spec, form = self.dataset.spec, self.dataset.frame_format
        stored = self.batch_size * (spec.input_frames + spec.predict_frames) * form.nbytes
        batch = stored
        if self.scaling is not None:
            item_bytes = 4 if self.scaling.dtype == "float32" else 2
            batch = stored // np.dtype(form.dtype).itemsize * item_bytes
        if self.dataset.weighted:
            batch += self.batch_size * spec.predict_frames * form.height * form.width * 4
        under_way = batch if self.scaling is None else batch + stored
        return (1 + prefetch) * batch + parallel_batches * under_way

    def to_tf(
        self,
        *,
        prefetch: int = 2,
        parallel_batches: int = PARALLEL_BATCHES,
        read_ahead: int = 0,
        repeat: bool = False,
    ) -> tf.data.Dataset:
        """As a `tf.data.Dataset`; see `framewin.adapters.tf_data.to_tf_dataset`."""
        from framewin.adapters.tf_data import to_tf_dataset

        return to_tf_dataset(
            self,
            prefetch=prefetch,
            parallel_batches=parallel_batches,
            read_ahead=read_ahead,
            repeat=repeat,
        )

    def to_keras(
        self, *, workers: int = 1, use_multiprocessing: bool = False, max_queue_size: int = 10
    ) -> KerasDataset:
        """As a `keras.utils.PyDataset`; see `framewin.adapters.keras_dataset.KerasDataset`."""
        from framewin.adapters.keras_dataset import KerasDataset

        return KerasDataset(
            self,
            workers=workers,
            use_multiprocessing=use_multiprocessing,
            max_queue_size=max_queue_size,
        )

    def to_torch(
        self,
        *,
        channels_first: bool = False,
        num_workers: int = 0,
        persistent_workers: bool | None = None,
        pin_memory: bool = False,
        prefetch_factor: int | None = None,
    ) -> WindowLoader:
        """As a torch DataLoader; see `framewin.adapters.torch_dataset.to_torch_loader`."""
        from framewin.adapters.torch_dataset import to_torch_loader

        return to_torch_loader(
            self,
            channels_first=channels_first,
            num_workers=num_workers,
            persistent_workers=persistent_workers,
            pin_memory=pin_memory,
            prefetch_factor=prefetch_factor,
        )

    def _frames(self, epoch: int, step: int) -> tuple[np.ndarray, np.ndarray]:
        windows = self.schedule.windows(epoch, step)
        inputs, targets = self.dataset.read(windows)
        if self.augment is None:
            return inputs, targets
        count = inputs.shape[1]
        frames = augment_windows(
            self.augment,
            np.concatenate([inputs, targets], axis=1),
            seed=self.seed,
            epoch=epoch,
            windows=windows,
            draws=self.schedule.draws_of(epoch, step),
            input_frames=count,
        )
        return frames[:, :count], frames[:, count:]


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Call = Callable[Arguments, Result]


def renamed(**spellings: str) -> Callable[[Call[Arguments, Result]], Call[Arguments, Result]]:
    """Refuse arguments that a call had before by what to write now."""

    def decorate(call: Call[Arguments, Result]) -> Call[Arguments, Result]:
        @wraps(call)
        def checked(*args: Arguments.args, **options: Arguments.kwargs) -> Result:
            for name in options:
                if name in spellings:
                    raise TypeError(f"{name}= is no argument here any more: {spellings[name]}")
            return call(*args, **options)

        return checked

    return decorate


def takes_batch_options(method: Call[Arguments, Result]) -> Call[Arguments, Result]:
    """Let `help` show a method's `**options` as the fields of `Batches`."""
    own = inspect.signature(method)
    chosen = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
    options = list(inspect.signature(Batches).parameters.values())[1:]
    method = renamed(shard="write num_shards=n, shard_index=i for shard=(i, n)")(method)
    method.__signature__ = own.replace(parameters=[*chosen, *options])  # type: ignore[attr-defined]
    return method
