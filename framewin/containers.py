"""Arrays in files that others wrote: Zarr 2 and 3, HDF5, netCDF4 and .npy, in any axis order.

Each is read through its own library, which is imported on use; nothing is unpickled, and no link
is followed out of a file.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from framewin.errors import FramewinError, StoreError
from framewin.optional import require
from framewin.schema import (
    FRAME_DTYPES,
    ClipTable,
    FrameFormat,
    fits,
)
from framewin.times import Times, UnknownTimesError, read_times

AXES = {"t": "time", "y": "height", "x": "width", "c": "channel"}
"""Letter -> what that axis of an array is."""
USUAL_AXES = {2: "yx", 3: "tyx", 4: "tyxc"}
"""Number of axes -> their order where nothing says otherwise."""
DIMENSION_LETTERS = {
    "t": ("t", "time", "frame", "frames"),
    "y": ("y", "lat", "latitude", "height", "row", "rows"),
    "x": ("x", "lon", "longitude", "width", "column", "columns"),
    "c": ("c", "channel", "channels", "band", "variable"),
}
"""Letter -> names of dimensions that mean it."""
MAX_ARRAYS_NAMED = 5
MAX_VALUES_NAMED = 5
STORE_ATTRIBUTE = "framewin"
"""Attribute of the root of a store that framewin wrote."""
ZARR_FILES = ("zarr.json", ".zgroup", ".zarray")
"""Files of which one makes a folder a Zarr group or array."""

_NPY_MAGIC = b"\x93NUMPY"
_NETCDF_CLASSIC_MAGIC = b"CDF"
_FIRST_PLUGIN_FILTER = 32000
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
    chunks: tuple[int, ...] | None = None
    """Shape of what its library reads at once."""
    dimensions: tuple[str, ...] | None = None
    """Names of its axes, where the file has them."""
    nodata: float | None = None
    """Its fill value attribute."""
    place: tuple[Path, int] | None = None
    """File and byte offset of its values in C order, where they lie in one piece."""
    packing: Mapping[str, float] = field(default_factory=dict)
    """Its attributes `scale_factor` and `add_offset`, which are never applied."""


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

    def __init__(self, path: Path, *, array: str | None = None, axes: str | None = None) -> None:
        """Find the frames of a container; nothing of them is read.

        Args:
            path: A Zarr group or array, an HDF5 or netCDF4 file, or a .npy file.
            array: Name of the array; by default the only one of three or four axes.
            axes: A letter of `AXES` for each axis; without t the array is a single frame. By
                default what the names of its dimensions say, else `USUAL_AXES`.

        Raises:
            StoreError: No such file or array, axes that do not fit it, or values that are not
                numbers of a known kind. Libraries may raise more on damaged files.
        """
        self.path = path
        self.found, self.name = _find(path, array, None if axes is None else len(axes))
        self.info = self.found.info
        self.axes = _checked_axes(path, self.name, self.info, axes)
        self.frame_format = _frame_format(path, self.name, self.info, self.axes)
        sizes = dict(zip(self.axes, self.info.shape, strict=True))
        self.num_frames = sizes.get("t", 1)
        chunks = dict(zip(self.axes, self.info.chunks or (), strict=False))
        self.chunk_frames: int | None = chunks.get("t")
        """Frames that the library reads at once."""
        stated = self.info.nodata
        dtype = self.frame_format.dtype
        self.nodata = stated if stated is not None and fits(stated, dtype) else None
        self.notes: list[str] = []
        """What there is but not applied of the frames' times, once `clip_table` has asked."""

    @property
    def lies_in_order(self) -> bool:
        """Whether the values in C order are frames as framewin has them."""
        return self.axes in ("tyx", "tyxc") and self.info.dtype.isnative

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
        found = self.found.coordinate(name, self.num_frames) if name else None
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

    def check_chunks(self) -> None:
        """Refuse an array of which a chunk is missing: it would read as the fill value."""
        missing = self.found.missing_chunk()
        if missing:
            raise StoreError(
                f"{self.path}: chunk {missing} of {self.name!r} is missing, and would read as the "
                "fill value; copy the data again, or allow_missing_chunks (--allow-missing-chunks) "
                "where those of nothing but the fill value were left out on purpose"
            )

    def read(self, begin: int, end: int) -> np.ndarray:
        """Frames [begin, end): (n, H, W, C), in the machine's byte order.

        Raises:
            StoreError: They cannot be read.
        """
        where = [slice(None)] * len(self.axes)
        if "t" in self.axes:
            where[self.axes.index("t")] = slice(begin, end)
        try:
            values = self.found.read(tuple(where))
        except StoreError:
            raise
        # What a damaged chunk raises depends on its codec.
        except Exception as exc:
            reason = f"{type(exc).__name__}: {exc}".splitlines()[0]
            raise StoreError(
                f"{self.path}: frames {begin} to {end - 1} of {self.name!r} cannot be read "
                f"({reason})"
            ) from exc
        order = [self.axes.index(letter) for letter in "tyxc" if letter in self.axes]
        frames = np.transpose(values, order).reshape(end - begin, *self.frame_format.shape)
        return np.ascontiguousarray(frames, dtype=self.frame_format.dtype)


def open_frames(path: Path, *, array: str | None = None, axes: str | None = None) -> FrameArray:
    """See `FrameArray`.

    Raises:
        StoreError: As there, or a file that its library cannot read.
    """
    try:
        return FrameArray(path, array=array, axes=axes)
    except FramewinError:
        raise
    # Damaged files can make the libraries raise nearly anything.
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
    path, found, num_frames = source.path, source.found, source.num_frames
    names, starts = [source.name], np.array([0])
    if clip_ids is not None:
        ids = _values(found, clip_ids, num_frames)
        _check_length(path, "clip_ids", ids, num_frames)
        starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
        names = [str(clip) for clip in ids[starts]]
        if len(set(names)) != len(names):
            twice = next(clip for clip in names if names.count(clip) > 1)
            raise StoreError(f"{path}: the frames of clip {twice} do not follow one another")
    elif clip_starts is not None:
        starts = _values(found, clip_starts, num_frames).astype(np.int64)
        names = [f"clip{number}" for number in range(len(starts))]
        if len(starts) == 0 or starts[0] != 0 or (np.diff(starts, append=num_frames) < 1).any():
            raise StoreError(
                f"{path}: clip_starts must increase from 0 to below {num_frames}, "
                f"got {starts.tolist()[:MAX_VALUES_NAMED]}..."
            )
    starts = starts.astype(np.int64)
    times, what = _numbers(source, frame_numbers)
    if times is None:
        # Counted through, so that opening does not grow with the frames.
        return ClipTable(tuple(names), starts, starts, starts, num_frames, step=1)
    clips = np.split(times.numbers, starts[1:])
    if any((np.diff(clip) < 1).any() for clip in clips):
        raise StoreError(f"{path}: {what} must increase within each clip")
    return ClipTable.from_frame_numbers(
        names, clips, time_unit=times.unit, tolerance=times.tolerance
    )


def _numbers(source: FrameArray, given: Column | None) -> tuple[Times | None, str]:
    """A number for each frame, if any, and what to call them."""
    times = source.times(given) if given is None or isinstance(given, str) else None
    if given is None or times is not None:
        what = "the times of its time dimension" if given is None else "frame_numbers"
        return times, what
    values = _values(source.found, given, source.num_frames)
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
            offset = dataset.id.get_offset() if dataset.chunks is None else None
            self.info = ArrayInfo(
                dataset.shape,
                dataset.dtype,
                dataset.chunks,
                tuple(
                    scales[0].name.rpartition("/")[2] if len(scales) else ""
                    for scales in dataset.dims
                ),
                _nodata(dataset.attrs),
                None if offset is None else (path, offset),
                _packing(dataset.attrs),
            )
            self._missing = self._count_missing(dataset)
            text = file.attrs.get(STORE_ATTRIBUTE) if name == "frames" else None
            self._settings = None if text is None else json.loads(text)

    def read(self, where: tuple[slice, ...]) -> np.ndarray:
        with reading_hdf5(self._path) as file:
            dataset = file[self._name]
            if _needs_plugin(dataset):
                require("hdf5plugin", extra="hdf5plugin")
            values: np.ndarray = dataset[where]
        return values

    def missing_chunk(self) -> str | None:
        return self._missing

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
                    return _column(file[key]), dict(file[key].attrs)
        return None

    def files(self) -> Iterator[Path]:
        yield self._path

    def store_settings(self) -> dict[str, Any] | None:
        return self._settings

    def _count_missing(self, dataset: Any) -> str | None:
        if dataset.is_virtual or dataset.external is not None:
            raise StoreError(f"{self._path}: {self._name!r} keeps its values in other files")
        if dataset.chunks is None:
            return "0" if dataset.id.get_offset() is None else None
        present: set[tuple[int, ...]] = set()
        dataset.id.chunk_iter(lambda chunk: present.add(tuple(chunk.chunk_offset)))
        steps = zip(dataset.shape, dataset.chunks, strict=True)
        for chunk in itertools.product(*(range(0, size, step) for size, step in steps)):
            if chunk not in present:
                return str(chunk)
        return None


class _ZarrArray:
    """An array of a Zarr group, of format 2 or 3."""

    def __init__(self, path: Path, name: str, array: Any, settings: Any) -> None:
        self._path = path
        self._name = name
        self._array = array
        self._settings = settings if name == "frames" else None
        _check_codecs(path, name, array)
        names = getattr(array.metadata, "dimension_names", None)
        names = names or array.attrs.get("_ARRAY_DIMENSIONS")
        self.info = ArrayInfo(
            array.shape,
            np.dtype(array.dtype),
            array.chunks,
            tuple(str(name) for name in names) if names else None,
            _nodata(array.attrs),
            packing=_packing(array.attrs),
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

        try:
            found = zarr.open_array(self._path, path=name, mode="r")
        except (FileNotFoundError, KeyError, ValueError):
            raise StoreError(f"{self._path} holds no array {name!r}") from None
        _check_size(self._path, name, found.shape, most)
        _check_codecs(self._path, name, found)
        return np.asarray(found[:])

    def coordinate(self, name: str, size: int) -> tuple[np.ndarray, Mapping[str, Any]] | None:
        import zarr

        for key in (_beside(self._name, name), name):
            if is_zarr(self._path / key):
                found: Any = zarr.open(self._path, path=key, mode="r")
                if isinstance(found, zarr.Array) and found.shape == (size,):
                    _check_codecs(self._path, key, found)
                    return np.asarray(found[:]), dict(found.attrs)
        return None

    def files(self) -> Iterator[Path]:
        return (path for path in self._folder.rglob("*") if path.is_file())

    def store_settings(self) -> dict[str, Any] | None:
        return self._settings

    @property
    def _folder(self) -> Path:
        return self._path / self._name if self._name else self._path


def _find(path: Path, name: str | None, num_axes: int | None) -> tuple[ForeignArray, str]:
    """The array of a container, and its name."""
    if path.is_dir():
        return _find_zarr(path, name, num_axes)
    if not path.is_file():
        raise StoreError(f"{path} does not exist; expected a Zarr, HDF5, netCDF4 or .npy array")
    with path.open("rb") as file:
        magic = file.read(len(_NPY_MAGIC))
    if magic == _NPY_MAGIC:
        return _NpyArray(path), name or path.stem
    if magic.startswith(_NETCDF_CLASSIC_MAGIC):
        raise StoreError(
            f"{path} is a netCDF file of the classic format; rewrite it as netCDF4: nccopy -k nc4"
        )
    return _find_hdf5(path, name, num_axes)


def _find_zarr(path: Path, name: str | None, num_axes: int | None) -> tuple[ForeignArray, str]:
    import zarr

    try:
        node: Any = zarr.open(path, mode="r")
    except FileNotFoundError:
        raise StoreError(f"{path} is a folder but no Zarr group or array") from None
    if not isinstance(node, zarr.Group):
        return _ZarrArray(path, "", node, None), name or path.stem
    members = node.members(max_depth=None)
    arrays = {key: array for key, array in members if isinstance(array, zarr.Array)}
    shapes = {key: array.shape for key, array in arrays.items()}
    chosen = _choose(path, name, shapes, num_axes)
    return _ZarrArray(path, chosen, arrays[chosen], node.attrs.get(STORE_ATTRIBUTE)), chosen


def _find_hdf5(path: Path, name: str | None, num_axes: int | None) -> tuple[ForeignArray, str]:
    import h5py

    if not h5py.is_hdf5(path):
        raise StoreError(f"{path} is not a Zarr, HDF5, netCDF4 or .npy array")
    shapes: dict[str, tuple[int, ...]] = {}

    def visit(key: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset) and node.shape is not None:
            shapes[key] = node.shape

    with reading_hdf5(path) as file:
        # Follows no soft or external links, so nothing outside the file is ever read.
        file.visititems(visit)
    chosen = _choose(path, name, shapes, num_axes)
    return _Hdf5Array(path, chosen), chosen


def _choose(
    path: Path, name: str | None, shapes: dict[str, tuple[int, ...]], num_axes: int | None
) -> str:
    """The array of this name, or the only one that can hold frames."""
    wanted = None if name is None else name.strip("/")
    if wanted in shapes:
        return wanted
    allowed = (3, 4) if num_axes is None else (num_axes,)
    frames = [key for key, shape in shapes.items() if len(shape) in allowed]
    if name is None and len(frames) == 1:
        return frames[0]
    shown = ", ".join(f"{key} {shapes[key]}" for key in frames[:MAX_ARRAYS_NAMED])
    shown = shown or f"none of {' or '.join(map(str, allowed))} axes"
    if name is None:
        raise StoreError(f"{path}: name the array with the frames; there are {shown}")
    raise StoreError(f"{path} holds no array {name!r}; there are {shown}")


def _checked_axes(path: Path, name: str, info: ArrayInfo, axes: str | None) -> str:
    """One letter for each axis of an array."""
    shape = tuple(info.shape)
    if axes is None:
        axes = _axes_of_names(info.dimensions) or USUAL_AXES.get(len(shape))
    letters = "" if axes is None else axes
    if (
        len(letters) != len(shape)
        or len(set(letters)) != len(letters)
        or not set(letters) <= set(AXES)
        or not set("yx") <= set(letters)
    ):
        named = ", ".join(f"{letter} {meaning}" for letter, meaning in AXES.items())
        raise StoreError(
            f"{path}: axes {axes!r} do not fit {name!r} of shape {shape}; give one letter for "
            f"each axis ({named}), for example axes='tyx'"
        )
    if 0 in shape:
        raise StoreError(f"{path}: {name!r} of shape {shape} holds no frame")
    return letters


def _axes_of_names(dimensions: tuple[str, ...] | None) -> str | None:
    """Letters for named dimensions, if all the names are known."""
    by_name = {name: letter for letter, names in DIMENSION_LETTERS.items() for name in names}
    letters = [by_name.get(dimension.lower()) for dimension in dimensions or ()]
    return "".join(filter(None, letters)) if letters and None not in letters else None


def _frame_format(path: Path, name: str, info: ArrayInfo, axes: str) -> FrameFormat:
    if info.dtype.name not in FRAME_DTYPES:
        raise StoreError(
            f"{path}: {name!r} holds {info.dtype.name} values; expected one of "
            f"{', '.join(FRAME_DTYPES)}"
        )
    sizes = dict(zip(axes, info.shape, strict=True))
    return FrameFormat(sizes["y"], sizes["x"], sizes.get("c", 1), info.dtype.name)


def _nodata(attributes: Any) -> float | None:
    """The fill value that an array's attributes give, as netCDF and xarray write it."""
    for name in ("_FillValue", "missing_value"):
        value = attributes.get(name)
        if value is None:
            continue
        number = np.asarray(value).reshape(-1)[0]
        # Zarr 3 writes NaN as text, and xarray other floats in an encoding of its own.
        if isinstance(number, str):
            return math.nan if number == "NaN" else None
        return float(number)
    return None


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


def _packing(attributes: Any) -> dict[str, float]:
    names = ("scale_factor", "add_offset")
    return {name: float(np.ravel(attributes[name])[0]) for name in names if name in attributes}


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


def _needs_plugin(dataset: Any) -> bool:
    properties = dataset.id.get_create_plist()
    filters = (properties.get_filter(place)[0] for place in range(properties.get_nfilters()))
    return any(number >= _FIRST_PLUGIN_FILTER for number in filters)


def _column(dataset: Any) -> np.ndarray:
    import h5py

    values: np.ndarray = (dataset.asstr() if h5py.check_string_dtype(dataset.dtype) else dataset)[:]
    return values


def _values(found: ForeignArray, values: Column, most: int) -> np.ndarray:
    return found.sibling(values, most) if isinstance(values, str) else np.asarray(values)


def _check_length(path: Path, what: str, values: np.ndarray, num_frames: int) -> None:
    if values.shape != (num_frames,):
        raise StoreError(f"{path}: {what} has shape {values.shape}, expected ({num_frames},)")
