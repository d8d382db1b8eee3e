"""Rules over the instructions of a kernel: bank conflicts, atomics, barriers, prologues."""

from __future__ import annotations

from perfkit import units
from perfkit.analysis.results import Group, Reason
from perfkit.analysis.roofline.counters import Counters
from perfkit.analysis.roofline.excluded import TOO_SHORT_NS
from perfkit.analysis.rules.base import WITH_COUNTERS, Rule
from perfkit.analysis.rules.roof_questions import explained, left, lines, near
from perfkit.analysis.words import percent
from perfkit.instructions import faults
from perfkit.instructions.hot import shares_address
from perfkit.instructions.results import KernelCode

_CONFLICTS = 0.25  # of the wavefronts of shared memory
_WAITS = 0.2  # of the samples: warps wait less in kernels that are well
_BARRIER = 0.3
_PROLOGUE = 0.2


def _judged(g: Group, c: Counters) -> KernelCode | None:
    """The sampled instructions of a kernel that is long enough and far from its roof."""
    if c.code is None or not c.code.samples or near(g) or g.time_ns < TOO_SHORT_NS * g.count:
        return None
    return c.code


def _all_but_the_roof(g: Group, c: Counters) -> float:
    """A full unit lets warps wait anywhere, not at the accesses alone that fill it: only the roof bounds the saving."""
    most = left(g, c)
    return g.time_ns if most is None else most


def _bank_conflicts(rule: Rule, g: Group, c: Counters) -> Reason | None:
    code = _judged(g, c)
    if code is None:
        return None
    excess, whole = sum(faults.conflicts(code)), faults.wavefronts(code)
    if not whole or excess < _CONFLICTS * whole:
        return None
    waits = faults.waits_for(code, faults.conflicting(code))
    share = faults.share(code, waits)
    if share < _WAITS:
        return None
    scale = units.scale_for([whole], "")
    return rule.reason(
        label=f"bank conflicts, {percent(share)} of its warps' time",
        text=f"{scale.text(excess)} of {scale.text(whole)} wavefronts of shared memory ({percent(excess / whole)}) are "
        f"bank conflicts, and {percent(share)} of the warps' time are waits for these accesses",
        saving_ns=_all_but_the_roof(g, c),
        lines=lines(c, faults.conflicts),
    )


def _atomics(rule: Rule, g: Group, c: Counters) -> Reason | None:
    code = _judged(g, c)
    chosen = faults.atomic(code) if code else []
    if code is None or not chosen:
        return None
    waits = faults.waits_for(code, chosen)
    share = faults.share(code, waits)
    if share < _WAITS:
        return None
    same = any(shares_address(code.instructions[place]) for place in chosen)
    shared = "; threads of a warp have the same address" if same else ""
    return rule.reason(
        label=f"atomics, {percent(share)} of its warps' time",
        text=f"{percent(share)} of the warps' time are waits for atomic operations, which take turns at an "
        f"address{shared}",
        saving_ns=_all_but_the_roof(g, c),
        lines=lines(c, lambda _: waits),
    )


def _barrier(rule: Rule, g: Group, c: Counters) -> Reason | None:
    code = _judged(g, c)
    if code is None:
        return None
    waits = faults.in_state(code, "barrier")
    share = faults.share(code, waits)
    if share < _BARRIER:
        return None
    busy = faults.busy_before(code, max(range(len(waits)), key=lambda place: waits[place]))
    where = f"{busy.file}:{busy.line}" if busy and busy.line else busy.file if busy else ""
    late = f"; the last ones are at {where} most" if where else ""
    return rule.reason(
        label=f"waits at a barrier, {percent(share)} of its warps' time",
        text=f"{percent(share)} of the warps' time are waits at a barrier for the other warps of the block{late}",
        saving_ns=min(share * g.time_ns, _all_but_the_roof(g, c)),
        lines=lines(c, lambda _: waits),
    )


def _prologue(rule: Rule, g: Group, c: Counters) -> Reason | None:
    """Blocks that do several parts each, as many as fit at once, have one prologue, and what follows overlaps it.

    A planted kernel of 16 waves, 51 % before its loop, took 49 % less of its time so: more than all waves' but one's.
    """
    code = _judged(g, c)
    if code is None:
        return None
    waits = faults.before_loops(code)
    share = faults.share(code, waits)
    if share < _PROLOGUE:
        return None
    several = f", in each of {c.waves:,.1f} waves of blocks" if c.waves and c.waves > 1 else ""
    return rule.reason(
        label=f"prologue, {percent(share)} of its warps' time",
        text=f"{percent(share)} of the warps' time pass before its first loop{several}",
        saving_ns=min(share * g.time_ns, _all_but_the_roof(g, c)),
        lines=lines(c, lambda _: waits),
    )


_BOUND = (
    "All that separates the kernel from its roof: a unit that takes turns lets warps wait at other instructions too."
)

RULES = (
    Rule(
        "bank-conflicts", "threads of a warp read different rows of the same bank of shared memory", WITH_COUNTERS,
        "Shared memory has 32 banks. Where threads of a warp need different words of one bank, they take turns.",
        "At least a quarter of the wavefronts of shared memory are beyond those without conflicts, and a fifth of the "
        "warps' samples are waits for these accesses. Needs SourceCounters.",
        _BOUND,
        ("Pad the rows of the tile by one word, or swizzle its columns; let neighbouring threads have neighbouring "
         "words.",),
        "`tile[threadIdx.x][k]` of a tile of 32×32 floats.",
        explained, _bank_conflicts, rank=70,
    ),
    Rule(
        "atomics", "atomic operations wait for each other", WITH_COUNTERS,
        "Atomic operations on one address are done one after another, by one unit of L2 or of shared memory.",
        "A fifth of the warps' samples are waits for atomic operations. Needs SourceCounters.",
        _BOUND,
        ("Sum within the warp (__shfl_down_sync, __reduce_add_sync) and the block first, and do one atomic operation a "
         "block; or spread the result over several addresses, summed later.",),
        "`atomicAdd(total, x[i])` in each thread.",
        explained, _atomics, rank=70,
    ),
    Rule(
        "barrier", "warps wait at a barrier for others of their block", WITH_COUNTERS,
        "At __syncthreads() each warp waits for the last one of its block.",
        "At least 30 % of the warps' samples are at a barrier. Needs SourceCounters.",
        "The share of these waits in its warps' samples: without them, each warp ends earlier by this share at most.",
        ("Share the work before the barrier out evenly; use more, smaller blocks; or wait for fewer (__syncwarp, named "
         "barriers).",),
        "A table that one warp makes while seven wait.",
        explained, _barrier, rank=70,
    ),
    Rule(
        "prologue", "warps spend long before the kernel's loop", WITH_COUNTERS,
        "Each block reads its parameters, computes addresses and waits for its first data before its loop begins.",
        "At least a fifth of the warps' samples are before the first instruction that runs more often than the "
        "kernel's first one, and at most a quarter of its instructions, sectors and wavefronts. Needs SourceCounters.",
        "The share of these samples, at most what is left to its roof.",
        ("As many blocks as fit at once, each of which does several tiles (a persistent kernel); the first loads "
         "before other address arithmetic; fewer integer divisions; programmatic dependent launch, which starts the "
         "prologue while the kernel before it ends.",),
        "A tile of 128 × 128 with a loop of four turns, whose first loads take as long as the loop.",
        explained, _prologue, rank=71,
    ),
)  # fmt: skip
