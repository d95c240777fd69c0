"""Animated PNG: every frame is decoded by libpng and laid over the canvas, 16 bits and all."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm

import numpy as np

from framewin.errors import SourceError
from framewin.schema import FrameFormat
from framewin.sources import png
from framewin.sources.info import FileInfo, ReadOptions
from framewin.sources.timing import with_delays

_FRAME_CONTROL = struct.Struct(">IIIIIHHBB")
_SEQUENCE_BYTES = 4
_USUAL_DELAY_PARTS = 100
_DISPOSE_NONE, _DISPOSE_BACKGROUND, _DISPOSE_PREVIOUS = range(3)
_BLEND_OVER = 1
_SHARED_CHUNKS = (b"PLTE", b"tRNS")


@dataclass(slots=True)
class _Part:
    """One frame of the animation: where it goes, and its compressed pixels."""

    width: int
    height: int
    left: int
    top: int
    dispose: int
    blend: int
    seconds: Fraction
    """How long it is shown."""
    data: list[bytes]


def inspect_animation(data: bytes, still: FileInfo, path: str, options: ReadOptions) -> FileInfo:
    """What `read_animation` gives, once the whole structure has been checked.

    Raises:
        SourceError: Not an animation, a palette that is to stay indices, or any damage.
    """
    parts = _parts(data, path)
    if options.palette == "index":
        raise SourceError(
            f"{path} is an animation, whose frames are laid over each other as colours; "
            "palette='index' only takes single frames"
        )
    form = still.frame_format
    # What a cleared region shows is transparency, which needs a channel.
    if form.channels in (1, 3) and any(part.dispose == _DISPOSE_BACKGROUND for part in parts[:-1]):
        form = replace(form, channels=form.channels + 1)
    info = replace(still, frame_format=form, kind="animated PNG", is_clip=True, frames=len(parts))
    ticks = lcm(*(part.seconds.denominator for part in parts))
    delays = [int(part.seconds * ticks) for part in parts]
    return with_delays(info, delays, Fraction(1, ticks), path)


def read_animation(data: bytes, path: str, options: ReadOptions) -> Iterator[np.ndarray]:
    """Each frame as a viewer shows it, (H, W, C).

    Raises:
        SourceError: A frame is damaged; those behind it may need it, so none of them is given.
    """
    still = png.inspect(data, path, options)
    form = inspect_animation(data, still, path, options).frame_format
    canvas = np.zeros(form.shape, form.dtype)
    parts = _parts(data, path)
    shared = [c for c in png.contents(data) if c[0] in _SHARED_CHUNKS]
    for index, part in enumerate(parts):
        pixels = _decode(data, shared, part, still.frame_format, f"{path} (frame {index})")
        rows = slice(part.top, part.top + part.height)
        columns = slice(part.left, part.left + part.width)
        before = canvas[rows, columns].copy()
        _lay(canvas[rows, columns], _with_channels(pixels, form), part.blend)
        yield canvas.copy()
        if part.dispose == _DISPOSE_BACKGROUND or (part.dispose, index) == (_DISPOSE_PREVIOUS, 0):
            canvas[rows, columns] = 0
        elif part.dispose == _DISPOSE_PREVIOUS:
            canvas[rows, columns] = before


def _parts(data: bytes, path: str) -> list[_Part]:
    """The frames, of which everything but the compressed pixels has been checked."""
    head = png.read_head(data, path)
    parts: list[_Part] = []
    promised: int | None = None
    sequence, late = 0, False
    for name, content, intact in png.contents(data):
        if name not in (b"acTL", b"fcTL", b"fdAT", b"IDAT"):
            continue
        if not intact:
            raise _damaged(path, f"a {name.decode()} chunk has a wrong checksum")
        if name == b"acTL":
            if promised is not None or len(content) != 8 or late:
                raise _damaged(path, "its acTL chunk comes twice, late or cut short")
            promised = struct.unpack_from(">I", content)[0]
        elif name == b"IDAT":
            late = True
            # A picture that no frame control precedes is for viewers without animation.
            if parts:
                parts[0].data.append(content)
        else:
            sequence = _in_sequence(content, sequence, path)
            if name == b"fcTL":
                parts.append(_frame_control(content, head, path))
            elif not parts:
                raise _damaged(path, "pixels come before the first frame control")
            else:
                parts[-1].data.append(content[_SEQUENCE_BYTES:])
    _check_parts(parts, promised, path)
    return parts


def _check_parts(parts: list[_Part], promised: int | None, path: str) -> None:
    if promised is None:
        raise _damaged(path, "it has no acTL chunk")
    if promised != len(parts):
        raise _damaged(path, f"it holds {len(parts)} frames and promises {promised}")
    if not parts:
        raise _damaged(path, "it has no frame")
    for index, part in enumerate(parts):
        if not any(part.data):
            raise _damaged(path, f"frame {index} has no pixels")


def _in_sequence(content: bytes, sequence: int, path: str) -> int:
    found = int.from_bytes(content[:_SEQUENCE_BYTES], "big")
    if len(content) < _SEQUENCE_BYTES or found != sequence:
        raise _damaged(path, f"sequence number {found} stands where {sequence} is expected")
    return sequence + 1


def _frame_control(content: bytes, head: png.Head, path: str) -> _Part:
    if len(content) != _FRAME_CONTROL.size:
        raise _damaged(path, f"a frame control has {len(content)} bytes")
    _, width, height, left, top, delay, per, dispose, blend = _FRAME_CONTROL.unpack(content)
    inside = left + width <= head.width and top + height <= head.height
    if min(width, height) < 1 or not inside:
        raise _damaged(
            path, f"a frame of {height}x{width} at {top},{left} leaves {head.height}x{head.width}"
        )
    if dispose > _DISPOSE_PREVIOUS or blend > _BLEND_OVER:
        raise _damaged(path, f"a frame control has dispose {dispose} and blend {blend}")
    seconds = Fraction(delay, per or _USUAL_DELAY_PARTS)
    return _Part(width, height, left, top, dispose, blend, seconds, [])


def _decode(
    data: bytes,
    shared: list[tuple[bytes, bytes, bool]],
    part: _Part,
    form: FrameFormat,
    label: str,
) -> np.ndarray:
    """The pixels of one frame, by way of a PNG file that holds it alone."""
    ihdr = struct.pack(">II", part.width, part.height) + data[24:29]
    pieces = [png.SIGNATURE, png.chunk_bytes(b"IHDR", ihdr)]
    for name, content, intact in shared:
        if not intact:
            raise _damaged(label, f"a {name.decode()} chunk has a wrong checksum")
        pieces.append(png.chunk_bytes(name, content))
    pieces += [png.chunk_bytes(b"IDAT", b"".join(part.data)), png.chunk_bytes(b"IEND", b"")]
    out = np.empty((part.height, part.width, form.channels), form.dtype)
    png.decode(b"".join(pieces), out, label)
    return out


def _with_channels(pixels: np.ndarray, form: FrameFormat) -> np.ndarray:
    if pixels.shape[-1] == form.channels:
        return pixels
    opaque = np.full((*pixels.shape[:2], 1), np.iinfo(pixels.dtype).max, pixels.dtype)
    return np.concatenate([pixels, opaque], axis=-1)


def _lay(canvas: np.ndarray, pixels: np.ndarray, blend: int) -> None:
    """Put pixels on a region of the canvas, by the formula of the APNG specification."""
    channels = pixels.shape[-1]
    if blend != _BLEND_OVER or channels in (1, 3):
        canvas[:] = pixels
        return
    top = np.iinfo(pixels.dtype).max
    over = pixels[..., -1:].astype(np.float64) / top
    under = canvas[..., -1:].astype(np.float64) / top * (1 - over)
    alpha = over + under
    colours = pixels[..., :-1] * over + canvas[..., :-1] * under
    mixed = np.divide(colours, alpha, out=np.zeros_like(colours), where=alpha > 0)
    blended = np.concatenate([mixed, alpha * top], axis=-1)
    # Where nothing is mixed nothing is computed either, so that such pixels stay exact.
    blended = np.where(over == 1, pixels, np.where(over == 0, canvas, np.rint(blended)))
    canvas[:] = blended.astype(canvas.dtype)


def _damaged(path: str, reason: str) -> SourceError:
    return SourceError(f"{path} is a damaged animation: {reason}; repair or remove it")
