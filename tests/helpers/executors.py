"""An executor that runs tasks at once, in this process, by way of their pickles."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from framewin.conversion.tasks import Task


class Inline(Executor):
    """Runs each task as often as it is told; `change` makes another task of it first."""

    def __init__(self, times: int = 1, change: Callable[[Task], Task] = lambda task: task) -> None:
        self.times = times
        self.change = change
        self.tasks: list[Task] = []
        self.sizes: list[tuple[int, int]] = []
        """Bytes of each task and of its answer."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        [task] = args
        self.tasks.append(self.change(task))
        sent = pickle.dumps((function, self.tasks[-1]))
        future: Future[Any] = Future()
        for _ in range(self.times):
            work, received = pickle.loads(sent)
            answer = pickle.dumps(work(received))
        self.sizes.append((len(sent), len(answer)))
        future.set_result(pickle.loads(answer))
        return future
