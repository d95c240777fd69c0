"""Ways that read arrays without TensorFlow: numpy, zarr-python, h5py, tensorstore and others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from framewin.bench.scene import Plan, Scene
from framewin.stores import open_store
from framewin.stores.durable import FRAMES
from framewin.stores.layout import PLUGIN_FILTERS

PLUGIN = "hdf5plugin"
"""Package that brings HDF5's filters of zstd and lz4."""
ZARR_PIPELINES, FUSED = "zarr.core.codec_pipeline", "FusedCodecPipeline"
LOADER_WORKERS = 2
GRAIN_THREADS = 2
GRAIN_BUFFER = 4


def zarr_path(scene: Scene) -> Path:
    """The store if it is Zarr, else a raw copy that is."""
    return scene.store if scene.store.is_dir() else _copy(scene, "copy.zarr")


def hdf5_path(scene: Scene) -> Path:
    """The store if it is HDF5, else a raw copy that is."""
    return _copy(scene, "copy.h5") if scene.store.is_dir() else scene.store


def _copy(scene: Scene, name: str) -> Path:
    from framewin import convert

    path = scene.scratch / name
    if not path.exists():
        convert(scene.store, path)
    return path


def no_plugin(scene: Scene) -> str | None:
    """Whether the store is an HDF5 file that h5py cannot read by itself."""
    if scene.store.is_dir() or find_spec(PLUGIN) is not None:
        return None
    compression = open_store(scene.store, cache_bytes=0).layout.compression
    return f"needs {PLUGIN}, which is not installed" if compression in PLUGIN_FILTERS else None


def memcpy(scene: Scene) -> Iterator[Any]:
    """The bytes of each batch copied into the same buffers again and again, on one thread."""
    plan, frames = scene.plan, scene.memmap
    shape = (plan.batch_size, plan.input_frames, *scene.frame_shape)
    inputs = np.empty(shape, scene.dtype)
    targets = np.empty((shape[0], plan.predict_frames, *shape[2:]), scene.dtype)
    for batch in plan.each_batch():
        for place, start in enumerate(batch.tolist()):
            middle = start + plan.input_frames
            np.copyto(inputs[place], frames[start:middle])
            np.copyto(targets[place], frames[middle : start + plan.span])
        yield inputs, targets


def zarr_python(scene: Scene) -> Iterator[Any]:
    """Windows as slices of a zarr-python array, with its settings as they are."""
    return _zarr_slices(scene, {})


def zarr_fused(scene: Scene) -> Iterator[Any]:
    """The same by the pipeline of zarr-python that decodes in threads."""
    return _zarr_slices(scene, {"path": f"{ZARR_PIPELINES}.{FUSED}", "max_workers": None})


def zarr_zarrs(scene: Scene) -> Iterator[Any]:
    """The same by the pipeline of zarrs, which decodes in Rust."""
    return _zarr_slices(scene, {"path": "zarrs.ZarrsCodecPipeline"})


def _zarr_slices(scene: Scene, pipeline: dict[str, Any]) -> Iterator[Any]:
    import zarr

    plan, settings = scene.plan, {f"codec_pipeline.{key}": pipeline[key] for key in pipeline}
    with zarr.config.set(settings):
        frames: Any = zarr.open_group(zarr_path(scene), mode="r")[FRAMES]
    for batch in plan.each_batch():
        # For each batch: others take their turns meanwhile, and shards ask for it as they are read.
        with zarr.config.set(settings):
            windows = [np.asarray(frames[start : start + plan.span]) for start in batch.tolist()]
        yield plan.parted(np.stack(windows))


def no_fused(scene: Scene) -> str | None:
    """Whether the installed zarr-python is without that pipeline."""
    from importlib.metadata import version

    has = hasattr(import_module(ZARR_PIPELINES), FUSED)
    return no_plugin(scene) or (None if has else f"zarr-python {version('zarr')} has no {FUSED}")


def h5py_slices(scene: Scene) -> Iterator[Any]:
    """Windows as slices of an h5py dataset."""
    with open_hdf5(hdf5_path(scene)) as file:
        frames = file[FRAMES]
        yield from sliced(scene.plan, lambda start, stop: frames[start:stop])


def open_hdf5(path: Path) -> Any:
    """The file, with the filters of zstd and lz4 where they are installed."""
    import h5py

    if find_spec(PLUGIN):
        import_module(PLUGIN)
    return h5py.File(path, "r")


def tensorstore_slices(scene: Scene) -> Iterator[Any]:
    """Windows read at the same time by tensorstore."""
    import tensorstore

    path = str((zarr_path(scene) / FRAMES).absolute())
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}
    frames = tensorstore.open(spec, read=True).result()
    plan = scene.plan
    for batch in plan.each_batch():
        waiting = [frames[start : start + plan.span].read() for start in batch.tolist()]
        yield plan.parted(np.stack([future.result() for future in waiting]))


def xbatcher_batches(scene: Scene) -> Iterator[Any]:
    """Windows by number from an xbatcher generator over a lazily opened store."""
    import xarray
    import xbatcher

    plan = scene.plan
    # As stored: else what is no data becomes NaN.
    opened = xarray.open_zarr(zarr_path(scene), chunks=None, mask_and_scale=False)
    frames = opened[FRAMES]
    # Every row starts a window, so that a window's number is the row of its first frame.
    sizes = {name: frames.sizes[name] for name in frames.dims[1:]}
    windows = xbatcher.BatchGenerator(
        frames,
        input_dims={"time": plan.span, **sizes},
        input_overlap={"time": plan.span - 1},
    )
    for batch in plan.each_batch():
        yield plan.parted(np.stack([windows[start].values for start in batch.tolist()]))


def grain_batches(scene: Scene) -> Iterator[Any]:
    """Windows of mapped frames through Grain, read by threads that work ahead."""
    import grain

    plan, frames = scene.plan, scene.memmap

    def read(start: Any) -> tuple[np.ndarray, np.ndarray]:
        middle = int(start) + plan.input_frames
        return frames[start:middle], frames[middle : int(start) + plan.span]

    dataset = grain.MapDataset.source(plan.starts)
    if plan.shuffle:
        dataset = dataset.seed(0).shuffle()
    batches = dataset.map(read).batch(plan.batch_size, drop_remainder=True).repeat()
    options = grain.ReadOptions(num_threads=GRAIN_THREADS, prefetch_buffer_size=GRAIN_BUFFER)
    return iter(batches.to_iter_dataset(options))


def insitubatch_batches(scene: Scene) -> Iterator[Any]:
    """Windows of insitubatch, each frame of one a view of the array shifted in time.

    It shuffles within blocks of chunks; all chunks are one block here, as windows of the others
    are shuffled over the whole store.
    """
    from insitubatch import InSituDataset, obstore_store, open_geometries, split_by_chunk

    plan = scene.plan
    store = obstore_store(zarr_path(scene).absolute().as_uri())
    frames = open_geometries(store, variables=[FRAMES])[FRAMES]
    names = [f"{FRAMES}{number}" for number in range(plan.span)]
    dataset = InSituDataset(
        store,
        split_by_chunk(frames, fractions=(1.0, 0.0, 0.0)),
        geometries={name: frames.shift(number) for number, name in enumerate(names)},
        batch_size=plan.batch_size,
        block_chunks=frames.n_chunks,
        shuffle=plan.shuffle,
    )
    for epoch in count():
        dataset.set_epoch(epoch)
        for batch in dataset.train if plan.shuffle else dataset.all:
            if len(batch) == plan.batch_size:
                yield (
                    batch.stack(names[: plan.input_frames]),
                    batch.stack(names[plan.input_frames :]),
                )


def several_runs(scene: Scene) -> str | None:
    """Whether windows begin anew in the store, which insitubatch cannot be told."""
    begins = len(scene.dataset.clips.segment_starts)
    reason = f"the store has {begins} runs of frames, it takes one" if begins > 1 else None
    return no_plugin(scene) or reason


class Hdf5Windows:
    """A map-style dataset for torch, opened in the process that reads it."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path, self.plan = path, plan
        self._frames: Any = None

    def __len__(self) -> int:
        return len(self.plan.starts)

    def __getitem__(self, window: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs (T_in, H, W, C) and targets (T_out, H, W, C)."""
        if self._frames is None:
            self._frames = open_hdf5(self.path)[FRAMES]
        start = int(self.plan.starts[window])
        frames = self._frames[start : start + self.plan.span]
        return frames[: self.plan.input_frames], frames[self.plan.input_frames :]


def torch_hdf5(scene: Scene) -> Iterator[Any]:
    """A DataLoader over h5py, in this process."""
    return _torch_hdf5(scene, 0)


def torch_hdf5_workers(scene: Scene) -> Iterator[Any]:
    """A DataLoader over h5py, with processes that stay."""
    return _torch_hdf5(scene, min(LOADER_WORKERS, scene.processes))


def _torch_hdf5(scene: Scene, workers: int) -> Iterator[Any]:
    from torch.utils.data import DataLoader

    loader: Any = DataLoader(
        Hdf5Windows(hdf5_path(scene), scene.plan),
        batch_size=scene.plan.batch_size,
        shuffle=scene.plan.shuffle,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        multiprocessing_context="spawn" if workers else None,
    )
    while True:
        yield from loader


def sliced(plan: Plan, read: Callable[[int, int], np.ndarray]) -> Iterator[Any]:
    """Batches of slices [start, stop), read one after the other."""
    for batch in plan.each_batch():
        windows = [read(start, start + plan.span) for start in batch.tolist()]
        yield plan.parted(np.stack(windows))
