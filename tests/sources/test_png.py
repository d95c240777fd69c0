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

import imagecodecs
import numpy as np
import pytest
from hypothesis import given, settings
from PIL import Image

from framewin.errors import SourceError
from framewin.schema import FrameFormat
from framewin.sources.info import ReadOptions
from framewin.sources.png import decode, header, inspect
from framewin.sources.png_pixels import read_parts
from tests.conftest import ROOT
from tests.helpers.pngs import (
    DEPTHS,
    PALETTE,
    SAMPLES,
    TEXT,
    any_png,
    chunk,
    files,
    independent,
    png_bytes,
)


def decoded(data: bytes, path: str = "frame.png") -> np.ndarray:
    form = inspect(data, path).frame_format
    out = np.full(form.shape, 7, form.dtype)
    decode(data, out, path)
    return out


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
        (png_bytes(1, 8, 2, [b"\x01\x02\xff"]), "uint8", [[1, 2, 255]]),
        (png_bytes(1, 16, 2, [RGB16]), "uint16", [[4660, 43981, 255]]),
        (png_bytes(2, 16, 4, [GRAY16]), "uint16", [[1, 255], [256, 65535]]),
        (png_bytes(1, 16, 6, [GRAY16]), "uint16", [[1, 255, 256, 65535]]),
        (
            png_bytes(2, 8, 2, [b"\1\2\3\1\2\4"], chunk(b"tRNS", struct.pack(">3H", 1, 2, 4))),
            "uint8",
            [[1, 2, 3, 255], [1, 2, 4, 0]],
        ),
        (
            png_bytes(1, 16, 2, [RGB16], chunk(b"tRNS", RGB16)),
            "uint16",
            [[4660, 43981, 255, 0]],
        ),
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


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(("colour", "depth"), [*DEPTHS, (3, 1), (3, 2), (3, 4), (3, 8)])
def test_every_colour_type_and_depth(colour: int, depth: int, interlaced: bool) -> None:
    """Sizes about those of the passes of Adam7, with a transparent colour and gamma or not."""
    rng = np.random.default_rng(colour * 16 + depth)
    top, planes = 2**depth - 1, SAMPLES.get(colour, 1)
    palette = rng.integers(0, 256, (2**depth, 3))
    gamma = chunk(b"gAMA", struct.pack(">I", 45455))
    for height, width, clear in itertools.product((1, 2, 5, 9), (1, 3, 4, 8, 17), (False, True)):
        if clear and colour in (4, 6):
            continue
        samples = rng.integers(0, top + 1, (height, width, planes))
        shown = samples if depth >= 8 else samples * 255 // top
        opaque = np.full((height, width, 1), max(255, top))
        before = [gamma] * clear
        if colour == 3:
            before.append(chunk(b"PLTE", palette.astype("u1").tobytes()))
            shown = palette[samples[..., 0]]
            before += [chunk(b"tRNS", b"\x07")] * clear
            opaque[samples == 0] = 7
        elif clear:
            key = samples[-1, -1]
            before.append(chunk(b"tRNS", key.astype(">u2").tobytes()))
            opaque[(samples == key).all(axis=-1)] = 0
        expected = np.concatenate([shown, opaque], axis=-1) if clear else shown
        frame = decoded(any_png(samples, depth, colour, interlaced, *before))
        assert frame.dtype == ("uint16" if depth == 16 else "uint8")
        assert np.array_equal(frame, expected), (height, width, clear)


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
    script = ROOT / "scripts" / "fuzz_sources.py"
    folders = [real_data / name for name in ("pngsuite/png", "pillow_png_odd", "pillow_apng")]
    command = [sys.executable, script, "--seed", "1", "--count", "2000", "--kind", ".png", *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"2000 mutated, \d+ decoded, \d+ refused\n", done.stdout)


def test_mutated_files_of_every_kind() -> None:
    """Each of 1500 decodes or is refused with SourceError, within seconds."""
    command = [
        sys.executable,
        ROOT / "scripts" / "fuzz_sources.py",
        "--seed",
        "2",
        "--count",
        "1500",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"1500 mutated, \d+ decoded, \d+ refused\n", done.stdout)


@settings(max_examples=600, deadline=None)
@given(files())
def test_what_is_checked_first_changes_nothing(data: bytes) -> None:
    """A file decodes as by libpng alone, or is refused by both.

    Arrays of the shape that libpng gives survive its errors.
    """
    try:
        found = decoded(data)
    except SourceError:
        found = None
    try:
        read_parts(data, "frame.png")
        form = inspect(data, "frame.png").frame_format
        out = np.empty(form.shape if form.channels > 1 else form.shape[:2], form.dtype)
        expected = imagecodecs.png_decode(data, out=out).reshape(form.shape)
    except (SourceError, ValueError, RuntimeError):
        expected = None
    assert (found is None) == (expected is None)
    assert found is None or np.array_equal(found, expected)


def test_damage_never_ends_the_process() -> None:
    """Regression: errors inside libpng freed the memory of frames with one channel."""
    code = "from tests.helpers.pngs import decode_damaged_files as run; print(*run())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    intact, refused = map(int, done.stdout.split())
    assert intact + refused == 1200
    assert refused > 800


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (b"\0ab\x09cd", "x.png cannot be decoded (bad adaptive filter value 9); repair or remove"),
        (
            b"\0ab\0c",
            "x.png cannot be decoded (5 bytes of pixels, expected 6); repair or remove it",
        ),
    ],
)
def test_wrong_pixels_behind_right_checksums(pixels: bytes, message: str) -> None:
    """What the compressed stream holds must be rows, each behind a filter that there is."""
    data = png_bytes(2, 8, 0, [b"ab", b"cd"])
    right = chunk(b"IDAT", zlib.compress(b"\0ab\0cd"))
    assert right in data
    with pytest.raises(SourceError, match=re.escape(message)):
        decoded(data.replace(right, chunk(b"IDAT", zlib.compress(pixels))), "x.png")


def test_apples_variant_is_named() -> None:
    """Pixels of CgBI files are swapped and premultiplied; they are never taken for others."""
    data = png_bytes(2, 8, 6, [bytes(8)] * 2)
    data = data[:8] + chunk(b"CgBI", b"\x50\0\x20\x06") + data[8:]
    message = "x.png is in Apple's variant of PNG (it begins with a CgBI chunk)"
    with pytest.raises(SourceError, match=re.escape(message)):
        inspect(data, "x.png")


def test_headers_are_not_mixed_up() -> None:
    """Regression risk: `inspect` remembers the last file, also if that one's text has "IDAT"."""
    options = ReadOptions()
    pixels = [bytes(12)] * 4
    files = [
        (png_bytes(4, 8, 2, pixels, TEXT), 3),
        (png_bytes(4, 8, 2, pixels, TEXT, chunk(b"tRNS", bytes(6))), 4),
        (png_bytes(4, 8, 2, pixels), 3),
        (png_bytes(12, 8, 0, pixels), 1),
    ]
    for (data, channels), _ in itertools.product(files, range(2)):
        assert inspect(data, "x.png", options).frame_format.channels == channels


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


def compressed_text(name: bytes, size: int) -> bytes:
    """A chunk whose text inflates to `size` bytes."""
    text = zlib.compress(bytes(size))
    before = b"k\0\1\0en\0k\0" if name == b"iTXt" else b"k\0\0"
    return chunk(name, before + text)


@pytest.mark.parametrize("name", [b"zTXt", b"iTXt", b"iCCP"])
def test_text_bombs(name: bytes) -> None:
    """A text that inflates to far more than it is is refused, others are no matter."""
    large = png_bytes(2, 8, 0, [b"\x05\x06"], compressed_text(name, 2**21))
    message = rf"x\.png has a {name.decode()} chunk of \d+ bytes that inflates to more than 1048576"
    with pytest.raises(SourceError, match=message):
        decoded(large, "x.png")
    for harmless in (compressed_text(name, 2**19), chunk(name, b"k\0\0garbage")):
        data = png_bytes(2, 8, 0, [b"\x05\x06"], harmless)
        assert decoded(data)[0].tolist() == [[5], [6]]


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_palette_indices(depth: int) -> None:
    """With `--palette index` the index is the value, at every depth, transparent or not."""
    rows = [bytes([0b00011011])] * 2
    width = 8 // depth
    data = png_bytes(width, depth, 3, rows, PALETTE, chunk(b"tRNS", b"\0\1"))
    if depth > 2:
        data = png_bytes(width, depth, 3, rows, chunk(b"PLTE", bytes(range(96))))
    options = ReadOptions(palette="index")
    form = inspect(data, "x.png", options).frame_format
    assert form == FrameFormat(2, width, 1, "uint8")
    out = np.full(form.shape, 7, form.dtype)
    decode(data, out, "x.png", options)
    mask = 2**depth - 1
    expected = [0b00011011 >> shift & mask for shift in range(8 - depth, -1, -depth)]
    assert out[..., 0].tolist() == [expected] * 2


@pytest.mark.parametrize(
    ("palette", "message"),
    [
        (PALETTE, "x.png has the palette index 9 in a palette of 4 colours; repair or remove it"),
        (b"", "x.png has a palette of 0 bytes; expected 3 for each of at most 256 colours"),
        (chunk(b"PLTE", b"\1\2\3\4"), "x.png has a palette of 4 bytes; expected 3 for each"),
        (PALETTE[:-1] + b"x", "x.png cannot be decoded (PLTE: CRC error)"),
    ],
)
def test_palettes_that_are_too_short(palette: bytes, message: str) -> None:
    """A colour that is not there is never black."""
    with pytest.raises(SourceError, match=re.escape(message)):
        decoded(png_bytes(2, 8, 3, [b"\x01\x09"], palette), "x.png")


def test_equal_pictures_of_permuted_palettes() -> None:
    """Colours count, not their places."""
    turned = chunk(b"PLTE", bytes([10, 20, 30, 0, 0, 255, 0, 255, 0, 255, 0, 0]))
    first = png_bytes(4, 2, 3, [b"\x1b"], PALETTE)
    second = png_bytes(4, 2, 3, [b"\xe4"], turned)
    assert np.array_equal(decoded(first), decoded(second))


def test_what_is_noted() -> None:
    """Gamma, profiles and orientation are reported, and the mode is that of the file."""
    turned = b"MM\0*\0\0\0\x08\0\1\x01\x12\0\3\0\0\0\1\0\x06\0\0\0\0\0\0"
    profile = chunk(b"iCCP", b"p\0\0" + zlib.compress(b"profile"))
    gamma = chunk(b"gAMA", struct.pack(">I", 100000))
    data = png_bytes(2, 8, 0, [b"\x40\x80"], gamma, profile, chunk(b"eXIf", turned))
    info = inspect(data, "x.png")
    assert info.notes == ("gamma", "ICC profile", "EXIF orientation 6")
    assert info.mode == "gray, 8 bits"
    assert decoded(data)[0].tolist() == [[64], [128]]


def test_orientation_in_a_text(real_data: Path) -> None:
    """ImageMagick writes EXIF data as text."""
    path = real_data / "pillow_png_odd" / "exif_imagemagick_orientation.png"
    assert "EXIF orientation 3" in inspect(path.read_bytes(), str(path)).notes


def test_odd_files(real_data: Path) -> None:
    """Six are refused by name, the others are what Pillow reads, but for 16 bits."""
    refused = []
    for path in sorted((real_data / "pillow_png_odd").iterdir()):
        try:
            frame = decoded(path.read_bytes(), str(path))
        except SourceError:
            refused.append(path.name)
            continue
        # Pillow refuses that one for its profile.
        if frame.dtype == np.uint8 and path.name != "unknown_compression_method.png":
            with Image.open(path) as image:
                expected = np.asarray(image.convert("RGBA"))
            channels = {1: [0], 2: [0, 3], 3: [0, 1, 2], 4: [0, 1, 2, 3]}[frame.shape[-1]]
            assert np.array_equal(frame, expected[..., channels]), path.name
    assert refused == [
        "broken.png",
        "broken_data_stream.png",
        "png_decompression_dos.png",
        "pngtest_bad.png.bin",
        "truncated_end_chunk.png",
        "truncated_image.png",
    ]


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


def test_the_usual_limit_of_pixels() -> None:
    """2^28 pixels may be claimed, a row more may not."""
    for rows, refused in ((2**14, False), (2**14 + 1, True)):
        size = struct.pack(">IIBBBBB", 2**14, rows, 8, 0, 0, 0, 0)
        data = png_bytes(1, 8, 0, [b"x"]).replace(
            struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0), size
        )
        checksum = struct.pack(">I", zlib.crc32(b"IHDR" + size))
        data = data[:29] + checksum + data[33:]
        if refused:
            with pytest.raises(SourceError, match="claims 16385x16384 pixels, more than the "):
                inspect(data, "frame.png")
        else:
            assert inspect(data, "frame.png").frame_format.shape == (2**14, 2**14, 1)
