"""Which parts of a store are on disk, so that an interrupted conversion can be resumed.

A line for each part, written only after the part's data is on disk:

    {"part": 3, "files": "9f...", "crc32c": [...], "nbytes": [...]} 1a2b3c4d

The number at its end is the line's own checksum, so a line that was cut is seen. Of two lines for
one part the later one counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import google_crc32c

from framewin.stores import durable
from framewin.stores.durable import DataFile
from framewin.stores.writer import Part

SYNC_BYTES = 2**24
MOST_UNSYNCED = 32
GROUPS_AHEAD = 4
"""Groups that wait for the disk; with more, so does who adds."""


class Journal:
    """Appends parts in groups: the data is put on disk first, then the lines."""

    def __init__(self, path: Path, sync_data: Callable[[], None]) -> None:
        """Open a journal at the end of its last whole line.

        Args:
            path: The file; made if it is not there.
            sync_data: Waits until all data written so far is on disk.
        """
        self.parts, self._end = read_journal(path)
        """Number of a part -> the part, and the fingerprint of its source files."""
        self._file = DataFile(path, self._end)
        durable.sync(path.parent)
        self._sync_data = sync_data
        self._lines: list[bytes] = []
        self._unsynced_bytes = 0
        self._broken = False
        self._syncer = ThreadPoolExecutor(1, thread_name_prefix="framewin-journal")
        self._running: list[Future[None]] = []

    def add(self, part: Part, files: str) -> None:
        """Record a part; it counts once it is synced."""
        self._lines.append(_line(part, files))
        self._unsynced_bytes += sum(part.nbytes)
        # Shards stay open until they are synced, and those of blank frames have few bytes.
        if self._unsynced_bytes >= SYNC_BYTES or len(self._lines) >= MOST_UNSYNCED:
            self._submit()

    def flush(self) -> None:
        """Wait until everything recorded is on disk; raises OSError if any of it failed."""
        self._submit()
        while self._running:
            self._running.pop(0).result()

    @property
    def synced(self) -> bool:
        """Whether any part is on disk."""
        return self._end > 0

    def close(self) -> None:
        """Release the file; also after a failure."""
        self._syncer.shutdown(cancel_futures=True)
        self._file.close()

    def _submit(self) -> None:
        while self._running and (self._running[0].done() or len(self._running) >= GROUPS_AHEAD):
            self._running.pop(0).result()
        if self._lines:
            lines, self._lines, self._unsynced_bytes = b"".join(self._lines), [], 0
            self._running.append(self._syncer.submit(self._sync, lines))

    def _sync(self, lines: bytes) -> None:
        # After a failed sync nobody knows what is on disk, and a later one may not fail again.
        if self._broken:
            return
        try:
            self._sync_data()
            self._file.write_at(lines, self._end)
            self._file.sync()
        except BaseException:
            self._broken = True
            raise
        self._end += len(lines)


def read_journal(path: Path) -> tuple[dict[int, tuple[Part, str]], int]:
    """The parts of a journal by number, and the length of its whole lines in bytes."""
    parts: dict[int, tuple[Part, str]] = {}
    end = 0
    data = path.read_bytes() if path.exists() else b""
    for line in data.splitlines(keepends=True):
        found = _parsed(line)
        if found is None:
            break
        parts[found[0].number] = found
        end += len(line)
    return parts, end


def _line(part: Part, files: str) -> bytes:
    record = {
        "part": part.number, "files": files, "crc32c": part.crc32c, "nbytes": part.nbytes
    }  # fmt: skip
    text = json.dumps(record).encode()
    return b"%s %08x\n" % (text, google_crc32c.value(text))


def _parsed(line: bytes) -> tuple[Part, str] | None:
    text, _, checksum = line.rpartition(b" ")
    if checksum != b"%08x\n" % google_crc32c.value(text):
        return None
    record = json.loads(text)
    return Part(record["part"], record["crc32c"], record["nbytes"]), record["files"]
