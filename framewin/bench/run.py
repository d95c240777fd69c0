"""`framewin bench`: check every way, then measure all of them in turns."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framewin.bench import fresh, measure
from framewin.bench.report import BenchReport, WayResult, machine
from framewin.bench.scene import Scene
from framewin.bench.ways import WAYS, Way, check, choose, close, refuse_unknown, why_not
from framewin.process import keep_freed_memory
from framewin.remote import refuse_url
from framewin.schema import Progress
from framewin.stores import durable

STEPS = 30
STEP_LEAD_IN = 4
MOST_WAIT_SECONDS = 3.0

Stage = Callable[[str], Progress | None]
"""From the name of a stage to what is called with (done, in all) in it."""


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """How `framewin bench` measures."""

    batch_size: int = 8
    input_frames: int = 5
    predict_frames: int = 5
    rounds: int = 11
    """Turns that every way takes."""
    step_ms: float = 11.0
    """Length of the training step between which batches are waited for."""
    only: tuple[str, ...] = ()
    """Names of `WAYS` to measure beside the base; all without."""
    quick: bool = False
    """Leave out what needs a process for each way, and the table of caches."""
    turn_seconds: float = 0.25
    """Length of a turn, about."""
    processes: int = 6
    """Workers of the PyDatasets that have several."""

    def __post_init__(self) -> None:
        counts = ("batch_size", "input_frames", "predict_frames", "rounds", "processes")
        for name in counts:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)!r}")
        for name in ("step_ms", "turn_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)!r}")
        refuse_unknown(self.only)


def run_bench(
    store: str | Path,
    *,
    frames: str | Path | None = None,
    settings: BenchSettings | None = None,
    stage: Stage = lambda _: None,
) -> BenchReport:
    """Measure framewin beside what else makes the same batches of a store.

    Args:
        store: Made by `framewin convert`.
        frames: The folder of PNG files that it was made from.
        settings: By default as the options of `framewin bench`.
        stage: Called with what is done next.

    Raises:
        StoreError: No store, too few windows, other frames, or a way that gives other pixels.
        ValueError: Clips too short for a window.
    """
    refuse_url(store, "framewin fetch brings it to this machine, to be measured there")
    settings = settings or BenchSettings()
    with tempfile.TemporaryDirectory(prefix="framewin-bench-") as folder:
        options = {
            "batch_size": settings.batch_size,
            "input_frames": settings.input_frames,
            "predict_frames": settings.predict_frames,
            "processes": settings.processes,
        }
        source = None if frames is None else Path(frames)
        scene = Scene.open(Path(store), source, Path(folder), **options)
        memory = machine()["memory_bytes"]
        base, names = choose(scene, settings.only, memory)
        reasons = {name: why_not(name, scene, memory) for name in names}
        left_out = {name: why for name, why in reasons.items() if why is not None}
        names = [name for name in names if name not in left_out]
        with spawned_workers():
            _check_all(names, scene, stage("check"))
            alone = {} if settings.quick else _alone(names, scene, options, stage("fresh start"))
            results = _in_turns(names, base, scene, settings, alone, stage)
            epochs = [] if settings.quick or "png-tf" not in names else _epochs(scene)
        return BenchReport(
            store=str(store),
            frame=str(scene.dataset.frame_format),
            windows=len(scene.dataset),
            settings={**options, "rounds": settings.rounds, "step_ms": settings.step_ms},
            machine=machine(),
            base=base,
            ways=results,
            left_out=left_out,
            epochs=epochs,
            store_bytes=durable.tree_bytes(Path(store)),
            png_bytes=_png_bytes(scene),
        )


@contextmanager
def spawned_workers() -> Iterator[None]:
    """Have Keras start its worker processes afresh: a fork of TensorFlow's threads may hang."""
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("spawn", force=True)
    try:
        yield
    finally:
        multiprocessing.set_start_method(before, force=True)


def _check_all(names: list[str], scene: Scene, progress: Progress | None) -> None:
    for done, name in enumerate(names, start=1):
        check(name, scene)
        if progress is not None:
            progress(done, len(names))


def _alone(
    names: list[str], scene: Scene, options: dict[str, int], progress: Progress | None
) -> dict[str, dict[str, float]]:
    """First batch and memory of each way; its copies of the store were made by the check."""
    paths = {"store": str(scene.store), "scratch": str(scene.scratch)}
    recipe = {**paths, **options, "source": scene.source and str(scene.source)}
    found = {}
    for done, name in enumerate(names, start=1):
        found[name] = fresh.measure(name, recipe)
        if progress is not None:
            progress(done, len(names))
    return found


def _in_turns(
    names: list[str],
    base: str,
    scene: Scene,
    settings: BenchSettings,
    alone: dict[str, dict[str, float]],
    stage: Stage,
) -> list[WayResult]:
    made = {name: WAYS[name].make(scene) for name in names}
    try:
        leads = {name: WAYS[name].lead_in for name in names}
        counts = {
            name: measure.batches_per_turn(made[name], settings.turn_seconds, lead_in=leads[name])
            for name in names
        }
        # Making a way with a generator has set it back.
        keep_freed_memory()
        turns = {n: measure.pull(made[n], counts[n], lead_in=leads[n]) for n in names}
        seconds = measure.take_turns(turns, settings.rounds, stage("turns"))
        per_batch = {name: [s / counts[name] for s in seconds[name]] for name in names}
        waits = _waits(made, per_batch, settings, stage("steps"))
    finally:
        for batches in made.values():
            close(batches)
    return [
        WayResult.of(name, WAYS[name], per_batch[name], per_batch[base], waits.get(name), alone)
        for name in names
    ]


def _waits(
    made: dict[str, Iterator[Any]],
    per_batch: dict[str, list[float]],
    settings: BenchSettings,
    progress: Progress | None,
) -> dict[str, float]:
    """Share of the time that a training step's device waits, really run, a prefetch of 2."""
    found = {}
    names = [name for name in made if WAYS[name].group != "floor"]
    for done, name in enumerate(names, start=1):
        found[name] = _wait(made[name], WAYS[name], per_batch[name], settings.step_ms / 1e3)
        if progress is not None:
            progress(done, len(names))
    return found


def _wait(batches: Iterator[Any], way: Way, per_batch: list[float], step_seconds: float) -> float:
    slow = measure.spread(per_batch).median + step_seconds
    steps = max(3, min(STEPS, round(MOST_WAIT_SECONDS / slow)))
    lead_in = STEP_LEAD_IN if way.prefetches is False else way.lead_in
    consumed = batches if way.prefetches else measure.ahead(batches)
    share = measure.wait_share(consumed, step_seconds, steps=steps, lead_in=lead_in)
    if consumed is not batches:
        close(consumed)
    return share


def _epochs(scene: Scene) -> list[dict[str, Any]]:
    from framewin.bench.png_ways import epochs

    return epochs(scene.in_order())


def _png_bytes(scene: Scene) -> int | None:
    if scene.source is None or not scene.all_png:
        return None
    return sum(Path(name).stat().st_size for name in scene.files)
