"""Charts: round ticks that cover the values, and two painters that draw the same."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from framewin.pictures import charts
from framewin.pictures.charts import Chart, Series, colour_of, png, svg, ticks
from tests.conftest import import_or_skip

NUMBERS = st.floats(-1e9, 1e9, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 1e-9)


def two_lines(values: tuple[float | None, ...]) -> Chart:
    return Chart(
        "MSE <per> pixel & more", (1, 2, 3), (Series("model", values), Series("b", (1, 2, 3)))
    )


@given(NUMBERS, NUMBERS)
@example(1 - 2e-16, 1.0)
@example(-1.0, -1 + 1e-10)
@example(0.0, 5e-324)
@example(1e9, 1e9 * (1 + 1e-8))
def test_ticks_cover_the_range(one: float, other: float) -> None:
    """A few of them, evenly apart, with nothing of the range outside."""
    low, high = min(one, other), max(one, other)
    found = ticks(low, high)
    slack = 1e-6 * (found[-1] - found[0])
    assert found[0] <= low + slack
    assert high <= found[-1] + slack
    assert 2 <= len(found) <= charts.MOST_TICKS + 1
    assert np.allclose(np.diff(found), found[1] - found[0])


def test_scores_that_hardly_differ_are_drawn() -> None:
    """Regression: two SSIMs that differ in their last bit divided by a spread of 0."""
    assert ticks(1 - 2e-16, 1) == ticks(1, 1) == [1.0, 1.2]
    assert "<svg" in svg(Chart("SSIM", (1, 2), (Series("model", (1 - 2e-16, 1.0)),)))


def test_svg_is_whole_and_escaped() -> None:
    """An XML parser takes it; a value that is missing breaks the line."""
    root = ElementTree.fromstring(svg(two_lines((0.5, None, math.inf))))
    circles = [e for e in root if e.tag == "circle"]
    assert len(circles) == 1 + 3
    lines = [e for e in root if e.tag == "polyline" and colour_of(1) in e.get("style")]
    assert len(lines) == 1
    assert not [e for e in root if e.tag == "polyline" and colour_of(0) in e.get("style")]
    assert root.get("aria-label") == "MSE <per> pixel & more"
    texts = [e.text for e in root if e.tag == "text"]
    assert "MSE <per> pixel & more" in texts
    assert {"1", "2", "3"} <= set(texts)


def test_png_shows_every_series() -> None:
    """In their colours, three charts in two columns."""
    image = Image.open(io.BytesIO(png([two_lines((2.0, 3.0, 1.0))] * 3)))
    assert image.width == 2 * charts.WIDTH * charts.PNG_SCALE
    assert image.height > 2 * charts.HEIGHT * charts.PNG_SCALE
    pixels = np.asarray(image)
    for place in (0, 1):
        colour = [int(colour_of(place)[i : i + 2], 16) for i in (1, 3, 5)]
        assert (pixels == colour).all(axis=-1).sum() > 100


def test_nothing_known_is_drawn_as_nothing() -> None:
    """A score that is undefined everywhere, such as CSI where nothing happens."""
    nothing = Chart("CSI", (1,), (Series("model", (None,)), Series("b", (math.nan,))), True)
    assert "<circle" not in svg(nothing)
    assert png([nothing])


def test_lead_times_in_minutes() -> None:
    """Where the time between two frames is known; else they are counted."""
    chart = Chart("MSE", (1, 2), (Series("model", (1, 2)),), step_minutes=7.5)
    texts = [each.text for each in ElementTree.fromstring(svg(chart)) if each.text]
    assert {"lead time, minutes", "7.5", "15"} <= set(texts)
    assert "lead time, frames" in svg(two_lines((1, 2, 3)))


def test_charts_for_papers(tmp_path: Path) -> None:
    """Texts of the SVG are texts, and lines have the colours of their series."""
    import_or_skip("matplotlib")
    charts.drawing([two_lines((2.0, 3.0, 1.0))] * 3).write(tmp_path / "c.svg", "light")
    charts.drawing([two_lines((2.0, 3.0, 1.0))] * 3).write(tmp_path / "c.pdf", "light")
    root = ElementTree.parse(tmp_path / "c.svg").getroot()
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:2] == ["model", "b"]
    assert texts.count("MSE <per> pixel & more") == texts.count("lead time, frames") == 3
    assert (tmp_path / "c.svg").read_text().count(f"stroke: {colour_of(0)}") >= 3
    assert len(re.findall(rb"/Type /Page\b", (tmp_path / "c.pdf").read_bytes())) == 1


@pytest.mark.parametrize(("theme", "page"), [("light", 255), ("dark", 24)])
def test_a_chart_has_a_theme(theme: str, page: int) -> None:
    """White by default."""
    pixels = np.asarray(Image.open(io.BytesIO(png([two_lines((2.0, 3.0, 1.0))], theme))))
    assert pixels[0, 0, 0] == page
    assert (png([two_lines((2.0, 3.0, 1.0))]) == png([two_lines((2.0, 3.0, 1.0))], theme)) == (
        theme == "light"
    )
