"""An S3 server for tests, and in front of it a proxy that counts requests and injects faults."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

BUCKET = "frames"
REGION = "us-east-1"

Fault = Callable[["Request"], str | None]
"""Request -> what goes wrong with it: `drop`, `short`, `flip`, `stall` or a status; None is
nothing."""

STALL_SECONDS = 3
"""Of a body that stops half-way and goes on."""


@dataclass(frozen=True)
class Request:
    """A request as the proxy saw it."""

    number: int
    """From 1, of all requests."""
    method: str
    key: str
    """Of the object, without its bucket."""
    begin: int | None
    """First byte that was asked for."""


@dataclass
class Server:
    """A proxy in front of an object server."""

    port: int
    target: tuple[str, int]
    prefix: str = ""
    """Put before each path on its way to the object server."""
    requests: list[Request] = field(default_factory=list)
    body_bytes: int = 0
    """Of all bodies that were sent."""
    fault: Fault = lambda request: None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        """Of the server."""
        return f"http://127.0.0.1:{self.port}"

    def forget(self) -> None:
        """Count from 0 and make no more faults."""
        with self.lock:
            self.requests.clear()
            self.body_bytes, self.fault = 0, lambda request: None

    def upload(self, store: Path, prefix: str = "") -> str:
        """Put a store into the bucket, round the proxy; returns its key."""
        key = f"{prefix}{store.name}"
        files = [store] if store.is_file() else [p for p in store.rglob("*") if p.is_file()]
        for file in files:
            name = file.relative_to(store).as_posix()
            self.put(key if store.is_file() else f"{key}/{name}", file.read_bytes())
        return key

    def make_bucket(self) -> None:
        """Make the bucket anew, empty."""
        urlopen(f"http://{self.target[0]}:{self.target[1]}/moto-api/reset", b"").close()
        self._ask("PUT", "")

    def put(self, key: str, data: bytes) -> None:
        """Write an object, round the proxy."""
        self._ask("PUT", key, data)

    def delete(self, key: str) -> None:
        """Remove an object, round the proxy."""
        self._ask("DELETE", key)

    def _ask(self, method: str, key: str, data: bytes = b"") -> None:
        connection = http.client.HTTPConnection(*self.target)
        # Public, so that it is also served by plain HTTP and as GCS would serve it.
        connection.request(method, f"/{BUCKET}/{key}", data, {"x-amz-acl": "public-read"})
        assert connection.getresponse().status < 300, key
        connection.close()


class _Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body in one write: the second of two would wait for an answer.
    wbufsize = 2**16
    disable_nagle_algorithm = True
    shared: Server

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing on stderr."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        server = self.shared
        wanted = self.headers.get("Range", "").removeprefix("bytes=").partition("-")[0]
        path = self.path.partition("?")[0]
        with server.lock:
            key = path.removeprefix(f"/{BUCKET}/")
            begin = int(wanted) if wanted else None
            request = Request(len(server.requests) + 1, self.command, key, begin)
            server.requests.append(request)
            fault = server.fault(request)
        if fault is not None and fault.isdigit():
            self.send_response(int(fault))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        connection = http.client.HTTPConnection(*server.target)
        connection.request(self.command, server.prefix + self.path, headers=dict(self.headers))
        answer = connection.getresponse()
        self._pass_on(answer.status, dict(answer.getheaders()), answer.read(), fault)
        connection.close()

    def _pass_on(
        self, status: int, headers: dict[str, str], body: bytes, fault: str | None
    ) -> None:
        if fault == "flip":
            place = len(body) // 2
            body = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
        sent = body[: len(body) // 2] if fault in ("drop", "short") else body
        if fault == "short":
            headers["Content-Length"] = str(len(sent))
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                self.send_header(name, value)
        self.end_headers()
        if fault == "stall":
            self.wfile.write(sent[: len(sent) // 2])
            self.wfile.flush()
            time.sleep(STALL_SECONDS)
            sent = sent[len(sent) // 2 :]
        self.wfile.write(sent)
        with self.shared.lock:
            self.shared.body_bytes += len(sent)
        if fault == "drop":
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no news."""


@contextmanager
def proxy(target: tuple[str, int], prefix: str = "") -> Iterator[Server]:
    """A proxy in front of an object server."""
    handler = type("Proxy", (_Proxy,), {})
    with _Quiet(("127.0.0.1", 0), handler) as listener:
        server = Server(listener.server_address[1], target, prefix)
        handler.shared = server
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown()
            thread.join()


def environment(server: Server) -> dict[str, str]:
    """What obstore reads of the environment to find the server."""
    return {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ALLOW_HTTP": "true",
    }
