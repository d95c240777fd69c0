"""Where pixels are: a store, or an array that others wrote, opened for reading."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from framewin.arrays.clips import Column
from framewin.errors import StoreError
from framewin.remote import Location, location, refuse_url
from framewin.schema import Int64Array, Progress, StoreMeta
from framewin.stores import cache as caching
from framewin.stores import open_store
from framewin.stores.array_store import open_array
from framewin.stores.cache import FrameStore, stored_frames
from framewin.stores.chunked_frames import DEFAULT_CACHE_BYTES, ChunkedFrames
from framewin.stores.mapped_frames import MappedFrames
from framewin.stores.verify import refuse_damage
from framewin.windows.spec import Runs
from framewin.windows.statistics import ChannelStatistics, ChannelSums, FrameStatistics

PIECE_BYTES = 2**22
OF_ARRAYS = ("array", "axes", "clip_ids", "clip_starts", "frame_numbers")
"""Options of arrays that others wrote alone."""


def open_frames(
    path: str | Location,
    *,
    array: str | None = None,
    axes: str | None = None,
    clip_ids: Column | None = None,
    clip_starts: Column | None = None,
    frame_numbers: Column | None = None,
    nodata: float | None = None,
    cache: str | Path | None = None,
    cache_bytes: int = DEFAULT_CACHE_BYTES,
    allow_missing_chunks: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    verify: bool = False,
    progress: Progress | None = None,
) -> Frames:
    """Open the frames of a store, or of an array that others wrote; reads no frames yet.

    Args:
        path: A store made by `framewin convert`, or its URL (`s3://`, `gs://`, `http://`,
            `https://`), whose chunks are requested as they are needed; or with `array` or
            `axes` a Zarr group or array, an HDF5 or netCDF4 file, or a .npy file that others
            wrote.
        array: Name of the array with the frames, for example `"data"` or
            `"image1/image_data"`; or a pattern such as `"data/*/image"` of arrays of which
            each is a clip.
        axes: A letter for each axis of the array, t time, y, x, c channel, n clip; by default
            what its dimension names say, else "tyx" or "tyxc" where the shape leaves no doubt.
        clip_ids: Of an array: the clip of each frame, (num_frames,), equal for the frames of
            a clip; or the name of an array that holds them. By default all are one clip.
        clip_starts: Of an array: instead of ids, the row of each clip's first frame.
        frame_numbers: Of an array: the number of each frame, (num_frames,), by which gaps
            are found; or the name of an array. By default there are no gaps.
        nodata: Pixel value that stands for no data; by default what the store says.
        cache: `"memory"` decodes the frames of the clips in use once, when a dataset is opened,
            into memory; a path decodes all frames into a file there, or uses it if it is there
            already and the store has not changed. Windows are then read as from a raw store.
        cache_bytes: Without `cache`, the decoded chunks of a compressed store that are kept
            for later windows, in bytes; raw stores and `.npy` files are mapped and keep none.
        allow_missing_chunks: Of an array that others wrote: take chunks that are not there
            for frames of the fill value.
        storage_options: Of a URL: settings of obstore's store, such as `{"endpoint": ...}` or
            `{"skip_signature": True}`, above those of the environment.
        verify: Check every byte of the store, and of a cache that is there, when opening.
        progress: Called with (frames done, frames in all) while a cache is filled.

    Raises:
        StoreError: See `open_store` and `open_array`; or a cache of another store.
    """
    # The folder of the process, or of one that opens it again, may be another one later.
    if cache is not None and cache != "memory":
        refuse_url(cache, "name a file of this machine to cache the frames in")
        cache = Path(cache).absolute()
    options: dict[str, Any] = {
        "array": array,
        "axes": axes,
        "clip_ids": clip_ids,
        "clip_starts": clip_starts,
        "frame_numbers": frame_numbers,
        "nodata": nodata,
        "cache": cache,
        "cache_bytes": cache_bytes,
        "allow_missing_chunks": allow_missing_chunks,
        "storage_options": storage_options,
        "verify": verify,
    }
    return Frames(_open(path, options), options, progress)


class Frames:
    """All frames of a store, for one or several datasets; made by `open_frames`.

    It can be pickled, and is opened again where it is unpickled: mappings, threads and locks are
    not carried along.
    """

    def __init__(
        self, store: FrameStore, options: Mapping[str, Any], progress: Progress | None = None
    ) -> None:
        self._store = store
        self._options = options
        self._progress = progress
        self._opened_by = os.getpid()
        self._in_memory: Any = np.False_
        """Rows that were decoded into memory: bool (num_frames,), once there are any."""

    @property
    def path(self) -> Location:
        """The store."""
        return self._store.path

    @property
    def meta(self) -> StoreMeta:
        """Clips, shape and dtype of the frames, no-data value."""
        return self._store.meta

    @property
    def identity(self) -> str:
        """Changes with the store's content."""
        return self._store.identity

    @property
    def mapped(self) -> MappedFrames | None:
        """The frames as mapped memory; None where they must be decoded to be read."""
        frames = self._store.frames
        return frames if isinstance(frames, MappedFrames) else None

    @property
    def stored(self) -> MappedFrames | ChunkedFrames:
        """The frames as they lie in the store, whether or not a cache holds them."""
        return stored_frames(self._store)

    @property
    def array(self) -> np.ndarray:
        """All frames, (num_frames, H, W, C), mapped, not to be written to.

        Raises:
            StoreError: They must be decoded to be read; `cache="memory"` does that once.
        """
        if self.mapped is None:
            raise StoreError(
                f"the frames of {self.path} are not mapped, so they are no array; open it with "
                'cache="memory" or read them with ds.batch([...])'
            )
        self.mapped.check()
        return self.mapped.array

    def source_files(self, rows: Int64Array) -> list[str]:
        """The file below the source folder that each row came from."""
        return self._store.source_files(rows)

    def fill_cache(self, runs: Runs) -> None:
        """Decode what `cache=` asks for, unless it is there already.

        Args:
            runs: The rows that a dataset uses: all that `"memory"` decodes.
        """
        cache = self._options["cache"]
        if cache == "memory":
            new = np.zeros(self.meta.clips.num_frames, bool)
            for start, length in zip(runs.starts.tolist(), runs.lengths.tolist(), strict=True):
                new[start : start + length] = True
            new &= ~self._in_memory
            edges = np.flatnonzero(np.diff(new, prepend=False, append=False))
            ranges = list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
            if ranges:
                self._store = caching.in_memory(self._store, ranges, self._progress)
                self._in_memory = new | self._in_memory
        elif cache is not None and not isinstance(self._store, caching.CachedStore):
            self._store = caching.on_disk(
                self._store, cache, self._progress, verify=self._options["verify"]
            )

    def take(self, rows: Int64Array) -> np.ndarray:
        """Frames of some rows: stored dtype, (len(rows), H, W, C).

        Raises:
            StoreError: A compressed chunk is damaged.
        """
        self._leave_parent()
        return self._store.frames.take(rows)

    def blocks(self, begin: int, end: int) -> Iterator[tuple[int, np.ndarray]]:
        """Frames of rows [begin, end) in pieces of some megabytes: first row and (n, H, W, C)."""
        size = max(1, PIECE_BYTES // self.meta.frame_format.nbytes)
        for first in range(begin, end, size):
            yield first, self.take(np.arange(first, min(first + size, end)))

    def frame_statistics(self, runs: Runs) -> FrameStatistics:
        """Mean, motion and fraction without data of each frame.

        They are recorded where `framewin convert --statistics` was asked for them. Otherwise, and
        where `nodata=` is another value than the store's, the frames of the runs are read, and
        the others are NaN. The motion of a run's first frame is NaN.
        """
        recorded = self._store.statistics()
        if recorded is not None:
            return FrameStatistics(**recorded)
        found = FrameStatistics.empty(self.meta.clips.num_frames)
        for first, length in zip(runs.starts.tolist(), runs.lengths.tolist(), strict=True):
            previous = None
            for row, frames in self.blocks(first, first + length):
                found.put(row, frames, previous=previous, nodata=self.meta.nodata)
                previous = frames[-1]
        return found

    def channel_statistics(self, ranges: Iterable[tuple[int, int]]) -> ChannelStatistics:
        """Mean, standard deviation, least and greatest value per channel of ranges of rows."""
        sums = ChannelSums(self.meta.frame_format.channels)
        for begin, end in ranges:
            for _, frames in self.blocks(begin, end):
                sums.add(frames, nodata=self.meta.nodata)
        return sums.result()

    def _leave_parent(self) -> None:
        """In a forked process, open again what is not mapped: locks and file positions."""
        if self._opened_by != os.getpid():
            if self.mapped is None:
                # What was checked when it was opened is not checked again by each worker.
                again = _open(self.path, {**self._options, "verify": False})
                refuse_another(self.path, "store", again.identity, self.identity)
                self._store = again
            self._opened_by = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        options = {**self._options, "verify": False}
        return _reopened, (str(self.path), options, self.identity)


def _open(path: str | Location, options: Mapping[str, Any]) -> FrameStore:
    """The store or array that the options of `open_frames` name."""
    path = location(path, options["storage_options"]).absolute()
    nodata, cache_bytes = options["nodata"], options["cache_bytes"]
    of_array = {name: options[name] for name in OF_ARRAYS}
    store: FrameStore
    if all(value is None for value in of_array.values()) and path.suffix != ".npy":
        store = open_store(path, cache_bytes=cache_bytes)
        if options["allow_missing_chunks"]:
            raise ValueError(f"{path} is a store of framewin; leave allow_missing_chunks out")
        if options["verify"]:
            refuse_damage(path)
    else:
        if options["verify"] and options["cache"] in (None, "memory"):
            raise ValueError(
                f"{path} was not written by framewin and has no checksums; leave verify out"
            )
        store = open_array(
            path,
            **of_array,
            nodata=nodata,
            allow_missing_chunks=options["allow_missing_chunks"],
            cache_bytes=cache_bytes,
        )
    if nodata is not None and nodata != store.meta.nodata:
        store.meta = replace(store.meta, nodata=nodata)
    return store


def _reopened(path: str, options: dict[str, Any], identity: str) -> Frames:
    frames = Frames(_open(path, options), options)
    refuse_another(path, "store", frames.identity, identity)
    return frames


def refuse_another(path: Location | str, what: str, found: str, expected: str) -> None:
    """Refuse a store, or a choice of windows, that is not what was pickled.

    Raises:
        StoreError: It has changed.
    """
    if found != expected:
        raise StoreError(
            f"{path} is to be opened again, but its {what} has changed since; start again with a "
            "new FrameWindowDataset"
        )
