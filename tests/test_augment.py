"""Augmentations: alike on all frames, a function of (seed, epoch, window), safe in value."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framewin import FrameWindowDataset
from framewin.augment import DRAWS, Augment, augment_windows, draw, noise
from framewin.frames import open_frames
from tests.conftest import MakeClips, import_or_skip

CLIPS = {"a": range(12), "b": range(9)}
KINDS = {
    "reverse_time": True,
    "flip_horizontal": True,
    "flip_vertical": True,
    "turns": True,
    "shift": 0.3,
    "rotation": 30.0,
    "zoom": (0.7, 1.4),
    "shear": 15.0,
    "crop": (3, 4),
    "contrast": (0.3, 2.0),
    "brightness": 0.4,
    "noise": 0.2,
}
EXACT = ("reverse_time", "flip_horizontal", "flip_vertical", "turns", "crop")


def still_windows(dtype: str, count: int = 3) -> np.ndarray:
    """Windows of equal frames, (count, 4, 6, 6, 2)."""
    frame = np.random.default_rng(1).integers(0, 200, (count, 1, 6, 6, 2))
    return np.repeat(frame, 4, axis=1).astype(dtype)


def apply(augment: object, frames: np.ndarray, windows: object = None, **options: int) -> object:
    numbers = np.arange(len(frames)) if windows is None else np.asarray(windows)
    options = {"seed": 0, "epoch": 0, "input_frames": 2, **options}
    return augment_windows(augment, frames, windows=numbers, **options)


@pytest.fixture
def ds(make_store: MakeClips) -> FrameWindowDataset:
    return FrameWindowDataset(
        make_store(CLIPS, shape=(6, 6, 2), dtype="uint8"), input_frames=2, predict_frames=2
    )


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float64", "int32"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "noise"])
def test_all_frames_of_a_window_change_alike(kind: str, dtype: str) -> None:
    """Equal frames stay equal; the dtype stays."""
    frames = still_windows(dtype)
    result = apply(Augment(**{kind: KINDS[kind]}), frames)
    assert result.dtype == frames.dtype
    assert (result == result[:, :1]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_windows_and_epochs_differ(kind: str) -> None:
    """Over some windows, and over some epochs of one window, more than one outcome is seen."""
    frames = np.repeat(np.random.default_rng(2).integers(0, 255, (1, 4, 6, 6, 1)), 16, axis=0)
    frames, augment = frames.astype("uint8"), Augment(**{kind: KINDS[kind]})
    assert len({window.tobytes() for window in apply(augment, frames)}) > 1
    one = [apply(augment, frames[:1], epoch=epoch).tobytes() for epoch in range(16)]
    assert len(set(one)) > 1
    assert apply(augment, frames[:1], epoch=3).tobytes() == one[3]


@given(st.permutations(range(9)), st.integers(0, 9), st.integers(0, 99))
def test_a_batch_changes_nothing(numbers: list[int], epoch: int, seed: int) -> None:
    """A window's result is the same alone and in any company."""
    frames = np.random.default_rng(3).integers(0, 255, (9, 4, 6, 6, 1)).astype("uint8")
    augment = Augment(**KINDS)
    together = apply(augment, frames[numbers], numbers, epoch=epoch, seed=seed)
    for place in (0, 4, 8):
        alone = apply(augment, frames[[numbers[place]]], [numbers[place]], epoch=epoch, seed=seed)
        assert np.array_equal(alone[0], together[place])


def test_draws_are_uniform_and_apart() -> None:
    """Every kind of draw fills [0, 1), and no two kinds go together."""
    drawn = draw(5, 2, np.arange(3000))
    assert ((drawn >= 0) & (drawn < 1)).all()
    assert np.abs(drawn.mean(axis=0) - 0.5).max() < 0.03
    correlations = np.corrcoef(drawn.T) - np.eye(len(DRAWS))
    assert np.abs(correlations).max() < 0.09


def test_plain_outcomes_are_the_only_ones() -> None:
    """Mirrors, turns, reversal and crops only move pixels: each result is one of numpy's."""
    window = np.arange(3 * 6 * 6).reshape(1, 3, 6, 6, 1).astype("uint16")
    many = np.repeat(window, 64, axis=0)
    quarters = {np.rot90(window[0], k, (1, 2)).tobytes() for k in range(4)}
    crops = {
        window[0, :, y : y + 3, x : x + 4].tobytes() for y in range(4) for x in range(3)
    }  # fmt: skip
    for kind, expected in (
        ("flip_horizontal", {window.tobytes(), window[:, :, :, ::-1].tobytes()}),
        ("flip_vertical", {window.tobytes(), window[:, :, ::-1].tobytes()}),
        ("reverse_time", {window.tobytes(), window[:, ::-1].tobytes()}),
        ("turns", quarters),
        ("crop", crops),
    ):
        results = apply(Augment(**{kind: KINDS[kind]}), many)
        assert {result.tobytes() for result in results} == expected


def test_values_are_clipped_never_wrapped() -> None:
    """Light beyond white is white, beyond black is black; floats keep what is beyond."""
    ends = np.array([0, 255], "uint8").reshape(1, 1, 1, 2, 1).repeat(40, axis=0)
    changed = apply(Augment(brightness=0.9, contrast=(1, 3), noise=0.3), ends, input_frames=1)
    assert (changed[:, 0, 0, 1, 0] >= changed[:, 0, 0, 0, 0]).all()
    assert {changed.min(), changed.max()} == {0, 255}
    floats = apply(Augment(brightness=0.9), ends.astype("float32") / 255, input_frames=1)
    assert floats.max() > 1
    assert floats.min() < 0


def test_noise_can_spare_the_targets() -> None:
    """noise_inputs_only changes the inputs, each frame by itself, and no target."""
    frames = still_windows("uint8")
    result = apply(Augment(noise=0.1, noise_inputs_only=True), frames)
    assert np.array_equal(result[:, 2:], frames[:, 2:])
    assert (result[:, 0] != result[:, 1]).any()
    assert (result[:, :2] != frames[:, :2]).any()


def test_nothing_asked_changes_nothing() -> None:
    """The defaults are the identity."""
    frames = still_windows("uint8")
    assert np.array_equal(apply(Augment(), frames), frames)


@pytest.mark.parametrize("kinds", [*([kind] for kind in KINDS), list(KINDS)])
def test_the_graph_gives_what_numpy_gives(
    make_store: MakeClips, tf: ModuleType, kinds: list[str]
) -> None:
    """Exactly where pixels only move, else integers to rounding; noise, too."""
    store = make_store(CLIPS, shape=(6, 6, 2), dtype="uint16")
    ds = FrameWindowDataset(store, input_frames=2, predict_frames=2)
    augment = Augment(**{kind: KINDS[kind] for kind in kinds})
    batches = ds.to_tf_dataset(batch_size=len(ds), augment=augment, seed=6, start_epoch=2)
    assert b"PyFunc" not in batches._as_serialized_graph().numpy()
    [batch] = batches
    got = np.concatenate([part.numpy() for part in batch], axis=1)
    frames = np.concatenate(ds.batch(range(len(ds))), axis=1)
    want = apply(augment, frames, seed=6, epoch=2)
    assert got.dtype == want.dtype
    assert batches.element_spec[0].shape.as_list() == [None, 2, *want.shape[2:]]
    if set(kinds) <= set(EXACT):
        assert np.array_equal(got, want)
    else:
        assert np.abs(got.astype(int) - want).max() <= 1


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "int16", "uint32", "int32", "float16", "float32", "float64"]
)
def test_every_dtype_is_augmented_alike(tmp_path: Path, tf: ModuleType, dtype: str) -> None:
    """All fields at once, values up to the ends of the dtype: integers by one, floats by rounding.

    Regression: the graph drew another noise than numpy.
    """
    rng, kind = np.random.default_rng(0), np.dtype(dtype).kind
    shape = (9, 12, 12, 2)
    values = rng.normal(size=shape) if kind == "f" else rng.integers(
        np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True
    )  # fmt: skip
    np.save(tmp_path / "a.npy", values.astype(dtype))
    ds = FrameWindowDataset(
        open_frames(tmp_path / "a.npy", axes="tyxc"), input_frames=2, predict_frames=2
    )
    options = {"batch_size": len(ds), "seed": 4, "augment": Augment(**KINDS)}
    [got], [want] = ds.to_tf_dataset(**options), ds.batches(**options)
    tolerance = {"atol": 8 * np.finfo(dtype).eps, "rtol": 1e-4} if kind == "f" else {"atol": 1}
    for one, other in zip(got, want, strict=True):
        assert one.numpy().dtype == other.dtype == dtype
        assert np.allclose(one.numpy().astype(float), other.astype(float), **tolerance)


def test_batch_size_order_and_resume_change_no_window(ds: FrameWindowDataset, tf) -> None:
    """In the graph: window by window equal, in batches of 3 and 7, shuffled, sharded, resumed."""
    augment = Augment(**KINDS)

    def windows(**options: object) -> dict[int, bytes]:
        given = {"seed": 3, "shuffle": True, "start_epoch": 1, **options}
        order = ("batch_size", "seed", "shuffle", "num_shards", "shard_index")
        schedule = ds.batches(**{key: given[key] for key in order if key in given}).schedule
        found = {}
        batches = ds.to_tf_dataset(augment=augment, **given)
        for step, batch in enumerate(batches, start=given.get("start_step", 0)):
            joined = np.concatenate([part.numpy() for part in batch], axis=1)
            numbers = schedule.windows(1, step).tolist()
            found |= {n: w.tobytes() for n, w in zip(numbers, joined, strict=True)}
        return found

    whole = windows(batch_size=7)
    assert len(whole) == len(ds)
    assert windows(batch_size=3) == whole
    assert (
        windows(batch_size=2, num_shards=2, shard_index=0)
        | windows(batch_size=2, num_shards=2, shard_index=1)
        == whole
    )
    rest = windows(batch_size=3, start_step=2)
    assert {number: whole[number] for number in rest} == rest
    assert windows(batch_size=7, start_epoch=1, seed=4) != whole


def test_epochs_are_augmented_anew(ds: FrameWindowDataset, tf: ModuleType) -> None:
    """Nothing is cached: two passes differ, the frames behind them do not."""
    batches = ds.to_tf_dataset(batch_size=len(ds), augment=Augment(rotation=20))
    first, second = (next(iter(batches))[0].numpy() for _ in range(2))
    assert (first != second).any()


def test_a_function_sees_whole_windows_and_its_own_generator(ds: FrameWindowDataset, tf) -> None:
    """(window, rng) -> window: the same numbers in any batch size, new ones in each epoch."""

    def shifted(window: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        assert window.shape == (4, 6, 6, 2)
        return window + rng.integers(0, 50, dtype="uint8")

    def run(batch_size: int, epoch: int) -> np.ndarray:
        batches = ds.to_tf_dataset(
            batch_size=batch_size, augment=shifted, seed=1, start_epoch=epoch
        )
        return np.concatenate([inputs.numpy() for inputs, _ in batches])

    assert np.array_equal(run(3, 0), run(8, 0))
    assert not np.array_equal(run(3, 0), run(3, 1))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda w, r: w[:2], "augment gave uint8 (2, 6, 6, 2) for window 0, expected uint8 (4, he"),
        (lambda w, r: w / 2, "augment gave float64 (4, 6, 6, 2) for window 0, expected uint8 (4,"),
        (lambda w, r: w[:, : r.integers(1, 6)], "augment gave windows of different shapes, "),
    ],
)
def test_functions_that_break_windows(wrong: object, message: str) -> None:
    """Frames lost, another dtype, or shapes that differ are refused."""
    with pytest.raises(ValueError, match=re.escape(message)):
        apply(wrong, still_windows("uint8", 8))
    with pytest.raises(TypeError, match=re.escape("augment must be a framewin.Augment, an Albu")):
        apply(3, still_windows("uint8"))


@pytest.mark.filterwarnings("ignore::UserWarning:albumentations")
def test_albumentations_is_called_once_for_a_window() -> None:
    """All frames alike, a function of (seed, epoch, window) whatever the global seeds."""
    albumentations = import_or_skip("albumentations")
    compose = albumentations.Compose(
        [albumentations.HorizontalFlip(p=0.5), albumentations.Affine(rotate=(-90, 90), p=1)]
    )
    for dtype in ("uint8", "float32"):
        frames = still_windows(dtype, 6)
        first = apply(compose, frames)
        assert (first == first[:, :1]).all()
        assert first.dtype == frames.dtype
        np.random.seed(99)
        assert np.array_equal(apply(compose, frames[[4, 2]], [4, 2]), first[[4, 2]])
        assert not np.array_equal(apply(compose, frames, epoch=1), first)


def test_keras_layers_change_all_frames_alike() -> None:
    """One layer or several, seeded by (seed, epoch, window), rounded into the dtype."""
    keras = import_or_skip("keras")
    import_or_skip("tensorflow")
    frames = still_windows("uint8", 6)
    for layer in (
        keras.layers.RandomRotation(0.3),
        keras.Sequential([keras.layers.RandomFlip(), keras.layers.RandomTranslation(0.4, 0.4)]),
    ):
        first = apply(layer, frames)
        assert first.dtype == np.uint8
        assert (first == first[:, :1]).all()
        assert (first != frames).any()
        assert np.array_equal(apply(layer, frames[[5, 1]], [5, 1]), first[[5, 1]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shift": -1}, "shift must be >= 0, got -1"),
        ({"shear": 90}, "shear must be below 90 degrees, got 90"),
        ({"zoom": (2, 1)}, "zoom must be (low, high) with 0 < low <= high, got (2, 1)"),
        ({"contrast": (0, 1)}, "contrast must be (low, high) with 0 < low <= high, got (0, 1)"),
        ({"crop": (0, 2)}, "crop must be (height, width) of at least 1, got (0, 2)"),
        ({"crop": (2.5, 3)}, "crop must be (height, width) of at least 1, got (2.5, 3)"),
        ({"crop": 64}, "crop must be (height, width) of at least 1, got 64"),
        ({"zoom": 1.2}, "zoom must be (low, high) with 0 < low <= high, got 1.2"),
        ({"rotation": "10"}, "rotation must be >= 0, got '10'"),
        ({"shear": True}, "shear must be >= 0, got True"),
        ({"flip_vertical": "no"}, "flip_vertical must be True or False, got 'no'"),
    ],
)
def test_bad_augmentations(options: dict, message: str) -> None:
    """The message names the field and the value."""
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        Augment(**options)


@pytest.mark.parametrize(
    ("options", "shape", "nodata", "message"),
    [
        ({"turns": True}, (4, 6, 1), None, "turns needs square frames, these are 4x6; crop or"),
        ({"crop": (5, 6)}, (4, 6, 1), None, "crop (5, 6) is larger than the frames, 4x6"),
        ({"rotation": 9, "flip_vertical": True}, (4, 4, 1), 255.0,
         "flip_vertical, rotation would mix the no-data value 255 with data; use only"),
    ],
)  # fmt: skip
def test_frames_that_do_not_suit(
    options: dict, shape: tuple, nodata: float | None, message: str
) -> None:
    """Refused before the first batch."""
    with pytest.raises(ValueError, match=re.escape(message)):
        Augment(**options).check(shape, nodata)


@pytest.mark.parametrize("how", [Augment(shift=0.4, brightness=0.3), "function"])
def test_a_window_drawn_twice_is_changed_in_two_ways(make_store: MakeClips, how: object) -> None:
    """Weighted draws are augmented by their place in the epoch, in the graph as in numpy."""
    store = make_store({"a": range(9)}, shape=(6, 6, 2))
    ds = FrameWindowDataset(
        store, input_frames=2, predict_frames=2, weights=lambda table: table["frame_number"] == 0
    )
    augment = (lambda w, rng: w + rng.integers(200, dtype="uint8")) if how == "function" else how
    options = {"batch_size": 6, "shuffle": True, "augment": augment}
    [batch] = ds.batches(**options)
    assert set(ds.batches(batch_size=6, shuffle=True).schedule.windows(0, 0).tolist()) == {0}
    assert len({window.tobytes() for window in batch[0]}) > 1
    import_or_skip("tensorflow")
    [got] = ds.to_tf_dataset(**options)
    assert all(np.abs(np.asarray(a, int) - b).max() <= 1 for a, b in zip(got, batch, strict=True))


def test_noise_in_the_graph_is_normal_and_independent(tmp_path: Path, tf: ModuleType) -> None:
    """Mean, spread and tails of the normal distribution; frames and windows of their own."""
    np.save(tmp_path / "still.npy", np.zeros((8, 60, 50), "float32"))
    ds = FrameWindowDataset(tmp_path / "still.npy", input_frames=2, predict_frames=2)
    [batch] = ds.to_tf_dataset(batch_size=5, augment=Augment(noise=1.0))
    noise = np.concatenate(batch, axis=1)
    assert noise.mean() == pytest.approx(0, abs=0.02)
    assert noise.std() == pytest.approx(1, abs=0.02)
    for bound, share in ((1, 0.3173), (2, 0.0455), (3, 0.0027)):
        assert (np.abs(noise) > bound).mean() == pytest.approx(share, rel=0.25)
    drawn = noise.reshape(20, -1)
    assert np.abs(np.corrcoef(drawn) - np.eye(20)).max() < 0.09
    assert np.abs(np.corrcoef(drawn[:, 1:].ravel(), drawn[:, :-1].ravel())[0, 1]) < 0.02


def test_noise_adds_no_large_constant_to_the_graph(tf: ModuleType) -> None:
    """Regression: each dataset held a number for every value of a window."""
    from framewin.adapters.tf_augment import _Ops

    with tf.Graph().as_default() as graph:
        frames = tf.zeros((1, 20, 64, 64, 1))
        noise(Augment(noise=0.1), frames, tf.zeros((1, len(DRAWS)), tf.float64), "uint8", 10, _Ops)
    assert graph.as_graph_def().ByteSize() < 50_000
