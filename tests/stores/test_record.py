"""The record at the end of a store: what was packed comes back, and no claim of a stranger is
believed."""

from __future__ import annotations

import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest

from framewin.errors import NotWholeError, StoreError
from framewin.stores import chunk_io, record
from framewin.stores.chunk_io import ChunkPlace, read_place
from framewin.stores.record import Pieces, pack

ROWS = 4096
"""Values of a piece."""
DAMAGED = "is damaged or cut short; convert it again"


def forged(
    path: Path,
    fields: dict[str, Any],
    numbers: bytes = b"",
    pieces: bytes = b"",
    before: bytes = b"frames",
    **changed: Any,
) -> Path:
    """A file with a record that was put together by hand; its checksum is right."""
    text = json.dumps(fields).encode()
    end = {
        "crc32c": google_crc32c.value(text + numbers),
        "text_bytes": len(text),
        "number_bytes": len(numbers),
        "begin": len(before),
        "magic": b"framewin",
    }
    end |= changed
    last = struct.pack("<IQQQ8s", *end.values())
    path.write_bytes(before + pieces + text + numbers + last)
    return path


def with_pieces(path: Path, pieces: list[bytes], rows: int, **changed: Any) -> Path:
    """A file whose record has one column, `a`, of these pieces."""
    sizes = changed.pop("sizes", [len(piece) for piece in pieces])
    sums = changed.pop("sums", [google_crc32c.value(piece) for piece in pieces])
    fields = {
        "shape": [rows, 1, 1, 1],
        "pieces": ["a"],
        "columns": {"a/nbytes": ["<i8", len(sizes)], "a/crc32c": ["<u4", len(sums)]},
    }
    numbers = struct.pack(f"<{len(sizes)}q{len(sums)}I", *sizes, *sums)
    return forged(path, fields, numbers, b"".join(pieces), **changed)


def test_a_record_made_by_hand_is_read(tmp_path: Path) -> None:
    """Columns of each kind, one after the other, and the fields as they are."""
    columns = {"n": ["<i2", 3], "none": ["<i8", 0], "m": ["<u4", 2], "k": ["|i1", 1]}
    numbers = struct.pack("<3h2Ib", -1, 0, 7, 2**32 - 1, 5, -9)
    path = forged(tmp_path / "a", {"columns": columns, "clips": ["x"]}, numbers)
    found = record.read(path)
    assert {name: values.tolist() for name, values in found.columns.items()} == {
        "n": [-1, 0, 7],
        "none": [],
        "m": [2**32 - 1, 5],
        "k": [-9],
    }
    assert [found.columns[name].dtype.str for name in columns] == ["<i2", "<i8", "<u4", "|i1"]
    assert (found.path, found.begin, found.fields["clips"]) == (path, 6, ["x"])


def test_a_record_is_packed_as_documented(tmp_path: Path) -> None:
    """Pieces, fields, columns and the end follow one another, found by the end alone."""
    pieces = Pieces()
    pieces.add_texts("a", ["one", "two"])
    pieces.add_numbers("b", np.array([0.5]))
    columns = {"n": np.array([3, -4], np.int16)}
    data = pack(11, {"shape": [2], "clips": ["x"]}, columns, pieces)
    crc32c, text_bytes, number_bytes, begin, magic = struct.unpack("<IQQQ8s", data[-36:])
    first = len(data) - 36 - number_bytes - text_bytes
    assert (begin, magic, crc32c) == (11, b"framewin", google_crc32c.value(data[first:-36]))
    fields = json.loads(data[first:][:text_bytes])
    assert fields == {
        "shape": [2],
        "clips": ["x"],
        "columns": {
            "n": ["<i2", 2],
            "a/nbytes": ["<i8", 1],
            "a/crc32c": ["<u4", 1],
            "b/nbytes": ["<i8", 1],
            "b/crc32c": ["<u4", 1],
        },
        "pieces": ["a", "b"],
    }
    n0, n1, size, a_sum, b_size, b_sum = struct.unpack("<2hqIqI", data[-36 - number_bytes : -36])
    text, number = data[:size], data[size : size + b_size]
    assert (n0, n1, size + b_size) == (3, -4, first)
    assert (zlib.decompress(text), zlib.decompress(number)) == (
        b"one\0two",
        struct.pack("<d", 0.5),
    )
    assert (google_crc32c.value(text), google_crc32c.value(number)) == (a_sum, b_sum)


@pytest.mark.parametrize("count", [1, ROWS - 1, ROWS, ROWS + 1, 2 * ROWS, 2 * ROWS + 1])
def test_values_of_every_piece_come_back(tmp_path: Path, count: int) -> None:
    """Texts in any order and more than once, and all numbers, around the bounds of pieces."""
    pieces = Pieces()
    pieces.add_numbers("x", np.arange(count) / 7)
    pieces.add_texts("a", (f"{n}.png" for n in range(count)))
    pieces.add_texts("b", (f"\N{SNOWMAN}{n}" for n in range(count)))
    path = tmp_path / "a"
    path.write_bytes(b"frames" + pack(6, {"shape": [count, 1, 1, 1]}, {}, pieces))
    found = record.read(path)
    assert len(found.columns["a/nbytes"]) == -(-count // ROWS)
    rows = [count - 1, 0, *(n for n in (ROWS - 1, ROWS, 2 * ROWS - 1) if n < count), count - 1]
    assert found.texts("a", np.array(rows)) == [f"{n}.png" for n in rows]
    assert found.texts("b", np.array(rows)) == [f"\N{SNOWMAN}{n}" for n in rows]
    assert np.array_equal(found.numbers("x"), np.arange(count) / 7)
    assert list(found.check()) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"magic": b"framewix"},
        {"crc32c": 1},
        {"begin": 5},
        {"begin": 7},
        {"begin": 2**63},
        {"text_bytes": 2**40},
        {"text_bytes": 2**63},
        {"number_bytes": 2**40},
        {"number_bytes": 2**64 - 1},
    ],
)
def test_an_end_that_cannot_be_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    """Each claim of the last bytes is checked before anything is read by it."""
    path = forged(tmp_path / "a", {"columns": {}}, **changed)
    with pytest.raises(NotWholeError, match=re.escape(f"{path} {DAMAGED}")):
        record.read(path)


def test_a_file_too_short_for_a_record_is_refused(tmp_path: Path) -> None:
    """Whatever it holds; the shortest record is all of its file."""
    path = forged(tmp_path / "a", {"columns": {}}, before=b"")
    assert record.read(path).begin == 0
    for data in (b"", b"framewin", path.read_bytes()[-35:], path.read_bytes()[1:]):
        path.write_bytes(data)
        with pytest.raises(NotWholeError, match=re.escape(DAMAGED)):
            record.read(path)


def test_a_name_at_the_end_is_told(tmp_path: Path) -> None:
    """By the last eight bytes alone."""
    path = tmp_path / "a"
    for data, named in (
        (b"framewin", True),
        (b"xframewin", True),
        (b"framewinx", False),
        (b"ramewin", False),
        (b"", False),
    ):
        path.write_bytes(data)
        assert record.ends_with_name(path) == named


@pytest.mark.parametrize(
    "described", [["<f8", 1], ["<c8", 1], ["|b1", 1], ["<M8[s]", 1], ["|O", 1]]
)
def test_columns_are_integers(tmp_path: Path, described: list[Any]) -> None:
    """No other dtype is made of a stranger's bytes."""
    path = forged(tmp_path / "a", {"columns": {"n": described}}, bytes(8))
    message = f"{path} has a column 'n' of {described[0]} that cannot be"
    with pytest.raises(StoreError, match=re.escape(message)):
        record.read(path)


@pytest.mark.parametrize("length", [-1, -8, 2**62])
def test_columns_have_a_length(tmp_path: Path, length: int) -> None:
    """A negative one would be all that is left, and a great one more than there is."""
    path = forged(tmp_path / "a", {"columns": {"n": ["|i1", length]}}, bytes(8))
    with pytest.raises(StoreError, match=re.escape("has a column 'n' of |i1 that cannot be")):
        record.read(path)


@pytest.mark.parametrize(
    ("rows", "changed"),
    [
        (1, {"sizes": [5, 5]}),
        (1, {"sums": [1, 1]}),
        (ROWS + 1, {}),
        (0, {}),
        (2 * ROWS, {"sizes": [11, -1], "sums": [0, 0]}),
        (2 * ROWS, {"sizes": [-1, 11], "sums": [0, 0]}),
    ],
)
def test_pieces_are_as_many_as_the_frames_need(
    tmp_path: Path, rows: int, changed: dict[str, Any]
) -> None:
    """And none of them has a negative size, whatever all together have."""
    path = with_pieces(tmp_path / "a", [b"0123456789"], rows, **changed)
    count, wanted = len(changed.get("sizes", [0])), -(-rows // ROWS)
    with pytest.raises(
        StoreError, match=re.escape(f"{path} has {count} pieces of a, not {wanted}")
    ):
        record.read(path)


def test_numbers_inflate_to_no_more_than_a_piece_holds(tmp_path: Path) -> None:
    """4096 of 8 bytes; a few bytes more are refused before they are used."""
    fits, bomb = zlib.compress(bytes(8 * ROWS)), zlib.compress(bytes(8 * ROWS + 8))
    assert len(record.read(with_pieces(tmp_path / "a", [fits], ROWS)).numbers("a")) == ROWS
    path = with_pieces(tmp_path / "b", [bomb], ROWS)
    message = f"{path} has values of a that cannot be; convert it again"
    with pytest.raises(StoreError, match=re.escape(message)):
        record.read(path).numbers("a")


def test_texts_inflate_to_no_more_than_128_mib(tmp_path: Path) -> None:
    """A small piece can claim any size."""
    bomb = zlib.compress(bytes(2**27 + 1), 1)
    path = with_pieces(tmp_path / "a", [bomb], ROWS)
    with pytest.raises(StoreError, match="has values of a that cannot be; convert it again"):
        record.read(path).texts("a", np.array([0]))


def test_one_damaged_piece_is_enough(tmp_path: Path) -> None:
    """`check` names the column, and only what needs that piece is refused."""
    pieces = [zlib.compress("\0".join(["x"] * ROWS).encode()), zlib.compress(b"y")]
    path = with_pieces(tmp_path / "a", pieces, ROWS + 1)
    assert list(record.read(path).check()) == []
    whole = path.read_bytes()
    for place, good in ((6, ROWS), (6 + len(pieces[0]), 0)):
        path.write_bytes(whole[:place] + b"?" + whole[place + 1 :])
        found = record.read(path)
        assert list(found.check()) == [f"{path} has damaged values of a"]
        assert found.texts("a", np.array([good])) == ["y" if good else "x"]
        with pytest.raises(StoreError, match=re.escape(f"{path} has damaged values of a; conv")):
            found.texts("a", np.array([ROWS - good]))


def test_values_that_are_not_there(tmp_path: Path) -> None:
    """A column that the record lacks, and a row that its piece lacks, are named."""
    found = record.read(with_pieces(tmp_path / "a", [zlib.compress(b"x\0y")], 3))
    with pytest.raises(StoreError, match=re.escape(f"{found.path} lacks its b; convert it again")):
        found.texts("b", np.array([0]))
    for row in (2, ROWS):
        with pytest.raises(StoreError, match=re.escape(f"{found.path} lacks some of a; convert")):
            found.texts("a", np.array([row]))


def test_neighbours_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the bytes of one request, however many pieces they are."""
    monkeypatch.setattr(record, "REQUEST_BYTES", 100)
    bounds = [7, 57, 107, 108, 109, 409, 410]
    assert list(record.spans([], bounds)) == []
    assert list(record.spans([0, 1, 2, 3, 4, 5], bounds)) == [(0, 2), (2, 4), (4, 5), (5, 6)]
    assert list(record.spans([0, 2, 3, 5], bounds)) == [(0, 1), (2, 4), (5, 6)]
    assert list(record.spans([4], bounds)) == [(4, 5)]


def test_each_stretch_is_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly its bytes; a piece that is wrong at first is asked for once more by itself."""
    pieces = [zlib.compress("\0".join([text] * ROWS).encode()) for text in ("a", "bc", "def", "g")]
    found = record.read(with_pieces(tmp_path / "a", pieces, 4 * ROWS))
    first, last = 6 + len(pieces[0]), 6 + sum(map(len, pieces[:3]))
    stretch = ("stretch", first, sum(map(len, pieces[1:])))
    asked: list[tuple[str, int, int]] = []

    def read(kind: str, place: ChunkPlace, lost: int = 0) -> bytes:
        asked.append((kind, place.offset, place.nbytes))
        data = read_place(place)
        return data[: len(data) - lost]

    monkeypatch.setattr(chunk_io, "read_place", lambda place: read("piece", place))
    for lost, once_more in ((0, []), (1, [("piece", last, len(pieces[3]))])):
        monkeypatch.setattr(record, "read_place", lambda p, n=lost: read("stretch", p, n))
        rows = np.array([3 * ROWS, ROWS, 2 * ROWS])
        assert found.texts("a", rows) == ["g", "bc", "def"]
        assert asked == [stretch, *once_more]
        asked.clear()
