"""Crop, alpha, colours and size: the values that they give."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import fields
from fractions import Fraction
from math import floor
from pathlib import Path
from types import ModuleType
from typing import Any

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


def changed(
    frame: object, dtype: str = "uint8", alpha: str = "straight", **options: object
) -> np.ndarray:
    """What a frame becomes; its format is the promised one."""
    frame = np.asarray(frame, dtype)
    rule = PixelRule(ConvertSettings(**options))
    form = rule.result_format(FrameFormat(*frame.shape, dtype), "a.png", alpha)
    out = np.full(form.shape, 7, form.dtype)
    rule.apply(frame, out, "a.png", alpha)
    return out


def shares(before: int, after: int) -> list[list[Fraction]]:
    """Of each old pixel of an axis in each new one, by exact areas or distances."""
    if after <= before:
        size = Fraction(before, after)
        return [
            [
                max(Fraction(0), min((i + 1) * size, j + 1) - max(i * size, j)) / size
                for j in range(before)
            ]
            for i in range(after)
        ]
    centers = [(i + Fraction(1, 2)) * before / after - Fraction(1, 2) for i in range(after)]
    inside = [min(max(center, Fraction(0)), Fraction(before - 1)) for center in centers]
    return [[max(Fraction(0), 1 - abs(c - j)) for j in range(before)] for c in inside]


def resized_exactly(frame: np.ndarray, size: tuple[int, int]) -> list[list[Fraction]]:
    """(H, W) by fractions, without rounding."""
    rows, columns = shares(frame.shape[0], size[0]), shares(frame.shape[1], size[1])
    pixels = [[Fraction(int(value)) for value in line] for line in frame]
    narrow = [
        [
            sum(w * line[x] for w, line in zip(row, pixels, strict=True))
            for x in range(frame.shape[1])
        ]
        for row in rows
    ]
    return [
        [sum(w * v for w, v in zip(column, line, strict=True)) for column in columns]
        for line in narrow
    ]


def half_up(exact: list[list[Fraction]]) -> list[list[int]]:
    return [[floor(value + Fraction(1, 2)) for value in line] for line in exact]


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
    assert changed([[[10, 20, 30, 0.5]]], "float64", mode="gray")[0].tolist() == [[18.15, 0.5]]
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
    with pytest.raises(
        FrameFormatError, match=r"the background \(1, 1, 3\) is not; try mode='rgb'"
    ):
        changed([[[9, 0]]], background=(1, 1, 3))
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


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((5, 7), (2, 3)),
        ((7, 5), (3, 4)),
        ((3, 4), (5, 9)),
        ((2, 9), (7, 4)),
        ((9, 2), (4, 3)),
        ((1, 3), (4, 2)),
        ((4, 4), (4, 3)),
        ((4, 4), (6, 4)),
        ((6, 1), (1, 5)),
    ],
)
def test_sizes_by_exact_fractions(
    dtype: str, before: tuple[int, int], after: tuple[int, int]
) -> None:
    """Any axis shrinks by areas and grows bilinearly, rounded half up, below 0 as well."""
    rng = np.random.default_rng(before)
    limits = np.iinfo(dtype)
    frame = rng.integers(limits.min, limits.max, (*before, 2), endpoint=True).astype(dtype)
    found = changed(frame, dtype, size=after, alpha="bands")
    for channel in range(2):
        exact = half_up(resized_exactly(frame[..., channel], after))
        assert found[..., channel].tolist() == exact


@pytest.mark.parametrize("count", [10, 1000, 100_000])
def test_halves_are_rounded_up(count: int) -> None:
    """And a pixel less than half of them is rounded down, however many there are."""
    for ones, mean in ((count // 2 - 1, 0), (count // 2, 1)):
        frame = (np.arange(count) < ones).reshape(1, count, 1)
        assert changed(frame, size=(1, 1)).tolist() == [[[mean]]]


@pytest.mark.parametrize("after", range(1, 13))
@pytest.mark.parametrize("before", [1, 2, 3, 5, 7, 8])
def test_a_missing_value_spoils_what_it_is_part_of(before: int, after: int) -> None:
    """Also where new pixels are no whole number of old ones, and along either axis."""
    weights = shares(before, after)
    for place in range(before):
        line = np.ones(before)
        line[place] = np.nan
        wanted = [row[place] > 0 for row in weights]
        wide = changed(line[np.newaxis, :, np.newaxis], "float32", size=(1, after))
        high = changed(line[:, np.newaxis, np.newaxis], "float32", size=(after, 1))
        assert np.isnan(wide).ravel().tolist() == wanted
        assert np.isnan(high).ravel().tolist() == wanted


@pytest.mark.parametrize(
    ("before", "size", "rows", "columns"),
    [
        ((1, 4), (4, 4), (1, 2), (0, 4)),  # one row in the middle of four: the upper one
        ((4, 1), (4, 4), (0, 4), (1, 2)),
        ((2, 4), (4, 4), (1, 3), (0, 4)),
        ((2, 3), (4, 4), (0, 3), (0, 4)),  # 2.67 rows
        ((3, 5), (9, 4), (3, 5), (0, 4)),  # 2.4 rows
        ((1, 2), (3, 3), (0, 2), (0, 3)),  # 1.5 rows
        ((2, 1), (3, 3), (0, 3), (0, 2)),
        ((1, 9), (3, 3), (1, 2), (0, 3)),  # a third of a row
        ((9, 1), (3, 3), (0, 3), (1, 2)),
        ((4, 4), (2, 7), (0, 2), (2, 4)),
        ((4, 4), (8, 4), (2, 6), (0, 4)),
    ],
)
def test_padding_is_around_the_middle(
    before: tuple[int, int], size: tuple[int, int], rows: tuple[int, int], columns: tuple[int, int]
) -> None:
    """Proportions are kept to the nearest pixel, at least one; the rest is 0."""
    frame = np.arange(1, before[0] * before[1] + 1).reshape(*before, 1) * 5
    wanted = np.zeros(size, int)
    inner = (rows[1] - rows[0], columns[1] - columns[0])
    wanted[slice(*rows), slice(*columns)] = half_up(resized_exactly(frame[..., 0], inner))
    assert changed(frame, size=size, fit="pad")[..., 0].tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("before", "size", "rows", "columns"),
    [
        ((5, 2), (1, 1), (1, 3), (0, 2)),
        ((2, 5), (1, 1), (0, 2), (1, 3)),
        ((2, 5), (2, 3), (0, 2), (1, 4)),
        ((2, 7), (3, 4), (0, 2), (2, 5)),  # 2.67 columns
        ((7, 2), (4, 3), (2, 5), (0, 2)),
        ((3, 9), (2, 5), (0, 3), (0, 8)),  # 7.5 columns
        ((9, 3), (5, 2), (0, 8), (0, 3)),
        ((4, 6), (2, 3), (0, 4), (0, 6)),
        ((3, 3), (1, 9), (1, 2), (0, 3)),  # a third of a row
        ((3, 3), (9, 1), (0, 3), (1, 2)),
        ((1, 9), (9, 1), (0, 1), (4, 5)),  # a ninth of a column
    ],
)
def test_the_middle_is_cut_out(
    before: tuple[int, int], size: tuple[int, int], rows: tuple[int, int], columns: tuple[int, int]
) -> None:
    """As much as has the new proportions to the nearest pixel, at least one."""
    frame = np.arange(1, before[0] * before[1] + 1).reshape(*before, 1) * 5
    cut = frame[slice(*rows), slice(*columns), 0]
    wanted = half_up(resized_exactly(cut, size))
    assert changed(frame, size=size, fit="crop")[..., 0].tolist() == wanted


@pytest.mark.parametrize("background", [(0, 0, 0), (255, 255, 255), (9, 130, 77)])
def test_every_alpha_of_every_colour(background: tuple[int, int, int]) -> None:
    """All 65536 pairs of 8 bits, rounded to the nearest; premultiplied ones end at white."""
    colour, alpha = np.divmod(np.arange(65536).reshape(256, 256), 256)
    frame = np.stack([colour, colour, colour, alpha], axis=-1)
    behind = np.array(background) * (255 - alpha[..., np.newaxis])
    straight = (frame[..., :3] * alpha[..., np.newaxis] + behind) / 255
    premultiplied = np.minimum(frame[..., :3] + behind / 255, 255)
    for kind, wanted in (("straight", straight), ("premultiplied", premultiplied)):
        found = changed(frame, alpha=kind, background=background)
        assert np.array_equal(found, np.floor(wanted + 0.5))


def test_deep_and_light_alpha() -> None:
    """16 bits by whole numbers, and float32 by float64, to the last digit."""
    rng = np.random.default_rng(3)
    frame = rng.integers(0, 65536, (40, 50, 4))
    colours, alpha = frame[..., :3], frame[..., 3:]
    sums = 2 * (colours * alpha + np.array([0, 9, 255]) * 257 * (65535 - alpha)) + 65535
    found = changed(frame, "uint16", background=(0, 9, 255))
    assert np.array_equal(found, sums // (2 * 65535))
    light = (frame / 65535).astype(np.float32)
    wide = light.astype(np.float64)
    beneath = np.array([0, 9, 255]) / 255 * (1 - wide[..., 3:])
    for kind, share in (("straight", wide[..., 3:]), ("premultiplied", 1)):
        found = changed(light, "float32", alpha=kind, background=(0, 9, 255))
        assert np.array_equal(found, (wide[..., :3] * share + beneath).astype(np.float32))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "int8", "int16", "int32"])
def test_gray_of_every_integer(dtype: str) -> None:
    """By whole numbers, rounded half up, for the least and the greatest values as well."""
    limits = np.iinfo(dtype)
    frame = np.random.default_rng(0).integers(limits.min, limits.max, (20, 30, 3), endpoint=True)
    frame[0, 0], frame[0, 1] = limits.min, limits.max
    wanted = [
        [floor(Fraction(299 * r + 587 * g + 114 * b, 1000) + Fraction(1, 2)) for r, g, b in line]
        for line in frame.tolist()
    ]
    assert changed(frame, dtype, mode="gray")[..., 0].tolist() == wanted


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gray_of_floats(dtype: str) -> None:
    """As exact as their dtype: what fractions give, to the nearest value."""
    frame = np.random.default_rng(0).random((20, 30, 3)).astype(dtype) * 300
    wanted = [
        [
            float(sum(w * Fraction(v) for w, v in zip((299, 587, 114), pixel, strict=True)) / 1000)
            for pixel in line
        ]
        for line in frame.tolist()
    ]
    found = changed(frame, dtype, mode="gray")[..., 0]
    if dtype == "float32":
        assert np.array_equal(found, np.array(wanted, np.float32))
    assert np.allclose(found, wanted, rtol=1e-15 if dtype == "float64" else 1e-7, atol=0)


@pytest.mark.parametrize("dtype", ["uint32", "int8", "int16", "int32"])
def test_a_background_of_other_integers_is_refused(dtype: str) -> None:
    """0..255 has no meaning there; frames without alpha have none to lay."""
    message = f"a.png has {dtype} pixels; background= is for uint8, uint16 and floats"
    for frame in ([[[7, 0]]], [[[1, 2, 3, 0]]]):
        with pytest.raises(FrameFormatError, match=re.escape(message)):
            changed(frame, dtype, background=(1, 1, 1))
    assert changed([[[7]]], dtype, background=(1, 1, 1)).tolist() == [[[7]]]


def test_what_alpha_is_of() -> None:
    """Two or four channels of data are no alpha, nor is more than RGBA; nothing mixes them."""
    assert changed([[[9, 3]]], alpha="bands").tolist() == [[[9, 3]]]
    assert changed([[[1, 2, 3, 4, 5]]]).tolist() == [[[1, 2, 3, 4, 5]]]
    for option in ({"mode": "gray"}, {"drop_alpha": True}, {"background": (0, 0, 0)}):
        for frame, what in (
            ([[[1, 2, 3, 4]]], "4 channels of data that is not alpha"),
            ([[[1, 2, 3, 4, 5]]], "5 channels"),
        ):
            message = f"a.png has {what}; mode=, drop_alpha= and background= are for gray, RGB and"
            with pytest.raises(FrameFormatError, match=re.escape(message)):
                changed(frame, alpha="bands", **option)


@pytest.mark.parametrize(
    ("options", "nothing"),
    [
        ({}, True),
        ({"palette": "index"}, True),
        ({"mode": "gray"}, False),
        ({"background": (0, 0, 0)}, False),
        ({"crop": (0, 1, 0, 1)}, False),
        ({"size": (1, 1)}, False),
        ({"drop_alpha": True}, False),
    ],
)
def test_what_changes_nothing(options: dict[str, object], nothing: bool) -> None:
    """Frames are then stored as they are decoded."""
    assert PixelRule(ConvertSettings(**options)).changes_nothing == nothing


def test_a_crop_may_end_where_the_frame_does() -> None:
    """And not a pixel after, down or to the right."""
    frame = np.arange(12).reshape(3, 4, 1)
    assert changed(frame, crop=(0, 3, 0, 4)).tolist() == frame.tolist()
    assert changed(frame, crop=(2, 3, 3, 4)).tolist() == [[[11]]]
    for crop in ((0, 4, 0, 4), (0, 3, 0, 5)):
        with pytest.raises(FrameFormatError, match=r"a\.png has 3x4 pixels, too few for crop= of"):
            changed(frame, crop=crop)


@pytest.mark.parametrize(
    ("before", "after", "picked"),
    [
        (6, 3, [1, 3, 5]),
        (5, 3, [0, 2, 4]),
        (3, 6, [0, 0, 1, 1, 2, 2]),
        (2, 5, [0, 0, 1, 1, 1]),
        (7, 1, [3]),
        (1, 3, [0, 0, 0]),
    ],
)
def test_indices_come_from_the_nearest_pixel(before: int, after: int, picked: list[int]) -> None:
    """Along either axis: the old pixel in which the middle of the new one lies."""
    line = np.arange(before)
    wide = changed(line[np.newaxis, :, np.newaxis], size=(1, after), palette="index")
    high = changed(line[:, np.newaxis, np.newaxis], size=(after, 1), palette="index")
    assert wide.ravel().tolist() == high.ravel().tolist() == picked


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
    options: dict[str, Any] = {"background": (1, 2, 3), "mode": "gray", "size": (5, 4)}
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
    """`framewin.convert` shows all fields, with their help, and takes no others."""
    shown = inspect.signature(convert).parameters
    assert list(shown) == ["source", "dest", *ConvertOptions.__dataclass_fields__]
    for each in fields(ConvertOptions):
        assert shown[each.name].default == each.default
        assert f"        {each.name}: " in (convert.__doc__ or "")
    with pytest.raises(TypeError, match="unexpected keyword argument 'sise'"):
        convert("a", "b.zarr", sise=(1, 2))


def test_a_record_of_settings() -> None:
    """What a store records is read back; how the store lies is no part of it."""
    chosen = ConvertSettings(size=(4, 6), fit="pad", include="a*", nodata=3.0, compression="zstd")
    record = json.loads(json.dumps(chosen.as_json()))
    assert "nodata" not in record
    assert ConvertSettings.from_record(
        {**record, "damaged": []}, nodata=3.0, compression="zstd"
    ) == (chosen)
