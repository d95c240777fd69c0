"""Checking every byte of a store against the checksums that were recorded when it was written."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import cast

import google_crc32c
import numpy as np

from framewin.errors import StoreError
from framewin.schema import Progress, shown_number
from framewin.stores import Store, format_of
from framewin.stores.chunked import usable_cores
from framewin.stores.chunks import ChunkPlace
from framewin.stores.durable import tree_bytes

CHUNKS_PER_TASK = 64


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a check of a store found."""

    path: Path
    frames: int
    num_bytes: int
    """Of the store, all of them checked."""
    damage: list[str]
    """A line for each damaged range of frames and each damaged file; empty if all is well."""
    seconds: float


def verify(
    path: str | Path, *, workers: int | None = None, progress: Progress | None = None
) -> VerifyReport:
    """Check every byte of a store.

    Args:
        path: A store made by `framewin convert`.
        workers: Reading threads; by default one per core this process may use.
        progress: Called with (frames done, frames in all).

    Raises:
        StoreError: Nothing there, not a store, or damage that leaves nothing to check.
    """
    started = time.perf_counter()
    path = Path(path)
    store = cast(Store, format_of(path).open_damaged(path))
    damaged = _damaged_chunks(store, workers or usable_cores(), progress)
    lines = chain(_ranges(store, damaged), store.check_rest())
    return VerifyReport(
        path=path,
        frames=store.meta.clips.num_frames,
        damage=list(lines),
        num_bytes=tree_bytes(path),
        seconds=time.perf_counter() - started,
    )


def refuse_damage(path: str | Path) -> None:
    """Check every byte of a store.

    Raises:
        StoreError: See `verify`; or any damage.
    """
    damage = verify(path).damage
    if damage:
        more = f", and {len(damage) - 1} more" if len(damage) > 1 else ""
        raise StoreError(f"{path} is damaged: {damage[0]}{more}; convert it again")


def _damaged_chunks(store: Store, workers: int, progress: Progress | None) -> list[int]:
    """Numbers of the chunks whose bytes are not those that were written."""
    num_chunks = len(store.chunks["crc32c"])
    firsts = range(0, num_chunks, CHUNKS_PER_TASK)
    chunk_frames, num_frames = store.layout.chunk_frames or 1, store.meta.clips.num_frames
    damaged: list[int] = []
    with ThreadPoolExecutor(workers) as pool:
        for first, found in zip(firsts, pool.map(partial(_check, store), firsts), strict=True):
            damaged += found
            if progress is not None:
                done = (first + CHUNKS_PER_TASK) * chunk_frames
                progress(min(done, num_frames), num_frames)
    return damaged


def _check(store: Store, first: int) -> list[int]:
    checksums = store.chunks["crc32c"][first : first + CHUNKS_PER_TASK].tolist()
    places = [store.place(number) for number in range(first, first + len(checksums))]
    # One buffer for all: fresh memory for each chunk would cost more than its checksum.
    size = max(place.nbytes + place.trailer_bytes for place in places)
    buffer = np.empty(size, np.uint8)
    return [
        number
        for number, (place, checksum) in enumerate(zip(places, checksums, strict=True), first)
        if not _is_right(place, checksum, buffer)
    ]


def _is_right(place: ChunkPlace, checksum: int, buffer: np.ndarray) -> bool:
    """Whether the bytes of a chunk, and the checksum behind it, are those that were written."""
    if not place.path.is_file():
        return False
    part = buffer[: place.nbytes + place.trailer_bytes]
    descriptor = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.preadv(descriptor, [part.data], place.offset)
    finally:
        os.close(descriptor)
    trailer = checksum.to_bytes(4, "little")[: place.trailer_bytes]
    return (
        found == len(part)
        and google_crc32c.value(part[: place.nbytes]) == checksum
        and part[place.nbytes :].tobytes() == trailer
    )


def _ranges(store: Store, damaged: list[int]) -> Iterator[str]:
    """Neighbouring damaged chunks as one range of frames, with the clips they belong to."""
    chunk_frames, clips = store.layout.chunk_frames or 1, store.meta.clips
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
