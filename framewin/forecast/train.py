"""Training a predictor on a store: split, fit, score, show."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import framewin
from framewin.adapters.tf_data import unit
from framewin.dataset import FrameWindowDataset
from framewin.errors import StoreError, TrainingError
from framewin.forecast.evaluate import Evaluation, evaluate, examples
from framewin.forecast.figures import write_gif, write_sheet
from framewin.models import build_convlstm
from framewin.optional import require

VALIDATION_SHARE = 0.2
SHEET_WINDOWS = 4

MODEL_FILE = "model.keras"
HISTORY_FILE = "history.csv"
METRICS_FILE = "metrics.json"
SETTINGS_FILE = "run.json"
LOG_FOLDER = "logs"
GIF_FILE = "forecast.gif"
SHEET_FILE = "forecast.png"


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How a predictor is trained; each field is an option of `framewin train`."""

    input_frames: int = 5
    predict_frames: int = 5
    frame_step: int = 1
    window_stride: int = 1
    lead_gap: int = 0
    epochs: int = 20
    batch_size: int = 8
    learning_rate: float = 1e-3
    filters: int = 48
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "filters"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be above 0, got {self.learning_rate}")


@dataclass(frozen=True, slots=True, eq=False)
class TrainReport:
    """A finished run."""

    run: Path
    """Folder with everything below."""
    split: str
    """How training and validation were kept apart, in words."""
    windows: Mapping[str, int]
    """Part name to number of windows."""
    parameters: int
    """Trained weights of the model."""
    epochs: int
    """Epochs trained, the best of which was kept."""
    evaluation: Evaluation
    """On the validation part, with the best weights."""
    seconds: float


def train(store: str | Path, out: str | Path, settings: TrainSettings) -> TrainReport:
    """Train an encoder-forecaster ConvLSTM on a store and score it.

    One fifth of the clips is held back for validation; of a single clip, its last fifth, with
    one window span left out before it.

    Args:
        store: Made by `framewin convert`.
        out: The run folder to make: model.keras (best epoch), history.csv, metrics.json,
            run.json, forecast.gif, forecast.png and logs/ for TensorBoard.
        settings: See `TrainSettings`.

    Raises:
        StoreError: No such store, or `out` exists.
        TrainingError: The store cannot be split, or the loss is no number.
        ValueError: A setting out of range, or no window fits into the store.
        MissingDependencyError: TensorFlow is not installed.
    """
    keras = require("keras", extra="tensorflow")
    require("tensorboard", extra="tensorflow")
    started = time.perf_counter()
    dataset = FrameWindowDataset(
        store,
        input_frames=settings.input_frames,
        predict_frames=settings.predict_frames,
        frame_step=settings.frame_step,
        window_stride=settings.window_stride,
        lead_gap=settings.lead_gap,
    )
    split, parts = _split(dataset, settings.seed)
    run = _new_folder(Path(out))
    _write_json(run / SETTINGS_FILE, _run_record(store, settings, split))
    keras.utils.set_random_seed(settings.seed % 2**32)
    model = build_convlstm(
        settings.input_frames,
        settings.predict_frames,
        dataset.frame_format,
        filters=settings.filters,
    )
    epochs = _fit(model, parts, run, settings)
    model = keras.models.load_model(run / MODEL_FILE)
    evaluation = evaluate(model, parts["validation"], batch_size=settings.batch_size)
    report = TrainReport(
        run=run,
        split=split,
        windows={name: len(part) for name, part in parts.items()},
        parameters=model.count_params(),
        epochs=epochs,
        evaluation=evaluation,
        seconds=time.perf_counter() - started,
    )
    _write_json(run / METRICS_FILE, _metrics_record(report))
    shown = examples(model, parts["validation"], SHEET_WINDOWS)
    write_sheet(run / SHEET_FILE, shown)
    write_gif(run / GIF_FILE, shown)
    return report
