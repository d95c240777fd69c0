"""What reading a store will take, before it is read: bytes, seconds, and what to do about them.

Counted, not guessed: the rows of all batches of an epoch are known, so the pages or chunks that
they touch are, and a cache that keeps the last ones used is followed batch by batch. Only of epochs
of more than two million frames, or a hundred groups of blocks, a part is counted, and scaled.

A mapped store is read from the disk in pages, which stay in memory while there is room. Of a
compressed one, whole chunks are decoded, of which `cache_bytes` are kept, and their bytes on the
disk stay in memory, too.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, astuple, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from framewin.conversion.estimate import Estimate, estimate_layout, estimate_layouts
from framewin.dataset import FrameWindowDataset
from framewin.frames import open_frames
from framewin.remote import refuse_url
from framewin.schema import Int64Array, StoreMeta
from framewin.stores import open_store
from framewin.stores.chunked_frames import DEFAULT_CACHE_BYTES, usable_cores
from framewin.stores.layout import NONE, ResolvedLayout
from framewin.stores.mapped_frames import readahead_bytes
from framewin.windows.blocks import MAPPED_GROUP_BYTES, BlockOrder, BlockShape, least_group_bytes
from framewin.windows.order import EpochOrder
from framewin.windows.schedule import BLOCKS, Shuffle

PAGE_BYTES = 4096
COUNTED_FRAMES = 2_000_000
COUNTED_GROUPS = 100
SAMPLED_BATCHES = 200
USUAL_DISK_MBPS = 500.0
READ_AHEAD = 16
NEARLY = 1.1
"""So much slower than the quickest is as good, where it is simpler."""
SHUFFLES: tuple[Shuffle, ...] = (False, True, BLOCKS)


@dataclass(frozen=True, slots=True)
class ReadCost:
    """What an epoch of one shuffling reads from one layout."""

    layout: str
    """none, that is raw, lz4, zstd or gzip."""
    shuffle: Shuffle
    read_bytes: int
    """Pages read, or pixels of the chunks decoded, in the first epoch."""
    amplification: float
    """`read_bytes` over the bytes of all windows; neighbouring windows share frames, so it may be
    less than 1."""
    disk_bytes: int
    """In the first epoch."""
    later_disk_bytes: int
    """In each epoch after it: 0 where all that is read stays in memory."""
    batch_bytes: int
    """Of `read_bytes`, for a batch."""
    first_seconds: float
    """Of the first epoch, at least: by the disk, or by decoding and copying if that is longer."""
    later_seconds: float
    """Of each epoch after it."""
    whole: bool
    """Whether all batches of an epoch were counted; else a part, and scaled."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What `plan` found."""

    path: str
    windows: int
    batches: int
    window_bytes: int
    """Of all windows of an epoch, as a model gets them."""
    frame_bytes: int
    """Of all frames of the store, raw."""
    memory_bytes: int
    """For frames, as given."""
    disk_mbps: float
    """As given, in 10^6 bytes a second."""
    readahead_bytes: int | None
    """What the system reads around a page of a mapped file that is missing, as set for its disk:
    where places are scattered it may read as much for each window, unless `read_ahead` asks for
    them before they are touched. None where it is not known."""
    block_shape: BlockShape
    """Of `"blocks"` in `costs`: a group fits into half of `memory_bytes`, of decoded frames into
    `cache_bytes`. What `ds.block_shape()` says does not depend on them, and may not fit."""
    costs: tuple[ReadCost, ...]
    """Of the store as it is, for each way to shuffle."""
    layouts: tuple[ReadCost, ...]
    """Of layouts it could have, for `shuffle=True` and `"blocks"`."""
    layout: str
    """That it should have."""
    chunk_frames: int
    cache: str | None
    """`"memory"`, `"PATH"` for a file, or None."""
    cache_bytes: int | None
    """Where chunks are decoded without a cache."""
    shuffle: Shuffle
    shuffle_blocks: BlockShape | None
    """Of the layout that is advised; None but for `"blocks"`."""
    read_ahead: int
    reasons: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """All of it as JSON values, shapes of blocks as [windows, blocks]."""
        shapes = {
            name: None if (shape := getattr(self, name)) is None else list(astuple(shape))
            for name in ("block_shape", "shuffle_blocks")
        }
        return asdict(self) | shapes


@dataclass(frozen=True, slots=True)
class _Reading:
    """How frames are read from a layout."""

    layout: ResolvedLayout
    """With nothing left open."""
    stored_share: float
    """Bytes on the disk over those of pixels."""
    decode_rate: float
    """Pixel bytes a second by all cores; infinite where nothing is decoded."""
    copy_rate: float
    """Pixel bytes a second by one core, from memory into batches."""
    memory_bytes: int
    cache_bytes: int

    @property
    def unit_rows(self) -> int:
        return self.layout.chunk_frames if self.layout.compressed else 1

    @property
    def group_bytes(self) -> int:
        """What a group of blocks may take."""
        if self.layout.compressed:
            return self.cache_bytes
        return min(MAPPED_GROUP_BYTES, self.memory_bytes // 2)

    def capacity(self, frame_bytes: int) -> int:
        """Chunks, or frames, that are kept."""
        room = self.cache_bytes if self.layout.compressed else self.memory_bytes
        return room // (self.unit_rows * frame_bytes)

    def nbytes(self, units: Int64Array, dataset: FrameWindowDataset) -> int:
        """Bytes read for chunks or frames, each given once, in increasing order."""
        size = dataset.frame_format.nbytes
        if self.layout.compressed:
            return len(units) * self.unit_rows * size
        offset = 0 if dataset.mapped is None else dataset.mapped.offset
        return pages_of(units, size, offset) * PAGE_BYTES


def plan(
    path: str | Path,
    *,
    batch_size: int = 8,
    input_frames: int = 5,
    predict_frames: int = 5,
    frame_step: int = 1,
    window_stride: int = 1,
    lead_gap: int = 0,
    memory_bytes: int | None = None,
    disk_mbps: float = USUAL_DISK_MBPS,
    cache_bytes: int = DEFAULT_CACHE_BYTES,
) -> ReadPlan:
    """What the batches of an epoch read, and how the store is best laid out and shuffled.

    Reads a few chunks, to see how they compress.

    Args:
        path: A store made by `framewin convert`.
        batch_size: Windows in a batch.
        input_frames: As for `FrameWindowDataset`, as are the next four.
        predict_frames: Likewise.
        frame_step: Likewise.
        window_stride: Likewise.
        lead_gap: Likewise.
        memory_bytes: For frames, in the page cache or in a cache; by default half of the machine's.
        disk_mbps: What the disk reads, in 10^6 bytes a second.
        cache_bytes: Decoded chunks that are kept, in bytes.

    Raises:
        StoreError: No store, or a URL.
        ValueError: A number out of its range, or clips too short for a window.
    """
    refuse_url(path, "its disk is not this machine's; framewin fetch it first")
    memory_bytes = _memory_bytes() // 2 if memory_bytes is None else memory_bytes
    for name, value in (("memory_bytes", memory_bytes), ("disk_mbps", disk_mbps)):
        if not value > 0:
            raise ValueError(f"{name} must be > 0, got {value}")
    dataset = FrameWindowDataset(
        open_frames(path, cache_bytes=cache_bytes),
        input_frames=input_frames,
        predict_frames=predict_frames,
        frame_step=frame_step,
        window_stride=window_stride,
        lead_gap=lead_gap,
    )
    if batch_size < 1 or batch_size > len(dataset):
        raise ValueError(f"batch_size must be in 1..{len(dataset)}, got {batch_size}")
    count = _Counter(dataset, batch_size, disk_mbps)
    present, others = _readings(dataset, memory_bytes, cache_bytes)
    costs = tuple(count.cost(present, shuffle) for shuffle in SHUFFLES)
    layouts = tuple(count.cost(each, shuffle) for each in others for shuffle in (True, BLOCKS))
    chosen = _chosen(count, present, others, layouts)
    return ReadPlan(
        path=str(path),
        windows=len(dataset),
        batches=-(-len(dataset) // batch_size),
        window_bytes=count.window_bytes,
        frame_bytes=dataset.clips.num_frames * dataset.frame_format.nbytes,
        memory_bytes=memory_bytes,
        disk_mbps=disk_mbps,
        readahead_bytes=readahead_bytes(Path(path).stat().st_dev),
        block_shape=count.shape(present),
        costs=costs,
        layouts=layouts,
        **chosen,
    )


def pages_of(rows: Int64Array, frame_bytes: int, offset: int = 0) -> int:
    """Pages of a mapped file in which frames lie.

    Three frames of 3000 bytes lie in the first three pages, the second one in two:

    >>> pages_of(np.array([0, 1, 2]), 3000), pages_of(np.array([1]), 3000)
    (3, 2)

    Args:
        rows: Of the frames, increasing, each once.
        frame_bytes: Of a frame.
        offset: Of row 0 in the file.
    """
    first = (offset + rows * frame_bytes) // PAGE_BYTES
    last = (offset + (rows + 1) * frame_bytes - 1) // PAGE_BYTES
    seen = np.concatenate([[-1], last[:-1]])
    return int(np.maximum(0, last + 1 - np.maximum(first, seen + 1)).sum())


class _FramesOfBlocks(TypedDict):
    """What the usual shape of blocks depends on, beside windows and bytes."""

    rows_per_window: float
    frame_bytes: int
    chunk_frames: int


class _Counter:
    """Counts what the batches of an epoch read."""

    def __init__(self, dataset: FrameWindowDataset, batch_size: int, disk_mbps: float) -> None:
        self.dataset, self.batch_size = dataset, batch_size
        self.disk_rate = disk_mbps * 1e6
        self.window_frames = dataset.spec.input_frames + dataset.spec.predict_frames
        self.frame_bytes = dataset.frame_format.nbytes
        self.window_bytes = len(dataset) * self.window_frames * self.frame_bytes

        self._counts: dict[tuple[bool, int, Shuffle], tuple[int, bool]] = {}

    @property
    def batch_bytes(self) -> int:
        """Of the frames of a batch."""
        return self.batch_size * self.window_frames * self.frame_bytes

    def shape(self, reading: _Reading) -> BlockShape:
        """Of the blocks that a layout is best read by."""
        group_bytes = reading.group_bytes
        return BlockShape.usual(self.dataset.spec, **self._frames(reading), group_bytes=group_bytes)

    def least_group_bytes(self, reading: _Reading) -> int:
        """That blocks need to be useful."""
        return least_group_bytes(self.dataset.spec, **self._frames(reading))

    def _frames(self, reading: _Reading) -> _FramesOfBlocks:
        return {
            "rows_per_window": self.dataset.index.rows_per_window,
            "frame_bytes": self.frame_bytes,
            "chunk_frames": reading.unit_rows,
        }

    def cost(self, reading: _Reading, shuffle: Shuffle) -> ReadCost:
        """Of the first epoch, and of those after it."""
        read, whole = self._read(reading, shuffle)
        stored = self._stored_bytes(reading)
        kept = stored <= reading.memory_bytes
        disk = round(read * reading.stored_share) if reading.layout.compressed else read
        first = min(disk, stored) if kept else disk
        later = 0 if kept else disk
        work = read / reading.decode_rate + self.window_bytes / reading.copy_rate
        return ReadCost(
            layout=reading.layout.compression,
            shuffle=shuffle,
            read_bytes=read,
            amplification=read / self.window_bytes,
            disk_bytes=first,
            later_disk_bytes=later,
            batch_bytes=read * self.batch_size // len(self.dataset),
            first_seconds=max(first / self.disk_rate, work),
            later_seconds=max(later / self.disk_rate, work),
            whole=whole,
        )

    def _read(self, reading: _Reading, shuffle: Shuffle) -> tuple[int, bool]:
        """Bytes of an epoch, and whether all of it was counted; once for equal chunks."""
        key = reading.layout.compressed, reading.unit_rows, shuffle
        if key not in self._counts:
            whole = len(self.dataset) * self.window_frames <= COUNTED_FRAMES
            if shuffle == BLOCKS:
                groups = self._blocks(reading).num_groups
                # A group of one window is not permuted, which is what takes time.
                whole = whole and (groups <= COUNTED_GROUPS or groups == len(self.dataset))
            count = self._whole if whole else self._part
            self._counts[key] = count(reading, shuffle), whole
        return self._counts[key]

    def _stored_bytes(self, reading: _Reading) -> int:
        """On the disk, of the frames of all windows."""
        rows = int(np.diff(self.dataset.index.row_ranges()).sum())
        if not reading.layout.compressed:
            return -(-rows * self.frame_bytes // PAGE_BYTES) * PAGE_BYTES
        return round(rows * self.frame_bytes * reading.stored_share)

    def _whole(self, reading: _Reading, shuffle: Shuffle) -> int:
        """Bytes read by all batches of an epoch, from an empty cache on."""
        windows = self._order(reading, shuffle, np.arange(len(self.dataset)))
        batches = self._units(reading, windows)
        capacity = reading.capacity(self.frame_bytes)
        missed = [each for each in _misses(batches, capacity) if len(each)]
        if reading.layout.compressed or capacity < self.dataset.clips.num_frames:
            return sum(reading.nbytes(each, self.dataset) for each in missed)
        # All stay: a page that two batches share is read once.
        return reading.nbytes(np.unique(np.concatenate(missed)), self.dataset)

    def _part(self, reading: _Reading, shuffle: Shuffle) -> int:
        """The same, from a part of the batches."""
        if shuffle is True or (shuffle == BLOCKS and self.shape(reading).block_windows == 1):
            return self._scattered(reading)
        parts = self._groups(reading) if shuffle == BLOCKS else self._stretch()
        read = seen = 0.0
        for windows in parts:
            rows = np.concatenate(self.dataset.index.frame_rows(windows), axis=1)
            units = np.unique(rows // reading.unit_rows)
            kept = self._kept_share(reading, len(units)) if shuffle == BLOCKS else 0.0
            read += reading.nbytes(units, self.dataset) * (1 - kept)
            seen += len(windows)
        return round(read * len(self.dataset) / seen)

    def _stretch(self) -> Iterator[Int64Array]:
        """Consecutive windows from the middle."""
        count = len(self.dataset)
        wanted = min(count, COUNTED_FRAMES // self.window_frames)
        yield np.arange((count - wanted) // 2, (count + wanted) // 2)

    def _groups(self, reading: _Reading) -> Iterator[Int64Array]:
        """The windows of groups, each of which is kept while it is read; at least of one."""
        count, wanted = len(self.dataset), COUNTED_FRAMES // self.window_frames
        order = self._blocks(reading)
        groups = max(1, min(COUNTED_GROUPS, order.num_groups, order.num_groups * wanted // count))
        begins = order.group_begins(np.arange(groups + 1)).tolist()
        for begin, end in pairwise(begins):
            yield order.windows(0, np.arange(begin, end))

    def _kept_share(self, reading: _Reading, in_use: int) -> float:
        """Of the store, beside what is in use: the chance that what is read next is there."""
        units = -(-self.dataset.clips.num_frames // reading.unit_rows)
        return min(1.0, max(0, reading.capacity(self.frame_bytes) - in_use) / units)

    def _scattered(self, reading: _Reading) -> int:
        """Of a full shuffle: what a batch touches, less the share of the store that is kept."""
        count = len(self.dataset)
        sampled = min(count // self.batch_size, SAMPLED_BATCHES) * self.batch_size
        windows = self._order(reading, True, np.arange(sampled))
        touched = [reading.nbytes(each, self.dataset) for each in self._units(reading, windows)]
        missing = 1 - self._kept_share(reading, 0)
        scattered = round(sum(touched) * missing * count / sampled)
        return max(scattered, self._part(reading, False))

    def _order(self, reading: _Reading, shuffle: Shuffle, positions: Int64Array) -> Int64Array:
        if not shuffle:
            return positions
        if shuffle == BLOCKS:
            return self._blocks(reading).windows(0, positions)
        return EpochOrder(len(self.dataset), seed=0).windows(0, positions)

    def _blocks(self, reading: _Reading) -> BlockOrder:
        return BlockOrder(len(self.dataset), seed=0, shape=self.shape(reading))

    def _units(self, reading: _Reading, windows: Int64Array) -> Iterator[Int64Array]:
        """Frames, or chunks, that each batch touches, increasing."""
        for first in range(0, len(windows), self.batch_size):
            rows = self.dataset.index.frame_rows(windows[first : first + self.batch_size])
            yield np.unique(np.concatenate(rows, axis=1) // reading.unit_rows)


def _misses(batches: Iterable[Int64Array], capacity: int) -> Iterator[Int64Array]:
    """Of what each batch touches, what is not among so many that were used last."""
    kept: OrderedDict[int, None] = OrderedDict()
    for units in batches:
        missed = []
        for unit in units.tolist():
            if unit in kept:
                kept.move_to_end(unit)
                continue
            missed.append(unit)
            kept[unit] = None
            if len(kept) > capacity:
                kept.popitem(last=False)
        yield np.array(missed, np.int64)


def _readings(
    dataset: FrameWindowDataset, memory_bytes: int, cache_bytes: int
) -> tuple[_Reading, list[_Reading]]:
    """The layout of a store, and those it could have."""
    store = open_store(dataset.path)
    present = store.layout
    estimates = _estimates(dataset, store.meta, present)
    rates = {each.layout: each.read_bytes_per_second for each in estimates}
    copy_rate = next(rate for layout, rate in rates.items() if not layout.compressed)

    def reading(layout: ResolvedLayout, stored_share: float) -> _Reading:
        rate = rates[layout] * usable_cores() if layout.compressed else float("inf")
        return _Reading(layout, stored_share, rate, copy_rate, memory_bytes, cache_bytes)

    # One of each compression, the present one with its own chunks and level.
    best = {each.layout.compression: each for each in estimates}
    others = [reading(each.layout, 1 / each.ratio) for each in best.values()]
    share = 1.0
    if present.compressed:
        share = float(store.chunks["nbytes"].sum()) / store.meta.frame_bytes
    return reading(present, share), others


def _estimates(
    dataset: FrameWindowDataset, meta: StoreMeta, present: ResolvedLayout
) -> list[Estimate]:
    """Of the usual layouts, and of that of the store."""

    def sample(frames: int, runs: int) -> Iterator[np.ndarray]:
        end = dataset.clips.num_frames
        last = max(0, end - frames)
        for first in np.unique(np.linspace(0, last, runs).astype(np.int64)).tolist():
            yield from (part for _, part in dataset.blocks(first, min(first + frames, end)))

    found = estimate_layouts(meta, sample)
    if present.compressed and present not in [each.layout for each in found]:
        found.append(estimate_layout(present, meta, sample))
    return found


def _chosen(
    count: _Counter,
    present: _Reading,
    others: list[_Reading],
    layouts: tuple[ReadCost, ...],
) -> dict[str, Any]:
    """Layout, cache and way to shuffle, with the reasons."""
    pixels = count.dataset.clips.num_frames * count.frame_bytes
    room = present.memory_bytes
    if pixels <= room:
        return _in_memory(present, others, pixels)
    quickest = min(each.later_seconds for each in layouts)
    best = next(each for each in layouts if each.later_seconds <= NEARLY * quickest)
    reading = next(each for each in others if each.layout.compression == best.layout)
    by_blocks = best.shuffle == BLOCKS
    seconds = ", ".join(
        f"{_layout_name(each.layout)} {_shuffle_name(each.shuffle)} {each.later_seconds:,.1f} s"
        for each in layouts
    )
    reasons = [f"layout: least time of an epoch at this disk rate, within 10 % ({seconds})"]
    cache = None
    lacking = f"{_size(pixels)} of frames do not fit into {_size(room)}"
    if best.layout == NONE and present.layout.compressed:
        cache = "PATH"
        reasons.append(f"cache: a file of raw frames, decoded once; {lacking}")
    else:
        reasons.append(f"cache: none, {lacking}")
    reasons.append(
        "shuffle: by blocks, each frame is read about once per epoch, not once per window"
        if by_blocks
        else "shuffle: in full, which costs no more than by blocks here"
    )
    if by_blocks:
        group_bytes, kept = _size(reading.group_bytes), _kept_by(reading)
        reasons.append(f"shuffle_blocks: a group takes {group_bytes}, which {kept} has room for")
    for each in [present] if reading.layout == present.layout else [present, reading]:
        least = count.least_group_bytes(each)
        if least > each.group_bytes:
            reasons.append(
                f"blocks: of {_layout_name(each.layout.compression)} frames not two useful ones "
                f"fit into {_size(each.group_bytes)}; a group needs {_size(least)}, raise "
                f"{_kept_by(each)}"
            )
    return {
        "layout": best.layout,
        "chunk_frames": reading.layout.chunk_frames,
        "cache": cache,
        "cache_bytes": reading.cache_bytes if reading.layout.compressed else None,
        "shuffle": best.shuffle,
        "shuffle_blocks": count.shape(reading) if by_blocks else None,
        "read_ahead": 0 if reading.layout.compressed else _batches_ahead(count, room),
        "reasons": tuple(reasons),
    }


def _in_memory(present: _Reading, others: list[_Reading], pixels: int) -> dict[str, Any]:
    compressed = present.layout.compressed
    fits = f"all frames, {_size(pixels)}, fit into {_size(present.memory_bytes)}"
    raw = next(each for each in others if not each.layout.compressed)
    kept = present if compressed else raw
    return {
        "layout": kept.layout.compression,
        "chunk_frames": kept.layout.chunk_frames,
        "cache": "memory" if compressed else None,
        "cache_bytes": None,
        "shuffle": True,
        "shuffle_blocks": None,
        "read_ahead": 0,
        "reasons": (
            "layout: as it is, for the disk is read in the first epoch only"
            if compressed
            else f"layout: raw, {fits}, where the system keeps them",
            f"cache: memory, {fits}, decoded once"
            if compressed
            else "cache: none, a raw store needs no other copy",
            "shuffle: in full, which costs nothing in memory",
        ),
    }


def _batches_ahead(count: _Counter, memory_bytes: int) -> int:
    """Of which the frames take a quarter of memory at most."""
    if not hasattr(os, "posix_fadvise"):
        return 0
    return min(READ_AHEAD, memory_bytes // 4 // count.batch_bytes)


def _kept_by(reading: _Reading) -> str:
    """The option that says how much of a layout is kept."""
    return "cache_bytes" if reading.layout.compressed else "memory_bytes"


def _layout_name(name: str) -> str:
    return "raw" if name == NONE else name


def _shuffle_name(shuffle: Shuffle) -> str:
    return BLOCKS if shuffle == BLOCKS else "full" if shuffle else "unshuffled"


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 10**9 else f"{count / 1e6:,.1f} MB"


def _memory_bytes() -> int:
    """Of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
