"""Arrays of others that are damaged or made to harm: one line or their frames, within bounds."""

from __future__ import annotations

import faulthandler
import io
import os
import re
import resource
import shutil
import subprocess
import sys
import tracemalloc
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

from framewin import FramewinError, SourceError, StoreError, convert
from framewin.stores import open_store
from framewin.stores.array_store import open_array
from tests.conftest import ROOT
from tests.faults.test_hostile import mutated

DATA = ROOT / "tests" / "data"
# A number of its own, for among some hundreds is one by which libhdf5 itself never ends.
MUTATIONS = int(os.environ.get("FRAMEWIN_FAULTS_MUTATIONS_OF_OTHERS", "60"))
MEMORY_BYTES = 4 * 2**30
PATIENCE_SECONDS = 60
"""For one file, on a machine that is busy."""
CHECKED = ("hdf5/latest.h5", "zarr/sharded_3.zarr/c", "numpy/two.npz")
"""Where all that pixels depend on has a checksum: never other frames than before."""
UNCERTAIN = "scales.h5"
"""Its LZF notices no chunk that is too short: HDF5 then reads whatever is in memory."""
FILES = [
    "hdf5/earliest.h5", "hdf5/latest.h5", "hdf5/scales.h5", "netcdf/packed.nc", "netcdf/noleap.nc",
    "zarr/xarray_2.zarr", "zarr/xarray_3.zarr", "zarr/fortran_2.zarr", "zarr/sharded_3.zarr",
    "zarr/sharded_3.zarr/c", "zarr/tensorstore_3.zarr", "numpy/fortran.npy", "numpy/two.npz",
]  # fmt: skip


def by_library(store: Any) -> np.ndarray:
    """The frames of an opened array as its library reads them now: (n, H, W, C)."""
    path, name = store.path, store.source.name
    if path.suffix in (".h5", ".nc"):
        with h5py.File(path) as file:
            values = file[name][()]
    elif path.suffix == ".npy":
        values = np.load(path)
    else:
        node = zarr.open(path, mode="r", use_consolidated=False)
        values = (node[name] if isinstance(node, zarr.Group) else node)[:]
    axes = store.source.axes
    order = sorted(range(len(axes)), key=lambda place: "ntyxc1".index(axes[place]))
    return np.transpose(values, order).reshape(-1, *store.meta.frame_format.shape)


def frames_in_place(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """All frames, and what the library of their format reads."""
    store = open_array(path, cache_bytes=0, axes="tyxc" if path.suffix == ".npy" else None)
    frames = store.frames.take(np.arange(store.meta.clips.num_frames))
    assert not store.source.merged
    return frames, by_library(store)


def frames_converted(path: Path, folder: Path) -> np.ndarray:
    """All frames of the store that the file becomes."""
    shutil.rmtree(folder / "clips.h5.partial", ignore_errors=True)
    (folder / "clips.h5").unlink(missing_ok=True)
    options = {"stream": 1} if path.suffix == ".npz" else {}
    convert(path, folder / "clips.h5", workers=1, **options)
    store = open_store(folder / "clips.h5")
    return store.frames.take(np.arange(store.meta.clips.num_frames))


def check_message(error: FramewinError) -> None:
    """One line, before it is made one for the terminal."""
    assert len(str(error.args[0]).splitlines()) == 1, error


def outcome(path: Path, folder: Path, checked: np.ndarray | None) -> str:
    """What became of a mutated file in both ways; anything but a refusal or its frames raises."""
    found = [] if checked is None else [checked]
    if path.suffix != ".npz":
        try:
            frames, expected = frames_in_place(path)
            assert frames.shape == expected.shape
            if path.name != UNCERTAIN:
                assert frames.tobytes() == expected.astype(frames.dtype).tobytes()
            found.append(frames)
        except FramewinError as exc:
            check_message(exc)
    try:
        found.append(frames_converted(path, folder))
    except FramewinError as exc:
        check_message(exc)
    assert len({frames.tobytes() for frames in found}) < 2 or path.name == UNCERTAIN
    return "read" if len(found) > (checked is not None) else "refused"


def try_mutations(name: str, folder: str, count: int) -> None:
    """Mutate one file at a time, with little memory; prints how many were read and refused."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    faulthandler.enable()
    warnings.simplefilter("ignore")
    os.fsync = os.fdatasync = lambda descriptor: None
    root = next(p for p in (DATA / name, *(DATA / name).parents) if p.suffix)
    path = Path(folder) / root.name
    (shutil.copytree if root.is_dir() else shutil.copyfile)(root, path)
    part = path / (DATA / name).relative_to(root)
    files = sorted(p for p in (part, *part.rglob("*")) if p.is_file())
    checked = frames_converted(path, Path(folder)) if name in CHECKED else None
    rng = np.random.default_rng(0)
    outcomes: Counter[str] = Counter()
    for number in range(count):
        file = files[int(rng.integers(len(files)))]
        whole = file.read_bytes()
        file.write_bytes(mutated(whole, rng))
        faulthandler.dump_traceback_later(PATIENCE_SECONDS, exit=True)
        print(f"mutation {number} of {file}", file=sys.stderr)
        outcomes[outcome(path, Path(folder), checked)] += 1
        file.write_bytes(whole)
    faulthandler.cancel_dump_traceback_later()
    print(f"{outcomes['read']} read, {outcomes['refused']} refused")


@pytest.mark.parametrize("name", FILES)
def test_mutated_files_of_others(tmp_path: Path, name: str) -> None:
    """In place and converted: what the library reads of them, or one line."""
    arguments = f"{name!r}, {str(tmp_path)!r}, {MUTATIONS}"
    code = f"from {__name__} import try_mutations as run; run({arguments})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    read, refused = map(int, re.fullmatch(r"(\d+) read, (\d+) refused\n", done.stdout).groups())
    assert read + refused == MUTATIONS
    assert refused > 0


def test_links_that_fan_out(tmp_path: Path) -> None:
    """Regression: groups that links lead to by 2**29 ways were looked at as often."""
    group = zarr.create_group(tmp_path / "a.zarr")
    group.create_array("movie", data=np.ones((3, 4, 5), "u1"))
    for number in range(30):
        group.create_group(f"group{number}")
        for name in "ab" if number else "":
            (tmp_path / f"a.zarr/group{number - 1}" / name).symlink_to(f"../group{number}")
    (tmp_path / "a.zarr/circle").symlink_to(".")
    code = f"from framewin import convert; convert({str(tmp_path / 'a.zarr')!r}, 'clips.zarr')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=PATIENCE_SECONDS)
    assert open_store(tmp_path / "clips.zarr").meta.clips.num_frames == 3


NESTED = '{"a":' * 50_000 + "1" + "}" * 50_000


@pytest.mark.parametrize("name", ["zarr.json", ".zattrs", "movie/.zattrs"])
def test_json_that_is_nested_deeply(tmp_path: Path, name: str) -> None:
    """It ends no process, in place or converted."""
    path = tmp_path / "a.zarr"
    group = zarr.create_group(path, zarr_format=3 if name == "zarr.json" else 2)
    group.create_array("movie", data=np.ones((3, 4, 5), "u1"))
    text = NESTED if name != "zarr.json" else NESTED.replace("1", (path / name).read_text())
    (path / name).write_text(text)
    message = re.escape(f"{path} cannot be read (RecursionError: maximum recursion depth exceeded")
    with pytest.raises(StoreError, match=message):
        open_array(path, cache_bytes=0)
    with pytest.raises(SourceError, match=message):
        convert(path, tmp_path / "clips.zarr")


@pytest.mark.parametrize("settings", ["[]", '{"nodata": null, "step": 0}', NESTED[:60_000]])
def test_settings_that_are_none(tmp_path: Path, settings: str) -> None:
    """A file that claims to be a store of framewin's is none for that."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["frames"] = np.ones((3, 4, 5), "u1")
        file.attrs["framewin"] = settings
    with pytest.raises(SourceError, match=r"a\.h5 was not made by framewin convert, or is cut sh"):
        convert(tmp_path / "a.h5", tmp_path / "clips.zarr")


def damaged_index(path: Path) -> None:
    """The last of its chunk records is another."""
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("movie", data=np.ones((30, 4, 5), "u1"), chunks=(1, 4, 5))
    data = bytearray(path.read_bytes())
    data[data.index(b"FADB") + 30] ^= 1
    path.write_bytes(data)


def damaged_coordinate(path: Path) -> None:
    """Where rows lie is compressed, and cannot be inflated."""
    with h5py.File(path, "w") as file:
        movie = file.create_dataset("movie", data=np.ones((3, 40, 5), "u1"))
        rows = file.create_dataset("y", data=np.arange(40.0), chunks=(40,), compression="gzip")
        rows.make_scale("y")
        movie.dims[1].attach_scale(rows)
        offset = rows.id.get_chunk_info(0).byte_offset
    data = bytearray(path.read_bytes())
    data[offset : offset + 8] = b"no zlib!"
    path.write_bytes(data)


def damaged_name(path: Path) -> None:
    """A field of an attribute of records has a name that is no text."""
    with h5py.File(path, "w") as file:
        movie = file.create_dataset("movie", data=np.ones((3, 4, 5), "u1"))
        file["time"] = np.arange(3)
        file["time"].make_scale("time")
        movie.dims[0].attach_scale(file["time"])
    data = path.read_bytes()
    assert b"dimension\0" in data
    path.write_bytes(data.replace(b"dimension\0", b"dimensio\xff\0"))


def far_times(path: Path) -> None:
    """Frame numbers of which two are further apart than 64 bits tell."""
    with h5py.File(path, "w") as file:
        movie = file.create_dataset("movie", data=np.ones((3, 4, 5), "u1"))
        file["time"] = np.array([-(2**62), 0, 2**62])
        file["time"].make_scale("time")
        movie.dims[0].attach_scale(file["time"])


@pytest.mark.parametrize("make", [damaged_index, damaged_coordinate, damaged_name, far_times])
def test_damage_beside_the_frames(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Regression: it was an error of h5py's."""
    path = tmp_path / "a.h5"
    make(path)
    with pytest.raises(StoreError, match=r"a\.h5 cannot be read \(\w+: ") as caught:
        open_array(path, cache_bytes=0)
    check_message(caught.value)
    with pytest.raises(SourceError, match=r"a\.h5 cannot be read \(\w+: "):
        convert(path, tmp_path / "clips.zarr")


def archive(path: Path, shape: tuple[int, ...], size: int, packed: int) -> None:
    """A member that claims a shape and holds so many zeros."""
    header = io.BytesIO()
    claim = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, claim)
    with zipfile.ZipFile(path, "w", packed) as opened:
        opened.writestr("movie.npy", header.getvalue() + bytes(size))


@pytest.mark.parametrize(
    ("shape", "size", "packed", "message"),
    [
        ((2**20, 2**10, 2**10), 2**20, zipfile.ZIP_DEFLATED, "is cut short: its array needs 1099"),
        ((16, 2**10, 2**10), 2**24, zipfile.ZIP_BZIP2, "claims 16777344 bytes for movie.npy; exp"),
        ((16, 2**10, 2**10), 2**24, zipfile.ZIP_LZMA, "claims 16777344 bytes for movie.npy; expe"),
    ],
)
def test_archives_that_inflate_without_bound(
    tmp_path: Path, shape: tuple[int, ...], size: int, packed: int, message: str
) -> None:
    """Claims of the header, and compressions that pack more than 1:1040, take no memory."""
    archive(tmp_path / "a.npz", shape, size, packed)
    tracemalloc.start()
    with pytest.raises(SourceError, match=re.escape(message)):
        convert(tmp_path / "a.npz", tmp_path / "clips.zarr")
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()
