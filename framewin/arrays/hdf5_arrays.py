"""Arrays in HDF5 and netCDF4 files; no link is followed out of a file, which is only open while
it is read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from framewin.arrays.attributes import as_text, meaning
from framewin.arrays.choose import choose
from framewin.arrays.file_kinds import is_hdf5
from framewin.arrays.foreign_array import (
    MAX_DEPTH,
    OWN_ATTRIBUTE,
    ArrayInfo,
    ForeignArray,
    Values,
)
from framewin.errors import MissingDependencyError, StoreError
from framewin.optional import require

# What the netCDF library calls a dimension that has no values of its own.
_DIMENSION_ONLY = "This is a netCDF dimension but not a netCDF variable."


class Hdf5Array(ForeignArray):
    """A dataset of an HDF5 or netCDF4 file."""

    def __init__(self, path: Path, name: str) -> None:
        """Look at a dataset."""
        self.path, self.name = path, name
        with _reading(path) as file:
            dataset = file[name]
            if dataset.is_virtual or dataset.external is not None:
                raise StoreError(f"{path}: {name!r} keeps its values in other files")
            offset = dataset.id.get_offset() if dataset.chunks is None else None
            self.info = ArrayInfo(
                dataset.shape,
                chunks=dataset.chunks,
                dimensions=tuple(
                    scales[0].name.rpartition("/")[2] if len(scales) else scales.label
                    for scales in dataset.dims
                ),
                place=None if offset is None else (path, offset),
                is_own=name == "frames" and OWN_ATTRIBUTE in file.attrs,
                **meaning(dataset.attrs, dataset.dtype),
            )

    def read(self, where: tuple[slice, ...]) -> np.ndarray:
        with _reading(self.path) as file:
            dataset = file[self.name]
            _require_filters(dataset)
            values: np.ndarray = dataset[where]
        return values

    def missing_chunk(self) -> str | None:
        with _reading(self.path) as file:
            dataset = file[self.name]
            if dataset.chunks is None:
                return "0" if dataset.id.get_offset() is None else None
            steps = zip(dataset.shape, dataset.chunks, strict=True)
            starts = [range(0, size, step) for size, step in steps]
            expected, file_bytes = math.prod(map(len, starts)), self.path.stat().st_size
            # Before anything is counted: a file of a kilobyte can claim any number of chunks.
            if expected > file_bytes:
                return f"{expected} (a file of {file_bytes} bytes cannot hold as many)"
            if dataset.id.get_num_chunks() >= expected:
                return None
            present: set[tuple[int, ...]] = set()
            dataset.id.chunk_iter(lambda chunk: present.add(tuple(chunk.chunk_offset)))
            return str(next(c for c in itertools.product(*starts) if c not in present))

    def other(self, name: str, fits: Callable[[tuple[int, ...]], bool]) -> Values | None:
        with _reading(self.path) as file:
            if not _holds_array(file, name) or not fits(file[name].shape or ()):
                return None
            found = file[name]
            if as_text(found.attrs.get("NAME", b"")).startswith(_DIMENSION_ONLY):
                return None
            is_text = h5py.check_string_dtype(found.dtype) is not None
            return (found.asstr() if is_text else found)[:], dict(found.attrs)


def find_hdf5(path: Path, name: str | None, num_axes: int | None) -> list[ForeignArray]:
    """The arrays of a file that `name` names; see `choose`."""
    if not is_hdf5(path):
        raise StoreError(f"{path} is not a Zarr, HDF5, netCDF4 or .npy array")
    held: dict[str, tuple[tuple[int, ...], Any]] = {}
    with _reading(path) as file:
        waiting, seen = [("", file)], set()
        while waiting:
            above, group = waiting.pop()
            address = h5py.h5o.get_info(group.id).addr
            if address in seen:
                continue
            seen.add(address)
            if above.count("/") > MAX_DEPTH:
                raise StoreError(f"{path} nests groups more than {MAX_DEPTH} deep; flatten it")
            for below in group:
                # No soft or external links, so nothing outside the file is ever read.
                if isinstance(group.get(below, getlink=True), h5py.HardLink):
                    node = group[below]
                    if isinstance(node, h5py.Dataset):
                        held[f"{above}{below}"] = (node.shape or (), node.dtype)
                    elif isinstance(node, h5py.Group):
                        waiting.append((f"{above}{below}/", node))
    return [Hdf5Array(path, key) for key in choose(path, name, held, num_axes)]


@contextmanager
def _reading(path: Path) -> Iterator[Any]:
    """An HDF5 file, opened for reading."""
    # Without a lock: file systems of clusters often have none, and stores are never changed.
    try:
        file = h5py.File(path, "r", locking=False)
    except OSError as exc:
        # HDF5 wants all handles of a process alike, and the user may hold one.
        if "locking flag" not in str(exc):
            raise
        file = h5py.File(path, "r")
    with file:
        yield file


def _holds_array(file: Any, name: str) -> bool:
    """Whether an HDF5 file holds an array of this name itself, by no link and in no other file."""
    parts = [part for part in name.split("/") if part]
    for end in range(1, len(parts) + 1):
        if not isinstance(file.get("/".join(parts[:end]), getlink=True), h5py.HardLink):
            return False
    found = file[name] if parts else None
    return isinstance(found, h5py.Dataset) and not found.is_virtual and found.external is None


def _require_filters(dataset: Any) -> None:
    """Load the filters that are neither in HDF5 nor in h5py, which would raise what damage does."""
    properties = dataset.id.get_create_plist()
    filters = [properties.get_filter(place) for place in range(properties.get_nfilters())]
    if all(h5py.h5z.filter_avail(number) for number, *_ in filters):
        return
    require("hdf5plugin", extra="hdf5plugin")
    for number, _, _, name in filters:
        if not h5py.h5z.filter_avail(number):
            raise MissingDependencyError(
                f"{dataset.file.filename}: {dataset.name!r} needs the HDF5 filter {number} "
                f"({name.decode(errors='replace')}), which neither h5py nor hdf5plugin has; "
                "install its plugin, or write the data without it"
            )
