"""Power loss at any moment: the next run ends with the same bytes, whatever the disk has lost.

`scripts/faults` tries more states.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from framewin.stores import durable
from tests.conftest import make_frame, write_frames
from tests.faults.job import Failpoint, bytes_of, convert_with, remove
from tests.faults.power import (
    PUBLISH_SYNCS,
    SYNCS,
    Recorder,
    published_after,
    recording,
    state_after,
)

LAYOUTS = [(s, c) for s in (".zarr", ".h5") for c in ("none", "gzip")]
STATES = int(os.environ.get("FRAMEWIN_FAULTS_STATES", "40"))


PART_BYTES = 5 * 24
PUBLISHED_SHARE = 0.25


class StopError(Exception):
    """What ends the recorded run before it publishes its store."""


def recorded(source: Path, dest: Path, compression: str, skipped: str = "") -> Recorder:
    """The operations of a conversion up to its last block."""
    recorder = Recorder(dest, skipped)

    def stop(done: int, total: int) -> None:
        if done == total:
            raise StopError

    with pytest.raises(StopError), recording(recorder):
        convert_with(source, dest, compression, recorder, progress=stop)
    return recorder


def recorded_whole(source: Path, dest: Path, compression: str, skipped: str = "") -> Recorder:
    """The operations of a conversion up to its end."""
    recorder = Recorder(dest, skipped)
    with recording(recorder):
        convert_with(source, dest, compression, recorder)
    return recorder


def losses(source: Path, suffix: str, compression: str, states: int, skipped: str = "") -> int:
    """Try states after a loss of power; returns how many did not end with the right bytes."""
    whole, dest = source.parent / f"whole{suffix}", source.parent / f"clips{suffix}"
    convert_with(source, whole, compression, Failpoint())
    expected = bytes_of(whole)
    events = recorded_whole(source, dest, compression, skipped).events
    [publication] = [place for place, event in enumerate(events) if event[0] == "publish"]
    partial = durable.partial_path(dest)
    rng = np.random.default_rng(0)
    lost = 0
    for state in range(states):
        remove(partial)
        remove(dest)
        first = publication + 1 if rng.random() < PUBLISHED_SHARE else 1
        cut = int(rng.integers(first, len(events) + 1))
        if skipped and state % 4 == 0:
            # How many events there are depends on threads; what is missed shows after the last.
            cut = len(events)
        write_files(partial, state_after(events[:cut], partial, rng))
        (partial / durable.MARKER).touch()
        store = published_after(events[:cut], rng)
        if store is not None:
            write_files(dest, {str(name): data for name, data in store.items()})
        # Without its name the store is lost, if its conversion had ended well.
        if cut == len(events) and store is None:
            lost += 1
            continue
        if store is None:
            convert_with(source, dest, compression, Failpoint())
        lost += bytes_of(dest) != expected
    return lost


def write_files(root: Path, files: dict[str, bytes]) -> None:
    """Files below a folder, or a file whose name is "."."""
    if files.keys() == {"."}:
        root.write_bytes(files["."])
        return
    root.mkdir(exist_ok=True)
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """40 frames: 8 blocks of 5."""
    frames = {f"{number}.png": make_frame(0, number) for number in range(40)}
    write_frames(tmp_path / "frames", frames)
    return tmp_path / "frames"


@pytest.mark.parametrize(("suffix", "compression"), LAYOUTS)
def test_nothing_is_lost(source: Path, suffix: str, compression: str) -> None:
    """Any cut, any part of what was not synced lost or zeroed."""
    lost = losses(source, suffix, compression, STATES)
    print(f"{STATES} injected, {STATES - lost} recovered, {lost} lost")
    assert lost == 0


def test_the_journal_never_runs_ahead_of_the_data(source: Path) -> None:
    """A block is in it only when its frames, and the names of the files, are on disk."""
    assert ahead(recorded(source, source.parent / "clips.zarr", "none")) == []


@pytest.mark.parametrize("skipped", SYNCS)
def test_each_kind_of_sync_is_missed(source: Path, skipped: str) -> None:
    """With one left out, the check above sees what could be lost."""
    recorder = recorded(source, source.parent / "clips.zarr", "none", skipped)
    assert ahead(recorder)


@pytest.mark.parametrize(
    ("suffix", "compression", "skipped"),
    [
        (s, c, skipped)
        for s, c in LAYOUTS
        for skipped in PUBLISH_SYNCS
        # A single file has no names in it.
        if (s, skipped) != (".h5", "store names")
    ],
)
def test_each_kind_of_sync_at_publication_is_missed(
    source: Path, suffix: str, compression: str, skipped: str
) -> None:
    """With one left out, stores are lost that were said to be made."""
    assert losses(source, suffix, compression, 40, skipped) > 0


def ahead(recorder: Recorder) -> list[str]:
    """What was relied upon before it was on disk, in a raw Zarr store."""
    unnamed: set[str] = set()
    unsynced: dict[str, set[int]] = {}
    found: list[str] = []
    for event in recorder.events:
        kind, name = event[0], event[1].name
        if kind == "create":
            unnamed.add(name)
        elif kind == "rename":
            # A plan that takes its name before its bytes are there may be empty.
            found += [f"bytes of {name}"] * bool(unsynced.pop(name, None))
            unnamed.add(event[2].name)
            unnamed.discard(name)
        elif kind == "write" and name == durable.JOURNAL:
            found += [f"name of {missing}" for missing in unnamed]
            parts = [json.loads(line.rpartition(b" ")[0]) for line in event[3].splitlines()]
            offsets = {part["part"] * PART_BYTES for part in parts}
            found += [f"block at {offset}" for offset in offsets & unsynced.get("0", set())]
            unsynced.setdefault(name, set()).add(event[2])
        elif kind == "write":
            unsynced.setdefault(name, set()).add(event[2])
        elif kind == "sync" and event[1].suffix in ("", ".new") and name in (*unsynced, "0"):
            unsynced.pop(name, None)
        elif kind == "sync":
            unnamed.clear()
    # At its end the run says that all is journalled.
    return found + ["the journal"] * (durable.JOURNAL in unsynced)
