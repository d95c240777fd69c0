"""What Keras's `fit` does with a tf.data.Dataset beside training, taken back.

Note [Keras looks at a batch]: to build a model, `fit` and `evaluate` may draw a batch from an
iterator that they throw away, under a `tf.distribute` strategy each time. Each pass over our
datasets is an epoch, so that one would be lost, and with it `start_step`. Keras offers no hook for
it, but it asks for the number of batches before and right after it looks.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from framewin.optional import require

if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = require("tensorflow", extra="tensorflow")

_EPOCH_ITERATOR = "keras.src.trainers.epoch_iterator"


def checked(batches: tf.data.Dataset, before_pass: Callable[[], None]) -> tf.data.Dataset:
    """Call something before each pass that begins in Python; TensorFlow has no hook for that."""
    batches.before_pass = before_pass
    kind: Any = type(batches)
    batches.__class__ = _checked(kind)
    return batches


@cache
def _checked(kind: Any) -> Any:
    # One for each kind: a class is only freed by the garbage collector, with all that it holds.
    class Checked(kind):
        def __iter__(self) -> Iterator[object]:
            self.before_pass()
            passes: Iterator[object] = super().__iter__()
            return passes

    return Checked


class Cardinality:
    """Stands for `cardinality` of a dataset, and takes back passes that only looked at a batch."""

    def __init__(
        self,
        number: int,
        steps: int,
        next_epoch: tf.Variable,
        check: Callable[[int], None],
    ) -> None:
        """Begin with the first pass.

        Args:
            number: The cardinality.
            steps: Batches of a whole epoch, or what stands for no end.
            next_epoch: Epoch of the next pass, which passes count up.
            check: Refuses a number of replicas that the batches are too small for.
        """
        self._number, self._steps = number, steps
        self._next_epoch, self._check = next_epoch, check
        self._asked_at = int(next_epoch.numpy())
        self._real_passes = 0

    def __call__(self) -> tf.Tensor:
        """The number of batches; to Keras that of the steps of a whole epoch.

        Keras would cut every epoch to the first one, if that is shorter because of `start_step`.

        Raises:
            ValueError: Keras is about to train on too small batches.
        """
        # Asked by `num_batches` of Keras's data adapter, and that by its iterator; see
        # Note [Keras looks at a batch].
        frame = sys._getframe(1).f_back
        if frame is None or frame.f_globals.get("__name__") != _EPOCH_ITERATOR:
            return tf.constant(self._number, tf.int64)
        if not hasattr(frame.f_globals.get("EpochIterator"), "reset"):
            warnings.warn(
                "this version of Keras has no EpochIterator.reset, by which passes that only look "
                "at a batch are told; fit may leave out an epoch, and with it start_step",
                stacklevel=2,
            )
        is_reset = frame.f_code.co_name == "reset"
        if is_reset:
            if int(self._next_epoch.numpy()) > self._asked_at + self._real_passes:
                self._next_epoch.assign(self._asked_at + self._real_passes)
            strategy = getattr(frame.f_locals["self"], "_distribute_strategy", None)
            self._check(1 if strategy is None else strategy.num_replicas_in_sync)
        # An iterator that is kept for validation makes one pass between two resets.
        self._real_passes = int(is_reset)
        self._asked_at = int(self._next_epoch.numpy())
        return tf.constant(self._steps, tf.int64)
