"""Optimizers, copies, recurrent layers and others against figures worked out by hand."""

from __future__ import annotations

from perfkit.cost import Call, Cost, CostModel
from tests.support.cost.calls import cost, flop, t, traffic


class TestOptimizer:
    def test_adamw(self) -> None:
        p = (t(5, 4), t(3))
        arguments = p, p, p, p, (), (t(), t()), 1e-3, 0.9, 0.999, 0.01, 1e-8, False, False, None, None
        assert cost("aten::_fused_adamw_", *arguments) == Cost({"vector_fp32": 14.0 * 23}, 4 * 4 * 23, 4 * 3 * 23)

    def test_adam_and_sgd(self) -> None:
        p = (t(10),)
        adam = p, p, p, p, (), (t(),), 1e-3, 0.9, 0.999, 0.0, 1e-8, False, False, None, None
        assert flop("aten::_fused_adam_", *adam) == 130
        sgd = cost("aten::_fused_sgd_", p, p, p, 0.0, 0.9, 0.001, 0.0, False, False, False, None, None)
        assert sgd == Cost({"vector_fp32": 40.0}, 120, 80)


class TestMovement:
    def test_copies(self) -> None:
        assert cost("aten::copy_", t(16, 48), t(16, 48, strides=(0, 1)), False) == Cost({"vector_fp32": 0.0}, 192, 3072)
        assert traffic("aten::copy_", t(4, dtype="bf16"), t(4), False) == (16, 8)
        assert traffic("aten::_to_copy", t(4), 15) == (16, 8)
        assert traffic("aten::cat", (t(2, 8), t(3, 8)), 0) == (160, 160)
        assert CostModel().cost(Call("aten::cat", ((), 0))) is None  # old traces hold no sizes of a list
        assert traffic("aten::_chunk_cat", (t(3, 8), t(4)), 0, 2) == (112, 144)  # four rows of the first, one empty
        assert traffic("aten::_chunk_cat", (t(3, 8), t(4)), 0, 2, t(2, 18, dtype="bf16")) == (112, 72)
        assert traffic("aten::split_with_sizes_copy", t(2, 18, dtype="bf16"), (16, 2), 1, ()) == (72, 72)
        assert traffic("aten::constant_pad_nd", t(4, 6), (1, 1), 0) == (96, 128)

    def test_fills_and_random(self) -> None:
        assert cost("aten::zero_", t(16, 50)) == Cost({"vector_fp32": 0.0}, 0, 3200)
        assert cost("aten::normal_", t(6, 5), 0.0, 1.0, None) == Cost({"vector_fp32": 30.0}, 0, 120)
        assert traffic("aten::arange", 0, 10, 4, 0, None, None) == (0, 80)
        assert traffic("aten::arange", 0.0, 1.0, 0.25, t(0)) == (0, 16)
        assert cost("aten::native_dropout", t(8), 0.5, True) == Cost({"vector_fp32": 32.0}, 32, 40)

    def test_indexing(self) -> None:
        i = t(2, dtype="int64")
        assert traffic("aten::index", t(4, 6), (i,)) == (48 + 16, 48)
        assert traffic("aten::index_put_", t(4, 6), None, t(2, 6), False) == (48, 48)
        for name in ("scatter_add", "scatter_add_"):  # out of place the copy is an operator of its own
            assert traffic(f"aten::{name}", t(4, 6), 1, t(4, 2, dtype="int64"), t(4, 2)) == (64 + 32 + 32, 32)
        assert cost("aten::scatter_add_", t(4, 6), 1, t(4, 2, dtype="int64"), t(4, 2)) == Cost(
            {"vector_fp32": 8.0}, 64 + 32 + 32, 32
        )
        assert traffic("aten::gather", t(4, 6), 1, t(4, 2, dtype="int64")) == (32 + 64, 32)

    def test_sorting(self) -> None:
        assert cost("aten::sort", t(2, 8), -1, False) == Cost({"vector_fp32": 48.0}, 64, 64 + 128)
        assert cost("aten::topk", t(2, 8), 2, -1, True, True) == Cost({"vector_fp32": 20.0}, 64, 16 + 32)


def test_recurrent_layers() -> None:
    # 3 steps, batch 2, 8 inputs, 5 hidden: 20 gate rows.
    weights = t(20, 8), t(20, 5), t(20), t(20), t(2, 5), t(2, 5)
    found = cost("aten::mkldnn_rnn_layer", t(3, 2, 8), *weights, False, (), 2, 5)
    assert found.flop == {"matrix_fp32": 2.0 * 6 * 20 * 13, "vector_fp32": 7.0 * 6 * 20}
    backward = cost("aten::mkldnn_rnn_layer_backward", t(3, 2, 8), *weights, t(3, 2, 5))
    assert backward.flop["matrix_fp32"] == 2 * found.flop["matrix_fp32"]


def test_cudnns_recurrent_layers_are_those_of_one_after_the_other() -> None:
    """Two layers of an LSTM, 3 steps, batch 2, 8 inputs, 5 hidden; the second one reads what the first made."""
    first, second = (t(20, 8), t(20, 5), t(20), t(20)), (t(20, 5), t(20, 5), t(20), t(20))
    state, x, out = t(2, 2, 5), t(3, 2, 8), t(3, 2, 5)
    about = (2, 5, 0, 2, False, 0.0, True, False, (), None)
    found = cost("aten::_cudnn_rnn", x, (*first, *second), 4, None, state, state, *about)
    assert found.flop == {"matrix_fp32": 2.0 * 6 * 20 * (13 + 10), "vector_fp32": 7.0 * 6 * 40}
    assert found.bytes_written == 4 * (30 + 2 * 20)
    assert found.bytes_read == 4 * (48 + 20 * (13 + 10) + 80 + 2 * 20)
    given = x, (*first, *second), 4, t(540), state, state, out, out, state, state
    backward = cost("aten::_cudnn_rnn_backward", *given, *about, t(9, dtype="uint8"), (True, True, True, True))
    assert backward.flop == {unit: 2 * flop for unit, flop in found.flop.items()}
    # MIOpen has neither the buffer of weights nor a projection.
    miopen = (2, 5, 2, False, 0.0, True, False, (), None)
    assert cost("aten::miopen_rnn", x, (*first, *second), 4, state, state, *miopen) == found
    assert cost("aten::miopen_rnn_backward", *given, *miopen, t(9, dtype="uint8"), (True,) * 4) == backward
    # With a projection to 3 the state is smaller, and there is one more matrix, without gates.
    projected = (t(20, 8), t(20, 3), t(20), t(20), t(3, 5))
    small = cost("aten::_cudnn_rnn", x, projected, 5, None, t(1, 2, 3), t(1, 2, 5), *about)
    assert small.flop == {"matrix_fp32": 2.0 * 6 * (20 * 11 + 15), "vector_fp32": 7.0 * 6 * 20}
