"""Datasets of which a test gives all options in one dictionary."""

from __future__ import annotations

import inspect
from pathlib import Path

from framewin import FrameWindowDataset, open_frames

OF_FRAMES = set(inspect.signature(open_frames).parameters)


def open_windows(path: str | Path, **options: object) -> FrameWindowDataset:
    """`FrameWindowDataset(open_frames(path, ...), ...)`, each option where it belongs."""
    frames = {name: value for name, value in options.items() if name in OF_FRAMES}
    windows = {name: value for name, value in options.items() if name not in OF_FRAMES}
    return FrameWindowDataset(open_frames(path, **frames) if frames else path, **windows)
