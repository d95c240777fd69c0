"""The dry run: what it finds, and what it says would happen."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import tifffile
import xarray

from framewin.conversion.audit import audit, window_hint
from framewin.conversion.plan import draft_conversion
from framewin.conversion.read import sample
from framewin.conversion.settings import ConvertSettings
from framewin.schema import ClipTable
from tests.conftest import MakeClips, make_frame, write_frames
from tests.helpers.command import framewin, rows
from tests.helpers.pngs import chunk, png_bytes


def audited(source: Path, **options: object) -> dict:
    """The audit as JSON values."""
    dest = source.parent / "clips.zarr"
    plan = draft_conversion(source, dest, ConvertSettings(**options), lenient=True)
    return audit(plan).as_json()


def test_everything_about_a_clip(tmp_path: Path) -> None:
    """First and last name, gaps, duplicates, kinds, sizes, modes, notes and bytes."""
    source = tmp_path / "in"
    write_frames(source / "a", {f"f{n}.png": make_frame(0, n) for n in (1, 2, 3, 7, 8, 11)})
    (source / "a" / "f2.png").write_bytes((source / "a" / "f7.png").read_bytes())
    tifffile.imwrite(source / "a" / "f12.tif", make_frame(0, 12)[..., 0])
    turned = b"II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\x06\0\0\0"
    gray = png_bytes(6, 8, 0, [bytes(6)] * 4, chunk(b"eXIf", turned))
    (source / "a" / "f13.png").write_bytes(gray)
    (source / "notes.txt").touch()
    found = audited(source)
    [clip] = found["clips"]
    assert (clip["first"], clip["last"], clip["frames"]) == ("f1.png", "f13.png", 8)
    assert (clip["first_number"], clip["last_number"]) == ("1", "13")
    assert clip["gaps"] == [
        {"before": "3", "after": "7", "frames": 3, "missing": "4-6"},
        {"before": "8", "after": "11", "frames": 2, "missing": "9-10"},
    ]
    assert clip["duplicates"] == [["f2.png", "f7.png"]]
    assert clip["formats"] == {"PNG": 7, "TIFF": 1}
    assert clip["sizes"] == {"4x6": 8}
    assert clip["modes"] == {"gray, 8 bits": 8}
    assert clip["notes"] == {"EXIF orientation 6": 1}
    assert clip["bytes_in"] == sum(p.stat().st_size for p in (source / "a").iterdir())
    assert (found["frames"], found["frame_format"], found["step"]) == (8, "4x6x1 uint8", "1")
    assert found["skipped"]["of another kind"] == {"count": 1, "example": "notes.txt"}
    assert (found["problems"], found["damaged"]) == ([], [])
    assert not (tmp_path / "clips.zarr").exists()


def test_mixed_sizes_are_all_shown(make_clips: MakeClips, tmp_path: Path) -> None:
    """All that would stop the conversion, beside what it takes to choose a size."""
    source = make_clips({"a": range(5), "b": range(2)})
    write_frames(source / "b", {"frame_0.png": make_frame(0, 0, (8, 6, 1))})
    found = audited(source)
    assert found["clips"][1]["sizes"] == {"8x6": 1, "4x6": 1}
    [problem] = found["problems"]
    assert "b/frame_0.png is 8x6x1 uint8" in problem
    assert audited(source, size=(4, 4))["problems"] == []
    done = framewin("convert", source, tmp_path / "clips.zarr", "--dry-run")
    assert rows(done.stdout)["sizes"] == "6 4x6; 1 8x6"
    assert "try size=, leave some out by exclude=, or" in problem
    in_flags = problem.replace("size=", "--size").replace("exclude=", "--exclude")
    assert done.stderr == f"framewin: {in_flags}\n"
    assert done.returncode == 1


def test_times_are_shown_as_times(tmp_path: Path) -> None:
    """Gaps across midnight, in the unit that is exact, and for xarray to read."""
    source = tmp_path / "in"
    stamps = ["202012312350", "202012312355", "202101010000", "202101010010"]
    write_frames(source, {f"r{stamp}.png": make_frame(0, i) for i, stamp in enumerate(stamps)})
    options = ("--frame-regex", "r(?P<time>[0-9]+)", "--time-format", "%Y%m%d%H%M")
    done = framewin("convert", source, tmp_path / "clips.zarr", *options, "--dry-run")
    assert rows(done.stdout)["gaps"] == "1, 1 frames: in 2021-01-01T00:05:00"
    assert rows(done.stdout)["frames"] == "4, 5 min apart"
    done = framewin("convert", source, tmp_path / "clips.zarr", *options)
    assert rows(done.stdout)["gaps"] == (
        "1 in 1 clips, frames 5 min apart: in 2021-01-01T00:00:00 -> 2021-01-01T00:10:00"
    )
    with xarray.open_zarr(tmp_path / "clips.zarr") as store:
        times = store.time.values.astype("datetime64[m]").astype(str).tolist()
    assert times == ["2020-12-31T23:50", "2020-12-31T23:55", "2021-01-01T00:00", "2021-01-01T00:10"]


def test_json(make_clips: MakeClips, tmp_path: Path) -> None:
    """The same for machines, settings and all."""
    arguments = ("convert", make_clips({"a": range(3)}), tmp_path / "clips.zarr")
    done = framewin(*arguments, "--dry-run", "--json", "--size", "2x3")
    found = json.loads(done.stdout)
    assert (done.returncode, found["frame_format"]) == (0, "2x3x1 uint8")
    assert found["settings"]["size"] == [2, 3]
    done = framewin(*arguments, "--json")
    assert json.loads(done.stdout)["frames"] == 3


def test_damage_is_told_ahead(make_clips: MakeClips, tmp_path: Path) -> None:
    """As far as headers show it."""
    source = make_clips({"a": range(3)})
    for number in (0, 2):
        (source / "a" / f"frame_{number}.png").write_bytes(b"")
    assert [text.split(" is empty")[1] for text in audited(source)["problems"]] == [
        "; expected a PNG file, copy it again or remove it"
    ] * 2
    done = framewin("convert", source, tmp_path / "clips.zarr", "--dry-run", "--on-error", "gap")
    assert rows(done.stdout)["damaged"] == "2 left out"
    assert done.stdout.count("is empty; expected a PNG file, copy it again or remove it") == 2
    assert done.returncode == 3


def test_compression_is_tried_on_frames_that_can_be_read(
    make_clips: MakeClips, tmp_path: Path
) -> None:
    source = make_clips({"a": range(3)})
    damaged = source / "a" / "frame_1.png"
    damaged.write_bytes(damaged.read_bytes()[:-30])
    plan = draft_conversion(source, tmp_path / "clips.zarr", ConvertSettings(on_error="gap"))
    [frames] = sample(plan, 3, 1)
    np.testing.assert_array_equal(frames, [make_frame(0, 0), make_frame(0, 2)])


def test_files_that_are_clips(tmp_path: Path) -> None:
    """Their frames are counted from their headers."""
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in" / "x.npy", np.zeros((7, 4, 5), np.uint8))
    [clip] = audited(tmp_path / "in")["clips"]
    assert (clip["name"], clip["frames"], clip["formats"]) == ("x", 7, {"NumPy": 1})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "64"], "Invalid value for '--size': expected HxW, got '64'"),
        (["--crop", "1,2"], "Invalid value for '--crop': expected TOP:BOTTOM,LEFT:RIGHT"),
        (["--background", "red"], "Invalid value for '--background': expected R,G,B, got 'red'"),
        (["--mode", "hsv"], "--mode must be one of keep, gray, rgb, got 'hsv'"),
        (["--step", "soon"], "step must be a number, or a time"),
        (["--drop-alpha", "--background", "0,0,0"], "drop_alpha and background exclude each other"),
        (["--frame-regex", "("], "frame_regex '(' is not valid"),
    ],
)
def test_wrong_options(tmp_path: Path, arguments: list[str], message: str) -> None:
    """Usage errors, before anything is read."""
    done = framewin("convert", tmp_path, tmp_path / "clips.zarr", *arguments)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("clips", "unit", "message"),
    [
        ([range(3)], None, None),
        ([[0, 1, 2, 9, 10, 11]], None, None),
        ([[0], [0]], None, "none of 1 + 1 frames, for every clip has a single frame; put"),
        ([[0, 10, 21, 30, 41]], None, "spaced, 9 to 11 apart; allow it by step_tolerance=1"),
        ([[0, 9, 20, 29]], "ms", "spaced, 9ms to 11ms apart; allow it by step_tolerance='2ms'"),
        ([[0, 1, 10, 100, 1000]], None, "hardly any, for 5 frames lie in 4 runs; their distances"),
    ],
)  # fmt: skip
def test_what_to_try_where_hardly_any_window_fits(
    clips: list[list[int]], unit: str | None, message: str | None
) -> None:
    """Single frames, uneven steps and wrong steps are told apart; the tolerance is enough."""
    names = [str(place) for place in range(len(clips))]
    table = ClipTable.from_frame_numbers(names, clips, time_unit=unit)
    found = window_hint(table)
    assert (found is None) == (message is None)
    assert message is None or message in found
    tolerance = re.search(r"step_tolerance='?(\d+)", found or "")
    if tolerance:
        even = ClipTable.from_frame_numbers(names, clips, tolerance=int(tolerance[1]))
        assert len(even.segment_starts) == len(clips)
