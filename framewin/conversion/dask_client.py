"""The executor of a Dask cluster that runs already; needs the extra `dask`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from framewin.errors import StoreError, one_line
from framewin.optional import require

CONNECT_SECONDS = 5
WORKER_SECONDS = 15


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """Connect to a scheduler.

    Args:
        address: Such as `tcp://host:8786`, or `tls://host:8786` with the certificates that Dask's
            configuration names.

    Raises:
        StoreError: No scheduler answers there, or it has no worker.
        MissingDependencyError: `distributed` is not installed.
    """
    distributed = require("distributed", extra="dask")
    # Its accounts of lost connections, many lines long, which end in an error of ours.
    for name in ("distributed", "distributed.client", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    client = _connected(distributed, address)
    try:
        _await_worker(client, address)
        yield client.get_executor(pure=False)
    finally:
        client.close(timeout=CONNECT_SECONDS)


def _connected(distributed: Any, address: str) -> Any:
    async def shake_hands() -> None:
        # What Dask's configuration says, as the client will have it.
        arguments = distributed.security.Security().get_connection_args("client")
        comm = await distributed.core.connect(address, timeout=CONNECT_SECONDS, **arguments)
        await comm.close()

    try:
        # First, for a client that could not connect is not silent when it is removed.
        asyncio.run(shake_hands())
        return distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    # Whatever answers at a port may be no scheduler.
    except Exception as exc:
        raise StoreError(
            f"no Dask scheduler at {address!r} ({one_line(exc)}); give the address that it "
            "prints, such as tcp://host:8786"
        ) from exc


def _await_worker(client: Any, address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=WORKER_SECONDS)
    except TimeoutError:
        raise StoreError(
            f"the Dask scheduler at {address} has no worker; start some by: dask worker {address}"
        ) from None
