"""Batches that a program asks of its DataLoaders: when, how long it waits, and how many stood ready.

A batch costs a few reads of clocks and the length of a queue. The workers note theirs (`loader_worker`).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import deque
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import torch

from perfkit.capture.agent.loading.loader_worker import (
    COUNTING,
    LOOP,
    OVER,
    SAMPLING,
    around_loop,
    begun,
    shared,
    spent,
)
from perfkit.capture.agent.order import LOADING
from perfkit.capture.agent.patches import Patches
from perfkit.capture.agent.steps.rounds import key_of

_MOST = 4000  # batches of a loader that are kept, the last


class Loader:
    """One DataLoader by its data set and number of workers, whatever iterators it makes."""

    def __init__(self, iterator: Any) -> None:
        self.facts = {
            "workers": iterator._num_workers,
            "prefetch": getattr(iterator, "_prefetch_factor", None) or 0,
            "in_order": bool(getattr(iterator, "_in_order", True)),
            "pinned": bool(iterator._pin_memory),
            "iterable": iterator._dataset_kind != 0,
        }
        self.processes: dict[int, int] = {}  # number of the worker by its process
        self.asks: deque[tuple[int, ...]] = deque(maxlen=_MOST)  # what `spent` says, and how many stood ready
        self.makes_here = not iterator._num_workers


class Loads:
    """The loaders of this process, and what their workers are to do."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._pid = folder, os.getpid()
        self._loaders: dict[tuple[Hashable, int], Loader] = {}
        self._flag: Any = None
        self._timed = (0, 0)  # begin and end of the timed steps

    def install(self, patches: Patches, leave_alone: Callable[[], None]) -> None:
        """Have workers that start from here on note what they do; `leave_alone` ends what else is done in one."""
        self._flag = shared(self._folder, make=True)
        if self._flag is not None:
            patches.wrap(torch.utils.data._utils.worker, LOOP, around_loop(leave_alone))

    def timed(self, begin: int, end: int) -> None:
        """The timed steps began and ended at these times; others are about to be recorded."""
        self._timed = begin, end
        self.sample(True)

    def sample(self, wanted: bool) -> None:
        """Have the workers sample their lines, or not."""
        self._tell(SAMPLING if wanted else COUNTING)

    def close(self) -> None:
        """The recording is over: workers leave what they know."""
        self._tell(OVER)

    def _tell(self, state: int) -> None:
        if self._flag is not None and os.getpid() == self._pid:
            self._flag[0] = state

    def asked(self, iterator: Any) -> Callable[[], None]:
        """Note that the program asks for a batch; return what to call when it has it."""
        try:
            loader, given, ready = self._of(iterator), iterator._num_yielded, _ready(iterator)
        except Exception:  # an iterator of another version of PyTorch, or of the program's own
            return _nothing
        began = begun(loader.makes_here)

        def got() -> None:
            if iterator._num_yielded > given:  # else the loader had ended
                loader.asks.append((*spent(began, loader.makes_here), ready))

        return got

    def _of(self, iterator: Any) -> Loader:
        key = key_of(iterator._dataset), iterator._num_workers
        loader = self._loaders.get(key)
        if loader is None:
            loader = self._loaders[key] = Loader(iterator)
        for number, process in enumerate(getattr(iterator, "_workers", ())):
            loader.processes.setdefault(process.pid, number)
        return loader

    def write(self) -> None:
        """Leave what is known of the loaders in the folder."""
        found = [one for one in self._loaders.values() if one.asks]
        if not found:
            return
        loaders = [{**one.facts, "processes": one.processes, "asks": [*one.asks]} for one in found]
        with contextlib.suppress(OSError):
            (self._folder / LOADING).write_text(json.dumps({"timed": self._timed, "loaders": loaders}))


def _nothing() -> None:
    """Note nothing."""


def _ready(iterator: Any) -> int:
    """Batches that stand ready; −1 where that is unknown."""
    known = getattr(iterator, "_task_info", None)
    if known is None:
        return -1
    queues = {id(q): q for q in (iterator._worker_result_queue, iterator._data_queue)}
    try:
        return sum(len(one) == 2 for one in known.values()) + sum(queue.qsize() for queue in queues.values())
    except (NotImplementedError, OSError):  # macOS counts no queue
        return -1
