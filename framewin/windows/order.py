"""The order of windows in an epoch: a permutation computed point by point, never stored.

A block cipher over just enough bits permutes the window numbers; a result past the last window
is enciphered again until it falls inside (cycle walking; Black and Rogaway, "Ciphers with
Arbitrary Finite Domains", 2002). The cipher is Simon with short words (Beaulieu et al., "The
SIMON and SPECK Families of Lightweight Block Ciphers", 2013), because TensorFlow has that one as
an op, `RandomIndexShuffle`: the adapters inside a TensorFlow graph call the op, everything else
calls `EpochOrder`, and both give the same order.

Two properties of the op need care. It uses only as many key bits as half a block has, 8 for
small stores, so a plain (seed, epoch) key would repeat after 256 epochs: `epoch_key` mixes both
into all bits, with the same cipher, so that a graph can do it too. And it maps two windows to one
when the greatest index is a power of four from 4**8 on: `cipher_max_index` goes one higher then,
and the caller walks on by itself once.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from framewin.schema import Int64Array

ROUNDS = 8
KEY_ROUNDS = 28
KEY_MAX_INDEX = 2**62 - 1
KEY_PARTS = 3
SEED_LIMIT = 2**63
SHORTEST_WORD_BITS = 8

_MASK64 = (1 << 64) - 1
_SIMON_Z = 0x7369F885192C0EF5
_GOLDEN_GAMMA = 0x9E3779B97F4A7C15


def as_integer(name: str, value: object, minimum: int) -> int:
    """An option that counts.

    Raises:
        TypeError: Not an integer.
        ValueError: Below the minimum.
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be >= {minimum}, got {value}")
    return int(value)


def seed_key(seed: int) -> tuple[int, int, int]:
    """The key that enciphers epoch numbers: three numbers in [0, 2**32).

    They are the first outputs of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom
    Number Generators", 2014), upper halves.

    Raises:
        ValueError: A seed outside [0, 2**63).
    """
    if isinstance(seed, int | np.integer) and not 0 <= seed < SEED_LIMIT:
        raise ValueError(f"seed must be in [0, 2**63), got {seed}")
    seed = as_integer("seed", seed, 0)
    first, second, third = (_mix64(seed + i * _GOLDEN_GAMMA) >> 32 for i in (1, 2, 3))
    return first, second, third


def epoch_key(seed: int, epoch: int) -> tuple[int, int, int]:
    """The cipher key of an epoch: three numbers in [0, 2**32)."""
    return derived_key(seed_key(seed), epoch)


@lru_cache(maxsize=64)
def derived_key(key: tuple[int, int, int], number: int) -> tuple[int, int, int]:
    """Another key for each number >= 0: the lower halves of 3 * number, + 1 and + 2, enciphered."""
    numbers = KEY_PARTS * number + np.arange(KEY_PARTS)
    mixed = permute(numbers, key, KEY_MAX_INDEX, rounds=KEY_ROUNDS)
    first, second, third = (int(part) % 2**32 for part in mixed)
    return first, second, third


def cipher_max_index(num_windows: int) -> int:
    """The greatest index to give the cipher so that it permutes [0, num_windows)."""
    last = num_windows - 1
    is_power_of_two = last > 0 and last & (last - 1) == 0
    return last + 1 if is_power_of_two else last


class EpochOrder:
    """Seeded permutations of the windows, one per epoch, in constant memory.

    >>> order = EpochOrder(num_windows=10, seed=0)
    >>> sorted(order.windows(0, np.arange(10)).tolist()) == list(range(10))
    True
    """

    def __init__(self, num_windows: int, *, seed: int) -> None:
        self.num_windows = num_windows
        self.seed = seed

    def windows(self, epoch: int, positions: Int64Array) -> Int64Array:
        """The windows at positions in [0, num_windows) of an epoch >= 0, same shape."""
        return permuted(positions, epoch_key(self.seed, epoch), self.num_windows)


def permuted(indices: Int64Array, key: tuple[int, int, int], count: int) -> Int64Array:
    """A permutation of [0, count), the one of a key, at some indices; same shape."""
    max_index = cipher_max_index(count)
    found = permute(indices, key, max_index)
    outside = found >= count
    if outside.any():
        found[outside] = permute(found[outside], key, max_index)
    return found


def permute(
    indices: Int64Array, key: tuple[int, int, int], max_index: int, *, rounds: int = ROUNDS
) -> Int64Array:
    """What TensorFlow's `RandomIndexShuffle` gives for these indices.

    Args:
        indices: Integers in [0, max_index], any shape.
        key: Three integers in [0, 2**32).
        max_index: Must not be a power of four from 4**8 on (see above).
        rounds: Of the cipher; even.

    Returns:
        int64 in [0, max_index], the shape of `indices`.
    """
    if max_index == 0:
        return np.zeros_like(indices)
    bits = (max_index - 1).bit_length()
    word_bits = max(bits + bits % 2, 2 * SHORTEST_WORD_BITS) // 2
    if word_bits == SHORTEST_WORD_BITS:
        return _short_permutation(key, max_index, rounds)[indices]
    round_keys = _round_keys(key, word_bits, rounds)
    permuted = np.array(indices, dtype=np.uint64)
    outside = np.ones(permuted.shape, dtype=bool)
    while outside.any():
        permuted[outside] = _encipher(permuted[outside], round_keys, word_bits)
        outside = permuted > max_index
    return permuted.astype(np.int64)


@lru_cache(maxsize=16)
def _short_permutation(key: tuple[int, int, int], max_index: int, rounds: int) -> Int64Array:
    """`permute` of [0, max_index] in blocks of the shortest kind.

    A walk there can take thousands of steps. All walks are made at once, twice as far in each
    round.
    """
    reached = _all_short_blocks(_round_keys(key, SHORTEST_WORD_BITS, rounds))
    while (reached[: max_index + 1] > max_index).any():
        reached = np.where(reached > max_index, reached[reached], reached)
    return reached[: max_index + 1].copy()


def _round_keys(key: tuple[int, int, int], word_bits: int, rounds: int) -> list[np.uint64]:
    mask = (1 << word_bits) - 1

    def rotate_right(word: int, count: int) -> int:
        return ((word >> count) | (word << (word_bits - count))) & mask

    words = [part & mask for part in key]
    for i in range(rounds - 3):
        constant = (0xFFFFFFFC & mask) ^ (_SIMON_Z >> i & 1)
        turned = rotate_right(words[-1], 3) ^ rotate_right(words[-1], 4)
        words.append(constant ^ words[-3] ^ turned)
    return [np.uint64(word) for word in words]


def _mix64(value: int) -> int:
    value &= _MASK64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK64
    return value ^ (value >> 31)


def _all_short_blocks(round_keys: list[np.uint64]) -> Int64Array:
    """`_encipher` of every block of the shortest kind, whose words are bytes: by a table."""
    blocks = np.arange(1 << 2 * SHORTEST_WORD_BITS, dtype=np.int64)
    left, right = (blocks >> SHORTEST_WORD_BITS).astype(np.uint8), blocks.astype(np.uint8)
    # The left word of blocks below 256 is 0, so one round of them gives the right word, turned.
    words = np.arange(1 << SHORTEST_WORD_BITS, dtype=np.uint64)
    turned = _encipher(words, [np.uint64(0)], SHORTEST_WORD_BITS).astype(np.uint8)
    for round_key in round_keys:
        left, right = right, left ^ turned[right] ^ np.uint8(round_key)
    enciphered: Int64Array = left.astype(np.int64) << SHORTEST_WORD_BITS | right
    return enciphered


def _encipher(blocks: np.ndarray, round_keys: list[np.uint64], word_bits: int) -> np.ndarray:
    mask = np.uint64((1 << word_bits) - 1)

    def rotate_left(word: np.ndarray, count: int) -> np.ndarray:
        return ((word << np.uint64(count)) | (word >> np.uint64(word_bits - count))) & mask

    left, right = blocks >> np.uint64(word_bits), blocks & mask
    for round_key in round_keys:
        turned = (rotate_left(right, 1) & rotate_left(right, 8)) ^ rotate_left(right, 2)
        left, right = right, left ^ turned ^ round_key
    return (left << np.uint64(word_bits)) | right
