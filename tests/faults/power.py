"""What a disk may hold after the power went: a model of a file system that loses what it may.

The durable operations of a conversion are recorded. At a cut, each file holds what was synced and
any part of what was written since; names that were not synced may be missing, renames undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from framewin.stores import durable

Event = tuple[Any, ...]


@dataclass
class Recorder:
    """The durable operations of one conversion, in order."""

    skipped: str = ""
    """Name of a kind of sync that is left out, to show that it would be missed."""
    events: list[Event] = field(default_factory=list)

    def left_out(self, kind: str) -> bool:
        """Whether this kind of sync is the one that is left out."""
        return kind == self.skipped


SYNCS = ("data", "journal", "plan", "names")
"""Kinds of sync before publication: of frames, journal, plan, and names in folders."""


def kind_of(path: Path) -> str:
    """Which kind of sync a sync of this path is."""
    if path.is_dir():
        return "names"
    if path.name.startswith(durable.PLAN):
        return "plan"
    return "journal" if path.name == durable.JOURNAL else "data"


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Record, and leave a kind of sync out, in all of `framewin.stores.durable`."""
    file, sync = durable.DataFile, durable.sync
    originals: dict[str, Callable[..., Any]] = {
        name: getattr(file, name) for name in ("__init__", "truncate", "write_at", "sync")
    }
    replace = Path.replace
    record = recorder.events.append
    created: set[Path] = set()

    def create(self: Any, path: Path, size: int | None = None) -> None:
        if not path.exists():
            created.add(path)
            record(("create", path))
        originals["__init__"](self, path, size)

    def truncate(self: Any, size: int) -> None:
        record(("truncate", self.path, size))
        originals["truncate"](self, size)

    def write_at(self: Any, data: memoryview | bytes, offset: int) -> None:
        record(("write", self.path, offset, bytes(memoryview(data).cast("B"))))
        originals["write_at"](self, data, offset)

    def sync_file(self: Any) -> None:
        originals["sync"](self)
        if not recorder.left_out(kind_of(self.path)):
            record(("sync", self.path))

    def sync_path(path: Path) -> None:
        sync(path)
        if not recorder.left_out(kind_of(path)):
            record(("sync", path))

    def rename(self: Path, target: Path) -> Path:
        # Zarr renames, too, but what it writes is made anew by each run.
        if self in created:
            created.add(Path(target))
            record(("rename", self, Path(target)))
        return replace(self, target)

    file.__init__, file.truncate = create, truncate  # type: ignore[method-assign]
    file.write_at, file.sync = write_at, sync_file  # type: ignore[method-assign]
    durable.sync, Path.replace = sync_path, rename  # type: ignore[method-assign]
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(file, name, original)
        durable.sync, Path.replace = sync, replace  # type: ignore[method-assign]


class _File:
    """What is on disk of a file, and what may be."""

    def __init__(self) -> None:
        self.synced = bytearray()
        self.pending: list[Event] = []
        self.named = False

    def apply(self, event: Event, content: bytearray) -> None:
        if event[0] == "truncate":
            size = event[2]
            content[size:] = b""
            content.extend(bytes(size - len(content)))
        else:
            _, _, offset, data = event
            content.extend(bytes(max(0, offset + len(data) - len(content))))
            content[offset : offset + len(data)] = data

    def sync(self) -> None:
        for event in self.pending:
            self.apply(event, self.synced)
        self.pending = []

    def after_loss(self, rng: np.random.Generator) -> bytes:
        """What was synced, with some of what was written since, or parts of it."""
        content = bytearray(self.synced)
        mode = rng.integers(3)
        for event in self.pending:
            if mode == 0 or (mode == 1 and rng.random() < 0.5):
                self.apply(event, content)
            elif mode == 2 and event[0] == "write":
                # The file has grown, but its blocks were not written.
                self.apply(("write", event[1], event[2], bytes(len(event[3]))), content)
        return bytes(content)


def state_after(events: list[Event], partial: Path, rng: np.random.Generator) -> dict[str, bytes]:
    """Files below the partial folder after a loss of power behind some events."""
    files: dict[Path, _File] = {}
    for event in events:
        kind, path = event[:2]
        if kind == "create":
            files[path] = _File()
        elif kind in ("truncate", "write"):
            files.setdefault(path, _File()).pending.append(event)
        elif kind == "rename":
            # Done or undone as a whole, if the folder was not synced since.
            moved = files.pop(path)
            if moved.pending or not moved.named:
                moved.named = False
            files[event[2]] = moved
        elif path in files:
            files[path].sync()
        else:
            for found, file in files.items():
                file.named |= found.parent == path
    return {
        str(path.relative_to(partial)): file.after_loss(rng)
        for path, file in files.items()
        if path.is_relative_to(partial) and (file.named or rng.random() < 0.5)
    }
