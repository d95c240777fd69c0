"""A file gives the same frames, clips and meaning whether it is converted or opened in place."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

from framewin import SourceError, StoreError, convert
from framewin.stores import open_store
from framewin.stores.array_store import open_array
from tests.helpers.arrays import C, H, T, W, values

DIMENSIONS = ("time", "lat", "lon", "band")
ATTRIBUTES = {"scale_factor": 0.5, "add_offset": 2.0, "units": "mm h-1", "_FillValue": 7}
TIMES = {"units": "minutes since 2020-01-01", "calendar": "standard"}


def npy(path: Path, data: np.ndarray, order: Any = "C") -> Path:
    np.save(path / "movie.npy", np.asarray(data, order=order))
    return path / "movie.npy"


def hdf5(path: Path, data: np.ndarray, name: str = "movie.h5", **storage: Any) -> Path:
    """Chunked or in one piece, with times, coordinates, packing and a value of no data."""
    with h5py.File(path / name, "w") as file:
        movie = file.create_dataset("rain", data=data, **storage)
        movie.attrs.update(ATTRIBUTES | {"_FillValue": data.dtype.type(7)})
        for axis, dimension in enumerate(DIMENSIONS[: data.ndim]):
            file[dimension] = 5.0 * np.arange(data.shape[axis]) + (axis == 0) * 10
            file[dimension].make_scale(dimension)
            movie.dims[axis].attach_scale(file[dimension])
        file["time"].attrs.update(TIMES)
    return path / name


def zarr_store(path: Path, data: np.ndarray, zarr_format: Any, **storage: Any) -> Path:
    group = zarr.create_group(path / "movie.zarr", zarr_format=zarr_format)
    names = DIMENSIONS[: data.ndim]
    arrays = {"rain": (data, names, ATTRIBUTES)} | {
        name: (
            5.0 * np.arange(size) + (name == "time") * 10,
            (name,),
            TIMES if name == "time" else {},
        )
        for name, size in zip(names, data.shape, strict=True)
    }
    for name, (content, dimensions, attributes) in arrays.items():
        named = {} if zarr_format == 2 else {"dimension_names": dimensions}
        array = group.create_array(
            name, data=content, config={"write_empty_chunks": True}, **named,
            **(storage if name == "rain" else {}),
        )  # fmt: skip
        array.attrs.update(attributes)
        if zarr_format == 2:
            array.attrs["_ARRAY_DIMENSIONS"] = list(dimensions)
    return path / "movie.zarr"


MOVIE, COLOURS = values((T, H, W), "uint8"), values((T, H, W, C), "int16")
FILES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "npy": (lambda path: npy(path, MOVIE), "tyx"),
    "npy, Fortran": (lambda path: npy(path, COLOURS, "F"), "tyxc"),
    "npy, big endian": (lambda path: npy(path, COLOURS.astype(">i2")), "tyxc"),
    "npy, truth values": (lambda path: npy(path, MOVIE > 99), "tyx"),
    "npy, one frame": (lambda path: npy(path, MOVIE[0]), "yx"),
    "hdf5": (lambda path: hdf5(path, MOVIE), "tyx"),
    "hdf5, chunks": (lambda path: hdf5(path, COLOURS, chunks=(2, 3, 2, 1)), "tyxc"),
    "hdf5, gzip": (lambda path: hdf5(path, MOVIE, chunks=(4, H, W), compression="gzip"), "tyx"),
    "netcdf": (lambda path: hdf5(path, MOVIE.astype("f4"), "movie.nc"), "tyx"),
    "zarr 2": (lambda path: zarr_store(path, MOVIE, 2, chunks=(4, H, W)), "tyx"),
    "zarr 2, Fortran": (lambda path: zarr_store(path, COLOURS, 2, order="F"), "tyxc"),
    "zarr 3": (lambda path: zarr_store(path, COLOURS, 3, chunks=(2, H, W, C)), "tyxc"),
    "zarr 3, shards": (
        lambda path: zarr_store(path, MOVIE, 3, chunks=(1, H, W), shards=(3, H, W)), "tyx"
    ),
}  # fmt: skip


def answer(store: Any) -> dict[str, Any]:
    """All that is said of frames, and the frames."""
    clips = store.meta.clips
    rows = np.arange(clips.num_frames)
    frames = store.frames.take(rows)
    return {
        "frames": frames.tolist(),
        "dtype": str(frames.dtype),
        "numbers": clips.frame_numbers(rows).tolist(),
        "clips": (clips.names, clips.step, clips.time_unit),
        "nodata": store.meta.nodata,
        "packing": dict(store.meta.packing),
        "coordinates": dict(store.meta.coordinates),
    }


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
def test_a_file_has_one_answer(tmp_path: Path, kind: str, suffix: str) -> None:
    """Converted, converted again from that store, or in place; axes stated or found."""
    make, axes = FILES[kind]
    path = make(tmp_path)
    array = None if path.suffix == ".npy" else "rain"
    found = []
    for number, stated in enumerate((None, axes)):
        options = {"axes": stated, "array": array}
        in_place = answer(open_array(path, cache_bytes=0, **options))
        convert(path, tmp_path / f"{number}{suffix}", **options)
        convert(tmp_path / f"{number}{suffix}", tmp_path / f"again{number}.zarr")
        found += [in_place, *(answer(open_store(tmp_path / name))
                  for name in (f"{number}{suffix}", f"again{number}.zarr"))]  # fmt: skip
    expected = in_place["frames"]
    for one in found:
        assert one == found[0] | {"clips": (one["clips"][0], *found[0]["clips"][1:])}
    data = MOVIE if expected[0] and len(expected[0][0][0]) == 1 else COLOURS
    data = (data > 99) * 255 if "truth" in kind else data[: len(expected)]
    assert np.array_equal(np.squeeze(expected), np.squeeze(data))
    if array is not None:
        assert found[0]["clips"][1:] == (300, "s")
        assert found[0]["packing"].items() >= {"scale_factor": 0.5, "units": "mm h-1"}.items()
        assert set(found[0]["coordinates"]) == {"y", "x"}
        assert found[0]["nodata"] == 7


def test_archives_are_converted_only(tmp_path: Path) -> None:
    """They are decoded from their beginning, which is too slow for frames in any order."""
    np.savez_compressed(tmp_path / "movie.npz", movie=MOVIE)
    convert(tmp_path / "movie.npz", tmp_path / "clips.zarr")
    assert answer(open_store(tmp_path / "clips.zarr"))["frames"] == MOVIE[..., None].tolist()
    message = "movie.npz is an archive, which is decoded from its beginning; convert it, or save "
    with pytest.raises(StoreError, match=re.escape(message)):
        open_array(tmp_path / "movie.npz", cache_bytes=0)
    with pytest.raises(SourceError, match=r"movie\.npz is an archive, whose arrays axes= cannot"):
        convert(tmp_path / "movie.npz", tmp_path / "other.zarr", axes="xyt")
