"""What every format and layout must do; a class per format says how to go round framewin."""

from __future__ import annotations

import json
import os
import re
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framewin import FrameWindowDataset, StoreError, convert, verify
from framewin.arrays.frames import FrameArray
from framewin.frames import open_frames
from framewin.stores import open_store
from framewin.stores import record as records
from framewin.stores.zarr_store import RECORD
from tests.conftest import MakeClips, import_or_skip, make_frame, write_frames

CLIPS = {"cam2": [1, 2, 3, 7, 8], "cam10": [0, 1]}
# Odd, so that all bits of a byte have their turn; `scripts/faults` flips every single one.
BITS_EVERY = int(os.environ.get("FRAMEWIN_FAULTS_BITS_EVERY", "297"))
COMPRESSIONS = ["none", "zstd", "lz4", "gzip"]


def expected_frames(shape: tuple[int, int, int], dtype: str) -> np.ndarray:
    return np.stack(
        [make_frame(c, n, shape, dtype) for c, ns in enumerate(CLIPS.values()) for n in ns]
    )


class StoreContract:
    """Inherited by a test class per format."""

    suffix: str

    def read_frames(self, store: Path) -> np.ndarray:
        """All frames, read by the format's own library."""
        raise NotImplementedError

    def open_xarray(self, store: Path) -> Any:
        """The store as an xarray dataset."""
        raise NotImplementedError

    @pytest.mark.parametrize("compression", COMPRESSIONS)
    @pytest.mark.parametrize(
        ("shape", "dtype"),
        [((4, 6, 1), "uint8"), ((3, 5, 3), "uint8"), ((2, 2, 4), "uint16"), ((70, 80, 2), "uint8")],
    )
    def test_other_readers_see_the_frames(
        self, make_store: MakeClips, shape, dtype, compression: str
    ) -> None:
        """The format's library and xarray read every pixel and coordinate, without a warning."""
        import_or_skip("xarray")
        converted = {"compression": compression, "chunk_frames": 3, "nodata": 5}
        store = make_store(CLIPS, shape=shape, dtype=dtype, suffix=self.suffix, converted=converted)
        expected = expected_frames(shape, dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            by_library = self.read_frames(store)
            dataset = self.open_xarray(store)
        opened = open_store(store)
        by_framewin = opened.frames.take(np.arange(7))
        for found in (by_library, by_framewin):
            assert found.dtype == dtype
            assert np.array_equal(found, expected)
        # xarray makes what is no data NaN.
        by_xarray = dataset.frames.to_numpy()
        assert np.array_equal(np.isnan(by_xarray), expected == 5)
        assert np.array_equal(by_xarray[expected != 5], expected[expected != 5])
        assert dataset.frames.dims == ("time", "y", "x", "channel")
        assert set(dataset.coords) == {"clip", "frame_number", "source_file"}
        assert dataset.frame_number.to_numpy().tolist() == [1, 2, 3, 7, 8, 0, 1]
        assert dataset["clip"].to_numpy().tolist() == ["cam2"] * 5 + ["cam10"] * 2
        files = dataset.source_file.to_numpy()
        assert files[4:6].tolist() == ["cam2/frame_8.png", "cam10/frame_0.png"]
        assert opened.source_files(np.array([5, 4])) == [files[5], files[4]]
        assert opened.meta.nodata == 5
        assert verify(store).damage == []
        dataset.close()

    @settings(
        max_examples=25, deadline=None, suppress_health_check=[HealthCheck.differing_executors]
    )
    @given(
        st.lists(st.integers(1, 9), min_size=1, max_size=3),
        st.tuples(st.integers(1, 3), st.integers(1, 600), st.sampled_from([1, 3, 4])),
        st.sampled_from(["uint8", "uint16"]),
        st.sampled_from(COMPRESSIONS),
        st.none() | st.integers(1, 12),
    )
    def test_packing_then_reading_gives_the_same_bytes(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        lengths: list[int],
        shape,
        dtype: str,
        compression: str,
        chunk_frames: int | None,
    ) -> None:
        """For any clips, shapes, dtypes and chunks; framewin's read == the library's == pixels."""
        folder = tmp_path_factory.mktemp("pack")
        rng = np.random.default_rng(sum(lengths))
        frames = []
        for clip, length in enumerate(lengths):
            # Few values, so that chunks shrink; sometimes all zero, which are frames too.
            pixels = rng.integers(0, rng.choice([1, 4, np.iinfo(dtype).max + 1]), (length, *shape))
            pixels = pixels.astype(dtype)
            names = {f"{n}.png": frame for n, frame in enumerate(pixels)}
            write_frames(folder / "frames" / f"clip{clip}", names)
            frames.append(pixels)
        store = folder / f"clips{self.suffix}"
        convert(
            folder / "frames",
            store,
            compression=compression,
            chunk_frames=chunk_frames,
            workers=2,
        )
        expected = np.concatenate(frames)
        rows = rng.permutation(len(expected))
        assert np.array_equal(open_store(store).frames.take(rows), expected[rows])
        assert np.array_equal(self.read_frames(store), expected)
        assert verify(store).damage == []

    def test_the_same_frames_give_the_same_bytes(
        self, make_clips: MakeClips, tmp_path: Path
    ) -> None:
        """A store is a function of source and settings: not of the time, nor of the workers."""
        source = make_clips({"a": range(90), "b": range(40)}, shape=(50, 60, 3))
        made = []
        for workers in (1, 3):
            folder = tmp_path / f"{workers}"
            folder.mkdir()
            for compression in COMPRESSIONS:
                store = folder / f"{compression}{self.suffix}"
                convert(source, store, compression=compression, workers=workers)
            made.append(_all_bytes(folder))
            if workers == 1:
                time.sleep(1.1)  # HDF5 would record whole seconds
        assert made[0].keys() == made[1].keys()
        assert [name for name in made[0] if made[0][name] != made[1][name]] == []

    @pytest.mark.parametrize("compression", COMPRESSIONS)
    def test_any_flipped_byte_is_found(self, make_store: MakeClips, compression: str) -> None:
        """Every so many-th bit of every file, flipped in turn: verify names what is damaged."""
        store = make_store(CLIPS, suffix=self.suffix, converted={"compression": compression})
        files = [store] if store.is_file() else sorted(store.rglob("*"))
        flipped = 0
        for path in files:
            if not path.is_file():
                continue
            whole = path.read_bytes()
            for bit in range(0, 8 * len(whole), BITS_EVERY):
                changed = bytearray(whole)
                changed[bit // 8] ^= 1 << bit % 8
                path.write_bytes(changed)
                assert _is_refused(store), f"{path} at bit {bit}"
                flipped += 1
            path.write_bytes(whole)
        assert verify(store).damage == []
        print(f"{flipped} injected, {flipped} found, 0 lost")

    @pytest.mark.parametrize("compression", COMPRESSIONS)
    def test_the_levels_of_verify(self, make_store: MakeClips, compression: str) -> None:
        """Quick reads no frame, full reads all that other readers read."""
        converted = {"compression": compression, "chunk_frames": 2}
        store = make_store(CLIPS, suffix=self.suffix, converted=converted)
        done: list[tuple[int, int]] = []
        report = verify(store, full=True, progress=lambda *now: done.append(now))
        assert (report.damage, done[-1], report.frames) == ([], (14, 14), 7)
        quick = verify(store, quick=True)
        assert quick.damage == []
        assert 0 < quick.num_bytes < report.num_bytes
        place = open_store(store).place(0)
        flip(place.path, place.offset + 2)
        assert verify(store, quick=True).damage == []
        assert verify(store, full=True).damage == verify(store).damage != []
        flip(place.path, place.offset + 2)
        with pytest.raises(ValueError, match="quick and full are two ways to verify"):
            verify(store, quick=True, full=True)

    def test_full_reads_every_table(
        self, make_store: MakeClips, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Those of clips, runs, chunks and statistics, and times."""
        converted = {"statistics": True, "compression": "gzip"}
        store = make_store(CLIPS, suffix=self.suffix, converted=converted)
        assert verify(store, full=True).damage == []
        monkeypatch.setattr("framewin.stores.verify._same", lambda *_: False)
        lines = verify(store, full=True).damage
        names = {line.split(" ", 1)[0] for line in lines}
        assert names == {
            "clips/name", "clips/start_row", "segments/start_row", "segments/first_number",
            "chunks/crc32c", "chunks/offset", "chunks/nbytes", "statistics/mean",
            "statistics/motion", "statistics/nodata", "clip", "frame_number", "source_file",
        }  # fmt: skip

    def test_a_lost_file_leaves_nothing_to_count(self, make_store: MakeClips) -> None:
        """The quick check says how many bytes it read: none, if they are gone."""
        store = make_store(CLIPS, suffix=self.suffix, shape=(90, 90, 1))
        files = [path for path in (store, *store.rglob("*")) if path.is_file()]
        whole = sum(path.stat().st_size for path in files)
        assert verify(store, quick=True).num_bytes == whole - 7 * 90 * 90
        assert verify(store).num_bytes == whole
        if store.is_dir():
            (lost := store / "frames/c/0/0/0/0").unlink()
            report = verify(store, quick=True)
            assert report.num_bytes == 0
            assert report.damage[0] == f"{lost} is missing"

    def test_full_compares_with_what_others_read(
        self, make_store: MakeClips, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Right checksums do not help where the library of the format reads something else."""
        store = make_store(CLIPS, suffix=self.suffix)
        whole = FrameArray.read

        def changed(self: FrameArray, begin: int, end: int) -> np.ndarray:
            return whole(self, begin, end) + np.uint8(1)

        monkeypatch.setattr(FrameArray, "read", changed)
        assert verify(store).damage == []
        assert verify(store, full=True).damage == ["frames 0 to 6 are others for other readers"]

    def test_damaged_names_of_files_are_found(self, make_store: MakeClips) -> None:
        """When they are asked for, and by verify; frames can be read all the same."""
        store = make_store(CLIPS, suffix=self.suffix)
        opened = open_store(store)
        flip(opened._record.path, opened._record.begin + 5)
        message = f"{opened._record.path} has damaged values of source_file"
        assert verify(store).damage == [message]
        opened = open_store(store)
        with pytest.raises(StoreError, match=re.escape(message)):
            opened.source_files(np.array([1]))
        assert np.array_equal(opened.frames.array, expected_frames((4, 6, 1), "uint8"))

    @pytest.mark.parametrize("compression", ["none", "zstd"])
    def test_damaged_frames_are_named(self, make_store: MakeClips, compression: str) -> None:
        """By row, clip and number; a compressed chunk is refused when it is read."""
        converted = {"compression": compression, "chunk_frames": 2}
        store = make_store(CLIPS, suffix=self.suffix, converted=converted)
        place = open_store(store).place(1)
        flip(place.path, place.offset)
        damage = verify(store).damage
        assert damage == ["frames 2 to 3 are damaged (cam2 3 to cam2 7)"]
        if compression == "zstd":
            frames = open_store(store).frames
            message = re.escape(f"{place.path} is damaged: not what was written in frames 2 to 3; ")
            with pytest.raises(StoreError, match=message):
                frames.take(np.arange(7))
            assert np.array_equal(
                frames.take(np.array([0, 1, 4])), expected_frames((4, 6, 1), "uint8")[[0, 1, 4]]
            )

    @pytest.mark.parametrize("compression", COMPRESSIONS)
    def test_windows_are_those_of_the_pixels(self, make_store: MakeClips, compression: str) -> None:
        """numpy and tf.data give the same windows of every layout, with and without a cache."""
        import_or_skip("tensorflow")
        converted = {"compression": compression, "chunk_frames": 3}
        store = make_store(CLIPS, suffix=self.suffix, converted=converted)
        frames = expected_frames((4, 6, 1), "uint8")
        for cache in (None, "memory", store.parent / "cache"):
            ds = FrameWindowDataset(
                open_frames(store, cache=cache), input_frames=1, predict_frames=1
            )
            assert (ds.mapped is None) == (cache is None and compression != "none")
            wanted = [frames[[row, row + 1]] for row in (0, 1, 3, 5)]
            batches = ds.to_tf_dataset(batch_size=3)
            by_tf = [np.concatenate(parts, axis=1) for parts in batches.as_numpy_iterator()]
            by_numpy = ds.batch(range(4))
            assert np.array_equal(np.concatenate(by_tf), wanted)
            assert np.array_equal(np.concatenate(by_numpy, axis=1), wanted)
            assert [spec.shape.as_list() for spec in batches.element_spec] == [
                [None, 1, 4, 6, 1],
                [None, 1, 4, 6, 1],
            ]


def _all_bytes(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def _is_refused(store: Path) -> bool:
    try:
        return bool(verify(store).damage)
    except StoreError:
        return True


def flip(path: Path, offset: int) -> None:
    """Change one byte."""
    change(path, lambda data: data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :])


def change(path: Path, act: Callable[[bytes], bytes]) -> None:
    """Rewrite a file."""
    path.write_bytes(act(path.read_bytes()))


def forge(store: Path, change: Callable[[dict], None]) -> None:
    """Change the record of a store, with checksums that are right."""
    path = store / RECORD if store.is_dir() else store
    data, end_bytes = path.read_bytes(), records._END.size
    _, text_bytes, number_bytes, begin, magic = records._END.unpack(data[-end_bytes:])
    first = len(data) - end_bytes - number_bytes - text_bytes
    record = json.loads(data[first : first + text_bytes])
    change(record)
    text = json.dumps(record).encode()
    numbers = data[first + text_bytes : first + text_bytes + number_bytes]
    checksum = google_crc32c.value(text + numbers)
    end = records._END.pack(checksum, len(text), number_bytes, begin, magic)
    path.write_bytes(data[:first] + text + numbers + end)
