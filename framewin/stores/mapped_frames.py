"""A raw region of a file as an array of frames, read by the operating system when touched."""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from framewin.errors import StoreError
from framewin.schema import FrameFormat, Int64Array
from framewin.stores.chunked_frames import Threads

COPY_BYTES = 2**22
SHARED_COPY_BYTES = 2**22
"""Of a copy that several threads make side by side."""
LEAST_ASKED_BYTES = 2**17
"""Of a file at a time: Linux reads no less for one request, and forgets what is beyond its most."""
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
        self._mapping = mapping
        self.array = _view(mapping, offset, num_frames, frame_format)
        """(num_frames, H, W, C)."""
        self.rows: np.ndarray | None = None
        """(first_row + num_frames, H, W, C), aligned; None where the offset allows no such view."""
        self.offset = offset
        """Byte of the mapping at which the frames begin."""
        self.first_row = 0
        self._opened: tuple[Path, os.stat_result] | None = None
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
            opened = os.fstat(file.fileno())
        frames = cls(mapping, offset, frame_format, num_frames)
        frames._opened = (path.absolute(), opened)
        return frames

    @classmethod
    def in_memory(cls, frame_format: FrameFormat, num_frames: int) -> MappedFrames:
        """Room for frames, to be filled; it takes memory only where it is."""
        mapping = mmap.mmap(-1, num_frames * frame_format.nbytes)
        return cls(mapping, 0, frame_format, num_frames)

    def check(self) -> None:
        """Refuse a file that has become shorter: touching what is gone ends the process (SIGBUS).

        It takes a call of the system, so it is done before each use in numpy, and before each pass
        of TensorFlow. A file that is cut while it is read cannot be told in time.
        """
        needed = self.offset + self.array.nbytes
        if self._opened is not None and (found := self._mapping.size()) < needed:
            raise StoreError(
                f"{self._opened[0]} has {found} bytes, it had at "
                f"least {needed} when it was opened; it was cut short or written anew, restore it "
                "and open it again"
            )

    def will_need(self, begin: int, end: int) -> None:
        """Have the system read rows [begin, end) from the disk, without waiting for them.

        Of a file that is mapped, a page that is missing is otherwise read when it is touched, one
        place at a time. Frames in memory need nothing.

        Raises:
            OSError: The file is not where it was, or the system does not take the request.
        """
        if self._asked is not None:
            size = self.array[0].nbytes
            self._asked.read(self.offset + begin * size, self.offset + end * size)

    @cached_property
    def _asked(self) -> _AskedFile | None:
        """Opened when it is first needed, for a process may have few open files."""
        return None if self._opened is None else _AskedFile(*self._opened)

    def take(self, rows: Int64Array) -> np.ndarray:
        """Copies of frames: rows (n,), known to be there, give (n, H, W, C)."""
        self.check()
        out = np.empty((len(rows), *self.array.shape[1:]), self.array.dtype)

        def copy(first: int, end: int) -> None:
            if self.array.flags.aligned:
                # With its default mode, `take` would copy into a buffer before `out`.
                np.take(self.array, rows[first:end], axis=0, out=out[first:end], mode="clip")
            else:
                # Of an array at an odd byte of a file, `take` would copy all of it first.
                out[first:end] = self.array[rows[first:end]]

        self._threads.share(copy, len(rows), alone=out.nbytes < SHARED_COPY_BYTES)
        return out

    def each_chunk(
        self, rows: Iterable[tuple[int, int]], sink: Callable[[int, np.ndarray], None]
    ) -> Iterator[int]:
        """See `ChunkedFrames.each_chunk`."""
        self.check()
        size = max(1, COPY_BYTES // self.array[0].nbytes)
        for begin, end in rows:
            for first in range(begin, end, size):
                part = self.array[first : min(first + size, end)]
                sink(first, part)
                yield first + len(part)


class _AskedFile:
    """A file that the system is asked to read before its mapping is touched."""

    def __init__(self, path: Path, mapped: os.stat_result) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)
        if not os.path.samestat(os.fstat(self._descriptor), mapped):
            raise FileNotFoundError(errno.ENOENT, "another file took its place", str(path))
        self._most = max(LEAST_ASKED_BYTES, readahead_bytes(mapped.st_dev) or 0)

    def read(self, begin: int, end: int) -> None:
        """Bytes [begin, end), in as many requests as it takes to have all of them read."""
        for first in range(begin, end, self._most):
            count = min(self._most, end - first)
            os.posix_fadvise(self._descriptor, first, count, os.POSIX_FADV_WILLNEED)


def readahead_bytes(device: int) -> int | None:
    """What the system reads around a missing page of a file, as set for its disk.

    Args:
        device: Number of the disk, `st_dev` of the file.

    Returns:
        None where it is not known.
    """
    setting = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
    return int(setting.read_text()) * 1024 if setting.exists() else None


def _view(
    mapping: mmap.mmap, offset: int, num_frames: int, frame_format: FrameFormat
) -> np.ndarray:
    count = num_frames * frame_format.nbytes // np.dtype(frame_format.dtype).itemsize
    flat = np.frombuffer(mapping, frame_format.dtype, count, offset)
    return flat.reshape(num_frames, *frame_format.shape)
