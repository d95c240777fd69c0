"""Arrays of every container, with values that say where they belong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zarr

T, H, W, C = 9, 4, 5, 3


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
