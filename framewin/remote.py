"""Objects in an object store, by URL, and what reading a store uses of `pathlib.Path`.

`location` decides once whether a path is a URL. What reads a store then asks a path for its size
and for bytes from here to there; where these come from is decided in two functions of
`framewin.stores.chunk_io`.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote, unquote

from framewin.errors import DeniedObjectError, MissingObjectError, StoreError, one_line
from framewin.optional import require

SCHEMES = ("s3", "gs", "http", "https")
_BUCKET_SCHEMES = ("s3", "gs")

TAIL_BYTES = 2**16
"""Read of an object on first contact, together with its size: records stand at the end."""
TAILS_KEPT = 64
"""Of the objects met last: the rest of them is soon asked for, or never."""
REQUEST_BYTES = 2**24
"""Most bytes of one request, so that little is asked for again where one fails."""
FIRST_RETRIES, LATER_RETRIES = 3, 10
"""Retries of requests: few on first contact, when a name may be wrong; many amid work."""
TIMEOUT_SECONDS = 60
"""For one answer with its body. What a slow line has not brought by then is asked for in a retry,
from the byte that was reached, if the server tells versions of an object apart (by ETag)."""
LATER_TIMEOUTS = 5
"""Timeouts' time within which retries amid work begin; on first contact it is one."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)
# What Path makes of a URL.
_COLLAPSED = re.compile(rf"({'|'.join(SCHEMES)}):/[^/]")
_STATUS = re.compile(r"status code: (\d+[A-Za-z ]*)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_CONNECT_TIMEOUT = "10s"
# What may stand in the path of a URL as it is, besides letters, digits and `_.-~`.
_PLAIN = "/!$&'()*+,;=:@"
_T = TypeVar("_T")

_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a "
    "public bucket",
    "gs": "set GOOGLE_SERVICE_ACCOUNT to a key file, or GOOGLE_SKIP_SIGNATURE=true for a public "
    "bucket",
}

_NO_RANGES = ("non-partial response", "Range request not supported")
_EXPLAINED = {
    # Where a cloud gives its machines credentials, which is asked when no others are found.
    ("/latest/api/token", "/latest/meta-data", "/computeMetadata/"): (
        "found no credentials; {credentials}"
    ),
    ("dns error",): "its host is not known; check the URL and the endpoint",
    ("connect error", "kind: Connect"): (
        "its host does not answer; check the URL, the endpoint and the network"
    ),
    ("BadScheme",): (
        "its endpoint is http, which is not encrypted; use https, or set AWS_ALLOW_HTTP=true"
    ),
}
"""What stands in an error of obstore -> what it means."""

_started_in: int | None = None
"""The process in which obstore was first used; its threads do not survive a fork."""


class Bucket:
    """A bucket, or a web server, and what is known of the objects in it."""

    def __init__(self, scheme: str, name: str, options: Mapping[str, Any]) -> None:
        """Connect to nothing yet.

        Args:
            scheme: One of `SCHEMES`.
            name: Of the bucket; or host and port.
            options: Settings of obstore's store, such as `endpoint` or `region`.
        """
        self.scheme = scheme
        self.name = name
        self.options = dict(options)
        self._sizes: dict[str, int] = {}
        self._tails: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._answered = False
        self._tags: dict[str, str] = {}
        self._stores: dict[int, Any] = {}

    def __str__(self) -> str:
        return f"{self.scheme}://{self.name}"

    def url(self, key: str) -> str:
        """The URL of an object: of a web server as it is asked for, of a bucket with the key."""
        plain = key if self.scheme in _BUCKET_SCHEMES else quote(key, safe=_PLAIN)
        return f"{self}/{plain}"

    def meet(self, key: str) -> int:
        """Size of an object, with which its last bytes come.

        Raises:
            MissingObjectError: There is none.
            DeniedObjectError: It may not be read.
            StoreError: It cannot be read.
        """
        with self._lock:
            known = self._sizes.get(key)
        if known is not None:
            return known
        retries = LATER_RETRIES if self._answered else FIRST_RETRIES
        size, tail = self._get(key, {"range": {"suffix": TAIL_BYTES}}, retries)
        with self._lock:
            self._sizes[key], self._tails[key] = size, tail
            if len(self._tails) > TAILS_KEPT:
                del self._tails[next(iter(self._tails))]
        return size

    def forget(self, key: str) -> None:
        """Ask for all of an object again, because what came of it was wrong."""
        with self._lock:
            self._sizes.pop(key, None)
            self._tails.pop(key, None)

    def read(self, key: str, begin: int, end: int) -> bytes:
        """Bytes [begin, end) of an object, fewer where it ends before.

        Raises:
            MissingObjectError: There is none.
            DeniedObjectError: It may not be read.
            StoreError: It cannot be read, or has changed since it was first read.
        """
        with self._lock:
            size, tail = self._sizes.get(key), self._tails.get(key, b"")
        if size is not None:
            end = min(end, size)
            first = size - len(tail)
            if begin >= first:
                return tail[begin - first : max(begin, end) - first]
        parts = []
        for first in range(begin, end, REQUEST_BYTES):
            last = min(first + REQUEST_BYTES, end)
            parts.append(self._get(key, {"range": (first, last)}, LATER_RETRIES)[1])
            if len(parts[-1]) < last - first:
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _get(self, key: str, options: Mapping[str, Any], retries: int) -> tuple[int, bytes]:
        """Size of an object, and the bytes of a range of it."""
        store = self._store(retries)
        try:
            found = self._explained(key, lambda: store.get(key, options=options))
        except _NoRangeError as exc:
            size = int(self._explained(key, lambda: store.head(key))["size"])
            if size and exc.unknown:
                raise
            return size, b""
        self._check_tag(key, found.meta["e_tag"])
        self._answered = True
        return int(found.meta["size"]), self._explained(key, lambda: self._body(key, found))

    def _body(self, key: str, found: Any) -> bytes:
        """The bytes of an answer, of which a server may send more than it says, without end."""
        begin, end = found.range
        pieces, left = [], end - begin
        for piece in found.stream(min_chunk_size=max(1, left)):
            left -= len(piece)
            if left < 0:
                raise StoreError(
                    f"{self.url(key)}: its server sends more than the {end - begin} bytes that it "
                    "was asked for; copy the store to this machine"
                )
            pieces.append(bytes(piece))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _check_tag(self, key: str, tag: str | None) -> None:
        if tag is not None and self._tags.setdefault(key, tag) != tag:
            raise StoreError(f"{self.url(key)} changed while it was read; begin again")

    def _store(self, retries: int) -> Any:
        _check_process(str(self))
        if retries not in self._stores:
            self._stores[retries] = self._connected(retries)
        return self._stores[retries]

    def _connected(self, retries: int) -> Any:
        stores = require("obstore.store", extra="remote")
        timeouts = LATER_TIMEOUTS if retries > FIRST_RETRIES else 1
        backoff = {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=5),
            "base": 2,
        }
        retry = {
            "max_retries": retries,
            "retry_timeout": timedelta(seconds=TIMEOUT_SECONDS * timeouts),
            "backoff": backoff,
        }
        settings = {
            "timeout": f"{TIMEOUT_SECONDS}s",
            "connect_timeout": _CONNECT_TIMEOUT,
            **self.options,
        }
        try:
            if self.scheme == "s3":
                return stores.S3Store(self.name, config=settings, retry_config=retry)
            if self.scheme == "gs":
                return stores.GCSStore(self.name, config=settings, retry_config=retry)
            client = {"allow_http": True, **settings}
            return stores.HTTPStore.from_url(str(self), client_options=client, retry_config=retry)
        # Of settings it raises its own errors, which are no ValueError, and some of Python's.
        except Exception as exc:
            raise ValueError(
                f"{self} cannot be opened: {_first_line(exc)}; check storage_options, whose names "
                "are those of obstore's stores, and the environment"
            ) from exc

    def _explained(self, key: str, call: Callable[[], _T]) -> _T:
        """The result of a call, or its error in one line that says what to try."""
        errors = require("obstore.exceptions", extra="remote")
        url = self.url(key).rstrip("/")
        try:
            return call()
        except FileNotFoundError as exc:
            if "NoSuchBucket" in str(exc):
                raise StoreError(
                    f"{url}: there is no bucket {self.name!r}; check its name and the endpoint"
                ) from exc
            raise MissingObjectError(f"{url} does not exist") from exc
        except (errors.BaseError, OSError) as exc:
            raise self._error(url, exc) from exc

    def _error(self, url: str, exc: Exception) -> StoreError:
        """An error of obstore in one line."""
        text = str(exc)
        status, code = _STATUS.search(text), _CODE.search(text)
        told = _first_line(exc).rpartition(" - ")[2]
        if code or status:
            told = code[1] if code else cast(re.Match[str], status)[1].strip()
        if status is not None and status[1].startswith("416"):
            return _NoRangeError(f"{url} is shorter than what was asked for", unknown=False)
        if any(sign in text for sign in _NO_RANGES):
            return _NoRangeError(
                f"{url}: its server sends whole files only, but parts of them are needed; copy the "
                "store to this machine",
                unknown=True,
            )
        credentials = _CREDENTIALS.get(self.scheme, "it must be readable by everyone")
        for signs, what in _EXPLAINED.items():
            if any(sign in text for sign in signs):
                return StoreError(f"{url}: {what.format(credentials=credentials)}")
        if type(exc).__name__ == "UnauthenticatedError":
            return StoreError(f"{url}: access was denied ({told}); {credentials}")
        if type(exc).__name__ == "PermissionDeniedError":
            return DeniedObjectError(
                f"{url}: access was denied, or there is no such object ({told}); {credentials}"
            )
        return StoreError(f"{url} cannot be read ({told}); try again")


class _NoRangeError(StoreError):
    """An object has no byte in the range that was asked for, or its server knows no ranges."""

    def __init__(self, message: str, *, unknown: bool) -> None:
        super().__init__(message)
        self.unknown = unknown


class RemotePath:
    """An object, or a folder of objects; it is to be read, never written."""

    def __init__(self, bucket: Bucket, key: str) -> None:
        self.bucket = bucket
        self.key = key

    def __str__(self) -> str:
        return self.bucket.url(self.key)

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """Each process connects by itself."""
        return location, (str(self), self.bucket.options)

    def __truediv__(self, name: str | Path) -> RemotePath:
        return RemotePath(self.bucket, f"{self.key}/{Path(name).as_posix()}")

    @property
    def name(self) -> str:
        """The part behind the last slash."""
        return self.key.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The name without its suffix."""
        return Path(self.name).stem

    @property
    def suffix(self) -> str:
        """The end of the name, from its last dot."""
        return Path(self.name).suffix

    def absolute(self) -> RemotePath:
        """A URL is absolute."""
        return self

    def resolve(self) -> RemotePath:
        """A URL has no links."""
        return self

    def is_symlink(self) -> bool:
        """It never is."""
        return False

    def exists(self) -> bool:
        """Whether there is an object of this name."""
        return self.is_file()

    def is_file(self) -> bool:
        """Whether there is an object of this name."""
        try:
            self.bucket.meet(self.key)
        except MissingObjectError:
            return False
        return True

    def size(self) -> int:
        """Bytes of the object."""
        return self.bucket.meet(self.key)

    def forget(self) -> None:
        """Ask for all of the object again, because what came of it was wrong."""
        self.bucket.forget(self.key)

    def read(self, begin: int, end: int) -> bytes:
        """Bytes [begin, end) of the object, fewer where it ends before."""
        return self.bucket.read(self.key, begin, end)

    def read_bytes(self) -> bytes:
        """All bytes of the object."""
        return self.read(0, self.size())


Location = Path | RemotePath
"""Where a store is: on this machine, or in an object store."""


def location(
    path: str | Path | RemotePath, storage_options: Mapping[str, Any] | None = None
) -> Location:
    """A path, or where a URL points to.

    Args:
        path: A path of this machine, or a URL of one of `SCHEMES`.
        storage_options: Of a URL, settings of obstore's store, such as `{"endpoint": ...}`.

    Raises:
        ValueError: A URL that cannot be, or options without a URL.
    """
    if isinstance(path, RemotePath):
        options = path.bucket.options if storage_options is None else storage_options
        return RemotePath(Bucket(path.bucket.scheme, path.bucket.name, options), path.key)
    if isinstance(path, Path) and _COLLAPSED.match(str(path)):
        raise ValueError(f"{path} was a URL; give URLs as text, Path(...) takes their slashes away")
    url = _URL.fullmatch(path) if isinstance(path, str) else None
    if url is None:
        if storage_options is not None:
            raise ValueError(f"storage_options are for URLs, got them with {path}")
        return Path(path)
    scheme, (name, _, key) = url[1].lower(), url[2].partition("/")
    if scheme not in SCHEMES:
        allowed = ", ".join(f"{each}://" for each in SCHEMES)
        raise ValueError(f"{path}: {scheme}:// is not supported; use {allowed} or a path")
    of_server = scheme not in _BUCKET_SCHEMES
    if re.search(r"[?#@\s]", name) or (of_server and re.search(r"[?#\s]", key)):
        raise ValueError(
            f"{path}: a URL with a query, a password or blanks cannot be read; in a path, write "
            "%20 for a blank"
        )
    key = (_decoded(url[0], key) if of_server else key).rstrip("/")
    if not name or {"", ".", ".."} & set(key.split("/")):
        raise ValueError(f"{path} names no store; write {scheme}://BUCKET/PATH/clips.zarr")
    return RemotePath(Bucket(scheme, name, storage_options or {}), key)


def _decoded(url: str, path: str) -> str:
    """The path of a URL as it was before it was percent-encoded."""
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise ValueError(
            f"{url}: what follows a % is not UTF-8; encode the path as UTF-8"
        ) from None


def refuse_url(path: str | Path | RemotePath, what: str) -> None:
    """Refuse a URL where only a path of this machine will do.

    Args:
        path: What was given.
        what: What it is for, and what to do, for the error.

    Raises:
        StoreError: It is a URL.
    """
    text = str(path)
    if isinstance(path, RemotePath) or _URL.fullmatch(text) or _COLLAPSED.match(text):
        if _COLLAPSED.match(text):
            text = text.replace(":/", "://", 1)
        raise StoreError(f"{text} is a URL; {what}")


def _check_process(url: str) -> None:
    """Refuse a forked process, in which obstore would wait forever for its threads."""
    global _started_in
    if _started_in is None:
        _started_in = os.getpid()
    if _started_in != os.getpid():
        raise StoreError(
            f"{url} cannot be read in a process that was forked after its parent had read from "
            'object stores; start workers with "spawn", or use open_frames(url, cache=PATH)'
        )


def _first_line(exc: Exception) -> str:
    return one_line(exc).partition("<?xml")[0].strip().rstrip(":.")
