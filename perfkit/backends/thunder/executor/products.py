"""Linear layers and embeddings for the executor: products of the library, and into the memory, of perfkit's choosing.

Thunder's own executors let each product make its result. A large one (logits, the gradient of a head's or an
embedding's weight) is then fresh memory at every step, and touching it page by page costs more than a pass over it.
Here the same product (`out=`) writes to memory on huge pages (`perfkit.kernels.memory`), in fp32 in rows that begin on
cache lines: those of GPT-2's logits do not, so their product goes into rows that do, and is copied. Where oneDNN
multiplies faster than MKL, fp32 products are its own (`perfkit.kernels.libraries`). A layer's gradients are three
symbols, so that one that nobody asks for is not computed; that of the bias is the kernel `perfkit::bias_gradient`.

On a GPU the library's products are as they are, except long rows that begin between 16 bytes (`padded_width`): those
products are made of padded matrices.

Legend: K features in, M features out, Mp the same padded, V rows of an embedding, C channels.
"""

from __future__ import annotations

from typing import Any

import torch
from thunder.core.proxies import TensorProxy
from torch import Tensor

from perfkit.backends.thunder.executor.shapes import like
from perfkit.kernels.libraries import onednn_is_faster, onednn_linear
from perfkit.kernels.memory import empty, on_cache_lines


def linear_forward(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (…, K) · Wᵀ + b, W (M, K) → (…, M)."""
    if x.is_cuda:
        return torch.nn.functional.linear(x, weight, bias)
    if onednn_is_faster(x.dtype, x.device):
        return onednn_linear(x.flatten(0, -2), weight, bias).unflatten(0, x.shape[:-1])
    y = empty((*x.shape[:-1], weight.shape[0]), x.dtype, x.device)
    rows = y.flatten(0, -2)
    written = on_cache_lines(rows)
    if bias is None:
        torch.mm(x.flatten(0, -2), weight.t(), out=written)
    else:
        torch.addmm(bias, x.flatten(0, -2), weight.t(), out=written)
    if written is not rows:
        rows.copy_(written)
    return y


def linear_input_gradient(dy: Tensor, weight: Tensor) -> Tensor:
    """dy (…, M) · W (M, K) → (…, K)."""
    if dy.is_cuda:
        return torch.matmul(dy, weight)
    if onednn_is_faster(dy.dtype, dy.device):
        return onednn_linear(dy.flatten(0, -2), weight.t()).unflatten(0, dy.shape[:-1])
    dx = empty((*dy.shape[:-1], weight.shape[1]), dy.dtype, dy.device)
    torch.mm(dy.flatten(0, -2), weight, out=dx.flatten(0, -2))
    return dx


def linear_weight_gradient(dy: Tensor, x: Tensor) -> Tensor:
    """dy (…, M), x (…, K) → (M, K), summed over the rest."""
    if dy.is_cuda:
        return torch.mm(dy.flatten(0, -2).t(), x.flatten(0, -2))
    if onednn_is_faster(dy.dtype, dy.device):
        return onednn_linear(dy.flatten(0, -2).t(), x.flatten(0, -2).t())
    dweight = empty((dy.shape[-1], x.shape[-1]), dy.dtype, dy.device)
    return torch.mm(dy.flatten(0, -2).t(), x.flatten(0, -2), out=dweight)


_LONG_ROW, _SECTOR, _ALIGNED = 4096, 128, 16  # bytes


def padded_width(columns: int, item_bytes: int) -> int:
    """Return the number of columns with which a GPU's matrix units are fast: `columns`, or a few more.

    cuBLAS takes kernels that load element by element where rows begin between 16 bytes. GPT-2's head, 50257 wide, in
    bf16 on an H200 (B = 16, T = 1024): its three products take 31 ms, at 11 to 18 % of the matrix units, and padded to
    50304 columns 6 ms. Copies of shorter rows cost more than they gain.
    """
    width = columns * item_bytes
    if width < _LONG_ROW or width % _ALIGNED == 0:
        return columns
    return -(-width // _SECTOR) * _SECTOR // item_bytes


def pad_rows(x: Tensor, rows: int) -> Tensor:
    """x (M, …) → (Mp, …), Mp = `rows`, zeros below."""
    return torch.cat([x, x.new_zeros(rows - x.shape[0], *x.shape[1:])])


def pad_columns(x: Tensor | None, columns: int) -> Tensor | None:
    """x (…, M) → (…, Mp), Mp = `columns`, zeros behind; None, a gradient that nobody gave, stays None."""
    return None if x is None else torch.nn.functional.pad(x, (0, columns - x.shape[-1]))


def first_rows(x: Tensor, rows: int) -> Tensor:
    """x (Mp, …) → (M, …), M = `rows`: a view."""
    return x[:rows]


def first_columns(x: Tensor, columns: int) -> Tensor:
    """x (…, Mp) → (…, M), M = `columns`: a view, whose rows do not follow each other in memory."""
    return x[..., :columns]


def embedding_gradient(dy: Tensor, idx: Tensor, rows: int) -> Tensor:
    """dy (…, C) added up by idx (…) → (V, C), V = `rows`."""
    dweight = empty((rows, dy.shape[-1]), dy.dtype, dy.device).zero_()
    return dweight.index_add_(0, idx.flatten(), dy.flatten(0, -2))


def _linear_forward(x: Any, weight: Any, bias: Any = None) -> TensorProxy:
    return like(x, (*x.shape[:-1], weight.shape[0]))


def _linear_input_gradient(dy: Any, weight: Any) -> TensorProxy:
    return like(dy, (*dy.shape[:-1], weight.shape[1]))


def _linear_weight_gradient(dy: Any, x: Any) -> TensorProxy:
    return like(dy, (dy.shape[-1], x.shape[-1]))


def _pad_rows(x: Any, rows: int) -> TensorProxy:
    return like(x, (rows, *x.shape[1:]))


def _pad_columns(x: Any, columns: int) -> TensorProxy:
    return like(x, (*x.shape[:-1], columns))


def _embedding_gradient(dy: Any, idx: Any, rows: int) -> TensorProxy:
    return like(dy, (rows, dy.shape[-1]))


# Each with what it gives, for Thunder's tracing.
FUNCTIONS = (
    (linear_forward, _linear_forward),
    (linear_input_gradient, _linear_input_gradient),
    (linear_weight_gradient, _linear_weight_gradient),
    (embedding_gradient, _embedding_gradient),
    (pad_rows, _pad_rows),
    (pad_columns, _pad_columns),
    (first_rows, _pad_rows),
    (first_columns, _pad_columns),
)
