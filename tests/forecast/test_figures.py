"""Pictures of forecasts: what is where, and what a GIF plays."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import imageio.v3 as iio
import numpy as np
import pytest

from framewin import FrameWindowDataset, MissingDependencyError
from framewin.forecast import figures
from framewin.forecast.figures import (
    FORECAST_EDGE,
    NO_DATA,
    Example,
    Look,
    Painter,
    animation,
    sheet,
    write_gif,
    write_sheet,
)
from tests.conftest import import_or_skip


def example(shape: tuple[int, int, int], level: float = 1.0) -> Example:
    inputs = np.zeros((2, *shape))
    truth = np.full((3, *shape), 0.8 * level)
    return Example("a, frames 2 to 4", inputs, truth, np.full((3, *shape), 0.4 * level))


@pytest.mark.parametrize("shape", [(64, 64, 1), (20, 30, 3), (300, 400, 4), (16, 8, 2)])
def test_sheet_shows_truth_above_forecast(tmp_path: Path, shape: tuple[int, int, int]) -> None:
    """Small frames are enlarged, large ones reduced, and both rows are there."""
    write_sheet(tmp_path / "sheet.png", [example(shape)])
    sheet = iio.imread(tmp_path / "sheet.png")
    assert sheet.shape[1] < 1000
    right = sheet[:, -40]
    assert (right == 204).all(axis=-1).any(), "truth at 0.8"
    assert (right == 102).all(axis=-1).any(), "forecast at 0.4"
    truth_rows, forecast_rows = (np.flatnonzero((right == v).all(axis=-1)) for v in (204, 102))
    assert truth_rows.max() < forecast_rows.min()
    assert (right == FORECAST_EDGE).all(axis=-1).any()
    left = sheet[forecast_rows.min() : forecast_rows.max(), 10]
    assert not (left == 102).all(axis=-1).any(), "no forecast under the inputs"


def test_gif_plays_every_frame(tmp_path: Path) -> None:
    """Two inputs and three predictions are five pictures, at the speed that is stated."""
    moving = example((16, 16, 1))
    moving.truth[:] *= np.linspace(0.5, 1, 3).reshape(3, 1, 1, 1)
    write_gif(tmp_path / "f.gif", [moving, moving])
    frames = iio.imread(tmp_path / "f.gif")
    assert len(frames) == 5
    assert iio.immeta(tmp_path / "f.gif", index=0)["duration"] == 250
    assert iio.immeta(tmp_path / "f.gif", index=4)["duration"] == 1250


def test_dim_frames_are_brightened(tmp_path: Path) -> None:
    """Depth or rain may use a sliver of the range; it must not come out black."""
    write_sheet(tmp_path / "sheet.png", [example((64, 64, 1), level=0.01)])
    assert (iio.imread(tmp_path / "sheet.png")[:, -40] == 255).all(axis=-1).any()


def test_no_data_has_a_colour_of_its_own() -> None:
    """Regression: it was as bright as the most, or black, and took part in the contrast."""
    window = example((64, 64, 1), level=0.01)
    for frames in (window.inputs, window.truth, window.forecast):
        frames[:, :8, :8] = np.nan
    show = Painter(window)
    assert (show.low, show.high) == (0, pytest.approx(0.008))
    picture = show(window.truth[0])
    assert (picture[:16, :16] == NO_DATA).all()
    assert (picture[16:, 16:] == 255).all()
    assert (sheet([window]) == NO_DATA).all(axis=-1).any()


def test_colours_are_chosen() -> None:
    """By a colour map and limits; the row with the scale has its ends."""
    import_or_skip("matplotlib")
    show = Painter(example((64, 64, 1)), Look("viridis", 0.2, 0.6))
    low, high = show(np.full((64, 64, 1), 0.1))[0, 0], show(np.full((64, 64, 1), 0.7))[0, 0]
    assert (low.tolist(), high.tolist()) == ([68, 1, 84], [253, 231, 37])
    row = show.scale(255)
    assert (row == low).all(axis=-1).any()
    assert (row == high).all(axis=-1).any()
    with pytest.raises(ValueError, match="vmin must be below vmax, got 2 and 1"):
        Look(low=2, high=1)
    with pytest.raises(ValueError, match=r"cmap must be one of matplotlib, as .*, got 'no'"):
        Look("no")


def test_a_colour_map_needs_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra that brings it is named."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = "needs matplotlib; run: pip install 'framewin[plots]'"
    with pytest.raises(MissingDependencyError, match=re.escape(message)):
        Look("viridis")


def test_lead_times_in_minutes_and_a_baseline() -> None:
    """Where they are known; the other forecast is below, and the caption above its rows."""
    window = replace(example((64, 64, 1)), step_minutes=5, lead_gap=1)
    texts = [window.lead_text(lead) for lead in (-1, 0, 2)]
    assert texts == ["-5 min", "0 min", "+10 min"]
    both = replace(window, baseline=np.full((3, 64, 64, 1), 0.2), baseline_title="persistence")
    assert both.below == "forecast and persistence"
    right = sheet([both])[:, -40]
    assert (right == 51).all(axis=-1).any()
    assert np.array_equal(sheet([both])[:20, :60], sheet([window])[:20, :60])


def test_captions_count_the_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: after a gap of two frames the first predicted one was called +1."""
    texts: list[str] = []
    caption = figures.caption

    def recorded(text: str, picture: np.ndarray | None) -> np.ndarray:
        texts.append(text)
        return caption(text, picture)

    monkeypatch.setattr(figures, "caption", recorded)
    window = replace(example((16, 16, 1)), lead_gap=2)
    sheet([window])
    assert texts[1:6] == ["-1", "0", "+3", "+4", "+5"]
    texts.clear()
    animation([window])
    wanted = ["input -1", "input 0", "forecast +3", "forecast +4", "forecast +5"]
    assert [text for text in texts if " " in text] == wanted


@pytest.mark.parametrize("windows", range(1, 9))
def test_the_windows_shown_differ(tmp_path: Path, windows: int) -> None:
    """Regression: of four or five windows some were shown twice, and others not."""
    from framewin.forecast.validation import examples

    np.save(tmp_path / "frames.npy", np.zeros((windows + 4, 6, 6), np.uint8))
    shape = {"input_frames": 3, "predict_frames": 2}
    ds = FrameWindowDataset(tmp_path / "frames.npy", **shape, lead_gap=0)
    last = SimpleNamespace(predict_on_batch=lambda inputs: inputs[:, -2:] / 255)
    shown = [each.title for each in examples(last, ds, 4)]
    assert len(set(shown)) == len(shown) == min(windows, 4)
    # Of many, neither the first nor the last one.
    assert (shown[0] == "frames, frames 3 to 4") == (windows < 6)
