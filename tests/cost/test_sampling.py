"""Interpolation, grid sampling and columns: the formulas by hand, the bytes by what PyTorch returns."""

from __future__ import annotations

from typing import Any

import pytest

from perfkit.cost import Argument, Call, CostModel, TensorSpec
from perfkit.cost.operators.sampling import scattered_flop, weighted_flop

torch = pytest.importorskip("torch")
aten = torch.ops.aten


@pytest.mark.parametrize(
    ("taps", "axes", "forward", "backward"),
    [
        (2, 1, 2 + 1, 2 + 2),
        (2, 2, 2 * (2 + 1) + (2 + 1), 2 + 4 + 4),
        (2, 3, 4 * 3 + 2 * 3 + 3, 2 + 4 + 8 + 8),
        (4, 2, 4 * (4 + 3) + (4 + 3), 4 + 16 + 16),
    ],
)
def test_an_interpolated_element_by_hand(taps: int, axes: int, forward: int, backward: int) -> None:
    assert (weighted_flop(taps, axes), scattered_flop(taps, axes)) == (forward, backward)


def spec(value: Any) -> Argument:
    if isinstance(value, torch.Tensor):
        return TensorSpec(tuple(value.shape), "fp32", value.stride())
    return tuple(value) if isinstance(value, list) else value


x = torch.randn(2, 3, 8, 6)
grid = torch.rand(2, 5, 4, 2) * 2 - 1
CASES: dict[str, tuple[Any, tuple[Any, ...], float]] = {
    "upsample_linear1d": (aten.upsample_linear1d, (x[0], [9], False), 3 * 3 * 8 * 9),
    "upsample_bilinear2d": (aten.upsample_bilinear2d, (x, [16, 9], False), 9 * 6 * 16 * 9),
    "upsample_bilinear2d_backward": (
        aten.upsample_bilinear2d_backward,
        (torch.randn(2, 3, 16, 9), [16, 9], [2, 3, 8, 6], False),
        10 * 6 * 16 * 9,
    ),
    "upsample_bicubic2d": (aten.upsample_bicubic2d, (x, [16, 9], False), 35 * 6 * 16 * 9),
    "upsample_trilinear3d": (aten.upsample_trilinear3d, (x[None], [4, 4, 4], False), 21 * 2 * 64),
    "upsample_nearest2d": (aten.upsample_nearest2d, (x, [16, 9]), 0),
    "im2col": (aten.im2col, (x, [3, 2], [1, 2], [1, 0], [2, 1]), 0),
    "col2im": (aten.col2im, (torch.randn(2, 27, 48), [8, 6], [3, 3], [1, 1], [1, 1], [1, 1]), 2 * 27 * 48),
    "unfold_backward": (aten.unfold_backward, (torch.randn(2, 3, 8, 2, 4), [2, 3, 8, 6], 3, 4, 2), 2 * 3 * 8 * 2 * 4),
    "grid_sampler_2d": (aten.grid_sampler_2d, (x, grid, 0, 0, False), 7 * 2 * 3 * 20 + 16 * 2 * 20),
    "grid_sampler_2d, nearest": (aten.grid_sampler_2d, (x, grid, 1, 0, False), 8 * 2 * 20),
    "grid_sampler_2d_backward": (
        aten.grid_sampler_2d_backward,
        (torch.randn(2, 3, 5, 4), x, grid, 0, 0, False, [True, True]),
        32 * 2 * 3 * 20 + 20 * 2 * 20,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_work_and_bytes(name: str) -> None:
    function, arguments, flop = CASES[name]
    cost = CostModel().cost(Call(f"aten::{name.split(',')[0]}", tuple(map(spec, arguments))))
    assert cost is not None and cost.total_flop == flop
    assert cost.bytes_read == 4 * sum(a.numel() for a in arguments if isinstance(a, torch.Tensor))
    found = function(*arguments)
    assert cost.bytes_written == 4 * sum(t.numel() for t in (found if isinstance(found, tuple) else (found,)))


def test_a_gradient_that_is_not_wanted_costs_nothing() -> None:
    arguments = tuple(map(spec, (torch.randn(2, 3, 5, 4), x, grid, 0, 0, False, [True, False])))
    cost = CostModel().cost(Call("aten::grid_sampler_2d_backward", arguments))
    assert cost is not None and cost.bytes_written == 4 * x.numel()
    assert cost.total_flop == 8 * 2 * 3 * 20 + 16 * 2 * 20


def test_bicubic_grids_have_no_cost() -> None:
    assert CostModel().cost(Call("aten::grid_sampler_2d", tuple(map(spec, (x, grid, 2, 0, False))))) is None
