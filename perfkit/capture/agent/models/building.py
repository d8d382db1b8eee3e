"""Calls of modules that build a model: none of them is a step, whatever comes after."""

from __future__ import annotations

import sys
from types import FrameType

import torch

# Packages that call modules to make another: weights are parametrized, observed for quantization, pruned.
_BUILDERS = (
    "torch.ao.nn",
    "torch.ao.pruning",
    "torch.ao.quantization",
    "torch.nn.utils.parametrizations",
    "torch.nn.utils.parametrize",
    "torch.nn.utils.prune",
)


def is_building() -> bool:
    """Return whether the call that is being made comes from a module's constructor, or from what remakes modules."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _constructs(frame) or frame.f_globals.get("__name__", "").startswith(_BUILDERS):
            return True
        frame = frame.f_back
    return False


def _constructs(frame: FrameType) -> bool:
    code = frame.f_code
    if code.co_name != "__init__" or not code.co_argcount:
        return False
    return isinstance(frame.f_locals.get(code.co_varnames[0]), torch.nn.Module)
