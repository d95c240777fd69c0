"""Arrays and stores as sources, and stores compared with what they were made from."""

from __future__ import annotations

import os
import re
import shutil
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

from framewin import FrameFormatError, FrameWindowDataset, SourceError, convert
from framewin.arrays.frames import FrameArray
from framewin.conversion import source as opening
from framewin.conversion.against import compare
from framewin.frames import open_frames
from framewin.stores import open_store
from tests.conftest import MakeClips, import_or_skip, make_frame, write_frames
from tests.helpers.arrays import CONTAINERS, H, T, W, values
from tests.helpers.store_contract import COMPRESSIONS, flip
from tests.helpers.windows import open_windows

CLIPS = {"a": [1, 2, 3, 7], "b/c": [0, 5]}


def frames_of(store: Path) -> np.ndarray:
    opened = open_store(store)
    return opened.frames.take(np.arange(opened.meta.clips.num_frames))


@pytest.mark.parametrize("container", sorted(CONTAINERS))
@pytest.mark.parametrize("axes", ["tyx", "xty"])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float64"])
def test_an_array_becomes_a_store(tmp_path: Path, container: str, axes: str, dtype: str) -> None:
    """Any axes and dtype; values as they are."""
    sizes = {"t": T, "y": H, "x": W}
    data = values(tuple(sizes[letter] for letter in axes), dtype)
    path = CONTAINERS[container](tmp_path, data)
    array = None if container == "npy" else "group/data"
    report = convert(path, tmp_path / "clips.zarr", array=array, axes=axes, compression="zstd")
    assert (report.clips, report.frames) == (1, T)
    expected = np.transpose(data, [axes.index(letter) for letter in "tyx"])[..., np.newaxis]
    found = frames_of(tmp_path / "clips.zarr")
    assert found.dtype == dtype
    assert np.array_equal(found, expected)
    assert compare(tmp_path / "clips.zarr", path) == []


@pytest.mark.parametrize("container", ["hdf5", "zarr 2", "zarr 3"])
def test_clips_and_gaps_of_an_array(tmp_path: Path, container: str) -> None:
    """By arrays that stand beside the frames."""
    data = values((T, H, W), "uint16")
    ids, numbers = np.array([7] * 4 + [2] * 5), np.array([0, 5, 10, 20, 3, 8, 13, 18, 23])
    path = CONTAINERS[container](tmp_path, data, ids=ids, numbers=numbers)
    convert(
        path, tmp_path / "clips.h5", array="group/data", clip_ids="ids", frame_numbers="numbers"
    )
    clips = open_store(tmp_path / "clips.h5").meta.clips
    assert clips.names == ("7", "2")
    assert clips.frame_numbers(np.arange(T)).tolist() == numbers.tolist()
    assert [(gap.before, gap.after) for gap in clips.gaps()] == [(10, 20)]
    assert np.array_equal(frames_of(tmp_path / "clips.h5")[..., 0], data)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize(("before", "after"), [(".zarr", ".h5"), (".h5", ".zarr")])
def test_a_store_becomes_another(
    make_store: MakeClips, tmp_path: Path, compression: str, before: str, after: str
) -> None:
    """Clips, numbers, gaps, no-data value and pixels stay; so a layout can be changed."""
    import_or_skip("hdf5plugin")
    converted = {"compression": compression, "chunk_frames": 2, "nodata": 9}
    store = make_store(CLIPS, shape=(5, 4, 3), suffix=before, converted=converted)
    convert(store, tmp_path / f"other{after}")
    one, other = open_store(store).meta, open_store(tmp_path / f"other{after}").meta
    assert one.clips.names == other.clips.names == ("a", "b/c")
    rows = np.arange(6)
    assert np.array_equal(one.clips.frame_numbers(rows), other.clips.frame_numbers(rows))
    assert one.clips.gaps() == other.clips.gaps()
    assert other.nodata == 9
    assert np.array_equal(frames_of(store), frames_of(tmp_path / f"other{after}"))


def test_stores_keep_times(tmp_path: Path) -> None:
    """Frames numbered by time stay so, in the coordinate too."""
    xarray = import_or_skip("xarray")
    import_or_skip("h5netcdf")
    stamps = ["20240101_2355", "20240102_0000", "20240102_0005"]
    frames = {f"{stamp}.png": make_frame(0, n) for n, stamp in enumerate(stamps)}
    write_frames(tmp_path / "radar", frames)
    options = {"frame_regex": r"(?P<time>\d{8}_\d{4})", "time_format": "%Y%m%d_%H%M"}
    convert(tmp_path / "radar", tmp_path / "one.zarr", **options)
    convert(tmp_path / "one.zarr", tmp_path / "two.h5")
    for dataset in (
        xarray.open_zarr(tmp_path / "one.zarr"),
        xarray.open_dataset(tmp_path / "two.h5", engine="h5netcdf"),
    ):
        times = dataset.time.to_numpy().astype("datetime64[m]").astype(str).tolist()
        assert times == ["2024-01-01T23:55", "2024-01-02T00:00", "2024-01-02T00:05"]
        assert np.array_equal(dataset.frames.to_numpy(), list(frames.values()))
        dataset.close()


def test_a_damaged_store_is_no_source(make_store: MakeClips, tmp_path: Path) -> None:
    """Its frames would get new checksums, which would be right."""
    store = make_store(CLIPS)
    flip(store / "frames/c/0/0/0/0", 30)
    message = f"{store} is damaged (frames 0 to 5 are damaged (a 1 to b/c 5)); convert its own"
    with pytest.raises(SourceError, match=re.escape(message)):
        convert(store, tmp_path / "other.h5")


def test_a_folder_of_files_of_one_frame_each(tmp_path: Path) -> None:
    """As radar archives are: a clip, in the order of the names, compressed as they like."""
    import_or_skip("hdf5plugin")
    (tmp_path / "radar").mkdir()
    for number in (10, 9, 2):
        with h5py.File(tmp_path / "radar" / f"scan_{number}.h5", "w") as file:
            frame = np.full((4, 5), number, np.uint16)
            file.create_dataset("image1/data", data=frame, compression="gzip")
            file["image2/data"] = frame + 1
    convert(tmp_path / "radar", tmp_path / "clips.zarr", array="image1/data", axes="yx")
    assert frames_of(tmp_path / "clips.zarr")[:, 0, 0, 0].tolist() == [2, 9, 10]
    message = r"name the array with the frames; there are image1/data \(4, 5\), image2/data"
    with pytest.raises(SourceError, match=message):
        convert(tmp_path / "radar", tmp_path / "other.zarr", axes="yx")


def test_arrays_that_stand_in_a_folder(tmp_path: Path) -> None:
    """Each file, or Zarr folder, is a clip by its name, beside videos and stacks."""
    source = tmp_path / "movies"
    for name in ("one", "two"):
        (source / name).mkdir(parents=True)
    hdf5(source / "one" / "a.h5", 3)
    hdf5(source / "b.nc", 5)
    zarr.save_array(source / "two" / "c.zarr", values((2, H, W), "uint8"))
    report = convert(source, tmp_path / "clips.zarr")
    assert (report.clips, report.frames) == (3, 10)
    clips = open_store(tmp_path / "clips.zarr").meta.clips
    lengths = dict(zip(clips.names, clips.clip_lengths.tolist(), strict=True))
    assert lengths == {"b": 5, "one/a": 3, "two/c": 2}


def hdf5(path: Path, length: int) -> None:
    with h5py.File(path, "w") as file:
        file["movie"] = values((length, H, W), "uint8")


def test_arrays_that_are_refused(tmp_path: Path) -> None:
    """The file, what was found, what to do; as for any other source."""
    source = tmp_path / "scans"
    source.mkdir()
    (source / "scan_1.h5").write_bytes(b"no array")
    with pytest.raises(SourceError, match=r"scan_1\.h5 starts with b'no array'; expected a HDF5"):
        convert(source, tmp_path / "clips.zarr")
    (source / "scan_1.h5").unlink()
    zarr.save_array(source / "a.zarr", values((4, H, W), "uint8"))
    next((source / "a.zarr").rglob("c/0/0/0")).unlink()
    with pytest.raises(SourceError, match="chunk c/0/0/0 of 'a' is missing, and would read as"):
        convert(source, tmp_path / "clips.zarr")
    np.savez(tmp_path / "b.npz", values((4, H, W), "uint8"))
    with pytest.raises(SourceError, match=r"b\.npz is an archive, whose arrays axes= cannot"):
        convert(tmp_path / "b.npz", tmp_path / "clips.zarr", axes="ytx")
    shutil.rmtree(source / "a.zarr")
    hdf5(source / "f1.h5", 3)
    with h5py.File(source / "f2.h5", "w") as file:
        file["movie"] = values((3, H + 1, W), "uint8")
    with pytest.raises(FrameFormatError, match=r"f2\.h5 is 5x5x1 uint8, .*f1\.h5 is 4x5x1 uint8"):
        convert(source, tmp_path / "clips.zarr")


def test_no_data_is_not_mixed_with_data(make_clips: MakeClips, tmp_path: Path) -> None:
    """Averages over pixels without data would be values that nobody measured."""
    source = make_clips({"a": range(3)}, shape=(4, 6, 3))
    for options in ({"size": (2, 3)}, {"mode": "gray"}, {"background": (0, 0, 0)}):
        with pytest.raises(ValueError, match="would mix the nodata value with data; use crop"):
            convert(source, tmp_path / "clips.zarr", nodata=255, **options)
    convert(source, tmp_path / "clips.zarr", nodata=255, crop=(0, 2, 0, 3))
    assert open_store(tmp_path / "clips.zarr").meta.nodata == 255


def test_comparing_with_the_source(make_clips: MakeClips, tmp_path: Path) -> None:
    """Names the clips and frames that were changed, lost or added since."""
    source = make_clips({"a": range(12), "b": range(5)}, shape=(8, 8, 3))
    store = tmp_path / "clips.h5"
    convert(source, store, compression="gzip", size=(4, 4), mode="gray")
    calls: list[tuple[int, int]] = []
    assert compare(store, source, progress=lambda *done: calls.append(done)) == []
    assert calls[-1] == (17, 17)
    for number in range(3, 10):
        write_frames(source / "a", {f"frame_{number}.png": make_frame(5, number, (8, 8, 3))})
    (source / "b" / "frame_0.png").rename(source / "b" / "frame_7.png")
    assert compare(store, source) == [
        f"a: frames 3, 4, 5, 6, 7 and 2 more differ from {source}",
        f"b: frames 7 are in {source}, not in the store",
        f"b: frames 0 are in the store, not in {source}",
    ]


@pytest.mark.parametrize(
    ("recorded", "reason"),
    [
        ({"fit": "pad"}, None),
        ({"kind": "raw"}, "kind must be"),
        ({"frame_regex": "(?P<a>.)"}, "frame_regex "),
    ],
)
def test_comparing_by_settings_of_before(
    make_clips: MakeClips,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recorded: dict[str, Any],
    reason: str | None,
) -> None:
    """One that changes nothing is left out; for one that is refused now, a line says so."""
    source, store = make_clips({"a": range(3)}), tmp_path / "clips.zarr"
    with monkeypatch.context() as before:
        now = opening.ConvertSettings.as_json
        before.setattr(opening.ConvertSettings, "as_json", lambda self: {**now(self), **recorded})
        convert(source, store)
    assert open_store(store).meta.conversion.items() >= recorded.items()
    if reason is None:
        assert compare(store, source) == []
        return
    message = f"{source} cannot be compared with {store}, for this version refuses it: {reason}"
    with pytest.raises(SourceError, match=re.escape(message)):
        compare(store, source)


def test_comparing_leaves_known_damage_out(make_clips: MakeClips, tmp_path: Path) -> None:
    """What was a gap then is one now; and a clip of a folder that has moved is the same clip."""
    source = make_clips({"a": range(6)})
    path = source / "a" / "frame_4.png"
    path.write_bytes(path.read_bytes()[:-20])
    convert(source / "a", tmp_path / "clips.zarr", on_error="gap")
    (source / "a").rename(tmp_path / "moved")
    assert compare(tmp_path / "clips.zarr", tmp_path / "moved") == []


def test_radar_archives(real_data: Path, tmp_path: Path) -> None:
    """92 HDF5 files of 2010-08-26, one frame each, by their time stamps; 65535 is no data."""
    source = real_data / "radar_knmi_h5" / "2010" / "08"
    convert(
        source,
        tmp_path / "clips.zarr",
        array="image1/image_data",
        axes="yx",
        frame_regex=r"(?P<time>\d{12})\.h5",
        time_format="%Y%m%d%H%M",
        nodata=65535,
        compression="zstd",
    )
    expected = []
    for path in sorted(source.glob("*.h5")):
        with h5py.File(path) as file:
            expected.append(file["image1/image_data"][:])
    assert np.array_equal(frames_of(tmp_path / "clips.zarr")[..., 0], expected)
    ds = FrameWindowDataset(
        tmp_path / "clips.zarr", input_frames=5, predict_frames=5, sample_weight="nodata"
    )
    assert (len(ds), ds.clips.step, ds.clips.time_unit, ds.clips.gaps()) == (83, 300, "s", [])
    weights = ds[0][2]
    assert np.array_equal(weights, np.stack(expected[5:10]) != 65535)


@pytest.mark.parametrize(("name", "length"), [("sat_data", 25), ("sat_data_15", 9)])
def test_satellite_archives(real_data: Path, tmp_path: Path, name: str, length: int) -> None:
    """Zarr of format 2 with BZ2, int16 and float64, a ragged last chunk and no fill value."""
    source = real_data / "zarr_ocf_satellite" / f"{name}.zarr"
    expected = zarr.open_group(source, mode="r")["data"][:]
    ds = FrameWindowDataset(
        open_frames(source, array="data", axes="tyxc"), input_frames=3, predict_frames=2
    )
    assert len(ds) == length - 4
    assert np.array_equal(np.concatenate(ds[len(ds) - 1]), expected[-5:])
    convert(source, tmp_path / "clips.h5", array="data", frame_numbers="time")
    assert np.array_equal(frames_of(tmp_path / "clips.h5"), expected)


def test_chunks_that_were_left_out_on_purpose(tmp_path: Path) -> None:
    """Frames of nothing but the fill value, which Zarr does not write unless it is told to."""
    array = zarr.create_array(tmp_path / "rain.zarr", shape=(8, H, W), chunks=(1, H, W), dtype="u1")
    array[:4] = 3
    with pytest.raises(SourceError, match=r"missing.*, or give allow_missing_chunks=True"):
        convert(tmp_path / "rain.zarr", tmp_path / "clips.zarr")
    convert(tmp_path / "rain.zarr", tmp_path / "clips.zarr", allow_missing_chunks=True)
    assert frames_of(tmp_path / "clips.zarr")[:, 0, 0, 0].tolist() == [3] * 4 + [0] * 4


def test_packing_is_kept_not_applied(tmp_path: Path) -> None:
    """xarray reads the same values from the store as from the source."""
    xarray = import_or_skip("xarray")
    import_or_skip("h5netcdf")
    data = np.arange(3 * H * W).reshape(3, H, W) * 0.5
    dataset = xarray.Dataset({"rain": (("time", "y", "x"), data)})
    encoding = {"rain": {"dtype": "int16", "scale_factor": 0.5, "_FillValue": -1}}
    dataset.to_netcdf(tmp_path / "rain.nc", engine="h5netcdf", encoding=encoding)
    convert(tmp_path / "rain.nc", tmp_path / "clips.zarr")
    assert open_store(tmp_path / "clips.zarr").meta.nodata == -1
    assert frames_of(tmp_path / "clips.zarr").dtype == np.int16
    found = xarray.open_zarr(tmp_path / "clips.zarr").frames.to_numpy()
    assert np.array_equal(found[..., 0], data)


def test_arrays_of_many_channels(tmp_path: Path) -> None:
    """Satellites have a dozen; colours and alpha are not looked for among them."""
    data = values((3, H, W, 12), "uint16")
    np.save(tmp_path / "bands.npy", data)
    convert(tmp_path / "bands.npy", tmp_path / "clips.zarr", axes="tyxc")
    assert np.array_equal(frames_of(tmp_path / "clips.zarr"), data)
    message = "has 12 channels; mode=, drop_alpha= and background= are for gray, RGB and alpha"
    with pytest.raises(FrameFormatError, match=message):
        convert(tmp_path / "bands.npy", tmp_path / "gray.zarr", axes="tyxc", mode="gray")


@pytest.mark.parametrize("channels", [2, 4])
@pytest.mark.parametrize("container", sorted(CONTAINERS))
def test_channels_of_an_array_are_not_taken_for_alpha(
    tmp_path: Path, container: str, channels: int
) -> None:
    """Nothing says that the last one is alpha, here and in the store, so it is never blended."""
    path = CONTAINERS[container](tmp_path, values((T, H, W, channels), "uint8"))
    array = {} if container == "npy" else {"array": "group/data"}
    convert(path, tmp_path / "kept.zarr", axes="tyxc", **array)
    kept = (tmp_path / "kept.zarr", {})
    message = f"has {channels} channels of data that is not alpha; mode=, drop_alpha= and"
    for chosen in ({"drop_alpha": True}, {"background": (0, 0, 0)}, {"mode": "gray"}):
        for source, named in ((path, {"axes": "tyxc", **array}), kept):
            with pytest.raises(FrameFormatError, match=re.escape(message)):
                convert(source, tmp_path / "other.zarr", **chosen, **named)
    assert np.array_equal(frames_of(kept[0]), values((T, H, W, channels), "uint8"))


@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
def test_a_store_knows_that_a_channel_is_alpha(tmp_path: Path, suffix: str) -> None:
    """Of PNG files it is; a second conversion gives what one alone gives."""
    pixels = np.array([[[200, 100, 0, 255], [255, 255, 255, 0]]], np.uint8)
    write_frames(tmp_path / "in", {"0.png": pixels, "1.png": pixels})
    convert(tmp_path / "in", tmp_path / f"kept{suffix}")
    convert(tmp_path / f"kept{suffix}", tmp_path / f"again{suffix}")
    for source in (tmp_path / "in", tmp_path / f"again{suffix}"):
        laid = tmp_path / f"{source.name}_laid.zarr"
        convert(source, laid, background=(0, 0, 9))
        assert frames_of(laid)[1].tolist() == [[[200, 100, 0], [0, 0, 9]]]


def test_a_store_that_does_not_say_what_its_channels_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made before that was recorded: the last of them is alpha, as it was then."""
    write_frames(tmp_path / "in", {"0.png": np.zeros((2, 3, 4), np.uint8)})
    with monkeypatch.context() as before:
        before.setattr(opening, "_recorded", lambda *_: {})
        convert(tmp_path / "in", tmp_path / "old.h5")
    assert "alpha" not in open_store(tmp_path / "old.h5").meta.conversion
    convert(tmp_path / "old.h5", tmp_path / "kept.zarr")
    assert frames_of(tmp_path / "kept.zarr").shape == (1, 2, 3, 4)
    convert(tmp_path / "old.h5", tmp_path / "laid.zarr", background=(0, 0, 9))
    assert frames_of(tmp_path / "laid.zarr")[0, 1].tolist() == [[0, 0, 9]] * 3


def test_zarr_folders_of_a_frame_each(tmp_path: Path) -> None:
    """Regression: each became a clip without a window."""
    for number in range(3):
        path = tmp_path / "in" / f"t00{number}.zarr"
        zarr.create_group(path).create_array("data", data=values((1, H, W), "uint8"))
    message = f"{tmp_path / 'in'} holds 3 Zarr folders of a single frame each, such as t000.zarr"
    with pytest.raises(SourceError, match=re.escape(message)):
        convert(tmp_path / "in", tmp_path / "clips.zarr")


def test_comparing_with_another_source(make_clips: MakeClips, tmp_path: Path) -> None:
    """One of other clips, or of other frames: a line, no more."""
    source = make_clips({"a": range(3)})
    convert(source, tmp_path / "clips.zarr")
    other = make_clips({"b": range(3), "c": range(2)}, folder="other")
    assert compare(tmp_path / "clips.zarr", other) == [
        f"b: frames 0, 1, 2 are in {other}, not in the store",
        f"c: frames 0, 1 are in {other}, not in the store",
        f"a: frames 0, 1, 2 are in the store, not in {other}",
    ]
    large = make_clips({"a": range(3)}, folder="large", shape=(9, 9, 1))
    assert compare(tmp_path / "clips.zarr", large) == [
        f"{large} has frames 9x9x1 uint8, the store 4x6x1 uint8"
    ]


def steps(folder: Path, minutes: list[int], **attributes: dict[int, Any]) -> Path:
    """NetCDF files of one frame each, called so that text order is no order of time."""
    folder.mkdir()
    for place, minute in enumerate(minutes):
        with h5py.File(folder / f"rad_{'abcdefgh'[-place - 1]}_{minute % 7}.nc", "w") as file:
            file["time"] = [minute]
            file["time"].attrs["units"] = "minutes since 2020-01-01"
            file["time"].make_scale("time")
            file["rain"] = np.full((1, H, W), minute, np.uint8)
            file["rain"].dims[0].attach_scale(file["time"])
            for name, stated in attributes.items():
                if place in stated:
                    file["rain"].attrs[name] = stated[place]
    return folder


def test_files_of_one_time_step_are_a_clip(tmp_path: Path) -> None:
    """In the order of their own times, whatever they are called; a missing one is a gap."""
    minutes = [0, 5, 10, 15, 25, 30, 35]
    convert(steps(tmp_path / "radar", minutes), tmp_path / "clips.zarr")
    store = open_store(tmp_path / "clips.zarr")
    assert store.meta.clips.names == ("radar",)
    assert (store.meta.clips.time_unit, store.meta.clips.step) == ("s", 300)
    assert len(store.meta.clips.gaps()) == 1
    assert frames_of(tmp_path / "clips.zarr")[:, 0, 0, 0].tolist() == minutes
    assert store.source_files(np.array([0])) == ["rad_h_0.nc"]
    assert compare(tmp_path / "clips.zarr", tmp_path / "radar") == []
    (tmp_path / "radar" / "x_1.nc").write_bytes((tmp_path / "radar" / "rad_h_0.nc").read_bytes())
    message = r"rad_h_0.nc and .*x_1.nc both hold the frame of 2020-01-01T00:00:00; leave one out"
    with pytest.raises(SourceError, match=message):
        convert(tmp_path / "radar", tmp_path / "other.zarr")


def test_names_order_files_of_one_step_without_times(tmp_path: Path) -> None:
    """By their numbers, as files of pictures; an expression decides over the times in files."""
    (tmp_path / "scans").mkdir()
    for number in (2, 10, 9):
        np.save(tmp_path / "scans" / f"scan_{number}.npy", np.full((1, H, W), number, np.uint8))
    convert(tmp_path / "scans", tmp_path / "scans.zarr")
    assert frames_of(tmp_path / "scans.zarr")[:, 0, 0, 0].tolist() == [2, 9, 10]
    source = steps(tmp_path / "radar", [0, 5, 10])
    for minute in (0, 5, 10):
        [path] = source.glob(f"rad_*_{minute % 7}.nc")
        path.rename(source / f"{20 - minute}.nc")
    convert(source, tmp_path / "clips.zarr", frame_regex=r"(?P<frame>\d+)\.nc")
    clips = open_store(tmp_path / "clips.zarr").meta.clips
    assert (clips.time_unit, clips.frame_numbers(np.arange(3)).tolist()) == (None, [10, 15, 20])
    assert frames_of(tmp_path / "clips.zarr")[:, 0, 0, 0].tolist() == [10, 5, 0]


@pytest.mark.parametrize(
    ("name", "stated", "message"),
    [
        ("scale_factor", {0: 0.5, 1: 0.5, 2: 0.25}, "has the scale_factor 0.*, .* has 0"),
        ("units", {0: "mm", 1: "mm"}, "has the units .*; convert them into stores of their own"),
        ("_FillValue", {0: np.uint8(255), 1: np.uint8(255)}, "has .* for no data, .* has .* for"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("named", [False, True])
def test_files_whose_values_mean_different_things(
    tmp_path: Path, name: str, stated: dict[int, Any], message: str, named: bool
) -> None:
    """They are not one store, whether all or only the first of a clip are read beforehand."""
    source = steps(tmp_path / "radar", [0, 5, 10], **{name: stated})
    options = {"frame_regex": r"_(?P<frame>\d)\.nc"} if named else {}
    with pytest.raises(FrameFormatError, match=message):
        convert(source, tmp_path / "clips.zarr", **options)


def test_crops_of_coordinates(tmp_path: Path) -> None:
    """They follow the rows and columns that are kept; new pixels have none."""
    xarray = import_or_skip("xarray")
    import_or_skip("h5netcdf")
    data = values((T, 8, 6), "uint8")
    coordinates = {"lat": np.linspace(55, 48, 8), "lon": np.arange(6.0)}
    xarray.Dataset({"rain": (("time", "lat", "lon"), data)}, coordinates).to_netcdf(
        tmp_path / "rain.nc", engine="h5netcdf"
    )
    convert(tmp_path / "rain.nc", tmp_path / "crop.zarr", crop=(2, 6, 1, 4))
    found = xarray.open_zarr(tmp_path / "crop.zarr")
    assert found.y.to_numpy().tolist() == [53, 52, 51, 50]
    assert found.x.to_numpy().tolist() == [1, 2, 3]
    convert(tmp_path / "rain.nc", tmp_path / "size.zarr", size=(4, 3))
    assert open_store(tmp_path / "size.zarr").meta.coordinates == {}


def test_zarr_arrays_in_folders_of_any_name(tmp_path: Path) -> None:
    """An array of a group by its folder, and groups among other clips."""
    for name in ("one.zarr", "two"):
        group = zarr.open_group(tmp_path / "all" / name, mode="w")
        group["movie"] = values((T, H, W), "uint8")
        group["mask"] = values((H, W), "uint8")
    convert(tmp_path / "all" / "two" / "movie", tmp_path / "clips.zarr")
    assert np.array_equal(frames_of(tmp_path / "clips.zarr")[..., 0], values((T, H, W), "uint8"))
    convert(tmp_path / "all", tmp_path / "both.zarr")
    assert open_store(tmp_path / "both.zarr").meta.clips.names == ("one", "two")
    (tmp_path / "all" / "one.zarr" / "zarr.json").unlink()
    convert(tmp_path / "all", tmp_path / "loose.zarr", include=["*movie", "two"])
    assert open_store(tmp_path / "loose.zarr").meta.clips.names == ("two", "one.zarr/movie")


def test_headers_of_archives_are_bounded(tmp_path: Path) -> None:
    """A few megabytes that claim a header of gigabytes."""
    start = b"\x93NUMPY\2\0" + (2**28).to_bytes(4, "little")
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", start + b" " * 2**26)
    tracemalloc.start()
    with pytest.raises(SourceError, match=r"a\.npz has a damaged array header \(.*268435456 bytes"):
        convert(tmp_path / "a.npz", tmp_path / "clips.zarr")
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_times_of_several_files_and_calendars(tmp_path: Path) -> None:
    """Dates stay what they are where steps and units differ; what is not a date is said."""
    for name, units, stamps, calendar in (
        ("a", "seconds since 2024-01-01", [0, 300, 600, 1200], "standard"),
        ("b", "milliseconds since 2024-01-01", [0, 300_000, 600_000, 600_500], "standard"),
        ("n", "days since 2000-01-01", [57, 58, 60], "noleap"),
    ):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["rain"] = np.zeros((len(stamps), H, W), "uint8")
            file["time"] = np.array(stamps)
            file["time"].attrs.update({"units": units, "calendar": calendar})
            file["time"].make_scale("time")
            file["rain"].dims[0].attach_scale(file["time"])
    options = {"axes": "tyx"}
    report = convert(tmp_path, tmp_path.parent / "dated.zarr", exclude=("n.h5",), **options)
    assert (report.step, report.time_unit, report.notes) == (300_000, "ms", ())
    ds = FrameWindowDataset(tmp_path.parent / "dated.zarr", input_frames=1, predict_frames=1)
    begin = 1_704_067_200_000
    assert ds.clips.frame_numbers(np.arange(8)).tolist() == [
        begin + n for n in (0, 300_000, 600_000, 1_200_000, 0, 300_000, 600_000, 600_500)
    ]
    note = "calendar noleap: frame numbers are days since 2000-01-01, not dates"
    report = convert(tmp_path / "n.h5", tmp_path.parent / "days.zarr", **options)
    assert (report.step, report.time_unit, report.notes) == (1, None, (note,))
    with pytest.warns(UserWarning, match=note):
        ds = open_windows(
            tmp_path / "n.h5", array="rain", input_frames=1, predict_frames=1, **options
        )
    assert ds.clips.frame_numbers(np.arange(3)).tolist() == [57, 58, 60]
    report = convert(
        tmp_path / "a.h5",
        tmp_path.parent / "even.zarr",
        step_tolerance="2s",
        step="5min",
        **options,
    )
    assert (report.step, len(report.gaps)) == (300, 1)


def test_a_zarr_array_that_is_written_anew(tmp_path: Path) -> None:
    """Regression: its metadata were those of the conversion before in the same process."""
    for number, dtype in enumerate(("<u2", ">u2")):
        data = np.arange(1, 61, dtype=dtype).reshape(3, 4, 5)
        array = zarr.create_array(tmp_path / "a.zarr", data=data, overwrite=True, zarr_format=2)
        os.utime(tmp_path / "a.zarr", ns=(0, 0))
        convert(tmp_path / "a.zarr", tmp_path / f"{number}.zarr")
        found = open_store(tmp_path / f"{number}.zarr").frames.take(np.arange(3))
        assert np.array_equal(found[..., 0], array[:])


def test_coordinates_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of files while planning, not again with their pixels."""
    read: list[Path] = []
    monkeypatch.setattr(FrameArray, "coordinates", lambda self: read.append(self.path) or {})
    source = steps(tmp_path / "in", [0, 5, 10])
    convert(source, tmp_path / "clips.zarr")
    assert frames_of(tmp_path / "clips.zarr").shape[0] == 3
    # The first one twice, to tell whether such files are clips.
    assert len(read) == 4
    assert set(read) == set(source.iterdir())
