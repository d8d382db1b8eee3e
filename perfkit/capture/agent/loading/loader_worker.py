"""A worker of a DataLoader from inside: how long each of its batches takes, and on which lines.

Around the worker's loop stands a wrapper; of its two queues `get` begins a batch and `put` ends one. Until the
recording is over a batch costs a few reads of clocks. While steps are recorded a thread looks at its stack, every
millisecond or as often as Python lets it. What is known is left in the folder of the process that loads.
"""

from __future__ import annotations

import _thread
import contextlib
import json
import mmap
import multiprocessing
import os
import resource
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from torch._utils import ExceptionWrapper
from torch.utils.data._utils.worker import _IterableDatasetStopIteration

from perfkit.capture.agent.lines.line_tracer import HIDDEN, USER, kind_of
from perfkit.capture.agent.order import VARIABLE, WORKER, process_folder

FLAG = "loading"  # a file of one byte that the process which loads and its workers share
COUNTING, SAMPLING, OVER = 0, 1, 2
LOOP, _INDICES, _RESULTS = "_worker_loop", 2, 3  # the function of PyTorch, and the places of its queues
_NO_BATCH = (ExceptionWrapper, _IterableDatasetStopIteration)
_MOST = 2000  # batches that are kept, the last
_EVERY_S = 1e-3
# A thread that waits for Python's lock gets it when the other gives it up by itself, as most operators do, or after
# this interval. With Python's 5 ms nearly all samples would be of lines that give it up.
_SWITCH_S = 1e-4
_SCHEDULED = "/proc/thread-self/schedstat"
_BLOCK = 512  # bytes of a block of getrusage(2)


def shared(folder: Path, make: bool = False) -> mmap.mmap | None:
    """Return the flag in `folder`; None where the file is missing."""
    with contextlib.suppress(OSError, ValueError):
        if make:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / FLAG).write_bytes(bytes(1))
        with open(folder / FLAG, "r+b") as file:
            return mmap.mmap(file.fileno(), 1)
    return None


def around_loop(leave_alone: Callable[[], None]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrapper of the loop of a worker; `leave_alone` ends what else perfkit does in a worker's process."""

    def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the loop of a worker with a `BatchWorker` around it."""

        def loop(*args: Any, **kwargs: Any) -> Any:
            """Run the loop of a worker, and leave what it noted."""
            worker = None
            with contextlib.suppress(Exception):  # without perfkit the worker works as ever
                leave_alone()
                worker = _begun(args)
            try:
                return original(*args, **kwargs)
            finally:
                if worker is not None:
                    worker.close()

        return loop

    return wrapper


def _begun(args: tuple[Any, ...]) -> BatchWorker | None:
    parent, order = multiprocessing.parent_process(), os.environ.get(VARIABLE)
    if parent is None or parent.pid is None or not order or len(args) <= _RESULTS:
        return None
    folder = process_folder(order, parent.pid)
    flag = shared(folder)
    return BatchWorker(folder, flag, args[_INDICES], args[_RESULTS]) if flag is not None else None


class BatchWorker:
    """Notes each batch between the two queues: what `spent` says, and the CPU time of the process up to its end."""

    def __init__(self, folder: Path, flag: mmap.mmap, indices: Any, results: Any) -> None:
        self._folder, self._flag = folder, flag
        self._queues = (indices, "get"), (results, "put")
        self._batches: deque[tuple[int, ...]] = deque(maxlen=_MOST)
        self._begun: tuple[int, ...] | None = None
        self._sampler = Sampler(flag, self._save)
        self._saved = False
        self._get, self._put = indices.get, results.put
        indices.get, results.put = self._getting, self._putting

    def _getting(self, *args: Any, **kwargs: Any) -> Any:
        self._begun, self._sampler.since = None, 0
        found = self._get(*args, **kwargs)
        with contextlib.suppress(Exception):  # whatever is wrong here, the worker works on
            self._took(found)
        return found

    def _took(self, found: Any) -> None:
        if self._flag[0] == OVER:
            self.close()
        elif type(found) is tuple:
            self._begun = begun()
            self._sampler.since = self._begun[0]
            if self._flag[0] == SAMPLING:
                self._sampler.start()

    def _putting(self, result: Any, *args: Any, **kwargs: Any) -> Any:
        since, self._begun, self._sampler.since = self._begun, None, 0
        with contextlib.suppress(Exception):
            if since is not None and type(result[1]) not in _NO_BATCH:
                self._batches.append((*spent(since), time.process_time_ns()))
        return self._put(result, *args, **kwargs)

    def close(self) -> None:
        """Leave the queues as they were, and the file of what is known."""
        for queue, name in self._queues:
            vars(queue).pop(name, None)
        self._save()

    def _save(self) -> None:
        if self._saved:
            return
        self._saved = True
        content = {"batches": [*self._batches], "lines": [[*key, ns] for key, ns in self._sampler.lines.items()]}
        with contextlib.suppress(OSError):
            temporary = self._folder / f".{os.getpid()}"
            temporary.write_text(json.dumps(content))
            temporary.replace(self._folder / WORKER.format(os.getpid()))


class Sampler:
    """Looks at the stack of the thread that made it while the flag says so and `since`, the begin of a batch, is not 0;
    `ended` is called when the recording is over.

    `lines` has the ns of each line, the user's innermost, else the library's, and the library's that it calls.
    """

    def __init__(self, flag: mmap.mmap, ended: Callable[[], None]) -> None:
        self.since = 0
        self.lines: dict[tuple[str, int, str, str], int] = {}
        self._flag, self._ended = flag, ended
        self._thread, self._last, self._runs = _thread.get_ident(), 0, False
        self._kinds: dict[CodeType, str] = {}

    def start(self) -> None:
        """Look from here on."""
        if not self._runs:
            _thread.start_new_thread(self._look, ())
            self._runs = True

    def _look(self) -> None:
        before = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        self._watch()
        if sys.getswitchinterval() == _SWITCH_S:
            sys.setswitchinterval(before)
        self._runs = False
        if self._flag[0] == OVER:
            self._ended()

    def _watch(self) -> None:
        while self._flag[0] == SAMPLING:
            time.sleep(_EVERY_S)
            since = self.since
            if since:
                now = time.perf_counter_ns()
                self._note(now - max(self._last, since))
                self._last = now

    def _note(self, ns: int) -> None:
        frame: FrameType | None = sys._current_frames().get(self._thread)
        library: FrameType | None = None
        while frame is not None and frame.f_code.co_name != LOOP:
            kind = self._kind(frame.f_code)
            if kind == USER:
                break
            library = library or (frame if kind != HIDDEN else None)
            frame = frame.f_back
        if frame is None:
            return
        user = frame.f_code.co_name != LOOP
        found = frame if user else library or frame
        within = f"{library.f_code.co_filename} in {library.f_code.co_name}" if user and library else ""
        key = found.f_code.co_filename, found.f_lineno, found.f_code.co_name, within
        self.lines[key] = self.lines.get(key, 0) + ns

    def _kind(self, code: CodeType) -> str:
        kind = self._kinds.get(code)
        if kind is None:
            kind = self._kinds[code] = kind_of(code.co_filename)
        return kind


def begun(all_of_it: bool = True) -> tuple[int, ...]:
    """Return the readings at the begin that `spent` needs; with `all_of_it` the files of the system are asked too."""
    return time.perf_counter_ns(), time.thread_time_ns(), *_system(all_of_it)


def spent(since: tuple[int, ...], all_of_it: bool = True) -> tuple[int, ...]:
    """Begin and end, and between the two the CPU time of the thread, the time without a core (−1: unknown), and the
    bytes that the process read from disks. The outer clock is read first and last: no part is longer than the whole."""
    queued, read = _system(all_of_it)
    used, ended = time.thread_time_ns(), time.perf_counter_ns()
    return since[0], ended, used - since[1], queued - since[2] if since[2] >= 0 else -1, read - since[3]


def _system(wanted: bool) -> tuple[int, int]:
    read = resource.getrusage(resource.RUSAGE_SELF).ru_inblock * _BLOCK if wanted else 0
    return _queued() if wanted else -1, read


def _queued() -> int:
    try:
        with open(_SCHEDULED, "rb", buffering=0) as file:
            return int(file.read(64).split()[1])
    except (OSError, ValueError, IndexError):  # no Linux, or a kernel without such counts
        return -1
