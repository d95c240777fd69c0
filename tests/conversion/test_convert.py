"""Conversion: the whole way, and every refusal; a store appears whole or not at all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from framewin import (
    ConvertReport,
    FrameFormatError,
    FrameWindowDataset,
    SourceError,
    StoreError,
    convert,
    verify,
)
from framewin.conversion.plan import plan_conversion
from framewin.conversion.run import run
from framewin.conversion.source import check_formats
from framewin.forecast import predict
from framewin.schema import FrameFormat, Gap, shown_number
from framewin.stores import durable, open_store
from tests.conftest import MakeClips, make_frame, write_frames


def test_report(make_clips: MakeClips, tmp_path: Path) -> None:
    """Counts, gaps, sizes and what was skipped."""
    source = make_clips({"a": [1, 2, 3, 4, 7], "b": [0]})
    (source / "a" / "._1.png").write_bytes(b"\0\5\26\7")
    (source / "Thumbs.db").touch()
    report = convert(source, tmp_path / "clips.zarr")
    assert isinstance(report, ConvertReport)
    assert (report.clips, report.frames, report.step) == (2, 6, 1)
    assert report.frame_format == FrameFormat(4, 6, 1, "uint8")
    assert report.gaps == [Gap("a", 4, 7)]
    assert {reason: entry.count for reason, entry in report.skipped.items()} == {
        "hidden": 1,
        "of another kind": 1,
    }
    assert report.bytes_in == sum(path.stat().st_size for path in source.rglob("frame_*.png"))
    stored = (tmp_path / "clips.zarr").rglob("*")
    assert report.bytes_out == sum(path.stat().st_size for path in stored if path.is_file())
    assert report.seconds > 0
    assert report.frames_per_second == report.frames / report.seconds


def test_unpadded_names_in_any_creation_order(tmp_path: Path) -> None:
    """Twelve frames named 1.png to 12.png keep their time order."""
    numbers = [7, 12, 1, 10, 3, 2, 11, 9, 4, 8, 6, 5]
    frames = {f"{n}.png": np.full((8, 8, 1), 10 * n, np.uint8) for n in numbers}
    write_frames(tmp_path / "clip", frames)
    convert(tmp_path / "clip", tmp_path / "clips.zarr")
    means = open_store(tmp_path / "clips.zarr").frames.array.mean(axis=(1, 2, 3))
    assert means.tolist() == [10 * n for n in range(1, 13)]


def test_windows_do_not_cross_a_gap(tmp_path: Path) -> None:
    """Frames 1 to 10 without 5 and 6: of 3 + 1 frames, only 1-4 and 7-10 are windows."""
    numbers = [1, 2, 3, 4, 7, 8, 9, 10]
    frames = {f"frame_{n:03d}.png": np.full((4, 4, 1), n, np.uint8) for n in numbers}
    write_frames(tmp_path / "clip", frames)
    convert(tmp_path / "clip", tmp_path / "clips.zarr")
    ds = FrameWindowDataset(tmp_path / "clips.zarr", input_frames=3, predict_frames=1)
    values = [np.concatenate(window)[:, 0, 0, 0].tolist() for window in ds]
    assert values == [[1, 2, 3, 4], [7, 8, 9, 10]]
    assert ds.window(1).predict_frame_numbers == (10,)


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_any_number_of_workers_gives_the_same_frames(
    make_clips: MakeClips, tmp_path: Path, workers: int
) -> None:
    """Blocks may finish in any order; rows stay what they are."""
    clips = {"a": range(150), "b": range(1, 60)}
    convert(make_clips(clips, shape=(30, 40, 3)), tmp_path / "clips.zarr", workers=workers)
    frames = open_store(tmp_path / "clips.zarr").frames.array
    expected = [make_frame(c, n, (30, 40, 3)) for c, ns in enumerate(clips.values()) for n in ns]
    assert np.array_equal(frames, np.stack(expected))


def test_progress_reaches_the_end(make_clips: MakeClips, tmp_path: Path) -> None:
    """Every call says how many of how many, and the last one says all."""
    calls: list[tuple[int, int]] = []
    convert(
        make_clips({"a": range(50)}),
        tmp_path / "clips.zarr",
        progress=lambda done, total: calls.append((done, total)),
    )
    assert calls == sorted(calls)
    assert calls[-1] == (50, 50)


def test_shards_that_wait_for_the_disk_are_bounded(tmp_path: Path, monkeypatch) -> None:
    """Each has its file open, and a system allows few."""
    np.save(tmp_path / "a.npy", np.zeros((500, 8, 8), np.uint8))
    writing, most = tmp_path / "a.zarr.partial" / durable.WRITING, 0

    def slow(operation: str, path: Path) -> None:
        nonlocal most
        if operation == "fdatasync" and path.parent == writing:
            most = max(most, len(list(writing.iterdir())))
            time.sleep(0.005)

    monkeypatch.setattr("framewin.stores.layout.SHARD_BYTES", 64)
    monkeypatch.setattr(durable, "failpoint", slow)
    convert(tmp_path / "a.npy", tmp_path / "a.zarr", compression="zstd", chunk_frames=1)
    assert 0 < most < 250


def test_mixed_shapes_name_the_first_two_that_differ(make_clips: MakeClips, tmp_path: Path) -> None:
    """In store order, also where a later clip's first frame differs as well."""
    source = make_clips({"a": range(6), "b": range(3)})
    write_frames(source / "a", {"frame_4.png": make_frame(0, 4, (5, 6, 1))})
    write_frames(source / "b", {"frame_0.png": make_frame(0, 4, (4, 6, 3))})
    message = (
        f"{source}/a/frame_4.png is 5x6x1 uint8, {source}/a/frame_0.png is 4x6x1 uint8; all "
        "frames of a store must have one shape and dtype"
    )
    with pytest.raises(FrameFormatError, match=re.escape(message)):
        convert(source, tmp_path / "clips.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["frames"]


def test_mixed_dtypes_inside_a_clip(make_clips: MakeClips, tmp_path: Path) -> None:
    """Found while converting; nothing is left behind, and a dry run finds it too."""
    source = make_clips({"a": range(6)})
    write_frames(source / "a", {"frame_5.png": make_frame(0, 5, dtype="uint16")})
    message = re.escape("frame_5.png is 4x6x1 uint16, ")
    with pytest.raises(FrameFormatError, match=message):
        check_formats(plan_conversion(source, tmp_path / "clips.zarr"))
    with pytest.raises(FrameFormatError, match=message):
        convert(source, tmp_path / "clips.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["frames"]


def test_an_undecodable_frame_is_named(make_clips: MakeClips, tmp_path: Path) -> None:
    """Of several damaged frames the first is named, and nothing is left behind."""
    source = make_clips({"a": range(200)}, shape=(20, 20, 1))
    for number in (190, 57):
        path = source / "a" / f"frame_{number}.png"
        path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(SourceError, match=re.escape(f"{source}/a/frame_57.png is cut short")):
        convert(source, tmp_path / "clips.zarr", workers=3)
    assert [path.name for path in tmp_path.iterdir()] == ["frames"]


def test_an_empty_frame_is_an_error(make_clips: MakeClips, tmp_path: Path) -> None:
    """A frame file of no bytes is damage, not a dropping."""
    source = make_clips({"a": range(3)})
    (source / "a" / "frame_2.png").write_bytes(b"")
    with pytest.raises(SourceError, match=r"frame_2\.png is empty; expected a PNG file"):
        convert(source, tmp_path / "clips.zarr")


def test_a_frame_that_vanishes(make_clips: MakeClips, tmp_path: Path) -> None:
    """A file that goes between planning and reading is named."""
    source = make_clips({"a": range(3)})
    plan = plan_conversion(source, tmp_path / "clips.zarr")
    (source / "a" / "frame_1.png").unlink()
    with pytest.raises(SourceError, match=r"frame_1\.png cannot be read: No such file"):
        run(plan)


def test_destinations_that_are_refused(make_clips: MakeClips, tmp_path: Path) -> None:
    """What exists is never touched, and source and store never hold each other."""
    source = make_clips({"a": range(3)})
    taken = tmp_path / "taken.zarr"
    taken.mkdir()
    for dest, message in (
        (taken, "taken.zarr exists already; remove it or choose another name"),
        (source / "in.zarr", "in.zarr lies inside the source"),
        (tmp_path / "clips", "clips does not end in the suffix of a known format; call it"),
        (tmp_path / "no" / "clips.zarr", "no is not a folder; make it first"),
    ):
        with pytest.raises(StoreError, match=re.escape(message)):
            convert(source, dest)
    inside = tmp_path / "outer.zarr" / "frames"
    write_frames(inside, {"0.png": make_frame(0, 0)})
    with pytest.raises(StoreError, match="exists already"):
        convert(inside, tmp_path / "outer.zarr")
    link = tmp_path / "link"
    link.symlink_to(source)
    with pytest.raises(StoreError, match="lies inside the source"):
        convert(source, link / "clips.zarr")
    assert not list(taken.iterdir())


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_too_little_disk(
    make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused before anything is written, with both numbers."""
    source = make_clips({"a": range(3)})
    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(10**6, 10**6 - 1000, 1000))
    with pytest.raises(StoreError, match=r"clips.zarr needs [\d,]+ bytes but .* has 1,000 bytes"):
        convert(source, tmp_path / "clips.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["frames"]


def test_the_estimate_of_disk_space_is_enough(make_clips: MakeClips, tmp_path: Path) -> None:
    """What the check asks for is at least what the store takes."""
    source = make_clips({"a": range(300), "b" * 60: range(20)}, shape=(50, 70, 1))
    plan = plan_conversion(source, tmp_path / "clips.zarr")
    report = convert(source, tmp_path / "clips.zarr")
    assert report.bytes_out <= plan.needed_bytes <= report.bytes_out + 200_000


def test_a_write_error_leaves_nothing(
    make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fills up while writing gives one line and no store."""

    def full(*args: object) -> int:
        raise OSError(28, "No space left on device")

    source = make_clips({"a": range(3)})
    monkeypatch.setattr("os.pwrite", full)
    message = "clips.zarr cannot be written: No space left on device"
    with pytest.raises(StoreError, match=message):
        convert(source, tmp_path / "clips.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["frames"]


def test_a_failed_fsync_along_the_way_is_not_lost(
    make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The background sync's error ends the conversion."""

    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    source = make_clips({"a": range(3)})
    monkeypatch.setattr("os.fdatasync", broken)
    monkeypatch.setattr("framewin.conversion.journal.SYNC_BYTES", 1)
    with pytest.raises(StoreError, match=r"clips\.zarr cannot be written: Input/output error"):
        convert(source, tmp_path / "clips.zarr")
    assert not (tmp_path / "clips.zarr").exists()


def test_short_writes_are_continued(
    make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may write less than asked for."""
    pwrite = os.pwrite
    source = make_clips({"a": range(30)})
    monkeypatch.setattr("os.pwrite", lambda fd, data, at: pwrite(fd, data[:5], at))
    convert(source, tmp_path / "clips.zarr")
    expected = np.stack([make_frame(0, n) for n in range(30)])
    assert np.array_equal(open_store(tmp_path / "clips.zarr").frames.array, expected)


def test_two_conversions_of_one_store(make_clips: MakeClips, tmp_path: Path) -> None:
    """The second leaves at once; the first is not disturbed."""
    source = make_clips({"a": range(40)})
    dest = tmp_path / "clips.zarr"
    started, go_on = threading.Event(), threading.Event()

    def wait(done: int, total: int) -> None:
        started.set()
        assert go_on.wait(20)

    first = threading.Thread(target=convert, args=(source, dest), kwargs={"progress": wait})
    first.start()
    assert started.wait(20)
    with pytest.raises(
        StoreError, match=rf"clips\.zarr\.partial is in use by process {os.getpid()} on"
    ):
        convert(source, dest)
    go_on.set()
    first.join()
    assert len(open_store(dest).frames.array) == 40


def test_what_a_killed_run_left_is_cleared(make_clips: MakeClips, tmp_path: Path) -> None:
    """After SIGKILL there is no store; the same command then makes it."""
    source = make_clips({"a": range(40)})
    dest = tmp_path / "clips.zarr"
    killed = (
        "import os, signal, sys, framewin\n"
        "framewin.convert(sys.argv[1], sys.argv[2],"
        " progress=lambda done, total: os.kill(os.getpid(), signal.SIGKILL))"
    )
    done = subprocess.run([sys.executable, "-c", killed, source, dest], check=False)
    assert done.returncode == -9
    assert [path.name for path in tmp_path.iterdir() if path != source] == ["clips.zarr.partial"]
    convert(source, dest)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clips.zarr", "frames"]


def test_a_partial_folder_of_someone_else_is_left_alone(
    make_clips: MakeClips, tmp_path: Path
) -> None:
    """Nothing is deleted that framewin did not make."""
    source = make_clips({"a": range(3)})
    precious = tmp_path / "clips.zarr.partial" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("chapter 1")
    with pytest.raises(StoreError, match="is in the way and was not made by framewin; move it"):
        convert(source, tmp_path / "clips.zarr")
    assert precious.read_text() == "chapter 1"


def test_a_store_that_appears_meanwhile_is_kept(make_clips: MakeClips, tmp_path: Path) -> None:
    """The rename at the end replaces nothing."""
    source = make_clips({"a": range(3)})
    dest = tmp_path / "clips.zarr"

    def appear(done: int, total: int) -> None:
        dest.mkdir(exist_ok=True)

    with pytest.raises(StoreError, match="appeared while it was being written; it was left as"):
        convert(source, dest, progress=appear)
    assert not list(dest.iterdir())
    dest.rmdir()
    assert convert(source, dest).resumed_frames == 3
    assert not (tmp_path / "clips.zarr.partial").exists()


def test_memory_does_not_grow_with_the_source(tmp_path: Path) -> None:
    """400 frames of 1 MB take less memory than 80 of them would."""
    frame = np.zeros((1024, 1024, 1), np.uint8)
    write_frames(tmp_path / "clip", {"0.png": frame})
    for number in range(1, 400):
        (tmp_path / "clip" / f"{number}.png").hardlink_to(tmp_path / "clip" / "0.png")
    measure = (
        "import sys, framewin, framewin.conversion.run, framewin.stores.zarr_writer\n"
        "from framewin.bench.fresh import peak_rss_bytes\n"
        "before = peak_rss_bytes()\n"
        "framewin.convert(sys.argv[1], sys.argv[2], workers=2)\n"
        "print(peak_rss_bytes() - before)"
    )
    command = [sys.executable, "-c", measure, tmp_path / "clip", tmp_path / "clips.zarr"]
    grown = int(subprocess.run(command, check=True, capture_output=True).stdout)
    assert 0 < grown < 80e6


@pytest.mark.usefixtures("local_zone")
def test_times_are_kept_and_shown_as_utc(make_store: MakeClips) -> None:
    """In stores, labels, gaps, and names of forecasts, wherever the computer is."""
    options = {"frame_regex": r"(?P<time>\d{8}T\d{4})", "time_format": "%Y%m%dT%H%M"}
    store = make_store({"a": [0, 1, 2, 4, 5]}, pattern="20260308T020{}.png", converted=options)
    clips = open_store(store).meta.clips
    assert (clips.time_unit, int(clips.first_numbers[0])) == ("s", 1772935200)
    [gap] = clips.gaps()
    assert shown_number(gap.after, "s") == "2026-03-08T02:04:00"
    ds = FrameWindowDataset(store, input_frames=1, predict_frames=1)
    assert ds.show(0).labels == ("03-08T02:00:00", "03-08T02:01:00")
    assert predict._file_name(gap.before, "s") == "20260308T020200.png"


def test_workers_must_be_positive(make_clips: MakeClips, tmp_path: Path) -> None:
    """The message names the argument and the value."""
    with pytest.raises(ValueError, match="workers must be >= 1, got 0"):
        convert(make_clips({"a": range(3)}), tmp_path / "clips.zarr", workers=0)


def test_a_name_that_is_not_utf8(make_clips: MakeClips, tmp_path: Path) -> None:
    """Such a name could not be recorded; it is shown escaped."""
    source = make_clips({"a": range(2)})
    (source / "a" / "frame_0.png").rename(source / "a" / "frame_\udcff0.png")
    (source / "a" / "frame_1.png").rename(source / "a" / "frame_\udcff1.png")
    with pytest.raises(SourceError, match=r"frame_\\udcff0\.png' is not valid UTF-8; rename it"):
        convert(source, tmp_path / "clips.zarr")


def test_a_step_that_no_frame_follows(make_clips: MakeClips, tmp_path: Path) -> None:
    """Else every frame would stand alone, and no window would fit."""
    source = make_clips({"a": range(5)})
    with pytest.raises(SourceError, match="has no two frames that are 2 apart; leave step= out"):
        convert(source, tmp_path / "clips.zarr", step=2)


def test_bad_arguments_are_named(make_clips: MakeClips, tmp_path: Path) -> None:
    """With what was expected of them."""
    source = make_clips({"a": range(5)})
    for options, message in (
        ({"size": 64}, "size must be 2 integers, got 64"),
        ({"crop": (0, 4)}, r"crop must be 4 integers, got \(0, 4\)"),
        ({"background": "red"}, "background must be 3 integers, got 'red'"),
    ):
        with pytest.raises(ValueError, match=message):
            convert(source, tmp_path / "clips.zarr", **options)


@pytest.mark.parametrize("suffix", ["zarr", "h5"])
def test_uneven_steps_within_a_tolerance(tmp_path: Path, suffix: str) -> None:
    """True stamps are kept, windows cross no lost frame, and the report says how to allow it."""
    stamps = [1_467_394_337_801_095_936]
    for step in (20_000_000, 19_100_000, 20_900_000, 100_000_000, 20_000_100, 19_999_900):
        stamps.append(stamps[-1] + step)
    write_frames(tmp_path / "s", {f"{n}.png": make_frame(0, k) for k, n in enumerate(stamps)})
    hint = convert(tmp_path / "s", tmp_path / "no.zarr").hint
    assert (hint or "").endswith("apart; allow it by step_tolerance=900000")
    store = tmp_path / f"s.{suffix}"
    report = convert(tmp_path / "s", store, step_tolerance=900_000)
    assert (report.step, report.hint, len(report.gaps)) == (20_000_000, None, 1)
    convert(store, tmp_path / f"again.{suffix}")
    for path in (store, tmp_path / f"again.{suffix}"):
        ds = FrameWindowDataset(path, input_frames=2, predict_frames=1)
        numbers = [ds.window(k).input_frame_numbers for k in range(len(ds))]
        assert numbers == [tuple(stamps[k : k + 2]) for k in (0, 1, 4)]
        assert verify(path, full=True).damage == []


@pytest.mark.parametrize("number_step", [1, 6])
def test_frames_beside_an_animation_of_uneven_times(
    make_clips: MakeClips, tmp_path: Path, number_step: int
) -> None:
    """Its numbers are times; those of the files are stretched, and both keep their runs."""
    source = make_clips({"walk": range(0, 6 * number_step, number_step)}, shape=(8, 8, 1))
    images = [Image.fromarray(np.full((8, 8), 40 * i, np.uint8)) for i in range(5)]
    delays = [100, 100, 250, 100, 100]
    images[0].save(source / "a.gif", save_all=True, append_images=images[1:], duration=delays)
    convert(source, tmp_path / "clips.zarr", mode="gray")
    clips = open_store(tmp_path / "clips.zarr").meta.clips
    assert clips.names == ("a", "walk")
    assert clips.segment_starts.tolist() == [0, 3, 5]
    # Of the GIF in hundredths of seconds, or three times that, which 6 divides, too.
    scale = {1: 1, 6: 3}[number_step]
    times = [0, 10, 20, 45, 55]
    assert clips.frame_numbers(np.arange(11)).tolist() == [
        *(scale * time for time in times),
        *range(0, 60 * scale, 10 * scale),
    ]
    with pytest.raises(SourceError, match="has no two frames that are 7 apart"):
        convert(source, tmp_path / "other.zarr", mode="gray", step=7)
    convert(source, tmp_path / "stated.zarr", mode="gray", step=number_step)
    stated = open_store(tmp_path / "stated.zarr").meta.clips
    assert stated.frame_numbers(np.arange(5, 11)).tolist() == [
        *range(0, 6 * number_step, number_step)
    ]
