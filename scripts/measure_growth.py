"""What opening a store and shuffled batches cost as stores grow: they should cost the same.

python scripts/measure_growth.py --folder /tmp/growth

Makes stores without pixels (a hole in the file, which takes little of the disk) of more and more
windows, and one that is larger than memory, and opens each in a process of its own. Prints seconds
to open it, to the first batch of to_tf_dataset(shuffle=...) with TensorFlow loaded, the median of
later batches, and the resident memory after 100 batches, without the pages of the store that they
touched. A store of 10^8 windows takes some minutes to make, for the names of its frames' files, and
is kept in the folder.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import google_crc32c

from framewin.schema import ClipTable, FrameFormat, StoreMeta
from framewin.stores import durable, format_module
from framewin.stores.layout import Layout

INPUT_FRAMES = PREDICT_FRAMES = 5
SPAN = INPUT_FRAMES + PREDICT_FRAMES
BATCHES = 100
SMALL = FrameFormat(100, 100, 1, "uint8")
LARGE = FrameFormat(720, 1280, 3, "uint8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True, help="where the stores are made")
    parser.add_argument("--windows", type=int, nargs="*", default=[10**4, 10**6, 10**8])
    parser.add_argument("--memory-times", type=float, default=2.5, help="0 makes no such store")
    parser.add_argument("--shuffle", default="True", choices=["True", "blocks"])
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.store is not None:
        measure(arguments.store, arguments.shuffle)
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    stores = [(SMALL, windows + SPAN - 1) for windows in arguments.windows]
    if arguments.memory_times:
        stores.append((LARGE, int(arguments.memory_times * memory_bytes()) // LARGE.nbytes))
    print(
        f"{'windows':>13} {'bytes':>9} {'made':>8} {'open':>9} {'first':>9} {'batch':>9} {'RSS':>9}"
    )
    for frame_format, frames in stores:
        path = arguments.folder / f"{frame_format.height}-{frames}.zarr"
        started = time.perf_counter()
        if not path.exists():
            make_sparse(path, frame_format, frames)
        made = f"{time.perf_counter() - started:6.1f} s"
        size = frames * frame_format.nbytes
        print(f"{frames - SPAN + 1:13,} {size / 1e9:6,.1f} GB {made}", end=" ", flush=True)
        command = [sys.executable, __file__, "--folder", arguments.folder, "--store", path]
        subprocess.run([*command, "--shuffle", arguments.shuffle], check=True)


class OneName(Sequence[str]):
    """The same file name for each frame, in no memory."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: object) -> str:  # type: ignore[override]
        return "frame.png"

    def __iter__(self) -> Iterator[str]:
        return ("frame.png" for _ in range(self.count))


def make_sparse(path: Path, frame_format: FrameFormat, frames: int) -> None:
    """A whole store, of which every pixel is 0 and none is written."""
    meta = StoreMeta(frame_format, ClipTable.from_frame_numbers(["a"], [range(frames)]))
    with durable.building(path) as site:
        site.begin({}, resume=False)
        writer = format_module(path).Writer(site, meta, [("", OneName(frames))], Layout())
        try:
            # All chunks are equal, the last one padded with more of the same.
            writer.chunks["crc32c"][:] = google_crc32c.value(
                bytes(writer.chunk_frames * frame_format.nbytes)
            )
            writer.write_metadata()
            writer.finish()
        finally:
            writer.close()


def measure(path: Path, shuffle: str) -> None:
    """One line about a store that this process has not opened before."""
    import tensorflow as tf

    from framewin import FrameWindowDataset

    list(tf.data.Dataset.range(2))
    # TensorFlow, and what it loads with its first pipeline, counts for no store.
    before = resident_bytes()
    started = time.perf_counter()
    ds = FrameWindowDataset(path, input_frames=INPUT_FRAMES, predict_frames=PREDICT_FRAMES)
    opened = time.perf_counter()
    batches = ds.to_tf_dataset(batch_size=8, shuffle=shuffle == "True" or shuffle)
    batches = iter(batches.repeat())
    next(batches)
    first = time.perf_counter()
    seconds = []
    for _ in range(BATCHES):
        begun = time.perf_counter()
        next(batches)
        seconds.append(time.perf_counter() - begun)
    resident = resident_bytes() - before
    print(
        f"{1e3 * (opened - started):6.0f} ms {1e3 * (first - opened):6.0f} ms "
        f"{1e3 * statistics.median(seconds):6.2f} ms {resident / 1e6:6.0f} MB",
        flush=True,
    )


def resident_bytes() -> int:
    """Memory of this process that is in use, without mapped files."""
    pages, shared = map(int, Path("/proc/self/statm").read_text().split()[1:3])
    return (pages - shared) * os.sysconf("SC_PAGE_SIZE")


def memory_bytes() -> int:
    """Of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
