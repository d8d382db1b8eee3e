"""Complex arithmetic and Fourier transforms: the counts by hand, the bytes by what PyTorch takes and returns."""

from __future__ import annotations

import math
from typing import Any

import pytest

from perfkit.cost import Argument, Call, CostModel, TensorSpec

torch = pytest.importorskip("torch")
aten = torch.ops.aten

NAMES = {torch.float32: "fp32", torch.float64: "fp64", torch.complex64: "complex64", torch.complex128: "complex128"}


def spec(value: Any) -> Argument:
    if isinstance(value, torch.Tensor):
        return TensorSpec(tuple(value.shape), NAMES[value.dtype], value.stride())
    return tuple(value) if isinstance(value, list) else value


def cost_of(name: str, arguments: tuple[Any, ...]) -> Any:
    return CostModel().cost(Call(f"aten::{name}", tuple(map(spec, arguments))))


def nbytes(found: Any) -> int:
    return sum(t.numel() * t.element_size() for t in (found if isinstance(found, tuple | list) else (found,)))


z, w = torch.randn(6, 8, dtype=torch.complex64), torch.randn(6, 8, dtype=torch.complex64)
x = torch.randn(6, 8)
left, right = torch.randn(3, 4, 5, dtype=torch.complex64), torch.randn(3, 5, 2, dtype=torch.complex64)
bias = torch.randn(4, 2, dtype=torch.complex64)
image = torch.randn(2, 8, 4)
ELEMENTS = 48
CASES: dict[str, tuple[Any, tuple[Any, ...], float]] = {
    "add": (aten.add, (z, w), 2 * ELEMENTS),
    "add, a real one": (aten.add, (z, x), ELEMENTS),
    "mul": (aten.mul, (z, w), 6 * ELEMENTS),
    "mul, by a real one": (aten.mul, (z, x), 2 * ELEMENTS),
    "mul, by a number": (aten.mul, (z, 3.0), 2 * ELEMENTS),
    "div": (aten.div, (z, w), 11 * ELEMENTS),
    "div, by a real one": (aten.div, (z, x), 2 * ELEMENTS),
    "exp": (aten.exp, (z,), 5 * ELEMENTS),
    "neg": (aten.neg, (z,), 2 * ELEMENTS),
    "abs": (aten.abs, (z,), 4 * ELEMENTS),
    "angle": (aten.angle, (z,), ELEMENTS),
    "conj_physical": (aten.conj_physical, (z,), ELEMENTS),
    "polar": (aten.polar, (x.abs(), x), 4 * ELEMENTS),
    "complex": (aten.complex, (x, x + 1), 0),
    "sum": (aten.sum, (z,), 2 * ELEMENTS),
    "mm": (aten.mm, (left[0], right[0]), 8 * 4 * 2 * 5),
    "bmm": (aten.bmm, (left, right), 8 * 3 * 4 * 2 * 5),
    "addmm": (aten.addmm, (bias, left[0], right[0]), 8 * 4 * 2 * 5 + 2 * 4 * 2),
    "_fft_c2c": (aten._fft_c2c, (z, [1], 0, True), 5 * ELEMENTS * 3),
    "_fft_c2c, both axes": (aten._fft_c2c, (z, [0, 1], 0, True), 5 * ELEMENTS * math.log2(48)),
    "_fft_r2c": (aten._fft_r2c, (image, [1, 2], 0, True), 2.5 * 64 * math.log2(32)),
    "_fft_r2c, all of it": (aten._fft_r2c, (image, [1], 0, False), 2.5 * 64 * 3),
    "_fft_c2r": (aten._fft_c2r, (z, [1], 0, 14), 2.5 * 6 * 14 * math.log2(14)),
}


@pytest.mark.parametrize("name", CASES)
def test_work_and_bytes(name: str) -> None:
    function, arguments, flop = CASES[name]
    cost = cost_of(name.split(",")[0], arguments)
    assert cost is not None and cost.total_flop == pytest.approx(flop)
    assert cost.bytes_read == nbytes([a for a in arguments if isinstance(a, torch.Tensor)])
    assert cost.bytes_written == nbytes(function(*arguments))


def test_parts_decide_the_unit() -> None:
    wide = z.to(torch.complex128)
    assert list(cost_of("mul", (wide, wide)).flop) == ["vector_fp64"]
    assert list(cost_of("mm", (left[0], right[0])).flop) == ["matrix_fp32"]


def test_what_is_not_counted_is_unknown() -> None:
    assert cost_of("sqrt", (z,)) is None and cost_of("prod", (z,)) is None
    assert cost_of("sqrt", (x,)) is not None


def test_real_abs_keeps_its_dtype() -> None:
    assert cost_of("abs", (x,)).bytes_written == 4 * ELEMENTS


def test_gated_gradient() -> None:
    grad = torch.randn(6, 4)
    cost = cost_of("glu_backward", (grad, x, 1))
    assert cost.total_flop == 8 * 24
    assert (cost.bytes_read, cost.bytes_written) == (4 * (24 + 48), nbytes(aten.glu_backward(grad, x, 1)))
