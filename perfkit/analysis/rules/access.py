"""Rules over counters about how a kernel is laid out and reads: its blocks, its accesses, the units that it uses."""

from __future__ import annotations

from perfkit import units
from perfkit.analysis.results import Group, Reason
from perfkit.analysis.roofline.counters import Counters
from perfkit.analysis.roofline.withheld import FULL, TOO_SHORT_NS
from perfkit.analysis.rules.base import WITH_COUNTERS, Rule
from perfkit.analysis.rules.standing import by_memory, explained, left, part_of_a_wave, waiting
from perfkit.analysis.words import percent

_WASTED = 0.25  # of the sectors: fewer excessive ones are what the edges of tensors cost
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
    if not c.blocks or not c.waves or not part_of_a_wave(c) or not waiting(g, c):
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
    if not c.sectors or c.excessive is None or c.excessive < _WASTED * c.sectors or not by_memory(g):
        return None
    wasted = c.excessive / c.sectors
    asked = (c.sectors - c.excessive) * _SECTOR_BYTES
    kept = min(1.0, asked / g.bytes) if g.bound == "memory" and g.bytes else 1 - wasted
    saving = g.judged_ns - g.roof_ns * kept if g.roof_ns else None
    scale = units.scale_for([c.sectors], "")
    return rule.reason(
        label=f"uncoalesced, {percent(wasted)} wasted",
        text=f"its accesses are uncoalesced: {scale.text(c.excessive)} of {scale.text(c.sectors)} sectors of 32 bytes "
        f"({percent(wasted)}) carry nothing that a thread asked for",
        saving_ns=saving,
    )


def _tensor_idle(rule: Rule, g: Group, c: Counters) -> Reason | None:
    """A matrix product on the vector units of a GPU with matrix units: at most, what those and memory would take."""
    if g.family != "matmul" or c.tensor_active is None or c.tensor_active >= _TENSOR_NOISE:
        return None
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
        explained, _too_few_blocks,
    ),
    Rule(
        "uncoalesced", "memory accesses carry bytes that no thread asked for", WITH_COUNTERS,
        "Neighbouring threads touch addresses far apart: of each sector of 32 bytes only a part is used.",
        "Excessive sectors against all sectors, at least a quarter; kernels bound by memory.",
        "Their time less what the sectors that were asked for take at the same ceiling.",
        ("Let neighbouring threads touch neighbouring addresses: swap the loops, transpose in shared memory, or change "
         "the layout (structure of arrays).",),
        "A transpose that writes columns.",
        explained, _uncoalesced,
    ),
    Rule(
        "tensor-idle", "a matrix product does not use the matrix units", WITH_COUNTERS,
        "A product in fp32 runs on the vector units, and the tensor pipe idles.",
        "A matrix product whose tensor pipe was active in under 5 % of the cycles.",
        "Its time less that of its FLOP at the matrix units' ceiling, or of its bytes, whichever is longer.",
        ("Where the precision allows, use TF32 (torch.set_float32_matmul_precision('high')), bf16 or fp16.",),
        "`torch.backends.cuda.matmul.allow_tf32` is off by default.",
        explained, _tensor_idle,
    ),
)  # fmt: skip
