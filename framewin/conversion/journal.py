"""Which blocks of a conversion are on disk, so that an interrupted one can go on.

A line for each block, written only after the block's data is on disk:

    {"block": 3, "files": "9f...", "chunks": [[crc32c, bytes], ...]} 1a2b3c4d

The number at its end is the line's own checksum, so a line that was cut is seen. Of two lines for
one block the later one counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import google_crc32c

from framewin.stores import durable
from framewin.stores.chunk_io import StoredChunk
from framewin.stores.durable import DataFile

SYNC_BYTES = 2**24


@dataclass(frozen=True, slots=True)
class JournalledBlock:
    """A block that was on disk."""

    number: int
    files: str
    """Fingerprint of the source files that its frames come from."""
    chunks: list[StoredChunk]
    """Without their data."""


class Journal:
    """Appends blocks in groups: the data is put on disk first, then the lines."""

    def __init__(self, path: Path, sync_data: Callable[[], None]) -> None:
        """Open a journal at the end of its last whole line.

        Args:
            path: The file; made if it is not there.
            sync_data: Waits until all data written so far is on disk.
        """
        self.blocks, self._end = read_journal(path)
        """What was in it."""
        self._file = DataFile(path, self._end)
        durable.sync(path.parent)
        self._sync_data = sync_data
        self._lines: list[bytes] = []
        self._unsynced_bytes = 0
        self._broken = False
        self._syncer = ThreadPoolExecutor(1, thread_name_prefix="framewin-journal")
        self._running: list[Future[None]] = []

    def add(self, block: JournalledBlock, num_bytes: int) -> None:
        """Record a block, of which so many bytes were written; it counts once it is synced."""
        self._lines.append(_line(block))
        self._unsynced_bytes += num_bytes
        if self._unsynced_bytes >= SYNC_BYTES:
            self._submit()

    def flush(self) -> None:
        """Wait until everything recorded is on disk; raises OSError if any of it failed."""
        self._submit()
        while self._running:
            self._running.pop(0).result()

    @property
    def synced(self) -> bool:
        """Whether any block is on disk."""
        return self._end > 0

    def close(self) -> None:
        """Release the file; also after a failure."""
        self._syncer.shutdown(cancel_futures=True)
        self._file.close()

    def _submit(self) -> None:
        while self._running and self._running[0].done():
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


def read_journal(path: Path) -> tuple[dict[int, JournalledBlock], int]:
    """The blocks of a journal by number, and the length of its whole lines in bytes."""
    blocks: dict[int, JournalledBlock] = {}
    end = 0
    data = path.read_bytes() if path.exists() else b""
    for line in data.splitlines(keepends=True):
        block = _parsed(line)
        if block is None:
            break
        blocks[block.number] = block
        end += len(line)
    return blocks, end


def _line(block: JournalledBlock) -> bytes:
    chunks = [[chunk.number, chunk.crc32c, chunk.nbytes] for chunk in block.chunks]
    text = json.dumps({"block": block.number, "files": block.files, "chunks": chunks}).encode()
    return b"%s %08x\n" % (text, google_crc32c.value(text))


def _parsed(line: bytes) -> JournalledBlock | None:
    text, _, checksum = line.rpartition(b" ")
    if checksum != b"%08x\n" % google_crc32c.value(text):
        return None
    record = json.loads(text)
    chunks = [StoredChunk(number, crc32c, nbytes) for number, crc32c, nbytes in record["chunks"]]
    return JournalledBlock(record["block"], record["files"], chunks)
