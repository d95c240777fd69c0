"""Blocks of a conversion in an executor's processes, on this machine or on others.

A task is a run of consecutive blocks: a few, or as many as have to be decoded one after another
because they come from the same video. It opens the sources and the file of frames itself, puts on
disk what it has written before it answers, and may run twice. What is sent to it is the part of the
plan that it converts; what it answers holds no pixels. The process that converts keeps the lock,
the journal and everything beside the frames.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Executor, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from framewin import __version__
from framewin.conversion.blocks import BlockGrid, Crew, WrittenBlock, tried_twice
from framewin.conversion.fingerprints import Fingerprints, KnownFiles
from framewin.conversion.plan import ConversionPlan
from framewin.conversion.read import FrameReader
from framewin.conversion.source import OpenSource
from framewin.conversion.statistics import BlockStatistics
from framewin.errors import (
    FramewinError,
    MissingDependencyError,
    SourceChangedError,
    SourceError,
    StoreError,
)
from framewin.sources import is_seekable
from framewin.sources.damage import Damaged
from framewin.stores import StoreWriter, durable
from framewin.stores.chunked_frames import usable_cores
from framewin.stores.durable import SiteView
from framewin.stores.places import BlockFile, Places, with_data
from framewin.windows.statistics import FrameStatistics

TASK_BYTES = 2**24
"""Pixels of a task: waiting for the disk, and asking for the next, take time once for each."""
TASKS_PER_WORKER = 2
TASKS_AT_LEAST = 4
"""Per worker, where there are blocks for them."""
POLL_SECONDS = 2.0
DESERTED_SECONDS = 600.0
"""After which a cluster without any worker is given up; queues of jobs take minutes to give one."""
IDLE_SECONDS = 1800.0
"""After which workers that neither answer nor write are given up, however large their tasks."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker is sent."""

    plan: OpenSource
    """The rows to read, with absolute paths: `part` of the whole one."""
    known: KnownFiles
    first_row: int
    """Of the store, the plan's first."""
    blocks: list[tuple[int, int, int]]
    """Number, and rows of the store [begin, end), increasing."""
    places: Places
    site: SiteView
    source: str
    """Absolute path of what is converted."""
    shown: dict[str, str]
    """Absolute folder -> folder as the user gave it, for messages."""
    writes: bool
    """Otherwise only damaged frames are looked for."""
    statistics: bool
    version: str = __version__
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Of this task alone: Dask does not repeat what it knows."""


@dataclass(slots=True)
class Answer:
    """What a worker sends back."""

    host: str
    blocks: list[WrittenBlock]
    damaged: dict[int, Damaged]
    """Row of the store -> what is wrong with it."""
    statistics: FrameStatistics | None
    """Of the task's rows."""
    failure: FramewinError | OSError | None
    """What stopped the task behind these blocks."""


class Pool:
    """An executor, and how many tasks it is given at once."""

    def __init__(self, executor: Executor, in_flight: int | None) -> None:
        """Take an executor of the user's, which is never shut down here.

        Raises:
            TypeError: Not an executor.
            ValueError: `in_flight` below 1, or processes that would be forked from TensorFlow.
        """
        if not isinstance(executor, Executor):
            raise TypeError(
                f"executor must be a concurrent.futures.Executor, got {executor!r}; of a Dask "
                "client it is client.get_executor()"
            )
        context = getattr(executor, "_mp_context", None)
        forks = context is not None and context.get_start_method() == "fork"
        if forks and "tensorflow" in sys.modules:
            raise ValueError(
                "executor forks, which hangs once TensorFlow has started; give "
                "ProcessPoolExecutor(mp_context=multiprocessing.get_context('spawn'))"
            )
        if in_flight is not None and in_flight < 1:
            raise ValueError(f"in_flight must be >= 1, got {in_flight}")
        self.executor = executor
        self._in_flight = in_flight
        self._client = getattr(executor, "_client", None)
        self._asked = -POLL_SECONDS
        self._workers = 0

    def limit(self) -> int:
        """Tasks that may be under way."""
        return self._in_flight or TASKS_PER_WORKER * max(1, self.workers())

    def workers(self) -> int:
        """How many tasks run at the same time, as far as the executor tells."""
        if self._client is None:
            told = getattr(self.executor, "num_workers", None)  # mpi4py
            return told or getattr(self.executor, "_max_workers", None) or usable_cores()
        # Workers of Dask come and go.
        if time.monotonic() - self._asked >= POLL_SECONDS:
            with self.clear_errors():
                self._workers = sum(self._client.nthreads().values())
            self._asked = time.monotonic()
        return self._workers

    @contextmanager
    def clear_errors(self) -> Iterator[None]:
        """What an executor raises, which may be anything, as one line."""
        try:
            yield
        except FramewinError:
            raise
        # CancelledError: Dask cancels what it has lost sight of.
        except (Exception, CancelledError) as exc:
            reason = ": ".join([type(exc).__name__, *str(exc).splitlines()[:1]])
            if self._client is not None and self._client.status != "running":
                reason = "the connection to the Dask scheduler is lost"
            raise StoreError(
                f"the executor failed ({reason}); what is done is kept, repeat the command to go on"
            ) from exc

    @property
    def deserted(self) -> bool:
        """Whether there is nobody to run a task."""
        return self._client is not None and self.workers() == 0


class ClusterCrew(Crew[list[int]]):
    """The tasks of a conversion; each is a list of block numbers."""

    def __init__(
        self,
        pool: Pool,
        plan: ConversionPlan,
        known: Fingerprints,
        writer: StoreWriter,
        site: durable.Site,
        statistics: BlockStatistics | None,
        damaged: dict[int, Damaged],
        *,
        grid: BlockGrid,
        kept: set[int],
        stalled_seconds: float,
    ) -> None:
        """Prepare tasks for all blocks but those that are kept.

        Args:
            pool: Who carries them out.
            plan: Of the whole conversion.
            known: What its files were like.
            writer: Has its files of frames open.
            site: Where the store is built; begun.
            statistics: Takes those of all frames, also of the kept blocks; None where they are not
                wanted.
            damaged: Where damage is noted, by row.
            grid: The blocks.
            kept: Blocks that are on disk.
            stalled_seconds: For a block; of a task that takes longer nobody expects an answer.
        """
        self._damaged = damaged
        self._pool = pool
        self._plan = plan
        self._known = known
        self._writer = writer
        self._site = site
        self._view = site.view()
        self._statistics = statistics
        self._rows = grid.rows
        self._kept = kept
        self._stalled_seconds = stalled_seconds
        self._folders = {
            index: clip.path
            for index, clip in enumerate(plan.clips)
            if clip.in_order and Path(clip.path).is_dir()
        }
        """Clips that are folders, and of which no end was seen yet."""
        # Behind damage, or to where its block begins in a file, a worker only decodes.
        files = any(clip.in_order for clip in plan.clips)
        self._writes_always = plan.settings.on_error != "gap" and not files
        block_bytes = plan.meta.frame_format.nbytes * grid.block_frames
        fair = grid.num_blocks // (TASKS_AT_LEAST * max(1, pool.workers()))
        most = max(1, min(TASK_BYTES // block_bytes, fair))
        # Kept blocks are only looked at for their statistics.
        wanted = (n for n in range(grid.num_blocks) if statistics is not None or n not in kept)
        super().__init__(runs(wanted, kept, self._continues, most))

    def limit(self) -> int:
        """See `Crew`."""
        return self._pool.limit()

    def submit(self, task: list[int]) -> Future[Any]:
        """See `Crew`."""
        if task[0] in self._kept:
            nothing: Future[Any] = Future()
            nothing.set_result(None)
            return nothing
        with self._pool.clear_errors():
            return self._pool.executor.submit(convert_blocks, self._task(task))

    def written(self, task: list[int], future: Future[Any]) -> Iterator[WrittenBlock]:
        """See `Crew`."""
        if task[0] in self._kept:
            for number in task:
                self._look_again(number)
            return
        self._wait(task, future)
        with self._pool.clear_errors():
            answer: Answer = future.result()
        self._damaged |= answer.damaged
        if answer.failure is None:
            self._check_folders(self._rows(task[-1])[1])
        if self._statistics is not None and answer.statistics is not None:
            self._statistics.take(self._rows(task[0])[0], answer.statistics)
        yield from self._blocks(answer)
        if answer.failure is not None:
            raise self._explained(task, answer, answer.failure)

    def blocks(self) -> Iterator[WrittenBlock]:
        """See `Crew`."""
        yield from super().blocks()
        self._check_folders(self._plan.meta.clips.num_frames)

    def close(self) -> None:
        """See `Crew`."""
        for _, future in self.running:
            future.cancel()

    def _blocks(self, answer: Answer) -> Iterator[WrittenBlock]:
        """The blocks of an answer, compressed chunks with their data.

        Each file of those is removed before the next is read, so that nothing lies on the disk
        twice but one of them.
        """
        for spill, blocks in groupby(answer.blocks, key=lambda block: block.spill):
            if spill is None:
                yield from blocks
                continue
            offset = 0
            for block in blocks:
                yield replace(block, chunks=with_data(spill, offset, block.chunks), spill=None)
                offset += sum(chunk.nbytes for chunk in block.chunks)
            spill.unlink(missing_ok=True)

    def _check_folders(self, row: int) -> None:
        """Refuse those clips that end before a row and are folders, if they have changed.

        A worker looks only behind a clip's last frame, when others may not have read theirs.
        """
        starts = self._plan.meta.clips.clip_starts
        for clip, path in [*self._folders.items()]:
            if starts[clip] + len(self._plan.clips[clip].numbers) > row:
                break
            self._known.check(clip, 0, path)
            del self._folders[clip]

    def _continues(self, number: int) -> bool:
        """Whether a block has to be decoded together with the one before it.

        A file of several frames is decoded from its beginning. Where a block begins less than a
        block behind that, those frames are decoded twice instead.
        """
        begin, end = self._rows(number)
        [(clip, first, _)] = self._plan.pieces(begin, begin + 1)
        source = self._plan.clips[clip]
        if not source.in_order or first < end - begin:
            return False
        return not is_seekable(source.path, self._plan.settings.kind)

    def _task(self, numbers: list[int]) -> Task:
        blocks = [(number, *self._rows(number)) for number in numbers]
        first, end = blocks[0][1], blocks[-1][2]
        writes = not self._damaged
        wanted = self._statistics is not None and writes
        # The motion of the first frame is that from the one before it.
        if wanted and not self._begins_segment(first):
            first -= 1
        part = self._plan.part(first, end)
        # Not os.path.abspath, to which a link's `..` is the folder that the link lies in.
        folders = {str(clip.folder.absolute()): str(clip.folder) for clip in part.clips}
        clips = [replace(clip, folder=clip.folder.absolute()) for clip in part.clips]
        return Task(
            plan=replace(part, clips=clips),
            known=self._known.part(first, end),
            first_row=first,
            blocks=blocks,
            places=self._writer.files.places(self._site.spill),
            site=self._view,
            source=str(self._plan.source.absolute()),
            shown=folders,
            writes=writes,
            statistics=wanted,
        )

    def _wait(self, task: list[int], future: Future[Any]) -> None:
        """Wait for a task, as long as any task ends or writes, or there is somebody to do it."""
        idle = deserted = 0.0
        signs = self._signs()
        longest = max(len(numbers) for numbers, _ in [(task, future), *self.running])
        patience = longest * self._stalled_seconds
        if self._writes_always:
            patience = min(patience, IDLE_SECONDS)
        while wait([future], POLL_SECONDS).not_done:
            before, signs = signs, self._signs()
            deserted = deserted + POLL_SECONDS if self._pool.deserted else 0.0
            if signs != before:
                idle = 0.0
            elif not deserted:
                idle += POLL_SECONDS
            if deserted >= DESERTED_SECONDS:
                raise StoreError(
                    f"there is no worker for {deserted:.0f} s; start some, and repeat the command "
                    "to go on"
                )
            if idle >= patience:
                path = next(self._plan.paths(*self._rows(task[0])))
                raise StoreError(
                    f"no worker has answered for {idle:.0f} s, {path} is in the first of their "
                    "tasks; repeat the command to go on"
                )

    def _signs(self) -> tuple[int, int]:
        """What changes while workers are at work: tasks done, and when a file was last written."""
        done = sum(future.done() for _, future in self.running)
        times = [0]
        for folder in (self._site.frames, self._site.spill):
            # A worker removes files of its own.
            with suppress(FileNotFoundError):
                times += [path.stat().st_mtime_ns for path in folder.iterdir()]
        return done, max(times)

    def _begins_segment(self, row: int) -> bool:
        starts = self._plan.meta.clips.segment_starts
        return bool(starts[np.searchsorted(starts, row, "right") - 1] == row)

    def _look_again(self, number: int) -> None:
        """Take the statistics of a block that was written before; all before it is on disk."""
        begin, end = self._rows(number)
        form = self._plan.meta.frame_format
        assert self._statistics is not None
        size = self._writer.chunk_frames
        first = begin if self._begins_segment(begin) else begin - size
        frames = np.empty((end - first, *form.shape), form.dtype)
        self._writer.files.read_block(first, frames)
        part = FrameStatistics.empty(end - begin)
        previous = frames[begin - first - 1] if first < begin else None
        part.put(0, frames[begin - first :], previous=previous, nodata=self._plan.meta.nodata)
        self._statistics.take(begin, part)

    def _explained(
        self, numbers: list[int], answer: Answer, failure: FramewinError | OSError
    ) -> FramewinError | OSError:
        """The failure; of a file that changed on a worker only, that it did not."""
        if isinstance(failure, SourceChangedError):
            begin, end = self._rows(numbers[0])[0], self._rows(numbers[-1])[1]
            for clip, first, last in self._plan.pieces(begin, end):
                source = self._plan.clips[clip]
                end_looked_at = first + 1 if source.in_order else last
                paths = source.paths(first, end_looked_at)
                for frame, path in enumerate(paths, first):
                    self._known.check(clip, frame, path)
            return SourceError(
                f"worker {answer.host} sees other files than there are here: {failure}"
            )
        return failure


def runs(
    numbers: Iterable[int], kept: set[int], continues: Callable[[int], bool], most: int
) -> Iterator[list[int]]:
    """Consecutive numbers of blocks that are one task each, kept ones apart from the others.

    >>> list(runs([0, 1, 2, 5, 6], {5}, lambda number: False, most=2))
    [[0, 1], [2], [5], [6]]
    >>> list(runs(range(5), set(), lambda number: number in (1, 2, 4), most=1))
    [[0, 1, 2], [3, 4]]
    """
    run: list[int] = []
    for number in numbers:
        together = run and number == run[-1] + 1 and (number in kept) == (run[-1] in kept)
        if run and not (together and (len(run) < most or continues(number))):
            yield run
            run = []
        run.append(number)
    if run:
        yield run


def convert_blocks(task: Task) -> Answer:
    """Convert the blocks of a task; this is what runs in a worker."""
    answer = Answer(socket.gethostname(), [], {}, None, None)
    try:
        _check_version(task, answer.host)
        _check_source(task, answer.host)
        work = _Work(task, answer)
        work.write()
    except (FramewinError, OSError) as exc:
        answer.failure = answer.failure or _shown(task, exc, answer.host)
    return answer


class _Work:
    """A task under way in a worker."""

    def __init__(self, task: Task, answer: Answer) -> None:
        self.task = task
        self.answer = answer
        self.reader = FrameReader(task.plan, task.known)
        form = task.plan.meta.frame_format
        size = max(end - begin for _, begin, end in task.blocks)
        self.buffer = np.empty((size, *form.shape), form.dtype)
        rows = task.blocks[-1][2] - task.blocks[0][1]
        self.statistics = FrameStatistics.empty(rows) if task.statistics else None

    def write(self) -> None:
        """Write the blocks and put them on disk; those that are not count as not converted."""
        if not self.task.writes:
            self._blocks(None)
            return
        with self._seeing():
            target = self.task.places.open()
        try:
            self._check_run()
            self._blocks(target)
            target.file.sync()
        except (FramewinError, OSError):
            self.answer.blocks = []
            target.discard()
            raise
        finally:
            target.file.close()

    def _check_run(self) -> None:
        """Refuse to write once the run that the task is of has ended."""
        with self._seeing():
            if not self.task.site.is_right():
                raise self._unseen("another conversion is at work there")

    @contextmanager
    def _seeing(self) -> Iterator[None]:
        """What says that the folder of the store is not here, or no longer, as one line."""
        try:
            yield
        except (FileNotFoundError, NotADirectoryError, PermissionError) as exc:
            raise self._unseen(exc.strerror or str(exc)) from exc

    def _unseen(self, reason: str) -> StoreError:
        return StoreError(
            f"worker {self.answer.host} does not see {self.task.site.folder} as it is here "
            f"({reason}); all workers need the file system of the store"
        )

    def _blocks(self, target: BlockFile | None) -> None:
        """Convert block after block; what stops it is left in the answer."""
        task, answer = self.task, self.answer
        try:
            previous = self._frame_before()
            for number, begin, end in task.blocks:
                block = partial(self._block, target, number, begin, end, previous)
                answer.blocks.append(tried_twice(task.plan, *self._here(begin, end), block))
                previous = self.buffer[end - begin - 1].copy() if task.statistics else None
        except FramewinError as exc:
            answer.failure = _shown(task, exc, answer.host)
        answer.damaged = {
            task.first_row + row: _shown_damage(task, damaged)
            for row, damaged in self.reader.damaged.items()
        }
        answer.statistics = self.statistics

    def _here(self, begin: int, end: int) -> tuple[int, int]:
        return begin - self.task.first_row, end - self.task.first_row

    def _frame_before(self) -> np.ndarray | None:
        """The frame before the task's own, (H, W, C), where its statistics need one."""
        begin, _ = self._here(self.task.blocks[0][1], 0)
        if begin == 0:
            return None
        self.reader.read(0, begin, self.buffer[:begin])
        frame: np.ndarray = self.buffer[begin - 1].copy()
        return frame

    def _block(
        self, target: BlockFile | None, number: int, begin: int, end: int, previous: Any
    ) -> WrittenBlock:
        frames = self.buffer[: end - begin]
        self.reader.read(*self._here(begin, end), frames)
        if target is None or self.reader.damaged:
            return WrittenBlock(number, [])
        if self.statistics is not None:
            row, nodata = begin - self.task.blocks[0][1], self.task.plan.meta.nodata
            self.statistics.put(row, frames, previous=previous, nodata=nodata)
        self._check_run()
        # The last that can fail, for the next chunks are spilled behind these.
        chunks = target.write_block(begin, frames)
        return WrittenBlock(number, chunks, target.spill)


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
