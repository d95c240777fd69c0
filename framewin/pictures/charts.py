"""Line charts of scores against lead time, as SVG for pages and as drawings."""

from __future__ import annotations

import html
import io
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from framewin.pictures.drawing import (
    FONT_SIZE,
    GRID,
    INK,
    MUTED,
    Dot,
    Drawing,
    Line,
    Mark,
    Text,
    font,
    together,
)

WIDTH, HEIGHT = 520, 300
"""Of a chart, in SVG's pixels."""
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 34, 42
"""Between the chart's edge and its axes."""
MOST_TICKS = 6
LEAST_SPREAD = 1e-9
"""Of the largest value: below it values count as the same."""
PNG_SCALE = 2
"""Pixels of a PNG for one of SVG."""
_SMOOTHING = 2
THEME = "light"
"""Of a chart by default."""

COLOURS = ("#2f6fed", "#e07b39", "#2c9f6b", "#b04fc4", "#8a93a6", "#c9a227", "#d9485f", "#12a5b8")
"""Of the series, in order; readable on white and on black."""


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a chart."""

    label: str
    values: tuple[float | None, ...]
    """One per lead time; None, NaN and infinity are left out."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Several series over the same lead times."""

    title: str
    leads: tuple[int, ...]
    series: tuple[Series, ...]
    from_zero: bool = False
    """Whether the axis of values begins at 0."""
    step_minutes: float | None = None
    """Of a lead time of one frame; None to count frames."""


def svg(chart: Chart) -> str:
    """A chart as an `<svg>` element whose colours are the CSS variables --ink, --muted, --grid."""
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{html.escape(chart.title)}" font-size="{FONT_SIZE}">'
    ]
    for item in _items(chart):
        colour = item.colour if item.colour.startswith("#") else f"var(--{item.colour})"
        if isinstance(item, Line):
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in item.points)
            parts.append(
                f'<polyline points="{points}" fill="none" style="stroke:{colour}" '
                f'stroke-width="{item.width}" stroke-linejoin="round"/>'
            )
        elif isinstance(item, Dot):
            (x, y) = item.place
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{item.radius}" style="fill:{colour}"/>'
            )
        else:
            (x, y), weight = item.place, ' font-weight="600"' if item.bold else ""
            parts.append(
                f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{item.anchor}"{weight} '
                f'style="fill:{colour}">{html.escape(item.text)}</text>'
            )
    return "\n".join([*parts, "</svg>"])


def drawing(charts: Sequence[Chart], *, columns: int = 2) -> Drawing:
    """Charts side by side and below one another, with a legend of all series."""
    columns = min(columns, len(charts))
    legend, below = _legend(charts[0], WIDTH * columns)
    places = ((n % columns * WIDTH, below + n // columns * HEIGHT) for n in range(len(charts)))
    parts = (Drawing(WIDTH, HEIGHT, tuple(_items(chart))) for chart in charts)
    corners = ((x, y, part) for (x, y), part in zip(places, parts, strict=True))
    return together([(0, 0, Drawing(WIDTH * columns, below, legend)), *corners])


def png(charts: Sequence[Chart], theme: str = THEME) -> bytes:
    """Their drawing, with smooth edges."""
    large = Image.fromarray(drawing(charts).pixels(theme, PNG_SCALE * _SMOOTHING))
    small = (large.width // _SMOOTHING, large.height // _SMOOTHING)
    file = io.BytesIO()
    large.resize(small, Image.Resampling.BOX).save(file, format="PNG")
    return file.getvalue()


def colour_of(place: int) -> str:
    """Colour of a chart's series by its place."""
    return COLOURS[place % len(COLOURS)]


def ticks(low: float, high: float) -> list[float]:
    """Round numbers that cover a range, at most `MOST_TICKS` or one more.

    >>> ticks(0, 0.0173)
    [0.0, 0.005, 0.01, 0.015, 0.02]
    """
    size = max(abs(low), abs(high))
    # Values that differ in digits that no label shows are drawn as the same.
    spread = high - low if high - low > LEAST_SPREAD * size else size
    spread = spread if spread > sys.float_info.min else 1.0
    rough = spread / (MOST_TICKS - 1)
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{count * step:.12g}") for count in range(first, max(last, first + 1) + 1)]


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _items(chart: Chart) -> list[Mark]:
    """Everything that is drawn, from back to front."""
    known = [v for series in chart.series for v in series.values if v is not None and _known(v)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    marks = ticks(0.0 if chart.from_zero else low, high)
    across = np.linspace(LEFT, WIDTH - RIGHT, 2 * len(chart.leads) + 1)[1::2].tolist()

    def height_of(value: float) -> float:
        share = (value - marks[0]) / (marks[-1] - marks[0])
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    unit = "frames" if chart.step_minutes is None else "minutes"
    items: list[Mark] = [
        Text((LEFT, 18), chart.title, "start", INK, bold=True),
        Text((WIDTH - RIGHT, HEIGHT - 8), f"lead time, {unit}", "end", MUTED),
    ]
    for mark in marks:
        y = height_of(mark)
        items.append(Line(((LEFT, y), (WIDTH - RIGHT, y)), GRID, 1))
        items.append(Text((LEFT - 8, y + 4), f"{mark:.6g}", "end", MUTED))
    every = -(-len(chart.leads) // 16)
    for x, lead in list(zip(across, chart.leads, strict=True))[::every]:
        label = f"{lead * (chart.step_minutes or 1):g}"
        items.append(Text((x, HEIGHT - BOTTOM + 18), label, "middle", MUTED))
    # The first series, the model, lies on top.
    for place in reversed(range(len(chart.series))):
        points = [
            (x, height_of(value)) if value is not None and _known(value) else None
            for x, value in zip(across, chart.series[place].values, strict=True)
        ]
        items += _drawn(points, colour_of(place), 3 if place == 0 else 1.8)
    return items


def _drawn(points: list[tuple[float, float] | None], colour: str, width: float) -> list[Mark]:
    """Points joined where neighbours are known."""
    found: list[Mark] = []
    run: list[tuple[float, float]] = []
    for point in [*points, None]:
        if point is not None:
            run.append(point)
            found.append(Dot(point, colour, width))
        elif len(run) > 1:
            found.append(Line(tuple(run), colour, width))
        if point is None:
            run = []
    return found


def _legend(chart: Chart, width: int) -> tuple[tuple[Mark, ...], float]:
    """Its items and height."""
    measure = font()
    x, y = float(LEFT), 22.0
    items: list[Mark] = []
    for place, series in enumerate(chart.series):
        needed = measure.getlength(series.label) + 34
        if x + needed > width and x > LEFT:
            x, y = float(LEFT), y + 20
        items.append(Dot((x, y - 4), colour_of(place), 5))
        items.append(Text((x + 11, y), series.label, "start", INK))
        x += needed
    return tuple(items), y + FONT_SIZE
