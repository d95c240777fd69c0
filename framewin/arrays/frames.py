"""Arrays seen as frames: (n, H, W, C), whatever the order of their axes."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from framewin.arrays.attributes import kept_attributes, other_sign
from framewin.arrays.axes import LEFT_OUT, checked_axes
from framewin.arrays.choose import values_in_words
from framewin.arrays.foreign_array import ForeignArray, refusing_damage
from framewin.errors import FramewinError, StoreError, one_line
from framewin.schema import FRAME_DTYPES, PACKING, FrameFormat

MAX_COORDINATES = 2**14
"""Rows or columns up to which their coordinates are kept: they lie in the store's attributes."""

_READ_BYTES = 2**22


class FrameArray:
    """An array seen as frames, or several of one kind, one after the other."""

    def __init__(
        self, members: Sequence[ForeignArray], *, axes: str | None, pattern: str | None
    ) -> None:
        """Take arrays for frames; see `framewin.arrays.open_frames`."""
        first = members[0]
        self.path = first.path
        """Of the container."""
        self.members = members
        self.name = first.name if len(members) == 1 else str(pattern)
        """Of the array, or the pattern that names several."""
        self.info = first.info
        """Of the first array."""
        for member in members:
            _check_dtype(member)
        self.axes = checked_axes(first, axes)
        self.frame_format = _frame_format(first, self.axes)
        self.nodata: float | None = next(iter(self.info.missing), None)
        self.merged = self.info.missing[1:]
        """More values of no data, in whose place frames have `nodata`."""
        self.notes: list[str] = []
        """What there is but not applied of the frames' times, once `clip_table` has asked."""
        for member in members[1:]:
            self._check_alike(member, checked_axes(member, axes))
        sizes = [dict(zip(self.axes, member.info.shape, strict=True)) for member in members]
        self.clip_frames = [size.get("t", 1) for size in sizes]
        """Of each array: frames along its axis of time."""
        self.num_clips = [size.get("n", 1) for size in sizes]
        """Of each array: clips along its axis of clips."""
        lengths = [t * n for t, n in zip(self.clip_frames, self.num_clips, strict=True)]
        self._ends = list(itertools.accumulate(lengths))
        self.num_frames = self._ends[-1]
        """In all."""

    @property
    def frames_per_read(self) -> int:
        """Frames that are best read at once: a chunk of the array, else some megabytes."""
        chunks = dict(zip(self.axes, self.info.chunks or (), strict=False))
        of_chunk = None if len(self.members) > 1 or "n" in self.axes else chunks.get("t")
        return min(of_chunk or max(1, _READ_BYTES // self.frame_format.nbytes), self.num_frames)

    @property
    def place(self) -> tuple[Path, int] | None:
        """File and byte offset at which frames lie one after the other as they are read."""
        in_order = self.axes.removeprefix("n") in ("tyx", "tyxc")
        as_it_is = self.info.dtype.isnative and not self.merged and len(self.members) == 1
        return self.info.place if in_order and as_it_is else None

    @property
    def left_out(self) -> tuple[str, ...]:
        """A note on each axis of length 1 that is left out."""
        names = self.info.dimensions or ("",) * len(self.axes)
        places = zip(self.axes, names, strict=True)
        return tuple(f"dimension {name} of length 1" for x, name in places if x == LEFT_OUT)

    def coordinates(self) -> dict[str, Any]:
        """The coordinates of rows and columns where they have any, as `StoreMeta` keeps them."""
        kept = {}
        for letter in "yx":
            axis = self.axes.index(letter)
            name = self.info.dimensions[axis] if self.info.dimensions else ""
            size = self.info.shape[axis]
            if not name or size > MAX_COORDINATES:
                continue
            with refusing_damage(self.path):
                found = self.members[0].coordinate(name, size)
            if found is not None and found[0].dtype.kind in "iuf" and np.isfinite(found[0]).all():
                kept[letter] = {
                    "values": found[0].tolist(),
                    "dtype": found[0].dtype.name,
                    "attributes": kept_attributes(found[1]),
                }
        return kept

    def column(self, name: str, most: int) -> np.ndarray:
        """All values of another array of the same container, which may not have more.

        Raises:
            StoreError: There is none, or it cannot be read.
        """
        with refusing_damage(self.path):
            return self.members[0].column(name, most)

    def check_chunks(self) -> None:
        """Refuse an array of which a chunk is missing: it would read as the fill value."""
        for member in self.members:
            with refusing_damage(self.path):
                missing = member.missing_chunk()
            if missing:
                raise StoreError(
                    f"{self.path}: chunk {missing} of {member.name!r} is missing, and would read "
                    "as the fill value; copy the data again, or give allow_missing_chunks=True "
                    "where those of nothing but the fill value were left out on purpose"
                )

    def end_of_clip(self, row: int) -> int:
        """Row after the clip of a row, as far as axes and arrays tell clips apart."""
        member, clip, _ = self._position(row)
        return self._begin(member) + (clip + 1) * self.clip_frames[member]

    def read(self, begin: int, end: int) -> np.ndarray:
        """Frames [begin, end): (n, H, W, C), in the machine's byte order.

        Raises:
            StoreError: They cannot be read.
        """
        pieces = []
        while begin < end:
            member, clip, first = self._position(begin)
            last = min(first + end - begin, self.clip_frames[member])
            pieces.append(self._read_clip(self.members[member], clip, first, last))
            begin += last - first
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def close(self) -> None:
        """Release what reading holds open."""
        for member in self.members:
            member.close()

    def _begin(self, member: int) -> int:
        return self._ends[member - 1] if member else 0

    def _position(self, row: int) -> tuple[int, int, int]:
        """Array, clip in it and frame in that of a row."""
        member = bisect.bisect_right(self._ends, row)
        return (member, *divmod(row - self._begin(member), self.clip_frames[member]))

    def _read_clip(self, member: ForeignArray, clip: int, begin: int, end: int) -> np.ndarray:
        """Frames [begin, end) of a clip of an array."""
        part = {"t": slice(begin, end), "n": slice(clip, clip + 1)}
        try:
            values = member.read(tuple(part.get(letter, slice(None)) for letter in self.axes))
        except FramewinError:
            raise
        # What a damaged chunk raises depends on its codec.
        except Exception as exc:
            raise StoreError(
                f"{self.path}: frames {begin} to {end - 1} of {member.name!r} cannot be read "
                f"({one_line(exc, kind=True)})"
            ) from exc
        if values.dtype.kind != self.info.dtype.kind:
            values = values.view(other_sign(values.dtype))
        if self.merged:
            lost = np.isin(values, np.array(self.merged, values.dtype), kind=None)
            if any(map(math.isnan, self.merged)):
                lost |= np.isnan(values)
            values = np.where(lost, values.dtype.type(self.nodata), values)
        order = sorted(range(len(self.axes)), key=lambda axis: "ntyxc1".index(self.axes[axis]))
        frames = np.transpose(values, order).reshape(end - begin, *self.frame_format.shape)
        return np.ascontiguousarray(frames, dtype=self.frame_format.dtype)

    def _check_alike(self, member: ForeignArray, axes: str) -> None:
        """Refuse an array whose frames are of another kind than those of the first."""
        first = self.members[0]
        for what, one, other in (
            ("frame_format", self.frame_format, _frame_format(member, axes)),
            ("axes", self.axes, axes),
            ("no-data values", self.info.missing, member.info.missing),
        ):
            if str(one) != str(other):
                raise StoreError(
                    f"{self.path}: {member.name!r} has {what} {other}, {first.name!r} has {one}; "
                    f"choose arrays that are alike by another pattern than {self.name!r}"
                )
        if any(self.info.packing.get(n) != member.info.packing.get(n) for n in PACKING):
            raise StoreError(
                f"{self.path}: {member.name!r} and {first.name!r} have different "
                f"{' or '.join(PACKING)}; choose arrays that are alike"
            )


def _check_dtype(array: ForeignArray) -> None:
    dtype = array.info.dtype
    if dtype.name not in FRAME_DTYPES:
        advice = "decode them first" if dtype.kind in "OSUV" else "save it as one of them"
        raise StoreError(
            f"{array.label} holds {values_in_words(dtype)} values; expected one of "
            f"{', '.join(FRAME_DTYPES)}; {advice}"
        )


def _frame_format(array: ForeignArray, axes: str) -> FrameFormat:
    sizes = dict(zip(axes, array.info.shape, strict=True))
    return FrameFormat(sizes["y"], sizes["x"], sizes.get("c", 1), array.info.dtype.name)
