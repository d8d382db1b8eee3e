"""Rules about kernels without their counters: kinds that stay below their roof, and kernels too small to matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from perfkit import units
from perfkit.analysis import tensors
from perfkit.analysis.results import Finding, Group
from perfkit.analysis.roofline.roof import Reals
from perfkit.analysis.roofline.withheld import TOO_SMALL
from perfkit.analysis.rules.base import ON_A_GPU, ON_BOTH, Case, Rule
from perfkit.analysis.rules.standing import NEAR, main_reason
from perfkit.analysis.rules.unequal import left_out, waited
from perfkit.analysis.source import NCU
from perfkit.analysis.words import bound, call, cropped, listed, percent

_NAMED = 3
_NAMES = {"fft": "FFT"}  # of families, in a sentence
_AS_MUCH = 0.8  # of the saving that is to have a cause
_UNTOLD = "The report does not tell why: `ncu --set full` collects stall reasons, access patterns and occupancy."
_FUSE = "Fuse them with their neighbours (torch.compile), so that their tensors pass memory once less"
_PAIRS = (
    "Keep real and imaginary parts in real tensors: torch.compile generates no code for complex ones, and fuses those"
)
_FFT = "Take lengths that are products of small primes, many signals in one call, and rfft where the input is real"
_BY_FAMILY = {
    "elementwise": _FUSE,
    "normalization": _FUSE,
    "softmax": _FUSE,
    "reduction": _FUSE,
    "loss": _FUSE,
    "dropout": _FUSE,
    "activation": _FUSE,
    "copy": "Avoid the copies: keep one memory layout and dtype, or let a fusing compiler join them with their users",
    "fill": "Avoid the passes: masks belong inside a fused attention (scaled_dot_product_attention) or in a fused "
    "kernel; zeroing is spared by set_to_none=True",
    "optimizer": "Use a fused optimizer (fused=True), and low-precision state where training allows",
    "embedding": "Gather fewer or narrower rows, and sort or deduplicate the indices",
    "index": "Index with slices or precomputed views where possible; sort the indices",
    "attention": "Use a fused attention (scaled_dot_product_attention), which keeps the scores out of memory",
}
_ON_GPU = {
    ("fused", "memory"): "They are the compiler's own: torch.compile(mode='max-autotune') tries more tilings of them; "
    "a hand-written kernel can take the place of the largest",
    ("attention", "matrix"): "Try the other implementations of attention (torch.nn.attention.sdpa_kernel: cuDNN, "
    "flash, memory-efficient): which one is fastest depends on lengths and heads",
}
_WELL_SIZED = (
    "Their sizes suit the matrix units. Try other kernels (torch.compile(mode='max-autotune'), "
    "torch.backends.cuda.preferred_blas_library). Ceilings are measured in short runs: a GPU at its power limit "
    "(`nvidia-smi -q -d PERFORMANCE`) stays below them"
)
_FUSED = "fusedadam", "fusedsgd", "fusedadagrad"  # in the names of kernels that are a whole step of an optimizer
_ONE_PASS = (
    "They are one pass already: keep state in low precision where training allows. Many small tensors fill a GPU badly"
)
_GRAIN, _LARGE = 64, 512  # sizes are multiples of the one, and at least the other, where products suit matrix units
_BY_BOUND = {
    "matrix": "Give the matrix units larger products: more rows in a batch, sizes that are multiples of 64",
    "vector": "Look for what keeps the arithmetic units waiting: `ncu --set full` tells",
    "memory": "Batch them, so that more work is done on each byte; where there are many small ones, fuse them",
    "l2": "Reuse more in registers and shared memory",
}


def _below_roof(rule: Rule, case: Case) -> Iterator[Finding]:
    """Kernel groups that nothing explains, by kind and bound: what reaching their roofs would save.

    In a report of Nsight Compute each kernel is somebody's own: they stay apart.
    """
    report = case.report
    buckets: dict[tuple[str, str, str], list[Group]] = {}
    waiting = waited(case)
    without = "" if waiting is None else left_out(case, waiting)
    for group in report.headroom if waiting is None else _usual(case, report.headroom, waiting):
        below = group.efficiency is not None and group.efficiency < NEAR and not group.above_roof
        if below and main_reason(group) is None and not _has_cause(case, group):
            own = group.key if report.kind == NCU else ""
            buckets.setdefault((own, group.family, group.bound), []).append(group)
    for (own, family, limit), groups in buckets.items():
        judged, roof = sum(g.judged_ns for g in groups), sum(g.roof_ns or 0.0 for g in groups)
        named = [f"{call(g)} at {percent(g.efficiency)}, {units.text(g.headroom_ns, 'ns')}" for g in groups[:_NAMED]]
        more = f"; {len(groups) - _NAMED} more" if len(groups) > _NAMED else ""
        kind = _NAMES.get(family, family.capitalize())
        who, whose = (f"{own} reaches", "its") if own else (f"{kind} kernels reach", "their")
        yield rule.finding(
            case,
            f"{who} {percent(roof / judged if judged else None)} of {whose} roof, {bound(limit)}",
            f"Its roof is {groups[0].ceiling}."
            if own
            else f"Their roof is {groups[0].ceiling}. The largest: {'; '.join(named)}{more}.{without}",
            sum(g.time_ns for g in groups),
            sum(g.headroom_ns or 0.0 for g in groups),
            count=sum(g.count for g in groups),
            kernels=list(dict.fromkeys(g.key for g in groups)),
            remedy=_UNTOLD if own else f"{_remedy(groups, family, limit, report.device)}.",
        )


def _usual(case: Case, groups: Sequence[Group], waiting: Reals) -> Sequence[Group]:
    """The groups as if no row had waited (`rules.unequal.waited`)."""
    named = case.frame["short_name"].fillna(case.frame["name"])
    rows = case.frame.assign(waiting=waiting, key=named, shapes=case.text("shapes"))
    lost = rows.groupby(["key", "shapes"])["waiting"].sum()
    made = []
    for group in groups:
        less = case.per_step(lost.get((group.key, group.shapes), 0.0))
        judged = group.judged_ns - less
        if less <= 0 or judged <= 0 or group.roof_ns is None or group.headroom_ns is None:
            made.append(group)
            continue
        made.append(msgspec.structs.replace(
            group, time_ns=group.time_ns - less, judged_ns=judged, efficiency=group.roof_ns / judged,
            headroom_ns=max(group.headroom_ns - less, 0.0),
        ))  # fmt: skip
    return sorted(made, key=lambda g: -(g.headroom_ns or 0.0))


def _has_cause(case: Case, group: Group) -> bool:
    """Whether a finding that saves about as much says why of all the group's kernels."""
    rows = case.named_short(group.key)
    return any(
        other.saving_ns >= _AS_MUCH * (group.headroom_ns or 0.0) and bool((claimed | ~rows).all())
        for other, claimed in case.claims
    )


def _most(groups: Sequence[Group], holds: Callable[[Group], bool]) -> bool:
    """Whether it holds of groups that take most of the time."""
    return 2 * sum(g.time_ns for g in groups if holds(g)) > sum(g.time_ns for g in groups)


def _well_sized(group: Group) -> bool:
    """Whether all matrices that it works on are large, and of sizes that suit the matrix units."""
    sizes = [size for _, shape in tensors.shapes(group.shapes) if len(shape) > 1 for size in shape[-2:]]
    return bool(sizes) and all(size >= _LARGE and size % _GRAIN == 0 for size in sizes)


def _remedy(groups: Sequence[Group], family: str, limit: str, device: str) -> str:
    kind = limit.partition("_")[0]
    if family == "fft":
        return _FFT
    if _BY_FAMILY.get(family) == _FUSE and _most(groups, lambda g: "complex" in g.shapes):
        return _PAIRS
    if kind == "vector" and device == "cpu":
        return "Fuse and vectorise them (torch.compile), and use more threads where there are some"
    if device != "cpu" and (family, kind) in _ON_GPU:
        return _ON_GPU[family, kind]
    if device != "cpu" and (family, kind) == ("matmul", "matrix") and _most(groups, _well_sized):
        return _WELL_SIZED
    if family == "optimizer" and _most(groups, lambda g: any(one in g.key.lower() for one in _FUSED)):
        return _ONE_PASS
    if kind in ("memory", "l2") and family in _BY_FAMILY:
        return _BY_FAMILY[family]
    return _BY_BOUND.get(kind, f"Look for what keeps {listed([bound(limit)])} waiting")


def _tiny(rule: Rule, case: Case) -> Iterator[Finding]:
    """Of a trace: ncu serialises what it measures."""
    report = case.report
    small = next((w for w in report.withheld if w.why == TOO_SMALL), None)
    groups = [g for g in report.kernels if g.withheld == TOO_SMALL]
    if report.kind == NCU or small is None or not groups:
        return
    largest = sorted(groups, key=lambda g: -g.withheld_ns)[:_NAMED]
    named = [f"{_times(g.count)}{cropped(g.key)}, {units.text(g.withheld_ns, 'ns')}" for g in largest]
    yield rule.finding(
        case,
        f"{small.count:,.0f} kernels{case.a_step} are shorter than 5 µs: {percent(small.share)} of kernel time",
        f"Launch, start and end are most of the time of so short a kernel. The largest: {'; '.join(named)}.",
        small.time_ns,
        small.time_ns,
        count=small.count,
        kernels=[g.key for g in largest],
    )


def _times(count: float) -> str:
    return f"{count:,.0f} × " if count >= 1.5 else ""


RULES = (
    Rule(
        "below-roof", "a kind of kernel stays below what the machine allows", ON_BOTH,
        "The kernels of one family and bound take longer than their roof time, and nothing in the profile explains "
        "why.",
        "Kernel groups under 80 % of their roof, by family and by the resource that sets it. Kernels that a more "
        "telling finding names, with a larger saving, are not told again.",
        "The sum of time less roof time: the roof is what this machine was measured to reach, so it is a bound.",
        ("By family: fuse elementwise work, avoid copies, use fused attention and fused optimizers, larger products.",
         "`ncu --set full` tells stall reasons, access patterns and occupancy of a GPU kernel."),
        "A softmax at 30 % of the bandwidth because it reads its input three times.", _below_roof,
    ),
    Rule(
        "tiny-kernels", "kernels so short that launching them is most of their time", ON_A_GPU,
        "A kernel shorter than 5 µs, or of less than one wave of blocks, is mostly start and end.",
        "All launches shorter than 5 µs together, of a trace or a run.",
        "All of their time: merged into others, they cost next to nothing.",
        ("Merge them: torch.compile fuses elementwise chains, foreach and fused optimizers join per-tensor kernels, a "
         "larger batch makes each worth its launch.",),
        "A LayerNorm written with mean, sub, pow, mean, add, rsqrt and mul on small tensors.", _tiny,
    ),
)  # fmt: skip
