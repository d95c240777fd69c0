"""Video files, decoded by FFmpeg through PyAV; needs the extra `video`.

The numbers of frames are their presentation time stamps over the usual frame duration, so that
a dropped frame is a gap. Where the frame rate varies they are the time stamps themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from framewin.errors import SourceError
from framewin.optional import require
from framewin.schema import FrameFormat, Int64Array
from framewin.sources import kind_suffix
from framewin.sources.info import FileInfo, ReadOptions, check_pixels, kind_of, refuse_pointer
from framewin.sources.timing import VARIABLE, Timing, timing_of
from framewin.sources.video_checks import has_right_checksums, promised_bytes, promised_seconds

_KINDS = {
    ".mp4": ("MP4", "QuickTime"),
    ".mov": ("QuickTime", "MP4"),
    ".avi": ("AVI",),
    ".mkv": ("Matroska",),
    ".webm": ("Matroska",),
    ".m4v": ("MP4", "QuickTime"),
    ".3gp": ("MP4", "QuickTime"),
    ".mpg": ("MPEG",),
    ".mpeg": ("MPEG",),
    ".ts": ("MPEG transport stream",),
    ".mts": ("MPEG transport stream",),
    ".m2ts": ("MPEG transport stream",),
    ".wmv": ("ASF",),
    ".flv": ("FLV",),
    ".ogv": ("Ogg",),
}
_ALL_KINDS = [kind for kinds in _KINDS.values() for kind in kinds]
_ALPHA_DECODERS = {"vp8": "libvpx", "vp9": "libvpx-vp9"}
_HDR_TRANSFERS = {16: "HDR (PQ)", 18: "HDR (HLG)"}
_PROGRESSIVE = 1
_ROUNDING_SECONDS = 0.002
# Decoders mend damage in silence unless they are told to stop at it.
_STRICT = {"err_detect": "crccheck+bitstream+buffer+explode"}


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
    damaged: frozenset[int]
    """Which packets have a wrong checksum that the decoder would pass over in silence."""
    end: int
    """When the last frame that is shown is over, in ticks; its start where that is not said."""


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
        kind = _pixels_of(frame.format)
        if kind != (self.pix_fmt, form.channels, form.dtype):
            return SourceError(
                f"{self.path} (frame {index}) has {frame.format.name} pixels, which become "
                f"{kind[1]} channels of {kind[2]}, its header promises {form.channels} of "
                f"{form.dtype}; split the file where its frames change"
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
        timing = _timing(packets.stamps, stream)
        form = _target(stream, path).frame_format
        mode, kind = f"{context.name} {context.pix_fmt}", _label(container, path, options)
        cut = _cut(container, stream, packets, timing, path)
    return FileInfo(
        form,
        kind,
        mode if timing.step == 1 else f"{mode}{VARIABLE}",
        _notes(path, options),
        is_clip=True,
        frames=len(packets.stamps),
        numbers=timing.numbers,
        step=timing.step,
        frame_seconds=str(timing.frame_seconds),
        cut=cut,
    )


def read_clip(path: str, options: ReadOptions) -> Iterator[np.ndarray | SourceError]:
    """The frames in order of presentation, (H, W, C); errors where the stream is damaged.

    Behind damage all frames are errors up to the next one that needs no other.
    """
    with _opened(path, options) as (container, stream):
        packets = _packets(container, stream, path)
    with _opened(path, options) as (container, stream):
        target = _target(stream, path)
        read = _by_stamp if packets.carried else _by_count
        frames = _decoded(container, stream, _decoder(stream, path), packets.damaged)
        yield from read(frames, packets.stamps.tolist(), target)


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


def _decoded(
    container: Any, stream: Any, context: Any, damaged: frozenset[int] = frozenset()
) -> Iterator[Any]:
    """Each frame in order; None where a packet is damaged or the decoder stopped at damage."""
    import av

    for index, packet in enumerate(container.demux(stream)):
        if packet.is_corrupt or index in damaged:
            yield None
            continue
        try:
            frames = context.decode(packet)
        except av.error.FFmpegError as exc:
            if isinstance(exc, MemoryError):
                raise
            yield None
            continue
        yield from frames


def _label(container: Any, path: str, options: ReadOptions) -> str:
    """The kind of a file, by its suffix unless that says nothing."""
    if options.kind is None:
        return _KINDS[kind_suffix(path)][0]
    return "AVI" if container.format.name == "avi" else "video"


@contextmanager
def _opened(path: str, options: ReadOptions) -> Iterator[tuple[Any, Any]]:
    """The container and the one stream that is wanted; what FFmpeg raises becomes SourceError."""
    av = require("av", extra="video")
    with open(path, "rb") as file:
        start = file.read(16)
    refuse_pointer(start, path)
    kind = kind_of(start)
    expected = _KINDS[kind_suffix(path, options.kind)] if options.kind is None else _ALL_KINDS
    if not start or (kind is not None and kind[0] not in expected):
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
        raise SourceError(f"{path} holds no video stream; remove it or leave it out by exclude=")
    if options.stream is None and len(streams) > 1:
        raise SourceError(f"{path} holds several streams ({shown}); choose one by stream=")
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
    times = []
    checks: dict[int, bool] = {}
    for index, packet in enumerate(container.demux(stream)):
        if not packet.size and packet.dts is None:  # the last one only flushes the decoder
            continue
        is_shown = packet.size > 0 and not packet.is_discard
        times.append((packet.pts, packet.dts, packet.duration or 0, is_shown))
        if is_shown and stream.codec_context.name == "ffv1":
            checks[index] = has_right_checksums(bytes(packet))
    reordered = "avi" in container.format.name and stream.codec_context.has_b_frames
    shown = [(pts, dts, duration) for pts, dts, duration, is_shown in times if is_shown]
    carried = not reordered and all(pts is not None for pts, _, _ in shown)
    stamps = [pts if carried else dts for pts, dts, _ in shown]
    if not stamps:
        raise SourceError(f"{path} holds no frame; remove it")
    if None in stamps or len(set(stamps)) < len(stamps):
        raise SourceError(f"{path} has frames without times of their own; write it again as .mkv")
    ends = [stamp + shown[i][2] for i, stamp in enumerate(stamps)]
    # Checksums are an option of the encoder: where none is right there are none.
    checked = any(checks.values())
    damaged = [index for index, right in checks.items() if checked and not right]
    return _Packets(
        np.array(sorted(stamps), dtype=np.int64), carried, len(times), frozenset(damaged), max(ends)
    )


def _cut(container: Any, stream: Any, packets: _Packets, timing: Timing, path: str) -> str | None:
    """What shows that the end of a file is missing: its count of frames, its duration, or sizes."""
    last = int(packets.stamps[-1])
    # AVI counts the frames that were dropped, too.
    held = last + timing.usual if "avi" in container.format.name else packets.count
    if stream.frames > held:
        return f"holds {held} of {stream.frames} frames"
    promised = promised_seconds(container, stream)
    end = max(packets.end, last + timing.usual)
    missing = promised - float(end * stream.time_base)
    if missing > float(timing.usual * stream.time_base) * 0.5 + _ROUNDING_SECONDS:
        since = promised - float(int(packets.stamps[0]) * stream.time_base)
        of = round(since / float(timing.frame_seconds))
        return f"holds {len(packets.stamps)} of about {of} frames ({promised:g} s by its header)"
    size, whole = Path(path).stat().st_size, promised_bytes(path)
    return f"holds {size:,} of {whole:,} bytes" if whole > size else None


def _timing(stamps: Int64Array, stream: Any) -> Timing:
    rates = [Fraction(rate) for rate in (stream.base_rate, stream.average_rate) if rate]
    timing = timing_of(stamps, Fraction(stream.time_base), rates)
    if len(stamps) > 1:
        return timing
    return replace(timing, frame_seconds=1 / Fraction(stream.average_rate or 1))


def _pixels_of(form: Any) -> tuple[str, int, str]:
    """FFmpeg's name of the pixels that frames of a format are converted to, channels and dtype."""
    components = form.components
    deep = any(part.bits > 8 for part in components)
    alpha = any(part.is_alpha for part in components) and len(components) > 1
    if alpha:
        pix_fmt, channels = ("rgba64le" if deep else "rgba"), 4
    elif len(components) == 1 and not form.has_palette:
        pix_fmt, channels = ("gray16le" if deep else "gray"), 1
    else:
        pix_fmt, channels = ("rgb48le" if deep else "rgb24"), 3
    return pix_fmt, channels, "uint16" if deep else "uint8"


def _target(stream: Any, path: str) -> _Target:
    """What frames of a stream are converted to."""
    import av

    context = stream.codec_context
    form = context.format
    if _alpha_decoder(stream):
        form = av.VideoFormat("yuva420p", context.width, context.height)
    pix_fmt, channels, dtype = _pixels_of(form)
    return _Target(path, pix_fmt, FrameFormat(context.height, context.width, channels, dtype))


def _alpha_decoder(stream: Any) -> str | None:
    """The decoder that reads the alpha channel of WebM, which FFmpeg's own leave out."""
    context = stream.codec_context
    return _ALPHA_DECODERS.get(context.name) if _has_alpha(stream, "yuv420p") else None


def _has_alpha(stream: Any, pix_fmt: str | None = None) -> bool:
    """Whether a stream of WebM has an alpha channel beside its pixels, of that format if given."""
    tags = {key.lower(): value for key, value in stream.metadata.items()}
    found = tags.get("alpha_mode", "0") != "0"
    return found and pix_fmt in (None, stream.codec_context.pix_fmt)


def _decoder(stream: Any, path: str) -> Any:
    """What decodes a stream, and stops at damage."""
    import av

    name = _alpha_decoder(stream)
    context = stream.codec_context
    if name is not None:
        try:
            context = av.CodecContext.create(name, "r")
        except ValueError as exc:
            raise SourceError(
                f"{path} has an alpha channel, which needs an FFmpeg with {name}; install another, "
                "or convert it first"
            ) from exc
        context.extradata = stream.codec_context.extradata
    # With a thread per frame FFmpeg forgets some errors, and which depends on the cores.
    context.thread_type = "SLICE"
    context.options = _STRICT
    return context


def _notes(path: str, options: ReadOptions) -> tuple[str, ...]:
    """What a stream, and its first frame if it can be decoded, say of display that is not done."""
    with _opened(path, options) as (container, stream):
        aspect, stereo = stream.sample_aspect_ratio, stream.metadata.get("stereo_mode", "mono")
        hidden = _has_alpha(stream) and not _alpha_decoder(stream)
        field_order = stream.codec_context.field_order
        first = next(_decoded(container, stream, stream.codec_context), None)
        rotation = getattr(first, "rotation", 0)
        interlaced = getattr(first, "interlaced_frame", False) or field_order > _PROGRESSIVE
        transfer = _HDR_TRANSFERS.get(getattr(first, "color_trc", 0))
    notes = {
        f"rotation {rotation}": rotation,
        f"pixel aspect {aspect and f'{aspect.numerator}:{aspect.denominator}'}": aspect
        and aspect != 1,
        "interlaced fields": interlaced,
        f"{transfer} transfer": transfer,
        f"stereo mode {stereo}": stereo != "mono",
        "alpha channel": hidden,
    }
    return tuple(note for note, present in notes.items() if present)


def _lost(path: str, index: int) -> SourceError:
    return SourceError(
        f"{path} (frame {index}) cannot be decoded; repair the file, or leave damaged frames out "
        "by on_error='gap'"
    )
