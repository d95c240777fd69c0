"""Arrays that others wrote: every container, axis order, dtype and kind of clip, exact."""

from __future__ import annotations

import itertools
import json
import re
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import h5py
import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from framewin import FrameWindowDataset, SourceError, StoreError, convert
from framewin.arrays.zarr_arrays import _codec_names
from framewin.frames import open_frames
from framewin.sources.arrays import inspect_clip
from framewin.sources.info import ReadOptions
from framewin.stores.array_store import open_array
from tests.conftest import import_or_skip
from tests.helpers.arrays import CONTAINERS, C, H, T, W, hdf5, npy, values, zarr_2
from tests.helpers.windows import open_windows

DTYPES = ["uint8", "uint16", "int16", "float32", "float64"]


def open_all(path: Path, container: str, **options: object) -> FrameWindowDataset:
    array = None if container == "npy" else "group/data"
    return open_windows(path, array=array, input_frames=1, predict_frames=1, **options)


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(sorted(CONTAINERS)),
    st.permutations("tyxc").map("".join) | st.permutations("tyx").map("".join),
    st.sampled_from(DTYPES),
    st.sampled_from("<>"),
    st.none() | st.integers(1, 4),
)
def test_any_axes_dtype_and_chunks(
    tmp_path_factory: pytest.TempPathFactory,
    container: str,
    axes: str,
    dtype: str,
    order: str,
    chunk: int | None,
) -> None:
    """Frames come out as (H, W, C), native, every value as it was; last chunks may be ragged."""
    sizes = {"t": T, "y": H, "x": W, "c": C}
    data = values(tuple(sizes[letter] for letter in axes), dtype)
    stored = data.astype(np.dtype(dtype).newbyteorder(order))
    folder = tmp_path_factory.mktemp("array")
    chunks = None if chunk is None else tuple(min(chunk, size) for size in data.shape)
    path = CONTAINERS[container](folder, stored, chunks=chunks)
    expected = np.transpose(data, [axes.index(letter) for letter in "tyxc" if letter in axes])
    expected = expected.reshape(T, H, W, -1)
    ds = open_all(path, container, axes=axes)
    inputs, targets = ds.batch([7, 0, 3])
    assert inputs.dtype == dtype
    assert np.array_equal(inputs[:, 0], expected[[7, 0, 3]])
    assert np.array_equal(targets[:, 0], expected[[8, 1, 4]])


@pytest.mark.parametrize("container", sorted(CONTAINERS))
@pytest.mark.parametrize("cache", [None, "memory", "disk"])
def test_the_way_to_tf(tmp_path: Path, container: str, cache: str | None) -> None:
    """The same batches from mapped arrays, from decoded ones and from caches."""
    import_or_skip("tensorflow")
    data = values((T, H, W, C), "uint8")
    path = CONTAINERS[container](tmp_path, data)
    place = tmp_path / "cache" if cache == "disk" else cache
    ds = open_all(path, container, axes="tyxc", cache=place)
    assert (ds.mapped is not None) == (cache is not None or container in ("npy", "hdf5"))
    batches = list(ds.to_tf_dataset(batch_size=3).as_numpy_iterator())
    assert np.array_equal(np.concatenate([inputs for inputs, _ in batches])[:, 0], data[:-1])
    assert np.array_equal(np.concatenate([targets for _, targets in batches])[:, 0], data[1:])


@pytest.mark.parametrize(
    ("offset", "in_graph"),
    [(128, True), (120, True), (100, True), (127, False), (110, False)],
)
def test_frames_at_any_byte_of_a_file(tmp_path: Path, offset: int, in_graph: bool) -> None:
    """Aligned, a whole number of frames in, or neither: mapped, and exact in TensorFlow too."""
    import_or_skip("tensorflow")
    data = values((T, H, W), "uint8")
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (9, 4, 5), }"
    start = b"\x93NUMPY\1\0" + (offset - 10).to_bytes(2, "little")
    padded = header.ljust(offset - 11) + b"\n"
    (tmp_path / "data.npy").write_bytes(start + padded + data.tobytes())
    ds = open_all(tmp_path / "data.npy", "npy", axes="tyx")
    assert ds.mapped is not None
    assert (ds.mapped.rows is not None) == in_graph
    assert np.array_equal(ds.frames[..., 0], data)
    batches = list(ds.to_tf_dataset(batch_size=8).as_numpy_iterator())
    assert np.array_equal(batches[0][0][:, 0, ..., 0], data[:8])


@pytest.mark.parametrize("container", ["hdf5", "zarr 2", "zarr 3"])
def test_clips_and_numbers(tmp_path: Path, container: str) -> None:
    """Clips by id or by start, gaps by number, from arrays in the file or from Python."""
    data = values((T, H, W), "uint16")
    ids, numbers = np.array([7] * 4 + [2] * 5), np.array([0, 5, 10, 20, 3, 8, 13, 18, 23])
    path = CONTAINERS[container](tmp_path, data, ids=ids, numbers=numbers)
    for given_ids, given_numbers in (("ids", "numbers"), (ids, numbers.tolist())):
        ds = open_all(path, container, clip_ids=given_ids, frame_numbers=given_numbers)
        assert ds.clips.names == ("7", "2")
        assert ds.windows_per_clip() == {"7": 2, "2": 4}
        assert ds.window(0).predict_frame_numbers == (5,)
        assert ds.window(0).input_files == ("group/data[0]",)
        assert ds.clips.step == 5
    ds = open_all(path, container, clip_starts=[0, 2])
    assert ds.windows_per_clip() == {"clip0": 1, "clip1": 6}
    assert len(open_all(path, container)) == 8


def test_dimension_names_give_the_axes(tmp_path: Path) -> None:
    """xarray's and netCDF's own names, without `axes`."""
    xarray = import_or_skip("xarray")
    data = values((C, H, T, W), "int16")
    dataset = xarray.Dataset({"rain": (("band", "latitude", "time", "lon"), data)})
    dataset.rain.attrs["_FillValue"] = np.int16(-300)
    dataset.to_netcdf(tmp_path / "rain.nc", engine="h5netcdf")
    dataset.to_zarr(tmp_path / "rain2.zarr", zarr_format=2, consolidated=False)
    for path in (tmp_path / "rain.nc", tmp_path / "rain2.zarr"):
        ds = FrameWindowDataset(open_frames(path, array="rain"), input_frames=1, predict_frames=1)
        assert np.array_equal(ds[3][0][0], data[:, :, 3].transpose(1, 2, 0))
        assert ds.nodata == -300


def lose(path: Path, pattern: str) -> None:
    next(iter(sorted(path.glob(pattern)))).unlink()


@pytest.mark.parametrize(
    ("container", "pattern"),
    [("zarr 2", "group/data/1.0.0"), ("zarr 3", "group/data/c/1/0/0")],
)
def test_a_missing_chunk_is_never_zeros(tmp_path: Path, container: str, pattern: str) -> None:
    """It is named; the user may say that such chunks were left out on purpose."""
    path = CONTAINERS[container](tmp_path, values((T, H, W), "uint8"), chunks=(2, H, W))
    lose(path, pattern)
    key = pattern.removeprefix("group/data/")
    message = f"chunk {key} of 'group/data' is missing, and would read as the fill value"
    with pytest.raises(StoreError, match=re.escape(message)):
        open_all(path, container)
    ds = open_all(path, container, allow_missing_chunks=True)
    assert not ds[2][0].any()


def test_a_chunk_that_was_never_written(tmp_path: Path) -> None:
    """HDF5's chunks too, and a dataset without any."""
    with h5py.File(tmp_path / "theirs.h5", "w") as file:
        file.create_dataset("part", (T, H, W), "u1", chunks=(3, H, W))[:3] = 1
        file.create_dataset("none", (T, H, W), "u1")
    for name, message in (("part", "chunk (3, 0, 0) of 'part' is"), ("none", "chunk 0 of 'none'")):
        with pytest.raises(StoreError, match=re.escape(message)):
            FrameWindowDataset(
                open_frames(tmp_path / "theirs.h5", array=name), input_frames=1, predict_frames=1
            )


@pytest.mark.parametrize("container", ["zarr 2", "zarr 3"])
@pytest.mark.parametrize("rest", [0, 5])
def test_a_chunk_that_is_cut_short(tmp_path: Path, container: str, rest: int) -> None:
    """Empty or half, it is an error that names the frames."""
    path = CONTAINERS[container](tmp_path, values((T, H, W), "uint8"), chunks=(2, H, W))
    chunk = path / "group" / "data" / ("1.0.0" if container == "zarr 2" else "c/1/0/0")
    chunk.write_bytes(chunk.read_bytes()[:rest])
    ds = open_all(path, container)
    assert ds[0][0].any()
    with pytest.raises(StoreError, match="frames 2 to 3 of 'group/data' cannot be read"):
        _ = ds[2]


def wrong(tmp_path: Path, make: Callable[[Path], Path], message: str, **options: object) -> None:
    path = make(tmp_path)
    with pytest.raises((StoreError, ValueError), match=message) as caught:
        open_windows(path, input_frames=1, predict_frames=1, **options)
    assert "\n" not in str(caught.value)


def short_npy(path: Path) -> Path:
    npy(path, values((T, H, W), "uint8"))
    data = (path / "data.npy").read_bytes()
    (path / "data.npy").write_bytes(data[:-5])
    return path / "data.npy"


def text_file(path: Path) -> Path:
    (path / "data.txt").write_text("no array at all")
    return path / "data.txt"


def classic(path: Path) -> Path:
    (path / "old.nc").write_bytes(b"CDF\1 and so on")
    return path / "old.nc"


MISTAKES = {
    "axes of another length": (
        lambda path: npy(path, values((T, H, W), "uint8")),
        r"axes 'tyxc' do not fit 'data' of shape \(9, 4, 5\); give one letter for each axis",
        {"axes": "tyxc"},
    ),
    "a letter twice": (
        lambda path: npy(path, values((T, H, W), "uint8")),
        "axes 'tyy' do not fit 'data'",
        {"axes": "tyy"},
    ),
    "an unknown letter": (
        lambda path: npy(path, values((T, H, W), "uint8")),
        r"axes 'tyz' do not fit .*t time, y height, x width, c channel",
        {"axes": "tyz"},
    ),
    "objects": (
        lambda path: npy(path, np.array([[[{}]]])),
        r"data\.npy holds Python object values; expected one of uint8, .*; decode them first",
        {"axes": "tyx"},
    ),
    "strings": (
        lambda path: hdf5(path, np.full((T, H, W), b"abc")),
        "'group/data' holds strings of bytes values; expected one of uint8, uint16",
        {"array": "group/data"},
    ),
    "no such array": (
        lambda path: hdf5(path, values((T, H, W), "uint8")),
        r"holds no array 'dat'; there are group/data \(9, 4, 5\)",
        {"array": "dat"},
    ),
    "two arrays and none named": (
        lambda path: hdf5(path, values((T, H, W), "uint8"), other=values((T, H, W), "uint8")),
        r"name the array with the frames; there are group/data \(9, 4, 5\), other \(9, 4, 5\)",
        {"axes": "tyx"},
    ),
    "no frame": (
        lambda path: npy(path, np.zeros((0, H, W), np.uint8)),
        r"'data' of shape \(0, 4, 5\) holds no frame",
        {"axes": "tyx"},
    ),
    "a clip in two places": (
        lambda path: npy(path, values((4, H, W), "uint8")),
        "the frames of clip 1 do not follow one another",
        {"clip_ids": [1, 1, 2, 1]},
    ),
    "too few ids": (
        lambda path: npy(path, values((4, H, W), "uint8")),
        r"clip_ids has shape \(3,\), expected \(4,\)",
        {"clip_ids": [1, 1, 2]},
    ),
    "starts out of order": (
        lambda path: npy(path, values((4, H, W), "uint8")),
        "clip_starts must increase from 0 to below 4",
        {"clip_starts": [0, 3, 2]},
    ),
    "numbers that fall": (
        lambda path: npy(path, values((4, H, W), "uint8")),
        "frame_numbers must increase within each clip",
        {"frame_numbers": [0, 1, 1, 2]},
    ),
    "ids and starts": (
        lambda path: npy(path, values((4, H, W), "uint8")),
        "clips are told by clip_ids or by clip_starts, not by both",
        {"clip_ids": [1, 1, 1, 1], "clip_starts": [0]},
    ),
    "no such column": (
        lambda path: hdf5(path, values((T, H, W), "uint8")),
        "theirs.h5 holds no array 'ids'",
        {"array": "group/data", "clip_ids": "ids"},
    ),
    "a file cut short": (
        short_npy,
        r"data\.npy is cut short: its array needs 180 bytes and has 175; copy it again",
        {"axes": "tyx"},
    ),
    "a text": (text_file, r"data\.txt is not a Zarr, HDF5, netCDF4 or \.npy array", {"axes": "t"}),
    "an old netCDF": (
        classic,
        "classic format; rewrite it as netCDF4: nccopy -k nc4",
        {"axes": "t"},
    ),
    "a folder": (lambda path: path, "is a folder but no Zarr group or array", {"axes": "tyx"}),
    "nothing": (lambda path: path / "no.npy", r"no\.npy does not exist", {"axes": "tyx"}),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(tmp_path: Path, mistake: str) -> None:
    """It names the file, what was found and what was expected."""
    make, message, options = MISTAKES[mistake]
    wrong(tmp_path, make, message, **options)


def test_links_out_of_a_file_are_not_followed(tmp_path: Path) -> None:
    """External and soft links, and values that lie in other files."""
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["data"] = values((T, H, W), "uint8")
    with h5py.File(tmp_path / "theirs.h5", "w") as file:
        file["link"] = h5py.ExternalLink("secret.h5", "data")
        layout = h5py.VirtualLayout((T, H, W), "u1")
        layout[:] = h5py.VirtualSource(tmp_path / "secret.h5", "data", (T, H, W))
        file.create_virtual_dataset("virtual", layout)
    for name, message in (
        ("link", "holds no array 'link'"),
        ("virtual", "'virtual' keeps its values in other files"),
    ):
        with pytest.raises(StoreError, match=message):
            FrameWindowDataset(
                open_frames(tmp_path / "theirs.h5", array=name), input_frames=1, predict_frames=1
            )


@pytest.mark.parametrize("engine", ["netcdf", "zarr 2", "zarr 3"])
@pytest.mark.parametrize(
    ("units", "values_of_minutes"),
    [("minutes since 2020-01-01", 1), ("seconds since 2020-01-01 00:00", 60),
     ("days since 2020-01-01", 1 / 1440)],
)  # fmt: skip
def test_times_number_the_frames(
    tmp_path: Path, engine: str, units: str, values_of_minutes: float
) -> None:
    """The times of the time dimension, by the conventions of netCDF, show what is missing."""
    xarray = import_or_skip("xarray")
    minutes = np.array([0, 5, 10, 30, 35, 40])
    data = values((6, H, W), "uint8")
    dataset = xarray.Dataset(
        {"rain": (("time", "y", "x"), data)},
        {"time": ("time", minutes * values_of_minutes, {"units": units})},
    )
    if engine == "netcdf":
        import_or_skip("h5netcdf")
        dataset.to_netcdf(tmp_path / "rain.nc", engine="h5netcdf")
    else:
        dataset.to_zarr(tmp_path / "rain.nc", zarr_format=int(engine[-1]), consolidated=False)
    ds = FrameWindowDataset(
        open_frames(tmp_path / "rain.nc", array="rain"), input_frames=1, predict_frames=1
    )
    assert (ds.clips.time_unit, ds.clips.step, len(ds)) == ("s", 300, 4)
    start = 1_577_836_800
    assert ds.clips.frame_numbers(np.arange(6)).tolist() == (start + 60 * minutes).tolist()
    counted = FrameWindowDataset(
        open_frames(tmp_path / "rain.nc", array="rain", frame_numbers=range(6)),
        input_frames=1,
        predict_frames=1,
    )
    assert len(counted) == 5


def test_times_that_say_nothing(tmp_path: Path) -> None:
    """Where they cannot be read, or are of another length, frames are counted, and it is said."""
    for name, attributes, count, said in (
        ("words", {"units": "days since the flood"}, T, "reference time of 'days since the flood'"),
        ("lunar", {"units": "days since 2000-01-01", "calendar": "lunar"}, T, "calendar 'lunar'"),
        ("moons", {"units": "moons since 2000-01-01"}, T, "'moons since 2000-01-01' in the"),
        ("filled", {"units": "days since 2000-01-01", "_FillValue": 3}, T, "frame 1 has no time"),
        ("short", {"units": "days since 2000-01-01"}, T - 1, ""),
    ):
        path = tmp_path / f"{name}.h5"
        with h5py.File(path, "w") as file:
            file["data"] = values((T, H, W), "uint8")
            file["time"] = 3 * np.arange(count)
            file["time"].attrs.update(attributes)
            file["time"].make_scale("time")
            if count == T:
                file["data"].dims[0].attach_scale(file["time"])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ds = FrameWindowDataset(
                open_frames(path, array="data"), input_frames=1, predict_frames=1
            )
        assert (ds.clips.time_unit, ds.clips.step) == (None, 1)
        assert [said in str(warning.message) for warning in caught] == [True] * bool(said)


class Unknown(numcodecs.abc.Codec):
    """A codec that a package could have registered, and that could do anything."""

    codec_id = "unknown"

    def encode(self, buf: Any) -> Any:
        return buf

    def decode(self, buf: Any, out: Any = None) -> Any:
        raise AssertionError("it was used")


@pytest.mark.parametrize("array", ["group/data", "ids"])
@pytest.mark.parametrize("place", ["compressor", "filters"])
def test_only_known_codecs_decode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, array: str, place: str
) -> None:
    """Whatever else is registered: no array of a stranger may choose what runs here."""
    monkeypatch.setitem(numcodecs.registry.codec_registry, "unknown", Unknown)
    path = zarr_2(tmp_path, values((T, H, W), "uint8"), ids=np.zeros(T, np.int64))
    metadata = json.loads((path / array / ".zarray").read_text())
    codec = {"id": "unknown"}
    metadata[place] = codec if place == "compressor" else [codec]
    (path / array / ".zarray").write_text(json.dumps(metadata))
    message = f"{path}: '{array}' has the codec 'unknown', which framewin does not read; it reads"
    with pytest.raises(StoreError, match=re.escape(message)):
        FrameWindowDataset(
            open_frames(path, array="group/data", clip_ids="ids"), input_frames=1, predict_frames=1
        )


def test_codecs_inside_shards_are_known_too() -> None:
    """Whole shards can be decoded by what stands inside of the codec for shards."""
    inner = {"name": "bytes"}, {"name": "numcodecs.unknown", "configuration": {}}
    shards = {"name": "sharding_indexed", "configuration": {"codecs": inner, "index_codecs": ()}}
    metadata = {"zarr_format": 3, "codecs": [shards]}
    assert list(_codec_names(metadata)) == ["sharding_indexed", "bytes", "numcodecs.unknown"]


@pytest.mark.parametrize("container", ["hdf5", "zarr 2", "zarr 3"])
def test_columns_are_no_larger_than_the_frames(tmp_path: Path, container: str) -> None:
    """A file may claim to hold any number of values; they are not read."""
    path = CONTAINERS[container](tmp_path, values((T, H, W), "uint8"), ids=np.zeros(T, np.int64))
    if container == "hdf5":
        with h5py.File(path, "a") as file:
            del file["ids"]
            file.create_dataset("ids", shape=(2**50,), dtype="i8", chunks=(2**20,))
    else:
        name = ".zarray" if container == "zarr 2" else "zarr.json"
        metadata = json.loads((path / "ids" / name).read_text())
        (path / "ids" / name).write_text(json.dumps({**metadata, "shape": [2**50]}))
    message = f"{path}: 'ids' has shape (1125899906842624,), expected (9,)"
    for option in ("clip_ids", "clip_starts", "frame_numbers"):
        with pytest.raises(StoreError, match=re.escape(message)):
            open_windows(
                path, array="group/data", input_frames=1, predict_frames=1, **{option: "ids"}
            )


def test_columns_are_of_the_same_file(tmp_path: Path) -> None:
    """A link out of the file is no array of it."""
    path = hdf5(tmp_path, values((T, H, W), "uint8"))
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["ids"] = np.zeros(T, np.int64)
    with h5py.File(path, "a") as file:
        file["ids"] = h5py.ExternalLink(tmp_path / "other.h5", "ids")
    with pytest.raises(StoreError, match="holds no array 'ids'"):
        FrameWindowDataset(
            open_frames(path, array="group/data", clip_ids="ids"), input_frames=1, predict_frames=1
        )


MEANINGS: dict[str, tuple[str, dict[str, Any], float]] = {
    "unsigned": ("int16", {"_FillValue": np.int16(-300), "_Unsigned": "true"}, 65236),
    "signed": ("uint8", {"_FillValue": np.uint8(251), "_Unsigned": "false"}, -5),
    "two values": ("int16", {"_FillValue": np.int16(-300), "missing_value": np.int16(1)}, -300),
    "a list": ("int16", {"missing_value": np.array([-293, 1], "int16")}, -293),
    "one value twice": ("int16", {"_FillValue": np.int16(1), "missing_value": np.int16(1)}, 1),
    "a float": ("float32", {"missing_value": np.float32(1e20)}, float(np.float32(1e20))),
    "NaN and more": ("float32", {"_FillValue": np.float32("nan"), "missing_value": 1.0}, np.nan),
}


@pytest.mark.parametrize("meaning", MEANINGS)
@pytest.mark.filterwarnings("ignore:variable .* has multiple fill values")
def test_values_mean_what_xarray_reads(tmp_path: Path, meaning: str) -> None:
    """Converted or in place: values, no data, scale, units and coordinates by the conventions."""
    xarray = import_or_skip("xarray")
    import_or_skip("h5netcdf")
    dtype, attributes, nodata = MEANINGS[meaning]
    data = values((T, H, W), "int16").astype(dtype)
    if dtype == "float32":
        data[0, 0, :2] = 1e20, np.nan
    units = {"scale_factor": 0.5, "add_offset": 2.0, "units": "mm h-1", "long_name": "rain"}
    latitudes = np.linspace(55, 48, H, dtype="float32")
    with h5py.File(tmp_path / "rain.nc", "w") as file:
        file["rain"] = data
        for axis, (name, scale) in enumerate(
            {"time": np.arange(T), "lat": latitudes, "lon": np.arange(W)}.items()
        ):
            file[name] = scale
            file[name].make_scale(name)
            file["rain"].dims[axis].attach_scale(file[name])
        file["lat"].attrs["units"] = "degrees_north"
        file["rain"].attrs.update({**units, **attributes})
    convert(tmp_path / "rain.nc", tmp_path / "store.zarr", array="rain")
    convert(tmp_path / "store.zarr", tmp_path / "again.h5")
    expected = xarray.open_dataset(tmp_path / "rain.nc", engine="h5netcdf").rain.to_numpy()
    place = FrameWindowDataset(
        open_frames(tmp_path / "rain.nc", array="rain"), input_frames=1, predict_frames=1
    )
    for found in (
        xarray.open_zarr(tmp_path / "store.zarr"),
        xarray.open_dataset(tmp_path / "again.h5", engine="h5netcdf"),
    ):
        assert np.allclose(found.frames.to_numpy()[..., 0], expected, rtol=1e-6, equal_nan=True)
        assert (found.frames.units, found.frames.long_name) == ("mm h-1", "rain")
        assert np.array_equal(found.y.to_numpy(), latitudes)
        assert found.y.units == "degrees_north"
        assert found.x.to_numpy().tolist() == list(range(W))
        found.close()
    ds = FrameWindowDataset(tmp_path / "store.zarr", input_frames=1, predict_frames=1)
    for opened in (ds, place):
        assert np.array_equal(opened.nodata, nodata, equal_nan=True)
        assert opened.conversion["packing"] == units
        assert np.array_equal(opened[0][0], ds[0][0], equal_nan=dtype == "float32")


def test_values_of_no_data_are_one(tmp_path: Path) -> None:
    """One that becomes the other cannot be chosen, and one that no value can be is listed."""
    path = hdf5(tmp_path, values((T, H, W), "int16"))
    with h5py.File(path, "a") as file:
        file["group/data"].attrs["missing_value"] = np.array([1, 9], "int16")
    with pytest.raises(ValueError, match="several values of no data, and all are read as 1; leave"):
        open_all(path, "hdf5", nodata=9)
    with pytest.raises(SourceError, match="several values of no data, and all become 1; leave"):
        convert(path, tmp_path / "clips.zarr", array="group/data", nodata=9)
    with h5py.File(path, "a") as file:
        file["group/data"].attrs.update({"missing_value": 1e20, "valid_range": [0, 100]})
    info = inspect_clip(str(path), ReadOptions(array="group/data"))
    assert info.notes == ("missing_value 1e+20, no int16 value", "valid_range [0, 100]")
    assert info.nodata is None


def test_floats_that_xarray_writes_for_zarr_3(tmp_path: Path) -> None:
    """Its attribute _FillValue is base64 there."""
    xarray = import_or_skip("xarray")
    dataset = xarray.Dataset({"rain": (("time", "y", "x"), values((T, H, W), "float32"))})
    dataset.to_zarr(
        tmp_path / "rain.zarr",
        zarr_format=3,
        consolidated=False,
        encoding={"rain": {"_FillValue": np.float32(-300)}},
    )
    ds = FrameWindowDataset(
        open_frames(tmp_path / "rain.zarr", array="rain"), input_frames=1, predict_frames=1
    )
    assert ds.nodata == -300


@pytest.mark.parametrize("container", sorted(CONTAINERS))
def test_an_axis_of_clips(tmp_path: Path, container: str) -> None:
    """Clips of one length beside each other, as in Moving MNIST: (t, n, y, x)."""
    data = values((4, T, H, W), "int16")
    path = CONTAINERS[container](tmp_path, data, chunks=(2, 4, H, W))
    array = None if container == "npy" else "group/data"
    convert(path, tmp_path / "clips.h5", array=array, axes="tnyx")
    for ds in (
        open_all(path, container, axes="tnyx"),
        FrameWindowDataset(tmp_path / "clips.h5", input_frames=1, predict_frames=1),
    ):
        assert ds.clips.names == tuple(f"clip{number}" for number in range(T))
        assert ds.windows_per_clip() == {f"clip{number}": 3 for number in range(T)}
        inputs, targets = ds.batch([0, 5, 26])
        assert np.array_equal(inputs[:, 0, ..., 0], data[[0, 2, 2], [0, 1, 8]])
        assert np.array_equal(targets[:, 0, ..., 0], data[[1, 3, 3], [0, 1, 8]])
    with pytest.raises(ValueError, match="an axis n tells the clips, so clip_ids and clip_starts"):
        open_all(path, container, axes="tnyx", clip_starts=[0])


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_a_pattern_takes_each_array_as_a_clip(tmp_path: Path, suffix: str) -> None:
    """Of their own lengths, in natural order; arrays that differ are refused."""
    path = tmp_path / f"demo{suffix}"
    arrays = {f"data/demo_{n}/obs/image": values((n, H, W, C), "uint8") for n in (10, 2, 9)}
    group = h5py.File(path, "w") if suffix == ".h5" else zarr.open_group(path, mode="w")
    for name, array in arrays.items():
        group[name] = array
    group["data/demo_2/actions"] = np.zeros((2, 7))
    if suffix == ".h5":
        group.close()
    pattern = "data/*/obs/image"
    convert(path, tmp_path / "clips.zarr", array=pattern)
    names = tuple(f"data/demo_{n}/obs/image" for n in (2, 9, 10))
    for ds in (
        FrameWindowDataset(open_frames(path, array=pattern), input_frames=1, predict_frames=1),
        FrameWindowDataset(tmp_path / "clips.zarr", input_frames=1, predict_frames=1),
    ):
        assert ds.clips.names == names
        assert ds.clips.clip_lengths.tolist() == [2, 9, 10]
        for window in (0, 1, 8, 9, 17):
            where = ds.window(window)
            first = arrays[where.clip][where.input_frame_numbers[0]]
            assert np.array_equal(ds[window][0][0], first)
    with pytest.raises(
        StoreError, match=r"name the array .*; a pattern such as 'data/\*/obs/image'"
    ):
        FrameWindowDataset(open_frames(path, axes="tyxc"), input_frames=1, predict_frames=1)
    with pytest.raises(ValueError, match=r"'data/\*/obs/image' names several arrays, each a clip"):
        FrameWindowDataset(
            open_frames(path, array=pattern, frame_numbers=[0]), input_frames=1, predict_frames=1
        )
    group = h5py.File(path, "a") if suffix == ".h5" else zarr.open_group(path, mode="a")
    group["data/demo_11/obs/image"] = values((2, H, W, C), "uint16")
    if suffix == ".h5":
        group.close()
    with pytest.raises(StoreError, match="'data/demo_11/obs/image' has frame_format 4x5x3 uint16"):
        FrameWindowDataset(open_frames(path, array=pattern), input_frames=1, predict_frames=1)


@pytest.mark.parametrize("container", ["hdf5", "zarr 2"])
def test_ids_of_bytes_are_text(tmp_path: Path, container: str) -> None:
    """Strings of one length, in a file or from numpy."""
    ids = np.array([b"one"] * 4 + [b"two"] * 5)
    path = CONTAINERS[container](tmp_path, values((T, H, W), "uint8"), ids=ids)
    for column in ("ids", ids):
        assert open_all(path, container, clip_ids=column).clips.names == ("one", "two")


def test_arrays_are_newer_than_metadata_that_was_consolidated(tmp_path: Path) -> None:
    """Frames that were appended afterwards are there."""
    group = zarr.open_group(tmp_path / "rec.zarr", mode="w", zarr_format=2)
    array = group.create_array("movie", data=values((4, H, W), "uint8"), chunks=(4, H, W))
    zarr.consolidate_metadata(tmp_path / "rec.zarr", zarr_format=2)
    array.resize((8, H, W))
    array[4:] = 7
    ds = FrameWindowDataset(
        open_frames(tmp_path / "rec.zarr", array="movie"), input_frames=1, predict_frames=1
    )
    assert ds.clips.num_frames == 8
    assert (ds[6][1] == 7).all()


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_images_of_ome(tmp_path: Path, version: str) -> None:
    """The group names the axes; those of length 1 that it calls something else are left out."""
    data = values((T, 1, 1, H, W), "uint16")
    axes = [{"name": name} for name in "tczyx"]
    images = [{"axes": axes, "datasets": [{"path": "0"}, {"path": "1"}]}]
    group = zarr.open_group(
        tmp_path / "cells.zarr", mode="w", zarr_format=2 if version == "0.4" else 3
    )
    group.attrs.update(
        {"multiscales": images} if version == "0.4" else {"ome": {"multiscales": images}}
    )
    group["0"], group["1"] = data, data[..., ::2, ::2]
    for path, array in ((tmp_path / "cells.zarr", "0"), (tmp_path / "cells.zarr" / "0", None)):
        ds = FrameWindowDataset(
            open_frames(path, array=array, frame_numbers=range(T)), input_frames=1, predict_frames=1
        )
        assert np.array_equal(ds[3][0][0, ..., 0], data[3, 0, 0])
        out = tmp_path / f"{array}.zarr"
        assert convert(path, out, array=array).frames == T
    info = inspect_clip(str(tmp_path / "cells.zarr"), ReadOptions(array="0"))
    assert info.notes == ("dimension z of length 1",)


def vlen(file: h5py.File) -> None:
    file.create_dataset("images", (6,), dtype=h5py.vlen_dtype(np.uint8))[0] = np.zeros(9, "u1")


CONTENTS: dict[str, tuple[Callable[[h5py.File], Any], str]] = {
    "encoded images": (vlen, "none of 3 or 4 or 5 axes, but images (6,) of encoded bytes (uint8"),
    "text": (
        lambda file: file.create_dataset("name", data=["a", "b"], dtype=h5py.string_dtype()),
        "but name (2,) of strings or lists; frames that are encoded must be decoded first",
    ),
    "truth values": (
        lambda file: file.create_dataset("mask", data=np.zeros((T, H, W), bool)),
        "'mask' holds bool values; expected one of uint8",
    ),
    "records": (
        lambda file: file.create_dataset("rgb", data=np.zeros((T, H, W), "u1, u1")),
        "'rgb' holds records of f0, f1 values",
    ),
    "long integers": (
        lambda file: file.create_dataset("v", data=np.zeros((T, H, W), "i8")),
        "'v' holds int64 values; expected one of",
    ),
    "nothing": (lambda file: file.create_group("empty"), "5 axes, but no array at all"),
    "a number": (lambda file: file.create_dataset("n", data=7), "5 axes, but n () of int64"),
}  # fmt: skip


@pytest.mark.parametrize("content", CONTENTS)
def test_other_contents_are_named(tmp_path: Path, content: str) -> None:
    """What an HDF5 file holds is said, in place and as a source."""
    make, message = CONTENTS[content]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        make(file)
    with pytest.raises(SourceError, match=re.escape(message)):
        convert(tmp_path / "a.h5", tmp_path / "clips.zarr")
    with pytest.raises(StoreError, match=re.escape(message)):
        open_array(tmp_path / "a.h5", cache_bytes=0)


def test_claims_of_chunks_cost_nothing(tmp_path: Path) -> None:
    """A file of a few kilobytes that claims more chunks than it has bytes."""
    path = tmp_path / "claims.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("movie", (10**8, 1, 8), "u1", chunks=(1, 1, 8))
    tracemalloc.start()
    with pytest.raises(
        StoreError, match=r"chunk 100000000 \(a file of \d+ bytes cannot hold as many\)"
    ):
        FrameWindowDataset(open_frames(path, array="movie"), input_frames=1, predict_frames=1)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


@pytest.mark.parametrize(
    ("name", "start", "message"),
    [
        ("a_1.nc4", b"CDF\1", "is a netCDF file of the classic format; rewrite it as netCDF4: ncc"),
        ("a_1.cdf", b"\xcd\xf3\0\1", "is a CDF file of NASA; rewrite it as netCDF4"),
        ("a_1.hdf", b"\x0e\3\x13\1", "is an HDF4 file; rewrite it as HDF5: h4toh5convert"),
        *((f"a_1{suffix}", LFS, "is a pointer of Git LFS, in the place of a file that was not")
          for suffix in (".h5", ".nc", ".npy", ".npz", ".png", ".jpg", ".tif", ".mp4")),
    ],
)  # fmt: skip
def test_files_that_are_something_else(
    tmp_path: Path, name: str, start: bytes, message: str
) -> None:
    """What they are, and what to do, whatever their suffix promises."""
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / name).write_bytes(start.ljust(200, b" "))
    with pytest.raises(SourceError, match=re.escape(message)):
        convert(tmp_path / "s", tmp_path / "clips.zarr")
    with pytest.raises(StoreError, match=re.escape(message)):
        open_array(tmp_path / "s" / name, cache_bytes=0)


@pytest.mark.parametrize("suffix", [".nc4", ".he5", ".hdf"])
def test_more_suffixes_of_hdf5(tmp_path: Path, suffix: str) -> None:
    """By content, also behind a block of the user's."""
    with h5py.File(tmp_path / f"a{suffix}", "w", userblock_size=512) as file:
        file["movie"] = values((T, H, W), "uint8")
    assert convert(tmp_path / f"a{suffix}", tmp_path / "clips.zarr").frames == T


def test_links_lead_out_of_no_zarr_array(tmp_path: Path) -> None:
    """Of a chunk or of a folder; those that stay inside are followed."""
    path = zarr_2(tmp_path, values((T, H, W), "uint8"), chunks=(T, H, W))
    chunk = path / "group" / "data" / "0.0.0"
    chunk.rename(path / "chunk")
    chunk.symlink_to(path / "chunk")
    assert np.array_equal(open_all(path, "zarr 2")[0][0][0, ..., 0], values((T, H, W), "uint8")[0])
    (path / "chunk").rename(tmp_path / "secret")
    chunk.unlink()
    chunk.symlink_to(tmp_path / "secret")
    message = (
        f"{chunk} is reached by a link out of {path}; copy what it links to, as by "
        f"cp -rL {path} COPY, and read the copy"
    )
    with pytest.raises(StoreError, match=re.escape(message)):
        _ = open_all(path, "zarr 2")[0]
    (path / "group").rename(tmp_path / "elsewhere")
    (path / "group").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=re.escape(f"is reached by a link out of {path}; copy")):
        open_all(path, "zarr 2")


def zstd_blocks(count: int) -> bytes:
    """A frame that does not say its size: blocks of 128 KiB of one byte."""
    blocks = [
        (2**17 << 3 | 2 | (number == count - 1)).to_bytes(3, "little") for number in range(count)
    ]
    return b"\x28\xb5\x2f\xfd\0\x88" + b"".join(block + b"\0" for block in blocks)


NOTHING = np.zeros(2**24, "u1")
BOMBS = {
    "gzip": numcodecs.GZip().encode(NOTHING),
    "two streams": numcodecs.GZip().encode(NOTHING[: 10**6]) * 12,
    "zlib": numcodecs.Zlib().encode(NOTHING),
    "bz2": numcodecs.BZ2().encode(NOTHING),
    "lzma": numcodecs.LZMA().encode(NOTHING),
    "lz4": numcodecs.LZ4().encode(NOTHING),
    "blosc": numcodecs.Blosc().encode(NOTHING),
    "zstd": numcodecs.Zstd().encode(NOTHING),
    "unsaid": zstd_blocks(2**12),
}


CODECS_3 = {
    "gzip": zarr.codecs.GzipCodec,
    "two streams": zarr.codecs.GzipCodec,
    "zstd": zarr.codecs.ZstdCodec,
    "unsaid": zarr.codecs.ZstdCodec,
    "blosc": zarr.codecs.BloscCodec,
}


@pytest.mark.parametrize(
    ("name", "zarr_format"),
    [*((name, 2) for name in BOMBS), *itertools.product(CODECS_3, (3, "shard"))],
)
def test_chunks_inflate_to_what_they_declare(tmp_path: Path, name: str, zarr_format: Any) -> None:
    """A chunk of a few kilobytes that becomes megabytes is refused before it does."""
    kind = {"two streams": "gzip", "unsaid": "zstd"}.get(name, name)
    array = zarr.create_array(
        tmp_path / "a.zarr",
        data=values((T, H, W), "uint8"),
        chunks=(T, H, W),
        shards=(T, H, W) if zarr_format == "shard" else None,
        compressors=numcodecs.get_codec({"id": kind}) if zarr_format == 2 else CODECS_3[name](),
        zarr_format=2 if zarr_format == 2 else 3,
    )
    ds = FrameWindowDataset(
        open_frames(tmp_path / "a.zarr", axes="tyx"), input_frames=1, predict_frames=1
    )
    assert np.array_equal(ds[3][0][0, ..., 0], array[3])
    bomb = bytes(BOMBS[name])
    path = tmp_path / "a.zarr" / ("0.0.0" if zarr_format == 2 else "c/0/0/0")
    if zarr_format == "shard":
        index = np.array([0, len(bomb)], "<u8").tobytes()
        bomb += index + google_crc32c.value(index).to_bytes(4, "little")
    path.write_bytes(bomb)
    ds = FrameWindowDataset(
        open_frames(tmp_path / "a.zarr", axes="tyx"), input_frames=1, predict_frames=1
    )
    with pytest.raises(
        StoreError, match=r"'a' has a chunk of \d+ bytes that inflates to more than"
    ):
        _ = ds[3]


def test_zstd_that_does_not_say_its_size(tmp_path: Path) -> None:
    """Other writers leave it out; such a chunk is read."""
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=(2, 256, 256), chunks=(2, 256, 256), dtype="u1", zarr_format=2,
        compressors=numcodecs.Zstd(), fill_value=7,
    )  # fmt: skip
    array[:] = 1
    (tmp_path / "a.zarr" / "0.0.0").write_bytes(zstd_blocks(1))
    ds = FrameWindowDataset(
        open_frames(tmp_path / "a.zarr", axes="tyx"), input_frames=1, predict_frames=1
    )
    assert not ds[0][0].any()


def test_groups_that_are_nested_without_end(tmp_path: Path) -> None:
    """Deep ones are refused, and those that hold themselves are looked at once."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["movie"] = values((T, H, W), "uint8")
        file["group/again"] = file["/"]
        assert open_array(tmp_path / "a.h5", cache_bytes=0).source.name == "movie"
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file.create_group("/".join("g" * 70))
    with pytest.raises(StoreError, match=r"b\.h5 nests groups more than 64 deep; flatten it"):
        open_array(tmp_path / "b.h5", cache_bytes=0)
