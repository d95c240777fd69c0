"""Animated PNG: every frame as it is shown, and damage in any of them refused."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest

from framewin import SourceError, convert
from framewin.sources.info import ReadOptions
from framewin.sources.png import inspect_clip, read_clip
from framewin.stores import open_store
from tests.conftest import import_or_skip
from tests.helpers.pngs import PALETTE, chunk, png_bytes

OPTIONS = ReadOptions()
BROKEN = 18
UNKNOWN_TO_FFMPEG = {"mode_16bit.png": [0, 0, 32768, 65535], "fctl_actl.png": [0, 255, 0, 255]}
"""Intact files that FFmpeg refuses -> the colour of their last frame."""


def frames_of(path: Path) -> np.ndarray:
    info = inspect_clip(str(path), OPTIONS)
    frames = list(read_clip(str(path), OPTIONS))
    assert len(frames) == info.frames
    return np.stack(frames)


def animation(frames: list[dict[str, object]], depth: int, colour: int, *before: bytes) -> bytes:
    """An animation by hand: of each frame rows, place, dispose and blend."""
    first = frames[0]
    sequence = 0
    control: list[bytes] = []
    data: list[bytes] = []
    for index, frame in enumerate(frames):
        still = png_bytes(frame["width"], depth, colour, frame["rows"])
        [pixels] = re.findall(rb"IDAT(.*)....\0\0\0\0IEND", still, re.DOTALL)
        top, left = frame.get("at", (0, 0))
        place = struct.pack(">IIIII", sequence, frame["width"], len(frame["rows"]), left, top)
        how = struct.pack(">HHBB", 1, 10, frame.get("dispose", 0), frame.get("blend", 0))
        sequence += 1
        target = control if index == 0 else data
        target.append(chunk(b"fcTL", place + how))
        if index:
            data.append(chunk(b"fdAT", struct.pack(">I", sequence) + pixels))
            sequence += 1
    count = chunk(b"acTL", struct.pack(">II", len(frames), 0))
    still = png_bytes(first["width"], depth, colour, first["rows"], *before, count, *control)
    return still[:-12] + b"".join(data) + still[-12:]


def test_real_animations(real_data: Path) -> None:
    """Every frame of every intact file is what FFmpeg shows, bit by bit; the others are refused."""
    av = import_or_skip("av")
    refused = []
    for path in sorted((real_data / "pillow_apng").iterdir()):
        try:
            frames = frames_of(path)
        except SourceError:
            refused.append(path.name)
            continue
        if path.name in UNKNOWN_TO_FFMPEG:
            colours = np.unique(frames[-1].reshape(-1, 4), axis=0).tolist()
            assert colours == [UNKNOWN_TO_FFMPEG[path.name]]
            continue
        with av.open(str(path)) as container:
            shown = [frame.to_ndarray(format="rgba") for frame in container.decode(video=0)]
        channels = {1: [0], 2: [0, 3], 3: [0, 1, 2], 4: [0, 1, 2, 3]}[frames.shape[-1]]
        assert np.array_equal(frames, np.stack(shown)[..., channels]), path.name
    assert len(refused) == BROKEN
    assert {"sequence_gap.png", "chunk_no_fdat.png", "syntax_num_frames_high.png"} <= set(refused)


def test_a_gray_animation_of_16_bits(tmp_path: Path) -> None:
    """Regions are laid over what was there, and 16 bits stay 16 bits."""
    rows = [struct.pack(">3H", 1, 256, 65535)] * 2
    patch = {"rows": [struct.pack(">H", 4660)], "width": 1, "at": (1, 2)}
    path = tmp_path / "a.apng"
    path.write_bytes(animation([{"rows": rows, "width": 3}, patch], 16, 0))
    frames = frames_of(path)
    assert frames[..., 0].tolist() == [
        [[1, 256, 65535], [1, 256, 65535]],
        [[1, 256, 65535], [1, 256, 4660]],
    ]


def test_disposal_and_blending(tmp_path: Path) -> None:
    """Back to what was before, cleared to transparency, and mixed by alpha."""
    base = {"rows": [b"\x64\xff\x64\xff"], "width": 2}
    half = {"rows": [b"\xc8\x80"], "width": 1, "blend": 1, "dispose": 2}
    clear = {"rows": [b"\x07\xff"], "width": 1, "at": (0, 1), "dispose": 1}
    last = {"rows": [b"\x00\x00"], "width": 1, "blend": 1}
    path = tmp_path / "a.apng"
    path.write_bytes(animation([base, half, clear, last], 8, 4))
    frames = frames_of(path)
    assert frames[:, 0].tolist() == [
        [[100, 255], [100, 255]],
        [[150, 255], [100, 255]],
        [[100, 255], [7, 255]],
        [[100, 255], [0, 0]],
    ]


def test_clearing_needs_an_alpha_channel(tmp_path: Path) -> None:
    """A palette without transparency gets one where a region is cleared."""
    first = {"rows": [b"\x00\x01"], "width": 2, "dispose": 1}
    path = tmp_path / "a.apng"
    second = {"rows": [b"\x02"], "width": 1}
    path.write_bytes(animation([first, second], 8, 3, PALETTE))
    assert frames_of(path)[1, 0].tolist() == [[0, 0, 255, 255], [0, 0, 0, 0]]
    with pytest.raises(SourceError, match="palette='index' only takes single frames"):
        inspect_clip(str(path), ReadOptions(palette="index"))


def test_damage_in_a_later_frame(tmp_path: Path) -> None:
    """It is refused by default; with gaps all frames before it are kept."""
    frame = {"rows": [bytes(8)] * 8, "width": 8}
    data = bytearray(animation([frame] * 5, 8, 0))
    third = [match.start() for match in re.finditer(b"fdAT", data)][2]
    length = int.from_bytes(data[third - 4 : third], "big")
    data[third + 10] ^= 1
    checksum = chunk(b"fdAT", bytes(data[third + 4 : third + 4 + length]))[-4:]
    data[third + 4 + length : third + 8 + length] = checksum
    (tmp_path / "a.apng").write_bytes(data)
    with pytest.raises(SourceError, match=r"a\.apng \(frame 3\) cannot be decoded"):
        convert(tmp_path / "a.apng", tmp_path / "clips.zarr")
    report = convert(tmp_path / "a.apng", tmp_path / "clips.zarr", on_error="gap")
    assert (report.frames, [d.number for d in report.damaged]) == (3, [3, 4])


def test_animations_among_frames(tmp_path: Path) -> None:
    """A folder of animations is a clip each; one among single frames is named."""
    frame = {"rows": [b"\x01\x02"], "width": 2}
    (tmp_path / "in").mkdir()
    for name in ("walk", "run"):
        (tmp_path / "in" / f"{name}.png").write_bytes(animation([frame] * 3, 8, 0))
    report = convert(tmp_path / "in", tmp_path / "clips.zarr")
    assert (report.clips, report.frames) == (2, 6)
    assert open_store(tmp_path / "clips.zarr").meta.clips.names == ("run", "walk")
    (tmp_path / "mixed").mkdir()
    for number in range(3):
        (tmp_path / "mixed" / f"{number}.png").write_bytes(png_bytes(2, 8, 0, [b"\x01\x02"]))
    (tmp_path / "mixed" / "3.png").write_bytes(animation([frame] * 3, 8, 0))
    with pytest.raises(SourceError, match=r"3\.png is an animation in a place for single frames"):
        convert(tmp_path / "mixed", tmp_path / "mixed.zarr", on_error="gap")
