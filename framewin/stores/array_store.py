"""Arrays of frames that others wrote, opened as a dataset reads a store.

An array whose frames lie one behind the other in a file, as in .npy or contiguous HDF5, is mapped
like a raw store; any other is read through its own library, chunk by chunk.
"""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path
from typing import Any

from framewin.arrays import open_frames
from framewin.arrays.clips import Column, clip_table
from framewin.errors import StoreError
from framewin.remote import Location, refuse_url
from framewin.schema import Int64Array, StoreMeta
from framewin.stores.chunked_frames import ChunkedFrames
from framewin.stores.mapped_frames import MappedFrames


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
        if any(member.is_archived for member in source.members):
            raise StoreError(
                f"{path} is an archive, which is decoded from its beginning; convert it, or save "
                "its array as .npy"
            )
        clips = clip_table(
            source, clip_ids=clip_ids, clip_starts=clip_starts, frame_numbers=frame_numbers
        )
        for note in source.notes:
            warnings.warn(f"{path}: not applied: {note}", stacklevel=4)
        stated = source.nodata if nodata is None else nodata
        if stated in source.merged:
            raise ValueError(
                f"{path} has several values of no data, and all are read as {source.nodata:g}; "
                "leave nodata out"
            )
        known = {"packing": dict(source.info.packing), "coordinates": source.coordinates()}
        self.meta = StoreMeta(
            source.frame_format, clips, stated, {name: of for name, of in known.items() if of}
        )
        if not allow_missing_chunks:
            source.check_chunks()
        self.frames = self._open_frames(cache_bytes)
        # Now, not on use: by then other files may lie there.
        self.identity = self._identity()

    def _identity(self) -> str:
        """Changes with the array's files (their sizes and times), axes and clips."""
        named = (str(self.path.resolve()), self.source.name, self.source.axes)
        digest = hashlib.sha256(repr(named).encode())
        clips = self.meta.clips
        digest.update(repr((self.meta.frame_format, clips.names, clips.num_frames)).encode())
        for path in sorted({path for member in self.source.members for path in member.files()}):
            status = path.stat()
            digest.update(repr((str(path.resolve()), status.st_size, status.st_mtime_ns)).encode())
        for rows in (clips.clip_starts, clips.segment_starts, clips.first_numbers):
            digest.update(rows.tobytes())
        return digest.hexdigest()

    def statistics(self) -> None:
        """None are recorded."""

    def source_files(self, rows: Int64Array) -> list[str]:
        """The array and the place of each row in it."""
        return [f"{self.source.name}[{row}]" for row in rows]

    def _open_frames(self, cache_bytes: int) -> MappedFrames | ChunkedFrames:
        frame_format, num_frames = self.meta.frame_format, self.meta.clips.num_frames
        if self.source.place is not None:
            path, offset = self.source.place
            expected = offset + num_frames * frame_format.nbytes
            if path.stat().st_size < expected:
                raise StoreError(
                    f"{path} has {path.stat().st_size} bytes, expected {expected}; it is cut "
                    "short, copy it again"
                )
            return MappedFrames.of_file(path, frame_format, num_frames, offset=offset)
        size = self.source.frames_per_read
        return ChunkedFrames(
            lambda number: self.source.read(number * size, min((number + 1) * size, num_frames)),
            frame_format,
            num_frames,
            chunk_frames=size,
            cache_bytes=cache_bytes,
        )


def open_array(path: str | Location, **options: Any) -> ArrayStore:
    """Open an array of frames that framewin did not write.

    Args:
        path: A Zarr group or array, an HDF5 or netCDF4 file, or a .npy file.
        options: As for `framewin.open_frames`.

    Raises:
        StoreError: No such file or array, axes that do not fit it, values that are not numbers
            of a known kind, clips that do not fit, or a missing chunk.
    """
    refuse_url(path, "arrays that framewin did not write are read from this machine, copy it")
    return ArrayStore(Path(str(path)), **options)
