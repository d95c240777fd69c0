"""GIF files read by Pillow."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image


def read_gif(data: bytes) -> tuple[list[np.ndarray], list[int]]:
    """Frames (H, W, 3) and milliseconds of each, by Pillow."""
    frames, durations = [], []
    with Image.open(io.BytesIO(data)) as image:
        for place in range(image.n_frames):
            image.seek(place)
            frames.append(np.asarray(image.convert("RGB")))
            durations.append(image.info["duration"])
    return frames, durations
