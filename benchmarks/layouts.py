"""Measure framewin against a preloaded tensor and the usual alternatives, as ratios in one run.

    python -m benchmarks.layouts                 # made frames of three sizes, about five minutes
    python -m benchmarks.layouts --rounds 5      # quicker and noisier
    python -m benchmarks.layouts --layouts DIR   # every layout of a store, of your own PNG frames

Every way makes the same shuffled batches of 8 windows of 5 + 5 frames. They take turns, a few
batches each, for many rounds, as in `framewin.bench.measure`; the table shows medians. The second
table compares `framewin convert` with a bare loop of the same PNG decoder on as many threads.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.ways import WAYS
from framewin import FrameWindowDataset, convert, keep_freed_memory, open_frames
from framewin.bench.measure import pull, spread, take_turns, timed
from framewin.bench.scene import Scene
from framewin.stores import durable, layout

# As `framewin train` does, for all ways alike; without it, large batches of every way take up to
# three times as long, and vary as much. Both before TensorFlow is imported.
keep_freed_memory()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import imagecodecs
import numpy as np

BATCH_SIZE = 8
INPUT_FRAMES = PREDICT_FRAMES = 5
SPAN = INPUT_FRAMES + PREDICT_FRAMES
# (height, width, channels) -> frames in the store, batches per turn
SIZES = {(100, 100, 1): (10_000, 300), (272, 640, 3): (300, 20), (720, 1280, 3): (60, 6)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2, help="for convert and the bare decoder")
    parser.add_argument("--layouts", type=Path, nargs="+", help="folders of PNG frames")
    arguments = parser.parse_args()
    if arguments.layouts:
        for frames in arguments.layouts:
            with tempfile.TemporaryDirectory(prefix="framewin-benchmark-") as folder:
                report_layouts(frames, Path(folder), arguments.rounds)
        return
    with tempfile.TemporaryDirectory(prefix="framewin-benchmark-") as folder:
        for size, (num_frames, turn) in SIZES.items():
            frames = make_frames(Path(folder), size, num_frames)
            store = frames.with_suffix(".zarr")
            convert(frames, store)
            report_reading(store, size, turn, arguments.rounds)
            report_converting(frames, size, arguments.threads, arguments.rounds)


def report_reading(store: Path, size: tuple[int, ...], turn: int, rounds: int) -> None:
    names = ["preloaded", "framewin-tf", "numpy-function", "from-generator", "framewin-numpy"]
    with tempfile.TemporaryDirectory() as scratch:
        scene = Scene.open(
            store,
            None,
            Path(scratch),
            batch_size=BATCH_SIZE,
            input_frames=INPUT_FRAMES,
            predict_frames=PREDICT_FRAMES,
        )
        turns = {name: pull(WAYS[name].make(scene), turn) for name in names}
        # Making a way with a generator has set it back.
        keep_freed_memory()
        seconds = take_turns(turns, rounds)
    print(f"\nReading, {'x'.join(map(str, size))} uint8, batch {BATCH_SIZE}, 5 + 5 frames")
    print(f"  {'way':34} {'ms per batch':>12} {'over preloaded':>15} {'quartiles':>15}")
    base = seconds["preloaded"]
    for name, times in seconds.items():
        ratio = spread([t / b for t, b in zip(times, base, strict=True)])
        print(
            f"  {WAYS[name].title:34} {statistics.median(times) / turn * 1e3:12.3f} "
            f"{ratio.median:15.2f} {f'{ratio.low:.2f}-{ratio.high:.2f}':>15}"
        )


def report_layouts(frames: Path, folder: Path, rounds: int) -> None:
    """Size, rate of conversion and rate of reading of every layout, in turns."""
    png_bytes = sum(path.stat().st_size for path in frames.rglob("*.png"))
    layouts = [
        (suffix, compression) for suffix in (".zarr", ".h5") for compression in layout.LEVELS
    ]
    stores = {pair: folder / f"{pair[1]}{pair[0]}" for pair in layouts}
    numbers = itertools.count()

    def converting(suffix: str, compression: str) -> Callable[[], float]:
        def run() -> float:
            store = folder / f"{next(numbers)}{suffix}"
            seconds = timed(lambda: convert(frames, store, compression=compression))
            kept = stores[suffix, compression]
            if kept.exists():
                shutil.rmtree(store) if store.is_dir() else store.unlink()
            else:
                store.rename(kept)
            return seconds

        return run

    converted = take_turns({pair: converting(*pair) for pair in layouts}, max(3, rounds // 3))
    options: dict[str, Any] = {"input_frames": INPUT_FRAMES, "predict_frames": PREDICT_FRAMES}
    raw = FrameWindowDataset(stores[layouts[0]], **options)
    turn = max(6, 20_000_000 // (raw.frame_format.nbytes * SPAN * BATCH_SIZE))
    scene = Scene.open(stores[layouts[0]], None, folder, **options, batch_size=BATCH_SIZE)
    ways: dict[Any, Iterator[Any]] = {"preloaded": WAYS["preloaded"].make(scene)}
    for pair, store in stores.items():
        for cache, cache_bytes in ((None, 0), ("memory", 0)):
            dataset = FrameWindowDataset(
                open_frames(store, cache=cache, cache_bytes=cache_bytes), **options
            )
            batches = dataset.to_tf_dataset(batch_size=BATCH_SIZE, shuffle=True)
            ways[pair, cache] = iter(batches.repeat())
    seconds = take_turns({name: pull(way, turn) for name, way in ways.items()}, rounds)

    def rate_and_ratio(name: Any) -> str:
        ratios = [t / b for t, b in zip(seconds[name], seconds["preloaded"], strict=True)]
        rate = turn / statistics.median(seconds[name])
        return f"{rate:10,.0f} {statistics.median(ratios):8.2f}"

    print(f"\n{frames}: {raw.clips.num_frames} frames {raw.frame_format}, PNG {png_bytes:,} bytes")
    print(f"  {'layout':12} {'bytes/PNG':>10} {'frames/s':>10} {'batches/s':>10} {'ratio':>8} "
          f"{'cached/s':>10} {'ratio':>8}")  # fmt: skip
    print(f"  {'preloaded':12} {'':10} {'':10} {rate_and_ratio('preloaded')}")
    for pair, store in stores.items():
        size = durable.tree_bytes(store) / png_bytes
        rate = raw.clips.num_frames / statistics.median(converted[pair])
        print(f"  {pair[0][1:]:5}{pair[1]:7} {size:10.2f} {rate:10,.0f} "
              f"{rate_and_ratio((pair, None))} {rate_and_ratio((pair, 'memory'))}")  # fmt: skip


def report_converting(frames: Path, size: tuple[int, ...], threads: int, rounds: int) -> None:
    files = [str(path) for path in sorted(frames.glob("*.png"))]
    numbers = itertools.count()

    def run_convert() -> float:
        store = frames.with_name(f"{frames.name}-{next(numbers)}.zarr")
        seconds = timed(lambda: convert(frames, store, workers=threads))
        shutil.rmtree(store)
        return seconds

    def run_bare() -> float:
        shares = [files[i::threads] for i in range(threads)]
        with ThreadPoolExecutor(threads) as pool:
            return timed(lambda: list(pool.map(decode_all, shares)))

    seconds = take_turns({"convert": run_convert, "bare": run_bare}, max(5, rounds // 2))
    ratios = [b / c for b, c in zip(seconds["bare"], seconds["convert"], strict=True)]
    print(f"Converting {len(files)} frames on {threads} threads")
    for name, times in seconds.items():
        print(f"  {name:34} {len(files) / statistics.median(times):12.0f} frames per second")
    print(f"  {'rate of convert over bare decoder':34} {statistics.median(ratios):12.2f}")


def make_frames(folder: Path, size: tuple[int, int, int], count: int) -> Path:
    """PNG frames with structure and some noise, so that they compress like real ones."""
    height, width, channels = size
    rng = np.random.default_rng(0)
    frames = folder / "x".join(map(str, size))
    frames.mkdir()
    coarse = rng.integers(0, 250, (height // 8 + 2, width // 8 + 2, channels))
    scene = coarse.repeat(8, 0).repeat(8, 1)
    for number in range(count):
        shift = number % 8
        view = scene[shift : shift + height, shift : shift + width]
        noisy = (view + rng.integers(0, 6, size)).astype(np.uint8)
        path = frames / f"{number}.png"
        path.write_bytes(imagecodecs.png_encode(noisy.squeeze()))
    return frames


def decode_all(files: list[str]) -> None:
    for path in files:
        with open(path, "rb") as file:
            imagecodecs.png_decode(file.read())


if __name__ == "__main__":
    main()
