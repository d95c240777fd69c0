"""Which arrays of a container are the frames: the one of a name, or those of a pattern."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from framewin.arrays.foreign_array import Held
from framewin.errors import StoreError
from framewin.schema import FRAME_DTYPES, listed


def choose(path: Path, name: str | None, held: Held, num_axes: int | None) -> list[str]:
    """The array of this name, those that a pattern names, or the only one that can hold frames.

    Args:
        path: Of the container, for errors.
        name: Name or pattern, if any.
        held: The arrays of the container.
        num_axes: How many axes the array has, where that is known; three to five by default.

    Raises:
        StoreError: There is none, or several could be meant.
    """
    wanted = None if name is None else name.strip("/")
    if wanted is not None and wanted in held:
        return [wanted]
    if wanted is not None and any(sign in wanted for sign in "*?["):
        chosen = sorted((key for key in held if fnmatchcase(key, wanted)), key=_natural_key)
        if chosen:
            return chosen
    allowed = (3, 4, 5) if num_axes is None else (num_axes,)
    held = {key: held[key] for key in sorted(held, key=_natural_key)}
    frames = {key: found for key, found in held.items() if len(found[0]) in allowed}
    if name is None and len(frames) == 1:
        return list(frames)
    shown = _shown(frames)
    if not frames:
        axes = " or ".join(map(str, allowed))
        shown = f"none of {axes} axes, but {_shown(held) or 'no array at all'}"
    if name is not None:
        raise StoreError(f"{path} holds no array {name!r}; there are {shown}")
    several = f"; a pattern such as '{_pattern(list(frames))}' takes each as a clip"
    encoded = "; frames that are encoded must be decoded first"
    raise StoreError(
        f"{path}: name the array with the frames; there are {shown}"
        f"{several * (len(frames) > 1)}{encoded * (not frames)}"
    )


def values_in_words(dtype: np.dtype[Any]) -> str:
    """What the values of an array are.

    >>> values_in_words(np.dtype([("r", "u1"), ("g", "u1")])), values_in_words(np.dtype("S3"))
    ('records of r, g', 'strings of bytes')
    """
    if dtype.names:
        return f"records of {', '.join(dtype.names)}"
    if dtype.kind == "O":
        metadata: Mapping[str, Any] = dtype.metadata or {}
        base = metadata.get("vlen")
        if base == np.uint8:
            return f"encoded bytes ({base} of any length)"
        return "Python object" if base is None else "strings or lists"
    words = {"S": "strings of bytes", "U": "text", "V": "opaque bytes"}
    return words.get(dtype.kind) or dtype.name


def _shown(held: Held) -> str:
    """Some arrays with shape and, where it is none that frames may have, kind of values."""
    shown = []
    for key, (shape, dtype) in held.items():
        known = np.dtype(dtype).name in FRAME_DTYPES
        shown.append(f"{key} {shape}" + ("" if known else f" of {values_in_words(dtype)}"))
    return listed(shown)


def _pattern(names: list[str]) -> str:
    """A glob of names that differ in one part of their paths, else of everything.

    >>> _pattern(["data/demo_0/image", "data/demo_1/image"]), _pattern(["a", "b/c"])
    ('data/*/image', '*')
    """
    parts = [name.split("/") for name in names]
    if len({len(path) for path in parts}) > 1:
        return "*"
    return "/".join(place[0] if len(set(place)) == 1 else "*" for place in zip(*parts, strict=True))


def _natural_key(name: str) -> list[Any]:
    """Sort key by which demo_10 follows demo_2."""
    return [int(part) if place % 2 else part for place, part in enumerate(re.split(r"(\d+)", name))]
