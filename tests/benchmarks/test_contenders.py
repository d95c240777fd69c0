"""`python -m benchmarks`: every other way gives the store's windows, too."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import array_ways
from benchmarks.ways import WAYS
from framewin.bench import fresh, ways
from framewin.bench.report import COLOURS
from framewin.bench.run import BenchSettings, run_bench
from framewin.bench.scene import Scene
from framewin.bench.ways import WAYS as OWN
from framewin.bench.ways import check, why_not
from tests.conftest import ROOT, MakeClips, import_or_skip
from tests.helpers.batches import MEMORY, SIZES, assert_gives_windows, open_scene

OTHERS = [name for name in WAYS if name not in OWN]


@pytest.fixture
def scene(make_store: MakeClips, tmp_path: Path) -> Scene:
    """A store and the PNG files it came from."""
    return replace(open_scene(make_store, tmp_path), source=tmp_path / "clips-frames")


@pytest.mark.parametrize("name", [name for name in OTHERS if name != "insitubatch"])
def test_every_way_gives_windows_of_the_store(name: str, scene: Scene) -> None:
    """In order it agrees with the dataset; shuffled, an epoch and more are windows of a run."""
    for module in WAYS[name].modules:
        import_or_skip(module)
    if name == "zarr-fused" and array_ways.no_fused(scene):
        pytest.skip(str(array_ways.no_fused(scene)))
    assert_gives_windows(WAYS[name], scene)


def test_insitubatch_takes_one_run(make_store: MakeClips, scene: Scene, tmp_path: Path) -> None:
    """It knows nothing of clips, so only a store of one is read by it."""
    import_or_skip("insitubatch")
    way = WAYS["insitubatch"]
    assert why_not(way, scene, MEMORY) == "the store has 3 runs of frames, it takes one"
    (tmp_path / "one").mkdir()
    one = open_scene(make_store, tmp_path / "one", {"a": range(20)}, name="one")
    assert why_not(way, one, MEMORY) is None
    check(way, one)


@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
def test_a_compressed_store_of_either_format(
    make_store: MakeClips, tmp_path: Path, suffix: str
) -> None:
    """Copies are made of what a way cannot read as it is."""
    scene = open_scene(make_store, tmp_path, suffix=suffix, converted={"compression": "zstd"})
    for name in ("memcpy", "h5py", "zarr"):
        if not (name == "h5py" and suffix == ".h5" and find_spec("hdf5plugin") is None):
            check(WAYS[name], scene)
    if suffix == ".h5" and find_spec("hdf5plugin"):
        # Where nothing else has loaded the filters.
        recipe = {"store": scene.store, "source": None, "scratch": scene.scratch, **SIZES}
        assert fresh.measure(WAYS["h5py"], recipe)["first_batch_seconds"] > 0


def test_no_data_is_a_value_like_others(make_store: MakeClips, tmp_path: Path) -> None:
    """Also to xarray, which would make it NaN."""
    scene = open_scene(make_store, tmp_path, converted={"nodata": 9})
    for name in ("zarr", "xbatcher"):
        if all(find_spec(module) for module in WAYS[name].modules):
            check(WAYS[name], scene)


def test_a_missing_plugin_leaves_ways_out(
    make_store: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that read the file, or a copy made of it, by a library of its format."""
    import_or_skip("hdf5plugin")
    scene = open_scene(make_store, tmp_path, suffix=".h5", converted={"compression": "zstd"})
    for module in (ways, array_ways):
        monkeypatch.setattr(
            module, "find_spec", lambda name: None if name == "hdf5plugin" else name
        )
    reason = "needs hdf5plugin, which is not installed"
    left_out = {name for name in WAYS if why_not(WAYS[name], scene, MEMORY) == reason}
    arrays = {name for name in WAYS if WAYS[name].group == "arrays"}
    assert left_out == arrays - {"from-generator", "numpy-function", "grain"}


def test_the_floor_waits_for_nothing(scene: Scene) -> None:
    """A run with ways of both tables; what is no way of training has no share of waiting."""
    settings = BenchSettings(
        4, 2, 3, rounds=2, step_ms=1.0, only=("memcpy", "h5py", "framewin-numpy"), quick=True,
        turn_seconds=0.01,
    )  # fmt: skip
    report = run_bench(scene.store, settings=settings, ways=WAYS)
    assert {way.name for way in report.ways} >= {"memcpy", "h5py", "framewin-numpy"}
    for way in report.ways:
        assert (way.wait_share is None) == (way.group == "floor")
        assert way.wait_share is None or 0 <= way.wait_share <= 1


def test_every_group_has_its_colour() -> None:
    """In the chart."""
    assert {way.group for way in WAYS.values()} == set(COLOURS)


def test_the_command(make_store: MakeClips) -> None:
    """It is `framewin bench` with more ways; mistakes are one line."""
    store = make_store({"a": range(12)})
    words = [sys.executable, "-m", "benchmarks", store, "--quick", "--rounds", "1", "--quiet"]
    sizes = ["--batch-size", "2", "--input-frames", "1", "--predict-frames", "1"]
    done = subprocess.run(
        [*words, *sizes, "--only", "memcpy", "--json"],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "memcpy" in [way["name"] for way in json.loads(done.stdout)["ways"]]
    small = subprocess.run(
        [*words, "--batch-size", "99", *sizes[2:]],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert (small.returncode, small.stdout) == (1, "")
    assert small.stderr.startswith(f"framewin: {store} has 11 windows of 1+1 frames, fewer than")
