"""The gate of Llama's MLP in Triton: one pass, one sigmoid for both gradients."""

import triton
import triton.language as tl
from triton import cdiv

from perfkit.kernels.triton import launch
from perfkit.kernels.triton.activations import sigmoid
from perfkit.kernels.triton.fp8 import largest_of, raise_amax

SWEEP = {"BLOCK": (512, 1024, 2048, 4096), "num_warps": (4, 8)}


@triton.jit
def swiglu_forward_kernel(gate, up, y, n, BLOCK: tl.constexpr):
    """Compute one block of `swiglu_forward`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(gate + at, mask=at < n).to(tl.float32)
    factor = tl.load(up + at, mask=at < n).to(tl.float32)
    tl.store(y + at, value * sigmoid(value) * factor, mask=at < n)


@triton.jit
def swiglu_backward_kernel(dy, gate, up, dgate, dup, n, BLOCK: tl.constexpr):
    """Compute one block of `swiglu_backward`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    upstream = tl.load(dy + at, mask=at < n).to(tl.float32)
    value = tl.load(gate + at, mask=at < n).to(tl.float32)
    factor = tl.load(up + at, mask=at < n).to(tl.float32)
    passed = sigmoid(value)
    tl.store(dgate + at, upstream * factor * passed * (1.0 + value * (1.0 - passed)), mask=at < n)
    tl.store(dup + at, upstream * value * passed, mask=at < n)


@triton.jit
def swiglu_amax_forward_kernel(gate, up, amax, y, n, BLOCK: tl.constexpr):
    """Compute one block of `swiglu_amax_forward`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(gate + at, mask=at < n, other=0.0).to(tl.float32)
    result = value * sigmoid(value) * tl.load(up + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + at, result, mask=at < n)
    raise_amax(amax, largest_of(result, y))


@triton.jit
def swiglu_amax_backward_kernel(dy, gate, up, amax_gate, amax_up, dgate, dup, n, BLOCK: tl.constexpr):
    """Compute one block of `swiglu_amax_backward`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    upstream = tl.load(dy + at, mask=at < n, other=0.0).to(tl.float32)
    value = tl.load(gate + at, mask=at < n, other=0.0).to(tl.float32)
    passed = sigmoid(value)
    factor = tl.load(up + at, mask=at < n, other=0.0).to(tl.float32)
    of_gate, of_up = upstream * factor * passed * (1.0 + value * (1.0 - passed)), upstream * value * passed
    tl.store(dgate + at, of_gate, mask=at < n)
    tl.store(dup + at, of_up, mask=at < n)
    raise_amax(amax_gate, largest_of(of_gate, dgate))
    raise_amax(amax_up, largest_of(of_up, dup))


def blocks(n, itemsize):
    """A thread takes 32 bytes of each tensor: two loads in flight."""
    return {"BLOCK": 128 * 32 // itemsize, "num_warps": 4}


@launch(blocks, SWEEP)
def swiglu_forward(gate, up, y, n, BLOCK, **meta):
    """Launch `swiglu_forward`: one pass."""
    swiglu_forward_kernel[(cdiv(n, BLOCK),)](gate, up, y, n, BLOCK, **meta)


@launch(blocks, SWEEP)
def swiglu_backward(dy, gate, up, dgate, dup, n, BLOCK, **meta):
    """Launch `swiglu_backward`: one pass."""
    swiglu_backward_kernel[(cdiv(n, BLOCK),)](dy, gate, up, dgate, dup, n, BLOCK, **meta)


def amax_blocks(n, itemsize):
    """A thread takes 32 bytes of each tensor; a block compares what it has found once."""
    return {"BLOCK": 256 * 32 // itemsize, "num_warps": 8}


@launch(amax_blocks, SWEEP)
def swiglu_amax_forward(gate, up, amax, y, n, BLOCK, **meta):
    """Launch `swiglu_amax_forward`: one pass."""
    swiglu_amax_forward_kernel[(cdiv(n, BLOCK),)](gate, up, amax, y, n, BLOCK, **meta)


@launch(amax_blocks, SWEEP)
def swiglu_amax_backward(dy, gate, up, amax_gate, amax_up, dgate, dup, n, BLOCK, **meta):
    """Launch `swiglu_amax_backward`: one pass."""
    largest = amax_gate, amax_up
    swiglu_amax_backward_kernel[(cdiv(n, BLOCK),)](dy, gate, up, *largest, dgate, dup, n, BLOCK, **meta)
