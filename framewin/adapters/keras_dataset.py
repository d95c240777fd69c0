"""Batches as a `keras.utils.PyDataset`, for every backend of Keras 3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framewin.optional import require

if TYPE_CHECKING:
    from framewin.batches import Batch, Batches

keras = require("keras", extra="tensorflow")


class KerasDataset(keras.utils.PyDataset):  # type: ignore[name-defined]
    """The batches of one epoch, and of the next one after `on_epoch_end`.

    `fit` shuffles the batches of a PyDataset on its own unless it is told `shuffle=False`. It
    also looks at some batches before it trains, and ends an epoch for that: every epoch it trains
    has its own order, but only with `callbacks=[batches.callback()]` is it known which.
    """

    def __init__(
        self,
        batches: Batches,
        *,
        workers: int = 1,
        use_multiprocessing: bool = False,
        max_queue_size: int = 10,
    ) -> None:
        """Read nothing yet.

        Args:
            batches: What an epoch consists of.
            workers: Threads, or processes, that make batches ahead.
            use_multiprocessing: Processes instead of threads; worth it only for augmentation in
                Python that holds the interpreter. Each opens the store again.
            max_queue_size: Batches made ready ahead.

        Raises:
            ValueError: Batches that begin within an epoch, or are of several epochs, for every
                epoch of Keras is whole.
        """
        super().__init__(
            workers=workers,
            use_multiprocessing=use_multiprocessing,
            max_queue_size=max_queue_size,
        )
        batches.refuse_epochs()
        if batches.start_step:
            raise ValueError(
                "start_step needs to_tf or the batches themselves: every epoch of a PyDataset has "
                "the same length"
            )
        self.batches = batches
        self.epoch = batches.start_epoch

    @property
    def num_batches(self) -> int:
        """Batches of an epoch."""
        return self.batches.steps_per_epoch

    def __len__(self) -> int:
        return self.num_batches

    def __getitem__(self, step: int) -> Batch:
        """A batch of the present epoch.

        Raises:
            IndexError: No such step.
        """
        return self.batches.batch(self.epoch, step)

    def callback(self) -> Any:
        """A callback of `fit` that makes its epoch e the epoch e of the order.

        With a `start_epoch`, the first epoch of each `fit` is that one, whatever number it has.
        It also refuses, before training, a `steps_per_epoch` that is not the number of batches.
        """
        return _SameEpoch(self)

    def on_epoch_end(self) -> None:
        """Go on to the next epoch, which has another order."""
        self.epoch += 1


class _SameEpoch(keras.callbacks.Callback):  # type: ignore[name-defined]
    def __init__(self, batches: KerasDataset) -> None:
        super().__init__()
        self.batches = batches
        self._shift: int | None = None

    def on_train_begin(self, logs: object = None) -> None:
        self._shift = None
        steps, available = self.params.get("steps"), self.batches.num_batches
        # With fewer, Keras goes on with the rest in its next epoch, and ends when that is used up.
        if steps is not None and steps != available:
            raise ValueError(
                f"steps_per_epoch is {steps}, but an epoch has {available} batches; leave it out, "
                "or use to_tf_dataset(repeat=True)"
            )

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        if self._shift is None:
            start = self.batches.batches.start_epoch
            self._shift = start - epoch if start else 0
        self.batches.epoch = epoch + self._shift
