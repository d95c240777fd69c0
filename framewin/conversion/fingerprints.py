"""What source files were like when they were listed: size and time of modification."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np

from framewin.conversion.source import OpenSource
from framewin.errors import SourceChangedError
from framewin.schema import Int64Array
from framewin.sources.clips import Clip
from framewin.sources.damage import unreadable
from framewin.stores.chunked_frames import pieces

PATHS_AT_ONCE = 2**16

_DIGEST_BYTES = 16


class KnownFiles:
    """Size and modification time of the files of some clips."""

    def __init__(self, of_clips: list[Int64Array | None]) -> None:
        """Take (frames, 2) of each clip, (1, 2) where all frames are in one file.

        None is a clip that is not checked.
        """
        self._of_clips = of_clips

    def of_frames(self, clip: int, first: int, last: int) -> list[list[int]]:
        """Size and time of the files of frames [first, last) of a clip of a file each."""
        known = self._of_clips[clip]
        assert known is not None
        found: list[list[int]] = known[first:last].tolist()
        return found

    def check(self, clip: int, frame: int, path: str) -> None:
        """Refuse a file that is not what it was; called once it was read.

        Raises:
            SourceChangedError: Its size or time is another.
        """
        known = self._of_clips[clip]
        if known is not None:
            check_same(known[frame if len(known) > 1 else 0].tolist(), status(path), path)


class Fingerprints(KnownFiles):
    """Size and modification time of the file of each row of a plan."""

    def __init__(self, plan: OpenSource) -> None:
        """Ask the file system, once for each file.

        Raises:
            SourceError: A file has vanished.
        """
        self.plan = plan
        self._all = [_of_clip(clip) for clip in plan.clips]
        super().__init__([*self._all])

    def part(self, begin: int, end: int) -> KnownFiles:
        """Those of rows [begin, end), for `plan.part(begin, end)`."""
        found: list[Int64Array | None] = []
        for clip, first, last in self.plan.pieces(begin, end):
            known = self._all[clip]
            source = self.plan.clips[clip]
            if not source.in_order:
                found.append(known[first:last])
            else:
                # A Zarr store is a folder of perhaps a million files: once, at its end.
                ends = last == len(source.numbers) or not os.path.isdir(source.path)  # noqa: PTH112
                found.append(known if ends else None)
        return KnownFiles(found)

    @property
    def num_bytes(self) -> int:
        """Of all files, each counted once."""
        found = {}
        for index, (clip, known) in enumerate(zip(self.plan.clips, self._all, strict=True)):
            # A file may hold several clips.
            found[clip.path if clip.in_order else index] = int(known[:, 0].sum())
        return sum(found.values())

    def of_rows(self, begin: int, end: int) -> str:
        """Digest of the names, sizes and times of the files of rows [begin, end)."""
        digest = blake2b(digest_size=_DIGEST_BYTES)
        for clip, first, last in self.plan.pieces(begin, end):
            known = self._all[clip]
            files = self.plan.clips[clip].file_names
            rows = slice(None) if self.plan.clips[clip].in_order else slice(first, last)
            digest.update(known[rows].tobytes())
            digest.update("\0".join(files[rows]).encode())
        return digest.hexdigest()


def check_same(known: Sequence[int], found: Sequence[int], path: str) -> None:
    """Refuse a file whose size or time is not what it was.

    Raises:
        SourceChangedError: See above.
    """
    if tuple(known) != tuple(found):
        raise SourceChangedError(
            f"{path} changed while it was converted; run the same command again once it is complete"
        )


def status(path: str) -> tuple[int, int]:
    """Size and modification time in ns of a file; of a folder, of all files and the last.

    Raises:
        SourceChangedError: It has vanished.
        SourceError: The system does not let us look.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path object costs as much as the call
        if not stat.S_ISDIR(found.st_mode):
            return found.st_size, found.st_mtime_ns
        parts = [entry.stat() for entry in Path(path).rglob("*")]
        size = sum(part.st_size for part in parts if not stat.S_ISDIR(part.st_mode))
        return size, max(p.st_mtime_ns for p in [found, *parts])
    except OSError as exc:
        raise unreadable(path, exc) from exc


def _of_clip(clip: Clip) -> Int64Array:
    """(frames, 2), or (1, 2) where all frames are in one file."""
    if clip.in_order:
        return np.array([status(clip.path)], dtype=np.int64)
    known = np.empty((len(clip.numbers), 2), dtype=np.int64)
    # In pieces, for the paths of a million files take more room than all else about them.
    for begin, end in pieces(len(known), PATHS_AT_ONCE):
        known[begin:end] = [status(path) for path in clip.paths(begin, end)]
    return known
