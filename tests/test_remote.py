"""Stores in an object store: the same windows, few requests, and every fault survived or told."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import re
import weakref
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framewin import FrameWindowDataset, SplitPart, StoreError, convert, plan, verify
from framewin.remote import RemotePath, location, refuse_url
from framewin.schema import FrameFormat
from framewin.stores import chunk_io, layout, open_store, record
from framewin.stores.chunk_io import ChunkPlace, runs
from framewin.stores.chunked_frames import ChunkedFrames, RunReader
from tests.conftest import import_or_skip, write_frames
from tests.helpers.command import framewin
from tests.helpers.object_server import BUCKET, Request, Server
from tests.helpers.runs import make_run
from tests.helpers.windows import open_windows

LAYOUTS = [
    (".zarr", "zstd"),
    (".zarr", "lz4"),
    (".zarr", "gzip"),
    (".zarr", "none"),
    (".h5", "none"),
    (".h5", "gzip"),
]
FRAMES, CHUNK_FRAMES, SHARD_CHUNKS = 40, 3, 4
SHAPE = (20, 30, 1)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """A store of two clips of noise in a layout: suffix and compression."""
    folder = tmp_path_factory.mktemp("stores")
    rng = np.random.default_rng(0)
    for clip in "ab":
        noise = rng.integers(0, 256, (FRAMES // 2, *SHAPE), np.uint8)
        write_frames(folder / "frames" / clip, {f"{n}.png": f for n, f in enumerate(noise)})

    def make(suffix: str, compression: str) -> Path:
        path = folder / f"{compression}-{layout.SHARD_BYTES}{suffix}"
        if not path.exists():
            convert(folder / "frames", path, compression=compression, chunk_frames=CHUNK_FRAMES)
        return path

    return make


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of a few chunks, so that windows reach over several objects, most not in one piece."""
    monkeypatch.setattr("framewin.remote.TAIL_BYTES", 1024)
    frame_bytes = SHAPE[0] * SHAPE[1]
    size = SHARD_CHUNKS * CHUNK_FRAMES * frame_bytes
    monkeypatch.setattr("framewin.stores.layout.SHARD_BYTES", size)


def opened(path: object, **options: object) -> FrameWindowDataset:
    return open_windows(path, input_frames=2, predict_frames=2, **options)


def uploaded(server: Server, store: Path) -> str:
    return f"s3://{BUCKET}/{server.upload(store, 'some/place/')}"


def equal(one: tuple[np.ndarray, ...], other: tuple[np.ndarray, ...]) -> bool:
    return all(np.array_equal(*pair) for pair in zip(one, other, strict=True))


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize(("suffix", "compression"), LAYOUTS)
def test_windows_equal_those_of_the_local_store(
    stores: Callable[[str, str], Path],
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
    compression: str,
) -> None:
    """In every layout; opening takes four requests at most, a batch one for each file or fewer."""
    store = stores(suffix, compression)
    url = uploaded(server, store)
    server.forget()
    local, remote = opened(store), opened(url)
    assert len(server.requests) <= 4
    assert remote.mapped is None
    assert (remote.identity, str(remote.path)) == (local.identity, url)
    windows = [31, 2, 2, 17, 5]
    server.forget()
    assert equal(remote.batch(windows), local.batch(windows))
    num_shards = -(-FRAMES // (CHUNK_FRAMES * SHARD_CHUNKS)) if suffix == ".zarr" else 1
    assert 0 < len(server.requests) <= num_shards
    server.forget()
    assert equal(remote.batch(windows), local.batch(windows))
    assert not server.requests
    # Neither far ahead nor over chunks that are not wanted: at most a request for each chunk.
    monkeypatch.setattr(chunk_io, "GAP_BYTES", 0)
    monkeypatch.setattr(chunk_io, "RUN_BYTES", 0)
    remote = opened(url, cache_bytes=0)
    touched = {row // CHUNK_FRAMES for row in (*range(31 + 3, 31 + 7), *range(2, 6))}
    server.forget()
    assert equal(remote.batch([31, 2]), local.batch([31, 2]))
    assert len(server.requests) <= len(touched)
    assert remote.window(3) == local.window(3)


@given(st.data())
def test_runs_join_what_is_near(data: st.DataObject) -> None:
    """Runs are all chunks in order; each is of one file, small, without a large gap, and as long as
    it may be."""
    sizes = st.integers(1, chunk_io.RUN_BYTES // 3)
    number = data.draw(st.integers(1, 12))
    places, end, file = [], 0, 0
    for _ in range(number):
        if data.draw(st.booleans()) and data.draw(st.booleans()):
            file, end = file + 1, 0
        offset = end + data.draw(st.integers(0, 2 * chunk_io.GAP_BYTES))
        size, trailer = data.draw(sizes), data.draw(st.sampled_from([0, 4]))
        places.append(ChunkPlace(PurePosixPath(str(file)), offset, size, trailer))
        end = offset + size + trailer
    numbers = sorted(data.draw(st.sets(st.integers(0, number - 1))))
    found = runs(SimpleNamespace(place=places.__getitem__), numbers)
    assert [each for run in found for each in run] == numbers

    def span(run: list[int]) -> int:
        last = places[run[-1]]
        return last.offset + last.nbytes + last.trailer_bytes - places[run[0]].offset

    def may_join(one: int, two: int, run: list[int]) -> bool:
        first, second = places[one], places[two]
        gap = second.offset - (first.offset + first.nbytes + first.trailer_bytes)
        return (
            first.path == second.path
            and gap <= chunk_io.GAP_BYTES
            and span([run[0], two]) <= chunk_io.RUN_BYTES
        )

    few = runs(SimpleNamespace(place=places.__getitem__), numbers, most_chunks=2)
    assert [each for run in few for each in run] == numbers
    assert all(len(run) <= 2 for run in few)
    for run in found:
        assert all(may_join(a, b, run) for a, b in pairwise(run))
    assert not any(may_join(a[-1], b[0], a) for a, b in pairwise(found))


def test_columns_are_read_at_once(
    stores: Callable[[str, str], Path],
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One request for many pieces of a column, not one for each; they are cut apart again."""
    frames = stores(".zarr", "zstd").parent / "frames"
    monkeypatch.setattr("framewin.remote.TAIL_BYTES", 64)
    monkeypatch.setattr("framewin.stores.record.PIECE_ROWS", 2)
    store = tmp_path / "pieces.zarr"
    convert(frames, store, chunk_frames=CHUNK_FRAMES)
    local, remote = open_store(store), open_store(uploaded(server, store))
    for rows, requests in ((range(FRAMES), 1), ([39, 0, 1, 20, 21, 3], 3)):
        server.forget()
        wanted = np.array(rows)
        assert remote.source_files(wanted) == local.source_files(wanted)
        assert len(server.requests) == requests
    server.forget()
    server.fault = lambda request: "flip" if request.number == 1 else None
    assert remote.source_files(np.arange(FRAMES)) == local.source_files(np.arange(FRAMES))
    server.forget()
    assert list(remote.check_rest(1)) == []
    assert sum(request.key.endswith(".record") for request in server.requests) <= 1


@given(st.lists(st.integers(1, 50), min_size=1), st.data())
def test_spans_join_neighbours(sizes: list[int], data: st.DataObject) -> None:
    """They are all pieces in order, each as many bytes as it may be."""
    bounds = np.cumsum([7, *sizes]).tolist()
    numbers = sorted(data.draw(st.sets(st.integers(0, len(sizes) - 1))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("framewin.stores.record.REQUEST_BYTES", 60)
        found = list(record.spans(numbers, bounds))
    assert [number for span in found for number in range(*span)] == numbers
    for first, end in found:
        assert end == first + 1 or sum(sizes[first:end]) <= 60
    for (first, end), (begin, _) in pairwise(found):
        assert begin > end or sum(sizes[first : begin + 1]) > 60


def test_few_decoded_chunks_are_held() -> None:
    """Of a long run, each chunk is let go of once its frames are copied."""
    pixels = np.random.default_rng(0).integers(0, 256, (90, 4, 5, 1), np.uint8)
    decoded_ones: list[weakref.ref[np.ndarray]] = []
    most = [0]

    def decode(number: int) -> np.ndarray:
        frames = pixels[number * 3 : number * 3 + 3].copy()
        decoded_ones.append(weakref.ref(frames))
        most[0] = max(most[0], sum(one() is not None for one in decoded_ones))
        return frames

    frames = ChunkedFrames(
        decode,
        FrameFormat(4, 5, 1, "uint8"),
        90,
        chunk_frames=3,
        cache_bytes=0,
        workers=1,
        in_runs=RunReader(lambda numbers: [numbers], lambda run: map(decode, run)),
    )
    rows = np.arange(89, -1, -2)
    assert np.array_equal(frames.take(rows), pixels[rows])
    copied = np.zeros_like(pixels)

    def sink(row: int, decoded: np.ndarray) -> None:
        copied[row : row + len(decoded)] = decoded

    assert list(frames.each_chunk([(0, 90)], sink)) == [90]
    assert np.array_equal(copied, pixels)
    assert most[0] <= 2


@pytest.mark.usefixtures("small_shards")
def test_caches(stores: Callable[[str, str], Path], server: Server, tmp_path: Path) -> None:
    """They are filled by one pass over the chunks of the clips used, or used as they are."""
    store = stores(".zarr", "zstd")
    url = uploaded(server, store)
    local = opened(store)
    server.forget()
    cached = opened(url, cache="memory", clips=["b"])
    # The first shard has frames of a only.
    assert sum("frames/c/" in request.key for request in server.requests) <= 3
    assert equal(cached.batch(range(len(cached))), opened(store, clips=["b"]).batch(range(17)))
    opened(url, cache=tmp_path / "cache")
    server.forget()
    cached = opened(url, cache=tmp_path / "cache")
    assert equal(cached.batch(range(34)), local.batch(range(34)))
    assert all(request.key.endswith("framewin.record") for request in server.requests)


def test_pickles(stores: Callable[[str, str], Path], server: Server) -> None:
    """Another process opens the URL by itself, with the same settings."""
    store = stores(".zarr", "zstd")
    local = opened(store)
    url = uploaded(server, store)
    remote = opened(url, storage_options={"endpoint": server.url})
    assert equal(pickle.loads(pickle.dumps(remote)).batch([3]), local.batch([3]))
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert equal(pool.submit(FrameWindowDataset.batch, remote, [3, 30]).result(),
                     local.batch([3, 30]))  # fmt: skip


def test_a_forked_process_is_told(
    stores: Callable[[str, str], Path], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait forever for threads that are not there."""
    remote = opened(uploaded(server, stores(".zarr", "zstd")))
    monkeypatch.setattr("framewin.remote._started_in", os.getpid() + 1)
    with pytest.raises(StoreError, match=r'forked .* start workers with "spawn", or use open_'):
        remote.batch([0])


FAULTS = ["drop", "short", "flip", "500", "503"]


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_survived(
    stores: Callable[[str, str], Path], server: Server, fault: str
) -> None:
    """A connection that breaks, a body cut short, a wrong byte, a server that is busy."""
    store = stores(".zarr", "gzip")
    url = uploaded(server, store)
    remote = opened(url)
    server.forget()
    times = 3 if fault.isdigit() else 1

    def first_ones(request: Request) -> str | None:
        return fault if request.number <= times else None

    server.fault = first_ones
    assert equal(remote.batch([3]), opened(store).batch([3]))
    assert len(server.requests) > times


@pytest.mark.parametrize(("suffix", "compression"), [(".zarr", "zstd"), (".h5", "gzip")])
def test_a_first_contact_with_wrong_bytes(
    stores: Callable[[str, str], Path], server: Server, suffix: str, compression: str
) -> None:
    """What came with it is asked for again, not taken from memory once more."""
    store = stores(suffix, compression)
    url = uploaded(server, store)
    server.forget()
    server.fault = lambda request: "flip" if request.number == 1 else None
    remote, local = opened(url), opened(store)
    assert [remote.window(n) for n in (0, 33)] == [local.window(n) for n in (0, 33)]
    assert equal(remote.batch(range(34)), local.batch(range(34)))
    server.forget()
    met: set[str] = set()

    def at_first(request: Request) -> str | None:
        first = request.key not in met
        met.add(request.key)
        return "flip" if first else None

    server.fault = at_first
    assert verify(url).damage == []


def test_a_line_that_is_slower_than_the_timeout(
    stores: Callable[[str, str], Path], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is asked for, from the byte that was reached; once it ended the reading."""
    monkeypatch.setattr("framewin.remote.TIMEOUT_SECONDS", 1)
    store = stores(".zarr", "gzip")
    remote = opened(uploaded(server, store))
    server.forget()
    server.fault = lambda request: "stall" if request.number == 1 else None
    assert equal(remote.batch([3]), opened(store).batch([3]))
    first, second = server.requests
    assert second.key == first.key
    assert (second.begin or 0) > (first.begin or 0)


def test_a_server_that_is_busy_when_opening(
    stores: Callable[[str, str], Path], server: Server
) -> None:
    """The first contact is tried again, too, but not for long."""
    url = uploaded(server, stores(".zarr", "gzip"))
    server.fault = lambda request: "503" if request.number <= 3 else None
    assert len(opened(url)) == 34
    server.fault = lambda request: "503"
    with pytest.raises(StoreError, match=r"cannot be read \(503 Service Unavailable\); try again"):
        opened(url)


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize(("suffix", "compression"), [(".zarr", "zstd"), (".h5", "none")])
def test_verify(
    stores: Callable[[str, str], Path], server: Server, suffix: str, compression: str
) -> None:
    """Every byte is checked where it is; `full` is refused."""
    store = stores(suffix, compression)
    url = uploaded(server, store)
    found, expected = verify(url), verify(store)
    assert (found.damage, found.num_bytes) == ([], expected.num_bytes)
    server.forget()
    assert verify(url, quick=True).damage == []
    assert server.body_bytes < expected.num_bytes
    with pytest.raises(
        ValueError, match="full reads by zarr or h5py, not from s3://frames/some/pl"
    ):
        verify(url, full=True)


@pytest.mark.usefixtures("small_shards")
def test_verify_of_many_objects(
    stores: Callable[[str, str], Path], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that has answered may be busy for long, and few ends of objects are kept."""
    monkeypatch.setattr("framewin.remote.TAILS_KEPT", 3)
    url = uploaded(server, stores(".zarr", "zstd"))
    busy = [4]

    def at_first_contact(request: Request) -> str | None:
        first = request.key.endswith("frames/c/2/0/0/0") and request.begin is None
        busy[0] -= first
        return "503" if first and busy[0] >= 0 else None

    server.fault = at_first_contact
    path = location(url)
    assert isinstance(path, RemotePath)
    assert verify(path).damage == []
    assert busy[0] < 0
    names = [f"frames/c/{shard}/0/0/0" for shard in range(4)]
    assert sum((path / name).size() for name in names) > FRAMES * SHAPE[0] * SHAPE[1]
    assert len(path.bucket._tails) == 3


@pytest.mark.usefixtures("small_shards")
def test_what_may_not_be_read(stores: Callable[[str, str], Path], server: Server) -> None:
    """Some services deny what is not there: of two names the other is tried, and `verify` goes
    on."""
    store = stores(".h5", "gzip")
    server.put("some/place/clips", store.read_bytes())
    server.fault = lambda request: "403" if request.key.endswith(".record") else None
    url = f"s3://{BUCKET}/some/place/clips"
    assert equal(opened(url).batch([3]), opened(store).batch([3]))
    with pytest.raises(StoreError, match=re.escape(f"{url}x/framewin.record: access was denied")):
        opened(f"{url}x")
    url = uploaded(server, stores(".zarr", "zstd"))
    shard = "frames/c/1/0/0/0"
    server.fault = lambda request: "403" if request.key.endswith(shard) else None
    assert verify(url).damage == [
        "frames 12 to 23 are damaged (a 12 to b 3)",
        f"{url}/{shard} is missing, or access to it is denied",
    ]


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize("fault", ["flip", "short"])
def test_damage_names_the_chunk(
    stores: Callable[[str, str], Path], server: Server, fault: str
) -> None:
    """Bytes that stay wrong are never frames: reading, verifying and caching say which they are."""
    store = stores(".zarr", "gzip")
    url = uploaded(server, store)
    shard = "frames/c/1/0/0/0"
    data = bytearray((store / shard).read_bytes())
    if fault == "flip":
        data[5] ^= 1
    else:
        del data[-500:]
    server.put(f"some/place/{store.name}/{shard}", bytes(data))
    frames = {"flip": "frames 12 to 14", "short": "frames 21 to 23"}[fault]
    message = f"{url}/{shard} is damaged: not what was written in {frames}; upload it again"
    with pytest.raises(StoreError, match=re.escape(message)):
        opened(url, cache="memory")
    damage = verify(url).damage
    assert damage[0] == f"{frames} are damaged (a 12 to a 14)".replace(
        "(a 12 to a 14)", {"flip": "(a 12 to a 14)", "short": "(b 1 to b 3)"}[fault]
    )
    server.delete(f"some/place/{store.name}/{shard}")
    assert f"{url}/{shard} is missing" in verify(url).damage
    with pytest.raises(StoreError, match=re.escape(f"{url}/{shard} does not exist")):
        opened(url).batch([12])


@pytest.mark.usefixtures("small_shards")
def test_an_object_that_changes(stores: Callable[[str, str], Path], server: Server) -> None:
    """Bytes of two versions are never mixed."""
    store = stores(".h5", "none")
    url = uploaded(server, store)
    remote = opened(url, cache_bytes=0)
    remote.batch([0])
    server.put(f"some/place/{store.name}", store.read_bytes() + b"more")
    with pytest.raises(StoreError, match="changed while it was read; begin again"):
        remote.batch([0])


ERRORS = {
    "frames/none.zarr": "s3://frames/none.zarr does not exist, or was not made by framewin convert",
    "nobucket/x.zarr": "there is no bucket 'nobucket'; check its name and the endpoint",
    "frames/text.h5": "s3://frames/text.h5 is neither a folder of Zarr nor a file of HDF5",
    "frames/empty.h5": "s3://frames/empty.h5 is empty; expected a store made by framewin convert",
    "frames/text.zarr": "s3://frames/text.zarr/framewin.record is damaged or cut short",
}


@pytest.mark.parametrize("key", ERRORS)
def test_what_is_no_store(server: Server, key: str) -> None:
    """One line, with what is there or not."""
    server.put("text.h5", b"text" * 50)
    server.put("empty.h5", b"")
    server.put("text.zarr/framewin.record", b"text" * 50)
    with pytest.raises(StoreError, match=re.escape(ERRORS[key])):
        opened(f"s3://{key}")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"endpoint": "http://127.0.0.1:9"}, "its host does not answer; check the URL, the end"),
        ({"endpoint": "http://host.invalid"}, "its host is not known; check the URL and the end"),
        ({"endpoint": "http://127.0.0.1:9", "allow_http": "false"}, "set AWS_ALLOW_HTTP=true"),
        ({"nonsense": "1"}, "s3://frames cannot be opened: Configuration key: 'nonsense' is not"),
        ({"timeout": "soon"}, 'failed to parse "soon" as Duration; check storage_options, whose'),
    ],
)
def test_settings_that_lead_nowhere(server: Server, options: dict[str, str], error: str) -> None:
    """The line says which setting to look at."""
    with pytest.raises((StoreError, ValueError), match=re.escape(error)):
        opened(f"s3://{BUCKET}/x.zarr", storage_options=options)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("403", "denied, or there is no such object (403 Forbidden); set AWS_ACCESS_KEY_ID and"),
        ("301", "this normally indicates an incorrectly configured region); try again"),
        ("400", "cannot be read (400 Bad Request); try again"),
    ],
)
def test_what_a_server_answers(server: Server, status: str, error: str) -> None:
    """The answer in a few words, and what to try."""
    server.fault = lambda request: status
    with pytest.raises(StoreError, match=re.escape(error)):
        opened(f"s3://{BUCKET}/x.zarr")


def test_no_credentials(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a machine in a cloud are asked for last; where there are none, they are named."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    # In place of the address at which such a machine would be told its own.
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    message = "found no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP"
    with pytest.raises(StoreError, match=message):
        opened(f"s3://{BUCKET}/x.zarr")
    with pytest.raises(StoreError, match="does not exist, or was"):
        opened(f"s3://{BUCKET}/x.zarr", storage_options={"skip_signature": True})


def test_other_ways_to_the_same_objects(
    stores: Callable[[str, str], Path], server: Server, tmp_path: Path
) -> None:
    """Plain HTTP, and Google's service as obstore asks it."""
    store = stores(".zarr", "zstd")
    key = server.upload(store)
    account = {"gcs_base_url": server.url, "disable_oauth": True}
    account |= dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    (tmp_path / "account.json").write_text(json.dumps(account))
    google = {"service_account": str(tmp_path / "account.json"), "allow_http": "true"}
    expected = opened(store).batch([1, 30])
    assert equal(opened(f"{server.url}/{BUCKET}/{key}").batch([1, 30]), expected)
    remote = opened(f"gs://{BUCKET}/{key}", storage_options=google)
    assert equal(remote.batch([1, 30]), expected)
    server.fault = lambda request: "200" if request.method == "GET" else None
    with pytest.raises(StoreError, match="its server sends whole files only, but parts of them"):
        opened(f"{server.url}/{BUCKET}/{key}")


def test_a_url_with_blanks(
    stores: Callable[[str, str], Path], server: Server, tmp_path: Path
) -> None:
    """It is asked for as it is written; once it was encoded again, and found nothing."""
    store = stores(".h5", "gzip")
    server.upload(store, "my%20data/")
    url = f"{server.url}/{BUCKET}/my%20data/{store.name}"
    remote = opened(url)
    assert equal(remote.batch([1, 30]), opened(store).batch([1, 30]))
    assert str(remote.path) == url
    assert equal(pickle.loads(pickle.dumps(remote)).batch([2]), opened(store).batch([2]))
    with pytest.raises(StoreError, match=re.escape(f"{server.url}/{BUCKET}/my%20data/x.h5 does")):
        opened(f"{server.url}/{BUCKET}/my%20data/x.h5")


@pytest.mark.parametrize(
    ("url", "scheme", "name", "key"),
    [
        ("s3://bucket/clips.zarr", "s3", "bucket", "clips.zarr"),
        ("S3://bucket/a/b c/clips.zarr/", "s3", "bucket", "a/b c/clips.zarr"),
        ("gs://bucket/a#1.h5", "gs", "bucket", "a#1.h5"),
        ("http://host:8080/a/clips.zarr", "http", "host:8080", "a/clips.zarr"),
        ("https://host/clips.h5", "https", "host", "clips.h5"),
        ("https://host/my%20data/100%25+@/a.h5", "https", "host", "my data/100%+@/a.h5"),
        ("https://host/%C3%BC%3F%23/a.h5/", "https", "host", "\u00fc?#/a.h5"),
        ("s3://bucket/my%20data/a.h5", "s3", "bucket", "my%20data/a.h5"),
    ],
)
def test_urls(url: str, scheme: str, name: str, key: str) -> None:
    """They are taken apart and put together again, also by pickle."""
    found = location(url)
    assert isinstance(found, RemotePath)
    assert (found.bucket.scheme, found.bucket.name, found.key) == (scheme, name, key)
    assert str(found) == f"{scheme}{url[len(scheme) :]}".rstrip("/")
    path = Path(key)
    assert (found.name, found.stem, found.suffix) == (path.name, path.stem, path.suffix)
    assert str(found / "c/0") == f"{found}/c/0"
    assert pickle.loads(pickle.dumps(found)) == found == found.absolute() == found.resolve()
    assert not found.is_symlink()
    assert len({found, location(url)}) == 1


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("ftp://host/x.zarr", "ftp:// is not supported; use s3://, gs://, http://, https:// or a"),
        ("s3://bucket", "s3://bucket names no store; write s3://BUCKET/PATH/clips.zarr"),
        ("s3://bucket/a/../b", "names no store"),
        ("s3://bucket//b", "names no store"),
        ("https://me:word@host/x.zarr", "a query, a password or blanks cannot be read"),
        ("https://host/x.zarr?key=1", "a query, a password or blanks cannot be read"),
        ("https://host/my data/x.zarr", "in a path, write %20 for a blank"),
        ("https://host/%2E%2E/x.zarr", "names no store"),
        ("https://host/%FF.zarr", "what follows a % is not UTF-8; encode the path as UTF-8"),
        (Path("s3://bucket/x.zarr"), "s3:/bucket/x.zarr was a URL; give URLs as text, Path(...)"),
    ],
)
def test_urls_that_cannot_be(path: str | Path, error: str) -> None:
    """The line says what is allowed."""
    with pytest.raises(ValueError, match=re.escape(error)):
        opened(path)


def test_options_without_a_url(tmp_path: Path) -> None:
    """They would mean nothing."""
    with pytest.raises(ValueError, match="storage_options are for URLs, got them with"):
        opened(tmp_path / "x.zarr", storage_options={"endpoint": "x"})


def test_places_on_this_machine(
    stores: Callable[[str, str], Path], server: Server, tmp_path: Path
) -> None:
    """Where only a path will do, a URL is refused; a split is kept where it is told to be."""
    store = stores(".zarr", "zstd")
    url = uploaded(server, store)
    remote = opened(url)
    other = f"s3://{BUCKET}/x"
    refused: list[Callable[[], object]] = [
        lambda: convert(url, tmp_path / "x.zarr"),
        lambda: convert(tmp_path, f"{other}.zarr"),
        lambda: opened(url, cache=other),
        lambda: opened(url, array="frames"),
        lambda: remote.split(train=0.5, test=0.5).save(other),
        lambda: refuse_url(Path(url), "no"),
        lambda: plan(url),
    ]
    for call in refused:
        with pytest.raises(StoreError, match=r"s3://frames/\S+ is a URL; "):
            call()
    parts = remote.split(train=0.5, test=0.5)
    for call in (parts.save, lambda: opened(url, split="train")):
        with pytest.raises(StoreError, match="is remote, so no split is kept beside it; name a fi"):
            call()
    parts.save(tmp_path / "split.json")
    again = opened(url, split=SplitPart("train", tmp_path / "split.json"))
    assert equal(again.batch(range(5)), parts["train"].batch(range(5)))


def test_a_run_of_a_remote_store(
    stores: Callable[[str, str], Path], server: Server, tmp_path: Path
) -> None:
    """A run remembers the URL, and forecasts with its settings."""
    import_or_skip("tensorflow")
    from framewin import predict
    from framewin.forecast.runs import load_run
    from framewin.forecast.settings import TrainSettings
    from framewin.forecast.train import train

    store = stores(".zarr", "zstd")
    url = uploaded(server, store)
    run = make_run(tmp_path / "run", url, {"train": 0.5, "test": 0.5})
    [batch] = opened(url).to_tf_dataset(batch_size=34).as_numpy_iterator()
    assert equal(batch, opened(store).batch(range(34)))
    found = load_run(run)
    assert str(found.store) == url
    assert equal(found.dataset("test").batch([0]), load_run(run).dataset("test", None).batch([0]))
    assert len(found.dataset(None, store)) == len(found.dataset(None))
    frames = store.parent / "frames"
    assert predict(run, frames, out=tmp_path / "next.zarr").forecasts == 2
    with pytest.raises(StoreError, match="framewin fetch brings it to this machine"):
        predict(run, url, out=tmp_path / "other.zarr")
    with pytest.raises(StoreError, match="a run is written to this machine, give --out a path"):
        train(url, "s3://frames/run", TrainSettings())


def test_the_command_line(
    stores: Callable[[str, str], Path], server: Server, tmp_path: Path
) -> None:
    """URLs and settings are taken as they are; mistakes are one line."""
    store = stores(".zarr", "zstd")
    url = uploaded(server, store)
    done = framewin("info", url, "--json", "--storage-option", f"endpoint={server.url}")
    found, expected = json.loads(done.stdout), json.loads(framewin("info", store, "--json").stdout)
    assert found == {**expected, "path": url}
    done = framewin("info", url, "--storage-option", "secret")
    assert done.returncode == 2
    assert "--storage-option must be KEY=VALUE, got 'secret'" in done.stderr
    done = framewin("verify", url + "x")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"framewin: {url}x does not exist, or was not made by framewin convert"
    )
    done = framewin("split", url, "--part", "train=0.5", "--part", "test=0.5", "--out",
                    tmp_path / "split.json")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert open_store(store).identity in (tmp_path / "split.json").read_text()
    for command in (["convert", tmp_path, url], ["show", url, "--out", "s3://frames/x.png"]):
        done = framewin(*command)
        assert done.returncode == 1
        assert re.fullmatch(r"framewin: s3://frames/\S+ is a URL; .*\n", done.stderr)
