"""Plain operations, as in a lecture on kernels: matrix product, GELU and softmax five ways, pairwise distances.

GELU and softmax take their C, CUDA and Triton ways from the catalog.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from perfkit.bench.benchmark import Benchmark
from perfkit.bench.catalog import benchmark as catalog_subject
from perfkit.bench.torch_ways import named, torch_way
from perfkit.cost.model import ITEM_BYTES, Cost
from perfkit.kernels.checking import Inputs
from perfkit.kernels.dtypes import name_of
from perfkit.kernels.families import catalog

NAMES = ("matmul", "gelu", "softmax", "cdist")
_OF_CATALOG = {"gelu": "gelu_forward", "softmax": "softmax_forward"}
TOLERANCE = {"fp32": 1e-5, "tf32": 5e-3, "bf16": 2e-2}


def plain(name: str, device: str, blocks: bool, extra_dirs: Sequence[str] = ()) -> Benchmark:
    """The plain operation called `name`, one of `NAMES`."""
    if name in _OF_CATALOG:
        return _five_ways(name, device, blocks, extra_dirs)
    return {"matmul": _matmul, "cdist": _cdist}[name]()


def naive_gelu(x: Tensor) -> Tensor:
    """The formula, an operator at a time."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


def naive_softmax(x: Tensor) -> Tensor:
    """The formula, an operator at a time: largest, difference, exponential, sum, quotient."""
    powers = torch.exp(x - x.amax(dim=-1, keepdim=True))
    return powers / powers.sum(dim=-1, keepdim=True)


def naive_cdist(a: Tensor, b: Tensor) -> Tensor:
    """Differences of all pairs (N, M, D), squared, summed, and the root."""
    return (a.unsqueeze(1) - b.unsqueeze(0)).square().sum(dim=-1).sqrt()


def _five_ways(name: str, device: str, blocks: bool, extra_dirs: Sequence[str]) -> Benchmark:
    family, operation = next((f, o) for f in catalog(extra_dirs) for o in f.operations if o.name == _OF_CATALOG[name])
    base = catalog_subject(family, operation, device, blocks)
    naive = {"gelu": naive_gelu, "softmax": naive_softmax}[name]
    own = {w.name: w for w in base.ways}
    written = [w for w in base.ways if w.name not in ("pytorch", "compile")]
    ways = (
        torch_way("naive", naive, ("y",), "PyTorch, the formula an operator at a time"),
        replace(own["pytorch"], text="PyTorch's own operator"),
        torch_way("compile", naive, ("y",), "torch.compile of the naive way"),
        *written,
    )
    return replace(base, name=name, ways=ways)


def _matmul() -> Benchmark:
    def inputs(make: Inputs, M: int, N: int, K: int) -> tuple[Tensor, Tensor]:
        return make.normal(M, K), make.normal(K, N)

    def cost(arguments: Sequence[Any]) -> Cost:
        """2·M·N·K FLOP; each matrix read or written once."""
        a, b = arguments
        precision = "tf32" if _tf32(a) else name_of(a.dtype)
        flop = {f"matrix_{precision}": 2.0 * a.shape[0] * a.shape[1] * b.shape[1]}
        item = ITEM_BYTES[name_of(a.dtype)]
        return Cost(flop, a.nbytes + b.nbytes, a.shape[0] * b.shape[1] * item)

    return Benchmark(
        name="matmul",
        formula="C[m,n] = Σ over k of A[m,k]·B[k,n]",
        sizes=("M", "N", "K"),
        inputs=inputs,
        reference=lambda a, b: {"c": a @ b},
        cost=cost,
        tolerance=TOLERANCE,
        defaults=_sizes_of(cpu={"M": 1024, "N": 1024, "K": 1024}, cuda={"M": 4096, "N": 4096, "K": 4096}),
        ways=(
            torch_way("pytorch", torch.matmul, ("c",), "PyTorch's own operator"),
            torch_way("compile", torch.matmul, ("c",), "torch.compile of it"),
        ),
    )


def _tf32(a: Tensor) -> bool:
    return a.is_cuda and a.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"


def _cdist() -> Benchmark:
    def inputs(make: Inputs, N: int, M: int, D: int) -> tuple[Tensor, Tensor]:
        return make.normal(N, D), make.normal(M, D)

    def cost(arguments: Sequence[Any]) -> Cost:
        """By |a|² + |b|² − 2·a·b: a matrix product of 2·N·M·D FLOP, and 4 a pair: two sums, largest with 0, root."""
        a, b = arguments
        pairs, precision = a.shape[0] * b.shape[0], name_of(a.dtype)
        flop = {f"matrix_{precision}": 2.0 * pairs * a.shape[1], f"vector_{precision}": 4.0 * pairs}
        return Cost(flop, a.nbytes + b.nbytes, pairs * ITEM_BYTES[precision])

    return Benchmark(
        name="cdist",
        formula="d[n,m] = √ Σ over i of (a[n,i] − b[m,i])²",
        sizes=("N", "M", "D"),
        inputs=inputs,
        reference=lambda a, b: named(("d",), naive_cdist(a, b)),
        cost=cost,
        tolerance={"fp32": 1e-4, "bf16": 2e-2},
        defaults=_sizes_of(cpu={"N": 512, "M": 512, "D": 64}, cuda={"N": 2048, "M": 2048, "D": 64}),
        ways=(
            torch_way("naive", naive_cdist, ("d",), "PyTorch, the formula an operator at a time"),
            torch_way("pytorch", torch.cdist, ("d",), "PyTorch's own operator"),
            torch_way("compile", naive_cdist, ("d",), "torch.compile of the naive way"),
        ),
    )


def _sizes_of(cpu: Mapping[str, int], cuda: Mapping[str, int]) -> Callable[[str], Mapping[str, int]]:
    return lambda device: cuda if device.startswith("cuda") else cpu
