"""Arms the process that it runs in: watches its steps, records some, and leaves what it found in a folder."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path

import torch

from perfkit.capture.agent import order as orders
from perfkit.capture.agent.forked import Forked
from perfkit.capture.agent.order import CUT, RESULT, Order, ProcessResult
from perfkit.capture.agent.recording import waiting
from perfkit.capture.agent.recording.counting import Counting
from perfkit.capture.agent.recording.recorder import Recorder
from perfkit.capture.agent.recording.stopwatch import Stopwatch
from perfkit.capture.agent.tracing import profiler
from perfkit.capture.agent.watch import Watcher

_LAST = -100  # of multiprocessing's finalizers: below zero, after its own


class Agent:
    """perfkit in a program that does not know of it."""

    def __init__(self, order: Order, folder: Path) -> None:
        self._order, self._folder = order, folder
        self._pid = os.getpid()
        self._told = self._ending = self._left = self._is_copy = False
        recorder = Counting if order.counters else Stopwatch if order.timed else Recorder
        self._watcher = Watcher(recorder(order, folder), self._finished)

    def arm(self) -> None:
        """Begin to watch this process, and those that it forks before it ran a model, where they run one."""
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self._at_exit)
        self._write(ProcessResult(problem=CUT))  # which stays where nothing else is told
        self._watcher.install()

    def arm_forked(self) -> None:
        """Arm a process that was forked: those of multiprocessing end by `os._exit`, after their finalizers."""
        self.arm()
        if (finalizers := sys.modules.get("multiprocessing.util")) is not None:
            finalizers.Finalize(None, self._at_exit, exitpriority=_LAST)

    def _forked(self) -> None:
        """This process is a copy of the one that is watched."""
        if self._is_copy:
            return
        self._is_copy, is_fresh = True, self._watcher.forked()
        plain = not (self._order.whole or self._order.counters or self._order.timed)
        if is_fresh and plain and not torch.cuda._is_in_bad_fork():
            Forked(self._arm_copy).install()

    def _arm_copy(self) -> None:
        try:
            Agent(self._order, orders.process_folder(self._folder, os.getpid())).arm_forked()
        except Exception as error:  # the program goes on, whatever happens to its profiler
            self._say(f"this process is not recorded: {type(error).__name__}: {error}")

    def _finished(self) -> None:
        """The steps are recorded: leave the result, and end the program where that is wanted."""
        self._tell()
        if self._order.waits_for and self._watcher.recorder.result.recorded:
            waiting.wait(self._folder, waiting.TIMED, waiting.LEAVE, self._order.waits_for)
        if self._order.stop and not self._ending and self._watcher.recorder.result.recorded:
            raise SystemExit(0)

    def _at_exit(self) -> None:
        if os.getpid() != self._pid or self._left:
            return
        self._left = True
        self._end()
        result = self._watcher.recorder.result
        if result.recorded and not (self._order.counters or self._order.timed):
            # Only now: it runs operators, which a mode or an observer of the program's own would have seen before.
            result.event_cost_ns = profiler.event_cost_ns()
            self._write(result)

    def _end(self) -> None:
        """End the watching of a program that ends, where it has not ended yet."""
        if self._told:
            return
        if self._watcher.idle:  # it loads data for another process
            self._tell()
            return
        try:
            self._ending = True
            self._watcher.finish()
        except Exception as error:
            self._say(f"nothing could be kept of this program: {type(error).__name__}: {error}")

    def _tell(self) -> None:
        if self._told:
            return
        self._told = True
        self._write(self._watcher.recorder.result)

    def _write(self, result: ProcessResult) -> None:
        try:
            orders.write(self._folder, RESULT, result)
        except OSError as error:
            self._say(f"what was recorded could not be written: {error.strerror}.")

    def _say(self, sentence: str) -> None:
        print(f"perfkit: {sentence}", file=sys.stderr, flush=True)


def arm(path: str) -> None:
    """Arm this process by the order in the file at `path`."""
    Agent(orders.read_order(path), orders.process_folder(path, os.getpid())).arm()
