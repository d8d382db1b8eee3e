"""What the family replaces: PyTorch's own operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from perfkit.errors import Unavailable
from perfkit.kernels.replaced import Call


def adamw_step(
    param: Tensor, grad: Tensor, m: Tensor, v: Tensor,
    lr: float, beta1: float, beta2: float, eps: float, weight_decay: float, step: int, grad_scale: float,
) -> Call:  # fmt: skip
    """The fused AdamW, as `torch.optim.AdamW(fused=True)` calls it, given the scaled gradient."""
    if param.dtype != m.dtype:
        raise Unavailable("PyTorch's fused AdamW keeps its moments in the precision of the parameters.", "Use fp32.")
    lists = [[t] for t in (param.clone(), grad * grad_scale, m.clone(), v.clone())]
    count = torch.tensor(float(step), device=param.device)
    none: list[Tensor] = []

    def call() -> Any:
        torch._fused_adamw_(
            lists[0], lists[1], lists[2], lists[3], none, [count], lr=lr, beta1=beta1, beta2=beta2, eps=eps,
            weight_decay=weight_decay, amsgrad=False, maximize=False,
        )  # fmt: skip

        return lists[0][0], lists[2][0], lists[3][0]

    return call
