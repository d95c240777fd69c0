"""Frames that must be decoded in chunks to be read."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain

import numpy as np

from framewin.parallel import ordered_map
from framewin.schema import FrameFormat, Int64Array

DEFAULT_CACHE_BYTES = 2**28
SMALL_READ_BYTES = 2**19
CHUNKS_A_TURN = 1024

ReadChunk = Callable[[int], np.ndarray]
"""Chunk number -> its frames, (chunk_frames, H, W, C); the last chunk may hold fewer."""

Sink = Callable[[int, np.ndarray], None]
"""Takes frames (n, H, W, C) and the row of the first."""


@dataclass(frozen=True, slots=True)
class RunReader:
    """How chunks are read where a request costs more than the bytes that it brings."""

    runs: Callable[[list[int]], list[list[int]]]
    """Splits increasing chunk numbers into runs, each of which is read by one request."""
    read_run: Callable[[list[int]], Iterator[np.ndarray]]
    """Reads the chunks of a run and decodes one after the other; called from any thread."""


class ChunkedFrames:
    """Frames in chunks along time, with a bounded cache of decoded chunks.

    Each chunk that a call touches is decoded once, however many of its frames are wanted, and
    chunks are decoded by several threads at once.
    """

    def __init__(
        self,
        read_chunk: ReadChunk,
        frame_format: FrameFormat,
        num_frames: int,
        *,
        chunk_frames: int,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        workers: int | None = None,
        in_runs: RunReader | None = None,
    ) -> None:
        """Decode nothing yet.

        Args:
            read_chunk: Reads and decodes one chunk; called from any thread.
            frame_format: Of every frame.
            num_frames: In all.
            chunk_frames: Frames of a chunk.
            cache_bytes: Decoded chunks that are kept, in bytes; 0 keeps none.
            workers: Threads; by default one per core this process may use.
            in_runs: Reads all chunks that a call lacks at once, in runs instead of one by one.
        """
        if cache_bytes < 0:
            raise ValueError(f"cache_bytes must be >= 0, got {cache_bytes}")
        self.frame_format = frame_format
        self.num_frames = num_frames
        self.chunk_frames = chunk_frames
        self.cache_bytes = cache_bytes
        self._read_chunk = read_chunk
        self._cache = _Cache(cache_bytes)
        self._threads = Threads(workers)
        self._in_runs = in_runs

    def take(self, rows: Int64Array) -> np.ndarray:
        """Copies of frames: rows (n,), in any order, give (n, H, W, C)."""
        out = np.empty((len(rows), *self.frame_format.shape), self.frame_format.dtype)
        chunks, which = np.unique(rows // self.chunk_frames, return_inverse=True)
        by_chunk = np.argsort(which, kind="stable")
        ends = np.searchsorted(which[by_chunk], np.arange(len(chunks)), side="right")

        def copy(place: int, frames: np.ndarray) -> None:
            begin = ends[place - 1] if place else 0
            wanted = by_chunk[begin : ends[place]]
            out[wanted] = frames[rows[wanted] - int(chunks[place]) * self.chunk_frames]

        small = len(chunks) * self.chunk_frames * self.frame_format.nbytes < SMALL_READ_BYTES
        if self._in_runs is None:
            self._each(
                len(chunks), lambda place: copy(place, self._chunk(int(chunks[place]))), small
            )
        else:
            self._each_in_runs(chunks, copy, small)
        return out

    def _each(self, count: int, work: Callable[[int], None], small: bool) -> None:
        """Call work on 0 to count - 1, side by side unless it is not worth it."""

        def part(first: int, end: int) -> None:
            for place in range(first, end):
                work(place)

        self._threads.share(part, count, alone=small)

    def each_chunk(self, rows: Iterable[tuple[int, int]], sink: Sink) -> Iterator[int]:
        """Decode every chunk that touches half-open ranges of rows once, in order, in threads.

        Args:
            rows: The ranges, increasing.
            sink: Called with each chunk's first row and its frames, from any thread.

        Yields:
            The row behind each chunk that is done.
        """
        chunk = self.chunk_frames

        def copy(run: list[int]) -> int:
            done = 0
            for number, frames in zip(run, self._read_run(run), strict=True):
                sink(number * chunk, frames)
                done = number * chunk + len(frames)
            return done

        numbers = [np.arange(begin // chunk, -(-end // chunk)) for begin, end in rows]
        wanted = np.unique(np.concatenate(numbers)).tolist()
        turns = (self._runs(wanted[a:b]) for a, b in pieces(len(wanted), CHUNKS_A_TURN))
        with ThreadPoolExecutor(self._threads.workers) as pool:
            yield from ordered_map(pool, copy, chain.from_iterable(turns), CHUNKS_A_TURN)

    def _runs(self, numbers: list[int]) -> list[list[int]]:
        return (
            [[number] for number in numbers]
            if self._in_runs is None
            else self._in_runs.runs(numbers)
        )

    def _read_run(self, run: list[int]) -> Iterator[np.ndarray]:
        if self._in_runs is not None:
            return self._in_runs.read_run(run)
        return (self._read_chunk(number) for number in run)

    def _each_in_runs(
        self, chunks: Int64Array, copy: Callable[[int, np.ndarray], None], small: bool
    ) -> None:
        """Call copy with the place and frames of each chunk; those that are not in the cache are
        read side by side, and no more of them held than there are threads."""
        known: list[tuple[int, np.ndarray]] = []
        lacking: dict[int, int] = {}
        for place, number in enumerate(chunks.tolist()):
            frames = self._cache.get(number)
            if frames is None:
                lacking[number] = place
            else:
                known.append((place, frames))

        def bring(run: list[int]) -> None:
            for number, frames in zip(run, self._read_run(run), strict=True):
                self._cache.put(number, frames)
                copy(lacking[number], frames)

        self._each(len(known), lambda each: copy(*known[each]), small)
        list(self._threads.pool.map(bring, self._runs(list(lacking))))

    def _chunk(self, number: int) -> np.ndarray:
        frames = self._cache.get(number)
        if frames is None:
            frames = self._read_chunk(number)
            self._cache.put(number, frames)
        return frames


class Threads:
    """Threads that are started when they are first needed, and again in a forked process."""

    def __init__(self, workers: int | None = None) -> None:
        """Start none yet; by default there will be one per core this process may use."""
        self.workers = workers or usable_cores()
        self._pool: tuple[int, ThreadPoolExecutor] | None = None

    @property
    def pool(self) -> ThreadPoolExecutor:
        """The threads of this process."""
        # A pool does not survive a fork: its threads are not there in the child.
        if self._pool is None or self._pool[0] != os.getpid():
            pool = ThreadPoolExecutor(self.workers, thread_name_prefix="framewin-read")
            self._pool = (os.getpid(), pool)
        return self._pool[1]

    def share(self, work: Callable[[int, int], None], count: int, *, alone: bool) -> None:
        """Call work(first, end) on parts of [0, count), side by side unless it is not worth it."""
        parts = min(self.workers, count)
        if parts <= 1 or alone:
            work(0, count)
            return
        bounds = [count * part // parts for part in range(parts + 1)]
        list(self.pool.map(work, bounds[:-1], bounds[1:]))


class _Cache:
    """The chunks used last, up to a number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._chunks: OrderedDict[int, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, number: int) -> np.ndarray | None:
        with self._lock:
            frames = self._chunks.get(number)
            if frames is not None:
                self._chunks.move_to_end(number)
            return frames

    def put(self, number: int, frames: np.ndarray) -> None:
        with self._lock:
            if number in self._chunks or frames.nbytes > self._max_bytes:
                return
            self._chunks[number] = frames
            self._bytes += frames.nbytes
            while self._bytes > self._max_bytes:
                _, oldest = self._chunks.popitem(last=False)
                self._bytes -= oldest.nbytes


def usable_cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def pieces(total: int, size: int) -> Iterator[tuple[int, int]]:
    """Half-open ranges of at most `size` that cover [0, total).

    >>> list(pieces(5, 2))
    [(0, 2), (2, 4), (4, 5)]
    """
    for begin in range(0, total, size):
        yield begin, min(begin + size, total)
