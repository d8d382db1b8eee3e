"""Phases of a program by the stack that allocates: backward pass, optimizer, building a model, forward, or else.

Stacks come with Python's frames alone, or with those of C++ between them. The thread that runs backward passes has none
of Python's, except for custom functions and what a checkpoint computes again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from perfkit.memory.records import Stack, StackFrame

UNKNOWN, OUTSIDE, FORWARD, BACKWARD, OPTIMIZER, BUILD = range(6)
_ROOTS = ("<module>", "_bootstrap", "_run_code", "_run_module_as_main")
_ENGINE = ("torch::autograd::Engine", "torch::autograd::python::PythonEngine")
_BACKWARD = (("torch/autograd/__init__.py", "backward"), ("torch/autograd/__init__.py", "grad"),
             ("torch/autograd/graph.py", "_engine_run_backward"))  # fmt: skip
_MODULE = "torch/nn/modules/module.py"
_BUILDS = ("_apply", "load_state_dict", "_load_from_state_dict")
_CALLS = ("_call_impl", "_wrapped_call_impl")
# PyTorch's own optimizers that take `fused` or `foreach`, and their files.
TORCH_OPTIMIZERS = (
    "Adadelta", "Adafactor", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD",
)  # fmt: skip
_OPTIM_FILE = re.compile(rf"(^|/)torch/optim/([^/]+/)*_?({'|'.join(TORCH_OPTIMIZERS).lower()})\.py$")
_LOADS = ("from_pretrained", "reset_parameters", "load_state_dict")
_WORKSPACE = re.compile(r"cublas\w*workspace|workspaceallocat|getcurrentcudablas|cudnn\w*workspace", re.IGNORECASE)
_LIBRARY = re.compile(
    r"(^|/)(torch|torchgen|functorch|perfkit/(programs|capture/agent))/|^<|(^|/)lib/python3\.\d+/(?!(site|dist)-packages/)"
    r"|^[A-Za-z]:/(?i:.*(python3\d+|conda\d?|/envs/[^/]+)/lib/(?!site-packages/))"
)


def phase_of(stack: Stack) -> int:
    """Return what the program was doing; `UNKNOWN` for an empty stack."""
    if not stack:
        return UNKNOWN
    python = [frame for frame in stack if frame.file.endswith(".py") or frame.function == "<module>"]
    if any(frame.function.startswith(_ENGINE) for frame in stack) or any(_runs_backward(frame) for frame in python):
        return BACKWARD
    if not python:
        return UNKNOWN
    if python[-1].function not in _ROOTS and "torch/autograd/" in python[-1].file:
        return BACKWARD  # a custom function, called by the thread of the engine
    if any(_optimizes(frame) for frame in python):
        return OPTIMIZER
    if any(frame.file.endswith(_MODULE) and frame.function in _CALLS for frame in python):
        return FORWARD
    if any(_builds(frame) for frame in python):
        return BUILD
    return FORWARD if any(frame.function == "forward" for frame in python) else OUTSIDE


def _runs_backward(frame: StackFrame) -> bool:
    return any(frame.function == function and frame.file.endswith(file) for file, function in _BACKWARD)


def _optimizes(frame: StackFrame) -> bool:
    if "/torch/optim/" in frame.file:
        return "lr_scheduler" not in frame.file
    return frame.function == "step" and "optim" in frame.file.lower()


def of_torch_optim(stack: Stack) -> bool:
    """Return whether an optimizer of PyTorch's own allocates that takes `fused` or `foreach`, as others do not."""
    return any(is_torch_optim(frame.file) for frame in stack)


def is_torch_optim(file: str) -> bool:
    """Return whether `file` has the code of one of PyTorch's own optimizers that take `fused` or `foreach`."""
    return _OPTIM_FILE.search(file) is not None


def _builds(frame: StackFrame) -> bool:
    if frame.file.endswith(_MODULE):
        return frame.function in _BUILDS
    made = "torch/nn/" in frame.file and frame.function in ("__init__", "__new__")
    return made or frame.function in _LOADS


def recomputes(stack: Stack) -> bool:
    """Return whether a module is called, which in a backward pass is a checkpoint's second forward."""
    return any(frame.file.endswith(_MODULE) and frame.function in _CALLS for frame in stack)


def is_workspace(stack: Stack) -> bool:
    """Return whether a library asked for its workspace, as the frames of C++ say."""
    return any(_WORKSPACE.search(frame.function) for frame in stack)


def initialises(stack: Stack) -> bool:
    """Return whether an optimizer makes its state."""
    return any("/torch/optim/" in frame.file and frame.function.startswith(("_init", "init_")) for frame in stack)


def line_of(stack: Stack) -> StackFrame | None:
    """Return the innermost line outside of PyTorch, Python's own library and what watches the program.

    Where all lines are of these, the innermost.
    """
    python = [frame for frame in stack if frame.file.endswith(".py")]
    return next((frame for frame in python if not _LIBRARY.search(frame.file)), next(iter(python), None))


def table(stacks: Sequence[Stack], test: Any, kind: Any = bool) -> Any:
    """Return what `test` says of each stack, as a column."""
    return np.array([test(stack) for stack in stacks], kind)
