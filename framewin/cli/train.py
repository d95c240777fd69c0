"""`framewin train`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from framewin.cli.output import print_rows, usage_errors
from framewin.optional import require

if TYPE_CHECKING:
    from framewin.forecast.train import TrainReport


def train(
    store: Annotated[Path, typer.Argument(help="Store made by framewin convert.")],
    input_frames: Annotated[int, typer.Option(min=1, help="Frames the predictor sees.")] = 5,
    predict_frames: Annotated[int, typer.Option(min=1, help="Frames it predicts.")] = 5,
    frame_step: Annotated[
        int, typer.Option(min=1, help="Distance between neighbouring frames of a window.")
    ] = 1,
    window_stride: Annotated[
        int, typer.Option(min=1, help="Distance between the starts of neighbouring windows.")
    ] = 1,
    lead_gap: Annotated[
        int, typer.Option(min=0, help="Frames skipped between inputs and predictions.")
    ] = 0,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training windows.")] = 12,
    batch_size: Annotated[int, typer.Option(min=1, help="Windows per step.")] = 8,
    learning_rate: Annotated[float, typer.Option(help="Peak of the schedule.")] = 2e-3,
    filters: Annotated[int, typer.Option(min=1, help="Channels of each ConvLSTM layer.")] = 32,
    seed: Annotated[
        int, typer.Option(min=0, help="Of the split, the order and the initial weights.")
    ] = 0,
    validation_share: Annotated[
        float, typer.Option(help="Share of the clips, or of a single clip's frames, held back.")
    ] = 0.2,
    out: Annotated[
        Path | None, typer.Option(help="Run folder to make.", show_default="runs/STORE-TIME")
    ] = None,
) -> None:
    """Train a ConvLSTM on a store, score it beside the last frame, and show its forecasts."""
    from framewin.process import keep_freed_memory

    keep_freed_memory()
    import_tensorflow_quietly()
    from framewin.forecast.train import TrainSettings
    from framewin.forecast.train import train as run_training

    with usage_errors():
        settings = TrainSettings(
            input_frames=input_frames,
            predict_frames=predict_frames,
            frame_step=frame_step,
            window_stride=window_stride,
            lead_gap=lead_gap,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            filters=filters,
            seed=seed,
            validation_share=validation_share,
        )
    stamp = time.strftime("%Y%m%d-%H%M%S")
    report = run_training(store, out or Path("runs", f"{store.stem}-{stamp}"), settings)
    _print_training(report)


def import_tensorflow_quietly() -> None:
    """Import TensorFlow without its notes about missing GPUs and CPU features."""
    from framewin.process import silenced

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with silenced():
        require("tensorflow", extra="tensorflow")


def _print_training(report: TrainReport) -> None:
    from framewin.forecast import train as files

    evaluation = report.evaluation
    print()
    print(f"{evaluation.windows} validation windows, {'model':>15} {'last frame':>12}")
    for label, name, digits in (
        ("MSE, unit scale", "mse", 5),
        ("MAE, unit scale", "mae", 5),
        ("PSNR of mean MSE, dB", "psnr_of_mean_mse", 2),
    ):
        values = (getattr(scores, name) for scores in (evaluation.model, evaluation.last_frame))
        model, last_frame = (f"{value:.{digits}f}" for value in values)
        print(f"{label:24} {model:>15} {last_frame:>12}")
    leads = zip(
        evaluation.model.mse_per_lead_time, evaluation.last_frame.mse_per_lead_time, strict=True
    )
    for lead, (model_mse, last_mse) in enumerate(leads, start=1):
        print(f"{f'  MSE of frame +{lead}':24} {model_mse:15.5f} {last_mse:12.5f}")
    print()
    windows = ", ".join(f"{count} {name}" for name, count in report.windows.items())
    kept = f"epoch {report.best_epoch} of {report.epochs}"
    if report.best_epoch == 0:
        kept = f"none of {report.epochs} epochs beat the last frame; kept the untrained model"
    print_rows(
        [
            ("skill", f"{evaluation.skill:.1%} of the last frame's MSE removed"),
            ("windows", f"{windows}; {report.split}"),
            ("model", f"{report.parameters:,} weights, {kept}"),
            ("time", f"{report.seconds:.0f} s"),
            ("forecast", f"{report.run / files.GIF_FILE}"),
            ("", f"{report.run / files.SHEET_FILE}"),
            ("run folder", f"{report.run}"),
            ("curves", f"tensorboard --logdir {report.run / files.LOG_FOLDER}"),
        ]
    )
