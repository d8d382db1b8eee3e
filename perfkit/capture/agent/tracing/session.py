"""The one session of torch's profiler that perfkit has in a program of somebody else.

idle → armed (the profiler warms up) → recording → done. It records all threads, so that it may be stopped by another
thread than the one that started it, and so that the work of every thread is in the trace. It exports what it started
and nothing else, and leaves neither a profiler attached to the GPU nor a line of PyTorch's on the program's stderr.

PyTorch before 2.14 writes into freed memory where an operator or a range ends in another session than it began in, if
both sessions record all threads, or both one. So of two that follow each other only the first records all threads, as
the program's own profiler does not either, and a session of one thread ends the ranges that the program has open.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from perfkit import ranges
from perfkit.capture.agent.tracing import profiler as profilers
from perfkit.capture.agent.tracing.owned_tensors import OwnedTensors
from perfkit.capture.agent.tracing.quiet import without_notices_of_kineto

if TYPE_CHECKING:
    import torch

STAYS = (
    "PyTorch's profiler stays attached to the GPU after the recorded steps, so the program's launches take longer from "
    "then on: {}."
)
_TEARDOWN = "TEARDOWN_CUPTI"
# Since CUDA 12.6 CUPTI may be detached and attached again in a process that holds CUDA graphs; before, that may crash.
_DETACHES_SINCE = (12, 6)
# Kineto detaches CUPTI in a call of CUDA that follows the stop. Seen on an H200: the first one, after 2 ms.
_DETACHING_S = 0.05


_here = threading.local()  # of every session: there is one at a time


class ProfilerSession:
    """A profiler that is armed, started and stopped at most once at a time, by whichever thread."""

    def __init__(self) -> None:
        self._profiler: Any = None
        self._is_recording = False
        self._thread: threading.Thread | None = None  # in which it began to record

    @property
    def is_elsewhere(self) -> bool:
        """Return whether only another thread than this one can end what is recorded: a session of one thread."""
        of_one = self._is_recording and self._profiler.experimental_config is None
        return of_one and self._thread is not threading.current_thread()

    @property
    def is_touched_here(self) -> bool:
        """Return whether what this thread asks of torch's profilers now comes from perfkit."""
        return getattr(_here, "touching", False)

    @contextlib.contextmanager
    def touching(self) -> Iterator[None]:
        """Mark that this thread's calls of torch's profilers in the block come from perfkit."""
        before, _here.touching = self.is_touched_here, True
        try:
            yield
        finally:
            _here.touching = before

    def arm(self, on_gpu: bool, memory: bool, all_threads: bool = True) -> None:
        """Have the profiler warm up: what runs from here on is not recorded yet."""
        with self.touching():
            self._profiler = profilers.of_threads(on_gpu, memory, all_threads)
            with profilers.silent(), without_notices_of_kineto():
                self._profiler.prepare_trace()

    def record(self) -> None:
        """Record from here on, all threads."""
        with self.touching(), without_notices_of_kineto():
            self._profiler.start_trace()
        self._is_recording, self._thread = True, threading.current_thread()
        ranges.record_all_threads(True)

    def add(self, held: OwnedTensors) -> None:
        """Write what the program's objects hold into the trace that is recorded."""
        if self._profiler is not None and self._is_recording and not self.is_elsewhere:
            with self.touching():
                held.write(self._profiler)

    def stop(self, goes_on: bool) -> torch.profiler.profile | None:
        """Stop, and return the profiler to export from; None where nothing was recorded, or it `is_elsewhere`.

        With `goes_on` the program runs on, and CUPTI is detached.
        """
        elsewhere = self.is_elsewhere
        profiler, self._profiler = self._profiler, None
        recorded, self._is_recording = self._is_recording, False
        if profiler is None:
            return None
        ranges.record_all_threads(False)
        if elsewhere:  # PyTorch crashes
            return None
        with self.touching():
            if not recorded:
                with without_notices_of_kineto():
                    profiler.start_trace()  # what is armed only is never disarmed otherwise
            detached = _detaching() if goes_on and not why_attached() else contextlib.nullcontext()
            if profiler.experimental_config is None:
                _end_open_ranges()
            with detached, without_notices_of_kineto():
                profiler.stop_trace()
        return profiler if recorded else None


def _end_open_ranges() -> None:
    """End the ranges that the program has open here. That they end once more does nothing."""
    torch = sys.modules["torch"]
    kind = torch.autograd.profiler.record_function
    kinds = {kind, *kind.__subclasses__()}
    found = [one for one in gc.get_referrers(*kinds) if type(one) in kinds]
    with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
        for record in (vars(one).get("record") for one in found):
            if record is not None:
                torch.ops.profiler._record_function_exit._RecordFunction(record)


def why_attached() -> str:
    """Why CUPTI cannot be detached in this process; "" where it can, or was never attached."""
    torch = sys.modules["torch"]
    if not (torch.version.cuda and torch.cuda.is_initialized()):
        return ""
    if os.environ.get(_TEARDOWN) == "0":
        return f"{_TEARDOWN}=0 is set"
    if tuple(int(part) for part in torch.version.cuda.split(".")) < _DETACHES_SINCE:
        return f"this PyTorch was built for CUDA {torch.version.cuda}, and detaching is safe since 12.6"
    return ""


@contextlib.contextmanager
def _detaching() -> Iterator[None]:
    """A stop of the profiler in the block detaches CUPTI from the process.

    Kineto does it in a thread of its own, at the next calls of CUDA. They are made here: a program that ends before,
    or starts a profiler of its own, would hang or lose its kernels (seen with torch 2.11).
    """
    torch = sys.modules["torch"]
    if not (torch.version.cuda and torch.cuda.is_initialized()):
        yield
        return
    before = os.environ.get(_TEARDOWN)
    os.environ[_TEARDOWN] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_TEARDOWN]
        else:
            os.environ[_TEARDOWN] = before
    until = time.monotonic() + _DETACHING_S
    while time.monotonic() < until:
        torch.cuda.current_stream().query()
        time.sleep(0.001)
