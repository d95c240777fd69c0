"""Files that other programs wrote (tests/data): pixels, numbers, times and no data, by formula."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framewin import convert
from framewin.stores import open_store
from framewin.stores.array_store import open_array
from tests.conftest import ROOT, import_or_skip

DATA = ROOT / "tests" / "data"
MOST_BYTES = 200_000
COUNTED = (0, 1, 2, 3, 4, 5)
A_PAUSE = (0, 1, 2, 3, 5, 6)
ONE_LOST = (*range(6), *range(7, 13))


def pixel(t: int, y: int, x: int, c: int) -> int:
    """The formula of every exact picture, as tests/data/README.md has it."""
    return 13 * t + 5 * y + 3 * x + 50 * c + x * y // 4


def pictures(
    channels: int = 1, *, frames: int = 6, factor: int = 1, modulo: int = 256
) -> np.ndarray:
    """(T, H, W, C), one pixel after the other."""
    return np.array(
        [
            [
                [[pixel(t, y, x, c) * factor % modulo for c in range(channels)] for x in range(22)]
                for y in range(18)
            ]
            for t in range(frames)
        ]
    )


def words(channels: int = 1, **options: Any) -> np.ndarray:
    """Pictures of 16 bits."""
    return pictures(channels, factor=251, modulo=65536, **options)


def waves(channels: int) -> np.ndarray:
    """The smooth pictures of lossy codecs."""
    t, y, x = np.meshgrid(np.arange(12), np.arange(32), np.arange(48), indexing="ij")
    smooth = 127.5 + 114.75 * np.sin((x + 4 * t) / 9) * np.cos((y + 2 * t) / 7)
    return np.repeat(smooth[..., None], channels, axis=-1)


def coloured(channels: int) -> np.ndarray:
    """Sixteen colours, and how opaque they are."""
    index = pictures()[:1, ..., 0] % 16
    alpha = np.where(index == 0, 0, np.where(index == 1, 128, 255))
    return np.stack([16 * index, 255 - index, index, alpha], axis=-1)[..., :channels]


def temperatures() -> np.ndarray:
    """Packed values, a hundredth of a degree above ten each, with one that is missing."""
    packed = words()
    packed = np.where(packed > 32767, packed - 65536, packed) // 8
    packed[2, 3, 4] = -999
    return packed


def seconds(days: list[int]) -> tuple[int, ...]:
    """Days after 2024-02-01 since 1970."""
    first = datetime.datetime(2024, 2, 1, tzinfo=datetime.UTC).timestamp()
    return tuple(int(first) + 86400 * day for day in days)


@dataclass(frozen=True)
class Case:
    """What a file of tests/data holds."""

    path: str
    pixels: np.ndarray
    dtype: str = "uint8"
    numbers: tuple[int, ...] = (0,)
    error: float = 0
    """Mean absolute error that a lossy codec may have."""
    options: Mapping[str, Any] = field(default_factory=dict)
    time_unit: str | None = None
    nodata: float | None = None
    packing: Mapping[str, Any] = field(default_factory=dict)
    clips: tuple[str, ...] = ()
    warning: str | None = None
    """What opening it in place warns of."""
    in_place: bool = False
    """Whether it is an array that is opened where it is, too."""


PACKED = {"scale_factor": 0.01, "add_offset": 10.0, "units": "degC"}
DAYS = [26, 27, 28, 30, 31, 32]
STANDARD = {
    "numbers": seconds(DAYS), "time_unit": "s", "nodata": -999, "packing": PACKED, "in_place": True,
}  # fmt: skip
NOLEAP = {
    "numbers": tuple(DAYS), "nodata": -999, "packing": PACKED, "in_place": True,
    "warning": "not applied: calendar noleap: frame numbers are days since 2024-02-01, not dates",
}  # fmt: skip
GRAY_3 = np.repeat(pictures() // 32 * 36, 3, axis=-1)
MINUTES = [0, 5, 10, 20, 25, 30]
CASES = [
    Case("png/numbers", pictures(3), numbers=(8, 9, 10, 12, 13, 14)),
    Case("png/rgb16.png", words(3)[:1], "uint16"),
    Case("png/gray16.png", words()[:1], "uint16"),
    Case("png/palette.png", coloured(4)),
    Case("png/interlaced.png", pictures(3)[1:2]),
    Case("png/bilevel.png", pictures()[:1] // 128 * 255),
    Case("png/animation.png", pictures(3), numbers=(0, 1, 2, 3, 6, 7)),
    Case("images/turned.jpg", waves(1)[:1], error=2),
    Case("images/padded_rows.bmp", pictures(3)[:1]),
    Case("images/palette.bmp", coloured(3)),
    Case("images/lossless.webp", pictures(3)[:1]),
    Case("images/animation.webp", pictures(3), numbers=A_PAUSE),
    Case("images/animation.gif", GRAY_3, numbers=A_PAUSE),
    Case("images/big_endian.pgm", words()[:1], "uint16"),
    Case("images/text.pgm", pictures()[:1]),
    Case("images/colour.ppm", pictures(3)[:1]),
    Case("tiff/pages.tif", pictures(), numbers=COUNTED),
    Case("tiff/big_endian_planes.tif", pictures(3)[:1]),
    Case("tiff/white_is_0.tif", pictures(), numbers=COUNTED),
    Case("tiff/tiles_of_floats.tif", words()[:3] / 256, "float32", (0, 1, 2)),
    Case("tiff/imagej.tif", words(), "uint16", COUNTED),
    Case("tiff/opencv.tif", words(3)[:1], "uint16"),
    Case("video/b_frames.mp4", waves(3), numbers=ONE_LOST, error=2),
    Case("video/vp9.webm", waves(3), numbers=ONE_LOST, error=2),
    Case("video/ffv1.mkv", words(frames=12), "uint16", ONE_LOST),
    Case(
        "hdf5/earliest.h5", pictures(3), numbers=COUNTED, clips=("one", "two"), in_place=True,
        options={"clip_ids": "clip"},
    ),
    Case("hdf5/latest.h5", words(), "uint16", COUNTED, in_place=True),
    Case(
        "hdf5/scales.h5", pictures(), in_place=True, time_unit="s",
        numbers=tuple(1_709_164_200 + 60 * minute for minute in MINUTES),
    ),
    Case("netcdf/packed.nc", temperatures(), "int16", **STANDARD),
    Case("netcdf/noleap.nc", temperatures(), "int16", **NOLEAP),
    Case("zarr/xarray_2.zarr", temperatures(), "int16", **STANDARD),
    Case("zarr/xarray_3.zarr", temperatures(), "int16", **NOLEAP),
    Case("zarr/fortran_2.zarr", words(3), "uint16", COUNTED, in_place=True),
    Case("zarr/sharded_3.zarr", words(), "uint16", COUNTED, in_place=True),
    Case(
        "zarr/tensorstore_3.zarr", pictures() / 4, "float32", COUNTED, in_place=True,
    ),
    Case(
        "numpy/fortran.npy", words(3), "uint16", COUNTED, in_place=True, options={"axes": "tyxc"}
    ),
    Case("numpy/two.npz", pictures(), numbers=COUNTED, options={"stream": 1}),
]  # fmt: skip


def check(case: Case, frames: np.ndarray, meta: Any) -> None:
    """Compare what was read with what was written."""
    clips = meta.clips
    assert frames.dtype == case.dtype
    assert frames.shape == case.pixels.shape
    if case.error:
        differences = abs(frames.astype(float) - case.pixels).mean(axis=(1, 2, 3))
        assert differences.max() < case.error
    else:
        assert np.array_equal(frames, case.pixels)
    assert tuple(clips.frame_numbers(np.arange(len(frames))).tolist()) == case.numbers
    assert clips.time_unit == case.time_unit
    assert meta.nodata == case.nodata
    if case.clips:
        assert clips.names == case.clips
    if case.packing:
        assert {name: meta.packing[name] for name in case.packing} == case.packing
        assert meta.coordinates["y"]["values"] == [50 - 0.25 * row for row in range(18)]
        assert meta.coordinates["x"]["values"] == [0.25 * column for column in range(22)]


def case_id(case: Case) -> str:
    return case.path


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_files_of_other_programs_are_converted(case: Case, tmp_path: Path) -> None:
    """Every pixel, number, time and value of no data is the one that was written."""
    if case.path.startswith("video"):
        import_or_skip("av")
    convert(DATA / case.path, tmp_path / "clips.zarr", workers=1, **case.options)
    store = open_store(tmp_path / "clips.zarr")
    check(case, store.frames.take(np.arange(store.meta.clips.num_frames)), store.meta)


@pytest.mark.parametrize("case", [case for case in CASES if case.in_place], ids=case_id)
def test_arrays_of_other_programs_are_opened(case: Case) -> None:
    """As converted, where they are."""
    expected = pytest.warns(UserWarning, match=case.warning) if case.warning else nullcontext()
    with expected:
        store = open_array(DATA / case.path, cache_bytes=0, **case.options)
    check(case, store.frames.take(np.arange(store.meta.clips.num_frames)), store.meta)


def test_every_file_is_read() -> None:
    """None lies there that no test opens, and a clone stays small."""
    files = {path for path in DATA.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    files -= {DATA / "make.py", DATA / "README.md"}
    read = {path for path in files for case in CASES if path.is_relative_to(DATA / case.path)}
    assert read == files
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
