"""Comparing a store with the source it was made from, pixel by pixel."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unicodedata import normalize

import numpy as np

from framewin.conversion.read import FrameReader
from framewin.conversion.settings import ConvertSettings
from framewin.conversion.source import OpenSource, open_source
from framewin.errors import (
    FramewinError,
    MissingDependencyError,
    SourceAccessError,
    SourceChangedError,
    SourceError,
)
from framewin.parallel import ordered_map
from framewin.remote import refuse_url
from framewin.schema import ClipTable, Int64Array, Progress, listed
from framewin.sources.damage import Damaged
from framewin.stores import Store, open_store
from framewin.stores.chunked_frames import pieces, usable_cores

BLOCK_BYTES = 2**22
NUMBERS_SHOWN = 5


def compare(
    store: str | Path,
    source: str | Path,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[str]:
    """Decode the frames of a source again, by the settings that the store records, and compare.

    Args:
        store: Made by `framewin convert`.
        source: What it was made from.
        workers: Decoding threads; by default one per core this process may use.
        progress: Called with (frames done, frames in all).

    Returns:
        A line for each clip in which frames differ, or are in one of the two only, or cannot be
        compared because the source is damaged; then what is wrong with the first of those.

    Raises:
        StoreError: The store cannot be read.
        SourceError: The source cannot be read, or this version refuses it.
    """
    refuse_url(store, "framewin fetch it to compare it with its source")
    opened = open_store(store, cache_bytes=0)
    try:
        # Damage ends no comparison: it is told, and the other frames are compared.
        settings = ConvertSettings.from_record(
            opened.meta.conversion, on_error="gap", nodata=opened.meta.nodata
        )
        plan = open_source(source, settings, nodata_in_files=False)
    except (SourceAccessError, SourceChangedError, MissingDependencyError):
        raise
    except (FramewinError, ValueError) as exc:
        if not Path(source).exists():
            raise
        raise SourceError(
            f"{source} cannot be compared with {store}, for this version refuses it: {exc}"
        ) from exc
    here, there = plan.meta.frame_format, opened.meta.frame_format
    if here != there:
        return [f"{source} has frames {here}, the store {there}"]
    places = _places(plan.meta.clips, opened.meta.clips)
    reader = FrameReader(plan)
    differ = np.zeros(len(places), dtype=bool)
    for begin, end, found in _compared(plan, opened, reader, places, workers or usable_cores()):
        differ[begin:end] = found
        if progress is not None:
            progress(end, len(places))
    lacking = places < 0
    lacking[list(reader.damaged)] = False
    extra = np.setdiff1d(np.arange(opened.meta.clips.num_frames), places)
    lost = np.array([row for row in sorted(reader.damaged) if places[row] >= 0], dtype=np.int64)
    return [
        *_lines(plan.meta.clips, np.flatnonzero(differ), f"differ from {source}"),
        *_lines(plan.meta.clips, np.flatnonzero(lacking), f"are in {source}, not in the store"),
        *_lines(opened.meta.clips, extra, f"are in the store, not in {source}"),
        *_lines(plan.meta.clips, lost, f"are damaged in {source}, and were not compared"),
        *_reasons(
            [*plan.damaged, *(reader.damaged[row] for row in sorted(reader.damaged))], opened
        ),
    ]


def _reasons(damaged: list[Damaged], store: Store) -> Iterator[str]:
    """What is wrong with the first of the damaged frames that the store does not know to be so."""
    alone = len(store.meta.clips.names) == 1  # and may have been moved, as in `_places`

    def place(clip: str, number: int | None) -> tuple[str, int | None]:
        return "" if alone else normalize("NFC", clip), number

    recorded = store.meta.conversion.get("damaged", ())
    known = {place(entry["clip"], entry["number"]) for entry in recorded}
    new = [entry.reason for entry in damaged if place(entry.clip, entry.number) not in known]
    yield from new[:NUMBERS_SHOWN]
    if len(new) > NUMBERS_SHOWN:
        yield f"and {len(new) - NUMBERS_SHOWN} more damaged frames or files"


def _places(source: ClipTable, store: ClipTable) -> Int64Array:
    """Row in the store of each row of the source, by clip and frame number; -1 without one."""
    # Stores made before hold names as the file system composed them.
    composed = tuple(normalize("NFC", name) for name in store.names)
    if len(set(composed)) == len(composed):
        store = replace(store, names=composed)
    if len(source.names) == len(store.names) == 1:
        # A single clip has the name of its folder, which may have been moved.
        source = replace(source, names=store.names)
    places = np.full(source.num_frames, -1, dtype=np.int64)
    starts = dict(zip(store.names, store.clip_starts.tolist(), strict=True))
    lengths = dict(zip(store.names, store.clip_lengths.tolist(), strict=True))
    for name, begin, length in zip(
        source.names, source.clip_starts.tolist(), source.clip_lengths.tolist(), strict=True
    ):
        if name in starts:
            rows = np.arange(begin, begin + length)
            stored = np.arange(starts[name], starts[name] + lengths[name])
            _, at_source, at_store = np.intersect1d(
                source.frame_numbers(rows), store.frame_numbers(stored), return_indices=True
            )
            places[rows[at_source]] = stored[at_store]
    return places


def _compared(
    plan: OpenSource, store: Store, reader: FrameReader, places: Int64Array, workers: int
) -> Iterator[tuple[int, int, np.ndarray]]:
    """Blocks of source rows [begin, end), and which of them differ from the store's."""
    frame_format = plan.meta.frame_format
    size = max(1, BLOCK_BYTES // frame_format.nbytes)

    def compared(block: tuple[int, int]) -> tuple[int, int, np.ndarray]:
        begin, end = block
        frames = np.empty((end - begin, *frame_format.shape), frame_format.dtype)
        reader.read(begin, end, frames)
        # Other threads add to what is damaged, so nothing goes through all of it.
        intact = [row not in reader.damaged for row in range(begin, end)]
        wanted = (places[begin:end] >= 0) & intact
        found = np.zeros(end - begin, dtype=bool)
        if not wanted.any():
            return begin, end, found
        stored = store.frames.take(places[begin:end][wanted])
        # By their bytes, for which NaN equals itself.
        here, there = (
            np.ascontiguousarray(part).view(np.uint8).reshape(len(stored), -1)
            for part in (frames[wanted], stored)
        )
        found[wanted] = (here != there).any(axis=1)
        return begin, end, found

    with ThreadPoolExecutor(workers, thread_name_prefix="framewin-compare") as pool:
        yield from ordered_map(pool, compared, pieces(len(places), size), 2 * workers)


def _lines(clips: ClipTable, rows: Int64Array, what: str) -> Iterator[str]:
    """A line for each clip that some rows belong to."""
    owners = clips.clips_of(rows)
    for owner in np.unique(owners).tolist():
        numbers = clips.frame_numbers(rows[owners == owner]).tolist()
        yield f"{clips.names[owner]}: frames {listed(numbers, NUMBERS_SHOWN)} {what}"
