"""Statistics of each frame, from the finished frames of a store that is not complete yet."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from framewin.parallel import ordered_map
from framewin.schema import STATISTICS, StoreMeta
from framewin.stores.chunked_frames import ChunkedFrames, pieces
from framewin.stores.mapped_frames import MappedFrames
from framewin.windows.statistics import FrameStatistics

READ_BYTES = 2**20


def frame_statistics(
    meta: StoreMeta, frames: MappedFrames | ChunkedFrames, workers: int
) -> dict[str, np.ndarray]:
    """Compute statistics in threads; the result is the same to the last bit for any number.

    Args:
        meta: Of the store.
        frames: Its frames.
        workers: Threads.

    Returns:
        Column -> float64 (num_frames,).
    """
    found = FrameStatistics.empty(meta.clips.num_frames)
    starts = meta.clips.segment_starts
    begins_segment = np.zeros(meta.clips.num_frames, bool)
    begins_segment[starts] = True

    def take(rows: tuple[int, int]) -> None:
        begin, end = rows
        # The motion of the first frame is that from the one before it.
        first = begin if begins_segment[begin] else begin - 1
        block = frames.take(np.arange(first, end))
        previous = block[0] if first < begin else None
        found.put(begin, block[begin - first :], previous=previous, nodata=meta.nodata)

    # Whole chunks, for each is decoded as a whole.
    chunk = 1 if isinstance(frames, MappedFrames) else frames.chunk_frames
    size = chunk * max(1, READ_BYTES // (chunk * meta.frame_format.nbytes))
    with ThreadPoolExecutor(workers, thread_name_prefix="framewin-statistics") as pool:
        for _ in ordered_map(pool, take, pieces(meta.clips.num_frames, size), 2 * workers):
            pass
    # Blocks do not know where segments begin.
    found.motion[starts] = np.nan
    return {name: getattr(found, name) for name in STATISTICS}
