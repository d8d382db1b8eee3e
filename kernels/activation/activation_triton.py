"""Multiply, add, activate in Triton: blocks of ROWS × COLUMNS; the activation is a constant of the kernel."""

import triton
import triton.language as tl
from triton import cdiv

from perfkit.kernels.triton import launch, row_tile
from perfkit.kernels.triton.activations import gelu, gelu_slope, sigmoid, silu, silu_slope

SWEEP = {"ROWS": (4, 8, 16, 32), "num_warps": (4, 8)}
FLAT_SWEEP = {"BLOCK": (512, 1024, 2048, 4096), "num_warps": (4, 8)}


@triton.jit
def _activate(u, NAME: tl.constexpr):
    if NAME == "relu":
        return tl.maximum(u, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif NAME == "sigmoid":
        return sigmoid(u)
    elif NAME == "gelu":
        return gelu(u)
    else:
        return silu(u)


@triton.jit
def _inner(x, z, bias, at, column, inside, columns, alpha):
    """u = x + alpha·z + bias."""
    value = tl.load(x + at, mask=inside).to(tl.float32) + alpha * tl.load(z + at, mask=inside).to(tl.float32)
    return value + tl.load(bias + column, mask=column < columns).to(tl.float32)[None, :]


@triton.jit
def activation_forward_kernel(
    x, z, bias, y, rows, columns, alpha, NAME: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Compute one block of `activation_forward`."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    u = _inner(x, z, bias, at, column, inside, columns, alpha)
    tl.store(y + at, _activate(u, NAME), mask=inside)


@triton.jit
def activation_backward_from_u_kernel(
    dy, x, z, bias, dx, dz, rows, columns, alpha, NAME: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Compute one block of `activation_backward_from_u`."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    u = _inner(x, z, bias, at, column, inside, columns, alpha)
    if NAME == "gelu":
        slope = gelu_slope(u)
    else:
        slope = silu_slope(u)
    gradient = tl.load(dy + at, mask=inside).to(tl.float32) * slope
    tl.store(dx + at, gradient, mask=inside)
    tl.store(dz + at, alpha * gradient, mask=inside)


@triton.jit
def activation_backward_from_y_kernel(dy, y, dx, dz, n, alpha, NAME: tl.constexpr, BLOCK: tl.constexpr):
    """Compute one block of `activation_backward_from_y`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    upstream = tl.load(dy + at, mask=at < n).to(tl.float32)
    value = tl.load(y + at, mask=at < n).to(tl.float32)
    if NAME == "relu":
        gradient = tl.where(value > 0, upstream, 0.0)
    else:
        gradient = upstream * value * (1.0 - value)
    tl.store(dx + at, gradient, mask=at < n)
    tl.store(dz + at, alpha * gradient, mask=at < n)


def tile_blocks(rows, columns, alpha, itemsize):
    """About 8 KiB of each tensor a program."""
    return {"ROWS": row_tile(columns, 8192 // itemsize)[0], "num_warps": 4}


def flat_blocks(rows, columns, alpha, itemsize):
    """A thread takes 32 bytes of each tensor: two loads in flight."""
    return {"BLOCK": 4096 // itemsize, "num_warps": 4}


def forward(name):
    """Return the launcher of the forward with activation `name`."""

    @launch(tile_blocks, SWEEP)
    def run(x, z, bias, y, rows, columns, alpha, ROWS, **meta):
        width = row_tile(columns, 1)[1]
        grid = cdiv(rows, ROWS), cdiv(columns, width)
        activation_forward_kernel[grid](x, z, bias, y, rows, columns, alpha, name, ROWS, width, **meta)

    return run


def backward_from_u(name):
    """Return the launcher of the gradient that computes u again from the inputs."""

    @launch(tile_blocks, SWEEP)
    def run(dy, x, z, bias, dx, dz, rows, columns, alpha, ROWS, **meta):
        width = row_tile(columns, 1)[1]
        grid = cdiv(rows, ROWS), cdiv(columns, width)
        activation_backward_from_u_kernel[grid](dy, x, z, bias, dx, dz, rows, columns, alpha, name, ROWS, width, **meta)

    return run


def backward_from_y(name):
    """Return the launcher of the gradient that needs only y."""

    @launch(flat_blocks, FLAT_SWEEP)
    def run(dy, y, dx, dz, rows, columns, alpha, BLOCK, **meta):
        n = rows * columns
        activation_backward_from_y_kernel[(cdiv(n, BLOCK),)](dy, y, dx, dz, n, alpha, name, BLOCK, **meta)

    return run


multiply_add_relu_forward = forward("relu")
multiply_add_sigmoid_forward = forward("sigmoid")
multiply_add_gelu_forward = forward("gelu")
multiply_add_silu_forward = forward("silu")
multiply_add_relu_backward = backward_from_y("relu")
multiply_add_sigmoid_backward = backward_from_y("sigmoid")
multiply_add_gelu_backward = backward_from_u("gelu")
multiply_add_silu_backward = backward_from_u("silu")
