#!/usr/bin/env python3
"""Draw the frames of sample_data/: 24 clips of 40 gray 64x64 PNG frames, the same on every run.

Sixteen clips show shapes that bounce off the walls and pass over each other, eight show soft
blobs that drift, grow and fade like rain on a radar screen. Half of the clips have padded names
(frame_007.png), the others do not (7.png), because real folders come both ways.

    python scripts/make_sample_data.py sample_data
"""

from __future__ import annotations

import sys
from pathlib import Path

import imagecodecs
import numpy as np

SIZE = 64
FRAMES = 40
BOUNCING_CLIPS = 16
DRIFTING_CLIPS = 8
SUBPIXELS = 4

_centres = (np.arange(SIZE * SUBPIXELS) + 0.5) / SUBPIXELS
FINE_Y, FINE_X = np.meshgrid(_centres, _centres, indexing="ij")
PIXEL_Y, PIXEL_X = np.meshgrid(np.arange(SIZE) + 0.5, np.arange(SIZE) + 0.5, indexing="ij")


def bouncing_clip(rng: np.random.Generator) -> np.ndarray:
    """Three shapes with straight paths and elastic walls: uint8 (40, 64, 64)."""
    shapes = [
        {
            "kind": ("disc", "square", "diamond")[rng.integers(3)],
            "radius": rng.uniform(6, 11),
            "gray": int(level),
            "start": rng.uniform(12, SIZE - 12, 2),
            "velocity": rng.uniform(0.8, 2.6, 2) * rng.choice([-1, 1], 2),
        }
        for level in rng.permutation([96, 160, 240])
    ]
    frames = np.zeros((FRAMES, SIZE, SIZE), np.uint8)
    for t in range(FRAMES):
        fine = np.zeros_like(FINE_Y)
        for shape in shapes:
            y, x = reflect(shape["start"] + t * shape["velocity"], shape["radius"])
            fine[inside(shape["kind"], FINE_Y - y, FINE_X - x, shape["radius"])] = shape["gray"]
        blocks = fine.reshape(SIZE, SUBPIXELS, SIZE, SUBPIXELS)
        frames[t] = np.rint(blocks.mean(axis=(1, 3)))
    return frames


def reflect(position: np.ndarray, radius: float) -> np.ndarray:
    """Fold a straight path back into the box, so that a shape of this radius stays inside."""
    room = SIZE - 2 * radius
    folded = np.mod(position - radius, 2 * room)
    return radius + np.minimum(folded, 2 * room - folded)


def inside(kind: str, dy: np.ndarray, dx: np.ndarray, radius: float) -> np.ndarray:
    if kind == "disc":
        return dy**2 + dx**2 <= radius**2
    if kind == "square":
        return np.maximum(abs(dy), abs(dx)) <= radius * 0.85
    return abs(dy) + abs(dx) <= radius * 1.2


def drifting_clip(rng: np.random.Generator) -> np.ndarray:
    """Six blobs in one slowly turning wind, each growing and fading: uint8 (40, 64, 64)."""
    blobs = 6
    centres = rng.uniform(-10, SIZE + 10, (blobs, 2))
    widths = rng.uniform(4, 9, blobs)
    phases = rng.uniform(0, 2 * np.pi, blobs)
    heading = rng.uniform(0, 2 * np.pi)
    speed = rng.uniform(1.0, 2.0)
    frames = np.zeros((FRAMES, SIZE, SIZE), np.uint8)
    for t in range(FRAMES):
        rain = np.zeros_like(PIXEL_Y)
        for centre, width, phase in zip(centres, widths, phases, strict=True):
            y, x = np.mod(centre + 12, SIZE + 24) - 12
            height = 150 + 70 * np.sin(phase + t / 9)
            rain += height * np.exp(-((PIXEL_Y - y) ** 2 + (PIXEL_X - x) ** 2) / (2 * width**2))
        # Sixteen gray levels, as rain classes have, keep the files small.
        frames[t] = np.minimum(np.rint(rain / 16), 15) * 16
        angle = heading + 0.4 * np.sin(t / 12)
        centres = centres + speed * np.array([np.sin(angle), np.cos(angle)])
    return frames


def write_clip(folder: Path, frames: np.ndarray, *, padded: bool) -> None:
    folder.mkdir(parents=True)
    for number, frame in enumerate(frames):
        name = f"frame_{number:03d}.png" if padded else f"{number}.png"
        (folder / name).write_bytes(imagecodecs.png_encode(frame, level=9))


def main(destination: Path) -> None:
    for i in range(BOUNCING_CLIPS):
        frames = bouncing_clip(np.random.default_rng([1, i]))
        write_clip(destination / f"bounce_{i:02d}", frames, padded=i % 2 == 0)
    for i in range(DRIFTING_CLIPS):
        frames = drifting_clip(np.random.default_rng([2, i]))
        write_clip(destination / f"drift_{i:02d}", frames, padded=i % 2 == 0)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_sample_data.py DESTINATION")
    main(Path(sys.argv[1]))
