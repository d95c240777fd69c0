"""HDF5 stores, which h5py, netCDF4 and xarray (engine h5netcdf) open as they are.

Raw frames are a chunked dataset whose chunks are allocated when it is created, one behind the
other, each a whole number of frames from byte 0 of the file. So the file can be mapped as rows
of one frame each, and filled by many threads at once. Compressed frames are compressed in
threads and handed to HDF5 as finished chunks.

Behind what HDF5 knows of, the file ends with a trailer: its name, the checksum of every byte
outside the chunks of frames, and the size of all that stands before it. HDF5 ignores it.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import google_crc32c
import h5py
import numpy as np

from framewin.errors import FramewinError, StoreError
from framewin.optional import require
from framewin.schema import Int64Array, StoreMeta
from framewin.stores import content, durable
from framewin.stores.chunked import ChunkedFrames, pieces
from framewin.stores.chunks import (
    ChunkPlace,
    StoredChunk,
    compressed_chunks,
    compressed_frames,
    read_place,
    summed_chunks,
)
from framewin.stores.codecs import Hdf5Codec, Layout
from framewin.stores.mapped import MappedFrames

PLUGIN_FILTERS = {"zstd": 32015, "lz4": 32004}
"""Compression -> number of its HDF5 filter, which hdf5plugin brings."""
READ_BYTES = 2**24

_TRAILER = struct.Struct("<8sIQ")
_MAGIC = b"framewin"
# What the netCDF library calls a dimension that has no values of its own.
_DIMENSION_ONLY = "This is a netCDF dimension but not a netCDF variable."


def estimate_bytes(meta: StoreMeta, layout: Layout, name_bytes: int) -> int:
    """Bytes the store will take at most, with `name_bytes` of source file names."""
    chunk = layout.resolved(meta.frame_format, meta.clips.num_frames).chunk_frames or 1
    num_chunks = -(-meta.clips.num_frames // chunk)
    frames = (num_chunks * chunk + 1) * meta.frame_format.nbytes
    per_chunk = 4 + 16
    if layout.compressed:
        per_chunk += 16 + 24 + chunk * meta.frame_format.nbytes // 100
    # Strings lie on a heap: a reference, a header and padding for each.
    per_frame = 8 + 2 * (16 + 24)
    alignment = 0 if layout.compressed else 8 * meta.frame_format.nbytes
    metadata = 2**17
    return (
        frames
        + per_chunk * num_chunks
        + name_bytes
        + per_frame * meta.clips.num_frames
        + alignment
        + metadata
    )


class Writer:
    """Builds a store at a new path; the caller renames it when it is whole."""

    def __init__(
        self, root: Path, meta: StoreMeta, source_files: content.SourceFiles, layout: Layout
    ) -> None:
        """Create the file and the dataset of frames; see `StoreWriter`."""
        if sys.byteorder != "little":
            raise StoreError("stores can only be written on little-endian machines")
        self.root = root
        self.meta = meta
        self.source_files = source_files
        self.layout = layout.resolved(meta.frame_format, meta.clips.num_frames)
        self.chunk_frames = self.layout.chunk_frames or 1
        num_chunks = -(-meta.clips.num_frames // self.chunk_frames)
        columns = content.chunk_columns(self.layout).items()
        self.chunks = {name: np.zeros(num_chunks, dtype) for name, dtype in columns}
        if self.layout.compression in PLUGIN_FILTERS:
            require("hdf5plugin", extra="hdf5plugin")
        self._codec = Hdf5Codec(self.layout)
        self._metadata_written = threading.Event()
        self._file = self._create_file()
        self._frames = self._create_frames()
        self._raw: durable.SizedFile | None = None
        if not self.layout.compressed:
            self._first_byte = _first_byte(root, self._frames, self.layout, meta)
            self._file.flush()
            self._raw = durable.SizedFile(root, None)

    def write_block(self, first_row: int, frames: np.ndarray) -> list[StoredChunk]:
        """See `StoreWriter`."""
        if self._raw is None:
            return compressed_chunks(first_row, frames, self.chunk_frames, self._codec.encode)
        offset = self._first_byte + first_row * self.meta.frame_format.nbytes
        self._raw.write_at(frames.data, offset)
        return summed_chunks(first_row, frames, self.chunk_frames)

    def commit(self, block: list[StoredChunk]) -> None:
        """See `StoreWriter`."""
        if self.layout.compressed:
            # In turns, so that the same frames always give the same file.
            self._metadata_written.wait()
        for chunk in block:
            self.chunks["crc32c"][chunk.number] = chunk.crc32c
            if self.layout.compressed:
                first = (chunk.number * self.chunk_frames, 0, 0, 0)
                self._frames.id.write_direct_chunk(first, chunk.data)

    def write_metadata(self) -> None:
        """See `StoreWriter`."""
        try:
            self._write_dimensions()
            self._write_coordinates()
            for table, columns in content.tables(self.meta).items():
                self._create_table(table, columns)
            self._create_table("chunks", self.chunks)
        finally:
            self._metadata_written.set()

    def finish(self) -> None:
        """See `StoreWriter`."""
        if self._raw is not None:
            self._raw.wait()
        else:
            self.chunks |= _chunk_places(self._frames)
        for name, values in self.chunks.items():
            self._file["chunks"][name][:] = values
        settings = content.attributes(self.meta, self.layout)
        settings["identity"] = content.identity(self.meta, self.layout, self.chunks)
        self._file.attrs[content.ATTRIBUTE] = json.dumps(settings)
        ranges = list(_chunk_ranges(self._frames, self.layout, self.meta, self.chunks))
        self._file.close()
        size = self.root.stat().st_size
        checksum = _rest_checksum(self.root, size, ranges)
        with self.root.open("ab") as file:
            file.write(_TRAILER.pack(_MAGIC, checksum, size))

    def close(self) -> None:
        """See `StoreWriter`."""
        if self._raw is not None:
            self._raw.close()
        self._file.close()

    def _create_file(self) -> Any:
        # Objects as large as a frame, so its chunks too, begin a whole number of frames from
        # byte 0 of the file.
        aligned = 1 if self.layout.compressed else self.meta.frame_format.nbytes
        return h5py.File(
            self.root,
            "w-",
            libver="latest",
            alignment_threshold=aligned,
            alignment_interval=aligned,
        )

    def _create_frames(self) -> Any:
        meta, layout = self.meta, self.layout
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_chunk((self.chunk_frames, *meta.frame_format.shape))
        creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        if not layout.compressed:
            creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        elif layout.compression == "gzip":
            creation.set_deflate(layout.level or 0)
        else:
            level = (layout.level,) if layout.level is not None else ()
            filter_number = PLUGIN_FILTERS[layout.compression]
            creation.set_filter(filter_number, h5py.h5z.FLAG_MANDATORY, level)
        frames = h5py.Dataset(
            h5py.h5d.create(
                self._file.id,
                b"frames",
                h5py.h5t.py_create(np.dtype(meta.frame_format.dtype)),
                h5py.h5s.create_simple((meta.clips.num_frames, *meta.frame_format.shape)),
                creation,
            )
        )
        frames.attrs.update(content.frame_attributes(meta))
        return frames

    def _write_dimensions(self) -> None:
        for axis, (name, size) in enumerate(
            zip(content.DIMENSIONS, self._frames.shape, strict=True)
        ):
            # Never written, so it takes no room.
            scale = self._file.create_dataset(name, shape=(size,), dtype=">f4")
            scale.make_scale(f"{_DIMENSION_ONLY}{size:10d}")
            self._frames.dims[axis].attach_scale(scale)

    def _write_coordinates(self) -> None:
        num_frames = self.meta.clips.num_frames
        arrays = {
            name: self._file.create_dataset(
                name,
                shape=(num_frames,),
                dtype=h5py.string_dtype() if dtype == "string" else dtype,
            )
            for name, dtype in content.COORDINATES.items()
        }
        for array in arrays.values():
            array.dims[0].attach_scale(self._file["time"])
        for begin, end, values in content.coordinates(self.meta, self.source_files):
            for name, array in arrays.items():
                array[begin:end] = _plain(values[name])

    def _create_table(self, table: str, columns: dict[str, np.ndarray]) -> None:
        group = self._file.create_group(table)
        [size] = {len(values) for values in columns.values()}
        scale = group.create_dataset(table, shape=(size,), dtype=">f4")
        scale.make_scale(f"{_DIMENSION_ONLY}{size:10d}")
        for name, values in columns.items():
            column = group.create_dataset(name, data=_plain(values))
            column.dims[0].attach_scale(scale)


class Hdf5Store:
    """A store, opened for reading; the file is only open while something is read from it."""

    def __init__(self, path: Path, cache_bytes: int) -> None:
        self.path = path
        self._size, self._rest_checksum = _read_trailer(path)
        with reading(path) as file:
            frames = file["frames"]
            if frames.dtype != np.dtype(frames.dtype.name):
                raise StoreError(f"{path} holds {frames.dtype.str} frames; expected little-endian")
            settings = json.loads(file.attrs[content.ATTRIBUTE])
            self.meta, self.layout, self.chunks = content.read(
                path,
                settings,
                (frames.shape, frames.dtype.name),
                lambda table, name: column(file[table][name]),
            )
            self.identity: str = settings["identity"]
            if not self.layout.compressed:
                self._first_byte = _first_byte(path, frames, self.layout, self.meta)
        self._codec = Hdf5Codec(self.layout)
        self.frames = self._open_frames(cache_bytes)

    def source_files(self, rows: Int64Array) -> list[str]:
        """See `Store`."""
        first, end = int(rows.min()), int(rows.max()) + 1
        with reading(self.path) as file:
            files = file["source_file"].asstr()[first:end]
        return [str(files[row - first]) for row in rows]

    def place(self, chunk: int) -> ChunkPlace:
        """See `Store`."""
        if self.layout.compressed:
            offset, size = (int(self.chunks[name][chunk]) for name in ("offset", "nbytes"))
            return ChunkPlace(self.path, offset, size)
        size = (self.layout.chunk_frames or 1) * self.meta.frame_format.nbytes
        return ChunkPlace(self.path, self._first_byte + chunk * size, size)

    def decode(self, data: bytes, out: np.ndarray) -> None:
        """See `Store`."""
        self._codec.decode(data, out)

    def check_rest(self) -> Iterator[str]:
        """See `Store`."""
        with reading(self.path) as file:
            ranges = list(_chunk_ranges(file["frames"], self.layout, self.meta, self.chunks))
            found = _chunk_places(file["frames"])
        for name in found.keys() & self.chunks.keys():
            if not np.array_equal(found[name], self.chunks[name]):
                yield f"{self.path} has chunks at other places than it lists"
        if _rest_checksum(self.path, self._size, ranges) != self._rest_checksum:
            yield f"{self.path} was changed outside its frames"

    def _open_frames(self, cache_bytes: int) -> MappedFrames | ChunkedFrames:
        if self.layout.compressed:
            return compressed_frames(self, cache_bytes)
        num_frames, frame_format = self.meta.clips.num_frames, self.meta.frame_format
        return MappedFrames.of_file(self.path, frame_format, num_frames, offset=self._first_byte)


def open_store(path: Path, *, cache_bytes: int) -> Hdf5Store:
    """See `framewin.stores.open_store`."""
    try:
        return Hdf5Store(path, cache_bytes)
    except FramewinError:
        raise
    # Damaged metadata can make h5py raise nearly anything.
    except Exception as exc:
        raise content.unreadable(path, exc) from exc


def open_damaged(path: Path) -> Hdf5Store:
    """A store to be verified; HDF5 opens no file that is cut short."""
    return open_store(path, cache_bytes=0)


@contextmanager
def reading(path: Path) -> Iterator[Any]:
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


def _read_trailer(path: Path) -> tuple[int, int]:
    """Size of the HDF5 part of a store, and checksum of its bytes outside the frames."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            raise StoreError(f"{path} is empty; expected a store made by framewin convert")
        file.seek(max(0, size - _TRAILER.size))
        data = file.read()
    if len(data) == _TRAILER.size:
        magic, checksum, hdf5_size = _TRAILER.unpack(data)
        if magic == _MAGIC and hdf5_size + _TRAILER.size == size:
            return hdf5_size, checksum
    if not h5py.is_hdf5(path):
        raise StoreError(f"{path} is neither a folder of Zarr nor a file of HDF5")
    with reading(path) as file:
        if content.ATTRIBUTE not in file.attrs:
            raise content.not_ours(path)
    raise StoreError(f"{path} is not whole or was changed; convert it again")


def _first_byte(path: Path, frames: Any, layout: Layout, meta: StoreMeta) -> int:
    """Where raw frames begin, after checking that they lie one behind the other."""
    size = (layout.chunk_frames or 1) * meta.frame_format.nbytes
    num_chunks = -(-meta.clips.num_frames // (layout.chunk_frames or 1))
    found = _chunk_places(frames)
    offsets = found["offset"]
    if (
        len(offsets) != num_chunks
        or (np.diff(offsets) != size).any()
        or (found["nbytes"] != size).any()
    ):
        raise StoreError(
            f"{path} does not have its {num_chunks} chunks of frames one behind the other"
        )
    return int(offsets[0])


def _chunk_places(frames: Any) -> dict[str, np.ndarray]:
    """Offset and size of each chunk that HDF5 has, in the order of frames."""
    found: list[tuple[int, int, int]] = []
    frames.id.chunk_iter(lambda chunk: found.append(
        (chunk.chunk_offset[0], chunk.byte_offset, chunk.size)
    ))  # fmt: skip
    places = np.array(sorted(found), dtype=np.int64).reshape(-1, 3)
    return {"offset": places[:, 1], "nbytes": places[:, 2]}


def _chunk_ranges(
    frames: Any, layout: Layout, meta: StoreMeta, chunks: dict[str, np.ndarray]
) -> Iterator[tuple[int, int]]:
    """Where chunks of frames lie in the file: half-open ranges, increasing."""
    if layout.compressed:
        order = np.argsort(chunks["offset"])
        for offset, size in zip(
            chunks["offset"][order].tolist(), chunks["nbytes"][order].tolist(), strict=True
        ):
            yield offset, offset + size
    else:
        size = (layout.chunk_frames or 1) * meta.frame_format.nbytes
        first = int(_chunk_places(frames)["offset"][0])
        yield first, first + size * len(chunks["crc32c"])


def _rest_checksum(path: Path, size: int, chunk_ranges: list[tuple[int, int]]) -> int:
    """CRC32C of the first `size` bytes of a file that lie in no chunk."""
    checksum = 0
    begin = 0
    for chunk_begin, chunk_end in [*chunk_ranges, (size, size)]:
        for first, end in pieces(chunk_begin - begin, READ_BYTES):
            data = read_place(ChunkPlace(path, begin + first, end - first))
            checksum = google_crc32c.extend(checksum, data)
        begin = chunk_end
    return checksum


def _plain(values: np.ndarray) -> np.ndarray:
    """Values that h5py writes: strings as objects."""
    return values.astype(object) if values.dtype == np.dtypes.StringDType() else values


def column(dataset: Any) -> np.ndarray:
    values: np.ndarray = (dataset.asstr() if h5py.check_string_dtype(dataset.dtype) else dataset)[:]
    return values
