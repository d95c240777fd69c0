"""Frames of a store, or of files that need not be converted first, in the order of time."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from framewin.conversion.read import FrameReader
from framewin.conversion.settings import ConvertSettings
from framewin.conversion.source import OpenSource, check_first_formats, open_source
from framewin.errors import SourceError, StoreError
from framewin.remote import Location
from framewin.schema import PACKING, StoreMeta
from framewin.sources.headers import read_info
from framewin.sources.info import STORE_KIND, ReadOptions
from framewin.stores import SUFFIXES, Store, open_store
from framewin.stores.array_store import open_array
from framewin.stores.cache import FrameStore

OF_ONE_SOURCE = ("include", "exclude", "on_error")
"""Settings of a conversion that are about its files, not about what frames become."""


class FramesInTurn(Protocol):
    """Frames with their clips, which are read once, from the first to the last."""

    meta: StoreMeta

    def read(self, begin: int, end: int) -> np.ndarray:
        """Rows [begin, end), (n, H, W, C); none of them before a row that was read already."""


class StoreFrames:
    """The frames of a store."""

    def __init__(self, store: Store) -> None:
        self._frames = store.frames
        self.meta = store.meta

    def read(self, begin: int, end: int) -> np.ndarray:
        """See `FramesInTurn`."""
        return self._frames.take(np.arange(begin, end))


class SourceFrames:
    """Frames of files, decoded and brought to the form that a store's frames have."""

    def __init__(self, plan: OpenSource) -> None:
        self._reader = FrameReader(plan)
        self._done = 0
        self.meta = plan.meta

    def read(self, begin: int, end: int) -> np.ndarray:
        """See `FramesInTurn`."""
        if begin > self._done:
            self._reader.skip(self._done, begin)
        form = self.meta.frame_format
        frames = np.empty((end - begin, *form.shape), form.dtype)
        self._reader.read(begin, end, frames)
        self._done = end
        return frames


def open_frames(source: Path, trained_on: Location) -> FramesInTurn:
    """Open a store, or list what `framewin convert` would, with the settings of another store.

    Args:
        source: A store of framewin, a folder of frames or clips, or a file that is a clip.
        trained_on: The store whose settings say what becomes of frames that are no store's.

    Raises:
        SourceError: Frames are missing, damaged, or in doubt.
        StoreError: A store that cannot be read.
    """
    if _is_store(source):
        store = open_store(source)
        _check_packing(source, store.meta.packing, trained_on)
        return StoreFrames(store)
    try:
        recorded = _opened(trained_on).meta.conversion
        settings = ConvertSettings.from_record(
            {name: value for name, value in recorded.items() if name not in OF_ONE_SOURCE}
        )
    except StoreError as exc:
        raise StoreError(
            f"how {source} is to be read stands in the store that was trained on: {exc}"
        ) from exc
    plan = open_source(source, settings, nodata_in_files=False)
    check_first_formats(plan)
    _check_packing(source, plan.meta.packing, trained_on)
    return SourceFrames(plan)


def _check_packing(source: Path, packing: Mapping[str, Any], trained_on: Location) -> None:
    """Refuse frames whose values mean something else than those that were trained on."""
    try:
        trained = _opened(trained_on).meta.packing
    except StoreError:
        # Frames of a store can be forecast without the one that was trained on.
        return
    found, known = ({n: each[n] for n in PACKING if n in each} for each in (packing, trained))
    if found and known:
        _refuse_another_packing(source, found, trained_on, known)
    elif found or known:
        lacking, names = (trained_on, found) if found else (source, known)
        print(
            f"{lacking} does not record its {' or '.join(names)}, so it is not checked whether "
            f"values of {source} mean what those of {trained_on} do",
            file=sys.stderr,
        )


def _refuse_another_packing(
    source: Path, packing: Mapping[str, Any], trained_on: Location, trained: Mapping[str, Any]
) -> None:
    for name in PACKING:
        if packing.get(name) != trained.get(name):
            raise SourceError(
                f"{source} has the {name} {packing.get(name)}, {trained_on} was trained on with "
                f"{trained.get(name)}; bring its values to the same form"
            )


def input_windows(
    frames: FramesInTurn, starts: np.ndarray, offsets: np.ndarray
) -> Iterator[np.ndarray]:
    """Frames of windows that begin at increasing rows, each row read once.

    Args:
        frames: Where they are.
        starts: First row of each window, (n,), increasing.
        offsets: Of a window's frames from its first, (T_in,), increasing from 0.

    Yields:
        Stored dtype, (T_in, H, W, C).
    """
    span = int(offsets[-1]) + 1
    first, held = 0, np.empty((0, *frames.meta.frame_format.shape), frames.meta.frame_format.dtype)
    for start in starts.tolist():
        held = held[start - first :]
        first = start
        if len(held) < span:
            held = np.concatenate([held, frames.read(first + len(held), first + span)])
        yield held[offsets]


def _opened(trained_on: Location) -> FrameStore:
    """A store, or an array that was trained on as it is."""
    if trained_on.suffix == ".npy":
        return open_array(trained_on, cache_bytes=0)
    return open_store(trained_on, cache_bytes=0)


def _is_store(path: Path) -> bool:
    if path.suffix.lower() not in SUFFIXES or not path.exists():
        return False
    try:
        return read_info(str(path), ReadOptions()).kind == STORE_KIND
    except SourceError:
        # Not one of framewin's; what is wrong with it is said when it is read.
        return False
