"""Splits: no frame in two parts, the same parts for the same seed."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from framewin.schema import ClipTable
from framewin.windows.spec import Runs, WindowIndex, WindowSpec
from framewin.windows.splits import split_by_clip, split_by_time

PARTS = {"train": 0.7, "validation": 0.2, "test": 0.1}


def frames_used(spec: WindowSpec, runs: Runs) -> set[int]:
    index = WindowIndex(spec, runs)
    rows = np.concatenate(index.frame_rows(np.arange(len(index))), axis=1)
    return set(rows.ravel().tolist())


def clip_table(lengths: list[int]) -> ClipTable:
    names = [f"clip{i}" for i in range(len(lengths))]
    return ClipTable.from_frame_numbers(names, [range(n) for n in lengths])


@given(st.lists(st.integers(8, 20), min_size=3, max_size=12), st.integers(0, 10**6))
def test_by_clip_shares_no_clip(lengths: list[int], seed: int) -> None:
    """Each usable clip is in exactly one part, whole, and no part is empty."""
    table, spec = clip_table(lengths), WindowSpec(2, 2)
    parts = split_by_clip(table, spec, PARTS, seed=seed)
    clips = [set(table.clips_of(runs.starts).tolist()) for runs in parts.values()]
    assert all(clips)
    assert sorted(clip for part in clips for clip in part) == list(range(len(lengths)))
    again = split_by_clip(table, spec, PARTS, seed=seed)
    assert all(np.array_equal(parts[name].starts, again[name].starts) for name in parts)


def test_by_clip_is_the_same_on_every_machine() -> None:
    """A pinned answer: a change of it would mix training and validation of old runs."""
    parts = split_by_clip(clip_table([10] * 10), WindowSpec(2, 2), PARTS, seed=3)
    starts = {name: (runs.starts // 10).tolist() for name, runs in parts.items()}
    assert starts == PINNED_SPLIT


PINNED_SPLIT = {"train": [0, 1, 2, 3, 4, 7, 9], "validation": [5, 6], "test": [8]}


def test_seeds_give_different_splits() -> None:
    """Twenty seeds do not all hold back the same clips."""
    table = clip_table([10] * 10)
    held_back = {
        tuple(split_by_clip(table, WindowSpec(2, 2), PARTS, seed=seed)["test"].starts.tolist())
        for seed in range(20)
    }
    assert len(held_back) > 5


@given(
    st.lists(st.integers(1, 120), min_size=60, max_size=120, unique=True).map(sorted),
    st.integers(1, 3),
    st.integers(1, 3),
)
def test_by_time_leaves_an_embargo(numbers: list[int], inputs: int, predictions: int) -> None:
    """Frames of two parts are more than one window span apart, in time order."""
    table = ClipTable.from_frame_numbers(["a"], [numbers])
    spec = WindowSpec(inputs, predictions)
    try:
        parts = split_by_time(table, spec, {"train": 0.6, "validation": 0.4})
    except ValueError:
        reject()  # so many gaps that one part has no window
    train = frames_used(spec, parts["train"])
    validation = frames_used(spec, parts["validation"])
    assert max(train) + spec.span < min(validation)


@pytest.mark.parametrize(
    ("lengths", "fractions", "message"),
    [
        ([10, 3], {"a": 0.5, "b": 0.5}, "cannot split 1 clips with windows of 4 frames into 2"),
        ([10, 10], {"a": 0.5, "b": 0.6}, "fractions must be above 0 and sum to at most 1"),
        ([10, 10], {"a": 0.5, "b": 0.0}, "fractions must be above 0 and sum to at most 1"),
        ([10, 10], {}, "fractions must be above 0 and sum to at most 1, got {}"),
    ],
)
def test_bad_splits(lengths: list[int], fractions: dict[str, float], message: str) -> None:
    """The message says what was found."""
    with pytest.raises(ValueError, match=re.escape(message)):
        split_by_clip(clip_table(lengths), WindowSpec(2, 2), fractions, seed=0)


def test_by_time_needs_room() -> None:
    """A part that no window fits into is refused by name and numbers."""
    message = (
        "no window fits into the validation part: a window spans 4 frames, the part's longest "
        "run has 1; shorten the window or give it a larger share"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        split_by_time(clip_table([10]), WindowSpec(2, 2), {"train": 0.8, "validation": 0.2})
