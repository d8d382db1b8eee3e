"""Recurrent layers, gated units and helpers of fused encoder layers.

T time, B batch, G gate rows (4·hidden for an LSTM), I inputs, H hidden size: 2·T·B·G·(I+H) matrix FLOP a layer.
"""

from __future__ import annotations

from perfkit.cost.model import Call, Cost
from perfkit.cost.registry import Operator, same
from perfkit.cost.shapes import dense, matrix_unit, product, vector_unit, work

# Operations on each gate row: the sums with the biases, its sigmoid or tanh, and its share of the state's update.
_GATE = 7


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


def glu(call: Call) -> Cost:
    """glu(x, dim): sigmoid of one half (4) times the other, which has half as many elements as x."""
    x = call.tensor(0)
    return work({vector_unit(x.dtype): 5.0 * (x.numel // 2)}, (x,), (dense((x.numel // 2,), x.dtype),))


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
        *same("glu", "elementwise", glu, "5 a result", "input; half of it"),
        *same("_transform_bias_rescale_qkv", "attention", bias_and_scale, "1 an element + 1 a query element",
              "qkv, bias; heads"),
    ]  # fmt: skip
