"""Checking every byte of a store against the checksums that were recorded when it was written."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import google_crc32c
import numpy as np

from framewin.arrays import open_frames
from framewin.errors import DeniedObjectError, MissingObjectError, StoreError
from framewin.parallel import ordered_map
from framewin.remote import (
    Location,
    RemotePath,
    location,
)
from framewin.schema import Progress, shown_number
from framewin.stores import Store, num_bytes, open_damaged, tables
from framewin.stores.chunk_io import (
    MOST_READ_BYTES,
    REQUESTS_AT_ONCE,
    ChunkPlace,
    read_run,
    runs,
    size_of,
)
from framewin.stores.chunked_frames import pieces, usable_cores

CHUNKS_PER_TASK = 64
RUNS_AHEAD = 4
READ_BYTES = 2**24


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a check of a store found."""

    path: Location
    frames: int
    num_bytes: int
    """That were checked."""
    damage: list[str]
    """A line for each damaged range of frames and each damaged file; empty if all is well."""
    seconds: float


def verify(
    path: str | Location,
    *,
    quick: bool = False,
    full: bool = False,
    workers: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Check every byte of a store.

    Args:
        path: A store made by `framewin convert`, or its URL; then all of it is transferred, and
            what lies beside it is not looked for.
        quick: Leave the frames out: are all files there, of the right size, and is every byte
            that stands beside the frames right?
        full: Then also read all of it through the library of its format, zarr or h5py, as
            others do, and compare; not of a URL.
        workers: Reading threads; by default one per core this process may use, or 16 of a URL.
        storage_options: Of a URL; see `framewin.open_frames`.
        progress: Called with (frames done, frames in all); frames count twice with `full`.

    Raises:
        StoreError: Nothing there, not a store, or damage that leaves nothing to check.
        MissingDependencyError: `full`, of zstd or lz4 in HDF5 without hdf5plugin.
        ValueError: `quick` and `full`.

    Example:
        >>> verify("clips.zarr", quick=True).damage     # doctest: +SKIP
        ['clips.zarr/frames/c/0/0/0/0 has 4194304 bytes, expected 4194564']
    """
    if quick and full:
        raise ValueError("quick and full are two ways to verify; give one of them")
    started = time.perf_counter()
    path = location(path, storage_options)
    remote = isinstance(path, RemotePath)
    if full and remote:
        raise ValueError(f"full reads by zarr or h5py, not from {path}; framewin fetch it first")
    store = open_damaged(path)
    frames = store.meta.clips.num_frames

    def shown(done: int) -> None:
        if progress is not None:
            progress(done, frames * (2 if full else 1))

    workers = workers or (REQUESTS_AT_ONCE if remote else usable_cores())
    damaged: list[int] = []
    if not quick:
        find = _damaged_remotely if remote else _damaged_chunks
        damaged = find(store, workers, shown)
    damage = [*_ranges(store, damaged), *store.check_rest(workers)]
    # Only then, since libraries may hang on damage.
    if full and not damage:
        damage += _other_reading(store, lambda done: shown(frames + done))
    unread = 0
    if quick:
        unread = (
            int(store.chunks["nbytes"].sum()) if store.layout.compressed else store.meta.frame_bytes
        )
    return VerifyReport(
        path=path,
        frames=frames,
        damage=damage,
        num_bytes=max(0, num_bytes(store) - unread),
        seconds=time.perf_counter() - started,
    )


def refuse_damage(path: str | Location) -> None:
    """Check every byte of a store.

    Raises:
        StoreError: See `verify`; or any damage.
    """
    damage = verify(path).damage
    if damage:
        more = f", and {len(damage) - 1} more" if len(damage) > 1 else ""
        raise StoreError(f"{path} is damaged: {damage[0]}{more}; convert it again")


def _damaged_remotely(store: Store, workers: int, shown: Callable[[int], None]) -> list[int]:
    """The same as `_damaged_chunks`, in requests for many chunks."""

    def wrong(run: list[int]) -> list[int]:
        try:
            return read_run(store, run).wrong(trailers=True)
        except MissingObjectError:
            return run
        except DeniedObjectError:
            # Where access to all of it was lost, nothing is known of the frames.
            again = location(cast(RemotePath, store.path))
            open_damaged(again)
            return run

    all_runs = runs(store, list(range(len(store.chunks["crc32c"]))))
    chunk_frames, num_frames = store.layout.chunk_frames, store.meta.clips.num_frames
    damaged: list[int] = []
    with ThreadPoolExecutor(workers) as pool:
        found_in = ordered_map(pool, wrong, all_runs, RUNS_AHEAD * workers)
        for run, found in zip(all_runs, found_in, strict=True):
            damaged += found
            shown(min((run[-1] + 1) * chunk_frames, num_frames))
    return damaged


def _damaged_chunks(store: Store, workers: int, shown: Callable[[int], None]) -> list[int]:
    """Numbers of the chunks whose bytes are not those that were written."""
    num_chunks = len(store.chunks["crc32c"])
    firsts = range(0, num_chunks, CHUNKS_PER_TASK)
    chunk_frames, num_frames = store.layout.chunk_frames, store.meta.clips.num_frames
    damaged: list[int] = []
    with ThreadPoolExecutor(workers) as pool:
        found_in = ordered_map(pool, partial(_check, store), firsts, RUNS_AHEAD * workers)
        for first, found in zip(firsts, found_in, strict=True):
            damaged += found
            shown(min((first + CHUNKS_PER_TASK) * chunk_frames, num_frames))
    return damaged


def _check(store: Store, first: int) -> list[int]:
    checksums = store.chunks["crc32c"][first : first + CHUNKS_PER_TASK].tolist()
    places = [store.place(number) for number in range(first, first + len(checksums))]
    whole = [_is_there(place) for place in places]
    # One buffer for all: fresh memory for each chunk would cost more than its checksum.
    there = (place for place, is_there in zip(places, whole, strict=True) if is_there)
    size = max((place.nbytes + place.trailer_bytes for place in there), default=0)
    buffer = np.empty(size, np.uint8)
    chunks = zip(whole, places, checksums, strict=True)
    return [
        number
        for number, (is_there, place, checksum) in enumerate(chunks, first)
        if not (is_there and _is_right(place, checksum, buffer))
    ]


def _is_there(place: ChunkPlace) -> bool:
    """Whether a file is as long as it must be to hold a chunk."""
    if place.offset < 0 or place.nbytes < 0 or not place.path.is_file():
        return False
    return place.offset + place.nbytes + place.trailer_bytes <= size_of(place.path)


def _is_right(place: ChunkPlace, checksum: int, buffer: np.ndarray) -> bool:
    """Whether the bytes of a chunk, and the checksum behind it, are those that were written."""
    part = buffer[: place.nbytes + place.trailer_bytes]
    found = 0
    descriptor = os.open(cast(Path, place.path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        # The system reads no more than 2 GiB at once.
        while read := os.preadv(
            descriptor, [part[found : found + MOST_READ_BYTES].data], place.offset + found
        ):
            found += read
    finally:
        os.close(descriptor)
    trailer = checksum.to_bytes(4, "little")[: place.trailer_bytes]
    return (
        found == len(part)
        and google_crc32c.value(part[: place.nbytes]) == checksum
        and part[place.nbytes :].tobytes() == trailer
    )


def _other_reading(store: Store, shown: Callable[[int], None]) -> Iterator[str]:
    """Read frames and tables as others do; yields a line for each difference."""
    others = open_frames(cast(Path, store.path), array="frames", axes="tyxc")
    num_frames = store.meta.clips.num_frames
    statistics = store.statistics()
    beside = tables.tables(store.meta) | {"chunks": store.chunks}
    for table, columns in (beside | ({"statistics": statistics} if statistics else {})).items():
        for name, values in columns.items():
            column = others.column(f"{table}/{name}", len(values))
            if not _same(column, values):
                yield f"{table}/{name} is another for other readers"
    chunk_frames = store.layout.chunk_frames
    size = chunk_frames * max(1, READ_BYTES // (chunk_frames * store.meta.frame_format.nbytes))
    names = np.array(store.meta.clips.names, object)
    coordinates = tables.coordinate_types(store.meta)
    found = {name: others.column(name, num_frames) for name in coordinates}
    for begin, end in pieces(num_frames, size):
        rows = np.arange(begin, end)
        expected = {
            "clip": names[store.meta.clips.clips_of(rows)],
            "frame_number": store.meta.clips.frame_numbers(rows),
            tables.TIME: store.meta.clips.frame_numbers(rows),
            tables.SOURCE_FILE: np.array(store.source_files(rows), object),
        }
        for name in coordinates:
            values = expected[name]
            if not _same(found[name][begin:end], values):
                yield f"{name} of frames {begin} to {end - 1} is another for other readers"
        # Compared as bytes, since NaN is not equal to itself.
        if others.read(begin, end).tobytes() != store.frames.take(rows).tobytes():
            yield f"frames {begin} to {end - 1} are others for other readers"
        shown(end)


def _same(found: np.ndarray, values: np.ndarray) -> bool:
    """Whether another reader has the same numbers, NaN equal to itself, or texts."""
    if values.dtype.kind in "iuf":
        return np.array_equal(found, values, equal_nan=True)
    return bool(found.astype(object).tolist() == values.astype(object).tolist())


def _ranges(store: Store, damaged: list[int]) -> Iterator[str]:
    """Neighbouring damaged chunks as one range of frames, with the clips they belong to."""
    chunk_frames, clips = store.layout.chunk_frames, store.meta.clips
    for _, group in groupby(enumerate(damaged), key=lambda pair: pair[1] - pair[0]):
        chunks = [number for _, number in group]
        first = chunks[0] * chunk_frames
        last = min((chunks[-1] + 1) * chunk_frames, clips.num_frames) - 1
        rows = np.array([first, last])
        (first_clip, last_clip), numbers = clips.clips_of(rows), clips.frame_numbers(rows)
        ends = [
            f"{clips.names[clip]} {shown_number(int(number), clips.time_unit)}"
            for clip, number in zip((first_clip, last_clip), numbers, strict=True)
        ]
        if first == last:
            yield f"frame {first} is damaged ({ends[0]})"
        else:
            yield f"frames {first} to {last} are damaged ({ends[0]} to {ends[1]})"
