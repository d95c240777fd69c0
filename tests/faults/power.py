"""What a disk may hold after the power went: a model of a file system that loses what it may.

The durable operations of a conversion are recorded. At a cut, each file holds what was synced and
any part of what was written since; names that were not synced may be missing, renames undone.

Of the store as it is published only the syncs count: a file of it that was not synced may have lost
anything, and so may a folder.
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


SYNCS = ("data", "journal", "plan", "names")
"""Kinds of sync before publication: of frames, journal, plan, and names in folders."""
PUBLISH_SYNCS = ("store files", "store names", "its name")
"""Kinds of sync at publication: of the files of the store, of names in it, and of its own name."""


@dataclass
class Recorder:
    """The durable operations of one conversion, in order; also its failpoint."""

    dest: Path
    skipped: str = ""
    """Name of a kind of sync that is left out, to show that it would be missed."""
    events: list[Event] = field(default_factory=list)

    def __call__(self, operation: str, path: Path) -> None:
        """Note the moment at which the store takes its name, and what is in it."""
        if operation == "rename" and path == self.dest:
            store = durable.partial_path(self.dest) / durable.STORE
            files = [store] if store.is_file() else [p for p in store.rglob("*") if p.is_file()]
            content = {file.relative_to(store): file.read_bytes() for file in files}
            self.events.append(("publish", self.dest, store, content))

    def left_out(self, path: Path) -> bool:
        """Whether a sync of this path is of the kind that is left out."""
        return self.kind_of(path) == self.skipped

    def kind_of(self, path: Path) -> str:
        """Which kind of sync a sync of this path is."""
        store = durable.partial_path(self.dest) / durable.STORE
        if path.is_relative_to(store):
            return "store names" if path.is_dir() else "store files"
        if any(event[0] == "publish" for event in self.events):
            return "its name"
        return kind_of(path)


def kind_of(path: Path) -> str:
    """Which kind of sync a sync of this path is, before publication."""
    if path.is_dir():
        return "names"
    if path.name.startswith(durable.PLAN):
        return "plan"
    return "journal" if path.name == durable.JOURNAL else "data"


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Record, and leave a kind of sync out, in all of `framewin.stores.durable`."""
    file, sync, move = durable.DataFile, durable.sync, durable.move
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
        if not recorder.left_out(self.path):
            record(("sync", self.path))

    def sync_path(path: Path) -> None:
        sync(path)
        if not recorder.left_out(path):
            record(("sync", path))

    def move_path(path: Path, target: Path) -> None:
        record(("move", path))
        move(path, target)

    def rename(self: Path, target: Path) -> Path:
        # Zarr renames, too, but what it writes is made anew by each run.
        if self in created:
            created.add(Path(target))
            record(("rename", self, Path(target)))
        return replace(self, target)

    file.__init__, file.truncate = create, truncate  # type: ignore[method-assign]
    file.write_at, file.sync = write_at, sync_file  # type: ignore[method-assign]
    durable.sync, Path.replace = sync_path, rename  # type: ignore[method-assign]
    durable.move = move_path
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(file, name, original)
        durable.sync, Path.replace = sync, replace  # type: ignore[method-assign]
        durable.move = move


class _File:
    """What is on disk of a file, and what may be."""

    def __init__(self) -> None:
        self.synced = bytearray()
        self.pending: list[Event] = []
        self.named = False
        self.moved = False

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
    """Files below the partial folder after a loss of power behind some events.

    Those that were moved into the store may be there or not; what else is in it is made anew.
    """
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
        elif kind == "move":
            files[path].moved = True
        elif kind == "publish":
            break
        elif path in files:
            files[path].sync()
        else:
            for found, file in files.items():
                file.named |= found.parent == path
    return {
        str(path.relative_to(partial)): file.after_loss(rng)
        for path, file in files.items()
        if path.is_relative_to(partial) and ((file.named and not file.moved) or rng.random() < 0.5)
    }


def published_after(events: list[Event], rng: np.random.Generator) -> dict[Path, bytes] | None:
    """Files of the store after a loss of power behind some events; None if it has no name yet.

    Its name may have been lost as long as it was not synced, even if the conversion has ended.
    """
    places = [place for place, event in enumerate(events) if event[0] == "publish"]
    if not places:
        return None
    _, dest, store, content = events[places[0]]
    later = {event[1] for event in events[places[0] :] if event[0] == "sync"}
    if dest.parent not in later and rng.random() < 0.5:
        return None
    synced = {event[1] for event in events[: places[0]] if event[0] == "sync"}
    found = {}
    for name, data in content.items():
        # Every folder between the store and the file must have been synced.
        folders = [store / folder for folder in name.parents] if name.parts else []
        if synced.issuperset(folders) or rng.random() < 0.5:
            kept = data if store / name in synced or rng.random() < 0.5 else _torn(data, rng)
            found[name] = kept
    return found


def _torn(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes of which the end, or the blocks, were never written."""
    return data[: rng.integers(len(data))] if rng.random() < 0.5 else bytes(len(data))
