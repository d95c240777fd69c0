"""The training loop: steps, validation, checkpoints, and when to stop.

A step depends on the checkpointed state and the step's number only, so that a run that was
killed goes on to the same weights; with `minutes` it also depends on the clock.
"""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from framewin.adapters.tf_data import unit
from framewin.augment import Augment
from framewin.dataset import FrameWindowDataset
from framewin.errors import TrainingError
from framewin.forecast import boards
from framewin.forecast.checkpoints import (
    TrainProgress,
    load_checkpoint,
    save_checkpoint,
    wait_share,
)
from framewin.forecast.devices import Devices
from framewin.forecast.losses import LOSS_FUNCTIONS
from framewin.forecast.runs import (
    CHECKPOINT_FILE,
    HISTORY_FILE,
    LOG_FOLDER,
    WEIGHTS_FILE,
    save_weights,
)
from framewin.forecast.scoring import as_stored, without_nan
from framewin.forecast.settings import TrainSettings, augment_options
from framewin.metrics import FULL_SCALE
from framewin.model_table import ModelScale
from framewin.optional import require
from framewin.scaling import shown_values
from framewin.stores import durable

if TYPE_CHECKING:
    import keras
    import tensorflow as tf
else:
    tf = require("tensorflow", extra="tensorflow")
    keras = require("keras", extra="tensorflow")

WARM_UP_SHARE = 0.05
FINAL_LEARNING_RATE_SHARE = 0.02
AVERAGE_KEEPS = 0.99
"""Share of the averaged weights that a step keeps."""
TIMED_STEPS = 4
UNTIMED_STEPS = 10
"""After each start, of which some compile and open files."""
MUCH_WAITING = 0.03
"""Share of a step's time from which on it is said what to try."""
HISTORY_COLUMNS = ("epoch", "loss", "val_loss", "learning_rate", "seconds", "data_wait")
WINDOWS_NAMED_IN_ERRORS = 8

Say = Callable[[str], None]


class Fit:
    """One training: a model, its optimizer, and where it stands."""

    def __init__(
        self,
        model: Any,
        parts: Mapping[str, FrameWindowDataset],
        run: Path,
        settings: TrainSettings,
        devices: Devices,
        say: Say,
        scale: ModelScale | None = None,
    ) -> None:
        """Make the optimizer and the step; nothing is trained yet.

        Args:
            model: Built within the strategy of `devices`.
            parts: Windows of `train` and `validation`.
            run: The run folder, which is there.
            settings: How to train.
            devices: Where.
            say: Called with lines of progress.
            scale: What the model computes with, and the loss is of; by default unit scale.
        """
        self._scale = scale
        self.model, self.parts, self.run = model, parts, run
        self.settings, self.devices, self.say = settings, devices, say
        self.writes = devices.worker == 0
        self.progress = TrainProgress()
        self._loss = LOSS_FUNCTIONS[settings.loss]
        with devices.strategy.scope():
            self._optimizer = _optimizer(settings)
            self._optimizer.build(model.trainable_variables)
            # Averages of the weights over the last steps, which are what is scored and kept.
            self._averages = [
                tf.Variable(weight.value, trainable=False) for weight in model.trainable_variables
            ]
        self._step = self._make_step()
        self._score = self._make_score()
        self._board = boards.Board(run / LOG_FOLDER) if self.writes else None
        self._saved_at = 0.0
        self._steps_here = 0
        self.steps_per_epoch = self._schedule().num_batches

    def resume(self) -> None:
        """Go back to the checkpoint.

        Raises:
            TrainingError: There is none, or it is not of this run.
        """
        shapes = {
            name: [(tuple(each.shape), each.dtype) for each in group]
            for name, group in self._state().items()
        }
        self.progress, arrays = load_checkpoint(self.run / CHECKPOINT_FILE, shapes)
        self._set_state(arrays)
        self._saved_at = self.progress.seconds
        self.say(f"resumed in epoch {self.progress.epoch + 1}, step {self.progress.step}")

    def begin(self) -> None:
        """Score the untrained model, which is kept until one is better."""
        self.progress.best_loss = self.validation_loss()
        self._keep_weights()
        self._save()

    def say_waiting(self) -> None:
        """Measure, on steps that are taken back, how long a step waits for its data."""
        before = self._state()
        waited = total = 0.0
        batches = iter(self._train_batches(0, 0))
        for number in range(TIMED_STEPS + 1):
            started = time.perf_counter()
            batch = next(batches)
            got = time.perf_counter()
            float(self._step(*self.devices.dealt(batch)))
            # The first one compiles.
            if number:
                waited += got - started
                total += time.perf_counter() - started
        self._set_state(before)
        share, each = waited / total, total / TIMED_STEPS
        self.say(f"a step takes {each:.3g} s, of which {share:.0%} is waiting for data")

    def train(self) -> None:
        """Train until epochs, minutes or patience end it; then the best weights are on disk.

        Raises:
            TrainingError: The loss is no finite number.
        """
        self._started = time.perf_counter() - self.progress.seconds
        batches = None
        while not self.progress.finished:
            # A checkpoint may lie between the last step of an epoch and its end.
            if self.progress.step < self.steps_per_epoch:
                if batches is None:
                    # One for all epochs: each start of an iterator takes as long as many batches.
                    batches = iter(self._train_batches(self.progress.epoch, self.progress.step))
                self._train_epoch(batches)
            self._end_epoch()
        if self._board is not None:
            self._board.close()
        self._say_data_wait()

    def _train_epoch(self, batches: Any) -> None:
        while self.progress.step < self.steps_per_epoch:
            asked = time.perf_counter()
            batch = next(batches)
            got = time.perf_counter()
            self.progress.rate = self._learning_rate()
            self._optimizer.learning_rate = self.progress.rate
            loss = float(self._step(*self.devices.dealt(batch)))
            if not math.isfinite(loss):
                raise TrainingError(self._no_number(loss))
            self.progress.loss_sum += loss
            self.progress.step += 1
            # The loss has been read, so the step has ended on every device.
            ended = time.perf_counter()
            self._count_wait(got - asked, ended - asked)
            self.progress.seconds = ended - self._started
            if self._out_of_time():
                return
            if self.progress.seconds - self._saved_at >= 60 * self.settings.checkpoint_minutes:
                self._save()

    def _count_wait(self, waited: float, took: float) -> None:
        self._steps_here += 1
        if self._steps_here > UNTIMED_STEPS:
            self.progress.waited += waited
            self.progress.timed += took

    def _say_data_wait(self) -> None:
        """How long all steps waited for data, and, if that is long, what to try."""
        share = self.progress.data_wait
        if share is None:
            return
        self.say(f"steps waited for data in {share:.1%} of their time")
        if share > MUCH_WAITING:
            ways = ways_to_wait_less(self.parts["train"], self.settings)
            self.say(f"to wait less, try {'; '.join(ways)}")

    def _end_epoch(self) -> None:
        """Score, record, keep the weights if they are the best, and see whether that is all."""
        now = self.progress
        loss = now.loss_sum / max(1, now.step)
        validation = self.validation_loss()
        now.epoch, now.step, now.loss_sum = now.epoch + 1, 0, 0.0
        better = validation < now.best_loss
        if better:
            now.best_loss, now.best_epoch = validation, now.epoch
            self._keep_weights()
        now.seconds = time.perf_counter() - self._started
        row = {"epoch": now.epoch, "loss": loss, "val_loss": validation}
        row |= {"learning_rate": now.rate, "seconds": round(now.seconds, 3)}
        share = wait_share(now.waited, now.timed)
        if share is not None:
            row["data_wait"] = share
        now.waited_before, now.waited = now.waited_before + now.waited, 0.0
        now.timed_before, now.timed = now.timed_before + now.timed, 0.0
        now.history.append(row)
        now.finished = self._is_over()
        self._record(better)
        self._save()

    def _is_over(self) -> bool:
        now, patience = self.progress, self.settings.patience
        most = self.settings.most_epochs
        waited = now.epoch - now.best_epoch
        return (
            self._out_of_time()
            or (most is not None and now.epoch >= most)
            or (patience > 0 and waited >= patience)
        )

    def _out_of_time(self) -> bool:
        minutes = self.settings.minutes
        return minutes is not None and self.progress.seconds >= 60 * minutes

    def _learning_rate(self) -> float:
        """Up to the peak in the first twentieth of the training, then down along a cosine."""
        now, peak = self.progress, self.settings.learning_rate
        done = now.epoch * self.steps_per_epoch + now.step
        shares = []
        if self.settings.most_epochs is not None:
            shares.append(done / (self.settings.most_epochs * self.steps_per_epoch))
        if self.settings.minutes is not None:
            shares.append(now.seconds / (60 * self.settings.minutes))
        return peak * learning_rate_share(max(shares))

    def _record(self, better: bool) -> None:
        row = self.progress.history[-1]
        mark = ", the best so far" if better else ""
        waiting = f", {row['data_wait']:.1%} waiting for data" if "data_wait" in row else ""
        self.say(
            f"epoch {row['epoch']}: loss {row['loss']:.5g}, validation {row['val_loss']:.5g}"
            f"{mark}, {row['seconds']:.0f} s{waiting}"
        )
        if self._board is None:
            return
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, HISTORY_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.progress.history)
        durable.write_whole(self.run / HISTORY_FILE, text.getvalue().encode())
        names = ("loss", "val_loss", "learning_rate", "data_wait")
        shown = {name: row[name] for name in names if name in row}
        self._board.scalars(shown, int(row["epoch"]))
        if better and not self.settings.next_frame:
            self._board.forecasts(self._shown(), int(row["epoch"]))

    def _shown(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Inputs, truth and forecasts of some validation windows, unit scale."""
        part = self.parts["validation"]
        windows = np.linspace(0, len(part) - 1, min(boards.SHOWN, len(part))).astype(int)
        inputs, targets = part.batch(windows.tolist())[:2]
        with self._averaged():
            given = tf.constant(without_nan(inputs))
            forecasts = np.asarray(self.model(given, training=False))
        frames = (inputs, targets, as_stored(forecasts, inputs, part.nodata))
        inputs, targets, forecasts = (shown_values(each, part.nodata) for each in frames)
        return inputs, targets, forecasts

    def validation_loss(self) -> float:
        """Mean over all validation windows, of the averaged weights.

        Raises:
            TrainingError: It is no finite number.
        """
        part, losses = self.parts["validation"], []
        with self._averaged():
            for batch in part.to_tf_dataset(batch_size=self.settings.batch_size):
                losses += self._score(*batch).numpy().astype(float).tolist()
        broken = [window for window, loss in enumerate(losses) if not math.isfinite(loss)]
        if broken:
            where = f"the validation loss became {losses[broken[0]]} in epoch {self.progress.epoch}"
            raise TrainingError(self._blamed(where, "validation", broken[:1]))
        return math.fsum(losses) / len(part)

    def _make_step(self) -> Any:
        model, optimizer, replicas = self.model, self._optimizer, self.devices.count
        limit, loss_of, next_frame = self.settings.clip_norm, self._loss, self.settings.next_frame

        def replica(inputs: Any, targets: Any, *weights: Any) -> Any:
            truth = self._scaled(wanted(inputs, targets, next_frame=next_frame))
            with tf.GradientTape() as tape:
                made = self._scaled(model(inputs, training=True))
                loss = tf.reduce_mean(loss_of(truth, made, *weights))
                share = loss / replicas
            found = tape.gradient(share, model.trainable_variables)
            # A model of the user's own may have weights that this loss does not depend on.
            pairs = zip(found, model.trainable_variables, strict=True)
            used = [(tf.convert_to_tensor(each), to) for each, to in pairs if each is not None]
            if not used:
                raise TrainingError("the loss depends on none of the model's weights")
            gradients, variables = [each for each, _ in used], [to for _, to in used]
            if replicas > 1:
                # The norm is of all devices together; the optimizer adds them up once more.
                gradients = tf.distribute.get_replica_context().all_reduce("SUM", gradients)
            gradients, _ = tf.clip_by_global_norm(gradients, limit)
            if replicas > 1:
                gradients = [gradient / replicas for gradient in gradients]
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return share

        def step(*batch: Any) -> Any:
            shares = self.devices.strategy.run(replica, args=batch)
            # A new average would stay near the first weights for long.
            done = tf.cast(optimizer.iterations.value, tf.float32)
            keep = tf.minimum(AVERAGE_KEEPS, (1 + done) / (10 + done))
            for average, weight in zip(self._averages, model.trainable_variables, strict=True):
                average.assign(keep * average + (1 - keep) * weight.value)
            return self.devices.strategy.reduce("SUM", shares, axis=None)

        # Several devices have a last batch that is as large as the others.
        signature = self._signature() if replicas == 1 else None
        return tf.function(
            step, input_signature=signature, reduce_retracing=True, jit_compile=False
        )

    def _signature(self) -> list[Any]:
        """Of a batch of any size: graphs of one size would be made anew for the last batch, and
        compute in another order before it than after it."""
        part = self.parts["train"]
        height, width, channels = part.frame_format.shape
        counts = (part.spec.input_frames, part.spec.predict_frames)
        found = [
            tf.TensorSpec((None, count, height, width, channels), part.frame_format.dtype)
            for count in counts
        ]
        if part.weighted:
            found.append(tf.TensorSpec((None, counts[1], height, width), tf.float32))
        return found

    def _make_score(self) -> Any:
        def score(inputs: Any, targets: Any, *weights: Any) -> Any:
            truth = self._scaled(wanted(inputs, targets, next_frame=self.settings.next_frame))
            return self._loss(truth, self._scaled(self.model(inputs, training=False)), *weights)

        return tf.function(score, input_signature=self._signature(), jit_compile=False)

    def _scaled(self, frames: Any) -> Any:
        """Frames of unit scale as the model computes with them."""
        if self._scale is None:
            return frames
        full = FULL_SCALE[self.parts["train"].frame_format.dtype]
        offset, divisor = (np.divide(v, full) for v in (self._scale.offset, self._scale.divisor))
        return (frames - tf.constant(offset, tf.float32)) / tf.constant(divisor, tf.float32)

    def _averaged(self) -> Swapped:
        return Swapped([weight.value for weight in self.model.trainable_variables], self._averages)

    def _schedule(self) -> Any:
        return self.parts["train"].batches(**training_order(self.settings, self.devices)).schedule

    def _train_batches(self, epoch: int, step: int) -> Any:
        options = augment_options(self.settings.augment)
        return self.parts["train"].to_tf_dataset(
            **training_order(self.settings, self.devices),
            augment=Augment(**options) if options else None,
            read_ahead=self.settings.read_ahead,
            start_epoch=epoch,
            start_step=step,
            repeat=True,
        )

    def _state(self) -> dict[str, list[np.ndarray]]:
        groups = {
            "model": self.model.variables,
            "optimizer": self._optimizer.variables,
            "average": self._averages,
        }
        return {name: [each.numpy() for each in group] for name, group in groups.items()}

    def _set_state(self, arrays: Mapping[str, list[np.ndarray]]) -> None:
        groups = (self.model.variables, self._optimizer.variables, self._averages)
        for name, group in zip(("model", "optimizer", "average"), groups, strict=True):
            for variable, value in zip(group, arrays[name], strict=True):
                variable.assign(value)

    def _save(self) -> None:
        self._saved_at = self.progress.seconds
        if self.writes:
            save_checkpoint(self.run / CHECKPOINT_FILE, self.progress, self._state())

    def _keep_weights(self) -> None:
        if self.writes:
            with self._averaged():
                save_weights(self.model, self.run / WEIGHTS_FILE)

    def _no_number(self, loss: float) -> str:
        """Which batch it was, and what to do about it."""
        now = self.progress
        windows = self._schedule().windows(now.epoch, now.step).tolist()
        where = f"the loss became {loss} in epoch {now.epoch + 1}, step {now.step + 1}"
        return self._blamed(where, "train", windows)

    def _blamed(self, where: str, name: str, windows: list[int]) -> str:
        """The window that holds what is no number, or else the learning rate."""
        part = self.parts[name]
        for window in windows:
            frames = np.concatenate(part.batch([window])[:2], axis=1)
            if not np.isfinite(frames).all():
                source = part.window(window)
                return (
                    f"{where}: window {window} of the {name} part ({source.clip} from frame "
                    f"{source.input_frame_numbers[0]}) holds values that are no numbers; say which "
                    "value is no data when converting (--nodata), or leave them out"
                )
        some = ", ".join(map(str, windows[:WINDOWS_NAMED_IN_ERRORS]))
        return (
            f"{where}, with the windows {some} of the {name} part; try a lower --learning-rate "
            f"than {self.settings.learning_rate:g}"
        )


class Swapped:
    """Variables with the values of others, for the time of a `with` block."""

    def __init__(self, variables: list[Any], values: list[Any]) -> None:
        self._variables, self._values = variables, values

    def __enter__(self) -> None:
        self._own = [variable.numpy() for variable in self._variables]
        for variable, value in zip(self._variables, self._values, strict=True):
            variable.assign(value.numpy())

    def __exit__(self, *_: object) -> None:
        for variable, value in zip(self._variables, self._own, strict=True):
            variable.assign(value)


def ways_to_wait_less(part: FrameWindowDataset, settings: TrainSettings) -> list[str]:
    """What to try where batches come too late, in words."""
    ways = []
    if part.mapped is None:
        ways.append("--cache memory, or --cache FILE if the frames do not fit into memory")
    elif not settings.read_ahead:
        ways.append("--read-ahead 16 if the frames are not in memory yet")
    if settings.shuffle is True:
        ways.append("--shuffle blocks if the frames do not fit into memory")
    if settings.augment:
        ways.append("less of --augment")
    if isinstance(part.path, Path):
        ways.append(f"what framewin plan {part.path} says")
    return ways


def learning_rate_share(done: float) -> float:
    """Share of the peak after a share of the training.

    >>> [round(learning_rate_share(done), 3) for done in (0, 0.025, 0.05, 0.525, 1)]
    [0.02, 0.51, 1.0, 0.51, 0.02]
    """
    low = FINAL_LEARNING_RATE_SHARE
    if done < WARM_UP_SHARE:
        return low + (1 - low) * done / WARM_UP_SHARE
    along = min(1.0, (done - WARM_UP_SHARE) / (1 - WARM_UP_SHARE))
    return low + (1 - low) * (1 + math.cos(math.pi * along)) / 2


def _optimizer(settings: TrainSettings) -> Any:
    if settings.weight_decay == 0:
        return keras.optimizers.Adam(settings.learning_rate)
    optimizer = keras.optimizers.AdamW(settings.learning_rate, weight_decay=settings.weight_decay)
    optimizer.exclude_from_weight_decay(var_names=["bias", "lead_mix", "colour"])
    return optimizer


def training_order(settings: TrainSettings, devices: Devices) -> dict[str, Any]:
    """How the training windows are dealt into batches."""
    return {
        "batch_size": settings.batch_size // devices.workers,
        "shuffle": settings.shuffle,
        "seed": settings.seed,
        # A last batch of a few windows would leave some device without any.
        "drop_remainder": devices.count > 1,
        "num_shards": devices.workers,
        "shard_index": devices.worker,
    }


def wanted(inputs: Any, targets: Any, *, next_frame: bool) -> Any:
    """What a model must give, float32 in unit scale, from frames as stored.

    Within the step, so that frames go to the device as they are stored.

    Args:
        inputs: (B, input_frames, H, W, C).
        targets: (B, predict_frames, H, W, C).
        next_frame: Each input's next frame instead of the targets.
    """
    if next_frame:
        targets = tf.concat([inputs[:, 1:], targets[:, :1]], axis=1)
    return unit(targets)
