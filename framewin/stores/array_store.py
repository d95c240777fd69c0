"""Arrays of frames that others wrote: Zarr 2 and 3, HDF5, netCDF4 and .npy, in any axis order.

An array whose frames lie one behind the other in a file, as in .npy or contiguous HDF5, is mapped
like a raw store; any other is read through its own library, chunk by chunk.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from framewin.errors import FramewinError, StoreError
from framewin.schema import FRAME_DTYPES, ClipTable, FrameFormat, Int64Array, StoreMeta, fits
from framewin.stores.chunked import ChunkedFrames
from framewin.stores.mapped import MappedFrames

AXES = {"t": "time", "y": "height", "x": "width", "c": "channel"}
"""Letter -> what that axis of an array is."""
USUAL_AXES = {3: "tyx", 4: "tyxc"}
"""Number of axes -> their order where nothing says otherwise."""
DIMENSION_LETTERS = {
    "t": ("t", "time", "frame", "frames"),
    "y": ("y", "lat", "latitude", "height", "row", "rows"),
    "x": ("x", "lon", "longitude", "width", "column", "columns"),
    "c": ("c", "channel", "channels", "band", "variable"),
}
"""Letter -> names of dimensions that mean it."""
MAX_ARRAYS_NAMED = 5
READ_BYTES = 2**22

_NPY_MAGIC = b"\x93NUMPY"
_NETCDF_CLASSIC_MAGIC = b"CDF"

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


class ForeignArray(Protocol):
    """One array in a container of its own kind."""

    info: ArrayInfo

    def read(self, where: tuple[slice, ...]) -> np.ndarray:
        """A part of the array."""

    def missing_chunk(self) -> str | None:
        """Name of a chunk that was never written or is lost."""

    def sibling(self, name: str) -> np.ndarray:
        """All values of another array of the same container."""

    def files(self) -> Iterator[Path]:
        """Every file that the array's values come from."""


class ArrayStore:
    """Frames of an array that framewin did not write, opened for reading."""

    def __init__(
        self,
        path: Path,
        *,
        array: str | None = None,
        axes: str | None = None,
        clip_ids: Column | None = None,
        clip_starts: Column | None = None,
        frame_numbers: Column | None = None,
        nodata: float | None = None,
        allow_missing_chunks: bool = False,
        cache_bytes: int,
    ) -> None:
        """Find the frames of an array; see `open_array`."""
        found, name = _find(path, array)
        self.path = path
        self.array = name
        self.axes = _checked_axes(path, name, found, axes)
        self._found = found
        num_frames = found.info.shape[self.axes.index("t")]
        clips = _clip_table(path, name, found, num_frames, clip_ids, clip_starts, frame_numbers)
        frame_format = _frame_format(path, name, found, self.axes)
        if (
            nodata is None
            and found.info.nodata is not None
            and fits(found.info.nodata, frame_format.dtype)
        ):
            nodata = found.info.nodata
        self.meta = StoreMeta(frame_format, clips, nodata)
        missing = None if allow_missing_chunks else found.missing_chunk()
        if missing:
            raise StoreError(
                f"{path}: chunk {missing} of {name!r} is missing, and would read as the fill "
                "value; copy the data again, or pass allow_missing_chunks=True where chunks of "
                "nothing but the fill value were left out on purpose"
            )
        self.frames = self._open_frames(cache_bytes)

    @property
    def identity(self) -> str:
        """Changes with the array's files (their sizes and times), axes and clips."""
        digest = hashlib.sha256(repr((str(self.path.resolve()), self.array, self.axes)).encode())
        clips = self.meta.clips
        digest.update(repr((self.meta.frame_format, clips.names, clips.num_frames)).encode())
        for path in sorted(self._found.files()):
            status = path.stat()
            digest.update(repr((str(path), status.st_size, status.st_mtime_ns)).encode())
        for rows in (clips.clip_starts, clips.segment_starts, clips.first_numbers):
            digest.update(rows.tobytes())
        return digest.hexdigest()

    def source_files(self, rows: Int64Array) -> list[str]:
        """The array and the place of each row in it."""
        return [f"{self.array}[{row}]" for row in rows]

    def _open_frames(self, cache_bytes: int) -> MappedFrames | ChunkedFrames:
        frame_format, num_frames = self.meta.frame_format, self.meta.clips.num_frames
        place = self._found.info.place
        in_order = self.axes in ("tyx", "tyxc") and self._found.info.dtype.isnative
        if place is not None and in_order:
            path, offset = place
            expected = offset + num_frames * frame_format.nbytes
            if path.stat().st_size < expected:
                raise StoreError(
                    f"{path} has {path.stat().st_size} bytes, expected {expected}; it is cut "
                    "short, copy it again"
                )
            return MappedFrames.of_file(path, frame_format, num_frames, offset=offset)
        chunks = self._found.info.chunks
        if chunks is None:
            chunk_frames = max(1, READ_BYTES // frame_format.nbytes)
        else:
            chunk_frames = chunks[self.axes.index("t")]
        return ChunkedFrames(
            self._read_chunk,
            frame_format,
            num_frames,
            chunk_frames=min(chunk_frames, num_frames),
            cache_bytes=cache_bytes,
        )

    def _read_chunk(self, number: int) -> np.ndarray:
        assert isinstance(self.frames, ChunkedFrames)
        size = self.frames.chunk_frames
        begin, end = number * size, min((number + 1) * size, self.meta.clips.num_frames)
        where = [slice(None)] * len(self.axes)
        where[self.axes.index("t")] = slice(begin, end)
        try:
            values = self._found.read(tuple(where))
        # What a damaged chunk raises depends on its codec.
        except Exception as exc:
            reason = f"{type(exc).__name__}: {exc}".splitlines()[0]
            raise StoreError(
                f"{self.path}: frames {begin} to {end - 1} of {self.array!r} cannot be read "
                f"({reason})"
            ) from exc
        order = [self.axes.index(letter) for letter in "tyxc" if letter in self.axes]
        frames = np.transpose(values, order).reshape(end - begin, *self.meta.frame_format.shape)
        return np.ascontiguousarray(frames, dtype=self.meta.frame_format.dtype)


def open_array(path: str | Path, **options: Any) -> ArrayStore:
    """Open an array of frames that framewin did not write.

    Args:
        path: A Zarr group or array, an HDF5 or netCDF4 file, or a .npy file.
        options: As for `FrameWindowDataset`.

    Raises:
        StoreError: No such file or array, axes that do not fit it, values that are not numbers
            of a known kind, clips that do not fit, or a missing chunk.
    """
    path = Path(path)
    try:
        return ArrayStore(path, **options)
    except FramewinError:
        raise
    # Damaged files can make the libraries raise nearly anything.
    except Exception as exc:
        reason = f"{type(exc).__name__}: {exc}".splitlines()[0]
        raise StoreError(f"{path} cannot be read ({reason})") from exc


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

    def sibling(self, name: str) -> np.ndarray:
        raise StoreError(f"{self._path} holds one array only; there is no {name!r} in it")

    def files(self) -> Iterator[Path]:
        yield self._path


class _Hdf5Array:
    """A dataset of an HDF5 or netCDF4 file, which is only open while it is read."""

    def __init__(self, path: Path, name: str) -> None:
        from framewin.stores.hdf5_store import reading

        self._path = path
        self._name = name
        with reading(path) as file:
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
            )
            self._missing = self._count_missing(dataset)

    def read(self, where: tuple[slice, ...]) -> np.ndarray:
        from framewin.optional import require
        from framewin.stores.hdf5_store import reading

        with reading(self._path) as file:
            dataset = file[self._name]
            if any(int(code) >= 32000 for code in dataset._filters):
                require("hdf5plugin", extra="hdf5plugin")
            values: np.ndarray = dataset[where]
        return values

    def missing_chunk(self) -> str | None:
        return self._missing

    def sibling(self, name: str) -> np.ndarray:
        from framewin.stores.hdf5_store import column, reading

        with reading(self._path) as file:
            if name not in file:
                raise StoreError(f"{self._path} holds no array {name!r}")
            return column(file[name])

    def files(self) -> Iterator[Path]:
        yield self._path

    def _count_missing(self, dataset: Any) -> str | None:
        if dataset.is_virtual or dataset.external is not None:
            raise StoreError(f"{self._path}: {self._name!r} keeps its values in other files")
        if dataset.chunks is None:
            return "0" if dataset.id.get_offset() is None else None
        present: set[tuple[int, ...]] = set()
        dataset.id.chunk_iter(lambda chunk: present.add(tuple(chunk.chunk_offset)))
        for chunk in itertools.product(
            *(
                range(0, size, step)
                for size, step in zip(dataset.shape, dataset.chunks, strict=True)
            )
        ):
            if chunk not in present:
                return str(chunk)
        return None


class _ZarrArray:
    """An array of a Zarr group, of format 2 or 3."""

    def __init__(self, path: Path, name: str, array: Any) -> None:
        self._path = path
        self._name = name
        self._array = array
        names = getattr(array.metadata, "dimension_names", None)
        names = names or array.attrs.get("_ARRAY_DIMENSIONS")
        self.info = ArrayInfo(
            array.shape,
            np.dtype(array.dtype),
            array.chunks,
            tuple(str(name) for name in names) if names else None,
            _nodata(array.attrs),
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

    def sibling(self, name: str) -> np.ndarray:
        import zarr

        try:
            return np.asarray(zarr.open_array(self._path, path=name, mode="r")[:])
        except (FileNotFoundError, KeyError, ValueError):
            raise StoreError(f"{self._path} holds no array {name!r}") from None

    def files(self) -> Iterator[Path]:
        return (path for path in self._folder.rglob("*") if path.is_file())

    @property
    def _folder(self) -> Path:
        return self._path / self._name if self._name else self._path


def _find(path: Path, name: str | None) -> tuple[ForeignArray, str]:
    """The array of a container, and its name."""
    if path.is_dir():
        return _find_zarr(path, name)
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
    return _find_hdf5(path, name)


def _find_zarr(path: Path, name: str | None) -> tuple[ForeignArray, str]:
    import zarr

    try:
        node: Any = zarr.open(path, mode="r")
    except FileNotFoundError:
        raise StoreError(f"{path} is a folder but no Zarr group or array") from None
    if not isinstance(node, zarr.Group):
        return _ZarrArray(path, "", node), name or path.stem
    members = node.members(max_depth=None)
    arrays = {key: array for key, array in members if isinstance(array, zarr.Array)}
    chosen = _choose(path, name, {key: array.shape for key, array in arrays.items()})
    return _ZarrArray(path, chosen, arrays[chosen]), chosen


def _find_hdf5(path: Path, name: str | None) -> tuple[ForeignArray, str]:
    import h5py

    from framewin.stores.hdf5_store import reading

    if not h5py.is_hdf5(path):
        raise StoreError(f"{path} is not a Zarr, HDF5, netCDF4 or .npy array")
    shapes: dict[str, tuple[int, ...]] = {}

    def visit(key: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset) and node.shape is not None:
            shapes[key] = node.shape

    with reading(path) as file:
        # Follows no soft or external links, so nothing outside the file is ever read.
        file.visititems(visit)
    chosen = _choose(path, name, shapes)
    return _Hdf5Array(path, chosen), chosen


def _choose(path: Path, name: str | None, shapes: dict[str, tuple[int, ...]]) -> str:
    """The array of this name, or the only one that can hold frames."""
    wanted = None if name is None else name.strip("/")
    if wanted in shapes:
        return wanted
    frames = [key for key, shape in shapes.items() if len(shape) in USUAL_AXES]
    if name is None and len(frames) == 1:
        return frames[0]
    shown = ", ".join(f"{key} {shapes[key]}" for key in frames[:MAX_ARRAYS_NAMED])
    shown = shown or "none of three or four axes"
    if name is None:
        raise StoreError(f"{path}: name the array with the frames; there are {shown}")
    raise StoreError(f"{path} holds no array {name!r}; there are {shown}")


def _checked_axes(path: Path, name: str, found: ForeignArray, axes: str | None) -> str:
    """One letter for each axis of an array."""
    shape = tuple(found.info.shape)
    if axes is None:
        axes = _axes_of_names(found.info.dimensions) or USUAL_AXES.get(len(shape))
    letters = "" if axes is None else axes
    if (
        len(letters) != len(shape)
        or len(set(letters)) != len(letters)
        or not set(letters) <= set(AXES)
        or not set("tyx") <= set(letters)
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


def _frame_format(path: Path, name: str, found: ForeignArray, axes: str) -> FrameFormat:
    if found.info.dtype.name not in FRAME_DTYPES:
        raise StoreError(
            f"{path}: {name!r} holds {found.info.dtype.name} values; expected one of "
            f"{', '.join(FRAME_DTYPES)}"
        )
    sizes = dict(zip(axes, found.info.shape, strict=True))
    return FrameFormat(sizes["y"], sizes["x"], sizes.get("c", 1), found.info.dtype.name)


def _clip_table(
    path: Path,
    name: str,
    found: ForeignArray,
    num_frames: int,
    clip_ids: Column | None,
    clip_starts: Column | None,
    frame_numbers: Column | None,
) -> ClipTable:
    if clip_ids is not None and clip_starts is not None:
        raise ValueError("clips are told by clip_ids or by clip_starts, not by both")
    names, starts = [name], np.array([0])
    if clip_ids is not None:
        ids = _values(found, clip_ids)
        _check_length(path, "clip_ids", ids, num_frames)
        starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
        names = [str(clip) for clip in ids[starts]]
        if len(set(names)) != len(names):
            twice = next(clip for clip in names if names.count(clip) > 1)
            raise StoreError(f"{path}: the frames of clip {twice} do not follow one another")
    elif clip_starts is not None:
        starts = _values(found, clip_starts).astype(np.int64)
        names = [f"clip{number}" for number in range(len(starts))]
        if len(starts) == 0 or starts[0] != 0 or (np.diff(starts, append=num_frames) < 1).any():
            raise StoreError(
                f"{path}: clip_starts must increase from 0 to below {num_frames}, "
                f"got {starts.tolist()[:MAX_ARRAYS_NAMED]}..."
            )
    numbers = np.arange(num_frames)
    if frame_numbers is not None:
        numbers = _values(found, frame_numbers).astype(np.int64)
        _check_length(path, "frame_numbers", numbers, num_frames)
    clips = np.split(numbers, starts[1:])
    if any((np.diff(clip) < 1).any() for clip in clips):
        raise StoreError(f"{path}: frame_numbers must increase within each clip")
    return ClipTable.from_frame_numbers(names, clips)


def _values(found: ForeignArray, values: Column) -> np.ndarray:
    return found.sibling(values) if isinstance(values, str) else np.asarray(values)


def _check_length(path: Path, what: str, values: np.ndarray, num_frames: int) -> None:
    if values.shape != (num_frames,):
        raise StoreError(f"{path}: {what} has shape {values.shape}, expected ({num_frames},)")


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
