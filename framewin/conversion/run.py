"""Carrying out a plan: blocks of frames, decoded and written by threads."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from framewin.conversion.plan import (
    ConversionPlan,
    Progress,
    check_format,
    plan_conversion,
    unreadable,
)
from framewin.errors import StoreError
from framewin.schema import FrameFormat, Gap
from framewin.sources import decoder_for
from framewin.sources.listing import Skipped
from framewin.stores import StoreWriter, durable
from framewin.stores.chunked import usable_cores
from framewin.stores.chunks import StoredChunk
from framewin.stores.codecs import NONE, Layout

BLOCKS_AHEAD = 2
BLOCK_BYTES = 2**20
SMALL_FILE_BYTES = 2**16
LARGE_READ_BYTES = 2**23


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
) -> ConvertReport:
    """Pack a folder of PNG frames into a store.

    Frames are taken in the order of the last number in their names, each folder that holds
    frames becomes a clip, and missing numbers are recorded as gaps that no window crosses.

    Args:
        source: A folder of frames (one clip) or of clip folders at any depth.
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

    Returns:
        Counts, sizes and times of the conversion.

    Raises:
        SourceError: Frames are missing, damaged, or in doubt; the message names the file.
        FrameFormatError: Two frames differ in shape or dtype; the message names both.
        StoreError: `dest` exists or cannot be written.
        MissingDependencyError: zstd or lz4 in HDF5 without hdf5plugin.
        ValueError: `workers` below 1, an unknown format or compression, a level that it does not
            have, or a no-data value that no pixel can have.

    Example:
        >>> report = convert("frames", "clips.zarr")          # doctest: +SKIP
        >>> report.clips, report.frames, str(report.frame_format)  # doctest: +SKIP
        (24, 960, '64x64x1 uint8')
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be >= 1, got {workers}")
    layout = Layout(compression, level, chunk_frames)
    plan = plan_conversion(source, dest, format=format, layout=layout, nodata=nodata)
    return run(plan, workers=workers, progress=progress)


def run(
    plan: ConversionPlan, *, workers: int | None = None, progress: Progress | None = None
) -> ConvertReport:
    """Carry out a plan; see `convert`."""
    started = time.perf_counter()
    workers = workers or usable_cores()
    try:
        with durable.building(plan.dest) as store:
            writer = plan.format.Writer(store, plan.meta, plan.relative_files(), plan.layout)
            try:
                bytes_in = _write_blocks(plan, writer, workers, progress)
                writer.finish()
                layout = writer.layout
            finally:
                writer.close()
    except OSError as exc:
        raise StoreError(f"{plan.dest} cannot be written: {exc.strerror or exc}") from exc
    return ConvertReport(
        source=plan.source,
        dest=plan.dest,
        clips=len(plan.listed),
        frames=plan.meta.clips.num_frames,
        frame_format=plan.meta.frame_format,
        step=plan.meta.clips.step,
        gaps=plan.meta.clips.gaps(),
        skipped=plan.skipped,
        bytes_in=bytes_in,
        bytes_out=durable.tree_bytes(plan.dest),
        layout=layout,
        seconds=time.perf_counter() - started,
    )


def _write_blocks(
    plan: ConversionPlan, writer: StoreWriter, workers: int, progress: Progress | None
) -> int:
    """Decode and write all frames; returns the bytes read.

    Only a few blocks are under way at any time, and results are taken in row order, so memory
    does not grow with the source and the first bad frame is the one that is reported.
    """
    total = plan.meta.clips.num_frames
    chunk_bytes = writer.chunk_frames * plan.meta.frame_format.nbytes
    block = writer.chunk_frames * max(1, BLOCK_BYTES // chunk_bytes)
    convert_block = _BlockConverter(plan, writer, block)
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

    def __init__(self, plan: ConversionPlan, writer: StoreWriter, block: int) -> None:
        self.plan = plan
        self.writer = writer
        self.block = block
        self.local = threading.local()

    def __call__(self, first_row: int) -> tuple[int, list[StoredChunk]]:
        end = min(first_row + self.block, self.plan.meta.clips.num_frames)
        frames = self._buffer()[: end - first_row]
        bytes_in = 0
        for path, out in zip(self.plan.paths(first_row, end), frames, strict=True):
            bytes_in += _decode(self.plan, path, out)
        return bytes_in, self.writer.write_block(first_row, frames)

    def _buffer(self) -> np.ndarray:
        if not hasattr(self.local, "buffer"):
            frame_format = self.plan.meta.frame_format
            self.local.buffer = np.empty((self.block, *frame_format.shape), frame_format.dtype)
        buffer: np.ndarray = self.local.buffer
        return buffer


def read_frames(plan: ConversionPlan, begin: int, end: int) -> np.ndarray:
    """Decode the frames that become rows [begin, end): (n, H, W, C)."""
    shape = (end - begin, *plan.meta.frame_format.shape)
    frames = np.empty(shape, plan.meta.frame_format.dtype)
    for path, out in zip(plan.paths(begin, end), frames, strict=True):
        _decode(plan, path, out)
    return frames


def _decode(plan: ConversionPlan, path: str, out: np.ndarray) -> int:
    """Read and decode one file; returns its bytes."""
    try:
        data = _read_file(path)
    except OSError as exc:
        raise unreadable(path, exc) from exc
    decoder = decoder_for(path)
    check_format(plan, decoder.frame_format(data, path), path)
    decoder.decode(data, out, path)
    return len(data)


def _read_file(path: str) -> bytes:
    """All bytes of a file, in as few system calls as can be.

    Threads that decode small frames wait for each other at every call that releases the
    interpreter lock; `open(path, "rb").read()` makes twice as many.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = [os.read(descriptor, SMALL_FILE_BYTES)]
        if len(pieces[0]) == SMALL_FILE_BYTES:
            while piece := os.read(descriptor, LARGE_READ_BYTES):
                pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    finally:
        os.close(descriptor)
