"""Times the steps of a program without a profiler, and says which of some files it loaded."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable

from perfkit.capture.agent.order import CHILDREN, DEVICE, FREE, HOST
from perfkit.capture.agent.recording import waiting
from perfkit.capture.agent.recording.recorder import RECORDING, STARTING, WARMING, Recorder, on_gpu, synchronize

_SPANS = 4  # of the timed steps on a GPU: the host may run ahead within one
_CONTEXT = float(1 << 30)  # bytes that a process has on a GPU besides PyTorch's allocator, or fewer


class Stopwatch(Recorder):
    """Times `order.steps` steps after the warm-up. On a GPU it waits for it only at the ends of a few spans, and gives
    each step of a span their mean: waiting after each step would take away what running ahead gains."""

    marks = False
    _waited = False

    def begin(self, ready: Callable[[], bool]) -> bool:
        """Note that a step begins; before it, the process may have to wait for its turn."""
        if self.order.waits_for and not self._waited and self.state == WARMING and self._opened >= waiting.AFTER:
            self._waited = True
            synchronize()
            waiting.wait(self.folder, waiting.WAITING, waiting.GO, self.order.waits_for)
            self._looked = False
        return super().begin(ready)

    def _start(self) -> None:
        self.state = STARTING
        self.result.warmup_ns = self._times
        self.result.device = "cuda" if on_gpu() else "cpu"

    def _begin_recording(self) -> None:
        self.state = RECORDING
        self._span, self._taken = max(1, self.order.steps // _SPANS) if on_gpu() else 1, 0
        synchronize()
        self._since = time.perf_counter_ns()
        self._begin_step()

    def _begin_step(self) -> None:
        self.in_step = True

    def _end_step(self) -> None:
        self._taken += 1
        self.result.found += 1
        if self._taken < min(self._span, self.order.steps - len(self.result.step_ns)):
            return
        synchronize()
        now = time.perf_counter_ns()
        self.result.step_ns += [(now - self._since) / self._taken] * self._taken
        self._since, self._taken = now, 0

    def finish(self, goes_on: bool = False) -> None:
        """End here; a step that is not over does not count."""
        super().finish(goes_on)
        loaded = {os.path.abspath(file) for one in list(sys.modules.values()) if (file := _file(one))}
        self.result.loaded = [path for path in self.order.watched if path in loaded]
        self.result.takes = taken()


def taken() -> dict[str, float]:
    """Return what limits the processes like this one that fit together: bytes on the host and on the GPU, bytes
    that are free there besides, and child processes, such as those that load data."""
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes on macOS, KiB on Linux
    found = {HOST: float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)}
    if children := sys.modules.get("multiprocessing"):
        found[CHILDREN] = float(len(children.active_children()))
    if on_gpu():
        cuda = sys.modules["torch"].cuda
        found |= {DEVICE: cuda.max_memory_reserved() + _CONTEXT, FREE: float(cuda.mem_get_info()[0])}
    return found


def _file(module: object) -> str:
    """The file of a module; "" where it has none. A module of a program's own may answer anything."""
    found = vars(module).get("__file__") if hasattr(module, "__dict__") else None
    return found if isinstance(found, str) else ""
