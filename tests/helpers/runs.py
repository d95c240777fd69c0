"""Run folders without training, for what is done with trained models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from framewin import FrameWindowDataset
from framewin.forecast.runs import (
    RUN_FILE,
    SPLIT_FILE,
    WEIGHTS_FILE,
    run_record,
    save_weights,
    write_json,
)
from framewin.forecast.settings import TrainSettings


def make_run(
    folder: Path,
    store: Path,
    parts: dict[str, Any] | None = None,
    *,
    by: str = "clip",
    options: dict[str, Any] | None = None,
    **settings: Any,
) -> Path:
    """A run folder as `framewin train` leaves it, with the model as it is before training."""
    from framewin.models import build_model

    settings = {"model": "persistence", "input_frames": 3, "predict_frames": 2, **settings}
    chosen = TrainSettings(**settings)
    dataset = FrameWindowDataset(store, **chosen.window)
    folder.mkdir(parents=True)
    shares = parts or {"train": 0.5, "validation": 0.25, "test": 0.25}
    dataset.split(shares, by=by, seed=0).save(folder / SPLIT_FILE)
    model = build_model(
        chosen.model,
        chosen.input_frames,
        chosen.predict_frames,
        dataset.frame_format,
        options or {},
    )
    save_weights(model, folder / WEIGHTS_FILE)
    used = {"name": chosen.model, "options": options or {}}
    write_json(folder / RUN_FILE, run_record(dataset, chosen, used, {"keras": "3"}, by))
    return folder
