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

import numpy as np

from framewin.errors import NotOursError, NotWholeError, StoreError
from framewin.remote import Location
from framewin.schema import StoreMeta
from framewin.stores import record, tables
from framewin.stores.chunk_io import (
    ChunkPlace,
    once_more,
    range_crc32c,
    read_place,
    size_of,
)
from framewin.stores.codecs import Hdf5Codec
from framewin.stores.layout import ResolvedLayout

READ_BYTES = 2**24

_SIGNATURE = b"\x89HDF\r\n\x1a\n"


class Files:
    """The one file of a store; see `framewin.stores.store.FormatFiles`."""

    trailer_bytes = 0

    def __init__(
        self,
        path: Location,
        found: record.Record,
        meta: StoreMeta,
        layout: ResolvedLayout,
        chunks: dict[str, np.ndarray],
    ) -> None:
        """Take where the chunks lie from the record, or from their table."""
        self.path = path
        self.codec = Hdf5Codec(layout)
        self.shard_chunks = len(chunks["crc32c"])
        self._record = found
        self._raw_bytes = 0 if layout.compressed else meta.frame_bytes
        self._ranges = [(begin, end) for begin, end in found.fields["chunk_ranges"]]
        tables.whole_numbers(path, [*itertools.chain.from_iterable(self._ranges)])
        if layout.compressed:
            self._ranges = compressed_ranges(chunks)
        self.first_byte = self._ranges[0][0] if self._ranges else 0

    @property
    def sizes(self) -> dict[str, tuple[int, int | None]]:
        """See `Store.files`."""
        return {"": (size_of(self.path), None)}

    def shard(self, number: int) -> Location:
        """See `FormatFiles`."""
        return self.path

    def damage(self, workers: int) -> Iterator[str]:
        """See `FormatFiles`."""
        expected = self._record.fields["rest_crc32c"]

        def right() -> bool | None:
            found = rest_checksum(self.path, self._record.begin, self._ranges)
            return True if found == expected else None

        if once_more(self.path, right) is None:
            yield f"{self.path} was changed outside its frames"
        yield from self._record.check()

    def check(self, *, sizes: bool) -> None:
        """Refuse chunks that lie outside the file or in one another, in any case."""
        bounds = [0, *itertools.chain.from_iterable(self._ranges), self._record.begin]
        size = sum(end - begin for begin, end in self._ranges)
        if sorted(bounds) != bounds or size < self._raw_bytes:
            raise StoreError(f"{self.path} has chunks outside of the file; convert it again")


def compressed_ranges(chunks: dict[str, np.ndarray]) -> list[tuple[int, int]]:
    """Where compressed chunks lie in the file: half-open ranges, increasing."""
    order = np.argsort(chunks["offset"])
    begins = chunks["offset"][order]
    ends = begins + chunks["nbytes"][order]
    return list(zip(begins.tolist(), ends.tolist(), strict=True))


def read_record(path: Location) -> record.Record:
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
        'frames, as in open_frames(path, array="data"), or convert it again'
    )


def rest_checksum(path: Location, size: int, chunk_ranges: list[tuple[int, int]]) -> int:
    """CRC32C of the first `size` bytes of a file that lie in no chunk."""
    checksum = 0
    begin = 0
    for chunk_begin, chunk_end in [*chunk_ranges, (size, size)]:
        checksum = range_crc32c(path, begin, chunk_begin, checksum)
        begin = chunk_end
    return checksum
