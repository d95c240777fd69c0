"""The table of framewin's ways and all others, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from benchmarks.array_ways import no_fused, no_plugin, several_runs
from framewin.bench.scene import Scene
from framewin.bench.ways import WAYS as OWN
from framewin.bench.ways import Way, nothing

_TF = "benchmarks.tf_ways"
_FLIPPED = Way("", "", "", "PNG files", png=True, flips=True)
_ALBUMENTATIONS = ("tensorflow", "albumentations")


def _array(
    name: str,
    title: str,
    function: str,
    modules: tuple[str, ...] = (),
    refuses: Callable[[Scene], str | None] = no_plugin,
    *,
    group: str = "arrays",
    prefetches: bool = False,
) -> Way:
    maker = f"benchmarks.array_ways:{function}"
    return Way(name, title, maker, group, modules, prefetches=prefetches, refuses=refuses)


_ALL = (
    _array("memcpy", "numpy copying into a buffer", "memcpy", refuses=nothing, group="floor"),
    *OWN.values(),
    replace(
        _FLIPPED,
        name="png-sequence-keras-flip",
        title="PyDataset, Keras RandomFlip",
        maker=f"{_TF}:sequence_keras_layers",
    ),
    replace(
        _FLIPPED,
        name="png-sequence-albumentations",
        title="PyDataset, Albumentations",
        maker=f"{_TF}:sequence_albumentations",
        modules=_ALBUMENTATIONS,
    ),
    replace(
        _FLIPPED,
        name="png-tf-albumentations",
        title="tf.data, Albumentations",
        maker=f"{_TF}:png_albumentations",
        modules=_ALBUMENTATIONS,
        refuses=OWN["png-tf"].refuses,
    ),
    Way("numpy-function", "numpy_function, memmap", f"{_TF}:numpy_function", "arrays"),
    _array("zarr", "zarr-python", "zarr_python", ("zarr",)),
    _array("zarr-fused", "zarr-python, fused pipeline", "zarr_fused", ("zarr",), no_fused),
    _array("zarr-zarrs", "zarr-python, pipeline of zarrs", "zarr_zarrs", ("zarr", "zarrs")),
    _array("h5py", "h5py", "h5py_slices", ("h5py",)),
    _array("tensorstore", "tensorstore", "tensorstore_slices", ("tensorstore",)),
    _array("torch-h5py", "torch DataLoader, h5py", "torch_hdf5", ("torch",)),
    _array(
        "torch-h5py-workers",
        "torch DataLoader, h5py, 2 workers",
        "torch_hdf5_workers",
        ("torch",),
        prefetches=True,
    ),
    _array("grain", "Grain, memmap", "grain_batches", ("grain",), nothing, prefetches=True),
    _array("xbatcher", "xbatcher", "xbatcher_batches", ("xbatcher", "xarray")),
    _array(
        "insitubatch",
        "insitubatch",
        "insitubatch_batches",
        ("insitubatch",),
        several_runs,
        prefetches=True,
    ),
)
WAYS = {way.name: way for way in _ALL}
