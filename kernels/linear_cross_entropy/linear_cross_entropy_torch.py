"""The head with its cross entropy from the library's products and the kernel `perfkit::classifier`.

Of a chunk of rows: logits = x·weightᵀ; the kernel gives the losses and puts the gradient in the logits' place; two
products make of it the slopes of x, whose rows are done with, and of the weight, which are summed in fp32.
"""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK_BYTES = 1 << 30  # of logits: 4096 rows of Llama 3's vocabulary in bf16; fewer make the weight's product slow
ROWS = 256  # a chunk's rows are a multiple of it
PADDED_TO = 64  # rows of logits begin on 128 bytes then in 16 bits: the matrix units' products need 16


def forward(
    x: Tensor, weight: Tensor, targets: Tensor,
    loss: Tensor, x_slope: Tensor, weight_slope: Tensor, counted: Tensor, vocabulary: int, ignore_index: int,
) -> None:  # fmt: skip
    """x (N, C), weight (Vp, C), targets (N) → loss (), x_slope (N, C), weight_slope (Vp, C), counted ()."""
    wide = padded(weight)
    rows = chunk_rows(x.shape[0], wide.shape[0], x.element_size())
    logits = x.new_empty(rows, wide.shape[0])
    whole = 0 < x.shape[0] <= rows and wide is weight
    total = weight_slope if whole else torch.zeros(wide.shape, dtype=torch.float32, device=x.device)
    losses = torch.zeros((), dtype=torch.float32, device=x.device)
    for first in range(0, x.shape[0], rows):
        of_chunk = slice(first, first + rows)
        part = x[of_chunk]
        slopes = torch.mm(part, wide.t(), out=logits[: part.shape[0]])
        losses += torch.ops.perfkit.classifier(slopes, targets[of_chunk], 1.0, vocabulary, ignore_index).sum()
        torch.mm(slopes, wide, out=x_slope[of_chunk])
        if whole:
            torch.mm(slopes.t(), part, out=total)
        else:
            add_product(total, slopes.t(), part)
    if not whole:
        weight_slope.copy_(total[: weight.shape[0]])
    counted.copy_((targets != ignore_index).sum())
    torch.div(losses, counted, out=loss)


def backward(
    dloss: Tensor, x_slope: Tensor, weight_slope: Tensor, counted: Tensor, dx: Tensor, dweight: Tensor
) -> None:
    """Both slopes by dloss / counted, a number that stays on the device."""
    factor = dloss / counted.clamp(min=1)
    torch.mul(x_slope, factor, out=dx)
    torch.mul(weight_slope, factor, out=dweight)


def chunk_rows(rows: int, columns: int, item_bytes: int) -> int:
    """Return the number of rows of logits in memory at a time: at most `CHUNK_BYTES`, and not fewer than `ROWS`."""
    most = CHUNK_BYTES // (columns * item_bytes) // ROWS * ROWS
    return max(1, min(rows, max(ROWS, most)))


def padded(weight: Tensor) -> Tensor:
    """The weight (V, C) with rows of 0 behind, where a GPU's matrix units need the logits' rows aligned."""
    rows = -(-weight.shape[0] // PADDED_TO) * PADDED_TO
    if rows == weight.shape[0] or not weight.is_cuda or weight.element_size() > 2:
        return weight
    return torch.cat([weight, weight.new_zeros(rows - weight.shape[0], weight.shape[1])])


def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total (M, K), fp32, += a (M, N) · b (N, K) of any precision.

    cuBLAS adds a product of 16-bit matrices to one in fp32 without rounding it; on a CPU each product is rounded first.
    """
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    elif total.is_cuda:
        torch.ops.aten.addmm.dtype_out(total, a, b, total.dtype, out=total)
    else:
        total.add_(torch.mm(a, b))
