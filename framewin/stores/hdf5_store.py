"""HDF5 stores, which h5py, netCDF4 and xarray (engine h5netcdf) open as they are.

Raw frames are a chunked dataset whose chunks are allocated when it is created, one behind the
other, each a whole number of frames from byte 0 of the file. So the file can be mapped as rows
of one frame each, and filled by many threads at once. Compressed frames are compressed in
threads and handed to HDF5 as finished chunks.

Behind what HDF5 knows of, the file ends with its record, which HDF5 ignores. It has the checksum
of every byte that is neither in it nor in a chunk of frames.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from framewin.errors import FramewinError, NotOursError, NotWholeError, StoreError
from framewin.remote import Location, RemotePath
from framewin.schema import Int64Array
from framewin.stores import record, tables
from framewin.stores.chunk_io import (
    ChunkPlace,
    chunked_frames,
    once_more,
    range_crc32c,
    read_place,
    size_of,
)
from framewin.stores.chunked_frames import ChunkedFrames
from framewin.stores.codecs import Hdf5Codec
from framewin.stores.mapped_frames import MappedFrames

READ_BYTES = 2**24

_SIGNATURE = b"\x89HDF\r\n\x1a\n"


class Hdf5Store:
    """A store, opened for reading from its record."""

    def __init__(self, path: Location, cache_bytes: int) -> None:
        self.path = path
        self._record = _read_record(path)
        self.meta, self.layout, self.chunks = tables.read(path, self._record)
        self.identity: str = self._record.fields["attributes"]["identity"]
        self._ranges = [(begin, end) for begin, end in self._record.fields["chunk_ranges"]]
        tables.whole_numbers(path, [*itertools.chain.from_iterable(self._ranges)])
        if self.layout.compressed:
            self._ranges = compressed_ranges(self.chunks)
        self._check_ranges()
        self._codec = Hdf5Codec(self.layout)
        self._cache_bytes = cache_bytes

    @cached_property
    def frames(self) -> MappedFrames | ChunkedFrames:
        """All frames."""
        if self.layout.compressed or isinstance(self.path, RemotePath):
            return chunked_frames(self, self._cache_bytes)
        num_frames, frame_format = self.meta.clips.num_frames, self.meta.frame_format
        first_byte = self._ranges[0][0]
        return MappedFrames.of_file(self.path, frame_format, num_frames, offset=first_byte)

    @property
    def files(self) -> dict[str, tuple[int, int | None]]:
        """See `Store`."""
        return {"": (size_of(self.path), None)}

    def statistics(self) -> dict[str, np.ndarray] | None:
        """See `Store`."""
        return tables.read_statistics(self._record, self.meta)

    def source_files(self, rows: Int64Array) -> list[str]:
        """See `Store`."""
        return self._record.texts(tables.SOURCE_FILE, rows)

    def place(self, chunk: int) -> ChunkPlace:
        """See `Store`."""
        if self.layout.compressed:
            offset, size = (int(self.chunks[name][chunk]) for name in ("offset", "nbytes"))
            return ChunkPlace(self.path, offset, size)
        size = self.layout.chunk_frames * self.meta.frame_format.nbytes
        return ChunkPlace(self.path, self._ranges[0][0] + chunk * size, size)

    def decode(self, data: bytes, out: np.ndarray) -> None:
        """See `Store`."""
        self._codec.decode(data, out)

    def check_rest(self, workers: int) -> Iterator[str]:
        """See `Store`."""
        expected = self._record.fields["rest_crc32c"]

        def right() -> bool | None:
            found = rest_checksum(self.path, self._record.begin, self._ranges)
            return True if found == expected else None

        if once_more(self.path, right) is None:
            yield f"{self.path} was changed outside its frames"
        yield from self._record.check()

    def _check_ranges(self) -> None:
        """Refuse chunks that lie outside the file or in one another."""
        bounds = [0, *itertools.chain.from_iterable(self._ranges), self._record.begin]
        size = sum(end - begin for begin, end in self._ranges)
        if sorted(bounds) != bounds or (
            not self.layout.compressed and size < self.meta.frame_bytes
        ):
            raise StoreError(f"{self.path} has chunks outside of the file; convert it again")


def open_store(path: Location, *, cache_bytes: int) -> Hdf5Store:
    """See `framewin.stores.open_store`."""
    try:
        return Hdf5Store(path, cache_bytes)
    except FramewinError:
        raise
    # Damaged metadata can make h5py raise nearly anything.
    except Exception as exc:
        raise tables.unreadable(path, exc) from exc


def open_damaged(path: Location) -> Hdf5Store:
    """A store to be verified; HDF5 opens no file that is cut short."""
    return open_store(path, cache_bytes=0)


def compressed_ranges(chunks: dict[str, np.ndarray]) -> list[tuple[int, int]]:
    """Where compressed chunks lie in the file: half-open ranges, increasing."""
    order = np.argsort(chunks["offset"])
    begins = chunks["offset"][order]
    ends = begins + chunks["nbytes"][order]
    return list(zip(begins.tolist(), ends.tolist(), strict=True))


def _read_record(path: Location) -> record.Record:
    """The record at the end of a store."""
    if size_of(path) == 0:
        raise StoreError(f"{path} is empty; expected a store made by framewin convert")
    try:
        return record.read(path)
    except NotWholeError:
        raise _not_whole(path) from None


def _not_whole(path: Location) -> StoreError:
    """The error for a file without a record that is right."""
    if read_place(ChunkPlace(path, 0, len(_SIGNATURE))) != _SIGNATURE:
        return NotOursError(f"{path} is neither a folder of Zarr nor a file of HDF5")
    if record.ends_with_name(path):
        return StoreError(f"{path} is damaged or cut short; convert it again")
    return NotOursError(
        f"{path} was not made by framewin convert, or is cut short; name the array with the "
        'frames, as in FrameWindowDataset(path, array="data"), or convert it again'
    )


def rest_checksum(path: Location, size: int, chunk_ranges: list[tuple[int, int]]) -> int:
    """CRC32C of the first `size` bytes of a file that lie in no chunk."""
    checksum = 0
    begin = 0
    for chunk_begin, chunk_end in [*chunk_ranges, (size, size)]:
        checksum = range_crc32c(path, begin, chunk_begin, checksum)
        begin = chunk_end
    return checksum
