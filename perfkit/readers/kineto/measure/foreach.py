"""Operators on lists of more than 30 tensors (`_foreach_*`, fused optimizers), whose shapes the profiler leaves out.

The lists of an optimizer are the model's parameters, or as many tensors of their shapes. Which these are the backward
pass shows: each parameter's gradient is accumulated in a node of its own, with its shape. Whether an operator's list
is that list its launches show: multi-tensor kernels work on chunks of 65 536 elements, one thread block a chunk. Only
where the number of blocks is exactly that of the list's chunks the list is taken; else the work stays unknown. With
FSDP a rank has parts of the parameters: rows of the first dimension, as many as `torch.chunk` gives it. Their dtype is
the one that the kernel's name states: with mixed precision gradients come in another one than the optimizer steps.

On a CPU nothing launches. There a program of perfkit's own records what its optimizer steps (`complete_recorded`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from perfkit.columns import Integers
from perfkit.cost import Argument, Call, CostModel, TensorSpec
from perfkit.numbers import unique
from perfkit.readers.kineto.attribution.places import EventPlaces
from perfkit.readers.kineto.decode.events import KERNEL, DeviceEvents, HostEvents
from perfkit.readers.kineto.measure.calls import REAL, KindOfCall, call_of, describe
from perfkit.readers.kineto.measure.rows import HostRows

_CHUNK = 65536
_ON_CHUNKS = "multi_tensor_apply"  # others have a block a tensor: what adds up the parts of a norm
_ACCUMULATE = "torch::autograd::AccumulateGrad"
_FUSED = ("aten::_fused_adam", "aten::_fused_sgd", "aten::_fused_adagrad")
_ELEMENT = re.compile(rf"Functor<({'|'.join(map(re.escape, REAL))})\b")  # the first argument of its template
_MOST_ACCUMULATED = 1024  # micro-batches of a step

Specs = tuple[TensorSpec, ...]


def complete(
    host: HostEvents, device: DeviceEvents, places: EventPlaces, rows: HostRows, launch: Integers, costs: CostModel,
    rank: tuple[int, int] = (0, 1),
) -> None:  # fmt: skip
    """Give operators with unrecorded lists the shapes and cost of the parameters, where the launches prove it; `rank`
    is that of the trace, and the number of ranks."""
    open_kinds = _without_lists(host)
    if not open_kinds:
        return
    calls = np.flatnonzero(np.isin(host.call, list(open_kinds)) & (rows.kind >= 0))
    around = _around(host, device, launch, calls)
    blocks, dtypes = _blocks(device, around, len(host)), _dtypes(device, around)
    parameters: dict[int, list[Specs]] = {}
    known: dict[tuple[int, Specs], int] = {}
    for event in calls[blocks[calls] > 0].tolist():
        step = int(places.step[event])
        if step not in parameters:
            whole = list(_candidates(_accumulated(host, places.step, step)))
            parameters[step] = whole + [_part(one, *rank) for one in whole if rank[1] > 1]
        found = next((p for p in parameters[step] if chunks(p) == blocks[event]), None)
        if found is None:
            continue
        found = tuple(TensorSpec(t.shape, dtypes.get(event) or t.dtype) for t in found)
        key = (int(host.call[event]), found)
        if key not in known:
            call = _filled(open_kinds[key[0]], found)
            known[key] = len(rows.kinds)
            rows.kinds.append(KindOfCall(describe(call), costs.cost(call)))
        rows.kind[event] = known[key]


def complete_recorded(
    host: HostEvents, places: EventPlaces, rows: HostRows, costs: CostModel, groups: Sequence[Sequence[TensorSpec]]
) -> None:
    """Give fused optimizers with unrecorded lists the shapes and cost of `groups`, where a step calls one for each.

    Nothing is known of a group without tensors: a step that frees its gradients at the end leaves none.
    """
    calls = {code: call for code, call in _without_lists(host).items() if call.name.startswith(_FUSED)}
    if not calls or not groups or not all(groups):
        return
    events = np.flatnonzero(np.isin(host.call, list(calls)) & rows.is_row)
    events = events[np.argsort(host.start[events], kind="stable")]
    for step in unique(places.step[events]).tolist():
        mine = events[places.step[events] == step].tolist()
        if len(mine) != len(groups):
            continue
        for event, group in zip(mine, groups, strict=True):
            call = _filled(calls[int(host.call[event])], tuple(group))
            rows.kind[event] = len(rows.kinds)
            rows.kinds.append(KindOfCall(describe(call), costs.cost(call)))


def chunks(tensors: Specs) -> int:
    """Return how many thread blocks a multi-tensor kernel uses for `tensors`, over all its launches."""
    return sum(math.ceil(t.numel / _CHUNK) for t in tensors)


def _without_lists(host: HostEvents) -> dict[int, Call]:
    """By code the calls whose first argument is a list of tensors without its shapes."""
    found = {}
    for code, key in enumerate(host.calls):
        if key[0].startswith(("aten::_foreach_", *_FUSED)) and b"TensorList" in key[2]:
            call = call_of(key, "fp32", "fp32")
            if call.arguments and call.arguments[0] == ():
                found[code] = call
    return found


def _around(host: HostEvents, device: DeviceEvents, launch: Integers, calls: Integers) -> Integers:
    """For each device event the host event of `calls` around its launch, where it is a multi-tensor kernel; else −1."""
    here = np.zeros(len(host), bool)
    here[calls] = True
    on_chunks = np.array([_ON_CHUNKS in name for name in device.names], bool)
    mine = (launch >= 0) & (device.kind == KERNEL) & on_chunks[device.name]
    return np.where(mine, host.nearest(here)[np.maximum(launch, 0)], -1)


def _blocks(device: DeviceEvents, around: Integers, count: int) -> Integers:
    """For each of `count` host events the thread blocks of the multi-tensor kernels launched inside it; 0 without."""
    mine = around >= 0
    grid = np.array([s.grid[0] for s in device.shapes], dtype=np.int64)[device.shape[mine]]
    return np.bincount(around[mine], weights=np.maximum(grid, 0), minlength=count).astype(np.int64)


def _dtypes(device: DeviceEvents, around: Integers) -> dict[int, str]:
    """The dtype that multi-tensor kernels launched inside a host event state in their names, by event."""
    stated = {code: REAL[found[1]] for code, name in enumerate(device.names) if (found := _ELEMENT.search(name))}
    mine = np.flatnonzero(around >= 0)
    names = zip(around[mine].tolist(), device.name[mine].tolist(), strict=True)
    return {event: stated[code] for event, code in names if code in stated}


def _accumulated(host: HostEvents, step_of: Integers, step: int) -> list[TensorSpec]:
    """The gradients accumulated in a step, in order, with the parameters' shapes and dtypes."""
    here = host.named([n == _ACCUMULATE for n in host.names]) & (step_of == step) & (host.call >= 0)
    chosen = np.flatnonzero(here)
    chosen = chosen[np.argsort(host.start[chosen], kind="stable")]
    calls = {code: call_of(host.calls[code], "fp32", "fp32").tensors for code in unique(host.call[chosen]).tolist()}
    return [calls[code][0] for code in host.call[chosen].tolist() if calls[code]]


def _candidates(gradients: list[TensorSpec]) -> Iterator[Specs]:
    """Yield what an optimizer's lists may be: all parameters, or those with or without weight decay by the usual rule.

    With micro-batches each gradient comes once for every one of them.
    """
    if not gradients:
        return
    times = math.gcd(*Counter(gradients).values())
    yield tuple(gradients)
    rounds = [n for n in range(2, min(times, _MOST_ACCUMULATED) + 1) if times % n == 0]
    for several in (1, *rounds):
        once = gradients[: len(gradients) // several]
        if several > 1:
            yield tuple(once)
        yield tuple(t for t in once if len(t.shape) > 1)
        yield tuple(t for t in once if len(t.shape) < 2)


def _part(tensors: Specs, rank: int, ranks: int) -> Specs:
    """The rows of each tensor that a rank holds; what has none is not in its lists."""
    found = []
    for one in tensors:
        rows = math.ceil(one.shape[0] / ranks) if one.shape else 0
        mine = max(0, min(rows, one.shape[0] - rank * rows)) if one.shape else 0
        if mine:
            found.append(TensorSpec((mine, *one.shape[1:]), one.dtype))
    return tuple(found)


def _filled(call: Call, tensors: Specs) -> Call:
    """`call` with its lists of tensors, as the operator's schema orders them."""
    fused = call.name.startswith(_FUSED)
    dense = tuple(TensorSpec(t.shape, t.dtype) for t in tensors)

    def argument(position: int, value: Argument) -> Argument:
        if value != ():
            return value
        if not fused or position < _state_lists(call):
            return dense
        return ()

    return Call(call.name, tuple(argument(i, a) for i, a in enumerate(call.arguments)), call.matmul_precision)


def _state_lists(call: Call) -> int:
    """Return how many of a fused optimizer's lists are as large as the parameters; the others are empty, or steps."""
    if "sgd" in call.name or "adagrad" in call.name:
        return 3
    return 5 if len(call.arguments) > 11 and call.arguments[11] is True else 4
