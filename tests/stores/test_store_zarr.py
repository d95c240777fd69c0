"""Zarr stores: the contract, what makes them mappable, and what is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from framewin import FormatVersionError, StoreError, verify
from framewin.schema import FrameFormat
from framewin.stores import open_store, tables
from framewin.stores.layout import Layout, ResolvedLayout
from framewin.stores.zarr_store import RECORD, shard_name
from tests.conftest import MakeClips, import_or_skip
from tests.helpers.store_contract import (
    CLIPS,
    COMPRESSIONS,
    StoreContract,
    expected_frames,
    flip,
    forge,
)

SHARD = shard_name(0)


class TestZarr(StoreContract):
    """The contract, read by zarr-python."""

    suffix = ".zarr"

    def read_frames(self, store: Path) -> np.ndarray:
        return zarr.open_group(store, mode="r")["frames"][:]

    def open_xarray(self, store: Path) -> Any:
        return import_or_skip("xarray").open_zarr(store)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_tensorstore_sees_the_frames(make_store: MakeClips, compression: str) -> None:
    """Codecs and shards are of the standard, not of one library."""
    tensorstore = import_or_skip("tensorstore")
    converted = {"compression": compression, "chunk_frames": 2}
    store = make_store(CLIPS, dtype="uint16", converted=converted)
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(store / "frames")}}
    found = tensorstore.open(spec).result().read().result()
    assert np.array_equal(found, expected_frames((4, 6, 1), "uint16"))


def test_the_shard_is_the_frames_from_byte_0(make_store: MakeClips) -> None:
    """What makes mapping possible: raw frames first, one behind the other."""
    store = make_store(CLIPS)
    expected = expected_frames((4, 6, 1), "uint8").tobytes()
    assert (store / SHARD).read_bytes()[: len(expected)] == expected


def test_compressed_frames_lie_in_few_shards(
    make_store: MakeClips, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new shard file begins after so many pixels, not with every chunk."""
    monkeypatch.setattr("framewin.stores.layout.SHARD_BYTES", 4 * 24)
    store = make_store({"a": range(11)}, converted={"compression": "zstd", "chunk_frames": 2})
    shards = sorted(path for path in (store / "frames" / "c").rglob("*") if path.is_file())
    assert [str(path.relative_to(store)) for path in shards] == [shard_name(n) for n in range(3)]
    assert np.array_equal(
        zarr.open_group(store, mode="r")["frames"][:], open_store(store).frames.take(np.arange(11))
    )
    assert verify(store).damage == []


def test_coordinates_lie_in_few_files(
    make_store: MakeClips, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a store of 10**8 frames had 4600 files, which opening it looks at."""
    assert tables.coordinate_chunk(100) == 100
    assert tables.coordinate_chunk(4_000_000) == 2**16
    assert tables.coordinate_chunk(10**8 + 1) == 1_562_501
    monkeypatch.setattr(tables, "COORDINATE_CHUNK", 4)
    monkeypatch.setattr(tables, "MOST_COORDINATE_CHUNKS", 3)
    store = make_store({"a": range(40), "b": range(3, 10)})
    for name in ("clip", "frame_number", "source_file"):
        assert len(list((store / name / "c").iterdir())) == 3
    numbers = zarr.open_group(store, mode="r")["frame_number"][:]
    assert numbers.tolist() == [*range(40), *range(3, 10)]
    assert not verify(store, full=True).damage


def test_chunks_are_about_a_mebibyte() -> None:
    """Small frames share a chunk, a large frame has one of its own; compressed ones are small."""
    small, large = FrameFormat(64, 64, 1, "uint8"), FrameFormat(2000, 2000, 3, "uint8")
    assert Layout().resolved(small, 10**6).chunk_frames == 256
    assert Layout().resolved(small, 40).chunk_frames == 40
    assert Layout().resolved(large, 40).chunk_frames == 1
    assert Layout("zstd").resolved(small, 10**6) == ResolvedLayout("zstd", 3, 16)
    assert Layout("gzip", 9, 7).resolved(large, 10**6) == ResolvedLayout("gzip", 9, 7)


def edit_settings(store: Path, change: Callable[[dict], None]) -> None:
    forge(store, lambda record: change(record["attributes"]))


def like_version_2(store: Path) -> None:
    """A store as it was before there were records."""
    (store / RECORD).unlink()
    metadata = json.loads((store / "zarr.json").read_text())
    metadata["attributes"]["framewin"]["format_version"] = 2
    (store / "zarr.json").write_text(json.dumps(metadata))


DAMAGE = {
    "a short shard": (
        lambda store: os.truncate(store / SHARD, 100),
        StoreError,
        r"c/0/0/0/0 has 100 bytes, expected \d+; the store is damaged, convert it again",
    ),
    "no shard": (
        lambda store: (store / SHARD).unlink(),
        StoreError,
        r"c/0/0/0/0 has 0 bytes, expected",
    ),
    "a missing chunk": (
        lambda store: overwrite(store / SHARD, -20, b"\xff" * 16),
        StoreError,
        "has chunks that are missing or moved; convert it again",
    ),
    "a damaged index": (
        lambda store: flip(store / SHARD, (store / SHARD).stat().st_size - 1),
        StoreError,
        "has chunks that are missing or moved; convert it again",
    ),
    "a newer version": (
        lambda store: edit_settings(store, lambda found: found.update(format_version=99)),
        FormatVersionError,
        "has format version 99, written by framewin .*; this framewin reads up to 3, update it",
    ),
    "an older version": (
        like_version_2,
        FormatVersionError,
        "has format version 2, .*; this framewin reads version 3, convert the frames again",
    ),
    "another step": (
        lambda store: edit_settings(store, lambda found: found.update(step=2)),
        StoreError,
        "has tables or attributes that were changed after it was written; convert it again",
    ),
    "an unknown codec": (
        lambda store: edit_settings(store, lambda found: found["layout"].update(compression="x")),
        StoreError,
        "is not a store that framewin can read .*compression must be one of none, lz4, zstd, gzip",
    ),
    "no table of segments": (
        lambda store: shutil.rmtree(store / "segments" / "start_row" / "c"),
        StoreError,
        r"segments/start_row/c/0 has 0 bytes, expected \d+; the store is damaged",
    ),
    "garbled metadata": (
        lambda store: (store / "zarr.json").write_text("{"),
        StoreError,
        r"zarr\.json has 1 bytes, expected \d+; the store is damaged, convert it again",
    ),
    "no record": (
        lambda store: (store / RECORD).unlink(),
        StoreError,
        r"framewin\.record is missing; convert the frames again",
    ),
    "a damaged record": (
        lambda store: flip(store / RECORD, (store / RECORD).stat().st_size - 60),
        StoreError,
        r"framewin\.record is damaged or cut short; convert it again",
    ),
    "neither": (
        lambda store: [(store / name).unlink() for name in (RECORD, "zarr.json")],
        StoreError,
        r"is not a store: it holds neither framewin\.record nor zarr\.json",
    ),
    "metadata of format 2 as well": (
        lambda store: (store / ".zgroup").write_text('{"zarr_format": 2}'),
        StoreError,
        r"\.zgroup is of Zarr format 2, framewin's stores are of format 3",
    ),
    "another group": (
        lambda store: (shutil.rmtree(store), zarr.create_group(store=store)),
        StoreError,
        r'was not made by framewin convert; name the array .*array="data"',
    ),
}


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset, os.SEEK_END)
        file.write(data)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_store_is_refused(make_store: MakeClips, damage: str) -> None:
    """A store that is not whole never opens, and the message names the file."""
    store = make_store(CLIPS)
    act, error, message = DAMAGE[damage]
    act(store)
    with pytest.raises(error, match=message):
        open_store(store)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_verify_names_every_kind_of_damage(make_store: MakeClips, compression: str) -> None:
    """Lost, cut and added files, and the frames that went with them."""
    converted = {"compression": compression, "chunk_frames": 2}
    cut = make_store(CLIPS, name="cut", converted=converted)
    os.truncate(cut / SHARD, 30 if compression == "zstd" else 49)
    first = 0 if compression == "zstd" else 2
    lines = verify(cut).damage
    assert lines[0].startswith(f"frames {first} to 6 are damaged (cam2 ")
    assert f"{cut / SHARD} has {(cut / SHARD).stat().st_size} bytes, expected" in lines[1]
    lost = make_store(CLIPS, name="lost", converted=converted)
    (lost / SHARD).unlink()
    assert verify(lost).damage[:2] == [
        "frames 0 to 6 are damaged (cam2 1 to cam10 1)",
        f"{lost / SHARD} is missing",
    ]
    added = make_store(CLIPS, name="added", converted=converted)
    (added / "frames" / "notes.txt").write_text("mine")
    assert verify(added).damage == [
        f"{added / 'frames' / 'notes.txt'} does not belong to the store"
    ]


def test_nothing_there(tmp_path: Path) -> None:
    """A missing store, and a file that is none."""
    with pytest.raises(StoreError, match=r"none\.zarr does not exist; expected a store made by"):
        open_store(tmp_path / "none.zarr")
    (tmp_path / "clips.xyz").write_text("text of some length that is no store")
    message = "clips.xyz is neither a folder of Zarr nor a file of HDF5"
    with pytest.raises(StoreError, match=re.escape(message)):
        open_store(tmp_path / "clips.xyz")
    (tmp_path / "empty.h5").touch()
    with pytest.raises(StoreError, match=re.escape("empty.h5 is empty; expected a store")):
        open_store(tmp_path / "empty.h5")
