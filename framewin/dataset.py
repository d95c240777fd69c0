"""Windows of a store as numpy arrays, and the way to every framework."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, Unpack, cast

import numpy as np

from framewin.arrays.clips import Column
from framewin.errors import StoreError, one_line
from framewin.remote import Location, RemotePath, location, refuse_url
from framewin.scaling import SCALED_DTYPES, Normalize, Scaling, make_scaling
from framewin.schema import ClipTable, FrameFormat, Int64Array, Progress, listed
from framewin.stores import cache as caching
from framewin.stores import durable, open_store
from framewin.stores.array_store import open_array
from framewin.stores.cache import FrameStore, stored_frames
from framewin.stores.chunked_frames import DEFAULT_CACHE_BYTES
from framewin.stores.mapped_frames import MappedFrames
from framewin.stores.verify import refuse_damage
from framewin.windows.blocks import (
    DECODED_GROUP_BYTES,
    MAPPED_GROUP_BYTES,
    BlockShape,
    ShuffleBlocks,
)
from framewin.windows.choose import Chooser, WindowTable, chosen, weighed
from framewin.windows.lanes import LaneSchedule
from framewin.windows.order import as_integer
from framewin.windows.schedule import BLOCKS, BatchSchedule, Shuffle, cumulative_draws
from framewin.windows.spec import Runs, WindowIndex, WindowSpec
from framewin.windows.splits import (
    ClipChoice,
    SplitTable,
    clips_called,
    split_by_choice,
    split_by_clip,
    split_by_time,
)
from framewin.windows.statistics import (
    ChannelStatistics,
    ChannelSums,
    FrameStatistics,
    missing_values,
)

if TYPE_CHECKING:
    import tensorflow as tf

    from framewin.adapters.batches import WindowBatches
    from framewin.adapters.keras_dataset import KerasDataset
    from framewin.adapters.options import BatchOptions
    from framewin.adapters.torch_dataset import WindowLoader
    from framewin.forecast.window_figures import WindowPicture

CLIPS_NAMED_IN_ERRORS = 5
STATISTICS_BYTES = 2**22
PARALLEL_BATCHES = 2
"""How many batches `to_tf_dataset` makes at a time."""
TRAINING_PART = "train"
SPLIT_SUFFIX = ".split.json"

PartChoice = float | Path | ClipChoice
"""Of a part: a share, clips by name, pattern or expression, or a text file with a name a line."""


@dataclass(frozen=True, slots=True)
class Window:
    """Where a window's frames come from."""

    clip: str
    input_frame_numbers: tuple[int, ...]
    predict_frame_numbers: tuple[int, ...]
    input_files: tuple[str, ...]
    """Paths below the source folder that was converted."""
    predict_files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    """Which windows are used, and how often."""

    where: Chooser | None = None
    weights: Chooser | None = None


@dataclass(slots=True)
class _Known:
    """What was computed once and is shared by a dataset and its parts."""

    runs: Runs
    """Of the dataset that was opened: its frames are the ones that can be read."""
    frames: FrameStatistics | None = None


class SplitParts(dict[str, "FrameWindowDataset"]):
    """The parts of a split by name, which can be kept in a file."""

    def __init__(self, parts: Mapping[str, FrameWindowDataset], table: SplitTable) -> None:
        super().__init__(parts)
        self.table = table

    def save(self, path: str | Path | None = None) -> Path:
        """Write the split to a small JSON file, which `split_file=` reads.

        Args:
            path: By default beside the store, `clips.zarr.split.json`; of a remote store it must
                be given.

        Raises:
            StoreError: The file exists or cannot be written, or would not be on this machine.
        """
        first = next(iter(self.values()))
        if path is not None:
            refuse_url(path, "name a file of this machine for the split")
        path = split_path(first.path) if path is None else Path(path)
        durable.check_new(path)
        try:
            with durable.building(path) as site:
                text = self.table.to_json(first.clips, first.identity)
                site.store.write_text(text, encoding="utf-8")
        except OSError as exc:
            raise StoreError(f"{path} cannot be written: {one_line(exc)}") from exc
        return path


def split_path(store: Location) -> Path:
    """Where the split of a store is kept by default: beside it.

    Raises:
        StoreError: The store is remote.
    """
    if isinstance(store, RemotePath):
        raise StoreError(
            f"{store} is remote, so no split is kept beside it; name a file of this machine, "
            "split_file= to read it, out= or save(path) to write it"
        )
    return store.with_name(store.name + SPLIT_SUFFIX)


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
        path: str | Location,
        *,
        input_frames: int,
        predict_frames: int,
        frame_step: int = 1,
        window_stride: int = 1,
        lead_gap: int = 0,
        clips: Sequence[str] | None = None,
        split: str | None = None,
        split_file: str | Path | None = None,
        split_span: int | None = None,
        where: Chooser | None = None,
        weights: Chooser | None = None,
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
        storage_options: Mapping[str, Any] | None = None,
        verify: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Open a store and number its windows.

        Args:
            path: A store made by `framewin convert`, or its URL (`s3://`, `gs://`, `http://`,
                `https://`), whose chunks are requested as they are needed; or with `array` or
                `axes` a Zarr group or array, an HDF5 or netCDF4 file, or a .npy file that others
                wrote.
            input_frames: Frames the predictor sees.
            predict_frames: Frames it must predict.
            frame_step: Distance between neighbouring frames of a window; 2 uses every second.
            window_stride: Distance between the starts of neighbouring windows.
            lead_gap: Frames skipped between the last input and the first predicted frame,
                counted in frame steps.
            clips: Names of the clips to use; all by default.
            split: Name of a part of the split that was kept in a file; only its windows are used.
            split_file: The file; by default the one beside the store, `clips.zarr.split.json`.
            split_span: Frames that must at least lie between the parts of a split by time; by
                default as many as a window spans. Longer windows stay within their part too.
            where: Which windows to use, by their columns `clip`, `frame_number`, `mean`,
                `motion` and `nodata` (see `framewin.windows.choose`): an expression such as
                `"motion > 2.0 and nodata < 0.5"`, or a function of the table of columns that
                gives True or False for each window. Where `framewin convert --statistics` did not
                record the last three, the frames are read once for them.
            weights: How often windows are drawn: an expression or function as for `where` that
                gives a number >= 0 for each window. A shuffled epoch then draws len(ds) windows
                with replacement; an unshuffled one still has every window once.
            cache: `"memory"` decodes the frames of the clips used once, when opening, into
                memory; a path decodes all frames into a file there, or uses it if it is there
                already and the store has not changed. Windows are then read as from a raw store.
            cache_bytes: Without `cache`, the decoded chunks of a compressed store that are kept
                for later windows, in bytes; raw stores and `.npy` files are mapped and keep none.
            sample_weight: `"nodata"` adds a third part to every window and batch: weights of
                its target pixels, 0 where one has no data, else 1. Where no data is NaN, inputs
                and targets get 0 in its place.
            nodata: Pixel value that stands for no data; by default what the store says.
            array: Name of the array with the frames, for example `"data"` or
                `"image1/image_data"`; or a pattern such as `"data/*/image"` of arrays of which
                each is a clip.
            axes: A letter for each axis of the array, t time, y, x, c channel, n clip; by default
                what its dimension names say, else "tyx" or "tyxc" where the shape leaves no doubt.
            clip_ids: Of an array: the clip of each frame, (num_frames,), equal for the frames of
                a clip; or the name of an array that holds them. By default all are one clip.
            clip_starts: Of an array: instead of ids, the row of each clip's first frame.
            frame_numbers: Of an array: the number of each frame, (num_frames,), by which gaps
                are found; or the name of an array. By default there are no gaps.
            allow_missing_chunks: Of an array that others wrote: take chunks that are not there
                for frames of the fill value.
            storage_options: Of a URL: settings of obstore's store, such as `{"endpoint": ...}` or
                `{"skip_signature": True}`, above those of the environment.
            verify: Check every byte of the store, and of a cache that is there, when opening.
            progress: Called with (frames done, frames in all) while a cache is filled.

        Raises:
            StoreError: See `open_store` and `open_array`; or a cache of another store.
            ValueError: A parameter below its minimum, an unknown clip, clips that are all too
                short for a window, or weights without a no-data value.
        """
        self._opened_with = {
            name: value
            for name, value in locals().items()
            if name not in ("self", "path", "progress")
        }
        # The folder of the process, or of one that opens it again, may be another one later.
        for name in ("cache", "split_file"):
            if name != "cache" or cache != "memory":
                self._opened_with[name] = _absolute(self._opened_with[name], text=True)
        self._derived: tuple[dict[str, Any], str] | None = None
        self._opened_by = os.getpid()
        spec = WindowSpec(input_frames, predict_frames, frame_step, window_stride, lead_gap)
        store = _open(path, self._opened_with)
        runs = Runs.of(store.meta.clips)
        if clips is not None:
            runs = runs[np.isin(store.meta.clips.segment_clips, _clip_indices(store, clips))]
        if sample_weight not in (None, "nodata"):
            raise ValueError(f"sample_weight must be None or 'nodata', got {sample_weight!r}")
        if sample_weight == "nodata" and store.meta.nodata is None:
            raise ValueError(f"{path} has no no-data value; give one, for example nodata=255")
        if clips is not None and split is not None:
            raise ValueError("give clips or split, not both")
        if split is None and (split_file, split_span) != (None, None):
            raise ValueError("split_file and split_span go with split=, the name of a part")
        if split_span is not None and split_span < 1:
            raise ValueError(f"split_span must be >= 1, got {split_span}")
        self._weighted = sample_weight is not None
        self._choice = _Choice(where, weights)
        self._reference: FrameWindowDataset | Runs | None = None
        self._statistics: ChannelStatistics | None = None
        reference_runs = runs
        if split is not None:
            parts = _read_split(store, split_span or spec.span, split, split_file)
            runs, reference_runs = parts[split], parts[_training_part(parts)]
        used = runs if reference_runs is runs else _joined(runs, reference_runs)
        self._known = _Known(used)
        self._number(store, spec, runs)
        # Filled once everything else is known to be right.
        if cache == "memory":
            ranges = zip(used.starts.tolist(), (used.starts + used.lengths).tolist(), strict=True)
            self._store = caching.in_memory(store, list(ranges), progress)
        elif cache is not None:
            self._store = caching.on_disk(store, Path(cache), progress, verify=verify)
        self._choose()
        if reference_runs is not runs:
            self._reference = reference_runs

    def _number(self, store: FrameStore, spec: WindowSpec, runs: Runs) -> None:
        self.spec = spec
        self._store = store
        self._runs = runs
        self._index = WindowIndex(spec, runs)
        self._draws: Int64Array | None = None
        if len(self._index) == 0:
            raise ValueError(self._too_short())

    def _choose(self) -> None:
        """Leave out the windows that are not wanted, and weigh the others."""
        where, weights = self._choice.where, self._choice.weights
        if where is not None:
            self._index = self._index.only(chosen(where, self.table))
            if len(self._index) == 0:
                part = "" if self._derived is None else f" of the part {self._derived[1]!r}"
                raise ValueError(f"no window{part} satisfies where={where!r}; loosen it")
        if weights is not None:
            self._draws = cumulative_draws(weighed(weights, self.table))

    @property
    def path(self) -> Location:
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
    def conversion(self) -> Mapping[str, Any]:
        """How the store was converted; of an array that others wrote, what its attributes say."""
        return self._store.meta.conversion

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
                f"the frames of {self.path} are not mapped, so they are no array; open it with "
                'cache="memory" or read them with ds.batch([...])'
            )
        self.mapped.check()
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
        return self.weigh(*self.read(self._checked(windows)))

    def __getitems__(self, windows: Sequence[SupportsIndex]) -> list[tuple[np.ndarray, ...]]:
        """Several windows, each as `ds[window]`: what torch's DataLoader asks for."""
        return list(zip(*self.batch(windows), strict=True))

    def read(self, windows: Int64Array) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets as they are stored, for window numbers (B,) known to be in [0, len).

        Returns:
            inputs: stored dtype, (B, input_frames, H, W, C).
            targets: stored dtype, (B, predict_frames, H, W, C).
        """
        self._leave_parent()
        inputs, targets = self._index.frame_rows(windows)
        # In one call, so that a chunk that both touch is decoded once.
        frames = self._store.frames.take(np.concatenate([inputs.ravel(), targets.ravel()]))
        shape = self.frame_format.shape
        return (
            frames[: inputs.size].reshape(*inputs.shape, *shape),
            frames[inputs.size :].reshape(*targets.shape, *shape),
        )

    def weigh(self, inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, ...]:
        """A batch with its weights as the third part, if the dataset has them.

        Args:
            inputs: (B, input_frames, H, W, C), changed in place where no data is NaN.
            targets: (B, predict_frames, H, W, C), likewise.

        Returns:
            inputs and targets, with 0 where they are NaN and NaN is no data; weights: float32,
            (B, predict_frames, H, W).
        """
        if not self._weighted:
            return inputs, targets
        weights = self.weights_of(targets)
        if math.isnan(cast(float, self.nodata)):
            # A loss times 0 is still NaN where the target is.
            for part in (inputs, targets):
                part[np.isnan(part)] = 0
        return inputs, targets, weights

    def weights_of(self, targets: np.ndarray) -> np.ndarray:
        """Weights of target pixels: 0 without data in any channel, else 1.

        Args:
            targets: Stored dtype, (..., H, W, C).

        Returns:
            float32, (..., H, W).
        """
        missing = missing_values(targets, self.nodata)
        if missing is None:
            return np.ones(targets.shape[:-1], np.float32)
        absent: np.ndarray = np.asarray(missing.any(axis=-1))
        return np.float32(1) - absent

    def window(self, window: SupportsIndex) -> Window:
        """Which clip, frame numbers and files a window is.

        Raises:
            IndexError: No such window.
        """
        inputs, targets = (rows[0] for rows in self._index.frame_rows(self._checked([window])))
        files = self.source_files(np.concatenate([inputs, targets]))
        clips = self.clips
        return Window(
            clip=clips.names[int(clips.clips_of(inputs)[0])],
            input_frame_numbers=tuple(clips.frame_numbers(inputs).tolist()),
            predict_frame_numbers=tuple(clips.frame_numbers(targets).tolist()),
            input_files=tuple(files[: len(inputs)]),
            predict_files=tuple(files[len(inputs) :]),
        )

    def show(self, window: int) -> WindowPicture:
        """A picture of a window, which a notebook displays and `save("w.png")` writes."""
        from framewin.forecast.window_figures import window_picture

        return window_picture(self, window)

    def windows_per_clip(self) -> dict[str, int]:
        """Number of windows in each clip that this dataset uses; 0 where none fits."""
        counts = dict.fromkeys((name for name, _ in self._run_names()), 0)
        ends = self._index.window_ends
        firsts = np.concatenate([[0], ends[:-1]])
        owners = self.clips.clips_of(self._index.start_rows(firsts))
        for clip, count in zip(owners.tolist(), np.diff(ends, prepend=0).tolist(), strict=True):
            counts[self.clips.names[clip]] += count
        return counts

    @property
    def table(self) -> WindowTable:
        """The columns by which `where` and `weights` choose, one row per window."""
        return WindowTable(self._index, self.clips, self.frame_statistics)

    def frame_statistics(self) -> FrameStatistics:
        """Mean, motion and fraction without data of each frame of the store.

        They are recorded where `framewin convert --statistics` was asked for them. Otherwise, and
        where `nodata=` is another value than the store's, the frames of the clips used are read
        once, and the others are NaN. The motion of a segment's first frame is NaN.
        """
        if self._known.frames is None:
            recorded = self._store.statistics()
            if recorded is not None:
                self._known.frames = FrameStatistics(**recorded)
        if self._known.frames is None:
            found = FrameStatistics.empty(self.clips.num_frames)
            runs = self._known.runs
            for first, length in zip(runs.starts.tolist(), runs.lengths.tolist(), strict=True):
                previous = None
                for row, frames in self.blocks(first, first + length):
                    found.put(row, frames, previous=previous, nodata=self.nodata)
                    previous = frames[-1]
            self._known.frames = found
        return self._known.frames

    def statistics(self) -> ChannelStatistics:
        """Mean, standard deviation, least and greatest value per channel.

        They are of the frames of this dataset's windows; for every part of a split, those of
        the part `"train"` (the first one, where none is called so), so that nothing is learned
        from the frames that are held back. Reads these frames once.
        """
        if isinstance(self._reference, Runs):
            # Only now: where= may leave the training part without a window.
            try:
                self._reference = self._part(self._reference, None)
            except ValueError as exc:
                raise ValueError(f"statistics are of the training part, but there {exc}") from None
        if self._reference is not None:
            return self._reference.statistics()
        if self._statistics is None:
            sums = ChannelSums(self.frame_format.channels)
            for begin, end in self._index.row_ranges().tolist():
                for _, frames in self.blocks(begin, end):
                    sums.add(frames, nodata=self.nodata)
            self._statistics = sums.result()
        return self._statistics

    def scaling(self, normalize: Normalize | None, *, dtype: str | None = None) -> Scaling | None:
        """What `normalize=` and `dtype=` of the adapters do, for numpy; its `invert` undoes it.

        Args:
            normalize: `"unit"`, `"standard"` (by `statistics()`), or (mean, std).
            dtype: `"float32"` (default), `"float16"` or `"bfloat16"`.

        Returns:
            None where both are None: frames stay as they are stored.
        """
        return make_scaling(
            normalize,
            dtype,
            stored=self.frame_format.dtype,
            channels=self.frame_format.channels,
            statistics=self.statistics,
        )

    def schedule(
        self,
        *,
        batch_size: int,
        shuffle: Shuffle = False,
        shuffle_blocks: ShuffleBlocks | None = None,
        seed: int = 0,
        drop_remainder: bool = False,
        shard: tuple[int, int] = (0, 1),
        lanes: bool = False,
    ) -> BatchSchedule | LaneSchedule:
        """Which windows every batch of every epoch holds, in all adapters alike."""
        if lanes and self._draws is not None:
            raise ValueError("lanes follow the clips, so windows with weights= cannot be drawn")
        if lanes and shuffle_blocks is not None:
            raise ValueError(
                "lanes read every clip from front to back, so there are no blocks to shuffle; "
                f"leave shuffle_blocks out, got {shuffle_blocks!r}"
            )
        if lanes:
            return LaneSchedule(self.index, batch_size, shuffle=shuffle, seed=seed, shard=shard)
        shape = None
        if shuffle_blocks is not None:
            shape = BlockShape.of(shuffle_blocks)
        elif shuffle == BLOCKS:
            shape = self.block_shape()
        return BatchSchedule(
            len(self), batch_size, shuffle, seed, drop_remainder, shard, self._draws, shape
        )

    def block_shape(self, *, group_bytes: int | None = None) -> BlockShape:
        """The usual `shuffle_blocks` of `shuffle="blocks"`.

        It follows from the store and its windows alone: whatever the cache and `cache_bytes`, so
        that shards which keep frames in different ways have one order. Where not even two useful
        blocks fit into a group, which takes about 4 window spans of frames, blocks become as
        short as single windows, and frames are read as often as in a full shuffle: raise
        `group_bytes`, and of decoded frames `cache_bytes`, which must hold a group.

        Args:
            group_bytes: Frames that are shuffled among themselves, in bytes, which must stay in
                memory for as long; by default 1 GiB where the store's frames can be mapped,
                256 MiB where they are decoded. With less `cache_bytes` than that, give them here.
        """
        frames = stored_frames(self._store)
        chunk_frames, room = 1, MAPPED_GROUP_BYTES
        if not isinstance(frames, MappedFrames):
            chunk_frames, room = frames.chunk_frames, DECODED_GROUP_BYTES
        return BlockShape.usual(
            self.spec,
            rows_per_window=self._index.rows_per_window,
            frame_bytes=self.frame_format.nbytes,
            chunk_frames=chunk_frames,
            group_bytes=room if group_bytes is None else group_bytes,
        )

    def state(
        self,
        steps_done: int,
        *,
        batch_size: int,
        shuffle: Shuffle = False,
        shuffle_blocks: ShuffleBlocks | None = None,
        seed: int = 0,
        drop_remainder: bool = False,
        shard: tuple[int, int] = (0, 1),
        lanes: bool = False,
    ) -> dict[str, Any]:
        """Where training stands after some steps, as JSON values.

        `ds.to_tf_dataset(**state)` goes on with the batch after the last one, as do the other
        adapters; whatever was passed, it costs the same. Give the options of the training, whose
        defaults are the same here.
        """
        schedule = self.schedule(
            batch_size=batch_size,
            shuffle=shuffle,
            shuffle_blocks=shuffle_blocks,
            seed=seed,
            drop_remainder=drop_remainder,
            shard=shard,
            lanes=lanes,
        )
        epoch, step = schedule.place(steps_done)
        blocks = schedule.shuffle_blocks if isinstance(schedule, BatchSchedule) else None
        return {
            "batch_size": batch_size,
            "shuffle": shuffle,
            **({} if blocks is None else {"shuffle_blocks": astuple(blocks)}),
            "seed": seed,
            "drop_remainder": drop_remainder,
            "shard": tuple(shard),
            "lanes": lanes,
            "start_epoch": epoch,
            "start_step": step,
        }

    def memory_estimate(
        self, *, batch_size: int, prefetch: int = 2, dtype: str | None = None
    ) -> int:
        """Bytes of the batches that `to_tf_dataset` holds: the one in use, those that are ready
        and those that are being made; what augmentation takes on the way is not counted.

        Neither shuffling nor the size of the store adds to them; what was read of a mapped store
        is cache that the operating system takes back when it needs it.

        Args:
            batch_size: As for `to_tf_dataset`.
            prefetch: Likewise.
            dtype: Of scaled frames; by default the stored one.

        Raises:
            ValueError: Another dtype than those that frames are scaled to.
        """
        if dtype is not None and dtype not in SCALED_DTYPES:
            allowed = ", ".join(SCALED_DTYPES)
            raise ValueError(f"dtype must be None or one of {allowed}, got {dtype!r}")
        as_integer("batch_size", batch_size, 1)
        as_integer("prefetch", prefetch, 0)
        spec, form = self.spec, self.frame_format
        stored = batch_size * (spec.input_frames + spec.predict_frames) * form.nbytes
        batch = stored
        if dtype is not None:
            item_bytes = 4 if dtype == "float32" else 2
            batch = stored // np.dtype(form.dtype).itemsize * item_bytes
        if self.weighted:
            batch += batch_size * spec.predict_frames * form.height * form.width * 4
        under_way = batch if dtype is None else batch + stored
        return (1 + prefetch) * batch + PARALLEL_BATCHES * under_way

    def blocks(self, begin: int, end: int) -> Iterator[tuple[int, np.ndarray]]:
        """Frames of rows [begin, end) in pieces of some megabytes: first row and (n, H, W, C)."""
        self._leave_parent()
        size = max(1, STATISTICS_BYTES // self.frame_format.nbytes)
        for first in range(begin, end, size):
            yield first, self._store.frames.take(np.arange(first, min(first + size, end)))

    def source_files(self, rows: Int64Array) -> list[str]:
        """The file below the source folder that each row of the store came from."""
        return self._store.source_files(rows)

    @property
    def identity(self) -> str:
        """Changes with the store's content."""
        return self._store.identity

    def split(
        self,
        parts: Mapping[str, PartChoice] | None = None,
        *,
        by: Literal["clip", "time"] = "clip",
        seed: int = 0,
        **named: PartChoice,
    ) -> SplitParts:
        """Datasets over parts of the store that share no frame.

        Args:
            parts: Part name to share, for example `{"train": 0.8, "validation": 0.2}`; or to
                clips: their names or glob patterns, a regular expression, or the path of a text
                file with a name or pattern in each line. `split(train=0.8, test=0.2)` is the
                same.
            by: `"clip"` gives whole clips to the parts; `"time"` cuts every clip into
                consecutive parts and leaves one window span out between them; where a part would
                have no window in any clip, the windows of all clips are cut in a row.
            seed: Chooses which clips go where; unused by time and where clips are named.

        Raises:
            ValueError: Bad fractions, an unknown clip or one in two parts, a part without a
                window, or a dataset that is a part itself.
        """
        choices = {**(parts or {}), **named}
        if self._derived is not None or self._opened_with["split"] is not None:
            raise ValueError("this is a part of a split; split the dataset that it comes from")
        if by not in ("clip", "time"):
            raise ValueError(f"by must be 'clip' or 'time', got {by!r}")
        found = self._divided(choices, by, seed)
        parts = {name: _absolute(choice) for name, choice in choices.items()}
        recipe = {"parts": parts, "by": by, "seed": seed}
        datasets = {name: self._part(runs, (recipe, name)) for name, runs in found.items()}
        reference = datasets[_training_part(datasets)]
        for part in datasets.values():
            if part is not reference:
                part._reference = reference
        table = SplitTable(by, self.spec.span, found)
        return SplitParts(datasets, table)

    def _divided(self, choices: Mapping[str, PartChoice], by: str, seed: int) -> dict[str, Runs]:
        shares = {n: c for n, c in choices.items() if isinstance(c, int | float)}
        if shares and len(shares) < len(choices):
            raise ValueError(f"give every part a share, or every part its clips; got {choices}")
        if shares or not choices:
            if by == "clip":
                return split_by_clip(self.clips, self.spec, shares, seed=seed, used=self._runs)
            return split_by_time(self.clips, self.spec, shares, used=self._runs)
        if by == "time":
            raise ValueError("by='time' needs shares, such as train=0.8; clips were named")
        named = {
            name: _lines(choice) if isinstance(choice, Path) else cast(ClipChoice, choice)
            for name, choice in choices.items()
        }
        return split_by_choice(self.clips, self.spec, named, used=self._runs)

    def to_tf_dataset(
        self,
        *,
        batch_size: int,
        shuffle: Shuffle = False,
        shuffle_blocks: ShuffleBlocks | None = None,
        seed: int = 0,
        drop_remainder: bool = False,
        normalize: Normalize | None = None,
        dtype: str | None = None,
        augment: Any = None,
        input_name: str | None = None,
        prefetch: int = 2,
        read_ahead: int = 0,
        start_epoch: int = 0,
        start_step: int = 0,
        shard: tuple[int, int] = (0, 1),
        lanes: bool = False,
        repeat: bool = False,
    ) -> tf.data.Dataset:
        """Batches as a `tf.data.Dataset`; see `framewin.adapters.tf_data.to_tf_dataset`."""
        from framewin.adapters.tf_data import to_tf_dataset

        return to_tf_dataset(
            self,
            batch_size=batch_size,
            shuffle=shuffle,
            shuffle_blocks=shuffle_blocks,
            seed=seed,
            drop_remainder=drop_remainder,
            normalize=normalize,
            dtype=dtype,
            augment=augment,
            input_name=input_name,
            prefetch=prefetch,
            read_ahead=read_ahead,
            start_epoch=start_epoch,
            start_step=start_step,
            shard=shard,
            lanes=lanes,
            repeat=repeat,
        )

    def to_batches(self, *, epochs: int = 1, **options: Unpack[BatchOptions]) -> WindowBatches:
        """Numpy batches by number; see `framewin.adapters.batches.WindowBatches`."""
        from framewin.adapters.batches import WindowBatches

        return WindowBatches(self, epochs=epochs, **options)

    def to_keras_dataset(
        self,
        *,
        workers: int = 1,
        use_multiprocessing: bool = False,
        max_queue_size: int = 10,
        **options: Unpack[BatchOptions],
    ) -> KerasDataset:
        """A `keras.utils.PyDataset`; see `framewin.adapters.keras_dataset.KerasDataset`."""
        from framewin.adapters.keras_dataset import KerasDataset

        return KerasDataset(
            self,
            workers=workers,
            use_multiprocessing=use_multiprocessing,
            max_queue_size=max_queue_size,
            **options,
        )

    def to_torch_loader(
        self, *, channels_first: bool = False, num_workers: int = 0, **options: Any
    ) -> WindowLoader:
        """A torch DataLoader; see `framewin.adapters.torch_dataset.to_torch_loader`."""
        from framewin.adapters.torch_dataset import to_torch_loader

        return to_torch_loader(
            self, channels_first=channels_first, num_workers=num_workers, **options
        )

    def __repr__(self) -> str:
        spec = self.spec
        return (
            f"FrameWindowDataset({str(self.path)!r}, {len(self)} windows of "
            f"{spec.input_frames}+{spec.predict_frames} frames {self.frame_format}, "
            f"{len(self.windows_per_clip())} clips)"
        )

    def _part(self, runs: Runs, recipe: tuple[dict[str, Any], str] | None) -> FrameWindowDataset:
        part = object.__new__(FrameWindowDataset)
        part._weighted = self._weighted
        part._opened_with, part._derived = self._opened_with, recipe
        part._opened_by = self._opened_by
        part._choice, part._known = self._choice, self._known
        part._reference = part._statistics = None
        part._number(self._store, self.spec, runs)
        part._choose()
        return part

    def _leave_parent(self) -> None:
        """In a forked process, open again what is not mapped: locks and file positions."""
        if self._opened_by != os.getpid():
            if self.mapped is None:
                # What was checked when it was opened is not checked again by each worker.
                again = _open(self.path, {**self._opened_with, "verify": False})
                _refuse_another(self.path, "store", again.identity, self.identity)
                self._store = again
            self._opened_by = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        """How to open it again: frames, mappings, threads and locks are not carried along."""
        options = {**self._opened_with, "verify": False}
        found = (self.identity, self._index.digest)
        return _reopened, (str(self.path), options, self._derived, found)

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


def _open(path: str | Location, options: Mapping[str, Any]) -> FrameStore:
    """The store or array that the options of a dataset name."""
    path = location(path, options["storage_options"]).absolute()
    nodata, cache_bytes = options["nodata"], options["cache_bytes"]
    names = ("array", "axes", "clip_ids", "clip_starts", "frame_numbers")
    of_array = {name: options[name] for name in names}
    store: FrameStore
    if all(value is None for value in of_array.values()) and path.suffix != ".npy":
        store = open_store(path, cache_bytes=cache_bytes)
        if options["allow_missing_chunks"]:
            raise ValueError(f"{path} is a store of framewin; leave allow_missing_chunks out")
        if options["verify"]:
            refuse_damage(path)
    else:
        if options["verify"] and options["cache"] in (None, "memory"):
            raise ValueError(
                f"{path} was not written by framewin and has no checksums; leave verify out"
            )
        store = open_array(
            path,
            **of_array,
            nodata=nodata,
            allow_missing_chunks=options["allow_missing_chunks"],
            cache_bytes=cache_bytes,
        )
    if nodata is not None and nodata != store.meta.nodata:
        store.meta = replace(store.meta, nodata=nodata)
    return store


def _reopened(
    path: str,
    options: dict[str, Any],
    derived: tuple[dict[str, Any], str] | None,
    pickled: tuple[str, str] | None = None,
) -> FrameWindowDataset:
    # Pickles made before do not say what they were of.
    dataset = FrameWindowDataset(path, **options)
    if pickled is not None:
        _refuse_another(path, "store", dataset.identity, pickled[0])
    if derived is not None:
        recipe, name = derived
        dataset = dataset.split(recipe["parts"], by=recipe["by"], seed=recipe["seed"])[name]
    if pickled is not None:
        _refuse_another(path, "choice of windows", dataset.index.digest, pickled[1])
    return dataset


def _refuse_another(path: Location | str, what: str, found: str, expected: str) -> None:
    if found != expected:
        raise StoreError(
            f"{path} is to be opened again, but its {what} has changed since; start again with a "
            "new FrameWindowDataset"
        )


def _read_split(
    store: FrameStore, span: int, part: str, path: str | Path | None
) -> Mapping[str, Runs]:
    file = split_path(store.path) if path is None else Path(path)
    if not file.is_file():
        raise StoreError(f"{file} does not exist; framewin split {store.path} makes it")
    try:
        table = SplitTable.from_json(
            file.read_text(encoding="utf-8"), store.meta.clips, store.identity
        )
    except ValueError as exc:
        raise StoreError(f"{file} {exc}") from None
    if part not in table.parts:
        raise ValueError(f"{file} has no part {part!r}; it has {', '.join(table.parts)}")
    if table.by == "time" and span > table.span:
        raise ValueError(
            f"{file} leaves {table.span} frames out between the parts, a window spans "
            f"{span}; split again for these windows"
        )
    return table.parts


def _training_part(parts: Mapping[str, Any]) -> str:
    return TRAINING_PART if TRAINING_PART in parts else next(iter(parts))


def _joined(one: Runs, other: Runs) -> Runs:
    starts = np.concatenate([one.starts, other.starts])
    order = np.argsort(starts, kind="stable")
    return Runs(starts[order], np.concatenate([one.lengths, other.lengths])[order])


def _absolute(path: Any, *, text: bool = False) -> Any:
    """A path from the root of the file system; anything else as it is."""
    is_path = isinstance(path, Path) or (text and isinstance(path, str))
    return Path(path).absolute() if is_path else path


def _lines(path: Path) -> list[str]:
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ValueError(f"{path} is no file; expected a text file with a clip in each line")
    try:
        lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as exc:
        raise ValueError(
            f"{path} cannot be read as a text file with a clip in each line: {exc}"
        ) from None
    names = [line for line in lines if line and not line.startswith("#")]
    if not names:
        raise ValueError(f"{path} names no clip; write one in each line")
    return names


def _clip_indices(store: FrameStore, names: Sequence[str]) -> list[int]:
    if isinstance(names, str):
        raise ValueError(f"clips must be a list of names, got the text {names!r}")
    found = clips_called(store.meta.clips.names, names)
    unknown = [name for name, clip in zip(names, found, strict=True) if clip is None]
    if unknown:
        raise ValueError(
            f"no clip of {store.path} is called {' or '.join(map(repr, unknown[:2]))}; there are "
            f"{listed(store.meta.clips.names)}"
        )
    return [clip for clip in found if clip is not None]


def _as_index(window: Any) -> int:
    try:
        return operator.index(window)
    except TypeError:
        raise TypeError(
            f"a window is chosen by an integer, got {window!r}; for several use ds.batch([...])"
        ) from None
