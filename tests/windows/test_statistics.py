"""Statistics of frames that are recorded when they are converted, against plain numpy."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framewin import FrameWindowDataset, StoreError, convert, verify
from framewin.frames import Frames, open_frames
from framewin.schema import STATISTICS
from framewin.stores import open_store
from framewin.stores.zarr_store import RECORD
from framewin.windows.statistics import FrameStatistics, frame_motions
from tests.conftest import MakeClips

CLIPS = {"a": [*range(8), *range(20, 27)], "b": range(9), "c": [5]}
STARTS = [0, 8, 15, 24]
SHAPE = {"input_frames": 2, "predict_frames": 2}


def plain(frames: np.ndarray, nodata: float | None = None) -> dict[str, np.ndarray]:
    """As slow and plain as possible: every frame by itself, in float64."""
    values = frames.astype(np.float64)
    if nodata is not None:
        values[values == nodata] = np.nan
    found: dict[str, list[float]] = {name: [] for name in STATISTICS}
    for row, frame in enumerate(values):
        known = frame[~np.isnan(frame)]
        found["mean"].append(known.mean() if known.size else np.nan)
        found["nodata"].append(np.isnan(frame).mean())
        steps = np.abs(frame - values[row - 1])
        steps = steps[~np.isnan(steps)]
        found["motion"].append(steps.mean() if steps.size and row not in STARTS else np.nan)
    return {name: np.array(column) for name, column in found.items()}


def agree(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    return all(np.allclose(found[n], expected[n], 1e-12, 0, equal_nan=True) for n in STATISTICS)


def same_bits(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(one[name].tobytes() == other[name].tobytes() for name in STATISTICS)


@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize(("dtype", "nodata"), [("uint8", None), ("uint8", 9), ("uint16", 9)])
def test_stores_record_them(
    make_store: MakeClips, suffix: str, compression: str, dtype: str, nodata: float | None
) -> None:
    """In every layout, what numpy says, to the bit what reading the frames again gives."""
    converted = {"compression": compression, "nodata": nodata, "chunk_frames": 2}
    converted |= {"statistics": True}
    store = make_store(CLIPS, suffix=suffix, dtype=dtype, converted=converted)
    opened = open_store(store)
    found = opened.statistics()
    frames = opened.frames.take(np.arange(25))
    assert agree(found, plain(frames, nodata))
    again = FrameStatistics.empty(25)
    for begin, end in zip(STARTS, [*STARTS[1:], 25], strict=True):
        again.put(begin, frames[begin:end], previous=None, nodata=nodata)
    assert same_bits(found, {name: getattr(again, name) for name in STATISTICS})
    assert verify(store).damage == []


def test_blocks_and_workers_change_no_bit(make_clips: MakeClips, tmp_path: Path) -> None:
    """Blocks of one frame or of many, one thread or four."""
    source = make_clips(CLIPS, shape=(30, 40, 3))
    found = []
    for number, (chunk, workers) in enumerate([(1, 4), (3, 4), (100, 1)]):
        store = tmp_path / f"{number}.zarr"
        convert(
            source, store, compression="gzip", chunk_frames=chunk, workers=workers, statistics=True
        )
        found.append(open_store(store).statistics())
    assert same_bits(found[0], found[1])
    assert same_bits(found[0], found[2])


@settings(max_examples=60)
@given(
    st.sampled_from(["uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64"]),
    st.sampled_from([(3, 5, 1), (1, 700, 3), (300, 450, 1)]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_sums_hold_every_value(dtype: str, shape: tuple, with_nodata: bool, seed: int) -> None:
    """Least and greatest values of each dtype, rows shorter and longer than a group of sums."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    limits = (np.iinfo if kind in "iu" else np.finfo)(dtype)
    ends = np.array([limits.min, limits.max] if kind in "iu" else [-1e30, 1e30], dtype)
    frames = rng.choice(ends, (3, *shape))
    nodata = float(ends[0]) if with_nodata else None
    wide = frames.astype(np.float64)
    if with_nodata:
        wide[wide == nodata] = np.nan
    found = FrameStatistics.empty(3)
    found.put(0, frames, previous=None, nodata=nodata)
    means, fractions, motions = found.mean, found.nodata, found.motion[1:]
    assert motions.tobytes() == frame_motions(frames[:-1], frames[1:], nodata).tobytes()
    flat = wide.reshape(3, -1)
    if not np.isnan(flat).all(axis=1).any():
        assert np.allclose(means, np.nanmean(flat, axis=1), rtol=1e-9, atol=ends[1] * 1e-12)
    assert np.allclose(fractions, np.isnan(flat).mean(axis=1))
    steps = np.abs(np.diff(flat, axis=0))
    if not np.isnan(steps).all(axis=1).any():
        assert np.allclose(motions, np.nanmean(steps, axis=1), rtol=1e-9)


def test_infinite_frames_are_converted_without_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the sums of -inf and inf frames were added, in a block and between two."""
    values = np.array([-np.inf, np.inf, 1, 3, np.inf, -np.inf], "float32")
    np.save(tmp_path / "clip.npy", np.broadcast_to(values.reshape(6, 1, 1, 1), (6, 2, 2, 1)))
    for name, block_bytes in (("whole", 2**20), ("parts", 1)):
        monkeypatch.setattr("framewin.conversion.statistics.READ_BYTES", block_bytes)
        store = tmp_path / f"{name}.zarr"
        convert(tmp_path / "clip.npy", store, chunk_frames=1, statistics=True)
        found = open_store(store).statistics()
        assert found["mean"].tolist() == values.tolist()
        assert found["motion"].tolist()[1:] == [np.inf, np.inf, 2, np.inf, np.inf]


@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
@pytest.mark.parametrize("cache", [None, "memory"])
def test_where_reads_no_pixels(
    make_store: MakeClips, monkeypatch: pytest.MonkeyPatch, suffix: str, cache: str | None
) -> None:
    """Nor do weights; only another no-data value than the store's needs the frames."""
    store = make_store(
        CLIPS, suffix=suffix, converted={"compression": "gzip", "nodata": 9, "statistics": True}
    )
    by_frames = FrameWindowDataset(store, **SHAPE)
    by_frames.source._store.statistics = lambda: None
    wanted = (by_frames.table["mean"] > 60) & (by_frames.table["motion"] > 6)

    def blocks(*_: object) -> None:
        raise AssertionError("frames were read")

    monkeypatch.setattr(Frames, "blocks", blocks)
    options = SHAPE
    ds = FrameWindowDataset(
        open_frames(store, cache=cache),
        where="mean > 60 and motion > 6",
        weights="mean + nodata",
        **options,
    )
    assert 0 < len(ds) == wanted.sum()
    with pytest.raises(AssertionError, match="frames were read"):
        FrameWindowDataset(
            open_frames(store, nodata=3, cache=cache), where="mean > 60 and motion > 6", **options
        )


@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
def test_changed_statistics_are_refused(make_store: MakeClips, suffix: str) -> None:
    """A flipped bit of theirs is found by verify, and when they are used."""
    store = make_store(CLIPS, suffix=suffix, converted={"statistics": True})
    path = store / RECORD if store.is_dir() else store
    data = bytearray(path.read_bytes())
    place = data.rfind(open_store(store).statistics()["mean"].tobytes())
    data[place] ^= 1
    path.write_bytes(data)
    message = f"{path} has damaged values of statistics/mean"
    assert verify(store).damage == [message]
    with pytest.raises(StoreError, match=re.escape(message)):
        FrameWindowDataset(store, where="mean > 1", **SHAPE)


def test_stores_without_are_read_when_asked(make_store: MakeClips) -> None:
    """The windows chosen are the same."""
    plain_store = make_store(CLIPS)
    assert not (plain_store / "statistics").exists()
    assert open_store(plain_store).statistics() is None
    recorded = make_store(CLIPS, name="with", converted={"statistics": True})
    one, other = (
        FrameWindowDataset(path, where="mean > 60 and motion > 6", **SHAPE)
        for path in (plain_store, recorded)
    )
    assert len(one) > 0
    assert [one.window(w) for w in range(len(one))] == [other.window(w) for w in range(len(other))]


@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_interrupted_conversions_record_the_same(
    make_clips: MakeClips,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
    compression: str,
) -> None:
    """Of parts that are kept, too: the store is the same to the last bit."""
    monkeypatch.setattr("framewin.stores.layout.SHARD_BYTES", 1)
    source = make_clips({"a": range(30), "b": range(18)})
    whole, dest = tmp_path / f"whole{suffix}", tmp_path / f"clips{suffix}"
    options = {"compression": compression, "chunk_frames": 5, "workers": 2, "statistics": True}
    convert(source, whole, **options)

    def stop(done: int, total: int) -> None:
        if done >= 25:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("framewin.stores.writer.BLOCK_BYTES", 1)
        with pytest.raises(KeyboardInterrupt):
            convert(source, dest, **options, progress=stop)
        report = convert(source, dest, **options)
    assert 0 < report.resumed_frames < 48
    assert same_bits(open_store(dest).statistics(), open_store(whole).statistics())
    assert open_store(dest).identity == open_store(whole).identity
    assert verify(dest).damage == []
