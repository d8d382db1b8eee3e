"""Work done in threads, its results kept: what a page asks for is being made, made, or failed, and never waited for.

Results are kept by key, the least recently used dropped first when all together take more than `limit` bytes. A key
names everything that a result depends on (files with sizes and times), so nothing that is kept is ever stale.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from perfkit.errors import PerfkitError

LIMIT = 1 << 30  # bytes of all results
WORKERS = 2  # at work at a time
MOST = 500  # results, however small


@dataclass
class Task:
    """Something that is being made. `stage` says in a few words what is being done now."""

    key: Hashable
    stage: str = "waiting for other files"
    started: float = field(default_factory=time.monotonic)
    result: Future[Any] = field(default_factory=Future)
    size: int = 0

    @property
    def seconds(self) -> float:
        """How long ago it was asked for."""
        return time.monotonic() - self.started


class Library:
    """Results by key. `limit` is in bytes, by the sizes that the makers state."""

    def __init__(self, limit: int = LIMIT, workers: int = WORKERS) -> None:
        self.limit = limit
        self._tasks: OrderedDict[Hashable, Task] = OrderedDict()
        self._lock = threading.Lock()
        self._free = threading.Semaphore(workers)

    def ask(self, key: Hashable, make: Callable[[Task], tuple[Any, int]]) -> Task:
        """The task of `key`, begun in a thread if it is new. `make` gives the result and its size in bytes."""
        task, new = self._task(key)
        if new:
            # A daemon, so that Ctrl-C ends TensorBoard also while a large file is being read.
            threading.Thread(target=self._work, args=(task, make), daemon=True).start()
        return task

    def obtain(self, key: Hashable, make: Callable[[Task], tuple[Any, int]], outer: Task) -> Any:
        """The result of `key`, made here and now unless it is kept; for a maker that needs another's result.

        Raises what `make` raises.
        """
        task, new = self._task(key)
        if new:
            task.stage = outer.stage
            self._make(task, make)
        return task.result.result()

    def kept(self) -> int:
        """Bytes of all results that are kept."""
        with self._lock:
            return sum(task.size for task in self._tasks.values())

    def _task(self, key: Hashable) -> tuple[Task, bool]:
        with self._lock:
            task = self._tasks.get(key)
            if task is not None:
                self._tasks.move_to_end(key)
                return task, False
            task = self._tasks[key] = Task(key)
            return task, True

    def _work(self, task: Task, make: Callable[[Task], tuple[Any, int]]) -> None:
        with self._free:
            self._make(task, make)

    def _make(self, task: Task, make: Callable[[Task], tuple[Any, int]]) -> None:
        try:
            value, task.size = make(task)
        except PerfkitError as error:
            task.result.set_exception(error)
        except MemoryError:
            task.result.set_exception(PerfkitError("There is not enough memory to read it.", "Read it elsewhere."))
        except Exception as error:  # a defect of perfkit: the page must hear of it, or it would wait for ever
            task.result.set_exception(PerfkitError(f"perfkit failed on it: {type(error).__name__}: {error}"))
        else:
            task.result.set_result(value)
        self._forget(task)

    def _forget(self, newest: Task) -> None:
        """Drop the least recently used results until the rest fits; the newest stays however large it is."""
        with self._lock:
            total = sum(task.size for task in self._tasks.values())
            for key, task in list(self._tasks.items()):
                if total <= self.limit and len(self._tasks) <= MOST:
                    return
                if task is not newest and task.result.done():
                    total -= task.size
                    del self._tasks[key]
