"""What tests of ways to make batches start from, and what holds of each."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from framewin.bench.scene import Scene
from framewin.bench.ways import Way, check, close, why_not
from tests.conftest import MakeClips, import_or_skip

CLIPS = {"a": range(9), "b": [*range(6), *range(8, 15)]}
SIZES = {"batch_size": 4, "input_frames": 2, "predict_frames": 3, "processes": 1}
MEMORY = 10**9


def open_scene(
    make_store: MakeClips, folder: Path, clips: dict[str, Any] = CLIPS, **options: Any
) -> Scene:
    """Three runs of frames, 5 + 2 + 3 windows, or other clips."""
    store = make_store(clips, **{"shape": (16, 24, 1), **options})
    (folder / "scratch").mkdir()
    return Scene.open(store, None, folder / "scratch", **SIZES)


def sliced_windows(scene: Scene) -> set[bytes]:
    """Every window by plain slicing of the runs."""
    frames = np.asarray(scene.dataset.frames)
    pieces = (frames[:9], frames[9:15], frames[15:22])
    return {run[i : i + 5].tobytes() for run in pieces for i in range(len(run) - 4)}


def assert_gives_windows(way: Way, scene: Scene) -> None:
    """In order it agrees with the dataset; shuffled, an epoch and more are windows of a run."""
    for module in way.modules:
        import_or_skip(module)
    assert why_not(way, scene, MEMORY) is None
    check(way, scene)
    known, found = sliced_windows(scene), []
    if way.flips:
        shape = (5, 16, 24, 1)
        known |= {np.frombuffer(w, "u1").reshape(shape)[:, :, ::-1].tobytes() for w in known}
    batches = way.make(scene)
    for inputs, targets in islice(batches, 5):
        whole = np.concatenate([np.asarray(inputs), np.asarray(targets)], axis=1)
        assert (whole.shape, whole.dtype) == ((4, 5, 16, 24, 1), np.uint8)
        found += [window.tobytes() for window in whole]
    close(batches)
    assert set(found) <= known
    if not way.flips:
        assert len(set(found[:8])) == 8
