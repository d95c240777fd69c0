"""Rows of a plan as frames: decoded, checked and brought to the store's format."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from framewin.conversion.fingerprints import KnownFiles, check_same
from framewin.conversion.pixels import PixelRule
from framewin.conversion.source import OpenSource, check_format, check_meaning
from framewin.errors import SourceError
from framewin.sources import frame_decoder, read_frames
from framewin.sources.clips import Clip
from framewin.sources.damage import Damaged, reason_for_gap, unreadable
from framewin.sources.info import ReadOptions
from framewin.stores.durable import tree_bytes

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
        """Read the frames of a plan.

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
            index: _OpenClip(clip) for index, clip in enumerate(plan.clips) if clip.in_order
        }
        self._changed = threading.Condition()
        self._stopped = False

    def read(self, begin: int, end: int, out: np.ndarray) -> int:
        """Fill `out`, (end - begin, H, W, C), with rows [begin, end); returns the bytes read.

        Where damage leaves gaps, a damaged row is noted in `damaged`, and `out` holds nothing
        of use in its place.

        Raises:
            SourceError: A frame is damaged, and that is to stop the conversion.
            FrameFormatError: A frame is not like the first one.
        """
        try:
            return self._read(begin, end, out)
        except BaseException as exc:
            # Nobody waits for files of one frame each, and they may be read again.
            if any(index in self._files for index, _, _ in self.plan.pieces(begin, end)):
                with self._changed:
                    self._stopped = True
                    self._changed.notify_all()
            if isinstance(exc, OSError):
                raise unreadable(next(self.plan.paths(begin, end)), exc) from exc
            raise

    def skip(self, begin: int, end: int) -> None:
        """Leave out rows that are not wanted, in the place of reading them."""
        with self._changed:
            for index, first, last in self.plan.pieces(begin, end):
                if index in self._files:
                    self._files[index].pass_over(first, last)
            self._changed.notify_all()

    def _read(self, begin: int, end: int, out: np.ndarray) -> int:
        bytes_in = 0
        row = begin
        for index, first, last in self.plan.pieces(begin, end):
            frames = out[row - begin : row - begin + last - first]
            if index in self._files:
                clip = self._files[index].clip
                bytes_in += self._read_file(self._files[index], first, last, frames, row)
                # Once, at its end: a Zarr store is a folder of perhaps a million files.
                if self._known is not None and last == len(clip.numbers):
                    self._known.check(index, first, clip.path)
            else:
                known = None if self._known is None else self._known.of_frames(index, first, last)
                paths = self.plan.clips[index].paths(first, last)
                bytes_in += self._read_frames(paths, frames, row, known)
            row += last - first
        return bytes_in

    def _read_frames(
        self, paths: list[str], out: np.ndarray, row: int, known: list[list[int]] | None
    ) -> int:
        bytes_in = 0
        for offset, (path, frame) in enumerate(zip(paths, out, strict=True)):
            try:
                data, found = read_file(path)
                # What is read of a file while it is written may be half of each version.
                if known is not None:
                    check_same(known[offset], found, path)
                self._decode(data, frame, path)
            except (SourceError, OSError) as exc:
                self._note(row + offset, path, exc)
            else:
                bytes_in += len(data)
        return bytes_in

    def _decode(self, data: bytes, out: np.ndarray, path: str) -> None:
        decoder = frame_decoder(path, self._options.kind)
        info = decoder.inspect(data, path, self._pixels)
        form = info.frame_format
        check_meaning(self.plan, info, path)
        if self._plain:
            check_format(self.plan, form, path)
            decoder.decode(data, out, path, self._options)
            return
        check_format(self.plan, self._rule.result_format(form, path, info.alpha), path)
        frame = np.empty(form.shape, form.dtype)
        decoder.decode(data, frame, path, self._options)
        self._rule.apply(frame, out, path, info.alpha)

    def _read_file(
        self, opened: _OpenClip, first: int, last: int, out: np.ndarray, row: int
    ) -> int:
        clip = opened.clip
        alpha = clip.info.alpha
        result = self._rule.result_format(clip.info.frame_format, clip.path, alpha)
        check_format(self.plan, result, clip.path)
        with self._turn(opened, first, last):
            if opened.frames is None:
                opened.begin(self._options)
            for offset, index in enumerate(opened.indices[first:last].tolist()):
                frame = opened.frame(index)
                if isinstance(frame, SourceError):
                    self._note(row + offset, clip.path, frame)
                else:
                    self._rule.apply(frame, out[offset], f"{clip.path} (frame {index})", alpha)
            if last == len(clip.numbers):
                opened.close()
        return file_bytes(clip.path) if first == 0 and opened.indices[0] == 0 else 0

    @contextmanager
    def _turn(self, opened: _OpenClip, first: int, last: int) -> Iterator[None]:
        """Wait until the frames before `first` have been read."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or opened.done == first)
            if self._stopped:
                raise SourceError(f"{opened.clip.path} was not read to its end")
        try:
            yield
        except BaseException:
            opened.close()
            raise
        with self._changed:
            opened.pass_over(first, last)
            self._changed.notify_all()

    def _note(self, row: int, path: str, exc: SourceError | OSError) -> None:
        reason = reason_for_gap(path, exc, gaps=self._gaps)
        clips = self.plan.meta.clips
        rows = np.array([row])
        name = clips.names[int(clips.clips_of(rows)[0])]
        number = int(clips.frame_numbers(rows)[0])
        with self._changed:
            self.damaged[row] = Damaged(path, name, number, reason)


def sample(plan: OpenSource, size: int, count: int) -> Iterator[np.ndarray]:
    """Some runs of at most `size` rows, spread evenly: (n, H, W, C) each, damaged ones left out.

    Of files that are decoded from their beginning, the beginning.
    """
    reader = FrameReader(plan)
    starts = plan.meta.clips.clip_starts
    total = plan.meta.clips.num_frames
    rows = np.linspace(0, max(0, total - size), min(count, -(-total // size))).astype(np.int64)
    owners = plan.meta.clips.clips_of(rows)
    begins = {
        int(starts[owner]) if plan.clips[owner].in_order else int(row)
        for row, owner in zip(rows, owners, strict=True)
    }
    for begin in sorted(begins):
        clip = int(plan.meta.clips.clips_of(np.array([begin]))[0])
        end = min(begin + size, int(starts[clip]) + len(plan.clips[clip].numbers))
        frames = np.empty(
            (end - begin, *plan.meta.frame_format.shape), plan.meta.frame_format.dtype
        )
        try:
            reader.read(begin, end, frames)
        except SourceError:
            continue
        yield frames


class _OpenClip:
    """A file of several frames, somewhere on the way from its first to its last."""

    def __init__(self, clip: Clip) -> None:
        assert clip.indices is not None
        self.clip = clip
        self.indices = clip.indices
        self.frames: Iterator[np.ndarray | SourceError] | None = None
        self.done = 0
        self._passed: dict[int, int] = {}
        self._position = 0
        self._failed: SourceError | None = None

    def pass_over(self, first: int, last: int) -> None:
        """Note that frames [first, last) are done, as soon as those before them are."""
        self._passed[first] = last
        while self.done in self._passed:
            self.done = self._passed.pop(self.done)

    def begin(self, options: ReadOptions) -> None:
        """Start decoding at the clip's first frame, or the file's."""
        first = int(self.indices[0])
        self._position, self.frames = read_frames(self.clip.path, options, first)

    def frame(self, index: int) -> np.ndarray | SourceError:
        """A frame of the file that lies behind those asked for before."""
        frame: np.ndarray | SourceError | None = None
        assert self.frames is not None
        while self._position <= index and self._failed is None:
            try:
                frame = next(self.frames, None)
            except SourceError as exc:
                self._failed = exc
            except OSError as exc:
                self._failed = unreadable(self.clip.path, exc)
            else:
                if frame is None:
                    self._failed = SourceError(
                        f"{self.clip.path} ends behind {self._position} of "
                        f"{self.clip.info.frames} frames; copy it again or remove it"
                    )
                self._position += 1
        if frame is None:
            assert self._failed is not None
            return self._failed
        return frame if isinstance(frame, SourceError) else self._checked(frame, index)

    def _checked(self, frame: np.ndarray, index: int) -> np.ndarray | SourceError:
        """The frame, if it is what the file's header promised: streams may change their size."""
        form = self.clip.info.frame_format
        if frame.shape == form.shape and frame.dtype == form.dtype:
            return frame
        return SourceError(
            f"{self.clip.path} (frame {index}) is {frame.shape} {frame.dtype}, the file's header "
            f"says {form}; split the file where its frames change"
        )

    def close(self) -> None:
        """Release the file."""
        self.frames = iter(())


def file_bytes(path: str) -> int:
    """Bytes of a file, or of all files of a folder."""
    return tree_bytes(Path(path))


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
