"""`framewin bench`: every way gives the store's windows, and the report says what was found."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from framewin import FrameWindowDataset, StoreError, convert
from framewin.bench import fresh, measure
from framewin.bench.report import COLOURS, BenchReport, WayResult, chart_size, write_chart
from framewin.bench.run import BenchSettings, run_bench
from framewin.bench.scene import Plan, Scene
from framewin.bench.ways import WAYS, check, choose, why_not
from framewin.cli import app
from tests.conftest import MakeClips, import_or_skip
from tests.helpers.batches import CLIPS, MEMORY, SIZES, assert_gives_windows, open_scene

RESULT = WayResult("zarr", "zarr-python", "arrays", 2.0, 1.5, 3.0, 4.0, 3.0, 5.0, 0.25, 0.5, 1e9)


@pytest.fixture
def scene(make_store: MakeClips, tmp_path: Path) -> Scene:
    """A store and the PNG files it came from."""
    return replace(open_scene(make_store, tmp_path), source=tmp_path / "clips-frames")


@pytest.mark.parametrize("name", [n for n in WAYS if n != "png-sequence-processes"])
def test_every_way_gives_windows_of_the_store(name: str, scene: Scene) -> None:
    """In order it agrees with the dataset; shuffled, an epoch and more are windows of a run."""
    assert_gives_windows(WAYS[name], scene)


def test_worker_processes_give_windows_of_the_store(scene: Scene) -> None:
    """Keras's worker processes are spawned, and read the same pixels."""
    import_or_skip("tensorflow")
    with fresh.spawned_workers():
        check(WAYS["png-sequence-processes"], scene)


@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
def test_a_compressed_store_of_either_format(
    make_store: MakeClips, tmp_path: Path, suffix: str
) -> None:
    """A copy is made of what cannot be mapped."""
    scene = open_scene(make_store, tmp_path, suffix=suffix, converted={"compression": "zstd"})
    check(WAYS["framewin-numpy"], scene)
    if find_spec("tensorflow"):
        check(WAYS["from-generator"], scene)


def test_pixels_that_convert_changed(make_clips: MakeClips, tmp_path: Path) -> None:
    """What reads the files is left out, since it would give other frames."""
    source = make_clips(CLIPS, shape=(16, 24, 1))
    convert(source, tmp_path / "clips.zarr", size=(8, 12))
    (tmp_path / "scratch").mkdir()
    scene = Scene.open(tmp_path / "clips.zarr", source, tmp_path / "scratch", **SIZES)
    for way in (way for way in WAYS.values() if way.png):
        assert why_not(way, scene, MEMORY) == (
            "the store was converted with options that change pixels"
        )


def test_other_pixels_are_an_error(scene: Scene, tmp_path: Path) -> None:
    """A way that does not give the store's pixels is named."""
    import_or_skip("tensorflow")
    first, last = (Path(scene.files[i]) for i in (0, -1))
    first.write_bytes(last.read_bytes())
    message = "png-sequence gives other pixels than the store; were the frames changed"
    with pytest.raises(StoreError, match=message):
        check(WAYS["png-sequence"], scene)


def test_the_plan_is_a_permutation_per_epoch() -> None:
    """Each epoch has every window once but for a last batch that is not full; orders differ."""
    plan = Plan(np.arange(10, dtype=np.int64) * 3, 4, 1, 1)
    epochs = [np.concatenate([plan.windows(2 * e), plan.windows(2 * e + 1)]) for e in range(3)]
    assert all(len(set(epoch.tolist())) == 8 for epoch in epochs)
    assert epochs[0].tolist() != epochs[1].tolist()
    assert plan.batch_starts(5).tolist() == [3 * w for w in plan.windows(5)]
    ordered = replace(plan, shuffle=False)
    assert [w.tolist() for w in map(ordered.windows, range(3))] == [
        [0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3],
    ]  # fmt: skip


def test_turns_are_counted_after_the_first_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ways alternate; the first round does not count; progress ends at the number of turns."""
    monkeypatch.setattr(measure, "SETTLE_SECONDS", 0)
    calls: list[str] = []
    seen: list[tuple[int, int]] = []

    def way(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    both = {"a": lambda: way("a"), "b": lambda: way("b")}
    found = measure.take_turns(both, 2, lambda done, total: seen.append((done, total)))
    assert calls == ["a", "b"] * 3
    assert found == {"a": [3.0, 5.0], "b": [4.0, 6.0]}
    assert seen[-1] == (6, 6)


def test_batches_made_ahead_are_the_same() -> None:
    """In order; an error of the maker reaches the consumer; closing ends the thread."""

    def failing():  # type: ignore[no-untyped-def]
        yield from range(3)
        raise KeyError("broken")

    batches = measure.ahead(failing())
    assert list(islice(batches, 3)) == [0, 1, 2]
    with pytest.raises(KeyError, match="broken"):
        next(batches)
    endless = measure.ahead(iter(int, 1))
    assert next(endless) == 0
    endless.close()


def test_a_fresh_process_reports(scene: Scene, tmp_path: Path) -> None:
    """Time to the first batch and peak memory come from a process of its own."""
    recipe = {"store": scene.store, "scratch": tmp_path, "source": None, **SIZES}
    found = fresh.measure(WAYS["framewin-numpy"], recipe)
    assert set(found) == {"first_batch_seconds", "peak_rss_bytes"}
    assert found["first_batch_seconds"] > 0
    assert found["peak_rss_bytes"] > 2**20
    with pytest.raises(StoreError, match=r"framewin-numpy failed in a process of its own: .*gone"):
        fresh.measure(WAYS["framewin-numpy"], {**recipe, "store": Path("gone.zarr")})


def test_a_whole_run(scene: Scene, tmp_path: Path) -> None:
    """All stages of a small run, its report as table and JSON, and its chart."""
    import_or_skip("tensorflow")
    settings = BenchSettings(
        4, 2, 3, rounds=2, step_ms=1.0, only=("from-generator", "png-tf"), quick=True,
        turn_seconds=0.01,
    )  # fmt: skip
    stages: list[str] = []
    report = run_bench(
        scene.store, frames=scene.source, settings=settings, stage=lambda s: stages.append(s)
    )
    assert stages == ["check", "turns", "steps"]
    assert [way.name for way in report.ways] == ["preloaded", "png-tf", "from-generator"]
    found = json.loads(report.to_json())
    assert found["base"] == "preloaded"
    assert found["png_bytes"] == sum(Path(name).stat().st_size for name in scene.files)
    for way in found["ways"]:
        assert way["ms_low"] <= way["ms_per_batch"] <= way["ms_high"]
        assert 0 <= way["wait_share"] <= 1
    assert [way["ratio"] for way in found["ways"] if way["name"] == "preloaded"] == [1.0]
    write_chart(tmp_path / "chart.png", report)
    with Image.open(tmp_path / "chart.png") as chart:
        assert (chart.format, chart.size) == ("PNG", chart_size(3))


def test_the_table_of_caches(scene: Scene) -> None:
    """Every combination, with its first and its later epochs."""
    import_or_skip("tensorflow")
    from framewin.bench.png_ways import epochs

    rows = epochs(scene.in_order())
    pairs = [(row["cache"], row["prefetch"]) for row in rows]
    assert pairs == [(False, False), (False, True), (True, False), (True, True)]
    assert all(row["first_ms"] > 0 and row["later_ms"] > 0 for row in rows)


def test_the_report_in_words(tmp_path: Path) -> None:
    """The lines hold every figure, and what was left out; bars are as long as their ratios say."""
    machine = {"processor": "CPU", "cores": 2, "memory_bytes": 24e9, "system": "x"}
    settings = {
        "input_frames": 5, "predict_frames": 5, "batch_size": 8, "rounds": 11, "step_ms": 11.0,
    }  # fmt: skip
    epochs = [{"cache": True, "prefetch": False, "first_ms": 9.0, "later_ms": 0.5}]
    base = replace(RESULT, title="preloaded tensor", ratio=1.0, ratio_low=1.0, ratio_high=1.0)
    report = BenchReport(
        "c.zarr", "4x6x1 uint8", 744, settings, machine, "preloaded", [base, RESULT],
        {"grain": "needs grain, which is not installed"}, epochs, 2000, 1000,
    )  # fmt: skip
    lines = report.lines()
    words = next(line for line in lines if "zarr-python" in line).split()
    assert words == [
        "arrays:", "zarr-python", "2.000", "4.00", "3.00-5.00", "25.0%", "0.50", "s", "1.00", "GB",
    ]  # fmt: skip
    assert re.search(r"cache on +, prefetch off +9.000 +0.500", "\n".join(lines))
    assert lines[-2:] == [
        "on disk: store 2,000 bytes, PNG files 1,000 bytes, 2.00 times as much",
        "left out: grain: needs grain, which is not installed",
    ]
    write_chart(tmp_path / "c.png", report)
    pixels = np.asarray(Image.open(tmp_path / "c.png"))
    bars = [(pixels[48 + 24 * row + 6] == COLOURS["arrays"]).all(axis=1).sum() for row in range(2)]
    scale = np.log(1.5) / np.log(5 * 1.5), np.log(4 * 1.5) / np.log(5 * 1.5)
    assert bars == pytest.approx([570 * share for share in scale], abs=3)


def test_what_is_left_out(scene: Scene) -> None:
    """Reasons are given; without a preloaded tensor, framewin is the base."""
    bare = replace(scene, source=None)
    assert why_not(WAYS["png-tf"], bare, MEMORY) == (
        "needs --frames, the folder that the store was made from"
    )
    too_large = "the frames take more than an eighth of the memory"
    assert why_not(WAYS["preloaded"], scene, 100) == too_large
    base, chosen, left_out = choose(WAYS, ["timeseries"], scene, 100)
    assert base.name == ("framewin-tf" if find_spec("tensorflow") else "framewin-numpy")
    assert (chosen, left_out) == ([base], {"timeseries": too_large})


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "framewin", "bench", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_mistakes_are_one_line(make_store: MakeClips, tmp_path: Path) -> None:
    """A store too small, and frames that are not the store's: exit code 1."""
    store = make_store({"a": range(5)})
    small = command(store, "--input-frames", 2, "--predict-frames", 2)
    assert (small.returncode, small.stdout) == (1, "")
    assert small.stderr == (
        f"framewin: {store} has 2 windows of 2+2 frames, fewer than a batch of 8; give a "
        "smaller --batch-size\n"
    )
    elsewhere = tmp_path / "elsewhere"
    other = command(
        store, "--frames", elsewhere, "--batch-size", 1, "--input-frames", 1,
        "--predict-frames", 1,
    )  # fmt: skip
    assert other.returncode == 1
    assert other.stderr == (
        f"framewin: {elsewhere}/a/frame_0.png is not there, but {store} was made from it; give "
        "--frames the folder that was converted\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "nonsense"], "only must name ways, got 'nonsense'; there are preloaded,"),
        (["--chart", "c.jpg"], "--chart must end in .png, got c.jpg"),
        (["--chart", "gone/c.png"], "--chart must be a new file in a folder that is there"),
        (["--step-ms", "0"], "--step-ms must be > 0, got 0.0"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str) -> None:
    """Exit code 2, before anything is opened."""
    done = CliRunner().invoke(app, ["bench", "gone.zarr", *arguments])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


def test_windows_that_do_not_fit(make_store: MakeClips) -> None:
    """Clips too short for a window are told by the dataset."""
    store = make_store({"a": range(5)})
    with pytest.raises(ValueError, match="no window fits, each spans 10 frames: a has 5"):
        FrameWindowDataset(store, input_frames=5, predict_frames=5)
    done = CliRunner().invoke(app, ["bench", str(store)])
    assert done.exit_code == 2
    assert "no window fits" in done.output
