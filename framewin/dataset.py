"""Windows of a store as numpy arrays, and the way to every framework."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, cast

import numpy as np

from framewin.containers import Column
from framewin.errors import StoreError
from framewin.schema import ClipTable, FrameFormat, Int64Array
from framewin.stores import cache as caching
from framewin.stores import open_store
from framewin.stores.array_store import open_array
from framewin.stores.cache import FrameStore, Progress
from framewin.stores.chunked import DEFAULT_CACHE_BYTES
from framewin.stores.mapped import MappedFrames
from framewin.stores.verify import refuse_damage
from framewin.windows.spec import Runs, WindowIndex, WindowSpec
from framewin.windows.splits import split_by_clip, split_by_time

if TYPE_CHECKING:
    import tensorflow as tf

CLIPS_NAMED_IN_ERRORS = 5


@dataclass(frozen=True, slots=True)
class Window:
    """Where a window's frames come from."""

    clip: str
    input_frame_numbers: tuple[int, ...]
    predict_frame_numbers: tuple[int, ...]
    input_files: tuple[str, ...]
    """Paths below the source folder that was converted."""
    predict_files: tuple[str, ...]


class FrameWindowDataset:
    """All windows of a store, in row order, as `(input_frames, predict_frames)` pairs.

    Windows never leave a clip and never cross a gap in its frame numbers. Opening reads no
    frames. Raw frames are never loaded as a whole: they are mapped, and the operating system
    reads what a window touches. Compressed frames are decoded in chunks as they are needed, or
    once and for all into a cache.

    A clip of 40 frames has 40 - (5 + 5) + 1 = 31 windows of 5 + 5 frames:

    >>> ds = FrameWindowDataset("clips.zarr", input_frames=5, predict_frames=5)  # doctest: +SKIP
    >>> len(ds), ds[0][0].shape, ds[0][1].shape                                 # doctest: +SKIP
    (744, (5, 64, 64, 1), (5, 64, 64, 1))
    """

    _store: FrameStore

    def __init__(
        self,
        path: str | Path,
        *,
        input_frames: int,
        predict_frames: int,
        frame_step: int = 1,
        window_stride: int = 1,
        lead_gap: int = 0,
        clips: Sequence[str] | None = None,
        cache: str | Path | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        sample_weight: Literal["nodata"] | None = None,
        nodata: float | None = None,
        array: str | None = None,
        axes: str | None = None,
        clip_ids: Column | None = None,
        clip_starts: Column | None = None,
        frame_numbers: Column | None = None,
        allow_missing_chunks: bool = False,
        verify: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Open a store and number its windows.

        Args:
            path: A store made by `framewin convert`; or with `array` or `axes` a Zarr group or
                array, an HDF5 or netCDF4 file, or a .npy file that others wrote.
            input_frames: Frames the predictor sees.
            predict_frames: Frames it must predict.
            frame_step: Distance between neighbouring frames of a window; 2 uses every second.
            window_stride: Distance between the starts of neighbouring windows.
            lead_gap: Frames skipped between the last input and the first predicted frame,
                counted in frame steps.
            clips: Names of the clips to use; all by default.
            cache: `"memory"` decodes the frames of the clips used once, when opening, into
                memory; a path decodes all frames into a file there, or uses it if it is there
                already and the store has not changed. Windows are then read as from a raw store.
            cache_bytes: Without `cache`, the decoded chunks of a compressed store that are kept
                for later windows, in bytes.
            sample_weight: `"nodata"` adds a third part to every window and batch: weights of
                its target pixels, 0 where one has no data, else 1. Where no data is NaN, inputs
                and targets get 0 in its place.
            nodata: Pixel value that stands for no data; by default what the store says.
            array: Name of the array with the frames, for example `"data"` or
                `"image1/image_data"`.
            axes: A letter for each axis of the array, t time, y, x, c channel; by default what
                its dimension names say, else "tyx" or "tyxc".
            clip_ids: Of an array: the clip of each frame, (num_frames,), equal for the frames of
                a clip; or the name of an array that holds them. By default all are one clip.
            clip_starts: Of an array: instead of ids, the row of each clip's first frame.
            frame_numbers: Of an array: the number of each frame, (num_frames,), by which gaps
                are found; or the name of an array. By default there are no gaps.
            allow_missing_chunks: Of an array: take chunks that are not there for frames of the
                fill value.
            verify: Check every byte of the store, and of a cache that is there, when opening.
            progress: Called with (frames done, frames in all) while a cache is filled.

        Raises:
            StoreError: See `open_store` and `open_array`; or a cache of another store.
            ValueError: A parameter below its minimum, an unknown clip, clips that are all too
                short for a window, or weights without a no-data value.
        """
        spec = WindowSpec(input_frames, predict_frames, frame_step, window_stride, lead_gap)
        options = {
            "array": array,
            "axes": axes,
            "clip_ids": clip_ids,
            "clip_starts": clip_starts,
            "frame_numbers": frame_numbers,
        }
        store: FrameStore
        if all(value is None for value in options.values()) and Path(path).suffix != ".npy":
            store = open_store(path, cache_bytes=cache_bytes)
            if verify:
                refuse_damage(path)
        else:
            store = open_array(
                path,
                **options,
                nodata=nodata,
                allow_missing_chunks=allow_missing_chunks,
                cache_bytes=cache_bytes,
            )
        if nodata is not None and nodata != store.meta.nodata:
            store.meta = replace(store.meta, nodata=nodata)
        runs = Runs.of(store.meta.clips)
        if clips is not None:
            runs = runs[np.isin(store.meta.clips.segment_clips, _clip_indices(store, clips))]
        if sample_weight not in (None, "nodata"):
            raise ValueError(f"sample_weight must be None or 'nodata', got {sample_weight!r}")
        if sample_weight == "nodata" and store.meta.nodata is None:
            raise ValueError(f"{path} has no no-data value; give one, for example nodata=255")
        self._weighted = sample_weight is not None
        self._setup(store, spec, runs)
        # Filled last, once everything else is known to be right.
        if cache == "memory":
            ranges = zip(runs.starts.tolist(), (runs.starts + runs.lengths).tolist(), strict=True)
            self._store = caching.in_memory(store, list(ranges), progress)
        elif cache is not None:
            self._store = caching.on_disk(store, Path(cache), progress, verify=verify)

    def _setup(self, store: FrameStore, spec: WindowSpec, runs: Runs) -> None:
        self.spec = spec
        self._store = store
        self._runs = runs
        self._index = WindowIndex(spec, runs)
        if len(self._index) == 0:
            raise ValueError(self._too_short())

    @property
    def path(self) -> Path:
        """The store."""
        return self._store.path

    @property
    def frame_format(self) -> FrameFormat:
        """Height, width, channels and dtype of the stored frames."""
        return self._store.meta.frame_format

    @property
    def clips(self) -> ClipTable:
        """All clips of the store, also those this dataset does not use."""
        return self._store.meta.clips

    @property
    def nodata(self) -> float | None:
        """Pixel value that stands for no data."""
        return self._store.meta.nodata

    @property
    def weighted(self) -> bool:
        """Whether windows have weights as their third part."""
        return self._weighted

    @property
    def mapped(self) -> MappedFrames | None:
        """The frames as mapped memory; None where they must be decoded to be read."""
        frames = self._store.frames
        return frames if isinstance(frames, MappedFrames) else None

    @property
    def frames(self) -> np.ndarray:
        """All frames of the store, (num_frames, H, W, C), mapped, not to be written to.

        Raises:
            StoreError: They must be decoded to be read; `cache="memory"` does that once.
        """
        if self.mapped is None:
            raise StoreError(
                f"the frames of {self.path} are not raw, so they are no array; open it with "
                'cache="memory" or read them with ds.batch([...])'
            )
        return self.mapped.array

    @property
    def index(self) -> WindowIndex:
        """The numbering of the windows."""
        return self._index

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, window: SupportsIndex) -> tuple[np.ndarray, ...]:
        """One window.

        Args:
            window: In [-len(ds), len(ds)); a negative one counts from the end.

        Returns:
            inputs: stored dtype, (input_frames, H, W, C).
            targets: stored dtype, (predict_frames, H, W, C).
            weights: only with `sample_weight`, float32, (predict_frames, H, W).

        Raises:
            IndexError: No such window.
        """
        return tuple(part[0] for part in self.batch([window]))

    def batch(self, windows: Sequence[SupportsIndex]) -> tuple[np.ndarray, ...]:
        """Several windows at once.

        Args:
            windows: B window numbers, each as for `ds[...]`, in any order, repeats allowed.

        Returns:
            inputs: stored dtype, (B, input_frames, H, W, C).
            targets: stored dtype, (B, predict_frames, H, W, C).
            weights: only with `sample_weight`, float32, (B, predict_frames, H, W).

        Raises:
            IndexError: No such window.
            StoreError: A compressed chunk is damaged.
        """
        return self.read(self._checked(windows))

    def read(self, windows: Int64Array) -> tuple[np.ndarray, ...]:
        """Like `batch`, for window numbers (B,) that are known to be in [0, len)."""
        inputs, targets = self._index.frame_rows(windows)
        # In one call, so that a chunk that both touch is decoded once.
        frames = self._store.frames.take(np.concatenate([inputs.ravel(), targets.ravel()]))
        shape = self.frame_format.shape
        parts = (
            frames[: inputs.size].reshape(*inputs.shape, *shape),
            frames[inputs.size :].reshape(*targets.shape, *shape),
        )
        if not self._weighted:
            return parts
        weights = self._weights(parts[1])
        if math.isnan(cast(float, self.nodata)):
            # A loss times 0 is still NaN where the target is.
            np.nan_to_num(frames, copy=False, nan=0.0, posinf=None, neginf=None)
        return (*parts, weights)

    def _weights(self, targets: np.ndarray) -> np.ndarray:
        nodata = cast(float, self.nodata)
        missing = np.isnan(targets) if np.isnan(nodata) else targets == targets.dtype.type(nodata)
        present: np.ndarray = ~missing.any(axis=-1)
        return present.astype(np.float32)

    def window(self, window: SupportsIndex) -> Window:
        """Which clip, frame numbers and files a window is.

        Raises:
            IndexError: No such window.
        """
        inputs, targets = (rows[0] for rows in self._index.frame_rows(self._checked([window])))
        files = self._store.source_files(np.concatenate([inputs, targets]))
        clips = self.clips
        return Window(
            clip=clips.names[int(clips.clips_of(inputs)[0])],
            input_frame_numbers=tuple(clips.frame_numbers(inputs).tolist()),
            predict_frame_numbers=tuple(clips.frame_numbers(targets).tolist()),
            input_files=tuple(files[: len(inputs)]),
            predict_files=tuple(files[len(inputs) :]),
        )

    def windows_per_clip(self) -> dict[str, int]:
        """Number of windows in each clip that this dataset uses; 0 where none fits."""
        counts: dict[str, int] = {}
        for name, length in self._run_names():
            counts[name] = counts.get(name, 0) + self.spec.count(length)
        return counts

    def split(
        self,
        fractions: Mapping[str, float],
        *,
        by: Literal["clip", "time"] = "clip",
        seed: int = 0,
    ) -> dict[str, FrameWindowDataset]:
        """Datasets over parts of the store that share no frame.

        Args:
            fractions: Part name to share, for example `{"train": 0.8, "validation": 0.2}`.
            by: `"clip"` gives whole clips to the parts; `"time"` cuts every clip into
                consecutive parts and leaves one window span out between them.
            seed: Chooses which clips go where; unused by time.

        Raises:
            ValueError: Bad fractions, a part without a window, or a dataset that does not use
                the whole store.
        """
        if self._runs.lengths.sum() != self.clips.num_frames:
            raise ValueError("only a dataset of all clips can be split")
        if by == "clip":
            parts = split_by_clip(self.clips, self.spec, fractions, seed=seed)
        elif by == "time":
            parts = split_by_time(self.clips, self.spec, fractions)
        else:
            raise ValueError(f"by must be 'clip' or 'time', got {by!r}")
        return {name: self._part(runs) for name, runs in parts.items()}

    def to_tf_dataset(
        self,
        *,
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        drop_remainder: bool = False,
        normalize: Literal["unit"] | None = None,
        prefetch: int = 2,
        start_epoch: int = 0,
    ) -> tf.data.Dataset:
        """Batches as a `tf.data.Dataset`; see `framewin.adapters.tf_data.to_tf_dataset`."""
        from framewin.adapters.tf_data import to_tf_dataset

        return to_tf_dataset(
            self,
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            drop_remainder=drop_remainder,
            normalize=normalize,
            prefetch=prefetch,
            start_epoch=start_epoch,
        )

    def __repr__(self) -> str:
        spec = self.spec
        return (
            f"FrameWindowDataset({str(self.path)!r}, {len(self)} windows of "
            f"{spec.input_frames}+{spec.predict_frames} frames {self.frame_format}, "
            f"{len(self.windows_per_clip())} clips)"
        )

    def _part(self, runs: Runs) -> FrameWindowDataset:
        part = object.__new__(FrameWindowDataset)
        part._weighted = self._weighted
        part._setup(self._store, self.spec, runs)
        return part

    def _checked(self, windows: Sequence[SupportsIndex]) -> Int64Array:
        """Window numbers in [0, len)."""
        numbers = [_as_index(window) for window in windows]
        for number in numbers:
            if not -len(self) <= number < len(self):
                raise IndexError(f"window {number} is out of range, there are {len(self)}")
        return np.array(numbers, dtype=np.int64) % len(self)

    def _run_names(self) -> list[tuple[str, int]]:
        """Clip name and length of each run."""
        names = [self.clips.names[i] for i in self.clips.clips_of(self._runs.starts)]
        return list(zip(names, self._runs.lengths.tolist(), strict=True))

    def _too_short(self) -> str:
        longest: dict[str, int] = {}
        for name, length in self._run_names():
            longest[name] = max(length, longest.get(name, 0))
        span = self.spec.span
        lacking = [
            f"{name} has {length} frames in a row and lacks {span - length}"
            for name, length in longest.items()
        ]
        shown = "; ".join(lacking[:CLIPS_NAMED_IN_ERRORS])
        more = len(lacking) - CLIPS_NAMED_IN_ERRORS
        others = f"; and {more} more clips" if more > 0 else ""
        return f"no window fits, each spans {span} frames: {shown}{others}"


def _clip_indices(store: FrameStore, names: Sequence[str]) -> list[int]:
    known = {name: i for i, name in enumerate(store.meta.clips.names)}
    unknown = [name for name in names if name not in known]
    if unknown:
        some = ", ".join(list(known)[:CLIPS_NAMED_IN_ERRORS])
        raise ValueError(f"no clip is called {unknown[0]!r} in {store.path}; there are {some}")
    return [known[name] for name in names]


def _as_index(window: Any) -> int:
    try:
        return operator.index(window)
    except TypeError:
        raise TypeError(
            f"a window is chosen by an integer, got {window!r}; for several use ds.batch([...])"
        ) from None
