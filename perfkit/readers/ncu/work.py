"""FLOP of a kernel by arithmetic unit and precision, and what the units could do, from NVIDIA's counters.

    vector:  (add + mul + 2·fma).sum.per_cycle_elapsed · smsp__cycles_elapsed.avg, exact to the integer
             half precision is packed, two lanes an instruction: 2·add + 2·mul + 4·fma
    tensor:  sm__ops_path_tensor_*.sum, which already counts 2·M·N·K
    roofs:   2·fma.sum.peak_sustained · SM clock (half 4·fma); sm__ops_path_tensor_*.sum.peak_sustained · SM clock

A sum of which a part is unknown is unknown: compilers use packed half multiply-adds to move constants, so that fma
alone is not the half-precision work; and what the vector units did is not the work of a kernel whose tensor units
worked as well.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable

from perfkit.cost.names import family_of_kernel_name
from perfkit.readers.ncu import metrics
from perfkit.readers.ncu.results import NcuResult

TENSOR_NOISE = (
    0.05  # the pipe's activity that packed half precision instructions alone cause (constants are moved by them)
)
_HALF = re.compile(r"\b(?:__half2?|half_t|Half|BFloat16|__nv_bfloat16|bfloat16_t|bf16|fp16|f16)\b")
_PRODUCTS = ("matmul", "attention", "convolution")  # families whose work tensor units do
_EPILOGUE = 0.02  # of the vector units' roof: what a product does besides multiplying
VECTOR = {"vector_fp64": ("d", 1), "vector_fp32": ("f", 1), "vector_fp16": ("h", 2)}  # letter, lanes an instruction
_MATRIX = {
    "fp64": "matrix_fp64",
    "tf32": "matrix_tf32",
    "fp16": "matrix_fp16",
    "bf16": "matrix_bf16",
    "fp8": "matrix_fp8",
    "int8": "matrix_int8",
}
_TENSOR = re.compile(
    r"sm__ops_path_tensor(?:_op_(?P<op>[a-z0-9]+))?_src_(?P<src>[a-z0-9]+)(?:_dst_(?P<dst>[a-z0-9]+))?"
    r"(?:_sparsity_(?P<sparsity>on|off))?\.sum(?P<peak>\.peak_sustained)?"
)


def flop(result: NcuResult) -> dict[str, float]:
    """FLOP by resource (`perfkit.table.RESOURCES`), units that the report does not count left out; nothing where
    tensor units worked and it does not say how much."""
    return {} if tensor_unknown(result) else counted(result)


def counted(result: NcuResult) -> dict[str, float]:
    """FLOP of those units that the report counts, by resource."""
    found = {resource: _vector(result, *VECTOR[resource]) for resource in VECTOR}
    found.update(_tensor(result))
    return {resource: value for resource, value in found.items() if math.isfinite(value)}


def tensor_unknown(result: NcuResult) -> bool:
    """Return whether tensor units worked and the report does not say how much.

    Where it does not say either whether they worked, the name of the kernel and idle vector units do.
    """
    if any(value > 0 for value in _tensor(result).values()):
        return False
    active = metrics.tensor_active(result)
    if math.isfinite(active):
        return active > TENSOR_NOISE
    return not _tensor(result) and _looks_like_product(result)


def half_unknown(result: NcuResult) -> bool:
    """Return whether vector units worked in half precision and the report does not say how much.

    Its multiply-adds decide, which also move constants, so that few next to the other work mean nothing; else the types
    in the name do.
    """
    known = counted(result)
    if "vector_fp16" in known:
        return False
    fused = _executed(result, "hfma")
    if math.isfinite(fused):
        return 2 * 2 * fused > _EPILOGUE * sum(known.values()) and fused > 0
    return bool(_HALF.search(f"{result.name[:2000]} {result.function[:2000]}"))


def _looks_like_product(result: NcuResult) -> bool:
    """Return whether a kernel with a product's name did hardly any arithmetic that the report counts."""
    if family_of_kernel_name(f"{result.name[:2000]} {result.function[:2000]}") not in _PRODUCTS:
        return False
    limits, seconds = roofs(result), result.number(metrics.DURATION) / 1e9
    done = {resource: value for resource, value in counted(result).items() if value > 0}
    return all(value < _EPILOGUE * limits.get(resource, math.inf) * seconds for resource, value in done.items())


def sm_clock(result: NcuResult) -> float:
    """Clock of the multiprocessors during the capture, Hz."""
    return result.number(*metrics.SM_CLOCKS, metrics.GPC_CLOCK)


def roofs(result: NcuResult) -> dict[str, float]:
    """FLOP/s by resource at the clock of the capture, from the peaks that are stored in the report."""
    clock = sm_clock(result)
    found = {}
    for resource, (letter, lanes) in VECTOR.items():
        peak = result.number(
            *(f"{unit}__sass_thread_inst_executed_op_{letter}fma_pred_on.sum.peak_sustained" for unit in ("sm", "smsp"))
        )
        found[resource] = 2 * lanes * peak * clock
    found.update({resource: peak * clock for resource, peak in _dense_peaks(result).items()})
    return {resource: value for resource, value in found.items() if math.isfinite(value) and value > 0}


def _vector(result: NcuResult, letter: str, lanes: int) -> float:
    """FLOP of one precision; NaN unless additions, products and multiply-adds are all known."""
    total = 0.0
    for operation, work in (("add", 1), ("mul", 1), ("fma", 2)):
        total += lanes * work * _executed(result, f"{letter}{operation}")
    return float(round(total)) if math.isfinite(total) else total


def _executed(result: NcuResult, operation: str) -> float:
    """Return how many instructions of one kind threads executed."""
    names = [f"{unit}__sass_thread_inst_executed_op_{operation}_pred_on.sum" for unit in ("smsp", "sm")]
    count = result.number(*names)
    if math.isfinite(count):
        return count
    return result.number(*(f"{name}.per_cycle_elapsed" for name in names)) * _cycles(result)


def _cycles(result: NcuResult) -> float:
    cycles = result.number(*metrics.SMSP_CYCLES)
    if math.isfinite(cycles):
        return cycles
    return result.number(*metrics.SM_CLOCKS) * result.number(metrics.DURATION) / 1e9


def _tensor(result: NcuResult) -> dict[str, float]:
    """Operations by source type, from one family of counters.

    A type's totals (`src_*`) and their parts by instruction (`op_*_src_*`) must not be added up, nor a total over
    result types or sparsity and its parts.
    """
    families: dict[bool, dict[str, dict[str, dict[str, float]]]] = {True: {}, False: {}}
    for match, value in _found(result, peak=False):
        parts = families[match["op"] is None].setdefault(match["src"], {})
        kind = f"{match['op'] or ''} {match['dst'] or ''}".strip()
        parts.setdefault(kind, {})[match["sparsity"] or ""] = value
    counted = {**families[False], **families[True]}
    return {
        _MATRIX[src]: _total({k: _total(v) for k, v in parts.items()})
        for src, parts in counted.items()
        if src in _MATRIX
    }


def _total(parts: dict[str, float]) -> float:
    """The total where it is stored (under ""), else the sum of the parts."""
    return parts[""] if "" in parts else sum(parts.values())


def _dense_peaks(result: NcuResult) -> dict[str, float]:
    """Operations a cycle by resource for dense matrices, the fastest instruction.

    Where a type's rate is stored only in total, that is the dense one, save from 9.0 on, where it is the sparse rate
    (twice the dense) and the parts by instruction must decide.
    """
    best: dict[str, float] = {}
    totals: dict[str, float] = {}
    for match, value in _found(result, peak=True):
        resource = _MATRIX.get(match["src"])
        if resource is None or match["sparsity"] == "on":
            continue
        if match["sparsity"] == "off" or match["src"] == "fp64":
            best[resource] = max(best.get(resource, 0.0), value)
        else:
            totals[resource] = max(totals.get(resource, 0.0), value)
    halve = result.number("device__attribute_compute_capability_major") >= 9
    return {**{resource: value / 2 if halve else value for resource, value in totals.items()}, **best}


@functools.lru_cache(maxsize=50_000)
def _tensor_name(name: str) -> re.Match[str] | None:
    """The parts of a tensor counter's name; every kernel of a report has the same thousand names."""
    return _TENSOR.fullmatch(name)


def _found(result: NcuResult, peak: bool) -> Iterable[tuple[re.Match[str], float]]:
    for name in result.values:
        match = _tensor_name(name)
        if match and bool(match["peak"]) == peak and math.isfinite(value := result.number(name)):
            yield match, value
