"""Training a predictor on a store: split, fit, score, show."""

from __future__ import annotations

import json
import math
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import framewin
from framewin.dataset import FrameWindowDataset
from framewin.errors import StoreError, TrainingError
from framewin.forecast.figures import write_gif, write_sheet
from framewin.forecast.settings import TrainSettings
from framewin.forecast.validation import Evaluation, evaluate, examples
from framewin.models import build_convlstm
from framewin.optional import require

FEWEST_VALIDATION_WINDOWS = 5
SHOWN_WINDOWS = 4
WARM_UP_SHARE = 0.05
FINAL_LEARNING_RATE_SHARE = 0.02
GRADIENT_NORM = 1.0

MODEL_FILE = "model.keras"
HISTORY_FILE = "history.csv"
METRICS_FILE = "metrics.json"
SETTINGS_FILE = "run.json"
LOG_FOLDER = "logs"
GIF_FILE = "forecast.gif"
SHEET_FILE = "forecast.png"


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
    """Epochs trained."""
    best_epoch: int
    """The epoch that was kept, from 1; 0 where none beat the untrained model, which repeats the
    last frame."""
    evaluation: Evaluation
    """On the validation part, with the best weights."""
    seconds: float


def train(store: str | Path, out: str | Path, settings: TrainSettings) -> TrainReport:
    """Train an encoder-forecaster ConvLSTM on a store and score it.

    A share of the clips is held back for validation; of a single clip, its last frames, with one
    window span left out before them, and at least what a few windows need.

    Args:
        store: Made by `framewin convert`.
        out: The run folder to make: model.keras (best epoch), history.csv, metrics.json,
            run.json, forecast.gif, forecast.png and logs/ for TensorBoard.
        settings: See `TrainSettings`.

    Raises:
        StoreError: No such store, or `out` exists.
        TrainingError: No window fits into the store, it cannot be split, or the loss became NaN.
        MissingDependencyError: TensorFlow is not installed.
    """
    keras = require("keras", extra="tensorflow")
    require("tensorboard", extra="tensorflow")
    started = time.perf_counter()
    dataset = _open(store, settings)
    split, parts = _split(dataset, settings)
    run = _new_folder(Path(out))
    _write_json(run / SETTINGS_FILE, _run_record(dataset, settings, split))
    keras.utils.set_random_seed(settings.seed % 2**32)
    model = build_convlstm(
        settings.input_frames,
        settings.predict_frames,
        dataset.frame_format,
        filters=settings.filters or 32,
        seed=settings.seed,
    )
    best_epoch, epochs = _fit(model, parts, run, settings)
    model = keras.models.load_model(run / MODEL_FILE, compile=False)
    report = TrainReport(
        run=run,
        split=split,
        windows={name: len(part) for name, part in parts.items()},
        parameters=model.count_params(),
        epochs=epochs,
        best_epoch=best_epoch,
        evaluation=evaluate(model, parts["validation"], batch_size=settings.batch_size),
        seconds=time.perf_counter() - started,
    )
    _write_json(run / METRICS_FILE, _metrics_record(report))
    shown = examples(model, parts["validation"], SHOWN_WINDOWS)
    write_sheet(run / SHEET_FILE, shown)
    write_gif(run / GIF_FILE, shown)
    return report


def _open(store: str | Path, settings: TrainSettings) -> FrameWindowDataset:
    try:
        return FrameWindowDataset(
            store,
            input_frames=settings.input_frames,
            predict_frames=settings.predict_frames,
            frame_step=settings.frame_step,
            window_stride=settings.window_stride,
            lead_gap=settings.lead_gap,
        )
    except ValueError as exc:
        raise TrainingError(f"{store} cannot be trained on: {exc}") from exc


def _split(
    dataset: FrameWindowDataset, settings: TrainSettings
) -> tuple[str, dict[str, FrameWindowDataset]]:
    """By clip where two clips have windows, else by time; and which it was, in words."""
    usable = sum(count > 0 for count in dataset.windows_per_clip().values())
    share = settings.validation_share
    try:
        if usable > 1:
            parts = dataset.split(_fractions(share), by="clip", seed=settings.seed)
            used = len(parts["validation"].windows_per_clip())
            return f"by clip, {used} of {usable} clips for validation", parts
        share = max(share, _least_share(dataset))
        parts = dataset.split(_fractions(share), by="time")
    except ValueError as exc:
        raise TrainingError(f"{dataset.path} cannot be split: {exc}") from exc
    left_out = f"{dataset.spec.span} frames before it left out"
    return f"by time, last {share:.0%} for validation, {left_out}", parts


def _fractions(validation_share: float) -> dict[str, float]:
    return {"train": 1 - validation_share, "validation": validation_share}


def _least_share(dataset: FrameWindowDataset) -> float:
    """Of a short clip, what a few validation windows need, but no more than half."""
    spec = dataset.spec
    needed = spec.span + (FEWEST_VALIDATION_WINDOWS - 1) * spec.window_stride
    return min(0.5, needed / max(1, dataset.clips.num_frames - spec.span))


def _fit(
    model: Any, parts: Mapping[str, FrameWindowDataset], run: Path, settings: TrainSettings
) -> tuple[int, int]:
    """Train and leave the best epoch's model in the run folder.

    The untrained model repeats the last frame; it is scored and saved as epoch 0, so that a
    training that never beats this baseline is not kept.

    Returns:
        The best epoch and the number of epochs trained.
    """
    keras = require("keras", extra="tensorflow")
    train = _batches(parts["train"], settings, shuffle=True)
    validation = _batches(parts["validation"], settings, shuffle=False)
    steps = int(train.cardinality()) * settings.most_epochs
    model.compile(
        optimizer=keras.optimizers.Adam(
            _learning_rates(settings.learning_rate, steps), global_clipnorm=GRADIENT_NORM
        ),
        loss="mse",
        metrics=["mae"],
        jit_compile=False,
    )
    # An optimizer without its variables could be saved, but not loaded again.
    model.optimizer.build(model.trainable_variables)
    untrained = model.evaluate(validation, verbose=0, return_dict=True)["loss"]
    model.save(run / MODEL_FILE)
    callbacks = [
        keras.callbacks.ModelCheckpoint(
            run / MODEL_FILE,
            monitor="val_loss",
            save_best_only=True,
            initial_value_threshold=untrained,
        ),
        keras.callbacks.CSVLogger(run / HISTORY_FILE),
        keras.callbacks.TensorBoard(run / LOG_FOLDER, write_graph=False),
        keras.callbacks.TerminateOnNaN(),
    ]
    history = model.fit(
        train,
        validation_data=validation,
        epochs=settings.most_epochs,
        callbacks=callbacks,
        shuffle=False,  # the dataset does it
        verbose=1 if sys.stdout.isatty() else 2,
    )
    losses = [untrained, *history.history.get("val_loss", [])]
    if len(losses) <= settings.most_epochs or any(math.isnan(loss) for loss in losses):
        raise TrainingError(
            f"the loss became NaN in epoch {len(history.epoch)}; try a lower --learning-rate "
            f"than {settings.learning_rate:g}"
        )
    return losses.index(min(losses)), len(history.epoch)


def _batches(part: FrameWindowDataset, settings: TrainSettings, *, shuffle: bool) -> Any:
    """Inputs as stored, for the model to scale, and targets in unit scale, for the loss."""
    from framewin.adapters.tf_data import unit

    batches = part.to_tf_dataset(
        batch_size=settings.batch_size, shuffle=shuffle, seed=settings.seed
    )
    return batches.map(lambda inputs, targets: (inputs, unit(targets)))


def _learning_rates(peak: float, steps: int) -> Any:
    """Up to the peak in the first twentieth of the steps, then down along a cosine."""
    keras = require("keras", extra="tensorflow")
    warm_up = max(1, round(WARM_UP_SHARE * steps))
    return keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=FINAL_LEARNING_RATE_SHARE * peak,
        decay_steps=max(1, steps - warm_up),
        alpha=FINAL_LEARNING_RATE_SHARE,
        warmup_target=peak,
        warmup_steps=warm_up,
    )


def _new_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        raise StoreError(f"{path} exists already; remove it or choose another --out") from None
    except OSError as exc:
        raise StoreError(f"{path} cannot be made: {exc.strerror}") from exc
    return path


def _run_record(dataset: FrameWindowDataset, settings: TrainSettings, split: str) -> dict[str, Any]:
    packages = ("tensorflow", "keras", "numpy")
    return {
        "store": str(dataset.path.resolve()),
        "frames": dataset.clips.num_frames,
        "frame": str(dataset.frame_format),
        "split": split,
        "settings": asdict(settings),
        "versions": {
            "framewin": framewin.__version__,
            "python": platform.python_version(),
            **{name: version(name) for name in packages},
        },
    }


def _metrics_record(report: TrainReport) -> dict[str, Any]:
    evaluation = report.evaluation
    return {
        "validation_windows": evaluation.windows,
        "epochs": report.epochs,
        "best_epoch": report.best_epoch,
        "parameters": report.parameters,
        "skill": evaluation.skill,
        "model": _finite(asdict(evaluation.model)),
        "last_frame": _finite(asdict(evaluation.last_frame)),
    }


def _finite(scores: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: the PSNR of a perfect forecast is written as null."""
    return {name: None if value == math.inf else value for name, value in scores.items()}


def _write_json(path: Path, record: dict[str, Any]) -> None:
    path.write_text(json.dumps(record, indent=2, allow_nan=False) + "\n")
