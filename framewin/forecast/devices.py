"""Where training runs: one device, several of one machine, or several machines by TF_CONFIG."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from framewin.errors import TrainingError
from framewin.forecast.settings import TrainSettings
from framewin.optional import require

if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = require("tensorflow", extra="tensorflow")


@dataclass(frozen=True, slots=True)
class Devices:
    """A strategy of TensorFlow, and this process's place among the others."""

    strategy: Any
    worker: int
    """From 0; worker 0 writes the run folder."""
    workers: int

    @property
    def local(self) -> int:
        """Devices of this process."""
        return int(self.strategy.num_replicas_in_sync) // self.workers

    @property
    def count(self) -> int:
        """Devices of all processes."""
        return int(self.strategy.num_replicas_in_sync)

    def meet(self) -> None:
        """Wait for the other processes, so that what worker 0 has written is there for all."""
        if self.workers > 1:
            everyone = tf.distribute.get_replica_context
            tf.function(
                lambda: self.strategy.run(
                    lambda: everyone().all_reduce("SUM", tf.constant(1.0)),
                )
            )()

    @contextmanager
    def together(self) -> Iterator[None]:
        """What TensorFlow raises once another process is lost, as one line.

        Raises:
            TrainingError: So it is; this process cannot go on by itself.
        """
        if self.workers == 1:
            yield
            return
        with _as_one_line(self.worker):
            yield

    def dealt(self, parts: tuple[Any, ...]) -> tuple[Any, ...]:
        """A batch of this process, (B, ...) each, as per-device values of equal shares."""
        if self.local == 1:
            return parts

        def share(context: Any, part: Any) -> Any:
            place = context.replica_id_in_sync_group % self.local
            size = part.shape[0] // self.local
            return part[place * size : (place + 1) * size]

        deal = self.strategy.experimental_distribute_values_from_function
        return tuple(deal(lambda context, part=part: share(context, part)) for part in parts)


def choose_devices(settings: TrainSettings) -> Devices:
    """The devices that settings and the environment ask for; before anything else of TensorFlow.

    Raises:
        TrainingError: More devices than there are, a TF_CONFIG that cannot be read, or settings
            that do not go with several machines.
    """
    if os.environ.get("TF_CONFIG"):
        return _several_machines(settings)
    if settings.devices == 1:
        return Devices(tf.distribute.get_strategy(), 0, 1)
    gpus = tf.config.list_logical_devices("GPU") if tf.config.list_physical_devices("GPU") else []
    found = gpus or _cpu_devices(settings.devices)
    if len(found) < settings.devices:
        raise TrainingError(f"devices is {settings.devices}, but there are {len(found)}")
    names = [device.name for device in found[: settings.devices]]
    return Devices(tf.distribute.MirroredStrategy(names), 0, 1)


@contextmanager
def _as_one_line(worker: int) -> Iterator[None]:
    """What TensorFlow raises in one of several processes once another is lost, or not to be had."""
    try:
        yield
    except (
        tf.errors.UnavailableError,
        tf.errors.AbortedError,
        tf.errors.CancelledError,
        tf.errors.DeadlineExceededError,
        # Of one that was started anew and knows nothing of this training.
        tf.errors.FailedPreconditionError,
    ) as exc:
        raise TrainingError(
            f"worker {worker} of TF_CONFIG has lost another one ({type(exc).__name__}); see what "
            "that says, then start all of them again, with --resume RUN if RUN has a checkpoint"
        ) from exc


def _cpu_devices(count: int) -> list[Any]:
    """The processor as several devices, which is for trials only."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    # Once TensorFlow has started it cannot be divided any more, and what there is must do.
    with suppress(RuntimeError):
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * count
        )
    return list(tf.config.list_logical_devices("CPU"))


def _several_machines(settings: TrainSettings) -> Devices:
    try:
        config = json.loads(os.environ["TF_CONFIG"])
        workers, index = config["cluster"]["worker"], int(config["task"]["index"])
        kinds = {*config["cluster"], config["task"]["type"]}
    except (ValueError, KeyError, TypeError) as exc:
        raise TrainingError(f"TF_CONFIG cannot be read: {exc!r}") from None
    if kinds != {"worker"}:
        raise TrainingError(f"TF_CONFIG may have workers only, got {', '.join(sorted(kinds))}")
    if not isinstance(workers, list) or not workers:
        raise TrainingError(f"TF_CONFIG must have a list of workers, got {workers!r}")
    if not 0 <= index < len(workers):
        raise TrainingError(
            f"the index of TF_CONFIG's task must be from 0 to {len(workers) - 1}, got {index}"
        )
    if settings.minutes is not None:
        raise TrainingError("minutes differ between machines; give epochs instead")
    if settings.batch_size % len(workers):
        raise TrainingError(
            f"batch_size must be a multiple of the {len(workers)} workers of TF_CONFIG, got "
            f"{settings.batch_size}"
        )
    # It waits for all the others.
    with _as_one_line(index):
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    devices = Devices(strategy, index, len(workers))
    if settings.batch_size % devices.count:
        raise TrainingError(
            f"batch_size must be a multiple of the {devices.count} devices of all workers, got "
            f"{settings.batch_size}"
        )
    return devices
