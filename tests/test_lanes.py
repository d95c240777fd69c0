"""Lanes: each row of a batch continues the row of the batch before, or says that it does not."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framewin import FrameWindowDataset
from framewin.windows.lanes import LaneSchedule
from framewin.windows.spec import Runs, WindowIndex, WindowSpec
from tests.conftest import MakeClips


@given(
    st.lists(st.integers(6, 30), min_size=1, max_size=6),
    st.integers(1, 4),
    st.integers(1, 2),
    st.booleans(),
    st.integers(0, 5),
)
def test_inputs_follow_one_another(
    lengths: list[int], batch_size: int, step: int, shuffle: bool, epoch: int
) -> None:
    """Unless it is reset, a row's first input is one step behind its last one, in the same run."""
    spec = WindowSpec(2, 1, frame_step=step)
    starts = np.cumsum([0, *(n + 3 for n in lengths[:-1])])
    index = WindowIndex(spec, Runs(starts, np.array(lengths)))
    lanes = LaneSchedule(index, batch_size, shuffle=shuffle) if len(index) >= 8 else None
    seen: list[int] = []
    last = last_runs = np.zeros(0)
    for number in range(lanes.num_batches if lanes else 0):
        windows, resets = lanes.windows(epoch, number), lanes.resets(epoch, number)
        seen += windows.tolist()
        inputs, _ = index.frame_rows(windows)
        runs = np.searchsorted(starts, inputs[:, 0], side="right")
        if number:
            goes_on = (inputs[:, 0] - last[:, -1] == step) & (runs == last_runs)
            assert (goes_on | resets).all()
        else:
            assert resets.all()
        last, last_runs = inputs, runs
    assert len(set(seen)) == len(seen)


def test_batches_bring_the_mask(make_store: MakeClips) -> None:
    """to_batches(lanes=True): the windows of the lanes, and the resets last."""
    store = make_store({"a": range(12), "b": range(9)})
    ds = FrameWindowDataset(store, input_frames=2, predict_frames=1)
    batches = ds.to_batches(batch_size=2, lanes=True, shuffle=True, epochs=2)
    lanes = LaneSchedule(ds.index, 2, shuffle=True)
    assert len(batches) == 2 * lanes.num_batches
    for number, (inputs, targets, resets) in enumerate(pickle.loads(pickle.dumps(batches))):
        epoch, step = divmod(number, lanes.num_batches)
        expected = ds.batch(lanes.windows(epoch, step))
        assert np.array_equal(inputs, expected[0])
        assert np.array_equal(targets, expected[1])
        assert np.array_equal(resets, lanes.resets(epoch, step))
    with pytest.raises(IndexError, match="step 9 is out of range, an epoch has"):
        lanes.windows(0, 9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be >= 1, got 0"),
        ({"batch_size": 9}, "batch_size 9 is above the number of windows whose inputs follow one"),
        ({"batch_size": 1, "shard": (0, 2)}, "lanes cannot be sharded, got shard=(0, 2)"),
    ],
)
def test_bad_lanes(make_store: MakeClips, options: dict, message: str) -> None:
    """The message says what does not fit."""
    store = make_store({"a": range(12)})
    ds = FrameWindowDataset(store, input_frames=2, predict_frames=1)
    with pytest.raises(ValueError, match=re.escape(message)):
        ds.to_batches(lanes=True, **options)
    sparse = FrameWindowDataset(store, input_frames=2, predict_frames=1, window_stride=3)
    with pytest.raises(ValueError, match="lanes need a window every 2 frames"):
        sparse.to_batches(lanes=True, batch_size=1)
