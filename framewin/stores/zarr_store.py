"""Zarr v3 stores, which zarr-python, tensorstore and xarray open as they are.

Raw frames are one array with a single shard: the shard file is the frames from byte 0 in C
order, then an index with offset and length of each chunk as little-endian uint64, then the
index's crc32c. So it can be mapped, and filled by many threads at once. A last chunk that is not
full is padded with zeros, which no reader sees.

Compressed frames lie in shards of about 64 MiB of pixels; each chunk is followed by its crc32c.

Beside the arrays lies the store's record, which other readers do not look at. It lists every other
file with its size and crc32c, so that `verify` finds any changed byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import google_crc32c
import numpy as np

from framewin.errors import DeniedObjectError, NotOursError, StoreError
from framewin.remote import Location, RemotePath
from framewin.schema import StoreMeta
from framewin.stores import record, tables
from framewin.stores.chunk_io import (
    ChunkPlace,
    once_more,
    read_place,
    read_right,
    size_of,
)
from framewin.stores.codecs import ZarrCodec
from framewin.stores.layout import ResolvedLayout, shard_chunks

METADATA = "zarr.json"
RECORD = "framewin.record"

INDEX_ENTRY_BYTES = 16
CRC_BYTES = 4
# Files that would make the folder a group of format 2 as well.
_FORMAT_2_FILES = (".zgroup", ".zattrs", ".zarray", ".zmetadata")


class Files:
    """The files of a store; see `framewin.stores.store.FormatFiles`."""

    first_byte = 0
    trailer_bytes = CRC_BYTES

    def __init__(
        self,
        path: Location,
        found: record.Record,
        meta: StoreMeta,
        layout: ResolvedLayout,
        chunks: dict[str, np.ndarray],
    ) -> None:
        """Look at no file yet."""
        self.path = path
        self.meta, self.layout, self.chunks = meta, layout, chunks
        self.codec = ZarrCodec(layout, meta.frame_format)
        self.shard_chunks = shard_chunks(layout, meta)
        self._record = found
        self._files: dict[str, list[int | None]] = found.fields["files"]
        self._num_shards = -(-len(chunks["crc32c"]) // self.shard_chunks)

    @property
    def sizes(self) -> dict[str, tuple[int, int | None]]:
        """See `Store.files`."""
        listed = {name: (size or 0, crc32c) for name, (size, crc32c) in self._files.items()}
        return {RECORD: (size_of(self._record.path), None), **listed}

    def shard(self, number: int) -> Location:
        """See `FormatFiles`."""
        return self.path / shard_name(number)

    def check(self, *, sizes: bool) -> None:
        """See `FormatFiles`."""
        self._check_names()
        tables.whole_numbers(
            self.path, [n for sums in self._files.values() for n in sums if n is not None]
        )
        if sizes and not isinstance(self.path, RemotePath):
            # A request for each file; of remote ones every chunk is checked when it is read.
            self._check_sizes()
        if sizes:
            self._check_shards()

    def damage(self, workers: int) -> Iterator[str]:
        """See `FormatFiles`."""
        yield from _strangers(self.path, self._files)
        shards = {shard_name(shard): shard for shard in range(self._num_shards)}

        def check(name: str) -> tuple[str, str]:
            path = self.path / name
            try:
                changed = _changed(path, *self._files[name]) if name in self._files else ""
                index_is_right = name not in shards or self._index_is_right(shards[name])
            except DeniedObjectError:
                return f"{path} is missing, or access to it is denied", ""
            return changed, "" if index_is_right else f"{path} has a damaged index of its chunks"

        # Each file once, since of an object its end comes with its size.
        with ThreadPoolExecutor(workers) as pool:
            found = list(pool.map(check, dict.fromkeys([*self._files, *shards])))
        yield from (changed for changed, _ in found if changed)
        yield from self._record.check()
        yield from (index for _, index in found if index)

    def _index_is_right(self, shard: int) -> bool:
        path = self.path / shard_name(shard)
        if not path.is_file():
            return False
        expected = shard_index(self.layout, self.chunks, self.meta, shard)
        offset = max(0, size_of(path) - len(expected))
        place = ChunkPlace(path, offset, len(expected))
        return once_more(path, lambda: read_place(place) == expected or None) is not None

    def _check_names(self) -> None:
        """Refuse a store that reaches outside itself."""
        places = [Path(name) for name in self._files]
        for place in places:
            if ".." in place.parts or place.is_absolute():
                raise StoreError(f"{self.path / place} lies outside of the store")
        for place in {place for name in places for place in (name, *name.parents)} - {Path()}:
            if (self.path / place).is_symlink():
                raise StoreError(
                    f"{self.path / place} is a link; a store must not reach outside itself"
                )

    def _check_sizes(self) -> None:
        """Refuse a store of which a file is missing or of another size."""
        for name, (size, _) in self._files.items():
            path = self.path / name
            found = size_of(path) if path.is_file() else 0
            if found != size:
                raise StoreError(
                    f"{path} has {found} bytes, expected {size}; the store is damaged, "
                    "convert it again"
                )

    def _check_shards(self) -> None:
        """Refuse shards that are too short for their chunks: they could not be mapped."""
        index_bytes = self.shard_chunks * INDEX_ENTRY_BYTES + CRC_BYTES
        for shard in range(self._num_shards):
            path = self.shard(shard)
            size = self._files.get(shard_name(shard), [0])[0] or 0
            if self._end_of_chunks(shard) + index_bytes != size:
                raise StoreError(f"{path} has chunks outside of the file; convert it again")
        if not self.layout.compressed and not self._index_is_right(0):
            raise StoreError(
                f"{self.path / shard_name(0)} has chunks that are missing or moved; convert it "
                "again"
            )

    def _end_of_chunks(self, shard: int) -> int:
        """Where the index of a shard begins; its chunks stand one behind the other."""
        if not self.layout.compressed:
            chunk_bytes = self.layout.chunk_frames * self.meta.frame_format.nbytes
            return self.shard_chunks * chunk_bytes
        part = slice(shard * self.shard_chunks, (shard + 1) * self.shard_chunks)
        offsets, sizes = self.chunks["offset"][part], self.chunks["nbytes"][part] + CRC_BYTES
        ends = np.cumsum(sizes)
        if (sizes <= CRC_BYTES).any() or (offsets != ends - sizes).any():
            return -1
        return int(ends[-1])


def read_record(path: Location) -> record.Record:
    """The record of a store, or the reason why there is none."""
    for name in _FORMAT_2_FILES:
        # Of a remote one, others are not asked what they see.
        if not isinstance(path, RemotePath) and (path / name).exists():
            raise NotOursError(
                f"{path / name} is of Zarr format 2, framewin's stores are of format 3; name the "
                'array with the frames, as in open_frames(path, array="data")'
            )
    file = path / RECORD
    if file.is_symlink():
        raise StoreError(f"{file} is a link; a store must not reach outside itself")
    if file.is_file():
        return record.read(file)
    if not (path / METADATA).is_file():
        raise StoreError(f"{path} is not a store: it holds neither {RECORD} nor {METADATA}")
    settings = json.loads((path / METADATA).read_bytes()).get("attributes", {})
    tables.check_version(path, settings.get(tables.ATTRIBUTE))
    raise StoreError(f"{file} is missing; convert the frames again")


def shard_name(shard: int) -> str:
    """Path of a shard of the frames below the store."""
    return f"frames/c/{shard}/0/0/0"


def shard_index(
    layout: ResolvedLayout, chunks: dict[str, np.ndarray], meta: StoreMeta, shard: int
) -> bytes:
    """What ends a shard: offset and length of every chunk, all ones for one behind the last
    frame; then the checksum of that."""
    size = shard_chunks(layout, meta)
    index = np.full((size, 2), -1, dtype="<i8")
    if layout.compressed:
        offsets = chunks["offset"][shard * size : (shard + 1) * size]
        index[: len(offsets), 0] = offsets
        index[: len(offsets), 1] = chunks["nbytes"][shard * size : (shard + 1) * size] + CRC_BYTES
    else:
        chunk_bytes = layout.chunk_frames * meta.frame_format.nbytes
        index[:, 0] = np.arange(size) * chunk_bytes
        index[:, 1] = chunk_bytes
    data = index.tobytes()
    checksum: bytes = google_crc32c.value(data).to_bytes(CRC_BYTES, "little")
    return data + checksum


def _strangers(root: Location, listed: dict[str, list[int | None]]) -> Iterator[str]:
    # Object stores are not listed: some cannot be.
    if isinstance(root, Path):
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root).as_posix()
            if not path.is_dir() and name not in (RECORD, *listed):
                yield f"{path} does not belong to the store"


def _changed(file: Location, size: int | None, checksum: int | None) -> str:
    """What is wrong with a file, in words; nothing if all is well."""
    if not file.is_file():
        return f"{file} is missing"
    found = size_of(file)
    if found != size:
        return f"{file} has {found} bytes, expected {size}"
    if checksum is None or read_right(ChunkPlace(file, 0, found), checksum) is not None:
        return ""
    return f"{file} was changed"
