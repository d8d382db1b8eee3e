"""Products with packed weights (`quantized::linear`), an object that the profiler records nothing of.

Its rows are as many as the output is wide, and the output is what the operator allocates.
"""

from __future__ import annotations

import numpy as np

from perfkit.cost import Argument, Call, CostModel, TensorSpec
from perfkit.readers.columns import Integers
from perfkit.readers.kineto.decode.events import HostEvents
from perfkit.readers.kineto.measure.calls import KindOfCall, arguments_of, describe

_RESIZE = "aten::resize_"
TELLING = ("aten::empty_like", "aten::_empty_affine_quantized", _RESIZE)
_PRODUCT = "quantized::linear"


def complete(host: HostEvents, kind: Integers, kinds: list[KindOfCall], costs: CostModel) -> None:
    """Give products with packed weights their shapes and cost; `kind` and `kinds` are changed in place."""
    chosen = np.flatnonzero(host.named([name.startswith(_PRODUCT) for name in host.names]) & (kind >= 0)).tolist()
    known: dict[Call, int] = {}
    for event, children in zip(chosen, host.children(chosen), strict=True) if chosen else ():
        name, given = host.names[host.name[event]], arguments_of(host, event)
        allocated = [shape for child in children if (shape := _shape(host, child))]
        x = given[0] if given else None
        width = next((s[-1] for s in allocated if isinstance(x, TensorSpec) and s[:-1] == x.shape[:-1]), None)
        if not isinstance(x, TensorSpec) or width is None:
            continue
        call = Call(name, (x, TensorSpec((width, x.shape[-1]), "int8")))
        if call not in known:
            known[call] = len(kinds)
            kinds.append(KindOfCall(describe(call), costs.cost(call)))
        kind[event] = known[call]


def _shape(host: HostEvents, child: int) -> tuple[int, ...]:
    """The shape that an allocation makes; empty where `child` is none, or was not recorded."""
    name = host.names[host.name[child]]
    given = arguments_of(host, child)[name == _RESIZE :] if name in TELLING else ()
    first: Argument = given[0] if given else None
    if isinstance(first, TensorSpec):
        return first.shape
    return tuple(size for size in first if isinstance(size, int)) if isinstance(first, tuple) else ()
