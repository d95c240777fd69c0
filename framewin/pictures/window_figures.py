"""Pictures of a store: one window with all that is known of it, or some frames of every clip."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from framewin.errors import SourceError
from framewin.metrics import FULL_SCALE
from framewin.pictures.drawing import VECTOR_SUFFIXES, Drawing
from framewin.pictures.figures import (
    LAST_FRAME_SECONDS,
    PLAIN,
    THEME,
    Example,
    Look,
    Painter,
    caption,
    marked,
    stack,
    strip,
)
from framewin.pictures.gif import gif_bytes
from framewin.pictures.playback import SHOWN_SECONDS
from framewin.remote import refuse_url
from framewin.scaling import shown_values
from framewin.schema import MICROSECONDS, ClipTable

if TYPE_CHECKING:
    from framewin.dataset import FrameWindowDataset, Window

CLIPS_SHOWN = 24
FRAMES_PER_CLIP = 8
BAR_HEIGHT = 10
PRESENT = (120, 160, 120)
MISSING = (220, 70, 60)
SHEET_SUFFIXES = (".png", *VECTOR_SUFFIXES)
SUFFIXES = (*SHEET_SUFFIXES, ".gif")


@dataclass(frozen=True, slots=True)
class WindowPicture:
    """A picture of a window; a notebook displays it, `save` writes it."""

    title: tuple[str, ...]
    """Lines."""
    labels: tuple[str, ...]
    """Of each frame, inputs and targets."""
    frames: tuple[np.ndarray, ...]
    """RGB pictures, uint8 (h, w, 3); of targets, with a line below."""
    input_frames: int
    """How many of them are inputs."""
    scale: tuple[Drawing, ...] = ()
    """A row that says which colours values have, where they were chosen."""
    theme: str = THEME

    def drawing(self) -> Drawing:
        """Inputs in one row, targets below."""
        rows = [caption(line, None) for line in self.title]
        count = self.input_frames
        for name, part in (("inputs", slice(count)), ("targets", slice(count, None))):
            shown, labels = self.frames[part], self.labels[part]
            rows.append(caption(name, None))
            rows.append(strip([caption(text, shown[0]) for text in labels]))
            rows.append(strip(shown))
        return stack([*rows, *self.scale])

    def image(self) -> np.ndarray:
        """Its pixels: uint8 (H, W, 3)."""
        return self.drawing().pixels(self.theme)

    def save(self, path: str | Path) -> Path:
        """Write a PNG, PDF or SVG of all frames, or a GIF that plays them.

        Raises:
            SourceError: Another suffix.
            MissingDependencyError: PDF or SVG without matplotlib.
        """
        refuse_url(path, "pictures are written to this machine, give a path")
        path = Path(path)
        if path.suffix.lower() not in SUFFIXES:
            raise SourceError(f"{path} must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
        if path.suffix.lower() != ".gif":
            self.drawing().write(path, self.theme)
            return path
        title = [caption(line, None) for line in self.title]
        pages = [
            stack([*title, caption(label, None), frame, *self.scale])
            for label, frame in zip(self._played_labels(), self.frames, strict=True)
        ]
        size = max(page.width for page in pages), max(page.height for page in pages)
        pictures = [Drawing(*size, page.items).pixels(self.theme) for page in pages]
        held = [SHOWN_SECONDS] * (len(pages) - 1) + [SHOWN_SECONDS + LAST_FRAME_SECONDS]
        path.write_bytes(gif_bytes(pictures, held))
        return path

    def _played_labels(self) -> list[str]:
        kinds = ["input"] * self.input_frames
        kinds += ["target"] * (len(self.frames) - self.input_frames)
        return [f"{kind} {label}" for kind, label in zip(kinds, self.labels, strict=True)]

    def _repr_png_(self) -> bytes:
        data = io.BytesIO()
        Image.fromarray(self.image()).save(data, format="PNG")
        return data.getvalue()


def window_picture(dataset: FrameWindowDataset, window: int, look: Look = PLAIN) -> WindowPicture:
    """What a window looks like, and which clip, frame numbers, times and files it is.

    Raises:
        IndexError: No such window.
        ValueError: A colour map for frames of several channels.
    """
    look.check(dataset.frame_format.channels)
    inputs, targets = dataset[window][:2]
    where = dataset.window(window)
    inputs, targets = (shown_values(part, dataset.nodata) for part in (inputs, targets))
    full = FULL_SCALE[dataset.frame_format.dtype]
    example = Example("", inputs, targets, targets, full=full)
    show = Painter(example, look)
    numbers = (*where.input_frame_numbers, *where.predict_frame_numbers)
    return WindowPicture(
        title=(f"window {window} of {len(dataset)}, clip {where.clip}", *_origins(where)),
        labels=tuple(_label(number, dataset.clips) for number in numbers),
        frames=(
            *(show(frame) for frame in example.inputs),
            *(marked(show(frame)) for frame in example.truth),
        ),
        input_frames=len(inputs),
        scale=tuple(show.scale()),
        theme=look.theme or THEME,
    )


def contact_sheet(
    dataset: FrameWindowDataset, *, max_clips: int = CLIPS_SHOWN, look: Look = PLAIN
) -> Drawing:
    """A row of frames for each clip, and below it a bar of time in which gaps are red.

    Raises:
        ValueError: A colour map for frames of several channels.
    """
    look.check(dataset.frame_format.channels)
    clips, full = dataset.clips, FULL_SCALE[dataset.frame_format.dtype]
    rows: list[np.ndarray | Drawing] = []
    for clip, name in enumerate(clips.names[:max_clips]):
        first, length = int(clips.clip_starts[clip]), int(clips.clip_lengths[clip])
        places = np.unique(np.linspace(first, first + length - 1, FRAMES_PER_CLIP).astype(int))
        found = np.concatenate([_frame(dataset, int(row)) for row in places])
        frames = shown_values(found, dataset.nodata)
        show = Painter(Example("", frames, frames, frames, full=full), look)
        shown = [show(frame) for frame in frames]
        numbers = clips.frame_numbers(places).tolist()
        gaps = sum(1 for gap in clips.gaps() if gap.clip == name)
        rows += [
            caption(f"{name}: {length} frames, gaps: {gaps}", None),
            strip([caption(_label(n, clips), shown[0]) for n in numbers]),
            strip(shown),
            _time_bar(clips, clip, round(strip(shown).width)),
            *show.scale(),
        ]
    if len(clips.names) > max_clips:
        rows.append(caption(f"and {len(clips.names) - max_clips} more clips", None))
    return stack(rows)


def _frame(dataset: FrameWindowDataset, row: int) -> np.ndarray:
    [(_, frame)] = dataset.blocks(row, row + 1)
    return frame


def _time_bar(clips: ClipTable, clip: int, width: int) -> np.ndarray:
    """From the clip's first frame number to its last: green where frames are, red where not."""
    rows = clips.clip_starts[clip] + np.arange(clips.clip_lengths[clip])
    numbers = clips.frame_numbers(rows)
    expected = (numbers[-1] - numbers[0]) // clips.step + 1
    at = ((numbers - numbers[0]) // clips.step * width // expected).astype(int)
    until = (((numbers - numbers[0]) // clips.step + 1) * width // expected).astype(int)
    bar = np.full((BAR_HEIGHT, width, 3), MISSING, np.uint8)
    for begin, end in zip(at.tolist(), until.tolist(), strict=True):
        bar[:, begin:end] = PRESENT
    # A gap narrower than a pixel is drawn as one.
    bar[:, at[1:][np.diff(numbers) != clips.step]] = MISSING
    return bar


def _label(number: int, clips: ClipTable) -> str:
    if clips.time_unit is None:
        return str(number)
    time = np.datetime64(number * MICROSECONDS[clips.time_unit], "us")
    return str(time.astype("datetime64[s]" if clips.time_unit == "s" else "datetime64[ms]"))[5:]


def _origins(where: Window) -> tuple[str, ...]:
    """Lines with the files, the first and the last where there are many."""
    files = tuple(dict.fromkeys((*where.input_files, *where.predict_files)))
    named = files if len(files) <= 2 else (files[0], "...", files[-1])
    return (" ".join(named),)
