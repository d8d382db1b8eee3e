"""Convolutions and pooling.

N batch, O output channels, I input channels, G groups, K elements of the filter window, S output positions (for a
transposed convolution the input's). The matrix FLOP are FlopCounterMode's: 2·N·S·O·(I/G)·K = 2·N·S·(weight elements).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from perfkit.cost.model import Call, Cost, TensorSpec
from perfkit.cost.registry import Operator, same
from perfkit.cost.shapes import (
    dense,
    integers_at,
    mask_at,
    matrix_unit,
    movement,
    number_at,
    product,
    tensor_at,
    vector_unit,
    work,
)


def output_sizes(
    sizes: Sequence[int], window: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> tuple[int, ...]:
    """Output positions along each spatial dimension of a convolution or a pooling (rounded down)."""
    return tuple(
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, s, p, d in zip(sizes, window, stride, padding, dilation, strict=True)
    )


def _transposed_sizes(call: Call, x: TensorSpec, weight: TensorSpec, places: tuple[int, ...]) -> tuple[int, ...]:
    n = len(x.shape) - 2
    stride, padding, dilation, extra = (integers_at(call, place, n) for place in places)
    window = zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, extra, strict=True)
    return tuple((size - 1) * s - 2 * p + d * (k - 1) + e + 1 for size, k, s, p, d, e in window)


def _forward_cost(
    call: Call, x: TensorSpec, weight: TensorSpec, bias: TensorSpec | None, out: TensorSpec, positions: int
) -> Cost:
    flop = {matrix_unit(x.dtype, call.matmul_precision): 2.0 * x.shape[0] * positions * weight.numel}
    flop[vector_unit(x.dtype)] = float(out.numel if bias is not None else 0)
    return work(flop, (x, weight, bias), (out,))


def direct(bias_at: int | None, stride_at: int, padding_at: int, dilation_at: int | None) -> Callable[[Call], Cost]:
    """A convolution that is never transposed, with the arguments at these places (input 0, weight 1)."""

    def cost(call: Call) -> Cost:
        """Return the cost of one call."""
        x, weight = call.tensor(0), call.tensor(1)
        n = len(x.shape) - 2
        dilation = integers_at(call, dilation_at, n) if dilation_at is not None else (1,) * n
        stride, padding = integers_at(call, stride_at, n), integers_at(call, padding_at, n)
        sizes = output_sizes(x.shape[2:], weight.shape[2:], stride, padding, dilation)
        out = dense((x.shape[0], weight.shape[0], *sizes), x.dtype)
        bias = tensor_at(call, bias_at) if bias_at is not None else None
        return _forward_cost(call, x, weight, bias, out, product(sizes))

    return cost


def convolution(call: Call) -> Cost:
    """convolution(x (N,I,…), weight, bias, stride, padding, dilation, transposed, output_padding, groups).

    The weight is (O,I/G,…), transposed (I,O/G,…).
    """
    if not number_at(call, 6, 0):
        return direct(2, 3, 4, 5)(call)
    x, weight = call.tensor(0), call.tensor(1)
    groups = int(number_at(call, 8, 1))
    sizes = _transposed_sizes(call, x, weight, (3, 4, 5, 7))
    out = dense((x.shape[0], weight.shape[1] * groups, *sizes), x.dtype)
    return _forward_cost(call, x, weight, tensor_at(call, 2), out, product(x.shape[2:]))


def transposed(padding_at: int) -> Callable[[Call], Cost]:
    """*_convolution_transpose(x (N,I,…), weight (I,O/G,…), …, padding, output_padding, stride, dilation, groups)."""

    def cost(call: Call) -> Cost:
        """Return the cost of one call."""
        x, weight = call.tensor(0), call.tensor(1)
        sizes = _transposed_sizes(call, x, weight, (padding_at + 2, padding_at, padding_at + 3, padding_at + 1))
        out = dense((x.shape[0], weight.shape[1] * int(number_at(call, padding_at + 4, 1)), *sizes), x.dtype)
        return _forward_cost(call, x, weight, None, out, product(x.shape[2:]))

    return cost


def added_relu(call: Call) -> Cost:
    """*_convolution_add_relu(x, weight, z (like the output), alpha, bias, stride, padding, dilation, groups)."""
    return direct(4, 5, 6, 7)(call) + movement((call.tensor(2),), ())


def convolution_backward(call: Call) -> Cost:
    """convolution_backward(grad, x, weight, bias_sizes, stride, …, transposed at 7, …, output_mask at 10).

    Each wanted gradient of input and weight costs the forward product; the bias gradient one addition an element.
    """
    return _backward_cost(call, mask_at(call, 10, 3), transposed=bool(number_at(call, 7, 0)))


def backward_parts(call: Call) -> Mapping[str, float]:
    """Return half of the cost for the kernel of each gradient if both are wanted: they do the same work."""
    return {_OF_INPUT: 0.5, _OF_WEIGHT: 0.5} if all(mask_at(call, 10, 3)[:2]) else {}


def slow_backward(call: Call) -> Cost:
    """_slow_conv2d_backward(grad, x, weight, window, stride, padding, output_mask): what a CPU runs without oneDNN."""
    return _backward_cost(call, mask_at(call, 6, 3), transposed=False)


def _backward_cost(call: Call, wanted: tuple[bool, ...], transposed: bool) -> Cost:
    grad, x, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    positions = product((x if transposed else grad).shape[2:])
    one = 2.0 * x.shape[0] * positions * weight.numel
    flop = {matrix_unit(x.dtype, call.matmul_precision): one * (wanted[0] + wanted[1])}
    flop[vector_unit(x.dtype)] = float(grad.numel if wanted[2] else 0)
    gradients = (dense(x.shape, x.dtype), dense(weight.shape, weight.dtype), dense((grad.shape[1],), grad.dtype))
    read = (grad, weight if wanted[0] else None, x if wanted[1] else None)
    return work(flop, read, [g for g, want in zip(gradients, wanted, strict=True) if want])


def _pooled(call: Call, dilation_at: int | None) -> tuple[TensorSpec, tuple[int, ...]]:
    """Output of pool(x, window, stride, padding, …) and its window."""
    x = call.tensor(0)
    window = integers_at(call, 1)
    n = len(window)
    stride = integers_at(call, 2, n) or window
    dilation = integers_at(call, dilation_at, n) if dilation_at is not None else (1,) * n
    sizes = output_sizes(x.shape[-n:], window, stride, integers_at(call, 3, n), dilation)
    return dense((*x.shape[:-n], *sizes), x.dtype), window


def max_pool(call: Call) -> Cost:
    """max_pool(x, window, stride, padding, dilation, …) with indices (int64)."""
    out, window = _pooled(call, 4)
    flop = {vector_unit(out.dtype): float(out.numel * product(window))}
    return work(flop, (call.tensor(0),), (out, dense(out.shape, "int64")))


def max_pool1d(call: Call) -> Cost:
    """max_pool1d(x, window, stride, padding, dilation, …) without indices, which a CPU has a kernel for."""
    out, window = _pooled(call, 4)
    return work({vector_unit(out.dtype): float(out.numel * product(window))}, (call.tensor(0),), (out,))


def average_pool(call: Call) -> Cost:
    """avg_pool(x, window, stride, padding, …): the window's sum and one division."""
    out, window = _pooled(call, None)
    return work({vector_unit(out.dtype): float(out.numel * (product(window) + 1))}, (call.tensor(0),), (out,))


def adaptive_pool(call: Call) -> Cost:
    """_adaptive_avg_pool(x, output sizes): one addition an input element, one division an output."""
    x = call.tensor(0)
    sizes = integers_at(call, 1)
    out = dense((*x.shape[: -len(sizes)], *sizes), x.dtype)
    return work({vector_unit(x.dtype): float(x.numel + out.numel)}, (x,), (out,))


def adaptive_max_pool(call: Call) -> Cost:
    """adaptive_max_pool(x, output sizes) with indices (int64): one comparison an input element."""
    x = call.tensor(0)
    sizes = integers_at(call, 1)
    out = dense((*x.shape[: -len(sizes)], *sizes), x.dtype)
    return work({vector_unit(x.dtype): float(x.numel)}, (x,), (out, dense(out.shape, "int64")))


def pool_backward(call: Call) -> Cost:
    """pool_backward(grad, x, …[, indices]): one operation an element of the larger side; x itself is not read."""
    grad, x = call.tensor(0), call.tensor(1)
    indices = next((t for t in call.tensors[2:] if t.dtype == "int64"), None)
    count = max(grad.numel, x.numel) if indices is None else grad.numel
    return work({vector_unit(grad.dtype): float(count)}, (grad, indices), (dense(x.shape, x.dtype),))


# Names of the kernels of the two gradients: cuDNN dgrad and wgrad, PyTorch, MIOpen and Composable Kernel the others.
_OF_INPUT = r"dgrad|backward_input|depthwise\w*_backward|igemm_bwd|conv_bwd_data"
_OF_WEIGHT = r"wgrad|grad_weight|igemm_wrw|conv_bwd_weight"

_CONV = "2·N·S·O·(I/G)·K + output elements for the bias"
_IO = "input, weight, bias; output"
_BACKWARD = "2·N·S·O·(I/G)·K for each of input and weight gradient + output elements for the bias gradient"
_WANTED = "output gradient, and input or weight where needed; the gradients wanted"


def operators() -> list[Operator]:
    """Every convolution and pooling operator."""
    mkldnn, cudnn, slow = direct(2, 4, 3, 5), direct(None, 3, 2, 4), direct(3, 4, 5, None)
    depthwise, nnpack = direct(3, 4, 5, 6), direct(2, 4, 3, None)
    return [
        *same("convolution _convolution", "convolution", convolution, _CONV, _IO, kind="dispatch"),
        *same("convolution_overrideable", "convolution", convolution, _CONV, _IO),
        *same("mkldnn_convolution mkldnn::_convolution_pointwise", "convolution", mkldnn, _CONV, _IO),
        *same("cudnn_convolution", "convolution", cudnn, _CONV, _IO),
        *same("cudnn_convolution_transpose", "convolution", transposed(2), _CONV, _IO),
        # MIOpen's have the bias among their arguments, and add it by an operator of its own.
        *same("miopen_convolution miopen_depthwise_convolution", "convolution", direct(None, 4, 3, 5), _CONV, _IO),
        *same("miopen_convolution_transpose", "convolution", transposed(3), _CONV, _IO),
        *same("cudnn_convolution_relu miopen_convolution_relu", "convolution", direct(2, 3, 4, 5), _CONV, _IO),
        *same("cudnn_convolution_add_relu miopen_convolution_add_relu", "convolution", added_relu, _CONV,
              "input, weight, bias and what is added; output"),
        *same("_slow_conv2d_forward slow_conv3d_forward", "convolution", slow, _CONV, _IO),
        *same("_nnpack_spatial_convolution", "convolution", nnpack, _CONV, _IO),
        *same("_conv_depthwise2d conv_depthwise3d slow_conv_dilated2d", "convolution", depthwise, _CONV, _IO),
        *same("convolution_backward", "convolution", convolution_backward, _BACKWARD, _WANTED, parts=backward_parts,
              delegates=("_slow_conv2d_backward",)),
        *same("_slow_conv2d_backward", "convolution", slow_backward, _BACKWARD, _WANTED),
        *same("adaptive_max_pool2d adaptive_max_pool3d", "reduction", adaptive_max_pool, "1 an input",
              "input; output and int64 indices"),
        *same("max_pool2d_with_indices max_pool3d_with_indices", "reduction", max_pool, "K an output",
              "input; output and int64 indices"),
        *same("max_pool1d", "reduction", max_pool1d, "K an output", "input; output", kind="dispatch"),
        *same("avg_pool2d avg_pool3d", "reduction", average_pool, "K + 1 an output", "input; output"),
        *same("_adaptive_avg_pool2d _adaptive_avg_pool3d", "reduction", adaptive_pool, "1 an input + 1 an output",
              "input; output"),
        *same(
            "max_pool2d_with_indices_backward max_pool3d_with_indices_backward avg_pool2d_backward "
            "_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward adaptive_max_pool2d_backward "
            "adaptive_max_pool3d_backward",
            "reduction", pool_backward, "1 an element of the gradient (with indices) or of the larger side",
            "gradient and indices; input gradient",
        ),
    ]  # fmt: skip
