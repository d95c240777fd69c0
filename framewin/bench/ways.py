"""The table of ways to make the same batches, and the check that they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import Any, cast

import numpy as np

from framewin.bench.scene import Scene
from framewin.errors import StoreError

CHECKED_BATCHES = 2
CHECKED_PROCESSES = 1
"""Each takes seconds to start."""
MEMORY_SHARE = 8
"""Of memory, what frames may take that are held in it: by two ways, up to three times each."""
MOST_RUNS = 64
"""Each run of frames without a gap is a pipeline of its own in `timeseries`."""
QUEUED = 18
"""Batches to draw before a turn of a PyDataset with workers: its queue, and one for each."""


def nothing(scene: Scene) -> str | None:
    """No reason against any store."""
    return None


@dataclass(frozen=True, slots=True)
class Way:
    """One way of making batches, by the name of the function that does."""

    name: str
    title: str
    maker: str
    """`module:function`, from a `Scene` to batches without end."""
    group: str
    modules: tuple[str, ...] = ("tensorflow",)
    """Packages that it needs."""
    png: bool = False
    """Whether it reads the PNG files."""
    in_memory: bool = False
    """Whether it holds all frames in memory."""
    flips: bool = False
    """Whether half of its windows are mirrored left to right."""
    prefetches: bool = True
    """Whether it works ahead by itself."""
    lead_in: int = 6
    """Batches that it may have ready."""
    refuses: Callable[[Scene], str | None] = nothing
    """Why it cannot read a store or its files, if so."""

    @property
    def module(self) -> str:
        """Dotted name of the module of its maker."""
        return self.maker.partition(":")[0]

    def make(self, scene: Scene) -> Iterator[Any]:
        """Batches (inputs, targets) without end."""
        function = self.maker.partition(":")[2]
        return cast(Iterator[Any], getattr(import_module(self.module), function)(scene))


def _two_channels(scene: Scene) -> str | None:
    return "TensorFlow reads no PNG of gray and alpha" if scene.frame_shape[-1] == 2 else None


def _many_runs(scene: Scene) -> str | None:
    runs = len(scene.runs)
    return f"the store has {runs} runs of frames, over {MOST_RUNS}" if runs > MOST_RUNS else None


_OWN, _PNG, _TF = (f"framewin.bench.{name}_ways" for name in ("framewin", "png", "tf"))
_own = partial(Way, group="framewin")
_files = partial(Way, group="PNG files", png=True)
_held = partial(Way, group="memory", in_memory=True)
_ALL = (
    _held("preloaded", "preloaded tensor", f"{_TF}:preloaded"),
    _own("framewin-tf", "to_tf_dataset", f"{_OWN}:tf_dataset"),
    _own("framewin-tf-flip", "to_tf_dataset, Augment", f"{_OWN}:tf_dataset_flipped", flips=True),
    _own("framewin-keras", "to_keras_dataset", f"{_OWN}:keras_dataset"),
    _own(
        "framewin-torch",
        "to_torch_loader",
        f"{_OWN}:torch_loader",
        modules=("torch",),
        prefetches=False,
    ),
    _own("framewin-numpy", "ds.batch", f"{_OWN}:numpy_batches", modules=(), prefetches=False),
    _files("png-sequence", "PyDataset, 1 worker", f"{_PNG}:sequence_one"),
    _files(
        "png-sequence-threads", "PyDataset, 6 threads", f"{_PNG}:sequence_threads", lead_in=QUEUED
    ),
    _files(
        "png-sequence-processes",
        "PyDataset, 6 processes",
        f"{_PNG}:sequence_processes",
        lead_in=QUEUED,
    ),
    _files("png-tf", "tf.data", f"{_PNG}:tf_png", refuses=_two_channels),
    _held("timeseries", "timeseries_dataset_from_array", f"{_TF}:timeseries", refuses=_many_runs),
    Way("from-generator", "from_generator, memmap", f"{_TF}:from_generator", "arrays"),
)
WAYS: Mapping[str, Way] = {way.name: way for way in _ALL}
BASES = ("preloaded", "framewin-tf", "framewin-numpy")
"""What the others are compared with: the first of these that can be measured."""


def choose(
    ways: Mapping[str, Way], only: Sequence[str], scene: Scene, memory_bytes: int
) -> tuple[Way, list[Way], dict[str, str]]:
    """The base, the ways to measure with it, and the reasons why others cannot be.

    Args:
        ways: The table, whose order is kept; with `BASES`.
        only: Names of those to measure beside the base; without, all.
        scene: The store and its files.
        memory_bytes: Of the machine.
    """
    base = next(name for name in BASES if why_not(ways[name], scene, memory_bytes) is None)
    wanted = [ways[name] for name in ways if not only or name in (base, *only)]
    reasons = {way.name: why_not(way, scene, memory_bytes) for way in wanted}
    left_out = {name: reason for name, reason in reasons.items() if reason is not None}
    return ways[base], [way for way in wanted if way.name not in left_out], left_out


def refuse_unknown(ways: Mapping[str, Way], only: Sequence[str]) -> None:
    """Say which names there are.

    Raises:
        ValueError: One of these is none of them.
    """
    unknown = [name for name in only if name not in ways]
    if unknown:
        raise ValueError(f"only must name ways, got {unknown[0]!r}; there are {', '.join(ways)}")


def why_not(way: Way, scene: Scene, memory_bytes: int) -> str | None:
    """Why a way cannot be measured here; None where it can."""
    absent = [module for module in way.modules if find_spec(module) is None]
    if absent:
        return f"needs {absent[0]}, which is not installed"
    if way.png and scene.source is None:
        return "needs --frames, the folder that the store was made from"
    if way.png and not scene.all_png:
        return "the store was not made from PNG files of one frame each"
    if way.png and not scene.png_fits:
        return "the store was converted with options that change pixels"
    held = scene.dataset.clips.num_frames * scene.dataset.frame_format.nbytes
    if way.in_memory and held > memory_bytes // MEMORY_SHARE:
        return "the frames take more than an eighth of the memory"
    return way.refuses(scene)


def check(way: Way, scene: Scene) -> None:
    """Compare some batches of a way, in order, with the dataset's own.

    Raises:
        StoreError: Other shapes, dtypes or pixels.
    """
    scene = replace(scene.in_order(), processes=CHECKED_PROCESSES)
    batches = way.make(scene)
    try:
        for step, batch in enumerate(islice(batches, CHECKED_BATCHES)):
            right = scene.dataset.batch(scene.plan.windows(step).tolist())
            _compare(way, [np.asarray(part) for part in batch], right)
    finally:
        close(batches)


def _compare(way: Way, found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    for part, right in zip(found, expected, strict=True):
        if (part.shape, part.dtype) != (right.shape, right.dtype):
            raise StoreError(
                f"{way.name} gives {part.dtype} {part.shape}, the store has {right.dtype} "
                f"{right.shape}"
            )
    same = _each_window(found, expected)
    if way.flips:
        same |= _each_window(found, [part[..., ::-1, :] for part in expected])
    if not same.all():
        files = "; were the frames changed, or converted with options?" if way.png else ""
        raise StoreError(f"{way.name} gives other pixels than the store{files}")


def _each_window(found: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> np.ndarray:
    """Which windows of a batch are equal, (B,)."""
    pairs = list(zip(found, right, strict=True))
    windows = range(len(found[0]))
    return np.array([all(_equal(one[i], other[i]) for one, other in pairs) for i in windows])


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def close(batches: Iterator[Any]) -> None:
    """Stop the threads or processes of a way that was a generator."""
    stop = getattr(batches, "close", None)
    if stop is not None:
        stop()
