"""Blocks of a conversion under way, whoever decodes and writes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

from framewin.conversion.source import OpenSource
from framewin.errors import FramewinError, StoreError
from framewin.stores.chunk_io import StoredChunk

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class WrittenBlock:
    """A block that was decoded and, where no frame is damaged, written."""

    number: int
    chunks: list[StoredChunk]
    spill: Path | None = None
    """Where compressed chunks wait for their places, behind those of the blocks before."""


@dataclass(frozen=True, slots=True)
class BlockGrid:
    """Where blocks begin and end: each is of so many frames, but for the last."""

    block_frames: int
    num_frames: int

    @classmethod
    def of(cls, plan: OpenSource, chunk_frames: int, block_bytes: int) -> BlockGrid:
        """Blocks of whole chunks, of about so many bytes."""
        chunk_bytes = chunk_frames * plan.meta.frame_format.nbytes
        return cls(chunk_frames * max(1, block_bytes // chunk_bytes), plan.meta.clips.num_frames)

    @property
    def num_blocks(self) -> int:
        """Blocks in all."""
        return -(-self.num_frames // self.block_frames)

    def rows(self, number: int) -> tuple[int, int]:
        """The rows of a block, half-open."""
        begin = number * self.block_frames
        return begin, min(begin + self.block_frames, self.num_frames)


class Crew(Generic[Task]):
    """Tasks in the order of rows, of which a few are under way at any time.

    So memory does not grow with the source, and the first bad frame is the one that is reported.
    """

    def __init__(self, tasks: Iterator[Task]) -> None:
        self._waiting = tasks
        self.running: deque[tuple[Task, Future[Any]]] = deque()

    def limit(self) -> int:
        """How many tasks may be under way."""
        raise NotImplementedError

    def submit(self, task: Task) -> Future[Any]:
        """Have a task begun."""
        raise NotImplementedError

    def written(self, task: Task, future: Future[Any]) -> Iterator[WrittenBlock]:
        """Wait for a task; yields its blocks, then raises what stopped it."""
        raise NotImplementedError

    def close(self) -> None:
        """Begin no more tasks; also after a failure."""
        raise NotImplementedError

    def fill(self) -> None:
        """Begin as many tasks as may be under way."""
        for task in islice(self._waiting, max(0, self.limit() - len(self.running))):
            self.running.append((task, self.submit(task)))

    def blocks(self) -> Iterator[WrittenBlock]:
        """Every block that is not kept from before, in the order of rows."""
        self.fill()
        while self.running:
            task, future = self.running.popleft()
            yield from self.written(task, future)
            self.fill()


def tried_twice(plan: OpenSource, begin: int, end: int, attempt: Callable[[], Result]) -> Result:
    """What an attempt at rows [begin, end) returns; what goes wrong unexpectedly may pass.

    Too little memory, for example. A file of several frames, which is decoded from its beginning,
    is tried once, for its decoder has gone on.

    Raises:
        StoreError: It went wrong again; the message names the first file.
    """
    pieces = plan.pieces(begin, end)
    times = 1 if any(plan.clips[clip].in_order for clip, _, _ in pieces) else 2
    for _ in range(times):
        try:
            return attempt()
        except (FramewinError, OSError):
            raise
        except Exception as exc:
            last = exc
    raise StoreError(
        f"{next(plan.paths(begin, end))} or one of the {end - begin - 1} frames behind it failed"
        f"{' twice' if times == 2 else ''} ({type(last).__name__}: {last})"
    ) from last
