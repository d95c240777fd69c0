"""Which windows each batch holds: against plain slicing of the order of an epoch."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framewin.windows.blocks import BlockShape
from framewin.windows.order import KEY_MAX_INDEX, KEY_ROUNDS, EpochOrder, epoch_key, permute
from framewin.windows.schedule import (
    BatchSchedule,
    check_shard,
    check_shuffle,
    check_step,
    cumulative_draws,
    drawn,
)

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
    schedule = BatchSchedule(3, 3, draws=draws)
    assert schedule.windows(0, 0).tolist() == [0, 1, 2]
    # A store may have millions of them.
    assert "draws" not in repr(schedule)


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


def test_by_default_every_window_comes_once_in_row_order() -> None:
    """The last batch is short, and nothing is shuffled; a shuffle has the seed 0."""
    plain = BatchSchedule(10, 4)
    got = [plain.windows(3, step).tolist() for step in range(plain.num_batches)]
    assert got == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    shuffled = BatchSchedule(10, 10, True)
    assert shuffled.windows(3, 0).tolist() == order_of(10, True, 0, 3) != order_of(10, True, 1, 3)


def test_as_many_windows_as_a_batch() -> None:
    """They are one full batch, which a second shard would miss."""
    one = BatchSchedule(4, 4, drop_remainder=True)
    assert (one.num_batches, one.windows(0, 0).tolist()) == (1, [0, 1, 2, 3])
    message = (
        "shard 0 of 2 gets no batch: 4 windows make 1 of 4; use fewer shards or smaller batches"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        BatchSchedule(4, 4, drop_remainder=True, shard=(0, 2))
    with pytest.raises(IndexError, match="step -1 is out of range, an epoch has 1"):
        one.windows(0, -1)


def test_what_random_numbers_come_from() -> None:
    """The windows; with draws their places, so that a window drawn twice is augmented twice."""
    shuffled = BatchSchedule(6, 3, True, 5)
    assert shuffled.draws_of(1, 1).tolist() == order_of(6, True, 5, 1)[3:]
    draws = cumulative_draws(np.array([0, 0, 0, 0, 0, 1]))
    again = BatchSchedule(6, 3, True, 5, draws=draws)
    assert again.windows(1, 1).tolist() == [5, 5, 5]
    assert again.draws_of(1, 1).tolist() == [3, 4, 5]
    unshuffled = BatchSchedule(6, 4, draws=draws)
    assert unshuffled.draws_of(1, 1).tolist() == [4, 5]


@pytest.mark.parametrize(
    ("weights", "sums"),
    [
        ([1, 1, 2], [2**60, 2**61, 2**62]),
        ([0, 3, 0], [0, 2**62, 2**62]),
        ([5e-324, 0], [2**62, 2**62]),
        ([0.25, 0, 0.75], [2**60, 2**60, 2**62]),
        ([1, 2**63], [0, 2**62]),  # 1/2, to even
        ([3, 2**63 - 2**10], [2, 2**62]),  # 1.5 and a little
    ],
)
def test_sums_of_weights(weights: list[float], sums: list[int]) -> None:
    """Shares of 2**62, rounded."""
    assert cumulative_draws(np.array(weights)).tolist() == sums


def test_a_window_is_drawn_by_half_open_shares() -> None:
    """A number that is the end of one share belongs to the next window that has one."""
    key = epoch_key(3, 1)
    number = int(permute(np.array([7]), key, KEY_MAX_INDEX, rounds=KEY_ROUNDS)[0])
    for sums, window in (
        ([number, 2**62], 1),
        ([number + 1, 2**62], 0),
        ([number, number, number + 1, 2**62], 2),
    ):
        assert drawn(np.array(sums), key, np.array([7])).tolist() == [window]


def test_blocks_come_with_their_shape_only() -> None:
    """Neither is without the other, nor with weights."""
    shape = BlockShape(2, 2)
    assert BatchSchedule(8, 2, "blocks", shuffle_blocks=shape).num_batches == 4
    for options in ({"shuffle": "blocks"}, {"shuffle": True, "shuffle_blocks": shape}):
        with pytest.raises(ValueError, match="shuffle_blocks goes with shuffle='blocks', got "):
            BatchSchedule(8, 2, **options)
    with pytest.raises(ValueError, match="windows with weights= are drawn from anywhere, not by"):
        BatchSchedule(2, 2, "blocks", shuffle_blocks=shape, draws=cumulative_draws(np.ones(2)))


@pytest.mark.parametrize("shard", [(1,), ("a", 2), (0.5, 2), 3, (-1, 2), (0, 0), (2, 2), None])
def test_shards_that_are_none(shard: object) -> None:
    """An index and a count above it, integers."""
    message = f"shard must be (index, count) with 0 <= index < count, got {shard}"
    with pytest.raises(ValueError, match=re.escape(message)):
        check_shard(shard)
    check_shard((np.int64(1), 2))


def test_ways_to_shuffle() -> None:
    """Yes, no and "blocks"."""
    for known in (True, False, np.True_, "blocks"):
        check_shuffle(known)
    for unknown in ("block", "True", "", None, 2):
        message = f"shuffle must be True, False or 'blocks', got {unknown!r}"
        with pytest.raises(ValueError, match=re.escape(message)):
            check_shuffle(unknown)


def test_first_steps() -> None:
    """Those of an epoch, from 0 to below their number."""
    check_step(0, 1)
    check_step(3, 4)
    message = "start_step must be in [0, 4), the steps of an epoch, got 4"
    with pytest.raises(ValueError, match=re.escape(message)):
        check_step(4, 4)
    with pytest.raises(ValueError, match=re.escape("start_step must be >= 0, got -1")):
        check_step(-1, 4)


def test_a_hundred_million_windows_cost_a_batch() -> None:
    """Nothing is as long as the windows are many."""
    import tracemalloc

    tracemalloc.start()
    windows = BatchSchedule(10**8, 8, True, 1).windows(3, 5_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(set(windows.tolist())) == 8
    assert peak < 1e6
