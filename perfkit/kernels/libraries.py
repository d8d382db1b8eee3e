"""Which library multiplies fp32 matrices on this CPU.

PyTorch's `mm` is MKL's, made for Intel's processors. On two cores of an AMD EPYC oneDNN takes less time for the
products of GPT-2's layers (B · T = 256, a layer's four together): on one with a bias 15 %, for the gradient of the
input 14 %, for that of the weight the same; on another 57, 57 and 44 %, a copy of the result included. On Intel's
processors MKL stays.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from perfkit.hardware.cpu import read_cpu
from perfkit.kernels import memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from torch import Tensor


PIECE = 4 << 20  # bytes of a large result that oneDNN makes at a time


def onednn_is_faster(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether oneDNN should compute products of such matrices."""
    import torch

    return dtype == torch.float32 and device.type == "cpu" and _here()


def onednn_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, out: Tensor | None = None, add: bool = False
) -> Tensor:
    """x (N, K) · Wᵀ + b, W (M, K) → (N, M), all fp32 on the CPU, any strides.

    A new tensor, or `out`, with `add` its sum with what `out` holds.

    oneDNN takes no memory to write to. A large result is made in pieces along its longer side, which the allocator
    makes of the same pages: whole, the fresh pages of a head's gradient (50257 × 768) cost more than oneDNN gains.
    A smaller one is made whole: each piece of a gradient would convert the other matrix again.
    """
    rows, columns = x.shape[0], weight.shape[0]
    size = rows * columns * x.element_size()
    if size < memory.WORTH_HUGE_PAGES:
        made = _product(x, weight, bias)
        return made if out is None else _put(out, made, add)
    out = memory.empty((rows, columns), x.dtype, x.device) if out is None else out
    for part in _parts(max(rows, columns), max(1, max(rows, columns) * PIECE // size)):
        if columns >= rows:
            _put(out[:, part], _product(x, weight[part], None if bias is None else bias[part]), add)
        else:
            _put(out[part], _product(x[part], weight, bias), add)
    return out


def _parts(length: int, step: int) -> Iterator[slice]:
    return (slice(begin, begin + step) for begin in range(0, length, step))


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    import torch

    result: Tensor = torch.ops.mkldnn._linear_pointwise(_dense(x), _dense(weight), bias, "none", [], "")
    return result


def _dense(matrix: Tensor) -> Tensor:
    """`matrix`, or a copy where neither rows nor columns follow each other: oneDNN 3.12 takes 3 s for a product with
    part of a transposed matrix (1344 of 3072 columns of 256) that takes 1.6 ms with a copy of it."""
    return matrix if matrix.is_contiguous() or matrix.t().is_contiguous() else matrix.contiguous()


def _put(out: Tensor, result: Tensor, add: bool) -> Tensor:
    return out.add_(result) if add else out.copy_(result)


@functools.cache
def _here() -> bool:
    import torch

    offered = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return offered and "intel" not in read_cpu().model.lower()
