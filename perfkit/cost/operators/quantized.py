"""Products with weights of few bits, as PyTorch's quantized operators have them.

M rows of the input, N outputs, K inputs. A product in 8 bits runs on `matrix_int8`; where only the weights have few
bits, they are widened, and it runs in the input's precision. Weights count the bytes that they have.
"""

from __future__ import annotations

from perfkit.cost.model import Call, Cost, TensorSpec
from perfkit.cost.registry import Operator, same
from perfkit.cost.shapes import dense, integer_at, matrix_unit, product, tensor_at, tensors_at, vector_unit, work

_GATES = {"lstm": 4, "gru": 3}


def _weight_only(call: Call, columns: int, weight: TensorSpec, *scales: TensorSpec | None) -> Cost:
    x = call.tensor(0)
    rows = product(x.shape[:-1])
    flop = {matrix_unit(x.dtype, call.matmul_precision): 2.0 * rows * columns * x.shape[-1]}
    return work(flop, (x, weight, *scales), (dense((*x.shape[:-1], columns), x.dtype),))


def int8_weights(call: Call) -> Cost:
    """_weight_int8pack_mm(x (M,K), weight (N,K) int8, scales (N)): one scaling a result."""
    x, weight, scales = (call.tensor(i) for i in range(3))
    if weight.shape[-1] != x.shape[-1]:
        raise ValueError("the inner sizes of a product differ")
    cost = _weight_only(call, weight.shape[0], weight, scales)
    return cost + Cost({vector_unit(x.dtype): float(product(x.shape[:-1]) * weight.shape[0])})


def int4_weights(call: Call) -> Cost:
    """_weight_int4pack_mm(x (M,K), packed weight, group, scales and zeros, …): two weights a byte, so N is theirs."""
    x, weight = call.tensor(0), call.tensor(1)
    columns, rest = divmod(2 * weight.nbytes, x.shape[-1])
    if rest:
        raise ValueError("the packed weights do not fit the input")
    return _weight_only(call, columns, weight, tensor_at(call, 3), tensor_at(call, 4))


def dynamic_int4(call: Call) -> Cost:
    """_dyn_quant_matmul_4bit(x (M,K), packed weight and scales, block, K, N)."""
    return _weight_only(call, integer_at(call, 4), call.tensor(1))


def linear(call: Call) -> Cost:
    """quantized::linear(x (…,K), weight (N,K), …): the weight is packed, N that of what the operator allocates."""
    x, weight = call.tensor(0), call.tensor(1)
    if x.shape[-1] != weight.shape[-1]:
        raise ValueError("the inner sizes of a product differ")
    results = float(product(x.shape[:-1]) * weight.shape[0])
    flop = {matrix_unit(weight.dtype if weight.dtype == "int8" else x.dtype, "fp32"): 2.0 * results * x.shape[-1]}
    if weight.dtype == "int8":
        flop["vector_fp32"] = results + (x.numel if x.dtype == "fp32" else 0)  # each is scaled; x is rounded first
    return work(flop, (x, weight), (dense((*x.shape[:-1], weight.shape[0]), x.dtype),))


def prepacked(call: Call) -> Cost:
    """onednn::qlinear_pointwise(x (M,K) uint8, scale, zero, weight (K,N) int8, …)."""
    x, weight = call.tensor(0), call.tensor(3)
    columns = weight.numel // x.shape[-1]
    results = product(x.shape[:-1]) * columns
    flop = {"matrix_int8": 2.0 * results * x.shape[-1], "vector_fp32": float(results)}
    return work(flop, (x, weight), (dense((*x.shape[:-1], columns), x.dtype),))


def recurrent(call: Call) -> Cost:
    """quantized_lstm(x (T,B,I), state, packed weights, biases, layers, dropout, train, bidirectional, …).

    The gates are operators of their own. The state of an LSTM is a list, (layers · directions, B, H) each.
    """
    x, kind = call.tensor(0), call.name.rpartition("_")[2]
    state = tensors_at(call, 1)[0] if kind == "lstm" else call.tensor(1)
    directions = 2 if call.arguments[7] is True else 1
    hidden, layers = state.shape[-1], state.shape[0] // directions
    inputs = x.shape[-1] + (layers - 1) * directions * hidden + layers * hidden
    weights = float(directions * _GATES[kind] * hidden * inputs)
    out = dense((*x.shape[:-1], directions * hidden), x.dtype)
    flop = {"matrix_int8": 2.0 * product(x.shape[:-1]) * weights}
    return work(flop, (x, state, TensorSpec((int(weights),), "int8")), (out, state))


def rounding(call: Call) -> Cost:
    """quantize_per_tensor(x, scale, zero, …) and back: scale and shift an element."""
    x = call.tensor(0)
    back = x.dtype in ("int8", "uint8")
    return work({"vector_fp32": 2.0 * x.numel}, (x,), (dense(x.shape, "fp32" if back else "uint8"),))


LINEAR = (
    "quantized::linear quantized::linear_relu quantized::linear_dynamic quantized::linear_relu_dynamic "
    "quantized::linear_leaky_relu quantized::linear_tanh"
)


def operators() -> list[Operator]:
    """Every product with weights of few bits, and the conversions around them."""
    read = "input, weight, scales; result"
    return [
        *same("_weight_int8pack_mm", "matmul", int8_weights, "2·M·N·K + M·N scaling", read),
        *same("_weight_int4pack_mm _weight_int4pack_mm_for_cpu _weight_int4pack_mm_with_scales_and_zeros", "matmul",
              int4_weights, "2·M·N·K", read),
        *same("_dyn_quant_matmul_4bit", "matmul", dynamic_int4, "2·M·N·K", read),
        *same(LINEAR, "matmul", linear, "2·M·N·K + M·N scaling + M·K where x is rounded first", read),
        *same("onednn::qlinear_pointwise", "matmul", prepacked, "2·M·N·K + M·N scaling", read),
        *same("quantized_lstm quantized_gru", "matmul", recurrent, "2·T·B·G·(I+H) of all layers and directions",
              "input, weights, state; output, state"),
        *same("quantize_per_tensor quantize_per_channel dequantize", "elementwise", rounding, "2 an element",
              "input; result"),
    ]  # fmt: skip
