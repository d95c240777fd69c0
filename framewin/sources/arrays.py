"""Arrays of HDF5, netCDF4, Zarr and NumPy as frames and clips."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from framewin.arrays import open_frames
from framewin.arrays.clips import clip_table
from framewin.arrays.file_kinds import is_hdf5, not_read, start_of
from framewin.arrays.frames import FrameArray
from framewin.errors import FrameFormatError, SourceError, StoreError
from framewin.sources import kind_suffix, suffix_of
from framewin.sources.info import (
    STORE_KIND,
    FileInfo,
    ReadOptions,
    alpha_of_array,
    check_kind,
    check_pixels,
    clip_fields,
    packing_notes,
)

HEADER_BYTES = 2**16


def header(file: BinaryIO) -> bytes:
    """The beginning of a file; where it does not tell all, its library reads the rest."""
    return file.read(HEADER_BYTES)


def inspect(data: bytes, path: str, options: ReadOptions) -> FileInfo:
    """What the array holds; see `inspect_clip`."""
    with _source_errors(path, options):
        _check_start(data, path, options)
        return _info(_open(path, options, data), path, options)


def decode(data: bytes, out: np.ndarray, path: str, options: ReadOptions) -> None:
    """Read an array of a single frame into `out`, (H, W, C)."""
    with _source_errors(path, options), closing(_open(path, options, data)) as source:
        if source.num_frames > 1:
            raise FrameFormatError(
                f"{path} holds {source.num_frames} frames in a place for single frames; leave it "
                "out by exclude="
            )
        out[:] = source.read(0, 1)[0]


def inspect_clip(path: str, options: ReadOptions) -> FileInfo:
    """How many frames of what kind, and which clips they belong to; no pixel is read.

    Raises:
        SourceError: No such array, axes that do not fit it, or a missing chunk.
    """
    # The time of a folder says nothing of the files in it.
    _opened.cache_clear()
    with _source_errors(path, options):
        if not Path(path).is_dir():
            _check_start(start_of(Path(path)), path, options)
        source = _open(path, options)
        if not options.allow_missing_chunks:
            source.check_chunks()
        return _info(source, path, options)


def read_clip(path: str, options: ReadOptions) -> Iterator[np.ndarray]:
    """All frames in order, (H, W, C) each."""
    return read_clip_from(path, options, 0)


def read_clip_from(path: str, options: ReadOptions, first: int) -> Iterator[np.ndarray]:
    """Frames from `first` on, (H, W, C) each."""
    with _source_errors(path, options), closing(_opened_again(path, options)) as source:
        size = source.frames_per_read
        while first < source.num_frames:
            # To the end of the chunk, so that each chunk is decoded once.
            end = min((first // size + 1) * size, source.end_of_clip(first))
            yield from source.read(first, end)
            first = end


def _open(path: str, options: ReadOptions, data: bytes | None = None) -> FrameArray:
    return open_frames(
        Path(path), array=options.array, axes=options.axes, stream=options.stream, data=data
    )


def _opened_again(path: str, options: ReadOptions) -> FrameArray:
    """An array, which may have thousands of clips, each of which opens it."""
    # What an archive has open is of one reader.
    if suffix_of(path) == ".npz":
        return _open(path, options)
    return _opened(path, options, Path(path).stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _opened(path: str, options: ReadOptions, changed_ns: int) -> FrameArray:
    """An array as it was at that time."""
    return _open(path, options)


def _check_start(start: bytes, path: str, options: ReadOptions) -> None:
    """Refuse a file that is something else than its suffix, or the kind that was stated, says."""
    suffix = suffix_of(path) if suffix_of(path) == ".npz" else kind_suffix(path, options.kind)
    if suffix in _NUMPY_KINDS:
        check_kind(start, path, _NUMPY_KINDS[suffix])
    elif suffix != ".zarr" and not_read(start) is None and not is_hdf5(Path(path)):
        check_kind(start, path, "HDF5")


_NUMPY_KINDS = {".npy": "NumPy", ".npz": "NumPy archive"}


def _info(source: FrameArray, path: str, options: ReadOptions) -> FileInfo:
    form = source.frame_format
    check_pixels(form.height, form.width, path, options)
    of_numpy = kind_suffix(path, options.kind) in _NUMPY_KINDS
    mode = f"{form.channels} channels of {form.dtype}"
    if source.info.is_own:
        # What else it holds is read as of any store.
        return FileInfo(form, STORE_KIND, mode, is_clip=True, frames=source.num_frames)
    of_clips: dict[str, Any] = {}
    if not options.pixels_only:
        clips = clip_table(source, clip_ids=options.clip_ids, frame_numbers=options.frame_numbers)
        several = len(clips.names) > 1 or "n" in source.axes
        coordinates = source.coordinates()
        of_clips = {**clip_fields(clips, named=several), "coordinates": coordinates}
    notes = (*source.info.notes, *packing_notes(source.info.packing))
    return FileInfo(
        form,
        "NumPy" if of_numpy else f"{Path(path).suffix[1:].upper() or 'Zarr'} array",
        mode,
        (*notes, *source.left_out, *source.notes),
        is_clip="t" in source.axes,
        frames=source.num_frames,
        nodata=source.nodata,
        packing=source.info.packing,
        alpha=alpha_of_array(form.channels),
        merged=source.merged,
        **of_clips,
    )


@contextmanager
def _source_errors(path: str, options: ReadOptions) -> Iterator[None]:
    archived = suffix_of(path) == ".npz"
    if archived and options.axes is not None:
        raise SourceError(
            f"{path} is an archive, whose arrays axes= cannot turn; save the array as .npy"
        )
    try:
        yield
    except StoreError as exc:
        of_axes = "; save the array as .npy for that" if archived and "axes=" in str(exc) else ""
        raise SourceError(f"{exc}{of_axes}") from exc
