"""Savings of fusing an eager step, predicted from its kernels, and a compiler's result for the same step.

    on a CPU   fused time of a group = Σ time of its kernels − bytes no longer moved / bandwidth
                                       − kernels that are gone × the time of one that moves next to nothing
    on a GPU   fused time of a group = bytes still moved / bandwidth + the time of a kernel that moves nothing
    a step     its time − what its groups save − the time between kernels that are one now

A group is a chain of kernels that a compiler could make one: elementwise work, copies, and reductions over rows, each
reading what the one before wrote (`perfkit.analysis.rules.chains` says how that is seen). On a CPU arithmetic is most
of many elementwise kernels, and fusing does not shorten it. On a GPU a fused kernel is bound by memory, or by its own
start and end: the median of the fusible kernels shorter than 5 µs. Bandwidths are the measured ones of the working set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from perfkit import units
from perfkit.analysis.fusion.eager import NEXT_TO_NOTHING, EagerMachine
from perfkit.analysis.fusion.kernels import check, error
from perfkit.analysis.fusion_results import FusedKernel, Fusion, FusionGroup, FusionPart
from perfkit.analysis.results import BackendReport
from perfkit.analysis.roofline.excluded import TOO_SHORT_NS
from perfkit.analysis.roofline.memory import passing
from perfkit.analysis.roofline.roof import Booleans, Reals
from perfkit.analysis.rules import Case
from perfkit.analysis.rules.chains import GENERATED, Chain, called, chains, on_complex

FUSIBLE = ("elementwise", "activation", "dropout", "normalization", "softmax", "reduction", "loss", "copy", "fill")
_GENERATED_FAMILIES = (*FUSIBLE, "fused", "embedding", "index")
# Copies inside a product (its bias) are its own; these are operators of their own.
_COPIES = ("to", "_to_copy", "copy_", "clone", "contiguous", "reshape", "cat", "stack", "flatten", "add", "add_")
_MOST_GROUPS = 20
_WORTH_SAYING = 0.01  # of the step
_ALIKE = 0.25  # bytes that differ by less are the same fusion at another speed


def predict(case: Case) -> Fusion | None:
    """The prediction for a backend that runs operator by operator; None for fused kernels, and without shapes."""
    fusible = _fusible(case)
    generated = _generated(case)
    if not fusible.any() or generated.any() or not any(case.text("shapes")):
        return None
    found = chains(case, fusible)
    if not found:
        return None
    least = _least_ns(case)
    both = [_part(case, name, fusible, found, least) for name in ("forward", "backward")]
    parts = [part for part in both if part is not None]
    gaps = case.unprofiled(sum(launch for _, launch in parts))
    step = case.step_ns
    return Fusion(
        parts=[part for part, _ in parts],
        groups=_groups(case, found, least),
        launch_ns=gaps,
        step_ns=step,
        predicted_step_ns=max(step - gaps - sum(part.time_ns - part.predicted_ns for part, _ in parts), 0.0),
    )


def _generated(case: Case) -> Booleans:
    return case.named(lambda name: bool(GENERATED.search(name)))


def _fusible(case: Case) -> Booleans:
    rows: Booleans = case.is_in("family", FUSIBLE) & ~case.is_in("kind", ("memcpy", "memset"))
    inner = case.is_in("family", ("copy",)) & ~case.is_in("operator", [f"aten::{name}" for name in _COPIES])
    return rows & ~inner & ~on_complex(case) & ~case.is_in("pass", ("optimizer",))


def _within(case: Case, name: str) -> Booleans:
    """The rows of the backward pass, or of all that comes before it, however the workload divides that."""
    backward: Booleans = case.is_in("pass", ("backward",))
    return backward if name == "backward" else ~backward & ~case.is_in("pass", ("optimizer",))


def _part(
    case: Case, name: str, fusible: Booleans, found: Sequence[Chain], least: float
) -> tuple[FusionPart, float] | None:
    """The prediction for one pass, and the time between kernels that fusing ends, ns a step."""
    rows = fusible & _within(case, name)
    if not rows.any():
        return None
    mine = [chain for chain in found if rows[chain.rows[0]]]
    spared = case.per_step(sum(len(chain.rows) - 1 for chain in mine))
    moved, bytes_ = _bytes(case, rows), case.per_step(sum(chain.saved_bytes for chain in mine))
    part = FusionPart(
        name=name,
        kernels=case.per_step(rows.sum()),
        time_ns=case.time(rows),
        bytes=moved,
        predicted_kernels=case.per_step(rows.sum()) - spared,
        predicted_ns=_fused_ns(case, rows, mine, least),
        predicted_bytes=max(moved - bytes_, 0.0),
    )
    return part, case.per_step(sum(chain.launch_ns for chain in mine))


def _fused_ns(case: Case, rows: Booleans, mine: Sequence[Chain], least: float) -> float:
    """Return the time of `rows` when each of their chains is one kernel, ns a step."""
    single = rows.copy()
    single[[i for chain in mine for i in chain.rows]] = False
    fused = sum(_chain_ns(case, chain, least) for chain in mine)
    if not _by_memory(case):
        return case.time(single) + case.per_step(fused)
    read, written = _moved(case)
    alone = _alone(case, read[single], written[single], least)
    return case.per_step(fused + float(np.fmin(np.nan_to_num(case.judged.time[single]), alone).sum()))


def _chain_ns(case: Case, chain: Chain, least: float) -> float:
    """Return the time of a chain as one kernel, ns; `least` is the time of a kernel that moves next to nothing."""
    rows = list(chain.rows)
    now = float(np.nansum(case.judged.time[rows]))
    if not _by_memory(case):
        return max(now - chain.moved_ns - (len(rows) - 1) * least, 0.0)
    read, written = _moved(case)
    left = max(read[rows].sum() - chain.saved_read, 0.0), max(written[rows].sum() - chain.saved_written, 0.0)
    return min(now, float(_alone(case, np.array(left[:1]), np.array(left[1:]), least)[0]))


def _by_memory(case: Case) -> bool:
    """Return whether a fused kernel is bound by memory and its own start: on a GPU whose bandwidth is known."""
    return case.report.device == "cuda" and case.ceilings is not None and bool(case.ceilings.bandwidth)


def _least_ns(case: Case) -> float:
    """The time of a kernel that moves next to nothing; 0 if unknown."""
    if not _by_memory(case):
        return _empty_ns(case)
    short = case.judged.time[_fusible(case) & (case.judged.time < TOO_SHORT_NS)]
    return float(np.median(short)) if len(short) else 0.0


def _groups(case: Case, found: Sequence[Chain], least: float) -> list[FusionGroup]:
    """Chains of the same operators together, a step, those first on which fusing saves most."""
    groups: dict[str, FusionGroup] = {}
    for chain in found:
        name = called(case, chain)
        group = groups.setdefault(name, FusionGroup(name=name, count=0.0, kernels=0.0, time_ns=0.0, predicted_ns=0.0))
        group.count += case.per_step(1)
        group.kernels += case.per_step(len(chain.rows))
        group.time_ns += case.per_step(float(np.nansum(case.judged.time[list(chain.rows)])))
        group.predicted_ns += case.per_step(_chain_ns(case, chain, least))
    return sorted(groups.values(), key=lambda g: g.predicted_ns - g.time_ns)[:_MOST_GROUPS]


def _empty_ns(case: Case) -> float:
    """Return the time of an operator on a CPU that moves next to nothing; 0 if unknown.

    The lower quartile: an interruption makes some of a µs take many times as long, and none shorter. Copies and fills
    of a number are mostly parts of other operators, and a fraction of a call: they count if nothing else is known.
    """
    small = case.judged.bytes <= NEXT_TO_NOTHING
    for families in (("elementwise",), ("copy", "fill")):
        if (rows := small & case.is_in("family", families)).any():
            return float(np.quantile(case.judged.time[rows], 0.25))
    return 0.0


def _moved(case: Case) -> tuple[Reals, Reals]:
    """Bytes read and written of each row, 0 where they are unknown."""
    frame = case.frame
    return np.nan_to_num(frame["bytes_read"].to_numpy(float)), np.nan_to_num(frame["bytes_written"].to_numpy(float))


def _alone(case: Case, read: Reals, written: Reals, least: float) -> Reals:
    """The time of kernels on a GPU that move these bytes each."""
    assert case.ceilings is not None
    return least + passing(read, written, case.ceilings)


def _bytes(case: Case, rows: Booleans) -> float:
    return case.per_step(float(np.nansum(case.judged.bytes[rows])))


def achieve(case: Case) -> dict[str, tuple[float, float, float | None, float | None]] | None:
    """Kernels, time, bytes and efficiency of what is left of the same work in a compiled step, by pass; None if it is
    not compiled. Bytes are None where those of some generated kernel are unknown."""
    generated = _generated(case)
    if not generated.any():
        return None
    rows = (generated & ~case.is_in("pass", ("optimizer",))) | (
        _fusible(case) & case.is_in("family", _GENERATED_FAMILIES)
    )
    found = {}
    for name in ("forward", "backward"):
        mine = rows & _within(case, name)
        if mine.any():
            known = np.isfinite(case.judged.bytes[mine & generated]).all()
            judged = mine & case.judged.judged
            time = float(case.judged.time[judged].sum())
            efficiency = float(case.judged.roof[judged].sum()) / time if time else None
            found[name] = (
                case.per_step(mine.sum()),
                case.time(mine),
                _bytes(case, mine) if known else None,
                efficiency,
            )
    return found


def compared_with_achieved(backends: Sequence[BackendReport], cases: Mapping[str, Case]) -> list[BackendReport]:
    """Return the backends, with the compiled backend's result next to each prediction, kernel by kernel as
    well, and why they part. `cases` are those of the backends that have one, by name."""
    compiled = next((b for b in backends if b.compiled and b.status == "ok"), None)
    if compiled is None:
        return list(backends)
    return [
        msgspec.structs.replace(b, fusion=_achieved(b, b.fusion, compiled, cases)) if b.fusion else b for b in backends
    ]


def _achieved(backend: BackendReport, said: Fusion, compiled: BackendReport, cases: Mapping[str, Case]) -> Fusion:
    """Return what was `said` of a backend, next to the compiled one's result."""
    became = compiled.compiled or {}
    parts = [_part_achieved(part, *became[part.name]) if part.name in became else part for part in said.parts]
    said = msgspec.structs.replace(
        said, parts=parts, achieved_by=compiled.name, achieved_step_ns=_achieved_step_ns(backend, compiled)
    )
    kernels = _fused_kernels(cases[backend.name], cases[compiled.name])
    off, known = error(kernels) or (None, None)
    return msgspec.structs.replace(
        said,
        step_why=_why_the_step(backend, said, compiled),
        kernels=kernels,
        kernels_error=off,
        kernels_known=known,
    )


def _achieved_step_ns(eager: BackendReport, compiled: BackendReport) -> float | None:
    """Return the compiled step measured like eager's: timed with timed, profiled with profiled; None if it was not.

    Uneven timed steps still are what the headline says: they only say nothing about the profiled ones.
    """
    if _is_timed(eager):
        return compiled.step.value if compiled.step else None
    return compiled.accounting.profiled_step_ns if eager.accounting and compiled.accounting else None


def _is_timed(report: BackendReport) -> bool:
    """Return whether its step is the timed one, which its profile is about as well."""
    return report.accounting is not None and bool(report.accounting.timed_step_ns)


def _part_achieved(
    part: FusionPart, kernels: float, time_ns: float, moved: float | None, efficiency: float | None
) -> FusionPart:
    made = msgspec.structs.replace(
        part, achieved_kernels=kernels, achieved_ns=time_ns, achieved_bytes=moved, efficiency=efficiency
    )
    return msgspec.structs.replace(made, why=_why(made))


def _fused_kernels(eager: Case, compiled: Case) -> list[FusedKernel]:
    """Each fused kernel predicted from eager's operators, where a memory roof is known."""
    if eager.ceilings is None or not eager.ceilings.bandwidth:
        return []
    replaced = eager.is_in("family", _GENERATED_FAMILIES) & ~eager.is_in("pass", ("optimizer",))
    on_gpu = eager.report.device == "cuda"
    found = eager.ceilings
    machine = EagerMachine(
        start_ns=_least_ns(eager) if on_gpu else (found.region_s or 0.0) * 1e9,
        empty_ns=_empty_ns(eager),
        threads=max(found.threads, 1),
        on_gpu=on_gpu,
        handover=found.handover or 0.0,
        private=found.caches.get("L2", 0.0),
    )
    generated = _generated(compiled)
    return check(eager, replaced, compiled, generated, _fusible(compiled) & ~generated, machine)


def _why_the_step(eager: BackendReport, said: Fusion, compiled: BackendReport) -> list[str]:
    """By which parts the achieved step differs from what was `said`, the largest first. They sum to the difference:

    a step = its fusible kernels + its other kernels + the time outside of kernels

    An empty list where the profile says nothing about the timed step, or its kernels take longer than that: no time
    outside is left to compare.
    """
    if said.achieved_step_ns is None or (_is_timed(eager) and not _is_timed(compiled)):
        return []
    if eager.kernel_ns > said.step_ns or compiled.kernel_ns > said.achieved_step_ns:
        return []
    ran, became = sum(p.time_ns for p in said.parts), sum(p.predicted_ns for p in said.parts)
    took = sum(p.achieved_ns or 0.0 for p in said.parts)
    parts = {
        "the fused kernels": took - became,
        "other kernels": (compiled.kernel_ns - took) - (eager.kernel_ns - ran),
        "time outside of kernels": (said.achieved_step_ns - compiled.kernel_ns)
        - (said.step_ns - eager.kernel_ns - said.launch_ns),
    }
    shown = [(name, ns) for name, ns in parts.items() if abs(ns) >= _WORTH_SAYING * said.step_ns]
    return [
        f"{name} {'+' if ns > 0 else '−'}{units.text(abs(ns), 'ns')}"
        for name, ns in sorted(shown, key=lambda p: -abs(p[1]))
    ]


def _why(part: FusionPart) -> str:
    """Return why prediction and result differ, as far as known."""
    assert part.achieved_ns is not None
    ratio = part.achieved_ns / part.predicted_ns if part.predicted_ns else 0.0
    if 1 - _ALIKE <= ratio <= 1 + _ALIKE:
        return "as predicted"
    faster = "faster" if ratio < 1 else "slower"
    if part.achieved_bytes is not None and part.predicted_bytes:
        moved = part.achieved_bytes / part.predicted_bytes
        if moved < 1 - _ALIKE:
            extra = "" if ratio < 1 else ", yet they run slower than eager's"
            return f"the compiler moves {moved:.2f} × the bytes: it fuses more{extra}"
        if moved > 1 + _ALIKE:
            return f"the compiler moves {moved:.2f} × the bytes: it fuses less, or recomputes"
        return f"about the same bytes: its kernels are {faster} than the operators"
    return f"its kernels are {faster}; what they move is not known"
