"""Windows of a store as numpy arrays, and the way to every framework."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, Unpack, cast

import numpy as np

from framewin.batches import PARALLEL_BATCHES, Batches, BatchOptions, renamed, takes_batch_options
from framewin.errors import StoreError
from framewin.frames import Frames, open_frames, refuse_another
from framewin.remote import Location
from framewin.scaling import Normalize, Scaling, make_scaling
from framewin.schema import ClipTable, FrameFormat, Int64Array, listed
from framewin.splitting import PartChoice, SplitPart, SplitParts, absolute, divided, training_part
from framewin.stores.mapped_frames import MappedFrames
from framewin.windows.blocks import DECODED_GROUP_BYTES, MAPPED_GROUP_BYTES, BlockShape
from framewin.windows.choose import Chooser, WindowTable, chosen, weighed
from framewin.windows.schedule import cumulative_draws
from framewin.windows.spec import Runs, WindowIndex, WindowSpec
from framewin.windows.splits import SplitTable, clips_called
from framewin.windows.statistics import ChannelStatistics, FrameStatistics, missing_values

if TYPE_CHECKING:
    import tensorflow as tf

    from framewin.adapters.keras_dataset import KerasDataset
    from framewin.adapters.torch_dataset import WindowLoader
    from framewin.pictures.window_figures import WindowPicture

CLIPS_NAMED_IN_ERRORS = 5
_OLD_ARGUMENTS = {
    "path": "give it first, without its name",
    "split_file": 'write split=SplitPart("train", file=...)',
    "split_span": 'write split=SplitPart("train", span=...)',
    **{
        name: f"write FrameWindowDataset(open_frames(path, {name}=...), ...)"
        for name in [*inspect.signature(open_frames).parameters][1:]
    },
}
_OLD_METHODS = {
    "to_batches": "ds.batches(...)",
    "schedule": "ds.batches(...).schedule",
    "state": "ds.batches(...).state(steps)",
    "memory_estimate": "ds.batches(...).memory_estimate()",
}


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


@dataclass(frozen=True, slots=True)
class _Recipe:
    """How a part of a split was made."""

    parts: Mapping[str, Any]
    by: str
    seed: int
    name: str


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

    @renamed(**_OLD_ARGUMENTS)
    def __init__(
        self,
        frames: str | Location | Frames,
        *,
        input_frames: int,
        predict_frames: int,
        frame_step: int = 1,
        window_stride: int = 1,
        lead_gap: int = 0,
        clips: Sequence[str] | None = None,
        split: str | SplitPart | None = None,
        where: Chooser | None = None,
        weights: Chooser | None = None,
        sample_weight: Literal["nodata"] | None = None,
    ) -> None:
        """Open a store and number its windows.

        Args:
            frames: A store made by `framewin convert`, or its URL; or `open_frames(path, ...)`,
                which also opens arrays that others wrote, and caches.
            input_frames: Frames the predictor sees.
            predict_frames: Frames it must predict; 0 where only inputs are wanted.
            frame_step: Distance between neighbouring frames of a window; 2 uses every second.
            window_stride: Distance between the starts of neighbouring windows.
            lead_gap: Frames skipped between the last input and the first predicted frame,
                counted in frame steps.
            clips: Names of the clips to use; all by default.
            split: Name of a part of the split that is kept beside the store; only its windows are
                used. `SplitPart(name, file=...)` reads another file.
            where: Which windows to use, by their columns `clip`, `frame_number`, `mean`,
                `motion` and `nodata` (see `framewin.windows.choose`): an expression such as
                `"motion > 2.0 and nodata < 0.5"`, or a function of the table of columns that
                gives True or False for each window. Where `framewin convert --statistics` did not
                record the last three, the frames are read once for them.
            weights: How often windows are drawn: an expression or function as for `where` that
                gives a number >= 0 for each window. A shuffled epoch then draws len(ds) windows
                with replacement; an unshuffled one still has every window once.
            sample_weight: `"nodata"` adds a third part to every window and batch: weights of
                its target pixels, 0 where one has no data, else 1. Where no data is NaN, inputs
                and targets get 0 in its place.

        Raises:
            StoreError: See `open_frames`.
            ValueError: A parameter below its minimum, an unknown clip, clips that are all too
                short for a window, or weights without a no-data value.
        """
        spec = WindowSpec(input_frames, predict_frames, frame_step, window_stride, lead_gap)
        source = frames if isinstance(frames, Frames) else open_frames(frames)
        table = source.meta.clips
        if sample_weight not in (None, "nodata"):
            raise ValueError(f"sample_weight must be None or 'nodata', got {sample_weight!r}")
        if sample_weight == "nodata" and source.meta.nodata is None:
            raise ValueError(
                f"{source.path} has no no-data value; give one, for example "
                "open_frames(path, nodata=255)"
            )
        if clips is not None and split is not None:
            raise ValueError("give clips or split, not both")
        if split is not None and not isinstance(split, SplitPart):
            split = SplitPart(split)
        runs = reference = Runs.of(table)
        if clips is not None:
            wanted = _clip_indices(source, clips)
            runs = reference = runs[np.isin(table.segment_clips, wanted)]
        elif split is not None:
            runs, reference = split.read(source, spec)
        self._opened_with = {
            **asdict(spec),
            "clips": clips,
            "split": split,
            "where": where,
            "weights": weights,
            "sample_weight": sample_weight,
        }
        self._recipe: _Recipe | None = None
        self._weighted = sample_weight is not None
        self._choice = _Choice(where, weights)
        self._reference: FrameWindowDataset | Runs | None = None
        self._statistics: ChannelStatistics | None = None
        used = runs if reference is runs else _joined(runs, reference)
        self._known = _Known(used)
        self._number(source, spec, runs)
        # Filled once everything else is known to be right.
        source.fill_cache(used)
        self._choose()
        if reference is not runs:
            self._reference = reference

    def _number(self, source: Frames, spec: WindowSpec, runs: Runs) -> None:
        self.spec = spec
        self.source = source
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
                part = "" if self._recipe is None else f" of the part {self._recipe.name!r}"
                raise ValueError(f"no window{part} satisfies where={where!r}; loosen it")
        if weights is not None:
            self._draws = cumulative_draws(weighed(weights, self.table))

    @property
    def path(self) -> Location:
        """The store."""
        return self.source.path

    @property
    def frame_format(self) -> FrameFormat:
        """Height, width, channels and dtype of the stored frames."""
        return self.source.meta.frame_format

    @property
    def clips(self) -> ClipTable:
        """All clips of the store, also those this dataset does not use."""
        return self.source.meta.clips

    @property
    def conversion(self) -> Mapping[str, Any]:
        """How the store was converted; of an array that others wrote, what its attributes say."""
        return self.source.meta.conversion

    @property
    def nodata(self) -> float | None:
        """Pixel value that stands for no data."""
        return self.source.meta.nodata

    @property
    def weighted(self) -> bool:
        """Whether windows have weights as their third part."""
        return self._weighted

    @property
    def mapped(self) -> MappedFrames | None:
        """The frames as mapped memory; None where they must be decoded to be read."""
        return self.source.mapped

    @property
    def frames(self) -> np.ndarray:
        """All frames of the store, (num_frames, H, W, C), mapped, not to be written to.

        Raises:
            StoreError: They must be decoded to be read; `cache="memory"` does that once.
        """
        return self.source.array

    @property
    def identity(self) -> str:
        """Changes with the store's content."""
        return self.source.identity

    @property
    def index(self) -> WindowIndex:
        """The numbering of the windows."""
        return self._index

    @property
    def draws(self) -> Int64Array | None:
        """With `weights`, their running sums, (windows,); see `framewin.windows.schedule`."""
        return self._draws

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
        inputs, targets = self._index.frame_rows(windows)
        # In one call, so that a chunk that both touch is decoded once.
        frames = self.source.take(np.concatenate([inputs.ravel(), targets.ravel()]))
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
        files = self.source.source_files(np.concatenate([inputs, targets]))
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
        from framewin.pictures.window_figures import window_picture

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
        """Mean, motion and fraction without data of each frame of the store; those of clips that
        are not used may be NaN. See `Frames.frame_statistics`."""
        if self._known.frames is None:
            self._known.frames = self.source.frame_statistics(self._known.runs)
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
            self._statistics = self.source.channel_statistics(self._index.row_ranges().tolist())
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
        frames = self.source.stored
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

    def blocks(self, begin: int, end: int) -> Iterator[tuple[int, np.ndarray]]:
        """Frames of rows [begin, end) in pieces of some megabytes: first row and (n, H, W, C)."""
        return self.source.blocks(begin, end)

    def source_files(self, rows: Int64Array) -> list[str]:
        """The file below the source folder that each row of the store came from."""
        return self.source.source_files(rows)

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
        if self._recipe is not None or self._opened_with["split"] is not None:
            raise ValueError("this is a part of a split; split the dataset that it comes from")
        found = divided(self.clips, self.spec, self._runs, choices, by=by, seed=seed)
        recipe = {name: absolute(choice) for name, choice in choices.items()}
        datasets = {
            name: self._part(runs, _Recipe(recipe, by, seed, name)) for name, runs in found.items()
        }
        reference = training_part(datasets)
        for part in datasets.values():
            if part is not reference:
                part._reference = reference
        return SplitParts(datasets, SplitTable(by, self.spec.span, found))

    @takes_batch_options
    def batches(self, **options: Unpack[BatchOptions]) -> Batches:
        """Batches of the windows, as numpy arrays and for every framework.

        Args:
            **options: The fields of `framewin.Batches`, such as `batch_size=8, shuffle=True`.

        Raises:
            ValueError: An option out of its range.
        """
        return Batches(self, **options)

    @takes_batch_options
    def to_tf_dataset(
        self,
        *,
        prefetch: int = 2,
        parallel_batches: int = PARALLEL_BATCHES,
        read_ahead: int = 0,
        repeat: bool = False,
        **options: Unpack[BatchOptions],
    ) -> tf.data.Dataset:
        """`batches(**options).to_tf(...)`, as fast as from a tensor in memory."""
        return self.batches(**options).to_tf(
            prefetch=prefetch,
            parallel_batches=parallel_batches,
            read_ahead=read_ahead,
            repeat=repeat,
        )

    @takes_batch_options
    def to_keras_dataset(
        self,
        *,
        workers: int = 1,
        use_multiprocessing: bool = False,
        max_queue_size: int = 10,
        **options: Unpack[BatchOptions],
    ) -> KerasDataset:
        """`batches(**options).to_keras(...)`, for every backend of Keras."""
        return self.batches(**options).to_keras(
            workers=workers,
            use_multiprocessing=use_multiprocessing,
            max_queue_size=max_queue_size,
        )

    @takes_batch_options
    def to_torch_loader(
        self,
        *,
        channels_first: bool = False,
        num_workers: int = 0,
        persistent_workers: bool | None = None,
        pin_memory: bool = False,
        prefetch_factor: int | None = None,
        **options: Unpack[BatchOptions],
    ) -> WindowLoader:
        """`batches(**options).to_torch(...)`, a DataLoader."""
        return self.batches(**options).to_torch(
            channels_first=channels_first,
            num_workers=num_workers,
            persistent_workers=persistent_workers,
            pin_memory=pin_memory,
            prefetch_factor=prefetch_factor,
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            now = f"; write {_OLD_METHODS[name]}" if name in _OLD_METHODS else ""
            text = f"'FrameWindowDataset' object has no attribute {name!r}{now}"
            raise AttributeError(text, name=name, obj=self)

    def __repr__(self) -> str:
        spec = self.spec
        return (
            f"FrameWindowDataset({str(self.path)!r}, {len(self)} windows of "
            f"{spec.input_frames}+{spec.predict_frames} frames {self.frame_format}, "
            f"{len(self.windows_per_clip())} clips)"
        )

    def _part(self, runs: Runs, recipe: _Recipe | None) -> FrameWindowDataset:
        part = object.__new__(FrameWindowDataset)
        part._weighted = self._weighted
        part._opened_with, part._recipe = self._opened_with, recipe
        part._choice, part._known = self._choice, self._known
        part._reference = part._statistics = None
        part._number(self.source, self.spec, runs)
        part._choose()
        return part

    def __reduce__(self) -> tuple[Any, ...]:
        """How to open it again; see `Frames`."""
        return _reopened, (self.source, self._opened_with, self._recipe, self._index.digest)

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


def _reopened(
    source: Frames, options: dict[str, Any], recipe: _Recipe | None, digest: str = ""
) -> FrameWindowDataset:
    if not isinstance(source, Frames):
        raise StoreError(
            f"a dataset of {source} was pickled by an earlier framewin; make it and pickle it again"
        )
    dataset = FrameWindowDataset(source, **options)
    if recipe is not None:
        parts = dataset.split(recipe.parts, by=cast(Any, recipe.by), seed=recipe.seed)
        dataset = parts[recipe.name]
    refuse_another(source.path, "choice of windows", dataset.index.digest, digest)
    return dataset


def _joined(one: Runs, other: Runs) -> Runs:
    starts = np.concatenate([one.starts, other.starts])
    order = np.argsort(starts, kind="stable")
    return Runs(starts[order], np.concatenate([one.lengths, other.lengths])[order])


def _clip_indices(source: Frames, names: Sequence[str]) -> list[int]:
    if isinstance(names, str):
        raise ValueError(f"clips must be a list of names, got the text {names!r}")
    found = clips_called(source.meta.clips.names, names)
    unknown = [name for name, clip in zip(names, found, strict=True) if clip is None]
    if unknown:
        raise ValueError(
            f"no clip of {source.path} is called {' or '.join(map(repr, unknown[:2]))}; there are "
            f"{listed(source.meta.clips.names)}"
        )
    return [clip for clip in found if clip is not None]


def _as_index(window: Any) -> int:
    try:
        return operator.index(window)
    except TypeError:
        raise TypeError(
            f"a window is chosen by an integer, got {window!r}; for several use ds.batch([...])"
        ) from None
