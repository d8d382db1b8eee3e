"""Why a rank is late: what it does longer than the others in the steps in which they wait for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfkit.analysis.words import number as counted
from perfkit.analysis.words import operands
from perfkit.ranks.rank_table import RankTable
from perfkit.ranks.results import Cause
from perfkit.units import cropped
from perfkit.units import text as in_unit

HOST, KERNELS, WORK, COPIES = "host", "kernels", "work", "copies"
_WORTH = 0.1  # of the lateness
_OTHER_WORK = 0.1  # of a rank's computation: kernels, or shapes, that no other rank has
_MORE_WORK = 0.5  # of what it computes longer: the kernels that it has more of
_SLOWER = 1.02
_CAUSES = {
    "data": "the data loader",
    "Python": "Python code",
    "launch": "CUDA calls that launch",
    "autograd": "autograd's engine",
    "sync": "waits for the GPU",
    "CUDA allocation": "allocating GPU memory",
}


def explain(members: Sequence[RankTable], column: int, steps: np.ndarray, late_ns: float) -> list[Cause]:
    """The causes of a member's lateness in `steps` (flags), the largest first; each is at least a tenth of it.

    What its GPU computes or copies longer than the median of the others is due to kernels, work or copies; what it
    idles longer is due to its host.
    """
    found = []
    longer = {name: _beyond(members, column, steps, name) for name in ("compute_ns", "copy_ns", "idle_ns")}
    if longer["compute_ns"] > 0:
        found.append(_computing(members, column, steps, longer["compute_ns"]))
    if longer["copy_ns"] > 0:
        ns = longer["copy_ns"]
        found.append(Cause(kind=COPIES, ns=ns, text=f"its copies take {in_unit(ns, 'ns')} longer"))
    if longer["idle_ns"] > 0:
        found.append(_host(members, column, steps, min(longer["idle_ns"], late_ns)))
    worth = [cause for cause in found if cause.ns >= _WORTH * late_ns]
    return sorted(worth, key=lambda cause: -cause.ns)


def _beyond(members: Sequence[RankTable], column: int, steps: np.ndarray, name: str) -> float:
    """The median over `steps` of a member's figure less that of the median of the others."""
    figures = np.array([[one[name] for one in m.facts["per_step"]] for m in members], float)[:, steps]
    return float(np.median(figures[column] - np.median(np.delete(figures, column, axis=0), axis=0)))


def _on_the_mean(members: Sequence[RankTable], column: int, steps: np.ndarray, name: str) -> float:
    """A member's mean over `steps` less the median of the others' means."""
    means = [
        float(np.mean([one[name] for one, taken in zip(m.facts["per_step"], steps, strict=True) if taken]))
        for m in members
    ]
    return means[column] - float(np.median(np.delete(means, column)))


def _host(members: Sequence[RankTable], column: int, steps: np.ndarray, ns: float) -> Cause:
    """Say in words what the host's part `ns` is, by means as in the tables: late steps, and the causes of idle
    time that differ most, which are known over all steps."""
    idle = [{one["cause"]: one["ns"] / max(m.steps, 1) for one in m.facts.get("idle", [])} for m in members]
    others = [one for i, one in enumerate(idle) if i != column]
    beyond = {c: v - float(np.median([o.get(c, 0.0) for o in others])) for c, v in idle[column].items()}
    largest = sorted((c for c in beyond if beyond[c] > 0.1 * ns), key=lambda c: -beyond[c])[:3]
    said = ", ".join(f"{_CAUSES.get(c, c)} {in_unit(beyond[c], 'ns')}" for c in largest)
    said = f"over all steps: {said}" if said and not steps.all() else said
    mean = _on_the_mean(members, column, steps, "idle_ns")
    # One long pause of another rank can make the mean less than nothing, where the median is not.
    longer = in_unit(mean if mean > 0 else ns, "ns")
    if members[column].on_gpu:
        text = f"its host launches late: its GPU idles {longer} longer than the others'"
    else:
        text = f"it is {longer} longer between operators than the others"
    return Cause(kind=HOST, ns=ns, text=text + (f" ({said})" if said else ""))


def _computing(members: Sequence[RankTable], column: int, steps: np.ndarray, ns: float) -> Cause:
    """Longer kernels, or more work: by kernels of the same name and shapes."""
    times = [_by_kernel(m, steps) for m in members]
    own, others = times[column], [one for i, one in enumerate(times) if i != column]
    alone = {k: v for k, v in own.items() if not any(k in other for other in others)}
    total = sum(v[0] for v in own.values())
    if sum(v[0] for v in alone.values()) > _OTHER_WORK * total:
        (name, shapes), _ = max(alone.items(), key=lambda item: item[1][0])
        return Cause(
            kind=WORK, ns=ns, text=f"it has other work: {name} of {shapes or 'other shapes'}, which no other rank runs"
        )
    counts = {k: v[1] - float(np.median([o[k][1] for o in others if k in o])) for k, v in own.items() if k not in alone}
    number = max(int(steps.sum()), 1)
    extra = {k: n * own[k][0] / own[k][1] / number for k, n in counts.items() if n > 0}
    if sum(extra.values()) > _MORE_WORK * ns:
        name, shapes = max(extra, key=lambda k: extra[k])
        more = sum(counts[k] for k in extra) / number
        text = f"it has more work: {counted(more)} kernels a step more, such as {_kernel(name, shapes, 'other shapes')}"
        return Cause(kind=WORK, ns=ns, text=text)
    return Cause(kind=KERNELS, ns=ns, text=_slower(own, others, number))


def _slower(
    own: dict[tuple[str, str], tuple[float, int]],
    others: Sequence[dict[tuple[str, str], tuple[float, int]]],
    steps: int,
) -> str:
    """Which of the same kernels take longer, or that all do."""
    shared = [k for k in own if any(k in o for o in others)]
    usual = {k: float(np.median([o[k][0] for o in others if k in o])) for k in shared}
    ratios = np.array([own[k][0] / usual[k] for k in shared if usual[k] > 0])
    weights = np.array([usual[k] for k in shared if usual[k] > 0])
    order = np.argsort(ratios)
    quarter = ratios[order][np.searchsorted(np.cumsum(weights[order]), 0.25 * weights.sum())]
    overall = float(sum(own[k][0] for k in shared) / sum(usual.values()))
    if quarter > _SLOWER and quarter - 1 > 0.5 * (overall - 1):
        return f"all its kernels take longer, {overall - 1:.0%} together: a lower clock, or a slower GPU"
    name, shapes = max(shared, key=lambda k: own[k][0] - usual[k])
    beyond = (own[(name, shapes)][0] - usual[(name, shapes)]) / steps
    return f"its kernel {_kernel(name, shapes, 'the same shapes')} takes {in_unit(beyond, 'ns')} a step longer"


def _kernel(name: str, shapes: str, unknown: str) -> str:
    return f"{cropped(name)} of {operands(shapes) or unknown}"


def _by_kernel(member: RankTable, steps: np.ndarray) -> dict[tuple[str, str], tuple[float, int]]:
    """Time and number of a member's computing kernels by name and shapes, in `steps`."""
    chosen = member.is_compute & np.append(steps, False)[member.step]
    part = member.frame.loc[chosen, ["short_name", "shapes", "duration_ns"]]
    names = part["short_name"].fillna("").tolist()
    shapes = part["shapes"].fillna("").tolist()
    found: dict[tuple[str, str], tuple[float, int]] = {}
    for name, shape, ns in zip(names, shapes, part["duration_ns"].fillna(0.0).tolist(), strict=True):
        time, count = found.get((name, shape), (0.0, 0))
        found[name, shape] = (time + ns, count + 1)
    return found
