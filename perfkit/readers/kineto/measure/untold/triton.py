"""The least that a generated Triton kernel must move, from the arguments that its launch records.

A launch by Inductor is an operator called like the kernel, with the shapes of all tensors in and out and the sizes of
its loops, in the order: changed in place, inputs, outputs, sizes. Which tensor is which the trace does not tell, so
each counts once, the last one as written: a lower bound where a tensor is changed in place. A tensor larger than the
loops cannot be touched as a whole (a gather from an embedding table): it counts as many elements as there are steps.
"""

from __future__ import annotations

import math
import re

from perfkit.cost import Call, Cost, TensorSpec
from perfkit.cost.model import ITEM_BYTES

# Templates and user-written kernels visit elements more than once, or in ways that their sizes do not tell.
_LOOPS = re.compile(r"^triton_(poi|red|per)_")


def is_triton(name: str) -> bool:
    """Whether an operator of this name is a generated kernel's launch."""
    return name.startswith("triton_")


def triton_cost(call: Call) -> Cost | None:
    """The minimal bytes of the launch `call`; its FLOP are not known from shapes. None without recorded tensors."""
    tensors = [a for a in call.arguments if isinstance(a, TensorSpec)]
    if not tensors or any(t.dtype not in ITEM_BYTES for t in tensors):
        return None
    steps = _steps(call)
    moved = [min(t.nbytes, steps * ITEM_BYTES[t.dtype]) for t in tensors]
    return Cost({}, float(sum(moved[:-1])), float(moved[-1]))


def _steps(call: Call) -> float:
    """How many elements the kernel's loops visit; infinite where its sizes are not recorded."""
    sizes = [a for a in call.arguments if isinstance(a, int) and not isinstance(a, bool)]
    if not sizes or not _LOOPS.match(call.name) or any(n < 0 for n in sizes):
        return math.inf
    return float(math.prod(sizes))
