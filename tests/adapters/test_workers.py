"""Training by two processes, as on two machines: they share every step, and stay equal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from framewin import FrameWindowDataset, convert
from framewin.cli import app
from tests.conftest import ROOT
from tests.helpers.command import FRAMEWIN
from tests.helpers.processes import free_port
from tests.helpers.training import moving_store

pytestmark = [
    pytest.mark.usefixtures("tf"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
STEPS, BATCH_SIZE = 3, 8


def test_two_processes_share_every_step(tmp_path: Path, tf: ModuleType) -> None:
    """Together they train on the windows of one process, in its order, to the same weights."""
    script = ROOT / "scripts" / "train_workers.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^worker [01]: step \d, loss 0\.", done.stdout, re.MULTILINE)) == 6
    shares = [np.load(tmp_path / f"worker-{index}.npz") for index in range(2)]
    convert(ROOT / "sample_data", tmp_path / "clips.zarr")
    ds = FrameWindowDataset(tmp_path / "clips.zarr", input_frames=5, predict_frames=5)
    schedule = ds.batches(batch_size=BATCH_SIZE, shuffle=True, seed=0).schedule
    steps = [schedule.windows(0, step) for step in range(STEPS)]
    for step, windows in enumerate(steps):
        together = np.concatenate([share["inputs"][step] for share in shares])
        assert np.array_equal(together, ds.batch(windows)[0].astype(np.float32) / 255)
    weights = [[share[f"weight{k}"] for k in range(4)] for share in shares]
    assert all(np.array_equal(one, other) for one, other in zip(*weights, strict=True))
    alone = trained_alone(tf, ds, steps)
    for one, expected in zip(weights[0], alone, strict=True):
        assert np.allclose(one, expected, atol=1e-5)


FAILING = """
import json, os, sys, time

if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
    sys.exit(3)
time.sleep(60)
"""


def test_a_worker_that_fails_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the other one waited for it without end, and the script for that."""
    spec = spec_from_file_location("train_workers", ROOT / "scripts" / "train_workers.py")
    assert spec is not None
    assert spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    failing = tmp_path / "failing.py"
    failing.write_text(FAILING)
    monkeypatch.setattr(script, "__file__", str(failing))
    with pytest.raises(SystemExit, match=r"a worker failed: exit codes \[None, 3\]"):
        script.start(tmp_path / "clips.zarr", None)


def trained_alone(tf: ModuleType, ds: FrameWindowDataset, steps: list[Any]) -> list[np.ndarray]:
    """The weights of the script's model, trained on whole batches by Keras itself."""
    import keras

    keras.utils.set_random_seed(0)
    layers = [
        keras.layers.Conv3D(4, 3, padding="same", activation="relu"),
        keras.layers.Conv3D(1, 3, padding="same", activation="sigmoid"),
    ]
    model = keras.Sequential([keras.Input((5, 64, 64, 1)), *layers])
    model.compile(optimizer="adam", loss="mse")
    before = model.get_weights()
    for windows in steps:
        inputs, targets = (part.astype(np.float32) / 255 for part in ds.batch(windows))
        model.train_on_batch(inputs, targets)
    after: list[np.ndarray] = model.get_weights()
    pairs = zip(before, after, strict=True)
    assert not any(np.allclose(one, other, atol=1e-4) for one, other in pairs)
    return after


def started(store: Path, run: Path, *, epochs: int) -> list[subprocess.Popen[str]]:
    """The command on two workers, each in a folder of its own beside the run."""
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    processes = []
    for index in range(2):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": {"worker": addresses}, "task": task})
        options = "--model convlstm --filters 2 --layers 1 --input-frames 3 --predict-frames 2"
        command = [FRAMEWIN, "train", store, *options.split(), "--batch-size", "4"]
        folder = run.parent / str(index)
        folder.mkdir()
        processes.append(
            subprocess.Popen(
                [*map(str, command), "--epochs", str(epochs), "--out", str(run)],
                cwd=folder,
                env={**os.environ, "TF_CONFIG": config},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return processes


def test_the_command_on_two_workers(tmp_path: Path) -> None:
    """Both end with the same scores; the first alone writes the run folder."""
    store, run = moving_store(tmp_path, clips=5), tmp_path / "run"
    processes = started(store, run, epochs=1)
    printed = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], printed
    tables = [re.sub(r"(?m)^time .*$", "", out) for out, _ in printed]
    assert tables[0] == tables[1]
    losses = [re.findall(r"epoch 1: (loss \S+ validation \S+),", errors) for _, errors in printed]
    assert losses[0] == losses[1] != []
    assert len([*run.parent.rglob("model.weights.h5")]) == 1
    assert not any([*(tmp_path / str(index)).iterdir()] for index in range(2))
    assert len((run / "history.csv").read_text().splitlines()) == 2
    assert len([*(run / "logs").rglob("*events*")]) == 1


def test_workers_need_one_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the default has the second in it, and each worker looked for its own."""
    monkeypatch.setenv("TF_CONFIG", "{}")
    done = CliRunner().invoke(app, ["train", "clips.zarr"], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert "with TF_CONFIG give --out, the same folder to all workers" in done.output


def test_a_worker_that_is_lost(tmp_path: Path) -> None:
    """Regression: the other ended with a traceback. Here the first is killed, which leads."""
    store, run = moving_store(tmp_path, clips=5), tmp_path / "run"
    processes = started(store, run, epochs=100_000)
    lost, other = processes
    try:
        assert other.stderr is not None
        assert any("epoch 1:" in line for line in other.stderr)
        lost.kill()
        _, errors = other.communicate(timeout=200)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    [line] = [
        line for line in errors.splitlines() if not re.match("epoch |framewin: waiting", line)
    ]
    assert other.returncode == 1
    assert line.startswith("framewin: worker 1 of TF_CONFIG has lost another one (")


def test_alone_nothing_is_explained(tf: ModuleType) -> None:
    """What TensorFlow raises in a single process is no other one's."""
    from framewin.forecast.devices import Devices

    lost = tf.errors.UnavailableError(None, None, "Socket closed")
    with pytest.raises(tf.errors.UnavailableError), Devices(None, 0, 1).together():
        raise lost
