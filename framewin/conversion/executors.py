"""Running tasks in an executor of the user's: a bounded number at once, results as they end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from framewin.errors import FramewinError, StoreError, one_line
from framewin.stores.chunked_frames import usable_cores

TASKS_PER_WORKER = 2

Item = TypeVar("Item")


class TaskPool:
    """An executor, and how many tasks it is given at once."""

    def __init__(self, executor: Executor, in_flight: int | None) -> None:
        """Take an executor, which is never shut down here.

        Raises:
            TypeError: Not an executor.
            ValueError: `in_flight` below 1, or processes that would be forked from TensorFlow.
        """
        if not isinstance(executor, Executor):
            raise TypeError(
                f"executor must be a concurrent.futures.Executor, got {executor!r}; of a Dask "
                "client it is client.get_executor()"
            )
        context = getattr(executor, "_mp_context", None)
        forks = context is not None and context.get_start_method() == "fork"
        if forks and "tensorflow" in sys.modules:
            raise ValueError(
                "executor forks, which hangs once TensorFlow has started; give "
                "ProcessPoolExecutor(mp_context=multiprocessing.get_context('spawn'))"
            )
        if in_flight is not None and in_flight < 1:
            raise ValueError(f"in_flight must be >= 1, got {in_flight}")
        self._executor = executor
        self._in_flight = in_flight
        self._client = getattr(executor, "_client", None)

    @property
    def workers(self) -> int:
        """How many tasks run at the same time, as far as the executor tells."""
        if self._client is not None:
            # Workers of Dask come and go.
            with self._one_line():
                return sum(self._client.nthreads().values())
        told = getattr(self._executor, "num_workers", None)  # mpi4py
        return told or getattr(self._executor, "_max_workers", None) or usable_cores()

    def results(
        self, work: Callable[[Any], Any], items: Iterable[Item], make: Callable[[Item], Any]
    ) -> Iterator[tuple[Item, Any]]:
        """Run a task for each item, and yield the item and its result as tasks end.

        Once a result has a failure no task is begun any more, and those before it are waited for;
        so the failure that comes last is the first in the order of items.

        Args:
            work: Runs a task; what it returns has a `failure`.
            items: In order.
            make: Makes the task of an item.
        """
        waiting = enumerate(items)
        running: dict[Future[Any], tuple[int, Item]] = {}
        failed: int | None = None
        try:
            while True:
                if failed is None:
                    for position, item in islice(waiting, max(0, self._limit() - len(running))):
                        with self._one_line():
                            future = self._executor.submit(work, make(item))
                        running[future] = position, item
                if not running or (failed is not None and min(running.values())[0] > failed):
                    return
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                # What has broken the executor comes last.
                for future in sorted(done, key=lambda one: (_broken(one), running[one][0])):
                    position, item = running.pop(future)
                    with self._one_line():
                        result = future.result()
                    if result.failure is not None:
                        failed = position if failed is None else min(failed, position)
                    yield item, result
        finally:
            for future in running:
                future.cancel()

    def _limit(self) -> int:
        return self._in_flight or TASKS_PER_WORKER * max(1, self.workers)

    @contextmanager
    def _one_line(self) -> Iterator[None]:
        """What an executor raises, which may be anything, as one line."""
        try:
            yield
        except FramewinError:
            raise
        # CancelledError: Dask cancels what it has lost sight of.
        except (Exception, CancelledError) as exc:
            reason = one_line(exc, kind=True)
            if self._client is not None and self._client.status != "running":
                reason = "the connection to the Dask scheduler is lost"
            raise StoreError(
                f"the executor failed ({reason}); what is done is kept, repeat the command to go on"
            ) from exc


def _broken(future: Future[Any]) -> bool:
    return future.cancelled() or future.exception() is not None
