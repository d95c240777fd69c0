"""The PyDataset over PNG files that people write; importable, as its worker processes need it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from framewin.bench.scene import Plan, Scene
from framewin.optional import require

keras = require("keras", extra="tensorflow")

Transform = Callable[[np.ndarray], np.ndarray]
QUEUED_BATCHES = 10


class PngSequence(keras.utils.PyDataset):  # type: ignore[name-defined]
    """Batches decoded frame by frame; without end, so that workers are started once."""

    def __init__(self, scene: Scene, transform: Transform | None = None, **workers: Any) -> None:
        super().__init__(max_queue_size=QUEUED_BATCHES, **workers)
        self.plan: Plan = scene.plan
        self.files, self.shape = scene.files, scene.frame_shape
        self.transform = transform

    @property
    def num_batches(self) -> None:
        """No end."""
        return

    def __getitem__(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs (B, T_in, H, W, C) and targets (B, T_out, H, W, C)."""
        windows = [self._window(start) for start in self.plan.batch_starts(step).tolist()]
        batch = np.stack(windows)
        return batch[:, : self.plan.input_frames], batch[:, self.plan.input_frames :]

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


class AlbumentationsFlip:
    """Half of the windows mirrored left to right, all frames of a window alike."""

    def __init__(self) -> None:
        import albumentations

        self._compose = albumentations.Compose([albumentations.HorizontalFlip(p=0.5)])

    def __call__(self, window: np.ndarray) -> np.ndarray:
        """(T, H, W, C) to the same."""
        flipped: np.ndarray = self._compose(images=window)["images"]
        return np.ascontiguousarray(flipped).reshape(window.shape)
