"""Recurrent layers, gated units and helpers of fused encoder layers.

T time, B batch, G gate rows (4·hidden for an LSTM), I inputs, H hidden size: 2·T·B·G·(I+H) matrix FLOP a layer.
Operators of cuDNN and MIOpen run all layers and directions by any number of kernels; the products carry the cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perfkit.cost.model import Call, Cost, TensorSpec
from perfkit.cost.registry import Operator, same
from perfkit.cost.shapes import dense, matrix_unit, product, tensor_at, vector_unit, work

# Operations on each gate row: the sums with the biases, its sigmoid or tanh, and its share of the state's update.
_GATE = 7
_MULTIPLIES = "gemm|nvjet|cutlass|persist|cijk_"  # in the names of cuDNN's and MIOpen's kernels, in lower case


def rnn_layer(call: Call) -> Cost:
    """mkldnn_rnn_layer(x (T,B,I), weight (G,I), weight (G,H), bias, bias, h, c, …): weights are read once."""
    x, w_in, w_hidden, hidden = call.tensor(0), call.tensor(1), call.tensor(2), call.tensor(5)
    steps = product(x.shape[:2])
    flop = {matrix_unit(x.dtype, call.matmul_precision): 2.0 * steps * (w_in.numel + w_hidden.numel)}
    flop[vector_unit(x.dtype)] = float(_GATE * steps * w_in.shape[0])
    out = dense((*x.shape[:2], hidden.shape[-1]), x.dtype)
    state = [dense(hidden.shape, hidden.dtype)] * 2
    return work(flop, call.tensors[:7], (out, *state))


def rnn_layer_backward(call: Call) -> Cost:
    """mkldnn_rnn_layer_backward(x, weights…, h, c, output, …, gradients): twice the forward products."""
    forward = rnn_layer(call)
    gradients = [dense(t.shape, t.dtype) for t in call.tensors[:7]]
    return work({unit: 2 * flop for unit, flop in forward.flop.items()}, call.tensors, gradients)


def rnn(state_at: int, bidirectional_at: int) -> Callable[[Call], Cost]:
    """_cudnn_rnn and miopen_rnn: (x (T,B,I) or (steps,I), weights of all layers and directions, stride, …, h, c, …).

    The output, and in training what the backward pass needs of it, has a row of H for each step and direction; the
    weights are counted as read once.
    """

    def cost(call: Call) -> Cost:
        """Return the cost of one call."""
        x, weights, state, cell = call.tensor(0), _weights(call), call.tensor(state_at), tensor_at(call, state_at + 1)
        width = state.shape[-1] * (2 if call.arguments[bidirectional_at] is True else 1)
        out = dense((*x.shape[:-1], width), x.dtype)
        return work(_products_and_gates(call, x, weights), (x, *weights, state, cell), (out, state, cell))

    return cost


def rnn_backward(call: Call) -> Cost:
    """_cudnn_rnn_backward and miopen_rnn_backward: (x, weights, stride, buffer, h, c, output, gradients of output, h
    and c, mode, …), twice the forward products."""
    x, weights, state = call.tensor(0), _weights(call), call.tensor(4)
    flop = {unit: 2 * forward for unit, forward in _products_and_gates(call, x, weights).items()}
    read = (x, *weights, state, *(tensor_at(call, i) for i in range(5, 10)))
    return work(flop, read, (x, *weights, state, tensor_at(call, 5)))


def _products_and_gates(call: Call, x: TensorSpec, weights: tuple[TensorSpec, ...]) -> dict[str, float]:
    """FLOP of a forward pass: each matrix at every step, and the gates, of which a layer's two matrices have as many
    rows; a projection has none of its own."""
    steps, matrices = product(x.shape[:-1]), [w for w in weights if len(w.shape) == 2]
    gates = sum(w.shape[0] for w in matrices if w.shape[0] == matrices[0].shape[0]) / 2
    return {
        matrix_unit(x.dtype, call.matmul_precision): 2.0 * steps * sum(w.numel for w in matrices),
        vector_unit(x.dtype): _GATE * steps * gates,
    }


def _weights(call: Call) -> tuple[TensorSpec, ...]:
    given = call.arguments[1]
    found = tuple(w for w in given if isinstance(w, TensorSpec)) if isinstance(given, tuple) else ()
    if not found:
        raise TypeError(f"{call.name}: its weights were not recorded")
    return found


def those_that_multiply(call: Call) -> Mapping[str, float]:
    """The kernels of these operators that carry their cost, each by its time."""
    return {_MULTIPLIES: 1.0}


def glu(call: Call) -> Cost:
    """glu(x, dim): sigmoid of one half (4) times the other, which has half as many elements as x."""
    x = call.tensor(0)
    return work({vector_unit(x.dtype): 5.0 * (x.numel // 2)}, (x,), (dense((x.numel // 2,), x.dtype),))


def glu_backward(call: Call) -> Cost:
    """glu_backward(grad, x, dim): with halves a and b of x and s = sigmoid(b) (4), ds = grad·s and grad·s·a·(1 − s)."""
    grad, x = call.tensor(0), call.tensor(1)
    return work({vector_unit(x.dtype): 8.0 * (x.numel // 2)}, (grad, x), (dense(x.shape, x.dtype),))


def bias_and_scale(call: Call) -> Cost:
    """_transform_bias_rescale_qkv(qkv (B,T,3D), bias, heads): add the bias, scale the queries, split the heads."""
    qkv, bias = call.tensor(0), call.tensor(1)
    flop = {vector_unit(qkv.dtype): qkv.numel * 4.0 / 3.0}
    return work(flop, (qkv, bias), (dense(qkv.shape, qkv.dtype),))


def operators() -> list[Operator]:
    """Every recurrent operator, and glu."""
    flop = "matrix 2·T·B·G·(I+H), vector 7·T·B·G"
    return [
        *same("mkldnn_rnn_layer", "matmul", rnn_layer, flop, "input, weights, state; output, state"),
        *same("mkldnn_rnn_layer_backward", "matmul", rnn_layer_backward, "twice the forward",
              "everything once; all gradients"),
        *same("_cudnn_rnn", "matmul", rnn(4, 13), flop + " of all layers and directions",
              "input, weights, state; output, state", parts=those_that_multiply),
        *same("miopen_rnn", "matmul", rnn(3, 11), flop + " of all layers and directions",
              "input, weights, state; output, state", parts=those_that_multiply),
        *same("_cudnn_rnn_backward miopen_rnn_backward", "matmul", rnn_backward, "twice the forward",
              "everything once; all gradients", parts=those_that_multiply),
        *same("glu", "elementwise", glu, "5 a result", "input; half of it"),
        *same("glu_backward", "elementwise", glu_backward, "8 a result (sigmoid 4, ·grad, ·a, 1−s, ·)",
              "output gradient, input; input gradient"),
        *same("_transform_bias_rescale_qkv", "attention", bias_and_scale, "1 an element + 1 a query element",
              "qkv, bias; heads"),
    ]  # fmt: skip
