"""Operators that take values between positions or by windows: interpolation, grid sampling, columns of images.

Interpolation along an axis is a weighted sum of t neighbours (t = 2 linear, 4 cubic): t multiplications and t − 1
additions. Along several axes it is nested, the last axis first. Its gradient scales by each axis' weights in turn and
adds to every neighbour. The weights depend on positions alone and are not counted, but for grids, where each location
has its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from perfkit.cost.model import Call, Cost
from perfkit.cost.registry import Operator, same
from perfkit.cost.shapes import dense, integer_at, integers_at, mask_at, movement, vector_unit, work

_BILINEAR, _NEAREST = 0, 1  # of grid sampling: its argument `interpolation_mode`
_LOCATION = 16  # to pixels (6), floor (2), distances to both neighbours (4), four weights (4)
_NEAREST_LOCATION = 8  # to pixels, rounded


def nearest(call: Call) -> Cost:
    """upsample_nearest2d(x, output sizes, …): each input element read once."""
    x, sizes = call.tensor(0), integers_at(call, 1)
    return movement((x,), (dense((*x.shape[: -len(sizes)], *sizes), x.dtype),))


def nearest_backward(call: Call) -> Cost:
    """upsample_nearest2d_backward(grad, output sizes, input sizes, …): each gradient element added once."""
    grad = call.tensor(0)
    return work({vector_unit(grad.dtype): float(grad.numel)}, (grad,), (dense(integers_at(call, 2), grad.dtype),))


def weighted_flop(taps: int, axes: int) -> int:
    """FLOP of one interpolated element from `taps` neighbours along each of `axes`."""
    return sum(taps**axis * (2 * taps - 1) for axis in range(axes))


def scattered_flop(taps: int, axes: int) -> int:
    """FLOP of one gradient element that goes to `taps` neighbours along each of `axes`."""
    return sum(taps ** (axis + 1) for axis in range(axes)) + taps**axes


def interpolation(taps: int) -> Callable[[Call], Cost]:
    """upsample_bilinear2d(x, output sizes, …) and others with `taps` neighbours along each axis."""

    def cost(call: Call) -> Cost:
        x, sizes = call.tensor(0), integers_at(call, 1)
        y = dense((*x.shape[: -len(sizes)], *sizes), x.dtype)
        return work({vector_unit(x.dtype): float(weighted_flop(taps, len(sizes)) * y.numel)}, (x,), (y,))

    return cost


def interpolation_backward(taps: int) -> Callable[[Call], Cost]:
    """upsample_bilinear2d_backward(grad, output sizes, input sizes, …) and others."""

    def cost(call: Call) -> Cost:
        grad, axes = call.tensor(0), len(integers_at(call, 1))
        flop = {vector_unit(grad.dtype): float(scattered_flop(taps, axes) * grad.numel)}
        return work(flop, (grad,), (dense(integers_at(call, 2), grad.dtype),))

    return cost


def grid_sample(call: Call) -> Cost:
    """grid_sampler_2d(x (B,C,H,W), grid (B,H′,W′,2), mode, …): four weighted neighbours, or the nearest one."""
    x, grid = call.tensor(0), call.tensor(1)
    y = dense((*x.shape[:2], *grid.shape[1:3]), x.dtype)
    each, location = _of_mode(integer_at(call, 2), 7, _LOCATION)
    return work({vector_unit(x.dtype): each * y.numel + location * math.prod(grid.shape[:3])}, (x, grid), (y,))


def grid_sample_backward(call: Call) -> Cost:
    """grid_sampler_2d_backward(grad, x, grid, mode, padding, align, output mask).

    Bilinear: 8 FLOP an element for the gradient of x, and for that of the grid 24 an element and 4 a location.
    """
    grad, x, grid = call.tensor(0), call.tensor(1), call.tensor(2)
    of_x, of_grid = mask_at(call, 6, 2)
    each, location = _of_mode(integer_at(call, 3), 8 * of_x + 24 * of_grid, _LOCATION + 4 * of_grid)
    flop = {vector_unit(x.dtype): each * grad.numel + location * math.prod(grid.shape[:3])}
    written = [tensor for tensor, wanted in ((x, of_x), (grid, of_grid)) if wanted]
    return work(flop, (grad, x, grid), [dense(t.shape, t.dtype) for t in written])


def _of_mode(mode: int, each: float, location: float) -> tuple[float, float]:
    """FLOP an element and a location; raises `ValueError` for bicubic sampling, which is not counted."""
    if mode == _NEAREST:
        return 0.0, float(_NEAREST_LOCATION)
    if mode != _BILINEAR:
        raise ValueError("bicubic grid sampling has no formula")
    return float(each), float(location)


def image_to_columns(call: Call) -> Cost:
    """im2col(x (B,C,H,W), kernel, dilation, padding, stride) → (B, C·kh·kw, L windows)."""
    x, kernel = call.tensor(0), integers_at(call, 1, 2)
    dilation, padding, stride = (integers_at(call, i, 2) for i in (2, 3, 4))
    windows = [
        (size + 2 * pad - wide * (taps - 1) - 1) // step + 1
        for size, taps, wide, pad, step in zip(x.shape[-2:], kernel, dilation, padding, stride, strict=True)
    ]
    columns = (*x.shape[:-3], x.shape[-3] * math.prod(kernel), math.prod(windows))
    return movement((x,), (dense(columns, x.dtype),))


def columns_to_image(call: Call) -> Cost:
    """col2im(x (B, C·kh·kw, L), output size, kernel, …) → (B,C,H,W): each element added once."""
    x, sizes, kernel = call.tensor(0), integers_at(call, 1, 2), integers_at(call, 2, 2)
    image = dense((*x.shape[:-2], x.shape[-2] // math.prod(kernel), *sizes), x.dtype)
    return work({vector_unit(x.dtype): float(x.numel)}, (x,), (image,))


def windows_backward(call: Call) -> Cost:
    """unfold_backward(grad, input sizes, …): each gradient element added once."""
    grad = call.tensor(0)
    return work({vector_unit(grad.dtype): float(grad.numel)}, (grad,), (dense(integers_at(call, 1), grad.dtype),))


_IN, _OUT = "input; output", "output gradient; input gradient"


def operators() -> list[Operator]:
    """Interpolation, grid sampling and columns, with their gradients."""
    found = [
        *same("upsample_nearest1d upsample_nearest2d upsample_nearest3d", "copy", nearest, "0", _IN),
        *same("upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward", "copy",
              nearest_backward, "1 an output gradient element", _OUT),
        *same("im2col", "copy", image_to_columns, "0", "input; columns"),
        *same("col2im", "reduction", columns_to_image, "1 an element of the columns", "columns; image"),
        *same("unfold_backward", "reduction", windows_backward, "1 an output gradient element", _OUT),
        *same("grid_sampler_2d", "elementwise", grid_sample,
              "bilinear: 7 an element, 16 a location; nearest: 8 a location", "input and grid; output"),
        *same("grid_sampler_2d_backward", "elementwise", grid_sample_backward,
              "bilinear: 8 (of x) and 24 (of the grid) an element, 16 and 4 a location; nearest: 8 a location",
              "output gradient, input and grid; gradients that are wanted"),
    ]  # fmt: skip
    for name, taps, axes in (("linear1d", 2, 1), ("bilinear2d", 2, 2), ("trilinear3d", 2, 3), ("bicubic2d", 4, 2)):
        flop, back = weighted_flop(taps, axes), scattered_flop(taps, axes)
        found += same(f"upsample_{name}", "elementwise", interpolation(taps), f"{flop} an output element", _IN)
        found += same(f"upsample_{name}_backward", "elementwise", interpolation_backward(taps),
                      f"{back} an output gradient element", _OUT)  # fmt: skip
    return found
