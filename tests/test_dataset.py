"""FrameWindowDataset as a sequence of numpy windows."""

from __future__ import annotations

import inspect
import operator
import os
import pickle
import re
import shutil
import threading
import tracemalloc
from pathlib import Path
from types import ModuleType

import h5py
import numpy as np
import pytest

from framewin import FrameWindowDataset, StoreError, Window
from framewin.schema import FrameFormat
from framewin.splitting import SplitPart
from framewin.stores.chunked_frames import usable_cores
from framewin.stores.mapped_frames import SHARED_COPY_BYTES, MappedFrames
from tests.conftest import MakeClips, import_or_skip, make_frame
from tests.helpers.windows import open_windows

CLIPS = {"a": list(range(10, 16)), "b": list(range(20, 25)), "c": list(range(30, 34))}


def open_dataset(store: Path, **options: object) -> FrameWindowDataset:
    return FrameWindowDataset(store, **{"input_frames": 2, "predict_frames": 1, **options})


def test_windows_are_the_frames_they_say(make_store: MakeClips) -> None:
    """Every window holds exactly the frames that window() names, input and target."""
    ds = open_dataset(make_store(CLIPS, shape=(4, 6, 3)))
    assert len(ds) == 4 + 3 + 2
    names = list(CLIPS)
    for number in range(len(ds)):
        inputs, targets = ds[number]
        window = ds.window(number)
        clip = names.index(window.clip)
        for frames, numbers in (
            (inputs, window.input_frame_numbers),
            (targets, window.predict_frame_numbers),
        ):
            expected = [make_frame(clip, n, (4, 6, 3)) for n in numbers]
            assert np.array_equal(frames, np.stack(expected))
            assert frames.dtype == np.uint8


def test_window_says_where_it_comes_from(make_store: MakeClips) -> None:
    """Clip, true frame numbers, and files below the source."""
    ds = open_dataset(make_store(CLIPS))
    assert ds.window(4) == Window(
        clip="b",
        input_frame_numbers=(20, 21),
        predict_frame_numbers=(22,),
        input_files=("b/frame_20.png", "b/frame_21.png"),
        predict_files=("b/frame_22.png",),
    )


def test_batches_are_stacked_windows(make_store: MakeClips) -> None:
    """In the order asked for, repeats and negative numbers included."""
    ds = open_dataset(make_store(CLIPS))
    numbers = [3, 0, -1, 3]
    inputs, targets = ds.batch(numbers)
    assert inputs.shape == (4, 2, 4, 6, 1)
    assert targets.shape == (4, 1, 4, 6, 1)
    for row, number in enumerate(numbers):
        assert np.array_equal(inputs[row], ds[number][0])
        assert np.array_equal(targets[row], ds[number][1])


def test_it_is_a_sequence(make_store: MakeClips) -> None:
    """Negative numbers count back, the end raises IndexError, so iteration stops."""
    ds = open_dataset(make_store(CLIPS))
    assert np.array_equal(ds[-1][0], ds[len(ds) - 1][0])
    assert np.array_equal(ds[np.int64(1)][0], ds[1][0])
    assert len(list(ds)) == len(ds)
    for number in (len(ds), -len(ds) - 1):
        message = f"window {number} is out of range, there are 9"
        for ask in (ds.__getitem__, ds.window, lambda n: ds.batch([0, n])):
            with pytest.raises(IndexError, match=re.escape(message)):
                ask(number)
    for wrong in (slice(0, 2), 1.0, "1"):
        with pytest.raises(TypeError, match="a window is chosen by an integer, got "):
            operator.getitem(ds, wrong)


def test_windows_belong_to_the_caller(make_store: MakeClips) -> None:
    """Changing a window changes neither the store nor the next read."""
    ds = open_dataset(make_store(CLIPS))
    before = ds[0][0].copy()
    ds[0][0][:] = 0
    ds.batch([0])[0][:] = 0
    assert np.array_equal(ds[0][0], before)
    with pytest.raises(ValueError, match="read-only"):
        ds.frames[0] = 0


def test_chosen_clips(make_store: MakeClips) -> None:
    """A choice of clips changes the numbering, never the frames."""
    store = make_store(CLIPS)
    only_b = open_dataset(store, clips=["b"])
    assert (len(only_b), only_b.window(0).input_frame_numbers) == (3, (20, 21))
    assert only_b.window(0).predict_frame_numbers == (22,)
    assert len(open_dataset(store, clips=["a", "c"])) == 6
    assert open_dataset(store, clips=["c", "a"]).windows_per_clip() == {"a": 4, "c": 2}
    with pytest.raises(ValueError, match=r"no clip of .* is called 'd'; there are a, b, c"):
        open_dataset(store, clips=["d"])


def test_too_few_frames(make_store: MakeClips) -> None:
    """The message says what each clip lacks; one clip that is long enough is enough."""
    store = make_store({"a": [1, 2, 3, 7], "b": [1]})
    message = (
        "no window fits, each spans 5 frames: a has 3 frames in a row and lacks 2; "
        "b has 1 frames in a row and lacks 4"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        open_dataset(store, input_frames=3, predict_frames=2)
    assert open_dataset(store).windows_per_clip() == {"a": 1, "b": 0}


def test_many_short_clips_are_not_all_listed(make_store: MakeClips) -> None:
    """Five clips are named, the others counted."""
    store = make_store({f"clip{i}": [0] for i in range(8)})
    with pytest.raises(ValueError, match=r"clip4 has .*; and 3 more clips$"):
        open_dataset(store)


def test_split(make_store: MakeClips) -> None:
    """Parts share no frame; the same seed gives the same parts."""
    ds = open_dataset(make_store({f"clip{i}": range(9) for i in range(5)}))
    parts = ds.split({"train": 0.8, "validation": 0.2}, seed=4)
    assert {name: len(part) for name, part in parts.items()} == {"train": 28, "validation": 7}
    clips = {name: {part.window(i).clip for i in range(len(part))} for name, part in parts.items()}
    assert not clips["train"] & clips["validation"]
    again = ds.split({"train": 0.8, "validation": 0.2}, seed=4)
    assert again["validation"].window(0) == parts["validation"].window(0)
    by_time = ds.split({"train": 0.5, "validation": 0.5}, by="time")
    counts = {name: set(part.windows_per_clip().values()) for name, part in by_time.items()}
    assert counts == {"train": {1}, "validation": {1}}
    with pytest.raises(ValueError, match="this is a part of a split; split the dataset that it"):
        parts["train"].split({"a": 0.5, "b": 0.5})
    some = open_dataset(ds.path, clips=["clip0", "clip3", "clip4"])
    for options in ({"by": "clip"}, {"by": "time"}):
        parts = some.split(train=0.5, test=0.5, **options)
        used = {name for part in parts.values() for name in part.windows_per_clip()}
        assert used <= {"clip0", "clip3", "clip4"}
        again = pickle.loads(pickle.dumps(parts["test"]))
        assert again.window(0) == parts["test"].window(0)
    parts = some.split(train=["clip0"], test=["clip4"])
    assert list(parts["test"].windows_per_clip()) == ["clip4"]
    with pytest.raises(ValueError, match="no window of 3 frames fits into the test part"):
        some.split(train=["clip0"], test=["clip1"])
    with pytest.raises(ValueError, match="by must be 'clip' or 'time', got 'frame'"):
        ds.split({"a": 0.5, "b": 0.5}, by="frame")  # type: ignore[arg-type]


def test_repr_says_what_it_is(make_store: MakeClips) -> None:
    """Windows, frames and clips at a glance."""
    ds = open_dataset(make_store(CLIPS))
    assert "9 windows of 2+1 frames 4x6x1 uint8, 3 clips" in repr(ds)


def test_large_batches_are_copied_by_threads(make_store: MakeClips) -> None:
    """Several threads share the copy of a batch of megabytes; the pixels are those of one."""
    ds = FrameWindowDataset(
        make_store({"a": range(30)}, shape=(200, 300, 3)), input_frames=4, predict_frames=2
    )
    windows = [3, 0, 24, 7, 3]
    assert len(windows) * 6 * ds.frame_format.nbytes > SHARED_COPY_BYTES
    inputs, targets = ds.batch(windows)
    for row, window in enumerate(windows):
        assert np.array_equal(inputs[row], ds.frames[window : window + 4])
        assert np.array_equal(targets[row], ds.frames[window + 4 : window + 6])
    names = {thread.name for thread in threading.enumerate()}
    assert any(name.startswith("framewin-read") for name in names) or usable_cores() == 1


@pytest.mark.parametrize("offset", [8, 3])
def test_an_array_at_an_odd_byte_is_not_copied_whole(tmp_path: Path, offset: int) -> None:
    """Regression: numpy's take copied all of an array that is not aligned, for each batch."""
    form = FrameFormat(8, 8, 1, "uint16")
    pixels = np.arange(4000 * 64).astype(np.uint16).reshape(4000, 8, 8, 1)
    (tmp_path / "frames").write_bytes(bytes(offset) + pixels.tobytes())
    frames = MappedFrames.of_file(tmp_path / "frames", form, 4000, offset=offset)
    rows = np.array([7, 0, 3999, 7])
    tracemalloc.start()
    found = frames.take(rows)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.array_equal(found, pixels[rows])
    assert peak < pixels.nbytes / 2


@pytest.mark.parametrize(
    "kind", ["raw.zarr", "gzip.zarr", "raw.h5", "gzip.h5", "a.npy", "chunked.h5"]
)
def test_the_folder_of_the_process_may_change(
    make_store: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Regression: a relative path was looked up again in the new folder. Files stay beside it."""
    options: dict = {"cache_bytes": 0}
    if kind == "a.npy":
        np.save(tmp_path / kind, np.arange(12 * 24, dtype="uint16").reshape(12, 4, 6))
    elif kind == "chunked.h5":
        with h5py.File(tmp_path / kind, "w") as file:
            file.create_dataset("a", data=np.arange(12 * 24).reshape(12, 4, 6) % 99.0, chunks=True)
        options["array"] = "a"
    else:
        name, suffix = kind.split(".")
        layout = {"compression": "gzip" if name == "gzip" else "none"}
        make_store({"a": range(12), "b": range(12)}, name, f".{suffix}", converted=layout)
    monkeypatch.chdir(tmp_path)
    shape = {"input_frames": 2, "predict_frames": 1}
    ds = open_windows(kind, **shape, **options)
    wanted = open_windows(tmp_path / kind, **shape, **options).batch([0, 3])
    by_time = {"parts": {"train": 0.5, "test": 0.5}, "by": "time"}
    ds.split(**by_time).save(Path("mine.json"))
    options["cache"] = "c"
    part = open_windows(kind, split=SplitPart("test", "mine.json"), **shape, **options)
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    for one in (ds, pickle.loads(pickle.dumps(ds))):
        assert all(map(np.array_equal, one.batch([0, 3]), wanted))
        assert one.statistics().frames == 12 * len(one.clips.names)
    assert len(pickle.loads(pickle.dumps(part))) == len(part)
    assert ds.split(**by_time).save() == tmp_path / f"{kind}.split.json"
    assert not any(Path.cwd().iterdir())


@pytest.mark.parametrize("kind", ["store", "array", "split"])
def test_a_pickle_opens_nothing_else(make_store: MakeClips, tmp_path: Path, kind: str) -> None:
    """Regression: whatever lay at its path by then was opened without a word."""
    shape, options = {"input_frames": 2, "predict_frames": 1}, {}
    path, what = tmp_path / "a.npy", "store"
    np.save(path, np.zeros((12, 4, 6), "uint8"))
    if kind != "array":
        path = make_store({"a": range(12), "b": range(12)})
    if kind == "split":
        what, options = "choice of windows", {"split": "train"}
        file = FrameWindowDataset(path, **shape).split(train=["a"], test=["b"]).save()
    carried = pickle.dumps(FrameWindowDataset(path, **shape, **options))
    if kind == "array":
        np.save(path, np.ones((12, 4, 7), "uint8"))
    elif kind == "store":
        shutil.rmtree(path)
        make_store({"a": range(12), "c": range(12)})
    else:
        file.unlink()
        FrameWindowDataset(path, **shape).split(train=["b"], test=["a"]).save()
    message = f"{path} is to be opened again, but its {what} has changed since; start again"
    with pytest.raises(StoreError, match=re.escape(message)):
        pickle.loads(carried)


def test_pickles_of_arrays_and_of_before(tmp_path: Path) -> None:
    """Arrays replaced before pickling are refused; pickles of earlier versions are, in a line."""
    path, shape = tmp_path / "a.npy", {"input_frames": 2, "predict_frames": 1}
    np.save(path, np.zeros((12, 4, 6), "uint8"))
    ds = FrameWindowDataset(path, **shape)
    function, _ = ds.__reduce__()
    with pytest.raises(StoreError, match=r"a dataset of a\.npy was pickled by an earlier framewin"):
        function("a.npy", {"nodata": None}, None)
    path.unlink()
    np.save(path, np.ones((12, 4, 7), "uint8"))
    carried = pickle.dumps(ds)
    with pytest.raises(StoreError, match="but its store has changed since; start again"):
        pickle.loads(carried)


def test_clips_whose_names_differ_only_by_composition(tmp_path: Path) -> None:
    """Regression: the first of them could not be chosen."""
    names = ["caf\u00e9", "cafe\u0301"]
    np.save(tmp_path / "a.npy", np.zeros((12, 4, 6), "uint8"))
    options = {"input_frames": 2, "predict_frames": 1, "clip_ids": np.repeat(names, 6)}
    for name in names:
        ds = open_windows(tmp_path / "a.npy", clips=[name], **options)
        assert ds.windows_per_clip() == {name: 4}


@pytest.mark.parametrize("kind", ["raw.zarr", "raw.h5", "a.npy", "cache"])
def test_a_mapped_file_that_shrinks_is_an_error(
    make_store: MakeClips, tmp_path: Path, kind: str
) -> None:
    """Regression: SIGBUS ended the process. Every read of numpy and each pass of tf.data looks."""
    tf = import_or_skip("tensorflow")
    shape, options = {"input_frames": 2, "predict_frames": 1}, {}
    if kind == "a.npy":
        path = cut = tmp_path / kind
        np.save(path, np.zeros((40, 64, 64), "uint8"))
    else:
        big = {"shape": (64, 64, 1), "suffix": ".h5" if kind == "raw.h5" else ".zarr"}
        path = make_store({"a": range(40)}, **big)
        cut = path if kind == "raw.h5" else path / "frames/c/0/0/0/0"
    if kind == "cache":
        cut = options["cache"] = tmp_path / "frames.cache"
    ds = open_windows(path, **shape, **options)
    batches = ds.to_tf_dataset(batch_size=4)
    assert len(list(batches)) == int(batches.cardinality()) == 10
    os.truncate(cut, 4096)
    message = f"{cut} has 4096 bytes, it had at least "
    for use in (
        lambda: ds[30],
        lambda: ds.frames,
        lambda: ds.statistics(),
        lambda: iter(batches),
        lambda: list(batches.as_numpy_iterator()),
        lambda: ds.batches(batch_size=4)[8],
        lambda: list(ds.to_tf_dataset(batch_size=4)),
    ):
        with pytest.raises(StoreError, match=re.escape(message)):
            use()
    assert isinstance(batches, tf.data.Dataset)
    with pytest.raises(StoreError, match=r"bytes|cut short|cannot be read"):
        open_windows(path, **shape, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clips": "ab"}, "clips must be a list of names, got the text 'ab'"),
        ({"verify": True}, "a.npy was not written by framewin and has no checksums; leave verify"),
    ],
)
def test_nothing_is_ignored(
    make_store: MakeClips, tmp_path: Path, options: dict, message: str
) -> None:
    """Regression: letters were taken for clips, and options that had no effect were accepted."""
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((12, 4, 6), "uint8"))
    if "verify" not in options:
        path = make_store({"a": range(12), "b": range(12)})
    with pytest.raises(ValueError, match=re.escape(message)):
        open_windows(path, input_frames=2, predict_frames=1, **options)


def test_windows_of_inputs_alone(make_store: MakeClips, tf: ModuleType) -> None:
    """predict_frames=0: windows reach to a clip's last frame, and targets hold none."""
    ds = open_dataset(make_store(CLIPS), predict_frames=0)
    assert ds.windows_per_clip() == {"a": 5, "b": 4, "c": 3}
    wanted = [
        np.stack([make_frame(clip, n) for n in (number, number + 1)])
        for clip, numbers in enumerate(CLIPS.values())
        for number in numbers[:-1]
    ]
    for found in (ds.batches(batch_size=5), ds.to_tf_dataset(batch_size=5)):
        inputs, targets = zip(*found, strict=True)
        assert np.array_equal(np.concatenate(inputs), wanted)
        assert {tuple(each.shape[1:]) for each in targets} == {(0, *wanted[0].shape[1:])}
    with pytest.raises(ValueError, match="lead_gap is for windows with predict_frames, got 2"):
        open_dataset(ds.path, predict_frames=0, lead_gap=2)


def test_old_names_say_what_to_write(make_store: MakeClips) -> None:
    """Arguments and methods that were, each by the call that replaces it."""
    ds = open_dataset(make_store(CLIPS))
    for old, now in {
        "cache": "write FrameWindowDataset(open_frames(path, cache=...), ...)",
        "split_file": 'write split=SplitPart("train", file=...)',
        "path": "give it first, without its name",
    }.items():
        text = f"{old}= is no argument here any more: {now}"
        with pytest.raises(TypeError, match=re.escape(text)):
            FrameWindowDataset(ds.path, input_frames=1, predict_frames=1, **{old: "x"})
    for call in (ds.batches, ds.to_tf_dataset, ds.to_keras_dataset, ds.to_torch_loader):
        with pytest.raises(TypeError, match=re.escape("shard_index=i for shard=(i, n)")):
            call(batch_size=2, shard=(0, 2))
    with pytest.raises(
        AttributeError, match=r"'state'; write ds\.batches\(\.\.\.\)\.state\(steps\)"
    ):
        ds.state(3, batch_size=2)
    assert not hasattr(ds, "x")
    with pytest.raises(StoreError, match="is a URL; name a file of this machine for the split"):
        SplitPart("train", "s3://bucket/split.json")
    with pytest.raises(StoreError, match="cannot be read: Is a directory"):
        open_dataset(ds.path, split=SplitPart("train", ds.path))
    assert list(inspect.signature(FrameWindowDataset).parameters)[:2] == ["frames", "input_frames"]
    assert "shard_index" in inspect.signature(ds.to_tf_dataset).parameters
