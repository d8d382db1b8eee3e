"""Places: one line for each row and logical operator."""

from __future__ import annotations

import pytest

from perfkit import table
from perfkit.tree import shares
from perfkit.tree.names import logical_name
from perfkit.tree.places import NOT_PLACED, places

ROWS = [
    {"name": "aten::addmm", "order": 0, "duration_ns": 10.0, "pass": "forward", "layer": 1, "module": "t.h.1.mlp.c_fc",
     "operator": "aten::linear", "placed_by": "range"},
    {"name": "cpp_fused_add_layer_norm", "order": 1, "duration_ns": 8.0, "pass": "forward", "layer": 1,
     "module": "t.h.1.mlp", "operator": "layer_norm", "placed_by": "provenance",
     "serves": "forward|t.h.1.mlp|aten::add|0.25;forward|t.h.2.ln_1|aten::native_layer_norm|0.75"},
    {"name": "mystery", "order": 2, "duration_ns": 1.0},
]  # fmt: skip


def test_each_row_has_a_line_for_each_operator_that_it_serves() -> None:
    found = places(table.build(ROWS).frame)
    assert found["row"].tolist() == [0, 1, 1, 2]
    assert found["pass"].tolist() == ["forward", "forward", "forward", NOT_PLACED]
    assert found["operator"].tolist()[:3] == ["linear", "add", "layer_norm"]
    assert found["share"].tolist() == [1.0, 0.25, 0.75, 1.0]
    assert found["fused"].tolist() == [False, True, True, False]
    assert found["placed_by"].tolist() == ["range", "provenance", "provenance", "none"]
    assert found["layer"].tolist()[:3] == [1, 1, 2]  # the second of a path that no row has for its own
    assert found["layer"].isna()[3] and found["module"].isna()[3]


def test_members_that_are_one_operator_after_all_are_one_line() -> None:
    parts = [("backward", "h.0", "aten::mm", 0.5), ("backward", "h.0", "aten::addmm", 0.5)]
    row = ROWS[1] | {"serves": shares.text([shares.OperatorShare(*p) for p in parts])}
    (line,) = places(table.build([row]).frame).itertuples()
    assert (line.module, line.operator, line.share, line.fused) == ("h.0", "linear", 1.0, False)


def test_a_kernel_of_perfkits_is_split_into_the_operators_that_it_replaces() -> None:
    """By the tensors that each would move: a sum reads two and writes one, LayerNorm reads one and writes one."""
    row = ROWS[0] | {"name": "perfkit::residual_layernorm_forward", "operator": "perfkit::residual_layernorm_forward"}
    found = places(table.build([row]).frame)
    assert list(zip(found["operator"], found["share"], found["layer"], strict=True)) == [
        ("add", 0.6, 1), ("layer_norm", 0.4, 1),
    ]  # fmt: skip
    assert found["fused"].all()


def test_an_empty_table_has_no_places() -> None:
    assert len(places(table.build([]).frame)) == 0


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("aten::linear", "linear"), ("aten::addmm.out", "linear"), ("AddmmBackward0", "linear"), ("iadd", "add"),
        ("aten::add_", "add"), ("torch.nn.functional.gelu", "gelu"), ("aten::_softmax_backward_data", "softmax"),
        ("aten::native_layer_norm_backward", "layer_norm"), ("perfkit::layernorm_forward", "layer_norm"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "scaled_dot_product_attention"),
        ("aten::bmm", "matmul"), ("aten::nll_loss_forward", "cross_entropy"), ("aten::_to_copy", "to"), ("", ""),
        ("NativeLayerNormBackward0", "layer_norm"), ("aten::embedding_dense_backward", "embedding"),
        ("mod", "remainder"),
    ],
)  # fmt: skip
def test_an_operator_has_one_name(name: str, operator: str) -> None:
    assert logical_name(name) == operator
    assert logical_name(operator) == operator


def test_shares_follow_the_weights() -> None:
    found = shares.split([("f", "a", "add"), ("f", "b", "gelu"), ("f", "a", "add"), ("f", "c", "view")], [1, 2, 1, 0])
    assert found == [shares.OperatorShare("f", "a", "add", 0.5), shares.OperatorShare("f", "b", "gelu", 0.5)]
    assert shares.main(found).operator == "gelu"


def test_shares_are_equal_where_a_weight_is_not_known() -> None:
    places_ = [("f", "a", "add"), ("f", "b", "gelu"), ("f", "a", "add")]
    for weights in ([1.0, None, 5.0], [0.0, 0.0, 0.0], [float("nan"), 1.0, 1.0]):
        assert [m.share for m in shares.split(places_, weights)] == [0.5, 0.5]


def test_members_survive_being_written() -> None:
    many = shares.split([("f", f"h.{i}", "add") for i in range(7)], [1.0, 2.0, 3.0, 1e-9, 5.0, 6.0, 7.0])
    written = shares.text(many)
    assert written is not None
    back = shares.read(written)
    assert [m[:3] for m in back] == [m[:3] for m in many]
    assert sum(m.share for m in back) == pytest.approx(1, abs=1e-12)
    assert shares.text(many[:1]) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("f|a|add", "is not pass"),
        ("f|a|add|2", "between 0 and 1"),
        ("f|a|add|0.2;f|b|add|0.2", "sum to 0.4"),
        ("f|a|add|x", "could not convert"),
    ],
)
def test_broken_members_are_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        shares.read(text)
