"""A fault at each durable operation of a conversion, in every format and layout.

`scripts/faults` runs all of them; here, every so many-th.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from framewin import StoreError
from framewin.stores import durable
from tests.conftest import make_frame, write_frames
from tests.faults.job import ACTIONS, Failpoint, bytes_of, convert_with, kill_at, recovers

LAYOUTS = [(s, c) for s in (".zarr", ".h5") for c in ("none", "gzip")]
EVERY = int(os.environ.get("FRAMEWIN_FAULTS_EVERY", "9"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """200 frames: 40 blocks of 5."""
    frames = {f"{number}.png": make_frame(0, number) for number in range(200)}
    write_frames(tmp_path / "frames", frames)
    return tmp_path / "frames"


def undisturbed(source: Path, suffix: str, compression: str) -> tuple[dict[str, bytes], int]:
    """The bytes of the store, and how many operations it takes."""
    whole = source.parent / f"whole{suffix}"
    failpoint = Failpoint()
    convert_with(source, whole, compression, failpoint)
    return bytes_of(whole), failpoint.count


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(("suffix", "compression"), LAYOUTS)
def test_an_error_at_any_operation(
    source: Path, suffix: str, compression: str, action: str
) -> None:
    """The store is there whole, or not at all; a rerun makes it, with the same bytes."""
    expected, operations = undisturbed(source, suffix, compression)
    recovered = 0
    numbers = range(1, operations + 1, EVERY)
    for number in numbers:
        dest = source.parent / f"{number}{suffix}"
        with contextlib.suppress(StoreError):
            convert_with(source, dest, compression, Failpoint(number, action))
        assert not dest.exists() or bytes_of(dest) == expected
        recovered += recovers(source, dest, compression, expected)
        assert not durable.partial_path(dest).exists()
    print(f"{len(numbers)} injected, {recovered} recovered, {len(numbers) - recovered} lost")
    assert recovered == len(numbers)


@pytest.mark.parametrize(("suffix", "compression"), LAYOUTS)
def test_a_kill_at_any_operation(source: Path, suffix: str, compression: str) -> None:
    """kill -9: the store is there whole, or not at all; a rerun makes it, with the same bytes."""
    expected, operations = undisturbed(source, suffix, compression)
    # From a process without TensorFlow, after whose start a fork may hang.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.job", "zarr", "h5py"])
    recovered = killed = 0
    numbers = range(1, operations + 1, EVERY)
    for number in numbers:
        dest = source.parent / f"{number}{suffix}"
        process = context.Process(target=kill_at, args=(source, dest, compression, number))
        process.start()
        process.join(60)
        # Where a sync comes late it is of several shards: such a run may end before this operation.
        killed += process.exitcode == -9
        assert process.exitcode == -9 or (process.exitcode == 0 and dest.exists())
        assert not dest.exists() or bytes_of(dest) == expected
        recovered += recovers(source, dest, compression, expected)
    print(f"{len(numbers)} injected, {recovered} recovered, {len(numbers) - recovered} lost")
    assert recovered == len(numbers)
    assert killed > 0.75 * len(numbers)


def test_a_short_write_is_continued(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may write less than asked for, at any time."""
    expected, _ = undisturbed(source, ".h5", "none")
    pwrite, rng = os.pwrite, np.random.default_rng(0)

    def short(descriptor: int, data: memoryview, offset: int) -> int:
        return pwrite(descriptor, data[: rng.integers(1, len(data) + 1)], offset)

    monkeypatch.setattr(os, "pwrite", short)
    convert_with(source, source.parent / "short.h5", "none", Failpoint())
    assert bytes_of(source.parent / "short.h5") == expected


def test_a_failed_sync_voids_its_blocks(source: Path) -> None:
    """After it nobody knows what is on disk, so none of them is in the journal."""
    from framewin.conversion.journal import read_journal

    dest = source.parent / "clips.zarr"

    class FailThirdSync(Failpoint):
        def __call__(self, operation: str, path: Path) -> None:
            self.count += operation == "fdatasync" and path.parent.name == "frames"
            if operation == "fdatasync" and path.parent.name == "frames" and self.count == 3:
                raise OSError(5, "Input/output error")

    with pytest.raises(StoreError, match=r"clips\.zarr cannot be written: Input/output error"):
        convert_with(source, dest, "none", FailThirdSync())
    assert len(read_journal(durable.partial_path(dest) / "journal")[0]) == 2
