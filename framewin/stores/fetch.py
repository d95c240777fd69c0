"""Bringing a store from an object store to this machine, whole.

It is built like a conversion, in `DST.partial`, and renamed when every byte of it was verified. A
store consists of parts: runs of chunks, whose checksums stand in its record; files with a checksum
there; and the rest, which is little. A fetch that is repeated checks the parts that are there and
asks for those that are not right, so nothing needs to be remembered but what is fetched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, cast

import google_crc32c

from framewin.errors import MissingObjectError, StoreError, one_line
from framewin.parallel import ordered_map
from framewin.remote import REQUEST_BYTES, RemotePath, location, refuse_url
from framewin.schema import Progress
from framewin.stores import Store, durable, num_bytes, open_store
from framewin.stores.chunk_io import (
    REQUESTS_AT_ONCE,
    RUN_BYTES,
    ChunkPlace,
    ChunkRun,
    frame_range,
    read_place,
    runs,
)
from framewin.stores.chunked_frames import pieces
from framewin.stores.verify import verify

BLOCK_BYTES = 512
"""Unit in which file systems say what a file takes."""
TRIES = 2
"""How often bytes are asked for that are not what the record says."""


@dataclass(frozen=True, slots=True)
class FetchReport:
    """A store that was fetched."""

    path: Path
    url: str
    num_bytes: int
    """Of the store."""
    kept_bytes: int
    """That an interrupted fetch had brought before."""
    seconds: float


@dataclass(frozen=True, slots=True)
class _Part:
    """Bytes [begin, end) of a file of the store."""

    file: str
    begin: int
    end: int
    check: Callable[[bytes], str] | None = None
    """What of the bytes is not what was written, in words; None where the record has no checksum of
    these alone."""


class _StoppedError(StoreError):
    """A part is not asked for any more, because the fetch has failed or was interrupted."""


def fetch(
    url: str,
    dest: str | Path,
    *,
    storage_options: Mapping[str, Any] | None = None,
    workers: int | None = None,
    restart: bool = False,
    progress: Progress | None = None,
) -> FetchReport:
    """Bring a store to this machine, verify every byte of it, and put it in its place.

    An interrupted fetch goes on when it is repeated: what is there is checked against the
    checksums of the store's record, and kept.

    Args:
        url: Of a store, as for `framewin.open_frames`.
        dest: The store to make.
        storage_options: As for `framewin.open_frames`.
        workers: Requests at a time; by default 16.
        restart: Begin anew, whatever an interrupted fetch has left.
        progress: Called with (bytes done, bytes in all).

    Raises:
        StoreError: No store there, or it cannot be read, is damaged, or has changed; `dest`
            exists, is being made by another process, or there is too little room.
        ValueError: No URL.
        MissingDependencyError: obstore is not installed.
    """
    started = time.perf_counter()
    source = location(url, storage_options)
    if not isinstance(source, RemotePath):
        raise ValueError(
            f"fetch takes the URL of a store, such as s3://bucket/clips.zarr, got {url}"
        )
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be >= 1, got {workers}")
    refuse_url(dest, "a store is fetched to this machine, give a path")
    dest = Path(dest)
    durable.check_new(dest)
    store = open_store(source, cache_bytes=0)
    try:
        with durable.building(dest, resumes=True) as site:
            resumed = _begin(site, store, restart=restart)
            root = site.frames / durable.STORE
            _make_files(root, store)
            workers = workers or REQUESTS_AT_ONCE
            parts = list(_parts(store))
            kept = _bring(store, root, parts, resumed, workers, progress)
            _check_whole(store, root, [part for part in parts if part.check is None], workers)
            durable.move(root, site.store)
    except OSError as exc:
        raise StoreError(
            f"{dest} cannot be written: {one_line(exc)}; what was fetched is kept, repeat "
            "the command to go on"
        ) from exc
    return FetchReport(
        dest, str(source), num_bytes(store), kept, seconds=time.perf_counter() - started
    )


def _begin(site: durable.Site, store: Store, *, restart: bool) -> bool:
    """Take up what is there, or begin anew; returns whether something is there."""
    sizes = {name: size for name, (size, _) in store.files.items()}
    plan = {"fetch": {"identity": store.identity, "files": sizes}}
    previous = site.plan()
    site.keep = previous is not None
    previous = None if restart else previous
    if previous is not None and "fetch" not in previous:
        raise StoreError(
            f"{site.folder} holds another unfinished work than a fetch; repeat its command to go "
            "on with it, or use restart=True to begin anew"
        )
    if previous is not None and previous != plan:
        raise StoreError(
            f"{store.path} is not the store that {site.folder} holds a part of: it has changed, "
            "or is another; use restart=True to begin anew"
        )
    resumed = previous is not None
    # What is not kept is cleared away before anything is brought.
    durable.check_room(site.dest, num_bytes(store) - _taken(site.folder))
    site.begin(plan, resume=resumed)
    site.keep = True
    return resumed


def _taken(folder: Path) -> int:
    """Bytes that files below a folder take on disk."""
    return sum(path.stat().st_blocks * BLOCK_BYTES for path in folder.rglob("*") if path.is_file())


def _make_files(root: Path, store: Store) -> None:
    """Every file of the store in its size, with what an interrupted fetch has brought."""
    for name, (size, _) in store.files.items():
        path = root / name if name else root
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.DataFile(path, size).close()


def _bring(
    store: Store,
    root: Path,
    parts: list[_Part],
    resumed: bool,
    workers: int,
    progress: Progress | None,
) -> int:
    """Fetch parts that are not there; returns how many bytes were."""
    total, done, kept = sum(part.end - part.begin for part in parts), 0, 0
    stop = Event()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="framewin-fetch")
    try:
        bring = partial(_bring_part, store, root, resumed, stop)
        brought = ordered_map(pool, bring, parts, max(1, len(parts)))
        for part, was_there in zip(parts, brought, strict=True):
            size = part.end - part.begin
            kept += size if was_there else 0
            done += size
            if progress is not None:
                progress(done, total)
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
    return kept


def _bring_part(store: Store, root: Path, resumed: bool, stop: Event, part: _Part) -> bool:
    """Fetch and write a part; whether it was there already."""
    size = part.end - part.begin
    if resumed and part.check is not None:
        place = ChunkPlace(_file(root, part), part.begin, size)
        if not part.check(read_place(place)):
            return True
    data = _fetched(store, part, stop)
    file = durable.DataFile(_file(root, part))
    try:
        file.write_at(data, part.begin)
    finally:
        file.close()
    return False


def _file(root: Path, part: _Part) -> Path:
    return root / part.file if part.file else root


def _path(store: Store, part: _Part) -> RemotePath:
    return cast(RemotePath, store.path / part.file if part.file else store.path)


def _fetched(store: Store, part: _Part, stop: Event) -> bytes:
    """The bytes of a part, which are those of the record where it has a checksum of them."""
    path = _path(store, part)
    wrong = ""
    for _ in range(TRIES):
        try:
            data = _read(path, part, stop)
        except MissingObjectError:
            _check_same(store)
            raise StoreError(f"{path} is missing; upload the store again") from None
        wrong = f"bytes {part.begin:,} to {part.end:,}"
        if len(data) == part.end - part.begin:
            wrong = part.check(data) if part.check is not None else ""
        if not wrong:
            return data
        path.forget()
    _check_same(store)
    raise StoreError(f"{path} is damaged: not what was written in {wrong}; upload the store again")


def _read(path: RemotePath, part: _Part, stop: Event) -> bytes:
    data = []
    for first, last in pieces(part.end - part.begin, REQUEST_BYTES):
        if stop.is_set():
            raise _StoppedError
        data.append(path.read(part.begin + first, part.begin + last))
    return b"".join(data)


def _check_same(store: Store) -> None:
    """Refuse a store that was replaced by another since it was opened."""
    again = location(cast(RemotePath, store.path))
    found = open_store(again, cache_bytes=0)
    if found.identity != store.identity:
        raise StoreError(
            f"{store.path} changed while it was fetched; use restart=True to begin anew"
        )


def _parts(store: Store) -> Iterator[_Part]:
    """All bytes of the store, each in one part."""
    chunk_parts = _chunk_parts(store)
    for name, (size, crc32c) in store.files.items():
        if crc32c is not None:
            yield _Part(name, 0, size, _has_checksum(size, crc32c))
            continue
        begin = 0
        for part in [*chunk_parts.pop(name, []), _Part(name, size, size)]:
            for first, last in pieces(part.begin - begin, RUN_BYTES):
                yield _Part(name, begin + first, begin + last)
            if part.end > part.begin:
                yield part
            begin = part.end


def _chunk_parts(store: Store) -> dict[str, list[_Part]]:
    """Runs of chunks, by file, in the order in which they lie there."""
    numbers = list(range(len(store.chunks["crc32c"])))
    names = {store.path / name if name else store.path: name for name in store.files}
    found: dict[str, list[_Part]] = {}
    for run in runs(store, numbers, gap_bytes=0):
        first, last = store.place(run[0]), store.place(run[-1])
        end = last.offset + last.nbytes + last.trailer_bytes
        name = names[first.path]
        part = _Part(name, first.offset, end, _has_chunks(store, run, first.offset))
        found.setdefault(name, []).append(part)
    for parts in found.values():
        parts.sort(key=lambda part: part.begin)
    return found


def _has_checksum(size: int, crc32c: int) -> Callable[[bytes], str]:
    return lambda data: "" if google_crc32c.value(data) == crc32c else f"bytes 0 to {size:,}"


def _has_chunks(store: Store, run: list[int], begin: int) -> Callable[[bytes], str]:
    def wrong(data: bytes) -> str:
        found = ChunkRun(store, run, begin, data).wrong(trailers=True)
        return frame_range(store, found[0]) if found else ""

    return wrong


def _check_whole(store: Store, root: Path, unchecked: list[_Part], workers: int) -> None:
    """Refuse a store of which any byte is not what was written.

    Parts without a checksum of their own are asked for once more, like the others before.
    """
    told = _damage(root)
    if told:
        for part in unchecked:
            _path(store, part).forget()
        _bring(store, root, unchecked, False, workers, None)
        told = _damage(root)
    if told:
        told = told.replace(str(root), str(store.path))
        raise StoreError(
            f"{store.path} is damaged, or changed while it was fetched: {told}; upload it again"
        )


def _damage(root: Path) -> str:
    """What is wrong with a store that was brought, in words; nothing if all is well."""
    try:
        damage = verify(root).damage
    except StoreError as exc:
        # What is to be done is another thing than with a store that was made here.
        return str(exc).partition("; ")[0]
    more = f", and {len(damage) - 1} more" if len(damage) > 1 else ""
    return f"{damage[0]}{more}" if damage else ""
