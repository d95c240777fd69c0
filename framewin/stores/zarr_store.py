"""Raw Zarr v3 stores: one shard that holds all frames in order, so that it can be mapped.

A store is a group that xarray opens as it is:

    frames        (time, y, x, channel)   one shard file; chunks of a few frames, uncompressed
    clip          (time)                  name of the frame's clip
    frame_number  (time)                  the frame's true number
    time          (time)                  when it was taken, where names say so
    source_file   (time)                  the frame's file below the source folder
    clips/        name, start_row                  one entry per clip
    segments/     start_row, first_number          one entry per run without a gap

The shard file is the frames from byte 0 in C order, then an index with offset and length of
each chunk as little-endian uint64, then the index's crc32c. A last chunk that is not full is
padded with zeros, which no reader sees.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import zarr

import framewin
from framewin.errors import FormatVersionError, FramewinError, StoreError
from framewin.schema import FORMAT_VERSION, ClipTable, FrameFormat, Int64Array, StoreMeta
from framewin.stores import durable
from framewin.stores.mapped import MappedFrames

CHUNK_BYTES = 2**20
COORDINATE_CHUNK = 2**16
COORDINATES = ("clip", "frame_number", "source_file")
DIMENSIONS = ("time", "y", "x", "channel")
TIME_UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds"}
SHARD = Path("frames", "c", "0", "0", "0", "0")

_INDEX_DTYPE = np.dtype("<u8")
_INDEX_ENTRY_BYTES = 16
_CRC_BYTES = 4


def chunk_frames(frame_format: FrameFormat, num_frames: int) -> int:
    """Frames of a chunk: about a mebibyte, at least one frame, at most all."""
    return max(1, min(num_frames, CHUNK_BYTES // frame_format.nbytes))


def estimate_bytes(meta: StoreMeta, name_bytes: int) -> int:
    """Bytes the store will take at most, with `name_bytes` of source file names."""
    chunk = chunk_frames(meta.frame_format, meta.clips.num_frames)
    num_chunks = -(-meta.clips.num_frames // chunk)
    frames = num_chunks * (chunk * meta.frame_format.nbytes + _INDEX_ENTRY_BYTES) + _CRC_BYTES
    per_frame = 8 + 4 + 4 + (8 if meta.clips.time_unit else 0)
    metadata = 2**16
    return frames + name_bytes + per_frame * meta.clips.num_frames + metadata


class Writer:
    """Builds a store at a new path; the caller renames it when it is whole."""

    def __init__(
        self, root: Path, meta: StoreMeta, source_files: Sequence[tuple[str, Sequence[str]]]
    ) -> None:
        """Create the frame array, pre-sized.

        Args:
            root: Where to build it; nothing is there yet.
            meta: What the store will hold.
            source_files: Per clip, its folder below the source and the names of its frames.
        """
        if sys.byteorder != "little":
            raise StoreError("stores can only be written on little-endian machines")
        self.root = root
        self.meta = meta
        self.source_files = source_files
        num_frames, frame_format = meta.clips.num_frames, meta.frame_format
        self.chunk_frames = chunk_frames(frame_format, num_frames)
        self.num_chunks = -(-num_frames // self.chunk_frames)
        rows = self.num_chunks * self.chunk_frames
        self.group: Any = zarr.create_group(store=root, attributes={"framewin": _attributes(meta)})
        self.group.create_array(
            "frames",
            shape=(num_frames, *frame_format.shape),
            chunks=(self.chunk_frames, *frame_format.shape),
            shards=(rows, *frame_format.shape),
            dtype=frame_format.dtype,
            compressors=None,
            filters=None,
            fill_value=0,
            dimension_names=DIMENSIONS,
            attributes={"coordinates": " ".join(COORDINATES)},
        )
        self.index_offset = rows * frame_format.nbytes
        self.shard = durable.SizedFile(root / SHARD, self.index_offset)

    def write_frames(self, first_row: int, frames: np.ndarray) -> None:
        """Write (n, H, W, C) frames to rows [first_row, first_row + n); any thread, any order."""
        offset = first_row * self.meta.frame_format.nbytes
        self.shard.write_at(frames.data, offset)

    def write_metadata(self) -> None:
        """Write the coordinates and tables; may run beside `write_frames`."""
        self._write_coordinates()
        self._write_tables()
        with warnings.catch_warnings():
            # Consolidated metadata is an extension of Zarr v3; xarray warns where it is missing.
            warnings.filterwarnings("ignore", message="Consolidated metadata")
            zarr.consolidate_metadata(self.root)

    def finish(self) -> None:
        """Append the shard's index once all frames and the metadata are written."""
        index = _shard_index(self.num_chunks, self.chunk_frames * self.meta.frame_format.nbytes)
        checksum = google_crc32c.value(index).to_bytes(_CRC_BYTES, "little")
        self.shard.write_at(index + checksum, self.index_offset)
        self.shard.wait()

    def close(self) -> None:
        """Release the shard file; also after a failure."""
        self.shard.close()

    def _write_coordinates(self) -> None:
        clips = self.meta.clips
        clip_names = np.array(clips.names, dtype=np.dtypes.StringDType())
        clip = self._coordinate("clip", "string")
        number = self._coordinate("frame_number", "int64")
        time = self._time_coordinate(clips.time_unit) if clips.time_unit else None
        for begin in range(0, clips.num_frames, COORDINATE_CHUNK):
            rows = np.arange(begin, min(begin + COORDINATE_CHUNK, clips.num_frames))
            clip[begin : rows[-1] + 1] = clip_names[clips.clips_of(rows)]
            number[begin : rows[-1] + 1] = clips.frame_numbers(rows)
            if time is not None:
                time[begin : rows[-1] + 1] = clips.frame_numbers(rows)
        files = self._coordinate("source_file", "string")
        pending: list[str] = []
        written = 0
        for folder, names in self.source_files:
            pending += [f"{folder}/{name}" if folder else name for name in names]
            while len(pending) >= COORDINATE_CHUNK:
                _write_strings(files, written, pending[:COORDINATE_CHUNK])
                written += COORDINATE_CHUNK
                del pending[:COORDINATE_CHUNK]
        if pending:
            _write_strings(files, written, pending)

    def _coordinate(self, name: str, dtype: str) -> Any:
        num_frames = self.meta.clips.num_frames
        return self.group.create_array(
            name,
            shape=(num_frames,),
            chunks=(min(num_frames, COORDINATE_CHUNK),),
            dtype=dtype,
            dimension_names=("time",),
        )

    def _time_coordinate(self, unit: str) -> Any:
        time = self._coordinate("time", "int64")
        units = f"{TIME_UNIT_NAMES[unit]} since 1970-01-01"
        time.attrs.update({"units": units, "calendar": "standard"})
        return time

    def _write_tables(self) -> None:
        clips = self.meta.clips
        tables: dict[str, dict[str, np.ndarray]] = {
            "clips": {
                "name": np.array(clips.names, dtype=np.dtypes.StringDType()),
                "start_row": clips.clip_starts,
            },
            "segments": {
                "start_row": clips.segment_starts,
                "first_number": clips.first_numbers,
            },
        }
        for table, columns in tables.items():
            group = self.group.create_group(table)
            for name, values in columns.items():
                group.create_array(name, data=values, dimension_names=(table,))


class ZarrStore:
    """A raw store, opened for reading."""

    def __init__(self, path: Path, group: Any, meta: StoreMeta) -> None:
        self.path = path
        self.meta = meta
        self._group = group
        self.frames = MappedFrames(path / SHARD, meta.clips.num_frames, meta.frame_format)

    def source_files(self, rows: Int64Array) -> list[str]:
        """Path below the source folder of the file that each row came from."""
        first, end = int(rows.min()), int(rows.max()) + 1
        files = self._group["source_file"][first:end]
        return [str(files[row - first]) for row in rows]


def open_store(path: Path) -> ZarrStore:
    """Open a raw store, after checking that it is whole.

    Raises:
        StoreError: Not a framewin store, or its frames are not all there.
        FormatVersionError: Written by a newer framewin.
    """
    try:
        group: Any = zarr.open_group(path, mode="r")
        meta = _read_meta(path, group)
        _check_shard(path, group["frames"], meta)
    except FramewinError:
        raise
    # Damaged metadata can make zarr raise nearly anything.
    except Exception as exc:
        reason = f"{type(exc).__name__}: {exc}".splitlines()[0]
        raise StoreError(
            f"{path} is not a store that framewin can read ({reason}); convert it again"
        ) from exc
    return ZarrStore(path, group, meta)


def _attributes(meta: StoreMeta) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "written_by": f"framewin {framewin.__version__}",
        "layout": "raw",
        "step": meta.clips.step,
        "time_unit": meta.clips.time_unit,
        "conversion": dict(meta.conversion),
    }


def _read_meta(path: Path, group: Any) -> StoreMeta:
    attributes = group.attrs.get("framewin")
    if not isinstance(attributes, dict):
        raise StoreError(f"{path} is a Zarr group but was not made by framewin convert")
    if attributes["format_version"] > FORMAT_VERSION:
        raise FormatVersionError(
            f"{path} has format version {attributes['format_version']}, written by "
            f"{attributes['written_by']}; this framewin reads up to {FORMAT_VERSION}, update it"
        )
    frames = group["frames"]
    num_frames, height, width, channels = frames.shape
    clips, segments = group["clips"], group["segments"]
    return StoreMeta(
        FrameFormat(height, width, channels, frames.dtype.name),
        ClipTable(
            names=tuple(str(name) for name in clips["name"][:]),
            clip_starts=clips["start_row"][:],
            segment_starts=segments["start_row"][:],
            first_numbers=segments["first_number"][:],
            num_frames=num_frames,
            step=int(attributes["step"]),
            time_unit=attributes.get("time_unit"),
        ),
        attributes.get("conversion", {}),
    )


def _check_shard(path: Path, frames: Any, meta: StoreMeta) -> None:
    """Refuse a shard whose chunks are not all there, one behind the other from byte 0."""
    chunk = frames.chunks[0]
    if (
        frames.shards is None
        or frames.shards[0] < frames.shape[0]
        or frames.chunks[1:] != (meta.frame_format.shape)
    ):
        raise StoreError(f"{path} does not keep its frames in one raw shard; convert it again")
    num_chunks = -(-meta.clips.num_frames // chunk)
    chunk_bytes = chunk * meta.frame_format.nbytes
    index_offset = num_chunks * chunk_bytes
    expected = index_offset + num_chunks * _INDEX_ENTRY_BYTES + _CRC_BYTES
    shard = path / SHARD
    found = shard.stat().st_size if shard.exists() else 0
    if found != expected:
        raise StoreError(
            f"{shard} has {found} bytes, expected {expected}; the store is damaged, "
            "convert it again"
        )
    with shard.open("rb") as file:
        file.seek(index_offset)
        tail = file.read()
    index, checksum = tail[:-_CRC_BYTES], tail[-_CRC_BYTES:]
    if index != _shard_index(num_chunks, chunk_bytes):
        raise StoreError(f"{shard} has chunks that are missing or moved; convert it again")
    if google_crc32c.value(index).to_bytes(_CRC_BYTES, "little") != checksum:
        raise StoreError(f"{shard} has a damaged chunk index; convert it again")


def _shard_index(num_chunks: int, chunk_bytes: int) -> bytes:
    """Offset and length of every chunk of a shard that holds them one behind the other."""
    index = np.empty((num_chunks, 2), dtype=_INDEX_DTYPE)
    index[:, 0] = np.arange(num_chunks) * chunk_bytes
    index[:, 1] = chunk_bytes
    return index.tobytes()


def _write_strings(array: Any, first_row: int, values: list[str]) -> None:
    strings = np.array(values, dtype=np.dtypes.StringDType())
    array[first_row : first_row + len(values)] = strings
