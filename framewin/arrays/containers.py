"""Arrays in files that others wrote: Zarr 2 and 3, HDF5, netCDF4 and .npy, in any axis order.

Each is read through its own library, which is imported on use; nothing is unpickled, and no link
is followed out of a file.
"""

from __future__ import annotations

import base64
import bisect
import itertools
import json
import math
import re
import struct
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from framewin.arrays.axes import LEFT_OUT, checked_axes
from framewin.arrays.times import Times, UnknownTimesError, read_times
from framewin.errors import FramewinError, MissingDependencyError, StoreError
from framewin.optional import require
from framewin.schema import (
    FRAME_DTYPES,
    PACKING,
    ClipTable,
    FrameFormat,
    fits,
    listed,
)

MAX_DEPTH = 64
"""Groups inside each other in which arrays are looked for."""
MAX_COORDINATES = 2**14
"""Rows or columns up to which their coordinates are kept: they lie in the store's attributes."""
KEPT_ATTRIBUTES = (
    *PACKING,
    "standard_name",
    "long_name",
    "axis",
    "valid_range",
    "valid_min",
    "valid_max",
)
STORE_ATTRIBUTE = "framewin"
"""Attribute of the root of a store that framewin wrote."""
ZARR_FILES = ("zarr.json", ".zgroup", ".zarray")
"""Files of which one makes a folder a Zarr group or array."""

_NPY_MAGIC = b"\x93NUMPY"
_HEADER_BYTES = 32
_NOT_READ = {
    b"CDF\1": "is a netCDF file of the classic format; rewrite it as netCDF4: nccopy -k nc4",
    b"CDF\2": "is a netCDF file of the classic format; rewrite it as netCDF4: nccopy -k nc4",
    b"CDF\5": "is a netCDF file of the classic format; rewrite it as netCDF4: nccopy -k nc4",
    b"\x0e\x03\x13\x01": "is an HDF4 file; rewrite it as HDF5: h4toh5convert",
    b"\xcd\xf3\x00\x01": "is a CDF file of NASA; rewrite it as netCDF4, as by cdf-to-netCDF",
    b"version https://git-lfs": (
        "is a pointer of Git LFS, in the place of a file that was not fetched; run git lfs pull"
    ),
}
"""How files begin that are known and not read -> what to do about them."""
# What the netCDF library calls a dimension that has no values of its own.
_DIMENSION_ONLY = "This is a netCDF dimension but not a netCDF variable."
ZARR_CODECS = frozenset(
    {
        "adler32",
        "astype",
        "bitround",
        "blosc",
        "bytes",
        "bz2",
        "crc32",
        "crc32c",
        "delta",
        "endian",
        "fixedscaleoffset",
        "fletcher32",
        "gzip",
        "jenkins_lookup3",
        "lz4",
        "lzma",
        "packbits",
        "pcodec",
        "quantize",
        "sharding_indexed",
        "shuffle",
        "transpose",
        "vlen-bytes",
        "vlen-utf8",
        "zfpy",
        "zlib",
        "zstd",
    }
)
"""Codecs of Zarr arrays that are read; others may do anything, as `pickle` does."""

Column = str | Sequence[Any] | npt.NDArray[Any]
"""One value per frame or clip, or the name of an array beside the frames that holds them."""


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
    """Its attributes `KEPT_ATTRIBUTES` as JSON values; they are never applied."""
    notes: tuple[str, ...] = ()
    """Which of its attributes are not applied."""


class ForeignArray(Protocol):
    """One array in a container of its own kind."""

    info: ArrayInfo

    def read(self, where: tuple[slice, ...]) -> np.ndarray:
        """A part of the array."""

    def missing_chunk(self) -> str | None:
        """Name of a chunk that was never written or is lost."""

    def sibling(self, name: str, most: int) -> np.ndarray:
        """All values of another array of the same container, which may not have more."""

    def coordinate(self, name: str, size: int) -> tuple[np.ndarray, Mapping[str, Any]] | None:
        """Values and attributes of the array of a dimension, beside this one or above; None
        where it has another size."""

    def files(self) -> Iterator[Path]:
        """Every file that the array's values come from."""

    def store_settings(self) -> dict[str, Any] | None:
        """What framewin recorded, where it wrote the container and this is its array of frames."""


class FrameArray:
    """An array seen as frames."""

    def __init__(
        self, path: Path, found: ForeignArray, name: str, *, axes: str | None = None
    ) -> None:
        """Take an array for frames; see `open_frames`."""
        self.path = path
        self.found, self.name = found, name
        self.info = self.found.info
        self.axes = checked_axes(path, name, self.info.shape, self.info.dimensions, axes)
        self.frame_format = _frame_format(path, self.name, self.info, self.axes)
        sizes = dict(zip(self.axes, self.info.shape, strict=True))
        self.clip_frames = sizes.get("t", 1)
        """Frames along its axis of time."""
        self.num_clips = sizes.get("n", 1)
        self.several = "n" in self.axes
        """Whether it has an axis of clips, even of one."""
        self.num_frames = self.num_clips * self.clip_frames
        self._ends = list(range(self.clip_frames, self.num_frames + 1, self.clip_frames))
        chunks = dict(zip(self.axes, self.info.chunks or (), strict=False))
        self.chunk_frames: int | None = None if "n" in self.axes else chunks.get("t")
        """Frames that the library reads at once."""
        self.notes: list[str] = []
        """What there is but not applied of the frames' times, once `clip_table` has asked."""
        self.nodata: float | None = next(iter(self.info.missing), None)
        self.merged = self.info.missing[1:]
        """More values of no data, in whose place frames have `nodata`."""

    @property
    def lies_in_order(self) -> bool:
        """Whether the values in C order are frames as framewin has them."""
        in_order = self.axes.removeprefix("n") in ("tyx", "tyxc")
        return in_order and self.info.dtype.isnative and not self.merged

    def end_of_clip(self, row: int) -> int:
        """Row behind the clip of a row, as far as axes and arrays tell clips apart."""
        return self._ends[bisect.bisect_right(self._ends, row)]

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
            place = self.axes.index(letter)
            name = self.info.dimensions[place] if self.info.dimensions else ""
            size = self.info.shape[place]
            found = self._coordinate(name, size) if name and size <= MAX_COORDINATES else None
            if found is not None and found[0].dtype.kind in "iuf" and np.isfinite(found[0]).all():
                values, attributes = found
                kept[letter] = {
                    "values": values.tolist(),
                    "dtype": values.dtype.name,
                    "attributes": _kept_attributes(attributes),
                }
        return kept

    def times(self, name: str | None = None) -> Times | None:
        """A number for each frame, from its time.

        What is left of an array that seems to tell the frames' times is said in `notes`.

        Args:
            name: Of an array with a time for each frame; by default that of the time dimension.

        Returns:
            None where there is no such array, or none that orders the frames.
        """
        given = name is not None
        if name is None and self.info.dimensions and "t" in self.axes:
            name = self.info.dimensions[self.axes.index("t")]
        found = self._coordinate(name, self.clip_frames) if name else None
        if found is None:
            return None
        try:
            times = read_times(*found)
        except UnknownTimesError as exc:
            self.notes.append(f"times in {name!r}, which are not understood: {exc}")
            return None
        if times is None and not given:
            times, reason = _plain_numbers(found[0])
            self.notes += [f"the values of {name!r}, which {reason}"] * bool(reason)
        if times is not None and times.note is not None:
            self.notes.append(times.note)
        return times

    def column(self, name: str, most: int) -> np.ndarray:
        """All values of another array of the same container, which may not have more.

        Raises:
            StoreError: There is none, or it cannot be read.
        """
        with refusing_damage(self.path):
            return self.found.sibling(name, most)

    def _coordinate(self, name: str, size: int) -> tuple[np.ndarray, Mapping[str, Any]] | None:
        with refusing_damage(self.path):
            return self.found.coordinate(name, size)

    def check_chunks(self) -> None:
        """Refuse an array of which a chunk is missing: it would read as the fill value."""
        with refusing_damage(self.path):
            missing = self.found.missing_chunk()
        if missing:
            raise StoreError(
                f"{self.path}: chunk {missing} of {self.name!r} is missing, and would read as the "
                "fill value; copy the data again, or give allow_missing_chunks=True "
                "where those of nothing but the fill value were left out on purpose"
            )

    def read(self, begin: int, end: int) -> np.ndarray:
        """Frames [begin, end): (n, H, W, C), in the machine's byte order.

        Raises:
            StoreError: They cannot be read.
        """
        pieces = [
            self._read_clip(number, first, last)
            for number, first, last in _by_clip(begin, end, self._ends)
        ]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _read_clip(self, number: int, begin: int, end: int) -> np.ndarray:
        """Frames [begin, end) of a clip."""
        where = [slice(None)] * len(self.axes)
        for letter, part in (("t", slice(begin, end)), ("n", slice(number, number + 1))):
            if letter in self.axes:
                where[self.axes.index(letter)] = part
        try:
            values = self.found.read(tuple(where))
        except FramewinError:
            raise
        # What a damaged chunk raises depends on its codec.
        except Exception as exc:
            reason = f"{type(exc).__name__}: {exc}".splitlines()[0]
            raise StoreError(
                f"{self.path}: frames {begin} to {end - 1} of {self.name!r} cannot be read "
                f"({reason})"
            ) from exc
        if values.dtype.kind != self.info.dtype.kind:
            values = values.view(_other_sign(values.dtype))
        if self.merged:
            lost = np.isin(values, np.array(self.merged, values.dtype), kind=None)
            if any(map(math.isnan, self.merged)):
                lost |= np.isnan(values)
            values = np.where(lost, values.dtype.type(self.nodata), values)
        rank = {letter: place for place, letter in enumerate("ntyxc" + LEFT_OUT)}
        order = sorted(range(len(self.axes)), key=lambda place: rank[self.axes[place]])
        frames = np.transpose(values, order).reshape(end - begin, *self.frame_format.shape)
        return np.ascontiguousarray(frames, dtype=self.frame_format.dtype)


class JoinedArrays(FrameArray):
    """Several arrays of one container, each of which is a clip, one behind the other."""

    def __init__(self, members: list[FrameArray], pattern: str) -> None:
        """Join arrays of one kind of frames."""
        first = members[0]
        super().__init__(first.path, first.found, first.name, axes=first.axes)
        for member in members:
            for what in ("frame_format", "axes", "nodata", "merged"):
                one, other = getattr(first, what), getattr(member, what)
                if str(one) != str(other):
                    raise StoreError(
                        f"{self.path}: {member.name!r} has {what} {other}, {first.name!r} has "
                        f"{one}; choose arrays that are alike by another pattern than {pattern!r}"
                    )
            if packing_values(first.info.packing) != packing_values(member.info.packing):
                raise StoreError(
                    f"{self.path}: {member.name!r} and {first.name!r} have different "
                    f"{' or '.join(PACKING)}; choose arrays that are alike"
                )
        self.members = members
        self.name = pattern
        self.info = replace(self.info, place=None)
        self.chunk_frames = None
        self.num_clips = sum(member.num_clips for member in members)
        self._ends = list(itertools.accumulate(member.num_frames for member in members))
        self.num_frames = self._ends[-1]

    def check_chunks(self) -> None:
        """See `FrameArray`."""
        for member in self.members:
            member.check_chunks()

    def read(self, begin: int, end: int) -> np.ndarray:
        """See `FrameArray`."""
        pieces = [
            self.members[number].read(first, last)
            for number, first, last in _by_clip(begin, end, self._ends)
        ]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _by_clip(begin: int, end: int, ends: list[int]) -> Iterator[tuple[int, int, int]]:
    """Rows [begin, end) of clips that end at these rows: (clip, first frame in it, end frame)."""
    number = bisect.bisect_right(ends, begin)
    while begin < end:
        start = ends[number - 1] if number else 0
        last = min(end, ends[number])
        yield number, begin - start, last - start
        begin, number = last, number + 1


def packing_values(packing: Mapping[str, Any]) -> tuple[Any, ...]:
    """What must be alike for two arrays' numbers to mean the same."""
    return tuple(packing.get(name) for name in PACKING)


def open_frames(path: Path, *, array: str | None = None, axes: str | None = None) -> FrameArray:
    """Find the frames of a container; nothing of them is read.

    Args:
        path: A Zarr group or array, an HDF5 or netCDF4 file, or a .npy file.
        array: Name of the array, or a glob pattern of names of which each is a clip; by default
            the only one of three to five axes.
        axes: A letter of `AXES` for each axis; without t the array is a single frame. By
            default what the names of its dimensions or its shape say for certain.

    Raises:
        StoreError: No such file or array, axes that do not fit it, values that are not numbers
            of a known kind, or a file that its library cannot read.
    """
    with refusing_damage(path):
        found = _find(path, array, None if axes is None else len(axes))
        members = [FrameArray(path, each, name, axes=axes) for each, name in found]
        return members[0] if len(members) == 1 else JoinedArrays(members, str(array))


@contextmanager
def refusing_damage(path: Path) -> Iterator[None]:
    """Make StoreError of what the libraries raise on damaged files, which is nearly anything."""
    try:
        yield
    except FramewinError:
        raise
    except Exception as exc:
        reason = f"{type(exc).__name__}: {exc}".splitlines()[0]
        raise StoreError(f"{path} cannot be read ({reason})") from exc


def clip_table(
    source: FrameArray,
    *,
    clip_ids: Column | None = None,
    clip_starts: Column | None = None,
    frame_numbers: Column | None = None,
) -> ClipTable:
    """The clips of an array.

    Args:
        source: The frames.
        clip_ids: Clip of each frame, equal for the frames of a clip.
        clip_starts: Instead of ids, the row of each clip's first frame.
        frame_numbers: Number of each frame; 0, 1, 2, ... by default.

    Raises:
        StoreError: Columns that do not fit the frames or each other.
        ValueError: Both ids and starts.
    """
    if clip_ids is not None and clip_starts is not None:
        raise ValueError("clips are told by clip_ids or by clip_starts, not by both")
    joined = isinstance(source, JoinedArrays)
    if joined and any(column is not None for column in (clip_ids, clip_starts, frame_numbers)):
        raise ValueError(
            f"{source.name!r} names several arrays, each a clip; clip_ids, clip_starts and "
            "frame_numbers are of one array"
        )
    if source.num_clips > 1 and (clip_ids is not None or clip_starts is not None):
        raise ValueError("an axis n tells the clips, so clip_ids and clip_starts cannot")
    with refusing_damage(source.path):
        if isinstance(source, JoinedArrays):
            return _joined_clips(source)
        return _clips(source, clip_ids, clip_starts, frame_numbers)


def _clips(
    source: FrameArray,
    clip_ids: Column | None,
    clip_starts: Column | None,
    frame_numbers: Column | None,
) -> ClipTable:
    """The clips of an array; see `clip_table`."""
    path, num_frames = source.path, source.num_frames
    names, starts = [source.name], np.array([0])
    if source.several:
        starts = np.arange(source.num_clips) * source.clip_frames
        names = [f"clip{number}" for number in range(len(starts))]
    if clip_ids is not None:
        ids = _values(source, clip_ids)
        _check_length(path, "clip_ids", ids, num_frames)
        starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
        names = [_text(clip) for clip in ids[starts]]
        if len(set(names)) != len(names):
            twice = next(clip for clip in names if names.count(clip) > 1)
            raise StoreError(f"{path}: the frames of clip {twice} do not follow one another")
    elif clip_starts is not None:
        starts = _values(source, clip_starts).astype(np.int64)
        names = [f"clip{number}" for number in range(len(starts))]
        if len(starts) == 0 or starts[0] != 0 or (np.diff(starts, append=num_frames) < 1).any():
            raise StoreError(
                f"{path}: clip_starts must increase from 0 to below {num_frames}, "
                f"got {listed(starts.tolist())}"
            )
    starts = starts.astype(np.int64)
    times, what = _numbers(source, frame_numbers)
    if times is not None and len(times.numbers) < num_frames:
        times = replace(times, numbers=np.tile(times.numbers, source.num_clips))
    if times is None:
        # Counted through, so that opening does not grow with the frames.
        return ClipTable(tuple(names), starts, starts, starts, num_frames, step=1)
    clips = np.split(times.numbers, starts[1:])
    if any((np.diff(clip) < 1).any() for clip in clips):
        raise StoreError(f"{path}: {what} must increase within each clip")
    return ClipTable.from_frame_numbers(
        names, clips, time_unit=times.unit, tolerance=times.tolerance
    )


def _joined_clips(source: JoinedArrays) -> ClipTable:
    """The clips of several arrays, each with its own times."""
    names: list[str] = []
    numbers: list[np.ndarray] = []
    found = [_numbers(member, None)[0] for member in source.members]
    if len({None if times is None else times.unit for times in found}) > 1:
        raise StoreError(
            f"{source.path}: the arrays of {source.name!r} are not all numbered by times of one "
            "unit; choose arrays that are alike"
        )
    for member, times in zip(source.members, found, strict=True):
        one = np.arange(member.clip_frames) if times is None else times.numbers
        if (np.diff(one) < 1).any():
            raise StoreError(f"{source.path}: the times of {member.name!r} must increase")
        clips = [f"/clip{number}" for number in range(member.num_clips)] if member.several else [""]
        names += [f"{member.name}{clip}" for clip in clips]
        numbers += [one] * member.num_clips
    source.notes += dict.fromkeys(note for member in source.members for note in member.notes)
    unit = None if found[0] is None else found[0].unit
    tolerance = max((times.tolerance for times in found if times is not None), default=0)
    return ClipTable.from_frame_numbers(names, numbers, time_unit=unit, tolerance=tolerance)


def _numbers(source: FrameArray, given: Column | None) -> tuple[Times | None, str]:
    """A number for each frame, if any, and what to call them."""
    times = source.times(given) if given is None or isinstance(given, str) else None
    if given is None or times is not None:
        what = "the times of its time dimension" if given is None else "frame_numbers"
        return times, what
    values = _values(source, given)
    _check_length(source.path, "frame_numbers", values, source.num_frames)
    try:
        times = read_times(values, {})
    except UnknownTimesError as exc:
        raise StoreError(f"{source.path}: frame_numbers: {exc}") from None
    if times is not None:
        return times, "frame_numbers"
    if values.dtype.kind not in "iuf" or (values != np.rint(values)).any():
        raise StoreError(f"{source.path}: frame_numbers must be whole numbers, or datetime64")
    return Times(values.astype(np.int64), None), "frame_numbers"


@contextmanager
def reading_hdf5(path: Path) -> Iterator[Any]:
    """An HDF5 file, opened for reading."""
    import h5py

    # Without a lock: file systems of clusters often have none, and stores are never changed.
    try:
        file = h5py.File(path, "r", locking=False)
    except OSError as exc:
        # HDF5 wants all handles of a process alike, and the user may hold one.
        if "locking flag" not in str(exc):
            raise
        file = h5py.File(path, "r")
    with file:
        yield file


def is_hdf5(path: Path) -> bool:
    """Whether a file is of HDF5, perhaps behind a block of a user's."""
    import h5py

    return bool(h5py.is_hdf5(path))


def not_read(start: bytes) -> str | None:
    """What to do about a file that begins so, where it is of a known kind that is not read."""
    return next((what for magic, what in _NOT_READ.items() if start.startswith(magic)), None)


def is_zarr(path: Path) -> bool:
    """Whether a folder is a Zarr group or array."""
    return any((path / name).is_file() for name in ZARR_FILES)


class _NpyArray:
    """The array of a .npy file."""

    def __init__(self, path: Path) -> None:
        # Never unpickled: an array of objects is an error here.
        self._values = np.load(path, mmap_mode="r", allow_pickle=False)
        self._path = path
        place = (path, self._values.offset) if self._values.flags.c_contiguous else None
        self.info = ArrayInfo(self._values.shape, self._values.dtype, place=place)

    def read(self, where: tuple[slice, ...]) -> np.ndarray:
        values: np.ndarray = self._values[where]
        return values

    def missing_chunk(self) -> str | None:
        return None

    def sibling(self, name: str, most: int) -> np.ndarray:
        raise StoreError(f"{self._path} holds one array only; there is no {name!r} in it")

    def coordinate(self, name: str, size: int) -> tuple[np.ndarray, Mapping[str, Any]] | None:
        return None

    def files(self) -> Iterator[Path]:
        yield self._path

    def store_settings(self) -> dict[str, Any] | None:
        return None


class _Hdf5Array:
    """A dataset of an HDF5 or netCDF4 file, which is only open while it is read."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = name
        with reading_hdf5(path) as file:
            dataset = file[name]
            if dataset.is_virtual or dataset.external is not None:
                raise StoreError(f"{path}: {name!r} keeps its values in other files")
            offset = dataset.id.get_offset() if dataset.chunks is None else None
            self.info = ArrayInfo(
                dataset.shape,
                chunks=dataset.chunks,
                dimensions=tuple(
                    scales[0].name.rpartition("/")[2] if len(scales) else scales.label
                    for scales in dataset.dims
                ),
                place=None if offset is None else (path, offset),
                **_meaning(dataset.attrs, dataset.dtype),
            )
            text = file.attrs.get(STORE_ATTRIBUTE) if name == "frames" else None
            self._settings = None if text is None else json.loads(text)

    def read(self, where: tuple[slice, ...]) -> np.ndarray:
        with reading_hdf5(self._path) as file:
            dataset = file[self._name]
            _require_filters(dataset)
            values: np.ndarray = dataset[where]
        return values

    def missing_chunk(self) -> str | None:
        with reading_hdf5(self._path) as file:
            return self._missing_of(file[self._name])

    def sibling(self, name: str, most: int) -> np.ndarray:
        with reading_hdf5(self._path) as file:
            if not _holds_array(file, name):
                raise StoreError(f"{self._path} holds no array {name!r}")
            _check_size(self._path, name, file[name].shape, most)
            return _column(file[name])

    def coordinate(self, name: str, size: int) -> tuple[np.ndarray, Mapping[str, Any]] | None:
        with reading_hdf5(self._path) as file:
            for key in (_beside(self._name, name), name):
                if _holds_array(file, key) and file[key].shape == (size,):
                    scale = file[key].attrs.get("NAME", b"")
                    if not _text(scale).startswith(_DIMENSION_ONLY):
                        return _column(file[key]), dict(file[key].attrs)
        return None

    def files(self) -> Iterator[Path]:
        yield self._path

    def store_settings(self) -> dict[str, Any] | None:
        return self._settings

    def _missing_of(self, dataset: Any) -> str | None:
        if dataset.chunks is None:
            return "0" if dataset.id.get_offset() is None else None
        steps = zip(dataset.shape, dataset.chunks, strict=True)
        starts = [range(0, size, step) for size, step in steps]
        expected = math.prod(map(len, starts))
        # Before anything is counted: a file of a kilobyte can claim any number of chunks.
        if expected > self._path.stat().st_size:
            return f"{expected} (a file of {self._path.stat().st_size} bytes cannot hold as many)"
        if dataset.id.get_num_chunks() >= expected:
            return None
        present: set[tuple[int, ...]] = set()
        dataset.id.chunk_iter(lambda chunk: present.add(tuple(chunk.chunk_offset)))
        lost = (chunk for chunk in itertools.product(*starts) if chunk not in present)
        return str(next(lost))


class _ZarrArray:
    """An array of a Zarr group, of format 2 or 3."""

    def __init__(self, path: Path, name: str, array: Any, group: Mapping[str, Any]) -> None:
        from framewin.arrays.zarr_guard import bound_chunks

        self._path = path
        self._name = name
        self._array = array
        self._settings = group.get(STORE_ATTRIBUTE) if name == "frames" else None
        _check_codecs(path, name, array)
        bound_chunks(array, f"{path}: {name or path.stem!r}")
        names = getattr(array.metadata, "dimension_names", None)
        names = names or array.attrs.get("_ARRAY_DIMENSIONS") or _ome_axes(name, group)
        attributes = dict(array.attrs)
        fill = array.metadata.fill_value
        if (
            array.metadata.zarr_format == 2
            and "_ARRAY_DIMENSIONS" in attributes
            and fill is not None
        ):
            # There xarray keeps the attribute _FillValue.
            attributes.setdefault("_FillValue", fill)
        self.info = ArrayInfo(
            array.shape,
            chunks=array.chunks,
            dimensions=tuple("" if name is None else str(name) for name in names or ()) or None,
            **_meaning(attributes, np.dtype(array.dtype)),
        )

    def read(self, where: tuple[slice, ...]) -> np.ndarray:
        return np.asarray(self._array[where])

    def missing_chunk(self) -> str | None:
        shape = self._array.shards or self._array.chunks
        counts = (-(-size // step) for size, step in zip(self._array.shape, shape, strict=True))
        for chunk in itertools.product(*(range(count) for count in counts)):
            key = self._array.metadata.encode_chunk_key(chunk)
            if not (self._folder / key).is_file():
                return str(key)
        return None

    def sibling(self, name: str, most: int) -> np.ndarray:
        import zarr

        from framewin.arrays.zarr_guard import bound_chunks, open_node

        found = open_node(self._path, name) if is_zarr(self._path / name) else None
        if not isinstance(found, zarr.Array):
            raise StoreError(f"{self._path} holds no array {name!r}")
        _check_size(self._path, name, found.shape, most)
        _check_codecs(self._path, name, found)
        bound_chunks(found, f"{self._path}: {name!r}")
        return np.asarray(found[:])

    def coordinate(self, name: str, size: int) -> tuple[np.ndarray, Mapping[str, Any]] | None:
        import zarr

        from framewin.arrays.zarr_guard import bound_chunks, open_node

        for key in (_beside(self._name, name), name):
            if is_zarr(self._path / key):
                found = open_node(self._path, key)
                if isinstance(found, zarr.Array) and found.shape == (size,):
                    _check_codecs(self._path, key, found)
                    bound_chunks(found, f"{self._path}: {key!r}")
                    return np.asarray(found[:]), dict(found.attrs)
        return None

    def files(self) -> Iterator[Path]:
        return (path for path in self._folder.rglob("*") if path.is_file())

    def store_settings(self) -> dict[str, Any] | None:
        return self._settings

    @property
    def _folder(self) -> Path:
        return self._path / self._name if self._name else self._path


def _find(path: Path, name: str | None, num_axes: int | None) -> list[tuple[ForeignArray, str]]:
    """The arrays of a container that are meant, with their names."""
    if path.is_dir():
        return _find_zarr(path, name, num_axes)
    if not path.is_file():
        raise StoreError(f"{path} does not exist; expected a Zarr, HDF5, netCDF4 or .npy array")
    with path.open("rb") as file:
        start = file.read(_HEADER_BYTES)
    if start.startswith(_NPY_MAGIC):
        return [(_NpyArray(path), name or path.stem)]
    reason = not_read(start)
    if reason is not None:
        raise StoreError(f"{path} {reason}")
    return _find_hdf5(path, name, num_axes)


def _find_zarr(
    path: Path, name: str | None, num_axes: int | None
) -> list[tuple[ForeignArray, str]]:
    import zarr

    from framewin.arrays.zarr_guard import open_node

    try:
        node = open_node(path)
    except FileNotFoundError:
        raise StoreError(f"{path} is a folder but no Zarr group or array") from None
    if not isinstance(node, zarr.Group):
        group = path.parent
        if not is_zarr(group):
            return [(_ZarrArray(path, "", node, {}), name or path.stem)]
        # Its dimensions may be described in the group that holds it.
        attributes = dict(open_node(group).attrs)
        attributes.pop(STORE_ATTRIBUTE, None)
        return [(_ZarrArray(group, path.name, node, attributes), path.name)]
    arrays = _zarr_arrays(path, node)
    held = {key: (array.shape, array.dtype) for key, array in arrays.items()}
    return [
        (_ZarrArray(path, key, arrays[key], dict(node.attrs)), key)
        for key in _choose(path, name, held, num_axes)
    ]


def _zarr_arrays(path: Path, root: Any) -> dict[str, Any]:
    """All arrays below a group; what links lead to again is looked at once."""
    import zarr

    arrays: dict[str, Any] = {}
    waiting, seen = [("", root)], set()
    while waiting:
        above, group = waiting.pop()
        real = (path / above).resolve()
        if real in seen or above.count("/") > MAX_DEPTH:
            continue
        seen.add(real)
        with warnings.catch_warnings():
            # Of files that are no part of Zarr, such as the record of a store.
            warnings.simplefilter("ignore")
            members = list(group.members())
        for name, member in members:
            if isinstance(member, zarr.Array):
                arrays[f"{above}{name}"] = member
            else:
                waiting.append((f"{above}{name}/", member))
    return dict(sorted(arrays.items(), key=lambda item: _natural_key(item[0])))


def _find_hdf5(
    path: Path, name: str | None, num_axes: int | None
) -> list[tuple[ForeignArray, str]]:
    import h5py

    if not is_hdf5(path):
        raise StoreError(f"{path} is not a Zarr, HDF5, netCDF4 or .npy array")
    held: dict[str, tuple[tuple[int, ...], Any]] = {}
    with reading_hdf5(path) as file:
        waiting, seen = [("", file)], set()
        while waiting:
            above, group = waiting.pop()
            address = h5py.h5o.get_info(group.id).addr
            if address in seen:
                continue
            seen.add(address)
            if above.count("/") > MAX_DEPTH:
                raise StoreError(f"{path} nests groups more than {MAX_DEPTH} deep; flatten it")
            for name_below in group:
                # No soft or external links, so nothing outside the file is ever read.
                if isinstance(group.get(name_below, getlink=True), h5py.HardLink):
                    key, node = f"{above}{name_below}", group[name_below]
                    if isinstance(node, h5py.Dataset):
                        held[key] = (node.shape or (), node.dtype)
                    elif isinstance(node, h5py.Group):
                        waiting.append((f"{key}/", node))
    held = dict(sorted(held.items(), key=lambda item: _natural_key(item[0])))
    return [(_Hdf5Array(path, key), key) for key in _choose(path, name, held, num_axes)]


def _choose(
    path: Path,
    name: str | None,
    held: dict[str, tuple[tuple[int, ...], Any]],
    num_axes: int | None,
) -> list[str]:
    """The array of this name, those that a pattern names, or the only one that can hold frames."""
    wanted = None if name is None else name.strip("/")
    if wanted in held:
        return [wanted]
    if wanted is not None and any(sign in wanted for sign in "*?["):
        chosen = sorted((key for key in held if fnmatchcase(key, wanted)), key=_natural_key)
        if chosen:
            return chosen
    allowed = (3, 4, 5) if num_axes is None else (num_axes,)
    frames = [key for key, (shape, _) in held.items() if len(shape) in allowed]
    if name is None and len(frames) == 1:
        return frames
    shown = _shown_arrays({key: held[key] for key in frames})
    if not frames:
        axes = " or ".join(map(str, allowed))
        shown = f"none of {axes} axes, but {_shown_arrays(held) or 'no array at all'}"
    if name is not None:
        raise StoreError(f"{path} holds no array {name!r}; there are {shown}")
    several = f"; a pattern such as '{_pattern(frames)}' takes each as a clip" * (len(frames) > 1)
    encoded = "; frames that are encoded must be decoded first" * (not frames)
    raise StoreError(f"{path}: name the array with the frames; there are {shown}{several}{encoded}")


def _shown_arrays(held: Mapping[str, tuple[tuple[int, ...], Any]]) -> str:
    """Some arrays with shape and, where it is none that frames may have, kind of values."""
    shown = []
    for key, (shape, dtype) in held.items():
        kind = "" if np.dtype(dtype).name in FRAME_DTYPES else f" of {_held(dtype)}"
        shown.append(f"{key} {shape}{kind}")
    return listed(shown)


def _held(dtype: np.dtype[Any]) -> str:
    """What values are, in words.

    >>> _held(np.dtype([("r", "u1"), ("g", "u1")])), _held(np.dtype("S3")), _held(np.dtype("i8"))
    ('records of r, g', 'strings of bytes', 'int64')
    """
    if dtype.names:
        return f"records of {', '.join(dtype.names)}"
    if dtype.kind == "O":
        metadata: Mapping[str, Any] = dtype.metadata or {}
        base = metadata.get("vlen")
        return f"encoded bytes ({base} of any length)" if base == np.uint8 else "strings or lists"
    words = {"S": "strings of bytes", "U": "text", "V": "opaque bytes"}
    return words.get(dtype.kind) or dtype.name


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


def _ome_axes(name: str, group: Mapping[str, Any]) -> list[str]:
    """Names of the axes of an array by the group's metadata of OME-Zarr, where that has any."""
    found = group.get("ome", group).get("multiscales", ())
    for images in found if isinstance(found, list) else ():
        if name in [level.get("path") for level in images.get("datasets", ())]:
            return [
                axis["name"] if isinstance(axis, dict) else axis for axis in images.get("axes", ())
            ]
    return []


def _frame_format(path: Path, name: str, info: ArrayInfo, axes: str) -> FrameFormat:
    if info.dtype.name not in FRAME_DTYPES:
        advice = "decode them first" if info.dtype.kind in "OSUV" else "save it as one of them"
        raise StoreError(
            f"{path}: {name!r} holds {_held(info.dtype)} values; expected one of "
            f"{', '.join(FRAME_DTYPES)}; {advice}"
        )
    sizes = dict(zip(axes, info.shape, strict=True))
    return FrameFormat(sizes["y"], sizes["x"], sizes.get("c", 1), info.dtype.name)


def _meaning(attributes: Any, dtype: np.dtype[Any]) -> dict[str, Any]:
    """What attributes by the conventions of netCDF (CF) say of values: fields of `ArrayInfo`."""
    sign = {"true": "i", "false": "u"}.get(_text(attributes.get("_Unsigned", "")).lower())
    turned = sign == dtype.kind
    meant = _other_sign(dtype) if turned else dtype
    missing: list[float] = []
    notes: list[str] = []
    for name in ("_FillValue", "missing_value") if dtype.kind in "iuf" else ():
        for stated in np.ravel(attributes.get(name, [])).tolist():
            value = _stated_value(stated, dtype, meant)
            if value is None or not fits(value, meant.name):
                notes.append(f"{name} {_text(stated)}, no {meant.name} value")
            elif not any(
                value == known or (value != value and known != known) for known in missing
            ):
                missing.append(value)
    packing = _kept_attributes(attributes)
    for name in packing:
        if turned and name.startswith("valid_"):
            packing[name] = [
                _stated_value(v, dtype, meant) for v in np.ravel(packing[name]).tolist()
            ]
    notes += [
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in packing.items()
        if name in ("scale_factor", "add_offset") or name.startswith("valid_")
    ]
    return {"dtype": meant, "missing": tuple(missing), "packing": packing, "notes": tuple(notes)}


def _stated_value(stated: Any, dtype: np.dtype[Any], meant: np.dtype[Any]) -> float | None:
    """A value of no data as the values have it, however the attribute is written."""
    if isinstance(stated, str | bytes):
        text = _text(stated)
        try:
            return float(text)
        except ValueError:
            pass
        try:
            # So xarray writes floats for Zarr 3.
            [stated] = struct.unpack("<d", base64.b64decode(text, validate=True))
        except (ValueError, struct.error):
            return None
    if not isinstance(stated, int | float):
        return None
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return float(dtype.type(stated))
    if meant != dtype and fits(stated, dtype.name):
        return float(np.array(int(stated), dtype).view(meant))
    return float(stated)


def _other_sign(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Signed integers for unsigned ones, and the other way round."""
    other = {"i": "u", "u": "i"}[dtype.kind]
    return np.dtype(f"{dtype.str[0]}{other}{dtype.itemsize}")


def _kept_attributes(attributes: Any) -> dict[str, Any]:
    """Those that say what numbers mean, as JSON values."""
    kept: dict[str, Any] = {}
    for name in KEPT_ATTRIBUTES:
        value = attributes.get(name)
        if isinstance(value, str | bytes):
            kept[name] = _text(value)
        elif np.asarray(value).dtype.kind in "iuf" and np.isfinite(value).all():
            numbers = np.ravel(value).tolist()
            kept[name] = numbers[0] if len(numbers) == 1 else numbers
    for name in PACKING[:2]:
        if isinstance(kept.get(name), int):
            kept[name] = float(kept[name])
    return kept


def _text(value: Any) -> str:
    """A name or attribute as text, also where it is bytes."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return str(value)


def _check_codecs(path: Path, name: str, array: Any) -> None:
    """Refuse an array with a codec that might do more than decode."""
    for codec in _codec_names(array.metadata.to_dict()):
        if codec.removeprefix("numcodecs.") not in ZARR_CODECS:
            raise StoreError(
                f"{path}: {name!r} has the codec {codec!r}, which framewin does not read; it reads "
                f"{', '.join(sorted(ZARR_CODECS))}"
            )


def _codec_names(metadata: Any) -> Iterator[str]:
    """Names of the codecs of an array of format 2 or 3, those inside shards too."""
    if metadata.get("zarr_format") == 2:
        codecs = [metadata.get("compressor"), *(metadata.get("filters") or ())]
        yield from (str(codec["id"]) for codec in codecs if codec is not None)
        return
    for codec in metadata["codecs"]:
        yield str(codec["name"])
        inner = codec.get("configuration") or {}
        for key in ("codecs", "index_codecs"):
            yield from _codec_names({"codecs": inner.get(key, ())})


def _check_size(path: Path, name: str, shape: tuple[int, ...], most: int) -> None:
    """Before values are read, since a file may claim to hold any number of them."""
    if math.prod(shape) > most:
        raise StoreError(f"{path}: {name!r} has shape {shape}, expected ({most},)")


def _holds_array(file: Any, name: str) -> bool:
    """Whether an HDF5 file holds an array of this name itself, by no link and in no other file."""
    import h5py

    parts = [part for part in name.split("/") if part]
    for end in range(1, len(parts) + 1):
        key = "/".join(parts[:end])
        if not isinstance(file.get(key, getlink=True), h5py.HardLink):
            return False
    found = file[name] if parts else None
    if not isinstance(found, h5py.Dataset):
        return False
    return not found.is_virtual and found.external is None


def _beside(name: str, other: str) -> str:
    """Path of an array in the same group as another one."""
    group = name.rpartition("/")[0]
    return f"{group}/{other}" if group else other


def _plain_numbers(values: np.ndarray) -> tuple[Times | None, str]:
    """Values of a time dimension that do not say what they count, as numbers of frames.

    Returns:
        None where they are not whole and increasing, and what is lost by that, if anything.
    """
    if values.dtype.kind not in "iuf":
        return None, f"are {values.dtype.name}"
    differences = np.diff(values.astype(np.float64))
    # An array of a dimension that has no values is there, and zero.
    if not differences.any():
        return None, ""
    if values.dtype.kind != "f" and (differences > 0).all():
        return Times(values.astype(np.int64), None), ""
    if np.allclose(differences, differences[0], rtol=1e-3, atol=0):
        return None, ""
    return None, "are uneven and have no units such as 'seconds since 2000-01-01'"


def _require_filters(dataset: Any) -> None:
    """Load the filters that are neither in HDF5 nor in h5py, which would raise what damage does."""
    import h5py

    properties = dataset.id.get_create_plist()
    filters = [properties.get_filter(place) for place in range(properties.get_nfilters())]
    if all(h5py.h5z.filter_avail(number) for number, *_ in filters):
        return
    require("hdf5plugin", extra="hdf5plugin")
    for number, _, _, name in filters:
        if not h5py.h5z.filter_avail(number):
            raise MissingDependencyError(
                f"{dataset.file.filename}: {dataset.name!r} needs the HDF5 filter {number} "
                f"({name.decode(errors='replace')}), which neither h5py nor hdf5plugin has; "
                "install its plugin, or write the data without it"
            )


def _column(dataset: Any) -> np.ndarray:
    import h5py

    values: np.ndarray = (dataset.asstr() if h5py.check_string_dtype(dataset.dtype) else dataset)[:]
    return values


def _values(source: FrameArray, values: Column) -> np.ndarray:
    if isinstance(values, str):
        return source.column(values, source.num_frames)
    return np.asarray(values)


def _check_length(path: Path, what: str, values: np.ndarray, num_frames: int) -> None:
    if values.shape != (num_frames,):
        raise StoreError(f"{path}: {what} has shape {values.shape}, expected ({num_frames},)")
