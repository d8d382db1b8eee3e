"""What the host does beside launching: waiting for values, making tensors of lists, being late."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from perfkit import units
from perfkit.analysis import findings_step
from perfkit.analysis.results import Finding, Unjudged
from perfkit.analysis.rules.base import ON_A_CPU, ON_A_GPU, ON_BOTH, Case, Rule
from perfkit.analysis.words import listed, percent

_NAMED = 3
_UNTOLD = 0.5  # of the step
_LONG_CALL = 10e6  # ns: no call that only launches or allocates takes as long in a step that repeats
_MUCH = 0.1  # of the step
_SELDOM = 0.5  # waits a step, below which they are none of the step's


def _waits(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    waits = case.facts.get("host_waits")
    if not waits:
        yield from (f for f in findings_step.waiting(case.report) if f.name == rule.name)
        return
    count = case.per_step(sum(w["count"] for w in waits))
    host = case.per_step(sum(w["ns"] for w in waits))
    idle = None if waits[0]["idle_ns"] is None else case.per_step(sum(w["idle_ns"] for w in waits))
    if count < _SELDOM:
        return
    named = [f"{case.per_step(w['count']):,.3g} × {_place(w['operator'], w['module'])}" for w in waits[:_NAMED]]
    more = f" and {len(waits) - _NAMED} more places" if len(waits) > _NAMED else ""
    if idle is None:
        saving, effect = case.unprofiled(host), "On a CPU nothing is waited for: this is what reading the values takes."
    else:
        saving = idle
        effect = f"Meanwhile, and until the next kernel starts, the GPU idles {units.text(idle, 'ns')} for it."
    yield rule.finding(
        case,
        f"The host stops for a value {count:,.3g} × a step, for {units.text(host, 'ns')}",
        f"{listed(named)}{more}. {effect}",
        host,
        saving,
        count=count,
    )


def _place(operator: str, module: str) -> str:
    return f"{operator} in {module}" if module and module != "(root)" else operator


SYNC = Rule(
    name="sync",
    summary="the host waits for the GPU inside the step",
    where=ON_BOTH,
    what="Python asks for a value that the GPU has yet to compute: `.item()`, `.cpu()`, `float(loss)`, `print(loss)`, "
    "`nonzero`, a boolean mask, a blocking copy. The host stops until everything launched so far has run, and the GPU "
    "then has nothing to do until the host has launched anew. On a CPU nothing is waited for, and reading values one "
    "by one is what costs.",
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
)


def _idle(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    delay = case.facts.get("launch_delay") or {}
    for found in findings_step.gpu_idle(case.report):
        told = (found.evidence, _initialising(case), _ahead(delay))
        yield msgspec.structs.replace(found, evidence=" ".join(filter(None, told)))
    account = case.report.accounting
    if case.report.device == "cuda" and account is not None and account.other_ns > _UNTOLD * account.profiled_step_ns:
        share = percent(account.other_ns / account.profiled_step_ns)
        yield rule.cannot(f"the profile does not tell what the host did in {share} of the step")


def _initialising(case: Case) -> str:
    """A sentence about the call that shows that a process began, rather than repeated, its work; "" without one."""
    calls = [c for c in case.facts.get("api") or [] if c["count"] and not re.search("Synchronize|Memcpy", c["name"])]
    longest = max(calls, key=lambda call: call["ns"], default=None)
    if longest is None or longest["ns"] / longest["count"] < _LONG_CALL or longest["ns"] < _MUCH * case.step_ns:
        return ""
    return (
        f"{longest['name']} alone took {units.text(longest['ns'], 'ns')}: the first step of a process loads and "
        "initialises the GPU's libraries. Profile a later one."
    )


def _ahead(delay: dict[str, float | None]) -> str:
    """How far the host runs ahead of the GPU, in a sentence."""
    median = delay.get("median_ns")
    if median is None:
        return ""
    growth = delay.get("growth_ns")
    falls = " and falls during a step" if growth is not None and growth < 0 else ""
    grows = " and grows during a step" if growth is not None and growth > 0 else ""
    return (
        f"The host's lead, from a launch to the start of its kernel, has a median of {units.text(median, 'ns')}"
        f"{falls or grows}."
    )


GPU_IDLE = Rule(
    name="gpu-idle",
    summary="the GPU waits for the host to launch (launch-bound)",
    where=ON_A_GPU,
    what="The kernels are shorter than what the host needs to launch them: the GPU runs dry again and again. The host "
    "should run ahead: from a launch to the start of its kernel, time should pass in which the GPU works off what was "
    "launched before.",
    recognised="Time of the step in which no kernel runs while the host is in Python, dispatch, autograd, CUDA calls, "
    "or in the latency of a launch. The evidence gives the host's lead; a few µs mean that each kernel waits for its "
    "launch.",
    estimate="All of that time. Where the step was also timed without the profiler, which lengthens the host's part, "
    "only what that step leaves beside its kernels.",
    remedies=(
        "Launch less, or ahead: a CUDA graph (torch.compile(mode='reduce-overhead')), a larger batch, fused and "
        "foreach operators.",
    ),
    example="40 kernels of 4 µs and 400 µs of Python: the GPU works a third of the time, whatever its speed.",
    find=_idle,
)


def _overhead(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    yield from findings_step.overhead(case.report)


OVERHEAD = Rule(
    name="overhead",
    summary="the framework around the kernels takes much of the step",
    where=ON_A_CPU,
    what="Python, the dispatcher, autograd and the allocator stand between the kernels of a CPU step. With small "
    "tensors that is more than the kernels themselves.",
    recognised="Time of the profiled step in which no kernel runs, by cause. Tensors made of Python lists are a cause, "
    "and a finding, of their own.",
    estimate="All of it, scaled to the step without the profiler where that was timed.",
    remedies=("Fewer and larger operators: torch.compile, a larger batch, foreach and fused optimizers.",),
    example="A two-layer MLP at batch 1: 20 operators of 3 µs in a step of 400 µs.",
    find=_overhead,
)


def _lists(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    lists = case.facts.get("list_tensors")
    if not lists:
        return
    time = case.per_step(sum(entry["ns"] for entry in lists))
    count = case.per_step(sum(entry["count"] for entry in lists))
    named = [f"{entry['module']} {units.text(case.per_step(entry['ns']), 'ns')}" for entry in lists if entry["module"]]
    more = f"; {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    where = f" The largest: {'; '.join(named[:_NAMED])}{more}." if named else ""
    yield rule.finding(
        case,
        f"{count:,.3g} tensors a step are made of Python lists, in {percent(case.share(time))} of the step",
        f"torch.tensor(list) walks the list for its type and then copies value by value.{where}",
        time,
        time,
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
)

_DATA = Rule(
    name="data",
    summary="the step waits for its batch",
    where=ON_BOTH,
    what="The data loader runs inside the step, or has nothing ready when the step begins.",
    recognised="Time of the step in which no kernel runs and `enumerate(DataLoader)` is open.",
    estimate="All of it, scaled to the step without the profiler where that was timed.",
    remedies=(
        "Load ahead: DataLoader workers, pin_memory=True, prefetch_factor; or prepare the data once.",
    ),
    example="JPEG decoding in the training process → `DataLoader(..., num_workers=4)`.",
    find=lambda rule, case: (f for f in findings_step.waiting(case.report) if f.name == rule.name),
)  # fmt: skip
_CUDA_ALLOCATION = Rule(
    name="cuda-allocation",
    summary="GPU memory is allocated and freed inside the step",
    where=ON_A_GPU,
    what="cudaMalloc and cudaFree stop the GPU. PyTorch's caching allocator needs neither once shapes repeat.",
    recognised="Time of the step in which no kernel runs inside CUDA calls that allocate or free.",
    estimate="All of it.",
    remedies=(
        "Let the caching allocator keep it: equal shapes from step to step, no empty_cache, "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
    ),
    example="`torch.cuda.empty_cache()` after each step.",
    find=lambda rule, case: (f for f in findings_step.waiting(case.report) if f.name == rule.name),
)
RULES = (LISTS, SYNC, GPU_IDLE, OVERHEAD, _DATA, _CUDA_ALLOCATION)
