"""Attention's pairs of query and key, by hand: causal, windows, packed sequences, and what was not recorded."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

from perfkit.cost import Argument, Call, CostModel, TensorSpec
from perfkit.cost.operators.attention import _BACKWARDS, _FORWARDS
from perfkit.cost.operators.masks import Mask
from perfkit.cost.shapes import UNRECORDED

B, H, D = 2, 3, 16


def t(*shape: int, dtype: str = "bf16") -> TensorSpec:
    return TensorSpec(shape, dtype)


def matrix_flop(name: str, arguments: dict[str, Argument]) -> float | None:
    """Matrix FLOP of a call with arguments by name, the others as PyTorch's schema has them by default."""
    schema = getattr(torch.ops.aten, name).default._schema
    filled: list[Any] = []
    for one in schema.arguments:
        default = one.default_value if one.has_default_value() else None
        filled.append(arguments.get(one.name, default))
    assert not arguments.keys() - {one.name for one in schema.arguments}
    found = CostModel().cost(Call(f"aten::{name}", tuple(filled)))
    assert found is not None and found.bytes > 0
    return found.flop.get("matrix_bf16")


def tensors(name: str, queries: int, keys: int) -> dict[str, Argument]:
    inner = name.startswith(("_flash", "_efficient"))
    q, k = ((B, n, H, D) if inner else (B, H, n, D) for n in (queries, keys))
    found: dict[str, Argument] = {"query": t(*q), "key": t(*k), "value": t(*k)}
    if name in _BACKWARDS:
        found |= {"out": t(*q), "logsumexp": t(B, H, queries, dtype="fp32")}
        found["grad_out_" if "efficient" in name else "grad_out"] = t(*q)
    return found


@pytest.mark.parametrize("name", [*_FORWARDS, *_BACKWARDS])
def test_a_causal_mask_leaves_the_pairs_up_to_a_querys_own_key(name: str) -> None:
    products, flag = (5 if name in _BACKWARDS else 2), "is_causal"
    kinds: dict[bool, Argument] = {False: False, True: True}
    if name.startswith("_efficient"):
        flag, kinds = "custom_mask_type", {False: 0, True: 1}
    square, wide = tensors(name, 8, 8), tensors(name, 8, 12)
    assert matrix_flop(name, square | {flag: kinds[False]}) == products * 2 * D * B * H * 64
    assert matrix_flop(name, square | {flag: kinds[True]}) == products * 2 * D * B * H * 36
    upper_left, lower_right = 36, sum(range(5, 13))
    expected = lower_right if "flash" in name and "cpu" not in name else upper_left
    assert matrix_flop(name, wide | {flag: kinds[True]}) == products * 2 * D * B * H * expected
    assert matrix_flop(name, square | {flag: UNRECORDED}) is None


def test_efficient_attention_may_align_at_the_lower_right_or_have_a_window() -> None:
    for name, products in (("_efficient_attention_forward", 2), ("_efficient_attention_backward", 5)):
        given = tensors(name, 4, 6)
        assert matrix_flop(name, given | {"custom_mask_type": 2}) == products * 2 * D * B * H * (3 + 4 + 5 + 6)
        windowed = given | {"custom_mask_type": 2, "window_size": 2}
        assert matrix_flop(name, windowed) == products * 2 * D * B * H * 8


def test_flash_windows() -> None:
    for name, products in (("_flash_attention_forward", 2), ("_flash_attention_backward", 5)):
        given = tensors(name, 6, 6)
        causal = given | {"is_causal": True, "window_size_left": 2, "window_size_right": 0}
        assert matrix_flop(name, causal) == products * 2 * D * B * H * (1 + 2 + 3 + 3 + 3 + 3)
        both = given | {"is_causal": False, "window_size_left": 1, "window_size_right": 1}
        assert matrix_flop(name, both) == products * 2 * D * B * H * (2 + 3 * 4 + 2)
        none = given | {"is_causal": False, "window_size_left": -1, "window_size_right": -1}
        assert matrix_flop(name, none) == products * 2 * D * B * H * 36


def test_packed_sequences_are_known_where_all_are_as_long_as_the_longest() -> None:
    name, ends = "_flash_attention_forward", t(5, dtype="int32")
    q = t(4 * 8, H, D)
    given = {"query": q, "key": q, "value": q, "cum_seq_q": ends, "cum_seq_k": ends, "is_causal": True}
    assert matrix_flop(name, given | {"max_q": 8, "max_k": 8}) == 2 * 2 * D * H * 4 * 36
    assert matrix_flop(name, given | {"max_q": 12, "max_k": 12}) is None


def test_lengths_that_are_tensors_are_not_known() -> None:
    given = tensors("_flash_attention_forward", 1, 64) | {"is_causal": True}
    assert matrix_flop("_flash_attention_forward", given) == 4 * D * B * H * 64
    assert matrix_flop("_flash_attention_forward", given | {"seqused_k": t(B, dtype="int32")}) is None


def test_schemas_of_older_versions() -> None:
    q, model = t(B, H, 8, D), CostModel()
    for name in ("efficient", "cudnn", "flash"):
        second: Argument = True if name == "efficient" else 0.0  # 2.0 and 2.3 had no additive mask
        call = Call(f"aten::_scaled_dot_product_{name}_attention", (q, q, q, second, True))
        found = model.cost(call)
        assert found is not None and found.flop["matrix_bf16"] == 4 * D * B * H * 36
    inner = t(B, 8, H, D)  # 2.1 had no longest sequence of keys
    found = model.cost(Call("aten::_efficient_attention_forward", (*[inner] * 3, None, None, None, None, 0.0, 1, True)))
    assert found is not None and found.flop["matrix_bf16"] == 4 * D * B * H * 36


def test_a_mask_of_pairs_by_counting_them() -> None:
    sides = (None, 0, 2)
    for queries, keys, left, right, lower in itertools.product((1, 3, 7), (1, 4, 7), sides, sides, (False, True)):
        own = keys - queries if lower else 0
        seen = [
            (right is None or j <= i + own + right) and (left is None or j >= i + own - left)
            for i in range(queries)
            for j in range(keys)
        ]
        assert Mask(left, right, lower).pairs(queries, keys) == sum(seen)


@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (3, 7)])
def test_alignment_is_pytorchs(queries: int, keys: int) -> None:
    """A key that the mask hides does not change the output: counted by what each query's output depends on."""
    upper, lower = causal_upper_left(queries, keys), causal_lower_right(queries, keys)
    assert int(upper._materialize().sum()) == Mask(right=0).pairs(queries, keys)
    assert int(lower._materialize().sum()) == Mask(right=0, lower_right=True).pairs(queries, keys)
    q, k, v = torch.randn(1, 1, queries, 4), torch.randn(1, 1, keys, 4), torch.randn(1, 1, keys, 4, requires_grad=True)
    pairs = 0
    for i in range(queries):
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True)[0, 0, i].sum()
        (gradient,) = torch.autograd.grad(found, v)
        pairs += int((gradient[0, 0, :, 0] != 0).sum())
    assert pairs == Mask(right=0).pairs(queries, keys)


def test_words_distinguish_calls() -> None:
    model, q, k = CostModel(), t(B, H, 8, D), t(B, H, 12, D)

    def words(*arguments: Argument) -> str:
        return model.variant(Call("aten::scaled_dot_product_attention", arguments))

    assert words(q, q, q, None, 0.0, False) == "" and words(q, q, q, None, 0.0, True) == "causal"
    assert words(q, q, q, None, 0.0, UNRECORDED) == "mask not recorded"
    flash = (q, k, k, 0.0, True, False, None)
    assert model.variant(Call("aten::_scaled_dot_product_flash_attention", flash)) == "causal, lower right"
    inner = (t(B, 8, H, D),) * 3
    windowed = (*inner, None, None, 8, 8, 0.0, False, False, None, 4, 0)
    assert model.variant(Call("aten::_flash_attention_forward", windowed)) == "causal, window 4|0"


def test_flex_attention_counts_where_no_block_mask_hides_keys() -> None:
    q, none, given = (
        t(B, H, 8, D),
        (8, 8, None, 1 << 30, 1 << 30, None),
        (8, 8, t(1, 1, 1, dtype="int32"), 128, 128, None),
    )
    sums, model = t(B, H, 8, dtype="fp32"), CostModel()

    def found(name: str, *arguments: Argument) -> dict[str, float]:
        cost = model.cost(Call(name, arguments))
        assert cost is not None and cost.bytes > 0
        return dict(cost.flop)

    assert found("flex_attention", q, q, q, None, none)["matrix_bf16"] == 2 * 2 * D * B * H * 64
    assert found("flex_attention", q, q, q, None, given) == {}
    assert found("flex_attention", q, q, q, None, 36.0)["matrix_bf16"] == 2 * 2 * D * B * H * 36  # read from a mask
    behind = (q, q, q, q, sums, q, sums, None, None)
    assert found("flex_attention_backward", *behind, none)["matrix_bf16"] == 5 * 2 * D * B * H * 64
    assert found("flex_attention_backward", *behind, given) == {}
    assert found("flex_attention_backward", *behind, 36.0)["matrix_bf16"] == 5 * 2 * D * B * H * 36
