"""Splits: no frame in two parts, the same parts for the same seed."""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from framewin.schema import ClipTable
from framewin.windows.spec import Runs, WindowIndex, WindowSpec
from framewin.windows.splits import (
    SplitTable,
    clips_called,
    split_by_choice,
    split_by_clip,
    split_by_time,
)

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


def test_by_time_gives_no_stretch_without_a_window() -> None:
    """Regression: a short clip gave each part a run of one frame, some of it in the next clip."""
    parts = split_by_time(clip_table([3, 40, 9]), WindowSpec(2, 2), {"a": 0.5, "b": 0.5})
    found = {name: (r.starts.tolist(), r.lengths.tolist()) for name, r in parts.items()}
    assert found == {"a": ([3], [18]), "b": ([25], [18])}


def test_by_time_needs_room() -> None:
    """A part that no window fits into is refused by name and numbers."""
    message = (
        "no window fits into the validation part: a window spans 4 frames, the part's longest "
        "run has 1; shorten the window or give it a larger share"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        split_by_time(clip_table([10]), WindowSpec(2, 2), {"train": 0.8, "validation": 0.2})


def test_by_time_two_short_clips_are_cut_in_a_row() -> None:
    """Each alone has too few frames for three parts: 80 behind two spans, of which a tenth is 8."""
    shares = {"train": 0.7, "validation": 0.2, "test": 0.1}
    parts = split_by_time(clip_table([120, 120]), WindowSpec(10, 10), shares)
    # Of 101 + 101 windows, 2 x 39 lie between parts; of the others 87, 25 and 12.
    found = {name: (r.starts.tolist(), r.lengths.tolist()) for name, r in parts.items()}
    assert found == {
        "train": ([0], [106]),
        "validation": ([145], [44]),
        "test": ([209], [31]),
    }


@pytest.mark.parametrize("first", [60, 75, 120, 233, 400])
@pytest.mark.parametrize("other", [20, 61, 90, 119, 400])
def test_by_time_never_lacks_room_that_clips_have_together(first: int, other: int) -> None:
    """Every part has a window, and parts in one clip have a span between them."""
    table, spec = clip_table([first, other]), WindowSpec(10, 10)
    shares = {"train": 0.7, "validation": 0.2, "test": 0.1}
    windows = max(0, first - 19) + other - 19
    if windows < 2 * 39 + 3:
        with pytest.raises(ValueError, match="no window fits into the "):
            split_by_time(table, spec, shares)
        return
    parts = [(r.starts, r.starts + r.lengths) for r in split_by_time(table, spec, shares).values()]
    for (_, ends), (starts, _) in itertools.combinations(parts, 2):
        assert min(len(ends), len(starts)) > 0
        for end, start in itertools.product(ends.tolist(), starts.tolist()):
            same = table.clips_of(np.array([end - 1]))[0] == table.clips_of(np.array([start]))[0]
            assert not same or start - end >= spec.span


def clips_in(table: ClipTable, parts: dict[str, Runs]) -> dict[str, list[str]]:
    return {
        name: [table.names[clip] for clip in table.clips_of(runs.starts)]
        for name, runs in parts.items()
    }


def test_a_clip_as_long_as_a_window_is_used() -> None:
    """By shares and by name; a frame less is too short."""
    table, spec = clip_table([4, 4, 3]), WindowSpec(2, 2)
    parts = split_by_clip(table, spec, {"a": 0.5, "b": 0.5}, seed=0)
    assert sorted(clips_in(table, parts).values()) == [["clip0"], ["clip1"]]
    parts = split_by_choice(table, spec, {"a": "clip0", "b": "clip1"})
    assert clips_in(table, parts) == {"a": ["clip0"], "b": ["clip1"]}
    with pytest.raises(ValueError, match="no window of 4 frames fits into the a part"):
        split_by_choice(table, spec, {"a": "clip2"})
    parts = split_by_time(clip_table([12]), spec, {"a": 0.5, "b": 0.5})
    assert {name: runs.lengths.tolist() for name, runs in parts.items()} == {"a": [4], "b": [4]}


def test_shares_that_add_up_to_one_but_for_rounding() -> None:
    """0.05 + 0.55 + 0.3 + 0.1 is a little more than 1 in binary."""
    fractions = {"a": 0.05, "b": 0.55, "c": 0.3, "d": 0.1}
    assert sum(fractions.values()) > 1
    parts = split_by_clip(clip_table([5] * 20), WindowSpec(2, 2), fractions, seed=0)
    assert {name: len(runs.starts) for name, runs in parts.items()} == {
        "a": 1,
        "b": 11,
        "c": 6,
        "d": 2,
    }


@pytest.mark.parametrize(
    ("shares", "clips", "counts"),
    [
        ([0.05, 0.05, 0.9], 5, [1, 1, 3]),
        ([0.98, 0.01, 0.01], 3, [1, 1, 1]),
        ([0.5, 0.25], 8, [4, 2]),
        ([0.8, 0.1, 0.1], 10, [8, 1, 1]),
    ],
)
def test_every_part_gets_a_clip(shares: list[float], clips: int, counts: list[int]) -> None:
    """However small its share; what no share asks for is left out."""
    fractions = dict(zip("abc", shares, strict=False))
    parts = split_by_clip(clip_table([5] * clips), WindowSpec(2, 2), fractions, seed=1)
    assert [len(runs.starts) for runs in parts.values()] == counts


def test_an_exact_name_is_preferred_to_a_pattern() -> None:
    """A clip called `a[1]` can be named, though that is a pattern for `a1`, too."""
    table = ClipTable.from_frame_numbers(["a[1]", "a1", "b*", "bc"], [range(5)] * 4)
    parts = split_by_choice(table, WindowSpec(2, 2), {"x": "a[1]", "y": ["b*"], "z": "a?"})
    assert clips_in(table, parts) == {"x": ["a[1]"], "y": ["b*"], "z": ["a1"]}


@pytest.mark.parametrize(
    "kept",
    [
        ["a", 2, 2],  # no frame
        ["a", 3, 2],
        ["a", -1, 3],
        ["a", 2, 5],  # across the gap behind the fourth frame
        ["a", 5, 9],  # into the next clip
        ["b", 3, 6],  # beyond the store
        ["b", -2, 2],
    ],
)
def test_split_files_name_frames_in_a_row(kept: list) -> None:
    """A run that is empty, or leaves its clip or segment, is refused; others are taken."""
    table = ClipTable.from_frame_numbers(["a", "b"], [[0, 1, 2, 3, 7, 8, 9], range(5)])
    sound = SplitTable("clip", 2, {"train": Runs(np.array([0, 8]), np.array([4, 4]))})
    text = sound.to_json(table, "id")
    again = SplitTable.from_json(text, table, "id").parts["train"]
    assert (again.starts.tolist(), again.lengths.tolist()) == ([0, 8], [4, 4])
    record = json.loads(text)
    record["parts"]["train"].append(kept)
    with pytest.raises(ValueError, match=r"is damaged: .*; split again"):
        SplitTable.from_json(json.dumps(record), table, "id")


def test_names_that_differ_only_by_composition() -> None:
    """Each means itself, a third form is refused; patterns see names as they are, or composed."""
    one, apart, third = "\u1ebf", "e\u0302\u0301", "\u00ea\u0301"
    assert clips_called([one, apart, "b"], [apart, one, "c"]) == [1, 0, None]
    assert clips_called([apart, "b"], [third, "b"]) == [0, 1]
    message = (
        r"may mean 2 clips, .* composed: '\u1ebf', 'e\u0302\u0301'; write one of them as it is"
    )
    table = ClipTable.from_frame_numbers([one, apart, "b"], [range(4)] * 3)
    for choice, clips in [
        (apart, [1]),
        (f"{third}*", [0, 1]),
        ("???", [1]),
        (re.compile(f"^{one}"), [0, 1]),
        (re.compile(f"^{apart}"), [1]),
    ]:
        parts = split_by_choice(table, WindowSpec(1, 1), {"train": choice})
        assert table.clips_of(parts["train"].starts).tolist() == clips
    with pytest.raises(ValueError, match=message.replace("\\u", r"\\u")):
        split_by_choice(table, WindowSpec(1, 1), {"train": third})
