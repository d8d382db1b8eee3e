"""AdamW in Triton: one pass, in place. m and v are fp32 in every precision, and so is the arithmetic."""

import triton
import triton.language as tl
from triton import cdiv

from perfkit.kernels.triton import launch

SWEEP = {"BLOCK": (512, 1024, 2048), "num_warps": (4, 8)}


@triton.jit
def adamw_step_kernel(
    param, grad, m, v, n, beta1, rest1, beta2, rest2, eps, decay, rate, root, grad_scale, BLOCK: tl.constexpr
):  # fmt: skip
    """Compute one block of `adamw_step`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    p = tl.load(param + at, mask=inside).to(tl.float32)
    g = tl.load(grad + at, mask=inside).to(tl.float32) * grad_scale
    first = beta1 * tl.load(m + at, mask=inside) + rest1 * g
    second = beta2 * tl.load(v + at, mask=inside) + rest2 * g * g
    tl.store(param + at, decay * p - rate * first / (tl.sqrt(second * root) + eps), mask=inside)
    tl.store(m + at, first, mask=inside)
    tl.store(v + at, second, mask=inside)


def blocks(n, *numbers, itemsize):
    """8 elements a thread: two 16-byte loads of each fp32 tensor in flight."""
    return {"BLOCK": 1024, "num_warps": 4}


@launch(blocks, SWEEP)
def adamw_step(param, grad, m, v, n, lr, beta1, beta2, eps, decay, correction1, correction2, grad_scale, BLOCK, **meta):
    """Compute the numbers that are the same for every element here, in fp64: 1 - beta2 loses digits in fp32."""
    moments = beta1, 1.0 - beta1, beta2, 1.0 - beta2
    change = eps, decay, lr / correction1, 1.0 / correction2, grad_scale
    adamw_step_kernel[(cdiv(n, BLOCK),)](param, grad, m, v, n, *moments, *change, BLOCK, **meta)
