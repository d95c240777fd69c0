"""Pictures, lines, dots and texts at their places, painted as pixels or, with matplotlib, as PDF or
SVG whose texts are texts. The colours of the page are those of a theme."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from framewin.optional import require

INK, MUTED, GRID, PAGE = "ink", "muted", "grid", "page"
"""Colours that depend on the theme."""
THEMES = {
    "dark": {PAGE: "#18181c", INK: "#d2d2d7", MUTED: "#a0a8b8", GRID: "#333843"},
    "light": {PAGE: "#ffffff", INK: "#1f2430", MUTED: "#5d6575", GRID: "#e3e6ec"},
}
VECTOR_SUFFIXES = (".pdf", ".svg")
FONT_SIZE = 12
VECTOR_FONT_SIZE = 0.87 * FONT_SIZE
"""Of matplotlib's font, which is wider than that of pixels."""


class Line(NamedTuple):
    """Points that are joined."""

    points: tuple[tuple[float, float], ...]
    colour: str
    """#rrggbb, or a name of the theme."""
    width: float


class Dot(NamedTuple):
    """A filled circle."""

    place: tuple[float, float]
    colour: str
    radius: float


class Text(NamedTuple):
    """A line of text."""

    place: tuple[float, float]
    """On its base line."""
    text: str
    anchor: str
    """Of the place: `start`, `middle` or `end`."""
    colour: str
    bold: bool = False
    room: float | None = None
    """What is farther right of its place is cut off."""


class Picture(NamedTuple):
    """Pixels, each as large as one of the page."""

    place: tuple[float, float]
    """Of its upper left corner."""
    pixels: np.ndarray
    """uint8 RGB, (h, w, 3)."""


Mark = Line | Dot | Text
Item = Mark | Picture


@dataclass(frozen=True, slots=True, eq=False)
class Drawing:
    """What is on a page, from back to front."""

    width: float
    height: float
    items: tuple[Item, ...]

    def moved(self, x: float, y: float) -> Iterator[Item]:
        """The items of a drawing that is part of another one."""
        for item in self.items:
            if isinstance(item, Line):
                yield item._replace(points=tuple((x + each, y + e) for each, e in item.points))
            else:
                yield item._replace(place=(x + item.place[0], y + item.place[1]))

    def pixels(self, theme: str, scale: int = 1) -> np.ndarray:
        """uint8 RGB, (H, W, 3); with a scale texts, lines and dots are larger."""
        colours = THEMES[theme]
        size = (round(self.width) * scale, round(self.height) * scale)
        image = Image.new("RGB", size, colours[PAGE])
        for item in self.items:
            _paint(image, item, colours, scale)
        return np.asarray(image)

    def write(self, path: Path, theme: str) -> None:
        """Write a PNG, PDF or SVG by the path's suffix.

        Raises:
            MissingDependencyError: PDF or SVG without matplotlib.
        """
        if path.suffix.lower() in VECTOR_SUFFIXES:
            _write_vectors(path, self, THEMES[theme])
        else:
            Image.fromarray(self.pixels(theme)).save(path, format="PNG")


def picture(pixels: np.ndarray) -> Drawing:
    """Pixels as a drawing."""
    return Drawing(pixels.shape[1], pixels.shape[0], (Picture((0, 0), pixels),))


def together(parts: Iterable[tuple[float, float, Drawing]]) -> Drawing:
    """Drawings at their places (x, y) on one, just as large as they need."""
    parts = list(parts)
    width = max(x + part.width for x, _, part in parts)
    height = max(y + part.height for _, y, part in parts)
    return Drawing(width, height, tuple(i for x, y, part in parts for i in part.moved(x, y)))


def font(size: float = FONT_SIZE) -> ImageFont.FreeTypeFont:
    """The font of pixels."""
    found = ImageFont.load_default(size=size)
    assert isinstance(found, ImageFont.FreeTypeFont)
    return found


def _paint(image: Image.Image, item: Item, colours: dict[str, str], scale: int) -> None:
    draw = ImageDraw.Draw(image)
    if isinstance(item, Picture):
        left, top = (round(each) * scale for each in item.place)
        pixels = item.pixels.repeat(scale, axis=0).repeat(scale, axis=1)
        image.paste(Image.fromarray(pixels), (left, top))
        return
    colour = colours.get(item.colour, item.colour)
    if isinstance(item, Line):
        points = [(x * scale, y * scale) for x, y in item.points]
        draw.line(points, fill=colour, width=round(item.width * scale), joint="curve")
    elif isinstance(item, Dot):
        (x, y), radius = item.place, item.radius
        box = (x - radius, y - radius, x + radius, y + radius)
        draw.ellipse([each * scale for each in box], fill=colour)
    else:
        _paint_text(image, item, colour, scale)


def _paint_text(image: Image.Image, item: Text, colour: str, scale: int) -> None:
    anchor = {"start": "ls", "middle": "ms", "end": "rs"}[item.anchor]
    x, y = (each * scale for each in item.place)
    right = image.width if item.room is None else min(image.width, round(x + item.room * scale))
    # A piece of the page takes the text, so that what is farther right is cut off.
    top = max(0, round(y) - 2 * FONT_SIZE * scale)
    piece = image.crop((0, top, right, round(y) + FONT_SIZE * scale))
    ImageDraw.Draw(piece).text(
        (x, y - top),
        item.text,
        colour,
        font(FONT_SIZE * scale),
        anchor,
        stroke_width=scale // 4 if item.bold else 0,
        stroke_fill=colour,
    )
    image.paste(piece, (0, top))


def _write_vectors(path: Path, drawing: Drawing, colours: dict[str, str]) -> None:
    style = require("matplotlib.style", extra="plots")
    figures = require("matplotlib.figure", extra="plots")
    width, height = drawing.width, drawing.height
    # The user's own settings of matplotlib must not move anything; fonts stay text.
    fixed = {"svg.fonttype": "none", "svg.hashsalt": "framewin", "pdf.fonttype": 42}
    with style.context(["default", {**fixed, "image.composite_image": False}]):
        # One unit is a point, and 72 of them an inch.
        figure = figures.Figure((width / 72, height / 72), dpi=72, facecolor=colours[PAGE])
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
        axes.axis("off")
        for order, item in enumerate(drawing.items):
            _place(axes, item, colours, order)
        undated = {"CreationDate" if path.suffix.lower() == ".pdf" else "Date": None}
        figure.savefig(path, format=path.suffix[1:].lower(), metadata=undated)


def _place(axes: Any, item: Item, colours: dict[str, str], order: int) -> None:
    """Draw an item on axes of matplotlib."""
    patches = require("matplotlib.patches", extra="plots")
    if isinstance(item, Picture):
        (x, y), (height, width) = item.place, item.pixels.shape[:2]
        where = (x, x + width, y + height, y)
        axes.imshow(item.pixels, extent=where, aspect="auto", interpolation="none", zorder=order)
        return
    colour = colours.get(item.colour, item.colour)
    if isinstance(item, Line):
        xs, ys = zip(*item.points, strict=True)
        axes.plot(xs, ys, color=colour, linewidth=item.width, zorder=order)
    elif isinstance(item, Dot):
        axes.add_patch(patches.Circle(item.place, item.radius, color=colour, lw=0, zorder=order))
    else:
        text = axes.text(
            *item.place,
            item.text,
            color=colour,
            fontsize=VECTOR_FONT_SIZE,
            ha={"start": "left", "middle": "center", "end": "right"}[item.anchor],
            weight="bold" if item.bold else "normal",
            zorder=order,
            parse_math=False,
        )
        if item.room is not None:
            x, y = item.place
            room = patches.Rectangle((x, y - FONT_SIZE), item.room, 2 * FONT_SIZE)
            room.set_transform(axes.transData)
            text.set_clip_path(room)
            text.set_clip_on(True)
