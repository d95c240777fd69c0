"""Conversion: source and settings -> plan -> parts of a store -> store -> report."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from framewin.conversion.audit import window_hint
from framewin.conversion.executors import TaskPool
from framewin.conversion.fingerprints import Fingerprints
from framewin.conversion.journal import Journal
from framewin.conversion.plan import ConversionPlan, plan_conversion
from framewin.conversion.read import FrameReader
from framewin.conversion.resume import plan_record, resumed_plan
from framewin.conversion.settings import (
    ConvertOptions,
    ConvertSettings,
    RunSettings,
    with_options,
)
from framewin.conversion.statistics import frame_statistics
from framewin.conversion.tasks import Answer, PartConverter, Tasks, convert_parts
from framewin.errors import FramewinError, SourceChangedError, SourceError, StoreError, one_line
from framewin.schema import STATISTICS, FrameFormat, Gap, Progress
from framewin.settings import taken
from framewin.sources.damage import Damaged
from framewin.sources.listing import Skipped
from framewin.stores import durable
from framewin.stores.chunked_frames import usable_cores
from framewin.stores.layout import ResolvedLayout
from framewin.stores.verify import verify
from framewin.stores.writer import Part, StoreWriter

BLOCKS_AHEAD = 2
"""Blocks under way, per thread."""


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
    pool = None if how.executor is None else TaskPool(how.executor, how.in_flight)
    workers = how.workers or usable_cores()
    _refuse_damaged_stores(plan)
    try:
        with durable.building(plan.dest, resumes=True) as site:
            plan, resumes = resumed_plan(site, plan, restart=how.restart)
            job = _Job(site, plan, pool, workers, how.progress)
            job.run(resumes=resumes)
            while job.damaged:
                # The rows of all frames after a damaged one change. Damage is rare, so the
                # conversion begins again without the damaged frames, which are all known now.
                plan = plan.without(job.damaged)
                job = _Job(site, plan, pool, workers, how.progress)
                job.run(resumes=False)
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
    return StoreError(f"{plan.dest} cannot be written: {one_line(exc)}{advice}")


def _refuse_damaged_stores(plan: ConversionPlan) -> None:
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
        pool: TaskPool | None,
        workers: int,
        progress: Progress | None,
    ) -> None:
        self.site = site
        self.plan = plan
        self.pool = pool
        self.workers = workers
        """Threads of this process, which decode and write where there is no pool."""
        self.progress = progress
        self.known = Fingerprints(plan)
        self.writer: StoreWriter
        self.damaged: dict[int, Damaged] = {}
        """Row -> what is wrong with it, where damage leaves gaps."""
        self.resumed_frames = 0

    def run(self, *, resumes: bool) -> None:
        """Write all frames and complete the store; if frames are damaged, only find them."""
        plan, site = self.plan, self.site
        site.begin(plan_record(plan), resume=resumes)
        self.writer = writer = plan.format.Writer(
            site, plan.meta, plan.relative_files(), plan.settings.layout
        )
        if plan.settings.statistics:
            writer.statistics = dict.fromkeys(STATISTICS, np.full(plan.meta.clips.num_frames, 0.0))
        self.journal = Journal(site.journal, writer.sync)
        try:
            self._write_parts()
            self.journal.flush()
            if not self.damaged:
                if plan.settings.statistics:
                    frames = writer.frames()
                    writer.statistics = frame_statistics(plan.meta, frames, self.workers)
                # The frames leave their place when the store is completed.
                durable.refuse_existing(plan.dest)
                writer.finish()
        except BaseException:
            # A failed sync leaves nothing to record; other errors should not cost what is done.
            with suppress(OSError):
                self.journal.flush()
            raise
        finally:
            site.keep = self.journal.synced and not self.damaged
            self.journal.close()
            writer.close()

    def _write_parts(self) -> None:
        """Write all parts but those that are kept, while the metadata is written."""
        grid = self.writer.grid
        kept = self._kept_parts()
        wanted = [number for number in range(grid.num_parts) if number not in kept]
        done, total = self.resumed_frames, self.plan.meta.clips.num_frames
        beside = ThreadPoolExecutor(1, thread_name_prefix="framewin-metadata")
        try:
            metadata = beside.submit(self.writer.write_metadata)
            for number, part in self._by_tasks(wanted) if self.pool else self._by_threads(wanted):
                if part is not None and not self.damaged:
                    self.writer.commit(part)
                    self.journal.add(part, self.known.of_rows(*grid.rows(number)))
                begin, end = grid.rows(number)
                done += end - begin
                if self.progress is not None:
                    self.progress(done, total)
            metadata.result()
        finally:
            beside.shutdown()

    def _kept_parts(self) -> set[int]:
        """Parts that are on disk as they must be."""
        grid = self.writer.grid
        found = [
            part
            for part, files in self.journal.parts.values()
            if part.number < grid.num_parts and files == self.known.of_rows(*grid.rows(part.number))
        ]
        kept = self.writer.resume(found)
        for number in kept:
            begin, end = grid.rows(number)
            self.resumed_frames += end - begin
        return kept

    def _by_threads(self, numbers: list[int]) -> Iterator[tuple[int, Part | None]]:
        """Write parts in threads of this process."""
        reader = FrameReader(self.plan, self.known, self.damaged)
        converter = PartConverter(reader, self.writer.parts)
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="framewin-convert")
        try:
            yield from converter.parts(numbers, pool, self.workers * BLOCKS_AHEAD)
        finally:
            pool.shutdown(cancel_futures=True)

    def _by_tasks(self, numbers: list[int]) -> Iterator[tuple[int, Part | None]]:
        """Have parts written by tasks in the pool."""
        assert self.pool is not None
        tasks = Tasks(self.plan, self.known, self.writer, self.site.view())
        failures: list[tuple[list[int], Answer]] = []
        runs = tasks.runs(numbers, self.pool.workers)
        for run, answer in self.pool.results(convert_parts, runs, tasks.make):
            self.damaged |= answer.damaged
            if answer.failure is not None:
                failures.append((run, answer))
            parts = {part.number: part for part in answer.parts}
            for number in run[: len(parts)] if answer.failure else run:
                yield number, parts.get(number)
        if failures:
            raise self._explained(*min(failures, key=lambda failure: failure[0]))
        # A worker looks at a folder only after a clip's last frame, when others may not have read
        # theirs.
        for index, clip in enumerate(self.plan.clips):
            if clip.in_order and Path(clip.path).is_dir():
                self.known.check(index, 0, clip.path)

    def _explained(self, numbers: list[int], answer: Answer) -> FramewinError | OSError:
        """The failure; of a file that changed on a worker only, that it did not."""
        assert answer.failure is not None
        if isinstance(answer.failure, SourceChangedError):
            rows = [self.writer.grid.rows(number) for number in numbers]
            for clip, first, last in self.plan.pieces(rows[0][0], rows[-1][1]):
                source = self.plan.clips[clip]
                end_looked_at = first + 1 if source.in_order else last
                for frame, path in enumerate(source.paths(first, end_looked_at), first):
                    self.known.check(clip, frame, path)
            return SourceError(
                f"worker {answer.host} sees other files than there are here: {answer.failure}"
            )
        return answer.failure
