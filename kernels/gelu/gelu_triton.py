"""GELU, tanh form, in Triton: 0.5·(1 + tanh u) is the sigmoid of 2u, so one exponential serves."""

import triton
import triton.language as tl
from triton import cdiv

from perfkit.kernels.triton import launch
from perfkit.kernels.triton.activations import gelu, gelu_slope

SWEEP = {"BLOCK": (512, 1024, 2048, 4096), "num_warps": (4, 8)}


@triton.jit
def gelu_forward_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    tl.store(y + at, gelu(value), mask=at < n)


@triton.jit
def gelu_backward_kernel(dy, x, dx, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    upstream = tl.load(dy + at, mask=at < n).to(tl.float32)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    tl.store(dx + at, upstream * gelu_slope(value), mask=at < n)


def blocks(n, itemsize):
    """A thread takes 32 bytes of each tensor: two loads in flight."""
    return {"BLOCK": 128 * 32 // itemsize, "num_warps": 4}


@launch(blocks, SWEEP)
def gelu_forward(x, y, n, BLOCK, **meta):
    gelu_forward_kernel[(cdiv(n, BLOCK),)](x, y, n, BLOCK, **meta)


@launch(blocks, SWEEP)
def gelu_backward(dy, x, dx, n, BLOCK, **meta):
    gelu_backward_kernel[(cdiv(n, BLOCK),)](dy, x, dx, n, BLOCK, **meta)
