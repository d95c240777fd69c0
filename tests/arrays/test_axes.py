"""What axes mean: by names, by shape, or refused with axes that fit."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from framewin import StoreError
from framewin.arrays.axes import checked_axes
from framewin.arrays.foreign_array import ArrayInfo, ForeignArray


def checked(shape: tuple[int, ...], names: tuple[str, ...] | None, axes: str | None) -> str:
    """The axes of an array of this shape."""
    array = ForeignArray()
    array.path, array.name = Path("a"), "a"
    array.info = ArrayInfo(shape, np.dtype("u1"), dimensions=names)
    return checked_axes(array, axes)


@pytest.mark.parametrize(
    ("shape", "names", "axes"),
    [
        ((9, 6, 8), (), "tyx"),
        ((9, 6, 8, 3), (), "tyxc"),
        ((6, 3), (), "yx"),
        ((9, 8, 6), ("time", "lon", "lat"), "txy"),
        ((6, 8, 9), ("latitude", "longitude", "valid_time"), "yxt"),
        ((6, 8, 9), ("south_north", "west_east", "Time"), "yxt"),
        ((9, 6, 8), ("time", "y_geostationary", "x_geostationary"), "tyx"),
        ((9, 1, 6, 8), ("time", "z", "lat", "lon"), "t1yx"),
        ((9, 1, 6, 8), ("time", "height", "lat", "lon"), "t1yx"),
        ((9, 1, 1, 6, 8), ("t", "c", "z", "y", "x"), "tc1yx"),
        ((4, 9, 6, 8), ("sample", "time", "y", "x"), "ntyx"),
        # Names that say nothing are no names.
        ((9, 6, 8), ("phony_dim_0", "phony_dim_1", "phony_dim_2"), "tyx"),
        ((9, 6, 8), ("time", "", ""), "tyx"),
        # Names of grids, beside which one that says nothing is where it usually is.
        ((9, 6, 8), ("time", "ny", "nx"), "tyx"),
        ((9, 6, 8), ("time", "j", "i"), "tyx"),
        ((9, 6, 8), ("time", "nlat", "nlon"), "tyx"),
        ((9, 6, 8), ("time", "row", "col"), "tyx"),
        ((9, 6, 8), ("time", "southnorth", "westeast"), "tyx"),
        ((8, 6, 9), ("nx", "ny", "nt"), "xyt"),
        ((9, 6, 8), ("record", "ny", "nx"), "tyx"),
    ],
)
def test_axes_that_are_certain(shape: tuple[int, ...], names: tuple[str, ...], axes: str) -> None:
    """Names decide where there are any, else a shape that leaves no choice."""
    assert checked(shape, names, None) == axes
    assert checked(shape, names, axes) == axes


@pytest.mark.parametrize(
    ("shape", "names", "message", "advice"),
    [
        ((6, 8, 3), (), "shape (6, 8, 3), which may be (y, x, c) or (t, y, x)", "yxc"),
        ((9, 3, 6, 8), (), "which may be (t, c, y, x) or (t, n, y, x) or (n, t, y, x)", "tcyx"),
        ((20, 50, 64, 64), (), "or (t, y, x, c); say what it is", "tnyx"),
        ((9, 4, 6, 8), ("time", "level", "lat", "lon"), "dimensions (time, level, lat,", "tcyx"),
        ((9, 4, 6, 8), ("time", "height", "lat", "lon"), "do not say what each axis is", "tcyx"),
        ((9, 6, 8), ("time", "a", "b"), "dimensions (time, a, b) of shape (9, 6, 8)", "tyx"),
        ((9, 6, 8), ("time", "i", "j"), "dimensions (time, i, j) of shape (9, 6, 8)", "tyx"),
        ((9, 6, 8), ("record", "nx", "ny"), "dimensions (record, nx, ny) of shape", "txy"),
        ((9, 4, 6, 8), ("time", "k", "j", "i"), "dimensions (time, k, j, i) of shape", "tcyx"),
        ((9, 6, 8), ("", "time", ""), "dimensions (, time, ) of shape (9, 6, 8)", "ytx"),
        ((2, 9, 3, 6, 8), (), "which may be (n, t, c, y, x)", "ntcyx"),
    ],
)  # fmt: skip
def test_axes_in_doubt(
    shape: tuple[int, ...], names: tuple[str, ...], message: str, advice: str
) -> None:
    """Nothing is guessed: shape and names are shown with axes, which are taken."""
    with pytest.raises(StoreError, match=re.escape(message)) as caught:
        checked(shape, names, None)
    assert f"axes={advice!r}" in str(caught.value)
    assert checked(shape, names, advice) == advice


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ("t1yx", "axes 't1yx' leave out an axis of length 3 of 'a'; only one of length 1 can"),
        ("nyxc", "axes 'nyxc' do not fit 'a' of shape (9, 3, 6, 8); give one letter for each axis"),
        ("tccx", "n clip; 1 for one of length 1 that is left out), for example axes='tyxc'"),
    ],
)
def test_axes_that_do_not_fit(axes: str, message: str) -> None:
    """Frames are left out of nothing, and clips have a time."""
    with pytest.raises(StoreError, match=re.escape(message)):
        checked((9, 3, 6, 8), None, axes)
