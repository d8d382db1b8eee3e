"""An optimizer that goes over its parameters one by one, operator by operator."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from perfkit import units
from perfkit.analysis.results import Finding, Unjudged
from perfkit.analysis.roofline.roof import Booleans
from perfkit.analysis.rules.base import ON_BOTH, Case, Rule
from perfkit.analysis.words import number

_MANY = 20  # rows a step, below which there is little to join
_PARTS = ("elementwise", "copy", "fill", "reduction")
_ADAM, _MOMENTUM, _PLAIN = 7, 5, 3  # times the parameters' bytes that one fused pass reads and writes
_DISTINCT = {_ADAM: 4 / 7, _MOMENTUM: 3 / 5, _PLAIN: 2 / 3}  # of these bytes, those of the tensors themselves
_COMPILED = (
    "Compile the update (torch.compile on the function that updates a parameter), and multiply parameters of one shape "
    "together (torch.stack, torch.bmm)."
)
_APART = (
    "Give the parameters with dense gradients an optimizer of their own, with fused=True: sparse gradients have none."
)
_UPDATES = re.compile("fused_?(adam|sgd|adagrad)|_foreach_(lerp|addcdiv)|backward|bwd|wgrad|dgrad", re.IGNORECASE)
_CAUSES = ("Python", "dispatch", "allocation", "host code", "launch", "latency", "driver")


def _find(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    inside = case.is_in("pass", ("optimizer",))
    if not inside.any():
        unknown = case.report.coverage is not None and case.report.coverage.pass_ < 0.5
        if unknown and len(case.frame) > _MANY and case.named(lambda name: bool(_UPDATES.search(name))).any():
            yield rule.cannot("the profile does not show which kernels are the optimizer's")
        return
    operators = case.operators()
    fused = np.array([("foreach" in n) or ("fused" in n) for n in operators], bool) | case.is_in(
        "family", ("optimizer",)
    )
    rows = inside & case.is_in("family", _PARTS) & ~fused & ~_counters(case)
    count = case.per_step(rows.sum())
    if count < _MANY or case.time(rows) < case.time(inside & fused):
        return
    products = bool((inside & case.is_in("family", ("matmul",))).any())
    sparse = any("sparse" in n or "coalesce" in n for n, is_in in zip(operators, inside, strict=True) if is_in)
    time, fewest = case.time(rows), None if products or sparse else _fewest(case, rows, operators)
    if fewest and fewest[0] >= time:
        fewest = None  # they move no more than that
    gaps = case.between(_gaps(case))
    least = (
        f" One pass over the parameters, gradients and state moves {units.text(fewest[1], 'B')}, and takes "
        f"{units.text(fewest[0], 'ns')} at the rate that {fewest[2]}."
        if fewest
        else ""
    )
    if sparse:
        least += " Part of it works on sparse gradients, for which no optimizer of PyTorch has a fused form."
    if products:
        least += " Its update multiplies matrices: no optimizer of PyTorch has a fused form of that."
    between = f", and the framework between them {units.text(gaps, 'ns')}" if gaps else ""
    saving = (time - fewest[0] if fewest else 0.0) + gaps
    yield rule.finding(
        case,
        f"{_counted(count, case.per_step(inside.sum()), case.a_step)} one parameter and operator at a time",
        f"They take {units.text(time, 'ns')} ({case.of_whole(time)}){between}.{least}",
        time + gaps,
        saving,
        rows=rows,
        remedy=_COMPILED if products else _APART if sparse else "",
    )


def _counted(count: float, every: float, per: str) -> str:
    """Return the kernels that a finding counts: if the optimizer's pass has others too, its part of them."""
    if every - count < 0.5:
        return f"The optimizer runs {number(count)} kernels{per},"
    return f"{number(count)} of the optimizer's {number(every)} kernels{per} go"


def _counters(case: Case) -> Booleans:
    """Rows that write one number: the count of steps of a parameter, which a fused optimizer keeps as well."""
    return np.asarray(case.frame["bytes_written"].to_numpy(float) <= 8)


def _fewest(case: Case, rows: Booleans, operators: list[str]) -> tuple[float, float, str] | None:
    """Return the time of one fused pass in ns, the bytes it moves, and the rate's source; None without known bytes."""
    written = np.nan_to_num(case.frame["bytes_written"].to_numpy(float))
    by_name: dict[str, float] = {}
    for i in np.flatnonzero(rows).tolist():
        by_name[operators[i]] = by_name.get(operators[i], 0.0) + written[i]
    full = [amount for amount in by_name.values() if amount >= 0.5 * max(by_name.values())]
    names = {name.rstrip("_") for name in by_name}
    two_moments = "aten::lerp" in names or {"aten::mul", "aten::add", "aten::addcmul"} <= names
    tensors = _ADAM if two_moments else _MOMENTUM if len(full) > 1 else _PLAIN  # Adagrad and RMSprop have one
    bytes_ = tensors * case.per_step(float(np.median(full))) if full else 0.0
    if not bytes_:
        return None
    if case.ceilings is not None and case.ceilings.bandwidth:
        distinct = bytes_ * _DISTINCT.get(tensors, 1.0)
        rate, by = case.ceilings.bandwidth_for(distinct, in_place=True).value / 1e9, "memory allows"
    else:
        known = rows & np.isfinite(case.judged.bytes)
        time = np.nansum(case.judged.time[known])
        if not time:
            return None
        rate, by = case.judged.bytes[known].sum() / time, "they reach now"
    return bytes_ / float(rate), bytes_, by


def _gaps(case: Case) -> float:
    """Time without a kernel in the optimizer's pass, ns a step, by causes that fewer launches end."""
    gaps = case.facts.get("gaps") or []
    return case.per_step(sum(g["ns"] for g in gaps if g["pass"] == "optimizer" and g["cause"] in _CAUSES))


UNFUSED = Rule(
    name="unfused-optimizer",
    summary="the optimizer runs operator by operator, parameter by parameter",
    where=ON_BOTH,
    what="Adam is some ten elementwise operators a parameter. Run one by one, each reads and writes the whole "
    "parameter, and a model with a hundred parameters launches a thousand small kernels.",
    recognised=f"At least {_MANY} elementwise kernels a step in the optimizer's pass that are neither foreach nor "
    "fused, copies, fills and reductions among them. Those that write a single number, as counts of steps, are left "
    "out: a fused optimizer has them too.",
    estimate="Their time less that of one pass: parameter, gradient and two moments read, all but the gradient written "
    "(7 times the parameters' bytes; 5 with momentum alone, 3 for plain SGD), at the memory ceiling, or without one at "
    "the rate they reach now. And the time between the kernels.",
    remedies=(
        "Use fused=True (Adam, AdamW, SGD, Adagrad have it, on CPU and GPU), or foreach=True.",
    ),
    example="`torch.optim.Adam(parameters, fused=True)`; on the CPU neither fused nor foreach is the default.",
    find=_find,
    rank=8,
)  # fmt: skip
RULES = (UNFUSED,)
