"""The texts of the rules that look at kernel groups and copies: `findings_kernels`, `findings_step` and `reasons`."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.analysis import findings_kernels, findings_step
from perfkit.analysis.results import Finding
from perfkit.analysis.rules.base import ON_A_GPU, ON_BOTH, Case, Rule

_COUNTERS = "GPU, with counters of Nsight Compute"
_TO_ROOF = "All that separates the kernel from its roof: a bound."


def _below_roof(rule: Rule, case: Case) -> Iterator[Finding]:
    yield from findings_kernels.below_roof(case.report)


def _tiny(rule: Rule, case: Case) -> Iterator[Finding]:
    yield from findings_step.tiny_kernels(case.report)


def _collectives(rule: Rule, case: Case) -> Iterator[Finding]:
    yield from findings_step.collectives(case.report)


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
    Rule(
        "collectives", "communication between GPUs that no computation covers", ON_A_GPU,
        "While NCCL sends gradients or parameters, nothing else runs on the GPU.",
        "The time of collectives in which no other kernel runs on their device.",
        "All of that time: a collective also waits for the slowest rank, which overlap does not end.",
        ("Overlap them with computation (bucketed or asynchronous gradients, prefetching), send less (bf16, gradient "
         "accumulation), or balance the ranks.",),
        "An all-reduce of all gradients after the backward pass instead of bucket by bucket beside it.", _collectives,
    ),
    *(
        Rule(
            f"copies-{way}", f"copies {words} that no kernel covers", ON_A_GPU,
            f"Copies {words} take time in which the GPU does nothing else.",
            "The time of such copies in which no kernel runs on the device.",
            "All of that time.", (remedy,), example,
        )
        for way, words, remedy, example in (
            ("htod", "from host to GPU",
             "Copy earlier and beside the kernels: pinned memory (pin_memory=True) and non_blocking=True; keep on the "
             "GPU "
             "what every step needs.", "`batch.to('cuda')` of pageable memory at the start of a step."),
            ("dtoh", "from GPU to host",
             "Read back less, or less often; pinned memory and non_blocking=True keep the host from waiting.",
             "`predictions.cpu()` in every step."),
            ("dtod", "on the GPU", "Avoid the copy: write into place, or keep one layout.",
             "`torch.cat` of what one kernel could have written into one tensor."),
        )
    ),
    Rule(
        "few-blocks", "a kernel launches fewer blocks than there are multiprocessors", _COUNTERS,
        "Multiprocessors without a block have nothing to do throughout the kernel.",
        "The grid against the number of multiprocessors; kernels longer than 5 µs.",
        "The share of the GPU's room for blocks that stays empty.",
        ("Split the work over more blocks: a first pass that leaves a partial result a block, then one to join them.",),
        "A reduction in a single block.",
    ),
    Rule(
        "uncoalesced", "memory accesses carry bytes that no thread asked for", _COUNTERS,
        "Neighbouring threads touch addresses far apart: of each sector of 32 bytes only a part is used.",
        "Excessive sectors against all sectors, at least a quarter; kernels bound by memory.",
        "Their time less what the sectors that were asked for take at the same ceiling.",
        ("Let neighbouring threads touch neighbouring addresses: swap the loops, transpose in shared memory, or change "
         "the layout (structure of arrays).",),
        "A transpose that writes columns.",
    ),
    Rule(
        "tensor-idle", "a matrix product does not use the matrix units", _COUNTERS,
        "A product in fp32 runs on the vector units, and the tensor pipe idles.",
        "A matrix product whose tensor pipe was active in under 5 % of the cycles.",
        "Its time less that of its FLOP at the matrix units' ceiling, or of its bytes, whichever is longer.",
        ("Where the precision allows, use TF32 (torch.set_float32_matmul_precision('high')), bf16 or fp16.",),
        "`torch.backends.cuda.matmul.allow_tf32` is off by default.",
    ),
    Rule(
        "occupancy", "one resource admits too few warps to hide latency", _COUNTERS,
        "Registers, shared memory or the block size let few blocks live on a multiprocessor at once.",
        "Theoretical occupancy of at most a half, and the resource that sets it, in a kernel that waits.",
        _TO_ROOF, ("Use less of the resource that limits: smaller tiles, __launch_bounds__, other block sizes.",),
        "A kernel of 100 KiB of shared memory a block where 228 KiB are there.",
    ),
    Rule(
        "tail", "the last wave of blocks leaves the GPU half empty", _COUNTERS,
        "Blocks run in waves; when the last is small, most multiprocessors wait for it.",
        "The number of waves against the next whole number, with more than 15 % of all room idle.",
        "The idle share of the time, at most what separates the kernel from its roof.",
        ("Choose a grid that fills whole waves (or a persistent one), or smaller blocks.",), "1.1 waves of blocks.",
    ),
    Rule(
        "imbalance", "warps leave early: blocks of uneven length", _COUNTERS,
        "Achieved occupancy stays far under what the launch allows.",
        "Achieved occupancy under 60 % of the theoretical, in a kernel that waits.",
        _TO_ROOF, ("Share the work out evenly, or let a block do more of it.",), "One block a row of a sparse matrix.",
    ),
    Rule(
        "stall", "warps wait most for one thing", _COUNTERS,
        "Nothing is busy: the warps wait, for memory, a barrier, or each other.",
        "The stall reason with the largest share, at least 30 % of stalled cycles.",
        _TO_ROOF, ("It depends on the reason: more loads in flight for memory, fewer barriers, no bank conflicts.",),
        "`long scoreboard` at 70 %: each thread loads one value at a time.",
    ),
    Rule(
        "busy", "a level other than memory is what the kernel uses most", _COUNTERS,
        "L1, L2 or the multiprocessors are near their peak: no waiting, but work that may be spared.",
        "The busiest level, at 60 % of its peak or more, in a kernel far from its roof.",
        _TO_ROOF, ("Spare that level: fewer index computations, wider accesses, values kept in registers.",),
        "Integer divisions in the index of every element.",
    ),
)  # fmt: skip
