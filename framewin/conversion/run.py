"""Carrying out a plan: blocks of frames, decoded and written by threads or by an executor."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from framewin.conversion.audit import window_hint
from framewin.conversion.blocks import BlockGrid, Crew, WrittenBlock, tried_twice
from framewin.conversion.cluster import ClusterCrew, Pool
from framewin.conversion.fingerprints import Fingerprints
from framewin.conversion.journal import Journal, JournalledBlock
from framewin.conversion.plan import ConversionPlan, plan_conversion
from framewin.conversion.read import FrameReader
from framewin.conversion.resume import plan_record, take_up
from framewin.conversion.settings import (
    ConvertOptions,
    ConvertSettings,
    RunSettings,
    with_options,
)
from framewin.conversion.statistics import BlockStatistics
from framewin.errors import SourceError, StoreError
from framewin.schema import FrameFormat, Gap, Progress
from framewin.settings import taken
from framewin.sources.damage import Damaged
from framewin.sources.listing import Skipped
from framewin.stores import StoreWriter, durable
from framewin.stores.chunk_io import StoredChunk
from framewin.stores.chunked_frames import usable_cores
from framewin.stores.layout import ResolvedLayout
from framewin.stores.verify import verify

BLOCKS_AHEAD = 2
BLOCK_BYTES = 2**20
STALLED_SECONDS = 600.0


class StalledError(StoreError):
    """A block that does not end; its thread cannot be stopped."""


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """What a conversion did."""

    source: Path
    dest: Path
    clips: int
    frames: int
    frame_format: FrameFormat
    step: int
    """Difference between the numbers of neighbouring frames."""
    gaps: list[Gap]
    time_unit: str | None
    """Where frame numbers are time stamps: the unit they count since 1970, UTC."""
    damaged: list[Damaged]
    """Frames that were left out because they are damaged."""
    skipped: dict[str, Skipped]
    """Files that are not frames, by reason."""
    bytes_in: int
    """Of all frame files."""
    bytes_out: int
    """Of the store."""
    layout: ResolvedLayout
    """How the frames lie in the store."""
    notes: tuple[str, ...]
    """What is present in the first file of a clip but not applied."""
    hint: str | None
    """What to try where the frames give hardly any window."""
    resumed_frames: int
    """Frames that an interrupted conversion had left, and that were not converted again."""
    seconds: float

    @property
    def compression_ratio(self) -> float:
        """Bytes of the pixels over bytes of the store."""
        return self.frames * self.frame_format.nbytes / self.bytes_out

    @property
    def frames_per_second(self) -> float:
        """Of those that were converted, until the store had its name."""
        return (self.frames - self.resumed_frames) / self.seconds


@with_options(ConvertOptions)
def convert(source: str | Path, dest: str | Path, **options: Any) -> ConvertReport:
    """Pack a folder of frames or clips into a store.

    Frames are taken in the order of the last number in their names, each folder that holds
    frames becomes a clip, as does each video, animation or stack, and missing numbers are
    recorded as gaps that no window crosses. A conversion that was interrupted goes on where it
    was when it is called again: what is on disk is checked, and is not converted again.

    Args:
        source: A folder of frames (one clip), of clips at any depth, or one clip file.
        dest: The store to make, for example `clips.zarr` or `clips.h5`. It appears whole or not
            at all.
        **options: The fields of `framewin.conversion.settings.ConvertOptions`.

    Returns:
        Counts, sizes and times of the conversion.

    Raises:
        SourceError: Frames are missing, damaged, or in doubt; the message names the file.
        FrameFormatError: Two frames differ in shape or dtype; the message names both.
        SourceChangedError: A file changed, or vanished, while it was converted.
        StoreError: `dest` exists or cannot be written, another process is converting to it, an
            interrupted conversion was of something else, or the executor breaks; calling it again
            goes on.
        MissingDependencyError: A video, or zstd or lz4 in HDF5, without the package for it.
        TypeError: `executor` is none.
        ValueError: `workers` or `in_flight` below 1, `executor` together with `workers`,
            `in_flight` without it, an option out of its range, or a no-data value that no pixel
            can have.

    Example:
        >>> report = convert("frames", "clips.zarr")          # doctest: +SKIP
        >>> report.clips, report.frames, str(report.frame_format)  # doctest: +SKIP
        (24, 960, '64x64x1 uint8')
    """
    chosen = vars(ConvertOptions(**options))
    plan = plan_conversion(source, dest, taken(ConvertSettings, chosen))
    return run(plan, taken(RunSettings, chosen))


def run(plan: ConversionPlan, how: RunSettings | None = None) -> ConvertReport:
    """Carry out a plan; see `convert`."""
    how = how or RunSettings()
    started = time.perf_counter()
    pool = None if how.executor is None else Pool(how.executor, how.in_flight)
    hands = pool or how.workers or usable_cores()
    _check_stores(plan)
    try:
        with durable.building(plan.dest, resumes=True) as site:
            plan, resume = take_up(site, plan, restart=how.restart)
            job = _Job(site, plan, hands, how.progress)
            job.run(resume=resume)
            while job.damaged:
                # The rows of all frames behind a damaged one change. Damage is rare, so the
                # conversion begins again without the damaged frames, which are all known now.
                plan = plan.without(job.damaged)
                job = _Job(site, plan, hands, how.progress)
                job.run(resume=False)
    except OSError as exc:
        raise _write_error(plan, exc) from exc
    return ConvertReport(
        source=plan.source,
        dest=plan.dest,
        clips=len(plan.clips),
        frames=plan.meta.clips.num_frames,
        frame_format=plan.meta.frame_format,
        step=plan.meta.clips.step,
        gaps=plan.meta.clips.gaps(),
        time_unit=plan.meta.clips.time_unit,
        damaged=plan.damaged,
        skipped=plan.skipped,
        bytes_in=job.known.num_bytes,
        bytes_out=durable.tree_bytes(plan.dest),
        layout=job.writer.layout,
        notes=plan.notes,
        hint=window_hint(plan.meta.clips),
        resumed_frames=job.resumed_frames,
        seconds=time.perf_counter() - started,
    )


def _write_error(plan: ConversionPlan, exc: OSError) -> StoreError:
    advice = ""
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        needed = f"{plan.needed_bytes:,} bytes"
        advice = f"; all of it needs {needed}; make room and repeat the command to go on"
    return StoreError(f"{plan.dest} cannot be written: {exc.strerror or exc}{advice}")


def _check_stores(plan: ConversionPlan) -> None:
    """Refuse damaged stores as sources: their frames would get new checksums, that are right."""
    for path in {c.path for c in plan.clips if c.is_store}:
        damage = verify(path).damage
        if damage:
            raise SourceError(f"{path} is damaged ({damage[0]}); convert its own source again")


class _Job:
    """Carries out a plan in a partial folder, from the beginning or where another one stopped."""

    def __init__(
        self,
        site: durable.Site,
        plan: ConversionPlan,
        hands: int | Pool,
        progress: Progress | None,
    ) -> None:
        self.site = site
        self.plan = plan
        self.hands = hands
        """How many threads, or who else decodes and writes."""
        self.progress = progress
        self.known = Fingerprints(plan)
        self.writer: StoreWriter
        self.damaged: dict[int, Damaged] = {}
        """Row -> what is wrong with it, where damage leaves gaps."""
        self.resumed_frames = 0

    def run(self, *, resume: bool) -> None:
        """Write all frames and complete the store; if frames are damaged, only find them."""
        plan = self.plan
        self.site.begin(plan_record(plan), resume=resume)
        self.writer = writer = plan.format.Writer(
            self.site, plan.meta, plan.relative_files(), plan.settings.layout
        )
        statistics = BlockStatistics(plan.meta) if plan.settings.statistics else None
        if statistics is not None:
            writer.statistics = statistics.columns()
        self.grid = BlockGrid.of(plan, writer.chunk_frames, BLOCK_BYTES)
        self.journal = Journal(self.site.journal, writer.files.sync)
        try:
            self._write_blocks(self._crew(self._kept_blocks(), statistics))
            self.journal.flush()
            if not self.damaged:
                if statistics is not None:
                    writer.statistics = statistics.columns()
                # The frames leave their place when the store is completed.
                durable.refuse_existing(plan.dest)
                writer.finish()
        except BaseException:
            # A failed sync leaves nothing to record; other errors should not cost what is done.
            with suppress(OSError):
                self.journal.flush()
            raise
        finally:
            self.site.keep = self.journal.synced and not self.damaged
            self.journal.close()
            writer.files.close()
            writer.close()

    def _kept_blocks(self) -> set[int]:
        """Blocks that are on disk as they must be."""
        found: list[list[StoredChunk] | None] = []
        for number in range(self.grid.num_blocks):
            block = self.journal.blocks.get(number)
            same = block is not None and block.files == self._fingerprint(number)
            found.append(block.chunks if block is not None and same else None)
        kept = self.writer.files.resume(found)
        for number in kept:
            for chunk in found[number] or ():
                self.writer.chunks["crc32c"][chunk.number] = chunk.crc32c
            begin, end = self.grid.rows(number)
            self.resumed_frames += end - begin
        return kept

    def _crew(self, kept: set[int], statistics: BlockStatistics | None) -> Crew[Any]:
        """Who decodes and writes all blocks but those that are kept."""
        if isinstance(self.hands, Pool):
            return ClusterCrew(
                self.hands,
                self.plan,
                self.known,
                self.writer,
                self.site,
                statistics,
                self.damaged,
                grid=self.grid,
                kept=kept,
                stalled_seconds=STALLED_SECONDS,
            )
        reader = FrameReader(self.plan, self.known, self.damaged)
        converter = _BlockConverter(reader, self.writer, self.grid, statistics)
        return _Threads(converter, kept, self.hands)

    def _write_blocks(self, crew: Crew[Any]) -> None:
        """Take the blocks of a crew, while what stands beside the frames is written."""
        beside = ThreadPoolExecutor(1, thread_name_prefix="framewin-metadata")
        done, total = self.resumed_frames, self.plan.meta.clips.num_frames
        try:
            metadata = beside.submit(self.writer.write_metadata)
            for block in crew.blocks():
                self._commit(block)
                crew.fill()
                begin, end = self.grid.rows(block.number)
                done += end - begin
                if self.progress is not None:
                    self.progress(done, total)
            metadata.result()
        finally:
            crew.close()
            beside.shutdown()

    def _commit(self, block: WrittenBlock) -> None:
        if self.damaged:
            return
        for chunk in block.chunks:
            self.writer.chunks["crc32c"][chunk.number] = chunk.crc32c
        self.writer.files.commit(block.chunks)
        line = JournalledBlock(block.number, self._fingerprint(block.number), block.chunks)
        self.journal.add(line, sum(chunk.nbytes for chunk in block.chunks))

    def _fingerprint(self, number: int) -> str:
        return self.known.of_rows(*self.grid.rows(number))


class _Threads(Crew[int]):
    """Blocks decoded and written by threads of this process; those that are kept are looked at."""

    def __init__(self, converter: _BlockConverter, kept: set[int], workers: int) -> None:
        super().__init__(iter(range(converter.grid.num_blocks)))
        self._converter = converter
        self._kept = kept
        self._limit = workers * BLOCKS_AHEAD
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="framewin-convert")
        self._stalled = False

    def limit(self) -> int:
        """See `Crew`."""
        return self._limit

    def submit(self, task: int) -> Future[Any]:
        """See `Crew`."""
        if task in self._kept:
            self._converter.reader.skip(*self._converter.grid.rows(task))
            return self._pool.submit(self._converter.look_again, task)
        return self._pool.submit(self._converter, task)

    def written(self, task: int, future: Future[Any]) -> Iterator[WrittenBlock]:
        """See `Crew`."""
        try:
            block = future.result(timeout=STALLED_SECONDS)
        except TimeoutError:
            if future.done():
                raise
            self._stalled = True
            begin, end = self._converter.grid.rows(task)
            raise StalledError(
                f"{next(self._converter.reader.plan.paths(begin, end))} or one of the "
                f"{end - begin - 1} frames behind it was not read within {STALLED_SECONDS:.0f} s; "
                "leave it out by exclude="
            ) from None
        if block is not None:
            yield block

    def close(self) -> None:
        """See `Crew`."""
        self._pool.shutdown(wait=not self._stalled, cancel_futures=True)


class _BlockConverter:
    """Decodes one block of frames into a buffer that its thread keeps, and writes it."""

    def __init__(
        self,
        reader: FrameReader,
        writer: StoreWriter,
        grid: BlockGrid,
        statistics: BlockStatistics | None,
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.grid = grid
        self.local = threading.local()
        self.statistics = statistics

    def __call__(self, number: int) -> WrittenBlock:
        """Convert a block."""
        begin, end = self.grid.rows(number)
        return tried_twice(self.reader.plan, begin, end, lambda: self._convert(number))

    def _convert(self, number: int) -> WrittenBlock:
        begin, end = self.grid.rows(number)
        frames = self._buffer()[: end - begin]
        self.reader.read(begin, end, frames)
        # Once there is damage all is written anew: only the other damaged frames are wanted.
        if self.reader.damaged:
            return WrittenBlock(number, [])
        chunks = self.writer.files.write_block(begin, frames)
        if self.statistics is not None:
            self.statistics.put(begin, frames)
        return WrittenBlock(number, chunks)

    def look_again(self, number: int) -> None:
        """Take the statistics of a block that was written before."""
        if self.statistics is None:
            return
        begin, end = self.grid.rows(number)
        frames = self._buffer()[: end - begin]
        self.writer.files.read_block(begin, frames)
        self.statistics.put(begin, frames)

    def _buffer(self) -> np.ndarray:
        if not hasattr(self.local, "buffer"):
            form = self.reader.plan.meta.frame_format
            self.local.buffer = np.empty((self.grid.block_frames, *form.shape), form.dtype)
        buffer: np.ndarray = self.local.buffer
        return buffer
