"""Rules over counters about how a kernel is laid out and reads: its blocks, its accesses, the units that it uses."""

from __future__ import annotations

from perfkit import units
from perfkit.analysis.results import Group, Reason
from perfkit.analysis.roofline.counters import Counters
from perfkit.analysis.roofline.excluded import FULL, TOO_SHORT_NS
from perfkit.analysis.rules.base import WITH_COUNTERS, Rule
from perfkit.analysis.rules.roof_questions import by_memory, explained, left, lines, part_of_a_wave, uneven, waiting
from perfkit.analysis.words import percent
from perfkit.instructions import faults
from perfkit.instructions.products import products
from perfkit.instructions.results import EXECUTED

_WASTED = 0.25  # of the sectors: fewer excessive ones are what the edges of tensors cost
_NEARLY_A_WAVE = 0.9  # of the room for blocks: no kernel is slow for the rest
_PRODUCTS = 1 / 3  # of the executed instructions
_TENSOR_NOISE = 0.05  # what packed half-precision moves alone make of the tensor pipe's activity
_SECTOR_BYTES = 32
# The matrix unit that takes over the products of a vector unit.
_MATRIX = {"vector_fp32": "matrix_tf32", "vector_fp64": "matrix_fp64", "vector_fp16": "matrix_fp16"}


def _too_few_blocks(rule: Rule, g: Group, c: Counters) -> Reason | None:
    """Multiprocessors without a block idle throughout. At most the room that its blocks leave free is won."""
    if not c.blocks or not c.multiprocessors or g.time_ns < TOO_SHORT_NS * g.count:
        return None
    blocks = "1 block" if c.blocks == 1 else f"{c.blocks:,.0f} blocks"
    if c.blocks >= FULL * c.multiprocessors:
        return _under_one_wave(rule, g, c, blocks)
    idle = 1 - c.blocks / c.multiprocessors
    return rule.reason(
        label=f"{blocks} on {c.multiprocessors} SMs",
        text=f"it launches {blocks} on {c.multiprocessors} multiprocessors: {percent(idle)} of them have nothing to do",
        saving_ns=g.time_ns * (1 - c.waves if c.waves is not None and c.waves < 1 else idle),
    )


def _under_one_wave(rule: Rule, g: Group, c: Counters, blocks: str) -> Reason | None:
    """Blocks for the multiprocessors, and less than what these hold at once, in a kernel that waits."""
    if not c.blocks or not c.waves or not part_of_a_wave(c) or c.waves > _NEARLY_A_WAVE:
        return None
    if not waiting(g, c) or uneven(c):
        return None
    most = left(g, c)
    room = g.time_ns * (1 - c.waves)
    return rule.reason(
        label=f"{blocks} on {c.multiprocessors} SMs, {c.waves:.2f} waves",
        text=f"it launches {blocks} on {c.multiprocessors} multiprocessors, which hold {c.blocks / c.waves:,.0f} at "
        f"once ({c.waves:.2f} waves): too few warps to hide latency, and room for more",
        remedy="Launch more blocks: smaller tiles, the work split along another dimension, or a larger batch. Fewer "
        "registers or less shared memory would change nothing.",
        saving_ns=room if most is None else min(room, most),
    )


def _uncoalesced(rule: Rule, g: Group, c: Counters) -> Reason | None:
    """Only the sectors that were asked for move, at the same ceiling: less time than that no access pattern takes."""
    sectors = (c.sectors or 0.0) + (c.local or 0.0)  # what local memory moves, no access pattern spares
    if not sectors or c.excessive is None or c.excessive < _WASTED * sectors or not by_memory(g):
        return None
    wasted = c.excessive / sectors
    asked = (sectors - c.excessive) * _SECTOR_BYTES
    kept = min(1.0, asked / g.bytes) if g.bound == "memory" and g.bytes else 1 - wasted
    saving = g.judged_ns - g.roof_ns * kept if g.roof_ns else None
    scale = units.scale_for([sectors], "")
    return rule.reason(
        label=f"uncoalesced, {percent(wasted)} wasted",
        text=f"its accesses are uncoalesced: {scale.text(c.excessive)} of {scale.text(sectors)} sectors of 32 bytes "
        f"({percent(wasted)}) carry nothing that a thread asked for",
        saving_ns=saving,
        lines=lines(c, faults.needless_sectors),
    )


def _local_memory(rule: Rule, g: Group, c: Counters) -> Reason | None:
    """Local memory passes L1, L2 and DRAM as all memory does: at most its share of the sectors is spared."""
    if not c.local or c.sectors is None or (share := c.local / (c.local + c.sectors)) < _WASTED:
        return None
    spilled = bool(c.spills)
    what = "spills registers" if spilled else "keeps values in local memory"
    scale = units.scale_for([c.local + c.sectors], "")
    why = "" if spilled else ": spilled registers, or arrays that are indexed at run time"
    return rule.reason(
        label=f"{'spills' if spilled else 'local memory'}, {percent(share)} of sectors",
        text=f"it {what}: {scale.text(c.local)} of {scale.text(c.local + c.sectors)} sectors of 32 bytes "
        f"({percent(share)}, {units.text(c.local * _SECTOR_BYTES, 'B')}) between L1 and L2 are of local memory{why}",
        saving_ns=g.time_ns * share if by_memory(g) or (c.busiest is not None and c.busiest[0] != "multiprocessors")
        else left(g, c),
        lines=lines(c, faults.local_sectors),
    )  # fmt: skip


def _tensor_idle(rule: Rule, g: Group, c: Counters) -> Reason | None:
    """A matrix product on the vector units of a GPU with matrix units: at most, what those and memory would take."""
    if c.tensor_active is None or c.tensor_active >= _TENSOR_NOISE:
        return None
    if g.family != "matmul":
        return _product_inside(rule, g, c)
    rate = c.ceilings.get(_MATRIX.get(g.bound, ""))
    if not rate or g.flop is None:
        return None
    memory = c.ceilings.get("memory")
    least = max(g.flop / rate, (g.bytes or 0.0) / memory if memory else 0.0) * 1e9
    return rule.reason(
        label=f"tensor pipe idle ({percent(c.tensor_active)})",
        text=f"it is a matrix product, and the tensor pipe was active in {percent(c.tensor_active)} of the cycles: the "
        f"vector units do the work ({g.ceiling})",
        saving_ns=max(g.time_ns - least, 0.0),
    )


def _product_inside(rule: Rule, g: Group, c: Counters) -> Reason | None:
    """A product that no name says. Device memory stays as busy; matrix units also read the caches less."""
    busy = c.busy.get("DRAM")
    if c.code is None or busy is None or g.time_ns < TOO_SHORT_NS * g.count:
        return None
    share = sum(products(c.code)) / (
        sum(instruction.counts.get(EXECUTED, 0.0) for instruction in c.code.instructions) or 1.0
    )
    if share < _PRODUCTS:
        return None
    return rule.reason(
        label=f"tensor pipe idle ({percent(c.tensor_active or 0.0)})",
        text=f"{percent(share)} of its instructions add products of values that it loads and reuses, on the vector "
        f"units; the tensor pipe was active in {percent(c.tensor_active or 0.0)} of the cycles",
        saving_ns=g.time_ns * max(0.0, 1 - busy),
        lines=lines(c, products),
    )


RULES = (
    Rule(
        "few-blocks", "a kernel launches fewer blocks than the GPU holds at once", WITH_COUNTERS,
        "Multiprocessors without a block have nothing to do throughout the kernel; those with fewer than they hold "
        "have few warps to hide latency with.",
        "The grid against the number of multiprocessors; or less than one wave of blocks, in a kernel that waits. "
        "Kernels longer than 5 µs.",
        "The share of the GPU's room for blocks that stays empty.",
        ("Split the work over more blocks: a first pass that leaves a partial result a block, then one that joins "
         "them; or a library's reduction, such as CUB's.",),
        "A reduction in a single block.",
        explained, _too_few_blocks, rank=70,
    ),
    Rule(
        "uncoalesced", "memory accesses carry bytes that no thread asked for", WITH_COUNTERS,
        "Neighbouring threads touch addresses far apart: of each sector of 32 bytes only a part is used.",
        "Excessive sectors against all sectors, at least a quarter; kernels bound by memory.",
        "Their time less what the sectors that were asked for take at the same ceiling.",
        ("Let neighbouring threads touch neighbouring addresses: swap the loops, transpose in shared memory, or change "
         "the layout (structure of arrays).",),
        "A transpose that writes columns.",
        explained, _uncoalesced, rank=70,
    ),
    Rule(
        "spills", "a kernel keeps values in local memory, which is memory", WITH_COUNTERS,
        "What does not fit the registers of a thread, and arrays that are indexed at run time, are in local memory: "
        "each access passes L1 and L2, and may reach DRAM.",
        "Sectors of local memory against all sectors between L1 and L2, at least a quarter. Where the file counts "
        "spilled registers, the finding says so.",
        "That share of its time; of a kernel that memory does not bound, at most what separates it from its roof.",
        ("Keep fewer values alive a thread: smaller tiles, less unrolling, fewer threads a block "
         "(__launch_bounds__), so that each may have more registers. Index arrays by constants, in loops that unroll, "
         "or hold them in shared memory. A limit of registers would spill more.",),
        "`float row[64]` indexed by a loop that does not unroll: 6.2 GB of local memory for 0.16 of global.",
        explained, _local_memory, rank=70,
    ),
    Rule(
        "tensor-idle", "a matrix product does not use the matrix units", WITH_COUNTERS,
        "A product in fp32 runs on the vector units, and the tensor pipe idles.",
        "A matrix product whose tensor pipe was active in under 5 % of the cycles. A kernel of one's own is one where "
        "at least a third of its instructions add products of two loaded values, and each value is used at least "
        "twice (needs SourceCounters).",
        "Its time less that of its FLOP at the matrix units' ceiling, or of its bytes, whichever is longer; of a "
        "kernel of one's own, less the share of the time in which device memory is busy.",
        ("Where the precision allows, use TF32 (torch.set_float32_matmul_precision('high')), bf16 or fp16.",),
        "`torch.backends.cuda.matmul.allow_tf32` is off by default.",
        explained, _tensor_idle, rank=70,
    ),
)  # fmt: skip
