"""Rows of a source as frames: decoded, checked and brought to the store's format."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat

import numpy as np

from framewin.conversion.fingerprints import KnownFiles, check_same
from framewin.conversion.pixels import PixelRule
from framewin.conversion.source import OpenSource, check_frame
from framewin.conversion.store_source import read_store_from
from framewin.errors import SourceError
from framewin.sources import frame_decoder, read_frames
from framewin.sources.clips import Clip
from framewin.sources.damage import Damaged, cut_short, reason_for_gap
from framewin.sources.info import ReadOptions

SMALL_FILE_BYTES = 2**16
LARGE_READ_BYTES = 2**23


class FrameReader:
    """Reads blocks of rows, in several threads.

    Blocks must be started in row order: a file of several frames is decoded from its beginning,
    so the block that holds later frames waits for the one before it.
    """

    def __init__(
        self,
        plan: OpenSource,
        known: KnownFiles | None = None,
        damaged: dict[int, Damaged] | None = None,
    ) -> None:
        """Read the frames of a source.

        Args:
            plan: Which frames, and what becomes of them.
            known: What its files were like; those that have changed since are refused.
            damaged: Where damage is noted.
        """
        self.plan = plan
        self._known = known
        self.damaged: dict[int, Damaged] = {} if damaged is None else damaged
        """Row -> what is wrong with it, where damage leaves gaps."""
        self._options = plan.settings.read_options
        # Planning has read the times and coordinates.
        self._pixels = replace(self._options, pixels_only=True)
        self._rule = PixelRule(plan.settings)
        self._plain = self._rule.changes_nothing
        self._gaps = plan.settings.on_error == "gap"
        self._files = {
            index: _OpenFile(clip, self._options)
            for index, clip in enumerate(plan.clips)
            if clip.in_order
        }
        self._changed = threading.Condition()
        self._stopped = False

    def read(self, begin: int, end: int, out: np.ndarray) -> None:
        """Fill `out`, (end - begin, H, W, C), with rows [begin, end).

        Where damage leaves gaps, a damaged row is noted in `damaged`, and `out` holds nothing
        of use in its place.

        Raises:
            SourceError: A frame is damaged, and that is to stop the conversion.
            FrameFormatError: A frame is not like the first one.
        """
        pieces, row = [*self.plan.pieces(begin, end)], begin
        try:
            for index, first, last in pieces:
                frames = out[row - begin : row - begin + last - first]
                read = self._read_file if index in self._files else self._read_files
                read(index, first, last, frames, row)
                row += last - first
        except BaseException:
            # Nobody waits for files of one frame each, and they may be read again.
            if any(index in self._files for index, _, _ in pieces):
                with self._changed:
                    self._stopped = True
                    self._changed.notify_all()
            raise

    def skip(self, begin: int, end: int) -> None:
        """Leave out rows that are not wanted, in the place of reading them."""
        with self._changed:
            for index, first, last in self.plan.pieces(begin, end):
                if index in self._files:
                    self._files[index].pass_over(first, last)
            self._changed.notify_all()

    def _read_files(self, index: int, first: int, last: int, out: np.ndarray, row: int) -> None:
        """Read files of one frame each."""
        clip = self.plan.clips[index]
        known = None if self._known is None else self._known.of_frames(index, first, last)
        for offset, (path, frame) in enumerate(zip(clip.paths(first, last), out, strict=True)):
            try:
                data, found = read_file(path)
                # What is read of a file while it is written may be half of each version.
                if known is not None:
                    check_same(known[offset], found, path)
                self._decode(data, frame, path)
            except (SourceError, OSError) as exc:
                self._note(row + offset, clip, first + offset, path, exc)

    def _decode(self, data: bytes, out: np.ndarray, path: str) -> None:
        decoder = frame_decoder(path, self._options.kind)
        info = decoder.inspect(data, path, self._pixels)
        form = info.frame_format
        check_frame(self.plan, info, path)
        if self._plain:
            decoder.decode(data, out, path, self._options)
            return
        frame = np.empty(form.shape, form.dtype)
        decoder.decode(data, frame, path, self._options)
        self._rule.apply(frame, out, path, info.alpha)

    def _read_file(self, index: int, first: int, last: int, out: np.ndarray, row: int) -> None:
        """Read frames of one file, once those before them have been read."""
        opened, clip = self._files[index], self.plan.clips[index]
        path, alpha = clip.path, clip.info.alpha
        check_frame(self.plan, clip.info, path)
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or opened.done == first)
            if self._stopped:
                raise SourceError(f"{path} was not read to its end")
        ended = True
        try:
            for offset, place in enumerate(opened.indices[first:last].tolist()):
                frame = opened.frame(place)
                if isinstance(frame, Exception):
                    self._note(row + offset, clip, first + offset, path, frame)
                else:
                    self._rule.apply(frame, out[offset], f"{path} (frame {place})", alpha)
            ended = last == len(clip.numbers)
        finally:
            if ended:
                opened.frames = iter(())
        self.skip(row, row + last - first)
        # Once, at its end: a Zarr store is a folder of perhaps a million files.
        if self._known is not None and ended:
            self._known.check(index, first, path)

    def _note(
        self, row: int, clip: Clip, place: int, path: str, exc: SourceError | OSError
    ) -> None:
        reason = reason_for_gap(path, exc, gaps=self._gaps)
        with self._changed:
            self.damaged[row] = Damaged(path, clip.name, int(clip.numbers[place]), reason)


class _OpenFile:
    """A file of several frames, somewhere on the way from its first to its last."""

    def __init__(self, clip: Clip, options: ReadOptions) -> None:
        assert clip.indices is not None
        self.indices = clip.indices
        self.frames: Iterator[np.ndarray | SourceError | OSError] | None = None
        self.done = 0
        """The frame of the clip before which all were read or are not wanted."""
        self._clip = clip
        self._options = options
        self._passed: dict[int, int] = {}
        self._position = 0

    def pass_over(self, first: int, last: int) -> None:
        """Note that frames [first, last) are done, as soon as those before them are."""
        self._passed[first] = last
        while self.done in self._passed:
            self.done = self._passed.pop(self.done)

    def frame(self, index: int) -> np.ndarray | SourceError | OSError:
        """A frame of the file that lies after those asked for before."""
        path, info = self._clip.path, self._clip.info
        frame: np.ndarray | SourceError | OSError | None = None
        try:
            if self.frames is None:
                begin = int(self.indices[0])
                if self._clip.is_store:
                    self._position, self.frames = begin, read_store_from(path, begin)
                else:
                    self._position, self.frames = read_frames(path, self._options, begin)
            while self._position <= index:
                frame = next(self.frames, None)
                if frame is None:
                    raise cut_short(f"{path} ends after {self._position} of {info.frames} frames")
                self._position += 1
        except (SourceError, OSError) as exc:
            # All frames from here on are lost.
            self.frames, frame = repeat(exc), exc
        assert frame is not None
        form = info.frame_format
        if isinstance(frame, Exception) or (
            frame.shape == form.shape and frame.dtype == form.dtype
        ):
            return frame
        # Streams may change their size.
        return SourceError(
            f"{path} (frame {index}) is {frame.shape} {frame.dtype}, the file's header says "
            f"{form}; split the file where its frames change"
        )


def sample(plan: OpenSource, size: int, count: int) -> Iterator[np.ndarray]:
    """Some runs of at most `size` rows, spread evenly: (n, H, W, C) each, damaged ones left out.

    Of files that are decoded from their beginning, the beginning.
    """
    reader, form, total = FrameReader(plan), plan.meta.frame_format, plan.meta.clips.num_frames
    runs = {}
    for row in np.linspace(0, max(0, total - size), min(count, -(-total // size))).astype(int):
        [(index, first, _)] = plan.pieces(int(row), int(row) + 1)
        start = int(row) - first
        begin = start if plan.clips[index].in_order else int(row)
        runs[begin] = min(begin + size, start + len(plan.clips[index].numbers))
    for begin, end in runs.items():
        frames = np.empty((end - begin, *form.shape), form.dtype)
        try:
            reader.read(begin, end, frames)
        except SourceError:
            continue
        intact = [row not in reader.damaged for row in range(begin, end)]
        if any(intact):
            yield frames[intact]


def read_file(path: str) -> tuple[bytes, tuple[int, int]]:
    """All bytes of a file, and then its size and modification time in ns, in few system calls.

    Threads that decode small frames wait for each other at every call that releases the
    interpreter lock; `open(path, "rb").read()` makes twice as many.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = [os.read(descriptor, SMALL_FILE_BYTES)]
        if len(pieces[0]) == SMALL_FILE_BYTES:
            while piece := os.read(descriptor, LARGE_READ_BYTES):
                pieces.append(piece)
        found = os.fstat(descriptor)
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return data, (found.st_size, found.st_mtime_ns)
    finally:
        os.close(descriptor)
