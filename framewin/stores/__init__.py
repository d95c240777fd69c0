"""Stores on disk: one module per format, and what the formats share."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from framewin.errors import StoreError
from framewin.schema import Int64Array, StoreMeta
from framewin.stores.mapped import MappedFrames

FORMATS = {".zarr": "framewin.stores.zarr_store"}
"""Suffix of a store's name -> the module with its `open_store` and `Writer`."""


class Store(Protocol):
    """An opened store."""

    path: Path
    meta: StoreMeta
    frames: MappedFrames

    def source_files(self, rows: Int64Array) -> list[str]:
        """Path below the source folder of the file that each row came from."""


class StoreWriter(Protocol):
    """A store under construction, in a folder or file that is renamed when it is whole."""

    chunk_frames: int
    """Frames of a chunk; blocks that are multiples of it are read back best."""

    def write_frames(self, first_row: int, frames: np.ndarray) -> None:
        """Write (n, H, W, C) frames to rows [first_row, first_row + n); any thread, any order."""

    def write_metadata(self) -> None:
        """Write what stands beside the frames; may run beside `write_frames`."""

    def finish(self) -> None:
        """Complete the store once all frames and the metadata are written."""

    def close(self) -> None:
        """Release the files; also after a failure."""


def open_store(path: str | Path) -> Store:
    """Open a store that `framewin convert` wrote.

    Raises:
        StoreError: Nothing there, not a store, or a store that is not whole.
        FormatVersionError: A store of a newer framewin.
    """
    path = Path(path)
    if not path.exists():
        raise StoreError(f"{path} does not exist; expected a store made by framewin convert")
    return cast(Store, format_module(path).open_store(path))


def format_module(path: Path) -> Any:
    """The module for a store of this name.

    Raises:
        StoreError: The suffix is not in `FORMATS`.
    """
    try:
        return import_module(FORMATS[path.suffix.lower()])
    except KeyError:
        known = ", ".join(f"{path.stem or 'clips'}{suffix}" for suffix in FORMATS)
        raise StoreError(
            f"{path} does not end in the suffix of a known format; call it {known}"
        ) from None
