"""Which windows each batch holds: against plain slicing of the order of an epoch."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framewin.windows.order import EpochOrder, epoch_key
from framewin.windows.schedule import BatchSchedule, cumulative_draws, drawn

SIZES = {
    "num_windows": st.integers(1, 60),
    "batch_size": st.integers(1, 9),
    "shards": st.integers(1, 4),
}


def order_of(num_windows: int, shuffle: bool, seed: int, epoch: int) -> list[int]:
    numbers = np.arange(num_windows)
    if shuffle:
        numbers = EpochOrder(num_windows, seed=seed).windows(epoch, numbers)
    return numbers.tolist()


@given(**SIZES, shuffle=st.booleans(), seed=st.integers(0, 9), epoch=st.integers(0, 5))
def test_all_shards_together_are_the_global_order(
    num_windows: int, batch_size: int, shards: int, shuffle: bool, seed: int, epoch: int
) -> None:
    """Batches dealt in turn: the shards' steps, side by side, are slices of one list."""
    order = order_of(num_windows, shuffle, seed, epoch)
    batches = [order[first:][:batch_size] for first in range(0, num_windows, batch_size)]
    for index in range(min(shards, len(batches))):
        schedule = BatchSchedule(num_windows, batch_size, shuffle, seed, shard=(index, shards))
        got = [schedule.windows(epoch, step).tolist() for step in range(schedule.num_batches)]
        assert got == batches[index::shards]


@given(**SIZES)
def test_full_batches_are_as_many_for_each_shard(
    num_windows: int, batch_size: int, shards: int
) -> None:
    """drop_remainder gives every shard equal work, so none waits for another at the end."""
    full = num_windows // batch_size
    for index in range(shards if full >= shards else 0):
        schedule = BatchSchedule(
            num_windows, batch_size, drop_remainder=True, shard=(index, shards)
        )
        assert schedule.num_batches == full // shards
        sizes = {len(schedule.windows(0, step)) for step in range(schedule.num_batches)}
        assert sizes == {batch_size}


@given(num_windows=st.integers(1, 40), batch_size=st.integers(1, 9), done=st.integers(0, 99))
def test_a_place_is_where_the_steps_lead(num_windows: int, batch_size: int, done: int) -> None:
    """Walking step by step through the epochs comes to the same place."""
    schedule = BatchSchedule(num_windows, batch_size)
    walked = [(epoch, step) for epoch in range(100) for step in range(schedule.num_batches)]
    assert schedule.place(done) == walked[done]


@settings(max_examples=30)
@given(st.lists(st.sampled_from([0, 0, 1, 2, 5]), min_size=2, max_size=12), st.integers(0, 99))
def test_draws_follow_the_weights(weights: list[int], seed: int) -> None:
    """Weight 0 is never drawn; shares approach the weights; a draw depends on its place only."""
    if not any(weights):
        weights[0] = 1
    draws = cumulative_draws(np.array(weights))
    positions = np.arange(4000)
    found = drawn(draws, epoch_key(seed, 3), positions)
    counts = np.bincount(found, minlength=len(weights))
    share = np.array(weights) / sum(weights)
    assert not counts[np.array(weights) == 0].any()
    assert (np.abs(counts - share * 4000) <= 6 * np.sqrt(4000 * share) + 1).all()
    schedule = BatchSchedule(len(weights), len(weights), True, seed, draws=draws)
    assert np.array_equal(schedule.windows(3, 0), found[: len(weights)])


def test_unshuffled_epochs_ignore_weights() -> None:
    """Scoring sees every window once."""
    draws = cumulative_draws(np.array([0, 0, 1]))
    assert BatchSchedule(3, 3, draws=draws).windows(0, 0).tolist() == [0, 1, 2]


@pytest.mark.parametrize("weights", [[-1, 2], [0, 0], [np.nan, 1], [[1, 2]], [np.inf, 1]])
def test_bad_weights(weights: list) -> None:
    """Each must be a finite number that is not negative."""
    with pytest.raises(ValueError, match="weights must be one finite number >= 0 for each window"):
        cumulative_draws(np.array(weights))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be >= 1, got 0"),
        ({"batch_size": 2, "shard": (2, 2)}, "shard must be (index, count) with 0 <= index < "),
        (
            {"batch_size": 5, "shard": (2, 3)},
            "shard 2 of 3 gets no batch: 10 windows make 2 of 5; use fewer shards or smaller",
        ),
        ({"batch_size": 11, "drop_remainder": True}, "batch_size 11 is above the number of"),
        ({"batch_size": 2, "seed": -1}, "seed must be in [0, 2**63), got -1"),
    ],
)
def test_bad_schedules(options: dict, message: str) -> None:
    """The message says what was given."""
    with pytest.raises(ValueError, match=re.escape(message)):
        BatchSchedule(10, **options)


def test_steps_end() -> None:
    """A step past the end is an IndexError."""
    with pytest.raises(IndexError, match="step 4 is out of range, an epoch has 4"):
        BatchSchedule(10, 3).windows(0, 4)
    with pytest.raises(ValueError, match="steps_done must be >= 0, got -1"):
        BatchSchedule(10, 3).place(-1)


def test_a_hundred_million_windows_cost_a_batch() -> None:
    """Nothing is as long as the windows are many."""
    import tracemalloc

    tracemalloc.start()
    windows = BatchSchedule(10**8, 8, True, 1).windows(3, 5_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(set(windows.tolist())) == 8
    assert peak < 1e6
