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
    import torch
    from torch import Tensor


def onednn_is_faster(dtype: torch.dtype, device: torch.device, elements: int) -> bool:
    """Whether a product with a result of so many `elements` should be oneDNN's.

    Large results are not: oneDNN takes no memory to write to, and fresh pages cost more than it gains.
    """
    import torch

    small = 0 < elements * dtype.itemsize < memory.WORTH_HUGE_PAGES
    return small and dtype == torch.float32 and device.type == "cpu" and _here()


def onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (N, K) · Wᵀ + b, W (M, K) → (N, M), all fp32 on the CPU; any strides."""
    import torch

    result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return result


@functools.cache
def _here() -> bool:
    import torch

    offered = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return offered and "intel" not in read_cpu().model.lower()
