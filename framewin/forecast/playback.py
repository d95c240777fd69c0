"""How fast forecasts are played, and files that play them: GIF, and MP4 with PyAV."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from framewin.forecast.gif import HUNDREDTH, LEAST_DELAY, gif_bytes
from framewin.optional import require
from framewin.schema import TIME_UNITS, ClipTable

SHOWN_SECONDS = Fraction(1, 4)
"""How long a frame is shown where its true duration is unknown, or too long to watch."""
LONGEST_SECONDS = Fraction(1)
VIDEO_SUFFIXES = (".gif", ".mp4")


@dataclass(frozen=True, slots=True)
class Pace:
    """How long each frame of a window is shown, and why."""

    seconds: Fraction
    true_seconds: Fraction | None
    """Between two frames of a window in reality; None where the store does not say."""

    @property
    def note(self) -> str:
        """The pace in words."""
        shown = f"{_decimal(1 / self.seconds)} frames per second"
        if self.true_seconds is None:
            return f"{shown}; the store has no times"
        if self.true_seconds == self.seconds:
            return f"{shown}, the true rate"
        return f"{shown}; in reality a frame every {_decimal(self.true_seconds)} s"

    @property
    def gif_note(self) -> str:
        """The same for a GIF, which has a greatest speed."""
        if self.seconds >= LEAST_DELAY * HUNDREDTH:
            return self.note
        return f"{self.note}; a GIF shows at most 50, so it is slower"


def true_pace(clips: ClipTable, conversion: Mapping[str, Any], frame_step: int) -> Pace:
    """The pace of a store's windows.

    Time stamps say it where frames are numbered by them, else what videos recorded. Time-lapse
    frames, more than a second apart, are shown four a second.

    Args:
        clips: Of the store.
        conversion: What the store says of its making; `frame_seconds` is of videos.
        frame_step: Of the windows.
    """
    if clips.time_unit is not None:
        single = Fraction(clips.step, TIME_UNITS[clips.time_unit])
    else:
        found = {Fraction(text) for text in conversion.get("frame_seconds", {}).values()}
        if len(found) != 1:
            return Pace(SHOWN_SECONDS, None)
        single = found.pop() * clips.step
    seconds = single * frame_step
    return Pace(seconds if 0 < seconds <= LONGEST_SECONDS else SHOWN_SECONDS, seconds)


def video_bytes(frames: Sequence[np.ndarray], seconds: Fraction, suffix: str) -> bytes:
    """Frames as a file that plays them, none left out or merged.

    Args:
        frames: uint8 RGB pictures, (H, W, 3), all of one shape; at least one.
        seconds: How long each is shown.
        suffix: One of `VIDEO_SUFFIXES`.

    Raises:
        MissingDependencyError: MP4 without PyAV.
    """
    if suffix == ".gif":
        return gif_bytes(frames, [seconds] * len(frames))
    return _mp4_bytes(frames, seconds)


def write_video(path: Path, frames: Sequence[np.ndarray], seconds: Fraction) -> None:
    """Write a file that plays frames; see `video_bytes`."""
    path.write_bytes(video_bytes(frames, seconds, path.suffix.lower()))


def _mp4_bytes(frames: Sequence[np.ndarray], seconds: Fraction) -> bytes:
    av = require("av", extra="video")
    file = io.BytesIO()
    with av.open(file, mode="w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=(1 / seconds).limit_denominator(2**16))
        # Half the colours, so that every player can show it; their size must then be even.
        stream.pix_fmt, stream.options = "yuv420p", {"crf": "16"}
        stream.height, stream.width = (-(-size // 2) * 2 for size in frames[0].shape[:2])
        for picture in frames:
            odd = [(0, size % 2) for size in picture.shape[:2]]
            whole = np.ascontiguousarray(np.pad(picture, [*odd, (0, 0)], mode="edge"))
            container.mux(stream.encode(av.VideoFrame.from_ndarray(whole, format="rgb24")))
        container.mux(stream.encode())
    return file.getvalue()


def _decimal(value: Fraction) -> str:
    return f"{float(value):.4g}"
