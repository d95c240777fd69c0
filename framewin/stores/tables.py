"""What stands beside the frames of a store, alike in every format.

    attributes    format version, layout, step, no-data value, identity
    per frame     clip, frame_number, source_file: coordinates along time
    clips/        name, start_row                  one entry per clip
    segments/     start_row, first_number          one entry per run without a gap
    uneven/       frame_number                     of each frame, where a step had a tolerance
    chunks/       crc32c, and of compressed chunks offset and nbytes
    statistics/   mean, motion, nodata             of each frame, where they were asked for

All of it is in the store's record, too, from which it is read; see `framewin.stores.record`.

The identity is a SHA-256 over all of this but the file names. The checksums of the chunks are
in it, so two stores of one identity hold the same bytes of frames, and a table that has changed
is found when the store is opened. Of the statistics it holds the checksum: they are read, and
checked, when they are first used.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import google_crc32c
import numpy as np

import framewin
from framewin.errors import FormatVersionError, NotOursError, StoreError, one_line
from framewin.remote import Location
from framewin.schema import (
    FORMAT_VERSION,
    STATISTICS,
    TIME_UNIT_NAMES,
    ClipTable,
    FrameFormat,
    StoreMeta,
)
from framewin.stores.chunked_frames import pieces
from framewin.stores.layout import Layout, ResolvedLayout
from framewin.stores.record import COLUMN_KINDS, Pieces, Record, pack

ATTRIBUTE = "framewin"
"""Name of the attribute of the root group that holds a store's attributes."""
DIMENSIONS = ("time", "y", "x", "channel")
SOURCE_FILE = "source_file"
COORDINATES = {"clip": "string", "frame_number": "int64", SOURCE_FILE: "string"}
"""Name -> type of what each frame has."""
TIME = "time"
"""Name of one more coordinate, int64, where frame numbers are time stamps."""
COORDINATE_CHUNK = 2**16
MOST_COORDINATE_CHUNKS = 64
"""In Zarr each is a file, which is looked at when the store is opened."""

SourceFiles = Sequence[tuple[str, Sequence[str]]]
"""Per clip, its folder below the source and the names of its frames' files."""
Tables = dict[str, dict[str, np.ndarray]]
"""Table -> column -> values."""

_STRING = np.dtypes.StringDType()
_SURROGATE = re.compile("[\ud800-\udfff]")


def attributes(meta: StoreMeta, layout: ResolvedLayout) -> dict[str, Any]:
    """The attributes of a store but for its identity, as JSON."""
    return {
        "format_version": FORMAT_VERSION,
        "written_by": f"framewin {framewin.__version__}",
        "layout": asdict(layout),
        "step": meta.clips.step,
        "time_unit": meta.clips.time_unit,
        # JSON has no NaN.
        "nodata": attributes_nodata(meta),
        "conversion": dict(meta.conversion),
    }


def attributes_nodata(meta: StoreMeta) -> str | None:
    """The no-data value as the attributes hold it."""
    return None if meta.nodata is None else repr(float(meta.nodata))


def frame_attributes(meta: StoreMeta) -> dict[str, Any]:
    """The attributes of the frame array that xarray understands."""
    found: dict[str, Any] = {"coordinates": " ".join(COORDINATES)}
    found |= {name: value for name, value in meta.packing.items() if name != "axis"}
    # xarray takes NaN for missing by itself.
    if meta.nodata is not None and not math.isnan(meta.nodata):
        found["missing_value"] = np.dtype(meta.frame_format.dtype).type(meta.nodata).item()
    return found


def coordinate_types(meta: StoreMeta) -> dict[str, str]:
    """Name -> type of the coordinates of a store."""
    return COORDINATES | ({TIME: "int64"} if meta.clips.time_unit else {})


def pixel_coordinates(meta: StoreMeta) -> Iterator[tuple[str, np.ndarray, Mapping[str, Any]]]:
    """Name, values and attributes of the coordinates of rows and columns, where there are any."""
    for name, found in meta.coordinates.items():
        yield name, np.array(found["values"], found["dtype"]), found["attributes"]


def time_attributes(meta: StoreMeta) -> dict[str, str]:
    """The attributes by which netCDF and xarray read the coordinate `time`."""
    unit = TIME_UNIT_NAMES[meta.clips.time_unit or "s"]
    return {"units": f"{unit} since 1970-01-01", "calendar": "standard"}


def tables(meta: StoreMeta) -> Tables:
    """The tables of a store but for its chunks."""
    clips = meta.clips
    found: Tables = {
        "clips": {"name": np.array(clips.names, _STRING), "start_row": clips.clip_starts},
        "segments": {"start_row": clips.segment_starts, "first_number": clips.first_numbers},
    }
    if clips.uneven is not None:
        found["uneven"] = {"frame_number": clips.uneven}
    return found


def coordinate_chunk(num_frames: int) -> int:
    """Frames of a chunk of the coordinates."""
    return min(num_frames, max(COORDINATE_CHUNK, -(-num_frames // MOST_COORDINATE_CHUNKS)))


def coordinates(
    meta: StoreMeta, source_files: SourceFiles
) -> Iterator[tuple[int, int, dict[str, np.ndarray]]]:
    """The coordinates in pieces: rows [begin, end) and their values by name."""
    clip_names = np.array(meta.clips.names, _STRING)
    files = paths(source_files)
    for begin, end in pieces(meta.clips.num_frames, coordinate_chunk(meta.clips.num_frames)):
        rows = np.arange(begin, end)
        numbers = meta.clips.frame_numbers(rows)
        values = {
            "clip": clip_names[meta.clips.clips_of(rows)],
            "frame_number": numbers,
            SOURCE_FILE: np.array([next(files) for _ in rows], _STRING),
            TIME: numbers,
        }
        yield begin, end, values


def paths(source_files: SourceFiles) -> Iterator[str]:
    """Path below the source of the file of each frame."""
    for folder, names in source_files:
        for name in names:
            yield f"{folder}/{name}" if folder else name


def add_pieces(pieces: Pieces, source_files: SourceFiles) -> None:
    """The coordinates that cannot be computed from the tables."""
    pieces.add_texts(SOURCE_FILE, paths(source_files))


def packed(
    begin: int,
    fields: Mapping[str, Any],
    settings: Mapping[str, Any],
    meta: StoreMeta,
    chunks: Mapping[str, np.ndarray],
    pieces: Pieces,
) -> bytes:
    """The record of a store.

    Args:
        begin: Byte of its file at which it will begin.
        fields: What only this format has.
        settings: The attributes, with the identity.
        meta: What the store holds.
        chunks: The table of chunks.
        pieces: See `add_pieces`.
    """
    columns = {
        f"{table}/{name}": values
        for table, found in (tables(meta) | {"chunks": dict(chunks)}).items()
        for name, values in found.items()
        if values.dtype.kind in COLUMN_KINDS
    }
    common = {
        "attributes": settings,
        "shape": [meta.clips.num_frames, *meta.frame_format.shape],
        "dtype": meta.frame_format.dtype,
        "clips": meta.clips.names,
    }
    return pack(begin, {**common, **fields}, columns, pieces)


def finished(
    meta: StoreMeta,
    layout: ResolvedLayout,
    chunks: Mapping[str, np.ndarray],
    statistics: Mapping[str, np.ndarray] | None,
) -> dict[str, Any]:
    """The attributes of a store that is whole, as JSON."""
    found = attributes(meta, layout)
    if statistics is not None:
        found["statistics"] = statistics_checksum(statistics)
    found["identity"] = identity(meta, layout, chunks, found)
    return found


def statistics_checksum(statistics: Mapping[str, np.ndarray]) -> int:
    """CRC32C of the table of statistics."""
    checksum = 0
    for name in STATISTICS:
        checksum = google_crc32c.extend(checksum, statistics[name].astype("<f8").tobytes())
    return checksum


def add_statistics(pieces: Pieces, statistics: Mapping[str, np.ndarray] | None) -> None:
    """The statistics of the frames, once they are known."""
    for name, values in (statistics or {}).items():
        pieces.add_numbers(f"statistics/{name}", values)


def read_statistics(record: Record, meta: StoreMeta) -> dict[str, np.ndarray] | None:
    """The table of statistics; None where there is none, or where no data is another value now.

    Args:
        record: Of the store.
        meta: As it is used.

    Raises:
        StoreError: The table is damaged.
    """
    settings = record.fields["attributes"]
    if "statistics" not in settings or settings["nodata"] != attributes_nodata(meta):
        return None
    found = {name: record.numbers(f"statistics/{name}") for name in STATISTICS}
    sizes = {values.shape for values in found.values()}
    whole = sizes == {(meta.clips.num_frames,)}
    if not whole or statistics_checksum(found) != settings["statistics"]:
        raise StoreError(f"{record.path} has other statistics than its frames; convert it again")
    return found


def identity(
    meta: StoreMeta,
    layout: ResolvedLayout,
    chunks: Mapping[str, np.ndarray],
    found: Mapping[str, Any],
) -> str:
    """SHA-256 of all that makes up a store but its file names, hexadecimal.

    Args:
        meta: What the store holds.
        layout: How its frames lie; the checksums depend on it.
        chunks: The table of chunks.
        found: The store's attributes, for the checksum of its statistics.
    """
    settings = attributes(meta, layout)
    del settings["written_by"]
    settings["statistics"] = found.get("statistics")
    shape = (meta.clips.num_frames, *meta.frame_format.shape)
    digest = hashlib.sha256(
        json.dumps([settings, shape, meta.frame_format.dtype], sort_keys=True).encode()
    )
    digest.update(json.dumps(meta.clips.names).encode())
    for column in (
        meta.clips.clip_starts,
        meta.clips.segment_starts,
        meta.clips.first_numbers,
        *(() if meta.clips.uneven is None else (meta.clips.uneven,)),
        *(chunks[name] for name in sorted(chunks)),
    ):
        little = column.dtype.newbyteorder("<")
        digest.update(np.ascontiguousarray(column).astype(little, copy=False).data)
    return digest.hexdigest()


def read(path: Location, record: Record) -> tuple[StoreMeta, ResolvedLayout, dict[str, np.ndarray]]:
    """What a store says of itself: its content, its layout and its table of chunks.

    Args:
        path: Of the store, for errors.
        record: Its record.

    Raises:
        StoreError: A record that contradicts itself.
        FormatVersionError: A store of another format version.
    """
    settings, columns = record.fields["attributes"], record.columns
    check_version(path, settings)
    num_frames, height, width, channels = whole_numbers(path, record.fields["shape"])
    asked = Layout(**settings["layout"])
    nodata = settings["nodata"]
    meta = StoreMeta(
        FrameFormat(height, width, channels, record.fields["dtype"]),
        ClipTable(
            names=_names(path, record.fields["clips"]),
            clip_starts=columns["clips/start_row"],
            segment_starts=columns["segments/start_row"],
            first_numbers=columns["segments/first_number"],
            num_frames=num_frames,
            step=whole_numbers(path, [settings["step"]])[0],
            time_unit=settings["time_unit"],
            uneven=columns.get("uneven/frame_number"),
        ),
        conversion=settings["conversion"],
        nodata=None if nodata is None else float(nodata),
    )
    layout = asked.resolved(meta.frame_format, num_frames)
    if asdict(asked) != asdict(layout) or type(asked.chunk_frames) is not int:
        raise StoreError(f"{path} claims chunks of {asked.chunk_frames} frames; convert it again")
    chunks = {name: columns[f"chunks/{name}"] for name in chunk_columns(layout)}
    num_chunks = layout.num_chunks(num_frames)
    if any(values.shape != (num_chunks,) for values in chunks.values()):
        raise StoreError(f"{path} does not list each of its {num_chunks} chunks; convert it again")
    if identity(meta, layout, chunks, settings) != settings["identity"]:
        raise StoreError(
            f"{path} has tables or attributes that were changed after it was written; "
            "convert it again"
        )
    return meta, layout, chunks


def whole_numbers(path: Location, values: Sequence[Any]) -> Sequence[int]:
    """Numbers of a record that must be integers which a file system and numpy can hold.

    Raises:
        StoreError: One is not.
    """
    for value in values:
        if type(value) is not int or not -(2**63) <= value < 2**63:
            raise StoreError(f"{path} has {value!r} in the place of an integer; convert it again")
    return values


def _names(path: Location, names: Sequence[Any]) -> tuple[str, ...]:
    for name in names:
        if not isinstance(name, str) or (not name.isascii() and _SURROGATE.search(name)):
            raise StoreError(f"{path} has {name!r} in the place of a clip's name; convert it again")
    return tuple(names)


def check_version(path: Location, settings: Any) -> None:
    """Refuse what is not a store of a format version that can be read."""
    if not isinstance(settings, dict):
        raise not_ours(path)
    found = settings["format_version"]
    if found > FORMAT_VERSION:
        raise FormatVersionError(
            f"{path} has format version {found}, written by {settings['written_by']}; this "
            f"framewin reads up to {FORMAT_VERSION}, update it"
        )
    if found < FORMAT_VERSION:
        raise FormatVersionError(
            f"{path} has format version {found}, written by {settings['written_by']}; this "
            f"framewin reads version {FORMAT_VERSION}, convert the frames again"
        )


def not_ours(path: Location) -> NotOursError:
    """The error for a file or folder of a known format that framewin did not write."""
    return NotOursError(
        f"{path} was not made by framewin convert; name the array with the frames, as in "
        'open_frames(path, array="data")'
    )


def unreadable(path: Location, exc: Exception) -> StoreError:
    """The error for a store that its library cannot read."""
    reason = one_line(exc, kind=True)
    return StoreError(f"{path} is not a store that framewin can read ({reason}); convert it again")


def chunk_columns(layout: ResolvedLayout) -> dict[str, str]:
    """Columns of the table of chunks: name -> dtype."""
    found = {"crc32c": "uint32"}
    if layout.compressed:
        # Of the chunk without what surrounds it, in the file that holds it.
        found |= {"offset": "int64", "nbytes": "int64"}
    return found
