"""Pictures of forecasts: what is where, and what a GIF plays."""

from __future__ import annotations

import base64
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import imageio.v3 as iio
import numpy as np
import pytest

from framewin import FrameWindowDataset, MissingDependencyError
from framewin.pictures import figures
from framewin.pictures.figures import (
    FORECAST_EDGE,
    NO_DATA,
    THEME,
    Example,
    Look,
    Painter,
    animation,
    sheet,
    write_gif,
)
from tests.conftest import import_or_skip


def example(shape: tuple[int, int, int], level: float = 1.0) -> Example:
    inputs = np.zeros((2, *shape))
    truth = np.full((3, *shape), 0.8 * level)
    return Example("a, frames 2 to 4", inputs, truth, np.full((3, *shape), 0.4 * level))


@pytest.mark.parametrize("shape", [(64, 64, 1), (20, 30, 3), (300, 400, 4), (16, 8, 2)])
def test_sheet_shows_truth_above_forecast(tmp_path: Path, shape: tuple[int, int, int]) -> None:
    """Small frames are enlarged, large ones reduced, and both rows are there."""
    figures.sheet([example(shape)]).write(tmp_path / "sheet.png", THEME)
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
    sheet([example((64, 64, 1), level=0.01)]).write(tmp_path / "sheet.png", THEME)
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
    assert (sheet([window]).pixels(THEME) == NO_DATA).all(axis=-1).any()


def test_colours_are_chosen() -> None:
    """By a colour map and limits; the row with the scale has its ends."""
    import_or_skip("matplotlib")
    show = Painter(example((64, 64, 1)), Look("viridis", 0.2, 0.6))
    low, high = show(np.full((64, 64, 1), 0.1))[0, 0], show(np.full((64, 64, 1), 0.7))[0, 0]
    assert (low.tolist(), high.tolist()) == ([68, 1, 84], [253, 231, 37])
    [scale] = show.scale()
    row = scale.pixels(THEME)
    assert (row == low).all(axis=-1).any()
    assert (row == high).all(axis=-1).any()
    with pytest.raises(ValueError, match="vmin must be below vmax, got 2 and 1"):
        Look(vmin=2, vmax=1)
    with pytest.raises(ValueError, match=r"cmap must be one of matplotlib, as .*, got 'no'"):
        Look("no")


def test_a_colour_map_needs_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra that brings it is named."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = "needs matplotlib; run: pip install 'framewin[plots]'"
    with pytest.raises(MissingDependencyError, match=re.escape(message)):
        Look("viridis")


def test_a_limit_beyond_all_values() -> None:
    """Regression: a vmin above the greatest value turned the colours round."""
    window = replace(example((64, 64, 1)), full=255)
    above, below = Painter(window, Look(vmin=300)), Painter(window, Look(vmax=-10))
    assert (above(window.truth[0]) == 0).all()
    assert (below(window.truth[0]) == 255).all()
    texts = [i.text for show in (above, below) for i in show.scale()[0].items if hasattr(i, "text")]
    assert texts == ["300", "301", "-11", "-10"]


def test_colours_that_cannot_be() -> None:
    """Each is refused by its name."""
    import_or_skip("matplotlib")
    with pytest.raises(ValueError, match="theme must be dark or light, got 'blue'"):
        Look(theme="blue")
    with pytest.raises(ValueError, match="vmin must be a number, got nan"):
        Look(vmin=float("nan"))
    Look("viridis").check(1)
    with pytest.raises(ValueError, match="cmap is for frames of one channel, these have 3"):
        Look("viridis").check(3)


def test_a_light_sheet() -> None:
    """The page is white and its texts are dark; frames are those of a dark one."""
    window = example((64, 64, 1))
    dark, light = (sheet([window]).pixels(theme) for theme in ("dark", "light"))
    assert (dark[0, 0].tolist(), light[0, 0].tolist()) == ([24, 24, 28], [255, 255, 255])
    assert light[:14, :40].min() < 80
    assert dark[:14, :40].max() > 180
    same = (dark == light).all(axis=-1)
    assert same[40:160, 8:120].all()
    assert not same[:, :4].any()
    playing = animation([window], Look(theme="light"))
    assert all(picture[0, 0].tolist() == [255, 255, 255] for picture in playing)


def test_a_sheet_for_papers(tmp_path: Path) -> None:
    """One page; texts are texts, frames are the PNG's pixels, and files are alike each time."""
    import_or_skip("matplotlib")
    title = "clip $a_1$ <b>"
    window = replace(example((16, 16, 1)), title=title, step_minutes=5)
    page = sheet([window])
    for name in ("a.svg", "b.svg", "a.pdf", "b.pdf"):
        page.write(tmp_path / name, "light")
    for suffix in ("svg", "pdf"):
        first, second = (tmp_path / f"{name}.{suffix}" for name in "ab")
        assert first.read_bytes() == second.read_bytes()
    pdf = (tmp_path / "a.pdf").read_bytes()
    assert (len(re.findall(rb"/Type /Page\b", pdf)), pdf.count(b"/Subtype /Image")) == (1, 8)
    box = re.search(rb"/MediaBox \[ 0 0 (\S+) (\S+) \]", pdf)
    assert box is not None
    assert [float(each) for each in box.groups()] == [page.width, page.height]
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    leads = ["-5 min", "0 min", "+5 min", "+10 min", "+15 min"]
    assert texts == [f"{title}: truth above, forecast below", *leads]
    links = [e.get("{http://www.w3.org/1999/xlink}href") for e in root.iter() if "image" in e.tag]
    pixels = [iio.imread(base64.b64decode(link.partition(",")[2])) for link in links]
    assert np.array_equal(pixels[2][..., :3], Painter(window)(window.truth[0]))


def test_vectors_need_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The extra that brings it is named, and no file is begun."""
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    message = "needs matplotlib; run: pip install 'framewin[plots]'"
    with pytest.raises(MissingDependencyError, match=re.escape(message)):
        sheet([example((16, 16, 1))]).write(tmp_path / "a.pdf", THEME)
    assert not list(tmp_path.iterdir())


def test_lead_times_in_minutes_and_a_baseline() -> None:
    """Where they are known; the other forecast is below, and the caption above its rows."""
    window = replace(example((64, 64, 1)), step_minutes=5, lead_gap=1)
    texts = [window.lead_text(lead) for lead in (-1, 0, 2)]
    assert texts == ["-5 min", "0 min", "+10 min"]
    both = replace(window, baseline=np.full((3, 64, 64, 1), 0.2), baseline_title="persistence")
    assert both.below == "forecast and persistence"
    pixels, without = (sheet([each]).pixels(THEME) for each in (both, window))
    right = pixels[:, -40]
    assert (right == 51).all(axis=-1).any()
    assert np.array_equal(pixels[:20, :60], without[:20, :60])


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


@pytest.mark.usefixtures("tf")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_data_on_the_board() -> None:
    """Regression: TensorBoard showed it as black; without any, gray frames stay of one channel."""
    from framewin.forecast.boards import picture

    window = example((8, 8, 1))
    plain = picture(*(each[None] for each in (window.inputs, window.truth, window.forecast)))
    assert plain.shape == (1, 16, 40, 1)
    window.forecast[:, :2, :2] = np.nan
    shown = picture(*(each[None] for each in (window.inputs, window.truth, window.forecast)))
    assert np.allclose(shown[0, 8:10, 16:18] * 255, NO_DATA)
    assert np.array_equal(shown[0, :8], plain[0, :8].repeat(3, axis=-1))
