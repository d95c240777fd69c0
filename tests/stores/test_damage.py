"""Damaged frames: stop with the name, or leave gaps that everyone is told about; never zeros."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image

from framewin import (
    Damaged,
    FrameFormatError,
    FrameWindowDataset,
    MissingDependencyError,
    SourceError,
    StoreError,
    convert,
)
from framewin.arrays.zarr_arrays import CODECS
from framewin.conversion.against import compare
from framewin.schema import Gap
from framewin.stores import open_store
from tests.conftest import MakeClips, make_frame, write_frames
from tests.helpers.command import framewin, rows


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
    with pytest.raises(SourceError, match="frames has no frame that can be converted; the "):
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


def test_a_dry_run_says_all_reasons(make_clips: MakeClips, tmp_path: Path) -> None:
    """The first five and how many more there are, whether they would stop it or be left out."""
    source = make_clips({"a": range(12)})
    paths = [cut(source / "a" / f"frame_{number}.png") for number in range(2, 10)]
    for options, label, code in (((), "would stop", 1), (("--on-error", "gap"), "damaged", 3)):
        done = framewin("convert", source, tmp_path / "clips.zarr", "--dry-run", *options)
        assert done.returncode == code
        lines = done.stdout.splitlines()
        first = next(n for n, line in enumerate(lines) if line.startswith(label))
        assert "8 " in lines[first]
        for line, path in zip(lines[first + 1 : first + 6], paths[:5], strict=True):
            assert line.strip().startswith(f"{path} is cut short")
        assert lines[first + 6].strip() == "and 3 more"


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


@pytest.mark.parametrize("on_error", ["stop", "gap"])
def test_many_threads_never_wait_for_each_other(tmp_path: Path, on_error: str) -> None:
    """Files of several frames are read in turn; where one is damaged all threads end."""
    source = tmp_path / "in"
    source.mkdir()
    pages = np.arange(60 * 12 * 10, dtype=np.uint16).reshape(60, 12, 10)
    for clip in range(6):
        tifffile.imwrite(
            source / f"{clip}.tif", pages + clip, photometric="minisblack", compression="zlib"
        )
    write_frames(
        source / "still", {f"{n}.png": make_frame(0, n, (12, 10, 1), "uint16") for n in range(9)}
    )
    data = bytearray((source / "3.tif").read_bytes())
    with tifffile.TiffFile(source / "3.tif") as tiff:
        place = tiff.pages[20].dataoffsets[0]
    data[place : place + 30] = b"\xff" * 30
    (source / "3.tif").write_bytes(data)
    command = (
        "import sys, framewin, faulthandler; faulthandler.dump_traceback_later(60, exit=True)\n"
        "report = framewin.convert(*sys.argv[1:3], workers=9, on_error=sys.argv[3])\n"
        "print(report.frames, [d.number for d in report.damaged])"
    )
    arguments = [sys.executable, "-c", command, source, tmp_path / "clips.zarr", on_error]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if on_error == "stop":
        assert "SourceError" in done.stderr
        assert "3.tif (page 20) is a damaged TIFF file" in done.stderr
        return
    assert done.stdout == "368 [20]\n", done.stderr
    store = open_store(tmp_path / "clips.zarr")
    rows_of_last = store.frames.array[299:359, ..., 0]
    assert np.array_equal(rows_of_last, pages + 5)


def test_a_disk_that_fills_up_ends_all_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of one file that wait for their turn are let go."""

    def full(*args: object) -> int:
        raise OSError(28, "No space left on device")

    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in" / "a.npy", np.zeros((400, 30, 40), np.uint8))
    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(StoreError, match="cannot be written: No space left on device"):
        convert(tmp_path / "in", tmp_path / "clips.zarr", workers=7)


@pytest.mark.parametrize("on_error", ["stop", "gap"])
def test_what_was_not_compared_is_not_equal(
    make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_error: str
) -> None:
    """Regression: frames that are damaged in the source were passed over in silence."""
    source = make_clips({"a": range(60), "b": range(4)})
    known = cut(source / "a" / "frame_50.png") if on_error == "gap" else None
    convert(source, tmp_path / "clips.zarr", on_error=on_error)
    assert compare(tmp_path / "clips.zarr", source) == []
    for number in range(7, 15):
        cut(source / "a" / f"frame_{number}.png")
    write_frames(source / "a", {"frame_30.png": make_frame(0, 31)})
    first = source / "b" / "frame_0.png"
    first.write_bytes(b"")
    monkeypatch.setattr("framewin.conversion.against.BLOCK_BYTES", 1)
    lines = compare(tmp_path / "clips.zarr", source, workers=8)
    assert lines[:4] == [
        f"a: frames 30 differ from {source}",
        f"b: frames 0 are in the store, not in {source}",
        f"a: frames 7, 8, 9, 10, 11 and 3 more are damaged in {source}, and were not compared",
        f"{first} is empty; expected a PNG file, copy it again or remove it",
    ]
    assert lines[4].startswith(f"{source / 'a' / 'frame_7.png'} is cut short")
    assert lines[8:] == ["and 4 more damaged frames or files"]
    assert not any(str(known) in line for line in lines)
    done = framewin("verify", tmp_path / "clips.zarr", "--against", source)
    assert (done.returncode, rows(done.stdout)["compared"]) == (1, "not equal")
    assert done.stderr.splitlines() == [f"framewin: {line}" for line in lines]


def no_memory(*args: object, **kwargs: object) -> None:
    raise MemoryError


def failing_disk(*args: object, **kwargs: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


def stack(folder: Path, suffix: str) -> None:
    """A clip of six frames of one value each, 1 to 6."""
    frames = np.repeat(np.arange(1, 7, dtype=np.uint8), 24 * 32).reshape(6, 24, 32)
    path = folder / f"a{suffix}"
    if suffix in (".png", ".bmp"):
        for number, frame in enumerate(frames):
            Image.fromarray(frame).save(folder / f"{number}{suffix}")
    elif suffix == ".tif":
        tifffile.imwrite(path, frames, photometric="minisblack", compression="zlib")
    elif suffix == ".npy":
        np.save(path, frames)
    elif suffix == ".h5":
        with h5py.File(path, "w") as file:
            file.create_dataset("frames", data=frames, chunks=(1, 24, 32), compression="lzf")
    elif suffix == ".zarr":
        zarr.create_array(path, data=frames, chunks=(1, 24, 32), dimension_names=["t", "y", "x"])


@pytest.mark.parametrize(
    ("suffix", "library", "fails", "message"),
    [
        (".png", "imagecodecs.png_decode", no_memory, "failed twice (MemoryError)"),
        (".bmp", "PIL.ImageFile.ImageFile.load", no_memory, "is too little memory"),
        (".png", "framewin.conversion.read.os.read", failing_disk, "cannot be read: Input/output"),
        (".tif", "tifffile.TiffPage.asarray", failing_disk, "a.tif cannot be read: Input/output"),
        (".tif", "tifffile.TiffPage.asarray", no_memory, "a.tif cannot be read: there is too l"),
        (".npy", "numpy.fromfile", failing_disk, "cannot be read: Input/output"),
        (".h5", "h5py.Dataset.__getitem__", failing_disk, "a.h5 cannot be read: Input/output"),
        (".zarr", "zarr.Array.__getitem__", failing_disk, "a.zarr cannot be read: Input/output"),
        (".zarr", "zarr.Array.__getitem__", no_memory, "a.zarr cannot be read: there is too"),
    ],
)
def test_what_the_system_lacks_is_no_damage(
    suffix: str, library: str, fails: object, message: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Regression: full memory and failing disks left gaps, which a resumed conversion kept."""
    source, dest = tmp_path / "in", tmp_path / "clips.zarr"
    source.mkdir()
    stack(source, suffix)
    with monkeypatch.context() as patch:
        patch.setattr(library, fails)
        with pytest.raises((SourceError, StoreError), match=re.escape(message)) as caught:
            convert(source, dest, on_error="gap")
    assert "cannot be written" not in str(caught.value)
    assert "is damaged" not in str(caught.value)
    report = convert(source, dest, on_error="gap")
    assert (report.frames, report.damaged) == (6, [])
    assert open_store(dest).frames.array[:, 3, 4, 0].tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EMFILE, errno.ESTALE, errno.ETIMEDOUT])
@pytest.mark.parametrize("number", [0, 3])
def test_a_file_that_cannot_be_opened_is_no_gap(
    make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, number: int
) -> None:
    """Neither the first one, whose header is read before, nor one in the middle of a conversion."""
    source = make_clips({"a": range(300)}, shape=(64, 64, 1))
    cut(source / "a" / "frame_290.png")
    path, opened, read = str(source / "a" / f"frame_{number}.png"), io.open, os.open

    def refuse(function: Callable[..., Any], given: object, *args: Any, **kwargs: Any) -> Any:
        if str(given) == path:
            raise OSError(code, os.strerror(code), path)
        return function(given, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", partial(refuse, opened))
        patch.setattr("os.open", partial(refuse, read))
        message = f"{path} cannot be read: {os.strerror(code)}"
        with pytest.raises(SourceError, match=re.escape(message)):
            convert(source, tmp_path / "clips.zarr", on_error="gap")
    report = convert(source, tmp_path / "clips.zarr", on_error="gap")
    assert (report.frames, [d.number for d in report.damaged]) == (299, [290])


def test_codecs_that_are_not_installed_are_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clips beside such a Zarr array are not all that is converted."""
    monkeypatch.setattr("framewin.arrays.zarr_arrays.CODECS", CODECS | {"nobodys"})
    source = tmp_path / "in"
    (source / "b").mkdir(parents=True)
    stack(source / "b", ".npy")
    frames = np.ones((4, 24, 32), np.uint8)
    zarr.create_array(source / "a.zarr", data=frames, zarr_format=2, compressors=None)
    path = source / "a.zarr" / ".zarray"
    record = {**json.loads(path.read_text()), "compressor": {"id": "nobodys"}}
    path.write_text(json.dumps(record))
    with pytest.raises(
        SourceError, match=r"a\.zarr cannot be read: codec not available: .*nobodys"
    ):
        convert(source, tmp_path / "clips.zarr", on_error="gap")


def test_filters_that_are_not_installed_are_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LZF is in h5py itself; a filter that nobody has stops the conversion by its name."""
    (tmp_path / "in").mkdir()
    stack(tmp_path / "in", ".h5")
    monkeypatch.setitem(sys.modules, "hdf5plugin", None)
    assert convert(tmp_path / "in", tmp_path / "lzf.zarr", on_error="gap").frames == 6
    monkeypatch.setattr("h5py.h5z.filter_avail", lambda number: False)
    with pytest.raises(MissingDependencyError, match=r"pip install 'framewin\[hdf5plugin\]'"):
        convert(tmp_path / "in", tmp_path / "clips.zarr", on_error="gap")
    monkeypatch.setitem(sys.modules, "hdf5plugin", ModuleType("hdf5plugin"))
    with pytest.raises(MissingDependencyError, match=r"needs the HDF5 filter 32000 \(lzf\), which"):
        convert(tmp_path / "in", tmp_path / "clips.zarr", on_error="gap")
