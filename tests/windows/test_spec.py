"""Windows of runs of frames: exact lists, and the fast answer against plain slicing."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framewin.schema import ClipTable
from framewin.windows.spec import Runs, WindowIndex, WindowSpec
from tests.helpers.oracle import windows_of_clip


@pytest.mark.parametrize(
    # frames in the run, then the parameters, then the first frame of every window
    ("run", "inputs", "predictions", "step", "stride", "lead_gap", "starts"),
    [
        (10, 3, 2, 1, 1, 0, [0, 1, 2, 3, 4, 5]),
        (5, 3, 2, 1, 1, 0, [0]),
        (4, 3, 2, 1, 1, 0, []),
        (10, 3, 2, 1, 2, 0, [0, 2, 4]),
        (10, 3, 2, 1, 7, 0, [0]),
        (10, 3, 2, 2, 1, 0, [0, 1]),
        (10, 3, 2, 1, 1, 3, [0, 1, 2]),
        (11, 3, 2, 2, 1, 1, [0]),
        (1, 1, 1, 1, 1, 0, []),
        (2, 1, 1, 1, 1, 0, [0]),
    ],
)
def test_window_starts(
    run: int, inputs: int, predictions: int, step: int, stride: int, lead_gap: int, starts: list
) -> None:
    """The last window is counted, and none reaches past the run."""
    spec = WindowSpec(inputs, predictions, step, stride, lead_gap)
    index = WindowIndex(spec, Runs(np.array([100]), np.array([run])))
    assert len(index) == spec.count(run) == len(starts)
    found = index.start_rows(np.arange(len(index)))
    assert found.tolist() == [100 + start for start in starts]


def test_last_window_of_ten_frames() -> None:
    """Three inputs and two predictions from ten frames end with [5, 6, 7] -> [8, 9]."""
    index = WindowIndex(WindowSpec(3, 2), Runs(np.array([0]), np.array([10])))
    inputs, targets = index.frame_rows(np.array([5]))
    assert (inputs.tolist(), targets.tolist()) == ([[5, 6, 7]], [[8, 9]])


specs = st.fixed_dictionaries(
    {
        "input_frames": st.integers(1, 4),
        "predict_frames": st.integers(1, 4),
        "frame_step": st.integers(1, 3),
        "window_stride": st.integers(1, 4),
        "lead_gap": st.integers(0, 2),
    }
)
clip_numbers = st.lists(st.integers(0, 40), min_size=1, max_size=25, unique=True).map(sorted)


@given(specs, st.lists(clip_numbers, min_size=1, max_size=4))
def test_windows_equal_plain_slicing(spec: dict[str, Any], clips: list[list[int]]) -> None:
    """For any parameters and gaps: the same windows, in the same order, as by slicing."""
    table = ClipTable.from_frame_numbers([str(i) for i in range(len(clips))], clips)
    index = WindowIndex(WindowSpec(**spec), Runs.of(table))
    inputs, targets = index.frame_rows(np.arange(len(index)))
    expected = []
    for first, numbers in zip(table.clip_starts.tolist(), clips, strict=True):
        for window in windows_of_clip(numbers, **spec, step=table.step):
            expected.append(tuple([first + position for position in part] for part in window))
    assert list(zip(inputs.tolist(), targets.tolist(), strict=True)) == expected


@given(specs, clip_numbers, st.integers(0, 30), st.integers(0, 30))
def test_runs_within_rows(
    spec: dict[str, Any], numbers: list[int], begin: int, length: int
) -> None:
    """Cutting runs to a range of rows keeps exactly the windows that lie in it."""
    table = ClipTable.from_frame_numbers(["a"], [numbers])
    window_spec = WindowSpec(**spec)
    end = begin + length

    def rows(runs: Runs) -> set[tuple[int, ...]]:
        index = WindowIndex(window_spec, runs)
        both = np.concatenate(index.frame_rows(np.arange(len(index))), axis=1)
        return {tuple(row) for row in both.tolist()}

    strided = spec["window_stride"] > 1  # a stride starts anew in every run
    everything = rows(Runs.of(table))
    inside = {row for row in everything if begin <= row[0] and row[-1] < end}
    found = rows(Runs.of(table).within(begin, end))
    assert all(begin <= row[0] and row[-1] < end for row in found)
    assert strided or found == inside


def test_runs_within_rows_are_never_empty() -> None:
    """A run that ends where the range begins is left out, not kept with no frames."""
    runs = Runs(np.array([0, 10]), np.array([6, 5]))
    for (begin, end), starts, lengths in [
        ((6, 10), [], []),
        ((3, 12), [3, 10], [3, 2]),
        ((5, 11), [5, 10], [1, 1]),
        ((0, 15), [0, 10], [6, 5]),
    ]:
        found = runs.within(begin, end)
        assert (found.starts.tolist(), found.lengths.tolist()) == (starts, lengths)


@pytest.mark.parametrize(
    # starts and lengths of runs, the ranges of rows that windows of 2 + 1 frames use
    ("starts", "lengths", "ranges"),
    [
        ([0, 5], [5, 4], [[0, 9]]),  # ranges that touch are one
        ([0, 6], [5, 4], [[0, 5], [6, 10]]),
        ([6, 0], [4, 5], [[0, 5], [6, 10]]),
        ([0, 3], [8, 3], [[0, 8]]),  # a run within another does not cut it short
        ([0, 5], [2, 4], [[5, 9]]),
        ([0], [2], []),
    ],
)
def test_row_ranges(starts: list[int], lengths: list[int], ranges: list[list[int]]) -> None:
    """They increase, and neither overlap nor touch."""
    index = WindowIndex(WindowSpec(2, 1), Runs(np.array(starts), np.array(lengths)))
    assert index.row_ranges().tolist() == ranges


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"input_frames": 0}, ValueError, "input_frames must be >= 1, got 0"),
        ({"predict_frames": -1}, ValueError, "predict_frames must be >= 0, got -1"),
        ({"frame_step": 0}, ValueError, "frame_step must be >= 1, got 0"),
        ({"window_stride": -1}, ValueError, "window_stride must be >= 1, got -1"),
        ({"lead_gap": -1}, ValueError, "lead_gap must be >= 0, got -1"),
        ({"frame_step": 1.5}, TypeError, "frame_step must be an integer, got 1.5"),
        ({"lead_gap": True}, TypeError, "lead_gap must be an integer, got True"),
    ],
)
def test_bad_parameters(change: dict[str, Any], error: type[Exception], message: str) -> None:
    """The message names the argument and the value."""
    with pytest.raises(error, match=re.escape(message)):
        WindowSpec(**{"input_frames": 2, "predict_frames": 2, **change})
