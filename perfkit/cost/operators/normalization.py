"""Layer, batch, group and RMS normalisation, and softmax: counts per element and per row (one set of statistics).

Per element of a layer norm forward: sum, x−µ, square, sum, ·1/σ = 5, +1 for a weight, +1 for a bias; per row two
divisions by the length, +ε, √ and reciprocal = 5. RMS leaves the mean out: 3 per element, 4 per row.
"""

from __future__ import annotations

from collections.abc import Callable

from perfkit.cost.model import Call, Cost, TensorSpec
from perfkit.cost.registry import Operator, same
from perfkit.cost.shapes import (
    dense,
    integer_at,
    integers_at,
    mask_at,
    number_at,
    product,
    size_along,
    tensor_at,
    vector_unit,
    work,
)


def _forward(
    x: TensorSpec, weight: TensorSpec | None, bias: TensorSpec | None, rows: float, statistics: int, mean: bool = True
) -> Cost:
    """Cost of normalising `x` with `rows` sets of `statistics` saved numbers (fp32 for half types)."""
    per_element = (5 if mean else 3) + (weight is not None) + (bias is not None)
    flop = {vector_unit(x.dtype): float(per_element * x.numel + (5 if mean else 4) * rows)}
    saved = [dense((int(rows),), _statistics_dtype(x))] * statistics
    return work(flop, (x, weight, bias), (dense(x.shape, x.dtype), *saved))


def _statistics_dtype(x: TensorSpec) -> str:
    return "fp64" if x.dtype == "fp64" else "fp32"


def _backward(
    grad: TensorSpec,
    x: TensorSpec,
    statistics: tuple[TensorSpec | None, ...],
    weight: TensorSpec | None,
    wanted: tuple[bool, ...],
    rows: float,
    parameters: int,
    mean: bool = True,
) -> Cost:
    """Cost of the gradients wanted (input, weight, bias), each of which needs the normalised input x̂."""
    n = x.numel
    count = (2 if mean else 1) * n
    if wanted[0]:
        count += (7 if mean else 5) * n + (n if weight is not None else 0)
    count += (2 * n if wanted[1] else 0) + (n if len(wanted) > 2 and wanted[2] else 0)
    flop = {vector_unit(x.dtype): float(count + 2 * rows)}
    dtype = weight.dtype if weight is not None else x.dtype
    gradients = (dense(x.shape, x.dtype), dense((parameters,), dtype), dense((parameters,), dtype))
    written = [g for g, want in zip(gradients, wanted, strict=False) if want]
    return work(flop, (grad, x, *statistics, weight), written)


def _row_length(call: Call, shape_at: int, weight_at: int) -> int:
    """Elements of a row; from the weight where the normalised shape was not recorded (old traces)."""
    weight = tensor_at(call, weight_at)
    return weight.numel if weight is not None else product(integers_at(call, shape_at))


def layer_norm(call: Call) -> Cost:
    """native_layer_norm(x, normalized_shape, weight, bias, eps); layer_norm takes the same."""
    x, inner = call.tensor(0), _row_length(call, 1, 2)
    return _forward(x, tensor_at(call, 2), tensor_at(call, 3), x.numel / inner, 2)


def layer_norm_backward(call: Call) -> Cost:
    """native_layer_norm_backward(grad, x, normalized_shape, mean, rstd, weight, bias, output_mask)."""
    grad, x, inner = call.tensor(0), call.tensor(1), _row_length(call, 2, 5)
    statistics = (tensor_at(call, 3), tensor_at(call, 4))
    return _backward(grad, x, statistics, tensor_at(call, 5), mask_at(call, 7, 3), x.numel / inner, inner)


def rms_norm(call: Call) -> Cost:
    """_fused_rms_norm(x, normalized_shape, weight, eps)."""
    x, inner = call.tensor(0), _row_length(call, 1, 2)
    return _forward(x, tensor_at(call, 2), None, x.numel / inner, 1, mean=False)


def rms_norm_backward(call: Call) -> Cost:
    """_fused_rms_norm_backward(grad, x, normalized_shape, rstd, weight, output_mask)."""
    grad, x, inner = call.tensor(0), call.tensor(1), _row_length(call, 2, 4)
    wanted, weight = mask_at(call, 5, 2), tensor_at(call, 4)
    return _backward(grad, x, (tensor_at(call, 3),), weight, wanted, x.numel / inner, inner, mean=False)


def group_norm(call: Call) -> Cost:
    """native_group_norm(x, weight, bias, N, C, HxW, groups, eps)."""
    rows = integer_at(call, 3) * integer_at(call, 6)
    return _forward(call.tensor(0), tensor_at(call, 1), tensor_at(call, 2), rows, 2)


def group_norm_backward(call: Call) -> Cost:
    """native_group_norm_backward(grad, x, mean, rstd, weight, N, C, HxW, groups, output_mask)."""
    grad, x, channels = call.tensor(0), call.tensor(1), integer_at(call, 6)
    statistics, rows = (tensor_at(call, 2), tensor_at(call, 3)), integer_at(call, 5) * integer_at(call, 8)
    return _backward(grad, x, statistics, tensor_at(call, 4), mask_at(call, 9, 3), rows, channels)


def batch_norm(call: Call) -> Cost:
    """batch_norm(x (N,C,…), weight, bias, running_mean, running_var, training, …).

    Training updates the running statistics (6 a channel); inference only subtracts, scales and shifts.
    """
    x, weight, bias = call.tensor(0), tensor_at(call, 1), tensor_at(call, 2)
    running = (tensor_at(call, 3), tensor_at(call, 4))
    channels = x.shape[1]
    if "no_training" not in call.name and number_at(call, 5, 1):
        update = {vector_unit(x.dtype): 6.0 * channels} if running[0] is not None else {}
        return _forward(x, weight, bias, channels, 2) + work(update, running, running)
    count = (2 + (weight is not None) + (bias is not None)) * x.numel + 3 * channels
    return work({vector_unit(x.dtype): float(count)}, (x, weight, bias, *running), (dense(x.shape, x.dtype),))


def batch_norm_backward(call: Call) -> Cost:
    """native_batch_norm_backward(grad, x, weight, running mean and var, saved mean and 1/σ, train, eps, mask)."""
    grad, x, channels = call.tensor(0), call.tensor(1), call.tensor(1).shape[1]
    statistics = (tensor_at(call, 5), tensor_at(call, 6))
    return _backward(grad, x, statistics, tensor_at(call, 2), mask_at(call, 9, 3), channels, channels)


def library_batch_norm_backward(call: Call) -> Cost:
    """*_batch_norm_backward(x, grad, weight, running_mean, running_var, save_mean, save_var, …): all gradients."""
    grad, x, channels = call.tensor(1), call.tensor(0), call.tensor(0).shape[1]
    statistics = (tensor_at(call, 5), tensor_at(call, 6))
    return _backward(grad, x, statistics, tensor_at(call, 2), (True,) * 3, channels, channels)


# Their third argument says that half-precision input gives an fp32 result.
_HALF_TO_FLOAT = ("aten::_softmax", "aten::_log_softmax")


def _softmax(per_element: int, per_row: int, operands: int) -> Callable[[Call], Cost]:
    """Softmax family: rows along the integer argument after the operands; the result has the first one's shape."""

    def cost(call: Call) -> Cost:
        inputs = [call.tensor(i) for i in range(operands)]
        x = inputs[0]
        rows = x.numel / max(size_along(x, integer_at(call, operands)), 1)
        to_fp32 = call.name in _HALF_TO_FLOAT and number_at(call, 2, 0)
        out = dense(x.shape, "fp32" if to_fp32 else x.dtype)
        return work({vector_unit(x.dtype): per_element * x.numel + per_row * rows}, inputs, (out,))

    return cost


_NORM = "5 + weight 1 + bias 1 per element; 5 a row"
_NORM_BACKWARD = (
    "x̂ 2, input gradient 7 (two row sums with one product 3, ·x̂ mean, two subtractions, ·1/σ) + weight 1, weight "
    "gradient 2, bias gradient 1 per element; 2 a row"
)
_IO = "input, weight, bias; output and statistics"
_IO_BACKWARD = "gradient, input, statistics, weight; the gradients wanted"


def weight_norm(call: Call) -> Cost:
    """_weight_norm_interface(v, g, dim): w = v·(g/‖v‖) with a norm for each element of g, which is returned too."""
    v, g = call.tensor(0), call.tensor(1)
    norms = dense(g.shape, _statistics_dtype(v))
    return work({vector_unit(v.dtype): 3.0 * v.numel + 2 * g.numel}, (v, g), (dense(v.shape, v.dtype), norms))


def weight_norm_backward(call: Call) -> Cost:
    """_weight_norm_interface_backward(grad, v, g, norms, dim): gradients of v and g."""
    v, g = call.tensor(1), call.tensor(2)
    read = (call.tensor(0), v, g, call.tensor(3))
    return work(
        {vector_unit(v.dtype): 5.0 * v.numel + 4 * g.numel}, read, (dense(v.shape, v.dtype), dense(g.shape, g.dtype))
    )


def operators() -> list[Operator]:
    """Every normalisation and softmax operator."""
    family = "normalization"
    batch = "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional cudnn_batch_norm"
    library = "cudnn_batch_norm_backward miopen_batch_norm_backward"
    return [
        *same("native_layer_norm", family, layer_norm, _NORM, _IO),
        *same("layer_norm", family, layer_norm, _NORM, _IO, kind="dispatch"),
        *same("native_layer_norm_backward", family, layer_norm_backward, _NORM_BACKWARD, _IO_BACKWARD),
        *same("native_group_norm", family, group_norm, _NORM, _IO),
        *same("native_group_norm_backward", family, group_norm_backward, _NORM_BACKWARD, _IO_BACKWARD),
        *same(f"{batch} miopen_batch_norm _native_batch_norm_legit_no_training", family, batch_norm,
              "training: " + _NORM + " + 6 a channel for running statistics; inference: 2 + weight 1 + bias 1 per "
              "element, 3 a channel", _IO + ", running statistics"),
        *same("native_batch_norm_backward", family, batch_norm_backward, _NORM_BACKWARD, _IO_BACKWARD),
        *same(library, family, library_batch_norm_backward, _NORM_BACKWARD, _IO_BACKWARD),
        *same("_fused_rms_norm", family, rms_norm, "3 + weight 1 per element; 4 a row", _IO, delegates=("mul", "pow")),
        *same("_fused_rms_norm_backward", family, rms_norm_backward,
              "x̂ 1, input gradient 5 (product and row sum 2, ·x̂ mean, subtract, ·1/σ) + weight 1, weight gradient 2 "
              "per element; 2 a row", _IO_BACKWARD, delegates=("mul",)),
        *same("_weight_norm_interface", family, weight_norm,
              "3 per element (square, sum, ·g/‖v‖); 2 a norm (√, divide)", "v, g; weight, norms"),
        *same("_weight_norm_interface_backward", family, weight_norm_backward,
              "5 per element (·v, sum, ·v, subtract, ·g/‖v‖); 4 a norm",
              "weight gradient, v, g, norms; both gradients"),
        *same("_softmax _safe_softmax", "softmax", _softmax(5, 0, 1), "5 per element (max, subtract, exp, sum, divide)",
              "input; output", delegates=("_softmax",)),
        *same("softmax", "softmax", _softmax(5, 0, 1), "5 per element (max, subtract, exp, sum, divide)",
              "input; output", kind="dispatch"),
        *same("_log_softmax", "softmax", _softmax(5, 1, 1),
              "5 per element (max, subtract, exp, sum, subtract the log), 1 log a row", "input; output"),
        *same("log_softmax", "softmax", _softmax(5, 1, 1),
              "5 per element (max, subtract, exp, sum, subtract the log), 1 log a row", "input; output",
              kind="dispatch"),
        *same("_softmax_backward_data", "softmax", _softmax(4, 0, 2),
              "4 per element (g·y, row sum, subtract, ·y)", "gradient, output; input gradient"),
        *same("_log_softmax_backward_data", "softmax", _softmax(4, 0, 2),
              "4 per element (row sum, exp, ·sum, subtract)", "gradient, output; input gradient"),
    ]  # fmt: skip
