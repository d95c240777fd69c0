"""Run folders: read again, refused where they are not what they say, and resumed after a kill."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from framewin import FormatVersionError, StoreError, TrainingError, convert
from framewin.forecast.settings import TrainSettings
from tests.conftest import ROOT, import_or_skip, write_frames
from tests.helpers.training import SETTINGS, moving_store

pytestmark = [
    pytest.mark.usefixtures("tf"),
    # Keras and TensorFlow warn of their own ways of calling each other.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

SCALING = {"offset": [1.0], "divisor": [2.0], "blank": None}
PROGRAM = """
import json, os, signal, sys
from framewin.forecast.fitting import Fit
from framewin.forecast.settings import TrainSettings
from framewin.forecast.train import resume, train
how, store, run, record = sys.argv[1:]
save, saves = Fit._save, [0]

def killed(fit):
    saves[0] += 1
    if saves[0] == 8:
        os.kill(os.getpid(), signal.SIGKILL)
    save(fit)

if how == "killed":
    Fit._save = killed
if how == "resume":
    resume(run, say=print)
else:
    train(store, run, TrainSettings.from_record(json.loads(record)), say=print)
"""
"""`killed` ends after the third step of the second epoch: one checkpoint before training, one for
each of three steps and for the epoch's end, and two more were written."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store and a run on it, both to be read only."""
    from framewin.forecast.train import train

    folder = tmp_path_factory.mktemp("finished")
    train(moving_store(folder, clips=5), folder / "run", replace(SETTINGS, epochs=1), say=print)
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the run's files, to be damaged."""
    copy = tmp_path / "run"
    copy.mkdir()
    for name in ("run.json", "split.json", "model.weights.h5"):
        (copy / name).write_bytes((finished / "run" / name).read_bytes())
    return copy


def load(folder: Path) -> object:
    from framewin.forecast.runs import load_run

    return load_run(folder)


def test_a_run_gives_back_what_it_was_made_with(finished: Path) -> None:
    """Settings, store, model and the windows of each part."""
    run = load(finished / "run")
    assert run.settings == replace(SETTINGS, epochs=1)
    assert run.store == (finished / "moving.zarr").resolve()
    assert (run.model_name, run.model_options["patch_size"]) == ("convlstm", 1)
    assert [len(run.dataset(part)) for part in ("train", "validation", "test")] == [24, 8, 8]
    assert len(run.dataset(None)) == 40
    longer = run.dataset("test", predict_frames=4)
    assert len(longer) == 6
    names = [set(run.dataset(part).windows_per_clip()) for part in ("train", "validation", "test")]
    assert len(names[0] | names[1] | names[2]) == sum(map(len, names)) == 5


def test_a_longer_horizon_is_rolled_out(finished: Path) -> None:
    """Frames beyond those trained for come from the model's own, step by step."""
    run = load(finished / "run")
    inputs = run.dataset("test").batch([0, 3])[0]
    first = run.model.predict_on_batch(inputs)
    own = np.clip(np.rint(first * 255.0), 0, 255).astype(np.uint8)
    second = run.model.predict_on_batch(np.concatenate([inputs, own], axis=1)[:, -3:])
    whole = run.forecaster(3).predict_on_batch(inputs)
    np.testing.assert_allclose(whole[:, :2], first, atol=1e-6)
    np.testing.assert_allclose(whole[:, 2:], second[:, :1], atol=1e-6)
    assert run.forecaster(1).predict_on_batch(inputs).shape == (2, 1, 8, 8, 1)
    with pytest.raises(ValueError, match="horizon must be >= 1, got -1"):
        run.forecaster(-1)


def test_a_gap_cannot_be_rolled_over() -> None:
    """Frames after a gap are not the inputs of the next forecast."""
    from framewin.forecast.rollout import Forecaster

    message = "a horizon of 3 frames cannot follow from a model of 2 with a lead gap of 1"
    with pytest.raises(TrainingError, match=message):
        Forecaster(None, 3, output_frames=2, lead_gap=1)


def test_another_store_has_no_split(finished: Path, tmp_path: Path) -> None:
    """All of its windows are given, if its frames fit the model."""
    run = load(finished / "run")
    other = moving_store(tmp_path, clips=2)
    assert len(run.dataset("test", other)) == 16
    assert len(run.dataset("test", run.store)) == 8
    for name, width in (("short", 8), ("wide", 9)):
        frames = {f"{n}.png": np.zeros((8, width, 1), np.uint8) for n in "01"}
        write_frames(tmp_path / name / "a", frames)
        convert(tmp_path / name, tmp_path / f"{name}.zarr")
    with pytest.raises(TrainingError, match="no window fits"):
        run.dataset("test", tmp_path / "short.zarr")
    with pytest.raises(TrainingError, match=r"has frames of 8x9x1 uint8, the model of .* 8x8x1 ui"):
        run.dataset("test", tmp_path / "wide.zarr")


def edited(change: Callable[[dict], object]) -> Callable[[Path], None]:
    """Changes run.json."""

    def edit(run: Path) -> None:
        record = json.loads((run / "run.json").read_text())
        change(record)
        (run / "run.json").write_text(json.dumps(record))

    return edit


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda run: (run / "run.json").unlink(), StoreError, "run has no run.json; expected a"),
        (lambda run: (run / "run.json").write_text("{"), StoreError, "is not the record of a run"),
        (lambda run: (run / "run.json").write_text("[]"), StoreError, "is not the record of a"),
        (lambda run: (run / "run.json").write_text("[" * 9999), StoreError, "is not the record"),
        (edited(lambda r: r.update(format=2)), FormatVersionError, "has format 2, this framewin"),
        (edited(lambda r: r.pop("store")), StoreError, "run.json is damaged: lacks 'store'"),
        (edited(lambda r: r["settings"].update(x=1)), StoreError, "damaged: 'x' is no setting"),
        (edited(lambda r: r["settings"].update(epochs="9")), StoreError, "epochs cannot be '9'"),
        (edited(lambda r: r["settings"].update(filters=True)), StoreError, "filters cannot be Tr"),
        (edited(lambda r: r["settings"].update(shuffle="x")), StoreError, "shuffle cannot be 'x'"),
        (edited(lambda r: r["settings"].update(shuffle=False)), StoreError, "True or 'blocks', "),
        (edited(lambda r: r["settings"].update(loss="x")), StoreError, "loss must be one of mse"),
        (edited(lambda r: r["frame"].update(height=0)), StoreError, "at least one pixel"),
        (edited(lambda r: r.update(frame=3)), StoreError, "run.json is damaged: "),
        (edited(lambda r: r["frame"].update(height=8.5)), StoreError, "height of a frame cannot b"),
        *(
            (
                edited(lambda r, change=change: r.update(scaling={**SCALING, **change})),
                StoreError,
                "run.json is damaged: scaling cannot be {",
            )
            for change in ({"divisor": [0]}, {"offset": ["1"]}, {"offset": [1, 2]}, {"blank": "x"})
        ),
        (edited(lambda r: r.pop("split")), StoreError, "run.json is damaged: lacks 'split'"),
        (edited(lambda r: r.update(split=3)), StoreError, "run.json is damaged: split cannot be 3"),
        (edited(lambda r: r["model"].update(name="x")), StoreError, "model must be one of convl"),
        (edited(lambda r: r["model"].update(name=3)), StoreError, "run.json is damaged: "),
        (edited(lambda r: r["model"]["options"].update(filters=-1)), StoreError, "filters must be"),
        (edited(lambda r: r["model"]["options"].update(layers="x")), StoreError, "layers cannot b"),
        (
            edited(lambda r: r["model"]["options"].update(seed=0.5)),
            StoreError,
            "seed cannot be 0.5",
        ),
        (
            edited(lambda r: r["settings"].update(minutes=10**400)),
            StoreError,
            "minutes cannot be 1",
        ),
        (
            edited(lambda r: r["settings"].update(predict_frames=10**6)),
            StoreError,
            "run.json is damaged: predict_frames must be <= 1000, got 1000000",
        ),
        (edited(lambda r: r["settings"].update(epochs=10**9 * 9)), StoreError, "must be <= 214748"),
    ],
)
def test_a_damaged_record(run: Path, damage: Callable, error: type, message: str) -> None:
    """One line that says what is wrong with it."""
    damage(run)
    with pytest.raises(error, match=re.escape(message)):
        load(run)


def test_no_folder(tmp_path: Path) -> None:
    """It is named, and what makes one."""
    with pytest.raises(StoreError, match="none does not exist; expected a run folder made by"):
        load(tmp_path / "none")


def test_a_store_that_changed(run: Path) -> None:
    """Its split no longer says which frames were trained on."""
    edited(lambda record: record.update(identity="other"))(run)
    with pytest.raises(StoreError, match=r"has changed since .* was trained on it, so its split"):
        load(run).dataset("test")


def test_a_missing_part_and_split(run: Path) -> None:
    """Named as what they are."""
    with pytest.raises(TrainingError, match="has no part 'night'; it has train, validation, te"):
        load(run).dataset("night")
    (run / "split.json").unlink()
    with pytest.raises(StoreError, match=re.escape("split.json does not exist")):
        load(run).dataset("test")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.update(parts=3), "split.json is damaged: AttributeError("),
        (lambda s: s.update(span="5"), "split.json is damaged: ValueError('frames that are not"),
        (lambda s: s["parts"]["test"][0].pop(), "split.json is damaged: ValueError("),
        (
            lambda s: s["parts"]["test"][0].__setitem__(0, "x"),
            "split.json is damaged: KeyError('x'",
        ),
        (
            lambda s: s["parts"]["test"][0].__setitem__(2, 99),
            "frames that are not in a row'); split",
        ),
        (
            lambda s: s["parts"]["test"][0].__setitem__(1, -99),
            "frames that are not in a row'); spl",
        ),
        (lambda s: s["parts"]["test"][0].__setitem__(2, 10**30), "split.json is damaged: Overflow"),
        (lambda s: s["parts"]["test"][0].__setitem__(2, "9"), "split.json is damaged: TypeError"),
    ],
)
def test_a_damaged_split(run: Path, change: Callable, message: str) -> None:
    """No window leaves the frames that the store has in a row."""
    split = json.loads((run / "split.json").read_text())
    change(split)
    (run / "split.json").write_text(json.dumps(split))
    with pytest.raises(StoreError, match=re.escape(message)):
        load(run).dataset("test")


def with_file(change: Callable[[h5py.File], object]) -> Callable[[Path], None]:
    """Changes the weights file."""

    def edit(path: Path) -> None:
        with h5py.File(path, "r+") as file:
            change(file)

    return edit


def replaced(file: h5py.File, make: Callable[[h5py.Group, str], object]) -> None:
    """Another thing in the place of the first array."""
    found: list[str] = []
    file.visititems(lambda n, item: found.append(n) if isinstance(item, h5py.Dataset) else None)
    group, _, name = found[0].rpartition("/")
    del file[found[0]]
    make(file[group], name)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "does not exist, so the run has no weights"),
        (lambda path: path.write_bytes(b"weights"), "is not a file of weights: "),
        (
            with_file(lambda f: replaced(f, lambda g, n: g.create_dataset(n, data=np.ones(3)))),
            "does not hold this model's weights: ",
        ),
        (
            with_file(
                lambda f: replaced(
                    f, lambda g, n: g.__setitem__(n, h5py.ExternalLink("/etc/passwd", "/"))
                )
            ),
            "is a link",
        ),
        (
            with_file(lambda f: replaced(f, lambda g, n: g.__setitem__(n, h5py.SoftLink("/x")))),
            "is a link",
        ),
        (
            with_file(
                lambda f: replaced(
                    f,
                    lambda g, n: g.create_dataset(n, (3,), "f4", external=[("/etc/passwd", 0, 12)]),
                )
            ),
            "is not a plain array of numbers",
        ),
        (
            with_file(
                lambda f: replaced(
                    f, lambda g, n: g.create_dataset(n, (9**6,), "f4", compression="gzip")
                )
            ),
            "is not a plain array of numbers",
        ),
        (with_file(lambda f: f.create_dataset("more", (9**6,), "f4")), "values, the model has"),
        (with_file(lambda f: f.__setitem__("again", f["/"])), "is there twice"),
    ],
)
def test_a_damaged_weights_file(run: Path, damage: Callable, message: str) -> None:
    """Only plain arrays of the model's shapes are taken from it."""
    damage(run / "model.weights.h5")
    with pytest.raises(TrainingError, match=re.escape(message)):
        _ = load(run).model


def test_a_model_of_ones_own(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that is not there, and a function that does not do as a model must."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_models.py").write_text(
        "import keras\n"
        "FRAMEWIN_BUILDERS = ['none', 'fails', 'number', 'short']\n"
        "def fails(*_, **options): raise KeyError('depth')\n"
        "def number(*_, **options): return 3\n"
        "def short(t, k, f, **options):\n"
        "    return keras.Sequential([keras.Input((t, *f.shape)), keras.layers.Conv3D(1, 1)])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name, message in (
        ("no_such_module:build", "no_such_module cannot be imported: ModuleNotFoundError"),
        ("own_models:none", "own_models has no function none"),
        ("own_models:fails", "own_models:fails failed with KeyError: 'depth'"),
        ("own_models:number", "own_models:number must return a Keras model, got int"),
        ("own_models:short", "gives shape (None, 3, 8, 8, 1), it must give (None, 2, 8, 8, 1)"),
    ):
        edited(lambda record, name=name: record["model"].update(name=name))(run)
        with pytest.raises(TrainingError, match=re.escape(message)):
            _ = load(run).model


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"filters": 10**5}, "values, the model of run.json has more than 640,000,000"),
        ({"filters": 99, "layers": 10**9}, "values, the model of run.json has more than 627,264,0"),
        ({"filters": 10**5, "layers": None}, "values, the model of run.json has more than 640,000"),
        ({"patch_size": 10**6}, "values, the model of run.json has more than 1,000,0"),
        ({"patch_size": 9}, "cannot be built: patch_size must be from 1 to 8, got 9"),
        ({"filters": None}, "convlstm of "),
        ({"devices": 1}, "cannot be built: the model convlstm has no option 'devices'"),
    ],
)
def test_a_record_of_another_model(run: Path, options: dict, message: str) -> None:
    """One line, and nothing is built that is far larger than the file of weights."""
    edited(lambda record: record["model"]["options"].update(options))(run)
    with pytest.raises(TrainingError, match=re.escape(message)):
        _ = load(run).model


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("stranger:build", "stranger.py"),
        ("run.stranger:build", "stranger.py"),
        ("stranger_pack.stranger:build", "stranger_pack/stranger.py"),
        ("stranger_whole:build", "stranger_whole/__init__.py"),
    ],
)
def test_no_code_of_a_run_folder_runs(
    run: Path, name: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: `cd downloaded && framewin evaluate .` imported what run.json named there."""
    (run / file).parent.mkdir(exist_ok=True)
    (run / file).write_text("raise SystemExit('code of a stranger ran')\n")
    edited(lambda record: record["model"].update(name=name))(run)
    top = name.partition(":")[0].partition(".")[0]
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", ".")])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    here = run.parent if top == "run" else run
    monkeypatch.chdir(here)
    refused = f"{file} lies in the run folder, whose code is not run; if you trust it, move it to"
    # The run folder does not even get onto Python's path; as with `python -m`, it may be there.
    missing = f"cannot be imported: ModuleNotFoundError: No module named '{top}'"
    with pytest.raises(TrainingError, match=re.escape(missing if here == run else refused)):
        _ = load(run.relative_to(here)).model
    monkeypatch.syspath_prepend(here)
    with pytest.raises(TrainingError, match=re.escape(refused)):
        _ = load(run.relative_to(here)).model


def test_it_is_said_which_model_of_ones_own_is_imported(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file, on stderr; a model of another dtype is refused."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(run)
    (tmp_path / "said_models.py").write_text(
        "import keras\n"
        "FRAMEWIN_BUILDERS = ['half']\n"
        "def half(t, k, f, **options):\n"
        "    frames = keras.Input((t, *f.shape), dtype=f.dtype)\n"
        "    return keras.Model(frames, keras.ops.cast(frames[:, :k], 'bfloat16'))\n"
    )
    edited(lambda record: record["model"].update(name="said_models:half"))(run)
    message = 'gives bfloat16, it must give float32; give its last layer dtype="float32"'
    with pytest.raises(TrainingError, match=re.escape(message)):
        _ = load(run).model
    said = f"{run} names the model said_models: {tmp_path / 'said_models.py'}\n"
    assert said in capsys.readouterr().err


def test_a_run_names_only_what_is_declared(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: any function of Python was called, such as os:system. What the user names, too,
    is used without a declaration, and its module is not even imported otherwise."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "undeclared.py").write_text(
        "import keras\n"
        "loaded = keras.loaded_once = True\n"
        "def build(t, k, f, **options):\n"
        "    frames = keras.Input((t, *f.shape), dtype=f.dtype)\n"
        "    return keras.Model(frames, keras.ops.cast(frames[:, -k:], 'float32') / 255)\n"
    )
    keras = import_or_skip("keras")
    for name in ("os:system", "undeclared:build"):
        edited(lambda record, name=name: record["model"].update(name=name))(run)
        module, _, function = name.partition(":")
        message = (
            f"{run} names the model {name}, which {module} does not declare; if you trust it, "
            f'give --model {name}, or write FRAMEWIN_BUILDERS = ["{function}"] into {module}'
        )
        with pytest.raises(TrainingError, match=f"^{re.escape(message)}$"):
            load(run).check_model()
    assert not hasattr(keras, "loaded_once")
    from framewin.forecast.runs import load_run

    asked = load_run(run, "undeclared:build")
    assert asked.build().output.shape == (None, 2, 8, 8, 1)
    assert keras.loaded_once
    del keras.loaded_once
    with pytest.raises(ValueError, match=re.escape("or package.module:build, got 'a b'")):
        load_run(run, "a b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 9999, "is not a checkpoint of this run: maximum recursion"),
        ('{"epoch": "3"}', "is not a checkpoint of this run: epoch cannot be '3'"),
        ('{"epoch": -1}', "is not a checkpoint of this run: epoch cannot be '-1'"),
        ('{"timed": -0.5}', "is not a checkpoint of this run: timed cannot be '-0.5'"),
        ('{"seconds": NaN}', "is not a checkpoint of this run: seconds cannot be 'nan'"),
        ('{"finished": 1}', "is not a checkpoint of this run: finished cannot be '1'"),
        ('{"history": [{"loss": "x"}]}', "history cannot be \"[{'loss': 'x'}]\""),
        ('{"history": {"loss": 1}}', "is not a checkpoint of this run: "),
        ('{"history": [1]}', "is not a checkpoint of this run: "),
        ('{"depth": 1}', "is not a checkpoint of this run: "),
    ],
)
def test_a_checkpoint_whose_progress_is_none(tmp_path: Path, text: str, message: str) -> None:
    """One line, not what follows from a text in the place of a number."""
    from framewin.forecast.checkpoints import load_checkpoint

    path = tmp_path / "checkpoint.npz"
    np.savez(path, progress=np.frombuffer(text.encode(), np.uint8))
    with pytest.raises(TrainingError, match=re.escape(message)):
        load_checkpoint(path, {})


def test_a_checkpoint_of_before_waiting_was_measured(tmp_path: Path) -> None:
    """It goes on, and what was waited until then is not known."""
    from framewin.forecast.checkpoints import load_checkpoint

    path = tmp_path / "checkpoint.npz"
    text = '{"epoch": 1, "history": [{"epoch": 1, "seconds": 2.5}]}'
    np.savez(path, progress=np.frombuffer(text.encode(), np.uint8))
    progress, _ = load_checkpoint(path, {})
    assert (progress.epoch, progress.data_wait) == (1, None)
    progress.waited, progress.timed, progress.timed_before = 1.0, 2.0, 6.0
    assert progress.data_wait == 1 / 8


def test_what_cannot_be_resumed(finished: Path, run: Path) -> None:
    """A finished run, one that lost its checkpoint, and one whose checkpoint is another's."""
    from framewin.forecast.checkpoints import TrainProgress, load_checkpoint, save_checkpoint
    from framewin.forecast.train import resume

    with pytest.raises(TrainingError, match="run is finished, so there is nothing to resume"):
        resume(finished / "run")
    (run / "history.csv").touch()
    with pytest.raises(TrainingError, match=re.escape("run has lost its checkpoint.npz; train ag")):
        resume(run)
    path = run / "checkpoint.npz"
    save_checkpoint(path, TrainProgress(epoch=3), {"model": [np.zeros(3, np.float32)]})
    progress, arrays = load_checkpoint(path, {"model": [((3,), "float32")]})
    assert progress.epoch == 3
    assert arrays["model"][0].tolist() == [0, 0, 0]
    with pytest.raises(TrainingError, match=re.escape("an array is float32 (3,), not float32 (4,")):
        load_checkpoint(path, {"model": [((4,), "float32")]})
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(
        TrainingError, match=re.escape("checkpoint.npz is not a checkpoint of this")
    ):
        load_checkpoint(path, {"model": [((3,), "float32")]})


def weights_of(run: Path) -> dict[str, bytes]:
    """Name of each array in the weights file, and its bytes."""
    found: dict[str, bytes] = {}
    with h5py.File(run / "model.weights.h5") as file:
        file.visititems(
            lambda name, item: (
                found.update({name: item[()].tobytes()}) if isinstance(item, h5py.Dataset) else None
            )
        )
    return found


def test_a_killed_training_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    """Killed within an epoch and resumed, it ends bit for bit as if it had not been."""
    store = moving_store(tmp_path, clips=4, frames=10)
    settings = replace(
        SETTINGS,
        epochs=3,
        dropout=0.2,
        augment="flip,brightness=0.1",
        weight_decay=0.01,
        shuffle="blocks",
        read_ahead=2,
        deterministic=True,
        checkpoint_minutes=0.0,
    )

    def start(how: str, run: str) -> subprocess.Popen[bytes]:
        record = json.dumps(settings.record())
        command = [sys.executable, "-c", PROGRAM, how, str(store), str(tmp_path / run), record]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environment, stdout=pipe, stderr=subprocess.DEVNULL)

    whole, killed = start("train", "whole"), start("killed", "killed")
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "killed" / "checkpoint.npz").exists()
    assert not (tmp_path / "killed" / "metrics.json").exists()
    resumed = start("resume", "killed")
    printed, _ = resumed.communicate()
    assert printed.startswith(b"resumed in epoch 2, step 2\n")
    whole.communicate()
    assert (resumed.returncode, whole.returncode) == (0, 0)
    assert weights_of(tmp_path / "killed") == weights_of(tmp_path / "whole")
    history, again = ((tmp_path / r / "history.csv").read_text() for r in ("whole", "killed"))
    # But for the seconds, and what of them was waiting.
    assert [row.rsplit(",", 2)[0] for row in history.splitlines()] == [
        row.rsplit(",", 2)[0] for row in again.splitlines()
    ]


def test_a_resume_before_a_small_last_batch(tmp_path: Path) -> None:
    """Regression: its graph was made anew where a whole training had one, and the last bits of
    the weights differed."""
    from framewin.forecast.fitting import Fit
    from framewin.forecast.train import resume, train

    # Six training windows, in batches of four and two.
    store = moving_store(tmp_path, clips=3, frames=10)
    settings = replace(SETTINGS, epochs=3, deterministic=True, checkpoint_minutes=0.0)
    train(store, tmp_path / "whole", settings, say=print)
    steps, save = [0], Fit._save

    def killed(fit: Fit) -> None:
        save(fit)
        steps[0] += 1
        # Saved before training, after each step and each epoch; this is in the second epoch.
        if steps[0] == 5:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fit, "_save", killed)
        with pytest.raises(KeyboardInterrupt):
            train(store, tmp_path / "killed", settings, say=print)
    lines: list[str] = []
    resume(tmp_path / "killed", say=lines.append)
    assert lines[0] == "resumed in epoch 2, step 1"
    assert weights_of(tmp_path / "killed") == weights_of(tmp_path / "whole")


@pytest.mark.parametrize(
    "name", ["split.json", "run.json", "model.weights.h5", "checkpoint.npz", "metrics.json"]
)
def test_a_full_disk_ends_a_training_in_one_line(
    name: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: h5py ended the process. What was written before stays, and is resumed."""
    from framewin.forecast.train import resume, train

    store, run = finished / "moving.zarr", tmp_path / "run"

    def full(operation: str, path: Path) -> None:
        if (operation, path.name) in (("write", f"{name}.new"), ("rename", name)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("framewin.stores.durable.failpoint", full)
        with pytest.raises(StoreError) as caught:
            train(store, run, replace(SETTINGS, epochs=1), say=print)
    if name in ("split.json", "run.json"):
        what = run / name if name == "split.json" else run
        assert str(caught.value) == f"{what} cannot be written: No space left on device"
        assert not run.exists()
        return
    assert str(caught.value) == (
        f"{run}: No space left on device; when that is mended, go on with framewin train "
        f"--resume {run}"
    )
    assert not list(run.glob("*.new"))
    message = f"{run} exists already; go on with framewin train --resume {run} or choose another"
    with pytest.raises(StoreError, match=re.escape(message)):
        train(store, run, SETTINGS, say=print)
    assert resume(run, say=print).epochs == 1
    assert weights_of(run) == weights_of(finished / "run")


def test_weights_that_keras_does_not_write(tmp_path: Path) -> None:
    """An old Keras takes the file in memory for a name: no empty file is left in silence."""
    from framewin.forecast.runs import save_weights

    old = SimpleNamespace(save_weights=lambda file: None)
    with pytest.raises(TrainingError, match=r"no weights for .*; framewin needs keras>=3.10$"):
        save_weights(old, tmp_path / "model.weights.h5")
    assert not list(tmp_path.iterdir())


def test_one_process_trains_a_run(finished: Path, run: Path) -> None:
    """Regression: two that resumed one run wrote its files by turns."""
    from framewin.forecast.train import resume
    from framewin.stores import folder_lock

    with (
        folder_lock.locked(run),
        pytest.raises(StoreError, match=f"^{re.escape(str(run))} is in use by process .*; wait"),
    ):
        resume(run)
    assert resume(run, say=print).epochs == 1


def test_two_devices_train_as_one(tmp_path: Path) -> None:
    """A small last batch is left out with a word, no loss is NaN, and the weights are close."""
    store = moving_store(tmp_path, clips=4, frames=11)
    program = (
        "import sys, json\n"
        "from dataclasses import replace\n"
        "from framewin.forecast.settings import TrainSettings\n"
        "from framewin.forecast.train import train\n"
        "settings = TrainSettings.from_record(json.loads(sys.argv[3]))\n"
        "print(train(sys.argv[1], sys.argv[2], settings).evaluation.model.mse)\n"
    )
    scores = {}
    for devices in (2, 1):
        # 14 windows: with one device, batches of 4, 4, 4 and 2; one epoch of 3 steps otherwise.
        settings = replace(SETTINGS, epochs=1, devices=devices, learning_rate=1e-3)
        command = [sys.executable, "-c", program, store, tmp_path / f"run{devices}"]
        command.append(json.dumps(settings.record()))
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        scores[devices] = float(done.stdout.splitlines()[-1])
        if devices == 2:
            assert "2 devices: the last 2 windows of each epoch are left out" in done.stderr
    assert np.isfinite(scores[2])
    assert scores[2] == pytest.approx(scores[1], rel=0.05)


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        ("{", {}, "TF_CONFIG cannot be read: JSONDecodeError"),
        ({"cluster": {}}, {}, "TF_CONFIG cannot be read: KeyError('worker')"),
        (
            {"cluster": {"worker": ["a", "b"], "ps": ["c"]}, "task": {"type": "ps", "index": 0}},
            {},
            "TF_CONFIG may have workers only, got ps, worker",
        ),
        (
            {"cluster": {"worker": ["a", "b"]}, "task": {"type": "worker", "index": 0}},
            {"minutes": 1.0},
            "minutes differ between machines; give epochs instead",
        ),
        (
            {"cluster": {"worker": ["a", "b", "c"]}, "task": {"type": "worker", "index": 0}},
            {},
            "batch_size must be a multiple of the 3 workers of TF_CONFIG, got 4",
        ),
        (
            {"cluster": {"worker": []}, "task": {"type": "worker", "index": 0}},
            {},
            "TF_CONFIG must have a list of workers, got []",
        ),
        (
            {"cluster": {"worker": "ab"}, "task": {"type": "worker", "index": 0}},
            {},
            "TF_CONFIG must have a list of workers, got 'ab'",
        ),
        *(
            (
                {"cluster": {"worker": ["a", "b"]}, "task": {"type": "worker", "index": index}},
                {},
                f"the index of TF_CONFIG's task must be from 0 to 1, got {index}",
            )
            for index in (2, -1)
        ),
    ],
)
def test_a_cluster_that_cannot_be(
    config: object, changes: dict, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused before any connection is made."""
    from framewin.forecast.devices import choose_devices

    text = config if isinstance(config, str) else json.dumps(config)
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(TrainingError, match=re.escape(message)):
        choose_devices(replace(SETTINGS, **changes))


def test_machines_of_several_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a batch that divides by the workers, but not by all devices, lost windows."""
    from framewin.forecast import devices

    # Two machines of three devices; a real cluster would wait for its other machine.
    monkeypatch.setattr(
        devices.tf.distribute,
        "MultiWorkerMirroredStrategy",
        lambda: SimpleNamespace(num_replicas_in_sync=6),
    )
    config = {"cluster": {"worker": ["a", "b"]}, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    message = "batch_size must be a multiple of the 6 devices of all workers, got 4"
    with pytest.raises(TrainingError, match=re.escape(message)):
        devices.choose_devices(SETTINGS)
    found = devices.choose_devices(replace(SETTINGS, batch_size=12))
    assert (found.worker, found.workers, found.local, found.count) == (1, 2, 3, 6)


def test_settings_survive_json() -> None:
    """Every field, whatever its type."""
    settings = TrainSettings(minutes=1.5, augment="flip", dropout=0.1, cache="memory", filters=3)
    settings = replace(settings, shuffle="blocks", read_ahead=4)
    assert TrainSettings.from_record(json.loads(json.dumps(settings.record()))) == settings
