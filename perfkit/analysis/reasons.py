"""Why a kernel is far from its roof: named rules over what its counters say, each shown only with its evidence.

`RULES` are asked in order, causes before symptoms, so that the first reason of a kernel is the one to mend first. A
rule that waits for memory or instructions explains (occupancy, stalls) speaks only where no level of the GPU is busy:
what keeps L2 or the multiprocessors at 60 % of their peak is limited by them, not by waiting.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from perfkit import units
from perfkit.analysis.counters import Counters
from perfkit.analysis.judging import BUSY, FULL, TOO_SHORT_NS
from perfkit.analysis.results import Group, Reason
from perfkit.analysis.words import percent

NEAR = 0.8  # of its roof: nothing is asked of a kernel that reaches this much
WASTED = 0.25  # of the sectors: fewer excessive ones are what the edges of tensors cost
LOW_OCCUPANCY = 0.5
IDLE_TAIL = 0.15  # of all waves
TENSOR_NOISE = 0.05  # what packed half-precision moves alone make of the tensor pipe's activity
MAIN_STALL = 0.3
SECTOR_BYTES = 32

# NVIDIA's reason → what a warp waits for, and what helps.
STALLS = {
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
# The matrix unit that takes over the products of a vector unit.
_MATRIX = {"vector_fp32": "matrix_tf32", "vector_fp64": "matrix_fp64", "vector_fp16": "matrix_fp16"}
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


def of_group(group: Group, counters: Counters) -> list[Reason]:
    """The reasons of a kernel group, the most telling first."""
    found = [reason for rule in RULES if (reason := rule(group, counters))]
    return found


def _too_few_blocks(g: Group, c: Counters) -> Reason | None:
    """Multiprocessors without a block idle throughout. At most the room that its blocks leave free is won."""
    if not c.blocks or not c.multiprocessors or g.time_ns < TOO_SHORT_NS * g.count:
        return None
    if c.blocks >= FULL * c.multiprocessors:
        return None
    idle = 1 - c.blocks / c.multiprocessors
    blocks = "1 block" if c.blocks == 1 else f"{c.blocks:,.0f} blocks"
    return Reason(
        name="few-blocks",
        label=f"{blocks} on {c.multiprocessors} SMs",
        text=f"it launches {blocks} on {c.multiprocessors} multiprocessors: {percent(idle)} of them have nothing to do",
        remedy="Split the work over more blocks: a first pass that leaves a partial result a block, then one that "
        "joins them; or a library's reduction, such as CUB's.",
        saving_ns=g.time_ns * (1 - c.waves if c.waves is not None and c.waves < 1 else idle),
    )


def _uncoalesced(g: Group, c: Counters) -> Reason | None:
    """Only the sectors that were asked for move, at the same ceiling: less time than that no access pattern takes."""
    if not c.sectors or c.excessive is None or c.excessive < WASTED * c.sectors or not _by_memory(g):
        return None
    wasted = c.excessive / c.sectors
    asked = (c.sectors - c.excessive) * SECTOR_BYTES
    kept = min(1.0, asked / g.bytes) if g.bound == "memory" and g.bytes else 1 - wasted
    saving = g.judged_ns - g.roof_ns * kept if g.roof_ns else None
    scale = units.scale_for([c.sectors], "")
    return Reason(
        name="uncoalesced",
        label=f"uncoalesced, {percent(wasted)} wasted",
        text=f"its accesses are uncoalesced: {scale.text(c.excessive)} of {scale.text(c.sectors)} sectors of 32 bytes "
        f"({percent(wasted)}) carry nothing that a thread asked for",
        remedy="Let neighbouring threads touch neighbouring addresses: swap the loops, transpose in shared memory, "
        "or change the layout (structure of arrays).",
        saving_ns=saving,
    )


def _tensor_idle(g: Group, c: Counters) -> Reason | None:
    """A matrix product on the vector units of a GPU with matrix units: at most, what those and memory would take."""
    if g.family != "matmul" or c.tensor_active is None or c.tensor_active >= TENSOR_NOISE:
        return None
    rate = c.ceilings.get(_MATRIX.get(g.bound, ""))
    if not rate or g.flop is None:
        return None
    memory = c.ceilings.get("memory")
    least = max(g.flop / rate, (g.bytes or 0.0) / memory if memory else 0.0) * 1e9
    return Reason(
        name="tensor-idle",
        label=f"tensor pipe idle ({percent(c.tensor_active)})",
        text=f"it is a matrix product, and the tensor pipe was active in {percent(c.tensor_active)} of the cycles: the "
        f"vector units do the work ({g.ceiling})",
        remedy="Where the precision allows, use TF32 (torch.set_float32_matmul_precision('high')), bf16 or fp16.",
        saving_ns=max(g.time_ns - least, 0.0),
    )


def _occupancy(g: Group, c: Counters) -> Reason | None:
    """Too few warps to hide latency, because one resource admits few blocks."""
    if not c.limits or c.theoretical is None or c.theoretical > LOW_OCCUPANCY or not _waiting(g, c):
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
    return Reason(
        name="occupancy",
        label=f"occupancy {percent(c.theoretical)} ({resource})",
        text=f"{resource}{used} allows {blocks} a multiprocessor where {min(others):.0f} would fit: occupancy is "
        f"{percent(c.theoretical)} at most{achieved}, too little to hide latency",
        remedy=_LOOSEN.get(names[0], ""),
        saving_ns=_left(g, c),
    )


def _tail(g: Group, c: Counters) -> Reason | None:
    """The last wave runs partly empty: were blocks of equal length, that share of the time is lost."""
    if not c.waves or c.waves < 1 or _near(g):
        return None
    whole = math.ceil(c.waves - 1e-9)
    lost = 1 - c.waves / whole
    if lost < IDLE_TAIL:
        return None
    return Reason(
        name="tail",
        label=f"{c.waves:.2f} waves, {percent(lost)} of room idle",
        text=f"its blocks make {c.waves:.2f} waves: in the last of {whole} the GPU is {percent(c.waves + 1 - whole)} "
        f"full, and {percent(lost)} of all room stays empty",
        remedy="Choose a grid that fills whole waves (or a persistent one), or smaller blocks.",
        saving_ns=min(g.time_ns * lost, g.headroom_ns if g.headroom_ns is not None else math.inf),
    )


def _imbalance(g: Group, c: Counters) -> Reason | None:
    """Warps leave early: blocks or warps of uneven length."""
    if c.occupancy is None or not c.theoretical or c.occupancy > 0.6 * c.theoretical or not _waiting(g, c):
        return None
    return Reason(
        name="imbalance",
        label=f"occupancy {percent(c.occupancy)} of {percent(c.theoretical)}",
        text=f"achieved occupancy is {percent(c.occupancy)} where the launch allows {percent(c.theoretical)}: blocks "
        "or warps are of uneven length, or end too soon",
        remedy="Share the work out evenly, or let a block do more of it.",
        saving_ns=_left(g, c),
    )


def _stall(g: Group, c: Counters) -> Reason | None:
    """What warps wait for most, where nothing is busy."""
    reason, share = next(iter(c.stalls.items()), ("", 0.0))
    if share < MAIN_STALL or not (_waiting(g, c) or _below_its_memory(g, c)):
        return None
    waited, remedy = STALLS.get(reason, (reason.replace("_", " "), ""))
    occupancy = f" at {percent(c.occupancy)} occupancy" if c.occupancy is not None else ""
    return Reason(
        name="stall",
        label=f"waits for {_SHORT.get(reason, waited)}, {percent(share)}",
        text=f"{percent(share)} of its stalled cycles wait for {waited} ({reason.replace('_', ' ')}){occupancy}",
        remedy=remedy,
        saving_ns=_left(g, c),
    )


def _busiest(g: Group, c: Counters) -> Reason | None:
    """What a kernel that is far from its roof uses most: no trouble in itself, and what to spare."""
    if c.busiest is None or _near(g) or g.efficiency is None or c.busiest[1] < BUSY:
        return None
    level, share = c.busiest
    if level == "DRAM":
        return None  # that is its roof, and said already
    return Reason(
        name="busy",
        label=f"{level} {percent(share)} busy",
        text=f"it keeps {'the ' if level == 'multiprocessors' else ''}{level} busier than anything else, at "
        f"{percent(share)} of the peak",
        remedy=_SPARE.get(level, ""),
        saving_ns=g.headroom_ns,
    )


_SPARE = {
    "multiprocessors": "Spare instructions: fewer index computations and conversions, wider loads, cheaper functions.",
    "L1": "Spare L1: wider and coalesced accesses, no bank conflicts, values kept in registers.",
    "L2": "Spare L2: more reuse in registers and shared memory, wider accesses, no partial sectors.",
}
RULES: tuple[Callable[[Group, Counters], Reason | None], ...] = (
    _too_few_blocks, _uncoalesced, _tensor_idle, _occupancy, _tail, _imbalance, _stall, _busiest,
)  # fmt: skip


def _near(g: Group) -> bool:
    return g.efficiency is not None and g.efficiency >= NEAR


def _by_memory(g: Group) -> bool:
    return g.bound in ("memory", "l2")


def _below_its_memory(g: Group, c: Counters) -> bool:
    """Whether device memory is what it uses most, and it does not come near to what that can do."""
    return g.bound == "memory" and not _near(g) and c.busiest is not None and c.busiest[0] == "DRAM"


def _waiting(g: Group, c: Counters) -> bool:
    """Whether it is far from its roof, as far as that is known, and no level is busy, as far as the report tells."""
    if g.withheld or (g.efficiency is None and c.busiest is None):
        return False
    far = g.efficiency is None or g.efficiency < BUSY
    return far and (c.busiest is None or c.busiest[1] < BUSY)


def _left(g: Group, c: Counters) -> float | None:
    """What reaching the roof would save; without one, what the busiest level leaves to its peak."""
    if g.headroom_ns is not None:
        return g.headroom_ns
    return g.time_ns * (1 - c.busiest[1]) if c.busiest else None
