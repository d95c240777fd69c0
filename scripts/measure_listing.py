"""List many names; prints the time, the memory for each and how many files were opened.

python scripts/measure_listing.py --count 1000000
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import framewin.sources.listing as listing
from framewin.bench.fresh import peak_rss_bytes


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
    before, opened = peak_rss_bytes(), []
    sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" else None)
    started = time.perf_counter()
    [clip] = listing.list_frames(folder).clips
    seconds, files = time.perf_counter() - started, len(opened)
    assert len(clip.file_names) == count
    each = (peak_rss_bytes() - before) / count
    print(f"{count} names, {seconds:.2f} s, {each:.0f} bytes a name, {files} files opened")


if __name__ == "__main__":
    main()
