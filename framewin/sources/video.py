"""Video files, decoded by FFmpeg through PyAV; needs the extra `video`.

The numbers of frames are their presentation time stamps over the usual frame duration, so that
a dropped frame is a gap. Where the frame rate varies they are the time stamps themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import numpy as np

from framewin.errors import SourceError
from framewin.optional import require
from framewin.schema import FrameFormat, Int64Array, most_frequent
from framewin.sources.info import FileInfo, ReadOptions, check_pixels, kind_of

_KNOWN_KINDS = ("MP4", "QuickTime", "AVI", "Matroska")
# Decoders mend damage in silence unless they are told to stop at it.
_STRICT = {"err_detect": "crccheck+bitstream+buffer+explode"}


def inspect_clip(path: str, options: ReadOptions) -> FileInfo:
    """Size, and the time stamp of every frame; packets are read, one frame is decoded.

    Raises:
        SourceError: Not a video, several streams and none chosen, or no usable time stamps.
        MissingDependencyError: PyAV is not installed.
    """
    with _opened(path, options) as (container, stream):
        context = stream.codec_context
        check_pixels(context.height, context.width, path, options)
        stamps, _ = _stamps(container, stream, path)
        promised, rate = stream.frames, stream.average_rate
        base = stream.time_base
        _, channels, dtype = _target(context)
        form = FrameFormat(context.height, context.width, channels, dtype)
        mode, kind = f"{context.name} {context.pix_fmt}", container.format.name.split(",")[0]
    notes = _rotation(path, options)
    differences = np.diff(stamps)
    usual = most_frequent(differences) if len(differences) else 1
    regular = not (differences % usual).any()
    seconds = usual * base if len(differences) else 1 / Fraction(rate or 1)
    # AVI counts the frames that were dropped, too.
    held = int(stamps[-1]) + usual if kind == "avi" else len(stamps)
    return FileInfo(
        form,
        kind,
        mode if regular else f"{mode}, variable frame rate",
        notes,
        is_clip=True,
        frames=len(stamps),
        numbers=(stamps - stamps[0]) // (usual if regular else 1),
        step=1 if regular else usual,
        frame_seconds=str(seconds),
        cut=f"holds {held} of {promised} frames" if promised > held else None,
    )


def read_clip(path: str, options: ReadOptions) -> Iterator[np.ndarray | SourceError]:
    """The frames in order of presentation, (H, W, C); errors where the stream is damaged.

    Behind damage all frames are errors up to the next one that needs no other.
    """
    with _opened(path, options) as (container, stream):
        stamps, carried = _stamps(container, stream, path)
    with _opened(path, options) as (container, stream):
        stream.thread_type = "AUTO"
        stream.codec_context.options = _STRICT
        read = _by_stamp if carried else _by_count
        yield from read(container, stream, stamps.tolist(), path)


def _by_stamp(
    container: Any, stream: Any, expected: list[int], path: str
) -> Iterator[np.ndarray | SourceError]:
    done, doubtful = 0, False
    for frame in _decoded(container, stream):
        if frame is None:
            doubtful = True
            continue
        doubtful = doubtful and not frame.key_frame
        while done < len(expected) and expected[done] < frame.pts:
            yield _lost(path, done)
            done += 1
        if done < len(expected) and expected[done] == frame.pts:
            yield _lost(path, done) if doubtful or frame.is_corrupt else _pixels(frame, stream)
            done += 1
    yield from (_lost(path, index) for index in range(done, len(expected)))


def _by_count(
    container: Any, stream: Any, expected: list[int], path: str
) -> Iterator[np.ndarray | SourceError]:
    """Frames without time stamps: once one is damaged, the numbers of the others are in doubt."""
    done = 0
    for frame in _decoded(container, stream):
        if frame is None or frame.is_corrupt or done == len(expected):
            break
        yield _pixels(frame, stream)
        done += 1
    yield from (_lost(path, index) for index in range(done, len(expected)))


def _pixels(frame: Any, stream: Any) -> np.ndarray:
    target, channels, dtype = _target(stream.codec_context)
    pixels: np.ndarray = frame.to_ndarray(format=target).astype(dtype, copy=False)
    return pixels.reshape(*pixels.shape[:2], channels)


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
    kind = kind_of(start)
    if not start or (kind is not None and kind[0] not in _KNOWN_KINDS):
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


def _stamps(container: Any, stream: Any, path: str) -> tuple[Int64Array, bool]:
    """Presentation time stamps in order, and whether frames carry them.

    AVI has only those of decoding. In order they are the same times, but where frames are not
    shown in the order of decoding a frame's own is a guess: such frames are counted.
    """
    times = [(p.pts, p.dts) for p in container.demux(stream) if p.size and not p.is_discard]
    reordered = "avi" in container.format.name and stream.codec_context.has_b_frames
    carried = not reordered and all(pts is not None for pts, _ in times)
    stamps = [pts if carried else dts for pts, dts in times]
    if not stamps:
        raise SourceError(f"{path} holds no frame; remove it")
    if None in stamps or len(set(stamps)) < len(stamps):
        raise SourceError(f"{path} has frames without times of their own; write it again as .mkv")
    return np.array(sorted(stamps), dtype=np.int64), carried


def _target(context: Any) -> tuple[str, int, str]:
    """FFmpeg's pixel format to convert to, with its channels and dtype."""
    components = context.format.components
    deep = any(part.bits > 8 for part in components)
    alpha = any(part.is_alpha for part in components) and len(components) > 1
    if alpha:
        return ("rgba64le", 4, "uint16") if deep else ("rgba", 4, "uint8")
    if len(components) == 1 and not context.format.has_palette:
        return ("gray16le", 1, "uint16") if deep else ("gray", 1, "uint8")
    return ("rgb48le", 3, "uint16") if deep else ("rgb24", 3, "uint8")


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
