"""A raw region of a file as an array of frames, read by the operating system when touched."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from framewin.schema import FrameFormat, Int64Array
from framewin.stores.chunked import Threads

COPY_BYTES = 2**22
SHARED_COPY_BYTES = 2**22
"""Of a copy that several threads make side by side."""
TENSOR_ALIGNMENT = 64
"""Bytes to which the first byte of a tensor must be aligned in memory."""


class MappedFrames:
    """Frames that lie one behind the other in memory that is mapped.

    A file is mapped read-only, so opening costs the same at any size, memory is only used for
    what is touched, and processes that map the same file share it.

    A tensor of the frames may have to begin before them, because its first byte must be
    aligned: `rows` is such a view, in which the frames begin at row `first_row`.
    """

    def __init__(self, mapping: mmap.mmap, offset: int, frame_format: FrameFormat, num_frames: int):
        """View frames at a byte offset of a mapping that the caller has found long enough."""
        frame_bytes = frame_format.nbytes
        self.array = _view(mapping, offset, num_frames, frame_format)
        """(num_frames, H, W, C)."""
        self.rows: np.ndarray | None = None
        """(first_row + num_frames, H, W, C), aligned; None where the offset allows no such view."""
        self.offset = offset
        """Byte of the mapping at which the frames begin."""
        self.first_row = 0
        self._descriptor: int | None = None
        self._threads = Threads()
        if offset % TENSOR_ALIGNMENT == 0:
            self.rows = self.array
        elif offset % frame_bytes == 0:
            self.first_row = offset // frame_bytes
            self.rows = _view(mapping, 0, self.first_row + num_frames, frame_format)

    @classmethod
    def of_file(
        cls, path: Path, frame_format: FrameFormat, num_frames: int, *, offset: int = 0
    ) -> MappedFrames:
        """Map a file that the caller has found long enough, read-only."""
        size = offset + num_frames * frame_format.nbytes
        with path.open("rb") as file:
            mapping = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
            descriptor = os.dup(file.fileno())
        frames = cls(mapping, offset, frame_format, num_frames)
        frames._descriptor = descriptor
        weakref.finalize(frames, os.close, descriptor)
        return frames

    @classmethod
    def in_memory(cls, frame_format: FrameFormat, num_frames: int) -> MappedFrames:
        """Room for frames, to be filled; it takes memory only where it is."""
        mapping = mmap.mmap(-1, num_frames * frame_format.nbytes)
        return cls(mapping, 0, frame_format, num_frames)

    def will_need(self, begin: int, end: int) -> None:
        """Have the system read rows [begin, end) from the disk, without waiting for them.

        Of a file that is mapped, a page that is missing is otherwise read when it is touched, one
        place at a time. Frames in memory need nothing.
        """
        if self._descriptor is not None:
            size = self.array[0].nbytes
            first, count = self.offset + begin * size, (end - begin) * size
            os.posix_fadvise(self._descriptor, first, count, os.POSIX_FADV_WILLNEED)

    def take(self, rows: Int64Array) -> np.ndarray:
        """Copies of frames: rows (n,), known to be there, give (n, H, W, C)."""
        out = np.empty((len(rows), *self.array.shape[1:]), self.array.dtype)

        def copy(first: int, end: int) -> None:
            # With its default mode, `take` would copy into a buffer before `out`.
            np.take(self.array, rows[first:end], axis=0, out=out[first:end], mode="clip")

        self._threads.share(copy, len(rows), alone=out.nbytes < SHARED_COPY_BYTES)
        return out

    def each_chunk(
        self, rows: Iterable[tuple[int, int]], sink: Callable[[int, np.ndarray], None]
    ) -> Iterator[int]:
        """See `ChunkedFrames.each_chunk`."""
        size = max(1, COPY_BYTES // self.array[0].nbytes)
        for begin, end in rows:
            for first in range(begin, end, size):
                part = self.array[first : min(first + size, end)]
                sink(first, part)
                yield first + len(part)


def _view(
    mapping: mmap.mmap, offset: int, num_frames: int, frame_format: FrameFormat
) -> np.ndarray:
    count = num_frames * frame_format.nbytes // np.dtype(frame_format.dtype).itemsize
    flat = np.frombuffer(mapping, frame_format.dtype, count, offset)
    return flat.reshape(num_frames, *frame_format.shape)
