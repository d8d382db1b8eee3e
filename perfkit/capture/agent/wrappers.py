"""Wrappers of torch's functions, through which a program shows what it does: calls, optimizer steps, graphs, marks.

Wrappers, not hooks: a compiler that traces a model looks at the hooks of modules, warns of global ones, and compiles
again when they come or go. A wrapper that is traced calls what it wraps, and leaves no trace in the graph; what it does
besides runs while Dynamo looks away, in the frames that Dynamo would compile else.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from perfkit import profile_names, ranges
from perfkit.capture.agent.around import End, Observer, apart, around, compiling, set_eval_frame
from perfkit.capture.agent.patches import OptimizerSteps, Patches
from perfkit.capture.agent.recording.recorder import DONE, RECORDING, WARMING
from perfkit.capture.agent.steps.ends import CALL, COMPILED, ITERATION, MARK, OPTIMIZER, REPLAY
from perfkit.capture.agent.steps.rounds import key_of, role_of
from perfkit.capture.agent.steps.threads import WatchedThread
from perfkit.engines import iteration_of


class Wrappers:
    """Informs `watcher` of what the program does."""

    def __init__(self, watcher: Observer) -> None:
        self._watcher, self._recorder = watcher, watcher.recorder
        self._patches, self._steps = Patches(), OptimizerSteps(around(watcher, self._optimizer_step))
        self._late: dict[str, Callable[[Any], None]] = {
            "torch._dynamo.eval_frame": lambda module: self._patches.wrap(
                module, "_callback_from_stance", around(watcher, self._compiled_call)
            ),
            "torch.distributed.autograd": lambda module: self._patches.wrap(
                module, "backward", around(watcher, self._backward)
            ),
            "torch.distributed.optim": lambda module: self._patches.wrap(
                module.DistributedOptimizer, "step", around(watcher, self._optimizer_step)
            ),
        }

    def install(self) -> None:
        """Wrap what shows steps, passes and modules."""
        self._patches.wrap(torch.nn.Module, "__call__", self._module_call)
        # The one function has two names there; pickles go by the second.
        self._patches.replace(torch.nn.Module, "_wrapped_call_impl", torch.nn.Module.__call__)
        tell_dynamo()
        for owner, name, begin in (
            (torch, "compile", self._compile),
            (torch.amp.GradScaler, "step", self._scaler_step),
            (torch.cuda.CUDAGraph, "replay", self._replay),
            (torch.profiler.profile, "step", self._profiler_step),
            (torch.profiler.record_function, "__enter__", self._range),
            (torch.autograd, "backward", self._backward),
            (torch.autograd, "grad", self._backward),
            (torch.optim.Optimizer, "zero_grad", self._zero_grad),
            (torch.utils.data.dataloader._BaseDataLoaderIter, "__next__", self._next_batch),
        ):
            self._patches.wrap(owner, name, around(self._watcher, begin))
        for owner in vars(getattr(torch._C, "_aoti", torch._C)).values():
            for name in ("run", "boxed_run"):
                if isinstance(owner, type) and name in vars(owner):
                    self._patches.wrap(owner, name, around(self._watcher, partial(self._opaque_call, name)))
        self._steps.install()

    def remove(self) -> None:
        """Give everything back."""
        self._patches.restore()
        self._steps.restore()
        tell_dynamo()

    def wrap_what_came_late(self) -> None:
        """Wrap what is in modules that a program imports when it needs them."""
        for name in [name for name in self._late if name in sys.modules]:
            self._late.pop(name)(sys.modules[name])

    def _module_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """As `around`, with `self` in the frame: there PyTorch's tracer of Python, which a program's own profiler may
        use, reads the module of a call."""
        watcher, begin = self._watcher, self._call_of_module
        recorder, graphs, threads = watcher.recorder, watcher.graphs, watcher.threads
        shortage = watcher.shortage

        def __call__(self: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            if compiling() or watcher.idle:
                return original(self, *args, **kwargs)
            # Nearly all calls: of modules in modules, while nothing is recorded.
            if recorder.state == WARMING and not graphs.capturing and threads.own.depth and not shortage.watches_blocks:
                return original(self, *args, **kwargs)
            active = set_eval_frame(None)
            try:
                end = begin(self, args, kwargs, active not in (None, False))
            finally:
                set_eval_frame(active)
            try:
                return original(self, *args, **kwargs)
            finally:
                apart(end)

        return __call__

    def _quiet(self) -> bool:
        """Return whether nothing is recorded now."""
        if self._watcher.graphs.capturing:
            return False
        return self._recorder.state in (WARMING, DONE) or not self._recorder.marks

    # Modules ---------------------------------------------------------------------------------------------------------

    def _call_of_module(self, module: torch.nn.Module, args: Any, kwargs: Any, in_compiled: bool) -> Callable[[], None]:
        thread = self._watcher.threads.own
        outermost = thread.depth == 0 and not (thread.marks.in_backward or thread.loading or in_compiled)
        request = outermost and thread.of_python and self._watcher.called(thread, module, args, kwargs)
        mark = self._mark_of(thread, module, outermost)
        shortage = self._watcher.shortage
        noted = shortage.block(module, args) if shortage.watches_blocks else None
        mark.__enter__()
        thread.depth += 1

        def end() -> None:
            thread.depth -= 1
            if noted is not None:
                noted()
            mark.__exit__(None, None, None)
            if request:
                self._watcher.returned(thread)

        return end

    def _mark_of(
        self, thread: WatchedThread, module: torch.nn.Module, outermost: bool
    ) -> contextlib.AbstractContextManager[None]:
        if self._quiet():
            return _NOTHING
        # Its own modules as well: a request may have begun before anything was recorded.
        if self._watcher.is_apart(thread):
            return ranges.mark(profile_names.APART)
        return thread.marks.module(module, outermost)

    def _compile(self, args: Any, kwargs: Any) -> End:
        """Dynamo is there from the first compilation on."""
        import torch._dynamo.eval_frame  # noqa: F401

        self.wrap_what_came_late()
        return None

    def _compiled_call(self, args: Any, kwargs: Any) -> End:
        """What torch.compile returned asks a function of Dynamo's first when it is called. So the program holds
        PyTorch's own wrapper of its function, and none of perfkit's."""
        callback, thread = args[0], self._watcher.threads.own
        if callback not in (None, False) and thread.of_python and not (thread.depth or thread.marks.in_backward):
            self._watcher.signal(CALL, key_of(callback), COMPILED)
        return None

    def _opaque_call(self, name: str, args: Any, kwargs: Any) -> End:
        """A model that was compiled ahead of time runs: its code records nothing of what it does."""
        thread, model = self._watcher.threads.own, args[0]
        if thread.of_python and not (thread.depth or thread.marks.in_backward):
            self._watcher.signal(CALL, key_of(model), COMPILED)
        return None if self._quiet() else _entered(ranges.compiled_code(f"{type(model).__name__}.{name}"))

    def _next_batch(self, args: Any, kwargs: Any) -> End:
        thread = self._watcher.threads.own
        mark = _NOTHING if self._quiet() else thread.marks.loading()
        mark.__enter__()
        thread.loading += 1
        got = self._recorder.loads.asked(args[0])

        def end() -> None:
            got()
            thread.loading -= 1
            mark.__exit__(None, None, None)

        return end

    # Optimizers ------------------------------------------------------------------------------------------------------

    def _optimizer_step(self, args: Any, kwargs: Any) -> End:
        """Around the wrapper that every optimizer's step gets when the first of its class is made."""
        thread = self._watcher.threads.own
        if not args or thread.optimizing:
            return None
        if self._recorder.state == RECORDING and self._recorder.order.memory:
            self._watcher.note_held(args[0])
        closes = None if self._quiet() else thread.marks.optimizer()
        thread.optimizing += 1

        def end() -> None:
            thread.optimizing -= 1
            if closes is not None:
                closes()
            thread.stepped = True
            self._watcher.signal(OPTIMIZER, key_of(args[0]), role_of(args[0]))

        return end

    def _scaler_step(self, args: Any, kwargs: Any) -> End:
        """A scaler leaves the optimizer's step out where gradients overflowed: the iteration ends all the same."""
        thread = self._watcher.threads.own
        thread.stepped = False
        optimizer = args[1] if len(args) > 1 else kwargs.get("optimizer")

        def end() -> None:
            if not thread.stepped and optimizer is not None:
                self._watcher.signal(OPTIMIZER, key_of(optimizer), role_of(optimizer))

        return end

    def _zero_grad(self, args: Any, kwargs: Any) -> End:
        return None if self._quiet() else _entered(ranges.in_pass("zero_grad"))

    # Passes, graphs, marks -------------------------------------------------------------------------------------------

    def _backward(self, args: Any, kwargs: Any) -> End:
        closes = self._watcher.threads.own.marks.backward(marked=not self._quiet())
        if closes is None:
            return None

        def end() -> None:
            closes()
            self._watcher.safe_now()

        return end

    def _replay(self, args: Any, kwargs: Any) -> End:
        thread = self._watcher.threads.own
        if not (thread.depth or thread.optimizing or thread.marks.in_backward):
            model = self._watcher.graphs.model_of(args[0])
            if model is not None:
                self._watcher.signal(CALL, *model)
            else:
                self._watcher.signal(REPLAY, key_of(args[0]))
        return _entered(self._watcher.graphs.replaying(args[0]))

    def _range(self, args: Any, kwargs: Any) -> End:
        """A range of the program's begins, which may be the mark of an engine's iteration."""
        name = args[0].name
        if isinstance(name, str) and iteration_of(name) is not None:
            self._watcher.signal(ITERATION, name[:_KIND])  # engines mark one iteration by several ranges in each other
        return None

    def _profiler_step(self, args: Any, kwargs: Any) -> End:
        return lambda: self._watcher.signal(MARK, 0)


def tell_dynamo() -> None:
    """Have Dynamo take the call of a module as it is now for the one that nobody changed, which it noted when it was
    imported: of such modules it compiles the forward, and never looks at the call."""
    for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):
        if hasattr(sys.modules.get(name), "unpatched_nn_module_call"):
            sys.modules[name].unpatched_nn_module_call = torch.nn.Module.__call__  # type: ignore[attr-defined]


_KIND = 4  # characters that tell the names of one engine's ranges from those of another
_NOTHING: contextlib.AbstractContextManager[None] = contextlib.nullcontext()


def _entered(context: contextlib.AbstractContextManager[None]) -> Callable[[], None]:
    """Enter `context`; what leaves it."""
    context.__enter__()

    def leave() -> None:
        context.__exit__(None, None, None)

    return leave
