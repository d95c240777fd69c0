"""NumPy arrays as frames: `.npy` and `.npz`, axes (t, y, x) or (t, y, x, c), or one frame (y, x).

A `.npy` file whose axes are stated is read like the arrays of other containers.
Nothing is unpickled. Frames are read one by one, so that a file may be larger than memory.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from framewin.arrays.axes import usual_axes
from framewin.errors import FrameFormatError, SourceError, StoreError
from framewin.schema import FRAME_DTYPES, FrameFormat
from framewin.sources import hdf5_zarr as containers
from framewin.sources import suffix_of
from framewin.sources.info import (
    FileInfo,
    ReadOptions,
    alpha_of_array,
    check_kind,
    check_pixels,
    kind_of,
)

HEADER_BYTES = 2**16
# Deflate cannot pack more than 1032 bytes into one.
_DEFLATE_RATIO = 1040


class _Layout(NamedTuple):
    """What the header of an array says."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Of all elements."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize


def header(file: BinaryIO) -> bytes:
    """The beginning of a `.npy` file, or all of an archive, whose directory is at its end."""
    start = file.read(HEADER_BYTES)
    return start + file.read() if kind_of(start) == ("NumPy archive", ".npz") else start


def inspect(data: bytes, path: str, options: ReadOptions) -> FileInfo:
    """What the array holds, from its header.

    Raises:
        SourceError: Not an array, or one of other axes or another dtype.
    """
    if options.axes is not None:
        _refuse_archive(path)
        check_kind(data, path, "NumPy")
        return containers.inspect_clip(path, options)
    with _array_in(io.BytesIO(data), path, options) as (file, _):
        return _info(_layout(file, path), path, options)


def decode(data: bytes, out: np.ndarray, path: str, options: ReadOptions) -> None:
    """Copy an array of a single frame into `out`, (H, W, C)."""
    if options.axes is not None:
        containers.decode(data, out, path, options)
        return
    with _array_in(io.BytesIO(data), path, options) as (file, size):
        layout = _layout(file, path)
        if _info(layout, path, options).is_clip:
            raise FrameFormatError(
                f"{path} has the shape {layout.shape} in a place for single frames of (y, x); "
                "leave it out by exclude="
            )
        _check_size(layout, size - file.tell(), path)
        [frame] = _frames(file, layout, path)
        out[:] = frame


def inspect_clip(path: str, options: ReadOptions) -> FileInfo:
    """What `read_clip` gives; of a `.npz` file with several arrays `stream=` says which."""
    if options.axes is not None:
        _refuse_archive(path)
        return containers.inspect_clip(path, options)
    with open(path, "rb") as opened, _array_in(opened, path, options) as (file, size):
        layout = _layout(file, path)
        _check_size(layout, size - file.tell(), path)
    return _info(layout, path, options)


def read_clip(path: str, options: ReadOptions) -> Iterator[np.ndarray]:
    """The frames of an array, (H, W, C) each.

    Raises:
        SourceError: The file ends early, or its checksum is wrong.
    """
    if options.axes is not None:
        yield from containers.read_clip(path, options)
        return
    with open(path, "rb") as opened, _array_in(opened, path, options) as (file, _):
        yield from _frames(file, _layout(file, path), path)


def _refuse_archive(path: str) -> None:
    if suffix_of(path) == ".npz":
        raise SourceError(
            f"{path} is an archive, whose arrays axes= cannot turn; save the array as .npy"
        )


@contextmanager
def _array_in(source: BinaryIO, path: str, options: ReadOptions) -> Iterator[tuple[Any, int]]:
    """The array in an opened file, at its beginning, and its size in bytes."""
    archived = suffix_of(path) == ".npz"
    check_kind(source.read(16), path, "NumPy archive" if archived else "NumPy")
    size = source.seek(0, io.SEEK_END)
    source.seek(0)
    if not archived:
        yield source, size
        return
    # zipfile raises its own errors, those of whatever decompresses, and OSError for wrong offsets.
    try:
        with zipfile.ZipFile(source) as archive:
            member = _chosen(archive.infolist(), path, options)
            _check_member(member, size, path)
            with archive.open(member) as file:
                yield file, member.file_size
    except SourceError:
        raise
    except Exception as exc:
        raise SourceError(f"{path} is a damaged archive ({exc}); repair or remove it") from exc


def _check_member(member: zipfile.ZipInfo, size: int, path: str) -> None:
    """Refuse a size that the archive's own directory makes up."""
    packed = member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    most = min(member.compress_size, size) * _DEFLATE_RATIO
    if not packed or member.file_size > most:
        raise SourceError(
            f"{path} claims {member.file_size} bytes for {member.filename}; expected at most "
            f"{most}, stored or deflated; save it again by numpy.savez_compressed"
        )


def _chosen(members: list[zipfile.ZipInfo], path: str, options: ReadOptions) -> zipfile.ZipInfo:
    arrays = [member for member in members if member.filename.endswith(".npy")]
    names = ", ".join(f"{i}: {a.filename.removesuffix('.npy')}" for i, a in enumerate(arrays))
    if not arrays:
        raise SourceError(f"{path} holds no array; remove it or leave it out by exclude=")
    if options.stream is None and len(arrays) > 1:
        raise SourceError(f"{path} holds several arrays ({names}); choose one by stream=")
    chosen = options.stream or 0
    if chosen >= len(arrays):
        raise SourceError(f"{path} has no stream {chosen}; it holds {names}")
    return arrays[chosen]


class _Header:
    """The beginning of a file, of which no more is read than a header may have."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        """As of a file."""
        if size > HEADER_BYTES:
            raise ValueError(f"it claims to have {size} bytes")
        data: bytes = self._file.read(size)
        return data


def _layout(file: Any, path: str) -> _Layout:
    # What a garbled header makes numpy raise depends on where it is garbled.
    try:
        file = _Header(file)
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0}.get(
            version, np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read(file)
    except Exception as exc:
        reason = str(exc).splitlines()[0] if str(exc) else type(exc).__name__
        raise SourceError(
            f"{path} has a damaged array header ({reason}); repair or remove it"
        ) from exc
    return _Layout(tuple(int(n) for n in shape), fortran, dtype)


def _info(layout: _Layout, path: str, options: ReadOptions) -> FileInfo:
    shape, dtype = layout.shape, layout.dtype
    stored = "uint8" if dtype == np.bool_ else dtype.name
    if stored not in FRAME_DTYPES:
        raise SourceError(
            f"{path} is an array of {dtype}; expected {', '.join(FRAME_DTYPES)} or bool, save it "
            "as one of them"
        )
    if len(shape) not in (2, 3, 4) or min(shape) < 1:
        raise SourceError(
            f"{path} is an array of shape {shape}; expected (t, y, x), (t, y, x, c) or (y, x), or "
            "other axes by axes="
        )
    try:
        usual_axes(path, shape, None)
    except StoreError as exc:
        raise SourceError(f"{exc}{_of_archive(path)}") from exc
    height, width = shape[:2] if len(shape) == 2 else shape[1:3]
    channels = shape[3] if len(shape) == 4 else 1
    check_pixels(height, width, path, options)
    frames = shape[0] if len(shape) > 2 else 1
    return FileInfo(
        FrameFormat(height, width, channels, stored),
        "NumPy",
        f"{channels} channels of {dtype.name}",
        is_clip=frames > 1,
        frames=frames,
        alpha=alpha_of_array(channels),
    )


def _of_archive(path: str) -> str:
    return "; save the array as .npy for that" if suffix_of(path) == ".npz" else ""


def _check_size(layout: _Layout, found: int, path: str) -> None:
    if found < layout.nbytes:
        raise SourceError(
            f"{path} is cut short: its array needs {layout.nbytes} bytes and has {found}; copy "
            "it again or remove it"
        )


def _frames(file: Any, layout: _Layout, path: str) -> Iterator[np.ndarray]:
    """Each frame as (H, W, C) in the machine's byte order."""
    shape = layout.shape if len(layout.shape) > 2 else (1, *layout.shape)
    if layout.fortran:
        flat = np.frombuffer(_exactly(file, layout.nbytes, path), layout.dtype)
        for frame in flat.reshape(layout.shape, order="F").reshape(shape):
            yield _stored(frame)
        return
    size = layout.nbytes // shape[0]
    for _ in range(shape[0]):
        frame = np.frombuffer(_exactly(file, size, path), layout.dtype)
        yield _stored(frame.reshape(shape[1:]))


def _exactly(file: Any, size: int, path: str) -> bytes:
    data: bytes = file.read(size)
    if len(data) != size:
        raise SourceError(f"{path} is cut short; copy it again or remove it")
    return data


def _stored(frame: np.ndarray) -> np.ndarray:
    frame = frame if frame.ndim == 3 else frame[..., np.newaxis]
    if frame.dtype == np.bool_:
        return frame * np.uint8(255)
    return frame.astype(frame.dtype.newbyteorder("="), copy=False)
