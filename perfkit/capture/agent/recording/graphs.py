"""CUDA graphs that a program captures by itself: a trace of each capture, and which graph a replay is of.

The kernels of a replay have no operator around them. But a capture runs the program once as it is, and launches in the
order of the graph's nodes: a trace of it tells the operator, module and pass of each launch. Compilers' own captures
are left out: what their code calls is told by `perfkit.capture.agent.models.compilation`.
"""

from __future__ import annotations

import contextlib
import sys
import time
import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch

from perfkit import profile_names, ranges
from perfkit.capture.agent.order import GRAPH
from perfkit.capture.agent.patches import Patches
from perfkit.capture.agent.recording.recorder import WARMING, Recorder, other_profiler
from perfkit.capture.agent.steps.rounds import key_of
from perfkit.capture.agent.tracing import profiler as profilers

_COMPILER = "torch._inductor."
_MOST_S = 60.0  # that recording may add to a program, all captures together
_SINCE = (12, 6)  # of CUDA: before, a profiler's second session in a process with graphs may crash it
_MOST = 256  # graphs: a server captures one for each size of a batch


class GraphCaptures:
    """Records captures until the program's steps are recorded, into files of `recorder`'s folder."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._session = recorder, recorder.session
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.capturing = False  # a capture is being recorded, and modules and passes are to be marked
        self._of: Any = None  # the graph that is being captured
        self._open: Any = None  # the same, whether that is recorded or not
        self._models: weakref.WeakKeyDictionary[Any, tuple[Hashable, str]] = weakref.WeakKeyDictionary()
        self._pass = contextlib.ExitStack()
        self._spent = 0.0
        self._count = 0

    def install(self, patches: Patches) -> None:
        """Begin to record captures, where a profiler may come and go beside graphs."""
        if not _cuda() >= _SINCE:
            return
        patches.wrap(torch.cuda.CUDAGraph, "capture_begin", self._capture_begin)
        patches.wrap(torch.cuda.CUDAGraph, "capture_end", self._capture_end)

    def replaying(self, graph: Any) -> contextlib.AbstractContextManager[None]:
        """The range of a replay of `graph`, where its capture was recorded."""
        number = self._numbers.get(graph) if self._numbers else None
        return contextlib.nullcontext() if number is None else ranges.mark(f"{profile_names.GRAPH}{number}")

    def called(self, module: Any, role: str) -> None:
        """Note the first model that a graph holds a call of, without gradients: each replay is such a call."""
        graph = self._open() if self._open is not None else None
        if graph is not None and graph not in self._models and not torch.is_grad_enabled():
            self._models[graph] = key_of(module), role

    def model_of(self, graph: Any) -> tuple[Hashable, str] | None:
        """Return key and role of the model that `graph` holds a call of, None where it holds none."""
        return self._models.get(graph)

    def close(self) -> None:
        """Record nothing more."""
        if self.capturing:
            with self._counted():
                self._stop()

    def _capture_begin(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self._open = weakref.ref(graph)
            with self._counted():
                self._start(graph)
            try:
                return original(graph, *args, **kwargs)
            except BaseException:
                with self._counted():
                    self._stop()
                raise

        return capture_begin

    def _capture_end(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                result = original(graph, *args, **kwargs)
            except BaseException:
                with self._counted():
                    self._stop()
                raise
            finally:
                self._open = None
            with self._counted():
                self._keep(graph)
            return result

        return capture_end

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Add the block's time to what recording took. What goes wrong in it ends the recording, never the program."""
        started = time.monotonic()
        try:
            yield
        except Exception as error:
            with contextlib.suppress(Exception):
                self._stop()
            self._count = _MOST
            said = f"What a CUDA graph holds was not recorded: {type(error).__name__}: {error}."
            self._recorder.result.notes.append(said)
        self._spent += time.monotonic() - started

    def _start(self, graph: Any) -> None:
        wanted = self._recorder.state == WARMING and self._recorder.marks and not self.capturing
        if not wanted or self._count >= _MOST or self._spent > _MOST_S or other_profiler() or _of_a_compiler():
            return
        self._of, self.capturing = weakref.ref(graph), True
        self._session.arm(True, False)
        self._session.record()
        self._pass.enter_context(ranges.in_pass("forward"))  # of what is in no other, as in steps

    def _stop(self) -> Any:
        """Record no longer; return the profiler that did, None where none did."""
        if not self.capturing:
            return None
        self.capturing = False
        try:
            self._pass.close()
        finally:
            profiler = self._session.stop(goes_on=False)
        return profiler

    def _keep(self, graph: Any) -> None:
        if not self.capturing or self._of() is not graph:
            return
        profiler, folder = self._stop(), self._recorder.folder
        folder.mkdir(parents=True, exist_ok=True)
        if profilers.export(profiler, folder / GRAPH.format(self._count)):
            self._numbers[graph] = self._count
            self._count += 1


def _cuda() -> tuple[int, ...]:
    """The version of CUDA that this PyTorch was built for; () for none."""
    return tuple(int(number) for number in (torch.version.cuda or "").split(".") if number.isdigit())


def _of_a_compiler() -> bool:
    """Return whether a compiler captures, to replay what it generated."""
    frame = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(_COMPILER):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
