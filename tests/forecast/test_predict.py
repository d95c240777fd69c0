"""Forecasts of new frames: the right frames, numbers and values, in every kind of output."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import imagecodecs
import numpy as np
import pytest

from framewin import (
    FrameWindowDataset,
    SourceError,
    StoreError,
    TrainingError,
    convert,
    predict,
    verify,
)
from framewin.forecast.runs import Run
from framewin.stores import open_store
from tests.conftest import MakeClips, import_or_skip, make_frame, write_frames
from tests.helpers.gifs import read_gif
from tests.helpers.runs import make_run
from tests.helpers.training import Fake, with_model

pytestmark = [
    pytest.mark.usefixtures("tf"),
    # Keras and TensorFlow warn of their own ways of calling each other.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
CLIPS = {"a": range(3, 12), "b": [*range(6), *range(8, 12)], "c/d": range(9), "e": range(9)}
FRAMEWIN = Path(sys.executable).parent / "framewin"


@pytest.fixture
def store(make_store: MakeClips) -> Path:
    return make_store(CLIPS)


@pytest.fixture
def run(store: Path, tmp_path: Path) -> Path:
    """A run whose model repeats the last of three frames twice."""
    return make_run(tmp_path / "run", store)


def read_png(path: Path) -> np.ndarray:
    return imagecodecs.png_decode(path.read_bytes())


def tree(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_png_files_of_the_last_inputs(run: Path, store: Path, tmp_path: Path) -> None:
    """The two numbers behind each clip's last frame, with that frame's pixels."""
    report = predict(run, store, out=tmp_path / "out")
    assert (report.kind, report.forecasts, report.frames, report.clips) == ("PNG files", 4, 8, 4)
    assert tree(tmp_path / "out") == [
        "a/frame_000012.png", "a/frame_000013.png", "b/frame_000012.png", "b/frame_000013.png",
        "c/d/frame_000009.png", "c/d/frame_000010.png", "e/frame_000009.png", "e/frame_000010.png",
    ]  # fmt: skip
    for clip, (name, numbers) in enumerate(CLIPS.items()):
        for path in (tmp_path / "out" / name).iterdir():
            assert np.array_equal(read_png(path), make_frame(clip, numbers[-1])[..., 0])
    assert not (tmp_path / "out.partial").exists()


def test_every_window(run: Path, store: Path, tmp_path: Path) -> None:
    """Also those behind which nothing is known; none crosses a gap."""
    report = predict(run, store, out=tmp_path / "out", every=True, batch_size=3)
    folders = sorted(p.name for p in (tmp_path / "out" / "b").iterdir())
    assert folders == [f"from_{n:06d}" for n in (2, 3, 4, 5, 10, 11)]
    assert report.forecasts == 7 + 6 + 7 + 7
    for folder in folders:
        last = int(folder.removeprefix("from_"))
        found = tree(tmp_path / "out" / "b" / folder)
        assert found == [f"frame_{last + k:06d}.png" for k in (1, 2)]
        for name in found:
            read = read_png(tmp_path / "out" / "b" / folder / name)
            assert np.array_equal(read, make_frame(1, last)[..., 0])


def test_steps_gaps_and_horizons(store: Path, tmp_path: Path) -> None:
    """Inputs every second frame; the forecast skips one; a rollout goes on in the same steps."""
    settings = {"frame_step": 2, "predict_frames": 1}
    parts = {"train": "a", "validation": "c/d", "test": "e"}
    gapped = make_run(tmp_path / "gapped", store, parts, lead_gap=1, **settings)
    predict(gapped, store, out=tmp_path / "out")
    assert tree(tmp_path / "out" / "a") == ["frame_000015.png"]
    message = "a horizon of 2 frames cannot follow from a model of 1 with a lead gap of 1"
    with pytest.raises(TrainingError, match=message):
        predict(gapped, store, out=tmp_path / "far", horizon=2)
    assert not (tmp_path / "far").exists()
    plain = make_run(tmp_path / "plain", store, parts, **settings)
    report = predict(plain, store, out=tmp_path / "rolled", horizon=3)
    assert tree(tmp_path / "rolled" / "e") == [f"frame_{n:06d}.png" for n in (10, 12, 14)]
    # Clip b ends with four frames in a row, and inputs span five.
    assert (report.too_short, report.clips) == (("b",), 3)


def test_values_are_rounded_to_what_is_stored(make_store: MakeClips, tmp_path: Path) -> None:
    """Every uint8 and uint16 value comes back, what lies beyond is clipped."""
    for dtype, most in (("uint8", 255), ("uint16", 65535)):
        store = make_store({n: range(8) for n in "abcd"}, name=dtype, dtype=dtype)
        run = make_run(tmp_path / f"run-{dtype}", store)
        values = np.linspace(-1000, most + 1000, 24).reshape(4, 6, 1)
        near = values + 0.3 * (-1) ** np.arange(24).reshape(4, 6, 1)

        def forecast(inputs: np.ndarray, frame: np.ndarray = near / most) -> np.ndarray:
            return np.broadcast_to(frame, (len(inputs), 2, *frame.shape))

        predict(with_model(run, Fake(forecast)), store, out=tmp_path / f"out-{dtype}")
        expected = np.clip(np.rint(near), 0, most)[..., 0]
        found = read_png(tmp_path / f"out-{dtype}" / "a" / "frame_000008.png")
        assert found.dtype == dtype
        assert np.abs(found.astype(float) - expected).max() == 0


@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
def test_a_store_of_forecasts(run: Path, store: Path, tmp_path: Path, suffix: str) -> None:
    """Whole by its checksums, read as any other, with the same frames as the PNG files."""
    out = tmp_path / f"forecast{suffix}"
    predict(run, store, out=out, horizon=4)
    predict(run, store, out=tmp_path / "png", horizon=4)
    assert verify(out).damage == []
    ds = FrameWindowDataset(out, input_frames=2, predict_frames=2)
    assert ds.clips.names == ("a", "b", "c/d", "e")
    assert ds.clips.gaps() == []
    for window in range(len(ds)):
        where = ds.window(window)
        frames = np.concatenate(ds[window])
        numbers = where.input_frame_numbers + where.predict_frame_numbers
        for number, frame in zip(numbers, frames, strict=True):
            file = tmp_path / "png" / where.clip / f"frame_{number:06d}.png"
            assert np.array_equal(read_png(file), frame[..., 0])
        # No file holds them.
        assert set(where.input_files + where.predict_files) == {""}
    every = tmp_path / f"every{suffix}"
    predict(run, store, out=every, every=True)
    names = open_store(every).meta.clips.names
    assert names[:2] == ("a/from_000005", "a/from_000006")


@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
def test_forecasts_mean_what_their_inputs_do(
    tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other readers see physical values, no data, units and coordinates, as of the inputs."""
    xarray = import_or_skip("xarray")
    import_or_skip("h5netcdf")
    rain = np.tile(np.arange(48, dtype="float32").reshape(4, 12) * 0.05, (12, 1, 1))
    rain[:, 0, 0] = np.nan
    (tmp_path / "radar").mkdir()
    for name in "abcd":
        dataset = xarray.Dataset(
            {"rain": (("time", "lat", "lon"), rain, {"units": "mm"})},
            {"lat": np.linspace(55, 54, 4), "lon": np.arange(12.0)},
        )
        encoding = {"dtype": "uint8", "scale_factor": 0.05, "_FillValue": 255}
        dataset.to_netcdf(
            tmp_path / "radar" / f"{name}.nc", engine="h5netcdf", encoding={"rain": encoding}
        )
    convert(tmp_path / "radar", tmp_path / "clips.zarr")
    run = make_run(tmp_path / "run", tmp_path / "clips.zarr")
    out = tmp_path / f"forecast{suffix}"
    predict(run, tmp_path / "clips.zarr", out=out)
    found = (
        xarray.open_zarr(out) if suffix == ".zarr" else xarray.open_dataset(out, engine="h5netcdf")
    )
    assert np.allclose(found.frames.to_numpy()[0, ..., 0], rain[0], atol=1e-6, equal_nan=True)
    assert (found.frames.units, found.y.to_numpy()[0], found.x.to_numpy()[-1]) == ("mm", 55, 11)
    assert set(found.source_file.to_numpy()) == {""}
    found.close()
    done = subprocess.run([FRAMEWIN, "info", out], capture_output=True, text=True, check=True)
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert {"no data 255", "values times 0.05, in mm", "y 55 to 54", "x 0 to 11"} <= set(lines)
    (tmp_path / "other").mkdir()
    dataset.to_netcdf(
        tmp_path / "other" / "a.nc",
        engine="h5netcdf",
        encoding={"rain": {**encoding, "scale_factor": 0.1}},
    )
    with pytest.raises(SourceError, match=r"other has the scale_factor 0.1, .* with 0.05; bring"):
        predict(run, tmp_path / "other", out=tmp_path / "other.zarr")
    # A store that records nothing of the kind, as those made before.
    (tmp_path / "plain").mkdir()
    for name in "abcd":
        np.save(tmp_path / "plain" / f"{name}.npy", np.zeros((12, 4, 12), "uint8"))
    convert(tmp_path / "plain", tmp_path / "plain.zarr")
    plain = make_run(tmp_path / "plain_run", tmp_path / "plain.zarr")
    capsys.readouterr()
    predict(plain, tmp_path / "other", out=tmp_path / f"plain_forecast{suffix}")
    assert (
        f"{tmp_path / 'plain.zarr'} does not record its scale_factor or units, so it is not "
        f"checked whether values of {tmp_path / 'other'} mean what those of"
    ) in capsys.readouterr().err


def test_a_folder_is_read_as_it_was_converted(make_clips: MakeClips, tmp_path: Path) -> None:
    """Size, mode and names by the settings of the store; only the frames needed are decoded."""
    options = {"size": (6, 5), "mode": "gray", "include": ["a/*", "b/*", "c/*", "d/*"]}
    source = make_clips({n: range(9) for n in "abcd"}, shape=(12, 10, 3))
    convert(source, tmp_path / "clips.zarr", **options)
    run = make_run(tmp_path / "run", tmp_path / "clips.zarr")
    new = make_clips({"x": range(30), "y": range(7)}, shape=(12, 10, 3), folder="new")
    (new / "x" / "frame_1.png").write_bytes(b"broken, but not needed")
    predict(run, new, out=tmp_path / "out")
    assert tree(tmp_path / "out") == [
        "x/frame_000030.png", "x/frame_000031.png", "y/frame_000007.png", "y/frame_000008.png",
    ]  # fmt: skip
    (new / "x" / "frame_1.png").unlink()
    convert(new, tmp_path / "new.zarr", **{**options, "include": []})
    predict(run, tmp_path / "new.zarr", out=tmp_path / "same")
    for name in tree(tmp_path / "same"):
        same = (tmp_path / "same" / name).read_bytes()
        assert (tmp_path / "out" / name).read_bytes() == same
    predict(run, new, out=tmp_path / "every.zarr", every=True)
    predict(run, tmp_path / "new.zarr", out=tmp_path / "same.zarr", every=True)
    frames = [
        open_store(tmp_path / f"{n}.zarr").frames.take(np.arange(60)) for n in ("every", "same")
    ]
    assert np.array_equal(*frames)


def test_times_name_frames(make_store: MakeClips, tmp_path: Path) -> None:
    """As text that sorts, and that framewin reads again."""
    options = {"frame_regex": r"(?P<time>\d{8}T\d{4})", "time_format": "%Y%m%dT%H%M"}
    store = make_store(
        {n: range(8) for n in "abcd"}, pattern="20260102T235{}.png", converted=options
    )
    predict(make_run(tmp_path / "run", store), store, out=tmp_path / "out")
    assert tree(tmp_path / "out" / "a") == ["20260102T235800.png", "20260102T235900.png"]
    again = {"frame_regex": r"(?P<time>\d{8}T\d{6})", "time_format": "%Y%m%dT%H%M%S"}
    report = convert(tmp_path / "out", tmp_path / "again.zarr", **again)
    assert (report.step, report.gaps, report.frames) == (60, [], 8)


def test_videos_hold_inputs_and_forecasts(run: Path, store: Path, tmp_path: Path) -> None:
    """Three inputs and two forecasts of four clips, equal frames among them, in both formats."""
    av = import_or_skip("av")
    predict(run, store, out=tmp_path / "out.gif")
    frames, durations = read_gif((tmp_path / "out.gif").read_bytes())
    assert (len(frames), set(durations)) == (20, {250})
    predict(run, store, out=tmp_path / "out.mp4")
    with av.open(str(tmp_path / "out.mp4")) as file:
        assert sum(1 for _ in file.decode(video=0)) == 20
        assert file.streams.video[0].average_rate == 4


def test_floats_go_to_a_store(tmp_path: Path) -> None:
    """PNG cannot hold them; a model sees 0 for NaN, as in training, and its forecast is NaN."""
    frames = np.random.default_rng(0).uniform(5, 9, (10, 12, 12)).astype("float32")
    frames[:, 0, 0] = np.nan
    (tmp_path / "arrays").mkdir()
    for clip in range(4):
        np.save(tmp_path / "arrays" / f"c{clip}.npy", frames)
    convert(tmp_path / "arrays", tmp_path / "rain.zarr")
    run = make_run(tmp_path / "run", tmp_path / "rain.zarr")
    message = "PNG files cannot hold frames of 12x12x1 float32; choose a store, such as"
    with pytest.raises(StoreError, match=re.escape(message)):
        predict(run, tmp_path / "rain.zarr", out=tmp_path / "out")
    predict(run, tmp_path / "rain.zarr", out=tmp_path / "out.zarr")
    found = open_store(tmp_path / "out.zarr").frames.take(np.arange(1))[0, ..., 0]
    assert np.array_equal(found, frames[-1], equal_nan=True)


def test_no_data_stays_no_data(tmp_path: Path) -> None:
    """Regression: forecasts had values where the last input has none, also those that were fed
    back, and now and then the value of no data where there was data."""
    frames = np.full((9, 12, 12, 1), 100, np.uint8)
    # A corner that never has data, and a pixel that had some until the last frame.
    frames[:, :3, :4] = frames[-1, 5, 5] = 255
    write_frames(tmp_path / "radar" / "a", {f"{n}.png": f for n, f in enumerate(frames)})
    write_frames(tmp_path / "radar" / "b", {f"{n}.png": f for n, f in enumerate(frames)})
    convert(tmp_path / "radar", tmp_path / "radar.zarr", nodata=255)
    shares = {"train": 0.5, "validation": 0.5}
    folder = make_run(tmp_path / "run", tmp_path / "radar.zarr", shares)
    seen: list[np.ndarray] = []

    def full(inputs: np.ndarray) -> np.ndarray:
        seen.append(inputs)
        return np.ones((len(inputs), 2, 12, 12, 1))

    report = predict(with_model(folder, Fake(full)), tmp_path / "radar.zarr",
                     out=tmp_path / "out", horizon=4)  # fmt: skip
    assert (report.frames, len(seen)) == (8, 2)
    missing = frames[-1, ..., 0] == 255
    for path in (tmp_path / "out").rglob("*.png"):
        assert np.array_equal(read_png(path), np.where(missing, 255, 254))
    assert np.array_equal(seen[1][0, -1, ..., 0] * 255, np.where(missing, 255, 254))
    predict(folder, tmp_path / "radar.zarr", out=tmp_path / "out.zarr")
    made = open_store(tmp_path / "out.zarr")
    assert made.meta.nodata == 255
    assert np.array_equal(made.frames.take(np.arange(1))[0], frames[-1])


def test_refusals(
    run: Path, store: Path, make_store: MakeClips, make_clips: MakeClips, tmp_path: Path
) -> None:
    """One line each, and nothing is left behind or overwritten."""
    out = tmp_path / "out"
    short = make_store({"s": range(2)}, name="short")
    other = make_store({"s": range(9)}, name="other", shape=(5, 5, 1))
    for source, message in (
        (short, "no clip of .*short.zarr ends with 3 frames in a row, as inputs span"),
        (other, "other.zarr has frames of 5x5x1 uint8, the model of .*run takes 4x6x1 uint8"),
        (tmp_path / "none", "none does not exist"),
        (make_clips({"x": range(9)}, shape=(7, 7, 1), folder="wrong"), "wrong has frames of 7x7x1"),
    ):
        with pytest.raises((SourceError, StoreError, TrainingError), match=message):
            predict(run, source, out=out)
        assert not out.exists()
    out.mkdir()
    with pytest.raises(StoreError, match="out exists already; remove it or choose another --out"):
        predict(run, store, out=out)
    with pytest.raises(StoreError, match="nowhere is not a folder; make it first"):
        predict(run, store, out=tmp_path / "nowhere" / "out")
    broken = with_model(run, Fake(lambda inputs: inputs[:, :2] * np.nan))
    with pytest.raises(TrainingError, match="the forecast for a is not a number; train again"):
        predict(broken, store, out=tmp_path / "new.zarr")
    assert not list(tmp_path.glob("new.zarr*"))
    for options, message in (
        ({"batch_size": 0}, "batch_size must be >= 1, got 0"),
        ({"horizon": 0}, "horizon must be >= 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            predict(run, store, out=tmp_path / "new", **options)


def test_clip_names_stay_below_the_folder(run: Path, tmp_path: Path) -> None:
    """A store from elsewhere may call a clip anything."""
    from framewin.forecast import predict as module
    from framewin.forecast.runs import load_run

    opened: Run = load_run(run)
    clips = open_store(opened.store).meta.clips
    for name in ("../../x", "/etc/x", "a/../../b", "."):
        evil = replace(clips, names=(name, *clips.names[1:]))
        with pytest.raises(SourceError, match="which is no place for its forecast"):
            module._task(evil, opened, None, every=False)


def test_the_source_must_be_readable(run: Path, tmp_path: Path) -> None:
    """A damaged frame among the inputs is an error with its name, never a forecast."""
    frames = {f"{n}.png": make_frame(0, n) for n in range(5)}
    write_frames(tmp_path / "new" / "x", frames)
    (tmp_path / "new" / "x" / "4.png").write_bytes(
        (tmp_path / "new" / "x" / "4.png").read_bytes()[:40]
    )
    with pytest.raises(SourceError, match=r"4\.png"):
        predict(run, tmp_path / "new", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command(run: Path, store: Path, tmp_path: Path) -> None:
    """What was made, on stdout."""
    command = [FRAMEWIN, "predict", run, store, "--out", tmp_path / "out", "--every", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"PNG files  {tmp_path / 'out'}",
        "forecasts  27 from 4 clips",
        "frames     54",
    ]
