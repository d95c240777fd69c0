"""PNG decoding: every colour type and depth, exact, and damage refused."""

from __future__ import annotations

import io
import itertools
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import png
import pytest

from framewin.errors import SourceError
from framewin.schema import FrameFormat
from framewin.sources.png import decode, header, inspect


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_bytes(width: int, depth: int, colour: int, rows: list[bytes], *before: bytes) -> bytes:
    """A PNG by hand, from packed rows; `before` are chunks to put before the pixels."""
    header = struct.pack(">IIBBBBB", width, len(rows), depth, colour, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    chunks = [chunk(b"IHDR", header), *before, chunk(b"IDAT", pixels), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def decoded(data: bytes, path: str = "frame.png") -> np.ndarray:
    form = inspect(data, path).frame_format
    out = np.full(form.shape, 7, form.dtype)
    decode(data, out, path)
    return out


PALETTE = chunk(b"PLTE", bytes([255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30]))
GRAY16 = struct.pack(">4H", 1, 255, 256, 65535)
RGB16 = struct.pack(">3H", 0x1234, 0xABCD, 0x00FF)


@pytest.mark.parametrize(
    ("data", "dtype", "pixels"),
    [
        (png_bytes(4, 1, 0, [b"\xa0"]), "uint8", [[255], [0], [255], [0]]),
        (png_bytes(4, 2, 0, [b"\x1b"]), "uint8", [[0], [85], [170], [255]]),
        (png_bytes(2, 4, 0, [b"\x1f"]), "uint8", [[17], [255]]),
        (png_bytes(2, 8, 0, [b"\x40\x80"]), "uint8", [[64], [128]]),
        (png_bytes(4, 16, 0, [GRAY16]), "uint16", [[1], [255], [256], [65535]]),
        (png_bytes(1, 16, 2, [RGB16]), "uint16", [[4660, 43981, 255]]),
        (
            png_bytes(4, 2, 3, [b"\x1b"], PALETTE),
            "uint8",
            [[255, 0, 0], [0, 255, 0], [0, 0, 255], [10, 20, 30]],
        ),
        (
            png_bytes(2, 8, 3, [b"\x00\x01"], PALETTE, chunk(b"tRNS", b"\x00\x80")),
            "uint8",
            [[255, 0, 0, 0], [0, 255, 0, 128]],
        ),
        (png_bytes(2, 8, 4, [b"\x64\x00\xc8\x80"]), "uint8", [[100, 0], [200, 128]]),
        (
            png_bytes(2, 8, 0, [b"\x05\x06"], chunk(b"tRNS", b"\x00\x05")),
            "uint8",
            [[5, 0], [6, 255]],
        ),
        (png_bytes(1, 8, 6, [b"\xff\x00\x00\x00"]), "uint8", [[255, 0, 0, 0]]),
        (
            png_bytes(2, 8, 0, [b"\x40\x80"], chunk(b"gAMA", struct.pack(">I", 100000))),
            "uint8",
            [[64], [128]],
        ),
    ],
)
def test_pixels_are_exact(data: bytes, dtype: str, pixels: list[list[int]]) -> None:
    """One rule per colour type and depth; gamma is not applied."""
    frame = decoded(data)
    assert frame.dtype == dtype
    assert frame[0].tolist() == pixels


def test_a_colour_far_back_in_the_palette() -> None:
    """A palette that looks gray at first stays a colour palette."""
    entries = [bytes([i, i, i]) for i in range(200)] + [bytes([0, 255, 0])]
    data = png_bytes(1, 8, 3, [bytes([200])], chunk(b"PLTE", b"".join(entries)))
    assert decoded(data)[0].tolist() == [[0, 255, 0]]


def noise() -> bytes:
    rng = np.random.default_rng(0)
    rows = [row.tobytes() for row in rng.integers(0, 256, (64, 192), dtype=np.uint8)]
    return png_bytes(64, 8, 2, rows)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "x.png is empty; expected a PNG file"),
        (lambda data: b"GIF89a....", "x.png is a GIF file, not a PNG file; rename it to .gif"),
        (lambda data: data[:20], "x.png ends inside its PNG header; copy it again or remove it"),
        (
            lambda data: data[: len(data) // 2],
            "x.png is cut short: its 6210 bytes end in or behind a 'IDAT' chunk; copy it again",
        ),
        (lambda data: data[:5000] + bytes([data[5000] ^ 1]) + data[5001:], "cannot be decoded ("),
        (lambda data: data[:16] + b"\0\0\0\0" + data[20:], "header that the standard does not"),
        (lambda data: data[:24] + b"\x03" + data[25:], "(64x64, colour type 2, 3 bits)"),
    ],
)
def test_damage_is_refused(damage, message: str) -> None:
    """The file and the reason are in the message."""
    with pytest.raises(SourceError, match=re.escape(message)):
        decoded(damage(noise()), "x.png")


def test_a_missing_end_is_no_damage() -> None:
    """Complete pixels without an IEND chunk, or with data behind it, are taken."""
    expected = decoded(noise())
    assert np.array_equal(decoded(noise()[:-12]), expected)
    assert np.array_equal(decoded(noise() + b"trailing"), expected)


def test_mutated_files_never_crash(real_data: Path) -> None:
    """Regression: imagecodecs corrupts memory when libpng meets the end of the data.

    Each of 2000 mutated files decodes or is refused, and the process lives to say so.
    """
    script = Path(__file__).parent / "fuzz_png.py"
    folders = [real_data / name for name in ("pngsuite/png", "pillow_png_odd", "pillow_apng")]
    command = [sys.executable, script, "--seed", "1", "--count", "2000", *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"2000 mutated, \d+ decoded, \d+ refused\n", done.stdout)


def independent(path: Path) -> np.ndarray:
    """pypng's answer, brought to framewin's rule for shallow gray and for alpha."""
    reader = png.Reader(bytes=path.read_bytes())
    reader.preamble()
    reader.sbit = None  # pypng would drop bits that the file calls insignificant
    width, height, rows, info = reader.asDirect()
    pixels = np.array(list(itertools.chain.from_iterable(rows)), dtype=np.int64)
    depth = info["bitdepth"]
    if depth < 8:
        pixels = pixels * 255 // (2**depth - 1)
    dtype = np.uint16 if depth == 16 else np.uint8
    return pixels.reshape(height, width, info["planes"]).astype(dtype)


def suite(real_data: Path) -> list[Path]:
    return sorted((real_data / "pngsuite" / "png").glob("*.png"))


def test_pngsuite_is_exact(real_data: Path) -> None:
    """Every valid file of PngSuite equals an independent decoder's answer, bit by bit."""
    valid = [path for path in suite(real_data) if not path.name.startswith("x")]
    assert len(valid) == 161
    for path in valid:
        frame, expected = decoded(path.read_bytes(), str(path)), independent(path)
        assert frame.dtype == expected.dtype, path.name
        assert np.array_equal(frame, expected), path.name


def test_pngsuite_damage_is_refused(real_data: Path) -> None:
    """All corrupt files of PngSuite are refused by name."""
    corrupt = [path for path in suite(real_data) if path.name.startswith("x")]
    assert len(corrupt) == 14
    for path in corrupt:
        with pytest.raises(SourceError, match=re.escape(str(path))):
            decoded(path.read_bytes(), str(path))


def test_transparency_is_found_behind_other_chunks() -> None:
    """tRNS counts wherever it stands before the pixels."""
    text = chunk(b"tEXt", b"k\0" + b"v" * 70_000)
    data = png_bytes(2, 8, 0, [b"\x05\x06"], text, chunk(b"tRNS", b"\x00\x05"))
    assert inspect(header(io.BytesIO(data)), "frame.png").frame_format == FrameFormat(
        1, 2, 2, "uint8"
    )


def test_a_header_is_a_small_read() -> None:
    """Of a large file only the first bytes are read to learn its format."""
    file = io.BytesIO(noise())
    assert inspect(header(file), "frame.png").frame_format == FrameFormat(64, 64, 3, "uint8")
    assert file.tell() == 4096 < len(noise())
