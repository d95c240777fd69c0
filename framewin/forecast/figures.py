"""Pictures of forecasts: the truth above, the forecast below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import imageio.v3 as iio
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from framewin.forecast.gif import gif_bytes
from framewin.forecast.playback import SHOWN_SECONDS
from framewin.optional import require

FRAME_PIXELS = 128
"""A frame's longer side in a picture, about: small frames are enlarged, large ones reduced."""
MARGIN = 4
CAPTION_HEIGHT = 16
DIM = 0.25
"""A window whose greatest value is below this is brightened."""
LAST_FRAME_SECONDS = Fraction(1)
"""How much longer than the others the last frame of a GIF is shown."""

BACKGROUND = (24, 24, 28)
CAPTION_COLOUR = (210, 210, 215)
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
    baseline: np.ndarray | None = None
    """Another forecast, (T_out, H, W, C)."""
    baseline_title: str = ""

    @property
    def below(self) -> str:
        """What a sheet shows below the truth, in words."""
        return f"forecast and {self.baseline_title}" if self.baseline_title else "forecast"

    def lead_text(self, lead: int) -> str:
        """A lead time in frames, or in minutes."""
        if self.step_minutes is None:
            return f"{lead:+d}" if lead else "0"
        return f"{lead * self.step_minutes:+g} min" if lead else "0 min"


def write_sheet(path: Path, examples: Sequence[Example]) -> None:
    """Write `sheet` as a PNG."""
    iio.imwrite(path, sheet(examples))


def sheet(examples: Sequence[Example]) -> np.ndarray:
    """For each window a row of true frames above a row of forecast frames: uint8 (H, W, 3).

    Columns are captioned with the lead time in minutes where it is known, else in frames: -1 and 0
    are the last two inputs, +1, or with a lead gap a later one, is the first predicted frame.
    Forecast frames have an orange line under them.
    """
    rows = []
    for example in examples:
        leads = _lead_times(example)
        top = [*example.inputs, *example.truth]
        bottom = [None] * len(example.inputs) + list(example.forecast)
        show = Painter(example)
        rows += [
            caption(f"{example.title}: truth above, {example.below} below", None),
            strip([caption(example.lead_text(lead), show(top[0])) for lead in leads]),
            strip([show(frame) for frame in top]),
            strip([_blank(show(top[0])) if f is None else marked(show(f)) for f in bottom]),
        ]
        if example.baseline is not None:
            blanks = [_blank(show(top[0]))] * len(example.inputs)
            rows.append(strip([*blanks, *map(show, example.baseline)]))
    return stack(rows)


def write_gif(path: Path, examples: Sequence[Example], seconds: Fraction = SHOWN_SECONDS) -> None:
    """Write `animation` as a GIF without end, which holds its last frame.

    Args:
        path: Of the file.
        examples: At least one.
        seconds: How long a frame is shown, but for the last one.
    """
    pictures = animation(examples)
    path.write_bytes(
        gif_bytes(pictures, [seconds] * (len(pictures) - 1) + [seconds + LAST_FRAME_SECONDS])
    )


def animation(examples: Sequence[Example]) -> list[np.ndarray]:
    """Pictures of the windows side by side, truth above forecast, frame after frame.

    While the inputs play, both rows show them; then the forecast, underlined in orange.
    """
    pictures = []
    for step, lead in enumerate(_lead_times(examples[0])):
        tops, bottoms = [], []
        for example in examples:
            show = Painter(example)
            ahead = step - len(example.inputs)
            is_input = ahead < 0
            tops.append(show(example.inputs[step] if is_input else example.truth[ahead]))
            bottoms.append(tops[-1] if is_input else marked(show(example.forecast[ahead])))
        kind = "input" if lead <= 0 else "forecast"
        text = f"{kind} {examples[0].lead_text(lead)}"
        pictures.append(stack([caption(text, None), strip(tops), strip(bottoms)]))
    return pictures


def _lead_times(example: Example) -> list[int]:
    first = example.lead_gap + 1
    return [*range(1 - len(example.inputs), 1), *range(first, first + len(example.truth))]


@dataclass(frozen=True, slots=True)
class Look:
    """How frames are coloured; by default gray or their own colours, over the whole range, or that
    of the window where it is a sliver of it."""

    cmap: str | None = None
    """Colour map of matplotlib, for frames of one channel."""
    low: float | None = None
    """Unit scale; what is below has the colour of it."""
    high: float | None = None

    def __post_init__(self) -> None:
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"vmin must be below vmax, got {self.low:g} and {self.high:g}")
        if self.cmap is not None:
            maps = require("matplotlib", extra="plots").colormaps
            if self.cmap not in maps:
                some = "viridis, turbo, gray"
                raise ValueError(f"cmap must be one of matplotlib, as {some}, got {self.cmap!r}")

    @property
    def is_chosen(self) -> bool:
        """Whether anything of it was asked for."""
        return self != PLAIN


PLAIN = Look()


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
        self.look, self.full_size = look, full_size
        self.low = low if look.low is None else look.low
        self.high = high if look.high is None else look.high

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

    def scale(self, full: float) -> np.ndarray:
        """A row with the colours from the least to the greatest value, stored unit."""
        ramp = np.linspace(self.low, self.high, FRAME_PIXELS).reshape(1, -1, 1)
        ends = (caption(f"{value * full:g}", None) for value in (self.low, self.high))
        first, last = ends
        return strip([first, self.colours(ramp.repeat(CAPTION_HEIGHT, axis=0)), last])


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


def _blank(like: np.ndarray) -> np.ndarray:
    return np.full_like(like, BACKGROUND)


def caption(text: str, like: np.ndarray | None) -> np.ndarray:
    """A line of text, as wide as a picture, or as the text where there is none."""
    font = ImageFont.load_default(size=12)
    width = like.shape[1] if like is not None else int(font.getlength(text)) + 2 * MARGIN
    image = Image.new("RGB", (width, CAPTION_HEIGHT), BACKGROUND)
    ImageDraw.Draw(image).text((MARGIN, 0), text, fill=CAPTION_COLOUR, font=font)
    return np.asarray(image)


def strip(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Pictures of one height, side by side with margins."""
    gap = np.full((pictures[0].shape[0], MARGIN, 3), BACKGROUND, np.uint8)
    return np.concatenate([piece for picture in pictures for piece in (gap, picture)], axis=1)


def stack(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of any width, one below the other with margins."""
    width = max(row.shape[1] for row in rows) + MARGIN
    padded = []
    for row in rows:
        canvas = np.full((row.shape[0] + MARGIN, width, 3), BACKGROUND, np.uint8)
        canvas[: row.shape[0], : row.shape[1]] = row
        padded.append(canvas)
    return np.concatenate(padded)
