"""Indexing by tensors (`x[i]`), whose list of indices the profiler does not record.

What the operator calls tells it: a view of `x` with the shape of what is picked (`as_strided`), and one of each index
(`reshape`). Where these were not recorded the work stays unknown.
"""

from __future__ import annotations

import math

import numpy as np

from perfkit.cost import Argument, Call, CostModel, TensorSpec
from perfkit.readers.columns import Integers
from perfkit.readers.kineto.decode.events import HostEvents
from perfkit.readers.kineto.measure.calls import KindOfCall, arguments_of, describe

# Views inside of an operator that picks, whose arguments tell what it picks.
PICKED, INDEX = "aten::as_strided", "aten::reshape"
TELLING = (PICKED, INDEX)
_PICKING = ("aten::index", "aten::_index_put_impl_")


def complete(host: HostEvents, kind: Integers, kinds: list[KindOfCall], costs: CostModel) -> None:
    """Give operators that pick by tensors of indices their shapes and cost; `kind` and `kinds` are changed in place."""
    picking = host.named([name in _PICKING for name in host.names])
    chosen = np.flatnonzero(picking & (kind >= 0)).tolist()
    if not chosen:
        return
    known: dict[tuple[Argument, ...], int] = {}
    for event, children in zip(chosen, host.children(chosen), strict=True):
        name, arguments = host.names[host.name[event]], arguments_of(host, event)
        seen = _seen(host, children)
        if seen is None or not arguments or not isinstance(x := arguments[0], TensorSpec):
            continue
        indices, picked = seen
        key = (name, x, indices, picked, *arguments[2:])
        if key not in known:
            known[key] = len(kinds)
            cost = costs.cost(Call(name, (_flat(x, indices, picked), indices, *arguments[2:])))
            kinds.append(KindOfCall(describe(Call(name, (x, indices, *arguments[2:]))), cost))
        kind[event] = known[key]


def _seen(host: HostEvents, children: list[int]) -> tuple[tuple[TensorSpec, ...], int] | None:
    """The indices, and how many elements are picked; None where the views were not recorded."""
    indices: list[TensorSpec] = []
    picked = None
    for child in children:
        name = host.names[host.name[child]]
        arguments = arguments_of(host, child) if name in TELLING else ()
        if name == INDEX and arguments and isinstance(arguments[0], TensorSpec):
            indices.append(arguments[0])
        elif name == PICKED and len(arguments) > 1 and isinstance(arguments[1], tuple):
            picked = math.prod(size for size in arguments[1] if isinstance(size, int))
    return (tuple(indices), picked) if indices and picked is not None else None


def _flat(x: TensorSpec, indices: tuple[TensorSpec, ...], picked: int) -> TensorSpec:
    """A tensor as large as `x` of which the indices pick as much: each takes a dimension, and one row is left."""
    row = picked // max(1, max(index.numel for index in indices))
    return TensorSpec((x.numel // max(row, 1), *(1 for _ in indices[1:]), row), x.dtype)
