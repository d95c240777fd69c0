"""Epoch orders: permutations, the same in numpy and in TensorFlow."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framewin.windows import order
from framewin.windows.order import EpochOrder

# Greatest indices around the places where the cipher's block grows, and 2**16 + 1 and 2**18 + 1,
# for which TensorFlow's op alone is not a permutation.
SIZES = [1, 2, 3, 10, 255, 256, 257, 4097, 65535, 65536, 65537, 65538, 262145]


@pytest.mark.parametrize("num_windows", SIZES)
def test_an_epoch_is_a_permutation(num_windows: int) -> None:
    """Every window comes exactly once."""
    windows = EpochOrder(num_windows, seed=5).windows(3, np.arange(num_windows))
    assert np.array_equal(np.sort(windows), np.arange(num_windows))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**63 - 1), st.integers(0, 2**40))
def test_any_seed_and_epoch_give_a_permutation(n: int, seed: int, epoch: int) -> None:
    """Also for great seeds and epochs."""
    windows = EpochOrder(n, seed=seed).windows(epoch, np.arange(n))
    assert np.array_equal(np.sort(windows), np.arange(n))


def test_one_position_costs_no_more_than_itself() -> None:
    """Positions of a huge epoch are found without making the others."""
    windows = EpochOrder(10**12, seed=0).windows(0, np.array([0, 10**12 - 1]))
    assert len(set(windows.tolist())) == 2
    assert (windows < 10**12).all()


def test_orders_differ_between_seeds_and_epochs() -> None:
    """Regression: a plain key repeats every 256 epochs and seeds in small stores."""
    n = 100
    keys = [(seed, epoch) for seed in (0, 1, 256, 2**32) for epoch in (0, 1, 256, 65536, 2**32)]
    orders = {
        tuple(EpochOrder(n, seed=seed).windows(epoch, np.arange(n)).tolist())
        for seed, epoch in keys
    }
    assert len(orders) == len(keys)


def test_orders_stay_as_they_are() -> None:
    """Pinned answers: a change would end every run that is to be resumed in another order."""
    assert EpochOrder(20, seed=3).windows(2, np.arange(20)).tolist() == PINNED
    large = EpochOrder(10**12, seed=2**40).windows(2**33, np.array([0, 10**11]))
    assert large.tolist() == [451423642020, 550897208621]


@pytest.mark.parametrize(
    ("num_windows", "expected"),
    [
        (1, [0]),
        (2, [0, 1]),
        (3, [2, 1, 0]),
        (5, [2, 1, 4, 3, 0]),
        (9, [2, 6, 5, 3, 0, 4, 1, 8, 7]),
        (17, [2, 10, 13, 3, 0, 4, 1, 14, 11, 6, 9, 7, 15, 5, 16, 8, 12]),
    ],
)
def test_orders_of_few_windows_stay_as_they_are(num_windows: int, expected: list[int]) -> None:
    """Pinned around powers of two, where the cipher is given one more."""
    found = EpochOrder(num_windows, seed=3).windows(1, np.arange(num_windows))
    assert found.tolist() == expected


@pytest.mark.parametrize(
    ("num_windows", "expected"),
    [
        (256, [121, 125, 72]),
        (65536, [30018, 58461, 8250]),
        (65537, [48083, 13836, 276]),
        (65538, [48083, 13836, 61786]),
        (262145, [245573, 213326, 4507]),
        (2**32 + 1, [4181217040, 2991884594, 3566033602]),
    ],
)
def test_orders_of_many_windows_stay_as_they_are(num_windows: int, expected: list[int]) -> None:
    """Pinned at the first two places and the last."""
    places = np.array([0, 1, num_windows - 1])
    assert EpochOrder(num_windows, seed=3).windows(2, places).tolist() == expected


def test_the_cipher_is_simon() -> None:
    """The paper's test vector of Simon64/96, with the halves of a block in the other order."""
    keys = order._round_keys((0x03020100, 0x0B0A0908, 0x13121110), 32, 42)
    block = np.array([0x6E696C63_6F722067], np.uint64)
    assert order._encipher(block, keys, 32).tolist() == [0x111A8FC8_5CA2E27F]


def test_seeds_are_mixed_by_splitmix64() -> None:
    """The published first outputs for the seed 0, upper halves."""
    outputs = (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F)
    assert order.seed_key(0) == tuple(output >> 32 for output in outputs)


def test_integers_are_integers() -> None:
    """From the minimum on, of numpy too; no bool, no float, no text."""
    assert order.as_integer("count", 3, 3) == 3
    assert type(order.as_integer("count", np.uint8(4), 3)) is int
    with pytest.raises(ValueError, match=r"^count must be >= 3, got 2$"):
        order.as_integer("count", 2, 3)
    for wrong in (True, 4.0, "4", None, np.bool_(True)):
        with pytest.raises(TypeError, match=r"^count must be an integer, got "):
            order.as_integer("count", wrong, 0)
    for wrong in (1.5, "0", None, False):
        with pytest.raises(TypeError, match=r"^seed must be an integer, got "):
            order.seed_key(wrong)


PINNED = [1, 2, 16, 5, 0, 8, 4, 9, 19, 11, 15, 6, 10, 13, 17, 14, 3, 12, 7, 18]


def test_orders_look_random() -> None:
    """Over many epochs each window comes about equally often at each place."""
    n, epochs = 20, 400
    counts = np.zeros((n, n))
    shuffler = EpochOrder(n, seed=1)
    for epoch in range(epochs):
        counts[np.arange(n), shuffler.windows(epoch, np.arange(n))] += 1
    expected = epochs / n
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    degrees = (n - 1) ** 2
    assert abs(chi_squared - degrees) < 6 * np.sqrt(2 * degrees)


@pytest.mark.parametrize("num_windows", SIZES)
@pytest.mark.parametrize(("seed", "epoch"), [(0, 0), (7, 300), (2**63 - 1, 2**31)])
def test_tensorflow_gives_the_same_order(
    tf: ModuleType, num_windows: int, seed: int, epoch: int
) -> None:
    """The graph and numpy agree window by window."""
    from framewin.adapters.tf_data import _epoch_key, _permute

    @tf.function
    def in_graph(epoch: object, positions: object) -> object:
        return _permute(positions, _epoch_key(seed, epoch), num_windows)

    positions = np.unique(np.linspace(0, num_windows - 1, 500).astype(np.int64))
    found = in_graph(tf.constant(epoch, tf.int64), tf.constant(positions)).numpy()
    expected = EpochOrder(num_windows, seed=seed).windows(epoch, positions)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_bad_seed(seed: int) -> None:
    """The message names the range and the value."""
    with pytest.raises(ValueError, match=rf"seed must be in \[0, 2\*\*63\), got {seed}"):
        order.seed_key(seed)
