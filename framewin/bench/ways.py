"""The table of ways to make the same batches, and the check that they do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import Any, cast

import numpy as np

from framewin.bench.scene import PLUGIN, Scene
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


@dataclass(frozen=True, slots=True)
class Way:
    """One way of making batches, by the name of the function that does."""

    title: str
    group: str
    maker: str
    """Module below `framewin.bench`, and function: from a `Scene` to batches without end."""
    modules: tuple[str, ...] = ("tensorflow",)
    """Packages that it needs."""
    png: bool = False
    """Whether it reads the PNG files."""
    library: bool = False
    """Whether a library of a format reads the store, or a copy made through it."""
    in_memory: bool = False
    """Whether it holds all frames in memory."""
    flips: bool = False
    """Whether half of its windows are mirrored left to right."""
    prefetches: bool = True
    """Whether it works ahead by itself."""
    lead_in: int = 6
    """Batches that it may have ready."""

    def make(self, scene: Scene) -> Iterator[Any]:
        """Batches (inputs, targets) without end."""
        module, function = self.maker.split(":")
        made = getattr(import_module(f"framewin.bench.{module}"), function)(scene)
        return cast(Iterator[Any], made)


_TORCH = ("torch",)
WAYS = {
    "memcpy": Way(
        "numpy copying into a buffer", "floor", "array_ways:memcpy", (), prefetches=False
    ),
    "preloaded": Way("preloaded tensor", "memory", "tf_ways:preloaded", in_memory=True),
    "framewin-tf": Way("to_tf_dataset", "framewin", "framewin_ways:tf_dataset"),
    "framewin-tf-flip": Way(
        "to_tf_dataset, Augment", "framewin", "framewin_ways:tf_dataset_flipped", flips=True
    ),
    "framewin-keras": Way("to_keras_dataset", "framewin", "framewin_ways:keras_dataset"),
    "framewin-torch": Way(
        "to_torch_loader", "framewin", "framewin_ways:torch_loader", _TORCH, prefetches=False
    ),
    "framewin-numpy": Way(
        "ds.batch", "framewin", "framewin_ways:numpy_batches", (), prefetches=False
    ),
    "png-sequence": Way("PyDataset, 1 worker", "PNG files", "png_ways:sequence_one", png=True),
    "png-sequence-threads": Way(
        "PyDataset, 6 threads", "PNG files", "png_ways:sequence_threads", png=True, lead_in=QUEUED
    ),
    "png-sequence-processes": Way(
        "PyDataset, 6 processes",
        "PNG files",
        "png_ways:sequence_processes",
        png=True,
        lead_in=QUEUED,
    ),
    "png-sequence-keras-flip": Way(
        "PyDataset, Keras RandomFlip",
        "PNG files",
        "png_ways:sequence_keras_layers",
        png=True,
        flips=True,
    ),
    "png-sequence-albumentations": Way(
        "PyDataset, Albumentations",
        "PNG files",
        "png_ways:sequence_albumentations",
        ("tensorflow", "albumentations"),
        png=True,
        flips=True,
    ),
    "png-tf": Way("tf.data", "PNG files", "png_ways:tf_png", png=True),
    "png-tf-albumentations": Way(
        "tf.data, Albumentations",
        "PNG files",
        "png_ways:tf_png_albumentations",
        ("tensorflow", "albumentations"),
        png=True,
        flips=True,
    ),
    "timeseries": Way(
        "timeseries_dataset_from_array", "memory", "tf_ways:timeseries", in_memory=True
    ),
    "from-generator": Way("from_generator, memmap", "arrays", "tf_ways:from_generator"),
    "numpy-function": Way("numpy_function, memmap", "arrays", "tf_ways:numpy_function"),
    "zarr": Way(
        "zarr-python", "arrays", "array_ways:zarr_python", ("zarr",), prefetches=False, library=True
    ),
    "h5py": Way(
        "h5py", "arrays", "array_ways:h5py_slices", ("h5py",), prefetches=False, library=True
    ),
    "tensorstore": Way(
        "tensorstore",
        "arrays",
        "array_ways:tensorstore_slices",
        ("tensorstore",),
        prefetches=False,
        library=True,
    ),
    "torch-h5py": Way(
        "torch DataLoader, h5py",
        "arrays",
        "array_ways:torch_hdf5",
        _TORCH,
        prefetches=False,
        library=True,
    ),
    "torch-h5py-workers": Way(
        "torch DataLoader, h5py, 2 workers",
        "arrays",
        "array_ways:torch_hdf5_workers",
        _TORCH,
        library=True,
    ),
    "grain": Way("Grain, memmap", "arrays", "array_ways:grain_batches", ("grain",)),
    "xbatcher": Way(
        "xbatcher",
        "arrays",
        "array_ways:xbatcher_batches",
        ("xbatcher",),
        prefetches=False,
        library=True,
    ),
}
BASES = ("preloaded", "framewin-tf", "framewin-numpy")
"""What the others are compared with: the first of these that can be measured."""


def choose(scene: Scene, only: Sequence[str], memory_bytes: int) -> tuple[str, list[str]]:
    """The base, and the names of the ways to measure with it, in the order of the table."""
    base = next(name for name in BASES if why_not(name, scene, memory_bytes) is None)
    wanted = {base, *only} if only else set(WAYS)
    return base, [name for name in WAYS if name in wanted]


def refuse_unknown(only: Sequence[str]) -> None:
    """Say which names there are.

    Raises:
        ValueError: One of these is none of them.
    """
    unknown = [name for name in only if name not in WAYS]
    if unknown:
        raise ValueError(f"only must name ways, got {unknown[0]!r}; there are {', '.join(WAYS)}")


def why_not(name: str, scene: Scene, memory_bytes: int) -> str | None:
    """Why a way cannot be measured here; None where it can.

    Args:
        name: One of `WAYS`.
        scene: The store and its files.
        memory_bytes: Of the machine.
    """
    way = WAYS[name]
    absent = [module for module in way.modules if find_spec(module) is None]
    if absent:
        return f"needs {absent[0]}, which is not installed"
    if way.png and scene.source is None:
        return "needs --frames, the folder that the store was made from"
    if way.png and not scene.all_png:
        return "the store was not made from PNG files of one frame each"
    if way.png and not scene.png_fits:
        return "the store was converted with options that change pixels"
    if name.startswith("png-tf") and scene.frame_shape[-1] == 2:
        return "TensorFlow reads no PNG of gray and alpha"
    if way.library and scene.needs_plugin and find_spec(PLUGIN) is None:
        return f"needs {PLUGIN}, which is not installed"
    held = scene.dataset.clips.num_frames * scene.dataset.frame_format.nbytes
    if way.in_memory and held > memory_bytes // MEMORY_SHARE:
        return "the frames take more than an eighth of the memory"
    if name == "timeseries" and len(scene.runs) > MOST_RUNS:
        return f"the store has {len(scene.runs)} runs of frames, over {MOST_RUNS}"
    return None


def check(name: str, scene: Scene) -> None:
    """Compare some batches of a way, in order, with the dataset's own.

    Raises:
        StoreError: Other shapes, dtypes or pixels.
    """
    way, scene = WAYS[name], replace(scene.in_order(), processes=CHECKED_PROCESSES)
    batches = way.make(scene)
    try:
        _compare(name, scene, batches)
    finally:
        close(batches)


def _compare(name: str, scene: Scene, batches: Iterator[Any]) -> None:
    way = WAYS[name]
    for step, batch in enumerate(islice(batches, CHECKED_BATCHES)):
        found = [np.asarray(part) for part in batch]
        expected = scene.dataset.batch(scene.plan.windows(step).tolist())
        for part, right in zip(found, expected, strict=True):
            if (part.shape, part.dtype) != (right.shape, right.dtype):
                raise StoreError(
                    f"{name} gives {part.dtype} {part.shape}, the store has {right.dtype} "
                    f"{right.shape}"
                )
        same = _each_window(found, expected)
        if way.flips:
            same |= _each_window(found, [part[..., ::-1, :] for part in expected])
        if not same.all():
            files = "; were the frames changed, or converted with options?" if way.png else ""
            raise StoreError(f"{name} gives other pixels than the store{files}")


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
