"""The step whose source lines are recorded: one of its own, after those that are timed and profiled.

Its trace lies beside the other one. Nothing is timed by it: it says which line called which operator, and how the
host's time between two operators is shared out among lines.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path

from perfkit import ranges
from perfkit.capture.agent.lines.line_tracer import LineTracer
from perfkit.capture.agent.order import LINES, Order, ProcessResult
from perfkit.capture.agent.tracing import profiler as profilers
from perfkit.capture.agent.tracing.session import ProfilerSession

LIMIT_S = 2.0  # of what marking lines may add to a step, where nobody asked for it
_LONGEST_NS = 1e9  # of a profiled step: marking lines takes at most about as long again
_ENDED = "No source lines: the program ended before the step in which they are recorded, after the profiled ones."
_MOVED = "No source lines: a step ended in another thread than it began in."


def why_not(order: Order, step_ns: list[float], moved: bool) -> str:
    """Why no lines are recorded after steps that took so long under the profiler, and `moved` from thread to thread; ""
    where they are."""
    if order.lines is False or order.whole or order.counters:
        return ""
    if getattr(sys.modules["torch"]._C._profiler, "_RecordFunctionFast", None) is None:
        return f"No source lines: PyTorch {sys.modules['torch'].__version__} lacks cheap ranges; 2.2 has them."
    if sys.gettrace() is not None:
        return "No source lines: a debugger, or a tool that measures coverage, traces the program."
    if moved:
        return _MOVED
    if order.lines is None and max(step_ns) > _LONGEST_NS:
        return (
            f"No source lines: a profiled step takes {max(step_ns) / 1e9:.1f} s, and lines would add more than "
            f"{LIMIT_S:g} s. --lines records them."
        )
    if order.lines is None and _calls_remotely():
        return "No source lines: PyTorch warns on stderr where a profiler meets remote calls. --lines records them."
    return ""


def _calls_remotely() -> bool:
    """Return whether the program takes part in torch.distributed.rpc."""
    rpc = sys.modules.get("torch.distributed.rpc")
    return bool(getattr(rpc, "_is_current_rpc_agent_set", lambda: False)())


class LineStep:
    """Records one step with its lines into `folder`, and says in the notes of `result` why there are none."""

    def __init__(self, order: Order, folder: Path, result: ProcessResult) -> None:
        self._order, self._folder, self._result = order, folder, result
        self._session = ProfilerSession()
        self._open = contextlib.ExitStack()
        self._tracer: LineTracer | None = None

    def wanted(self, moved: bool) -> bool:
        """Return whether a step is to be recorded. If it is not for a reason, the reason becomes a note."""
        if self._order.lines is False or self._order.whole or self._order.counters:
            return False
        why = why_not(self._order, self._result.step_ns, moved)
        self._result.notes += [why] if why else []
        return not why

    def begin(self, on_gpu: bool) -> None:
        """Begin the step."""
        self._thread = threading.current_thread()
        # PyTorch warns on stderr where memory is recorded: only when asked for.
        self._session.arm(on_gpu, self._order.memory, all_threads=False)
        self._session.record()
        self._open.enter_context(ranges.step(0))
        self._tracer = LineTracer(LIMIT_S if self._order.lines is None else 0.0)
        self._tracer.start()

    def end(self) -> None:
        """End the step and write its trace."""
        if self._tracer is None or self._thread is not threading.current_thread():
            self.abandon(_MOVED)
            return
        self._tracer.stop()
        self._open.close()
        profiler = self._session.stop(goes_on=True)
        problem = self._tracer.problem
        try:
            written = profiler is not None and profilers.export(profiler, self._folder / LINES)
        except (OSError, RuntimeError) as error:
            written, problem = False, str(error)
        if not written:
            self._result.notes.append(f"No source lines: their trace could not be written. {problem}".rstrip())
        elif problem:
            self._result.notes.append(problem)

    def abandon(self, why: str = _ENDED) -> None:
        """The step does not come, or does not end."""
        if self._tracer is not None:
            self._tracer.stop()
        self._open.close()
        with contextlib.suppress(RuntimeError):  # of a thread that has ended
            self._session.stop(goes_on=False)
        self._result.notes.append(why)
