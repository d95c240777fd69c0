"""Parts of a store from rows of a plan: decoded and written here, or as tasks elsewhere.

A task is a run of consecutive parts: a few blocks of raw frames, a shard of compressed ones, or as
many parts as have to be decoded one after another because they come from the same video. A process
that runs one opens the sources and the files of frames itself, puts on disk what it has written
before it answers, and may run it twice. What is sent to it is the part of the plan that it
converts; what it answers holds no pixels.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from framewin import __version__
from framewin.conversion.fingerprints import Fingerprints, KnownFiles
from framewin.conversion.read import FrameReader
from framewin.conversion.source import OpenSource
from framewin.errors import (
    FramewinError,
    MissingDependencyError,
    SourceError,
    StoreError,
    one_line,
)
from framewin.parallel import ordered_map, repeated
from framewin.sources import is_seekable
from framewin.sources.damage import Damaged
from framewin.stores.durable import SiteView
from framewin.stores.writer import Chunk, FramePlaces, Part, PartWriter, StoreWriter, discard

TASK_BYTES = 2**24
"""Pixels of a task: waiting for the disk, and asking for the next, take time once for each."""
TASKS_AT_LEAST = 4
"""Per worker, where there are parts for them."""

Result = TypeVar("Result")


class PartConverter:
    """Decodes rows of a plan block after block, and writes them as parts."""

    def __init__(self, reader: FrameReader, writer: PartWriter, first_row: int = 0) -> None:
        """Convert nothing yet; `first_row` of the store is the first of the reader's plan."""
        self.reader = reader
        self._writer = writer
        self._grid = writer.places.grid
        self._first_row = first_row
        self._local = threading.local()

    def parts(
        self, numbers: Iterable[int], pool: Executor | None = None, ahead: int = 1
    ) -> Iterator[tuple[int, Part | None]]:
        """Write parts, increasing, and yield each as soon as its last block is written.

        Once there is damage, all will be written anew: parts are None then, and only the other
        damaged frames are looked for.

        Args:
            numbers: Of the parts; those between them are passed over.
            pool: Decodes blocks; without one it is done here.
            ahead: Blocks that are under way in the pool.
        """
        numbers = list(numbers)
        blocks = ordered_map(pool, self._block, self._blocks(numbers), ahead)
        for number in numbers:
            part = self._writer.write_part(number, islice(blocks, len(self._grid.blocks(number))))
            if self.reader.damaged:
                discard(part)
            yield number, None if self.reader.damaged else part

    def _blocks(self, numbers: list[int]) -> Iterator[tuple[int, int]]:
        passed = numbers[0] if self._first_row else 0
        for number in numbers:
            for between in range(passed, number):
                self.reader.skip(*self._here(*self._grid.rows(between)))
            yield from self._grid.blocks(number)
            passed = number + 1

    def _block(self, rows: tuple[int, int]) -> list[Chunk]:
        begin, end = self._here(*rows)
        return tried_twice(self.reader.plan, begin, end, lambda: self._convert(*rows))

    def _convert(self, begin: int, end: int) -> list[Chunk]:
        frames = self._buffer()[: end - begin]
        self.reader.read(*self._here(begin, end), frames)
        return [] if self.reader.damaged else self._writer.write_block(begin, frames)

    def _here(self, begin: int, end: int) -> tuple[int, int]:
        return begin - self._first_row, end - self._first_row

    def _buffer(self) -> np.ndarray:
        """Memory for a block, which each thread keeps."""
        if not hasattr(self._local, "buffer"):
            form = self.reader.plan.meta.frame_format
            shape = (self._grid.block_frames, *form.shape)
            self._local.buffer = np.empty(shape, form.dtype)
        buffer: np.ndarray = self._local.buffer
        return buffer


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker is sent."""

    plan: OpenSource
    """The rows to read, with absolute paths: `part` of the whole one."""
    known: KnownFiles
    parts: list[int]
    """Numbers, increasing."""
    places: FramePlaces
    site: SiteView
    source: str
    """Absolute path of what is converted."""
    shown: dict[str, str]
    """Absolute folder -> folder as the user gave it, for messages."""
    version: str = __version__
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Of this task alone: Dask does not repeat what it knows."""


@dataclass(slots=True)
class Answer:
    """What a worker sends back."""

    host: str
    parts: list[Part]
    """That are on disk."""
    damaged: dict[int, Damaged]
    """Row of the store -> what is wrong with it."""
    failure: FramewinError | OSError | None
    """What stopped the task after these parts."""


class Tasks:
    """The tasks of a conversion; each is a list of numbers of parts until it is made."""

    def __init__(
        self, plan: OpenSource, known: Fingerprints, writer: StoreWriter, site: SiteView
    ) -> None:
        self._plan = plan
        self._known = known
        self._places = writer.places
        self._site = site

    def runs(self, numbers: Iterable[int], workers: int) -> Iterator[list[int]]:
        """Consecutive parts that are one task each, for so many workers."""
        grid, frame_bytes = self._places.grid, self._plan.meta.frame_format.nbytes
        fair = grid.num_parts // (TASKS_AT_LEAST * max(1, workers))
        most = max(1, min(TASK_BYTES // (grid.part_frames * frame_bytes), fair))
        return runs(numbers, self._continues, most)

    def make(self, numbers: list[int]) -> Task:
        """What a worker needs to write these parts."""
        first, end = self._places.grid.rows(numbers[0])[0], self._places.grid.rows(numbers[-1])[1]
        part = self._plan.part(first, end)
        # Not os.path.abspath, to which a link's `..` is the folder that the link lies in.
        folders = {str(clip.folder.absolute()): str(clip.folder) for clip in part.clips}
        clips = [replace(clip, folder=clip.folder.absolute()) for clip in part.clips]
        return Task(
            plan=replace(part, clips=clips),
            known=self._known.part(first, end),
            parts=numbers,
            places=self._places,
            site=self._site,
            source=str(self._plan.source.absolute()),
            shown=folders,
        )

    def _continues(self, number: int) -> bool:
        """Whether a part has to be decoded together with the one before it.

        A file of several frames is decoded from its beginning. Where a part begins less than a
        part after that, those frames are decoded twice instead.
        """
        begin, end = self._places.grid.rows(number)
        [(clip, first, _)] = self._plan.pieces(begin, begin + 1)
        source = self._plan.clips[clip]
        if not source.in_order or first < end - begin:
            return False
        return not is_seekable(source.path, self._plan.settings.kind)


def runs(
    numbers: Iterable[int], continues: Callable[[int], bool], most: int
) -> Iterator[list[int]]:
    """Consecutive numbers of parts that are one task each.

    >>> list(runs([0, 1, 2, 6], lambda number: False, most=2))
    [[0, 1], [2], [6]]
    >>> list(runs(range(5), lambda number: number in (1, 2, 4), most=1))
    [[0, 1, 2], [3, 4]]
    """
    run: list[int] = []
    for number in numbers:
        together = run and number == run[-1] + 1
        if run and not (together and (len(run) < most or continues(number))):
            yield run
            run = []
        run.append(number)
    if run:
        yield run


def convert_parts(task: Task) -> Answer:
    """Convert the parts of a task; this is what runs in a worker."""
    answer = Answer(socket.gethostname(), [], {}, None)
    try:
        _check_version(task, answer.host)
        _check_source(task, answer.host)
        _write(task, answer)
    except (FramewinError, OSError) as exc:
        answer.failure = answer.failure or _shown(task, exc, answer.host)
    return answer


def _write(task: Task, answer: Answer) -> None:
    """Write parts and put them on disk; what stops it is left in the answer."""

    def check() -> None:
        """Refuse to write once the run that the task is of has ended."""
        with _seeing(task, answer.host):
            if not task.site.is_right():
                raise _unseen(task, answer.host, "another conversion is at work there")

    with _seeing(task, answer.host):
        writer = PartWriter(task.places, check=check)
    first_row, _ = task.places.grid.rows(task.parts[0])
    reader = FrameReader(task.plan, task.known)
    try:
        check()
        try:
            for _, part in PartConverter(reader, writer, first_row).parts(task.parts):
                if part is not None:
                    answer.parts.append(writer.settled(part))
        except FramewinError as exc:
            answer.failure = _shown(task, exc, answer.host)
        answer.damaged = {
            first_row + row: _shown_damage(task, damaged) for row, damaged in reader.damaged.items()
        }
        writer.sync()
    except (FramewinError, OSError):
        for part in answer.parts:
            discard(part)
        answer.parts = []
        raise
    finally:
        writer.close()


def tried_twice(plan: OpenSource, begin: int, end: int, attempt: Callable[[], Result]) -> Result:
    """What an attempt at rows [begin, end) returns; what goes wrong unexpectedly may pass.

    Too little memory, for example. A file of several frames, which is decoded from its beginning,
    is tried once, for its decoder has gone on.

    Raises:
        StoreError: It went wrong again; the message names the first file.
    """
    pieces = plan.pieces(begin, end)
    times = 1 if any(plan.clips[clip].in_order for clip, _, _ in pieces) else 2
    try:
        return repeated(attempt, times, lambda exc: not isinstance(exc, FramewinError | OSError))
    except (FramewinError, OSError):
        raise
    except Exception as exc:
        raise StoreError(
            f"{next(plan.paths(begin, end))} or one of the {end - begin - 1} frames behind it "
            f"failed{' twice' if times == 2 else ''} ({one_line(exc, kind=True)})"
        ) from exc


def _check_version(task: Task, host: str) -> None:
    if task.version != __version__:
        raise StoreError(
            f"worker {host} has framewin {__version__}, this is {task.version}; install the same "
            "version everywhere"
        )


def _check_source(task: Task, host: str) -> None:
    try:
        if Path(task.source).is_dir():
            os.scandir(task.source).close()
        else:
            open(task.source, "rb").close()
    except OSError as exc:
        raise SourceError(
            f"worker {host} does not see {task.source} ({exc.strerror}); all workers need the "
            "files that are converted"
        ) from exc


@contextmanager
def _seeing(task: Task, host: str) -> Iterator[None]:
    """What says that the folder of the store is not here, or no longer, as one line."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, PermissionError) as exc:
        raise _unseen(task, host, exc.strerror or str(exc)) from exc


def _unseen(task: Task, host: str, reason: str) -> StoreError:
    return StoreError(
        f"worker {host} does not see {task.site.folder} as it is here ({reason}); all workers "
        "need the file system of the store"
    )


def _shown(task: Task, exc: FramewinError | OSError, host: str) -> FramewinError | OSError:
    """An error with paths as the user gave them; of what the worker lacks, which it is."""
    if isinstance(exc, MissingDependencyError):
        return MissingDependencyError(f"worker {host} {exc}")
    return type(exc)(_shown_text(task, str(exc))) if isinstance(exc, FramewinError) else exc


def _shown_damage(task: Task, damaged: Damaged) -> Damaged:
    file, reason = (_shown_text(task, text) for text in (damaged.file, damaged.reason))
    return replace(damaged, file=file, reason=reason)


def _shown_text(task: Task, text: str) -> str:
    # Of nested folders the inner ones first.
    for absolute in sorted(task.shown, key=len, reverse=True):
        text = text.replace(f"{absolute}{os.sep}", f"{task.shown[absolute]}{os.sep}")
    return text
