"""Video files, decoded by FFmpeg through PyAV; needs the extra `video`.

The numbers of frames are their presentation time stamps over the usual frame duration, so that
a dropped frame is a gap. Where the frame rate varies they are the time stamps themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from framewin.errors import SourceError
from framewin.optional import require
from framewin.schema import FrameFormat, Int64Array
from framewin.sources import kind_suffix
from framewin.sources.damage import as_damage, cut_short
from framewin.sources.info import FileInfo, ReadOptions, check_pixels, kind_of, refuse_pointer
from framewin.sources.timing import VARIABLE, Timing, timing_of
from framewin.sources.video_checks import has_right_checksums, promised_bytes, promised_seconds

_KINDS = {
    **dict.fromkeys((".mp4", ".m4v", ".3gp"), ("MP4", "QuickTime")),
    ".mov": ("QuickTime", "MP4"),
    ".avi": ("AVI",),
    **dict.fromkeys((".mkv", ".webm"), ("Matroska",)),
    **dict.fromkeys((".mpg", ".mpeg"), ("MPEG",)),
    **dict.fromkeys((".ts", ".mts", ".m2ts"), ("MPEG transport stream",)),
    ".wmv": ("ASF",),
    ".flv": ("FLV",),
    ".ogv": ("Ogg",),
}
_ALL_KINDS = [kind for kinds in _KINDS.values() for kind in kinds]
_ALPHA_DECODERS = {"vp8": "libvpx", "vp9": "libvpx-vp9"}
_HDR_TRANSFERS = {16: "HDR (PQ)", 18: "HDR (HLG)"}
_PIX_FMTS = {1: ("gray", "gray16le"), 3: ("rgb24", "rgb48le"), 4: ("rgba", "rgba64le")}
"""Channels -> FFmpeg's name of pixels of 8 and of 16 bits."""
_PROGRESSIVE = 1
_ROUNDING_SECONDS = 0.002
# Decoders mend damage in silence unless they are told to stop at it.
_STRICT = {"err_detect": "crccheck+bitstream+buffer+explode"}


class _Packets(NamedTuple):
    """The packets of a stream."""

    stamps: Int64Array
    """When frames are shown, in ticks, increasing."""
    carried: bool
    """Whether decoded frames carry these stamps.

    AVI has only those of decoding. In order they are the same times, but where frames are not
    shown in the order of decoding a frame's own is a guess: such frames are counted.
    """
    total: int
    """Of all packets, also of those that show nothing."""
    damaged: frozenset[int]
    """Which packets have a wrong checksum that the decoder would pass over in silence."""
    end: int
    """When the last frame that is shown is over, in ticks; its start where that is not said."""


class _Target(NamedTuple):
    """What frames are converted to, and the file they are from."""

    path: str
    pix_fmt: str
    frame_format: FrameFormat

    def pixels(self, frame: Any, index: int) -> np.ndarray | SourceError:
        """A decoded frame as (H, W, C); an error where the stream changes."""
        form = self.frame_format
        kind = _pixels_of(frame.format)
        if (frame.height, frame.width) != (form.height, form.width):
            found = f"is {frame.height}x{frame.width}, the first is {form.height}x{form.width}"
        elif kind != (self.pix_fmt, form.channels, form.dtype):
            found = (
                f"has {frame.format.name} pixels, which become {kind[1]} channels of {kind[2]}, "
                f"its header promises {form.channels} of {form.dtype}"
            )
        else:
            pixels: np.ndarray = frame.to_ndarray(format=self.pix_fmt)
            return pixels.astype(form.dtype, copy=False).reshape(form.shape)
        return SourceError(
            f"{self.path} (frame {index}) {found}; split the file where its frames change"
        )

    def lost(self, index: int) -> SourceError:
        return SourceError(
            f"{self.path} (frame {index}) cannot be decoded; repair the file, or leave damaged "
            "frames out by on_error='gap'"
        )


def inspect_clip(path: str, options: ReadOptions) -> FileInfo:
    """Size, and the time stamp of every frame; packets are read, one frame is decoded."""
    with _opened(path, options) as (container, stream):
        context = stream.codec_context
        check_pixels(context.height, context.width, path, options)
        packets = _packets(container, stream, path)
        timing = _timing(packets.stamps, stream)
        # The kind is that of the suffix, unless that says nothing.
        kind = "AVI" if container.format.name == "avi" else "video"
        return FileInfo(
            _target(stream, path).frame_format,
            _KINDS[kind_suffix(path)][0] if options.kind is None else kind,
            f"{context.name} {context.pix_fmt}{VARIABLE * (timing.step != 1)}",
            _notes(path, options),
            is_clip=True,
            frames=len(packets.stamps),
            numbers=timing.numbers,
            step=timing.step,
            frame_seconds=str(timing.frame_seconds),
            cut=_cut(container, stream, packets, timing, path),
        )


def read_clip(path: str, options: ReadOptions) -> Iterator[np.ndarray | SourceError]:
    """The frames in order of presentation, (H, W, C); errors where the stream is damaged.

    After damage all frames are errors up to the next one that needs no other.
    """
    with _opened(path, options) as (container, stream):
        packets = _packets(container, stream, path)
    with _opened(path, options) as (container, stream):
        target, expected = _target(stream, path), packets.stamps.tolist()
        frames = _decoded(container, stream, _decoder(stream, path), packets.damaged)
        if not packets.carried:
            frames = _counted(frames, expected)
        yield from _by_stamp(frames, expected, target)


def _counted(frames: Iterator[Any], expected: list[int]) -> Iterator[Any]:
    """Frames without time stamps: once one is damaged, the numbers of the others are in doubt."""
    for stamp, frame in zip(expected, frames, strict=False):
        if frame is None or frame.is_corrupt:
            return
        frame.pts = stamp
        yield frame


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
            yield target.lost(done)
            done += 1
        if done < len(expected) and expected[done] == frame.pts:
            lost = doubtful or frame.is_corrupt
            yield target.lost(done) if lost else target.pixels(frame, done)
            done += 1
    yield from map(target.lost, range(done, len(expected)))


def _decoded(
    container: Any, stream: Any, context: Any, damaged: frozenset[int] = frozenset()
) -> Iterator[Any]:
    """Each frame in order; None where a packet is damaged or the decoder stopped at damage."""
    import av

    for index, packet in enumerate(container.demux(stream)):
        frames = [None]
        if not packet.is_corrupt and index not in damaged:
            try:
                frames = context.decode(packet)
            except av.error.FFmpegError as exc:
                if isinstance(exc, MemoryError):
                    raise
        yield from frames


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
    # PyAV raises FFmpeg's errors, and others where a damaged header leaves something out.
    guard = as_damage(f"{path} is not a video that FFmpeg can read", cut_short)
    with guard, av.open(path, metadata_errors="ignore") as container:
        yield container, _chosen(container, path, options)


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
    total = 0
    shown: list[tuple[int | None, int | None, int]] = []
    checks: dict[int, bool] = {}
    for index, packet in enumerate(container.demux(stream)):
        if not packet.size and packet.dts is None:  # the last one only flushes the decoder
            continue
        total += 1
        if packet.size and not packet.is_discard:
            shown.append((packet.pts, packet.dts, packet.duration or 0))
            if stream.codec_context.name == "ffv1":
                checks[index] = has_right_checksums(bytes(packet))
    reordered = "avi" in container.format.name and stream.codec_context.has_b_frames
    carried = not reordered and all(pts is not None for pts, _, _ in shown)
    stamps = [pts if carried else dts for pts, dts, _ in shown]
    if not stamps:
        raise SourceError(f"{path} holds no frame; remove it")
    times = np.array([stamp for stamp in stamps if stamp is not None], dtype=np.int64)
    if len(set(times.tolist())) < len(stamps):
        raise SourceError(f"{path} has frames without times of their own; write it again as .mkv")
    end = int((times + [duration for _, _, duration in shown]).max())
    # Checksums are an option of the encoder: where none is right there are none.
    checked = any(checks.values())
    wrong = frozenset(index for index, right in checks.items() if checked and not right)
    return _Packets(np.sort(times), carried, total, wrong, end)


def _cut(container: Any, stream: Any, packets: _Packets, timing: Timing, path: str) -> str | None:
    """What shows that the end of a file is missing: its count of frames, its duration, or sizes."""
    last = int(packets.stamps[-1])
    # AVI counts the frames that were dropped, too.
    held = last + timing.usual if "avi" in container.format.name else packets.total
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
    channels = 1 if len(components) == 1 and not form.has_palette else 3
    if len(components) > 1 and any(part.is_alpha for part in components):
        channels = 4
    return _PIX_FMTS[channels][deep], channels, "uint16" if deep else "uint8"


def _target(stream: Any, path: str) -> _Target:
    """What frames of a stream are converted to."""
    import av

    context = stream.codec_context
    form = context.format
    if _alpha_decoder(stream):
        form = av.VideoFormat("yuva420p", context.width, context.height)
    pix_fmt, channels, dtype = _pixels_of(form)
    return _Target(path, pix_fmt, FrameFormat(context.height, context.width, channels, dtype))


def _has_alpha(stream: Any) -> bool:
    """Whether a stream of WebM has an alpha channel beside its pixels."""
    tags = {key.lower(): value for key, value in stream.metadata.items()}
    return bool(tags.get("alpha_mode", "0") != "0")


def _alpha_decoder(stream: Any) -> str | None:
    """The decoder that reads the alpha channel of WebM, which FFmpeg's own leave out."""
    context = stream.codec_context
    beside = _has_alpha(stream) and context.pix_fmt == "yuv420p"
    return _ALPHA_DECODERS.get(context.name) if beside else None


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
        context, aspect = stream.codec_context, stream.sample_aspect_ratio
        stereo = stream.metadata.get("stereo_mode", "mono")
        first = next(_decoded(container, stream, context), None)
        rotation = getattr(first, "rotation", 0)
        interlaced = getattr(first, "interlaced_frame", False)
        transfer = _HDR_TRANSFERS.get(getattr(first, "color_trc", 0))
        notes = {
            f"rotation {rotation}": rotation,
            f"pixel aspect {aspect and f'{aspect.numerator}:{aspect.denominator}'}": (
                aspect and aspect != 1
            ),
            "interlaced fields": interlaced or context.field_order > _PROGRESSIVE,
            f"{transfer} transfer": transfer,
            f"stereo mode {stereo}": stereo != "mono",
            "alpha channel": _has_alpha(stream) and not _alpha_decoder(stream),
        }
    return tuple(note for note, present in notes.items() if present)
