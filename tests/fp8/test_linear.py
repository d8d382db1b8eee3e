"""The layer that multiplies fp8: its numbers, its gradients, and the check that finds a wrong scale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from perfkit.fp8 import check_layers, convert, linear
from perfkit.fp8.linear import FORWARD, GRADIENT, Linear, cast, scale_of

N, K, M = 64, 48, 32


def a_layer(bias: bool = True) -> Linear:
    torch.manual_seed(0)
    layer = Linear(K, M, bias=bias).bfloat16()
    return layer


def nearest(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` rounded to the nearest number of `dtype` by a search among all of them; ties to the even mantissa."""
    codes = torch.arange(256, dtype=torch.uint8).view(dtype).double()
    grid, _ = codes[codes.isfinite()].unique().sort()
    above = torch.searchsorted(grid, x.double()).clamp(1, len(grid) - 1)
    low, high = grid[above - 1], grid[above]
    middle, x = (low + high) / 2, x.double()
    step = high - low
    even = torch.where((low / step) % 2 == 0, low, high)
    return torch.where(x < middle, low, torch.where(x > middle, high, even))


@pytest.mark.parametrize(("dtype", "most"), [(FORWARD, 448.0), (GRADIENT, 57344.0)])
def test_the_largest_value_now_becomes_the_largest_number_of_the_format(dtype: torch.dtype, most: float) -> None:
    x = torch.randn(N, K).bfloat16()
    scale = scale_of(x, dtype)
    q = cast(x, scale, dtype)
    assert scale.dtype == torch.float32 and q.dtype == dtype
    assert q.float().abs().max() == most
    assert float(scale) == pytest.approx(float(x.abs().max()) / most)
    assert torch.equal(q.double(), nearest(x.float() * (1 / scale), dtype))


def test_zeros_stay_zeros_and_what_is_not_finite_stays_so() -> None:
    zeros = torch.zeros(4, 4).bfloat16()
    assert not cast(zeros, scale_of(zeros, FORWARD), FORWARD).float().any()
    for bad in (float("nan"), float("inf")):
        x = torch.ones(4, 4).bfloat16()
        x[0, 0] = bad
        assert cast(x, scale_of(x, FORWARD), FORWARD).float().isnan().any()


def test_products_and_gradients_are_those_of_rounded_operands() -> None:
    layer = a_layer()
    x = torch.randn(2, N // 2, K).bfloat16().requires_grad_()
    dy = torch.randn(2, N // 2, M).bfloat16()
    y = layer(x)
    y.backward(dy)

    def rounded(t: Tensor, dtype: torch.dtype) -> Tensor:
        scale = scale_of(t, dtype).double()
        return nearest(t.float() * (1 / scale.float()), dtype) * scale

    x8, w8 = rounded(x.detach().reshape(N, K), FORWARD), rounded(layer.weight.detach(), FORWARD)
    dy8 = rounded(dy.reshape(N, M), GRADIENT)
    expected = {
        "y": (y, x8 @ w8.T + layer.bias.detach().double()),
        "dx": (x.grad, dy8 @ w8),
        "dW": (layer.weight.grad, dy8.T @ x8),
        "db": (layer.bias.grad, dy.reshape(N, M).double().sum(0)),
    }
    assert y.shape == (2, N // 2, M) and y.dtype == torch.bfloat16
    for result, exact in expected.values():
        assert result is not None
        error = (result.detach().double().reshape(exact.shape) - exact).norm() / exact.norm()
        assert error < 2.0**-8  # the result's own rounding to bf16


def test_without_bias_and_with_frozen_weights_only_what_is_asked_for_is_computed() -> None:
    layer = a_layer(bias=False).requires_grad_(False)
    x = torch.randn(N, K).bfloat16().requires_grad_()
    layer(x).sum().backward()
    assert x.grad is not None and layer.weight.grad is None


def a_model() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Module()
    model.h = nn.ModuleList(nn.Sequential(nn.Linear(K, 4 * K), nn.GELU(), nn.Linear(4 * K, K)) for _ in range(2))
    model.head = nn.Linear(K, M)
    return model.bfloat16()


def called(layers: Any) -> Callable[[Any], list[Tensor]]:
    return lambda inputs: [layer(x) for layer, x in zip(layers, inputs, strict=True)]


def wrong(model: nn.Module) -> list[str]:
    return [check.name for check in check_layers(model, called) if not check.ok]


def products(names: list[str]) -> set[str]:
    return {name.removeprefix("scale of ").split()[0] for name in names}


def test_each_shape_of_layer_is_checked_once_with_its_scale() -> None:
    model = a_model()
    assert check_layers(model, called) == []
    convert(model, "h.*")
    checks = check_layers(model, called)
    assert all(check.ok for check in checks)
    assert len(checks) == 2 * 4 * 2  # two shapes; y, dx, dW and db; error and scale
    by_name = {check.name: check for check in checks}
    assert all((by_name[f"{part} of h.0.0 by itself"].error or 1) < 2.0**-8 for part in ("y", "dx", "dW", "db"))


@pytest.mark.parametrize(
    ("dtype", "expected"), [(FORWARD, {"y", "dx", "dW"}), (GRADIENT, {"dx", "dW"})], ids=["forward", "gradient"]
)
@pytest.mark.parametrize("factor", [1.02, 0.98, 1.005])
def test_a_scale_that_is_off_is_found(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, expected: set[str], factor: float
) -> None:
    """The numbers are divided by one scale, and multiplied by another."""
    right = cast
    monkeypatch.setattr(linear, "cast", lambda x, s, d: right(x, s * factor if d == dtype else s, d))
    model = a_model()
    convert(model, "h.*")
    found = wrong(model)
    assert products([name for name in found if name.startswith("scale of")]) == expected


@pytest.mark.parametrize("which", [0, -1], ids=["the first", "the one before"])
@pytest.mark.parametrize("dtype", [FORWARD, GRADIENT], ids=["forward", "gradient"])
def test_a_stale_scale_is_found(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, which: int) -> None:
    """A scale that was right for an earlier tensor of its shape: too large, or too small, which also cuts off."""
    right, kept = scale_of, {}  # type: ignore[var-annotated]

    def stale(x: Tensor, d: torch.dtype) -> Tensor:
        scale = right(x, d)
        earlier = kept.setdefault((tuple(x.shape), d), [scale])
        found = earlier[which] if d == dtype else scale
        earlier.append(scale)
        return found

    monkeypatch.setattr(linear, "scale_of", stale)
    model = a_model()
    convert(model, "h.*")
    found = wrong(model)
    assert found and (which == 0 or any(name.startswith("scale of") for name in found))


def test_another_format_and_products_in_bf16_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model = a_model()
    convert(model, "h.*")
    monkeypatch.setattr(linear, "GRADIENT", FORWARD)
    assert products(wrong(model)) == {"dx", "dW"}
    monkeypatch.setattr(linear.Linear, "forward", nn.Linear.forward)
    assert products(wrong(model)) == {"y", "dx", "dW"}


def test_a_scale_that_leaves_no_room_is_found_though_it_is_used_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 0.98 of the largest value, or 1.02: numbers are rounded otherwise than by the scale that is promised."""
    right = scale_of
    for factor in (0.98, 1.02):
        monkeypatch.setattr(linear, "scale_of", lambda x, d, factor=factor: right(x, d) * factor)
        model = a_model()
        convert(model, "h.*")
        assert products(wrong(model)) >= {"y", "dx", "dW"}


@pytest.mark.parametrize("way", [-1.0, 1.0])
def test_the_last_bit_of_a_scale_is_no_error(monkeypatch: pytest.MonkeyPatch, way: float) -> None:
    """GPT-2's first layer: dy's largest number was 154 · 2ⁿ, one number in thirty a tie, and eager wrong on GPUs."""
    right = scale_of

    def off_by_a_bit(x: Tensor, dtype: torch.dtype) -> Tensor:
        return right(x, dtype).nextafter(torch.tensor(way * torch.inf))

    monkeypatch.setattr(linear, "scale_of", off_by_a_bit)
    torch.manual_seed(0)
    layer = Linear(768, 2304).bfloat16()
    assert not wrong(nn.Sequential(layer))
