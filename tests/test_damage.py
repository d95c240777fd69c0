"""Damaged frames: stop with the name, or leave gaps that everyone is told about; never zeros."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from framewin import Damaged, FrameFormatError, FrameWindowDataset, SourceError, convert
from framewin.schema import Gap
from framewin.stores import open_store
from tests.conftest import MakeClips, make_frame, write_frames
from tests.test_cli import framewin, rows


def cut(path: Path, share: float = 0.5) -> Path:
    """Leave only the first part of a file."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    return path


def test_damage_becomes_gaps(make_clips: MakeClips, tmp_path: Path) -> None:
    """The frames that are left keep their numbers and pixels; the store says what is missing."""
    source = make_clips({"a": range(40), "b": range(5, 25)}, shape=(20, 30, 3))
    for name in ("a/frame_0.png", "a/frame_17.png", "a/frame_18.png", "b/frame_24.png"):
        cut(source / name)
    (source / "b" / "frame_10.png").write_bytes(b"")
    report = convert(source, tmp_path / "clips.zarr", on_error="gap", workers=3)
    assert (report.frames, report.step) == (55, 1)
    assert report.gaps == [Gap("a", 16, 19), Gap("b", 9, 11)]
    assert [(d.clip, d.number) for d in report.damaged] == [
        ("a", 0), ("a", 17), ("a", 18), ("b", 10), ("b", 24),
    ]  # fmt: skip
    store = open_store(tmp_path / "clips.zarr")
    numbers = store.meta.clips.frame_numbers(np.arange(55)).tolist()
    kept = [n for n in range(1, 40) if n not in (17, 18)]
    assert numbers == [*kept, *(n for n in range(5, 24) if n != 10)]
    expected = [make_frame(int(row >= len(kept)), n, (20, 30, 3)) for row, n in enumerate(numbers)]
    assert np.array_equal(store.frames.array, np.stack(expected))
    recorded = store.meta.conversion
    assert recorded["on_error"] == "gap"
    assert [entry["file"] for entry in recorded["damaged"]][:2] == [
        "a/frame_0.png",
        "a/frame_17.png",
    ]
    assert "is cut short" in recorded["damaged"][1]["reason"]


def test_no_window_holds_a_damaged_frame(make_clips: MakeClips, tmp_path: Path) -> None:
    """The gap is one like any other."""
    source = make_clips({"a": range(10)})
    cut(source / "a" / "frame_4.png")
    convert(source, tmp_path / "clips.zarr", on_error="gap")
    ds = FrameWindowDataset(tmp_path / "clips.zarr", input_frames=2, predict_frames=1)
    starts = [ds.window(i).input_frame_numbers[0] for i in range(len(ds))]
    assert starts == [0, 1, 5, 6, 7]


def test_the_step_stays(make_clips: MakeClips, tmp_path: Path) -> None:
    """What is left of 0, 1, 2, 3 may look as if its step were two."""
    source = make_clips({"a": range(4)})
    cut(source / "a" / "frame_1.png")
    report = convert(source, tmp_path / "clips.zarr", on_error="gap")
    assert (report.step, report.gaps) == (1, [Gap("a", 0, 2)])


def test_a_first_frame_without_a_header(make_clips: MakeClips, tmp_path: Path) -> None:
    """The first frame that can be read decides the format; a lost clip is noted."""
    source = make_clips({"a": range(3), "b": range(2)})
    for name in ("a/frame_0.png", "b/frame_0.png", "b/frame_1.png"):
        cut(source / name, 0.1)
    report = convert(source, tmp_path / "clips.zarr", on_error="gap")
    assert (report.clips, report.frames, len(report.damaged)) == (1, 2, 3)
    assert isinstance(report.damaged[0], Damaged)
    cut(source / "a" / "frame_1.png", 0.1)
    cut(source / "a" / "frame_2.png")
    with pytest.raises(SourceError, match=r"frames has no frame that is not damaged; the first: "):
        convert(source, tmp_path / "again.zarr", on_error="gap")
    assert not (tmp_path / "again.zarr.partial").exists()


def test_another_format_is_no_damage(make_clips: MakeClips, tmp_path: Path) -> None:
    """A frame of another size is never left out by itself."""
    source = make_clips({"a": range(9)})
    write_frames(source / "a", {"frame_3.png": make_frame(0, 3, (5, 6, 1))})
    with pytest.raises(FrameFormatError, match=r"frame_3\.png is 5x6x1 uint8"):
        convert(source, tmp_path / "clips.zarr", on_error="gap")


def test_the_command_says_so(make_clips: MakeClips, tmp_path: Path) -> None:
    """In the table, in JSON and by exit code 3; by default it stops with code 1."""
    source = make_clips({"a": range(9)})
    path = cut(source / "a" / "frame_3.png")
    done = framewin("convert", source, tmp_path / "clips.zarr")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith(f"framewin: {path} is cut short")
    done = framewin("convert", source, tmp_path / "clips.zarr", "--on-error", "gap")
    assert (done.returncode, done.stderr) == (3, "")
    assert rows(done.stdout)["damaged"] == "1 left out"
    assert f"{path} is cut short" in done.stdout
    assert rows(done.stdout)["gaps"] == "1 in 1 clips: a 2 -> 4"
    done = framewin("convert", source, tmp_path / "b.zarr", "--on-error", "gap", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["frames"]) == (3, 8)
    assert report["damaged"][0]["number"] == 3


def test_a_header_that_is_damaged_is_damage(make_clips: MakeClips, tmp_path: Path) -> None:
    """One wrong bit in the width is not taken for another size."""
    source = make_clips({"a": range(5)})
    path = source / "a" / "frame_2.png"
    data = bytearray(path.read_bytes())
    data[19] ^= 4
    path.write_bytes(data)
    with pytest.raises(SourceError, match=re.escape(f"{path} has a PNG header with a wrong check")):
        convert(source, tmp_path / "clips.zarr")
    report = convert(source, tmp_path / "clips.zarr", on_error="gap")
    assert [damaged.number for damaged in report.damaged] == [2]
