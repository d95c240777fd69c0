"""List many names; prints the time, the memory for each and how many files were opened.

python scripts/measure_listing.py --count 1000000
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import framewin.sources.listing as listing

KILOBYTE = 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where to make the files; default: temporary")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for number in range(arguments.count):
            Path(folder, f"frame_{number:07d}.png").touch()
        measure(Path(folder), arguments.count)


def measure(folder: Path, count: int) -> None:
    opened: list[object] = []
    sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" else None)
    before, started = peak(), time.perf_counter()
    [clip] = listing.list_frames(folder).clips
    seconds = time.perf_counter() - started
    assert len(clip.file_names) == count
    each = (peak() - before) / count
    print(f"{count} names, {seconds:.2f} s, {each:.0f} bytes a name, {len(opened)} files opened")


def peak() -> int:
    """Most memory that the process ever held, in bytes."""
    unit = 1 if sys.platform == "darwin" else KILOBYTE
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    main()
