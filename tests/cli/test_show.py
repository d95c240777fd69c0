"""Pictures of windows and clips: what is in them, by their pixels and words."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import imageio.v3 as iio
import numpy as np
import pytest
from typer.testing import CliRunner

from framewin import FrameWindowDataset, SourceError
from framewin.cli import app
from framewin.pictures.figures import THEME
from framewin.pictures.window_figures import BAR_HEIGHT, MISSING, contact_sheet
from tests.conftest import MakeClips, import_or_skip, make_frame

CLIPS = {"a": [*range(6), *range(10, 16)], "b": range(6)}


@pytest.fixture
def ds(make_store: MakeClips) -> FrameWindowDataset:
    return FrameWindowDataset(make_store(CLIPS), input_frames=2, predict_frames=1)


def test_a_picture_says_what_it_shows(ds: FrameWindowDataset) -> None:
    """Clip, files, frame numbers, and the frames themselves, enlarged."""
    picture = ds.show(5)
    assert picture.title == (
        "window 5 of 12, clip a",
        "a/frame_11.png ... a/frame_13.png",
    )
    assert picture.labels == ("11", "12", "13")
    frames = [make_frame(0, number) for number in (11, 12, 13)]
    assert picture.input_frames == 2
    for place, (shown, frame) in enumerate(zip(picture.frames, frames, strict=True)):
        scale = len(shown) // len(frame)
        gray = frame.repeat(scale, 0).repeat(scale, 1).repeat(3, 2)
        # The last two lines of a target tell it from an input.
        edge = 0 if place < 2 else 2
        assert scale > 1
        rows = len(shown) - edge
        assert np.array_equal(shown[:rows], gray[:rows])
        assert (shown[rows:] != gray[rows:]).any(axis=-1).all()


def test_pictures_are_written(ds: FrameWindowDataset, tmp_path: Path) -> None:
    """PNG with all frames, GIF with one after the other, and what a notebook asks for."""
    picture = ds.show(0)
    assert np.array_equal(iio.imread(picture.save(tmp_path / "w.png")), picture.image())
    assert len(iio.imread(picture.save(tmp_path / "w.gif"))) == 3
    assert picture._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(SourceError, match=re.escape("w.txt must end in .png, .pdf, .svg or .gif")):
        picture.save(tmp_path / "w.txt")
    with pytest.raises(IndexError, match="window 99 is out of range"):
        ds.show(99)


def test_times_are_shown(make_store: MakeClips) -> None:
    """Where frame numbers are time stamps, month to second."""
    options = {"frame_regex": r"(?P<time>\d{8}T\d{4})", "time_format": "%Y%m%dT%H%M"}
    store = make_store({"a": range(3)}, pattern="20260102T030{}.png", converted=options)
    picture = FrameWindowDataset(store, input_frames=1, predict_frames=1).show(1)
    assert picture.labels == ("01-02T03:01:00", "01-02T03:02:00")


def test_gaps_are_red(ds: FrameWindowDataset) -> None:
    """A quarter of clip a is missing, nothing of clip b."""
    sheet = contact_sheet(ds).pixels(THEME)
    red = (sheet == MISSING).all(axis=-1)
    rows = np.flatnonzero(red.any(axis=1))
    assert len(rows) == BAR_HEIGHT
    assert red[rows[0]].sum() / sheet.shape[1] == pytest.approx(4 / 16, abs=0.02)


def test_the_command(ds: FrameWindowDataset, tmp_path: Path) -> None:
    """A window, all clips, and what cannot be drawn."""
    framewin = Path(sys.executable).parent / "framewin"

    def run(*arguments: object) -> subprocess.CompletedProcess:
        command = [framewin, "show", ds.path, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    shape = ("--input-frames", 2, "--predict-frames", 1)
    done = run("--window", 5, *shape, "--out", tmp_path / "w.gif")
    assert "inputs   11 12\ntargets  13\n" in done.stdout
    assert run("--out", tmp_path / "all.png").returncode == 0
    assert (tmp_path / "all.png").exists()
    done = run("--out", tmp_path / "all.gif")
    assert (done.returncode, "--out must end in .png, .pdf, .svg" in done.stderr) == (2, True)
    assert run("--window", 99, *shape, "--out", tmp_path / "x.png").returncode == 2
    for window in ((), ("--window", 1, *shape)):
        done = run(*window, "--out", tmp_path / "missing" / "x.png")
        assert done.returncode == 2
        assert "--out must be in a folder that is there, got" in done.stderr
        assert "Traceback" not in done.stderr


def test_pictures_for_papers(ds: FrameWindowDataset, tmp_path: Path) -> None:
    """A window and all clips as SVG and PDF on white, with their words."""
    import_or_skip("matplotlib")
    window = ("--window", "5", "--input-frames", "2", "--predict-frames", "1")
    for options, words in (
        (window, ["window 5 of 12, clip a", "11", "13"]),
        ((), ["a: 12 frames, gaps: 1", "b: 6 frames, gaps: 0"]),
    ):
        for suffix in ("svg", "pdf"):
            out = tmp_path / f"a.{suffix}"
            command = ["show", str(ds.path), "--theme", "light", "--out", str(out), *options]
            result = CliRunner().invoke(app, command)
            assert result.exit_code == 0, result.output
        svg = (tmp_path / "a.svg").read_text()
        assert [word for word in words if f">{word}</text>" not in svg] == []
        assert "fill: #ffffff" in svg
        assert len(re.findall(rb"/Type /Page\b", (tmp_path / "a.pdf").read_bytes())) == 1
