"""A linear layer's products by cuBLASLt. Shapes are those of `linear.py`.

Where the library has no algorithm for a form, as for epilogues over odd widths, PyTorch's operators do it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import gelu

from perfkit.kernels.cublaslt import Epilogue, product


def forward(x: Tensor, weight: Tensor, y: Tensor) -> None:
    """Compute `linear_forward`: cuBLASLt's fastest algorithm, measured once, with what follows in its epilogue."""
    if not product(x, weight, y, (False, True)):
        torch.mm(x, weight.t(), out=y)


def bias_forward(x: Tensor, weight: Tensor, bias: Tensor, y: Tensor) -> None:
    """Compute `linear_bias_forward`: cuBLASLt's fastest algorithm, measured once, with what follows in its epilogue."""
    if not product(x, weight, y, (False, True), Epilogue.BIAS, bias):
        torch.addmm(bias, x, weight.t(), out=y)


def gelu_forward(x: Tensor, weight: Tensor, bias: Tensor, h: Tensor, g: Tensor) -> None:
    """Compute `linear_gelu_forward`: cuBLASLt's fastest algorithm, measured once, with what follows in its epilogue."""
    if not product(x, weight, g, (False, True), Epilogue.GELU_AUX_BIAS, bias, h):
        bias_forward(x, weight, bias, h)
        g.copy_(gelu(h, approximate="tanh"))


def backward_input(dy: Tensor, weight: Tensor, dx: Tensor, add: int) -> None:
    """Compute `linear_backward_input`: cuBLASLt's fastest algorithm, measured once, with what follows in its
    epilogue."""
    if product(dy, weight, dx, add=bool(add)):
        return
    if add:
        dx.addmm_(dy, weight)
    else:
        torch.mm(dy, weight, out=dx)


def backward_weight(dy: Tensor, x: Tensor, dweight: Tensor, add: int) -> None:
    """Compute `linear_backward_weight`: cuBLASLt's fastest algorithm, measured once, with what follows in its
    epilogue."""
    if product(dy, x, dweight, (True, False), add=bool(add)):
        return
    if add:
        dweight.addmm_(dy.t(), x)
    else:
        torch.mm(dy.t(), x, out=dweight)


def gelu_backward(dy: Tensor, weight: Tensor, h: Tensor, dh: Tensor) -> None:
    """Compute `linear_gelu_backward`: cuBLASLt's fastest algorithm, measured once, with what follows in its
    epilogue."""
    if not product(dy, weight, dh, epilogue=Epilogue.DGELU, aux=h):
        dh.copy_(torch.ops.aten.gelu_backward(dy @ weight, h, approximate="tanh"))
