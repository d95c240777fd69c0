"""`framewin bench`: check every way, then measure all of them in turns."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framewin.bench import fresh, measure
from framewin.bench.report import BenchReport, WayResult, machine
from framewin.bench.scene import Scene
from framewin.bench.ways import WAYS, Way, check, choose, close, refuse_unknown
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
    """Names of ways to measure beside the base; all without."""
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

    @property
    def of_scene(self) -> dict[str, int]:
        """Those that `Scene.open` takes."""
        names = ("batch_size", "input_frames", "predict_frames", "processes")
        return {name: getattr(self, name) for name in names}


def run_bench(
    store: str | Path,
    *,
    frames: str | Path | None = None,
    settings: BenchSettings | None = None,
    stage: Stage = lambda _: None,
    ways: Mapping[str, Way] = WAYS,
) -> BenchReport:
    """Measure framewin beside what else makes the same batches of a store.

    Args:
        store: Made by `framewin convert`.
        frames: The folder of PNG files that it was made from.
        settings: By default as the options of `framewin bench`.
        stage: Called with what is done next.
        ways: Those of framewin, and others.

    Raises:
        StoreError: No store, too few windows, other frames, or a way that gives other pixels.
        ValueError: Clips too short for a window, or a name that is none of `ways`.
    """
    settings = settings or BenchSettings()
    refuse_unknown(ways, settings.only)
    refuse_url(store, "framewin fetch brings it to this machine, to be measured there")
    with tempfile.TemporaryDirectory(prefix="framewin-bench-") as folder:
        recipe: dict[str, Any] = {
            "store": Path(store),
            "source": None if frames is None else Path(frames),
            "scratch": Path(folder),
            **settings.of_scene,
        }
        scene = Scene.open(**recipe)
        found = machine()
        base, chosen, left_out = choose(ways, settings.only, scene, found["memory_bytes"])
        alone: dict[str, dict[str, float]] = {}
        epochs: list[dict[str, Any]] = []
        with fresh.spawned_workers():
            for way in _counted(chosen, stage("check")):
                check(way, scene)
            if not settings.quick:
                # The copies of the store that some need were made by the check.
                for way in _counted(chosen, stage("fresh start")):
                    alone[way.name] = fresh.measure(way, recipe)
            results = _in_turns(chosen, base, scene, settings, alone, stage)
            if not settings.quick and ways["png-tf"] in chosen:
                from framewin.bench.png_ways import epochs as epochs_of

                epochs = epochs_of(scene.in_order())
        return BenchReport(
            store=str(store),
            frame=str(scene.dataset.frame_format),
            windows=len(scene.dataset),
            settings={
                **settings.of_scene,
                "rounds": settings.rounds,
                "step_ms": settings.step_ms,
            },
            machine=found,
            base=base.name,
            ways=results,
            left_out=left_out,
            epochs=epochs,
            store_bytes=durable.tree_bytes(Path(store)),
            png_bytes=scene.png_bytes,
        )


def _counted(ways: Sequence[Way], progress: Progress | None) -> Iterator[Way]:
    for done, way in enumerate(ways, start=1):
        yield way
        if progress is not None:
            progress(done, len(ways))


def _in_turns(
    ways: list[Way],
    base: Way,
    scene: Scene,
    settings: BenchSettings,
    alone: Mapping[str, Mapping[str, float]],
    stage: Stage,
) -> list[WayResult]:
    made = {way.name: way.make(scene) for way in ways}
    try:
        numbers, turns = {}, {}
        for way in ways:
            batches, lead_in = made[way.name], way.lead_in
            number = measure.batches_per_turn(batches, settings.turn_seconds, lead_in=lead_in)
            numbers[way.name] = number
            turns[way.name] = measure.pull(batches, number, lead_in=lead_in)
        # Making a way with a generator has set it back.
        keep_freed_memory()
        seconds = measure.take_turns(turns, settings.rounds, stage("turns"))
        per_batch = {name: [s / numbers[name] for s in seconds[name]] for name in made}
        stepping = [way for way in ways if way.group != "floor"]
        waits = {
            way.name: _wait(made[way.name], way, per_batch[way.name], settings.step_ms / 1e3)
            for way in _counted(stepping, stage("steps"))
        }
    finally:
        for batches in made.values():
            close(batches)
    return [
        WayResult.of(
            way, per_batch[way.name], per_batch[base.name], waits.get(way.name),
            alone.get(way.name, {}),
        )
        for way in ways
    ]  # fmt: skip


def _wait(batches: Iterator[Any], way: Way, per_batch: list[float], step_seconds: float) -> float:
    """Share of the time that a training step's device waits, really run, a prefetch of 2."""
    slow = measure.spread(per_batch).median + step_seconds
    steps = max(3, min(STEPS, round(MOST_WAIT_SECONDS / slow)))
    if way.prefetches:
        return measure.wait_share(batches, step_seconds, steps=steps, lead_in=way.lead_in)
    ahead = measure.ahead(batches)
    try:
        return measure.wait_share(ahead, step_seconds, steps=steps, lead_in=STEP_LEAD_IN)
    finally:
        close(ahead)
