"""HDF5 stores: the contract, what makes them mappable, and what is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framewin import MissingDependencyError, StoreError, convert
from framewin.schema import ClipTable, FrameFormat, StoreMeta
from framewin.stores import durable, open_store
from framewin.stores.hdf5_writer import Writer
from framewin.stores.layout import Layout
from tests.conftest import MakeClips, import_or_skip
from tests.helpers.store_contract import CLIPS, StoreContract, change, expected_frames


class TestHdf5(StoreContract):
    """The contract, read by h5py."""

    suffix = ".h5"

    @pytest.fixture(autouse=True)
    def plugin(self) -> None:
        """The filters that HDF5 itself does not bring."""
        import_or_skip("hdf5plugin")

    def read_frames(self, store: Path) -> np.ndarray:
        with h5py.File(store) as file:
            return file["frames"][:]

    def open_xarray(self, store: Path) -> Any:
        import_or_skip("h5netcdf")
        return import_or_skip("xarray").open_dataset(store, engine="h5netcdf")


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 300),
    st.tuples(st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 2, 3, 4])),
    st.sampled_from(["uint8", "uint16", "float32"]),
    st.none() | st.integers(1, 40),
)
def test_raw_frames_lie_one_behind_the_other(
    tmp_path_factory: pytest.TempPathFactory, num_frames: int, shape, dtype: str, chunk
) -> None:
    """For any shape: from a whole number of frames, so that the file can be mapped."""
    path = tmp_path_factory.mktemp("raw") / "clips.h5"
    frame_format = FrameFormat(*shape, dtype)
    meta = StoreMeta(frame_format, ClipTable.from_frame_numbers(["a"], [range(num_frames)]))
    files = [("", ["0.png"] * num_frames)]
    frames = np.arange(num_frames * frame_format.nbytes, dtype=np.uint8).view(dtype)
    frames = np.nan_to_num(frames).reshape(num_frames, *shape)
    with durable.building(path) as site:
        site.begin({}, resume=False)
        writer = Writer(site, meta, files, Layout(chunk_frames=chunk))
        writer.write(0, frames)
        writer.write_metadata()
        writer.finish()
        writer.close()
    mapped = open_store(path).frames
    assert mapped.rows is not None
    assert np.array_equal(mapped.rows[mapped.first_row :], frames)
    assert np.array_equal(mapped.array, frames)
    with h5py.File(path) as file:
        assert np.array_equal(file["frames"][:], frames)
        places = [
            file["frames"].id.get_chunk_info(n) for n in range(file["frames"].id.get_num_chunks())
        ]
    offsets = sorted(place.byte_offset for place in places)
    assert offsets[0] % frame_format.nbytes == 0
    assert set(np.diff(offsets)) <= {places[0].size}


def test_the_names_are_those_of_the_zarr_store(make_store: MakeClips) -> None:
    """Same arrays, same dimension names, same identity."""
    import zarr

    by_zarr, by_hdf5 = make_store(CLIPS), make_store(CLIPS, name="other", suffix=".h5")
    group = zarr.open_group(by_zarr, mode="r")
    with h5py.File(by_hdf5) as file:
        for name in ("frames", "clip", "frame_number", "source_file", "clips/name",
                     "clips/start_row", "segments/start_row", "segments/first_number",
                     "chunks/crc32c"):  # fmt: skip
            labels = [scales[0].name.rpartition("/")[2] for scales in file[name].dims]
            assert tuple(labels) == group[name].metadata.dimension_names
            assert file[name].shape == group[name].shape
    assert open_store(by_zarr).identity == open_store(by_hdf5).identity


def test_readers_do_not_disturb_each_other(make_store: MakeClips) -> None:
    """With a handle of the user's in this process, and one in another process."""
    store = make_store(CLIPS, suffix=".h5")
    expected = expected_frames((4, 6, 1), "uint8")
    with h5py.File(store) as file:
        opened = open_store(store)
        assert opened.source_files(np.array([0])) == ["cam2/frame_1.png"]
        assert np.array_equal(opened.frames.take(np.arange(7)), file["frames"][:])
        code = (
            "import sys, numpy, framewin.stores\n"
            "frames = framewin.stores.open_store(sys.argv[1]).frames.take(numpy.arange(7))\n"
            "sys.stdout.buffer.write(frames.tobytes())"
        )
        done = subprocess.run([sys.executable, "-c", code, store], capture_output=True, check=True)
    assert done.stdout == expected.tobytes()


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_missing_plugin_is_named(
    make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    """With the command that installs it; nothing is written."""
    source = make_clips(CLIPS)
    monkeypatch.setitem(sys.modules, "hdf5plugin", None)
    monkeypatch.delitem(sys.modules, "hdf5plugin")
    monkeypatch.setattr("importlib.import_module", missing)
    message = r"needs hdf5plugin; run: pip install 'framewin\[hdf5plugin\]'"
    with pytest.raises(MissingDependencyError, match=message):
        convert(source, tmp_path / "clips.h5", compression=compression)
    assert [path.name for path in tmp_path.iterdir()] == ["frames"]


def missing(name: str) -> None:
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)


DAMAGE = {
    "cut short": (lambda data: data[:-30], "was not made by framewin convert, or is cut short"),
    "cut in half": (lambda data: data[: len(data) // 2], "or is cut short; name the array"),
    "something behind it": (lambda data: data + b"more", "or is cut short"),
    "something in it": (lambda data: data[:99] + b"more" + data[99:], "is damaged or cut short"),
    "a damaged trailer": (lambda data: data[:-60] + b"?" + data[-59:], "is damaged or cut short"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_store_is_refused(make_store: MakeClips, damage: str) -> None:
    """A store that is not whole never opens, and the message names the file."""
    store = make_store(CLIPS, suffix=".h5")
    act, message = DAMAGE[damage]
    change(store, act)
    with pytest.raises(StoreError, match=message):
        open_store(store)


def test_other_files_are_not_taken_for_stores(tmp_path: Path) -> None:
    """An HDF5 file of someone else; the message says how to name its array."""
    with h5py.File(tmp_path / "theirs.h5", "w") as file:
        file["data"] = np.zeros((3, 4, 4), np.uint8)
    message = r"theirs\.h5 was not made by framewin convert, .*name the array .*array=\"data\""
    with pytest.raises(StoreError, match=message):
        open_store(tmp_path / "theirs.h5")


def test_suffix_and_format(make_clips: MakeClips, tmp_path: Path) -> None:
    """The suffix chooses; --format does where the suffix says nothing; they must agree."""
    source = make_clips(CLIPS)
    for name in ("a.h5", "a.hdf5", "a.HDF5"):
        convert(source, tmp_path / name)
        assert h5py.is_hdf5(tmp_path / name)
    convert(source, tmp_path / "plain", format="hdf5")
    assert h5py.is_hdf5(tmp_path / "plain")
    assert len(open_store(tmp_path / "plain").frames.array) == 7
    with pytest.raises(StoreError, match=r"b\.zarr has the suffix of zarr, but the format is hdf5"):
        convert(source, tmp_path / "b.zarr", format="hdf5")
    with pytest.raises(ValueError, match="format must be one of zarr, hdf5, got 'tar'"):
        convert(source, tmp_path / "b", format="tar")
    assert not os.path.lexists(tmp_path / "b")


@pytest.mark.parametrize(
    ("compression", "level", "codec", "settings", "number"),
    [
        ("zstd", 3, "zstd", {"level": 3}, 32015),
        ("lz4", None, "blosc", {"cname": "lz4"}, 32004),
        ("gzip", 5, "gzip", {"level": 5}, h5py.h5z.FILTER_DEFLATE),
    ],
)
def test_codecs_and_their_usual_levels(
    make_store: MakeClips,
    compression: str,
    level: int | None,
    codec: str,
    settings: dict[str, object],
    number: int,
) -> None:
    """Of both formats, by the numbers and names that other programs know them by."""
    import_or_skip("hdf5plugin")
    chosen = {"compression": compression}
    there = json.loads(
        (make_store({"a": range(9)}, converted=chosen) / "frames/zarr.json").read_text()
    )
    [shards] = there["codecs"]
    [found] = [each for each in shards["configuration"]["codecs"] if each["name"] == codec]
    assert settings.items() <= found["configuration"].items()
    with h5py.File(make_store({"a": range(9)}, suffix=".h5", name="b", converted=chosen)) as file:
        recorded = file["frames"].id.get_create_plist()
        assert recorded.get_nfilters() == 1
        code, _, values, _ = recorded.get_filter(0)
    assert (code, values) == (number, () if level is None else (level,))


def test_levels_that_there_are() -> None:
    """Those at both ends are taken, those beyond are not, and lz4 has none."""
    for compression, low, high in (("zstd", 1, 22), ("gzip", 1, 9)):
        for level in (low, high):
            assert Layout(compression, level).level == level
        for level in (low - 1, high + 1):
            message = f"level of {compression} must be in {low}..{high}, got {level}"
            with pytest.raises(ValueError, match=re.escape(message)):
                Layout(compression, level)
    with pytest.raises(ValueError, match="compression lz4 has no level, got 1"):
        Layout("lz4", 1)
