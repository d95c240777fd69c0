"""Pictures of forecasts: the truth above, the forecast below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from PIL import Image

from framewin.optional import require
from framewin.pictures.drawing import INK, THEMES, Drawing, Text, font, picture, together
from framewin.pictures.gif import gif_bytes
from framewin.pictures.playback import SHOWN_SECONDS

FRAME_PIXELS = 128
"""A frame's longer side in a picture, about: small frames are enlarged, large ones reduced."""
MARGIN = 4
CAPTION_HEIGHT = 16
DIM = 0.25
"""A window whose greatest value is below this is brightened."""
LAST_FRAME_SECONDS = Fraction(1)
"""How much longer than the others the last frame of a GIF is shown."""

THEME = "dark"
"""Of a sheet by default."""
NO_DATA = (150, 70, 150)
"""Of pixels without data."""
FORECAST_EDGE = (235, 140, 40)
"""Colour of the line under forecast frames."""


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One window and its forecast, in unit scale."""

    title: str
    inputs: np.ndarray
    """(T_in, H, W, C)."""
    truth: np.ndarray
    """(T_out, H, W, C)."""
    forecast: np.ndarray
    """(T_out, H, W, C)."""
    lead_gap: int = 0
    """Frames skipped between the inputs and the forecast."""
    step_minutes: float | None = None
    """Between two frames; None where it is not known, or below a minute."""
    full: float = 1
    """Pixel value, as stored, that is 1 in unit scale."""
    baseline: np.ndarray | None = None
    """Another forecast, (T_out, H, W, C)."""
    baseline_title: str = ""

    @property
    def below(self) -> str:
        """What a sheet shows below the truth, in words."""
        return f"forecast and {self.baseline_title}" if self.baseline_title else "forecast"

    def lead_text(self, lead: int) -> str:
        """A lead time in frames, or in minutes."""
        return lead_text(lead, self.step_minutes)


def lead_text(lead: int, step_minutes: float | None) -> str:
    """A lead time in frames, or in minutes where it is known.

    >>> lead_text(2, None), lead_text(2, 5.0)
    ('+2', '+10 min')
    """
    if step_minutes is None:
        return f"{lead:+d}" if lead else "0"
    return f"{lead * step_minutes:+g} min" if lead else "0 min"


@dataclass(frozen=True, slots=True)
class Look:
    """How frames are coloured, and the page around them; by default frames are gray or of their own
    colours, over the whole range, or that of the window where it is a sliver of it."""

    cmap: str | None = None
    """Colour map of matplotlib, for frames of one channel."""
    vmin: float | None = None
    """Pixel value, as stored, of the first colour; what is below has it, too."""
    vmax: float | None = None
    """Of the last colour."""
    theme: str | None = None
    """`dark` or `light`; by default sheets are dark and charts light."""

    def __post_init__(self) -> None:
        for name, value in (("vmin", self.vmin), ("vmax", self.vmax)):
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{name} must be a number, got {value}")
        if self.vmin is not None and self.vmax is not None and not self.vmin < self.vmax:
            raise ValueError(f"vmin must be below vmax, got {self.vmin:g} and {self.vmax:g}")
        if self.theme not in (None, *THEMES):
            raise ValueError(f"theme must be {' or '.join(THEMES)}, got {self.theme!r}")
        if self.cmap is not None:
            maps = require("matplotlib", extra="plots").colormaps
            if self.cmap not in maps:
                some = "viridis, turbo, gray"
                raise ValueError(f"cmap must be one of matplotlib, as {some}, got {self.cmap!r}")

    def check(self, channels: int) -> None:
        """Refuse a colour map for frames that have colours of their own."""
        if self.cmap is not None and channels >= 3:
            raise ValueError(f"cmap is for frames of one channel, these have {channels}")

    @property
    def has_scale(self) -> bool:
        """Whether colours were chosen, so that a scale must say what they are."""
        return (self.cmap, self.vmin, self.vmax) != (None, None, None)


PLAIN = Look()


def sheet(examples: Sequence[Example], look: Look = PLAIN) -> Drawing:
    """For each window a row of true frames above a row of forecast frames.

    Columns are captioned with the lead time in minutes where it is known, else in frames: -1 and 0
    are the last two inputs, +1, or with a lead gap a later one, is the first predicted frame.
    Forecast frames have an orange line under them.
    """
    rows = []
    for example in examples:
        leads = _lead_times(example)
        top = [*example.inputs, *example.truth]
        show = Painter(example, look)
        shown = [show(frame) for frame in top]
        blanks = [_blank(shown[0])] * len(example.inputs)
        rows += [
            caption(f"{example.title}: truth above, {example.below} below", None),
            strip([caption(example.lead_text(lead), shown[0]) for lead in leads]),
            strip(shown),
            strip([*blanks, *(marked(show(frame)) for frame in example.forecast)]),
        ]
        if example.baseline is not None:
            rows.append(strip([*blanks, *map(show, example.baseline)]))
        rows += show.scale()
    return stack(rows)


def write_gif(
    path: Path,
    examples: Sequence[Example],
    seconds: Fraction = SHOWN_SECONDS,
    look: Look = PLAIN,
) -> None:
    """Write `animation` as a GIF without end, which holds its last frame.

    Args:
        path: Of the file.
        examples: At least one.
        seconds: How long a frame is shown, but for the last one.
        look: Of frames and page.
    """
    pictures = animation(examples, look)
    path.write_bytes(
        gif_bytes(pictures, [seconds] * (len(pictures) - 1) + [seconds + LAST_FRAME_SECONDS])
    )


def animation(examples: Sequence[Example], look: Look = PLAIN) -> list[np.ndarray]:
    """Pictures of the windows side by side, truth above forecast, frame after frame.

    While the inputs play, both rows show them; then the forecast, underlined in orange.
    """
    pictures = []
    painters = [Painter(example, look) for example in examples]
    scales = [row for show in painters for row in show.scale()]
    for step, lead in enumerate(_lead_times(examples[0])):
        tops, bottoms = [], []
        for example, show in zip(examples, painters, strict=True):
            ahead = step - len(example.inputs)
            is_input = ahead < 0
            tops.append(show(example.inputs[step] if is_input else example.truth[ahead]))
            bottoms.append(tops[-1] if is_input else marked(show(example.forecast[ahead])))
        kind = "input" if lead <= 0 else "forecast"
        text = f"{kind} {examples[0].lead_text(lead)}"
        page = stack([caption(text, None), strip(tops), strip(bottoms), *scales])
        pictures.append(page.pixels(look.theme or THEME))
    return pictures


def _lead_times(example: Example) -> list[int]:
    first = example.lead_gap + 1
    return [*range(1 - len(example.inputs), 1), *range(first, first + len(example.truth))]


class Painter:
    """From the frames of a window to RGB pictures of a size to look at.

    Small frames are enlarged; large ones reduced, unless the full size is wanted. What is no
    number has no data and the colour `NO_DATA`.
    """

    def __init__(self, example: Example, look: Look = PLAIN, *, full_size: bool = False) -> None:
        seen = np.concatenate([example.inputs, example.truth])[..., : _colours(example.inputs)]
        finite = seen[np.isfinite(seen)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        # Frames that use the range are shown as they are; depth or rain may use a sliver of it.
        if low >= 0 and DIM < high <= 1:
            low, high = 0.0, 1.0
        self.look, self.full_size, self._full = look, full_size, example.full
        if look.vmin is not None:
            low = look.vmin / self._full
        if look.vmax is not None:
            high = look.vmax / self._full
        # A limit beyond all values, which are then all of one colour.
        if look.vmin is not None and low >= high:
            high = low + 1 / self._full
        elif look.vmax is not None and low >= high:
            low = high - 1 / self._full
        self.low, self.high = low, high

    def __call__(self, frame: np.ndarray) -> np.ndarray:
        """A frame (H, W, C) in unit scale as uint8 (h, w, 3)."""
        colours = self.colours(frame)
        large = self.full_size and max(colours.shape[:2]) >= FRAME_PIXELS
        return colours if large else _resized(colours)

    def colours(self, frame: np.ndarray) -> np.ndarray:
        """Of each pixel: uint8 (H, W, 3)."""
        values = frame[..., : _colours(frame)]
        spread = self.high - self.low or 1.0
        shares = np.nan_to_num(np.clip((values - self.low) / spread, 0, 1))
        if self.look.cmap is not None and values.shape[-1] == 1:
            shares = require("matplotlib", extra="plots").colormaps[self.look.cmap](shares[..., 0])
        pixels = np.rint(shares[..., :3] * 255).astype(np.uint8)
        lost = ~np.isfinite(values).all(axis=-1, keepdims=True)
        found: np.ndarray = np.where(lost, np.array(NO_DATA, np.uint8), pixels)
        return found

    def scale(self) -> list[Drawing]:
        """Where colours were chosen, a row with them between the least and greatest value."""
        if not self.look.has_scale:
            return []
        ramp = np.linspace(self.low, self.high, FRAME_PIXELS).reshape(1, -1, 1)
        colours = self.colours(ramp.repeat(CAPTION_HEIGHT, axis=0))
        first, last = (caption(f"{end * self._full:g}", None) for end in (self.low, self.high))
        return [strip([first, colours, last])]


def _colours(frame: np.ndarray) -> int:
    """Channels to show: an alpha channel is left out."""
    return 3 if frame.shape[-1] >= 3 else 1


def _resized(picture: np.ndarray) -> np.ndarray:
    height, width = picture.shape[:2]
    longer = max(height, width)
    if longer < FRAME_PIXELS:
        factor = max(1, round(FRAME_PIXELS / longer))
        return picture.repeat(factor, axis=0).repeat(factor, axis=1)
    scale = FRAME_PIXELS / longer
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(
        Image.fromarray(np.ascontiguousarray(picture)).resize(size, Image.Resampling.BOX)
    )


def marked(picture: np.ndarray) -> np.ndarray:
    """A picture with the line of forecast frames under it."""
    edged = picture.copy()
    edged[-2:] = FORECAST_EDGE
    return edged


def _blank(like: np.ndarray) -> Drawing:
    return Drawing(like.shape[1], like.shape[0], ())


def caption(text: str, like: np.ndarray | None) -> Drawing:
    """A line of text, as wide as a picture, or as the text where there is none."""
    letters = font()
    width = like.shape[1] if like is not None else int(letters.getlength(text)) + 2 * MARGIN
    place = (MARGIN, letters.getmetrics()[0])
    line = Text(place, text, "start", INK, room=width - MARGIN)
    return Drawing(width, CAPTION_HEIGHT, (line,))


def strip(pictures: Sequence[np.ndarray | Drawing]) -> Drawing:
    """Pictures side by side with margins."""
    x, parts = 0.0, []
    for part in map(_drawn, pictures):
        parts.append((x + MARGIN, 0.0, part))
        x += MARGIN + part.width
    return together(parts)


def stack(rows: Sequence[np.ndarray | Drawing]) -> Drawing:
    """Rows of any width, one below the other with margins."""
    y, parts = 0.0, []
    for part in map(_drawn, rows):
        parts.append((0.0, y, part))
        y += part.height + MARGIN
    found = together(parts)
    return Drawing(found.width + MARGIN, y, found.items)


def _drawn(part: np.ndarray | Drawing) -> Drawing:
    return part if isinstance(part, Drawing) else picture(part)
