"""Evaluation of runs: the right windows, scores of plain numpy, and a report that stands alone."""

from __future__ import annotations

import base64
import csv
import io
import json
import pickle
import re
import shutil
import subprocess
import sys
from fractions import Fraction
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import framewin
from framewin import FrameWindowDataset, StoreError, TrainingError, convert, evaluate
from framewin.cli import main
from framewin.forecast.report import lead_table, text_tables
from framewin.forecast.runs import load_run
from framewin.forecast.validation import examples_of
from framewin.pictures.figures import Look
from framewin.splitting import SplitPart
from framewin.stores.durable import MARKER
from tests.conftest import MakeClips, import_or_skip
from tests.helpers.gifs import read_gif
from tests.helpers.runs import make_run
from tests.helpers.training import CLIPS, SHAPE, Fake, with_model

pytestmark = [
    pytest.mark.usefixtures("tf"),
    # Keras and TensorFlow warn of their own ways of calling each other.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
FRAMEWIN = Path(sys.executable).parent / "framewin"


def darker(inputs: np.ndarray) -> np.ndarray:
    """The last frame, 0.1 darker and darker."""
    return inputs[:, -1:] - np.array([0.1, 0.2]).reshape(1, 2, 1, 1, 1)


def windows_of(run: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of a part in 0..1, read by the dataset that the split file gives."""
    ds = FrameWindowDataset(
        load_run(run).store,
        input_frames=3,
        predict_frames=2,
        split=SplitPart(part, run / "split.json"),
    )
    inputs, targets = ds.batch(range(len(ds)))
    return inputs / 255, targets / 255


def test_scores_are_those_of_plain_numpy(run: Path) -> None:
    """Of the test part only, the model clipped to what frames can be, in any batch size."""
    inputs, targets = windows_of(run, "test")
    report = evaluate(with_model(run, Fake(darker)), batch_size=5)
    assert report.windows == len(targets) == 16
    assert (report.clips, report.part, report.leads) == (2, "test", (1, 2))
    forecasts = {
        "model": np.clip(darker(inputs), 0, 1),
        "persistence": np.repeat(inputs[:, -1:], 2, axis=1),
        "mean_of_inputs": np.repeat(inputs.mean(axis=1, keepdims=True), 2, axis=1),
    }
    for name, made in forecasts.items():
        error = made - targets
        scores = report.total[name]
        assert scores.mse_pixel == pytest.approx((error**2).mean(), rel=1e-6)
        assert scores.mae == pytest.approx(abs(error).mean(), rel=1e-6)
        assert scores.mse_sum == pytest.approx((error**2).sum() / (16 * 2), rel=1e-6)
        for lead, each in enumerate(report.per_lead_time[name]):
            assert each.mse_pixel == pytest.approx((error[:, lead] ** 2).mean(), rel=1e-6)
    mse = {name: ((made - targets) ** 2).mean() for name, made in forecasts.items()}
    assert report.skill.value == pytest.approx(1 - mse["model"] / mse["persistence"], rel=1e-5)


def test_no_window_is_of_the_training_part(run: Path) -> None:
    """Not by name, not by another layout of the store; a renamed copy keeps its split."""
    message = "part 'train' is what the run was trained on, so its scores say nothing; choose"
    with pytest.raises(TrainingError, match=re.escape(message)):
        evaluate(run, part="train")
    store = load_run(run).store
    packed = store.with_name("packed.h5")
    convert(store, packed, compression="gzip")
    with pytest.raises(TrainingError, match=r"which .* was trained on; leave --store out"):
        evaluate(run, store=packed)
    copy = store.with_name("copy.zarr")
    shutil.copytree(store, copy)
    report = evaluate(run, store=copy)
    assert (report.windows, report.part) == (16, "test")
    with pytest.raises(TrainingError, match="has no part 'tests'"):
        evaluate(run, part="tests", out=run / "other")


def test_another_store_is_used_whole(run: Path, make_store: MakeClips) -> None:
    """All its windows, for the model has seen none of them."""
    other = make_store({"x": range(20, 30), "y": range(8)}, name="other", shape=SHAPE)
    report = evaluate(run, store=other)
    assert (report.windows, report.clips, report.part) == (6 + 4, 2, "all windows")
    wrong = make_store({"x": range(9)}, name="wrong")
    message = "has frames of 4x6x1 uint8, the model of"
    with pytest.raises(TrainingError, match=message):
        evaluate(run, store=wrong, out=run / "wrong")
    message = f"{other} is used whole, without a part; leave part='validation' out"
    with pytest.raises(ValueError, match=re.escape(message)):
        evaluate(run, store=other, part="validation", out=run / "part")


def noise_store(folder: Path, clips: dict[str, np.ndarray]) -> Path:
    """A store of arrays (T, H, W), a clip for each."""
    (folder / "arrays").mkdir(parents=True)
    for name, frames in clips.items():
        np.save(folder / "arrays" / f"{name}.npy", frames)
    convert(folder / "arrays", folder / "made.zarr")
    return folder / "made.zarr"


def noise(seed: int, **values: float) -> dict[str, np.ndarray]:
    """Four clips of float32 frames of noise, with a value in the first frame and in a pixel."""
    rng = np.random.default_rng(seed)
    clips = {name: rng.random((9, 4, 6)).astype("float32") for name in "abcd"}
    for frames in clips.values():
        frames[0] = values.get("first", frames[0])
        frames[:, 1, 2] = values.get("pixel", frames[:, 1, 2])
    return clips


def test_a_copy_is_found_though_it_begins_like_others(tmp_path: Path) -> None:
    """Regression: NaN never equalled NaN; and what begins black is not the same for that."""
    for name, values in (("nan", {"pixel": np.nan}), ("black", {"first": 0})):
        own, more = noise(0, **values), {"e": noise(1)["a"]}
        run = make_run(tmp_path / name / "run", noise_store(tmp_path / name / "own", own))
        copy = noise_store(tmp_path / name / "copy", own | more)
        with pytest.raises(TrainingError, match=r"holds clip ., which .* was trained on; leave"):
            evaluate(run, store=copy)
        other = noise_store(tmp_path / name / "other", noise(2, **values))
        assert evaluate(run, store=other, data_range=(0, 1)).part == "all windows"


def test_a_copy_is_found_where_clips_begin_with_a_gap(
    make_store: MakeClips, tmp_path: Path
) -> None:
    """Regression: a first segment too short for a window was never trained on, nor compared."""
    store = make_store({name: [0, 1, *range(5, 12)] for name in "abcd"})
    folder = make_run(tmp_path / "run", store)
    convert(store, tmp_path / "packed.h5", compression="gzip")
    with pytest.raises(TrainingError, match=r"holds clip ., which .* was trained on; leave"):
        evaluate(folder, store=tmp_path / "packed.h5")


@pytest.mark.parametrize("dtype", ["uint32", "int16"])
def test_integers_that_are_no_pictures_have_the_range_of_training(
    tmp_path: Path, dtype: str
) -> None:
    """Regression: uint32 had the range 0 to 4294967295."""
    clips = {name: (100 * frames).astype(dtype) for name, frames in noise(0).items()}
    report = evaluate(make_run(tmp_path / "run", noise_store(tmp_path / "own", clips)))
    assert report.data_range.source == "least and greatest value of the frames trained on"
    assert 0 <= report.data_range.low < report.data_range.high < 100


class Page(HTMLParser):
    """What a page refers to, and whether its elements are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.references: list[str] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img") and not self.get_starttag_text().endswith("/>"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("circle", "polyline"):
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def test_the_folder_is_complete(make_store: MakeClips, tmp_path: Path) -> None:
    """Numbers alike in JSON, CSV and HTML; pictures that play; nothing from elsewhere."""
    store = make_store({f"{n}<b>&'": range(12) for n in range(8)}, shape=SHAPE)
    folder = make_run(tmp_path / "a <script>alert(1)</script> run", store)
    report = evaluate(with_model(folder, Fake(darker)), thresholds=(20, 200.5), fss_window=3)
    out = folder / "evaluation"
    assert report.out == out
    names = ["best.gif", "best.mp4", "best.png", "lead_time.png", "median.gif", "median.mp4"]
    names += ["median.png", "metrics.csv", "metrics.json", "report.html", "worst.gif"]
    names += ["worst.mp4", "worst.png"]
    assert sorted(path.name for path in out.iterdir()) == names
    record = json.loads((out / "metrics.json").read_text())
    with (out / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(report.total) * 3
    for row in rows:
        scores = record["scores"][row["predictor"]]
        expected = scores["total"]
        if row["lead_time"] != "all":
            expected = scores["per_lead_time"][int(row["lead_time"]) - 1]
        assert float(row["mse_pixel"]) == expected["mse_pixel"]
        assert float(row["fss_20"]) == expected["thresholds"][0]["fss"]
        assert expected["thresholds"][1]["threshold"] == 200.5
    frames, durations = read_gif((out / "worst.gif").read_bytes())
    assert (len(frames), durations) == (5, [250] * 4 + [1250])
    check_page((out / "report.html").read_text(), report)


def check_page(text: str, report: framewin.EvaluationReport) -> None:
    page = Page(text)
    assert page.open == []
    assert not page.tags & {"script", "link", "iframe", "object", "b"}
    assert "url(" not in text
    assert "http" not in text.replace("http-equiv", "")
    assert len(page.references) == 6
    for reference in page.references:
        kind, data = reference.split(";base64,")
        assert kind in ("data:image/gif", "data:image/png")
        Image.open(io.BytesIO(base64.b64decode(data))).verify()
    for words in ("a <script>alert(1)</script> run", "<b>&'", report.identity, "optical flow"):
        assert words in page.words, words
    assert f"{report.total['model'].mse_pixel:.5f}" in page.words


def test_the_shown_windows_are_the_extremes(run: Path) -> None:
    """Best and worst by the model's error in the window."""
    inputs, targets = windows_of(run, "test")
    errors = ((np.clip(darker(inputs), 0, 1) - targets) ** 2).mean(axis=(1, 2, 3, 4))
    report = evaluate(with_model(run, Fake(darker)))
    text = (report.out / "report.html").read_text()
    shown = [float(found) for found in re.findall(r"MSE (0\.\d+)</h3>", text)]
    order = np.sort(errors)
    assert shown == pytest.approx([order[0], order[7], order[-1]], abs=1e-5)


def test_the_interval_is_over_clips_or_blocks(
    run: Path, make_store: MakeClips, tmp_path: Path
) -> None:
    """Overlapping windows of a clip are not independent; of one clip, blocks of a span are."""
    first = evaluate(with_model(run, Fake(darker)))
    assert (first.skill.groups, first.skill.of) == (2, "clips")
    assert any("from 2 clips: too few to be trusted" in note for note in first.notes)
    assert first.skill.low <= first.skill.value <= first.skill.high
    again = evaluate(with_model(run, Fake(darker)), out=tmp_path / "again")
    assert again.skill == first.skill
    store = make_store({"long": range(100)}, name="long", shape=SHAPE)
    alone = make_run(tmp_path / "alone", store, by="time")
    report = evaluate(with_model(alone, Fake(darker)))
    assert report.skill.of == "blocks of 5 frames, one window span, of a single clip"
    assert report.skill.groups == -(-report.windows // 5)
    assert report.skill.low is not None


def test_a_perfect_forecast(tmp_path: Path, make_store: MakeClips) -> None:
    """Frames that stand still and are black: infinite ratios, and no skill to speak of."""
    from tests.conftest import write_frames

    for clip in range(4):
        frames = {f"{n}.png": np.zeros(SHAPE, np.uint8) for n in range(8)}
        write_frames(tmp_path / "still" / f"c{clip}", frames)
    convert(tmp_path / "still", tmp_path / "still.zarr")
    folder = make_run(tmp_path / "run", tmp_path / "still.zarr")
    report = evaluate(folder, thresholds=(1,))
    assert report.skill.value is None
    total = json.loads((report.out / "metrics.json").read_text())["scores"]["model"]["total"]
    assert (total["psnr_frame_mean"], total["psnr_of_mean_mse"]) == (100, "infinity")
    assert total["perfect_frames"] == total["frames"] == 2 * report.windows
    [table, *_] = text_tables(report)
    assert table[0][6] == "perfect frames"
    assert {row[6] for row in table[1:]} == {str(2 * report.windows)}
    assert (total["mse_pixel"], total["ssim"]) == (0, 1)
    assert total["thresholds"][0]["csi"] is None


def test_forecasts_of_no_data_are_not_drawn(make_store: MakeClips, tmp_path: Path) -> None:
    """Regression: pictures showed what the model made of no data."""
    store = make_store(CLIPS, shape=SHAPE, converted={"nodata": 7})
    dataset = FrameWindowDataset(store, input_frames=3, predict_frames=2)
    inputs, targets = dataset.batch(range(len(dataset)))
    found = examples_of(Fake(darker), dataset, range(len(dataset)))
    missing = np.broadcast_to(inputs[:, -1:] == 7, targets.shape)
    assert missing.any()
    assert np.array_equal(np.isnan([each.forecast for each in found]), missing)
    assert np.array_equal(np.isnan([each.truth for each in found]), targets == 7)
    assert np.array_equal(np.isnan([each.inputs for each in found]), inputs == 7)


def test_pixels_without_data_are_left_out(make_store: MakeClips, tmp_path: Path) -> None:
    """Whatever value stands for them, in targets and in the inputs that baselines see."""
    store = make_store(CLIPS, shape=SHAPE, converted={"nodata": 7})
    folder = make_run(tmp_path / "run", store)
    inputs, targets = windows_of(folder, "test")
    valid = targets != 7 / 255
    assert not valid.all()
    report = evaluate(with_model(folder, Fake(darker)))
    error = (np.clip(darker(inputs), 0, 1) - targets)[valid]
    assert report.total["model"].mse_pixel == pytest.approx((error**2).mean(), rel=1e-6)
    last = inputs[:, -1].copy()
    for earlier in (1, 0):
        last = np.where(last == 7 / 255, inputs[:, earlier], last)
    error = (last[:, np.newaxis] - targets)[valid]
    assert report.total["persistence"].mse_pixel == pytest.approx((error**2).mean(), rel=1e-6)
    assert any("value 7 have no data" in note for note in report.notes)


def test_floats_have_the_range_of_the_frames_trained_on(
    tmp_path: Path,
) -> None:
    """Their dtype says nothing; NaN has no data; a range that is given wins."""
    rng = np.random.default_rng(0)
    (tmp_path / "arrays").mkdir()
    for clip in range(4):
        frames = rng.uniform(5, 9, (10, 12, 12)).astype("float32")
        frames[:, 0, :3] = np.nan
        np.save(tmp_path / "arrays" / f"c{clip}.npy", frames)
    convert(tmp_path / "arrays", tmp_path / "rain.zarr")
    folder = make_run(tmp_path / "run", tmp_path / "rain.zarr")
    report = evaluate(folder)
    train = FrameWindowDataset(
        tmp_path / "rain.zarr",
        input_frames=3,
        predict_frames=2,
        split=SplitPart("train", folder / "split.json"),
    )
    seen = np.concatenate([np.concatenate(train[n]) for n in range(len(train))])
    assert report.data_range.low == pytest.approx(np.nanmin(seen))
    assert report.data_range.high == pytest.approx(np.nanmax(seen))
    assert np.isfinite(report.total["persistence"].mse_pixel)
    given = evaluate(folder, data_range=(0, 10), out=tmp_path / "given")
    assert (given.data_range.width, given.data_range.source) == (10, "given")
    shift = 20 * np.log10(10 / report.data_range.width)
    ratios = [r.total["model"].psnr_of_mean_mse for r in (report, given)]
    assert ratios[1] - ratios[0] == pytest.approx(shift)


def test_longer_horizons_and_times(make_store: MakeClips, tmp_path: Path) -> None:
    """Five frames from a model of two; the pace and the numbers of stores with time stamps."""
    options = {"frame_regex": r"t(?P<time>\d+)", "time_format": "%f"}
    names = {name: range(10_000, 10_000 + 40_000 * 12, 40_000) for name in "abcd"}
    store = make_store(names, shape=(16, 16, 1), pattern="t{:06d}.png", converted=options)
    folder = make_run(tmp_path / "run", store)
    report = evaluate(with_model(folder, Fake(darker)), horizon=5)
    assert report.leads == (1, 2, 3, 4, 5)
    assert report.pace.seconds == Fraction(1, 25)
    assert ", times 19" in (report.out / "report.html").read_text()
    _, durations = read_gif((report.out / "best.gif").read_bytes())
    assert durations == [40] * 7 + [1040]
    ds = load_run(folder).dataset("test", predict_frames=5)
    inputs, targets = (part / 255 for part in ds.batch(range(len(ds))))
    made, seen = [], inputs
    for _ in range(3):
        step = darker(seen)
        made.append(step)
        fed = np.rint(np.clip(step, 0, 1) * 255) / 255
        seen = np.concatenate([seen, fed], axis=1)[:, -3:]
    error = np.clip(np.concatenate(made, axis=1)[:, :5], 0, 1) - targets
    assert report.total["model"].mse_pixel == pytest.approx((error**2).mean(), rel=1e-5)


def test_longer_horizons_of_a_split_by_time(make_store: MakeClips, tmp_path: Path) -> None:
    """Regression: windows longer than the gap between parts were refused; all stay in theirs."""
    store = make_store({"a": range(60)}, shape=(16, 16, 1))
    folder = make_run(tmp_path / "run", store, by="time")
    report = evaluate(with_model(folder, Fake(darker)), horizon=5)
    ds = load_run(folder).dataset("test", predict_frames=5)
    assert report.windows == len(ds)
    assert report.leads == (1, 2, 3, 4, 5)
    kept = json.loads((folder / "split.json").read_text())["parts"]["test"]
    assert ds.index.row_ranges().tolist() == [[begin, end] for _, begin, end in kept]
    again = pickle.loads(pickle.dumps(ds))
    assert len(again) == len(ds)
    longer = partial(FrameWindowDataset, store, input_frames=3, predict_frames=5)
    for span, message in (
        (None, "leaves 5 frames out between the parts, a window spans 8"),
        (0, "span must be >= 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            longer(split=SplitPart("test", folder / "split.json", span))


def test_a_run_on_an_array_that_is_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: it was scored, and then could not be opened as a store; nor, by a relative path,
    was it the array that was trained on."""
    frames = np.random.default_rng(0).integers(0, 255, (40, 12, 14)).astype("uint8")
    np.save(tmp_path / "frames.npy", frames)
    monkeypatch.chdir(tmp_path)
    folder = make_run(tmp_path / "run", Path("frames.npy"), by="time")
    report = evaluate(folder)
    assert (report.part, report.windows > 0) == ("test", True)
    assert (report.out / "report.html").exists()
    made = framewin.predict(folder, tmp_path / "frames.npy", out=tmp_path / "next")
    assert (made.forecasts, made.frames) == (1, 2)
    [last, _] = sorted((tmp_path / "next").rglob("*.png"))
    assert np.array_equal(np.asarray(Image.open(last)), frames[-1])


def test_a_forecast_that_is_not_a_number_is_named(run: Path) -> None:
    """It would make every score NaN; nothing is left behind."""
    broken = Fake(lambda inputs: darker(inputs) * np.nan)
    message = r"the forecast for clip ., frame 3 on is not a number; train again"
    with pytest.raises(TrainingError, match=message):
        evaluate(with_model(run, broken))
    assert not (run / "evaluation").exists()
    assert not (run / "evaluation.partial").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fss_window": 4}, "fss_window must be odd and >= 1, got 4"),
        ({"batch_size": 0}, "batch_size must be >= 1, got 0"),
        ({"horizon": 0}, "horizon must be >= 1, got 0"),
        ({"seed": -1}, "seed must be >= 0, got -1"),
        ({"data_range": (3, 3)}, "data_range must be LOW:HIGH with LOW below HIGH, got 3:3"),
        ({"thresholds": (1, float("nan"))}, "thresholds must be finite, got [1, nan]"),
        ({"thresholds": (2, 2)}, "thresholds must differ, got [2, 2]"),
    ],
)
def test_bad_values(run: Path, options: dict, message: str) -> None:
    """The message names the argument and the value."""
    with pytest.raises(ValueError, match=re.escape(message)):
        evaluate(run, **options)


def test_a_folder_that_exists_is_left_alone(run: Path, tmp_path: Path) -> None:
    """As is a place that cannot be."""
    (run / "evaluation").mkdir()
    with pytest.raises(StoreError, match="evaluation exists already; remove it or choose another"):
        evaluate(run)
    with pytest.raises(StoreError, match="none is not a folder; make it first"):
        evaluate(run, out=tmp_path / "none" / "out")
    with pytest.raises(StoreError, match="expected a run folder made by framewin train"):
        evaluate(tmp_path / "nothing")


def test_what_a_killed_run_left_is_no_hindrance(run: Path) -> None:
    """Its partial folder is cleared, as that of a conversion is."""
    partial = run / "evaluation.partial"
    (partial / "store").mkdir(parents=True)
    (partial / "store" / "best.gif").write_bytes(b"half")
    (partial / MARKER).write_text("1 on another")
    evaluate(run)
    assert not partial.exists()
    assert read_gif((run / "evaluation" / "best.gif").read_bytes())[0]


def test_radar(real_data: Path, tmp_path: Path) -> None:
    """Five-minute frames with pixels without data: optical flow is ahead, times are told."""
    import_or_skip("cv2")
    convert(
        real_data / "radar_mch_png_derived",
        tmp_path / "radar.zarr",
        palette="index",
        crop=(200, 300, 200, 320),
        nodata=255,
        frame_regex="AQC(?P<time>[0-9]{9})",
        time_format="%y%j%H%M",
    )
    parts = {"train": 0.4, "validation": 0.3, "test": 0.3}
    folder = make_run(tmp_path / "run", tmp_path / "radar.zarr", parts, by="time")
    report = evaluate(folder, thresholds=(5,), data_range=(0, 15))
    assert report.pace.true_seconds == 300
    flow, still = (report.total[name] for name in ("optical_flow", "persistence"))
    assert flow.mse_pixel < still.mse_pixel
    assert flow.thresholds[0].csi > still.thresholds[0].csi
    ds = load_run(folder).dataset("test")
    inputs, targets = ds.batch(range(len(ds)))
    last = inputs[:, -1]
    for earlier in (1, 0):
        last = np.where(last == 255, inputs[:, earlier], last)
    last = np.where(last == 255, 0, last)[:, np.newaxis].astype(float)
    error = ((last - targets) / 255)[targets != 255]
    assert still.mse_pixel == pytest.approx((error**2).mean())


def test_the_command(
    run: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The table on stdout, exit codes 0, 1 and 2, and no traceback."""
    command = [FRAMEWIN, "evaluate", run, "--thresholds", "20,60.5", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("optical flow", "PSNR of frames", "Pixels of 60.5 and above", "16 from 2 clips"):
        assert words in done.stdout
    assert "bootstrap over 2 clips" in done.stdout
    for options, code, words in (
        ((), 1, "evaluation exists already; remove it or choose another --out"),
        (("--part", "train"), 1, "is what the run was trained on"),
        (("--fss-window", "7"), 2, "FSS needs thresholds, got --fss-window 7 without any"),
        (("--data-range", "1-2"), 2, "--data-range must be numbers with ':' between, got '1-2'"),
        (("--data-range", "1"), 2, "--data-range must be LOW:HIGH, got '1'"),
        (("--thresholds", "1,x"), 2, "--thresholds must be numbers with ',' between, got '1,x'"),
    ):
        out = () if words.startswith("evaluation") else ("--out", str(run / "new"))
        monkeypatch.setattr(sys, "argv", ["framewin", "evaluate", str(run), *options, *out])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == code, options
        printed = " ".join(capfd.readouterr().err.replace("\u2502", "").split())
        assert words in printed
        assert "Traceback" not in printed


def test_pictures_for_papers(make_store: MakeClips, tmp_path: Path) -> None:
    """Beside the PNG files, in the colours that were asked for; lead times in minutes."""
    import_or_skip("matplotlib")
    options = {"frame_regex": r"(?P<time>\d{8}T\d{4})", "time_format": "%Y%m%dT%H%M"}
    clips = {f"c{n}": range(10, 58, 5) for n in range(8)}
    store = make_store(clips, shape=SHAPE, pattern="20260102T03{}.png", converted=options)
    folder = make_run(tmp_path / "run", store)
    with pytest.raises(ValueError, match="figures must be pdf or svg, got 'bmp'"):
        evaluate(folder, figures="bmp")
    report = evaluate(folder, figures="svg", look=Look("viridis", 10, 200, "light"))
    assert lead_table(report)[0] == ["MSE by lead time", "+5 min", "+10 min"]
    page = (report.out / "report.html").read_text()
    assert "lead times 5 to 10 minutes" in page
    assert "<th>+10 min</th>" in page
    assert ":root { color-scheme: light;" in page
    assert "prefers-color-scheme" not in page
    best = np.asarray(Image.open(report.out / "best.png"))
    assert (best == [68, 1, 84]).all(axis=-1).any(), "the first colour, of the scale at least"
    for name in ("best", "lead_time"):
        assert np.asarray(Image.open(report.out / f"{name}.png"))[0, 0].tolist() == [255] * 3
        svg = (report.out / f"{name}.svg").read_text()
        assert "fill: #ffffff" in svg
        assert (">200</text>" in svg, ">lead time, minutes</text>" in svg) == (
            (name == "best"),
            (name == "lead_time"),
        )


def test_a_colour_map_is_for_one_channel(make_store: MakeClips, tmp_path: Path) -> None:
    """It is refused before anything is scored."""
    import_or_skip("matplotlib")
    folder = make_run(tmp_path / "run", make_store(CLIPS, shape=(*SHAPE[:2], 3)))
    with pytest.raises(ValueError, match="cmap is for frames of one channel, these have 3"):
        evaluate(folder, look=Look("viridis"))
    assert not (folder / "evaluation").exists()
