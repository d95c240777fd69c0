"""Web servers that send more than was asked for, other parts, or elsewhere."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framewin import FrameWindowDataset, StoreError, fetch
from framewin.frames import open_frames
from tests.conftest import MakeClips, import_or_skip

CLIPS = {"a": range(9)}
ENDLESS_BYTES = 2**27
"""Sent of a body without end, should anyone read on."""


class _Handler(BaseHTTPRequestHandler):
    """Ranges of files, with something wrong."""

    protocol_version = "HTTP/1.1"
    folder: Path
    wrong: str
    elsewhere = ""
    seen: list[dict[str, str]]

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing on stderr."""

    def do_GET(self) -> None:
        self.seen.append({name.lower(): value for name, value in self.headers.items()})
        path = self.folder / self.path.removeprefix("/bucket").lstrip("/")
        if self.elsewhere or not path.is_file():
            self.send_response(302 if self.elsewhere else 404)
            self.send_header("Location", self.elsewhere + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = path.read_bytes()
        first, last = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers["Range"]).groups()
        begin = int(first) if first else max(0, len(data) - int(last))
        end = min(len(data), int(last) + 1) if first else len(data)
        self._send(data[begin:end], begin, end, len(data))

    def _send(self, body: bytes, begin: int, end: int, size: int) -> None:
        shift = self.wrong == "another part"
        total = {"another size": str(2**60), "no size": "*"}.get(self.wrong, str(size))
        more = {"longer": 1, "endless": 2**40}.get(self.wrong, 0)
        self.send_response(206)
        if self.wrong != "no range":
            self.send_header("Content-Range", f"bytes {begin + shift}-{end - 1 + shift}/{total}")
        if self.wrong == "no length":
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(body) + more))
        self.end_headers()
        self.wfile.write(body + b"x" * (more == 1))
        for _ in range(ENDLESS_BYTES >> 16 if more > 1 else 0):
            self.wfile.write(bytes(2**16))
        self.close_connection |= self.wrong in ("endless", "no length")


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is what is hoped for."""


@contextmanager
def serving(folder: Path, wrong: str = "", elsewhere: str = "") -> Iterator[tuple[str, list[Any]]]:
    """URL of a server, and the headers of the requests that it has seen."""
    seen: list[dict[str, str]] = []
    known = {"folder": folder, "wrong": wrong, "elsewhere": elsewhere, "seen": seen}
    with _Quiet(("127.0.0.1", 0), type("Handler", (_Handler,), known)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("longer", r"its server sends more than the \d+ bytes that it was asked for; copy the"),
        ("endless", r"its server sends more than the \d+ bytes that it was asked for; copy the"),
        ("another part", "cannot be read (Generic HTTP error: Requested 0.."),
        ("another size", "cannot be read (Generic HTTP error: Requested 11529215046067"),
        ("no size", "cannot be read (Generic HTTP error: Failed to parse value for CONTENT_RANGE"),
        ("no range", "cannot be read (Generic HTTP error: "),
        ("no length", "cannot be read (Generic HTTP error: Content-Length Header missing"),
    ],
)
def test_answers_that_are_not_what_was_asked_for(
    make_store: MakeClips, tmp_path: Path, wrong: str, message: str
) -> None:
    """One line, in a second, whether windows are read or the store is fetched."""
    import_or_skip("obstore")
    make_store(CLIPS)
    pattern = message if r"\d" in message else re.escape(message)
    with serving(tmp_path, wrong) as (url, _):
        with pytest.raises(StoreError, match=pattern):
            FrameWindowDataset(f"{url}/clips.zarr", input_frames=1, predict_frames=1)
        with pytest.raises(StoreError, match=pattern):
            fetch(f"{url}/clips.zarr", tmp_path / "fetched.zarr")
    assert not (tmp_path / "fetched.zarr").exists()


@pytest.mark.parametrize("scheme", ["http", "s3"])
def test_redirections_take_no_signature_along(
    make_store: MakeClips, tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are followed, since every byte is checked, but the other host is not given a signature.

    One that leads to itself is an error.
    """
    import_or_skip("obstore")
    store = make_store(CLIPS)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with ExitStack() as stack:
        other, seen = stack.enter_context(serving(tmp_path))
        url, asked = stack.enter_context(serving(tmp_path, elsewhere=other))
        options = {"allow_http": "true", "endpoint": url, "region": "us-east-1"}
        if scheme == "http":
            frames = open_frames(f"{url}/clips.zarr")
        else:
            frames = open_frames("s3://bucket/clips.zarr", storage_options=options)
        ds = FrameWindowDataset(frames, input_frames=1, predict_frames=1)
        local = FrameWindowDataset(store, input_frames=1, predict_frames=1)
        for mine, theirs in zip(ds.batch(range(8)), local.batch(range(8)), strict=True):
            assert np.array_equal(mine, theirs)
        assert [("authorization" in headers) for headers in asked] == [scheme == "s3"] * len(seen)
        assert not any("authorization" in headers for headers in seen)


def test_redirections_without_end(tmp_path: Path) -> None:
    """A server that sends everyone back to itself."""
    import_or_skip("obstore")
    with serving(tmp_path, elsewhere="/again") as (url, seen):
        with pytest.raises(StoreError, match=re.escape("(HTTP error: error following redirect)")):
            FrameWindowDataset(f"{url}/clips.zarr", input_frames=1, predict_frames=1)
        assert len(seen) < 50
