"""What a store holds, as values that are checked once and then trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]
"""Called with (frames done, frames in all) during long work."""

FORMAT_VERSION = 3
STATISTICS = ("mean", "motion", "nodata")
"""Of each frame: mean, mean absolute difference to the frame before, fraction without data."""
FRAME_DTYPES = (
    "uint8",
    "uint16",
    "uint32",
    "int8",
    "int16",
    "int32",
    "float16",
    "float32",
    "float64",
)
PACKING = ("scale_factor", "add_offset", "units")
"""Attributes by which pixel values that are alike mean different things."""
MICROSECONDS = {
    "us": 1,
    "ms": 10**3,
    "s": 10**6,
    "min": 60 * 10**6,
    "h": 3600 * 10**6,
    "d": 86400 * 10**6,
}
"""Unit of time -> how long it is."""
TIME_UNIT_NAMES = {
    "us": "microseconds",
    "ms": "milliseconds",
    "s": "seconds",
    "min": "minutes",
    "h": "hours",
    "d": "days",
}
TIME_UNITS = {unit: 10**6 // MICROSECONDS[unit] for unit in ("s", "ms", "us")}
"""Unit of time stamps -> how many make a second."""
_LARGEST_NUMBER = float(2**63)


@dataclass(frozen=True, slots=True)
class FrameFormat:
    """Shape and dtype that all frames of a store share."""

    height: int
    """Pixels."""
    width: int
    """Pixels."""
    channels: int
    """1 gray, 2 gray and alpha, 3 RGB, 4 RGBA."""
    dtype: str
    """One of `FRAME_DTYPES`."""

    def __post_init__(self) -> None:
        if min(self.shape) < 1:
            raise ValueError(f"a frame must have at least one pixel and channel, got {self.shape}")
        if self.dtype not in FRAME_DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(FRAME_DTYPES)}, got {self.dtype!r}")

    @property
    def shape(self) -> tuple[int, int, int]:
        """(height, width, channels)."""
        return (self.height, self.width, self.channels)

    @property
    def nbytes(self) -> int:
        """Bytes of one frame."""
        return self.height * self.width * self.channels * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.height}x{self.width}x{self.channels} {self.dtype}"


@dataclass(frozen=True, slots=True, eq=False)
class ClipTable:
    """Which rows of the frame array belong to which clip, and where time is unbroken.

    A store is one long run of frames; row r is the r-th frame. Clips follow one another, and
    each clip is cut into segments wherever a frame number is missing, so the two start arrays
    hold everything. Frames 1, 2, 3, 7, 8 of clip "a" and 0, 1 of clip "b":

    >>> table = ClipTable.from_frame_numbers(["a", "b"], [[1, 2, 3, 7, 8], [0, 1]])
    >>> table.step, table.segment_starts.tolist(), table.first_numbers.tolist()
    (1, [0, 3, 5], [1, 7, 0])
    >>> table.frame_numbers(np.array([2, 3, 6])).tolist()
    [3, 7, 1]
    >>> table.gaps()
    [Gap(clip='a', before=3, after=7)]
    """

    names: tuple[str, ...]
    """One per clip, in store order."""
    clip_starts: Int64Array
    """Row of each clip's first frame, (clips,)."""
    segment_starts: Int64Array
    """Row of each segment's first frame, (segments,); holds every clip start too."""
    first_numbers: Int64Array
    """Frame number of each segment's first frame, (segments,)."""
    num_frames: int
    """Rows in all."""
    step: int
    """Difference between the numbers of neighbouring frames of a segment."""
    time_unit: str | None = None
    """Where frame numbers are time stamps: which of `TIME_UNITS` they count since 1970, UTC."""
    uneven: Int64Array | None = None
    """Frame number of each row, (num_frames,), where not all in a segment are `step` apart."""

    def __post_init__(self) -> None:
        starts = (("clip", self.clip_starts), ("segment", self.segment_starts))
        for what, rows in starts:
            if rows.ndim != 1 or len(rows) == 0 or rows[0] != 0 or rows[-1] >= self.num_frames:
                raise ValueError(f"{what} starts must run from 0 to below {self.num_frames}")
            if not (np.diff(rows) > 0).all():
                raise ValueError(f"{what} starts must increase")
        if len(self.names) != len(self.clip_starts):
            raise ValueError(f"{len(self.names)} clip names for {len(self.clip_starts)} clips")
        if len(set(self.names)) != len(self.names):
            raise ValueError("clip names must be unique")
        if len(self.first_numbers) != len(self.segment_starts):
            raise ValueError("each segment needs one first frame number")
        if self.uneven is not None and self.uneven.shape != (self.num_frames,):
            raise ValueError(f"{self.uneven.shape} frame numbers for {self.num_frames} frames")
        if not np.isin(self.clip_starts, self.segment_starts).all():
            raise ValueError("each clip must start a segment")
        if self.step < 1:
            raise ValueError(f"step must be >= 1, got {self.step}")
        lengths = np.diff(self.segment_starts, append=self.num_frames)
        numbers = abs(self.first_numbers.astype(float)) + float(self.step) * lengths
        if numbers.max() >= _LARGEST_NUMBER:
            raise ValueError(f"step {self.step} leads to frame numbers of more than 64 bits")
        if self.time_unit is not None and self.time_unit not in TIME_UNITS:
            units = ", ".join(TIME_UNITS)
            raise ValueError(f"time_unit must be None or one of {units}, got {self.time_unit!r}")

    @classmethod
    def from_frame_numbers(
        cls,
        names: list[str],
        numbers: list[Any],
        *,
        step: int | None = None,
        time_unit: str | None = None,
        tolerance: int = 0,
    ) -> ClipTable:
        """Find the segments of clips whose frame numbers are known.

        Args:
            names: One per clip.
            numbers: One increasing sequence of frame numbers per clip, none empty.
            step: Difference between neighbouring frames. By default the most frequent
                difference over all clips, the smallest one of several; with a tolerance, their
                median; 1 where no clip has two frames.
            time_unit: Where the numbers are time stamps, their unit.
            tolerance: By how much the difference of neighbours in a segment may miss the step; at
                most just under half a step, so that no frame can be missing between them.
        """
        clips = [np.asarray(clip, dtype=np.int64) for clip in numbers]
        clip_starts = np.cumsum([0, *(len(clip) for clip in clips)], dtype=np.int64)
        differences = [np.diff(clip) for clip in clips]
        if step is None:
            step = (median if tolerance else most_frequent)(np.concatenate(differences))
        tolerance = min(tolerance, (step - 1) // 2)
        all_numbers = np.concatenate(clips)
        is_start = np.zeros(len(all_numbers), dtype=bool)
        is_start[clip_starts[:-1]] = True
        misses = np.abs(np.diff(all_numbers) - step)
        is_start[1:] |= misses > tolerance
        segment_starts = np.flatnonzero(is_start).astype(np.int64)
        uneven = bool((misses[~is_start[1:]] > 0).any())
        return cls(
            names=tuple(names),
            clip_starts=clip_starts[:-1],
            segment_starts=segment_starts,
            first_numbers=all_numbers[segment_starts],
            num_frames=len(all_numbers),
            step=step,
            time_unit=time_unit,
            uneven=all_numbers if uneven else None,
        )

    @property
    def clip_lengths(self) -> Int64Array:
        """Frames of each clip, (clips,)."""
        return np.diff(self.clip_starts, append=self.num_frames)

    @property
    def segment_lengths(self) -> Int64Array:
        """Frames of each segment, (segments,)."""
        return np.diff(self.segment_starts, append=self.num_frames)

    @property
    def segment_clips(self) -> Int64Array:
        """Index of the clip of each segment, (segments,)."""
        return self.clips_of(self.segment_starts)

    def clips_of(self, rows: Int64Array) -> Int64Array:
        """Index of the clip that each row belongs to, same shape as `rows`."""
        return np.searchsorted(self.clip_starts, rows, side="right") - 1

    def frame_numbers(self, rows: Int64Array) -> Int64Array:
        """True frame number of each row, same shape as `rows`."""
        if self.uneven is not None:
            return self.uneven[rows]
        segments = np.searchsorted(self.segment_starts, rows, side="right") - 1
        return self.first_numbers[segments] + self.step * (rows - self.segment_starts[segments])

    def gaps(self) -> list[Gap]:
        """Every place inside a clip where the next frame is not the expected one."""
        inner = np.flatnonzero(~np.isin(self.segment_starts, self.clip_starts))
        rows = self.segment_starts[inner]
        before, after = self.frame_numbers(rows - 1), self.frame_numbers(rows)
        clips = self.clips_of(rows)
        return [
            Gap(self.names[clip], int(b), int(a))
            for clip, b, a in zip(clips, before, after, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Gap:
    """Two neighbouring frames of a clip between which time is not continuous."""

    clip: str
    before: int
    """Frame number before the gap."""
    after: int
    """Frame number after the gap."""


@dataclass(frozen=True, slots=True, eq=False)
class StoreMeta:
    """Everything about a store but its pixels."""

    frame_format: FrameFormat
    clips: ClipTable
    nodata: float | None = None
    """Pixel value that stands for no data; None where every value is one."""
    conversion: Mapping[str, Any] = field(default_factory=dict)
    """How the frames were made, as JSON values: the settings, and the frames left out."""

    def __post_init__(self) -> None:
        if self.nodata is not None and not fits(self.nodata, self.frame_format.dtype):
            raise ValueError(
                f"the no-data value {self.nodata:g} is not a {self.frame_format.dtype} value"
            )

    @property
    def packing(self) -> Mapping[str, Any]:
        """Attributes that say what pixel values mean: `scale_factor`, units and their like."""
        found: Mapping[str, Any] = self.conversion.get("packing", {})
        return found

    @property
    def coordinates(self) -> Mapping[str, Any]:
        """Of `y` and `x`, where they are known: `values`, their `dtype`, and `attributes`."""
        found: Mapping[str, Any] = self.conversion.get("coordinates", {})
        return found

    @property
    def frame_bytes(self) -> int:
        """Bytes of all frames together."""
        return self.frame_format.nbytes * self.clips.num_frames


def fits(value: float, dtype: str) -> bool:
    """Whether a number is a value of a dtype, exactly.

    >>> fits(255, "uint8"), fits(256, "uint8"), fits(0.5, "uint8"), fits(float("nan"), "float32")
    (True, False, False, True)
    """
    if np.dtype(dtype).kind == "f":
        return bool(np.isnan(value) or abs(value) <= float(np.finfo(dtype).max))
    limits = np.iinfo(dtype)
    return float(value).is_integer() and limits.min <= value <= limits.max


def listed(texts: Iterable[object], most: int = 5) -> str:
    """The first few of many, and how many more there are.

    >>> listed("abc"), listed(range(9), 2)
    ('a, b, c', '0, 1 and 7 more')
    """
    shown = [str(text) for text in texts]
    more = f" and {len(shown) - most:,} more" if len(shown) > most else ""
    return f"{', '.join(shown[:most])}{more}"


def shown_number(number: int, time_unit: str | None) -> str:
    """A frame number, or a time stamp as ISO 8601 in UTC.

    >>> shown_number(12, None), shown_number(1_468_195_200, "s")
    ('12', '2016-07-11T00:00:00')
    """
    if time_unit is None:
        return str(number)
    microseconds = number * MICROSECONDS[time_unit]
    stamp = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    return stamp.replace(tzinfo=None).isoformat()


def coarsest_unit(microseconds: Iterable[Int64Array], step: int | None) -> str:
    """The coarsest of `TIME_UNITS` in which all stamps, and the step if given, are whole.

    >>> coarsest_unit([np.array([0, 300_000_000])], None), coarsest_unit([np.array([0])], 40_000)
    ('s', 'ms')
    """
    exact = set(TIME_UNITS)
    for stamps in [*microseconds, np.array([step or 0])]:
        exact = {unit for unit in exact if not (stamps % MICROSECONDS[unit]).any()}
    return max(exact, key=lambda unit: MICROSECONDS[unit])


def median(differences: Int64Array) -> int:
    """The middle value, the smaller one of two; 1 of none."""
    if len(differences) == 0:
        return 1
    return int(np.partition(differences, (len(differences) - 1) // 2)[(len(differences) - 1) // 2])


def most_frequent(differences: Int64Array) -> int:
    """The commonest value, the smallest of several; 1 of none."""
    if len(differences) == 0:
        return 1
    values, counts = np.unique(differences, return_counts=True)
    return int(values[np.argmax(counts)])
