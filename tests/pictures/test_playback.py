"""GIF and MP4 files: every frame, once, for as long as it is to be seen."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framewin.pictures.gif import gif_bytes
from framewin.pictures.playback import SHOWN_SECONDS, true_pace, write_video
from framewin.schema import ClipTable
from tests.conftest import import_or_skip
from tests.helpers.gifs import read_gif


@settings(max_examples=30)
@given(
    st.integers(1, 9), st.integers(1, 9), st.lists(st.integers(0, 2), min_size=1, max_size=12),
    st.booleans(),
)  # fmt: skip
def test_no_gif_frame_is_merged_or_changed(
    height: int, width: int, shown: list[int], gray: bool
) -> None:
    """Equal neighbours too, which Pillow and what writes through it make one."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (3, height, width, 3), dtype=np.uint8)
    frames = [pictures[n][..., 0] if gray else pictures[n] for n in shown]
    data = gif_bytes(frames, [Fraction(1, 5)] * len(frames))
    found, durations = read_gif(data)
    assert durations == [200] * len(frames)
    for frame, read in zip(frames, found, strict=True):
        expected = np.repeat(frame[..., np.newaxis], 3, axis=-1) if gray else frame
        assert np.array_equal(read, expected)


def test_gif_frames_may_be_large() -> None:
    """More than one block of codes, and more than 256 colours, which are reduced."""
    rng = np.random.default_rng(0)
    gray = rng.integers(0, 256, (120, 170), dtype=np.uint8)
    [back], _ = read_gif(gif_bytes([gray], [Fraction(1)]))
    assert np.array_equal(back[..., 0], gray)
    ramp = np.stack(np.meshgrid(np.arange(256), np.arange(200)) * 2, axis=-1)[..., :3]
    [back], _ = read_gif(gif_bytes([ramp.astype(np.uint8)], [Fraction(1)]))
    assert np.abs(back.astype(int) - ramp).mean() < 12


@pytest.mark.parametrize(
    ("seconds", "milliseconds"),
    [
        (Fraction(1, 5), [200] * 6),
        (Fraction(1, 25), [40] * 6),
        (Fraction(1, 30), [30, 40, 30, 30, 40, 30]),
        (Fraction(1001, 30000), [30, 40, 30, 30, 40, 30]),
        (Fraction(1, 100), [20] * 6),
        (Fraction(1000), [655350] * 6),
    ],
)
def test_gif_delays(seconds: Fraction, milliseconds: list[int]) -> None:
    """Rounded without drift; what players would slow down is 20 ms."""
    frames = [np.full((2, 2), n, np.uint8) for n in range(6)]
    assert read_gif(gif_bytes(frames, [seconds] * 6))[1] == milliseconds


@pytest.mark.parametrize("rate", [Fraction(25), Fraction(30000, 1001), Fraction(4)])
def test_mp4_holds_every_frame_at_the_true_rate(tmp_path: Path, rate: Fraction) -> None:
    """Odd sizes are padded by their edge; equal frames are all there."""
    av = import_or_skip("av")
    levels = [*range(0, 250, 25), 225, 225, 225]
    frames = [np.full((31, 41, 3), level, np.uint8) for level in levels]
    write_video(tmp_path / "f.mp4", iter(frames), 1 / rate)
    with av.open(str(tmp_path / "f.mp4")) as file:
        read = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
        assert file.streams.video[0].average_rate == rate
    assert [frame.shape for frame in read] == [(32, 42, 3)] * len(levels)
    assert [float(frame.mean()) for frame in read] == pytest.approx(levels, abs=4)


def clips(numbers: list[int], time_unit: str | None = None) -> ClipTable:
    return ClipTable.from_frame_numbers(["a"], [numbers], time_unit=time_unit)


@pytest.mark.parametrize(
    ("table", "conversion", "frame_step", "seconds", "note"),
    [
        (clips([0, 1]), {}, 1, SHOWN_SECONDS, "4 frames per second; the store has no times"),
        (clips([0, 40], "ms"), {}, 1, Fraction(1, 25), "25 frames per second, the true rate"),
        (clips([0, 40], "ms"), {}, 2, Fraction(2, 25), "12.5 frames per second, the true rate"),
        (
            clips([0, 300], "s"), {}, 1, SHOWN_SECONDS,
            "4 frames per second; in reality a frame every 300 s",
        ),
        (
            clips([0, 1]), {"frame_seconds": {"a": "1001/30000"}}, 1, Fraction(1001, 30000),
            "29.97 frames per second, the true rate",
        ),
        (
            clips([0, 1]), {"frame_seconds": {"a": "1/25", "b": "1/30"}}, 1, SHOWN_SECONDS,
            "4 frames per second; the store has no times",
        ),
    ],
)  # fmt: skip
def test_the_pace_is_that_of_the_store(
    table: ClipTable, conversion: dict, frame_step: int, seconds: Fraction, note: str
) -> None:
    """From time stamps or from what videos recorded; time-lapse is shown faster, and says so."""
    pace = true_pace(table, conversion, frame_step)
    assert (pace.seconds, pace.note) == (seconds, note)


def test_a_pace_beyond_gif_is_told() -> None:
    """100 frames a second are true in MP4; a GIF shows 50."""
    pace = true_pace(clips([0, 10], "ms"), {}, 1)
    assert pace.seconds == Fraction(1, 100)
    assert pace.gif_note.endswith("the true rate; a GIF shows at most 50, so it is slower")
