"""Stores that rotted, or that a stranger made: refused in one line, never a crash or a hang.

`scripts/faults` tries more mutations.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

from framewin import (
    FrameWindowDataset,
    FramewinError,
    SourceError,
    StoreError,
    TrainingError,
    convert,
    verify,
)
from framewin.frames import open_frames
from framewin.schema import FrameFormat
from framewin.sources import KINDS
from framewin.stores import open_damaged, open_store
from framewin.stores import record as records
from framewin.stores import verify as verifying
from framewin.stores.codecs import Hdf5Codec, ZarrCodec
from framewin.stores.layout import Layout
from framewin.stores.zarr_store import RECORD, shard_name
from tests.conftest import MakeClips
from tests.helpers.store_contract import CLIPS, expected_frames, forge

LAYOUTS = [(s, c) for s in (".zarr", ".h5") for c in ("none", "gzip")]
MUTATIONS = int(os.environ.get("FRAMEWIN_FAULTS_MUTATIONS", "150"))
MEMORY_BYTES = 6 * 2**30
PATIENCE_SECONDS = 120


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """A few bits, bytes or stretches changed, or the end lost."""
    changed = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        if not changed:
            break
        place = int(rng.integers(len(changed)))
        kind = rng.integers(4)
        if kind == 0:
            changed[place] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            changed[place] = int(rng.integers(256))
        elif kind == 2:
            changed[place : place + 8] = rng.bytes(8)
        else:
            del changed[place : place + int(rng.integers(1, 200))]
    return bytes(changed)


def try_mutations(store: Path, seed: int, count: int) -> None:
    """Mutate one file at a time; exits with 1 if anything but a refusal or the frames comes out."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    rng = np.random.default_rng(seed)
    files = [store] if store.is_file() else [p for p in sorted(store.rglob("*")) if p.is_file()]
    expected = expected_frames((4, 6, 1), "uint8")
    for number in range(count):
        path = files[int(rng.integers(len(files)))]
        whole = path.read_bytes()
        path.write_bytes(mutated(whole, rng))
        try:
            if path.read_bytes() != whole:
                check_one(store, expected, f"{path.name}, mutation {number} of seed {seed}")
        finally:
            path.write_bytes(whole)


def check_one(store: Path, expected: np.ndarray, what: str) -> None:
    """Verify finds it; and who opens it anyway never gets other frames unnoticed."""
    try:
        damage = verify(store).damage
    except FramewinError:
        damage = ["refused"]
    assert damage, f"{what}: not found by verify"
    try:
        ds = FrameWindowDataset(open_frames(store, verify=True), input_frames=1, predict_frames=1)
        found = np.concatenate(ds.batch(range(len(ds))))
        ds.window(0)
    except (FramewinError, ValueError):
        return
    wanted = np.concatenate([expected[[0, 1, 3, 5]], expected[[1, 2, 4, 6]]])
    assert np.array_equal(found[:, 0], wanted), what


@pytest.mark.parametrize(("suffix", "compression"), LAYOUTS)
def test_mutations(make_store: MakeClips, suffix: str, compression: str) -> None:
    """In a process with little memory, so that a claim of 2**60 frames shows."""
    converted = {"compression": compression, "chunk_frames": 2}
    store = make_store(CLIPS, suffix=suffix, converted=converted)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.job", "zarr", "h5py"])
    process = context.Process(target=try_mutations, args=(store, 0, MUTATIONS))
    process.start()
    process.join(PATIENCE_SECONDS + MUTATIONS)
    assert process.exitcode == 0
    print(f"{MUTATIONS} injected, {MUTATIONS} found, 0 lost")


@pytest.mark.parametrize(("suffix", "compression"), LAYOUTS)
def test_every_truncation_and_every_lost_file(
    make_store: MakeClips, suffix: str, compression: str
) -> None:
    """`verify` finds each."""
    store = make_store(CLIPS, suffix=suffix, converted={"compression": compression})
    files = [store] if store.is_file() else [p for p in sorted(store.rglob("*")) if p.is_file()]
    for path in files:
        whole = path.read_bytes()
        for length in (None, *range(0, len(whole), max(1, len(whole) // 12))):
            path.unlink(missing_ok=True)
            if length is not None:
                path.write_bytes(whole[:length])
            assert is_refused(store), f"{path} cut to {length}"
        path.write_bytes(whole)
    assert verify(store).damage == []


def is_refused(store: Path) -> bool:
    try:
        return bool(verify(store).damage)
    except StoreError:
        return True


FORGERIES = {
    "2**60 frames": lambda record: record.update(shape=[2**60, 4, 6, 1]),
    "no frame": lambda record: record.update(shape=[0, 4, 6, 1]),
    "huge frames": lambda record: record.update(shape=[7, 2**31, 2**31, 1]),
    "an unknown dtype": lambda record: record.update(dtype="object"),
    "another codec": lambda record: record["attributes"]["layout"].update(compression="pickle"),
    "columns without end": lambda record: record["columns"].update(
        {"clips/start_row": ["<i8", -1]}
    ),
    "objects": lambda record: record["columns"].update({"clips/start_row": ["|O", 2]}),
    "no columns": lambda record: record.update(columns={}),
    "no attributes": lambda record: record.update(attributes=None),
    "no pieces": lambda record: record.update(pieces=[]),
    "no such pieces": lambda record: record.update(pieces=["source_file", "other"]),
    "floats": lambda record: record["columns"].update({"clips/start_row": ["<f8", 1]}),
    "more chunks than frames": lambda record: record["attributes"]["layout"].update(
        chunk_frames=2**40
    ),
    "a step of 71 bits": lambda record: record["attributes"].update(step=2**70),
    "a step of 63 bits": lambda record: record["attributes"].update(step=2**62),
    "a step that is no integer": lambda record: record["attributes"].update(step=1.5),
    "sizes that are no integers": lambda record: record.update(shape=[7.0, 4, 6, 1]),
    "a name that is no text": lambda record: record.update(clips=["a", "\ud800"]),
    "a name that is a number": lambda record: record.update(clips=["a", 1]),
    "another level": lambda record: record["attributes"]["layout"].update(level=3),
}
HDF5_FORGERIES = {
    "frames behind the end": lambda record: record.update(chunk_ranges=[[2**40, 2**40 + 168]]),
    "frames before the beginning": lambda record: record.update(chunk_ranges=[[-168, 0]]),
    "too few frames": lambda record: record.update(chunk_ranges=[[2064, 2070]]),
    "a range of floats": lambda record: record.update(
        chunk_ranges=[[float(n) for n in record["chunk_ranges"][0]]]
    ),
    "no range": lambda record: record.update(chunk_ranges=[]),
}
ZARR_FORGERIES = {
    "no files": lambda record: record.update(files={}),
    "files that are none": lambda record: record.update(files={"frames": [4096, None]}),
    "a shard of another size": lambda record: record["files"].update({shard_name(0): [5, None]}),
    "a size that is no integer": lambda record: record["files"].update(
        {name: [float(size), crc] for name, (size, crc) in record["files"].items()}
    ),
    "a file elsewhere": lambda record: record["files"].update({"/etc/hostname": [1, 1]}),
}


@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
def test_forged_compressed_stores(make_store: MakeClips, suffix: str) -> None:
    """Chunks of any size, and places of chunks outside of the file, take no memory."""
    changes = (
        lambda record: record["attributes"]["layout"].update(chunk_frames=2**30),
        lambda record: record.update(shape=[7, 2**20, 2**20, 1]),
    )
    for name, change in zip("ab", changes, strict=True):
        store = make_store(CLIPS, name=name, suffix=suffix, converted={"compression": "gzip"})
        forge(store, change)
        with pytest.raises(StoreError):
            open_store(store)


def test_chunks_outside_of_their_shard(make_store: MakeClips) -> None:
    """They are damage, whatever their checksums."""
    store = make_store(CLIPS, converted={"compression": "gzip", "chunk_frames": 2})
    opened = open_damaged(store)
    for name, value in (("nbytes", 2**60), ("nbytes", -1), ("offset", 2**60), ("offset", -5)):
        changed = opened.chunks[name].copy()
        changed[1] = value
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(opened.chunks, name, changed)
            assert verifying._damaged_chunks(opened, 1, lambda done: None) == [1]


@pytest.mark.parametrize("codec", ["zstd", "lz4", "gzip"])
@pytest.mark.parametrize("kind", [ZarrCodec, Hdf5Codec])
def test_a_chunk_of_fewer_pixels_is_refused(kind: type, codec: str) -> None:
    """The rest would be whatever was in memory before."""
    form = FrameFormat(4, 6, 1, "uint8")
    layout = Layout(codec).resolved(form, 40)
    made = kind(layout, form) if kind is ZarrCodec else kind(layout)
    for frames in (1, 3, 40):
        pixels = np.arange(frames * 24, dtype=np.uint8).reshape(frames, 4, 6, 1)
        out = np.zeros_like(pixels)
        made.decode(made.encode(pixels), out)
        assert np.array_equal(out, pixels)
        for other in (frames + 1, max(1, frames - 1)):
            if other != frames:
                with pytest.raises((ValueError, RuntimeError)):
                    made.decode(made.encode(pixels), np.zeros((other, 4, 6, 1), np.uint8))


def test_pieces_that_are_none(make_store: MakeClips) -> None:
    """Right checksums of what cannot be inflated, or is no text, or has no end."""
    store = make_store(CLIPS, suffix=".h5")
    opened = open_store(store)
    endless = zlib.compress(bytes(2**16))
    for data in (b"no zlib", zlib.compress(b"\xff\xfe"), zlib.compress(b"one"), endless[:20]):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(records.Record, "_pieces", lambda *_, data=data: iter([data]))
            with pytest.raises(StoreError, match="source_file"):
                opened.source_files(np.array([3]))


@pytest.mark.parametrize(
    ("suffix", "forgery"),
    [
        *((suffix, name) for suffix in (".zarr", ".h5") for name in FORGERIES),
        *((".h5", name) for name in HDF5_FORGERIES),
        *((".zarr", name) for name in ZARR_FORGERIES),
    ],
)
def test_forged_records(make_store: MakeClips, suffix: str, forgery: str) -> None:
    """Checksums that are right do not make claims true."""
    store = make_store(CLIPS, suffix=suffix)
    forge(store, (FORGERIES | HDF5_FORGERIES | ZARR_FORGERIES)[forgery])
    with pytest.raises(StoreError) as caught:
        open_store(store)
    assert "\n" not in str(caught.value)


def test_a_record_without_names_of_files(make_store: MakeClips) -> None:
    """The frames can be read; who asks for the names hears that they are not there."""
    store = make_store(CLIPS, suffix=".h5")

    def change(record: dict) -> None:
        record["pieces"] = ["other"]
        for name in ("nbytes", "crc32c"):
            record["columns"][f"other/{name}"] = record["columns"].pop(f"source_file/{name}")

    forge(store, change)
    with pytest.raises(StoreError, match="lacks its source_file; convert it again"):
        open_store(store).source_files(np.array([0]))


@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
def test_a_store_that_is_removed_while_it_is_open(make_store: MakeClips, suffix: str) -> None:
    """Frames and names of files that cannot be read any more are one line."""
    store = make_store(CLIPS, suffix=suffix, converted={"compression": "gzip"})
    ds = FrameWindowDataset(store, input_frames=1, predict_frames=1)
    opened = open_store(store)
    store.rename(store.with_name("elsewhere"))
    for read in (lambda: ds[0], lambda: opened.source_files(np.array([0]))):
        with pytest.raises(StoreError, match="No such file or directory; was the store moved or"):
            read()


def test_bounds_of_pieces_are_added_up_once(make_store: MakeClips) -> None:
    """Not before each read: a store of 10^8 frames has 24,000 pieces."""
    record = open_store(make_store(CLIPS))._record
    assert record._bounds("source_file") is record._bounds("source_file")
    assert record.texts("source_file", np.array([1, 0])) == [
        "cam2/frame_2.png",
        "cam2/frame_1.png",
    ]


def test_links_out_of_a_store(make_store: MakeClips, tmp_path: Path) -> None:
    """Frames that lie elsewhere are not this store's."""
    store = make_store(CLIPS)
    shard = store / "frames/c/0/0/0/0"
    outside = tmp_path / "outside"
    shutil.move(shard, outside)
    shard.symlink_to(outside)
    with pytest.raises(StoreError, match="is a link; a store must not reach outside itself"):
        open_store(store)
    shard.unlink()
    shutil.move(outside, shard)
    for name in (RECORD, "frames"):
        shutil.move(store / name, outside)
        (store / name).symlink_to(outside)
        with pytest.raises(StoreError, match=f"{name} is a link; a store must not reach outside"):
            open_store(store)
        (store / name).unlink()
        shutil.move(outside, store / name)
    open_store(store)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["frames"] = h5py.SoftLink("/elsewhere")
    with pytest.raises(StoreError, match="was not made by framewin convert"):
        open_store(tmp_path / "other.h5")


def test_names_out_of_a_store(make_store: MakeClips) -> None:
    """A list of files must not name others than the store's own."""
    store = make_store(CLIPS)
    forge(store, lambda record: record["files"].update({"../clips-frames/1.png": [1, 1]}))
    with pytest.raises(StoreError, match=r"\.\./.* lies outside of the store"):
        open_store(store)


class Trap:
    """What makes a file where it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.place,)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    """Arrays of objects are refused in every file that may hold arrays; nothing runs."""
    from framewin.forecast.checkpoints import load_checkpoint

    trap = np.array([[[Trap(tmp_path / "ran")]]])
    np.save(tmp_path / "a.npy", trap, allow_pickle=True)
    np.savez(tmp_path / "a.npz", frames=trap)
    np.savez(tmp_path / "checkpoint.npz", progress=trap)
    (tmp_path / "a.pkl").write_bytes((tmp_path / "a.npy").read_bytes())
    for name in ("a.npy", "a.npz"):
        with pytest.raises(SourceError, match=f"{name} holds Python object values"):
            convert(tmp_path / name, tmp_path / "clips.zarr")
    with pytest.raises(StoreError, match="Python object values"):
        FrameWindowDataset(tmp_path / "a.npy", input_frames=1, predict_frames=1)
    with pytest.raises(TrainingError, match=r"checkpoint\.npz"):
        load_checkpoint(tmp_path / "checkpoint.npz", {})
    for kind in KINDS:
        with pytest.raises(SourceError):
            convert(tmp_path / "a.pkl", tmp_path / "clips.zarr", kind=kind)
    assert not (tmp_path / "ran").exists()
    # The trap works.
    np.load(tmp_path / "a.npy", allow_pickle=True)
    assert (tmp_path / "ran").exists()
