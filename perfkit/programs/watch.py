"""Watches a program from inside: its optimizers, modules, graphs and profilers, through wrappers of torch's functions.

Wrappers, not hooks: a compiler that traces a model looks at the hooks of modules, warns of global ones, and compiles
again when they come or go. A wrapper that is traced calls what it wraps, and leaves no trace in the graph. When the
steps are recorded the wrappers are taken out.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any

import torch

from perfkit import ranges
from perfkit.programs import facts, names
from perfkit.programs.marks import Marks
from perfkit.programs.order import Order
from perfkit.programs.patches import Patches
from perfkit.programs.recorder import DONE, RECORDING, STARTING, WARMING, Recorder, captures_graph
from perfkit.programs.steps import CALL, MARK, OPTIMIZER, REPLAY, StepFinder

_compiling = torch.compiler.is_compiling


class Watcher:
    """Finds the steps of the program around it, and records them with `recorder`; `ended()` is called after the last.

    What goes wrong in here ends the watching, never the program.
    """

    def __init__(self, recorder: Recorder, ended: Callable[[], None], only: str = "") -> None:
        self.recorder, self._ended = recorder, ended
        self.steps = StepFinder(_trains, only)
        self.marks = Marks(self._path_of)
        self.idle = False
        self._thread = threading.get_ident()
        self._depth = self._optimizing = 0
        self._called: dict[int, weakref.ref[torch.nn.Module]] = {}
        self._paths: dict[int, str] = {}
        self._conditions = facts.Conditions()
        self._others = 0
        self._patches = Patches()

    def install(self) -> None:
        """Begin to watch."""
        wrap = self._patches.wrap
        wrap(torch.nn.Module, "__call__", self._module_call)
        wrap(torch.optim.Optimizer, "profile_hook_step", self._hooked_step)
        wrap(torch.amp.GradScaler, "step", self._scaler_step)
        wrap(torch.cuda.CUDAGraph, "replay", self._replay)
        wrap(torch.profiler.profile, "step", self._profiler_step)
        wrap(torch.autograd.profiler.profile, "_prepare_trace", self._other_profiler)
        wrap(torch.autograd.profiler.profile, "__exit__", self._other_ended)

    def remove(self) -> None:
        """Stop watching; what is recorded stays in the recorder."""
        self.idle = True
        self._patches.restore()
        self._called.clear()

    # What the program does -----------------------------------------------------------------------------------------

    def _module_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __call__(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if _compiling() or self.idle or threading.get_ident() != self._thread:
                return self._other_thread(original, module, args, kwargs)
            if self._depth == 0 and not self.marks.in_backward:
                self._outermost(module, args, kwargs)
            self._depth += 1
            try:
                if self.recorder.state in (WARMING, DONE):
                    return original(module, *args, **kwargs)
                with self.marks.module(module):
                    return original(module, *args, **kwargs)
            finally:
                self._depth -= 1

        return __call__

    def _other_thread(self, original: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
        """A call that tells of no step: it is traced, or autograd's thread computes a block again."""
        if self.idle or _compiling() or self.recorder.state in (WARMING, DONE):
            return original(module, *args, **kwargs)
        with self.marks.module(module):
            return original(module, *args, **kwargs)

    def _outermost(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        def act() -> None:
            if _in_worker():
                self.remove()
                return
            self.marks.outermost_call()
            if id(module) not in self._called:
                self._called[id(module)] = weakref.ref(module)
                self._paths.clear()
            if self.recorder.state != RECORDING:
                self._conditions = facts.conditions((args, kwargs))
            self._signal(CALL, id(module))

        self._guarded(act)

    def _hooked_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Around the wrapper that every optimizer's step gets when the first of its class is made."""

        def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
            made = original(function)

            def step(*args: Any, **kwargs: Any) -> Any:
                if _compiling() or self.idle or self._optimizing or threading.get_ident() != self._thread:
                    return made(*args, **kwargs)
                return self._optimizer_step(made, args, kwargs)

            step.__dict__.update(made.__dict__)
            step.__wrapped__ = made  # type: ignore[attr-defined]
            step.__name__, step.__doc__ = made.__name__, made.__doc__
            return step

        return profile_hook_step

    def _optimizer_step(self, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self._optimizing += 1
        try:
            marked = self.recorder.state not in (WARMING, DONE)
            result = self.marks.optimizer(args, kwargs, call) if marked else call(*args, **kwargs)
        finally:
            self._optimizing -= 1
        self._stepped = True
        self._guarded(lambda: self._signal(OPTIMIZER, id(args[0])))
        return result

    def _scaler_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A scaler leaves the optimizer's step out where gradients overflowed: the iteration ends all the same."""

        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self._stepped = False
            result = original(scaler, optimizer, *args, **kwargs)
            if not (self.idle or self._stepped):
                self._guarded(lambda: self._signal(OPTIMIZER, id(optimizer)))
            return result

        return step

    def _replay(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def replay(graph: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.idle and self._depth == 0 and not self._optimizing and not self.marks.in_backward:
                self._guarded(lambda: self._signal(REPLAY, id(graph)))
            return original(graph, *args, **kwargs)

        return replay

    def _profiler_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(profiler: Any) -> Any:
            result = original(profiler)
            if not (self.idle or self._ours(profiler)):
                self._guarded(lambda: self._signal(MARK, 0))
            return result

        return step

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(*args: Any, **kwargs: Any) -> Any:
            if _compiling() or self.idle or threading.get_ident() != self._thread:
                return original(*args, **kwargs)
            return self.marks.backward(lambda: original(*args, **kwargs))

        return backward

    def _zero_grad(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def zero_grad(*args: Any, **kwargs: Any) -> Any:
            if _compiling() or self.idle:
                return original(*args, **kwargs)
            with ranges.in_pass("zero_grad"):
                return original(*args, **kwargs)

        return zero_grad

    # Profilers of the program's own --------------------------------------------------------------------------------

    def _ours(self, profiler: Any) -> bool:
        return profiler is self.recorder.profiler

    def _other_profiler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Two profilers cannot record at a time: the program's goes first."""

        def _prepare_trace(profiler: Any) -> Any:
            if not (self.idle or self.recorder.touches_profiler):
                self._others += 1
                if self.recorder.state in (STARTING, RECORDING):
                    self._guarded(self._give_way)
            return original(profiler)

        return _prepare_trace

    def _other_ended(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __exit__(profiler: Any, *args: Any) -> Any:
            if not (self.idle or self.recorder.touches_profiler):
                self._others = max(0, self._others - 1)
            return original(profiler, *args)

        return __exit__

    def _give_way(self) -> None:
        self.recorder.give_way("The program started a torch.profiler of its own, which ended the recording.")
        if self.recorder.state == DONE:
            self._end()

    # Steps ---------------------------------------------------------------------------------------------------------

    def mark(self) -> None:
        """The program says that a step is over."""
        if not self.idle:
            self._guarded(lambda: self._signal(MARK, 0))

    def _signal(self, kind: str, key: Hashable) -> None:
        if captures_graph():
            return  # nothing runs now: what is called is written down for replays
        before = self.steps.kind
        boundary = self.steps.signal(kind, key)
        if self.steps.kind != before:
            self.recorder.restart()
        if not boundary or self.recorder.state == DONE:
            return
        state = self.recorder.state
        self.marks.boundary()
        over = self.recorder.boundary(lambda: self._others == 0 and self.steps.ready())
        if state == WARMING and self.recorder.state == STARTING:
            self._begin()
        if over:
            self._end()

    def _begin(self) -> None:
        self.steps.fix()
        if self.steps.kind == REPLAY:
            self.recorder.outer_pass = ""  # a graph holds all passes, and nothing tells its kernels apart
        self._patches.wrap(torch.autograd, "backward", self._backward)
        self._patches.wrap(torch.autograd, "grad", self._backward)
        self._patches.wrap(torch.optim.Optimizer, "zero_grad", self._zero_grad)

    def finish(self) -> None:
        """End here: what is recorded is kept, and the result says why there is not more."""
        recorder = self.recorder
        was, wanted, result = recorder.state, recorder.order, recorder.result
        recorder.finish()
        if was == RECORDING and result.recorded:
            result.notes.append(f"The program ended when {len(result.step_ns)} of {wanted.steps} steps were recorded.")
        elif not result.problem:
            result.problem = too_few(result.found, wanted)
        self._end()

    def _end(self) -> None:
        self.describe()
        self.remove()
        self._ended()

    def describe(self) -> None:
        """Add to the result what the program tells of itself."""
        result = self.recorder.result
        result.steps_are = self.steps.words()
        models = self._models()
        result.layers = names.layers(models, names.paths(models))
        training = self.steps.kind == OPTIMIZER or (self.steps.kind == REPLAY and _trains())
        facts.add(result, models, self._conditions, training)

    def _models(self) -> list[torch.nn.Module]:
        return names.outermost([m for ref in self._called.values() if (m := ref()) is not None])

    def _path_of(self, module: torch.nn.Module) -> str:
        path = self._paths.get(id(module))
        if path is None:
            self._paths = names.paths(self._models())
            path = self._paths.setdefault(id(module), names.of_wrapper(module, self._paths))
        return path

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self.recorder.result.problem = f"perfkit failed in the program: {type(error).__name__}: {error}"
            self.remove()
            self._ended()


def too_few(found: int, order: Order) -> str:
    """Why a program that took `found` steps was not recorded; "" where it took none."""
    if not found:
        return ""
    steps = "1 step" if found == 1 else f"{found} steps"
    needed = order.warmup + 1 + order.steps
    later = f" after the first {order.after:g} s" if order.after else ""
    return (
        f"The program took {steps}{later}, and {needed} are needed: {order.warmup} to warm up, 1 for the profiler, "
        f"{order.steps} to be recorded. Lower the warm-up (--warmup)."
    )


def _trains() -> bool:
    """Whether the program holds an optimizer."""
    # By type: isinstance asks objects for their __class__, and some warn when they are asked.
    return any(issubclass(type(thing), torch.optim.Optimizer) for thing in gc.get_objects())


def _in_worker() -> bool:
    """Whether this process loads data for another."""
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return worker is not None and getattr(worker, "_worker_info", None) is not None
