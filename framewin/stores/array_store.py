"""Arrays of frames that others wrote, opened as a dataset reads a store.

An array whose frames lie one behind the other in a file, as in .npy or contiguous HDF5, is mapped
like a raw store; any other is read through its own library, chunk by chunk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from framewin.containers import ForeignArray, FrameArray, open_frames
from framewin.errors import StoreError
from framewin.schema import ClipTable, Int64Array, StoreMeta
from framewin.stores.chunked import ChunkedFrames
from framewin.stores.mapped import MappedFrames

VALUES_NAMED = 5
READ_BYTES = 2**22

Column = str | Sequence[Any] | npt.NDArray[Any]
"""One value per frame or clip, or the name of an array beside the frames that holds them."""


class ArrayStore:
    """Frames of an array that framewin did not write, opened for reading."""

    def __init__(
        self,
        path: Path,
        *,
        array: str | None = None,
        axes: str | None = None,
        clip_ids: Column | None = None,
        clip_starts: Column | None = None,
        frame_numbers: Column | None = None,
        nodata: float | None = None,
        allow_missing_chunks: bool = False,
        cache_bytes: int,
    ) -> None:
        """Find the frames of an array; see `open_array`."""
        source = open_frames(path, array=array, axes=axes)
        self.path = path
        self.source = source
        clips = _clip_table(source, clip_ids, clip_starts, frame_numbers)
        stated = source.nodata if nodata is None else nodata
        self.meta = StoreMeta(source.frame_format, clips, stated)
        if not allow_missing_chunks:
            source.check_chunks()
        self.frames = self._open_frames(cache_bytes)

    @property
    def identity(self) -> str:
        """Changes with the array's files (their sizes and times), axes and clips."""
        named = (str(self.path.resolve()), self.source.name, self.source.axes)
        digest = hashlib.sha256(repr(named).encode())
        clips = self.meta.clips
        digest.update(repr((self.meta.frame_format, clips.names, clips.num_frames)).encode())
        for path in sorted(self.source.found.files()):
            status = path.stat()
            digest.update(repr((str(path), status.st_size, status.st_mtime_ns)).encode())
        for rows in (clips.clip_starts, clips.segment_starts, clips.first_numbers):
            digest.update(rows.tobytes())
        return digest.hexdigest()

    def source_files(self, rows: Int64Array) -> list[str]:
        """The array and the place of each row in it."""
        return [f"{self.source.name}[{row}]" for row in rows]

    def _open_frames(self, cache_bytes: int) -> MappedFrames | ChunkedFrames:
        frame_format, num_frames = self.meta.frame_format, self.meta.clips.num_frames
        place = self.source.info.place
        if place is not None and self.source.lies_in_order:
            path, offset = place
            expected = offset + num_frames * frame_format.nbytes
            if path.stat().st_size < expected:
                raise StoreError(
                    f"{path} has {path.stat().st_size} bytes, expected {expected}; it is cut "
                    "short, copy it again"
                )
            return MappedFrames.of_file(path, frame_format, num_frames, offset=offset)
        size = self.source.chunk_frames or max(1, READ_BYTES // frame_format.nbytes)
        size = min(size, num_frames)
        return ChunkedFrames(
            lambda number: self.source.read(number * size, min((number + 1) * size, num_frames)),
            frame_format,
            num_frames,
            chunk_frames=size,
            cache_bytes=cache_bytes,
        )


def open_array(path: str | Path, **options: Any) -> ArrayStore:
    """Open an array of frames that framewin did not write.

    Args:
        path: A Zarr group or array, an HDF5 or netCDF4 file, or a .npy file.
        options: As for `FrameWindowDataset`.

    Raises:
        StoreError: No such file or array, axes that do not fit it, values that are not numbers
            of a known kind, clips that do not fit, or a missing chunk.
    """
    return ArrayStore(Path(path), **options)


def _clip_table(
    source: FrameArray,
    clip_ids: Column | None,
    clip_starts: Column | None,
    frame_numbers: Column | None,
) -> ClipTable:
    if clip_ids is not None and clip_starts is not None:
        raise ValueError("clips are told by clip_ids or by clip_starts, not by both")
    path, found, num_frames = source.path, source.found, source.num_frames
    names, starts = [source.name], np.array([0])
    if clip_ids is not None:
        ids = _values(found, clip_ids)
        _check_length(path, "clip_ids", ids, num_frames)
        starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
        names = [str(clip) for clip in ids[starts]]
        if len(set(names)) != len(names):
            twice = next(clip for clip in names if names.count(clip) > 1)
            raise StoreError(f"{path}: the frames of clip {twice} do not follow one another")
    elif clip_starts is not None:
        starts = _values(found, clip_starts).astype(np.int64)
        names = [f"clip{number}" for number in range(len(starts))]
        if len(starts) == 0 or starts[0] != 0 or (np.diff(starts, append=num_frames) < 1).any():
            raise StoreError(
                f"{path}: clip_starts must increase from 0 to below {num_frames}, "
                f"got {starts.tolist()[:VALUES_NAMED]}..."
            )
    numbers = np.arange(num_frames)
    if frame_numbers is not None:
        numbers = _values(found, frame_numbers).astype(np.int64)
        _check_length(path, "frame_numbers", numbers, num_frames)
    clips = np.split(numbers, starts[1:])
    if any((np.diff(clip) < 1).any() for clip in clips):
        raise StoreError(f"{path}: frame_numbers must increase within each clip")
    return ClipTable.from_frame_numbers(names, clips)


def _values(found: ForeignArray, values: Column) -> np.ndarray:
    return found.sibling(values) if isinstance(values, str) else np.asarray(values)


def _check_length(path: Path, what: str, values: np.ndarray, num_frames: int) -> None:
    if values.shape != (num_frames,):
        raise StoreError(f"{path}: {what} has shape {values.shape}, expected ({num_frames},)")
