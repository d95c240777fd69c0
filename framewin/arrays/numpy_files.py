"""The array of a `.npy` file, or one of a `.npz` archive; nothing is unpickled."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from framewin.arrays.foreign_array import ArrayInfo, ForeignArray
from framewin.errors import FramewinError, StoreError, one_line

HEADER_BYTES = 2**16
"""Most that a header may have."""
# Deflate cannot pack more than 1032 bytes into one.
_DEFLATE_RATIO = 1040


class _Layout(NamedTuple):
    """What the header of an array says."""

    shape: tuple[int, ...]
    order: Any
    dtype: np.dtype[Any]
    offset: int
    """Byte at which the values begin."""

    def check(self, path: Path, size: int) -> None:
        """Refuse a file, or a member of an archive, that ends before its array does."""
        expected = math.prod(self.shape) * self.dtype.itemsize
        # Pickled objects, which are refused, take less.
        if size - self.offset < expected and not self.dtype.hasobject:
            raise StoreError(
                f"{path} is cut short: its array needs {expected} bytes and has "
                f"{size - self.offset}; copy it again or remove it"
            )


class NpyArray(ForeignArray):
    """The array of a `.npy` file; truth values are read as 0 and 255."""

    def __init__(self, path: Path, name: str | None = None, data: bytes | None = None) -> None:
        """Read the header of a file, or of `data`, its first bytes or all of them."""
        self.path, self.name = path, name or path.stem
        self._data = data
        with path.open("rb") if data is None else io.BytesIO(data) as file:
            self._layout = _layout(file, path)
            if data is None:
                self._layout.check(path, file.seek(0, io.SEEK_END))
        _, order, dtype, offset = self._layout
        lies_there = data is None and order == "C" and dtype != np.bool_
        self.info = _info(self._layout, (path, offset) if lies_there else None)

    @property
    def label(self) -> str:
        return str(self.path)

    def read(self, where: tuple[slice, ...]) -> np.ndarray:
        shape, order, dtype, offset = self._layout
        if order == "F" or where[0] == slice(None):
            values = self._whole[where]
        else:
            begin, end, _ = where[0].indices(shape[0])
            row = math.prod(shape[1:])
            values = self._values(offset + begin * row * dtype.itemsize, (end - begin) * row)
            values = values.reshape(end - begin, *shape[1:])[(slice(None), *where[1:])]
        return values * np.uint8(255) if dtype == np.bool_ else values

    def _values(self, offset: int, count: int) -> np.ndarray:
        """So many values from a byte on."""
        if self._data is None:
            # Not mapped, since a disk that fails would end the process.
            return np.fromfile(self.path, self._layout.dtype, count, offset=offset)
        self._layout.check(self.path, len(self._data))
        return np.frombuffer(self._data, self._layout.dtype, count, offset)

    @property
    def _whole(self) -> np.ndarray:
        """The array, to be read across its order in the file."""
        shape, order, dtype, offset = self._layout
        if self._data is None:
            return np.memmap(self.path, dtype, "r", offset, shape, order)
        return self._values(offset, math.prod(shape)).reshape(shape, order=order)


class NpzArray(NpyArray):
    """An array of a `.npz` archive, which stays open from the first frame that is read."""

    is_archived = True

    def __init__(self, path: Path, number: int | None = None) -> None:
        """Read the header of the array of a number, from 0; by default of the only one."""
        self.path, self.name = path, path.stem
        self._opened = ExitStack()
        self._file: Any = None
        with self._refusing_damage(), zipfile.ZipFile(path) as archive:
            self._member = _chosen(archive.infolist(), path, number)
            _check_member(self._member, path.stat().st_size, path)
            with archive.open(self._member) as file:
                self._layout = _layout(file, path)
        self._layout.check(path, self._member.file_size)
        self.info = _info(self._layout, None)

    def close(self) -> None:
        self._opened.close()
        self._file = None

    def _values(self, offset: int, count: int) -> np.ndarray:
        with self._refusing_damage():
            if self._file is None:
                archive = self._opened.enter_context(zipfile.ZipFile(self.path))
                self._file = self._opened.enter_context(archive.open(self._member))
            # Not otherwise: after a seek the checksum may not be checked.
            if self._file.tell() != offset:
                self._file.seek(offset)
            dtype = self._layout.dtype
            return np.frombuffer(self._file.read(count * dtype.itemsize), dtype, count)

    @cached_property
    def _whole(self) -> np.ndarray:
        shape, order, _, offset = self._layout
        return self._values(offset, math.prod(shape)).reshape(shape, order=order)

    @contextmanager
    def _refusing_damage(self) -> Iterator[None]:
        """zipfile raises its own errors, those of what decompresses, OSError for wrong offsets."""
        try:
            yield
        except FramewinError:
            raise
        except Exception as exc:
            raise StoreError(
                f"{self.path} is a damaged archive ({exc}); repair or remove it"
            ) from exc


def _layout(file: Any, path: Path) -> _Layout:
    """What the header at the beginning of an opened file says."""
    # What a garbled header makes numpy raise depends on where it is garbled.
    try:
        start = file.read(10)
        if start[6:7] > b"\1":
            start += file.read(2)
        length = int.from_bytes(start[8:], "little")
        if length > HEADER_BYTES:
            raise ValueError(f"it claims to have {length} bytes")
        return _parsed(start + file.read(length))
    except Exception as exc:
        raise StoreError(
            f"{path} has a damaged array header ({one_line(exc)}); repair or remove it"
        ) from exc


@lru_cache(maxsize=8)
def _parsed(header: bytes) -> _Layout:
    """What a header says; files of one frame each have the same."""
    file: Any = io.BytesIO(header)
    if np.lib.format.read_magic(file) == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    else:
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    return _Layout(tuple(map(int, shape)), "F" if fortran else "C", dtype, len(header))


def _info(layout: _Layout, place: tuple[Path, int] | None) -> ArrayInfo:
    dtype = np.dtype(np.uint8) if layout.dtype == np.bool_ else layout.dtype
    return ArrayInfo(layout.shape, dtype, place=place)


def _chosen(members: list[zipfile.ZipInfo], path: Path, number: int | None) -> zipfile.ZipInfo:
    arrays = [member for member in members if member.filename.endswith(".npy")]
    names = ", ".join(f"{i}: {a.filename.removesuffix('.npy')}" for i, a in enumerate(arrays))
    if not arrays:
        raise StoreError(f"{path} holds no array; remove it or leave it out by exclude=")
    if number is None and len(arrays) > 1:
        raise StoreError(f"{path} holds several arrays ({names}); choose one by stream=")
    if (number or 0) >= len(arrays):
        raise StoreError(f"{path} has no stream {number}; it holds {names}")
    return arrays[number or 0]


def _check_member(member: zipfile.ZipInfo, size: int, path: Path) -> None:
    """Refuse a size that the archive's own directory makes up."""
    packed = member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    most = min(member.compress_size, size) * _DEFLATE_RATIO
    if not packed or member.file_size > most:
        raise StoreError(
            f"{path} claims {member.file_size} bytes for {member.filename}; expected at most "
            f"{most}, stored or deflated; save it again by numpy.savez_compressed"
        )
