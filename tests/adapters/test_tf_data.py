"""Batches in TensorFlow: the right windows in the right order, and no Python on the way."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from framewin import FrameWindowDataset
from framewin.windows.order import EpochOrder
from tests.conftest import MakeClips, import_or_skip

pytestmark = pytest.mark.usefixtures("tf")
CLIPS = {"a": [*range(12), *range(20, 29)], "b": range(5), "c": range(40, 60)}


@pytest.fixture
def ds(make_store: MakeClips) -> FrameWindowDataset:
    return FrameWindowDataset(make_store(CLIPS), input_frames=3, predict_frames=2)


def equal(batch: tuple, expected: tuple) -> bool:
    return all(np.array_equal(got.numpy(), want) for got, want in zip(batch, expected, strict=True))


@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_unshuffled_batches_equal_numpy(ds: FrameWindowDataset, batch_size: int) -> None:
    """Every window once, in order, with a shorter batch at the end."""
    batches = list(ds.to_tf_dataset(batch_size=batch_size))
    numbers = range(len(ds))
    expected = [
        ds.batch(numbers[first : first + batch_size]) for first in range(0, len(ds), batch_size)
    ]
    assert len(batches) == len(expected)
    assert all(equal(got, want) for got, want in zip(batches, expected, strict=True))


def test_each_epoch_is_the_permutation_of_its_number(ds: FrameWindowDataset) -> None:
    """Epoch after epoch, equal to EpochOrder's answer in numpy."""
    batches = ds.to_tf_dataset(batch_size=4, shuffle=True, seed=9)
    orders = []
    for epoch in range(3):
        order = EpochOrder(len(ds), seed=9).windows(epoch, np.arange(len(ds)))
        expected = [ds.batch(order[first : first + 4]) for first in range(0, len(ds), 4)]
        assert all(equal(got, want) for got, want in zip(batches, expected, strict=True))
        orders.append(tuple(order.tolist()))
    assert len(set(orders)) == 3


def test_an_epoch_can_be_the_first(ds: FrameWindowDataset) -> None:
    """start_epoch=2 begins where two epochs end."""
    batches = ds.to_tf_dataset(batch_size=4, shuffle=True)
    for _ in range(2):
        list(batches)
    later = ds.to_tf_dataset(batch_size=4, shuffle=True, start_epoch=2)
    assert all(
        equal(got, [part.numpy() for part in want])
        for got, want in zip(later, batches, strict=True)
    )


def test_repeat_counts_as_new_epochs(ds: FrameWindowDataset, tf: ModuleType) -> None:
    """ds.repeat(2) is epoch 0, then epoch 1."""
    once = ds.to_tf_dataset(batch_size=4, shuffle=True)
    twice = list(ds.to_tf_dataset(batch_size=4, shuffle=True).repeat(2))
    expected = [*once, *once]
    assert len(twice) == len(expected)
    assert all(
        equal(got, [part.numpy() for part in want])
        for got, want in zip(twice, expected, strict=True)
    )


def test_many_windows_are_shuffled_by_key(
    ds: FrameWindowDataset, tf: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the limit for whole orders, each batch computes its own windows: the same ones."""
    from framewin.adapters import tf_data

    whole = list(ds.to_tf_dataset(batch_size=4, shuffle=True, seed=3))
    monkeypatch.setattr(tf_data, "MAX_STORED_ORDER", 0)
    keyed = ds.to_tf_dataset(batch_size=4, shuffle=True, seed=3)
    assert all(
        equal(got, [part.numpy() for part in want]) for got, want in zip(keyed, whole, strict=True)
    )


def test_shapes_and_length_are_known(ds: FrameWindowDataset, tf: ModuleType) -> None:
    """Static shapes but for the batch, exact cardinality; a full batch when asked for."""
    batches = ds.to_tf_dataset(batch_size=4, shuffle=True)
    inputs, targets = batches.element_spec
    assert (inputs.shape.as_list(), inputs.dtype) == ([None, 3, 4, 6, 1], tf.uint8)
    assert (targets.shape.as_list(), targets.dtype) == ([None, 2, 4, 6, 1], tf.uint8)
    assert int(batches.cardinality()) == len(batches) == -(-len(ds) // 4)
    full = ds.to_tf_dataset(batch_size=4, drop_remainder=True)
    assert full.element_spec[0].shape.as_list() == [4, 3, 4, 6, 1]
    assert int(full.cardinality()) == len(list(full)) == len(ds) // 4


@pytest.mark.parametrize(("dtype", "greatest"), [("uint8", 255), ("uint16", 65535)])
def test_unit_scale(make_store: MakeClips, tf: ModuleType, dtype: str, greatest: int) -> None:
    """float32 in 0..1, the exactly rounded quotient; the stored dtype by default."""
    store = make_store({"a": range(4)}, dtype=dtype, shape=(40, 50, 1))
    ds = FrameWindowDataset(store, input_frames=2, predict_frames=1)
    [(inputs, targets)] = ds.to_tf_dataset(batch_size=2, normalize="unit")
    expected = ds.batch([0, 1])
    assert inputs.dtype == targets.dtype == tf.float32
    for got, want in zip((inputs, targets), expected, strict=True):
        assert np.array_equal(got, want.astype(np.float32) / np.float32(greatest))
    assert ds.to_tf_dataset(batch_size=2).element_spec[0].dtype.name == dtype


def test_window_parameters_reach_the_graph(make_store: MakeClips) -> None:
    """frame_step, window_stride and lead_gap give the same windows as in numpy."""
    ds = FrameWindowDataset(
        make_store(CLIPS),
        input_frames=2,
        predict_frames=2,
        frame_step=2,
        window_stride=3,
        lead_gap=1,
    )
    [batch] = ds.to_tf_dataset(batch_size=len(ds))
    assert len(ds) > 2
    assert equal(batch, ds.batch(range(len(ds))))


def test_no_python_runs_per_batch(ds: FrameWindowDataset, tf: ModuleType) -> None:
    """Nothing in the pipeline calls back into Python, and the frames are not copied into it."""
    batches = ds.to_tf_dataset(batch_size=4, shuffle=True)
    graph = batches._as_serialized_graph().numpy()
    with_python = tf.data.Dataset.range(1).map(
        lambda n: tf.numpy_function(lambda value: value, [n], tf.int64)
    )
    assert b"PyFunc" in with_python._as_serialized_graph().numpy()
    assert b"PyFunc" not in graph
    from framewin.adapters.tf_data import mapped_tensor

    tensor = mapped_tensor(ds.frames)
    assert np.from_dlpack(tensor).ctypes.data == ds.frames.ctypes.data


def test_iterators_can_be_checkpointed(ds: FrameWindowDataset, tf: ModuleType, tmp_path) -> None:
    """A restored iterator goes on exactly where the saved one was, in every place."""
    for place in range(1, 9):
        iterator = iter(ds.to_tf_dataset(batch_size=3, shuffle=True, seed=2))
        for _ in range(place):
            next(iterator)
        saved = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "checkpoint")
        rest = [[part.numpy() for part in batch] for batch in iterator]
        other = iter(ds.to_tf_dataset(batch_size=3, shuffle=True, seed=2))
        tf.train.Checkpoint(iterator=other).restore(saved)
        assert all(equal(got, want) for got, want in zip(other, rest, strict=True))


def test_iterators_without_end_can_be_checkpointed(
    ds: FrameWindowDataset, tf: ModuleType, tmp_path: Path
) -> None:
    """Restored by another process, which begins to count anew, the epochs behind are right, too."""
    options = {"batch_size": 9, "shuffle": True, "seed": 2, "repeat": True, "start_epoch": 1}
    steps = ds.batches(batch_size=9, shuffle=True).schedule.num_batches
    for place in (1, steps, 2 * steps + 1):
        iterator = iter(ds.to_tf_dataset(**options))
        for _ in range(place):
            next(iterator)
        saved = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "checkpoint")
        other = iter(ds.to_tf_dataset(**options))
        tf.train.Checkpoint(iterator=other).restore(saved)
        schedule = ds.batches(batch_size=9, shuffle=True, seed=2).schedule
        for done in range(steps + place, 5 * steps):
            wanted = ds.batch(schedule.windows(*schedule.place(done)))
            assert equal(next(other), wanted)


def test_fit_takes_it(ds: FrameWindowDataset, tf: ModuleType) -> None:
    """Keras trains from it without asking for steps, a new order in each epoch."""
    keras = import_or_skip("keras")
    model = keras.Sequential(
        [
            keras.Input((3, 4, 6, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(48),
            keras.layers.Reshape((2, 4, 6, 1)),
        ]
    )
    model.compile(optimizer="adam", loss="mse")
    batches = ds.to_tf_dataset(batch_size=4, shuffle=True, normalize="unit")
    history = model.fit(batches, epochs=2, verbose=0, validation_data=batches, shuffle=False)
    assert len(history.history["val_loss"]) == 2


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("shard", [{}, {"num_shards": 2, "shard_index": 1}])
def test_a_resumed_run_goes_on_where_it_stopped(
    ds: FrameWindowDataset, shuffle: bool, shard: dict
) -> None:
    """From every step of two epochs: the rest of the sequence, to the third epoch's end."""
    options = {"batch_size": 7, "shuffle": shuffle, "seed": 4, **shard}
    schedule = ds.batches(**options).schedule
    steps = schedule.num_batches
    whole = [ds.batch(schedule.windows(*schedule.place(done))) for done in range(3 * steps)]
    for done in range(2 * steps):
        resumed = ds.to_tf_dataset(**ds.batches(**options).state(done)).repeat(3 - done // steps)
        got = list(resumed)
        assert len(got) == 3 * steps - done
        assert all(equal(batch, want) for batch, want in zip(got, whole[done:], strict=True))


@pytest.mark.parametrize("stored", [True, False])
def test_choices_reach_the_graph(
    make_store: MakeClips, stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """where=, split, weights=, shard and drop_remainder: the schedule's windows, batch by batch."""
    from framewin.adapters import tf_data

    monkeypatch.setattr(tf_data, "MAX_STORED_ORDER", 2**16 if stored else 0)
    store = make_store(CLIPS)
    shape = {"input_frames": 2, "predict_frames": 1}
    for extra in ({"where": "mean > 60 or frame_number == 3"}, {"weights": "mean - 10"}):
        ds = FrameWindowDataset(store, **shape, **extra)
        for part in (ds, *ds.split(train=0.5, test=0.3, by="time").values()):
            for drop, shards in ((False, 1), (True, 2)):
                options = {"batch_size": 2, "shuffle": True, "seed": 3}
                options |= {"drop_remainder": drop, "num_shards": shards, "shard_index": shards - 1}
                batches = part.to_tf_dataset(**options)
                schedule = part.batches(**options).schedule
                assert b"PyFunc" not in batches._as_serialized_graph().numpy()
                for epoch in range(2):
                    wanted = [schedule.windows(epoch, s) for s in range(schedule.num_batches)]
                    expected = [part.batch(windows) for windows in wanted]
                    assert len(batches) == len(expected)
                    assert all(equal(a, b) for a, b in zip(batches, expected, strict=True))


def test_fit_resumes_in_mid_epoch(ds: FrameWindowDataset) -> None:
    """Once with the steps that are left, then whole epochs, without a warning."""
    keras = import_or_skip("keras")
    seen: list[int] = []

    class Count(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            seen.append(batch)

    model = keras.Sequential([keras.Input((3, 4, 6, 1)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss=lambda truth, guess: keras.ops.mean(guess))
    batches = ds.to_tf_dataset(batch_size=4, shuffle=True, normalize="unit", start_step=5)
    steps = ds.batches(batch_size=4).schedule.num_batches
    options = {"verbose": 0, "shuffle": False, "callbacks": [Count()]}
    model.fit(batches, steps_per_epoch=steps - 5, epochs=4, initial_epoch=3, **options)
    assert len(seen) == steps - 5
    whole = ds.to_tf_dataset(batch_size=4, shuffle=True, normalize="unit", start_epoch=4)
    model.fit(whole, epochs=6, initial_epoch=4, **options)
    assert len(seen) == 3 * steps - 5


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("scaled", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("normalize", ["unit", "standard", (3, 2.5)])
def test_scaling_is_alike_in_the_graph_and_in_numpy(
    make_store: MakeClips, dtype: str, scaled: str, normalize: object
) -> None:
    """Bit for bit, and invert() gives the pixels back as far as the dtype carries them."""
    ds = FrameWindowDataset(make_store(CLIPS, dtype=dtype), input_frames=2, predict_frames=1)
    [(inputs, _)] = ds.to_tf_dataset(batch_size=len(ds), normalize=normalize, dtype=scaled)
    scaling = ds.scaling(normalize, dtype=scaled)
    frames = ds.batch(range(len(ds)))[0]
    assert inputs.dtype.name == scaled
    assert np.array_equal(inputs.numpy(), scaling(frames))
    if scaled == "float32":
        assert np.array_equal(scaling.invert(inputs), frames)
    assert scaling.invert(inputs).dtype == frames.dtype


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 4, "start_step": 8}, "start_step must be in [0, 8), the steps of an epoch"),
        ({"batch_size": 4, "dtype": "int8"}, "dtype must be None or one of float32, float16, bf"),
        (
            {"batch_size": 4, "num_shards": 3, "shard_index": 3},
            "shard_index must be in [0, 3), the shards, got 3",
        ),
        ({"batch_size": 0}, "batch_size must be >= 1, got 0"),
        ({"batch_size": 1, "prefetch": -1}, "prefetch must be >= 0, got -1"),
        ({"batch_size": 1, "start_epoch": -1}, "start_epoch must be >= 0, got -1"),
        ({"batch_size": 1, "seed": -1}, "seed must be in [0, 2**63), got -1"),
        (
            {"batch_size": 1, "normalize": "z"},
            "normalize must be None, 'unit', 'standard' or (mean, std), got 'z'",
        ),
        (
            {"batch_size": 99, "drop_remainder": True},
            "batch_size 99 is above the number of windows, 30",
        ),
    ],
)
def test_bad_options(ds: FrameWindowDataset, options: dict, message: str) -> None:
    """The message names the argument and the value."""
    with pytest.raises(ValueError, match=re.escape(message)):
        ds.to_tf_dataset(**options)


SPARSE_STORE = """
import os, sys
from pathlib import Path
import numpy as np
from framewin import FrameWindowDataset
from framewin.schema import ClipTable, FrameFormat, StoreMeta
from framewin.stores import durable
from framewin.stores.layout import Layout
from framewin.stores.zarr_writer import Writer

frame_format = FrameFormat(1000, 1000, 3, "uint8")
frames = 10_000
meta = StoreMeta(frame_format, ClipTable.from_frame_numbers(["a"], [range(frames)]))
names = [f"{n}.png" for n in range(frames)]
with durable.building(Path(sys.argv[1])) as site:
    site.begin({}, resume=False)
    writer = Writer(site, meta, [("", names)], Layout())
    writer.write_metadata()
    writer.finish()

def resident():
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

import tensorflow as tf
tf.constant(0)
ds = FrameWindowDataset(sys.argv[1], input_frames=2, predict_frames=1)
batches = ds.to_tf_dataset(batch_size=1, shuffle=True)
before = resident()
touched = 0
for step, (inputs, targets) in enumerate(batches.repeat()):
    touched += inputs.shape.num_elements() + targets.shape.num_elements()
    if step == 49:
        break
print(resident() - before - touched)
"""


def test_a_store_larger_than_memory(tmp_path: Path) -> None:
    """30 GB, sparse: 50 batches add little more than the bytes touched."""
    command = [sys.executable, "-c", SPARSE_STORE, tmp_path / "big.zarr"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 300e6
    assert (tmp_path / "big.zarr" / "frames" / "c" / "0" / "0" / "0" / "0").stat().st_size > 30e9


TWENTY_EPOCHS = """
import os, sys
from framewin import Augment, FrameWindowDataset

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

ds = FrameWindowDataset(sys.argv[1], input_frames=3, predict_frames=2, where="mean > 20")
augment = Augment(flip_horizontal=True, rotation=9)
batches = ds.to_tf_dataset(batch_size=4, shuffle=True, normalize="unit", augment=augment)
sizes = []
for _ in range(20):
    for _ in batches:
        pass
    sizes.append(resident())
print(sizes[-1] - sizes[1])
"""


def test_memory_is_flat_over_twenty_epochs(make_store: MakeClips) -> None:
    """Once two epochs have been seen, eighteen more need no more than a few megabytes."""
    store = make_store({"a": range(60)}, shape=(64, 64, 1))
    command = [sys.executable, "-c", TWENTY_EPOCHS, store]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 20e6


HUNDRED_MILLION = """
import sys, tracemalloc
import tensorflow as tf
from framewin import FrameWindowDataset, open_frames
from framewin.bench.fresh import peak_rss_bytes

list(tf.data.Dataset.range(2).shuffle(2).batch(1))
tracemalloc.start()
ds = FrameWindowDataset(open_frames(sys.argv[1], axes="tyx"), input_frames=3, predict_frames=2)
assert len(ds) == 10**8
before = peak_rss_bytes()
for shuffle in (True, "blocks"):
    batches = ds.to_tf_dataset(batch_size=8, shuffle=shuffle)
    assert int(batches.cardinality()) == 12_500_000
    next(iter(ds.to_tf_dataset(batch_size=8, shuffle=shuffle, start_step=9_999_999)))
print(tracemalloc.get_traced_memory()[1], peak_rss_bytes() - before)
"""


def test_a_hundred_million_windows_take_no_memory(tmp_path: Path, tf: ModuleType) -> None:
    """Neither opening, nor a shuffled batch from the middle of an epoch, makes an order of all."""
    shape = (10**8 + 4, 1, 2)
    np.lib.format.open_memmap(tmp_path / "big.npy", "w+", np.uint8, shape)
    command = [sys.executable, "-c", HUNDRED_MILLION, tmp_path / "big.npy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    python, process = map(int, done.stdout.split())
    assert python < 50e6
    # A number of each window would take 800 MB.
    assert 0 <= process < 200e6


def test_only_the_replicas_of_this_process_share_its_batches(
    ds: FrameWindowDataset, tf: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: those of all machines were counted, and small batches refused."""
    for workers, refused in ((4, False), (2, True)):
        cluster = tf.train.ClusterSpec({"worker": [f"host{i}:1" for i in range(workers)]})
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster)
        strategy = SimpleNamespace(num_replicas_in_sync=4, cluster_resolver=resolver)
        monkeypatch.setattr(tf.distribute, "get_strategy", lambda strategy=strategy: strategy)
        if not refused:
            ds.to_tf_dataset(batch_size=1)
            continue
        with pytest.raises(ValueError, match="batch_size must be at least the 2 replicas, got 1"):
            ds.to_tf_dataset(batch_size=1)
