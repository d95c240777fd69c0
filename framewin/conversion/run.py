"""Carrying out a plan: blocks of frames, decoded and written by threads."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Unpack

import numpy as np

from framewin.conversion.clips import Damaged, FileClip
from framewin.conversion.plan import ConversionPlan, Progress, Target, plan_conversion
from framewin.conversion.read import FrameReader
from framewin.conversion.settings import ConvertOptions, ConvertSettings
from framewin.errors import SourceError, StoreError
from framewin.schema import FrameFormat, Gap
from framewin.sources.listing import Skipped
from framewin.stores import StoreWriter, durable
from framewin.stores.chunked import usable_cores
from framewin.stores.chunks import StoredChunk
from framewin.stores.codecs import NONE, Layout
from framewin.stores.verify import verify

BLOCKS_AHEAD = 2
BLOCK_BYTES = 2**20


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
    workers: int | None = None,
    progress: Progress | None = None,
    **options: Unpack[ConvertOptions],
) -> ConvertReport:
    """Pack a folder of frames or clips into a store.

    Frames are taken in the order of the last number in their names, each folder that holds
    frames becomes a clip, as does each video, animation or stack, and missing numbers are
    recorded as gaps that no window crosses.

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
        workers: Decoding threads; by default one per core this process may use.
        progress: Called with (frames done, frames in all) after each block.
        **options: The fields of `framewin.ConvertSettings`, which are named like the options
            of the command line: `size=(64, 64)`, `mode="gray"`, `on_error="gap"`.

    Returns:
        Counts, sizes and times of the conversion.

    Raises:
        SourceError: Frames are missing, damaged, or in doubt; the message names the file.
        FrameFormatError: Two frames differ in shape or dtype; the message names both.
        StoreError: `dest` exists or cannot be written.
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
    target = Target(format, Layout(compression, level, chunk_frames), nodata)
    plan = plan_conversion(source, dest, ConvertSettings(**options), target)
    return run(plan, workers=workers, progress=progress)


def run(
    plan: ConversionPlan, *, workers: int | None = None, progress: Progress | None = None
) -> ConvertReport:
    """Carry out a plan; see `convert`."""
    _check_stores(plan)
    return _run(plan, workers or usable_cores(), progress, time.perf_counter())


def _run(
    plan: ConversionPlan, workers: int, progress: Progress | None, started: float
) -> ConvertReport:
    reader = FrameReader(plan)
    try:
        with durable.building(plan.dest) as store:
            writer = plan.format.Writer(store, plan.meta, plan.relative_files(), plan.target.layout)
            try:
                bytes_in = _write_blocks(reader, writer, workers, progress)
                if reader.damaged:
                    raise _DamageFound
                writer.finish()
                layout = writer.layout
            finally:
                writer.close()
    except _DamageFound:
        # The rows of all frames behind a damaged one change. Damage is rare, so the conversion
        # begins again without the damaged frames, which are all known by now.
        return _run(plan.without(reader.damaged), workers, progress, started)
    except OSError as exc:
        raise StoreError(f"{plan.dest} cannot be written: {exc.strerror or exc}") from exc
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
        bytes_in=bytes_in,
        bytes_out=durable.tree_bytes(plan.dest),
        layout=layout,
        seconds=time.perf_counter() - started,
    )


def _check_stores(plan: ConversionPlan) -> None:
    """Refuse damaged stores as sources: their frames would get new checksums, that are right."""
    for path in {c.path for c in plan.clips if isinstance(c, FileClip) and c.is_store}:
        damage = verify(path).damage
        if damage:
            raise SourceError(f"{path} is damaged ({damage[0]}); convert its own source again")


def _write_blocks(
    reader: FrameReader, writer: StoreWriter, workers: int, progress: Progress | None
) -> int:
    """Decode and write all frames; returns the bytes read.

    Only a few blocks are under way at any time, and results are taken in row order, so memory
    does not grow with the source and the first bad frame is the one that is reported.
    """
    plan = reader.plan
    total = plan.meta.clips.num_frames
    chunk_bytes = writer.chunk_frames * plan.meta.frame_format.nbytes
    block = writer.chunk_frames * max(1, BLOCK_BYTES // chunk_bytes)
    convert_block = _BlockConverter(reader, writer, block)
    waiting: Iterator[int] = iter(range(0, total, block))
    running: deque[Future[tuple[int, list[StoredChunk]]]] = deque()
    bytes_in = done = 0
    pool = ThreadPoolExecutor(workers, thread_name_prefix="framewin-convert")

    def submit_blocks() -> None:
        free = workers * BLOCKS_AHEAD - len(running)
        running.extend(pool.submit(convert_block, row) for row in islice(waiting, free))

    beside = ThreadPoolExecutor(1, thread_name_prefix="framewin-metadata")
    try:
        metadata = beside.submit(writer.write_metadata)
        submit_blocks()
        while running:
            read, chunks = running.popleft().result()
            bytes_in += read
            submit_blocks()
            writer.commit(chunks)
            done = min(done + block, total)
            if progress is not None:
                progress(done, total)
        metadata.result()
        return bytes_in
    finally:
        pool.shutdown(cancel_futures=True)
        beside.shutdown()


class _BlockConverter:
    """Decodes one block of frames into a buffer that its thread keeps, and writes it."""

    def __init__(self, reader: FrameReader, writer: StoreWriter, block: int) -> None:
        self.plan = reader.plan
        self.reader = reader
        self.writer = writer
        self.block = block
        self.local = threading.local()

    def __call__(self, first_row: int) -> tuple[int, list[StoredChunk]]:
        end = min(first_row + self.block, self.plan.meta.clips.num_frames)
        frames = self._buffer()[: end - first_row]
        bytes_in = self.reader.read(first_row, end, frames)
        # Once there is damage all is written anew: only the other damaged frames are wanted.
        if self.reader.damaged:
            return bytes_in, []
        return bytes_in, self.writer.write_block(first_row, frames)

    def _buffer(self) -> np.ndarray:
        if not hasattr(self.local, "buffer"):
            frame_format = self.plan.meta.frame_format
            self.local.buffer = np.empty((self.block, *frame_format.shape), frame_format.dtype)
        buffer: np.ndarray = self.local.buffer
        return buffer


class _DamageFound(Exception):  # noqa: N818 - no error, but the way out of a block
    """The frames that were written so far do not stay in their rows."""
