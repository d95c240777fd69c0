"""A way alone in a process of its own: time to the first batch, and memory."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from framewin.bench.scene import Scene
from framewin.bench.ways import Way, close
from framewin.errors import StoreError, one_line
from framewin.process import keep_freed_memory, silenced

BATCHES = 20
"""Until peak memory is read, or `SECONDS` have passed."""
SECONDS = 2.0
PATIENCE_SECONDS = 600.0
STATUS = Path("/proc/self/status")


def measure(way: Way, recipe: dict[str, Any]) -> dict[str, float]:
    """Start a process for a way and wait for what it finds.

    Args:
        way: What makes the batches.
        recipe: Keyword arguments of `Scene.open`.

    Returns:
        first_batch_seconds: From opening the store, with libraries imported, to the first batch.
        peak_rss_bytes: Of the process, libraries and pages of mapped files included.

    Raises:
        StoreError: The process failed.
    """
    context = multiprocessing.get_context("spawn")
    result, end = context.Pipe(duplex=False)
    process = context.Process(target=_alone, args=(way, recipe, end))
    # Silenced are the process, and what tells of semaphores that it leaves to be cleaned up.
    with spawned_workers(), silenced():
        process.start()
    end.close()
    try:
        if not result.poll(PATIENCE_SECONDS):
            raise StoreError(f"{way.name} made no batch within {PATIENCE_SECONDS:.0f} s")
        found: dict[str, float] | str = result.recv()
    except EOFError:
        process.join()
        found = f"ended with code {process.exitcode}"
    finally:
        process.kill()
        process.join()
    if isinstance(found, str):
        raise StoreError(f"{way.name} failed in a process of its own: {found}")
    return found


@contextmanager
def spawned_workers() -> Iterator[None]:
    """Have Keras start its worker processes afresh: a fork of TensorFlow's threads may hang."""
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("spawn", force=True)
    try:
        yield
    finally:
        multiprocessing.set_start_method(before, force=True)


def peak_rss_bytes() -> int:
    """The most memory that this process has held."""
    if STATUS.exists():
        line = next(row for row in STATUS.read_text().splitlines() if row.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _alone(way: Way, recipe: dict[str, Any], result: Connection) -> None:
    keep_freed_memory()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        result.send(_first_batches(way, recipe))
    except Exception as exc:
        result.send(one_line(exc, kind=True))
    # Threads that still make batches would be waited for.
    os._exit(0)


def _first_batches(way: Way, recipe: dict[str, Any]) -> dict[str, float]:
    for module in (*way.modules, way.module):
        import_module(module)
    started = time.perf_counter()
    scene = Scene.open(**recipe)
    batches = way.make(scene)
    next(batches)
    first = time.perf_counter() - started
    for _ in range(BATCHES):
        next(batches)
        if time.perf_counter() - started > first + SECONDS:
            break
    found = {"first_batch_seconds": first, "peak_rss_bytes": float(peak_rss_bytes())}
    close(batches)
    return found
