"""PNG files made and read without framewin."""

from __future__ import annotations

import io
import itertools
import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import png
from hypothesis import strategies as st

from framewin.errors import SourceError
from framewin.sources.png import decode, inspect
from framewin.sources.png_pixels import SIGNATURE


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_bytes(width: int, depth: int, colour: int, rows: list[bytes], *before: bytes) -> bytes:
    """A PNG by hand, from packed rows; `before` are chunks to put before the pixels."""
    header = struct.pack(">IIBBBBB", width, len(rows), depth, colour, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    chunks = [chunk(b"IHDR", header), *before, chunk(b"IDAT", pixels), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


PALETTE = chunk(b"PLTE", bytes([255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30]))


SAMPLES = {0: 1, 2: 3, 4: 2, 6: 4}


DEPTHS = [(0, 1), (0, 2), (0, 4), *itertools.product(SAMPLES, (8, 16))]


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """PNG files by hand, with any filters and any cut into chunks, whole or damaged."""
    colour, depth = draw(st.sampled_from(DEPTHS))
    width, height = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    row_bytes = (width * depth * SAMPLES[colour] + 7) // 8
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = rng.integers(0, draw(st.integers(2, 256)), (height, 1 + row_bytes), dtype=np.uint8)
    rows[:, 0] = rng.integers(0, draw(st.sampled_from([5, 5, 5, 6])), height)
    lacking = draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
    pixels = (rows.tobytes() + b"\0")[: rows.size - lacking]
    stream = zlib.compress(pixels, draw(st.integers(0, 9)))
    stream += draw(st.sampled_from([b"", b"", b"behind"]))
    cuts = sorted({0, len(stream), *draw(st.lists(st.integers(0, len(stream)), max_size=3))})
    chunks = [chunk(b"IDAT", stream[a:b]) for a, b in itertools.pairwise(cuts)]
    chunks.insert(draw(st.integers(0, len(chunks))), draw(st.sampled_from([b"", TEXT])))
    chunks.append(draw(st.sampled_from([b"", TEXT, chunk(b"PLTE", bytes(3))])))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = [chunk(b"IHDR", header), *chunks, chunk(b"IEND", b"")]
    data = bytearray(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    if draw(st.booleans()):
        data[draw(st.integers(33, len(data) - 1))] ^= draw(st.integers(1, 255))
    return bytes(data)


TEXT = chunk(b"tEXt", b"Comment\0of IDAT")


ADAM7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2),
         (1, 0, 2, 1)]  # fmt: skip
"""First row and column of each pass, and its steps."""


def filtered(samples: np.ndarray, depth: int) -> bytes:
    """Packed rows (H, W, samples) behind the five filters of PNG in turn."""
    bits = samples[..., None] >> np.arange(depth)[::-1] & 1
    packed = np.packbits(bits.astype(np.uint8).reshape(len(samples), -1), axis=1).astype(int)
    step = max(1, samples.shape[2] * depth // 8)
    above, rows = np.zeros(packed.shape[1], int), []
    for number, row in enumerate(packed):
        left, corner = (np.r_[np.zeros(step, int), line][: len(line)] for line in (row, above))
        guess = left + above - corner
        a, b, c = abs(guess - left), abs(guess - above), abs(guess - corner)
        paeth = np.where((a <= b) & (a <= c), left, np.where(b <= c, above, corner))
        kind = (number + 4) % 5
        predicted = (0, left, above, (left + above) // 2, paeth)[kind]
        rows.append(bytes([kind]) + ((row - predicted) % 256).astype(np.uint8).tobytes())
        above = row
    return b"".join(rows)


def any_png(
    samples: np.ndarray, depth: int, colour: int, interlaced: bool, *before: bytes
) -> bytes:
    """A PNG by hand of samples (H, W, samples of a pixel)."""
    height, width = samples.shape[:2]
    passes = [samples[y::rows, x::columns] for y, x, rows, columns in ADAM7]
    parts = [part for part in (passes if interlaced else [samples]) if part.size]
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    pixels = zlib.compress(b"".join(filtered(part, depth) for part in parts))
    chunks = [chunk(b"IHDR", header), *before, chunk(b"IDAT", pixels), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def damaged_files(count: int) -> Iterator[bytes]:
    """Files of every mode, interlaced or not, with right checksums and wrong bytes at any depth."""
    rng = random.Random(3)
    modes = [*DEPTHS, (3, 1), (3, 2), (3, 4), (3, 8)]
    for (colour, depth), interlaced in itertools.product(modes, (False, True)):
        planes = SAMPLES.get(colour, 1)
        palette = [(i, i, i) for i in range(2**depth)] if colour == 3 else None
        writer = png.Writer(
            37, 41, greyscale=colour in (0, 4), alpha=colour > 3, bitdepth=depth, palette=palette,
            interlace=interlaced,
        )  # fmt: skip
        file = io.BytesIO()
        writer.write_array(file, [rng.randrange(2**depth) for _ in range(37 * 41 * planes)])
        intact = list(png.Reader(bytes=file.getvalue()).chunks())
        for number in range(count):
            chunks = [(name, bytearray(content)) for name, content in intact]
            pixels = bytearray(zlib.decompress(dict(chunks)[b"IDAT"]))
            # The filter of the first row, the pixels, or their compressed form.
            pixels[0 if number % 3 else rng.randrange(len(pixels))] = rng.randrange(256)
            stream = bytearray(zlib.compress(pixels[: len(pixels) - (number % 5 == 0)]))
            if number % 4 == 0:
                stream[rng.randrange(len(stream))] ^= 1 << rng.randrange(8)
            made = [chunk(n, bytes(stream if n == b"IDAT" else c)) for n, c in chunks]
            yield SIGNATURE + b"".join(made)


def decode_damaged_files() -> tuple[int, int]:
    """Decode each into a view, as a conversion does, and count those that decode and those not."""
    refused = 0
    files = list(damaged_files(40))
    for data in files:
        form = inspect(data, "x.png").frame_format
        block = np.full((3, *form.shape), 7, form.dtype)
        try:
            decode(data, block[1], "x.png")
        except SourceError:
            refused += 1
        assert (block[::2] == 7).all()
    return len(files) - refused, refused


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
