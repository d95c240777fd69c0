"""Carrying out a plan: blocks of frames, decoded and written by threads."""

from __future__ import annotations

import errno
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Unpack

import numpy as np

from framewin.conversion.clips import Damaged, FileClip
from framewin.conversion.fingerprints import Fingerprints
from framewin.conversion.journal import Journal, JournalledBlock
from framewin.conversion.plan import ConversionPlan, Target, plan_conversion
from framewin.conversion.read import FrameReader
from framewin.conversion.resume import plan_record, take_up
from framewin.conversion.settings import ConvertOptions, ConvertSettings
from framewin.conversion.statistics import BlockStatistics
from framewin.errors import FramewinError, SourceError, StoreError
from framewin.schema import FrameFormat, Gap, Progress
from framewin.sources.listing import Skipped
from framewin.stores import StoreWriter, durable
from framewin.stores.chunked import usable_cores
from framewin.stores.chunks import StoredChunk
from framewin.stores.codecs import NONE, Layout
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
    layout: Layout
    """How the frames lie in the store."""
    resumed_frames: int
    """Frames that an interrupted conversion had left, and that were not converted again."""
    seconds: float

    @property
    def compression_ratio(self) -> float:
        """Bytes of the pixels over bytes of the store."""
        return self.frames * self.frame_format.nbytes / self.bytes_out

    @property
    def frames_per_second(self) -> float:
        """From the first frame read to the store's rename."""
        return self.frames / self.seconds


def convert(
    source: str | Path,
    dest: str | Path,
    *,
    format: str | None = None,
    compression: str = NONE,
    level: int | None = None,
    chunk_frames: int | None = None,
    nodata: float | None = None,
    statistics: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
    restart: bool = False,
    **options: Unpack[ConvertOptions],
) -> ConvertReport:
    """Pack a folder of frames or clips into a store.

    Frames are taken in the order of the last number in their names, each folder that holds
    frames becomes a clip, as does each video, animation or stack, and missing numbers are
    recorded as gaps that no window crosses. A conversion that was interrupted goes on where it
    was when it is called again: what is on disk is checked, and is not converted again.

    Args:
        source: A folder of frames (one clip), of clips at any depth, or one clip file.
        dest: The store to make, for example `clips.zarr` or `clips.h5`. It appears whole or not
            at all.
        format: `"zarr"` or `"hdf5"`; by default what the suffix of `dest` says.
        compression: `"none"` gives frames that are mapped, the fastest to read; `"zstd"`,
            `"lz4"` and `"gzip"` give a smaller store whose chunks are decompressed when read.
        level: Of `"zstd"` (1 to 22, 3 by default) and `"gzip"` (1 to 9, 5 by default).
        chunk_frames: Frames of a chunk, by default about 1 MiB of raw frames and 64 KiB of
            compressed ones.
        nodata: Pixel value that stands for no data, kept in the store.
        statistics: Record mean, motion and no-data of each frame, so that `where=` and `weights=`
            of a dataset need not read the frames. Not by default, for conversion is 6 to 30 %
            slower with it, and they can be computed when they are needed.
        workers: Decoding threads; by default one per core this process may use.
        progress: Called with (frames done, frames in all) after each block.
        restart: Begin anew where an interrupted conversion could go on.
        **options: The fields of `framewin.ConvertSettings`, which are named like the options
            of the command line: `size=(64, 64)`, `mode="gray"`, `on_error="gap"`.

    Returns:
        Counts, sizes and times of the conversion.

    Raises:
        SourceError: Frames are missing, damaged, or in doubt; the message names the file.
        FrameFormatError: Two frames differ in shape or dtype; the message names both.
        SourceChangedError: A file changed, or vanished, while it was converted.
        StoreError: `dest` exists or cannot be written, another process is converting to it, or
            an interrupted conversion was of something else.
        MissingDependencyError: A video, or zstd or lz4 in HDF5, without the package for it.
        ValueError: `workers` below 1, an option out of its range, or a no-data value that no
            pixel can have.

    Example:
        >>> report = convert("frames", "clips.zarr")          # doctest: +SKIP
        >>> report.clips, report.frames, str(report.frame_format)  # doctest: +SKIP
        (24, 960, '64x64x1 uint8')
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be >= 1, got {workers}")
    target = Target(format, Layout(compression, level, chunk_frames), nodata, statistics)
    plan = plan_conversion(source, dest, ConvertSettings(**options), target)
    return run(plan, workers=workers, progress=progress, restart=restart)


def run(
    plan: ConversionPlan,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    restart: bool = False,
) -> ConvertReport:
    """Carry out a plan; see `convert`."""
    started = time.perf_counter()
    _check_stores(plan)
    try:
        with durable.building(plan.dest) as site:
            plan, resume = take_up(site, plan, restart=restart)
            job = _Job(site, plan, workers or usable_cores(), progress)
            job.run(resume=resume)
            while job.reader.damaged:
                # The rows of all frames behind a damaged one change. Damage is rare, so the
                # conversion begins again without the damaged frames, which are all known now.
                plan = plan.without(job.reader.damaged)
                job = _Job(site, plan, workers or usable_cores(), progress)
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
        bytes_in=job.bytes_in,
        bytes_out=durable.tree_bytes(plan.dest),
        layout=job.writer.layout,
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
    for path in {c.path for c in plan.clips if isinstance(c, FileClip) and c.is_store}:
        damage = verify(path).damage
        if damage:
            raise SourceError(f"{path} is damaged ({damage[0]}); convert its own source again")


class _Job:
    """Carries out a plan in a partial folder, from the beginning or where another one stopped."""

    def __init__(
        self, site: durable.Site, plan: ConversionPlan, workers: int, progress: Progress | None
    ) -> None:
        self.site = site
        self.plan = plan
        self.workers = workers
        self.progress = progress
        self.known = Fingerprints(plan)
        self.reader = FrameReader(plan, self.known)
        self.writer: StoreWriter
        self.bytes_in = 0
        self.resumed_frames = 0

    def run(self, *, resume: bool) -> None:
        """Write all frames and complete the store; if frames are damaged, only find them."""
        plan = self.plan
        self.site.begin(plan_record(plan), resume=resume)
        self.writer = writer = plan.format.Writer(
            self.site, plan.meta, plan.relative_files(), plan.target.layout
        )
        statistics = BlockStatistics(plan.meta) if plan.target.statistics else None
        if statistics is not None:
            writer.statistics = statistics.columns()
        self.converter = _BlockConverter(self.reader, writer, statistics)
        self.journal = Journal(self.site.journal, writer.files.sync)
        try:
            self._write_blocks(self._kept_blocks())
            self.journal.flush()
            if not self.reader.damaged:
                if self.converter.statistics is not None:
                    writer.statistics = self.converter.statistics.columns()
                writer.finish()
        except BaseException:
            # A failed sync leaves nothing to record; other errors should not cost what is done.
            with suppress(OSError):
                self.journal.flush()
            raise
        finally:
            self.site.keep = self.journal.synced and not self.reader.damaged
            self.journal.close()
            writer.files.close()
            writer.close()

    def _kept_blocks(self) -> set[int]:
        """Blocks that are on disk as they must be."""
        found: list[list[StoredChunk] | None] = []
        for number in range(self.converter.num_blocks):
            block = self.journal.blocks.get(number)
            same = block is not None and block.files == self._fingerprint(number)
            found.append(block.chunks if block is not None and same else None)
        kept = self.writer.files.resume(found)
        for number in kept:
            for chunk in found[number] or ():
                self.writer.chunks["crc32c"][chunk.number] = chunk.crc32c
            begin, end = self.converter.rows(number)
            self.resumed_frames += end - begin
        return kept

    def _write_blocks(self, kept: set[int]) -> None:
        """Decode and write the blocks that are not kept; those are read again for statistics.

        Only a few are under way at any time, and results are taken in row order, so memory
        does not grow with the source and the first bad frame is the one that is reported.
        """
        waiting = iter(range(self.converter.num_blocks))
        running: deque[tuple[int, Future[tuple[int, list[StoredChunk]] | None]]] = deque()
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="framewin-convert")
        beside = ThreadPoolExecutor(1, thread_name_prefix="framewin-metadata")
        done, total = self.resumed_frames, self.plan.meta.clips.num_frames

        def submit_blocks() -> None:
            for number in islice(waiting, self.workers * BLOCKS_AHEAD - len(running)):
                if number in kept:
                    self.reader.skip(*self.converter.rows(number))
                    running.append((number, pool.submit(self.converter.look_again, number)))
                else:
                    running.append((number, pool.submit(self.converter, number)))

        try:
            metadata = beside.submit(self.writer.write_metadata)
            submit_blocks()
            while running:
                number, future = running.popleft()
                written = self._result(number, future)
                if written is not None:
                    self._commit(number, *written)
                submit_blocks()
                if written is not None:
                    begin, end = self.converter.rows(number)
                    done += end - begin
                    if self.progress is not None:
                        self.progress(done, total)
            metadata.result()
        finally:
            pool.shutdown(wait=not self.converter.stalled, cancel_futures=True)
            beside.shutdown()

    def _result(
        self, number: int, future: Future[tuple[int, list[StoredChunk]] | None]
    ) -> tuple[int, list[StoredChunk]] | None:
        try:
            return future.result(timeout=STALLED_SECONDS)
        except TimeoutError:
            if future.done():
                raise
            self.converter.stalled = True
            begin, end = self.converter.rows(number)
            raise StalledError(
                f"{next(self.plan.paths(begin, end))} or one of the {end - begin - 1} frames "
                f"behind it was not read within {STALLED_SECONDS:.0f} s; leave it out by --exclude"
            ) from None

    def _commit(self, number: int, bytes_in: int, chunks: list[StoredChunk]) -> None:
        self.bytes_in += bytes_in
        if self.reader.damaged:
            return
        for chunk in chunks:
            self.writer.chunks["crc32c"][chunk.number] = chunk.crc32c
        self.writer.files.commit(chunks)
        block = JournalledBlock(number, self._fingerprint(number), chunks)
        self.journal.add(block, sum(chunk.nbytes for chunk in chunks))

    def _fingerprint(self, number: int) -> str:
        return self.known.of_rows(*self.converter.rows(number))


class _BlockConverter:
    """Decodes one block of frames into a buffer that its thread keeps, and writes it."""

    def __init__(
        self, reader: FrameReader, writer: StoreWriter, statistics: BlockStatistics | None
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.stalled = False
        frame_bytes = reader.plan.meta.frame_format.nbytes
        self.block = writer.chunk_frames * max(
            1, BLOCK_BYTES // (writer.chunk_frames * frame_bytes)
        )
        self.num_blocks = -(-reader.plan.meta.clips.num_frames // self.block)
        self.local = threading.local()
        self.statistics = statistics

    def rows(self, number: int) -> tuple[int, int]:
        """The rows of a block, half-open."""
        begin = number * self.block
        return begin, min(begin + self.block, self.reader.plan.meta.clips.num_frames)

    def __call__(self, number: int) -> tuple[int, list[StoredChunk]]:
        """Convert a block; returns the bytes read, and its chunks."""
        try:
            return self._convert(number)
        except (FramewinError, OSError):
            raise
        # What else goes wrong in a thread, such as too little memory, may pass.
        except Exception as exc:
            return self._convert_again(number, exc)

    def _convert_again(self, number: int, exc: Exception) -> tuple[int, list[StoredChunk]]:
        begin, end = self.rows(number)
        try:
            return self._convert(number)
        except (FramewinError, OSError):
            raise
        except Exception:
            path = next(self.reader.plan.paths(begin, end))
            raise StoreError(
                f"{path} or one of the {end - begin - 1} frames behind it failed twice "
                f"({type(exc).__name__}: {exc})"
            ) from exc

    def _convert(self, number: int) -> tuple[int, list[StoredChunk]]:
        begin, end = self.rows(number)
        frames = self._buffer()[: end - begin]
        bytes_in = self.reader.read(begin, end, frames)
        # Once there is damage all is written anew: only the other damaged frames are wanted.
        if self.reader.damaged:
            return bytes_in, []
        chunks = self.writer.files.write_block(begin, frames)
        if self.statistics is not None:
            self.statistics.put(begin, frames)
        return bytes_in, chunks

    def look_again(self, number: int) -> None:
        """Take the statistics of a block that was written before."""
        if self.statistics is None:
            return
        begin, end = self.rows(number)
        frames = self._buffer()[: end - begin]
        self.writer.files.read_block(begin, frames)
        self.statistics.put(begin, frames)

    def _buffer(self) -> np.ndarray:
        if not hasattr(self.local, "buffer"):
            form = self.reader.plan.meta.frame_format
            self.local.buffer = np.empty((self.block, *form.shape), form.dtype)
        buffer: np.ndarray = self.local.buffer
        return buffer
