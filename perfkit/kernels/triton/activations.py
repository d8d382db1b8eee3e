"""Activations and their slopes on blocks of fp32 values, for Triton kernels of several families."""

import triton
import triton.language as tl

# GELU, tanh form: x·s with s the sigmoid of 2·√(2/π)·(x + 0.044715·x³).
_LINEAR = tl.constexpr(1.5957691216057308)
_CUBIC = tl.constexpr(1.5957691216057308 * 0.044715)
# Beyond, s is 0 or 1 to more digits than fp32 has; within, x³ does not overflow.
_LIMIT = tl.constexpr(9.5)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(−x)), 0 and 1 at the infinities."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _gelu_gate(x):
    """x within the limits, and the share s of x that passes."""
    inside = tl.minimum(tl.maximum(x, -_LIMIT, propagate_nan=tl.PropagateNan.ALL), _LIMIT, tl.PropagateNan.ALL)
    return inside, sigmoid(inside * (_LINEAR + _CUBIC * inside * inside))


@triton.jit
def gelu(x):
    """0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))."""
    _, passed = _gelu_gate(x)
    return tl.maximum(x, -_LIMIT, propagate_nan=tl.PropagateNan.ALL) * passed


@triton.jit
def gelu_slope(x):
    """The derivative of `gelu`."""
    inside, s = _gelu_gate(x)
    return s + s * (1.0 - s) * inside * (_LINEAR + 3.0 * _CUBIC * inside * inside)


@triton.jit
def silu(x):
    """x·sigmoid(x)."""
    return x * sigmoid(x)


@triton.jit
def silu_slope(x):
    """The derivative of `silu`."""
    s = sigmoid(x)
    return s + x * s * (1.0 - s)
