"""Keras `fit` on the adapters: step counts, validation, errors in workers, several devices."""

from __future__ import annotations

import gc
import os
import pickle
import re
import subprocess
import sys
import weakref
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from framewin import FrameWindowDataset, SplitPart, open_frames
from tests.conftest import ROOT, MakeClips, import_or_skip

SHAPE = {"input_frames": 3, "predict_frames": 2}


@pytest.fixture
def keras(tf: ModuleType) -> ModuleType:
    """Keras, or a skip."""
    return import_or_skip("keras")


@pytest.fixture
def ds(make_store: MakeClips) -> FrameWindowDataset:
    """Ten windows."""
    return FrameWindowDataset(make_store({"a": range(14)}), **SHAPE)


def small_model(keras: ModuleType, rate: float = 0.01) -> object:
    model = keras.Sequential([keras.Input((3, 4, 6, 1)), keras.layers.Conv3D(1, (2, 1, 1))])
    model.compile(optimizer=keras.optimizers.SGD(rate), loss="mse")
    return model


def test_steps_need_not_be_said(ds: FrameWindowDataset, keras: ModuleType) -> None:
    """Three epochs of three steps without steps_per_epoch; with repeat, of any number."""
    batches = ds.to_tf_dataset(batch_size=4, shuffle=True, normalize="unit")
    assert int(batches.cardinality()) == 3
    model = small_model(keras)
    model.fit(batches, epochs=3, verbose=0, shuffle=False)
    assert int(model.optimizer.iterations) == 9
    endless = ds.to_tf_dataset(batch_size=4, shuffle=True, normalize="unit", repeat=True)
    model.fit(endless, epochs=3, steps_per_epoch=5, verbose=0, shuffle=False)
    assert int(model.optimizer.iterations) == 9 + 15
    two_epochs = list(ds.to_tf_dataset(batch_size=4, shuffle=True).repeat(2))
    taken = ds.to_tf_dataset(batch_size=4, shuffle=True, repeat=True).take(6)
    for one, other in zip(taken, two_epochs, strict=True):
        assert np.array_equal(one[0], other[0])


def test_other_steps_are_refused_before_training(ds: FrameWindowDataset, keras: ModuleType) -> None:
    """By the callback of a PyDataset, as are too few, which would end training early."""
    batches = ds.to_keras_dataset(batch_size=4, normalize="unit")
    model = small_model(keras)
    options = {"shuffle": False, "verbose": 0, "callbacks": [batches.callback()]}
    message = "steps_per_epoch is 5, but an epoch has 3 batches; leave it out, or use to_tf_dataset"
    with pytest.raises(ValueError, match=re.escape(message)):
        model.fit(batches, steps_per_epoch=5, **options)
    assert int(model.optimizer.iterations) == 0
    with pytest.raises(ValueError, match="steps_per_epoch is 2, but an epoch has 3 batches"):
        model.fit(batches, steps_per_epoch=2, **options)
    model.fit(batches, steps_per_epoch=3, epochs=2, **options)
    assert int(model.optimizer.iterations) == 6


@pytest.mark.parametrize("adapter", ["to_tf_dataset", "to_keras_dataset"])
def test_validation_is_the_same_in_every_epoch(
    ds: FrameWindowDataset, keras: ModuleType, adapter: str
) -> None:
    """Also where validation_steps leaves some of it out: a model that stands still shows it."""
    batches = getattr(ds, adapter)(batch_size=2, normalize="unit")
    history = small_model(keras, rate=0.0).fit(
        batches, validation_data=batches, validation_steps=2, epochs=3, verbose=0, shuffle=False
    )
    assert len(set(history.history["val_loss"])) == 1


def test_memory_is_known_before(ds: FrameWindowDataset) -> None:
    """So many batches at most, whatever the shuffling."""
    frame = 4 * 6
    assert ds.batches(batch_size=4).memory_estimate() == (1 + 2 + 2) * 4 * 5 * frame
    assert ds.batches(batch_size=4, dtype="float32").memory_estimate(prefetch=0) == (
        3 * 4 * 5 * frame * 4 + 2 * 4 * 5 * frame
    )
    with pytest.raises(ValueError, match=r"dtype must be None or one of float32, .*'float64'"):
        ds.batches(batch_size=4, dtype="float64").memory_estimate()


def _third(window: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if window[0, 0, 0, 0] == 21:
        raise ValueError("this one is broken")
    return window


def test_an_error_in_a_thread_reaches_the_caller(ds: FrameWindowDataset, keras: ModuleType) -> None:
    """With the window it was about, and fit ends."""
    batches = ds.to_keras_dataset(batch_size=2, normalize="unit", augment=_third, workers=2)
    with pytest.raises(Exception, match="this one is broken") as caught:
        small_model(keras).fit(batches, verbose=0, shuffle=False)
    chain, notes = caught.value, []
    while chain is not None:
        notes += getattr(chain, "__notes__", [])
        chain = chain.__cause__ or chain.__context__
    assert "while window 3 of epoch 0 was augmented" in " ".join([*notes, str(caught.value)])


PROCESSES = """
import multiprocessing, sys
import numpy as np
from tests.adapters.test_fit import _third

def main():
    multiprocessing.set_start_method("spawn")
    import keras
    from framewin import FrameWindowDataset
    ds = FrameWindowDataset(sys.argv[1], input_frames=3, predict_frames=2)
    model = keras.Sequential([keras.Input((3, 4, 6, 1)), keras.layers.Conv3D(1, (2, 1, 1))])
    model.compile(optimizer="sgd", loss="mse")
    options = {"batch_size": 4, "normalize": "unit", "workers": 2, "use_multiprocessing": True}
    model.fit(ds.to_keras_dataset(**options), epochs=2, verbose=0, shuffle=False)
    print("steps", int(model.optimizer.iterations))
    try:
        model.fit(ds.to_keras_dataset(**options, augment=_third), verbose=0, shuffle=False)
    except Exception as exc:
        print("caught", exc, *exc.__notes__)

if __name__ == "__main__":
    main()
"""

DEVICES = """
import sys
import numpy as np
import tensorflow as tf
[cpu] = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import keras
from framewin import FrameWindowDataset
ds = FrameWindowDataset(sys.argv[1], input_frames=3, predict_frames=2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
batches = ds.to_tf_dataset(batch_size=4, shuffle=True, seed=3, normalize="unit")
firsts = []
for replicas in strategy.experimental_distribute_dataset(batches):
    parts = strategy.experimental_local_results(replicas[0])
    firsts.append(np.concatenate([part.numpy()[:, 0] for part in parts]))
schedule = ds.batches(batch_size=4, shuffle=True, seed=3).schedule
for step, found in enumerate(firsts):
    wanted = ds.batch(schedule.windows(0, step))[0][:, 0] / np.float32(255)
    assert np.array_equal(found, wanted), step
assert len(firsts) == schedule.num_batches
with strategy.scope():
    try:
        ds.to_tf_dataset(batch_size=4)
    except ValueError as exc:
        print(exc)
    batches = ds.to_tf_dataset(batch_size=4, shuffle=True, normalize="unit", drop_remainder=True)
    model = keras.Sequential([keras.Input((3, 4, 6, 1)), keras.layers.Conv3D(1, (2, 1, 1))])
    model.compile(optimizer="sgd", loss="mse")
losses = model.fit(batches, epochs=2, verbose=0, shuffle=False).history["loss"]
assert np.isfinite(losses).all(), losses
print("replicas", strategy.num_replicas_in_sync, "epochs", len(losses))
"""


PASSES = """
import sys
import numpy as np
import tensorflow as tf
[cpu] = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import keras
from framewin import FrameWindowDataset
ds = FrameWindowDataset(sys.argv[1], input_frames=3, predict_frames=2)
options = {"batch_size": 4, "shuffle": True, "seed": 3, "drop_remainder": True}
schedule = ds.batches(**options).schedule
seen = []

class Seen(keras.Sequential):
    def train_step(self, data):
        tf.numpy_function(lambda got: seen.append(got.copy()) or np.int64(0), [data[0]], tf.int64)
        return super().train_step(data)

def trained(replicas):
    steps = np.concatenate(seen).reshape(len(seen) // replicas, 4, -1)
    seen.clear()
    for step in steps:
        [place] = [
            (epoch, number) for epoch in range(9) for number in range(schedule.num_batches)
            if np.array_equal(
                np.sort(step[:, 0]),
                np.sort(ds.batch(schedule.windows(epoch, number))[0].reshape(4, -1)[:, 0]),
            )
        ]
        yield place

def whole(*epochs):
    return [(epoch, step) for epoch in epochs for step in range(schedule.num_batches)]

for replicas in (1, 2):
    strategy = tf.distribute.get_strategy()
    if replicas == 2:
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    fresh = lambda: ds.to_tf_dataset(**options, start_epoch=2, start_step=1)
    with strategy.scope():
        model = Seen([keras.Input((3, 4, 6, 1)), keras.layers.Conv3D(1, (2, 1, 1))])
        model.compile(optimizer="sgd", loss="mse", jit_compile=False)
        within = fresh()
    for batches in (within, fresh()):
        validation = ds.to_tf_dataset(**options)
        fit = {"verbose": 0, "shuffle": False, "validation_data": validation}
        model.fit(batches, initial_epoch=2, epochs=4, **fit)
        assert list(trained(replicas)) == whole(2, 3)[1:], replicas
        model.fit(batches, epochs=2, **fit)
        assert list(trained(replicas)) == whole(4, 5), replicas
        model.evaluate(batches, verbose=0)
        model.fit(batches, epochs=1, **fit)
        assert list(trained(replicas)) == whole(7), replicas
        again = next(iter(validation))[0]
        assert np.array_equal(again, ds.batch(schedule.windows(5, 0))[0])
    assert int(fresh().cardinality()) == tf.data.UNKNOWN_CARDINALITY
    try:
        model.fit(ds.to_tf_dataset(batch_size=4), verbose=0, shuffle=False)
    except ValueError as exc:
        print(exc)
    seen.clear()
print("passes counted")
"""


def run(program: str, store: Path, tmp_path: Path) -> str:
    script = tmp_path / "program.py"
    script.write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, script, store], capture_output=True, text=True, timeout=300,
        env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_processes_are_spawned(ds: FrameWindowDataset, keras: ModuleType, tmp_path: Path) -> None:
    """fit with use_multiprocessing ends, and an error in a process names its window."""
    printed = run(PROCESSES, ds.path, tmp_path)
    assert "steps 6" in printed
    assert "caught" in printed
    assert "this one is broken" in printed
    assert "while window 3 of epoch 0 was augmented" in printed


def test_several_devices_share_one_order(
    make_store: MakeClips, tf: ModuleType, tmp_path: Path
) -> None:
    """Two replicas together see the global order; a batch too small for both is refused."""
    store = make_store({"a": range(13)})
    printed = run(DEVICES, store, tmp_path)
    assert "the last batch has 1 of 4 windows, too few for 2 replicas; give drop_rem" in printed
    assert "replicas 2 epochs 2" in printed


def test_fit_trains_from_the_start_on(
    make_store: MakeClips, tf: ModuleType, tmp_path: Path
) -> None:
    """Regression: a batch that Keras only looked at used up an epoch, and start_step with it.

    Recorded while training, with and without replicas: each epoch of several fits is the next,
    the first one without start_step batches; small last batches are refused before training.
    """
    printed = run(PASSES, make_store({"a": range(29)}), tmp_path)
    assert "the last batch has 1 of 4 windows, too few for 2 replicas" in printed
    assert "passes counted" in printed


def test_pickles_know_where_the_files_are(
    make_store: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative store, split file and cache, opened again from another folder."""
    store = make_store({name: range(9) for name in "abc"}, converted={"compression": "gzip"})
    monkeypatch.chdir(tmp_path)
    whole = FrameWindowDataset(store.name, **SHAPE)
    whole.split(train=["a", "b"], test=["c"]).save(Path("mine.json"))
    part = SplitPart("test", "mine.json")
    frames = open_frames(store.name, cache="frames.cache")
    carried = pickle.dumps(FrameWindowDataset(frames, **SHAPE, split=part))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert pickle.loads(carried).windows_per_clip() == {"c": 5}
    assert not any(Path.cwd().iterdir())


def test_batches_hold_no_frames_when_they_are_gone(
    tf: ModuleType,
) -> None:
    """Regression: a class of each dataset's own held its frames until the garbage collector ran."""
    from framewin.adapters.fit_passes import checked

    frames = type("Frames", (), {"check": lambda self: None})()
    known = weakref.ref(frames)
    gc.disable()
    try:
        batches = checked(tf.data.Dataset.range(3), frames.check)
        assert type(batches) is type(checked(tf.data.Dataset.range(3), lambda: None))
        assert len(list(batches)) == 3
        del batches, frames
        assert known() is None
    finally:
        gc.enable()


def test_a_keras_without_the_hook_is_told(
    ds: FrameWindowDataset, keras: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later version may find batches to look at in another way."""
    from keras.src.trainers.epoch_iterator import EpochIterator

    monkeypatch.delattr(EpochIterator, "reset")
    batches = ds.to_tf_dataset(batch_size=5, normalize="unit")
    with pytest.warns(UserWarning, match="Keras has no EpochIterator.reset, by which passes that"):
        EpochIterator(x=batches)
