"""Rules over counters about warps: how many live at once, how long, what they wait for, and what they keep busy."""

from __future__ import annotations

import math

from perfkit import units
from perfkit.analysis.results import Group, Reason
from perfkit.analysis.roofline.counters import Counters
from perfkit.analysis.roofline.excluded import BUSY, TOO_SHORT_NS
from perfkit.analysis.rules.base import WITH_COUNTERS, Rule
from perfkit.analysis.rules.roof_questions import (
    below_its_memory,
    explained,
    left,
    lines,
    near,
    part_of_a_wave,
    uneven,
    waiting,
)
from perfkit.analysis.words import percent
from perfkit.instructions import faults

_TO_ROOF = "All that separates the kernel from its roof: a bound."
_LOW_OCCUPANCY = 0.5
_IDLE_TAIL = 0.15  # of all waves
_MAIN_STALL = 0.3
_WARP, _TOGETHER = 32, 0.75  # threads; the part of them below which a warp diverges
# NVIDIA's reason → what a warp waits for, and what helps.
_STALLS = {
    "long_scoreboard": (
        "data from L2 or device memory",
        "Keep more loads in flight: wider loads (float4), several independent elements a thread, or data reused from "
        "shared memory.",
    ),
    "short_scoreboard": ("shared memory or special functions", "Avoid bank conflicts, and combine narrow accesses."),
    "mio_throttle": ("the queue to shared memory and special functions", "Fewer, wider shared-memory accesses."),
    "lg_throttle": ("the queue to global memory", "Fewer, wider loads and stores (float4)."),
    "math_pipe_throttle": ("a busy arithmetic pipe", "Move work to another pipe, or do less of it."),
    "wait": ("the fixed latency of its own instructions", "More independent work a thread."),
    "barrier": ("the other warps of its block", "Smaller blocks, fewer barriers, or work shared out evenly."),
    "membar": ("a memory fence", "Fewer or narrower fences."),
    "no_instruction": ("instructions", "A shorter program, less unrolling, fewer jumps."),
    "drain": ("its stores before it ends", "Coalesced, wider stores."),
    "imc_miss": ("constants", "Read constants that all threads of a warp share."),
    "tex_throttle": ("the texture queue", "Fewer texture accesses."),
    "branch_resolving": ("branches", "Fewer jumps; the same way for all threads of a warp."),
    "sleeping": ("a sleep of its own", "Wait for less time."),
    "dispatch_stall": ("the dispatcher", "Nothing in the program is known to help."),
}  # fmt: skip
_SHORT = {
    "long_scoreboard": "memory",
    "short_scoreboard": "shared memory",
    "mio_throttle": "the MIO queue",
    "lg_throttle": "the memory queue",
    "math_pipe_throttle": "arithmetic",
    "wait": "its own latency",
    "barrier": "a barrier",
    "drain": "its stores",
}
_LIMITS = {
    "registers": "registers",
    "shared_mem": "shared memory",
    "blocks": "the number of blocks",
    "warps": "the number of warps",
    "barriers": "barriers",
}
_LOOSEN = {
    "registers": "Use fewer registers a thread (__launch_bounds__, -maxrregcount, smaller tiles) or smaller blocks.",
    "shared_mem": "Use less shared memory a block: smaller tiles, a narrower type, or data kept in registers.",
    "blocks": "Use larger blocks: the multiprocessor holds no more of these, however small they are.",
    "warps": "Use a block size that divides the warps of a multiprocessor.",
    "barriers": "Use fewer barriers a block.",
}
_SPILLING = (
    "Use smaller tiles or smaller blocks: it keeps values in local memory already, and fewer registers add to them."
)
_SPARE = {
    "multiprocessors": "Spare instructions: fewer index computations and conversions, wider loads, cheaper functions.",
    "L1": "Spare L1: wider and coalesced accesses, no bank conflicts, values kept in registers.",
    "L2": "Spare L2: more reuse in registers and shared memory, wider accesses, no partial sectors.",
}


def _diverges(rule: Rule, g: Group, c: Counters) -> Reason | None:
    """A warp's instruction takes as long for one thread as for 32: at most, the share of threads that idle is won."""
    if c.warp_threads is None or c.warp_threads >= _TOGETHER * _WARP or near(g) or g.withheld:
        return None
    idle = 1 - c.warp_threads / _WARP
    most = left(g, c)
    return rule.reason(
        label=f"divergence: {c.warp_threads:.0f} of {_WARP} threads",
        text=f"its warps diverge: {c.warp_threads:.1f} of {_WARP} threads take part in an instruction on average",
        saving_ns=g.time_ns * idle if most is None else min(g.time_ns * idle, most),
        lines=lines(c, faults.idle_threads),
    )


def _occupancy(rule: Rule, g: Group, c: Counters) -> Reason | None:
    """Too few warps to hide latency, because one resource admits few blocks."""
    if (
        not c.limits
        or c.theoretical is None
        or c.theoretical > _LOW_OCCUPANCY
        or not waiting(g, c)
        or part_of_a_wave(c)
    ):
        return None
    tightest = min(c.limits.values())
    names = [name for name, blocks in c.limits.items() if blocks == tightest]
    others = [blocks for blocks in c.limits.values() if blocks > tightest]
    if not others:
        return None
    resource = " and ".join(_LIMITS.get(name, name) for name in names)
    used = {
        "registers": f" ({c.registers:,.0f} a thread)" if c.registers else "",
        "shared_mem": f" ({units.text(c.shared_bytes, 'iB')} a block)" if c.shared_bytes else "",
    }.get(names[0], "")
    achieved = f", {percent(c.occupancy)} achieved" if c.occupancy is not None else ""
    blocks = "1 block" if tightest == 1 else f"{tightest:.0f} blocks"
    return rule.reason(
        label=f"occupancy {percent(c.theoretical)} ({resource})",
        text=f"{resource}{used} allows {blocks} a multiprocessor where {min(others):.0f} would fit: occupancy is "
        f"{percent(c.theoretical)} at most{achieved}, too little to hide latency",
        remedy=_SPILLING if names[0] == "registers" and (c.local or c.spills) else _LOOSEN.get(names[0], ""),
        saving_ns=left(g, c),
    )


def _tail(rule: Rule, g: Group, c: Counters) -> Reason | None:
    """The last wave runs partly empty: were blocks of equal length, that share of the time is lost."""
    if not c.waves or c.waves < 1 or near(g):
        return None
    whole = math.ceil(c.waves - 1e-9)
    lost = 1 - c.waves / whole
    if lost < _IDLE_TAIL:
        return None
    return rule.reason(
        label=f"{c.waves:.2f} waves, {percent(lost)} of room idle",
        text=f"its blocks make {c.waves:.2f} waves: in the last of {whole} the GPU is {percent(c.waves + 1 - whole)} "
        f"full, and {percent(lost)} of all room stays empty",
        saving_ns=min(g.time_ns * lost, g.headroom_ns if g.headroom_ns is not None else math.inf),
    )


def _imbalance(rule: Rule, g: Group, c: Counters) -> Reason | None:
    """Warps leave early: blocks or warps of uneven length."""
    if uneven(c) and c.evenness is not None and g.time_ns >= TOO_SHORT_NS * g.count:
        return rule.reason(
            label=f"uneven blocks, {percent(1 - c.evenness)} of the SMs' time idle",
            text=f"its blocks are uneven: a multiprocessor has blocks for {percent(c.evenness)} of the time that the "
            "last one needs, on average",
            saving_ns=g.time_ns * (1 - c.evenness),
            lines=lines(c, faults.in_loops),
        )
    if c.occupancy is None or not c.theoretical or c.occupancy > 0.6 * c.theoretical or part_of_a_wave(c):
        return None
    if not waiting(g, c):
        return None
    return rule.reason(
        label=f"occupancy {percent(c.occupancy)} of {percent(c.theoretical)}",
        text=f"achieved occupancy is {percent(c.occupancy)} where the launch allows {percent(c.theoretical)}: blocks "
        "or warps are of uneven length, or end too soon",
        saving_ns=left(g, c),
        lines=lines(c, faults.in_loops),
    )


def _stall(rule: Rule, g: Group, c: Counters) -> Reason | None:
    """Name what warps wait for most, if nothing is busy."""
    reason, share = next(iter(c.stalls.items()), ("", 0.0))
    if share < _MAIN_STALL or not (waiting(g, c) or below_its_memory(g, c)):
        return None
    waited, remedy = _STALLS.get(reason, (reason.replace("_", " "), ""))
    occupancy = f" at {percent(c.occupancy)} occupancy" if c.occupancy is not None else ""
    return rule.reason(
        label=f"waits for {_SHORT.get(reason, waited)}, {percent(share)}",
        text=f"{percent(share)} of its stalled cycles wait for {waited} ({reason.replace('_', ' ')}){occupancy}",
        remedy=remedy,
        saving_ns=left(g, c),
        lines=lines(c, lambda code: faults.in_state(code, reason)),
    )


def _busiest(rule: Rule, g: Group, c: Counters) -> Reason | None:
    """Name what a kernel far from its roof uses most: not a fault in itself, but work to spare."""
    if c.busiest is None or near(g) or g.efficiency is None or c.busiest[1] < BUSY:
        return None
    level, share = c.busiest
    if level == "DRAM":
        return None  # that is its roof, and said already
    return rule.reason(
        label=f"{level} {percent(share)} busy",
        text=f"it keeps {'the ' if level == 'multiprocessors' else ''}{level} busier than anything else, at "
        f"{percent(share)} of the peak",
        remedy=_SPARE.get(level, ""),
        saving_ns=g.headroom_ns,
    )


RULES = (
    Rule(
        "divergence", "threads of a warp go different ways, or end early", WITH_COUNTERS,
        "The 32 threads of a warp run one instruction together. Where a branch parts them, each way runs in turn with "
        "the others idle; loops of unequal length leave a warp to its longest thread.",
        "Threads that take part in an instruction, on average: fewer than 24 of 32.",
        "The share of the time in which threads idle, at most what separates the kernel from its roof.",
        ("Let the threads of a warp go one way: sort or group the work by kind or length, a warp instead of a thread "
         "for each long row, branches replaced by arithmetic.",),
        "A thread for each row of a sparse matrix, with rows of 1 to 500 numbers.",
        explained, _diverges, rank=71,
    ),
    Rule(
        "occupancy", "one resource admits too few warps to hide latency", WITH_COUNTERS,
        "Registers, shared memory or the block size let few blocks live on a multiprocessor at once.",
        "Theoretical occupancy of at most a half, and the resource that sets it, in a kernel that waits.",
        _TO_ROOF, ("Use less of the resource that limits: smaller tiles, __launch_bounds__, other block sizes.",),
        "A kernel of 100 KiB of shared memory a block where 228 KiB are there.",
        explained, _occupancy, rank=71,
    ),
    Rule(
        "tail", "the last wave of blocks leaves the GPU half empty", WITH_COUNTERS,
        "Blocks run in waves; when the last is small, most multiprocessors wait for it.",
        "The number of waves against the next whole number, with more than 15 % of all room idle.",
        "The idle share of the time, at most what separates the kernel from its roof.",
        ("Choose a grid that fills whole waves (or a persistent one), or smaller blocks.",), "1.1 waves of blocks.",
        explained, _tail, rank=71,
    ),
    Rule(
        "imbalance", "warps leave early: blocks of uneven length", WITH_COUNTERS,
        "Multiprocessors wait for the one with the longest blocks, or achieved occupancy stays far under what the "
        "launch allows. The lines named are those in loops where warps are found most.",
        "Multiprocessors have blocks for less than 80 % of the time of the last one, where their number would allow "
        "more; or achieved occupancy under 60 % of the theoretical, in a kernel that waits.",
        "The share of time in which multiprocessors have no block; else all that separates the kernel from its roof.",
        ("Share the work out evenly, or let a block do more of it.",), "One block a row of a sparse matrix.",
        explained, _imbalance, rank=71,
    ),
    Rule(
        "stall", "warps wait most for one thing", WITH_COUNTERS,
        "Nothing is busy: the warps wait, for memory, a barrier, or each other.",
        "The stall reason with the largest share, at least 30 % of stalled cycles.",
        _TO_ROOF, ("It depends on the reason: more loads in flight for memory, fewer barriers, no bank conflicts.",),
        "`long scoreboard` at 70 %: each thread loads one value at a time.",
        explained, _stall, rank=71,
    ),
    Rule(
        "busy", "a level other than memory is what the kernel uses most", WITH_COUNTERS,
        "L1, L2 or the multiprocessors are near their peak: no waiting, but work that may be spared.",
        "The busiest level, at 60 % of its peak or more, in a kernel far from its roof.",
        _TO_ROOF, ("Spare that level: fewer index computations, wider accesses, values kept in registers.",),
        "Integer divisions in the index of every element.",
        explained, _busiest, rank=71,
    ),
)  # fmt: skip
