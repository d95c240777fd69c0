"""A disk that is really full, or read-only, where the system lets the tests make one."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, make_frame, write_frames
from tests.faults.job import Failpoint, bytes_of, convert_with

LAYOUTS = [(s, c) for s in (".zarr", ".h5") for c in ("none", "gzip")]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system in memory of 512 kB, or a skip."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def convert_apart(source: Path, dest: Path, compression: str) -> subprocess.CompletedProcess[str]:
    """Convert in a process that believes in more room than there is."""
    code = (
        "import shutil, sys\n"
        "shutil.disk_usage = lambda path: type('Usage', (), {'free': 10**12})\n"
        "from tests.faults.job import main\n"
        "main()"
    )
    command = [sys.executable, "-c", code, source, dest, compression]
    return subprocess.run(
        list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("suffix", "compression"), LAYOUTS)
def test_a_full_disk(small_disk: Path, tmp_path: Path, suffix: str, compression: str) -> None:
    """One line, exit code 1; with more room the same command goes on, to the same bytes."""
    frames = {f"{number}.png": make_frame(number, 0, (100, 100, 1)) for number in range(200)}
    for number, frame in enumerate(frames.values()):
        # Noise, so that compressed frames fill the disk as well.
        frame[:] = (frame.astype(int) * (number * 2654435761 % 251 + 7) % 256).astype("uint8")
    write_frames(tmp_path / "frames", frames)
    whole, dest = tmp_path / f"whole{suffix}", small_disk / f"clips{suffix}"
    convert_with(tmp_path / "frames", whole, compression, Failpoint())
    if sum(map(len, bytes_of(whole).values())) < 600_000:
        subprocess.run(["mount", "-o", "remount,size=48k", str(small_disk)], check=True)
    done = convert_apart(tmp_path / "frames", dest, compression)
    assert done.returncode == 1, done.stderr
    assert re.fullmatch(
        f"{re.escape(str(dest))} cannot be written: No space left on device; all of it needs "
        "[0-9,]+ bytes; make room and repeat the command to go on\n",
        done.stdout,
    )
    assert not dest.exists()
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    done = convert_apart(tmp_path / "frames", dest, compression)
    assert done.returncode == 0, done.stdout + done.stderr
    assert bytes_of(dest) == bytes_of(whole)


def test_a_disk_that_may_not_be_written_to(small_disk: Path, tmp_path: Path) -> None:
    """One line that names the place."""
    write_frames(tmp_path / "frames", {"0.png": make_frame(0, 0)})
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    done = convert_apart(tmp_path / "frames", small_disk / "clips.zarr", "none")
    assert (done.returncode, done.stdout) == (
        1,
        f"{small_disk} cannot be written to; choose another name\n",
    )
