"""Facts that a program shows of itself: its models, their size and precision, batches, memory, rank."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from perfkit.capture.agent.models import names
from perfkit.capture.agent.order import Order, ProcessResult

NO_OPTIMIZER_STEP = (
    "The program holds an optimizer that had not stepped when the recording began: the steps are calls of its modules. "
    "--after SECONDS begins later."
)
OTHER_THREAD = (
    "The steps are those of one thread that the program started; on a GPU they hold the kernels of further threads too."
)
NOT_TIMED = (
    "No step was timed without the profiler, so its overhead is unknown, and savings are of the profiled steps. "
    "More warm-up steps (--warmup, in code warmup=) are timed in part: 10 do."
)
OWN_PROFILER = "A profiler of the program's own recorded when its steps were ready to be: two cannot at a time."
WITHOUT_PROFILER = "Switch it off, or give its trace to `perfkit report`."
WHOLE = "Record the whole program as one step: --whole."
OMP = "OMP_NUM_THREADS"
_DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64"}


@dataclass(frozen=True)
class Conditions:
    """Of a call of a model: the first dimension of its first tensor (0: none), the precision that autocast sets (None:
    it is off), and whether gradients were recorded."""

    batch: int = 0
    autocast: torch.dtype | None = None
    grad: bool = False


def conditions(inputs: Any) -> Conditions:
    """The conditions of a call that is about to be made with `inputs`."""
    first = next(_tensors(inputs), None)
    device = first.device.type if first is not None else "cpu"
    try:
        cast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    except RuntimeError:  # a device without autocast, such as meta
        cast = None
    return Conditions(first.size(0) if first is not None else 0, cast, torch.is_grad_enabled())


def unseen() -> contextlib.AbstractContextManager[Any]:
    """A block in which no mode or subclass of the program's sees what is asked of its tensors."""
    modes: contextlib.AbstractContextManager[Any] = torch._C.DisableTorchFunction()
    return modes


def in_autograd() -> bool:
    """Return whether this thread runs a part of a backward pass."""
    return bool(torch._C._current_graph_task_id() != -1)


def is_traced() -> bool:
    """Return whether tensors are fakes at the moment: a model is exported or its sizes are tried, nothing runs."""
    key = getattr(torch._C, "_TorchDispatchModeKey", None)
    return key is not None and torch._C._get_dispatch_mode(key.FAKE) is not None


def recomputes() -> bool:
    """Return whether gradients are off only because a checkpoint calls the model, to call it again with them."""
    if torch.is_grad_enabled():
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "forward" and frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            return True
        frame = frame.f_back
    return False


def is_of_a_signal(error: BaseException) -> bool:
    """Return whether a handler of a signal raised `error`: it is the program's, wherever Python was at the time."""
    handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()} - {None}
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code in handlers:
            return True
        frame = frame.tb_next
    return False


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in plain containers: those of a program's own may load what they hold when they are asked."""
    if isinstance(value, torch.Tensor):
        if value.dim():
            yield value
    elif type(value) is dict:
        for one in value.values():
            yield from _tensors(one)
    elif type(value) in (tuple, list):
        for one in value:
            yield from _tensors(one)


def add(result: ProcessResult, models: Sequence[torch.nn.Module], last: Conditions, training: bool) -> None:
    """Add to `result` what is known of the program, its models and the `last` call of one."""
    parameters = list({id(p): p for model in models for p in names.parameters(model)}.values())
    result.parameters = sum(p.numel() for p in parameters)
    result.dtype = _precision(parameters, last)
    # A program may allow TF32 wherever it runs: processors compute in fp32 all the same.
    result.tf32 = result.device != "cpu" and torch.get_float32_matmul_precision() != "highest"
    result.training = training
    result.batch_size = last.batch
    result.model = ", ".join(
        type(model).__name__ for model in models[:3] if next(names.parameters(model), None) is not None
    )
    result.stepped = stepped() if training and result.device == "cpu" else []
    result.rank = rank()
    result.threads = {"count": torch.get_num_threads(), OMP: os.environ.get(OMP, "unset")}
    result.peak_memory_bytes, result.memory_how = _peak(result.device)
    result.argv, result.pid = list(getattr(sys, "orig_argv", sys.argv)), os.getpid()


def rank() -> int | None:
    """The rank in the default process group, else what a launcher such as torchrun says; None without either."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    told = os.environ.get("RANK", "")
    return int(told) if told.isdigit() else None


def _precision(parameters: Sequence[torch.Tensor], last: Conditions) -> str:
    if last.autocast is not None:
        return _DTYPES.get(last.autocast, "fp32")
    amounts: dict[str, int] = {}
    for parameter in parameters:
        name = _DTYPES.get(parameter.dtype, "")
        amounts[name] = amounts.get(name, 0) + parameter.numel()
    found = max(amounts, key=lambda name: amounts[name], default="")
    return found or _DTYPES.get(torch.get_default_dtype(), "fp32")


def _peak(device: str) -> tuple[float, str]:
    if device != "cpu":
        return float(torch.cuda.max_memory_allocated()), "peak of PyTorch's CUDA allocator until the recording ended"
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes on macOS, KiB on Linux
    used = float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
    return used, "peak resident memory of the program until the recording ended"


def too_few(found: int, order: Order, waits: bool = False) -> str:
    """Why a program that took `found` steps was not recorded; `waits`: its optimizer never stepped."""
    if not found:
        return "The program took no step: it called no module, no optimizer's step, and replayed no CUDA graph."
    steps = "1 step" if found == 1 else f"{found} steps"
    needed = order.warmup + 1 + order.steps
    if waits and found >= needed:
        return f"The program called modules in {steps}, and ended before its optimizer stepped, which was waited for."
    later = f" after the first {order.after:g} s" if order.after else ""
    return (
        f"The program took {steps}{later}, and {needed} are needed: {order.warmup} to warm up, 1 for the profiler, "
        f"{order.steps} to be recorded."
    )


def notes(result: ProcessResult, elsewhere: bool, whole: bool, before: int, each: float) -> list[str]:
    """Return what a reader has to know of recorded steps: `elsewhere` than in the main thread; the `whole` program is
    one; modules were called `before` the first optimizer step, and so many times in `each`."""
    said = {
        OTHER_THREAD: elsewhere,
        NOT_TIMED: not (result.samples_ns or whole),
        phase_before(before, each): before > 0,
    }
    return [note for note, holds in said.items() if holds]


def phase_before(calls: int, each: float) -> str:
    """Return a note on calls of modules before the first optimizer step, when a step has `each`."""
    times = "none" if each == 0 else "them once" if each == 1 else f"them {each:.3g} times"
    return (
        f"Before its first optimizer step the program called modules {calls} times; a step calls {times}. "
        "What those calls were for (a rollout, an evaluation) is in no step."
    )


def trains() -> bool:
    """Return whether the program holds an optimizer."""
    # By type: isinstance asks objects for their __class__, and some warn when they are asked.
    return any(issubclass(type(thing), torch.optim.Optimizer) for thing in gc.get_objects())


def stepped() -> list[list[tuple[list[int], str]]]:
    """Shape and dtype of each parameter with a gradient, in each group that a fused optimizer of the program steps.

    A profiler records no lists of more than 30 tensors, and on a CPU no launches tell them.
    """
    optimizers = [o for o in gc.get_objects() if issubclass(type(o), torch.optim.Optimizer) and o.state]
    groups = [group["params"] for o in optimizers for group in o.param_groups if group.get("fused")]
    return [
        [(list(p.shape), _DTYPES.get(p.dtype, "")) for p in group if p.grad is not None and p.dtype in _DTYPES]
        for group in groups
    ]


def in_worker() -> bool:
    """Return whether this process loads data for another."""
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return worker is not None and getattr(worker, "_worker_info", None) is not None
