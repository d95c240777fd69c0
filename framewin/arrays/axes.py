"""What the axes of an array that others wrote mean, by the names of its dimensions or its shape.

Where neither says it for certain nothing is guessed: the error shows both, and axes that would fit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from framewin.arrays.foreign_array import ForeignArray
from framewin.errors import StoreError

AXES = {"t": "time", "y": "height", "x": "width", "c": "channel", "n": "clip"}
"""Letter -> what that axis of an array is."""
LEFT_OUT = "1"
"""In the place of a letter: an axis of length 1 that means nothing here."""
MOST_CHANNELS = 4
"""A last axis that is no longer may hold colours."""

_NAMES = {
    "n": ("clip", "clips", "sequence", "sequences", "sample", "samples", "episode", "episodes"),
    "t": ("t", "time", "times", "frame", "frames"),
    "y": ("y", "lat", "latitude", "height", "row", "rows", "south_north", "rlat", "northing"),
    "x": ("x", "lon", "longitude", "width", "column", "columns", "west_east", "rlon", "easting"),
    "c": ("c", "channel", "channels", "band", "bands", "variable", "wavelength"),
}
_GRID_NAMES = {
    "t": ("nt", "ntime"),
    "y": (
        *("j", "ny", "nj", "yc", "ydim", "ygrid", "nlat", "nlats", "lats", "latitudes"),
        *("nrow", "nrows", "southnorth"),
    ),
    "x": (
        *("i", "nx", "ni", "xc", "xdim", "xgrid", "nlon", "nlons", "lons", "longitudes"),
        *("col", "cols", "ncol", "ncols", "westeast"),
    ),
}
"""More names, which by themselves do not make an unknown one beside them a refusal."""
_SURE_LETTERS = {name: letter for letter, names in _NAMES.items() for name in names}
_LETTERS = _SURE_LETTERS | {name: letter for letter, names in _GRID_NAMES.items() for name in names}
_UNORDERED = (("i", "j"), ("ni", "nj"))
"""In these orders they may as well be rows and columns: that of matrices."""
_ALIKE = {
    (3, True): ("yxc", "tyx"),
    (3, False): ("tyx",),
    (4, True): ("tyxc",),
    (4, False): ("tcyx", "tnyx", "ntyx", "tyxc"),
    (5, True): ("ntyxc", "tnyxc"),
    (5, False): ("ntcyx", "tncyx"),
}
"""Number of axes, and whether the last may hold colours -> what they may be."""


def checked_axes(array: ForeignArray, axes: str | None) -> str:
    """One letter of `AXES`, or `LEFT_OUT`, for each axis of an array.

    Args:
        array: Its shape, and names of its axes where they have any.
        axes: Letters that were given; they decide.

    Raises:
        StoreError: Letters that do not fit, or axes that could be several things.
    """
    path, name, shape = array.path, array.name, array.info.shape
    letters = usual_axes(array.label, shape, array.info.dimensions) if axes is None else axes
    named = letters.replace(LEFT_OUT, "")
    if (
        len(letters) != len(shape)
        or len(set(named)) != len(named)
        or not set(named) <= set(AXES)
        or not {"y", "x"} <= set(named)
        or ("n" in named and "t" not in named)
    ):
        meanings = ", ".join(f"{letter} {meaning}" for letter, meaning in AXES.items())
        raise StoreError(
            f"{path}: axes {letters!r} do not fit {name!r} of shape {shape}; give one letter for "
            f"each axis ({meanings}; {LEFT_OUT} for one of length 1 that is left out), for example "
            f"axes='{_example(shape)}'"
        )
    if min(shape) < 1:
        raise StoreError(f"{path}: {name!r} of shape {shape} holds no frame")
    for letter, size in zip(letters, shape, strict=True):
        if letter == LEFT_OUT and size != 1:
            raise StoreError(
                f"{path}: axes {letters!r} leave out an axis of length {size} of {name!r}; "
                "only one of length 1 can be left out"
            )
    return letters


def usual_axes(what: str, shape: tuple[int, ...], dimensions: tuple[str, ...] | None) -> str:
    """The axes that names or the shape alone tell.

    >>> usual_axes("a", (9, 64, 64), None), usual_axes("a", (9, 64, 64, 3), ())
    ('tyx', 'tyxc')
    >>> usual_axes("a", (12, 10, 6, 1), ("south_north", "west_east", "Time", "level"))
    'yxt1'

    Raises:
        StoreError: They leave it open.
    """
    names = dimensions or ()
    letters = [None if name in _matrix_order(names) else _letter(name) for name in names]
    if any(letters) and len(letters) == len(shape):
        sure = None not in letters or any(_letter(name, _SURE_LETTERS) for name in names)
        if "" not in names and sure:
            return _of_names(what, shape, names, letters)
        usual = _of_shape(what, shape)
        if "" not in names:
            fit = all(own in (None, letter) for own, letter in zip(letters, usual, strict=True))
            return usual if fit else _of_names(what, shape, names, letters)
        # Some axes have no name: those that do must be where they usually are.
        expected = [letter if name else None for letter, name in zip(usual, names, strict=True)]
        return usual if letters == expected else _of_names(what, shape, names, letters)
    return _of_shape(what, shape)


def _of_shape(what: str, shape: tuple[int, ...]) -> str:
    """The axes of an array without names, where its shape leaves no choice."""
    if len(shape) == 2:
        return "yx"
    fitting = _ALIKE.get((len(shape), shape[-1] <= MOST_CHANNELS), ())
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise StoreError(
            f"{what} is an array of shape {shape}; expected (t, y, x), (t, y, x, c) or (y, x), or "
            "other axes by axes="
        )
    meanings = " or ".join(f"({', '.join(axes)})" for axes in fitting)
    advice = " or ".join(f"axes={axes!r}" for axes in fitting)
    raise StoreError(
        f"{what} has the shape {shape}, which may be {meanings}; say what it is, as by {advice}"
    )


def _of_names(
    what: str, shape: tuple[int, ...], dimensions: tuple[str, ...], letters: list[str | None]
) -> str:
    """Letters of named dimensions; one of length 1 that is unknown, or there twice, is left out."""
    found = [
        LEFT_OUT if size == 1 and (letter is None or letters.count(letter) > 1) else letter
        for letter, size in zip(letters, shape, strict=True)
    ]
    known = [letter for letter in found if letter not in (None, LEFT_OUT)]
    if None not in found and len(set(known)) == len(known) and {"y", "x"} <= set(known):
        return "".join(filter(None, found))
    raise StoreError(
        f"{what} has the dimensions ({', '.join(dimensions)}) of shape {shape}, which do not say "
        f"what each axis is; give them, for example axes={_completed(found)!r}"
    )


def _matrix_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """Indexes of which it is open which are rows."""
    return next((pair for pair in _UNORDERED if pair == tuple(n for n in names if n in pair)), ())


def _letter(name: str, known: Mapping[str, str] = _LETTERS) -> str | None:
    """The letter of a dimension, by its name or the words of it.

    >>> _letter("valid_time"), _letter("y_geostationary"), _letter("level"), _letter("x_of_y")
    ('t', 'y', None, None)
    """
    whole = known.get(name.lower())
    words = {
        known[word]
        for word in re.split(r"[_\W]+", name.lower())
        if word in known and word not in ("i", "j")
    }
    return whole or (words.pop() if len(words) == 1 else None)


def _completed(found: list[str | None]) -> str:
    """Letters in the places that have none, or one that comes again behind them."""
    kept = [
        None if letter != LEFT_OUT and letter in found[place + 1 :] else letter
        for place, letter in enumerate(found)
    ]
    left = [letter for letter in "yxtcn" if letter not in kept]
    return "".join(letter or (left.pop(0) if left else LEFT_OUT) for letter in kept)


def _example(shape: tuple[int, ...]) -> str:
    """Letters for as many axes."""
    return {2: "yx", 3: "tyx", 4: "tyxc", 5: "ntyxc"}.get(len(shape), "tyx")
