"""What framewin asks of an array that others wrote, whatever library reads it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from framewin.errors import FramewinError, StoreError, one_line

MAX_DEPTH = 64
"""Groups inside each other in which arrays are looked for."""
OWN_ATTRIBUTE = "framewin"
"""Attribute of the root of a store that framewin wrote."""
Values = tuple[np.ndarray, Mapping[str, Any]]
"""All values of an array, and its attributes."""
Held = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
"""Name of each array of a container -> its shape and dtype."""


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """What is known of an array before its values are read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    """Of its values as they are meant: `_Unsigned` tells that integers lie in another type."""
    chunks: tuple[int, ...] | None = None
    """Shape of what its library reads at once."""
    dimensions: tuple[str, ...] | None = None
    """Names of its axes, where the file has them."""
    missing: tuple[float, ...] = ()
    """The values that its attributes call no data."""
    place: tuple[Path, int] | None = None
    """File and byte offset of its values in C order, where they lie in one piece."""
    packing: Mapping[str, Any] = field(default_factory=dict)
    """Its attributes that say what numbers mean, as JSON values; they are never applied."""
    notes: tuple[str, ...] = ()
    """Which of its attributes are not applied."""
    is_own: bool = False
    """Whether it says that it is the frames of a store that framewin wrote."""


class ForeignArray:
    """One array of a container; a subclass for each kind of container."""

    path: Path
    """Of the container."""
    name: str
    """In the container."""
    is_archived = False
    """Whether it is decoded from its beginning, so that only reading it in order is quick."""
    info: ArrayInfo

    @property
    def label(self) -> str:
        """What errors call the array."""
        return f"{self.path}: {self.name!r}"

    def read(self, where: tuple[slice, ...]) -> np.ndarray:
        """A part of the array."""
        raise NotImplementedError

    def missing_chunk(self) -> str | None:
        """Name of a chunk that was never written or is lost."""
        return None

    def files(self) -> Iterator[Path]:
        """Every file that the array's values come from."""
        yield self.path

    def close(self) -> None:
        """Release what reading holds open."""

    def other(self, name: str, fits: Callable[[tuple[int, ...]], bool]) -> Values | None:
        """Another array of the container, by its path from the root; None where there is none.

        Its shape must fit before its values are read: a file may claim to hold any number of them.
        """
        return None

    def column(self, name: str, most: int) -> np.ndarray:
        """All values of another array of the container, which may not have more than `most`."""

        def check(shape: tuple[int, ...]) -> bool:
            if math.prod(shape) > most:
                raise StoreError(f"{self.path}: {name!r} has shape {shape}, expected ({most},)")
            return True

        found = self.other(name, check)
        if found is None:
            raise StoreError(f"{self.path} holds no array {name!r}")
        return found[0]

    def coordinate(self, name: str, size: int) -> Values | None:
        """The array of a dimension, of this size, in the same group or else in the root."""
        group = self.name.rpartition("/")[0]
        for key in dict.fromkeys((f"{group}/{name}" if group else name, name)):
            found = self.other(key, lambda shape: shape == (size,))
            if found is not None:
                return found
        return None


@contextmanager
def refusing_damage(path: Path) -> Iterator[None]:
    """Make StoreError of what the libraries raise on damaged files, which is nearly anything."""
    try:
        yield
    except FramewinError:
        raise
    except Exception as exc:
        raise StoreError(f"{path} cannot be read ({one_line(exc, kind=True)})") from exc
