"""Fourier transforms: 5·n·log₂ n FLOP for n complex points, half of that where input or result is real.

That is the nominal count of the radix-2 algorithm (Cooley and Tukey), by which FFT libraries state their rates; one may
need fewer. Along several axes n is the product of their lengths. Scaling is not counted.
"""

from __future__ import annotations

import math

from perfkit.cost.model import Call, Cost, TensorSpec
from perfkit.cost.registry import Operator, same
from perfkit.cost.shapes import axis, dense, integer_at, integers_at, part, vector_unit, work

_WHOLE, _HALF = {"fp32": "complex64", "fp64": "complex128"}, 2.5  # of a real signal


def _axes(call: Call, x: TensorSpec) -> tuple[int, ...]:
    return tuple(axis(i, len(x.shape)) for i in integers_at(call, 1))


def _with_last(shape: tuple[int, ...], last: int, length: int) -> tuple[int, ...]:
    return tuple(length if i == last else size for i, size in enumerate(shape))


def _transformed(x: TensorSpec, y: TensorSpec, signal: TensorSpec, axes: tuple[int, ...], each: float) -> Cost:
    """x → y over `axes` of `signal`, the one of the two that has all points."""
    points = math.prod(signal.shape[i] for i in axes)
    return work({vector_unit(part(signal.dtype)): each * signal.numel * math.log2(max(points, 1))}, (x,), (y,))


def complex_to_complex(call: Call) -> Cost:
    """_fft_c2c(x, axes, normalization, forward)."""
    x = call.tensor(0)
    return _transformed(x, dense(x.shape, x.dtype), x, _axes(call, x), 2 * _HALF)


def real_to_complex(call: Call) -> Cost:
    """_fft_r2c(x, axes, normalization, onesided): of n points along the last of the axes n/2 + 1 are kept, or all."""
    x, axes = call.tensor(0), _axes(call, call.tensor(0))
    onesided = call.arguments[3] if len(call.arguments) > 3 else True
    length = x.shape[axes[-1]]
    kept = length // 2 + 1 if onesided else length
    return _transformed(x, dense(_with_last(x.shape, axes[-1], kept), _WHOLE[x.dtype]), x, axes, _HALF)


def complex_to_real(call: Call) -> Cost:
    """_fft_c2r(x, axes, normalization, length of the last axis)."""
    x, axes = call.tensor(0), _axes(call, call.tensor(0))
    y = dense(_with_last(x.shape, axes[-1], integer_at(call, 3)), part(x.dtype))
    return _transformed(x, y, y, axes, _HALF)


def operators() -> list[Operator]:
    """The transforms that torch.fft is made of."""
    inputs = "input; result"
    return [
        *same("_fft_c2c", "fft", complex_to_complex, "5·log₂ n an element", inputs),
        *same("_fft_r2c", "fft", real_to_complex, "2.5·log₂ n an input element", inputs),
        *same("_fft_c2r", "fft", complex_to_real, "2.5·log₂ n a result", inputs),
    ]
