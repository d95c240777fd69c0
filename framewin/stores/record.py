"""What reading a store takes, in one piece that framewin alone reads.

A store is opened from its record, not through the library of its format: it is quick, the same in
every format, and nothing that a stranger wrote or a disk changed reaches those libraries, which
hang on some flipped bits and allocate what a file claims to hold. In Zarr the record is a file
of its own, in HDF5 it stands at the end, behind what HDF5 knows of.

    pieces        columns with a value per frame, some thousand rows a piece, compressed
    fields        JSON: attributes, shape, names of clips, ...
    columns       the tables' numbers, one column behind the other
    end           crc32c of fields and columns, their lengths, where the record begins, a name

Only the pieces that are asked for are read; their checksums are among the columns.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import google_crc32c
import numpy as np

from framewin.errors import NotWholeError, StoreError
from framewin.remote import REQUEST_BYTES, Location
from framewin.schema import Int64Array
from framewin.stores.chunk_io import (
    ChunkPlace,
    once_more,
    read_place,
    read_right,
    size_of,
    still_there,
)

PIECE_ROWS = 2**12
MAX_PIECE_BYTES = 2**27
COLUMN_KINDS = "iu"
"""Kinds of dtypes that columns may have: integers."""

_END = struct.Struct("<IQQQ8s")
_MAGIC = b"framewin"
# Per piece; where they lie follows, because they stand one behind the other.
_PIECE_BYTES, _PIECE_CRC32C = "nbytes", "crc32c"
_LEVEL = 6


class Pieces:
    """Columns with a text or number for each frame."""

    def __init__(self) -> None:
        self._data: dict[str, list[bytes]] = {}

    def add_texts(self, name: str, values: Iterable[str]) -> None:
        """Add all texts of a column, in the order of rows; none may hold a NUL."""
        texts = iter(values)
        found = self._data.setdefault(name, [])
        while piece := list(islice(texts, PIECE_ROWS)):
            found.append(zlib.compress("\0".join(piece).encode(), _LEVEL))

    def add_numbers(self, name: str, values: np.ndarray) -> None:
        """Add all values of a column of float64, in the order of rows."""
        parts = (values[row : row + PIECE_ROWS] for row in range(0, len(values), PIECE_ROWS))
        # Random digits do not shrink.
        self._data[name] = [zlib.compress(part.astype("<f8").tobytes(), 0) for part in parts]

    def columns(self) -> dict[str, np.ndarray]:
        """Sizes and checksums, as columns of the record."""
        found: dict[str, np.ndarray] = {}
        for name, pieces in self._data.items():
            sums = [google_crc32c.value(piece) for piece in pieces]
            found[f"{name}/{_PIECE_BYTES}"] = np.array([len(piece) for piece in pieces], np.int64)
            found[f"{name}/{_PIECE_CRC32C}"] = np.array(sums, np.uint32)
        return found

    def __bytes__(self) -> bytes:
        return b"".join(piece for pieces in self._data.values() for piece in pieces)


@dataclass(frozen=True, slots=True)
class Record:
    """A record that was read; its checksum was right."""

    path: Location
    """The file that it stands in."""
    begin: int
    """Its first byte there."""
    fields: dict[str, Any]
    columns: dict[str, np.ndarray]
    _known_bounds: dict[str, list[int]] = field(default_factory=dict)

    def texts(self, name: str, rows: Int64Array) -> list[str]:
        """The texts of a column that has one for each frame.

        Raises:
            StoreError: They are damaged.
        """
        rows = np.asarray(rows)
        numbers = np.unique(rows // PIECE_ROWS).tolist()
        try:
            read = zip(numbers, self._pieces(name, numbers), strict=True)
            pieces = {
                n: self._inflated(name, data, MAX_PIECE_BYTES).decode().split("\0")
                for n, data in read
            }
            return [pieces[row // PIECE_ROWS][row % PIECE_ROWS] for row in rows.tolist()]
        except (IndexError, UnicodeDecodeError):
            raise StoreError(f"{self.path} lacks some of {name}; convert it again") from None

    def numbers(self, name: str) -> np.ndarray:
        """All values of a column that has a float64 for each frame.

        Raises:
            StoreError: They are damaged.
        """
        found = self._pieces(name, range(len(self._sums(name))))
        data = b"".join(self._inflated(name, piece, 8 * PIECE_ROWS) for piece in found)
        return np.frombuffer(data, "<f8", len(data) // 8)

    def check(self) -> Iterator[str]:
        """Check the pieces; yields a line for each column that is damaged."""
        for name in self.fields["pieces"]:
            found = self._pieces(name, range(len(self._sums(name))))
            if any(piece is None for piece in found):
                yield f"{self.path} has damaged values of {name}"

    def _pieces(self, name: str, numbers: Sequence[int]) -> Iterator[bytes | None]:
        """Pieces of a column, in increasing order, neighbours read at once; None for one that is
        damaged."""
        sums, bounds = self._sums(name), self._bounds(name)
        for first, end in spans(numbers, bounds):
            begin = bounds[first]
            with still_there(self.path):
                data = read_place(ChunkPlace(self.path, begin, bounds[end] - begin))
            for number in range(first, end):
                piece = data[bounds[number] - begin : bounds[number + 1] - begin]
                crc32c = int(sums[number])
                if google_crc32c.value(piece) == crc32c:
                    yield piece
                    continue
                size = bounds[number + 1] - bounds[number]
                yield read_right(ChunkPlace(self.path, bounds[number], size), crc32c)

    def _inflated(self, name: str, data: bytes | None, most_bytes: int) -> bytes:
        if data is None:
            raise StoreError(f"{self.path} has damaged values of {name}; convert it again")
        inflate = zlib.decompressobj()
        try:
            values = inflate.decompress(data, most_bytes)
        except zlib.error:
            values = b""
        if not inflate.eof:
            raise StoreError(f"{self.path} has values of {name} that cannot be; convert it again")
        return values

    def _sums(self, name: str) -> np.ndarray:
        if name not in self.fields["pieces"]:
            raise StoreError(f"{self.path} lacks its {name}; convert it again")
        return self.columns[f"{name}/{_PIECE_CRC32C}"]

    def _bounds(self, name: str) -> list[int]:
        """First byte of each piece of a column, and the byte behind the last."""
        if name in self._known_bounds:
            return self._known_bounds[name]
        names = self.fields["pieces"]
        before = [self.columns[f"{other}/{_PIECE_BYTES}"] for other in names[: names.index(name)]]
        first = self.begin + sum(int(sizes.sum()) for sizes in before)
        ends = np.cumsum(self.columns[f"{name}/{_PIECE_BYTES}"])
        # Kept, for adding up all pieces takes longer than reading the names of one window.
        self._known_bounds[name] = [first, *(first + ends).tolist()]
        return self._known_bounds[name]


def spans(numbers: Sequence[int], bounds: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Half-open ranges of pieces that are read at once.

    Args:
        numbers: Of the pieces, increasing.
        bounds: First byte of each piece there is, and the byte behind the last.
    """
    first = end = -1
    for number in numbers:
        if number == end and bounds[number + 1] - bounds[first] <= REQUEST_BYTES:
            end += 1
            continue
        if end > first:
            yield first, end
        first, end = number, number + 1
    if end > first:
        yield first, end


def pack(
    begin: int, fields: Mapping[str, Any], columns: Mapping[str, np.ndarray], pieces: Pieces
) -> bytes:
    """A record that will begin at a byte of its file.

    Args:
        begin: That byte.
        fields: What is no number, as JSON.
        columns: Of integers, one-dimensional.
        pieces: Columns with a value per frame.
    """
    sizes = pieces.columns()
    columns = {**columns, **sizes}
    described = {name: [values.dtype.str, len(values)] for name, values in columns.items()}
    names = [name.removesuffix(f"/{_PIECE_BYTES}") for name in sizes if name.endswith(_PIECE_BYTES)]
    text = json.dumps({**fields, "columns": described, "pieces": names}).encode()
    numbers = b"".join(values.tobytes() for values in columns.values())
    checksum = google_crc32c.value(text + numbers)
    end = _END.pack(checksum, len(text), len(numbers), begin, _MAGIC)
    return bytes(pieces) + text + numbers + end


def read(path: Location) -> Record:
    """The record at the end of a file.

    Raises:
        NotWholeError: There is none, or it is damaged.
        OSError: The file cannot be read.
    """
    found = once_more(path, lambda: _read_checked(path))
    if found is None:
        raise NotWholeError(f"{path} is damaged or cut short; convert it again")
    begin, first, text_bytes, data = found
    fields = json.loads(data[:text_bytes])
    columns = _columns(path, fields["columns"], data, text_bytes)
    record = Record(path, begin, fields, columns)
    if begin + _checked_sizes(record) != first:
        raise NotWholeError(f"{path} is damaged or cut short; convert it again")
    return record


def _read_checked(path: Location) -> tuple[int, int, int, bytes] | None:
    """Where a record begins and where its fields do, their length, and fields and columns; None
    where they are not what was written."""
    size = size_of(path)
    end = read_place(ChunkPlace(path, max(0, size - _END.size), _END.size))
    if len(end) != _END.size:
        return None
    checksum, text_bytes, number_bytes, begin, magic = _END.unpack(end)
    first = size - _END.size - number_bytes - text_bytes
    if magic != _MAGIC or not 0 <= begin <= first:
        return None
    data = read_place(ChunkPlace(path, first, text_bytes + number_bytes))
    return (begin, first, text_bytes, data) if google_crc32c.value(data) == checksum else None


def _checked_sizes(record: Record) -> int:
    """Bytes of all pieces, of which there must be as many as the frames need."""
    total = 0
    # Records of older format versions have none.
    for name in record.fields.get("pieces", ()):
        sizes, sums = (record.columns[f"{name}/{key}"] for key in (_PIECE_BYTES, _PIECE_CRC32C))
        wanted = -(-record.fields["shape"][0] // PIECE_ROWS)
        if len(sizes) != wanted or len(sums) != wanted or (sizes < 0).any():
            raise StoreError(f"{record.path} has {len(sizes)} pieces of {name}, not {wanted}")
        total += int(sizes.sum())
    return total


def ends_with_name(path: Location) -> bool:
    """Whether a file ends as a record does, damaged or not."""
    return read_place(ChunkPlace(path, max(0, size_of(path) - len(_MAGIC)), 8)) == _MAGIC


def _columns(
    path: Location, described: Mapping[str, Any], data: bytes, offset: int
) -> dict[str, np.ndarray]:
    columns: dict[str, np.ndarray] = {}
    for name, (text, length) in described.items():
        dtype = np.dtype(text)
        if dtype.kind not in COLUMN_KINDS or not 0 <= length <= len(data):
            raise StoreError(f"{path} has a column {name!r} of {text} that cannot be")
        columns[name] = np.frombuffer(data, dtype, length, offset)
        offset += columns[name].nbytes
    return columns
