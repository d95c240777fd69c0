"""Statistics of each frame, taken while blocks of frames are in memory anyway."""

from __future__ import annotations

import threading

import numpy as np

from framewin.schema import STATISTICS, StoreMeta
from framewin.windows.statistics import FrameStatistics, frame_motions


class BlockStatistics:
    """Takes blocks from several threads in any order; the result is the same to the last bit.

    The motion of a block's first frame needs the last one of the block before: whichever of the
    two blocks comes first leaves a copy of its frame for the other.
    """

    def __init__(self, meta: StoreMeta) -> None:
        """Take nothing yet."""
        self._meta = meta
        self._found = FrameStatistics.empty(meta.clips.num_frames)
        starts = meta.clips.segment_starts.tolist()
        self._apart = {*starts, meta.clips.num_frames}
        self._left: dict[tuple[int, bool], tuple[np.ndarray, np.ndarray]] = {}
        self._spare: list[np.ndarray] = []
        self._lock = threading.Lock()

    def put(self, begin: int, frames: np.ndarray) -> None:
        """Take the frames (n, H, W, C) of a block that begins in row `begin`."""
        sums = self._found.put_block(begin, frames, nodata=self._meta.nodata)
        self._meet(begin, frames[:1], sums[:1], before=False)
        self._meet(begin + len(frames), frames[-1:], sums[-1:], before=True)

    def take(self, begin: int, part: FrameStatistics) -> None:
        """Take statistics of rows from `begin` on that are complete: nobody waits for a frame."""
        for name in STATISTICS:
            values = getattr(part, name)
            getattr(self._found, name)[begin : begin + len(values)] = values

    def columns(self) -> dict[str, np.ndarray]:
        """Column -> float64 (num_frames,), once all blocks were taken."""
        # Blocks do not know where segments begin.
        self._found.motion[self._meta.clips.segment_starts] = np.nan
        return {name: getattr(self._found, name) for name in STATISTICS}

    def _meet(self, row: int, frame: np.ndarray, total: np.ndarray, *, before: bool) -> None:
        """Of the two frames on either side of a row's beginning, take one, (1, H, W, C)."""
        if row in self._apart:
            return
        with self._lock:
            left = self._left.pop((row, not before), None)
            if left is None:
                kept = self._spare.pop() if self._spare else np.empty_like(frame)
                np.copyto(kept, frame)
                self._left[row, before] = kept, total
                return
        other, other_total = left
        previous, following = (frame, other) if before else (other, frame)
        try:
            sums = total, other_total
            motion = frame_motions(previous, following, self._meta.nodata, sums=sums)
        except BaseException:
            # The block is tried again, and must find the other frame then.
            self._left[row, not before] = left
            raise
        self._found.motion[row : row + 1] = motion
        self._spare.append(other)
