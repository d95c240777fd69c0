"""Writing of HDF5 stores; see `framewin.stores.hdf5_store` for how they lie on disk."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from framewin.errors import StoreError
from framewin.optional import require
from framewin.schema import STATISTICS, StoreMeta
from framewin.stores import durable, tables
from framewin.stores.chunk_io import ChunkPlace, read_place
from framewin.stores.chunked_frames import pieces
from framewin.stores.codecs import Hdf5Codec
from framewin.stores.hdf5_store import READ_BYTES, compressed_ranges, rest_checksum
from framewin.stores.layout import PLUGIN_FILTERS, Layout
from framewin.stores.writer import StoreWriter

_HDF5_ERROR = re.compile(r"errno = (\d+), error message = '([^']*)'")
# What the netCDF library calls a dimension that has no values of its own.
_DIMENSION_ONLY = "This is a netCDF dimension but not a netCDF variable."


def estimate_bytes(meta: StoreMeta, layout: Layout, name_bytes: int) -> int:
    """Bytes the store will take at most, with `name_bytes` of source file names."""
    chunk = layout.resolved(meta.frame_format, meta.clips.num_frames).chunk_frames
    num_chunks = -(-meta.clips.num_frames // chunk)
    frames = (num_chunks * chunk + 1) * meta.frame_format.nbytes
    per_chunk = 4 + 16
    if layout.compressed:
        per_chunk += 16 + 24 + chunk * meta.frame_format.nbytes // 100
    # Strings lie on a heap: a reference, a header and padding for each.
    per_frame = 8 + 2 * (16 + 24) + 8 * len(STATISTICS)
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


class Writer(StoreWriter):
    """Builds a store at a new path; the caller renames it when it is whole.

    HDF5's own file is no place for what must survive: it is damaged by any interruption. So
    frames are written to files of their own, and the HDF5 file is made anew by each run. Of raw
    frames its parts around them are copied into their file, compressed ones are copied into it.
    """

    def _begin(self) -> int:
        if self.layout.compression in PLUGIN_FILTERS:
            require("hdf5plugin", extra="hdf5plugin")
        raw = not self.layout.compressed
        self._path = self.site.folder / "around" if raw else self.site.store
        if raw:
            # HDF5 takes it badly if a file may not become as large as it wants.
            room = self.site.folder / "room"
            durable.DataFile(room, self.num_chunks * self.chunk_bytes).close()
            room.unlink()
        self._file = self._create_file()
        self._frames = self._create_frames()
        return self._first_byte() if raw else 0

    def _codec(self) -> Hdf5Codec:
        return Hdf5Codec(self.layout)

    def write_metadata(self) -> None:
        """See `StoreWriter`."""
        tables.add_pieces(self.pieces, self.source_files)
        with _system_errors():
            self._write_dimensions()
            self._write_coordinates()
            for table, columns in (tables.tables(self.meta) | self.late_tables).items():
                self._create_table(table, columns)

    def finish(self) -> None:
        """See `StoreWriter`."""
        with _system_errors():
            if self.layout.compressed:
                self._copy_chunks()
                self.chunks |= _chunk_places(self._frames)
            for table, columns in self.late_tables.items():
                for name, values in columns.items():
                    self._file[table][name][:] = values
            settings = tables.finished(self.meta, self.layout, self.chunks, self.statistics)
            self._file.attrs[tables.ATTRIBUTE] = json.dumps(settings)
            self._file.close()
        if self.layout.compressed:
            packed = self._record(settings, compressed_ranges(self.chunks))
            with self._path.open("ab") as file:
                file.write(packed)
        else:
            [(path, end)] = self.frame_files()
            self._copy_around(path, end, self._record(settings, [(self.offset, end)]))

    def close(self) -> None:
        """See `StoreWriter`."""
        super().close()
        # After an error HDF5 may fail to close it as well; it is made anew by the next run.
        with suppress(OSError, RuntimeError):
            self._file.close()

    def _copy_chunks(self) -> None:
        """Hand the compressed chunks to HDF5."""
        for number in range(self.num_chunks):
            data = read_place(self.place(number))
            self._frames.id.write_direct_chunk((number * self.chunk_frames, 0, 0, 0), data)

    def _record(self, settings: dict[str, Any], ranges: list[tuple[int, int]]) -> bytes:
        """The record behind the file that HDF5 has written."""
        tables.add_statistics(self.pieces, self.statistics)
        size = self._path.stat().st_size
        fields = {
            # Of compressed chunks, the table of chunks says where they are.
            "chunk_ranges": [] if self.layout.compressed else ranges,
            "rest_crc32c": rest_checksum(self._path, size, ranges),
        }
        return tables.packed(size, fields, settings, self.meta, self.chunks, self.pieces)

    def _copy_around(self, path: Path, frames_end: int, packed: bytes) -> None:
        """Write what HDF5 has before and behind the frames into their file."""
        size = self._path.stat().st_size
        with closing(durable.DataFile(path)) as file:
            for begin, end in ((0, self.offset), (frames_end, size)):
                for first, last in pieces(end - begin, READ_BYTES):
                    data = read_place(ChunkPlace(self._path, begin + first, last - first))
                    file.write_at(data, begin + first)
            file.write_at(packed, size)
        durable.move(path, self.site.store)

    def _first_byte(self) -> int:
        """Where raw frames begin, after checking that they lie one behind the other."""
        found = _chunk_places(self._frames)
        offsets, sizes = found["offset"], found["nbytes"]
        if (
            len(offsets) != self.num_chunks
            or (np.diff(offsets) != self.chunk_bytes).any()
            or (sizes != self.chunk_bytes).any()
        ):
            raise StoreError(
                f"{self._path} does not have its {self.num_chunks} chunks of frames one behind "
                "the other"
            )
        return int(offsets[0])

    def _create_file(self) -> Any:
        # Objects as large as a frame, so its chunks too, begin a whole number of frames from
        # byte 0 of the file.
        aligned = 1 if self.layout.compressed else self.meta.frame_format.nbytes
        access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
        access.set_libver_bounds(h5py.h5f.LIBVER_LATEST, h5py.h5f.LIBVER_LATEST)
        access.set_alignment(aligned, aligned)
        creation = _timeless(h5py.h5p.FILE_CREATE)
        name = os.fsencode(self._path)
        return h5py.File(h5py.h5f.create(name, h5py.h5f.ACC_EXCL, creation, access))

    def _create_frames(self) -> Any:
        meta, layout = self.meta, self.layout
        creation = _timeless(h5py.h5p.DATASET_CREATE)
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
        frames.attrs.update(tables.frame_attributes(meta))
        return frames

    def _write_dimensions(self) -> None:
        pixels = {name: rest for name, *rest in tables.pixel_coordinates(self.meta)}
        for axis, (name, size) in enumerate(
            zip(tables.DIMENSIONS, self._frames.shape, strict=True)
        ):
            if name == tables.TIME and self.meta.clips.time_unit:
                scale = self._file.create_dataset(name, shape=(size,), dtype="int64")
                scale.attrs.update(tables.time_attributes(self.meta))
                scale.make_scale(name)
            elif name in pixels:
                scale = self._file.create_dataset(name, data=pixels[name][0])
                scale.attrs.update(pixels[name][1])
                scale.make_scale(name)
            else:
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
            for name, dtype in tables.COORDINATES.items()
        }
        for array in arrays.values():
            array.dims[0].attach_scale(self._file[tables.TIME])
        if self.meta.clips.time_unit:
            arrays[tables.TIME] = self._file[tables.TIME]
        for begin, end, values in tables.coordinates(self.meta, self.source_files):
            for name, array in arrays.items():
                array[begin:end] = _plain(values[name])

    def _create_table(self, table: str, columns: dict[str, np.ndarray]) -> None:
        creation = _timeless(h5py.h5p.GROUP_CREATE)
        group = h5py.Group(h5py.h5g.create(self._file.id, table.encode(), gcpl=creation))
        [size] = {len(values) for values in columns.values()}
        scale = group.create_dataset(table, shape=(size,), dtype=">f4")
        scale.make_scale(f"{_DIMENSION_ONLY}{size:10d}")
        for name, values in columns.items():
            column = group.create_dataset(name, data=_plain(values))
            column.dims[0].attach_scale(scale)


def _chunk_places(frames: Any) -> dict[str, np.ndarray]:
    """Offset and size of each chunk that HDF5 has, in the order of frames."""
    found: list[tuple[int, int, int]] = []
    frames.id.chunk_iter(lambda chunk: found.append(
        (chunk.chunk_offset[0], chunk.byte_offset, chunk.size)
    ))  # fmt: skip
    places = np.array(sorted(found), dtype=np.int64).reshape(-1, 3)
    return {"offset": places[:, 1], "nbytes": places[:, 2]}


@contextmanager
def _system_errors() -> Iterator[None]:
    """HDF5's account of a failed write, many lines long, as the system's error that it was."""
    try:
        yield
    except (OSError, RuntimeError) as exc:
        found = _HDF5_ERROR.search(str(exc))
        if found is None:
            raise
        raise OSError(int(found[1]), found[2]) from exc


def _timeless(kind: Any) -> Any:
    """Properties for creating an object that does not record when, so that equal stores are."""
    properties = h5py.h5p.create(kind)
    properties.set_obj_track_times(False)
    return properties


def _plain(values: np.ndarray) -> np.ndarray:
    """Values that h5py writes: strings as objects."""
    return values.astype(object) if values.dtype == np.dtypes.StringDType() else values
