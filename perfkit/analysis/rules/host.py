"""Rules about what the host does besides launching: waiting for values, making tensors of lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perfkit import units
from perfkit.analysis.results import Finding, Unjudged
from perfkit.analysis.rules.base import ON_BOTH, Case, Rule
from perfkit.analysis.rules.idle import waiting
from perfkit.analysis.words import listed, number
from perfkit.profile_names import ROOT

_NAMED = 3
_SELDOM = 0.5  # waits a step, below which they are not the step's
_PIN = "Hold what is copied in pinned memory (pin_memory=True in the DataLoader, tensor.pin_memory()). "
_GO_ON = "Copy with non_blocking=True, ahead of the step that needs it; make on the GPU what no file holds."


def _waits(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    waits = case.facts.get("host_waits")
    if not waits:
        yield from waiting(rule, case, "sync", "The host waits for the GPU, and then the GPU for the host")
        return
    for_values = [wait for wait in waits if not wait.get("copy")]
    yield from _stops(rule, case, for_values, "for a value", "")
    uploads = [wait for wait in waits if wait.get("copy")]
    pageable = any("Pageable" in wait["copy"] for wait in uploads)
    yield from _stops(rule, case, uploads, "until a tensor is on the GPU", (_PIN if pageable else "") + _GO_ON)


def _stops(rule: Rule, case: Case, waits: list[dict[str, Any]], why: str, remedy: str) -> Iterator[Finding]:
    """That the host stops for these `waits`; with the rule's own remedy without another."""
    count = case.per_step(sum(w["count"] for w in waits))
    if count < _SELDOM:
        return
    host = case.per_step(sum(w["ns"] for w in waits))
    idle = None if waits[0]["idle_ns"] is None else case.per_step(sum(w["idle_ns"] for w in waits))
    named = [f"{number(case.per_step(w['count']))} × {_place(w['operator'], w['module'])}" for w in waits[:_NAMED]]
    more = f" and {len(waits) - _NAMED} more places" if len(waits) > _NAMED else ""
    if idle is None:
        saving, effect = case.unprofiled(host), "On a CPU nothing is waited for: this is what reading the values takes."
    else:
        saving = idle
        effect = f"Meanwhile, and until the next kernel starts, the GPU idles {units.text(idle, 'ns')} for it."
    yield rule.finding(
        case,
        f"The host stops {why} {number(count)} ×{case.a_step}, for {units.text(host, 'ns')}",
        f"{listed(named)}{more}. {effect}",
        host,
        saving,
        count=count,
        remedy=remedy,
        measure="upload_ns" if waits[0].get("copy") else "",
    )


def _place(operator: str, module: str) -> str:
    return f"{operator} in {module}" if module and module != ROOT else operator


SYNC = Rule(
    name="sync",
    summary="the host waits for the GPU inside the step",
    where=ON_BOTH,
    what="Python asks for a value that the GPU has yet to compute: `.item()`, `.cpu()`, `float(loss)`, `print(loss)`, "
    "`nonzero`, a boolean mask, a blocking copy. The host stops until everything launched so far has run, and the GPU "
    "then has nothing to do until the host has launched more. On a CPU nothing is waited for, and reading values one "
    "by one is what costs. A blocking copy to the GPU stops it as well, and is reported by itself.",
    recognised="Blocking CUDA calls inside the steps (cudaStreamSynchronize, cudaEventSynchronize, "
    "cudaDeviceSynchronize, cudaMemcpy), under the operator that made them. The synchronisation that ends a measured "
    "step is left out. On a CPU: `item`, `is_nonzero` and `_local_scalar_dense`, the outermost of each.",
    estimate="On a GPU the time it idles from the call to the next kernel, and of each wait no more than the call "
    "itself took: the host goes on earlier by just that. On a CPU the time of the operators, without the profiler's "
    "share.",
    remedies=(
        "Find what reads a value back inside the step: .item(), .cpu(), print(loss), nonzero, boolean masks.",
        "Read it less often, or copy it with non_blocking=True from pinned memory and look a step later.",
    ),
    example="`total += loss.item()` in every step → `total += loss.detach()`, and one `.item()` every hundred steps.",
    find=_waits,
    rank=2,
)


def _lists(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    lists = case.facts["list_tensors"]
    time = case.per_step(sum(entry["ns"] for entry in lists))
    count = case.per_step(sum(entry["count"] for entry in lists))
    named = [f"{entry['module']} {units.text(case.per_step(entry['ns']), 'ns')}" for entry in lists if entry["module"]]
    more = f"; {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    where = f" The largest: {'; '.join(named[:_NAMED])}{more}." if named else ""
    are = "is made of a Python list" if number(count) == "1" else "are made of Python lists"
    tensors = "tensor" if number(count) == "1" else "tensors"
    yield rule.finding(
        case,
        f"{number(count)} {tensors}{case.a_step} {are}, in {case.of_whole(time)}",
        f"torch.tensor(list) walks the list for its type and then copies value by value.{where}",
        time,
        case.unprofiled(time),
        count=count,
    )


LISTS = Rule(
    name="list-to-tensor",
    summary="Python lists become tensors inside the step",
    where=ON_BOTH,
    what="`torch.tensor(values)` of a Python list visits every element twice, in one thread, at some 50 ns each; on a "
    "GPU a blocking copy follows. Inside a step that repeats with every batch, for values that mostly never change.",
    recognised="In the trace an `aten::empty`, a stretch without operators, `aten::to` and `aten::lift_fresh`, one "
    "after the other. The walk for the type before `empty` counts for as long as the filling, if no operator ran then.",
    estimate="All of the time of the conversion: a tensor made once, in `__init__`, costs nothing in the step.",
    remedies=(
        "Make the tensor once: self.register_buffer('name', torch.tensor(values)) in __init__, used in forward.",
        "What changes each step comes as a numpy array (torch.from_numpy shares its memory) or from the data loader.",
    ),
    example="DLRM's `index-hash-list`: `known = torch.tensor(self.values)` in every forward → `index-hash-tensor`.",
    find=_lists,
    needs="list_tensors",
    rank=2,
)
RULES = (LISTS, SYNC)
