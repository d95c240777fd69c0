"""Windows chosen and weighed by what their frames are like, against plain numpy."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framewin import FrameWindowDataset, convert
from framewin.windows.choose import weighed
from framewin.windows.spec import Runs, WindowIndex, WindowSpec
from framewin.windows.statistics import ChannelSums, FrameStatistics
from tests.conftest import MakeClips, make_frame, write_frames
from tests.helpers.oracle import windows_of_clip

CLIPS = {"a": [*range(8), *range(20, 27)], "b": range(9)}


def frames_by_window(ds: FrameWindowDataset, window: int) -> np.ndarray:
    return np.concatenate(ds[window]).astype(float)


@pytest.fixture
def store(make_store: MakeClips) -> Path:
    return make_store(CLIPS)


def open_dataset(store: Path, **options: object) -> FrameWindowDataset:
    return FrameWindowDataset(store, **{"input_frames": 2, "predict_frames": 2, **options})


def test_columns_are_what_their_frames_say(store: Path) -> None:
    """Mean and motion of a window, computed from its pixels."""
    ds = open_dataset(store)
    table = ds.table
    for window in range(len(ds)):
        frames = frames_by_window(ds, window)
        assert table["mean"][window] == pytest.approx(frames.mean())
        assert table["motion"][window] == pytest.approx(np.abs(np.diff(frames, axis=0)).mean())
        where = ds.window(window)
        assert table["clip"][window] == where.clip
        assert table["frame_number"][window] == where.input_frame_numbers[0]
    assert not table["nodata"].any()


@pytest.fixture
def holed(tmp_path: Path) -> Path:
    """Six frames of 1x2 pixels, of which 9 is no data: the second and third have none."""
    pixels = [(10, 10), (9, 9), (9, 9), (40, 40), (9, 20), (7, 7)]
    frames = {f"{i}.png": np.array(p, np.uint8).reshape(1, 2, 1) for i, p in enumerate(pixels)}
    write_frames(tmp_path / "frames" / "a", frames)
    convert(tmp_path / "frames", tmp_path / "holed.zarr", nodata=9)
    return tmp_path / "holed.zarr"


def test_frames_without_data_are_left_out_of_columns(holed: Path) -> None:
    """Means of the frames that have some, NaN where none has: by hand."""
    table = open_dataset(holed, input_frames=1, predict_frames=1).table
    nan = np.nan
    assert table["mean"] == pytest.approx([10, nan, 40, 30, 13.5], nan_ok=True)
    assert table["motion"] == pytest.approx([nan, nan, nan, 20, 13], nan_ok=True)
    assert table["nodata"].tolist() == [0.5, 1, 0.5, 0.25, 0.25]
    wide = open_dataset(holed, input_frames=2, predict_frames=2).table
    assert wide["mean"] == pytest.approx([25, 30, 67 / 3])
    assert wide["motion"] == pytest.approx([nan, 20, 16.5], nan_ok=True)
    kept = open_dataset(holed, input_frames=1, predict_frames=1, where="motion < 99")
    assert [kept.window(w).input_frame_numbers for w in range(len(kept))] == [(3,), (4,)]


def test_weights_are_float64(holed: Path) -> None:
    """As numbers were given, one for all windows or one for each."""
    for weights, expected in (
        ("0.1", [0.1] * 5),
        ("nodata + 0.1", [0.6, 1.1, 0.6, 0.35, 0.35]),
        (lambda t: np.arange(5), [0.0, 1.0, 2.0, 3.0, 4.0]),
    ):
        table = open_dataset(holed, input_frames=1, predict_frames=1).table
        found = weighed(weights, table)
        assert (found.dtype, found.tolist()) == (np.float64, expected)


def test_the_table_has_these_columns(store: Path) -> None:
    """A mapping of five names; another is a KeyError."""
    table = open_dataset(store).table
    assert list(table) == ["clip", "frame_number", "mean", "motion", "nodata"]
    assert len(table) == 5
    assert "speed" not in table
    with pytest.raises(KeyError, match="speed"):
        table["speed"]


@pytest.mark.parametrize(
    ("where", "keep"),
    [
        ("mean > 60", lambda t: t["mean"] > 60),
        ("40 < mean <= 140 and not clip == 'a'", lambda t: (t["mean"] > 40)
         & (t["mean"] <= 140) & (t["clip"] != "a")),
        ("motion / 2 >= 3.6 or frame_number == 0", lambda t: (t["motion"] / 2 >= 3.6)
         | (t["frame_number"] == 0)),
        ("mean * -1 < -2 * 30 - 1", lambda t: t["mean"] > 61),
        ("  60 < mean ", lambda t: t["mean"] > 60),
        ("10 - frame_number > 4 and frame_number != 2", lambda t: (t["frame_number"] < 6)
         & (t["frame_number"] != 2)),
        (lambda t: t["mean"] > 60, lambda t: t["mean"] > 60),
    ],
)  # fmt: skip
def test_where_keeps_what_it_says(store: Path, where: object, keep: object) -> None:
    """The windows that stay are those of the full dataset for which the condition holds."""
    full = open_dataset(store)
    expected = [ds_window(full, w) for w in np.flatnonzero(keep(full.table))]
    chosen = open_dataset(store, where=where)
    assert 0 < len(chosen) < len(full)
    assert [ds_window(chosen, w) for w in range(len(chosen))] == expected
    assert sum(chosen.windows_per_clip().values()) == len(chosen)


def ds_window(ds: FrameWindowDataset, window: int) -> tuple:
    return ds.window(window).clip, ds.window(window).input_frame_numbers


@pytest.mark.parametrize(
    "attack",
    [
        "__import__('os').system('true')",
        "mean.__class__",
        "open('x')",
        "[m for m in mean]",
        "mean if mean else 1",
        "lambda: 1",
        "mean[0]",
        "(mean := 1)",
        "f'{mean}'",
        "mean ** 9999",
        "None",
        "speed > 1",
    ],
)
def test_nothing_but_arithmetic_is_understood(store: Path, attack: str) -> None:
    """Calls, attributes and everything else are refused before they do anything."""
    with pytest.raises(ValueError, match="is not understood; use numbers, the columns clip, "):
        open_dataset(store, where=attack)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("mean >", "'mean >' cannot be read: invalid syntax"),
        ("mean + 1", 'gives float64; compare with a number, as in "motion > 2.0"'),
        ("mean > 1e9", "no window satisfies where='mean > 1e9'; loosen it"),
        ("mean in mean", "may compare with > >= < <= == != only"),
        ("clip > 3", "compares a text with a number"),
        (lambda t: np.ones(3, bool), "must give 15 values, got shape (3,)"),
    ],
)
def test_bad_conditions(store: Path, where: object, message: str) -> None:
    """The message says what was given and what is allowed."""
    with pytest.raises(ValueError, match=re.escape(message)):
        open_dataset(store, where=where)


def test_conditions_on_names_read_no_pixels(store: Path, monkeypatch) -> None:
    """Clip and frame number are known without a frame."""
    monkeypatch.setattr(FrameWindowDataset, "frame_statistics", None)
    assert len(open_dataset(store, where="clip == 'b' and frame_number >= 2")) == 4


def test_weights_choose_what_is_drawn(store: Path) -> None:
    """Drawn windows have weights above 0, and an unshuffled pass has them all."""
    ds = open_dataset(store, weights="1 * (clip == 'b')")
    schedule = ds.batches(batch_size=len(ds), shuffle=True).schedule
    drawn = np.concatenate([schedule.windows(epoch, 0) for epoch in range(5)])
    assert {ds.window(window).clip for window in drawn} == {"b"}
    assert len(set(schedule.windows(0, 0).tolist())) < len(ds)
    plain = ds.batches(batch_size=len(ds)).schedule.windows(0, 0)
    assert plain.tolist() == list(range(len(ds)))


def test_parts_are_chosen_from_as_well(store: Path) -> None:
    """where= holds in every part of a split."""
    parts = open_dataset(store, where="mean > 60").split(one=["a"], two=["b"])
    assert all((part.table["mean"] > 60).all() for part in parts.values())


@given(
    st.lists(st.integers(1, 14), min_size=1, max_size=5),
    st.integers(1, 3),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_only_is_a_boolean_mask(lengths: list[int], stride: int, step: int, random) -> None:
    """The windows that stay start where they did; their rows are in the ranges, no others."""
    spec = WindowSpec(1, 2, frame_step=step, window_stride=stride)
    starts = np.cumsum([0, *(n + 2 for n in lengths[:-1])])
    index = WindowIndex(spec, Runs(starts, np.array(lengths)))
    kept = np.array([random.random() < 0.6 for _ in range(len(index))], dtype=bool)
    some = index.only(kept)
    expected = index.start_rows(np.arange(len(index)))[kept]
    assert np.array_equal(some.start_rows(np.arange(len(some))), expected)
    rows = {row for start in expected for row in range(start, start + spec.span)}
    ranges = some.row_ranges()
    assert {row for begin, end in ranges for row in range(begin, end)} == rows
    assert (ranges[1:, 0] > ranges[:-1, 1]).all()


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "float32", "float64"])
@pytest.mark.parametrize("nodata", [None, 3])
@pytest.mark.parametrize("block", [1, 2, 7])
def test_frame_statistics_are_plain_numpy(dtype: str, nodata: float | None, block: int) -> None:
    """In blocks of any size; no-data pixels are left out, the first frame has no motion."""
    frames = np.random.default_rng(0).integers(0, 9, (7, 3, 4, 2)).astype(dtype)
    frames[2] = 3
    found, sums, previous = FrameStatistics.empty(7), ChannelSums(2), None
    for first in range(0, 7, block):
        part = frames[first : first + block]
        found.put(first, part, previous=previous, nodata=nodata)
        sums.add(part, nodata=nodata)
        previous = part[-1]
    values = np.where(frames == nodata, np.nan, frames.astype(float)) if nodata else frames * 1.0
    for row in range(7):
        data = values[row][~np.isnan(values[row])]
        mean = data.mean() if data.size else np.nan
        assert found.mean[row] == pytest.approx(mean, nan_ok=True)
        assert found.nodata[row] == np.isnan(values[row]).mean()
        if row:
            steps = np.abs(values[row] - values[row - 1])
            steps = steps[~np.isnan(steps)]
            motion = steps.mean() if steps.size else np.nan
            assert found.motion[row] == pytest.approx(motion, nan_ok=True)
    assert np.isnan(found.motion[0])
    result = sums.result()
    assert result.mean == pytest.approx(np.nanmean(values, axis=(0, 1, 2)))
    assert result.std == pytest.approx(np.nanstd(values, axis=(0, 1, 2)))
    assert result.min == tuple(np.nanmin(values, axis=(0, 1, 2)))
    assert result.max == tuple(np.nanmax(values, axis=(0, 1, 2)))


def test_channels_and_blocks_are_counted_apart() -> None:
    """One channel without data in a block, large values that float32 would round, all frames."""
    base = 4_000_000_001
    first = np.array([[9, base], [9, base + 1]], np.uint32).reshape(2, 1, 1, 2)
    second = np.array([[5, base + 2], [7, 9], [3, 9]], np.uint32).reshape(3, 1, 1, 2)
    sums = ChannelSums(2)
    for block in (first, second):
        sums.add(block, nodata=9)
    found = sums.result()
    assert found.frames == 5
    assert found.mean == pytest.approx((5, base + 1), rel=1e-15)
    assert found.std == pytest.approx(((8 / 3) ** 0.5, (2 / 3) ** 0.5), rel=1e-6)
    assert (found.min, found.max) == ((3, base), (7, base + 2))
    missing = ChannelSums(3)
    missing.add(np.array([1, 9, 9], np.uint8).reshape(1, 1, 1, 3), nodata=9)
    with pytest.raises(ValueError, match="channel 1 has no data in any frame, so no statistics"):
        missing.result()


def test_differences_beyond_floats_are_infinite() -> None:
    """No warning: the least and the greatest float64 are infinitely far apart."""
    frames = np.array([-1.7e308, 1.7e308, 1.7e308]).reshape(3, 1, 1, 1)
    found = FrameStatistics.empty(3)
    found.put(0, frames.repeat(2, axis=2), previous=None, nodata=None)
    assert found.mean.tolist() == [-np.inf, np.inf, np.inf]
    assert found.motion.tolist()[1:] == [np.inf, 0]


def test_statistics_need_data() -> None:
    """A channel that is all no-data has none."""
    sums = ChannelSums(1)
    sums.add(np.full((2, 2, 2, 1), 9, np.uint8), nodata=9)
    with pytest.raises(ValueError, match="channel 0 has no data in any frame, so no statistics"):
        sums.result()


@pytest.fixture(scope="module")
def one_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one")
    for clip, (name, numbers) in enumerate(CLIPS.items()):
        frames = {f"{number}.png": make_frame(clip, number) for number in numbers}
        write_frames(folder / "frames" / name, frames)
    convert(folder / "frames", folder / "clips.zarr")
    return folder / "clips.zarr"


@given(
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(1, 3),
    st.integers(0, 1),
    st.integers(0, 5),
    st.integers(1, 4),
    st.booleans(),
)
def test_every_option_at_once_is_plain_slicing(
    one_store: Path,
    input_frames: int,
    predict_frames: int,
    frame_step: int,
    window_stride: int,
    lead_gap: int,
    least: int,
    batch_size: int,
    shuffle: bool,
) -> None:
    """Window shape, where=, batches and order: the frames that slicing the clips gives."""
    shape = {
        "input_frames": input_frames,
        "predict_frames": predict_frames,
        "frame_step": frame_step,
        "window_stride": window_stride,
        "lead_gap": lead_gap,
    }
    expected = []
    for clip, numbers in enumerate(map(list, CLIPS.values())):
        for inputs, targets in windows_of_clip(numbers, **shape, step=1):
            if numbers[inputs[0]] >= least:
                expected.append([make_frame(clip, numbers[i]) for i in inputs + targets])
    where = f"frame_number >= {least}"
    if not expected:
        with pytest.raises(ValueError, match="no window"):
            FrameWindowDataset(one_store, **shape, where=where)
        return
    ds = FrameWindowDataset(one_store, **shape, where=where)
    assert len(ds) == len(expected)
    schedule = ds.batches(batch_size=batch_size, shuffle=shuffle).schedule
    batches = ds.batches(batch_size=batch_size, shuffle=shuffle)
    for step, batch in enumerate(batches):
        wanted = [expected[window] for window in schedule.windows(0, step)]
        assert np.array_equal(np.concatenate(batch, axis=1), np.array(wanted))
