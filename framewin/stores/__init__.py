"""Stores on disk: one module per format, and what the formats share."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, cast

from framewin.errors import DeniedObjectError, StoreError
from framewin.remote import Location, RemotePath, location
from framewin.stores.chunked_frames import DEFAULT_CACHE_BYTES
from framewin.stores.durable import MARKER, tree_bytes
from framewin.stores.store import Store as Store

FORMATS = {"zarr": "framewin.stores.zarr_store", "hdf5": "framewin.stores.hdf5_store"}
"""Format -> the module with its `read_record` and `Files`."""
WRITERS = {"zarr": "framewin.stores.zarr_writer", "hdf5": "framewin.stores.hdf5_writer"}
"""Format -> the module with its `Writer` and `estimate_bytes`."""
SUFFIXES = {".zarr": "zarr", ".h5": "hdf5", ".hdf5": "hdf5"}
"""Suffix of a store's name -> its format."""


def open_store(path: str | Location, *, cache_bytes: int = DEFAULT_CACHE_BYTES) -> Store:
    """Open a store that `framewin convert` wrote.

    Args:
        path: A folder of Zarr or a file of HDF5, or the URL of one; told apart by what it is, not
            by its name.
        cache_bytes: Decoded chunks of a compressed store that are kept, in bytes.

    Raises:
        StoreError: Nothing there, not a store, or a store that is not whole.
        FormatVersionError: A store of another format version.
    """
    if not isinstance(path, RemotePath):
        path = location(path)
    return Store(path, format_of(path), cache_bytes)


def open_damaged(path: Location) -> Store:
    """Open a store to be verified: its files may be missing or of another size."""
    return Store(path, format_of(path), 0, whole=False)


def num_bytes(store: Store) -> int:
    """Bytes of a store, where it is."""
    if isinstance(store.path, RemotePath):
        return sum(size for size, _ in store.files.values())
    return tree_bytes(store.path)


def format_of(path: Location) -> Any:
    """The module that reads what is at this path.

    Raises:
        StoreError: Nothing is.
    """
    if isinstance(path, RemotePath):
        return _remote_format(path)
    if not path.exists():
        raise StoreError(f"{path} does not exist; expected a store made by framewin convert")
    if path.suffix == ".partial" and (path / MARKER).exists():
        raise StoreError(f"{path} is an unfinished conversion; repeat its command to go on")
    return import_module(FORMATS["zarr" if path.is_dir() else "hdf5"])


def _remote_format(path: RemotePath) -> Any:
    """The same of a URL, asking first for what its name promises."""
    zarr, hdf5 = (import_module(name) for name in FORMATS.values())
    there = {zarr: path / zarr.RECORD, hdf5: path}
    likely = hdf5 if SUFFIXES.get(path.suffix.lower()) == "hdf5" else zarr
    denied: list[StoreError] = []
    for module in (likely, hdf5 if likely is zarr else zarr):
        try:
            if there[module].is_file():
                return module
        # Services that do not say what is there deny what is not.
        except DeniedObjectError as exc:
            denied.append(exc)
    if denied:
        raise denied[0]
    raise StoreError(f"{path} does not exist, or was not made by framewin convert")


def format_module(path: Path, name: str | None = None) -> Any:
    """The module that writes a store to this path.

    Args:
        path: Its suffix chooses the format where no name is given.
        name: One of `FORMATS`.

    Raises:
        StoreError: The suffix is not in `SUFFIXES`, or belongs to another format.
    """
    by_suffix = SUFFIXES.get(path.suffix.lower())
    if name is None and by_suffix is None:
        known = ", ".join(f"{path.stem or 'clips'}{suffix}" for suffix in SUFFIXES)
        raise StoreError(
            f"{path} does not end in the suffix of a known format; call it {known}, or name the "
            f"format: {', '.join(FORMATS)}"
        )
    if name is not None and name not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {name!r}")
    if name is not None and by_suffix not in (None, name):
        raise StoreError(f"{path} has the suffix of {by_suffix}, but the format is {name}")
    return import_module(WRITERS[cast(str, name or by_suffix)])
