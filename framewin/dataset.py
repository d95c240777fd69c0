"""Windows of a store as numpy arrays, and the way to every framework."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

import numpy as np

from framewin.schema import ClipTable, FrameFormat, Int64Array
from framewin.stores import Store, open_store
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
    frames, and the frames are never loaded as a whole: they are mapped, and the operating
    system reads what a window touches.

    A clip of 40 frames has 40 - (5 + 5) + 1 = 31 windows of 5 + 5 frames:

    >>> ds = FrameWindowDataset("clips.zarr", input_frames=5, predict_frames=5)  # doctest: +SKIP
    >>> len(ds), ds[0][0].shape, ds[0][1].shape                                 # doctest: +SKIP
    (744, (5, 64, 64, 1), (5, 64, 64, 1))
    """

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
    ) -> None:
        """Open a store and number its windows.

        Args:
            path: A store made by `framewin convert`.
            input_frames: Frames the predictor sees.
            predict_frames: Frames it must predict.
            frame_step: Distance between neighbouring frames of a window; 2 uses every second.
            window_stride: Distance between the starts of neighbouring windows.
            lead_gap: Frames skipped between the last input and the first predicted frame,
                counted in frame steps.
            clips: Names of the clips to use; all by default.

        Raises:
            StoreError: See `open_store`.
            ValueError: A parameter below its minimum, an unknown clip, or clips that are all
                too short for a window.
        """
        spec = WindowSpec(input_frames, predict_frames, frame_step, window_stride, lead_gap)
        store = open_store(path)
        runs = Runs.of(store.meta.clips)
        if clips is not None:
            runs = runs[np.isin(store.meta.clips.segment_clips, _clip_indices(store, clips))]
        self._setup(store, spec, runs)

    def _setup(self, store: Store, spec: WindowSpec, runs: Runs) -> None:
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
    def frames(self) -> np.ndarray:
        """All frames of the store, (num_frames, H, W, C), mapped read-only."""
        return self._store.frames.array

    @property
    def index(self) -> WindowIndex:
        """The numbering of the windows."""
        return self._index

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, window: SupportsIndex) -> tuple[np.ndarray, np.ndarray]:
        """One window.

        Args:
            window: In [-len(ds), len(ds)); a negative one counts from the end.

        Returns:
            inputs: stored dtype, (input_frames, H, W, C).
            targets: stored dtype, (predict_frames, H, W, C).

        Raises:
            IndexError: No such window.
        """
        inputs, targets = self._index.frame_rows(self._checked([window]))
        return self.frames[inputs[0]], self.frames[targets[0]]

    def batch(self, windows: Sequence[SupportsIndex]) -> tuple[np.ndarray, np.ndarray]:
        """Several windows at once.

        Args:
            windows: B window numbers, each as for `ds[...]`, in any order, repeats allowed.

        Returns:
            inputs: stored dtype, (B, input_frames, H, W, C).
            targets: stored dtype, (B, predict_frames, H, W, C).

        Raises:
            IndexError: No such window.
        """
        inputs, targets = self._index.frame_rows(self._checked(windows))
        return self.frames[inputs], self.frames[targets]

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


def _clip_indices(store: Store, names: Sequence[str]) -> list[int]:
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
