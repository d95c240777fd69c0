"""Image files of others that are made to harm: one line or their frames, within bounds."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest

from framewin import SourceError, convert
from framewin.sources import clip_decoder
from framewin.sources.info import ReadOptions
from tests.helpers.pngs import chunk, png_bytes


def directory(*tags: tuple[int, int, int, int], following: int = 0) -> bytes:
    """A TIFF of 4 x 6 pixels with a directory at 32, with more tags."""
    usual = [(256, 6), (257, 4), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, 4)]
    entries = sorted([*((tag, 4, 1, value) for tag, value in usual), (279, 4, 1, 24), *tags])
    packed = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    count, end = struct.pack("<H", len(entries)), struct.pack("<I", following)
    return b"II*\0\x20\0\0\0" + bytes(range(24)) + count + packed + end


@pytest.mark.parametrize("tag", [330, 34665, 34853, 40965])
@pytest.mark.parametrize("value", [32, 8, 2**31])
def test_directories_of_tiff_that_lead_to_themselves(tmp_path: Path, tag: int, value: int) -> None:
    """Those below a page (SubIFD, EXIF, GPS, interoperability) are not followed."""
    (tmp_path / "a.tif").write_bytes(directory((tag, 4, 1, value)))
    [frame] = clip_decoder("a.tif").read_clip(str(tmp_path / "a.tif"), ReadOptions())
    assert frame.ravel().tolist() == list(range(24))


def test_pages_of_tiff_in_a_circle(tmp_path: Path) -> None:
    """A next directory that is the first one again."""
    (tmp_path / "a.tif").write_bytes(directory(following=32))
    with pytest.raises(SourceError, match=r"a\.tif has a circle of directories; repair or remove"):
        convert(tmp_path / "a.tif", tmp_path / "clips.zarr")


def test_an_animation_of_many_frames_on_a_large_canvas(tmp_path: Path) -> None:
    """Counting 10,000 GIF frames of a pixel each, on 100 megapixels, paints none of them."""
    one = b"\x2c" + struct.pack("<HHHH", 0, 0, 1, 1) + b"\0\x02\x02\x44\x01\0"
    start = b"GIF89a" + struct.pack("<HH", 10_000, 10_000) + b"\x80\0\0" + bytes(3) + b"\xff" * 3
    (tmp_path / "a.gif").write_bytes(start + one * 10_000 + b"\x3b")
    tracemalloc.start()
    info = clip_decoder("a.gif").inspect_clip(str(tmp_path / "a.gif"), ReadOptions())
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()
    assert (info.frames, info.frame_format.height) == (10_000, 10_000)


@pytest.mark.parametrize("claimed", [2, 2**31 - 1])
def test_an_animation_that_promises_frames(tmp_path: Path, claimed: int) -> None:
    """The frames of an animated PNG are counted, not believed."""
    data = png_bytes(2, 8, 0, [b"ab"], chunk(b"acTL", struct.pack(">II", claimed, 0)))
    (tmp_path / "a.png").write_bytes(data)
    with pytest.raises(SourceError, match=f"it holds 0 frames and promises {claimed}; repair"):
        convert(tmp_path / "a.png", tmp_path / "clips.zarr")
