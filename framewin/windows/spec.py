"""How windows are cut from runs of frames."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from framewin.schema import ClipTable, Int64Array
from framewin.windows.order import as_integer


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """The shape of a window in time.

    Three inputs, then two predictions, with every second frame used and one of those skipped
    in between (lead_gap), starting at row 0:

        row      0  1  2  3  4  5  6  7  8  9 10
        window   i  .  i  .  i  .  .  .  p  .  p

    >>> spec = WindowSpec(input_frames=3, predict_frames=2, frame_step=2, lead_gap=1)
    >>> spec.input_offsets.tolist(), spec.predict_offsets.tolist(), spec.span
    ([0, 2, 4], [8, 10], 11)
    >>> spec.count(11), spec.count(13), spec.count(10)
    (1, 3, 0)
    """

    input_frames: int
    """Frames the predictor sees."""
    predict_frames: int
    """Frames it must predict; 0 where only inputs are wanted."""
    frame_step: int = 1
    """Distance in rows between neighbouring frames of a window."""
    window_stride: int = 1
    """Distance in rows between the starts of neighbouring windows."""
    lead_gap: int = 0
    """Frames skipped between the last input and the first prediction, counted in frame steps."""

    def __post_init__(self) -> None:
        least = {"input_frames": 1, "frame_step": 1, "window_stride": 1}
        for name, minimum in {**least, "predict_frames": 0, "lead_gap": 0}.items():
            as_integer(name, getattr(self, name), minimum)
        if self.lead_gap and not self.predict_frames:
            raise ValueError(
                f"lead_gap is for windows with predict_frames, got {self.lead_gap}; leave it out"
            )

    @property
    def input_offsets(self) -> Int64Array:
        """Rows of the input frames behind a window's start, (input_frames,)."""
        return self.frame_step * np.arange(self.input_frames, dtype=np.int64)

    @property
    def predict_offsets(self) -> Int64Array:
        """Rows of the predicted frames behind a window's start, (predict_frames,)."""
        first = self.input_frames + self.lead_gap
        return self.frame_step * np.arange(first, first + self.predict_frames, dtype=np.int64)

    @property
    def span(self) -> int:
        """Rows from a window's first frame to its last, both counted."""
        return self.frame_step * (self.input_frames + self.lead_gap + self.predict_frames - 1) + 1

    def count(self, run_length: int) -> int:
        """Number of windows in a run of this many frames."""
        return max(0, (run_length - self.span) // self.window_stride + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Stretches of rows that windows may lie in, none of them broken by a gap."""

    starts: Int64Array
    """First row of each run, increasing, (runs,)."""
    lengths: Int64Array
    """Frames of each run, (runs,)."""

    @classmethod
    def of(cls, clips: ClipTable) -> Runs:
        """All segments of a clip table."""
        return cls(clips.segment_starts, clips.segment_lengths)

    def __getitem__(self, chosen: np.ndarray) -> Runs:
        """The runs that a boolean mask or an index array chooses."""
        return Runs(self.starts[chosen], self.lengths[chosen])

    def within(self, begin: int, end: int) -> Runs:
        """The parts of the runs that lie in rows [begin, end)."""
        starts = np.maximum(self.starts, begin)
        lengths = np.minimum(self.starts + self.lengths, end) - starts
        return Runs(starts, lengths)[lengths > 0]


class WindowIndex:
    """The windows of some runs, numbered from 0 in row order, in memory that grows with runs only.

    Runs of 6 and 5 frames, starting at rows 0 and 10, cut into windows of 2 + 1 frames:

    >>> runs = Runs(np.array([0, 10]), np.array([6, 5]))
    >>> index = WindowIndex(WindowSpec(input_frames=2, predict_frames=1), runs)
    >>> len(index), index.start_rows(np.array([0, 3, 4, 6])).tolist()
    (7, [0, 3, 10, 12])
    """

    def __init__(self, spec: WindowSpec, runs: Runs) -> None:
        counts = np.maximum(0, (runs.lengths - spec.span) // spec.window_stride + 1)
        used = counts > 0
        ends = np.cumsum(counts[used], dtype=np.int64)
        self.spec = spec
        self.window_ends = ends
        """Number of the window behind each run's last one, (used runs,)."""
        self.start_bases = runs.starts[used] - (ends - counts[used]) * spec.window_stride
        """A window w of run r starts at row start_bases[r] + w * window_stride, (used runs,)."""

    def __len__(self) -> int:
        return int(self.window_ends[-1]) if len(self.window_ends) else 0

    @property
    def digest(self) -> str:
        """The same for the same windows only."""
        numbers = self.window_ends.tobytes() + self.start_bases.tobytes()
        return hashlib.sha256(repr(self.spec).encode() + numbers).hexdigest()

    def start_rows(self, windows: Int64Array) -> Int64Array:
        """First row of each window, same shape as `windows`; they must be in range."""
        runs = np.searchsorted(self.window_ends, windows, side="right")
        return self.start_bases[runs] + windows * self.spec.window_stride

    def frame_rows(self, windows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Rows of the frames of windows (B,): inputs (B, T_in) and predictions (B, T_out)."""
        starts = self.start_rows(windows)[:, np.newaxis]
        return starts + self.spec.input_offsets, starts + self.spec.predict_offsets

    def only(self, kept: np.ndarray) -> WindowIndex:
        """These windows without some, numbered anew.

        Neighbours that stay make up a run, so memory grows with the number of stretches.

        Args:
            kept: bool (windows,).
        """
        windows = np.flatnonzero(kept)
        runs = np.searchsorted(self.window_ends, windows, side="right")
        breaks = np.flatnonzero((np.diff(windows) != 1) | (np.diff(runs) != 0)) + 1
        firsts = np.concatenate([windows[:1], windows[breaks]])
        counts = np.diff(np.concatenate([[0], breaks, [len(windows)]]))[: len(firsts)]
        lengths = (counts - 1) * self.spec.window_stride + self.spec.span
        return WindowIndex(self.spec, Runs(self.start_rows(firsts), lengths))

    @property
    def rows_per_window(self) -> float:
        """Rows from one window to the next on average, but no more than a window spans."""
        ranges = self.row_ranges()
        return min(float(np.diff(ranges).sum()) / len(self), float(self.spec.span))

    def row_ranges(self) -> Int64Array:
        """The rows from the first to the last frame of any window: (ranges, 2), half-open.

        They increase and neither overlap nor touch.
        """
        ends = self.window_ends
        counts = np.diff(ends, prepend=0)
        firsts = self.start_bases + (ends - counts) * self.spec.window_stride
        ranges = np.stack([firsts, firsts + (counts - 1) * self.spec.window_stride], axis=1)
        ranges[:, 1] += self.spec.span
        ranges = ranges[np.argsort(ranges[:, 0])]
        return _merged(ranges)


def _merged(ranges: Int64Array) -> Int64Array:
    """Half-open ranges (n, 2) in order of their starts, those that overlap or touch made one."""
    if len(ranges) == 0:
        return ranges
    reached = np.maximum.accumulate(ranges[:, 1])
    is_first = np.concatenate([[True], ranges[1:, 0] > reached[:-1]])
    is_last = np.append(is_first[1:], True)
    return np.stack([ranges[is_first, 0], reached[is_last]], axis=1)
