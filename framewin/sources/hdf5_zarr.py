"""Arrays in HDF5, netCDF4 and Zarr, and .npy in any axis order, as frames.

A store that framewin wrote keeps its clips and frame numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from framewin.arrays.containers import (
    FrameArray,
    clip_table,
    is_hdf5,
    not_read,
    open_frames,
    refusing_damage,
)
from framewin.errors import SourceError, StoreError
from framewin.schema import ClipTable
from framewin.sources.info import (
    STORE_KIND,
    ClipPart,
    FileInfo,
    ReadOptions,
    alpha_of_array,
    check_kind,
    check_pixels,
)

_HEADER_BYTES = 32
_READ_BYTES = 2**22


def header(file: BinaryIO) -> bytes:
    """The beginning of a file; its library reads the rest."""
    return file.read(_HEADER_BYTES)


def inspect(data: bytes, path: str, options: ReadOptions) -> FileInfo:
    """What the array holds; see `inspect_clip`."""
    if not_read(data) is None and not is_hdf5(Path(path)):
        check_kind(data, path, "HDF5")
    return inspect_clip(path, options)


def decode(data: bytes, out: np.ndarray, path: str, options: ReadOptions) -> None:
    """Read an array of a single frame into `out`, (H, W, C)."""
    with _source_errors():
        source = _open(path, options)
        if source.num_frames > 1:
            raise SourceError(
                f"{path} is a clip by itself in a place for single frames; leave it out by exclude="
            )
        out[:] = source.read(0, 1)[0]


def inspect_clip(path: str, options: ReadOptions) -> FileInfo:
    """How many frames of what kind, and which clips they belong to; no pixel is read.

    Raises:
        SourceError: No such array, axes that do not fit it, or a missing chunk.
    """
    # The time of a folder says nothing of the files in it.
    _opened.cache_clear()
    with _source_errors():
        source = _open(path, options)
        if not options.allow_missing_chunks:
            source.check_chunks()
        settings = source.found.store_settings()
        alpha = alpha_of_array(source.frame_format.channels)
        if settings is None:
            nodata = source.nodata
            clips = _clips(source, options)
        else:
            with refusing_damage(source.path):
                nodata, clips = settings["nodata"], _stored_clips(source, settings)
                # Before it was recorded, alpha was what stores of files of frames had.
                alpha = settings["conversion"].get("alpha", "straight")
        coordinates = {} if options.pixels_only else source.coordinates()
    form = source.frame_format
    check_pixels(form.height, form.width, path, options)
    several = len(clips.names) > 1 or "n" in source.axes
    return FileInfo(
        form,
        f"{Path(path).suffix[1:].upper() or 'Zarr'} array" if settings is None else STORE_KIND,
        f"{form.channels} channels of {form.dtype}",
        (*source.info.notes, *source.left_out, *source.notes),
        is_clip="t" in source.axes,
        frames=source.num_frames,
        numbers=clips.frame_numbers(np.arange(source.num_frames)),
        step=clips.step,
        tolerance=_tolerance(clips),
        parts=_parts(clips) if several or settings is not None else (),
        time_unit=clips.time_unit,
        nodata=None if nodata is None else float(nodata),
        packing=source.info.packing,
        alpha=alpha,
        merged=source.merged,
        coordinates=coordinates,
    )


def read_clip(path: str, options: ReadOptions) -> Iterator[np.ndarray]:
    """All frames in order, (H, W, C) each."""
    return read_clip_from(path, options, 0)


def read_clip_from(path: str, options: ReadOptions, first: int) -> Iterator[np.ndarray]:
    """Frames from `first` on, (H, W, C) each."""
    with _source_errors():
        # Again for each of its clips, of which there may be thousands.
        source = _opened(path, options.array, options.axes, Path(path).stat().st_mtime_ns)
        size = source.chunk_frames or max(1, _READ_BYTES // source.frame_format.nbytes)
        while first < source.num_frames:
            # To the end of the chunk, so that each chunk is decoded once.
            end = min((first // size + 1) * size, source.end_of_clip(first))
            yield from source.read(first, end)
            first = end


def _open(path: str, options: ReadOptions) -> FrameArray:
    return open_frames(Path(path), array=options.array, axes=options.axes)


@lru_cache(maxsize=8)
def _opened(path: str, array: str | None, axes: str | None, changed_ns: int) -> FrameArray:
    """An array as it was at that time."""
    return open_frames(Path(path), array=array, axes=axes)


def _clips(source: FrameArray, options: ReadOptions) -> ClipTable:
    """The clips of an array of others; counted through where only pixels matter."""
    if options.pixels_only:
        start = np.zeros(1, np.int64)
        return ClipTable((source.name,), start, start, start, source.num_frames, step=1)
    return clip_table(source, clip_ids=options.clip_ids, frame_numbers=options.frame_numbers)


def _stored_clips(source: FrameArray, settings: dict[str, Any]) -> ClipTable:
    """The clips of a store that framewin wrote."""
    names, starts, segments, numbers = (
        source.column(name, source.num_frames)
        for name in ("clips/name", "clips/start_row", "segments/start_row", "frame_number")
    )
    found = ClipTable(
        tuple(str(name) for name in names),
        starts,
        segments,
        numbers[segments],
        source.num_frames,
        step=settings["step"],
        time_unit=settings["time_unit"],
    )
    even = np.array_equal(found.frame_numbers(np.arange(source.num_frames)), numbers)
    return found if even else replace(found, uneven=numbers)


def _tolerance(clips: ClipTable) -> int:
    """How far neighbours in a segment are from the step."""
    if clips.uneven is None:
        return 0
    misses = np.abs(np.diff(clips.uneven) - clips.step)
    return int(np.delete(misses, clips.segment_starts[1:] - 1).max(initial=0))


def _parts(clips: ClipTable) -> tuple[ClipPart, ...]:
    ends = clips.clip_starts + clips.clip_lengths
    return tuple(
        ClipPart(name, begin, end)
        for name, begin, end in zip(
            clips.names, clips.clip_starts.tolist(), ends.tolist(), strict=True
        )
    )


@contextmanager
def _source_errors() -> Iterator[None]:
    try:
        yield
    except StoreError as exc:
        raise SourceError(str(exc)) from exc
