"""A conversion in many small blocks, and what must be true of it after any fault.

    python -m tests.faults.job SOURCE DEST COMPRESSION [OPERATION-NUMBER ACTION]

converts in a process of its own; at the given durable operation it is killed, or that operation
fails, once or from then on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import sys
from pathlib import Path

from framewin import StoreError, convert, verify
from framewin.conversion import journal
from framewin.stores import durable, layout, writer

CHUNK_FRAMES = 5
ACTIONS = ("ENOSPC once", "ENOSPC", "EIO once", "EIO")


class Failpoint:
    """Counts durable operations, and acts at one of them."""

    def __init__(self, number: int | None = None, action: str = "") -> None:
        self.count = 0
        self.number = number
        self.action = action

    def __call__(self, operation: str, path: Path) -> None:
        self.count += 1
        at = self.number is not None and self.count >= self.number
        if not at or (self.action.endswith("once") and self.count > (self.number or 0)):
            return
        if self.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        code = getattr(errno, self.action.split()[0])
        raise OSError(code, os.strerror(code), str(path))


def convert_with(
    source: Path, dest: Path, compression: str, failpoint: Failpoint, **options: object
) -> None:
    """Convert under a failpoint."""
    durable.failpoint = failpoint
    try:
        convert(
            source,
            dest,
            compression=compression,
            chunk_frames=CHUNK_FRAMES,
            workers=2,
            **options,
        )
    finally:
        durable.failpoint = None


def bytes_of(store: Path) -> dict[str, bytes]:
    """Every byte of a store."""
    if store.is_file():
        return {"": store.read_bytes()}
    files = (path for path in store.rglob("*") if path.is_file())
    return {str(path.relative_to(store)): path.read_bytes() for path in files}


def remove(path: Path) -> None:
    """A file or folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def recovers(source: Path, dest: Path, compression: str, expected: dict[str, bytes]) -> bool:
    """Whether a rerun ends with the store of an undisturbed run, and nothing beside it."""
    if not dest.exists():
        convert_with(source, dest, compression, Failpoint())
    # A process that was killed behind the rename leaves its folder to the next one.
    with contextlib.suppress(StoreError):
        convert_with(source, dest, compression, Failpoint())
    whole = bytes_of(dest) == expected and verify(dest).damage == []
    return whole and not durable.partial_path(dest).exists()


def kill_at(source: Path, dest: Path, compression: str, number: int) -> None:
    """Convert in this process, which is killed at an operation."""
    writer.BLOCK_BYTES = layout.SHARD_BYTES = journal.SYNC_BYTES = 1
    convert_with(source, dest, compression, Failpoint(number, "kill"))


def main() -> None:
    """See above."""
    writer.BLOCK_BYTES = layout.SHARD_BYTES = journal.SYNC_BYTES = 1
    source, dest, compression, *fault = sys.argv[1:]
    failpoint = Failpoint(int(fault[0]), fault[1]) if fault else Failpoint()
    try:
        convert_with(Path(source), Path(dest), compression, failpoint)
    except StoreError as exc:
        print(exc)
        sys.exit(1)


if __name__ == "__main__":
    main()
