"""The check of fp8 layers by themselves: each product against the same of operands that are rounded here, in fp64.

A run's gradients are off by several percent in fp8, and a scale that is off by 2 % hides in that. So a layer of each
shape multiplies normally distributed numbers, and every result is compared with the product of the same numbers,
rounded to their formats with the scales that they have now. What remains is the result's rounding to bf16 and the sums
of the tensor cores: 0.2 to 0.5 %. Two figures of a result a beside that product r are held to limits:

    error = ‖a − r‖ / ‖r‖             ≤ 1 %: another format or another rounding is 3 to 5 % off
    scale = |⟨a, r⟩ / ⟨r, r⟩ − 1|      ≤ 0.3 %: rounding hardly moves it, a wrong scale by all that it is off

Programs compute x / scale in fp32, and the last bit of a scale decides which way a number goes that lies halfway
between two of fp8. With the largest value 154 · 2ⁿ, one in thirty numbers of bf16 does, and the error is 1.9 % on one
GPU and 0.2 % on a CPU. So the largest value of each operand is 251 · 2ⁿ here: 251 is a prime, and no number of bf16,
whose significands have 8 bits, is then halfway.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from perfkit.run_folder import Check

if TYPE_CHECKING:
    import torch

    from perfkit.fp8.linear import Linear

    Call = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]  # layers, each with its input

ERROR, SCALE = 0.01, 0.003
LARGEST = 251 / 256  # of an operand, times a power of two
ROWS = 512
# Times the inputs and weights, of the runs before the one that counts: a scale that was kept is too large or too small.
EARLIER = (3.0, 0.25)


def check_layers(model: torch.nn.Module, calling: Callable[[Sequence[Linear]], Call]) -> list[Check]:
    """Check a layer of each shape among the model's layers of fp8; none where it has none.

    `calling` makes a function that runs layers as the program does. It is called with larger and with smaller numbers
    before, so that a scale, a largest value or a weight's cast that was kept is found.
    """
    import torch

    from perfkit.fp8.linear import Linear

    found: dict[tuple[int, ...], tuple[str, Linear]] = {}
    for name, module in model.named_modules():
        if isinstance(module, Linear):
            found.setdefault((*module.weight.shape, module.bias is not None), (name, module))
    if not found:
        return []
    names, layers = zip(*found.values(), strict=True)
    call = calling(layers)
    drawn = [_inputs(layer, seed) for seed, layer in enumerate(layers)]
    for factor in EARLIER:
        with _weights(layers, partial(torch.mul, other=factor)):
            _results(layers, [x * factor for x, _ in drawn], [dy * factor for _, dy in drawn], call)
    checks = []
    with _weights(layers, without_ties):
        results = _results(layers, [x for x, _ in drawn], [dy for _, dy in drawn], call)
        for name, layer, (x, dy), result in zip(names, layers, drawn, results, strict=True):
            for part, exact in _expected(layer, x, dy).items():
                checks += _compared(f"{part} of {name} by itself", result[part], exact)
    return checks


def without_ties(x: torch.Tensor) -> torch.Tensor:
    """Change the first number of `x`, so that `x` divided by its scale has no number halfway between two of fp8."""
    significand, exponent = math.frexp(float(x.abs().max()))
    x[(0,) * x.dim()] = math.ldexp(LARGEST, exponent + (significand > LARGEST))
    return x


@contextmanager
def _weights(layers: Sequence[Linear], change: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Within the block the weights are what `change` makes of a copy of each."""
    import torch

    before = [layer.weight.detach().clone() for layer in layers]
    with torch.no_grad():
        for layer in layers:
            layer.weight.copy_(change(layer.weight.detach().clone()))
    try:
        yield
    finally:
        with torch.no_grad():
            for layer, weight in zip(layers, before, strict=True):
                layer.weight.copy_(weight)


def _inputs(layer: Linear, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """x (N, K) and dy (N, M): normal numbers, but one of each."""
    import torch

    weight = layer.weight
    draw = torch.Generator().manual_seed(seed)
    shapes = (ROWS, weight.shape[1]), (ROWS, weight.shape[0])
    x, dy = (without_ties(torch.randn(shape, generator=draw).to(weight.device, weight.dtype)) for shape in shapes)
    return x, dy


def _results(
    layers: Sequence[Linear], xs: Sequence[torch.Tensor], dys: Sequence[torch.Tensor], call: Call
) -> list[dict[str, torch.Tensor]]:
    """Return what each layer makes of its x and dy."""
    import torch

    with torch.enable_grad():
        given = [x.detach().clone().requires_grad_() for x in xs]
        outputs = call(given)
        found = []
        for layer, x, y, dy in zip(layers, given, outputs, dys, strict=True):
            wanted = {"dx": x, "dW": layer.weight} | ({} if layer.bias is None else {"db": layer.bias})
            gradients = torch.autograd.grad(y, list(wanted.values()), dy, retain_graph=True)
            unbiased = y.detach() if layer.bias is None else y.detach().double() - layer.bias.detach().double()
            found.append({"y": unbiased, **dict(zip(wanted, gradients, strict=True))})
    return found


def _expected(layer: Linear, x: torch.Tensor, dy: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return what the layer should give, computed in fp64 of operands that are rounded here; y without the bias."""
    import torch

    x8, w8 = _rounded(x, torch.float8_e4m3fn), _rounded(layer.weight.detach(), torch.float8_e4m3fn)
    dy8 = _rounded(dy, torch.float8_e5m2)
    found = {"y": x8 @ w8.T, "dx": dy8 @ w8, "dW": dy8.T @ x8}
    return found if layer.bias is None else found | {"db": dy.double().sum(0)}


def _rounded(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The numbers of `dtype` that are nearest to those of `x` with the scale of its largest value, in fp64."""
    import torch

    most = torch.finfo(dtype).max
    scale = x.double().abs().max() / most
    return (x.double() / scale).clamp(-most, most).to(dtype).double() * scale


def _compared(what: str, result: torch.Tensor, exact: torch.Tensor) -> list[Check]:
    """Its error, and its scale."""
    a, r = result.double().flatten(), exact.double().flatten()
    length = float(r @ r) or 1.0
    return [
        _check(what, float((a - r).norm()) / length**0.5, ERROR),
        _check(f"scale of {what}", abs(float(a @ r) / length - 1), SCALE),
    ]


def _check(name: str, error: float, allowed: float) -> Check:
    finite = math.isfinite(error)
    return Check(name, error if finite else None, allowed, None, finite and error <= allowed)
