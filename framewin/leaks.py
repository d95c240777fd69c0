"""Proof that the parts of a split share nothing, or where they do."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from framewin.dataset import FrameWindowDataset
from framewin.schema import ClipTable, Int64Array

SHOWN_PAIRS = 100


@dataclass(frozen=True, slots=True)
class DuplicateFrames:
    """Two frames of different parts with equal pixels."""

    parts: tuple[str, str]
    frames: tuple[str, str]
    """The files that they come from."""


@dataclass(frozen=True, slots=True)
class SplitReport:
    """What the parts of a split have in common."""

    windows: dict[str, int]
    """Part -> its windows."""
    shared_frames: dict[tuple[str, str], int]
    """Two parts -> how many frames lie in windows of both; 0 in a sound split."""
    nearest_frames: dict[tuple[str, str], int | None]
    """Two parts -> least distance in rows of two frames of one clip; None without such a clip."""
    duplicates: int
    """Pairs of frames with equal pixels in two parts; each kind of picture counts once for
    each two parts."""
    examples: tuple[DuplicateFrames, ...]
    """The first of these pairs."""

    @property
    def clean(self) -> bool:
        """Whether no frame is shared; equal pixels are for a person to judge."""
        return not any(self.shared_frames.values())


def split_report(parts: Mapping[str, FrameWindowDataset]) -> SplitReport:
    """Compare the frames of datasets over one store, those that `frame_step` skips included.

    Reads every frame once, to find equal pixels.

    Args:
        parts: Part name to dataset, as `ds.split(...)` gives.

    Raises:
        ValueError: Fewer than two parts, or parts of different stores.
    """
    datasets = list(parts.values())
    if len(datasets) < 2:
        raise ValueError(f"parts must be two or more datasets, got {len(datasets)}")
    if len({dataset.identity for dataset in datasets}) > 1:
        raise ValueError("parts must be of one store; give what ds.split(...) returns")
    clips = datasets[0].clips
    ranges = {name: dataset.index.row_ranges() for name, dataset in parts.items()}
    pairs = list(combinations(parts, 2))
    duplicates = _duplicates(parts, pairs)
    return SplitReport(
        windows={name: len(dataset) for name, dataset in parts.items()},
        shared_frames={pair: _shared(*(ranges[name] for name in pair)) for pair in pairs},
        nearest_frames={
            pair: _nearest(*(ranges[name] for name in pair), clips=clips) for pair in pairs
        },
        duplicates=len(duplicates),
        examples=tuple(duplicates[:SHOWN_PAIRS]),
    )


def _shared(one: Int64Array, other: Int64Array) -> int:
    """Rows that lie in ranges of both; each side's ranges do not overlap."""
    edges = np.unique(np.concatenate([one.ravel(), other.ravel()]))
    lengths = np.diff(edges)
    inside = [_inside(ranges, edges[:-1]) for ranges in (one, other)]
    return int(lengths[inside[0] & inside[1]].sum())


def _inside(ranges: Int64Array, rows: Int64Array) -> np.ndarray:
    place = np.searchsorted(ranges[:, 0], rows, side="right") - 1
    found: np.ndarray = (place >= 0) & (rows < ranges[place, 1])
    return found


def _nearest(one: Int64Array, other: Int64Array, *, clips: ClipTable) -> int | None:
    if _shared(one, other):
        return 0
    # Without a shared row, the ranges of both in row order are apart; only neighbours count.
    both = np.concatenate([one, other])
    side = np.repeat([0, 1], [len(one), len(other)])
    order = np.argsort(both[:, 0], kind="stable")
    both, side = both[order], side[order]
    owners = clips.clips_of(both[:, 0])
    meet = (np.diff(side) != 0) & (np.diff(owners) == 0)
    distances = both[1:, 0] - (both[:-1, 1] - 1)
    return int(distances[meet].min()) if meet.any() else None


def _duplicates(
    parts: Mapping[str, FrameWindowDataset], pairs: list[tuple[str, str]]
) -> list[DuplicateFrames]:
    rows_by_digest = {name: _digests(dataset) for name, dataset in parts.items()}
    found = []
    for pair in pairs:
        first, second = (rows_by_digest[name] for name in pair)
        for digest in [digest for digest in first if digest in second]:
            if first[digest] != second[digest]:
                rows = np.array([first[digest], second[digest]])
                files = parts[pair[0]].source_files(rows)
                found.append(DuplicateFrames(pair, (files[0], files[1])))
    return found


def _digests(dataset: FrameWindowDataset) -> dict[bytes, int]:
    """Digest of each frame's pixels -> the first row that has it."""
    found: dict[bytes, int] = {}
    for begin, end in dataset.index.row_ranges().tolist():
        for first, frames in dataset.blocks(begin, end):
            for place, frame in enumerate(np.ascontiguousarray(frames)):
                digest = hashlib.blake2b(frame.data, digest_size=16).digest()
                found.setdefault(digest, first + place)
    return found
