"""Batches as torch tensors, in an order that does not depend on the number of workers.

`DataLoader(ds, batch_size=8)` reads a dataset as it is, too, in torch's own order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from framewin.optional import require

if TYPE_CHECKING:
    from framewin.batches import Batches

torch = require("torch", extra="torch")
data = require("torch.utils.data", extra="torch")


class TorchBatches(data.IterableDataset):  # type: ignore[name-defined]
    """Whole batches of one epoch; workers of a DataLoader take turns."""

    def __init__(self, batches: Batches, *, channels_first: bool = False) -> None:
        """Read nothing yet; see `to_torch_loader`."""
        super().__init__()
        self.batches = batches
        self.channels_first = channels_first
        # Shared, so that workers that stay alive between the epochs see it change.
        self._epoch = torch.tensor(batches.start_epoch).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next pass is."""
        self._epoch.fill_(epoch)

    def _first_step(self, epoch: int) -> int:
        return self.batches.start_step if epoch == self.batches.start_epoch else 0

    def __len__(self) -> int:
        return self.batches.steps_per_epoch - self._first_step(int(self._epoch))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        epoch = int(self._epoch)
        worker = data.get_worker_info()
        place, count = (0, 1) if worker is None else (worker.id, worker.num_workers)
        first = self._first_step(epoch) + place
        for step in range(first, self.batches.steps_per_epoch, count):
            yield tuple(self._tensors(part) for part in self.batches.batch(epoch, step))

    def _tensors(self, part: Any) -> Any:
        if isinstance(part, dict):
            return {name: self._tensors(frames) for name, frames in part.items()}
        tensor = _tensor(part)
        # Weights have no channels.
        if self.channels_first and tensor.ndim == 5:
            return tensor.permute(0, 1, 4, 2, 3).contiguous()
        return tensor


class WindowLoader(data.DataLoader):  # type: ignore[name-defined]
    """A DataLoader of which each pass is the next epoch."""

    def __init__(self, batches: TorchBatches, **options: Any) -> None:
        super().__init__(batches, batch_size=None, **options)
        self._next_epoch = batches.batches.start_epoch

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        self.dataset.set_epoch(self._next_epoch)
        self._next_epoch += 1
        passes: Iterator[tuple[Any, ...]] = super().__iter__()
        return passes


def to_torch_loader(
    batches: Batches,
    *,
    channels_first: bool = False,
    num_workers: int = 0,
    persistent_workers: bool | None = None,
    pin_memory: bool = False,
    prefetch_factor: int | None = None,
) -> WindowLoader:
    """A DataLoader of whole batches, each pass the next epoch.

    Args:
        batches: What an epoch consists of.
        channels_first: Give (B, T, C, H, W) instead of (B, T, H, W, C).
        num_workers: Processes that make batches; they are spawned, because a fork of a process
            with threads, such as TensorFlow's, may hang. Raw stores rarely need any.
        persistent_workers: Keep them between epochs; by default where there are any.
        pin_memory: As for torch's DataLoader.
        prefetch_factor: As for torch's DataLoader.

    Raises:
        ValueError: Batches of several epochs.
        MissingDependencyError: torch is not installed.
    """
    batches.refuse_epochs()
    kept = num_workers > 0 if persistent_workers is None else persistent_workers
    return WindowLoader(
        TorchBatches(batches, channels_first=channels_first),
        num_workers=num_workers,
        persistent_workers=kept,
        pin_memory=pin_memory,
        prefetch_factor=prefetch_factor,
        multiprocessing_context="spawn" if num_workers else None,
    )


def _tensor(array: np.ndarray) -> Any:
    if array.dtype.name == "bfloat16":
        # torch does not know numpy's bfloat16, but the bits are the same.
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(array))
