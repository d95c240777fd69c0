"""Animated PNG: every frame is decoded by libpng and laid over the canvas, 16 bits and all."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import lcm
from typing import NamedTuple

import numpy as np

from framewin.errors import SourceError
from framewin.schema import FrameFormat
from framewin.sources.damage import broken
from framewin.sources.info import FileInfo, ReadOptions
from framewin.sources.png_pixels import Head, Parts, check_checksum, chunks, decode_parts, read_head
from framewin.sources.timing import with_delays

_FRAME_CONTROL = struct.Struct(">IIIIIHHBB")
_SEQUENCE_BYTES = 4
_USUAL_DELAY_PARTS = 100
_DISPOSE_NONE, _DISPOSE_BACKGROUND, _DISPOSE_PREVIOUS = range(3)
_BLEND_OVER = 1
_OF_ANIMATIONS = (b"acTL", b"fcTL", b"fdAT")
_USED = (*_OF_ANIMATIONS, b"IDAT", b"PLTE", b"tRNS")


class _Frame(NamedTuple):
    """One frame of the animation: where it goes, and its compressed pixels."""

    rows: slice
    columns: slice
    dispose: int
    blend: int
    seconds: Fraction
    """How long it is shown."""
    pixels: list[bytes]


def is_animated(data: bytes) -> bool:
    """Whether a file has any part of an animation, be it damaged."""
    return any(name in _OF_ANIMATIONS for name, _, _ in chunks(data))


def inspect(data: bytes, still: FileInfo, path: str, options: ReadOptions) -> FileInfo:
    """What `read` gives, once the whole structure is checked; `still` is of a single picture."""
    _, _, frames = _animation(data, path)
    if options.palette == "index":
        raise SourceError(
            f"{path} is an animation, whose frames are laid over each other as colours; "
            "palette='index' only takes single frames"
        )
    form = still.frame_format
    # What a cleared region shows is transparency, which needs a channel.
    cleared = any(frame.dispose == _DISPOSE_BACKGROUND for frame in frames[:-1])
    if form.channels in (1, 3) and cleared:
        form = replace(form, channels=form.channels + 1)
    info = replace(still, frame_format=form, kind="animated PNG", is_clip=True, frames=len(frames))
    ticks = lcm(*(frame.seconds.denominator for frame in frames))
    delays = [int(frame.seconds * ticks) for frame in frames]
    return with_delays(info, delays, Fraction(1, ticks), path)


def read(data: bytes, still: FileInfo, path: str, options: ReadOptions) -> Iterator[np.ndarray]:
    """Each frame as a viewer shows it, (H, W, C); none after a damaged one, which they may need."""
    form = inspect(data, still, path, options).frame_format
    canvas = np.zeros(form.shape, form.dtype)
    head, shared, frames = _animation(data, path)
    for index, frame in enumerate(frames):
        region = canvas[frame.rows, frame.columns]
        pixels = np.empty((*region.shape[:2], still.frame_format.channels), form.dtype)
        size = head._replace(width=pixels.shape[1], height=pixels.shape[0])
        parts = shared._replace(compressed=b"".join(frame.pixels))
        decode_parts(size, parts, pixels, f"{path} (frame {index})")
        before = region.copy()
        _lay(region, _with_channels(pixels, form), frame.blend)
        yield canvas.copy()
        if frame.dispose == _DISPOSE_BACKGROUND or (frame.dispose, index) == (_DISPOSE_PREVIOUS, 0):
            region[:] = 0
        elif frame.dispose == _DISPOSE_PREVIOUS:
            region[:] = before


def _animation(data: bytes, path: str) -> tuple[Head, Parts, list[_Frame]]:
    """Header, colours and frames, of which all but the compressed pixels is checked."""
    head = read_head(data, path)
    frames: list[_Frame] = []
    found: dict[bytes, bytes] = {}
    sequence = 0
    for name, start, end in chunks(data):
        if end > len(data) or name not in _USED:
            continue
        check_checksum(data, start, end, path)
        content = data[start : end - 4]
        if name == b"acTL" and (name in found or len(content) != 8 or b"IDAT" in found):
            raise _damaged(path, "its acTL chunk comes twice, late or cut short")
        found.setdefault(name, content)
        if name in (b"fcTL", b"fdAT"):
            number = int.from_bytes(content[:_SEQUENCE_BYTES], "big")
            if len(content) < _SEQUENCE_BYTES or number != sequence:
                raise _damaged(path, f"sequence number {number} where {sequence} is expected")
            sequence += 1
        if name == b"fcTL":
            frames.append(_frame(content, head, path))
        elif name == b"fdAT" and not frames:
            raise _damaged(path, "pixels come before the first frame control")
        elif name == b"fdAT":
            frames[-1].pixels.append(content[_SEQUENCE_BYTES:])
        # A picture that no frame control precedes is for viewers without animation.
        elif name == b"IDAT" and frames:
            frames[0].pixels.append(content)
    _check_frames(frames, found.get(b"acTL"), path)
    return head, Parts(b"", found.get(b"PLTE", b""), found.get(b"tRNS")), frames


def _check_frames(frames: list[_Frame], control: bytes | None, path: str) -> None:
    if control is None:
        raise _damaged(path, "it has no acTL chunk")
    promised = int.from_bytes(control[:4], "big")
    if promised != len(frames) or not frames:
        raise _damaged(path, f"it holds {len(frames)} frames and promises {promised}")
    for index, frame in enumerate(frames):
        if not any(frame.pixels):
            raise _damaged(path, f"frame {index} has no pixels")


def _frame(content: bytes, head: Head, path: str) -> _Frame:
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
    return _Frame(slice(top, top + height), slice(left, left + width), dispose, blend, seconds, [])


def _with_channels(pixels: np.ndarray, form: FrameFormat) -> np.ndarray:
    if pixels.shape[-1] == form.channels:
        return pixels
    opaque = np.full((*pixels.shape[:2], 1), np.iinfo(pixels.dtype).max, pixels.dtype)
    return np.concatenate([pixels, opaque], axis=-1)


def _lay(canvas: np.ndarray, pixels: np.ndarray, blend: int) -> None:
    """Put pixels on a region of the canvas, by the formula of the APNG specification."""
    if blend != _BLEND_OVER or pixels.shape[-1] in (1, 3):
        canvas[:] = pixels
        return
    top = np.iinfo(pixels.dtype).max
    over = pixels[..., -1:] / top
    under = canvas[..., -1:] / top * (1 - over)
    alpha = over + under
    colours = pixels[..., :-1] * over + canvas[..., :-1] * under
    mixed = np.divide(colours, alpha, out=np.zeros_like(colours), where=alpha > 0)
    blended = np.concatenate([mixed, alpha * top], axis=-1)
    # Where nothing is mixed nothing is computed either, so that such pixels stay exact.
    canvas[:] = np.where(over == 1, pixels, np.where(over == 0, canvas, np.rint(blended)))


def _damaged(path: str, reason: str) -> SourceError:
    return broken(f"{path} is a damaged animation: {reason}")
