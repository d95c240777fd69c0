"""Training end to end on small stores: what a run leaves, and what it refuses."""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import imageio.v3 as iio
import numpy as np
import pytest

from framewin import FrameWindowDataset, StoreError, TrainingError, convert
from framewin.forecast.normalize import model_scale
from framewin.forecast.runs import load_run
from framewin.forecast.train import TrainReport, TrainSettings, train
from framewin.forecast.validation import evaluate
from framewin.metrics import FULL_SCALE
from framewin.model_table import ModelScale
from tests.conftest import MakeClips, import_or_skip, write_frames
from tests.helpers.training import SETTINGS, moving_store

pytestmark = [
    pytest.mark.usefixtures("tf"),
    # Keras and TensorFlow warn of their own ways of calling each other.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def trained(store: Path, run: Path, **changes: object) -> tuple[TrainReport, list[str]]:
    """The report of a training, and the lines that it said."""
    lines: list[str] = []
    return train(store, run, replace(SETTINGS, **changes), say=lines.append), lines


def test_a_run_folder_is_complete(tmp_path: Path) -> None:
    """Model, history, settings, split, scores, log and pictures, and numbers that agree."""
    keras = import_or_skip("keras")
    store = moving_store(tmp_path, clips=5)
    report, lines = trained(store, tmp_path / "runs" / "first")
    run = tmp_path / "runs" / "first"
    assert sorted(path.name for path in run.iterdir()) == [
        "forecast.gif",
        "forecast.png",
        "history.csv",
        "logs",
        "metrics.json",
        "model.keras",
        "model.weights.h5",
        "run.json",
        "split.json",
    ]
    assert report.windows == {"train": 24, "validation": 8, "test": 8}
    assert report.split == "by clip, 1 for validation and 1 for test of 5"
    assert lines[0].startswith("model convlstm, filters 4, layers 1, patch size 1, dropout 0.0; ")
    assert re.fullmatch(r"a step takes .* s, of which \d+% is waiting for data", lines[1])
    with (run / "history.csv").open() as file:
        history = list(csv.DictReader(file))
    assert [row["epoch"] for row in history] == ["1", "2"]
    metrics = json.loads((run / "metrics.json").read_text())
    assert (metrics["part"], metrics["windows"]) == ("test", 8)
    assert metrics["model"]["mse"] == report.evaluation.model.mse
    # The kept weights are the best epoch's, and score as the history says they did.
    loaded = load_run(run)
    best = min(float(row["val_loss"]) for row in history)
    validation = loaded.dataset("validation")
    assert evaluate(loaded.model, validation).model.mse == pytest.approx(best, rel=1e-4)
    whole = keras.models.load_model(run / "model.keras")
    again = evaluate(whole, loaded.dataset("test"), batch_size=3)
    assert again.model.mse == pytest.approx(report.evaluation.model.mse, rel=1e-6)
    assert len(iio.imread(run / "forecast.gif")) == 5
    assert list((run / "logs").rglob("events.*"))


def test_the_same_seed_trains_the_same_model(tmp_path: Path) -> None:
    """Split, order and weights come from the seed alone."""
    store = moving_store(tmp_path, clips=4)
    first, second = (trained(store, tmp_path / name)[0] for name in ("one", "two"))
    assert first.evaluation.model.mse == pytest.approx(second.evaluation.model.mse, rel=1e-5)


@pytest.mark.parametrize(
    ("clips", "frames", "split", "windows"),
    [
        (1, 60, "the last 20% for validation and 20%", {"train": 26, "validation": 6, "test": 6}),
        # A fifth would be 4 frames; the shares grow to what is left of five windows each.
        (1, 30, "the last 33% for validation and 33%", {"train": 2, "validation": 3, "test": 3}),
        # Of 26 windows each, 2 x 9 lie between the parts.
        (2, 30, "the last 20% for validation and 20%", {"train": 20, "validation": 7, "test": 7}),
    ],
)
def test_one_clip_is_split_by_time(
    tmp_path: Path, clips: int, frames: int, split: str, windows: dict[str, int]
) -> None:
    """The last frames are held back, with one window span left out before each part."""
    store = moving_store(tmp_path, clips=clips, frames=frames)
    report, _ = trained(store, tmp_path / "run", epochs=1)
    assert report.split == f"by time, {split} for test, 5 frames before each left out"
    assert sum(report.windows.values()) == sum(windows.values())
    assert min(report.windows.values()) >= 2


def test_a_split_that_was_made_before(tmp_path: Path) -> None:
    """Its parts are trained on and scored, and resumed; without a test part, validation."""
    store = moving_store(tmp_path, clips=2, frames=60)
    dataset = FrameWindowDataset(store, input_frames=3, predict_frames=2)
    shares = {"train": 0.8, "validation": 0.1, "test": 0.1}
    dataset.split(shares, by="time").save(tmp_path / "mine.json")
    report, _ = trained(store, tmp_path / "run", epochs=1, split=str(tmp_path / "mine.json"))
    assert report.split == "by time, as in mine.json"
    parts = dataset.split(shares, by="time")
    assert report.windows == {name: len(part) for name, part in parts.items()}
    run = load_run(tmp_path / "run")
    assert run.settings.split == str(tmp_path / "mine.json")
    assert (tmp_path / "run" / "split.json").read_text() == (tmp_path / "mine.json").read_text()
    dataset.split(train="clip0", validation="clip1").save(tmp_path / "two.json")
    report, _ = trained(store, tmp_path / "two", epochs=1, split=str(tmp_path / "two.json"))
    assert (report.part, load_run(report.run).settings.test_share) == ("validation", 0)
    dataset.split(train="clip0", later="clip1").save(tmp_path / "other.json")
    for name, error, message in (
        ("none.json", StoreError, "none.json does not exist; framewin split"),
        ("other.json", TrainingError, "other.json has the parts train, later; training needs tr"),
        ("run/run.json", StoreError, "run.json is not a split file (KeyError('framewin_split'))"),
    ):
        with pytest.raises(error, match=re.escape(message)):
            trained(store, tmp_path / "not", split=str(tmp_path / name))
    with pytest.raises(TrainingError, match="leaves 5 frames out between the parts, a window span"):
        trained(store, tmp_path / "not", split=str(tmp_path / "mine.json"), input_frames=4)
    assert not (tmp_path / "not").exists()


def array_store(folder: Path, name: str, frames: np.ndarray, **options: object) -> Path:
    """A store of one clip for each of (clips, T, H, W)."""
    (folder / name).mkdir()
    for clip, each in enumerate(frames):
        np.save(folder / name / f"c{clip}.npy", each)
    convert(folder / name, folder / f"{name}.zarr", **options)
    return folder / f"{name}.zarr"


def test_values_that_fill_little_of_their_dtype(tmp_path: Path) -> None:
    """Regression: the same clips were learnt as uint8, and hardly as counts or in Kelvin."""
    places = (np.arange(12)[None] + 3 * np.arange(5)[:, None]) % 8
    bright = np.broadcast_to(np.arange(8) == places[..., None, None], (5, 12, 8, 8))
    found = {}
    for name, values in (
        ("bytes", bright.astype(np.uint8) * 255),
        ("counts", bright.astype(np.int16) * 255),
        ("kelvin", np.where(bright, 300, 260).astype(np.float32)),
    ):
        report, lines = trained(array_store(tmp_path, name, values), tmp_path / f"run-{name}")
        found[name] = report.evaluation.skill
        run = load_run(report.run)
        if name == "bytes":
            assert run.scale is None
            continue
        low, width = (0.0, 255.0) if name == "counts" else (260.0, 40.0)
        assert (run.scale.offset, run.scale.divisor) == ((low,), (width,))
        said = f"the model sees 0..1 for values of {low:g} to {low + width:g}, and losses are of"
        assert lines[1].startswith(said)
    assert found["bytes"] > 0.005
    assert found["counts"] == pytest.approx(found["kelvin"], abs=0.003)
    assert found["counts"] == pytest.approx(found["bytes"], abs=0.005)
    record = json.loads((tmp_path / "run-kelvin" / "run.json").read_text())
    # A run of before there were scales was trained in unit scale.
    del record["scaling"], record["settings"]["normalize"]
    (tmp_path / "run-kelvin" / "run.json").write_text(json.dumps(record))
    old = load_run(tmp_path / "run-kelvin")
    assert (old.scale, old.settings.normalize) == (None, "unit")
    assert old.build().get_layer("unit_scale")


@pytest.mark.parametrize(
    ("dtype", "low", "high", "normalize", "nodata", "found"),
    [
        ("uint8", 0, 64, "auto", None, None),
        ("uint8", 10, 60, "auto", None, ((10,), (50,), None)),
        ("uint8", 0, 255, "range", None, ((0,), (255,), None)),
        ("uint16", 0, 4095, "auto", None, ((0,), (4095,), None)),
        ("int16", -5, 500, "auto", -999, ((-5,), (505,), -999)),
        ("float32", 0, 1, "auto", None, None),
        ("float32", -1, 0.5, "auto", None, None),
        ("float32", 0, 1, "auto", -9999.0, ((0,), (1,), -9999.0)),
        ("float32", 260, 300, "unit", None, None),
        ("float32", 260, 300, "auto", math.nan, ((260,), (40,), 0.0)),
        ("float32", -40, 40, "auto", math.nan, ((-40,), (80,), None)),
        ("float32", 0, 2, "standard", None, ((1,), (1,), None)),
        ("float32", 7, 7, "auto", None, ((7,), (1,), None)),
    ],
)
def test_what_a_model_computes_with(
    dtype: str, low: float, high: float, normalize: str, nodata: float | None,
    found: object, tmp_path: Path,
) -> None:  # fmt: skip
    """The range of the values with data, where it is not the dtype's; no data becomes 0."""
    frames = np.where(np.arange(8) % 2, low, high).astype(dtype) * np.ones((1, 9, 8, 1), dtype)
    if nodata is not None:
        frames[:, :, 0] = nodata
    options = {} if nodata is None else {"nodata": nodata}
    store = array_store(tmp_path, "a", frames, **options)
    dataset = FrameWindowDataset(store, input_frames=3, predict_frames=2)
    from framewin.models import build_model

    scale = model_scale(dataset, normalize)
    assert scale == (None if found is None else ModelScale(*found))
    if scale is None:
        return
    model = build_model("convlstm", 3, 2, dataset.frame_format, {"filters": 2, "layers": 1},
                        scale=scale)  # fmt: skip
    inputs = np.nan_to_num(dataset.batch([0])[0])
    scaled = model.get_layer("to_scale")(inputs).numpy()
    wanted = (inputs - np.float64(scale.offset)) / scale.divisor
    if scale.blank is not None:
        wanted[inputs == scale.blank] = 0
    np.testing.assert_allclose(scaled, wanted, atol=1e-6)
    # Untrained, it repeats the last frame, in unit scale.
    last = np.float64(scale.offset) + wanted[:, -1:] * scale.divisor
    np.testing.assert_allclose(
        model.predict_on_batch(inputs) * FULL_SCALE[dtype],
        np.repeat(last, 2, axis=1),
        rtol=1e-5,
        atol=1e-5 * high,
    )


def test_without_a_test_part_the_validation_part_is_scored(tmp_path: Path) -> None:
    """Which the report says."""
    report, _ = trained(moving_store(tmp_path, clips=3), tmp_path / "run", epochs=1, test_share=0.0)
    assert (report.part, set(report.windows)) == ("validation", {"train", "validation"})
    assert report.split == "by clip, 1 for validation of 3"


def test_a_model_that_never_beats_the_last_frame_is_not_kept(tmp_path: Path) -> None:
    """A still picture: the untrained ConvLSTM, which repeats the last frame, is epoch 0."""
    rng = np.random.default_rng(0)
    still = rng.integers(0, 255, (8, 8, 1)).astype(np.uint8)
    for clip in range(3):
        write_frames(tmp_path / "still" / f"c{clip}", {f"{n}.png": still for n in range(8)})
    convert(tmp_path / "still", tmp_path / "still.zarr")
    report, _ = trained(tmp_path / "still.zarr", tmp_path / "run", model="convlstm", epochs=1)
    assert report.best_epoch == 0
    assert report.evaluation.model.mse == pytest.approx(0, abs=1e-9)
    metrics = (tmp_path / "run" / "metrics.json").read_text()
    assert json.loads(metrics)["last_frame"]["psnr_of_mean_mse"] is None


def test_patience_ends_the_training(tmp_path: Path) -> None:
    """After so many epochs without a better one; the best one is kept."""
    store = moving_store(tmp_path, clips=3, frames=6)
    report, _ = trained(store, tmp_path / "run", epochs=30, patience=2, learning_rate=0.5)
    assert report.epochs == report.best_epoch + 2 < 30


def test_minutes_end_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also within an epoch, whatever the epochs; the learning rate is at its end then."""
    store = moving_store(tmp_path, clips=3, frames=8)
    # A clock that goes on by a twentieth of a second whenever it is looked at.
    ticks = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: next(ticks) / 20)
    monkeypatch.setattr("framewin.forecast.fitting.time", clock)
    report, _ = trained(store, tmp_path / "run", epochs=None, minutes=0.02)
    assert report.epochs >= 1
    assert 1.2 <= report.seconds < 1.5
    with (tmp_path / "run" / "history.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    assert float(last["learning_rate"]) < 0.3 * SETTINGS.learning_rate


class Clock:
    """Time that passes only where it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        """Seconds."""
        return self.now


def test_how_long_steps_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs of six steps of 3 s, whose batches take 100 s, after ten of them 1 s, then 6 s."""
    from framewin.forecast.fitting import Fit

    clock, store = Clock(), moving_store(tmp_path, clips=5)

    def batches(fit: Fit, epoch: int, step: int) -> Iterator[tuple[np.ndarray]]:
        assert (epoch, step) == (0, 0)
        for number in itertools.count():
            clock.now += 100 if number < 10 else 1 if number < 12 else 6
            yield (np.zeros(4),)

    def step(batch: np.ndarray) -> float:
        clock.now += 3
        return 0.5

    monkeypatch.setattr("framewin.forecast.fitting.time", clock)
    monkeypatch.setattr(Fit, "_train_batches", batches)
    monkeypatch.setattr(Fit, "_make_step", lambda fit: step)
    report, lines = trained(store, tmp_path / "run", epochs=3)
    with (report.run / "history.csv").open() as file:
        waits = [row["data_wait"] for row in csv.DictReader(file)]
    assert waits == ["", "0.25", "0.66667"]
    assert report.data_wait == pytest.approx((2 * 1 + 6 * 6) / (2 * 4 + 6 * 9), abs=1e-5)
    metrics = json.loads((report.run / "metrics.json").read_text())
    assert metrics["data_wait"] == report.data_wait
    epochs = [line for line in lines if line.startswith("epoch")]
    assert "waiting" not in epochs[0]
    assert epochs[2].endswith(" s, 66.7% waiting for data")
    assert lines[-2] == "steps waited for data in 61.3% of their time"
    assert lines[-1].startswith("to wait less, try --read-ahead 16 if the frames are not in ")


def test_slow_batches_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of epochs of six steps of 1 s: windows are augmented in 1 s each, while a step waits."""
    from framewin.forecast.fitting import Fit

    clock, store, make = Clock(), moving_store(tmp_path, clips=5), Fit._train_batches
    waiting, asked = threading.Condition(), [False]

    def slowly(window: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        with waiting:
            assert waiting.wait_for(lambda: asked[0], timeout=60)
            clock.now += 1
        return window

    def ask(whether: bool) -> None:
        with waiting:
            asked[0] = whether
            waiting.notify_all()

    def batches(fit: Fit, epoch: int, step: int) -> Iterator[object]:
        ask(True)
        try:
            for batch in make(fit, epoch, step):
                ask(False)
                yield batch
                ask(True)
        finally:
            ask(True)

    def step(*batch: object) -> float:
        clock.now += 1
        return 0.5

    monkeypatch.setattr("framewin.forecast.fitting.time", clock)
    monkeypatch.setattr(Fit, "_train_batches", batches)
    monkeypatch.setattr(Fit, "_make_step", lambda fit: step)
    monkeypatch.setattr("framewin.forecast.fitting.Augment", lambda **options: slowly)
    slow, _ = trained(store, tmp_path / "slow", epochs=4, augment="flip")
    # Fourteen steps are timed: 56 windows, but for the few batches that were ready before.
    assert 0.5 < slow.data_wait < 1


def test_what_to_try_against_waiting(tmp_path: Path) -> None:
    """What is not done yet, and applies to the store."""
    from framewin.forecast.fitting import ways_to_wait_less

    raw, packed = moving_store(tmp_path, clips=1), tmp_path / "packed.zarr"
    convert(tmp_path / "moving", packed, compression="gzip")
    for store, changes, found in (
        (raw, {}, ["--read-ahead 16 if", "--shuffle blocks if", "what framewin plan"]),
        (raw, {"read_ahead": 4, "shuffle": "blocks"}, ["what framewin plan"]),
        (packed, {"augment": "flip"}, ["--cache memory, or --cache FILE if", "--shuffle blocks if",
                                       "less of --augment", f"what framewin plan {packed} says"]),
    ):  # fmt: skip
        part = FrameWindowDataset(store, input_frames=3, predict_frames=2)
        ways = ways_to_wait_less(part, replace(SETTINGS, **changes))
        assert [way[: len(begin)] for way, begin in zip(ways, found, strict=True)] == found


def test_how_batches_are_read_is_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """shuffle and read_ahead reach the batches of the training part, also of a resumed run."""
    from framewin.forecast.fitting import Fit
    from framewin.forecast.train import resume

    seen: list[tuple[object, object, object]] = []
    make = FrameWindowDataset.to_tf_dataset

    def spied(part: FrameWindowDataset, **options: object) -> object:
        if "shuffle" in options:
            seen.append((options["shuffle"], options["read_ahead"], options["start_step"]))
        return make(part, **options)

    def killed(fit: Fit) -> None:
        fit._save()
        raise InterruptedError

    monkeypatch.setattr(FrameWindowDataset, "to_tf_dataset", spied)
    store = moving_store(tmp_path, clips=3)
    with monkeypatch.context() as patch:
        patch.setattr(Fit, "_end_epoch", killed)
        with pytest.raises(InterruptedError):
            trained(store, tmp_path / "run", shuffle="blocks", read_ahead=3)
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert (settings["shuffle"], settings["read_ahead"]) == ("blocks", 3)
    assert set(seen) == {("blocks", 3, 0)}
    seen.clear()
    assert resume(tmp_path / "run", say=lambda line: None).epochs == 2
    assert set(seen) == {("blocks", 3, 0)}


def test_only_training_windows_are_augmented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What chooses the best epoch, and what is scored, is as stored."""
    seen: list[tuple[int, bool]] = []
    make = FrameWindowDataset.to_tf_dataset

    def spied(part: FrameWindowDataset, **options: object) -> object:
        seen.append((len(part), options.get("augment") is not None))
        return make(part, **options)

    monkeypatch.setattr(FrameWindowDataset, "to_tf_dataset", spied)
    store = moving_store(tmp_path, clips=4)
    report, _ = trained(store, tmp_path / "run", augment="flip", epochs=1)
    windows = {name: (count, name == "train") for name, count in report.windows.items()}
    assert set(seen) <= set(windows.values())
    assert windows["train"] in seen
    assert windows["validation"] in seen


def test_the_learning_rate_rises_and_falls() -> None:
    """To the peak in the first twentieth, then as a cosine: what Keras computes, too."""
    keras = import_or_skip("keras")
    from framewin.forecast.fitting import learning_rate_share

    low = learning_rate_share(0)
    assert 0 < low < 0.05
    keras_rate = keras.optimizers.schedules.CosineDecay(
        low, decay_steps=950, alpha=low, warmup_target=1.0, warmup_steps=50
    )
    for step in range(0, 1001, 10):
        assert learning_rate_share(step / 1000) == pytest.approx(float(keras_rate(step)), rel=1e-4)


def test_gradients_are_clipped_by_their_norm(tmp_path: Path) -> None:
    """Far below what Adam adds to a gradient's size, the weights stay where they are."""
    store = moving_store(tmp_path, clips=3)

    def improvement(name: str, **changes: object) -> float:
        report, _ = trained(store, tmp_path / name, test_share=0.0, **changes)
        rows = csv.DictReader((report.run / "history.csv").read_text().splitlines())
        first, last = (float(row["val_loss"]) for row in rows)
        return first - last

    assert abs(improvement("still", clip_norm=1e-16)) < 1e-6
    assert improvement("free") > 1e-4


def test_frames_are_decoded_once_for_a_training(tmp_path: Path) -> None:
    """Into the file that `cache` names, whichever part they are of."""
    store = tmp_path / "packed.zarr"
    convert(moving_store(tmp_path, clips=3), store, compression="zstd")
    trained(store, tmp_path / "run", cache=str(tmp_path / "cache"), epochs=1)
    size = FrameWindowDataset(store, input_frames=1, predict_frames=1).frame_format.nbytes * 36
    assert (tmp_path / "cache").stat().st_size >= size


def test_persistence_needs_no_training(tmp_path: Path) -> None:
    """Its scores are those of the last frame."""
    store = moving_store(tmp_path, clips=3)
    report, _ = trained(store, tmp_path / "run", model="persistence", filters=None, layers=None)
    assert (report.epochs, report.parameters, report.data_wait) == (0, 0, None)
    assert json.loads((report.run / "metrics.json").read_text())["data_wait"] is None
    assert report.evaluation.model.mse == pytest.approx(report.evaluation.last_frame.mse, rel=1e-6)


def test_large_seeds_and_scores_that_are_no_numbers(tmp_path: Path) -> None:
    """Regression: a seed beyond 32 bits, and a lead time without data, ended in tracebacks."""
    source = tmp_path / "rain"
    source.mkdir()
    frames = np.random.default_rng(0).random((4, 8, 8)).astype(np.float32)
    for clip in range(3):
        # Windows of this length start at the first frame only, so the last lead has no data.
        np.save(source / f"{clip}.npy", np.concatenate([frames, frames[:1] * np.nan]))
    convert(source, tmp_path / "rain.zarr", nodata=math.nan)
    report, _ = trained(tmp_path / "rain.zarr", tmp_path / "run", epochs=1, seed=2**40 + 3)
    metrics = json.loads((report.run / "metrics.json").read_text())
    first, second = metrics["model"]["mse_per_lead_time"]
    assert (first > 0, second) == (True, None)
    assert load_run(report.run).model_options["seed"] == 3
    import keras
    import tensorflow as tf

    versions = load_run(report.run).record["versions"]
    assert (versions["tensorflow"], versions["keras"]) == (tf.__version__, keras.__version__)


def test_every_option_of_training_at_once(tmp_path: Path) -> None:
    """Mixed precision, a mixed loss, weight decay, dropout and augmentation go together."""
    store = moving_store(tmp_path, clips=3)
    report, _ = trained(
        store,
        tmp_path / "run",
        model="simvp",
        mixed_precision=True,
        loss="ssim",
        weight_decay=0.01,
        dropout=0.2,
        augment="flip,turns,brightness=0.1",
        cache="memory",
        epochs=1,
    )
    model = load_run(report.run).model
    assert model.get_layer("body").compute_dtype == "bfloat16"
    assert model.output.dtype == "float32"


OWN_MODELS = """
import keras

class Looked(keras.layers.Layer):
    def __init__(self, used):
        super().__init__()
        self.used, self.table = used, keras.layers.Embedding(256, 1, "zeros")
        self.spare = self.add_weight((3,), name="spare")

    def call(self, frames):
        looked = self.table(frames)[..., 0]
        return looked if self.used else keras.ops.stop_gradient(looked)

def build(input_frames, predict_frames, frame_format, used=True):
    frames = keras.Input((input_frames, *frame_format.shape), dtype=frame_format.dtype)
    return keras.Model(frames, Looked(used)(frames)[:, :predict_frames])

def fixed(*arguments):
    return build(*arguments, used=False)
"""


def test_weights_that_are_looked_up_or_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a model of one's own with sparse gradients, or without some, ended in a crash."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "table_models.py").write_text(OWN_MODELS)
    store = moving_store(tmp_path, clips=3)
    options = {"filters": None, "layers": None, "epochs": 1, "learning_rate": 0.01}
    report, _ = trained(store, tmp_path / "run", model="table_models:build", **options)
    assert report.best_epoch == 1
    message = "the loss depends on none of the model's weights"
    with pytest.raises(TrainingError, match=message):
        trained(store, tmp_path / "none", model="table_models:fixed", **options)


def test_weights_that_do_not_decay() -> None:
    """Biases, the mix of lead times and the learnt colour, which 0 is no better value of."""
    from framewin.forecast.fitting import _optimizer
    from framewin.models import build_model
    from framewin.schema import FrameFormat

    optimizer = _optimizer(replace(SETTINGS, weight_decay=0.1))
    model = build_model("simvp", 3, 2, FrameFormat(8, 8, 1, "uint8"), {"filters": 2, "layers": 1})
    kept = {w.name for w in model.trainable_variables if not optimizer._use_weight_decay(w)}
    assert kept == {"bias", "lead_mix", "colour"}


def test_pixels_without_data_do_not_count(tmp_path: Path) -> None:
    """Weights leave them out of the loss, however wrong the forecast is there."""
    store = moving_store(tmp_path, clips=3)
    convert(tmp_path / "moving", tmp_path / "masked.zarr", nodata=0)
    whole, masked = (
        trained(path, tmp_path / f"run-{path.stem}", epochs=1)[1]
        for path in (store, tmp_path / "masked.zarr")
    )
    losses = [float(re.search("loss ([0-9.e-]+)", lines[-1])[1]) for lines in (whole, masked)]
    assert losses[1] < 0.8 * losses[0]


def test_noise_cannot_be_predicted(tmp_path: Path) -> None:
    """Were a target in reach, the loss would fall below the variance of the noise."""
    rng = np.random.default_rng(0)
    for clip in range(5):
        noise = {f"{n}.png": rng.integers(0, 256, (8, 8, 1)).astype(np.uint8) for n in range(20)}
        write_frames(tmp_path / "noise" / f"c{clip}", noise)
    convert(tmp_path / "noise", tmp_path / "noise.zarr")
    report, _ = trained(
        tmp_path / "noise.zarr",
        tmp_path / "run",
        model="convlstm-residual",
        epochs=4,
        learning_rate=0.01,
    )
    # Of the uniform distribution on 0..1; repeating the last frame has twice that.
    assert 1 / 12 * 0.97 < report.evaluation.model.mse < 1 / 12 * 1.25


def test_refusals(tmp_path: Path, make_store: MakeClips, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line each, and no run folder is left behind."""
    store = make_store({"a": range(6)})
    run = tmp_path / "run"
    for changes, message in (
        ({"input_frames": 9}, "cannot be trained on: no window fits, each spans 11"),
        ({}, "cannot be split: no window fits into the train part: a window"),
        ({"test_share": 0.0}, "cannot be split: no window fits into the train part: a window"),
        ({"augment": "turns"}, "cannot be trained on: turns needs square frames"),
        ({"devices": 2, "batch_size": 2}, "devices is 2, but there are 1"),
    ):
        with pytest.raises(TrainingError, match=re.escape(message)):
            trained(store, run, **changes)
    with pytest.raises(StoreError, match="does not exist; expected a store made by"):
        trained(tmp_path / "none.zarr", run)
    moving = moving_store(tmp_path, clips=3)
    packed = tmp_path / "packed.zarr"
    convert(tmp_path / "moving", packed, compression="gzip")
    message = (
        f"read_ahead is for frames that are mapped, those of {packed} are decoded; leave it out, "
        "or give the dataset a cache"
    )
    with pytest.raises(TrainingError, match=f"^{re.escape(message)}$"):
        trained(packed, run, read_ahead=2)
    with pytest.raises(TrainingError, match="built: patch_size must be from 1 to 8, got 16"):
        trained(moving, run, patch_size=16)
    message = (
        "an epoch has no step for each device: batch_size 64 is above the number of windows, 8; "
        "give a smaller --batch-size, or fewer devices"
    )
    devices = SimpleNamespace(worker=0, workers=1, count=2)
    with monkeypatch.context() as patch:
        patch.setattr("framewin.forecast.devices.choose_devices", lambda settings: devices)
        with pytest.raises(TrainingError, match=re.escape(message)):
            trained(moving, run, batch_size=64)
    message = "training needs Keras on TensorFlow, but it is on jax; set KERAS_BACKEND=tensorflow"
    with monkeypatch.context() as patch:
        patch.setattr("keras.config.backend", lambda: "jax")
        with pytest.raises(TrainingError, match=re.escape(message)):
            trained(moving, run)
    assert not run.exists()
    run.mkdir()
    with pytest.raises(StoreError, match=re.escape("run exists already; remove it or choose")):
        trained(moving, run)
    assert not list(run.iterdir())


def test_a_loss_that_is_no_number_stops(tmp_path: Path) -> None:
    """With the epoch, the step, the windows and the remedy."""
    store = moving_store(tmp_path, clips=3, frames=6)
    message = r"became (nan|inf) in epoch \d(, step \d)?, with the windows (\d, )*\d of the \w+"
    with pytest.raises(TrainingError, match=message + r" part; try a lower --learning-rate than"):
        trained(store, tmp_path / "run", learning_rate=1e30, model="convlstm")


def test_a_frame_that_is_no_number_is_named(tmp_path: Path) -> None:
    """The window, its clip and its first frame, so that it can be found."""
    frames = np.random.default_rng(0).random((40, 8, 8)).astype(np.float32)
    frames[4, 2, 3] = np.nan
    np.save(tmp_path / "noise.npy", frames)
    convert(tmp_path / "noise.npy", tmp_path / "noise.zarr")
    message = r"in epoch 1, step \d: window \d of the train part \(noise from frame \d\) holds"
    with pytest.raises(TrainingError, match=message):
        trained(tmp_path / "noise.zarr", tmp_path / "run", epochs=1)
    frames[4, 2, 3], frames[-4, 2, 3] = 0, np.inf
    np.save(tmp_path / "late.npy", frames)
    convert(tmp_path / "late.npy", tmp_path / "late.zarr")
    message = r"validation loss became (nan|inf) in epoch 0: window \d+ of the validation part"
    with pytest.raises(TrainingError, match=message):
        trained(tmp_path / "late.zarr", tmp_path / "late", epochs=1, test_share=0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "epochs must be >= 1, got 0"),
        ({"input_frames": 0}, "input_frames must be >= 1, got 0"),
        ({"minutes": 0.0}, "minutes must be above 0, got 0.0"),
        *(
            ({name: math.inf}, f"{name} must be finite, got inf")
            for name, each in TrainSettings.__dataclass_fields__.items()
            if each.type in ("float", "float | None")
        ),
        ({"learning_rate": math.nan}, "learning_rate must be finite, got nan"),
        ({"seed": 2**63}, "seed must be <= 9223372036854775807, got 9223372036854775808"),
        ({"clip_norm": -1.0}, "clip_norm must be above 0, got -1.0"),
        ({"weight_decay": -1.0}, "weight_decay must be >= 0, got -1.0"),
        ({"dropout": 1.0}, "dropout must be in [0, 1), got 1.0"),
        ({"test_share": 1.0}, "test_share must be in [0, 1), got 1.0"),
        ({"test_share": 0.8}, "must leave something to train on, got 0.2 and 0.8"),
        ({"normalize": "no"}, "normalize must be one of auto, unit, range, standard, got 'no'"),
        ({"normalize": "range", "model": "a:b"}, "is for models of framewin; a:b must scale fr"),
        ({"normalize": "standard", "loss": "bce"}, "loss 'bce' needs frames in 0..1, not normal"),
        ({"loss": "mde"}, "loss must be one of mse, mae, mae+mse, bce, ssim, got 'mde'"),
        ({"model": "unet"}, "model must be one of convlstm, convlstm-residual, simvp, persis"),
        ({"model": "a b:c"}, "or package.module:build, got 'a b:c'"),
        ({"next_frame": True}, "next_frame is for models of your own without a lead_gap, got"),
        ({"augment": "flip,spin"}, "augment has 'spin'; it may have flip, reverse_time, flip_h"),
        ({"augment": "zoom=2"}, "augment has 'zoom=2'; it may have"),
        ({"devices": 3}, "batch_size must be a multiple of devices, got 8 for 3 devices"),
        ({"batch_size": 0}, "batch_size must be >= 1, got 0"),
        ({"shuffle": False}, "shuffle must be True or 'blocks', got False"),
        ({"shuffle": 1}, "shuffle must be True or 'blocks', got 1"),
        ({"shuffle": "true"}, "shuffle must be True or 'blocks', got 'true'"),
        ({"read_ahead": -1}, "read_ahead must be >= 0, got -1"),
        ({"filters": 0}, "filters must be >= 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0, got 0.0"),
        ({"validation_share": 1.0}, "validation_share must be between 0 and 1, got 1.0"),
    ],
)
def test_bad_settings(change: dict, message: str) -> None:
    """The message names the setting and the value."""
    with pytest.raises(ValueError, match=re.escape(message)):
        TrainSettings(**change)
