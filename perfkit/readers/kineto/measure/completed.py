"""Calls whose arguments the profiler does not record in full, completed from what the operator calls inside.

picked   operators that pick by tensors of indices: the views inside show what they pick
sparse   operators on sparse tensors: what they call shows how many rows these hold
packed   products with packed weights (`quantized::linear`): their rows are as many as the output is wide, and the
         output is what the operator allocates
"""

from __future__ import annotations

import math

import numpy as np

from perfkit.columns import Integers
from perfkit.cost import Argument, Call, CostModel, TensorSpec
from perfkit.cost.shapes import broadcast
from perfkit.numbers import unique
from perfkit.readers.kineto.decode.events import HostEvents
from perfkit.readers.kineto.measure.calls import KindOfCall, arguments_of, describe

_RESIZE = "aten::resize_"
_ALLOCATING = ("aten::empty_like", "aten::_empty_affine_quantized", _RESIZE)
_PRODUCT = "quantized::linear"
# Views inside of an operator that picks: their arguments show what it picks.
_VIEW, _INDEX = _VIEWS = ("aten::as_strided", "aten::reshape")
_PICKING = ("aten::index", "aten::_index_put_impl_")
# Operators whose arguments show how many rows a sparse tensor holds; they do no work themselves.
_ROWS = ("aten::to", "aten::narrow")
_ASKING = ("aten::_values", "aten::_nnz", "aten::sparse_dim")
_ADD = ("aten::add", "aten::add_")
EVIDENCE = (*_ALLOCATING, *_VIEWS, *_ROWS)  # operators whose arguments are needed for that


def complete(host: HostEvents, kind: Integers, kinds: list[KindOfCall], costs: CostModel) -> None:
    """Give such calls their shapes and cost; `kind`, each event's place in `kinds` (−1: none), and both are changed."""
    _picked(host, kind, kinds, costs)
    _sparse(host, kind, kinds, costs)
    _packed(host, kind, kinds, costs)


def _packed(host: HostEvents, kind: Integers, kinds: list[KindOfCall], costs: CostModel) -> None:
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
    """The shape that an allocation makes; empty where `child` makes none, or it was not recorded."""
    name = host.names[host.name[child]]
    given = arguments_of(host, child)[name == _RESIZE :] if name in _ALLOCATING else ()
    first: Argument = given[0] if given else None
    if isinstance(first, TensorSpec):
        return first.shape
    return tuple(size for size in first if isinstance(size, int)) if isinstance(first, tuple) else ()


def _picked(host: HostEvents, kind: Integers, kinds: list[KindOfCall], costs: CostModel) -> None:
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
        given = arguments_of(host, child) if name in _VIEWS else ()
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


def _sparse(host: HostEvents, kind: Integers, kinds: list[KindOfCall], costs: CostModel) -> None:
    """Give working operators on sparse tensors the shapes and cost of the rows that these hold.

    `kind` has for each event its kind of call in `kinds`, −1 for none; both are changed in place.
    """
    asking = host.named([name in _ASKING for name in host.names]) & (host.parent >= 0)
    around = unique(host.parent[asking])
    chosen = around[kind[around] >= 0].tolist()
    if not chosen:
        return
    known: dict[Call, int] = {}
    for event, children in zip(chosen, host.children(chosen), strict=True):
        for which, call in _real_calls(host, event, children):
            if call not in known:
                known[call] = len(kinds)
                kinds.append(KindOfCall(describe(call), costs.cost(call)))
            kind[which] = known[call]


def _real_calls(host: HostEvents, event: int, children: list[int]) -> list[tuple[int, Call]]:
    """Return the real calls of `event` and an `index` inside it; without arguments where the cost is unknown."""
    name, whole = host.names[host.name[event]], _tensors(host, event)
    inside = {host.names[host.name[c]]: c for c in children}
    values = _values(whole[0] if whole else None, [t for c in children for t in _converted(host, c)])
    if name == "aten::_coalesce":
        return [(event, _coalescing(host, whole, inside))]
    left = name in inside  # to another overload of itself
    if values is None:
        return [] if left else [(event, Call(name, ()))]
    indices = TensorSpec((values.shape[0],), "int64")
    found = []
    if name in _ADD and not left:
        found = [(event, Call("aten::index_add_", (_touched(whole[0], values), 0, indices, values)))]
    elif not left:
        found = [(event, Call(name, ()))]
    if "aten::index" in inside:
        found.append((inside["aten::index"], Call("aten::index_select", (values, 0, indices))))
    return found


def _coalescing(host: HostEvents, whole: list[TensorSpec], inside: dict[str, int]) -> Call:
    """Return the call by sorted indices, which show how many rows there were, the last `narrow` how many are left."""
    entries = _tensors(host, inside["aten::sort"]) if "aten::sort" in inside else []
    kept = arguments_of(host, inside["aten::narrow"]) if "aten::narrow" in inside else ()
    if not (whole and entries and len(kept) > 3 and isinstance(kept[3], int)):
        return Call("aten::_coalesce", ())
    values = TensorSpec((entries[0].numel, *whole[0].shape[1:]), whole[0].dtype)
    return Call("aten::_coalesce", (values, int(kept[3])))


def _converted(host: HostEvents, child: int) -> list[TensorSpec]:
    return _tensors(host, child)[:1] if host.names[host.name[child]] == "aten::to" else []


def _values(whole: TensorSpec | None, seen: list[TensorSpec]) -> TensorSpec | None:
    """The first of `seen` that has rows as long as those of `whole`."""
    fitting = (t for t in seen if whole and t.shape and t.shape[1:] == whole.shape[1:])
    return next((TensorSpec(t.shape, t.dtype) for t in fitting), None)


def _touched(whole: TensorSpec, values: TensorSpec) -> TensorSpec:
    return TensorSpec((min(whole.shape[0], values.shape[0]), *whole.shape[1:]), whole.dtype)


def _tensors(host: HostEvents, event: int) -> list[TensorSpec]:
    return [a for a in arguments_of(host, event) if isinstance(a, TensorSpec)]
