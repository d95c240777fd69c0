"""Training end to end on small stores: what a run leaves, and what it refuses."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import imageio.v3 as iio
import numpy as np
import pytest

from framewin import FrameWindowDataset, StoreError, TrainingError, convert
from framewin.forecast.train import TrainSettings, train
from framewin.forecast.validation import evaluate
from tests.conftest import MakeClips, import_or_skip, write_frames

pytestmark = [
    pytest.mark.usefixtures("tf"),
    # Keras and TensorFlow warn of their own ways of calling each other.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
SETTINGS = TrainSettings(input_frames=3, predict_frames=2, epochs=2, batch_size=4, filters=4)


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


def test_a_run_folder_is_complete(tmp_path: Path) -> None:
    """Model, history, settings, scores, log and pictures, and numbers that agree."""
    keras = import_or_skip("keras")
    store = moving_store(tmp_path, clips=5)
    report = train(store, tmp_path / "runs" / "first", SETTINGS)
    run = tmp_path / "runs" / "first"
    assert sorted(path.name for path in run.iterdir()) == [
        "forecast.gif",
        "forecast.png",
        "history.csv",
        "logs",
        "metrics.json",
        "model.keras",
        "run.json",
    ]
    assert report.windows == {"train": 32, "validation": 8}
    assert report.split == "by clip, 1 of 5 clips for validation"
    with (run / "history.csv").open() as file:
        history = list(csv.DictReader(file))
    assert [row["epoch"] for row in history] == ["0", "1"]
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["model"]["mse"] == report.evaluation.model.mse
    # The kept model is the best epoch's, and scores as Keras said it did.
    best = min(float(row["val_loss"]) for row in history)
    assert metrics["model"]["mse"] == pytest.approx(best, rel=1e-3)
    ds = FrameWindowDataset(store, input_frames=3, predict_frames=2)
    validation = ds.split({"train": 0.8, "validation": 0.2}, seed=0)["validation"]
    again = evaluate(keras.models.load_model(run / "model.keras"), validation, batch_size=3)
    assert again.model.mse == pytest.approx(report.evaluation.model.mse, rel=1e-6)
    settings = json.loads((run / "run.json").read_text())
    assert settings["settings"]["epochs"] == 2
    assert len(iio.imread(run / "forecast.gif")) == 5
    assert list((run / "logs").rglob("events.*"))


def test_the_same_seed_trains_the_same_model(tmp_path: Path) -> None:
    """Split, order and weights come from the seed alone."""
    store = moving_store(tmp_path, clips=4)
    first, second = (train(store, tmp_path / name, SETTINGS) for name in ("one", "two"))
    assert first.evaluation.model.mse == pytest.approx(second.evaluation.model.mse, rel=1e-5)


def test_one_clip_is_split_by_time(tmp_path: Path) -> None:
    """The last fifth validates, with one window span left out before it."""
    store = moving_store(tmp_path, clips=1, frames=60)
    report = train(store, tmp_path / "run", replace(SETTINGS, epochs=1))
    assert report.split == "by time, last 20% for validation, 5 frames before it left out"
    assert report.windows == {"train": 40, "validation": 7}


def test_a_short_clip_still_has_validation_windows(tmp_path: Path) -> None:
    """Of 30 frames, a fifth would leave one window; the share grows to five."""
    store = moving_store(tmp_path, clips=1, frames=30)
    report = train(store, tmp_path / "run", replace(SETTINGS, epochs=1))
    assert report.split == "by time, last 36% for validation, 5 frames before it left out"
    assert report.windows == {"train": 12, "validation": 5}


def test_a_model_that_never_beats_the_last_frame_is_not_kept(tmp_path: Path) -> None:
    """Frames of noise: the untrained model, which repeats the last frame, is epoch 0."""
    rng = np.random.default_rng(0)
    still = rng.integers(0, 255, (8, 8, 1)).astype(np.uint8)
    for clip in range(3):
        write_frames(tmp_path / "still" / f"c{clip}", {f"{n}.png": still for n in range(8)})
    convert(tmp_path / "still", tmp_path / "still.zarr")
    report = train(tmp_path / "still.zarr", tmp_path / "run", replace(SETTINGS, epochs=1))
    assert report.best_epoch == 0
    import_or_skip("keras").models.load_model(tmp_path / "run" / "model.keras")
    assert report.evaluation.model.mse == pytest.approx(0, abs=1e-9)
    metrics = (tmp_path / "run" / "metrics.json").read_text()
    assert json.loads(metrics)["last_frame"]["psnr_of_mean_mse"] is None


def test_refusals(tmp_path: Path, make_store: MakeClips) -> None:
    """One line each, and no run folder is left behind."""
    store = make_store({"a": range(6)})
    run = tmp_path / "run"
    for settings, message in (
        (replace(SETTINGS, input_frames=9), "cannot be trained on: no window fits, each spans 11"),
        (SETTINGS, "cannot be split: no window fits into the train part: a window"),
    ):
        with pytest.raises(TrainingError, match=re.escape(message)):
            train(store, run, settings)
    with pytest.raises(StoreError, match="does not exist; expected a store made by"):
        train(tmp_path / "none.zarr", run, SETTINGS)
    assert not run.exists()
    run.mkdir()
    with pytest.raises(StoreError, match=re.escape("run exists already; remove it or choose")):
        train(moving_store(tmp_path, clips=2), run, SETTINGS)
    assert not list(run.iterdir())


def test_a_loss_that_is_no_number_stops(tmp_path: Path) -> None:
    """With the epoch and the remedy."""
    store = moving_store(tmp_path, clips=3)
    message = "the loss became NaN in epoch 1; try a lower --learning-rate than 1e+30"
    with pytest.raises(TrainingError, match=re.escape(message)):
        train(store, tmp_path / "run", replace(SETTINGS, learning_rate=1e30))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "epochs must be >= 1, got 0"),
        ({"batch_size": 0}, "batch_size must be >= 1, got 0"),
        ({"filters": 0}, "filters must be >= 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0, got 0.0"),
        ({"validation_share": 1.0}, "validation_share must be between 0 and 1, got 1.0"),
    ],
)
def test_bad_settings(change: dict, message: str) -> None:
    """The message names the setting and the value."""
    with pytest.raises(ValueError, match=re.escape(message)):
        TrainSettings(**change)
