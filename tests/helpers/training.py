"""Small stores and models to train and score."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framewin import convert
from framewin.forecast.runs import Run, load_run
from framewin.forecast.train import TrainSettings
from tests.conftest import MakeClips, write_frames
from tests.helpers.runs import make_run

SETTINGS = TrainSettings(
    input_frames=3,
    predict_frames=2,
    model="convlstm",
    filters=4,
    layers=1,
    epochs=2,
    batch_size=4,
    test_share=0.2,
)


def moving_store(tmp_path: Path, clips: int, frames: int = 12) -> Path:
    """A bright column that moves one pixel a frame: worth predicting."""
    for clip in range(clips):
        pictures = {}
        for n in range(frames):
            picture = np.zeros((8, 8, 1), np.uint8)
            picture[:, (n + 3 * clip) % 8] = 250
            pictures[f"{n}.png"] = picture
        write_frames(tmp_path / "moving" / f"clip{clip}", pictures)
    convert(tmp_path / "moving", tmp_path / "moving.zarr")
    return tmp_path / "moving.zarr"


SHAPE = (12, 14, 1)


CLIPS = {name: range(12) for name in "abcdefgh"}


class Fake:
    """A model whose forecasts are a function of its inputs in unit scale."""

    def __init__(self, forecast: Callable[[np.ndarray], np.ndarray], steps: int = 2) -> None:
        self.forecast = forecast
        self.output_shape = (None, steps)

    def predict_on_batch(self, inputs: np.ndarray) -> np.ndarray:
        return self.forecast(inputs / 255).astype(np.float32)


def with_model(folder: Path, model: Any) -> Run:
    run = load_run(folder)
    run.__dict__["model"] = model
    return run


@pytest.fixture
def run(make_store: MakeClips, tmp_path: Path) -> Path:
    """A run whose model repeats the last frame, on eight clips, two of them for testing."""
    return make_run(tmp_path / "run", make_store(CLIPS, shape=SHAPE))
