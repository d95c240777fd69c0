"""Writing of Zarr v3 stores; see `framewin.stores.zarr_store` for how they lie on disk."""

from __future__ import annotations

import json
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from framewin.schema import STATISTICS, StoreMeta
from framewin.stores import durable, tables
from framewin.stores.codecs import BLOSC_LZ4_LEVEL, ZarrCodec
from framewin.stores.layout import Layout, ResolvedLayout
from framewin.stores.writer import StoreWriter
from framewin.stores.zarr_store import (
    CRC_BYTES,
    INDEX_ENTRY_BYTES,
    METADATA,
    RECORD,
    shard_index,
    shard_name,
)


def estimate_bytes(meta: StoreMeta, layout: Layout, name_bytes: int) -> int:
    """Bytes the store will take at most, with `name_bytes` of source file names."""
    chunk = layout.resolved(meta.frame_format, meta.clips.num_frames).chunk_frames
    num_chunks = -(-meta.clips.num_frames // chunk)
    frames = num_chunks * (chunk * meta.frame_format.nbytes + INDEX_ENTRY_BYTES) + CRC_BYTES
    per_chunk = 4 if not layout.compressed else 4 + 8 + 8 + chunk * meta.frame_format.nbytes // 100
    per_frame = 8 + 8 + 4 + 4 + 8 * len(STATISTICS)
    metadata = 2**16
    return (
        frames + per_chunk * num_chunks + name_bytes + per_frame * meta.clips.num_frames + metadata
    )


class Writer(StoreWriter):
    """Builds a store at a new path; the caller renames it when it is whole."""

    group: Any = None

    def _codec(self) -> ZarrCodec:
        return ZarrCodec(self.layout, self.meta.frame_format)

    def write_metadata(self) -> None:
        """See `StoreWriter`."""
        tables.add_pieces(self.pieces, self.source_files)
        self._create_frames()
        self._write_coordinates()
        columns = tables.tables(self.meta) | self.late_tables
        for table, values in columns.items():
            self._create_table(table, values)
        import zarr

        with warnings.catch_warnings():
            # Consolidated metadata is an extension of Zarr v3; xarray warns where it is missing.
            warnings.filterwarnings("ignore", message="Consolidated metadata")
            zarr.consolidate_metadata(self.site.store)

    def finish(self) -> None:
        """See `StoreWriter`."""
        root = self.site.store
        self._finish_files()
        for table, columns in self.late_tables.items():
            for name, values in columns.items():
                self.group[table][name][:] = values
        settings = tables.finished(self.meta, self.layout, self.chunks, self.statistics)
        metadata = json.loads((root / METADATA).read_text())
        metadata["attributes"][tables.ATTRIBUTE] = settings
        (root / METADATA).write_text(json.dumps(metadata, indent=1))
        tables.add_statistics(self.pieces, self.statistics)
        fields = {"files": _list_files(root)}
        packed = tables.packed(0, fields, settings, self.meta, self.chunks, self.pieces)
        (root / RECORD).write_bytes(packed)

    def _finish_files(self) -> None:
        """End each shard by its index, and move it into the store."""
        for shard, (path, end) in enumerate(self.frame_files()):
            with closing(durable.DataFile(path)) as file:
                file.write_at(shard_index(self.layout, self.chunks, self.meta, shard), end)
            durable.move(path, self.site.store / shard_name(shard))

    def _create_frames(self) -> None:
        # Not needed for reading, and slow to import.
        import zarr

        num_frames, frame_format = self.meta.clips.num_frames, self.meta.frame_format
        shard_frames = self.shard_chunks * self.chunk_frames
        self.group = zarr.create_group(
            store=_local_store(self.site.store),
            attributes={tables.ATTRIBUTE: tables.attributes(self.meta, self.layout)},
        )
        self.group.create_array(
            "frames",
            shape=(num_frames, *frame_format.shape),
            chunks=(self.chunk_frames, *frame_format.shape),
            shards=(shard_frames, *frame_format.shape),
            dtype=frame_format.dtype,
            compressors=_compressors(self.layout, frame_format.dtype),
            filters=None,
            fill_value=0,
            dimension_names=tables.DIMENSIONS,
            attributes=tables.frame_attributes(self.meta),
        )

    def _write_coordinates(self) -> None:
        num_frames = self.meta.clips.num_frames
        arrays = {
            name: self.group.create_array(
                name,
                shape=(num_frames,),
                chunks=(tables.coordinate_chunk(num_frames),),
                dtype=dtype,
                dimension_names=("time",),
            )
            for name, dtype in tables.coordinate_types(self.meta).items()
        }
        for name, pixels, attributes in tables.pixel_coordinates(self.meta):
            self.group.create_array(
                name, data=pixels, dimension_names=(name,), attributes=dict(attributes)
            )
        if tables.TIME in arrays:
            arrays[tables.TIME].attrs.update(tables.time_attributes(self.meta))
        for begin, end, values in tables.coordinates(self.meta, self.source_files):
            for name, array in arrays.items():
                array[begin:end] = values[name]

    def _create_table(self, table: str, columns: dict[str, np.ndarray]) -> None:
        group = self.group.create_group(table)
        for name, values in columns.items():
            group.create_array(name, data=values, dimension_names=(table,))


def _local_store(root: Path) -> Any:
    """A folder that zarr-python writes to, also where the file system has no hard links."""
    from zarr.storage import LocalStore

    class Linkless(LocalStore):
        async def set_if_not_exists(self, key: str, value: Any) -> None:
            # Nobody else writes there.
            if not await self.exists(key):
                await self.set(key, value)

    return Linkless(root)


def _compressors(layout: ResolvedLayout, dtype: str) -> list[Any] | None:
    """The codecs by which zarr-python reads what `ZarrCodec` writes."""
    from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec

    if not layout.compressed:
        return None
    codec: Any
    if layout.compression == "zstd":
        codec = ZstdCodec(level=layout.level or 0, checksum=False)
    elif layout.compression == "gzip":
        codec = GzipCodec(level=layout.level or 0)
    else:
        item_bytes = np.dtype(dtype).itemsize
        codec = BloscCodec(
            typesize=item_bytes,
            cname="lz4",
            clevel=BLOSC_LZ4_LEVEL,
            shuffle="shuffle" if item_bytes > 1 else "noshuffle",
        )
    return [codec, Crc32cCodec()]


def _list_files(root: Path) -> dict[str, list[int | None]]:
    """Every file of a store but its record: size, and crc32c but for shards of frames."""
    found: dict[str, list[int | None]] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_file():
            # The chunks of frames have checksums of their own.
            is_shard = name.startswith("frames/c/")
            checksum = None if is_shard else google_crc32c.value(path.read_bytes())
            found[name] = [path.stat().st_size, checksum]
    return found
