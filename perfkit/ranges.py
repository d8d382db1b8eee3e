"""One call marks a step, a pass or a module, for NVTX and torch.profiler alike.

A mark costs a flag test when nobody listens. Somebody listens while a torch profiler records, when a tool injected
itself into the process (Nsight Systems and Nsight Compute do), or when PERFKIT_NVTX=1 is set.

The names are the contract with the readers: `perfkit:step:3`, `perfkit:pass:backward`,
`perfkit:module:transformer.h.0.attn`, and for a line of a program that a backend made
`perfkit:line:backward:132:transformer.h.0.mlp|gelu|1` (`line_name`). A replay is in `perfkit:graph:0`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

PREFIX = "perfkit:"
STEP, PASS, MODULE = f"{PREFIX}step:", f"{PREFIX}pass:", f"{PREFIX}module:"
LINE = f"{PREFIX}line:"
GRAPH = f"{PREFIX}graph:"  # the replay of a CUDA graph whose capture was recorded, by its number
ROOT = "(root)"  # the module path of what the model does itself, outside its modules

# Set in the environment of a process by Nsight Systems, Nsight Compute, or any tool that implements NVTX.
_INJECTION = (
    "NVTX_INJECTION64_PATH",
    "CUDA_INJECTION64_PATH",
    "NSYS_PROFILING_SESSION_ID",
    "NV_NSIGHT_INJECTION_TRANSPORT_TYPE",
)


@functools.cache
def tool_listens() -> bool:
    """Whether an NVTX tool is attached to this process, as far as the environment it was started with tells."""
    return os.environ.get("PERFKIT_NVTX") == "1" or any(os.environ.get(name) for name in _INJECTION)


def _torch_profiler_records() -> bool:
    torch = sys.modules.get("torch")  # a program that has not loaded torch has no profiler either
    return torch is not None and torch.autograd._profiler_enabled()


def listening() -> bool:
    """Whether anybody would see a range that is opened now."""
    return _torch_profiler_records() or tool_listens()


_SILENCE = contextlib.nullcontext()


def mark(name: str) -> contextlib.AbstractContextManager[None]:
    """A range called `name` for whoever listens; while nobody does, one object that does nothing serves all."""
    profiler, tool = _torch_profiler_records(), tool_listens()
    return _opened(name, profiler, tool) if profiler or tool else _SILENCE


@contextlib.contextmanager
def _opened(name: str, profiler: bool, tool: bool) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if profiler:
            import torch

            stack.enter_context(torch.profiler.record_function(name))
        if tool:
            import nvtx

            stack.enter_context(nvtx.annotate(name, domain="perfkit"))
        yield


def step(index: int) -> contextlib.AbstractContextManager[None]:
    """Mark one training or inference step."""
    return mark(f"{STEP}{index}")


def in_pass(name: str) -> contextlib.AbstractContextManager[None]:
    """Mark one pass of a step: forward, backward, optimizer or zero_grad; prefill or decode where it generates."""
    return mark(f"{PASS}{name}")


def line_name(program: str, line: int, evidence: str, members: Sequence[tuple[str, str, float]]) -> str:
    """The range of one line of a generated program, such as a Thunder trace: what is launched in it serves `members`.

    `program` is "forward" or "backward", `line` counts from 1 in the text of all programs that a backend made (the run
    folder's generated.txt; 0: a step by hand, which has none), `evidence` says how the place was found (column
    `placed_by`). A member is a module path, an operator, and its share; none says that the place is unknown.
    """
    served = ";".join(f"{module}|{operator}|{share:.6g}" for module, operator, share in members)
    return f"{LINE}{program}:{line}:{evidence}:{served}"


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
            current = _light(name)
            current.__enter__()

    def go_to(name: str) -> None:
        nonlocal current
        if current is None:
            return
        current.__exit__(None, None, None)
        current = _light(name)
        current.__enter__()

    def end() -> None:
        nonlocal current
        if current is not None:
            current.__exit__(None, None, None)
            current = None

    return begin, go_to, end


def _light(name: str) -> contextlib.AbstractContextManager[None]:
    """A range for places with thousands of them a step: an eighth of the time of `record_function`, where torch has it.

    The profiler shows it as an operator; the readers know it by its name.
    """
    if tool_listens():
        return mark(name)
    import torch

    light = getattr(torch._C._profiler, "_RecordFunctionFast", None)
    return light(name) if light is not None else torch.profiler.record_function(name)


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
