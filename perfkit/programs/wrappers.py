"""Wrappers of torch's functions, through which a program tells what it does: calls, optimizer steps, graphs, marks.

Wrappers, not hooks: a compiler that traces a model looks at the hooks of modules, warns of global ones, and compiles
again when they come or go. A wrapper that is traced calls what it wraps, and leaves no trace in the graph.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from types import FunctionType
from typing import Any, Protocol, cast

import torch

from perfkit import ranges
from perfkit.programs.graphs import Graphs
from perfkit.programs.marks import Marks
from perfkit.programs.patches import Patches
from perfkit.programs.recorder import DONE, WARMING, Recorder
from perfkit.programs.steps import MARK, OPTIMIZER, REPLAY

_compiling = torch.compiler.is_compiling


def _of_python(ident: int) -> bool:
    """Whether Python started the thread, not a library; such as call Python are known as dummies."""
    return any(t.ident == ident and not t.name.startswith("Dummy") for t in threading.enumerate())


class _ByClass(dict[type, Callable[..., Any]]):
    """For each class of modules a copy of a function, with a code of its own: by its code Dynamo keeps what it compiled
    of a function. Classes that share their forward share the copy."""

    def __init__(self, function: FunctionType) -> None:
        super().__init__()
        self._function = function
        self._copies: dict[Any, Callable[..., Any]] = {}

    def __missing__(self, key: type) -> Callable[..., Any]:
        forward, own = getattr(key, "forward", None), self._function
        code = getattr(forward, "__code__", forward)
        if code not in self._copies:
            copied = own.__code__.replace(co_name=f"{key.__name__}.forward")  # as Dynamo's reasons have it
            self._copies[code] = FunctionType(copied, own.__globals__, own.__name__, None, own.__closure__)
        self[key] = self._copies[code]
        return self[key]


def _not_compiled(*functions: Callable[..., Any]) -> Callable[..., Any]:
    """A wrapper of `torch.compile`, which first tells Dynamo to run `functions` as they are, and to compile what they
    call."""

    def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def compile(*args: Any, **kwargs: Any) -> Any:
            from torch._dynamo import eval_frame

            if hasattr(eval_frame, "skip_code"):
                for function in functions:
                    eval_frame.skip_code(function.__code__)
            return original(*args, **kwargs)

        return compile

    return wrapper


class Told(Protocol):
    """Who the wrappers tell: `idle` while nothing is to be told."""

    marks: Marks
    recorder: Recorder
    graphs: Graphs
    idle: bool

    def called(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        """An outermost module is called."""

    def signal(self, kind: str, key: Hashable) -> None:
        """Something that may end a step happened, to the object that `key` tells."""


class Wrappers:
    """Tells `watcher` of what one thread does; work of other threads is placed, and ends no steps.

    It is the thread that made it, or where that calls nothing, as in a server, the first other one that does.
    """

    def __init__(self, watcher: Told) -> None:
        self._watcher, self._marks, self._recorder = watcher, watcher.marks, watcher.recorder
        self._first = self._thread = threading.get_ident()
        self._told = False  # the thread did something that counts
        self._depth = self._optimizing = 0
        self._stepped = False

    def install(self, patches: Patches) -> None:
        """Wrap what tells of steps and modules."""
        patches.wrap(torch.nn.Module, "__call__", self._module_call)
        patches.wrap(torch, "compile", _not_compiled(torch.nn.Module.__call__, _ByClass.__missing__))
        patches.wrap(torch.optim.Optimizer, "profile_hook_step", self._hooked_step)
        patches.wrap(torch.amp.GradScaler, "step", self._scaler_step)
        patches.wrap(torch.cuda.CUDAGraph, "replay", self._replay)
        patches.wrap(torch.profiler.profile, "step", self._profiler_step)

    def install_passes(self, patches: Patches) -> None:
        """Wrap what tells of passes, which only matter while steps are recorded."""
        patches.wrap(torch.autograd, "backward", self._backward)
        patches.wrap(torch.autograd, "grad", self._backward)
        patches.wrap(torch.optim.Optimizer, "zero_grad", self._zero_grad)

    def _elsewhere(self) -> bool:
        """Whether a compiler traces this call, another thread makes it, or nobody watches."""
        return _compiling() or self._watcher.idle or not self._watched()

    def _watched(self) -> bool:
        """Whether this thread is the one to tell of, or becomes it: the first thread always, another one instead of a
        thread that did nothing yet. What torch's own threads do belongs to somebody's step."""
        here = threading.get_ident()
        if here != self._thread:
            if self._recorder.state != WARMING or (self._told and here != self._first) or not _of_python(here):
                return False
            self._thread = here
            self._recorder.restart()
        self._told = True
        return True

    @property
    def of_another_thread(self) -> bool:
        """Whether the steps are those of a thread that the program started."""
        return self._thread != self._first

    def _quiet(self) -> bool:
        """Whether nothing is recorded now."""
        if self._watcher.graphs.capturing:
            return False
        return self._recorder.state in (WARMING, DONE) or not self._recorder.marks

    def _module_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A call of any module, by the wrapper of its class: Dynamo compiles one function eight times at most, and that
        of all modules would have no more for the ninth compiled part of a model."""
        calls = _ByClass(self._call_of_a_class(original))

        def __call__(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if _compiling():
                return original(module, *args, **kwargs)
            return calls[type(module)](module, *args, **kwargs)

        return __call__

    def _call_of_a_class(self, original: Callable[..., Any]) -> FunctionType:
        def __call__(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._elsewhere():
                return self._other_thread(original, module, args, kwargs)
            outermost = self._depth == 0 and not self._marks.in_backward
            if outermost:
                self._watcher.called(module, args, kwargs)
            self._depth += 1
            try:
                if self._quiet():
                    return original(module, *args, **kwargs)
                with self._marks.module(module, outermost):
                    return original(module, *args, **kwargs)
            finally:
                self._depth -= 1

        return cast(FunctionType, __call__)

    def _other_thread(self, original: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
        """A call that tells of no step: it is traced, or autograd's thread computes a block again.

        Whether a compiler traces it is asked first: whatever else is asked there becomes a guard, and the program
        compiles again when it changes.
        """
        if _compiling() or self._watcher.idle or self._quiet():
            return original(module, *args, **kwargs)
        with self._marks.module(module):
            return original(module, *args, **kwargs)

    def _hooked_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Around the wrapper that every optimizer's step gets when the first of its class is made."""

        def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
            made = original(function)

            def step(*args: Any, **kwargs: Any) -> Any:
                if self._optimizing or self._elsewhere():
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
            result = call(*args, **kwargs) if self._quiet() else self._marks.optimizer(args, kwargs, call)
        finally:
            self._optimizing -= 1
        self._stepped = True
        self._watcher.signal(OPTIMIZER, id(args[0]))
        return result

    def _scaler_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A scaler leaves the optimizer's step out where gradients overflowed: the iteration ends all the same."""

        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self._stepped = False
            result = original(scaler, optimizer, *args, **kwargs)
            if not self._stepped:
                self._watcher.signal(OPTIMIZER, id(optimizer))
            return result

        return step

    def _replay(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def replay(graph: Any, *args: Any, **kwargs: Any) -> Any:
            if self._depth == 0 and not self._optimizing and not self._marks.in_backward:
                self._watcher.signal(REPLAY, id(graph))
            if self._watcher.idle:
                return original(graph, *args, **kwargs)
            with self._watcher.graphs.replaying(graph):
                return original(graph, *args, **kwargs)

        return replay

    def _profiler_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(profiler: Any) -> Any:
            result = original(profiler)
            if profiler is not self._recorder.profiler:
                self._watcher.signal(MARK, 0)
            return result

        return step

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(*args: Any, **kwargs: Any) -> Any:
            if self._elsewhere():
                return original(*args, **kwargs)
            return self._marks.backward(lambda: original(*args, **kwargs))

        return backward

    def _zero_grad(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def zero_grad(*args: Any, **kwargs: Any) -> Any:
            if _compiling() or self._watcher.idle:
                return original(*args, **kwargs)
            with ranges.in_pass("zero_grad"):
                return original(*args, **kwargs)

        return zero_grad
