"""What TensorBoard shows of a run: curves, and forecasts below the truth."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from framewin.optional import require
from framewin.pictures.figures import NO_DATA

if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = require("tensorflow", extra="tensorflow")

SHOWN = 3
MOST_PIXELS = 128
"""Of a frame's longer side in a picture, about."""


class Board:
    """Event files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._writer = tf.summary.create_file_writer(str(folder))
        self._folder = folder

    def scalars(self, values: dict[str, float], epoch: int) -> None:
        """A point of each curve."""
        with self._written():
            for name, value in values.items():
                tf.summary.scalar(name, value, step=epoch)

    def forecasts(self, shown: tuple[np.ndarray, np.ndarray, np.ndarray], epoch: int) -> None:
        """Pictures of windows: inputs and truth above, forecasts below.

        Args:
            shown: Inputs, truth and forecasts in unit scale, (N, T, H, W, C) each.
            epoch: That the forecasts are of.
        """
        with self._written():
            tf.summary.image("forecast", picture(*shown), step=epoch, max_outputs=SHOWN)

    def close(self) -> None:
        """Write what is left."""
        with self._written():
            self._writer.close()

    @contextmanager
    def _written(self) -> Iterator[None]:
        """What is logged in the block, as far as the disk has room for it."""
        try:
            with self._writer.as_default():
                yield
            self._writer.flush()
        except tf.errors.OpError as exc:
            raise OSError(errno.EIO, " ".join(exc.message.split()), str(self._folder)) from exc


def picture(inputs: np.ndarray, truth: np.ndarray, forecasts: np.ndarray) -> np.ndarray:
    """Rows of frames side by side: inputs and truth above, blanks and forecasts below.

    Args:
        inputs: Unit scale, (N, T_in, H, W, C); large frames are thinned.
        truth: (N, T_out, H, W, C).
        forecasts: (N, T_out, H, W, C).

    Returns:
        float32 in 0..1, (N, 2 h, (T_in + T_out) w, 1 or 3). NaN has the colour of no data.
    """
    thin = max(1, max(inputs.shape[2:4]) // MOST_PIXELS)
    colours = 3 if inputs.shape[-1] >= 3 else 1
    above = np.concatenate([inputs, truth], axis=1)
    below = np.concatenate([np.zeros_like(inputs), forecasts], axis=1)
    rows = np.stack([above, below], axis=1)[:, :, :, ::thin, ::thin, :colours]
    count, _, time, height, width, _ = rows.shape
    flat = rows.transpose(0, 1, 3, 2, 4, 5).reshape(count, 2 * height, time * width, colours)
    clipped: np.ndarray = np.clip(flat, 0, 1).astype(np.float32)
    missing = np.isnan(clipped).any(axis=-1, keepdims=True)
    colour = np.divide(NO_DATA, 255, dtype=np.float32)
    return np.where(missing, colour, clipped) if missing.any() else clipped
