"""A clip of a source: its files, the numbers of its frames, and what its frames are like."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from framewin.schema import FrameFormat, Int64Array
from framewin.sources.info import STORE_KIND, FileInfo

_UNREAD = FileInfo(FrameFormat(1, 1, 1, "uint8"), "", "")


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """One recording: a file for each frame, or one file that is a clip by itself."""

    name: str
    """Path below the source, with forward slashes; the source's own name for its own frames."""
    folder: Path
    relative: str
    """The folder below the source; "" for the source itself."""
    file_names: Sequence[str]
    """In `folder`: one per frame, or the only one."""
    numbers: Int64Array
    """Increasing, one per frame; empty of a file that was not opened yet."""
    indices: Int64Array | None = None
    """Which frames of its only file they are; None where each frame is a file."""
    info: FileInfo = _UNREAD
    """What the first file that can be read holds, once one was opened."""

    @property
    def in_order(self) -> bool:
        """Whether one file holds all frames, which must be read from the first to the last."""
        return self.indices is not None

    @property
    def path(self) -> str:
        """Path of the first file, or the only one."""
        return f"{self.folder}{os.sep}{self.file_names[0]}"

    @property
    def is_store(self) -> bool:
        """Whether framewin wrote the file."""
        return self.info.kind == STORE_KIND

    def paths(self, begin: int, end: int) -> list[str]:
        """Path of the file of each of the frames [begin, end)."""
        if self.in_order:
            return [self.path] * (min(end, len(self.numbers)) - begin)
        folder = f"{self.folder}{os.sep}"
        return [folder + name for name in self.file_names[begin:end]]

    def files(self) -> list[str]:
        """Path of each file."""
        return [self.path] if self.in_order else self.paths(0, len(self.numbers))

    def names_of_frames(self) -> Sequence[str]:
        """The name of the file of each frame."""
        return [*self.file_names] * len(self.numbers) if self.in_order else self.file_names

    def part(self, first: int, last: int) -> Clip:
        """Frames [first, last), with no more than reading them takes."""
        info = replace(self.info, numbers=None, parts=(), coordinates={})
        return replace(self._with(slice(first, last)), info=info)

    def without(self, positions: Sequence[int]) -> Clip:
        """The clip without some of its frames."""
        return self._with(np.setdiff1d(np.arange(len(self.numbers)), positions))

    def _with(self, rows: slice | Int64Array) -> Clip:
        numbers, names, indices = self.numbers[rows], self.file_names, self.indices
        if indices is not None:
            indices = indices[rows]
        else:
            names = names[rows] if isinstance(rows, slice) else [names[row] for row in rows]
        return replace(self, file_names=names, numbers=numbers, indices=indices)
