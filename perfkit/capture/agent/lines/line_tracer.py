"""Marks the source lines that one thread runs, as ranges in the profile that records meanwhile.

    perfkit:at:/home/me/train.py(12): augment        a line of the user's code, from its begin to the next line's
    perfkit:in:/…/torch/optim/adam.py(213): step     a call of a function of a library, by its first line

`torch.profiler(with_stack=True)` names functions by their first line, and stops a cProfile of the program's on Python
3.11. Python's own tracing names each line and leaves profilers alone. What a trace costs bounds the marks: a function
with very many of them is marked as a whole from then on, by line 0.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch

import perfkit
from perfkit.capture.agent.patches import skipped_by_dynamo
from perfkit.profile_names import AT, IN, to_trace

MOST_OF_A_FUNCTION, MOST_OF_A_LIBRARY, MOST = 4_000, 20_000, 40_000  # marks; each costs about 12 µs in all
USER, LIBRARY, HIDDEN = "user", "library", "hidden"
_OWN = os.path.dirname(os.path.abspath(perfkit.__file__))
_CONTENT = os.path.join(_OWN, "content")  # workloads that a wheel carries: programs like those of a user
_BETWEEN = os.path.join("torch", "nn", "modules", "module.py")  # stands between any two modules, and says nothing
_set_eval_frame = torch._C._dynamo.eval_frame.set_eval_frame
Event = Callable[[FrameType, str, Any], Any]


class _Frame:
    """A frame of the user's code, and the range of the line that it is in. It does not hold the frame: what that refers
    to ends when the program is done with it."""

    __slots__ = ("code", "line", "open", "tracer", "unsaid")

    def __init__(self, tracer: LineTracer, code: CodeType) -> None:
        self.tracer, self.code, self.line, self.open = tracer, code, -1, None
        # What Dynamo makes of a function has the first line wherever it calls a compiled graph: that says nothing.
        self.unsaid = code.co_firstlineno if _is_dynamos(code) else -1

    def go_to(self, line: int) -> None:
        """The frame is at `line` from here on."""
        if line != self.line:
            self.leave()
            self.line = line
            self.open = self.tracer.mark(AT, self.code, line) if line != self.unsaid else None

    def leave(self) -> None:
        """The frame is at no line."""
        if self.open is not None:
            self.open.__exit__(None, None, None)
            self.open = None

    def event(self, frame: FrameType, event: str) -> None:
        """The frame is at another line, or is left."""
        if event == "return":
            self.tracer.returned(self)
        elif event == "line" and (self.tracer.problem or self.tracer.count_of(self.code) > MOST_OF_A_FUNCTION):
            frame.f_trace_lines = False
            self.go_to(0)
        elif event == "line":
            self.go_to(frame.f_lineno)

    def trace(self, frame: FrameType, event: str, _argument: Any) -> Event | None:
        """Python's local trace function of the frame."""
        if self.tracer.is_over:
            return None
        before = _set_eval_frame(None)  # Dynamo compiles nothing of what is done here
        try:
            self.event(frame, event)
        finally:
            _set_eval_frame(before)
        return self.trace


class _LibraryCall(_Frame):
    """A call of a function of a library: one range, no lines."""

    __slots__ = ()

    def event(self, frame: FrameType, event: str) -> None:
        """The frame is left."""
        if event == "return":
            self.tracer.returned(self)


class LineTracer:
    """Marks the lines of the thread that calls `start`, until `stop`, or for `limit_s` seconds at most (0: no limit).

    `problem` says why not all lines are marked, "" where all are.
    """

    def __init__(self, limit_s: float = 0.0) -> None:
        self.is_over = True
        self.problem = ""
        self._limit_s, self._until = limit_s, float("inf")
        self._stack: list[_Frame] = []
        self._kinds: dict[CodeType, str] = {}
        self._counts: dict[CodeType, int] = {}
        self._names: dict[tuple[CodeType, int], str] = {}
        self._marks = self._thread = 0
        self._range: Any = None

    def start(self) -> None:
        """Mark from here on, also in the functions that are being run."""
        self._range = torch._C._profiler._RecordFunctionFast
        _libraries()  # before anything is traced: it asks the system
        self._until = time.monotonic() + self._limit_s if self._limit_s else float("inf")
        self._thread = threading.get_ident()
        self.is_over = False
        sys.settrace(self._called)
        for frame in reversed(self._frames()):
            known = _Frame(self, frame.f_code)
            self._stack.append(known)
            known.go_to(frame.f_lineno)
            frame.f_trace = known.trace

    def stop(self) -> None:
        """Mark nothing more, and leave nothing behind in the frames that still run."""
        if self.is_over:
            return
        self.is_over = True
        if getattr(sys.gettrace(), "__self__", None) is self:
            sys.settrace(None)
        for known in reversed(self._stack):
            known.leave()
        for frame in self._frames():
            if isinstance(getattr(frame.f_trace, "__self__", None), (_Frame, LineTracer)):
                frame.f_trace = None
                frame.f_trace_lines = True
        self._stack.clear()
        self._kinds.clear()
        self._names.clear()

    def mark(self, prefix: str, code: CodeType, line: int) -> Any:
        """An open range of a line of a function."""
        self._marks += 1
        self._counts[code] = self._counts.get(code, 0) + 1
        name = self._names.get((code, line))
        if name is None:
            where = f"{os.path.abspath(code.co_filename)}({line}): {code.co_name}"
            name = self._names[code, line] = to_trace(prefix + where)
        opened = self._range(name)
        opened.__enter__()
        return opened

    def count_of(self, code: CodeType) -> int:
        """How many marks a function has had."""
        return self._counts.get(code, 0)

    def returned(self, known: _Frame) -> None:
        """A frame is left, and with it those inside that nobody saw return."""
        while self._stack:
            last = self._stack.pop()
            last.leave()
            if last is known:
                return

    def _called(self, frame: FrameType, event: str, _argument: Any) -> Event | None:
        """Python's global trace function: a function begins, or goes on after a yield."""
        before = _set_eval_frame(None)
        try:
            return self._entered(frame)
        finally:
            _set_eval_frame(before)

    def _entered(self, frame: FrameType) -> Event | None:
        """The local trace function of a frame that begins; None where it is not marked."""
        if self.is_over:  # another thread has stopped it
            if getattr(sys.gettrace(), "__self__", None) is self:
                sys.settrace(None)
            return None
        code = frame.f_code
        kind = self._kind(code)
        if kind == HIDDEN or (kind == LIBRARY and self._marks > MOST_OF_A_LIBRARY):
            return None
        if not self.problem and (self._marks > MOST or time.monotonic() > self._until):
            first = f"{MOST:,} lines" if self._marks > MOST else f"{self._limit_s:g} s"
            self.problem = f"Source lines are marked for the first {first} of a step, and no longer."
        if self.problem:  # what is open ends as it began: to end it in the middle of calls crashes PyTorch
            return None
        known = _Frame(self, code) if kind == USER else _LibraryCall(self, code)
        self._stack.append(known)
        if kind == LIBRARY:
            frame.f_trace_lines = False
            known.open = self.mark(IN, code, code.co_firstlineno)
        return known.trace

    def _frames(self) -> list[FrameType]:
        """The frames of the user's code that the thread runs, the innermost first. One of these functions here would
        hold itself, and with it what the program holds."""
        frames: list[FrameType] = []
        frame = sys._current_frames().get(self._thread)
        while frame is not None:
            if self._kind(frame.f_code) == USER:
                frames.append(frame)
            frame = frame.f_back
        return frames

    def _kind(self, code: CodeType) -> str:
        kind = self._kinds.get(code)
        if kind is None:
            kind = self._kinds[code] = kind_of(code.co_filename)
        return kind


def _is_dynamos(code: CodeType) -> bool:
    """Return whether Dynamo made a code of one of the user's."""
    made = getattr(sys.modules.get("torch._dynamo.utils"), "orig_code_map", ())
    return code in made


def kind_of(path: str) -> str:
    """Whose code a file holds: the user's, a library's, or nobody's who wants to read it."""
    if path.startswith("<"):
        return USER if path.startswith(("<stdin>", "<ipython-input", "<python-input")) else HIDDEN
    real = os.path.abspath(path)
    if real.endswith(_BETWEEN):
        return HIDDEN
    if real.startswith(_OWN + os.sep) and not real.startswith(_CONTENT + os.sep):
        return HIDDEN
    return LIBRARY if real.startswith(_libraries()) else USER


def _libraries() -> tuple[str, ...]:
    """The folders of the standard library, of what is installed, and of what compilers generate."""
    global _FOLDERS
    if _FOLDERS is None:
        paths = sysconfig.get_paths()
        folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
        folders |= {os.path.dirname(os.__file__), *getattr(site, "getsitepackages", list)(), site.getusersitepackages()}
        torch = getattr(sys.modules.get("torch"), "__file__", None)
        folders |= {os.path.dirname(torch)} if torch else set()
        both = folders | {os.path.realpath(folder) for folder in folders}
        generated = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
        both |= {os.path.abspath(generated)} if generated else set()
        _FOLDERS = (*sorted(f"{folder}{os.sep}" for folder in both), os.path.join(_temporary(), "torchinductor_"))
    return _FOLDERS


_FOLDERS: tuple[str, ...] | None = None


def _temporary() -> str:
    import tempfile

    return tempfile.gettempdir()


for _entered in (_Frame.trace, LineTracer._called):
    skipped_by_dynamo(_entered)
