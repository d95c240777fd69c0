"""Arrays that others wrote: every container, axis order, dtype and kind of clip, exact."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from framewin import FrameWindowDataset, StoreError
from framewin.containers import _codec_names
from tests.conftest import import_or_skip

T, H, W, C = 9, 4, 5, 3
DTYPES = ["uint8", "uint16", "int16", "float32", "float64"]


def values(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Values that are all different, as far as the dtype has them."""
    return (np.arange(np.prod(shape)) * 7 - 300).astype(dtype).reshape(shape)


def npy(path: Path, data: np.ndarray, **_: object) -> Path:
    np.save(path / "data.npy", data)
    return path / "data.npy"


def hdf5(path: Path, data: np.ndarray, chunks: Any = None, **others: np.ndarray) -> Path:
    with h5py.File(path / "theirs.h5", "w") as file:
        file.create_dataset("group/data", data=data, chunks=chunks)
        for name, column in others.items():
            file[name] = column
    return path / "theirs.h5"


def zarr_2(path: Path, data: np.ndarray, **others: np.ndarray) -> Path:
    return zarr_any(path, data, 2, **others)


def zarr_3(path: Path, data: np.ndarray, **others: np.ndarray) -> Path:
    return zarr_any(path, data, 3, **others)


def zarr_any(
    path: Path, data: np.ndarray, zarr_format: Any, chunks: Any = None, **others: np.ndarray
) -> Path:
    group = zarr.create_group(store=path / "theirs.zarr", zarr_format=zarr_format)
    group.create_group("group").create_array(
        "data", data=data, chunks=chunks or "auto", config={"write_empty_chunks": True}
    )
    for name, column in others.items():
        group.create_array(name, data=column)
    return path / "theirs.zarr"


CONTAINERS = {"npy": npy, "hdf5": hdf5, "zarr 2": zarr_2, "zarr 3": zarr_3}


def open_all(path: Path, container: str, **options: object) -> FrameWindowDataset:
    array = None if container == "npy" else "group/data"
    return FrameWindowDataset(path, input_frames=1, predict_frames=1, array=array, **options)


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
        ds = FrameWindowDataset(path, input_frames=1, predict_frames=1, array="rain")
        assert np.array_equal(ds[3][0][0], data[:, :, 3].transpose(1, 2, 0))
        if path.suffix == ".nc":
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
            FrameWindowDataset(tmp_path / "theirs.h5", input_frames=1, predict_frames=1, array=name)


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
        FrameWindowDataset(path, input_frames=1, predict_frames=1, **options)
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
        r"data\.npy cannot be read \(ValueError: .*Python objects in dtype",
        {"axes": "tyx"},
    ),
    "strings": (
        lambda path: hdf5(path, np.full((T, H, W), b"abc")),
        "'group/data' holds bytes24 values; expected one of uint8, uint16",
        {"array": "group/data"},
    ),
    "truth values": (
        lambda path: npy(path, np.ones((T, H, W), bool)),
        "'data' holds bool values; expected one of uint8",
        {"axes": "tyx"},
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
    "a file cut short": (short_npy, r"data\.npy (has \d+ bytes|cannot be read)", {"axes": "tyx"}),
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
            FrameWindowDataset(tmp_path / "theirs.h5", input_frames=1, predict_frames=1, array=name)


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
    ds = FrameWindowDataset(tmp_path / "rain.nc", input_frames=1, predict_frames=1, array="rain")
    assert (ds.clips.time_unit, ds.clips.step, len(ds)) == ("s", 300, 4)
    start = 1_577_836_800
    assert ds.clips.frame_numbers(np.arange(6)).tolist() == (start + 60 * minutes).tolist()
    counted = FrameWindowDataset(
        tmp_path / "rain.nc",
        input_frames=1,
        predict_frames=1,
        array="rain",
        frame_numbers=range(6),
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
            ds = FrameWindowDataset(path, input_frames=1, predict_frames=1, array="data")
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
            path, input_frames=1, predict_frames=1, array="group/data", clip_ids="ids"
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
            FrameWindowDataset(
                path, input_frames=1, predict_frames=1, array="group/data", **{option: "ids"}
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
            path, input_frames=1, predict_frames=1, array="group/data", clip_ids="ids"
        )
