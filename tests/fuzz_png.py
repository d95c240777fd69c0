"""Decode mutated PNG files; prints what became of them, or dies of the bug it looks for.

python tests/fuzz_png.py --seed 1 --count 20000 FOLDER...
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import struct
import zlib
from pathlib import Path

import numpy as np

from framewin.errors import SourceError
from framewin.sources.png import decode, inspect

LARGEST_FILE_BYTES = 60_000
LARGEST_FRAME_BYTES = 50_000_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20_000)
    arguments = parser.parse_args()
    faulthandler.enable()
    rng = random.Random(arguments.seed)
    paths = [path for folder in arguments.folders for path in sorted(folder.glob("*.png"))]
    originals = [path.read_bytes() for path in paths]
    originals = [data for data in originals if len(data) < LARGEST_FILE_BYTES]
    decoded = sum(survives(mutated(rng.choice(originals), rng)) for _ in range(arguments.count))
    print(f"{arguments.count} mutated, {decoded} decoded, {arguments.count - decoded} refused")


def survives(data: bytes) -> bool:
    """Whether the file decodes; SourceError is the only error it may give."""
    try:
        form = inspect(data, "mutated.png").frame_format
        if form.nbytes > LARGEST_FRAME_BYTES:
            return False
        decode(data, np.empty(form.shape, form.dtype), "mutated.png")
    except SourceError:
        return False
    finally:
        # Damage to the heap shows when memory is used.
        np.unique(np.arange(50))
    return True


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A few wrong bytes, and often a cut, a hole or an insertion; checksums mostly mended."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    place, kind = rng.randrange(len(changed)), rng.random()
    if kind < 0.2:
        del changed[place:]
    elif kind < 0.3:
        del changed[place : place + rng.randint(1, 40)]
    elif kind < 0.4:
        changed[place:place] = rng.randbytes(rng.randint(1, 20))
    return mended(changed) if rng.random() < 0.6 else bytes(changed)


def mended(data: bytearray) -> bytes:
    position = 8
    while position + 8 <= len(data):
        end = position + 8 + int.from_bytes(data[position : position + 4], "big")
        if end + 4 > len(data):
            break
        data[end : end + 4] = struct.pack(">I", zlib.crc32(data[position + 4 : end]))
        position = end + 4
    return bytes(data)


if __name__ == "__main__":
    main()
