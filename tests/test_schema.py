"""Clip tables: where clips and segments begin, and which frame numbers rows have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framewin.schema import ClipTable, FrameFormat, Gap, StoreMeta

increasing_numbers = st.lists(st.integers(0, 60), min_size=1, max_size=20, unique=True).map(sorted)


@given(st.lists(increasing_numbers, min_size=1, max_size=4))
def test_frame_numbers_come_back(clips: list[list[int]]) -> None:
    """Every row has the number and the clip it was given."""
    names = [f"clip{i}" for i in range(len(clips))]
    table = ClipTable.from_frame_numbers(names, clips)
    rows = np.arange(table.num_frames)
    assert table.frame_numbers(rows).tolist() == [n for clip in clips for n in clip]
    assert table.clips_of(rows).tolist() == [i for i, clip in enumerate(clips) for _ in clip]
    assert table.clip_lengths.tolist() == [len(clip) for clip in clips]
    assert table.segment_lengths.sum() == table.num_frames


@given(st.lists(increasing_numbers, min_size=1, max_size=4))
def test_segments_have_a_constant_step(clips: list[list[int]]) -> None:
    """Neighbouring rows of a segment are one step apart, and segments are as long as can be."""
    table = ClipTable.from_frame_numbers([str(i) for i in range(len(clips))], clips)
    rows = np.arange(table.num_frames)
    numbers, clip = table.frame_numbers(rows), table.clips_of(rows)
    joined = (np.diff(numbers) == table.step) & (np.diff(clip) == 0)
    assert table.segment_starts.tolist() == [0, *(np.flatnonzero(~joined) + 1).tolist()]


@pytest.mark.parametrize(
    ("numbers", "step", "gaps"),
    [
        ([[1, 2, 3, 4, 7, 8, 9, 10]], 1, [Gap("0", 4, 7)]),
        ([[0, 5, 10, 20, 25]], 5, [Gap("0", 10, 20)]),
        ([[3]], 1, []),
        ([[0, 1], [0, 2]], 1, [Gap("1", 0, 2)]),  # a tie of 1 and 2: the smaller
        ([[7, 8], [9, 10]], 1, []),  # numbers that go on in the next clip do not join clips
    ],
)
def test_step_is_the_most_frequent_difference(
    numbers: list[list[int]], step: int, gaps: list[Gap]
) -> None:
    """The store's step is the commonest difference; every other difference is a gap."""
    table = ClipTable.from_frame_numbers([str(i) for i in range(len(numbers))], numbers)
    assert (table.step, table.gaps()) == (step, gaps)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": ("a", "a")}, "clip names must be unique"),
        ({"names": ("a",)}, "1 clip names for 2 clips"),
        ({"clip_starts": np.array([0, 9])}, "clip starts must run from 0 to below 4"),
        ({"clip_starts": np.array([0, 0])}, "clip starts must increase"),
        ({"segment_starts": np.array([0, 3])}, "each clip must start a segment"),
        ({"first_numbers": np.array([0])}, "each segment needs one first frame number"),
        ({"step": 0}, "step must be >= 1, got 0"),
    ],
)
def test_an_inconsistent_table_is_refused(change: dict[str, object], message: str) -> None:
    """A table is checked once, when it is made."""
    good = {
        "names": ("a", "b"),
        "clip_starts": np.array([0, 2]),
        "segment_starts": np.array([0, 2]),
        "first_numbers": np.array([0, 0]),
        "num_frames": 4,
        "step": 1,
    }
    with pytest.raises(ValueError, match=message):
        ClipTable(**{**good, **change})  # type: ignore[arg-type]


def test_frame_format_is_checked() -> None:
    """Frames have pixels and a known dtype."""
    assert FrameFormat(2, 3, 4, "uint16").nbytes == 48
    assert str(FrameFormat(2, 3, 4, "uint16")) == "2x3x4 uint16"
    with pytest.raises(ValueError, match="at least one pixel"):
        FrameFormat(0, 3, 1, "uint8")
    with pytest.raises(ValueError, match=r"dtype must be one of uint8, .*, got 'bool'"):
        FrameFormat(1, 3, 1, "bool")


def test_a_no_data_value_must_be_a_pixel_value() -> None:
    """Else no pixel could ever have it."""
    clips = ClipTable.from_frame_numbers(["a"], [[0]])
    assert StoreMeta(FrameFormat(1, 1, 1, "int16"), clips, nodata=-300).nodata == -300
    for value, dtype in ((256, "uint8"), (-1, "uint16"), (0.5, "uint8"), (1e39, "float32")):
        with pytest.raises(ValueError, match=f"no-data value .* is not a {dtype} value"):
            StoreMeta(FrameFormat(1, 1, 1, dtype), clips, nodata=value)


def test_time_units() -> None:
    """Numbers may be times of a known unit."""
    table = ClipTable.from_frame_numbers(["a"], [[0, 300]], time_unit="s")
    assert (table.time_unit, table.step) == ("s", 300)
    with pytest.raises(ValueError, match="time_unit must be None or one of s, ms, us, got 'min'"):
        ClipTable.from_frame_numbers(["a"], [[0]], time_unit="min")
