"""Operators on sparse tensors (gradients of embeddings with `sparse=True`), which the profiler records as if dense.

A sparse tensor stands in a trace with the shape of the whole table, and nothing in its own event tells how many rows it
holds. What it calls does: an operator that asks for `_values` or `_nnz` works on a sparse tensor, and the conversion of
its values (`to`) has their shape. Then its work is that on these rows; where no such call is seen it is unknown, for
the cost of the whole table would be wrong.
"""

from __future__ import annotations

import numpy as np

from perfkit.cost import Call, CostModel, TensorSpec
from perfkit.readers.columns import Integers
from perfkit.readers.kineto.decode.events import HostEvents
from perfkit.readers.kineto.measure.calls import KindOfCall, arguments_of, describe

# Operators whose arguments tell how many rows a sparse tensor holds; they do no work themselves.
TELLING = ("aten::to", "aten::narrow")
_ASKING = ("aten::_values", "aten::_nnz", "aten::sparse_dim")
_ADD = ("aten::add", "aten::add_")


def complete(host: HostEvents, kind: Integers, kinds: list[KindOfCall], costs: CostModel) -> None:
    """Give working operators on sparse tensors the shapes and cost of the rows that these hold.

    `kind` tells for each event its kind of call in `kinds`, −1 for none; both are changed in place.
    """
    asking = host.named([name in _ASKING for name in host.names]) & (host.parent >= 0)
    around = np.unique(host.parent[asking])
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
    """What `event`, and an `index` inside it, really do; a call without arguments, whose cost is unknown, otherwise."""
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
    """Sorted indices tell how many rows there were, the last `narrow` how many are left."""
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
