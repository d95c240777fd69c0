"""Power loss at any moment: the next run ends with the same bytes, whatever the disk has lost.

`scripts/faults` tries more states.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from framewin.stores import durable
from tests.conftest import make_frame, write_frames
from tests.faults.job import Failpoint, bytes_of, convert_with
from tests.faults.power import SYNCS, Recorder, recording, state_after

LAYOUTS = [(s, c) for s in (".zarr", ".h5") for c in ("none", "gzip")]
STATES = int(os.environ.get("FRAMEWIN_FAULTS_STATES", "40"))


BLOCK_BYTES = 5 * 24


class StopError(Exception):
    """What ends the recorded run before it publishes its store."""


def recorded(source: Path, dest: Path, compression: str, skipped: str = "") -> Recorder:
    """The operations of a conversion up to its last block."""
    recorder = Recorder(skipped)

    def stop(done: int, total: int) -> None:
        if done == total:
            raise StopError

    with pytest.raises(StopError), recording(recorder):
        convert_with(source, dest, compression, Failpoint(), progress=stop)
    return recorder


def losses(source: Path, suffix: str, compression: str, states: int, skipped: str = "") -> int:
    """Try states after a loss of power; returns how many did not end with the right bytes."""
    whole, dest = source.parent / f"whole{suffix}", source.parent / f"clips{suffix}"
    convert_with(source, whole, compression, Failpoint())
    expected = bytes_of(whole)
    events = recorded(source, dest, compression, skipped).events
    partial = durable.partial_path(dest)
    rng = np.random.default_rng(0)
    lost = 0
    for _ in range(states):
        shutil.rmtree(partial, ignore_errors=True)
        cut = int(rng.integers(1, len(events) + 1))
        for name, content in state_after(events[:cut], partial, rng).items():
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            (partial / name).write_bytes(content)
        partial.mkdir(exist_ok=True)
        (partial / durable.MARKER).touch()
        try:
            convert_with(source, dest, compression, Failpoint())
            lost += bytes_of(dest) != expected
        finally:
            shutil.rmtree(dest, ignore_errors=True) if dest.is_dir() else dest.unlink(True)
    return lost


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
            blocks = [json.loads(line.rpartition(b" ")[0]) for line in event[3].splitlines()]
            offsets = {block["block"] * BLOCK_BYTES for block in blocks}
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
