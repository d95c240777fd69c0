"""Settings of the whole process, made only where framewin owns it or the user asks for them."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Parameter numbers of mallopt in glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8

_LARGEST_POOLED_BYTES = 2**30
_KEPT_BYTES = 2**31 - 1


def keep_freed_memory() -> bool:
    """Have malloc keep freed memory for the next batch instead of returning it to the system.

    TensorFlow takes fresh memory for every batch. By default glibc gives large blocks back when
    they are freed, and the next batch pays for new pages, one fault per 4 KiB; with batches of
    tens of megabytes that takes as long as copying the pixels. Call this before TensorFlow is
    imported. The process then keeps its peak memory until it ends, and all threads allocate
    from one pool.

    On Python 3.11 TensorFlow sets the threshold back, to 128 KiB, in every process in which a
    dataset is made by `from_generator`, as Keras does for a PyDataset; batches of 0.8 MB then
    took four times as long. Call this again once such a dataset has been made.

    Returns:
        Whether it was done; False where the C library is not glibc.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = (
        (_M_ARENA_MAX, 1),
        (_M_MMAP_THRESHOLD, _LARGEST_POOLED_BYTES),
        (_M_TRIM_THRESHOLD, _KEPT_BYTES),
    )
    done = [mallopt(name, value) == 1 for name, value in settings]
    return all(done)


@contextmanager
def silenced() -> Iterator[None]:
    """Drop what is written to file descriptor 2, also by processes that are started meanwhile.

    TensorFlow writes there when it is imported, before its log level can be set.
    """
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
