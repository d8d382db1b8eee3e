"""Has a tool that counts in the hardware (ncu) see one step of a program, and nothing before or after it."""

from __future__ import annotations

import sys
import time

from perfkit.capture.agent.recording.recorder import DONE, RECORDING, STARTING, Recorder, on_gpu, synchronize

NO_GPU = "The program uses no GPU, and hardware counters are of what runs on one."


class Counting(Recorder):
    """Counts the step that a `Recorder` of the same order would record first: between cudaProfilerStart and
    cudaProfilerStop, with nothing left running at either end. It marks nothing: the trace knows the places."""

    marks = False

    def _start(self) -> None:
        self.state = STARTING
        if not on_gpu():
            self.state, self.result.problem = DONE, NO_GPU

    def _begin_recording(self) -> None:
        self.state = RECORDING
        self._begin_step()

    def _begin_step(self) -> None:
        self.in_step = True
        synchronize()
        self._started = time.perf_counter_ns()
        sys.modules["torch"].cuda.profiler.start()

    def _end_step(self) -> None:
        synchronize()
        sys.modules["torch"].cuda.profiler.stop()
        self.result.step_ns.append(float(time.perf_counter_ns() - self._started))
        self.result.found += 1

    def finish(self, goes_on: bool = False) -> None:
        """End here; a step that is not over does not count."""
        state, self.state = self.state, DONE
        if state == RECORDING and not self.result.step_ns:
            sys.modules["torch"].cuda.profiler.stop()
