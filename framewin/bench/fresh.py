"""A way alone in a process of its own: time to the first batch, and memory.

`python -m framewin.bench.fresh NAME RECIPE` prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from framewin.errors import StoreError

BATCHES = 20
"""Until peak memory is read, or `SECONDS` have passed."""
SECONDS = 2.0
PATIENCE_SECONDS = 600.0
STATUS = Path("/proc/self/status")


def measure(name: str, recipe: dict[str, Any]) -> dict[str, float]:
    """Start a process for a way and wait for what it finds.

    Args:
        name: One of `WAYS`.
        recipe: Keyword arguments of `Scene.open`, paths as text.

    Returns:
        first_batch_seconds: From opening the store, with libraries imported, to the first batch.
        peak_rss_bytes: Of the process, libraries and pages of mapped files included.

    Raises:
        StoreError: The process failed.
    """
    # Without the current folder, which may hold modules of a stranger.
    command = [sys.executable, "-P", "-m", "framewin.bench.fresh", name, json.dumps(recipe)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise StoreError(f"{name} made no batch within {PATIENCE_SECONDS:.0f} s") from None
    if done.returncode:
        last = " ".join(done.stderr.strip().splitlines()[-1:])
        last = last or f"ended with code {done.returncode}"
        raise StoreError(f"{name} failed in a process of its own: {last}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def peak_rss_bytes() -> int:
    """The most memory that this process has held."""
    if STATUS.exists():
        line = next(row for row in STATUS.read_text().splitlines() if row.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _main() -> None:
    from framewin.process import keep_freed_memory

    keep_freed_memory()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from framewin.bench.run import spawned_workers
    from framewin.bench.scene import Scene
    from framewin.bench.ways import WAYS, close

    name, recipe = sys.argv[1], json.loads(sys.argv[2])
    way = WAYS[name]
    for module in (*way.modules, f"framewin.bench.{way.maker.split(':')[0]}"):
        import_module(module)
    store, source, scratch = (recipe.pop(key) for key in ("store", "source", "scratch"))
    places = (Path(store), source and Path(source), Path(scratch))
    with spawned_workers():
        started = time.perf_counter()
        scene = Scene.open(*places, **recipe)
        batches = way.make(scene)
        next(batches)
        first = time.perf_counter() - started
        for _ in range(BATCHES):
            next(batches)
            if time.perf_counter() - started > first + SECONDS:
                break
        found = {"first_batch_seconds": first, "peak_rss_bytes": peak_rss_bytes()}
        close(batches)
    print(json.dumps(found), flush=True)
    # Threads that still make batches would be waited for.
    os._exit(0)


if __name__ == "__main__":
    _main()
