"""A raw region of a file as an array of frames, read by the operating system when touched."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np

from framewin.schema import FrameFormat


class MappedFrames:
    """Frames that lie one behind the other in a file, from byte 0.

    The file is mapped read-only, so opening costs the same at any size, memory is only used
    for what is touched, and processes that map the same file share it.
    """

    def __init__(self, path: Path, num_frames: int, frame_format: FrameFormat) -> None:
        """Map a file that the caller has found long enough for `num_frames` frames."""
        self.path = path
        size = num_frames * frame_format.nbytes
        with path.open("rb") as file:
            self.mapping = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        flat = np.frombuffer(self.mapping, dtype=frame_format.dtype)
        self.array = flat.reshape(num_frames, *frame_format.shape)
        """(num_frames, H, W, C), read-only."""
