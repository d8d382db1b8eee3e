"""Remedies for a kind of kernel below its roof: by family, bound and device, and never one already taken."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from perfkit.analysis import tensors
from perfkit.analysis.results import Group
from perfkit.analysis.rules.base import Case
from perfkit.analysis.rules.chains import GENERATED
from perfkit.analysis.words import bound, listed

_FUSE = "Fuse them with their neighbours (torch.compile), so that their tensors pass memory once less"
_POINTWISE = ("elementwise", "normalization", "softmax", "reduction", "loss", "dropout", "activation")
_BY_FAMILY = {
    "fft": "Take lengths that are products of small primes, many signals in one call, and rfft where the input is real",
    "copy": "Avoid the copies: keep one memory layout and dtype, or let a fusing compiler join them with their users",
    "fill": "Avoid the passes: torch.empty for what is written as a whole afterwards",
    "optimizer": "Use a fused optimizer (fused=True), and low-precision state where training allows",
    "embedding": "Gather fewer or narrower rows, and sort or deduplicate the indices",
    "index": "Sort the indices, so that neighbours meet in the cache; rows that are gathered and added up are the "
    "product with a sparse matrix; a range of rows is a slice",
    "random": "A generator makes one number after another, whatever memory allows: draw fewer numbers, draw them once "
    "for several uses, and leave out dropout of probability 0",
    "sort": "Sort less: torch.topk where only the first are needed, and once for what does not change",
    "linalg": "Solve many systems in one call (torch.linalg takes batches)",
}
_PAIRS = (
    "Keep real and imaginary parts in real tensors: torch.compile generates no code for complex ones, and fuses those"
)
_MASKS = "Masks belong inside a fused attention (scaled_dot_product_attention), or in a fused kernel"
_ZEROING = "Gradients need no zeroing: optimizer.zero_grad(set_to_none=True)"
_OUTSIDE = (
    "The compiler did not generate these: take them into its graphs (TORCH_LOGS=graph_breaks names what keeps "
    "operators out), where they fuse with their neighbours"
)
_GENERATED = "They are the compiler's own and fused already: what is left is fewer bytes, by a lower precision"
_TILINGS = (
    "They are the compiler's own: torch.compile(mode='max-autotune') tries more tilings of them; a hand-written kernel "
    "can take the place of the largest"
)
_BY_XLA = "They are XLA's own fusions: what is left is fewer bytes, by a lower precision or a kernel by hand (Pallas)"
_SDPA = "Use a fused attention (scaled_dot_product_attention), which keeps the scores out of memory"
_OTHER_SDPA = (
    "Try the other implementations of attention (torch.nn.attention.sdpa_kernel: cuDNN, flash, memory-efficient): "
    "which one is fastest depends on lengths and heads"
)
_CPU_SDPA = "It is fused already: leave out a mask that masks nothing, and take several sequences in one call"
_IS_FUSED = re.compile("flash|fmha|sdpa|cudnn|efficient|scaled_dot_product|mem_eff|attn_[fb]wd|flex", re.IGNORECASE)
_WELL_SIZED = (
    "Their sizes suit the matrix units. Try other kernels (torch.compile(mode='max-autotune'), "
    "torch.backends.cuda.preferred_blas_library). Ceilings are of short runs or of a datasheet: a GPU at its power "
    "limit (`nvidia-smi -q -d PERFORMANCE`) stays below them"
)
_WELL_SIZED_XLA = (
    "Their sizes suit the matrix units, and XLA has chosen their kernels by timing them (--xla_gpu_autotune_level): "
    "what is left is a lower precision"
)
_WELL_SIZED_CPU = (
    "Their sizes suit the units. The ceiling is the fastest library's on an idle machine: look for another program on "
    "these cores, and at the rates of the other libraries (`perfkit ceilings`)"
)
_FUSED_OPTIMIZER = re.compile("fused_?(adam|sgd|adagrad)", re.IGNORECASE)
_ONE_PASS = (
    "They are one pass already: keep state in low precision where training allows. Many small tensors fill a device "
    "badly"
)
_LARGER = "Give the matrix units larger products: more rows in a batch, sizes that are multiples of 64"
_GRAIN, _LARGE = 64, 512  # sizes are multiples of the one, and at least the other, where products suit matrix units
_BY_BOUND = {
    "vector": "Look for what keeps the arithmetic units waiting: `ncu --set full` shows it",
    "l2": "Reuse more in registers and shared memory",
}


def remedy(case: Case, groups: Sequence[Group], family: str, limit: str) -> str:
    """Return the remedy for `groups` of one family whose roof the resource `limit` sets, a sentence without its end."""
    kind, on_gpu = limit.partition("_")[0], not case.on_cpu
    if case.by_xla and family in _POINTWISE:
        return _BY_XLA
    if family == "fused" or _most(groups, lambda g: bool(GENERATED.search(g.example) or GENERATED.search(g.key))):
        return _TILINGS if on_gpu and kind == "memory" else _GENERATED
    if family == "attention":
        fused = _most(groups, lambda g: _is_fused(case, g))
        return (_OTHER_SDPA if on_gpu else _CPU_SDPA) if fused else _SDPA
    if family == "optimizer":
        fused = _most(groups, lambda g: bool(_FUSED_OPTIMIZER.search(f"{g.key} {g.example}")))
        return _ONE_PASS if fused else _BY_FAMILY[family]
    if family == "fill":
        return _of_fills(case, groups)
    if family in _POINTWISE:
        complex_ = _most(groups, lambda g: "complex" in g.shapes)
        return _PAIRS if complex_ else _OUTSIDE if case.compiled else _FUSE
    if family in _BY_FAMILY:
        return _BY_FAMILY[family]
    if family in ("matmul", "convolution"):
        return _of_products(groups, kind, _of_well_sized(case))
    return (_BY_BOUND.get(kind) if on_gpu else None) or f"Look for what keeps {listed([bound(limit)])} waiting"


def _most(groups: Sequence[Group], holds: Callable[[Group], bool]) -> bool:
    """Return whether it holds of groups that take most of the time."""
    return 2 * sum(g.time_ns for g in groups if holds(g)) > sum(g.time_ns for g in groups)


def _is_fused(case: Case, group: Group) -> bool:
    """Return whether a group's kernels are an attention that keeps its scores on the chip, by all its names."""
    return bool(_IS_FUSED.search(f"{group.example} {_operators(case, group)}"))


def _of_fills(case: Case, groups: Sequence[Group]) -> str:
    masks = _most(groups, lambda g: "mask" in _operators(case, g))
    zeroing = _most(groups, lambda g: g.passes == ("optimizer",) and "zero" in _operators(case, g))
    return _MASKS if masks else _ZEROING if zeroing else _BY_FAMILY["fill"]


def _operators(case: Case, group: Group) -> str:
    """The operators that a group's kernels are of, in one text."""
    rows, names = case.named_short(group.key), case.operators()
    return " ".join({names[i] for i in rows.nonzero()[0].tolist()} | {group.key})


def _of_products(groups: Sequence[Group], kind: str, well_sized: str) -> str:
    if kind == "memory":
        return "Batch them, so that more work is done on each byte"
    if kind == "matrix" and _most(groups, _well_sized):
        return well_sized
    return _LARGER if kind == "matrix" else _BY_BOUND.get(kind, _LARGER)


def _of_well_sized(case: Case) -> str:
    return _WELL_SIZED_XLA if case.by_xla else _WELL_SIZED_CPU if case.on_cpu else _WELL_SIZED


def _well_sized(group: Group) -> bool:
    """Return whether all matrices that it works on are large, and of sizes that suit the matrix units."""
    sizes = [size for _, shape in tensors.shapes(group.shapes) if len(shape) > 1 for size in shape[-2:]]
    return bool(sizes) and all(size >= _LARGE and size % _GRAIN == 0 for size in sizes)
