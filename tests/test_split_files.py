"""Splits by name, kept in files, and what proves them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from framewin import FrameWindowDataset, SplitPart, StoreError, convert, split_report
from framewin.cli import app
from framewin.cli.split import split
from framewin.frames import open_frames
from tests.conftest import MakeClips, make_frame, write_frames

CLIPS = {f"{kind}_{i}": range(12) for kind in ("day", "night") for i in range(4)}


def open_dataset(store: Path, **options: object) -> FrameWindowDataset:
    return FrameWindowDataset(store, **{"input_frames": 2, "predict_frames": 1, **options})


def clips_of(ds: FrameWindowDataset) -> list[str]:
    return [name for name, count in ds.windows_per_clip().items() if count]


@pytest.fixture
def store(make_store: MakeClips) -> Path:
    return make_store(CLIPS)


def test_clips_by_name_pattern_expression_and_file(store: Path, tmp_path: Path) -> None:
    """Each way to name clips gives just those."""
    listed = tmp_path / "test.txt"
    listed.write_text("# held back\nnight_2\n\nnight_3\n")
    parts = open_dataset(store).split(
        train="day_*", validation=["night_0"], other=re.compile("t_1$"), test=listed
    )
    assert {name: clips_of(part) for name, part in parts.items()} == {
        "train": ["day_0", "day_1", "day_2", "day_3"],
        "validation": ["night_0"],
        "other": ["night_1"],
        "test": ["night_2", "night_3"],
    }


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"a": ["day_9"]}, "no clip is called or matches 'day_9'; there are day_0, day_1, "),
        ({"a": re.compile("x")}, "no clip matches 'x'; there are day_0"),
        ({"a": "day_*", "b": "*_1"}, "clip 'day_1' is in the parts a and b; a clip may be in one"),
        ({"a": 0.5, "b": "day_*"}, "give every part a share, or every part its clips; got "),
        ({"a": Path("gone.txt")}, "gone.txt cannot be read as a text file with a clip in each lin"),
    ],
)
def test_bad_choices(store: Path, parts: dict, message: str) -> None:
    """The message names the clip or the pattern."""
    with pytest.raises(ValueError, match=re.escape(message)):
        open_dataset(store).split(parts)
    with pytest.raises(ValueError, match="by='time' needs shares"):
        open_dataset(store).split({"a": ["day_0"]}, by="time")


@pytest.mark.parametrize("by", ["clip", "time"])
def test_a_saved_split_gives_the_same_windows(store: Path, by: str) -> None:
    """Part by part the same frames as the split that was saved."""
    parts = open_dataset(store).split(train=0.5, test=0.5, by=by, seed=5)
    path = parts.save()
    assert path == store.with_name("clips.zarr.split.json")
    for name, part in parts.items():
        again = open_dataset(store, split=name)
        assert len(again) == len(part)
        assert all(again.window(i) == part.window(i) for i in range(len(part)))
        assert again.statistics() == part.statistics()
    with pytest.raises(StoreError, match="exists already; remove it or choose another name"):
        parts.save()


def test_bad_split_files(store: Path, tmp_path: Path, make_store: MakeClips) -> None:
    """Another store, another part, no file, another text: each is said."""
    with pytest.raises(StoreError, match=r"clips.zarr.split.json does not exist; framewin split "):
        open_dataset(store, split="train")
    path = open_dataset(store).split(train=0.5, test=0.5, by="time").save(tmp_path / "s.json")
    with pytest.raises(ValueError, match="has no part 'val'; it has train, test"):
        open_dataset(store, split=SplitPart("val", path))
    with pytest.raises(ValueError, match="leaves 3 frames out between the parts, a window spans 4"):
        open_dataset(store, split=SplitPart("train", path), input_frames=3)
    with pytest.raises(ValueError, match="give clips or split, not both"):
        open_dataset(store, split=SplitPart("train", path), clips=["day_0"])
    other = make_store({"x": range(9)}, name="other")
    with pytest.raises(StoreError, match="is of another store, or of this one before it changed"):
        open_dataset(other, split=SplitPart("train", path))
    path.write_text("[]")
    with pytest.raises(StoreError, match=r"s.json is not a split file"):
        open_dataset(store, split=SplitPart("train", path))
    path.write_text(json.dumps({"framewin_split": 2}))
    with pytest.raises(StoreError, match="is of version 2, this framewin reads 1; update it"):
        open_dataset(store, split=SplitPart("train", path))


def test_statistics_are_of_the_training_part(store: Path) -> None:
    """Every part has the mean of the training frames, none the mean of its own."""
    ds = open_dataset(store)
    parts = ds.split(test=["night_*"], train=["day_*"])
    inputs, targets = parts["train"].batch(range(len(parts["train"])))
    frames = np.unique(np.concatenate([inputs, targets], axis=1).reshape(-1, 24), axis=0)
    assert parts["test"].statistics() == parts["train"].statistics()
    assert parts["test"].statistics().frames == 4 * 12
    assert parts["train"].statistics().max == (frames.max(),)
    rows = ds.frames[: 4 * 12].astype(float)
    assert parts["test"].statistics().mean[0] == pytest.approx(rows.mean())
    assert ds.statistics().mean[0] == pytest.approx(ds.frames.mean())


def test_a_condition_may_leave_no_training_window(store: Path) -> None:
    """Regression: split="test" failed by it; only what is learned from training windows does."""
    open_dataset(store).split(train=["day_*"], test=["night_*"]).save()
    held_back = open_dataset(store, split="test", where="clip != 'day_0' and clip < 'night_1'")
    with pytest.raises(ValueError, match="no window satisfies"):
        open_dataset(store, split="train", where="clip > 'day_9'")
    assert held_back.statistics().frames == 3 * 12
    with pytest.raises(ValueError, match="no window of the part 'train' satisfies where="):
        open_dataset(store, where="clip > 'day_9'").split(train=["day_*"], test=["night_*"])
    held_back = open_dataset(store, split="test", where="clip > 'day_9'")
    assert clips_of(held_back) == [f"night_{i}" for i in range(4)]
    with pytest.raises(ValueError, match="are of the training part, but there no window satisfies"):
        held_back.statistics()


def test_statistics_are_not_those_of_an_earlier_split(store: Path) -> None:
    """Splits made one after the other from one dataset: each has its own training part."""
    ds = open_dataset(store)
    found = [
        ds.split(train=[name], test="night_*")["test"].statistics() for name in list(CLIPS)[:4]
    ]
    rows = ds.frames[: 4 * 12].reshape(4, -1)
    assert [one.mean[0] for one in found] == pytest.approx(rows.mean(axis=1).tolist())


def test_a_report_of_sound_splits(store: Path) -> None:
    """Nothing shared; by time the parts are more than one window span apart."""
    ds = open_dataset(store)
    by_clip = split_report(ds.split(a=0.5, b=0.5, seed=2))
    assert (by_clip.clean, by_clip.nearest_frames) == (True, {("a", "b"): None})
    by_time = split_report(ds.split(a=0.5, b=0.5, by="time"))
    assert (by_time.clean, by_time.nearest_frames) == (True, {("a", "b"): ds.spec.span + 1})


def test_a_report_of_leaks(store: Path) -> None:
    """Datasets that overlap: how many frames, counted by hand."""
    ds = open_dataset(store)
    early = open_dataset(store, where="clip == 'day_0' and frame_number < 6")
    late = open_dataset(store, where="clip == 'day_0' and frame_number >= 5")
    report = split_report({"early": early, "late": late, "all": ds})
    assert not report.clean
    assert report.shared_frames == {
        ("early", "late"): 3,  # frames 5, 6 and 7
        ("early", "all"): 8,
        ("late", "all"): 7,
    }
    assert set(report.nearest_frames.values()) == {0}


def test_equal_pictures_in_two_parts_are_named(tmp_path: Path) -> None:
    """A frame copied from one clip to another is found, with both files."""
    for clip, name in enumerate(("a", "b")):
        frames = {f"{n}.png": make_frame(50 * clip, n) for n in range(5)}
        write_frames(tmp_path / "frames" / name, frames)
    write_frames(tmp_path / "frames" / "b", {"3.png": make_frame(0, 1)})
    convert(tmp_path / "frames", tmp_path / "clips.zarr")
    report = split_report(open_dataset(tmp_path / "clips.zarr").split(one=["a"], two=["b"]))
    assert report.clean
    assert report.duplicates == 1
    assert report.examples[0].frames == ("a/1.png", "b/3.png")


def test_reports_need_parts_of_one_store(store: Path, make_store: MakeClips) -> None:
    """One part proves nothing, and frames of two stores are not compared by row."""
    ds = open_dataset(store)
    with pytest.raises(ValueError, match="parts must be two or more datasets, got 1"):
        split_report({"a": ds})
    with pytest.raises(ValueError, match="parts must be of one store"):
        split_report({"a": ds, "b": open_dataset(make_store({"x": range(4)}, name="x"))})


def test_the_command(store: Path) -> None:
    """framewin split writes the file that split= reads, and prints the report."""
    command = [Path(sys.executable).parent / "framewin", "split", store, "--part", "train=0.75"]
    command += ["--part", "test=0.25", "--input-frames", "2", "--predict-frames", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "shared   0 frames" in done.stdout
    assert len(open_dataset(store, split="train")) == 60
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    bad = subprocess.run([*command[:4], "train"], capture_output=True, text=True, check=False)
    assert bad.returncode == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--by", "time", "--seed", "0"], "--seed chooses clips for shares by clip, nothing else"),
        (["--part", "a=day_*", "--seed", "1"], "--seed chooses clips for shares by clip, nothing"),
        (["--part", "a=day_*", "--part", "a=night_*"], "--part a is given twice; give it once"),
        (["--part", "a=day_*", "--by", "time"], "by='time' needs shares, such as train=0.8"),
    ],
)
def test_the_command_ignores_nothing(store: Path, options: list[str], message: str) -> None:
    """An option without effect is a usage error, and no file is written."""
    done = CliRunner().invoke(app, ["split", str(store), *options], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert message in done.output
    assert not store.with_name(store.name + ".split.json").exists()


@pytest.mark.parametrize("by", ["clip", "time"])
def test_training_never_meets_what_is_held_back(store: Path, by: str) -> None:
    """Five shuffled epochs see every training window once each, and no frame of the test part."""
    parts = open_dataset(store).split(train=0.6, test=0.4, by=by)

    def frames(part: FrameWindowDataset, windows: np.ndarray) -> set[tuple[str, int]]:
        seen = [part.window(window) for window in windows]
        return {(w.clip, n) for w in seen for n in w.input_frame_numbers + w.predict_frame_numbers}

    held_back = frames(parts["test"], np.arange(len(parts["test"])))
    schedule = parts["train"].batches(batch_size=5, shuffle=True).schedule
    for epoch in range(5):
        windows = [schedule.windows(epoch, step) for step in range(schedule.num_batches)]
        windows = np.concatenate(windows)
        assert sorted(windows) == list(range(len(parts["train"])))
        assert not frames(parts["train"], windows) & held_back


def test_a_place_that_cannot_be_is_refused_before_the_work(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, by the command and by `save`."""
    missing = tmp_path / "none" / "s.json"
    message = f"{missing.parent} is not a folder; make it first"
    with pytest.raises(StoreError, match=re.escape(message)):
        open_dataset(store).split(train=0.5, test=0.5).save(missing)
    monkeypatch.setattr("framewin.leaks.split_report", lambda parts: pytest.fail("too late"))
    with pytest.raises(StoreError, match=re.escape(message)):
        split(str(store), out=missing)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(StoreError, match="cannot be written to; choose another --out"):
        split(str(store))


def test_names_typed_in_another_form_and_pipes(make_store: MakeClips, tmp_path: Path) -> None:
    """Accents may be composed or not; a pipe in the place of a list is not waited for."""
    composed, apart = "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}"
    named = make_store({apart: range(8), "b": range(8)}, name="accents")
    for form in (composed, apart):
        ds = FrameWindowDataset(named, input_frames=1, predict_frames=1, clips=[form])
        assert {ds.window(k).clip for k in range(len(ds))} == {composed}
        ds = FrameWindowDataset(named, input_frames=1, predict_frames=1)
        parts = ds.split(train=form, test="b")
        assert {parts["train"].window(k).clip for k in range(7)} == {composed}
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe is no file; expected a text file with a clip in"):
        ds.split(train=tmp_path / "pipe", test="b")
    with pytest.raises(StoreError, match="pipe is no file; name the file to cache the frames in"):
        FrameWindowDataset(
            open_frames(named, cache=tmp_path / "pipe"), input_frames=1, predict_frames=1
        )
    with pytest.raises(ValueError, match=r"is called 'a' or 'c'; there are b, caf"):
        FrameWindowDataset(named, input_frames=1, predict_frames=1, clips=["a", "c"])
