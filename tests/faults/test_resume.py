"""An interrupted conversion goes on: what is on disk is kept, the result is the same."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from framewin import SourceError, StoreError, convert
from framewin.conversion import run as running
from framewin.conversion.journal import read_journal
from framewin.conversion.plan import plan_conversion
from framewin.errors import SourceChangedError
from framewin.sources import png
from framewin.stores import durable, open_store
from tests.conftest import MakeClips, make_frame, write_frames
from tests.faults.job import CHUNK_FRAMES, Failpoint, bytes_of, convert_with, remove

LAYOUTS = [(s, c) for s in (".zarr", ".h5") for c in ("none", "gzip")]
CLIPS = {"a": range(30), "b": range(17)}
KILLS = int(os.environ.get("FRAMEWIN_FAULTS_KILLS", "5"))


class StopError(Exception):
    """What stops a conversion in these tests."""


def interrupted(source: Path, dest: Path, compression: str, after: int, **options: object) -> None:
    """Convert until so many frames are done."""

    def stop(done: int, total: int) -> None:
        if done >= after:
            raise StopError

    with pytest.raises(StopError):
        convert_with(source, dest, compression, Failpoint(), progress=stop, **options)


def resumed(source: Path, dest: Path, compression: str, **options: object) -> int:
    """Go on, and say how many frames were there."""
    report = convert(
        source, dest, compression=compression, chunk_frames=CHUNK_FRAMES, workers=2, **options
    )
    return report.resumed_frames


@pytest.mark.parametrize(("suffix", "compression"), LAYOUTS)
def test_a_stopped_conversion_goes_on(
    make_clips: MakeClips, tmp_path: Path, suffix: str, compression: str
) -> None:
    """Blocks that were on disk are not converted again; the bytes are those of one run."""
    source = make_clips(CLIPS)
    whole, dest = tmp_path / f"whole{suffix}", tmp_path / f"clips{suffix}"
    convert_with(source, whole, compression, Failpoint())
    interrupted(source, dest, compression, after=25)
    assert not dest.exists()
    assert 20 <= resumed(source, dest, compression) <= 30
    assert bytes_of(dest) == bytes_of(whole)
    assert not durable.partial_path(dest).exists()


@pytest.mark.parametrize(("suffix", "compression"), LAYOUTS)
def test_a_torn_journal_is_cut(
    make_clips: MakeClips, tmp_path: Path, suffix: str, compression: str
) -> None:
    """Whatever its last line lost; and a line that was changed is not believed."""
    source = make_clips(CLIPS)
    whole, dest = tmp_path / f"whole{suffix}", tmp_path / f"clips{suffix}"
    convert_with(source, whole, compression, Failpoint())
    journal = durable.partial_path(dest) / "journal"
    for lost in (1, 9, 40):
        interrupted(source, dest, compression, after=25)
        data = journal.read_bytes()
        before, _ = read_journal(journal)
        journal.write_bytes(data[:-lost])
        assert len(read_journal(journal)[0]) == len(before) - 1
        assert resumed(source, dest, compression) >= 5 * (len(before) - 1)
        assert bytes_of(dest) == bytes_of(whole)
        remove(dest)


@pytest.mark.parametrize(("suffix", "compression"), LAYOUTS)
def test_a_block_that_is_damaged_is_redone(
    make_clips: MakeClips, tmp_path: Path, suffix: str, compression: str
) -> None:
    """The journal says what its bytes must be."""
    source = make_clips(CLIPS)
    whole, dest = tmp_path / f"whole{suffix}", tmp_path / f"clips{suffix}"
    convert_with(source, whole, compression, Failpoint())
    interrupted(source, dest, compression, after=25)
    frames = durable.partial_path(dest) / "frames" / "0"
    data = bytearray(frames.read_bytes())
    # In the second block: chunks of five frames of 24 bytes, or compressed ones.
    middle = len(data) - 24 * 47 + 24 * 7 if compression == "none" else len(data) // 4
    data[middle] ^= 1
    frames.write_bytes(data)
    kept = resumed(source, dest, compression)
    assert 0 < kept < 25
    assert bytes_of(dest) == bytes_of(whole)


def test_files_that_changed_are_converted_again(make_clips: MakeClips, tmp_path: Path) -> None:
    """Only their blocks; the others are kept."""
    source = make_clips(CLIPS)
    dest = tmp_path / "clips.zarr"
    interrupted(source, dest, "none", after=25)
    write_frames(source / "a", {"frame_7.png": make_frame(9, 99)})
    assert 15 <= resumed(source, dest, "none") <= 25
    assert np.array_equal(open_store(dest).frames.array[7], make_frame(9, 99))


def test_another_plan_is_refused_and_loses_nothing(make_clips: MakeClips, tmp_path: Path) -> None:
    """It says what differs; what is there is kept until --restart."""
    source = make_clips(CLIPS)
    dest = tmp_path / "clips.zarr"
    interrupted(source, dest, "none", after=25)
    partial = durable.partial_path(dest)
    for options, what in (
        ({"crop": (0, 2, 0, 2)}, "with other options"),
        ({"compression": "gzip"}, "to another kind of store"),
    ):
        message = f"{partial} holds a part of a conversion {what}; repeat that command to go on"
        with pytest.raises(StoreError, match=re.escape(message)):
            convert(source, dest, chunk_frames=CHUNK_FRAMES, **options)
        assert len(read_journal(partial / "journal")[0]) >= 4
    write_frames(source / "a", {"frame_30.png": make_frame(0, 30)})
    with pytest.raises(StoreError, match="of other clips or frames"):
        convert(source, dest, chunk_frames=CHUNK_FRAMES)
    report = convert(source, dest, chunk_frames=CHUNK_FRAMES, restart=True)
    assert (report.resumed_frames, report.frames) == (0, 48)


def test_on_error_may_change(make_clips: MakeClips, tmp_path: Path) -> None:
    """A conversion that stopped at damage goes on to leave it out, or once it is repaired."""
    source = make_clips(CLIPS)
    damaged = source / "b" / "frame_16.png"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-20])
    dest = tmp_path / "clips.zarr"
    with pytest.raises(SourceError, match=r"frame_16\.png is cut short"):
        convert(source, dest, chunk_frames=CHUNK_FRAMES, workers=1)
    assert len(read_journal(durable.partial_path(dest) / "journal")[0]) >= 5
    damaged.write_bytes(whole)
    assert resumed(source, dest, "none") >= 25


def test_known_damage_is_left_out_at_once(make_clips: MakeClips, tmp_path: Path) -> None:
    """The second pass of a conversion with gaps can be resumed, too."""
    source = make_clips(CLIPS)
    path = source / "a" / "frame_3.png"
    path.write_bytes(path.read_bytes()[:-20])
    whole, dest = tmp_path / "whole.zarr", tmp_path / "clips.zarr"
    convert_with(source, whole, "none", Failpoint(), on_error="gap")
    calls: list[int] = []

    def stop(done: int, total: int) -> None:
        calls.append(total)
        if total == 46 and done >= 25:
            raise StopError

    with pytest.raises(StopError):
        convert_with(source, dest, "none", Failpoint(), on_error="gap", progress=stop)
    plan = json.loads((durable.partial_path(dest) / "plan.json").read_text())
    assert plan["damaged"][0][1:3] == ["a", 3]
    assert resumed(source, dest, "none", on_error="gap") >= 20
    assert bytes_of(dest) == bytes_of(whole)


def test_a_source_that_changes_is_seen(
    make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is written to, or goes, while it is converted is named; never a gap."""
    source = make_clips(CLIPS)
    changed = source / "a" / "frame_4.png"
    read, node = os.read, changed.stat().st_ino

    def changing(descriptor: int, size: int) -> bytes:
        data = read(descriptor, size)
        if os.fstat(descriptor).st_ino == node:
            with changed.open("ab") as file:
                file.write(b"more")
        return data

    monkeypatch.setattr(os, "read", changing)
    message = r"a/frame_4\.png changed while it was converted; run the same command again"
    for on_error in ("stop", "gap"):
        with pytest.raises(SourceChangedError, match=message):
            convert(source, tmp_path / "clips.zarr", on_error=on_error)
    monkeypatch.undo()
    plan = plan_conversion(source, tmp_path / "clips.zarr")
    (source / "a" / "frame_2.png").unlink()
    with pytest.raises(SourceChangedError, match=r"frame_2\.png cannot be read: No such file"):
        running.run(plan)


HELD = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from framewin.conversion import journal
from framewin.sources import png
from framewin.stores import layout, writer
writer.BLOCK_BYTES = layout.SHARD_BYTES = journal.SYNC_BYTES = 1
left, closing = int(sys.argv.pop(1)), threading.Event()
decode, shutdown = png.decode, ThreadPoolExecutor.shutdown

def held(*arguments):
    global left
    left -= 1
    if left < 0:
        closing.wait()
    decode(*arguments)

def closed(pool, *arguments, **options):
    closing.set()
    shutdown(pool, *arguments, **options)

png.decode, ThreadPoolExecutor.shutdown = held, closed
from framewin.cli import main
sys.argv = ["framewin", "convert", *sys.argv[1:]]
main()
"""
"""A conversion by one thread that decodes so many frames, and the next ones once it is stopped."""


@contextlib.contextmanager
def held(frames: int, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """The command; it cannot end by itself while there are more frames than these."""
    command = [sys.executable, "-c", HELD, frames, *arguments, "--workers", "1"]
    pipe = subprocess.PIPE
    process = subprocess.Popen([*map(str, command)], stdout=pipe, stderr=pipe, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def await_blocks(process: subprocess.Popen[str], dest: Path, count: int) -> None:
    """Wait until so many blocks are journalled; the limit is for a process that hangs."""
    end = time.monotonic() + 120
    journal = durable.partial_path(dest) / "journal"
    while not journal.exists() or len(read_journal(journal)[0]) < count:
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.002)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_says_how_to_go_on(make_clips: MakeClips, tmp_path: Path, number: int) -> None:
    """Exit code 130 or 143, and every block is kept; the same command then ends the work."""
    source, dest = make_clips({"a": range(90)}), tmp_path / "clips.zarr"
    options = (source, dest, "--chunk-frames", CHUNK_FRAMES)
    with held(13, *options) as process:
        await_blocks(process, dest, 2)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert errors.splitlines()[-1] == (
        f"framewin: stopped; what is done is kept in {dest}.partial; repeat the command to go on, "
        "--restart begins anew"
    )
    with held(80, *options) as process:
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert re.search(r"^resumed +10 frames were there already$", printed, re.MULTILINE)


def test_a_block_is_tried_twice(
    make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What passes is forgotten; what stays ends the conversion and names the frames."""
    source = make_clips(CLIPS)
    decode, failures = png.decode, [1]

    def unlucky(data: bytes, out: np.ndarray, path: str, *rest: object) -> None:
        if path.endswith("b/frame_3.png") and failures:
            failures.pop()
            raise MemoryError("for a moment")
        decode(data, out, path, *rest)

    monkeypatch.setattr(png, "decode", unlucky)
    convert(source, tmp_path / "clips.zarr")
    failures += [1] * 9
    message = r"frames behind it failed twice \(MemoryError: for a moment\)"
    with pytest.raises(StoreError, match=message):
        convert(source, tmp_path / "other.zarr")


def test_the_second_converter_leaves_at_once(make_clips: MakeClips, tmp_path: Path) -> None:
    """It names who is at work; a lock of a dead process is none."""
    source = make_clips(CLIPS)
    dest = tmp_path / "clips.h5"
    with contextlib.suppress(StopError), durable.building(dest):
        command = [Path(sys.executable).parent / "framewin", "convert", source, dest]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        holder = f"is in use by process {os.getpid()} on {os.uname().nodename}; wait for it"
        assert holder in done.stderr
        assert done.returncode == 1
        raise StopError
    durable.partial_path(dest).mkdir()
    (durable.partial_path(dest) / durable.MARKER).write_text("1 on elsewhere\n")
    convert(source, dest)


@pytest.mark.parametrize(("suffix", "compression"), LAYOUTS)
def test_random_kills(make_clips: MakeClips, tmp_path: Path, suffix: str, compression: str) -> None:
    """The real command, killed in a random block and given again: whole in the end."""
    source = make_clips({"a": range(200)}, shape=(40, 50, 3))
    whole, dest = tmp_path / f"whole{suffix}", tmp_path / f"clips{suffix}"
    options = (source, dest, "--compression", compression, "--chunk-frames", CHUNK_FRAMES)
    convert_with(source, whole, compression, Failpoint())
    expected, blocks = bytes_of(whole), 200 // CHUNK_FRAMES
    rng, done = np.random.default_rng(0), 0
    for _ in range(KILLS):
        # The next frames are decoded while it is killed, or it stays within them.
        more, beyond = int(rng.integers(6)), int(rng.integers(3 * CHUNK_FRAMES))
        if done + more + 3 >= blocks:
            done = 0
            shutil.rmtree(durable.partial_path(dest))
        with held(more * CHUNK_FRAMES + beyond, *options) as process:
            await_blocks(process, dest, done + more)
        assert process.returncode == -signal.SIGKILL
        assert not dest.exists()
        kept = len(read_journal(durable.partial_path(dest) / "journal")[0])
        assert done + more <= kept <= done + more + 3
        done = kept
    assert done > 0
    with held(200 - CHUNK_FRAMES * done, *options) as process:
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert re.search(rf"^resumed +{done * CHUNK_FRAMES} frames were there", printed, re.MULTILINE)
    assert bytes_of(dest) == expected
    assert not durable.partial_path(dest).exists()
