"""The state of a training that goes on: every array and number that the next step depends on."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from framewin.errors import TrainingError
from framewin.stores import durable

PROGRESS = "progress"
SPARE_BYTES = 2**24
"""Of a checkpoint beside its arrays: headers and the history."""
_DAMAGE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
    zipfile.BadZipFile,
)


@dataclass(slots=True)
class TrainProgress:
    """Where training stands."""

    epoch: int = 0
    """Epochs that are done."""
    step: int = 0
    """Steps done of the next epoch."""
    seconds: float = 0.0
    """Spent so far."""
    loss_sum: float = 0.0
    """Of the steps done of the next epoch."""
    waited: float = 0.0
    """Seconds that the timed steps of the next epoch waited for their batches."""
    timed: float = 0.0
    """Seconds that those steps took, waiting included; the first ones after a start are not
    timed."""
    waited_before: float = 0.0
    """As `waited`, of all epochs that are done."""
    timed_before: float = 0.0
    """As `timed`, of all epochs that are done."""
    rate: float = 0.0
    """Learning rate of the last step."""
    best_loss: float = float("inf")
    """Least validation loss."""
    best_epoch: int = 0
    """The epoch that had it; 0 before training."""
    finished: bool = False
    history: list[dict[str, float]] = field(default_factory=list)
    """A row per epoch."""

    @property
    def data_wait(self) -> float | None:
        """Share of the time of all timed steps that they waited for batches; None without any."""
        return wait_share(self.waited_before + self.waited, self.timed_before + self.timed)


def wait_share(waited: float, timed: float) -> float | None:
    """Share of a time that was waiting; None where nothing was timed."""
    return round(waited / timed, 5) if timed else None


def save_checkpoint(
    path: Path, progress: TrainProgress, arrays: Mapping[str, Sequence[np.ndarray]]
) -> None:
    """Write a checkpoint that is there whole, or the one before is.

    Args:
        path: An .npz file.
        progress: Where training stands.
        arrays: Groups of arrays, by name.
    """
    text = json.dumps(asdict(progress)).encode()
    members = {PROGRESS: np.frombuffer(text, np.uint8)}
    members |= {f"{g}.{i}": each for g, group in arrays.items() for i, each in enumerate(group)}
    file = io.BytesIO()
    np.savez(file, **members)  # type: ignore[arg-type]
    durable.write_whole(path, file.getvalue())


def load_checkpoint(
    path: Path, shapes: Mapping[str, Sequence[tuple[tuple[int, ...], Any]]]
) -> tuple[TrainProgress, dict[str, list[np.ndarray]]]:
    """Read a checkpoint; nothing in it is unpickled.

    Args:
        path: What `save_checkpoint` wrote.
        shapes: Shape and dtype of the arrays that the model has, by group.

    Raises:
        TrainingError: No checkpoint, a damaged one, or one of another model.
    """
    if not path.is_file():
        raise TrainingError(f"{path} does not exist, so there is nothing to resume; train again")
    expected = sum(np.dtype(d).itemsize * int(np.prod(s)) for g in shapes.values() for s, d in g)
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
        if size > expected + SPARE_BYTES:
            raise ValueError(f"it holds {size:,} bytes, the model has {expected:,}")
        with np.load(path, allow_pickle=False) as file:
            progress = _progress(json.loads(file[PROGRESS].tobytes()))
            arrays = {
                name: [_checked(file[f"{name}.{i}"], want) for i, want in enumerate(group)]
                for name, group in shapes.items()
            }
    except _DAMAGE as exc:
        raise TrainingError(f"{path} is not a checkpoint of this run: {exc}") from None
    return progress, arrays


def _progress(record: Mapping[str, Any]) -> TrainProgress:
    progress, fresh = TrainProgress(**record), TrainProgress()
    for each in fields(TrainProgress):
        value, kind = getattr(progress, each.name), type(getattr(fresh, each.name))
        numbers = [value]
        if kind is list:
            numbers = [number for row in value for number in row.values()] if value else []
        fits = type(value) in ((int, float) if kind is float else (kind,))
        if not fits or any(type(n) not in (int, float, bool) or not n >= 0 for n in numbers):
            raise ValueError(f"{each.name} cannot be {str(value)[:80]!r}")
    return progress


def _checked(array: np.ndarray, want: tuple[tuple[int, ...], Any]) -> np.ndarray:
    if (array.shape, array.dtype) != (tuple(want[0]), np.dtype(want[1])):
        raise ValueError(f"an array is {array.dtype} {array.shape}, not {want[1]} {want[0]}")
    return array
