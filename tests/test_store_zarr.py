"""Raw Zarr stores, read back by going round framewin, and refused when not whole."""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from framewin import FormatVersionError, StoreError, convert
from framewin.schema import FrameFormat
from framewin.stores import open_store
from framewin.stores.zarr_store import SHARD, chunk_frames
from tests.conftest import MakeClips, import_or_skip, make_frame, write_frames

CLIPS = {"cam2": [1, 2, 3, 7, 8], "cam10": [0, 1]}


def expected_frames(shape: tuple[int, int, int], dtype: str) -> np.ndarray:
    return np.stack(
        [make_frame(c, n, shape, dtype) for c, ns in enumerate(CLIPS.values()) for n in ns]
    )


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((4, 6, 1), "uint8"), ((3, 5, 3), "uint8"), ((2, 2, 4), "uint16"), ((700, 800, 2), "uint8")],
)
def test_other_readers_see_the_frames(make_store: MakeClips, shape, dtype) -> None:
    """zarr-python, tensorstore and xarray read every pixel and coordinate, without a warning."""
    tensorstore, xarray = import_or_skip("tensorstore"), import_or_skip("xarray")
    store = make_store(CLIPS, shape=shape, dtype=dtype)
    expected = expected_frames(shape, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by_zarr = zarr.open_group(store, mode="r")["frames"][:]
        dataset = xarray.open_zarr(store)
        by_xarray = dataset.frames.to_numpy()
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(store / "frames")}}
        by_tensorstore = tensorstore.open(spec).result().read().result()
    for found in (by_zarr, by_xarray, by_tensorstore, open_store(store).frames.array):
        assert found.dtype == dtype
        assert np.array_equal(found, expected)
    assert dataset.frames.dims == ("time", "y", "x", "channel")
    assert set(dataset.coords) == {"clip", "frame_number", "source_file"}
    assert dataset.frame_number.to_numpy().tolist() == [1, 2, 3, 7, 8, 0, 1]
    assert dataset["clip"].to_numpy().tolist() == ["cam2"] * 5 + ["cam10"] * 2
    assert dataset.source_file.to_numpy()[4:6].tolist() == ["cam2/frame_8.png", "cam10/frame_0.png"]


def test_the_shard_is_the_frames_from_byte_0(make_store: MakeClips) -> None:
    """What makes mapping possible: raw frames first, one behind the other."""
    store = make_store(CLIPS)
    expected = expected_frames((4, 6, 1), "uint8").tobytes()
    assert (store / SHARD).read_bytes()[: len(expected)] == expected


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
    st.tuples(st.integers(1, 3), st.integers(1, 600), st.sampled_from([1, 3, 4])),
    st.sampled_from(["uint8", "uint16"]),
)
def test_packing_then_reading_gives_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], shape, dtype: str
) -> None:
    """For any clip lengths, shapes and dtypes; mapped read == zarr-python's read == pixels."""
    folder = tmp_path_factory.mktemp("pack")
    rng = np.random.default_rng(sum(lengths))
    frames = []
    for clip, length in enumerate(lengths):
        pixels = rng.integers(0, np.iinfo(dtype).max + 1, (length, *shape)).astype(dtype)
        names = {f"{n}.png": frame for n, frame in enumerate(pixels)}
        write_frames(folder / "frames" / f"clip{clip}", names)
        frames.append(pixels)
    convert(folder / "frames", folder / "clips.zarr", workers=2)
    expected = np.concatenate(frames)
    assert np.array_equal(open_store(folder / "clips.zarr").frames.array, expected)
    assert np.array_equal(zarr.open_group(folder / "clips.zarr")["frames"][:], expected)


def test_chunks_are_about_a_mebibyte() -> None:
    """Small frames share a chunk, a large frame has one of its own."""
    assert chunk_frames(FrameFormat(64, 64, 1, "uint8"), 10**6) == 256
    assert chunk_frames(FrameFormat(64, 64, 1, "uint8"), 40) == 40
    assert chunk_frames(FrameFormat(2000, 2000, 3, "uint8"), 40) == 1


def edit_json(path: Path, change: Callable[[dict], None]) -> None:
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def newer(record: dict) -> None:
    for place in (record, record.get("consolidated_metadata", {})):
        if "attributes" in place:
            place["attributes"]["framewin"]["format_version"] = 99


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
        lambda store: write_at(store / SHARD, -20, b"\xff" * 16),
        StoreError,
        "has chunks that are missing or moved; convert it again",
    ),
    "a damaged index": (
        lambda store: flip_last_byte(store / SHARD),
        StoreError,
        "has a damaged chunk index; convert it again",
    ),
    "a newer version": (
        lambda store: edit_json(store / "zarr.json", newer),
        FormatVersionError,
        "has format version 99, written by framewin .*; this framewin reads up to 1, update it",
    ),
    "no table of segments": (
        lambda store: shutil.rmtree(store / "segments"),
        StoreError,
        "is not a store that framewin can read",
    ),
    "garbled metadata": (
        lambda store: (store / "zarr.json").write_text("{"),
        StoreError,
        "is not a store that framewin can read .*; convert it again",
    ),
    "another group": (
        lambda store: (shutil.rmtree(store), zarr.create_group(store=store)),
        StoreError,
        "is a Zarr group but was not made by framewin convert",
    ),
}


def flip_last_byte(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def write_at(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset, 2)
        file.write(data)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_store_is_refused(make_store: MakeClips, damage: str) -> None:
    """A store that is not whole never opens, and the message names the file."""
    store = make_store(CLIPS)
    act, error, message = DAMAGE[damage]
    act(store)
    with pytest.raises(error, match=message):
        open_store(store)


def test_nothing_there(tmp_path: Path) -> None:
    """A missing store, and a name whose format is not known."""
    with pytest.raises(StoreError, match=r"none\.zarr does not exist; expected a store made by"):
        open_store(tmp_path / "none.zarr")
    (tmp_path / "clips.xyz").mkdir()
    message = "clips.xyz does not end in the suffix of a known format; call it clips.zarr"
    with pytest.raises(StoreError, match=re.escape(message)):
        open_store(tmp_path / "clips.xyz")
