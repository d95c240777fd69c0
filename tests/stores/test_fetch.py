"""Stores brought to this machine: whole, verified, and resumed after any interruption."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from framewin import FetchReport, FramewinError, StoreError, convert, fetch, verify
from framewin.cli import output
from framewin.stores import durable
from tests.conftest import MakeClips, write_frames
from tests.faults.job import bytes_of
from tests.helpers.command import framewin, rows
from tests.helpers.object_server import BUCKET, Request, Server

LAYOUTS = [(".zarr", "zstd"), (".zarr", "none"), (".h5", "none"), (".h5", "gzip")]
CHUNK_FRAMES = 3
SHARD = "frames/c/0/0/0/0"
SMALL = """
from framewin import remote
from framewin.stores import chunk_io, fetch
remote.TAIL_BYTES = 1024
chunk_io.RUN_BYTES = fetch.RUN_BYTES = 4096
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A store of noise in a layout: suffix, compression, and which noise."""
    folder = tmp_path_factory.mktemp("stores")

    def make(suffix: str, compression: str, seed: int = 0) -> Path:
        source, path = folder / f"{seed}", folder / f"{seed}-{compression}{suffix}"
        if not source.exists():
            noise = np.random.default_rng(seed).integers(0, 256, (50, 40, 50, 1), np.uint8)
            write_frames(source, {f"{n}.png": frame for n, frame in enumerate(noise)})
        if not path.exists():
            convert(source, path, compression=compression, chunk_frames=CHUNK_FRAMES)
        return path

    return make


@pytest.fixture(autouse=True)
def _small_tails(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that opening does not bring most of a small store."""
    monkeypatch.setattr("framewin.remote.TAIL_BYTES", 1024)


@pytest.fixture
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of one chunk."""
    for name in ("chunk_io", "fetch"):
        monkeypatch.setattr(f"framewin.stores.{name}.RUN_BYTES", 4096)


def uploaded(server: Server, store: Path) -> str:
    url = f"s3://{BUCKET}/{server.upload(store)}"
    server.forget()
    return url


@pytest.mark.parametrize(("suffix", "compression"), LAYOUTS)
def test_every_byte_is_brought(
    stores: Callable[..., Path], server: Server, tmp_path: Path, suffix: str, compression: str
) -> None:
    """In every layout; few requests, and nothing is left beside it."""
    store = stores(suffix, compression)
    url = uploaded(server, store)
    calls: list[tuple[int, int]] = []
    dest = tmp_path / f"new{suffix}"
    report = fetch(url, dest, progress=lambda done, total: calls.append((done, total)))
    assert bytes_of(dest) == bytes_of(store)
    size = durable.tree_bytes(store)
    assert report == FetchReport(dest, url, size, 0, report.seconds)
    assert calls == sorted(calls)
    assert calls[-1] == (size, size)
    assert server.body_bytes < 1.5 * size
    assert len(server.requests) <= len(bytes_of(store)) + 4
    assert list(tmp_path.iterdir()) == [dest]


@pytest.mark.usefixtures("_small_parts")
@pytest.mark.parametrize(("suffix", "compression"), [(".zarr", "zstd"), (".h5", "none")])
def test_faults_are_survived(
    stores: Callable[..., Path], server: Server, tmp_path: Path, suffix: str, compression: str
) -> None:
    """Broken connections, short bodies, wrong bytes and a busy server, all along."""
    store = stores(suffix, compression)
    url = uploaded(server, store)
    faults = {2: "flip", 4: "short", 6: "drop", 8: "503", 10: "500", 11: "500"}
    given: list[str] = []
    of_frames = [0]

    def now_and_then(request: Request) -> str | None:
        # Opening reads the end of a file of HDF5, frames lie before it.
        is_file = suffix == ".h5" and (request.begin or 99_999) < 90_000
        of_frames[0] += "frames/c/" in request.key or is_file
        fault = faults.pop(of_frames[0], None)
        given.extend([fault] if fault else [])
        return fault

    server.fault = now_and_then
    fetch(url, tmp_path / f"new{suffix}", workers=1)
    assert bytes_of(tmp_path / f"new{suffix}") == bytes_of(store)
    assert given == ["flip", "short", "drop", "503", "500", "500"]


@pytest.mark.parametrize(
    ("suffix", "compression", "file", "told"),
    [
        (".zarr", "zstd", "/framewin.record", "is damaged or cut short"),
        (".h5", "none", "", "was changed outside its frames"),
    ],
)
def test_what_has_no_checksum_of_its_own(
    stores: Callable[..., Path],
    server: Server,
    tmp_path: Path,
    suffix: str,
    compression: str,
    file: str,
    told: str,
) -> None:
    """It is asked for once more, too; where it stays wrong, the URL is named."""
    store = stores(suffix, compression)
    url = uploaded(server, store)
    left = [1]

    def flip(request: Request) -> str | None:
        if not f"s3://{BUCKET}/{request.key}".endswith(url + file) or request.begin != 0:
            return None
        left[0] -= 1
        return "flip" if left[0] >= 0 else None

    server.fault = flip
    fetch(url, tmp_path / f"new{suffix}")
    assert bytes_of(tmp_path / f"new{suffix}") == bytes_of(store)
    assert left[0] < 0
    left[0] = 99
    server.fault = flip
    with pytest.raises(StoreError) as caught:
        fetch(url, tmp_path / f"other{suffix}")
    assert str(caught.value) == (
        f"{url} is damaged, or changed while it was fetched: {url}{file} {told}; upload it again"
    )


@pytest.mark.usefixtures("_small_parts")
def test_an_interrupted_fetch_ends_soon(
    stores: Callable[..., Path],
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the requests that are under way are waited for, not all of the parts begun."""
    stop, begun = threading.Event(), threading.Event()
    monkeypatch.setattr("framewin.stores.fetch.Event", lambda: stop)
    monkeypatch.setattr("framewin.stores.fetch.REQUEST_BYTES", 1000)
    url = uploaded(server, stores(".zarr", "none"))
    parts: list[str] = []

    def hold(request: Request) -> None:
        if "frames/c/" in request.key and (request.begin or 0) > 6000:
            parts.append(request.key)
            begun.set()
            stop.wait(20)

    def interrupt(done: int, total: int) -> None:
        assert begun.wait(20)
        raise KeyboardInterrupt

    server.fault = hold
    with pytest.raises(KeyboardInterrupt):
        fetch(url, tmp_path / "new.zarr", workers=1, progress=interrupt)
    assert len(parts) == 1
    server.forget()
    stop.clear()
    assert fetch(url, tmp_path / "new.zarr").kept_bytes > 0


KILLED = (
    SMALL
    + """
import sys
fetch.fetch(sys.argv[1], sys.argv[2], workers=2)
"""
)


@pytest.mark.usefixtures("_small_parts")
@pytest.mark.parametrize(("suffix", "compression"), [(".zarr", "none"), (".h5", "gzip")])
def test_a_fetch_that_was_killed_goes_on(
    stores: Callable[..., Path], server: Server, tmp_path: Path, suffix: str, compression: str
) -> None:
    """What it had brought is kept, and not transferred again; the bytes are the same."""
    store = stores(suffix, compression)
    url = uploaded(server, store)
    reached, go_on = threading.Event(), threading.Event()

    def stop(request: Request) -> None:
        if request.begin is not None and 70_000 < request.begin < 90_000:
            reached.set()
            go_on.wait(20)

    server.fault = stop
    dest = tmp_path / f"new{suffix}"
    process = subprocess.Popen([sys.executable, "-c", KILLED, url, dest])
    assert reached.wait(60)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    go_on.set()
    assert not dest.exists()
    assert durable.partial_path(dest).exists()
    server.forget()
    report = fetch(url, dest)
    assert bytes_of(dest) == bytes_of(store)
    assert report.kept_bytes > 30_000
    assert server.body_bytes < durable.tree_bytes(store) - 20_000
    assert list(tmp_path.iterdir()) == [dest]


def interrupted(server: Server, url: str, dest: Path, after: int = 20) -> None:
    """A fetch that ends after some requests."""
    server.fault = lambda request: "404" if request.number > after else None
    with pytest.raises(StoreError, match=r"is missing; upload the store|does not ex"):
        fetch(url, dest, workers=1)
    server.forget()


@pytest.mark.usefixtures("_small_parts")
def test_room_that_will_be_freed(
    stores: Callable[..., Path],
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a fetch clears away before it begins anew counts as free."""
    store = stores(".zarr", "none")
    url = uploaded(server, store)
    interrupted(server, url, tmp_path / "new.zarr")
    free = sum(len(data) for data in bytes_of(store).values()) - 20_000
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free))
    with pytest.raises(StoreError, match="bytes free; make room"):
        fetch(url, tmp_path / "other.zarr")
    fetch(url, tmp_path / "new.zarr", restart=True)
    assert bytes_of(tmp_path / "new.zarr") == bytes_of(store)


@pytest.mark.usefixtures("_small_parts")
def test_what_is_there_is_checked(
    stores: Callable[..., Path], server: Server, tmp_path: Path
) -> None:
    """Bytes that changed since they were brought are brought again."""
    store = stores(".h5", "none")
    url = uploaded(server, store)
    dest = tmp_path / "new.h5"
    interrupted(server, url, dest)
    part = durable.partial_path(dest) / durable.FRAMES / durable.STORE
    data = bytearray(part.read_bytes())
    assert data != bytearray(store.read_bytes())
    data[12_345] ^= 1
    part.write_bytes(data)
    report = fetch(url, dest)
    assert dest.read_bytes() == store.read_bytes()
    assert 0 < report.kept_bytes < durable.tree_bytes(store)


@pytest.mark.usefixtures("_small_parts")
def test_a_store_that_changed(stores: Callable[..., Path], server: Server, tmp_path: Path) -> None:
    """Between two runs, or amid one, it is noticed; `restart` begins anew."""
    store, other = stores(".zarr", "zstd"), stores(".zarr", "zstd", seed=1)
    url = uploaded(server, store)
    dest = tmp_path / "new.zarr"
    interrupted(server, url, dest)

    def replace() -> None:
        for name, data in bytes_of(other).items():
            server.put(f"{store.name}/{name}", data)

    replace()
    message = f"{url} is not the store that {dest}.partial holds a part of: it has changed, or is"
    for _ in range(2):
        with pytest.raises(StoreError, match=re.escape(message)):
            fetch(url, dest)
    fetch(url, dest, restart=True)
    assert bytes_of(dest) == bytes_of(other)
    shutil.rmtree(dest)
    url = uploaded(server, store)
    shards = [0]

    def amid(request: Request) -> None:
        shards[0] += "frames/c/" in request.key
        if shards[0] == 3:
            shards[0] += 1
            replace()

    server.fault = amid
    with pytest.raises(StoreError, match=r"changed while it was (fetched; use rest|read; begin)"):
        fetch(url, dest, workers=1)
    assert not dest.exists()


@pytest.mark.parametrize(
    ("layout", "file", "place", "told"),
    [
        ("none.zarr", SHARD, 20_000, "not what was written in frames 9 to 11; upload"),
        ("none.zarr", "clips/zarr.json", 5, "not what was written in bytes 0 to "),
        ("none.zarr", SHARD, -5, "has chunks that are missing or moved"),
        ("zstd.zarr", SHARD, -5, "has a damaged index of its chunks; upload it again"),
        ("none.h5", "", 20_000, "is damaged: not what was written in frames 6 to 8; upload the st"),
        ("none.h5", "", 10, "was changed outside its frames; upload it again"),
    ],
)
def test_damage_is_never_published(
    stores: Callable[..., Path],
    server: Server,
    tmp_path: Path,
    layout: str,
    file: str,
    place: int,
    told: str,
) -> None:
    """A wrong byte anywhere is named; once the store is right again, the fetch goes on."""
    compression, suffix = layout.split(".")
    store = stores(f".{suffix}", compression)
    url = uploaded(server, store)
    data = (store / file if file else store).read_bytes()
    key = f"{store.name}/{file}" if file else store.name
    at = place % len(data)
    server.put(key, data[:at] + bytes([data[at] ^ 8]) + data[at + 1 :])
    dest = tmp_path / f"new.{suffix}"
    with pytest.raises(StoreError, match=re.escape(told)):
        fetch(url, dest)
    assert not dest.exists()
    server.put(key, data)
    fetch(url, dest)
    assert bytes_of(dest) == bytes_of(store)
    assert verify(dest).damage == []


def test_a_file_that_is_missing(
    stores: Callable[..., Path], server: Server, tmp_path: Path
) -> None:
    """The object is named."""
    url = uploaded(server, stores(".zarr", "none"))
    server.delete("0-none.zarr/clips/zarr.json")
    with pytest.raises(StoreError, match=re.escape(f"{url}/clips/zarr.json is missing; upload")):
        fetch(url, tmp_path / "new.zarr")


def test_what_is_refused(
    stores: Callable[..., Path],
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before anything is brought, with one line."""
    url = uploaded(server, stores(".zarr", "zstd"))
    (tmp_path / "there").mkdir()
    new = tmp_path / "new.zarr"
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: fetch(url, tmp_path / "there"), "there exists already; remove it or choose anot"),
        (lambda: fetch(url, tmp_path / "no" / "x"), "no is not a folder; make it first"),
        (lambda: fetch(url, url), "is a URL; a store is fetched to this machine, give a path"),
        (lambda: fetch("clips.zarr", new), "the URL of a store, such as s3://bucket/clips.zarr,"),
        (lambda: fetch(url, new, workers=0), "workers must be >= 1, got 0"),
        (lambda: fetch(url + "x", new), "does not exist, or was not made by framewin convert"),
    ]
    for call, message in refused:
        with pytest.raises((FramewinError, ValueError), match=re.escape(message)):
            call()
    with pytest.raises(StoreError, match="in use by process"), durable.building(new):
        fetch(url, new)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=10))
    with pytest.raises(StoreError, match="bytes free; make room or choose another disk"):
        fetch(url, new)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def interrupted_conversion(dest: Path) -> None:
    with durable.building(dest) as site:
        site.begin({"source": "frames"}, resume=False)
        site.keep = True
        raise InterruptedError


def test_another_unfinished_work(
    stores: Callable[..., Path], server: Server, tmp_path: Path
) -> None:
    """A conversion to the same place is not thrown away."""
    url = uploaded(server, stores(".zarr", "zstd"))
    with pytest.raises(InterruptedError):
        interrupted_conversion(tmp_path / "new.zarr")
    for _ in range(2):
        with pytest.raises(StoreError, match="holds another unfinished work than a fetch; repeat"):
            fetch(url, tmp_path / "new.zarr")
    assert not fetch(url, tmp_path / "new.zarr", restart=True).kept_bytes


@pytest.mark.usefixtures("_small_parts")
def test_a_conversion_to_the_place_of_a_fetch(
    stores: Callable[..., Path], server: Server, make_clips: MakeClips, tmp_path: Path
) -> None:
    """What was fetched is not thrown away: the fetch goes on with it."""
    url, dest = uploaded(server, stores(".zarr", "none")), tmp_path / "new.zarr"
    source = make_clips({"a": range(3)})
    interrupted(server, url, dest)
    for _ in range(2):
        with pytest.raises(StoreError, match="holds a part of a fetch; repeat that command"):
            convert(source, dest)
    assert fetch(url, dest).kept_bytes > 0
    interrupted(server, url, tmp_path / "other.zarr")
    assert convert(source, tmp_path / "other.zarr", restart=True).frames == 3


@pytest.mark.usefixtures("_small_parts")
def test_a_disk_that_becomes_full(
    stores: Callable[..., Path],
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was brought is kept for the next run."""
    store = stores(".zarr", "none")
    url = uploaded(server, store)
    writes = [0]

    def full(operation: str, path: Path) -> None:
        writes[0] += operation == "write"
        if writes[0] > 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(durable, "failpoint", full)
    with pytest.raises(StoreError, match="No space left on device; what was fetched is kept, rep"):
        fetch(url, tmp_path / "new.zarr", workers=1)
    monkeypatch.setattr(durable, "failpoint", None)
    report = fetch(url, tmp_path / "new.zarr")
    assert bytes_of(tmp_path / "new.zarr") == bytes_of(store)
    assert report.kept_bytes > 0


def test_progress_is_in_bytes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is done, what there is, the rate and the time left."""
    monkeypatch.setattr(output, "LINE_SECONDS", 0)
    with output.show_progress("fetching", False, unit=output.BYTES) as progress:
        assert progress is not None
        progress(1_000_000, 6_000_000_000)
        progress(3_000_000, 6_000_000_000)
    pattern = r"fetching: 3\.0 MB of 6\.0 GB, [0-9.,]+ [kMG]?B/s, [0-9]+ s left\n"
    assert re.fullmatch(pattern, capsys.readouterr().err)


def test_the_command(stores: Callable[..., Path], server: Server, tmp_path: Path) -> None:
    """A table on stdout; by plain HTTP, too, and repeated it refuses what is there."""
    store = stores(".zarr", "zstd")
    server.upload(store)
    url = f"{server.url}/{BUCKET}/{store.name}"
    done = framewin("fetch", url, tmp_path / "new.zarr")
    assert (done.returncode, done.stderr) == (0, "")
    table = rows(done.stdout)
    assert (table["store"], table["from"]) == (str(tmp_path / "new.zarr"), url)
    assert table["time"].endswith("/s, every byte verified")
    assert bytes_of(tmp_path / "new.zarr") == bytes_of(store)
    done = framewin("fetch", url, tmp_path / "new.zarr")
    assert done.returncode == 1
    assert done.stderr == (
        f"framewin: {tmp_path / 'new.zarr'} exists already; remove it or choose another name\n"
    )
