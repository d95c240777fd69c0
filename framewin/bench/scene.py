"""What every way of making batches starts from: one store, one order of windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import count
from pathlib import Path
from typing import TypeVar

import numpy as np

from framewin.dataset import FrameWindowDataset
from framewin.errors import StoreError
from framewin.schema import Int64Array

PNG_SUFFIX = ".png"
AnyArray = TypeVar("AnyArray", bound=np.ndarray)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Which windows are in which batch, without end; a last batch that is not full is left out.

    A step is a batch, counted on through all epochs. Small, and the same in every process.
    """

    starts: Int64Array
    """Row of the first frame of each window, (windows,)."""
    batch_size: int
    input_frames: int
    predict_frames: int
    shuffle: bool = True

    @property
    def span(self) -> int:
        """Frames of a window."""
        return self.input_frames + self.predict_frames

    @property
    def steps_per_epoch(self) -> int:
        """Full batches in an epoch."""
        return len(self.starts) // self.batch_size

    def windows(self, step: int) -> Int64Array:
        """Window numbers of a batch, (B,)."""
        epoch, place = divmod(step, self.steps_per_epoch)
        first = place * self.batch_size
        if not self.shuffle:
            return np.arange(first, first + self.batch_size)
        return _order(len(self.starts), epoch)[first : first + self.batch_size]

    def batch_starts(self, step: int) -> Int64Array:
        """First row of each window of a batch, (B,)."""
        return self.starts[self.windows(step)]

    def each_batch(self) -> Iterator[Int64Array]:
        """First rows (B,) of batch after batch, without end."""
        return map(self.batch_starts, count())

    def parted(self, windows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(B, T, H, W, C) as inputs and targets."""
        return windows[:, : self.input_frames], windows[:, self.input_frames :]


@lru_cache(maxsize=2)
def _order(count: int, epoch: int) -> Int64Array:
    return np.random.default_rng((0, epoch)).permutation(count).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Scene:
    """A store, its copies in other formats, and its PNG files."""

    store: Path
    plan: Plan
    scratch: Path
    """A folder for copies, which is removed afterwards."""
    source: Path | None = None
    """The folder of PNG frames that the store was made from."""
    processes: int = 6
    """Workers of the ways that have several."""
    dataset: FrameWindowDataset = field(repr=False, kw_only=True)

    @classmethod
    def open(
        cls,
        store: Path,
        source: Path | None,
        scratch: Path,
        *,
        batch_size: int = 8,
        input_frames: int = 5,
        predict_frames: int = 5,
        processes: int = 6,
    ) -> Scene:
        """Open a store and look for its source files.

        Raises:
            StoreError: No store; fewer windows than a batch has; or PNG files that are not
                there, or not the store's.
            ValueError: Clips too short for a window.
        """
        dataset = FrameWindowDataset(
            store, input_frames=input_frames, predict_frames=predict_frames
        )
        if len(dataset) < batch_size:
            raise StoreError(
                f"{store} has {len(dataset)} windows of {input_frames}+{predict_frames} frames, "
                f"fewer than a batch of {batch_size}; give a smaller --batch-size"
            )
        starts = dataset.index.start_rows(np.arange(len(dataset), dtype=np.int64))
        plan = Plan(starts, batch_size, input_frames, predict_frames)
        scene = cls(store, plan, scratch, source, processes, dataset=dataset)
        if source is not None:
            scene._refuse_other_source(source)
        return scene

    def in_order(self) -> Scene:
        """The same without shuffling."""
        return replace(self, plan=replace(self.plan, shuffle=False))

    @property
    def frame_shape(self) -> tuple[int, int, int]:
        """(H, W, C)."""
        return self.dataset.frame_format.shape

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(num_frames, H, W, C)."""
        return self.dataset.clips.num_frames, *self.frame_shape

    @property
    def dtype(self) -> str:
        """Of the stored frames."""
        return self.dataset.frame_format.dtype

    @cached_property
    def files(self) -> list[str]:
        """Path of the file of every frame, below `source`."""
        rows = np.arange(self.dataset.clips.num_frames, dtype=np.int64)
        return [str((self.source or Path()) / name) for name in self.dataset.source_files(rows)]

    @property
    def all_png(self) -> bool:
        """Whether every frame came from a PNG file of its own."""
        lower = {name.lower() for name in self.files}
        return len(lower) == len(self.files) and all(name.endswith(PNG_SUFFIX) for name in lower)

    @cached_property
    def png_fits(self) -> bool:
        """Whether the first file holds the pixels of the first frame, as they are."""
        import imagecodecs

        frame = np.asarray(imagecodecs.png_decode(Path(self.files[0]).read_bytes()))
        [(_, stored)] = self.dataset.blocks(0, 1)
        return frame.dtype == stored.dtype and frame.tobytes() == stored.tobytes()

    @property
    def png_bytes(self) -> int | None:
        """Of the files; None where they are not known, or are none of PNG."""
        if self.source is None or not self.all_png:
            return None
        return sum(Path(name).stat().st_size for name in self.files)

    @cached_property
    def memmap(self) -> np.ndarray:
        """All frames as mapped memory, (num_frames, H, W, C): the store's, or a copy's."""
        if self.dataset.mapped is not None:
            return self.dataset.frames
        path = self.scratch / "frames.npy"
        if not path.exists():
            copy = np.lib.format.open_memmap(path, "w+", np.dtype(self.dtype), self.shape)
            self.copied_to(copy).flush()
        mapped: np.ndarray = np.load(path, mmap_mode="r")
        return mapped

    def copied_to(self, copy: AnyArray) -> AnyArray:
        """An array with all frames, (num_frames, H, W, C), copied into it."""
        for row, frames in self.dataset.blocks(0, len(copy)):
            copy[row : row + len(frames)] = frames
        return copy

    @property
    def runs(self) -> list[tuple[int, int]]:
        """Half-open ranges of rows without a gap that hold at least one window."""
        begins = self.dataset.clips.segment_starts
        ends = begins + self.dataset.clips.segment_lengths
        pairs = zip(begins.tolist(), ends.tolist(), strict=True)
        return [(begin, end) for begin, end in pairs if end - begin >= self.plan.span]

    def _refuse_other_source(self, source: Path) -> None:
        if not self.all_png:
            return
        absent = next((name for name in self.files if not Path(name).is_file()), None)
        if absent is not None:
            raise StoreError(
                f"{absent} is not there, but {self.store} was made from it; give --frames the "
                "folder that was converted"
            )
