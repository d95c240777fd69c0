"""How fast forecasts are played, and files that play them: GIF, and MP4 with PyAV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np

from framewin.optional import require
from framewin.pictures.gif import HUNDREDTH, LEAST_DELAY, gif_pieces
from framewin.schema import MICROSECONDS, ClipTable

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
        single = Fraction(clips.step * MICROSECONDS[clips.time_unit], 10**6)
    else:
        found = {Fraction(text) for text in conversion.get("frame_seconds", {}).values()}
        if len(found) != 1:
            return Pace(SHOWN_SECONDS, None)
        single = found.pop() * clips.step
    seconds = single * frame_step
    return Pace(seconds if 0 < seconds <= LONGEST_SECONDS else SHOWN_SECONDS, seconds)


def in_minutes(seconds: Fraction | None) -> float | None:
    """A time in minutes, if it is known and at least one.

    >>> in_minutes(Fraction(300)), in_minutes(Fraction(90)), in_minutes(Fraction(1, 25))
    (5.0, 1.5, None)
    """
    return None if seconds is None or seconds < 60 else float(seconds / 60)


def write_video(
    path: Path, frames: Iterable[np.ndarray], seconds: Fraction, *, suffix: str | None = None
) -> None:
    """Write a file that plays frames, none of them left out or merged.

    Args:
        path: Of the file.
        frames: uint8 RGB pictures, (H, W, 3), all of one shape; at least one.
        seconds: How long each is shown.
        suffix: One of `VIDEO_SUFFIXES`; by default the path's.

    Raises:
        MissingDependencyError: MP4 without PyAV.
    """
    if (suffix or path.suffix.lower()) == ".gif":
        with path.open("wb") as file:
            file.writelines(gif_pieces(frames, repeat(seconds)))
    else:
        _write_mp4(path, iter(frames), seconds)


def _write_mp4(path: Path, frames: Iterator[np.ndarray], seconds: Fraction) -> None:
    av = require("av", extra="video")
    first = next(frames)
    height, width = first.shape[:2]
    with av.open(str(path), mode="w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=(1 / seconds).limit_denominator(2**16))
        # Half the colours, so that every player can show it; their size must then be even.
        stream.pix_fmt, stream.options = "yuv420p", {"crf": "16"}
        stream.height, stream.width = height + height % 2, width + width % 2
        for picture in chain([first], frames):
            even = np.pad(picture, [(0, height % 2), (0, width % 2), (0, 0)], mode="edge")
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(even), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def _decimal(value: Fraction) -> str:
    return f"{float(value):.4g}"
