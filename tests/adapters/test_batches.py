"""Every adapter against the others and against the schedule: the same windows, bit for bit."""

from __future__ import annotations

import inspect
import multiprocessing
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from framewin import Augment, Batches, FrameWindowDataset
from framewin.adapters.tf_data import to_tf_dataset
from framewin.batches import BatchOptions
from framewin.frames import open_frames
from tests.conftest import MakeClips, import_or_skip, make_frame
from tests.helpers.oracle import windows_of_clip

CLIPS = {"a": [*range(12), *range(20, 29)], "b": range(5), "c": range(40, 60)}
SHARDS = ("num_shards", "shard_index")
SHAPE = {"input_frames": 3, "predict_frames": 2}
OPTIONS = [
    {"batch_size": 4},
    {"batch_size": 7, "shuffle": True, "seed": 5},
    {"batch_size": 4, "shuffle": True, "drop_remainder": True, "num_shards": 2, "shard_index": 1},
    {"batch_size": 5, "shuffle": True, "normalize": "standard", "dtype": "float16"},
    {"batch_size": 6, "shuffle": True, "augment": Augment(flip_vertical=True, reverse_time=True)},
    {"batch_size": 4, "shuffle": True, "start_epoch": 3, "input_name": "frames"},
    {"batch_size": 4, "shuffle": "blocks", "shuffle_blocks": (5, 2), "start_epoch": 1},
]


@pytest.fixture
def store(make_store: MakeClips) -> Path:
    return make_store(CLIPS)


@pytest.fixture
def ds(store: Path) -> FrameWindowDataset:
    return FrameWindowDataset(store, **SHAPE)


def arrays(batch: object) -> list[np.ndarray]:
    inputs, *others = batch
    parts = [*inputs.values()] if isinstance(inputs, dict) else [inputs]
    return [np.asarray(part) for part in (*parts, *others)]


def equal(ones: object, others: object) -> bool:
    pairs = [(arrays(a), arrays(b)) for a, b in zip(ones, others, strict=True)]
    return all(
        np.array_equal(a, b) for one, other in pairs for a, b in zip(one, other, strict=True)
    )


def two_epochs(ds: FrameWindowDataset, options: dict) -> list[list]:
    batches = ds.batches(**options)
    first = options.get("start_epoch", 0)
    return [
        [batches.batch(epoch, step) for step in range(batches.steps_per_epoch)]
        for epoch in (first, first + 1)
    ]


def sliced_windows() -> list[np.ndarray]:
    """The inputs and targets of every window of `store`, (5, H, W, C), from the frames' numbers."""
    return [
        np.stack([make_frame(clip, [*numbers][place]) for place in (*inputs, *targets)])
        for clip, numbers in enumerate(CLIPS.values())
        for inputs, targets in windows_of_clip(
            [*numbers], **SHAPE, frame_step=1, window_stride=1, lead_gap=0, step=1
        )
    ]


def changed(window: np.ndarray, options: dict) -> list[np.ndarray]:
    """What may become of a window by these options, worked out in float64."""
    if "augment" in options:
        return [w[::time, ::line] for w in (window,) for time in (1, -1) for line in (1, -1)]
    if "normalize" in options:
        store = np.stack([make_frame(c, n) for c, part in enumerate(CLIPS.values()) for n in part])
        return [(window - store.mean()) / store.std()]
    return [window]


@pytest.mark.parametrize("options", OPTIONS)
def test_numpy_batches_are_the_schedule(ds: FrameWindowDataset, options: dict) -> None:
    """Batch i of two epochs holds the windows of its step, sliced by hand; read in any order."""
    batches = ds.batches(**options, epochs=2)
    known = ("batch_size", "shuffle", "shuffle_blocks", "seed", "drop_remainder", *SHARDS)
    schedule = ds.batches(**{name: options[name] for name in known if name in options}).schedule
    first, windows, seen = options.get("start_epoch", 0), sliced_windows(), set()
    steps = [(first + n, step) for n in (0, 1) for step in range(schedule.num_batches)]
    assert len(batches) == len(steps) > 2
    for number in reversed(range(len(steps))):
        inputs, targets = batches[number]
        if "input_name" in options:
            assert [*inputs] == [options["input_name"]]
            inputs = inputs[options["input_name"]]
        assert (inputs.dtype, targets.dtype) == (options.get("dtype", "uint8"),) * 2
        drawn = schedule.windows(*steps[number])
        for got, window in zip(np.concatenate([inputs, targets], 1), drawn, strict=True):
            close = [np.allclose(got, w, 1e-3, 1e-3) for w in changed(windows[window], options)]
            assert sum(close) == 1
            seen.add(close.index(True))
    assert len(seen) == (4 if "augment" in options else 1)
    assert equal(batches, [batches[number] for number in range(len(steps))])
    with pytest.raises(IndexError, match="is out of range, there are"):
        batches[len(batches)]


def test_augmentations_are_drawn_for_seed_epoch_and_window(ds: FrameWindowDataset) -> None:
    """A function gets the generator of these three, wherever the window is in the order."""

    def darken(window: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return window // 2 + rng.integers(100, dtype=np.uint8)

    options = {"batch_size": 4, "shuffle": True, "seed": 5}
    batches = ds.batches(**options, start_epoch=3, start_step=1, augment=darken)
    windows = ds.batches(**options).schedule.windows(3, 1)
    added = [np.random.default_rng((5, 3, w)).integers(100, dtype=np.uint8) for w in windows]
    expected = [
        [w // 2 + n for w, n in zip(part, added, strict=True)] for part in ds.batch(windows)
    ]
    assert len({int(number) for number in added}) > 1
    assert equal([batches[0]], [expected])


def test_the_window_that_cannot_be_augmented_is_named(ds: FrameWindowDataset) -> None:
    """By its number in the dataset, not by its place in the order."""
    window = int(ds.batches(batch_size=1, shuffle=True).schedule.windows(2, 3)[0])
    batches = ds.batches(batch_size=1, shuffle=True, augment=_broken)
    with pytest.raises(ZeroDivisionError) as found:
        batches.batch(2, 3)
    assert found.value.__notes__ == [f"while window {window} of epoch 2 was augmented"]
    assert window != 3


def test_the_seed_changes_built_in_augmentations(ds: FrameWindowDataset) -> None:
    """Those of the same windows in another run, also in the next epoch."""
    augment = Augment(brightness=0.2)
    ones, others = (
        ds.batches(batch_size=len(ds), seed=seed, augment=augment, epochs=2) for seed in (0, 1)
    )
    looks = [arrays(batch)[0].tobytes() for batches in (ones, others) for batch in batches]
    assert len(set(looks)) == 4
    with_seed = augment.apply(
        np.concatenate(ds.batch(range(len(ds))), axis=1),
        seed=1, epoch=1, windows=np.arange(len(ds)), input_frames=3,
    )  # fmt: skip
    assert equal([others[1]], [(with_seed[:, :3], with_seed[:, 3:])])


def test_noise_on_inputs_only_leaves_every_target(ds: FrameWindowDataset) -> None:
    """All input frames are noisy, the last one too; all targets are as stored."""
    batches = ds.batches(batch_size=5, augment=Augment(noise=0.1, noise_inputs_only=True))
    for step in range(len(batches)):
        inputs, targets = ds.batch(range(5 * step, min(5 * step + 5, len(ds))))
        found = batches[step]
        assert np.array_equal(found[1], targets)
        assert (found[0] != inputs).any(axis=(2, 3, 4)).all()


def test_defaults_are_one_epoch_in_order(ds: FrameWindowDataset) -> None:
    """As stored, the shorter last batch too, numbered from either end and no further."""
    batches = ds.batches(batch_size=4)
    expected = [ds.batch(range(i, min(i + 4, len(ds)))) for i in range(0, len(ds), 4)]
    assert len(ds) % 4
    assert equal(batches, expected)
    assert all(part.dtype == np.uint8 for part in arrays(batches[0]))
    assert equal([batches[number - len(expected)] for number in range(len(expected))], expected)
    for number in (len(expected), -len(expected) - 1):
        message = f"batch {number} is out of range, there are {len(expected)}"
        with pytest.raises(IndexError, match=message):
            batches[number]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"input_name": "pictures"}, ["pictures"]),
        ({"input_name": "pictures", "lanes": True}, ["pictures", "resets"]),
        ({"lanes": True}, ["frames", "resets"]),
    ],
)
def test_inputs_are_named(store: Path, options: dict, names: list[str]) -> None:
    """By the given name, or `frames` beside the mask of lanes."""
    ds = FrameWindowDataset(store, **SHAPE, window_stride=3)
    inputs, targets = ds.batches(batch_size=2, **options)[0]
    assert list(inputs) == names
    assert (inputs[names[0]].shape, targets.shape) == ((2, 3, 4, 6, 1), (2, 2, 4, 6, 1))


def test_numpy_batches_resume(ds: FrameWindowDataset) -> None:
    """From any number of steps on, the rest of the same sequence."""
    whole = ds.batches(batch_size=7, shuffle=True, epochs=3)
    for done in range(2 * whole.steps_per_epoch):
        state = ds.batches(batch_size=7, shuffle=True).state(done)
        rest = ds.batches(**state, epochs=3 - state["start_epoch"])
        assert equal(rest, list(whole)[done:])


@pytest.mark.parametrize("options", OPTIONS)
def test_tensorflow_gives_the_same(ds: FrameWindowDataset, options: dict) -> None:
    """Two passes over to_tf_dataset are two epochs of numpy batches."""
    import_or_skip("tensorflow")
    batches = ds.to_tf_dataset(**options)
    for expected in two_epochs(ds, options):
        assert equal(batches, expected)


@pytest.mark.parametrize("options", OPTIONS)
def test_keras_gives_the_same(ds: FrameWindowDataset, options: dict) -> None:
    """A PyDataset: an epoch by number, the next after on_epoch_end, the end an IndexError."""
    import_or_skip("keras")
    batches = ds.to_keras_dataset(**options)
    for expected in two_epochs(ds, options):
        assert equal([batches[step] for step in range(len(batches))], expected)
        message = f"step {len(batches)} is out of range, an epoch has {len(batches)}"
        with pytest.raises(IndexError, match=message):
            batches[len(batches)]
        batches.on_epoch_end()
    with pytest.raises(ValueError, match="start_step needs to_tf or the batches themselves"):
        ds.to_keras_dataset(batch_size=2, start_step=1)


@pytest.mark.parametrize("workers", [1, 3])
def test_keras_fits_from_it(
    ds: FrameWindowDataset, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epoch e of fit is epoch e, every batch once; evaluate gives the same loss each time."""
    keras = import_or_skip("keras")
    model = keras.Sequential([keras.Input((3, 4, 6, 1)), keras.layers.Conv3D(1, (2, 1, 1))])
    model.compile(optimizer="sgd", loss="mse")
    options = {"batch_size": 4, "normalize": "unit", "workers": workers}
    training = ds.to_keras_dataset(shuffle=True, **options)
    scoring = ds.to_keras_dataset(**options)
    asked = []

    class Asked(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            asked.append(seen[-training.num_batches :])

    seen, batch = [], Batches.batch

    def spied(batches: Batches, epoch: int, step: int) -> tuple:
        if batches is training.batches:
            seen.append((epoch, step))
        return batch(batches, epoch, step)

    monkeypatch.setattr(Batches, "batch", spied)
    callbacks = [training.callback(), Asked()]
    model.fit(
        training, epochs=5, initial_epoch=3, verbose=0, shuffle=False, validation_data=scoring,
        callbacks=callbacks,
    )  # fmt: skip
    steps = range(training.num_batches)
    assert [sorted(epoch) for epoch in asked] == [[(e, s) for s in steps] for e in (3, 4)]
    losses = {model.evaluate(scoring, verbose=0) for _ in range(3)}
    assert len(losses) == 1
    assert model.predict(scoring, verbose=0).shape == (len(ds), 2, 4, 6, 1)


@pytest.mark.parametrize(("first", "expected"), [(0, [4, 5]), (4, [4, 5]), (7, [4, 5])])
def test_keras_begins_with_the_start_epoch(
    ds: FrameWindowDataset, first: int, expected: list[int]
) -> None:
    """Regression: the callback set Keras's own epoch. Each fit begins with start_epoch."""
    keras = import_or_skip("keras")
    model = keras.Sequential([keras.Input((3, 4, 6, 1)), keras.layers.Conv3D(1, (2, 1, 1))])
    model.compile(optimizer="sgd", loss="mse")
    batches = ds.to_keras_dataset(batch_size=16, normalize="unit", shuffle=True, start_epoch=4)
    trained = keras.callbacks.LambdaCallback(on_epoch_begin=lambda *_: seen.append(batches.epoch))
    for _ in range(2):
        seen: list[int] = []
        model.fit(
            batches, initial_epoch=first, epochs=first + 2, verbose=0, shuffle=False,
            callbacks=[batches.callback(), trained],
        )  # fmt: skip
        assert seen == expected


def test_options_have_one_default(ds: FrameWindowDataset) -> None:
    """All options of batches are shown by `help`, and type checkers know them by name."""
    shown = {}
    fields = [*inspect.signature(Batches).parameters][1:]
    assert fields == [*BatchOptions.__annotations__]
    for function in (
        FrameWindowDataset.batches,
        FrameWindowDataset.to_tf_dataset,
        FrameWindowDataset.to_keras_dataset,
        FrameWindowDataset.to_torch_loader,
        Batches.to_tf,
        Batches.to_keras,
        Batches.to_torch,
        Batches.memory_estimate,
        to_tf_dataset,
    ):
        if function.__qualname__.startswith("FrameWindowDataset"):
            assert set(fields) <= set(inspect.signature(function).parameters)
        for name, parameter in inspect.signature(function).parameters.items():
            shown.setdefault(name, set()).add(parameter.default)
    assert {name for name, defaults in shown.items() if len(defaults) > 1} == set()
    assert ds.batches(batch_size=4).state(0)["shuffle"] is False


@pytest.mark.parametrize("options", OPTIONS)
def test_torch_gives_the_same(ds: FrameWindowDataset, options: dict) -> None:
    """Each pass over the loader is the next epoch."""
    import_or_skip("torch")
    loader = ds.to_torch_loader(**options)
    for expected in two_epochs(ds, options):
        assert len(loader) == len(expected)
        assert equal(loader, expected)


@pytest.mark.parametrize("kept", [True, False])
def test_torch_workers_change_nothing(ds: FrameWindowDataset, kept: bool) -> None:
    """Two spawned workers take turns: the same batches in the same order, epoch after epoch."""
    import_or_skip("torch")
    options = {"batch_size": 4, "shuffle": True, "augment": Augment(flip_vertical=True)}
    loader = ds.to_torch_loader(**options, num_workers=2, persistent_workers=kept)
    for expected in two_epochs(ds, options):
        assert equal(loader, expected)


def test_torch_reads_a_dataset_as_it_is(ds: FrameWindowDataset) -> None:
    """DataLoader(ds) collates windows that are read together."""
    torch = import_or_skip("torch")
    loader = torch.utils.data.DataLoader(ds, batch_size=7)
    expected = [ds.batch(range(i, min(i + 7, len(ds)))) for i in range(0, len(ds), 7)]
    assert equal(loader, expected)


def test_torch_shapes_and_dtypes(ds: FrameWindowDataset) -> None:
    """channels_first moves C before H and W; bfloat16 is torch's own; resume shortens a pass."""
    torch = import_or_skip("torch")
    pytest.importorskip("ml_dtypes")
    loader = ds.to_torch_loader(
        batch_size=4, channels_first=True, dtype="bfloat16", normalize="unit", start_step=2
    )
    first = next(iter(loader))
    assert (first[0].shape, first[0].dtype) == ((4, 3, 1, 4, 6), torch.bfloat16)
    plain = ds.batch(range(8, 12))[0] / 255
    assert np.abs(first[0].float().numpy()[:, :, 0] - plain[..., 0]).max() < 0.01


def test_a_worker_that_fails_says_where(ds: FrameWindowDataset) -> None:
    """The error of an augmentation reaches the caller with its window, and nothing hangs."""
    import_or_skip("torch")
    loader = ds.to_torch_loader(batch_size=4, augment=_broken, num_workers=1)
    with pytest.raises(ZeroDivisionError, match="while window 0 of epoch 0 was augmented"):
        list(loader)


def _broken(window: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return window * (1 // 0)


def test_grain_takes_both(ds: FrameWindowDataset) -> None:
    """A dataset is a random-access source of windows, batches() one of batches."""
    grain = import_or_skip("grain")
    windows = grain.MapDataset.source(ds)
    assert len(windows) == len(ds)
    assert equal([windows[3]], [ds[3]])
    batches = ds.batches(batch_size=4, shuffle=True, epochs=2)
    read = grain.MapDataset.source(batches).to_iter_dataset()
    assert equal(read, batches)


@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_datasets_are_pickled_small(make_store: MakeClips, suffix: str, compression: str) -> None:
    """A dataset, a part and its batches: a few hundred bytes that open the same windows."""
    store = make_store(CLIPS, suffix=suffix, converted={"compression": compression})
    ds = FrameWindowDataset(store, **SHAPE, where="mean > 20")
    ds.batch(range(len(ds)))
    parts = ds.split(train=0.5, test=0.5, by="time")
    for one in (ds, parts["test"]):
        carried = pickle.dumps(one)
        again = pickle.loads(carried)
        assert len(carried) < 10_000
        assert equal([again.batch(range(len(again)))], [one.batch(range(len(one)))])
        assert again.statistics() == one.statistics()
    batches = parts["train"].batches(batch_size=2, shuffle=True, normalize="standard")
    carried = pickle.dumps(batches)
    assert len(carried) < 10_000
    assert equal(pickle.loads(carried), batches)


def _read_in_child(batches: Batches, queue: object) -> None:
    queue.put([[part.tobytes() for part in arrays(batch)] for batch in batches])


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_child_processes_read_the_same(
    make_store: MakeClips, method: str, compression: str
) -> None:
    """Forked or spawned after frames were read by threads: the same bytes, and an end."""
    store = make_store(CLIPS, suffix=".h5", converted={"compression": compression})
    batches = FrameWindowDataset(store, **SHAPE).batches(batch_size=4, shuffle=True)
    expected = [[part.tobytes() for part in arrays(batch)] for batch in batches]
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = context.Process(target=_read_in_child, args=(batches, queue))
        child.start()
    assert queue.get(timeout=60) == expected
    child.join(timeout=60)
    assert child.exitcode == 0


def test_weights_come_third_everywhere(store: Path) -> None:
    """No-data weights in numpy, TensorFlow and Keras, of the augmented targets."""
    import_or_skip("tensorflow")
    ds = FrameWindowDataset(open_frames(store, nodata=30), **SHAPE, sample_weight="nodata")
    options = {"batch_size": 8, "augment": Augment(flip_horizontal=True), "normalize": "unit"}
    plain = ds.batches(batch_size=8, augment=Augment(flip_horizontal=True))
    numpy = ds.batches(**options)
    for (_, targets), batch in zip([(b[0], b[1]) for b in plain], numpy, strict=True):
        assert np.array_equal(batch[2], (targets[..., 0] != 30).astype("float32"))
    assert equal(ds.to_tf_dataset(**options), numpy)
    keras = ds.to_keras_dataset(**options)
    assert equal([keras[step] for step in range(len(keras))], numpy)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs must be >= 1, got 0"),
        ({"start_epoch": -1}, "start_epoch must be >= 0, got -1"),
        ({"start_step": 8}, "start_step must be in [0, 8), the steps of an epoch, got 8"),
        ({"augment": Augment(turns=True)}, "turns needs square frames, these are 4x6"),
        ({"augment": "flip"}, "augment must be a framewin.Augment, an Albumentations Compose, a"),
        ({"batch_size": 2.0}, "batch_size must be an integer, got 2.0"),
        ({"seed": 1.5}, "seed must be an integer, got 1.5"),
        ({"start_epoch": 1.5}, "start_epoch must be an integer, got 1.5"),
        ({"start_step": True}, "start_step must be an integer, got True"),
        ({"num_shards": 0}, "num_shards must be >= 1, got 0"),
        ({"shard_index": 1}, "shard_index must be in [0, 1), the shards, got 1"),
        ({"shard_index": 0.0, "num_shards": 2}, "shard_index must be an integer, got 0.0"),
        ({"input_name": "resets"}, "input_name must be a name other than 'resets', got 'resets'"),
        ({"input_name": 5}, "input_name must be a name other than 'resets', got 5"),
        ({"input_name": ""}, "input_name must be a name other than 'resets', got ''"),
    ],
)
def test_bad_options(ds: FrameWindowDataset, options: dict, message: str) -> None:
    """Said when the batches are made, not when they are read."""
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        ds.batches(**{"batch_size": 4, **options})
    import_or_skip("tensorflow")
    if "epochs" not in options:
        with pytest.raises((ValueError, TypeError), match=re.escape(message)):
            ds.to_tf_dataset(**{"batch_size": 4, **options})


def test_epochs_are_for_numpy(ds: FrameWindowDataset) -> None:
    """Regression: Keras and torch took the number of epochs and ignored it."""
    import_or_skip("keras")
    import_or_skip("torch")
    for adapter in (ds.to_keras_dataset, ds.to_torch_loader):
        with pytest.raises(ValueError, match="epochs=2 is for numpy; every pass is an epoch"):
            adapter(batch_size=4, epochs=2)
