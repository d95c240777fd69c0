"""Video files, decoded by FFmpeg through PyAV; needs the extra `video`.

The numbers of frames are their presentation time stamps over the usual frame duration, so that
a dropped frame is a gap. Where the frame rate varies they are the time stamps themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from framewin.errors import SourceError
from framewin.optional import require
from framewin.schema import FrameFormat, Int64Array, most_frequent
from framewin.sources import suffix_of
from framewin.sources.info import FileInfo, ReadOptions, check_pixels, kind_of, refuse_pointer

_KINDS = {
    ".mp4": ("MP4", "QuickTime"),
    ".mov": ("QuickTime", "MP4"),
    ".avi": ("AVI",),
    ".mkv": ("Matroska",),
}
# Decoders mend damage in silence unless they are told to stop at it.
_STRICT = {"err_detect": "crccheck+bitstream+buffer+explode"}


_USUAL_RATES = tuple(
    Fraction(rate * 1000, base)
    for rate in (24, 25, 30, 48, 50, 60, 15, 12, 10, 20, 100, 120)
    for base in (1000, 1001)
)
_ROUNDING_TICKS = 1.001
_LEAST_TICKS = 4


@dataclass(frozen=True, slots=True, eq=False)
class _Packets:
    """The packets of a stream."""

    stamps: Int64Array
    """When frames are shown, in ticks, increasing."""
    carried: bool
    """Whether decoded frames carry these stamps.

    AVI has only those of decoding. In order they are the same times, but where frames are not
    shown in the order of decoding a frame's own is a guess: such frames are counted.
    """
    count: int
    """Of all packets, also of those that show nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class _Timing:
    """When frames are shown."""

    numbers: Int64Array
    step: int
    """Usual difference of `numbers`; 1 unless the frame rate varies."""
    usual: int
    """Usual difference of time stamps, in ticks."""
    frame_seconds: Fraction


@dataclass(frozen=True, slots=True)
class _Target:
    """What frames are converted to, and the file they are from."""

    path: str
    pix_fmt: str
    frame_format: FrameFormat

    def pixels(self, frame: Any, index: int) -> np.ndarray | SourceError:
        """A decoded frame as (H, W, C); an error where the stream changes its size."""
        form = self.frame_format
        if (frame.height, frame.width) != (form.height, form.width):
            return SourceError(
                f"{self.path} (frame {index}) is {frame.height}x{frame.width}, the first is "
                f"{form.height}x{form.width}; split the file where its frames change"
            )
        pixels: np.ndarray = frame.to_ndarray(format=self.pix_fmt).astype(form.dtype, copy=False)
        return pixels.reshape(form.shape)


def inspect_clip(path: str, options: ReadOptions) -> FileInfo:
    """Size, and the time stamp of every frame; packets are read, one frame is decoded.

    Raises:
        SourceError: Not a video, several streams and none chosen, or no usable time stamps.
        MissingDependencyError: PyAV is not installed.
    """
    with _opened(path, options) as (container, stream):
        context = stream.codec_context
        check_pixels(context.height, context.width, path, options)
        packets = _packets(container, stream, path)
        promised, timing = stream.frames, _timing(packets.stamps, stream)
        form = _target(context, path).frame_format
        mode, kind = f"{context.name} {context.pix_fmt}", _KINDS[suffix_of(path)][0]
    notes = _rotation(path, options)
    # AVI counts the frames that were dropped, too.
    held = int(packets.stamps[-1]) + timing.usual if kind == "AVI" else packets.count
    return FileInfo(
        form,
        kind,
        mode if timing.step == 1 else f"{mode}, variable frame rate",
        notes,
        is_clip=True,
        frames=len(packets.stamps),
        numbers=timing.numbers,
        step=timing.step,
        frame_seconds=str(timing.frame_seconds),
        cut=f"holds {held} of {promised} frames" if promised > held else None,
    )


def read_clip(path: str, options: ReadOptions) -> Iterator[np.ndarray | SourceError]:
    """The frames in order of presentation, (H, W, C); errors where the stream is damaged.

    Behind damage all frames are errors up to the next one that needs no other.
    """
    with _opened(path, options) as (container, stream):
        packets = _packets(container, stream, path)
    with _opened(path, options) as (container, stream):
        # With a thread per frame FFmpeg forgets some errors, and which depends on the cores.
        stream.thread_type = "SLICE"
        stream.codec_context.options = _STRICT
        target = _target(stream.codec_context, path)
        read = _by_stamp if packets.carried else _by_count
        yield from read(_decoded(container, stream), packets.stamps.tolist(), target)


def _by_stamp(
    frames: Iterator[Any], expected: list[int], target: _Target
) -> Iterator[np.ndarray | SourceError]:
    done, doubtful = 0, False
    for frame in frames:
        if frame is None or frame.pts is None:
            doubtful = True
            continue
        doubtful = doubtful and not frame.key_frame
        while done < len(expected) and expected[done] < frame.pts:
            yield _lost(target.path, done)
            done += 1
        if done < len(expected) and expected[done] == frame.pts:
            lost = doubtful or frame.is_corrupt
            yield _lost(target.path, done) if lost else target.pixels(frame, done)
            done += 1
    yield from (_lost(target.path, index) for index in range(done, len(expected)))


def _by_count(
    frames: Iterator[Any], expected: list[int], target: _Target
) -> Iterator[np.ndarray | SourceError]:
    """Frames without time stamps: once one is damaged, the numbers of the others are in doubt."""
    done = 0
    for frame in frames:
        if frame is None or frame.is_corrupt or done == len(expected):
            break
        yield target.pixels(frame, done)
        done += 1
    yield from (_lost(target.path, index) for index in range(done, len(expected)))


def _decoded(container: Any, stream: Any) -> Iterator[Any]:
    """Each frame in order; None where the decoder stopped at damage."""
    import av

    for packet in container.demux(stream):
        try:
            frames = packet.decode()
        except av.error.FFmpegError:
            yield None
            continue
        yield from frames


@contextmanager
def _opened(path: str, options: ReadOptions) -> Iterator[tuple[Any, Any]]:
    """The container and the one stream that is wanted; what FFmpeg raises becomes SourceError."""
    av = require("av", extra="video")
    with open(path, "rb") as file:
        start = file.read(16)
    refuse_pointer(start, path)
    kind = kind_of(start)
    if not start or (kind is not None and kind[0] not in _KINDS[suffix_of(path)]):
        found = f"is a {kind[0]} file; rename it to {kind[1]}" if kind else "is empty; remove it"
        raise SourceError(f"{path} {found}")
    try:
        with av.open(path, metadata_errors="ignore") as container:
            yield container, _chosen(container, path, options)
    except SourceError:
        raise
    # PyAV raises FFmpeg's errors, and others where a damaged header leaves something out.
    except Exception as exc:
        reason = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
        raise SourceError(
            f"{path} is not a video that FFmpeg can read ({reason}); copy it again or remove it"
        ) from exc


def _chosen(container: Any, path: str, options: ReadOptions) -> Any:
    import av

    cover = av.stream.Disposition.attached_pic
    streams = [stream for stream in container.streams.video if not stream.disposition & cover]
    shown = ", ".join(f"{i}: {_described(stream)}" for i, stream in enumerate(streams))
    if not streams:
        raise SourceError(f"{path} holds no video stream; remove it or leave it out by --exclude")
    if options.stream is None and len(streams) > 1:
        raise SourceError(f"{path} holds several streams ({shown}); choose one by --stream")
    chosen = options.stream or 0
    if chosen >= len(streams):
        raise SourceError(f"{path} has no stream {chosen}; it holds {shown}")
    if streams[chosen].codec_context is None:
        raise SourceError(f"{path} is coded in a way that FFmpeg does not know; convert it first")
    return streams[chosen]


def _described(stream: Any) -> str:
    context = stream.codec_context
    if context is None:
        return "unknown codec"
    rate = f", {float(stream.average_rate):g} frames/s" if stream.average_rate else ""
    return f"{context.name} {context.height}x{context.width}{rate}"


def _packets(container: Any, stream: Any, path: str) -> _Packets:
    """What the packets of a stream say, without decoding them."""
    times = [
        (packet.pts, packet.dts, packet.size > 0 and not packet.is_discard)
        for packet in container.demux(stream)
        if packet.size or packet.dts is not None  # the last one only flushes the decoder
    ]
    reordered = "avi" in container.format.name and stream.codec_context.has_b_frames
    shown = [(pts, dts) for pts, dts, is_shown in times if is_shown]
    carried = not reordered and all(pts is not None for pts, _ in shown)
    stamps = [pts if carried else dts for pts, dts in shown]
    if not stamps:
        raise SourceError(f"{path} holds no frame; remove it")
    if None in stamps or len(set(stamps)) < len(stamps):
        raise SourceError(f"{path} has frames without times of their own; write it again as .mkv")
    return _Packets(np.array(sorted(stamps), dtype=np.int64), carried, len(times))


def _timing(stamps: Int64Array, stream: Any) -> _Timing:
    """Frame numbers from time stamps: of one rate where there is one that explains them all."""
    since = stamps - stamps[0]
    differences = np.diff(stamps)
    usual = most_frequent(differences)
    base = Fraction(stream.time_base)
    if len(differences) == 0:
        return _Timing(since, 1, usual, 1 / Fraction(stream.average_rate or 1))
    if not (differences % usual).any():
        return _Timing(since // usual, 1, usual, usual * base)
    # Many containers round stamps to milliseconds, in which few rates have whole durations.
    for rate in (*filter(None, (stream.base_rate, stream.average_rate)), *_USUAL_RATES):
        ticks = 1 / (Fraction(rate) * base)
        numbers = np.rint(since / float(ticks)).astype(np.int64)
        error = abs(since - numbers * float(ticks)).max()
        steps = np.diff(numbers)
        rounded = ticks >= _LEAST_TICKS and error <= _ROUNDING_TICKS
        if rounded and (steps > 0).all() and most_frequent(steps) == 1:
            return _Timing(numbers, 1, usual, ticks * base)
    return _Timing(since, usual, usual, usual * base)


def _target(context: Any, path: str) -> _Target:
    """What frames of a stream are converted to."""
    components = context.format.components
    deep = any(part.bits > 8 for part in components)
    alpha = any(part.is_alpha for part in components) and len(components) > 1
    if alpha:
        pix_fmt, channels = ("rgba64le" if deep else "rgba"), 4
    elif len(components) == 1 and not context.format.has_palette:
        pix_fmt, channels = ("gray16le" if deep else "gray"), 1
    else:
        pix_fmt, channels = ("rgb48le" if deep else "rgb24"), 3
    dtype = "uint16" if deep else "uint8"
    return _Target(path, pix_fmt, FrameFormat(context.height, context.width, channels, dtype))


def _rotation(path: str, options: ReadOptions) -> tuple[str, ...]:
    """A note on how the first frame asks to be turned for display, if it can be decoded."""
    with _opened(path, options) as (container, stream):
        first = next(_decoded(container, stream), None)
        rotation = getattr(first, "rotation", 0)
    return (f"rotation {rotation}",) if rotation else ()


def _lost(path: str, index: int) -> SourceError:
    return SourceError(
        f"{path} (frame {index}) cannot be decoded; repair the file, or leave damaged frames out "
        "by --on-error gap"
    )
