"""Frames decoded once: whole, shared by processes, and never those of another store."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from framewin import FrameWindowDataset, SplitPart, StoreError, convert, open_frames
from framewin.stores import cache as caching
from framewin.stores.chunked_frames import ChunkedFrames
from tests.conftest import MakeClips, import_or_skip, make_frame
from tests.helpers.store_contract import flip
from tests.helpers.windows import open_windows

CLIPS = {"a": range(20), "b": range(20)}
COMPRESSED = {"compression": "zstd", "chunk_frames": 3}


def open_cached(store: Path, cache: object = None, **options: object) -> FrameWindowDataset:
    return open_windows(store, cache=cache, **{"input_frames": 1, "predict_frames": 1, **options})


def test_memory_holds_the_clips_used(make_store: MakeClips) -> None:
    """Chunks of other clips are not decoded; progress reaches the last row."""
    store = make_store(CLIPS, converted=COMPRESSED)
    calls: list[tuple[int, int]] = []
    ds = open_cached(
        store, "memory", clips=["b"], progress=lambda done, total: calls.append((done, total))
    )
    assert np.array_equal(ds.frames[20:], np.stack([make_frame(1, n) for n in range(20)]))
    assert not ds.frames[:18].any()
    assert calls[-1] == (40, 40)
    assert len(calls) == 8


def test_memory_is_filled_once(make_store: MakeClips) -> None:
    """Datasets that share frames decode those that no other has, and none twice."""
    store, calls = make_store(CLIPS, converted=COMPRESSED), []
    frames = open_frames(store, cache="memory", progress=lambda *done: calls.append(done))
    shape = {"input_frames": 1, "predict_frames": 1}
    parts = FrameWindowDataset(frames, **shape, clips=["b"]).split(t=0.5, v=0.5, by="time")
    FrameWindowDataset(frames, **shape, split=SplitPart("v", parts.save()))
    assert len(calls) == 8
    whole = FrameWindowDataset(frames, **shape)
    FrameWindowDataset(frames, **shape, clips=["a"])
    assert len(calls) == 8 + 7
    assert np.array_equal(whole.frames[:20], [make_frame(0, n) for n in range(20)])


def test_a_file_is_filled_once(
    make_store: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time, no frame is decoded; and the parts of a split share the cache."""
    store = make_store(CLIPS, converted=COMPRESSED)
    first = open_cached(store, tmp_path / "cache")
    monkeypatch.setattr(ChunkedFrames, "each_chunk", None)
    monkeypatch.setattr(ChunkedFrames, "take", None)
    again = open_cached(store, tmp_path / "cache")
    assert np.array_equal(first.frames, again.frames)
    assert all(part.mapped is again.mapped for part in again.split({"t": 0.5, "v": 0.5}).values())
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cache",
        "clips-frames",
        "clips.zarr",
    ]


def test_a_changed_store_is_refused(make_clips: MakeClips, tmp_path: Path) -> None:
    """Another store, or the same one made anew from other frames."""
    cache = tmp_path / "cache"
    convert(make_clips({"a": range(5)}, folder="one"), tmp_path / "clips.zarr", compression="zstd")
    open_cached(tmp_path / "clips.zarr", cache)
    (tmp_path / "clips.zarr").rename(tmp_path / "old.zarr")
    open_cached(tmp_path / "old.zarr", cache)
    other = make_clips({"a": range(1, 6)}, folder="two")
    convert(other, tmp_path / "clips.zarr", compression="zstd")
    message = f"{cache} holds the frames of another store than {tmp_path / 'clips.zarr'}, or of"
    with pytest.raises(StoreError, match=re.escape(message)):
        open_cached(tmp_path / "clips.zarr", cache)


def test_a_changed_array_is_refused(tmp_path: Path) -> None:
    """Of arrays that others wrote, size and time of the files are the identity."""
    import os

    np.save(tmp_path / "data.npy", np.zeros((5, 2, 2), np.uint8))
    open_cached(tmp_path / "data.npy", tmp_path / "cache", axes="tyx")
    open_cached(tmp_path / "data.npy", tmp_path / "cache", axes="tyx")
    os.utime(tmp_path / "data.npy", (1, 1))
    with pytest.raises(StoreError, match="before it was changed, or is cut short; remove it or"):
        open_cached(tmp_path / "data.npy", tmp_path / "cache", axes="tyx")


@pytest.mark.parametrize(
    "content", [b"", b"short", b"something else, but long enough for a record"]
)
def test_a_file_that_is_no_cache_is_left_alone(
    make_store: MakeClips, tmp_path: Path, content: bytes
) -> None:
    """Nothing of the user's is overwritten."""
    store = make_store(CLIPS, converted=COMPRESSED)
    (tmp_path / "mine").write_bytes(content)
    with pytest.raises(
        StoreError, match="mine is not a cache of frames, or cut short; choose another name"
    ):
        open_cached(store, tmp_path / "mine")
    assert (tmp_path / "mine").read_bytes() == content


def test_a_cache_that_was_cut_short(make_store: MakeClips, tmp_path: Path) -> None:
    """It is never mapped."""
    store = make_store(CLIPS, converted=COMPRESSED)
    open_cached(store, tmp_path / "cache")
    data = (tmp_path / "cache").read_bytes()
    (tmp_path / "cache").write_bytes(data[100:])
    with pytest.raises(StoreError, match="holds the frames of another store"):
        open_cached(store, tmp_path / "cache")


def test_damage_is_not_cached(make_store: MakeClips, tmp_path: Path) -> None:
    """A chunk that cannot be decoded stops the filling, and nothing is left."""
    store = make_store(CLIPS, converted=COMPRESSED)
    flip(store / "frames/c/0/0/0/0", 5)
    for cache in ("memory", tmp_path / "cache"):
        with pytest.raises(StoreError, match="not what was written in frames 0 to 2"):
            open_cached(store, cache)
    assert not list(tmp_path.glob("cache*"))


FILL = """
import sys, numpy, framewin
from framewin import FrameWindowDataset, open_frames
frames = open_frames(sys.argv[1], cache=sys.argv[2])
ds = FrameWindowDataset(frames, input_frames=1, predict_frames=1)
print(int(ds.frames.astype(numpy.int64).sum()))
"""


def test_processes_that_fill_it_at_once(make_store: MakeClips, tmp_path: Path) -> None:
    """All of them get the frames; one file is made."""
    store = make_store({"a": range(300)}, shape=(40, 50, 3), converted=COMPRESSED)
    command = [sys.executable, "-c", FILL, store, tmp_path / "cache"]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    sums = {process.communicate()[0] for process in started}
    assert [process.returncode for process in started] == [0] * 4
    expected = sum(int(make_frame(0, n, (40, 50, 3)).sum()) for n in range(300))
    assert sums == {f"{expected}\n".encode()}


def test_a_killed_filling_is_repeated(make_store: MakeClips, tmp_path: Path) -> None:
    """What it left is not taken for the cache."""
    store = make_store(CLIPS, converted=COMPRESSED)
    killed = FILL.replace(
        "cache=sys.argv[2]", "cache=sys.argv[2], progress=lambda a, b: __import__('os').kill(0, 9)"
    )
    command = [sys.executable, "-c", killed, store, tmp_path / "cache"]
    done = subprocess.run(command, start_new_session=True, check=False)
    assert done.returncode == -9
    assert [path.name for path in tmp_path.glob("cache*")] == ["cache.partial"]
    assert len(open_cached(store, tmp_path / "cache").frames) == 40
    assert [path.name for path in tmp_path.glob("cache*")] == ["cache"]


def test_a_cache_needs_a_folder(make_store: MakeClips, tmp_path: Path) -> None:
    """The folder is named."""
    store = make_store(CLIPS, converted=COMPRESSED)
    with pytest.raises(StoreError, match="no is not a folder; make it first"):
        open_cached(store, tmp_path / "no" / "cache")


def test_a_chunk_is_decoded_once_per_batch() -> None:
    """However many windows touch it; and not again while it is in the bounded cache."""
    from framewin.schema import FrameFormat

    decoded: list[int] = []

    def read_chunk(number: int) -> np.ndarray:
        decoded.append(number)
        return np.full((4, 2, 2, 1), number, np.uint8)

    frame_format = FrameFormat(2, 2, 1, "uint8")
    frames = ChunkedFrames(read_chunk, frame_format, 20, chunk_frames=4, cache_bytes=0, workers=2)
    rows = np.array([0, 19, 1, 5, 4, 19, 2])
    assert frames.take(rows)[:, 0, 0, 0].tolist() == [0, 4, 0, 1, 1, 4, 0]
    assert sorted(decoded) == [0, 1, 4]
    decoded.clear()
    frames = ChunkedFrames(read_chunk, frame_format, 20, chunk_frames=4, cache_bytes=32)
    for row in (0, 1, 5, 2, 9, 6, 1):
        frames.take(np.array([row]))
    assert decoded == [0, 1, 2, 1, 0]
    with pytest.raises(ValueError, match="cache_bytes must be >= 0, got -1"):
        ChunkedFrames(read_chunk, frame_format, 20, chunk_frames=4, cache_bytes=-1)


@pytest.mark.parametrize("nodata", [255, 0])
def test_weights_of_what_has_data(make_store: MakeClips, nodata: int) -> None:
    """0 where a target pixel has no data in any channel; alike in numpy and TensorFlow."""
    import_or_skip("tensorflow")
    store = make_store(CLIPS, shape=(9, 9, 3), converted={"nodata": nodata, **COMPRESSED})
    for cache in (None, "memory"):
        ds = open_cached(store, cache, sample_weight="nodata")
        expected = (ds.batch(range(38))[1] != nodata).all(axis=-1)
        assert 0 < expected.mean() < 1
        assert np.array_equal(ds.batch(range(38))[2], expected.astype(np.float32))
        assert ds[3][2].dtype == np.float32
        batches = list(ds.to_tf_dataset(batch_size=8, normalize="unit").as_numpy_iterator())
        weights = np.concatenate([weights for _, _, weights in batches])
        assert weights.dtype == np.float32
        assert np.array_equal(weights, expected)
        assert all(part.weighted for part in ds.split({"t": 0.5, "v": 0.5}).values())


def test_nan_as_no_data(tmp_path: Path) -> None:
    """NaN equals nothing, itself neither."""
    import_or_skip("tensorflow")
    data = np.zeros((4, 2, 2), np.float32)
    data[2, 0, 1] = np.nan
    np.save(tmp_path / "data.npy", data)
    ds = open_cached(tmp_path / "data.npy", axes="tyx", nodata=np.nan, sample_weight="nodata")
    assert ds.batch([1])[2].tolist() == [[[[1, 0], [1, 1]]]]
    _, _, weights = next(iter(ds.to_tf_dataset(batch_size=3)))
    assert weights.numpy().sum() == 11
    assert ds.batch([1])[1].sum() == 0
    keras = import_or_skip("keras")
    model = keras.Sequential([keras.Input((1, 2, 2, 1)), keras.layers.Conv3D(1, 1)])
    model.compile(loss="mse")
    history = model.fit(ds.to_tf_dataset(batch_size=3), verbose=0, shuffle=False)
    assert np.isfinite(history.history["loss"]).all()


def test_nan_as_no_data_in_what_is_decoded(tmp_path: Path) -> None:
    """Alike in numpy and TensorFlow where frames are read by Python; infinity is a value.

    Once the NaN were replaced before the weights were taken, which then were 1 everywhere.
    """
    import_or_skip("tensorflow")
    data = np.zeros((2, 2, 4), np.float32)
    data[0, 1, 2], data[1, 1, 2] = np.nan, np.inf
    np.save(tmp_path / "data.npy", data)
    options = {"axes": "yxt", "nodata": np.nan, "sample_weight": "nodata"}
    ds = open_cached(tmp_path / "data.npy", **options)
    assert ds.mapped is None
    _, targets, weights = ds.batch([1])
    [(_, by_batches, from_batches)] = ds.batches(batch_size=3)
    [(_, by_tf, from_tf)] = ds.to_tf_dataset(batch_size=3).as_numpy_iterator()
    for found, weighed in ((targets, weights), (by_batches[1:2], from_batches[1:2]),
                           (by_tf[1:2], from_tf[1:2])):  # fmt: skip
        assert weighed[0, 0].tolist() == [[1, 0], [1, 1]]
        assert found[0, 0, ..., 0].tolist() == [[0, 0], [0, np.inf]]


def test_weights_need_a_no_data_value(make_store: MakeClips) -> None:
    """The error says how to give one; giving one overrides the store's."""
    store = make_store(CLIPS)
    with pytest.raises(
        ValueError, match=r"has no no-data value; .* open_frames\(path, nodata=255\)"
    ):
        open_cached(store, sample_weight="nodata")
    with pytest.raises(ValueError, match="sample_weight must be None or 'nodata', got 'x'"):
        open_cached(store, sample_weight="x")
    with pytest.raises(ValueError, match="the no-data value 256 is not a uint8 value"):
        open_cached(store, nodata=256)
    assert open_cached(store, nodata=7, sample_weight="nodata").nodata == 7


def test_fit_takes_weights(make_store: MakeClips) -> None:
    """Keras leaves what has no data out of the loss."""
    import_or_skip("tensorflow")
    keras = import_or_skip("keras")
    store = make_store(CLIPS, converted={"nodata": 0})
    ds = open_cached(store, sample_weight="nodata")
    model = keras.Sequential([keras.Input((1, 4, 6, 1)), keras.layers.Rescaling(0.0)])
    model.compile(loss="mse")
    batches = ds.to_tf_dataset(batch_size=38, normalize="unit")
    loss = model.evaluate(batches, verbose=0)
    _, targets, weights = (part.numpy() for part in next(iter(batches)))
    assert loss == pytest.approx(float((targets[..., 0] ** 2 * weights).mean()), rel=1e-5)


def test_waiting_for_another_process(make_store: MakeClips, tmp_path: Path, monkeypatch) -> None:
    """A cache under construction elsewhere is waited for, then used."""
    from framewin.stores import durable, open_store

    store = open_store(make_store(CLIPS, converted=COMPRESSED))
    path = tmp_path / "cache"
    waits: list[float] = []
    with durable.building(path) as site:

        def finish(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 3:
                caching._fill(store, site.store, None)
                site.store.rename(path)

        monkeypatch.setattr("time.sleep", finish)
        cached = caching.on_disk(store, path, None)
        assert len(waits) == 3
        assert np.array_equal(cached.frames.array, store.frames.take(np.arange(40)))
        path.rename(site.store)


def test_verify_when_opening(make_store: MakeClips, tmp_path: Path) -> None:
    """Damage of a raw store, or of a cache, is found once, not at every window."""
    store = make_store(CLIPS)
    assert len(open_cached(store, verify=True)) == 38
    flip(store / "frames/c/0/0/0/0", 30)
    with pytest.raises(StoreError, match=r"clips\.zarr is damaged: frames 0 to 39 are damaged"):
        open_cached(store, verify=True)
    packed = make_store(CLIPS, name="packed", converted=COMPRESSED)
    open_cached(packed, tmp_path / "cache")
    open_cached(packed, tmp_path / "cache", verify=True)
    flip(tmp_path / "cache", 30)
    with pytest.raises(StoreError, match="cache is damaged; remove it"):
        open_cached(packed, tmp_path / "cache", verify=True)
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="folder is a folder; name the file to cache the frames"):
        open_cached(packed, tmp_path / "folder")


def test_a_cache_that_another_machine_fills(
    make_store: MakeClips,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is waited for, and one line says how to go on if that machine has gone."""
    store, lock = make_store(CLIPS, converted=COMPRESSED), tmp_path / "cache.partial/framewin.lock"
    lock.parent.mkdir()
    lock.write_text('{"pid": 1, "host": "elsewhere", "machine": "", "boot": "other"}')
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            lock.unlink()

    monkeypatch.setattr(caching.time, "sleep", wait)
    open_cached(store, tmp_path / "cache")
    told = capsys.readouterr().err
    assert told.startswith(f"framewin: waiting, {lock.parent} is in use by process 1 on elsewhere;")
    assert told.endswith(f"; if it has ended, remove {lock}\n")
    assert told.count("\n") == 1


def test_memory_that_is_not_there(make_store: MakeClips, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused with both sizes before anything is decoded, not killed by the system."""
    store = make_store(CLIPS, converted=COMPRESSED)
    limit = store.with_name("limit")
    limit.write_text("100\n")
    monkeypatch.setattr(caching, "_GROUP_LIMIT", limit)
    message = " bytes for the frames of .* but 100 are available; name a file to cache them in"
    with pytest.raises(StoreError, match=message):
        open_cached(store, "memory")
    limit.write_text("max\n")
    monkeypatch.setattr(caching, "_MEMORY", store.with_name("none"))
    assert caching.available_memory() > 10**6
