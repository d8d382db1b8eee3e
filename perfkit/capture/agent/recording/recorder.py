"""Warm-up, profiler and steps of one recording: told where steps begin and end, it does what is due there.

A boundary ends a step and begins the next. Of requests each begins and ends by itself.

begun      1 … warmup        steps that are counted and timed; those of the second half stand beside the profiled
                             (never the first one, which is cold: of two boundaries no step is timed)
then                         the profiler starts, and one step warms it up
then       steps             each is marked, timed and recorded; the last one ends the recording
then                         one step has its source lines marked (`lines`)
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from perfkit import profile_names, ranges
from perfkit.capture.agent.lines.line_step import LineStep
from perfkit.capture.agent.loading.batches import Loads
from perfkit.capture.agent.order import TRACE, Order, ProcessResult
from perfkit.capture.agent.recording.paging import paging
from perfkit.capture.agent.recording.triton_launches import TritonLaunches
from perfkit.capture.agent.tracing import profiler as profilers
from perfkit.capture.agent.tracing.owned_tensors import OwnedTensors
from perfkit.capture.agent.tracing.session import STAYS, ProfilerSession, why_attached

_NO_MEMORY = "No allocations: the steps are of several threads, and PyTorch records the allocations of one."
WARMING, STARTING, RECORDING, LINING, DONE = "warming", "starting", "recording", "lining", "done"


class Recorder:
    """Records steps into `folder`, and keeps what it found in `result`."""

    marks = True  # passes and modules are marked while steps are recorded

    def __init__(self, order: Order, folder: Path) -> None:
        self.order, self.folder, self.result = order, folder, ProcessResult()
        self.state = WARMING
        self.session = ProfilerSession()
        self.lines = LineStep(order, folder, self.result)
        self.held = OwnedTensors()
        self.loads = Loads(folder)
        self.launches = TritonLaunches()
        self._arrived = time.monotonic()
        self.in_step = False
        self._thread, self._moved = threading.current_thread(), False  # of the recorded step; one ended in another
        self._forget()
        self._open = contextlib.ExitStack()
        self.outer_pass = "forward"  # the pass of what is in no other; "" where a step does not mark its passes

    @property
    def is_near(self) -> bool:
        """Return whether one of the next steps may be the first that is recorded."""
        return self.result.found + 2 >= self.order.warmup

    def boundary(self, ready: Callable[[], bool]) -> bool:
        """End a step and begin the next if `ready()`; return whether the recording is over."""
        self._looked = self.in_step and self.state == WARMING
        over = self.end() or self.begin(ready)
        self._looked = False
        return over

    def begin(self, ready: Callable[[], bool]) -> bool:
        """Begin a step if `ready()`; return whether the recording is over."""
        if self.state == WARMING:
            self._warm(ready)
        elif self.state == STARTING:
            self._begin_recording()
        elif self.state == RECORDING:
            self._begin_step()
        elif self.state == LINING and ready() and not other_profiler():
            self.in_step = True
            self.lines.begin(on_gpu())
        elif self.state == LINING:
            self.state = DONE
            self.lines.abandon("No source lines: a profiler of the program's own records.")
        return self.state == DONE

    def end(self) -> bool:
        """End the step that had begun, if any; return whether the recording is over."""
        if not self.in_step:
            return False
        if self.state == WARMING:
            self._end_warm()
        elif self.state == RECORDING:
            self._end_step()
            if len(self.result.step_ns) >= self.order.steps:
                self.finish(goes_on=True)
                self.state = LINING if self.result.recorded and self.lines.wanted(self._moved) else DONE
        elif self.state == LINING:
            self.lines.end()
            self.state = DONE
        self.in_step = False
        return self.state == DONE

    def restart(self) -> None:
        """Count anew: what was counted until now were no steps."""
        if self.state == WARMING:
            self._forget()
            self.result.found = 0

    def _forget(self) -> None:
        """Count steps anew."""
        self.in_step = False
        self._times: list[float] = []
        self._begins: list[int] = []  # of each of them
        self._cpu: list[float] = []  # CPU time of each of them
        self._threads: deque[threading.Thread] = deque(maxlen=max(2, self.order.warmup))  # in which the last ones began
        self._paging: list[tuple[float, float]] = []  # of each of them
        self._opened = 0
        self._looked = False  # at the step that ended just now, and with it at the one that begins

    def _warm(self, ready: Callable[[], bool]) -> None:
        if time.monotonic() - self._arrived < self.order.after:
            return
        if not self._looked:
            self._look()
        self._opened += 1
        self._threads.append(threading.current_thread())
        self.result.found += 1
        self.in_step = True
        if self._opened >= max(1, self.order.warmup) and ready() and not other_profiler():
            self._start()

    def _look(self) -> None:
        """A step begins or ends now."""
        if 2 * self._opened >= self.order.warmup:
            synchronize()
        self._started, self._used, self._worked = time.perf_counter_ns(), paging(), time.process_time_ns()

    def _end_warm(self) -> None:
        started, used, worked = self._started, self._used, self._worked
        self._look()
        self._cpu.append(float(self._worked - worked))
        self._times.append(float(self._started - started))
        self._begins.append(started)
        self._paging.append((self._used[0] - used[0], self._used[1] - used[1]))

    def _start(self) -> None:
        times = self._times
        half = min(len(times) // 2, self.order.warmup // 2)
        if on_gpu():
            half = (self.order.warmup + 1) // 2  # the step before ended with all the work that was queued until then
        half = max(half, 1)  # the first one is cold, and what watches goes in during it
        self.result.warmup_ns, self.result.samples_ns = times[:half], times[half:][-2 * max(1, self.order.warmup) :]
        self.loads.timed([*self._begins, self._started][-len(self.result.samples_ns) - 1], self._started)
        if steps := len(self.result.samples_ns):
            pages, system = (sum(column) for column in zip(*self._paging[-steps:], strict=True))
            self.result.fresh_bytes, self.result.system_ns = pages / steps, system / steps
            self.result.cpu_ns = sum(self._cpu[-steps:]) / steps
        self.result.timed_until, self.result.gpu = time.time(), gpu_uuid() if on_gpu() else ""
        self.result.device = "cuda" if on_gpu() else "cpu"
        several = any(one is not self._threads[-1] for one in self._threads)
        if self.order.memory and several:
            self.result.notes.append(_NO_MEMORY)
        self.session.arm(on_gpu(), self.order.memory and not several)
        self.state = STARTING

    def begin_whole(self) -> None:
        """Record from here to the end of the program, as one step."""
        self.outer_pass = ""  # what lies outside of calls of modules may be anything
        self.session.arm(profilers.gpu_there(), self.order.memory)
        self.session.record()
        self.launches.begin()
        self.state = RECORDING
        self._begin_step()

    def _begin_recording(self) -> None:
        synchronize()
        self.result.found += 1
        self.session.record()
        self.launches.begin()
        self.state = RECORDING
        self._begin_step()

    def _begin_step(self) -> None:
        self.in_step, self._thread = True, threading.current_thread()
        self._started, self._worked = time.perf_counter_ns(), time.process_time_ns()
        self._open.enter_context(ranges.step(len(self.result.step_ns)))
        if self.outer_pass:
            self._open.enter_context(ranges.in_pass(self.outer_pass))  # ranges of others lie in it, and count before it

    def _end_step(self) -> None:
        synchronize()
        self._moved |= self._thread is not threading.current_thread()
        self._open.close()
        self.result.step_ns.append(float(time.perf_counter_ns() - self._started))
        self.result.profiled_cpu_ns.append(float(time.process_time_ns() - self._worked))
        self.result.found += 1

    def finish(self, goes_on: bool = False) -> None:
        """End the recording here, and export what there is of it. A step that is not over does not count.

        With `goes_on` the program runs on, and nothing of the profiler stays behind.
        """
        if self.state == LINING:
            self.state = DONE
            self.lines.abandon()
            return
        if self.order.whole and self.state == RECORDING:
            self._end_step()
            self.result.device = "cuda" if on_gpu() else "cpu"
        self.state = DONE
        self._open.close()
        self.launches.end()
        self.session.add(self.held)
        if self.session.is_elsewhere:
            self._lost("a recording of one thread, as with --memory, has to end in the thread in which it began")
        profiler = self.session.stop(goes_on)
        if profiler is None or not self.result.step_ns:
            return
        if goes_on and (why := why_attached()):
            self.result.notes.append(STAYS.format(why))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not profilers.export(profiler, self.folder / TRACE):
                self._lost("torch.profiler wrote no trace")
            elif len(self.result.step_ns) < self.order.steps:
                profilers.rename(self.folder / TRACE, f"{profile_names.STEP}{len(self.result.step_ns)}", "perfkit:cut")
        except (OSError, RuntimeError) as error:
            self._lost(getattr(error, "strerror", None) or str(error))

    def give_way(self, why: str) -> None:
        """Another profiler is about to record: keep its whole steps if there are any, else begin again after it."""
        if self.state == LINING:
            self.state = DONE
            self.lines.abandon(f"{why} There are no source lines.")
            return
        if self.order.whole:
            self.result.notes.append(f"{why} What came before it is recorded.")
            self.finish()
            return
        if self.result.step_ns:
            self.result.notes.append(f"{why} {len(self.result.step_ns)} of {self.order.steps} steps were recorded.")
            self.finish()
            return
        self.finish()
        self.state = WARMING
        self.loads.sample(False)
        self._forget()

    def _lost(self, why: str) -> None:
        self.result.step_ns.clear()
        self.result.problem = f"The trace could not be written: {why}."


def synchronize() -> None:
    """Wait for the GPU, where the program uses one and is not capturing a graph of its work."""
    torch = sys.modules["torch"]
    if on_gpu() and not captures_graph():
        torch.cuda.synchronize()


def captures_graph() -> bool:
    """Return whether what the program does now goes into a CUDA graph."""
    return on_gpu() and bool(sys.modules["torch"].cuda.is_current_stream_capturing())


def on_gpu() -> bool:
    """Return whether the program has begun to use a GPU."""
    return bool(sys.modules["torch"].cuda.is_initialized())


def gpu_uuid(device: str | None = None) -> str:
    """Return the UUID of a GPU, without a prefix, of the one in use by default; "" for a CPU, and where
    this PyTorch does not know it."""
    if device == "cpu":
        return ""
    cuda = sys.modules["torch"].cuda
    return str(getattr(cuda.get_device_properties(device or cuda.current_device()), "uuid", ""))


def other_profiler() -> bool:
    """Return whether a profiler that is not perfkit's records now."""
    return bool(sys.modules["torch"].autograd._profiler_enabled())
