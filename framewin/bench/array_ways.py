"""Ways that read arrays without TensorFlow: numpy, zarr-python, h5py, tensorstore and others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from framewin.bench.scene import PLUGIN, Plan, Scene
from framewin.stores.durable import FRAMES

LOADER_WORKERS = 2
GRAIN_THREADS = 2
GRAIN_BUFFER = 4


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
    """Windows as slices of a zarr-python array."""
    import zarr

    frames: Any = zarr.open_group(scene.zarr_path(), mode="r")[FRAMES]
    return sliced(scene.plan, lambda start, stop: np.asarray(frames[start:stop]))


def h5py_slices(scene: Scene) -> Iterator[Any]:
    """Windows as slices of an h5py dataset."""
    with open_hdf5(scene.hdf5_path()) as file:
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

    path = str((scene.zarr_path() / FRAMES).absolute())
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}
    frames = tensorstore.open(spec, read=True).result()
    plan = scene.plan
    for batch in plan.each_batch():
        waiting = [frames[start : start + plan.span].read() for start in batch.tolist()]
        yield parted(np.stack([future.result() for future in waiting]), plan)


def xbatcher_batches(scene: Scene) -> Iterator[Any]:
    """Windows by number from an xbatcher generator over a lazily opened store."""
    import xarray
    import xbatcher

    plan = scene.plan
    # As stored: else what is no data becomes NaN.
    opened = xarray.open_zarr(scene.zarr_path(), chunks=None, mask_and_scale=False)
    frames = opened[FRAMES]
    # Every row starts a window, so that a window's number is the row of its first frame.
    sizes = {name: frames.sizes[name] for name in frames.dims[1:]}
    windows = xbatcher.BatchGenerator(
        frames,
        input_dims={"time": plan.span, **sizes},
        input_overlap={"time": plan.span - 1},
    )
    for batch in plan.each_batch():
        yield parted(np.stack([windows[start].values for start in batch.tolist()]), plan)


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
        Hdf5Windows(scene.hdf5_path(), scene.plan),
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
        yield parted(np.stack(windows), plan)


def parted(windows: np.ndarray, plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """(B, T, H, W, C) as inputs and targets."""
    return windows[:, : plan.input_frames], windows[:, plan.input_frames :]
