"""`framewin train`: its options are the settings, and it runs users' models."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from framewin import StoreError, TrainingError
from framewin.cli import app
from framewin.forecast.settings import TrainSettings
from tests.helpers.training import moving_store

pytestmark = [
    pytest.mark.usefixtures("tf"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
QUICK = ["--input-frames", "3", "--predict-frames", "2", "--epochs", "1", "--batch-size", "4"]
SMALL = ["--model", "convlstm", "--filters", "2", "--layers", "1"]

OWN_MODELS = """
import keras

def build(kernel, input_frames, frame_format):
    x = frames = keras.Input((input_frames, *frame_format.shape), dtype=frame_format.dtype)
    x = keras.layers.Rescaling(1 / 255)(x)
    x = keras.layers.ConvLSTM2D(2, 3, padding="same", return_sequences=True)(x)
    x = keras.layers.Conv3D(1, kernel, padding="same", activation="sigmoid", name="last")(x)
    return keras.Model(frames, x)

def leaky(input_frames, predict_frames, frame_format):
    return build((3, 3, 3), input_frames, frame_format)

def causal(input_frames, predict_frames, frame_format):
    return build((1, 3, 3), input_frames, frame_format)
"""


def run(*arguments: object) -> Any:
    """The command in this process; what it raises on purpose is raised."""
    result = CliRunner().invoke(app, ["train", *map(str, arguments)], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def settings_of(folder: Path) -> dict[str, object]:
    return json.loads((folder / "run.json").read_text())["settings"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_training_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """With exit code 130 or 143; the command that it names ends the work."""
    store, out = moving_store(tmp_path, clips=4, frames=10), tmp_path / "run"
    with monkeypatch.context() as stopped:
        stopped.setattr(
            "framewin.forecast.fitting.Fit.train", lambda _: os.kill(os.getpid(), number)
        )
        result = run(store, "--out", out, *QUICK, *SMALL)
    assert result.exit_code == 128 + number
    last = result.stderr.splitlines()[-1]
    assert last == f"framewin: stopped; go on with framewin train --resume {out}"
    lock = out / "framewin.lock"
    assert not lock.exists()
    lock.write_text(json.dumps({"pid": 12, "host": "elsewhere", "machine": "m", "boot": "b"}))
    with pytest.raises(StoreError, match=re.escape(f"if it has ended, remove {lock}")):
        run("--resume", out)
    lock.unlink()
    assert run("--resume", out).exit_code == 0
    assert (out / "metrics.json").exists()


def test_every_setting_is_an_option_with_its_default() -> None:
    """The command has no defaults of its own."""
    text = run("--help").output
    for name, field in TrainSettings.__dataclass_fields__.items():
        _, found, after = text.partition(f"--{name.replace('_', '-')} ")
        assert found, name
        words = {value: word for word, value in field.metadata.get("words", {}).items()}
        if field.default not in (None, False):
            default = words.get(field.default, field.default)
            assert f"[default: {default}" in after.partition("  --")[0], name


def test_a_run_is_repeated_by_its_config(tmp_path: Path) -> None:
    """With all its settings, but for those that are given."""
    store = moving_store(tmp_path, clips=3)
    first = run(store, *QUICK, *SMALL, "--test-share", 0, "--out", tmp_path / "one")
    assert "8 validation windows" in first.output
    assert "model       convlstm, filters 2, layers 1, patch size 1, dropout 0.0" in first.output
    config = tmp_path / "one" / "run.json"
    changed = ("--seed", 5, "--shuffle", "Blocks", "--read-ahead", 2)
    run("--config", config, *changed, "--out", tmp_path / "two")
    one, two = settings_of(tmp_path / "one"), settings_of(tmp_path / "two")
    for name, was, given in (("seed", 0, 5), ("shuffle", True, "blocks"), ("read_ahead", 0, 2)):
        assert (one.pop(name), two.pop(name)) == (was, given)
    assert one == two


def test_a_run_of_before_there_were_these_settings(tmp_path: Path) -> None:
    """A run.json without shuffle and read_ahead means what was done then."""
    store = moving_store(tmp_path, clips=3)
    still = ("--model", "persistence", "--out")
    run(store, *QUICK, "--shuffle", "blocks", "--read-ahead", 2, *still, tmp_path / "old")
    run("--config", tmp_path / "old", "--shuffle", "true", "--out", tmp_path / "true")
    assert settings_of(tmp_path / "true")["shuffle"] is True
    assert settings_of(tmp_path / "true")["read_ahead"] == 2
    record = json.loads((tmp_path / "old" / "run.json").read_text())
    del record["settings"]["shuffle"], record["settings"]["read_ahead"]
    (tmp_path / "old" / "run.json").write_text(json.dumps(record))
    run("--config", tmp_path / "old", "--out", tmp_path / "new")
    assert settings_of(tmp_path / "new")["shuffle"] is True
    assert settings_of(tmp_path / "new")["read_ahead"] == 0


def test_lead_times_count_the_gap(tmp_path: Path) -> None:
    """Regression: after a gap of two frames the first predicted one was called +1."""
    store = moving_store(tmp_path, clips=3)
    common = ("--model", "persistence", "--lead-gap", 2, "--out", tmp_path / "run")
    result = run(store, *QUICK, *common)
    found = re.findall(r"MSE of frame (\+\d)", result.output)
    assert found == ["+3", "+4"]


def test_a_next_frame_model_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before training if it sees ahead, else rolled out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "next_models.py").write_text(OWN_MODELS)
    store = moving_store(tmp_path, clips=3)
    common = (store, *QUICK, "--next-frame", "--out", tmp_path / "run")
    message = (
        "next_models:leaky is not causal: output frame 0 depends on input frame 1, which may be "
        "the frame that it predicts; the first layer that reaches ahead is last (Conv3D with a "
        "kernel of (3, 3, 3))"
    )
    with pytest.raises(TrainingError, match=re.escape(message)):
        run(*common, "--model", "next_models:leaky")
    assert not (tmp_path / "run").exists()
    result = run(*common, "--model", "next_models:causal")
    assert "MSE of frame +2" in result.output
    assert (tmp_path / "run" / "model.keras").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give a STORE, or --config or --resume"),
        (("--resume", "run", "--seed", "1"), "--resume goes on with the settings of the run; giv"),
        (("clips.zarr", "--resume", "run"), "--resume goes on with the settings of the run; giv"),
        (("clips.zarr", "--loss", "mde"), "loss must be one of mse, mae, mae+mse, bce, ssim, g"),
        (("clips.zarr", "--model", "unet"), "model must be one of convlstm, convlstm-residual,"),
        (
            ("--config", "run/edited.json"),
            "must be a run folder or its run.json, got run/edited.jso",
        ),
        (
            ("clips.zarr", "--split", "a.json", "--test-share", "0.1"),
            "the split file says the parts; leave --test-share out",
        ),
        (
            ("clips.zarr", "--model", "persistence", "--loss", "ssim"),
            "persistence has nothing to train; leave --loss out",
        ),
        (("clips.zarr", "--minutes", "inf"), "minutes must be finite, got inf"),
        (
            ("clips.zarr", "--shuffle", "no"),
            "'--shuffle': Value error, 'no' is not one of 'true', ",
        ),
        (("clips.zarr", "--read-ahead", "-1"), "should be greater than or equal to 0"),
        (("clips.zarr", "--epochs", "0"), "should be greater than or equal to 1"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], message: str) -> None:
    """Exit code 2 and what is allowed."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in re.sub(r"[\s│]+", " ", result.output)


def test_runs_that_are_not_there(tmp_path: Path) -> None:
    """One line each."""
    with pytest.raises(StoreError, match="none does not exist; expected a run folder made by"):
        run("--resume", tmp_path / "none")
    with pytest.raises(StoreError, match="none does not exist; expected a run folder made by"):
        run("--config", tmp_path / "none" / "run.json")
