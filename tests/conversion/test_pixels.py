"""Crop, alpha, colours and size: the values that they give."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import imagecodecs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from framewin import FrameFormatError, FrameWindowDataset, convert
from framewin.conversion.pixels import PixelRule
from framewin.conversion.settings import ConvertOptions, ConvertSettings
from framewin.schema import FrameFormat
from framewin.stores import open_store
from tests.conftest import write_frames


def changed(frame: object, dtype: str = "uint8", **options: object) -> np.ndarray:
    """What a frame becomes; its format is the promised one."""
    frame = np.asarray(frame, dtype)
    rule = PixelRule(ConvertSettings(**options))
    form = rule.result_format(FrameFormat(*frame.shape, dtype), "a.png")
    out = np.full(form.shape, 7, form.dtype)
    rule.apply(frame, out, "a.png")
    return out


def test_gray_by_bt601() -> None:
    """0.299 R + 0.587 G + 0.114 B, rounded half up, in 8 and 16 bits and as floats."""
    colours = [[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255], [1, 2, 3]]]
    assert changed(colours, mode="gray")[0, :, 0].tolist() == [76, 150, 29, 255, 2]
    assert changed([[[0, 0, 250]]], mode="gray")[0, 0, 0] == 29  # 28.5
    deep = [[[65535, 0, 0], [0, 65535, 0], [0, 0, 65535], [65535] * 3]]
    assert changed(deep, "uint16", mode="gray")[0, :, 0].tolist() == [19595, 38469, 7471, 65535]
    light = changed([[[1.0, 0.5, 0.25]]], "float32", mode="gray")
    assert light[0, 0, 0] == pytest.approx(0.299 + 0.2935 + 0.0285)


def test_modes_keep_alpha() -> None:
    """Gray becomes gray three times; alpha is left as it is."""
    assert changed([[[9], [8]]], mode="rgb")[0].tolist() == [[9, 9, 9], [8, 8, 8]]
    assert changed([[[9, 3]]], mode="rgb")[0].tolist() == [[9, 9, 9, 3]]
    assert changed([[[10, 20, 30, 7]]], mode="gray")[0].tolist() == [[18, 7]]
    assert changed([[[10, 20, 30]]], mode="rgb")[0].tolist() == [[10, 20, 30]]
    assert changed([[[9]]], mode="gray")[0].tolist() == [[9]]


def test_opaque_alpha_may_be_dropped() -> None:
    """Only where it is opaque everywhere; else the frame is named, and what to do."""
    assert changed([[[9, 255], [8, 255]]], drop_alpha=True)[0].tolist() == [[9], [8]]
    assert changed([[[1, 2, 3, 65535]]], "uint16", drop_alpha=True)[0].tolist() == [[1, 2, 3]]
    assert changed([[[1, 2, 3]]], drop_alpha=True)[0].tolist() == [[1, 2, 3]]
    message = "a.png is transparent in 1 pixels, which drop_alpha=True would show; try background="
    with pytest.raises(FrameFormatError, match=re.escape(message)):
        changed([[[255, 0, 0, 0], [0, 255, 0, 255]]], drop_alpha=True)


@pytest.mark.parametrize(
    ("frame", "dtype", "background", "expected"),
    [
        ([[[255, 0, 0, 0], [0, 255, 0, 128]]], "uint8", (0, 0, 0), [[0, 0, 0], [0, 128, 0]]),
        ([[[255, 0, 0, 0], [0, 255, 0, 128]]], "uint8", (255, 9, 1), [[255, 9, 1], [127, 132, 0]]),
        ([[[100, 0], [200, 128]]], "uint8", (0, 0, 0), [[0], [100]]),
        ([[[100, 0], [200, 255]]], "uint8", (50, 50, 50), [[50], [200]]),
        ([[[60000, 32768], [7, 0]]], "uint16", (255, 255, 255), [[62767], [65535]]),
        ([[[1, 2, 3]]], "uint8", (9, 9, 9), [[1, 2, 3]]),
        ([[[0.5, 0.5]]], "float32", (255, 255, 255), [[0.75]]),
    ],
)
def test_transparent_frames_over_a_background(
    frame: list, dtype: str, background: tuple[int, int, int], expected: list
) -> None:
    """Blended and rounded half up; 0..255 stands for the whole range of 16 bits."""
    assert changed(frame, dtype, background=background)[0].tolist() == expected


def test_a_coloured_background_of_gray_frames() -> None:
    """It is not turned gray in silence."""
    with pytest.raises(
        FrameFormatError, match=r"a\.png is gray, the background \(1, 2, 3\) is not; try"
    ):
        changed([[[9, 0]]], background=(1, 2, 3))
    assert changed([[[9, 0]]], background=(1, 2, 3), mode="rgb")[0].tolist() == [[1, 2, 3]]
    assert changed([[[9, 0]]], background=(1, 2, 3), mode="gray")[0].tolist() == [[2]]


def test_crop() -> None:
    """Rows and columns, half-open."""
    frame = np.arange(35).reshape(5, 7, 1)
    assert changed(frame, crop=(1, 3, 2, 6))[..., 0].tolist() == frame[1:3, 2:6, 0].tolist()
    message = "a.png has 5x7 pixels, too few for crop= of rows 1:6 and columns 0:7; crop less"
    with pytest.raises(FrameFormatError, match=re.escape(message)):
        changed(frame, crop=(1, 6, 0, 7))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_shrinking_averages_areas(dtype: str) -> None:
    """Each new pixel is the mean of what it covers, to the last digit of 16 bits."""
    rng = np.random.default_rng(0)
    frame = rng.integers(0, 65536 if dtype == "uint16" else 256, (12, 20, 3)).astype(dtype)
    blocks = frame.astype(np.float64).reshape(4, 3, 5, 4, 3).mean(axis=(1, 3))
    expected = blocks if dtype == "float32" else np.floor(blocks + 0.5)
    resized = changed(frame, dtype, size=(4, 5))
    assert np.allclose(resized, expected, rtol=1e-6, atol=0)


def test_shrinking_by_a_fraction() -> None:
    """A pixel that lies across a border counts in part."""
    assert changed([[[0], [90], [180]]], size=(1, 2))[0, :, 0].tolist() == [30, 150]


@given(
    before=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    share=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    seed=st.integers(0, 99),
)
def test_any_area_is_its_mean(before: tuple[int, int], share: tuple[int, int], seed: int) -> None:
    """The same as repeating each pixel until the areas are whole, and taking plain means."""
    after = (min(before[0], share[0]), min(before[1], share[1]))
    frame = np.random.default_rng(seed).integers(0, 65536, (*before, 1)).astype(np.uint16)
    fine = frame[..., 0].astype(np.int64).repeat(after[0], axis=0).repeat(after[1], axis=1)
    count = before[0] * before[1]
    sums = fine.reshape(after[0], before[0], after[1], before[1]).sum(axis=(1, 3))
    expected = (2 * sums + count) // (2 * count)
    assert np.array_equal(changed(frame, "uint16", size=after)[..., 0], expected)


@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 4)),
    size=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    fit=st.sampled_from(["stretch", "pad", "crop"]),
    palette=st.sampled_from(["color", "index"]),
)
def test_a_plain_frame_stays_plain(
    shape: tuple[int, int, int], size: tuple[int, int], fit: str, palette: str
) -> None:
    """Whatever the sizes, no value appears that was not there, but for the padding."""
    frame = np.full(shape, 77, np.uint8)
    values = set(np.unique(changed(frame, size=size, fit=fit, palette=palette)).tolist())
    assert values == {77} or (fit == "pad" and values == {0, 77})


def test_growing_is_bilinear() -> None:
    """An axis that grows is interpolated, the other averaged."""
    assert changed([[[0], [100]]], size=(1, 4))[0, :, 0].tolist() == [0, 25, 75, 100]
    assert changed([[[0], [100]], [[50], [50]]], size=(1, 4))[0, :, 0].tolist() == [25, 38, 63, 75]


def test_what_is_no_number_stays_where_it_is() -> None:
    """A missing value spoils the new pixels that it is part of, and no other."""
    frame = np.ones((6, 9, 1))
    frame[2, 4] = np.nan
    missing = np.isnan(changed(frame, "float32", size=(3, 3)))[..., 0]
    assert missing.tolist() == [[False] * 3, [False, True, False], [False] * 3]


def test_indices_are_never_mixed() -> None:
    """With --palette index each new pixel is the nearest old one."""
    frame = np.arange(36).reshape(6, 6, 1) * 7 % 11
    resized = changed(frame, size=(2, 3), palette="index")
    assert np.array_equal(resized, frame[1::3, 1::2])


@pytest.mark.parametrize(
    ("fit", "expected"),
    [
        ("stretch", [[10, 30], [20, 40]]),
        ("pad", [[15, 35], [0, 0]]),
        ("crop", [[10, 10], [20, 20]]),
    ],
)
def test_fitting_other_proportions(fit: str, expected: list[list[int]]) -> None:
    """Stretched, with zeros around it, or only the middle."""
    frame = np.array([[10, 10, 30, 30], [20, 20, 40, 40]])[..., np.newaxis]
    if fit == "crop":
        frame = np.array([[9, 10, 10, 9], [9, 20, 20, 9]])[..., np.newaxis]
    assert changed(frame, size=(2, 2), fit=fit)[..., 0].tolist() == expected


def test_mixed_sizes(tmp_path: Path) -> None:
    """Refused by default, with the option that brings them together; then stored with it."""
    frames = {"0.png": np.zeros((4, 6, 1), np.uint8), "1.png": np.full((8, 12, 1), 9, np.uint8)}
    write_frames(tmp_path / "in", frames)
    with pytest.raises(FrameFormatError, match=r"1\.png is 8x12x1 uint8, .*, try size=, leave"):
        convert(tmp_path / "in", tmp_path / "clips.zarr")
    report = convert(tmp_path / "in", tmp_path / "clips.zarr", size=(2, 3), crop=(0, 4, 0, 6))
    assert str(report.frame_format) == "2x3x1 uint8"
    store = open_store(tmp_path / "clips.zarr")
    assert store.frames.array.mean(axis=(1, 2, 3)).tolist() == [0, 9]
    recorded = store.meta.conversion
    assert (recorded["size"], recorded["crop"], recorded["fit"]) == (
        [2, 3],
        [0, 4, 0, 6],
        "stretch",
    )


def test_radar_indices_across_midnight(real_data: Path, tmp_path: Path) -> None:
    """The index is the value, five minutes apart, whole."""
    source = real_data / "radar_mch_png_derived"
    report = convert(
        source,
        tmp_path / "clips.zarr",
        frame_regex="AQC(?P<time>[0-9]{9})",
        time_format="%y%j%H%M",
        palette="index",
    )
    assert (report.clips, report.frames, report.gaps) == (1, 40, [])
    assert (report.step, report.time_unit) == (300, "s")
    store = open_store(tmp_path / "clips.zarr")
    files = store.source_files(np.arange(40))
    for file, frame in zip(files, store.frames.array, strict=True):
        with Image.open(source / file) as image:
            assert image.mode == "P"
            assert np.array_equal(frame[..., 0], np.asarray(image))
    times = store.meta.clips.frame_numbers(np.arange(40))
    stamps = np.array(times, "datetime64[s]")
    assert (str(stamps[0]), str(stamps[-1])) == ("2016-07-11T20:45:00", "2016-07-12T00:00:00")


def test_frames_of_any_threads_are_the_same(tmp_path: Path) -> None:
    """Pixels do not depend on who decodes them."""
    rng = np.random.default_rng(1)
    frames = {f"{i}.png": rng.integers(0, 256, (9, 13, 4), np.uint8) for i in range(40)}
    write_frames(tmp_path / "in", frames)
    options: ConvertOptions = {"background": (1, 2, 3), "mode": "gray", "size": (5, 4)}
    for workers in (1, 5):
        convert(tmp_path / "in", tmp_path / f"{workers}.zarr", workers=workers, **options)
    one, five = (open_store(tmp_path / f"{n}.zarr").frames.array for n in (1, 5))
    assert np.array_equal(one, five)
    first = imagecodecs.png_decode((tmp_path / "in" / "0.png").read_bytes())
    assert np.array_equal(one[0], changed(first, **options))


def test_deep_pixels_reach_every_reader(tmp_path: Path, tf: ModuleType) -> None:
    """16 bits are the same four numbers in the store, in windows and in batches, each pass."""
    frame = np.array([[1, 4096], [15000, 30000]], np.uint16)[..., np.newaxis]
    write_frames(tmp_path / "in", {f"{n}.png": frame + np.uint16(n) for n in range(10)})
    convert(tmp_path / "in", tmp_path / "clips.zarr")
    expected = np.stack([frame + np.uint16(n) for n in range(10)])
    assert np.array_equal(open_store(tmp_path / "clips.zarr").frames.array, expected)
    ds = FrameWindowDataset(tmp_path / "clips.zarr", input_frames=1, predict_frames=1)
    assert np.array_equal(np.concatenate([ds[i][0] for i in range(9)]), expected[:9])
    batches = ds.to_tf_dataset(batch_size=9)
    for _ in range(2):
        [(inputs, targets)] = list(batches)
        assert inputs.dtype == tf.uint16
        assert np.array_equal(inputs[:, 0], expected[:9])
        assert np.array_equal(targets[:, 0], expected[1:])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "hsv"}, "mode must be one of keep, gray, rgb, got 'hsv'"),
        ({"palette": "colour"}, "palette must be one of color, index"),
        ({"fit": "fill"}, "fit must be one of stretch, pad, crop"),
        ({"on_error": "skip"}, "on_error must be one of stop, gap"),
        ({"drop_alpha": True, "background": (0, 0, 0)}, "drop_alpha and background exclude each"),
        ({"background": (0, 0, 256)}, "background must be three values in 0..255"),
        ({"size": (0, 5)}, "size must be a height and a width above 0, got (0, 5)"),
        ({"crop": (5, 5, 0, 1)}, "crop must be top < bottom and left < right, from 0"),
        ({"max_pixels": 0}, "max_pixels must be >= 1, got 0"),
        ({"stream": -1}, "stream must be >= 0, got -1"),
        ({"step": "fast"}, "step must be a number, or a time"),
        ({"frame_regex": "(?P<clip>.)"}, "expected (?P<frame>...) or (?P<time>...)"),
    ],
)
def test_settings_are_checked(options: dict[str, object], message: str) -> None:
    """Once, when they are made."""
    with pytest.raises(ValueError, match=re.escape(message)):
        ConvertSettings(**options)


def test_keyword_arguments_are_the_settings() -> None:
    """`framewin.convert` takes exactly the fields, by the same names."""
    assert list(ConvertOptions.__annotations__) == list(ConvertSettings.__dataclass_fields__)
