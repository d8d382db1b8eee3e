"""Indexing by tensors (`x[i]`), whose list of indices the profiler does not record.

What the operator calls tells it: a view of `x` with the shape of what is picked and no stride where the indices go
(`as_strided`), and one of each index (`reshape`). Where these were not recorded, or do not fit each other, the work
stays what it was.
"""

from __future__ import annotations

import math

import numpy as np

from perfkit.cost import Argument, Call, CostModel, TensorSpec
from perfkit.cost.shapes import broadcast
from perfkit.readers.columns import Integers
from perfkit.readers.kineto.decode.events import HostEvents
from perfkit.readers.kineto.measure.calls import KindOfCall, arguments_of, describe

# Views inside of an operator that picks, whose arguments tell what it picks.
_VIEW, _INDEX = TELLING = ("aten::as_strided", "aten::reshape")
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
    """The indices, and how many elements are picked; None where the views were not recorded or do not fit."""
    indices: list[TensorSpec] = []
    views: list[tuple[tuple[int, ...], tuple[int, ...]]] = []  # sizes and strides
    for child in children:
        name = host.names[host.name[child]]
        given = arguments_of(host, child) if name in TELLING else ()
        if name == _INDEX and given and isinstance(given[0], TensorSpec):
            indices.append(given[0])
        elif name == _VIEW and len(given) > 2:
            views.append((_integers(given[1]), _integers(given[2])))
    if not indices or len(views) != 1:
        return None
    sizes, strides = views[0]
    try:
        together = math.prod(broadcast(index.shape for index in indices))
    except ValueError:
        return None
    indexed = math.prod(size for size, stride in zip(sizes, strides, strict=False) if stride == 0)
    return (tuple(indices), math.prod(sizes)) if indexed == together else None


def _integers(value: Argument) -> tuple[int, ...]:
    return tuple(one for one in value if isinstance(one, int)) if isinstance(value, tuple) else ()


def _flat(x: TensorSpec, indices: tuple[TensorSpec, ...], picked: int) -> TensorSpec:
    """A tensor as large as `x` of which the indices pick as much: each takes a dimension, and one row is left."""
    row = picked // max(1, math.prod(broadcast(index.shape for index in indices)))
    return TensorSpec((x.numel // max(row, 1), *(1 for _ in indices[1:]), row), x.dtype)
