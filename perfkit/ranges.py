"""One call marks a step, a pass or a module, for NVTX and torch.profiler alike.

A mark costs a flag test when nobody listens. Somebody listens while a torch profiler records, when a tool injected
itself into the process (Nsight Systems and Nsight Compute do), or when PERFKIT_NVTX=1 is set.

The names of ranges are those of `perfkit.profile_names`, the contract with the readers.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from perfkit.profile_names import MODULE, PASS, PREFIX, STEP, to_trace

if TYPE_CHECKING:
    import torch

# Set in the environment of a process by Nsight Systems, Nsight Compute, or any tool that implements NVTX.
_INJECTION = (
    "NVTX_INJECTION64_PATH",
    "CUDA_INJECTION64_PATH",
    "NSYS_PROFILING_SESSION_ID",
    "NV_NSIGHT_INJECTION_TRANSPORT_TYPE",
)


@functools.cache
def tool_listens() -> bool:
    """Return whether an NVTX tool is attached to this process, by the environment it was started with."""
    return os.environ.get("PERFKIT_NVTX") == "1" or any(os.environ.get(name) for name in _INJECTION)


_of_all_threads = False  # perfkit's own session records every thread, of which torch's flag knows nothing


def record_all_threads(on: bool) -> None:
    """State that a session of perfkit records all threads of this process, or that none does any more."""
    global _of_all_threads
    _of_all_threads = on


def _torch_profiler_records() -> bool:
    if _of_all_threads:
        return True
    torch = sys.modules.get("torch")  # a program that has not loaded torch has no profiler either
    return torch is not None and torch.autograd._profiler_enabled()


def listening() -> bool:
    """Return whether anybody would see a range that is opened now."""
    return _torch_profiler_records() or tool_listens()


_SILENCE = contextlib.nullcontext()


def mark(name: str) -> contextlib.AbstractContextManager[None]:
    """A range called `name` for whoever listens; while nobody does, one object that does nothing serves all."""
    profiler, tool = _torch_profiler_records(), tool_listens()
    if not (profiler or tool):
        return _SILENCE
    return _opened(name, profiler) if tool else _recorded(name)


@contextlib.contextmanager
def _opened(name: str, profiler: bool) -> Iterator[None]:
    import nvtx

    with _recorded(name) if profiler else _SILENCE, nvtx.annotate(to_trace(name), domain="perfkit"):
        yield


def compiled_code(name: str) -> contextlib.AbstractContextManager[None]:
    """A range around compiled code that records nothing, which readers take for the operator `name`."""
    return _recorded(name, light=True) if _torch_profiler_records() else _SILENCE


def _recorded(name: str, light: bool = False) -> contextlib.AbstractContextManager[None]:
    """The range in torch's profile.

    A range of perfkit's own is made where torch has it in a way that costs an eighth of `record_function`, and is not a
    operator: that one is dispatched, and a program's TorchDispatchMode sees it. The profiler shows it as an operator,
    and the readers know it by its name.
    """
    import torch

    light = light or name.startswith(PREFIX)
    fast = getattr(torch._C._profiler, "_RecordFunctionFast", None) if light else None
    return (fast or torch.profiler.record_function)(to_trace(name))  # type: ignore[no-any-return]


def step(index: int) -> contextlib.AbstractContextManager[None]:
    """Mark one training or inference step."""
    return mark(f"{STEP}{index}")


def in_pass(name: str) -> contextlib.AbstractContextManager[None]:
    """Mark one pass of a step: forward, backward, optimizer or zero_grad; prefill or decode where it generates."""
    return mark(f"{PASS}{name}")


def line_marker() -> tuple[Callable[[str], None], Callable[[str], None], Callable[[], None]]:
    """Three functions that a generated program calls: at its first line, at each further line, and at its end.

    Each line's range ends where the next one begins. Whether anybody listens is asked at the first line only, so that
    the others cost a call and a test.
    """
    current: Any = None

    def begin(name: str) -> None:
        nonlocal current
        current = None  # a program that failed half-way left its range open; it is gone with its step
        if listening():
            current = mark(name)
            current.__enter__()

    def go_to(name: str) -> None:
        nonlocal current
        if current is None:
            return
        current.__exit__(None, None, None)
        current = mark(name)
        current.__enter__()

    def end() -> None:
        nonlocal current
        if current is not None:
            current.__exit__(None, None, None)
            current = None

    return begin, go_to, end


@contextlib.contextmanager
def modules_marked(model: torch.nn.Module) -> Iterator[None]:
    """Mark every module's forward with its path while the block runs, by hooks that go away with it.

    Only eager execution keeps such hooks: a compiler would trace them. The backward is placed by the readers through
    autograd's sequence numbers.
    """
    open_ranges: list[Any] = []
    handles = []

    def opening(path: str) -> Any:
        def hook(_module: Any, _inputs: Any) -> None:
            context = mark(f"{MODULE}{path}")
            context.__enter__()
            open_ranges.append(context)

        return hook

    def closing(_module: Any, _inputs: Any, _output: Any) -> None:
        open_ranges.pop().__exit__(None, None, None)

    for path, module in model.named_modules():
        if path:
            handles.append(module.register_forward_pre_hook(opening(path)))
            handles.append(module.register_forward_hook(closing, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def listening_modules(program: Any) -> Iterator[None]:
    """Mark the modules of `program` (a `Program`, or None) while a tool is attached, where the program keeps hooks."""
    if program is None or not program.keeps_modules or not tool_listens():
        yield
        return
    with modules_marked(program.model):
        yield
