"""Properties of the C kernels: odd shapes, denormals, large values, ignored rows, any number of threads."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from perfkit.errors import InputError, RunFailed
from perfkit.kernels import bind, catalog, check, find, use_version
from tests.support.kernels.threads import same_bits_on_any_number_of_threads
from tests.support.sweeps import examples

ops = torch.ops.perfkit
NAMES = [o.name for family in catalog() for o in family.operations if not o.name.startswith("fp8_linear")]
VERSIONS = (1, 2)

# Letters of the cases: around the widths of a vector (4, 8, 16) and of a block of vectors, down to one.
SIZES = {
    "B": st.integers(1, 3), "T": st.integers(1, 37), "C": st.integers(3, 70), "NH": st.integers(1, 3),
    "HS": st.integers(1, 35), "N": st.integers(1, 70), "M": st.integers(1, 70), "V": st.integers(1, 70),
    "Vp": st.integers(70, 90), "NKV": st.integers(1, 3), "P": st.integers(1, 19), "F": st.integers(1, 70),
    "K": st.integers(1, 70), "S": st.integers(1, 40),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=examples(3, 6), derandomize=True)
@given(data=st.data())
def test_odd_shapes_agree_with_the_reference(name: str, data: st.DataObject) -> None:
    letters = find(name).cases[0]
    sizes = {letter: data.draw(SIZES[letter], letter) for letter in letters}
    if name.startswith(("flash_attention", "decode_attention")):
        sizes["NH"] *= sizes["NKV"]
    dtype = data.draw(st.sampled_from(["fp32", "bf16"]), "dtype")
    check(name, None, dtype, sizes, seed=3, language="c")[0].require()


SPECIAL = [
    0.0,
    -0.0,
    1e-45,
    -1e-40,
    1e-38,
    1.0,
    -1.0,
    15.0,
    -15.0,
    88.0,
    -88.0,
    104.0,
    -104.0,
    1e20,
    -1e20,
    3e38,
    -3e38,
]
ELEMENTWISE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "gelu": lambda u: F.gelu(u, approximate="tanh"),
    "silu": F.silu,
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_activations_of_denormal_and_large_values(name: str, dtype: torch.dtype, version: int) -> None:
    x = torch.tensor([SPECIAL], dtype=dtype)
    zero, bias = torch.zeros_like(x), torch.zeros(len(SPECIAL), dtype=dtype)
    expected = ELEMENTWISE[name](x.double())
    with use_version(version):
        y = getattr(ops, f"multiply_add_{name}_forward")(x, zero, 1.0, bias)
        special = torch.tensor([[math.nan, math.inf]], dtype=dtype)
        wild = getattr(ops, f"multiply_add_{name}_forward")(special, special * 0 + 1, 0.0, bias[:2])
    # The largest bf16 and fp32 values round to infinity or stay: what matters is that nothing else does.
    assert torch.allclose(y.double(), expected, rtol=1e-2 if dtype == torch.bfloat16 else 2e-6, atol=1e-6)
    assert wild[0, 0].isnan()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["gelu", "silu"])
def test_slopes_of_large_values_are_finite(name: str, version: int) -> None:
    x = torch.tensor([[-1e4, -90.0, -9.0, 9.0, 90.0, 1e4]])
    zero, bias, one = torch.zeros_like(x), torch.zeros(6), torch.ones_like(x)
    with use_version(version):
        dx, dz = getattr(ops, f"multiply_add_{name}_backward")(one, x, zero, bias, 2.0)
    assert torch.allclose(dx, torch.tensor([[0.0, 0, 0, 1, 1, 1]]), atol=2e-3)
    assert torch.equal(dz, dx * 2)


def test_relu_shows_nan_and_stops_at_zero() -> None:
    x = torch.tensor([[math.nan, -1.0, -0.0, 1e-45, math.inf, -math.inf]])
    y = ops.bias_relu_forward(x, torch.zeros(6))
    assert y[0, 0].isnan()
    assert torch.equal(y[0, 1:], torch.tensor([0.0, 0.0, 1e-45, math.inf, 0.0]))
    assert torch.equal(
        ops.bias_relu_backward(torch.ones(1, 5), y[:, 1:].contiguous())[0], torch.tensor([0.0, 0, 1, 1, 0])
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_adamw_is_pytorchs_over_several_steps(version: int) -> None:
    ours = torch.randn(37, 5)
    theirs = ours.clone().requires_grad_()
    m, v = torch.zeros_like(ours), torch.zeros_like(ours)
    optimizer = torch.optim.AdamW([theirs], lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)
    for step in range(1, 6):
        theirs.grad = torch.randn_like(ours) * (1e-20 if step == 3 else 1.0)
        with use_version(version):
            ops.adamw_step(ours, theirs.grad * 4, m, v, 0.01, 0.8, 0.95, 1e-6, 0.1, step, 0.25)
        optimizer.step()
    assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_adamw_of_denormal_gradients_and_of_tensors_that_are_not_contiguous() -> None:
    param, grad = torch.ones(20, 3).t(), torch.full((3, 20), 1e-25)
    m, v = torch.zeros(3, 20), torch.zeros(3, 20)
    ops.adamw_step(param, grad, m, v, 0.1, 0.9, 0.999, 1e-8, 0.0, 1, 1.0)
    assert not param.is_contiguous()
    assert torch.allclose(param, torch.ones(3, 20))
    assert (v == 0).all()
    assert (m > 0).all()
    ops.adamw_step(param, torch.ones(3, 20), m, v, 0.1, 0.9, 0.999, 1e-8, 0.0, 1, 1.0)
    assert torch.allclose(param, torch.full((3, 20), 0.9), atol=1e-4)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ignore_index", [-1, -100, 3])
def test_the_classifier_is_cross_entropy_and_its_gradient(version: int, ignore_index: int) -> None:
    logits, targets = torch.randn(9, 101) * 3, torch.randint(0, 97, (9,))
    targets[::2] = ignore_index
    leaf = logits[:, :97].double().requires_grad_()
    counted = int((targets != ignore_index).sum())
    loss = F.cross_entropy(leaf, targets, ignore_index=ignore_index)
    (2.5 * loss).backward()
    with use_version(version):
        losses = ops.classifier(logits, targets, 2.5 / counted, 97, ignore_index)
    assert torch.allclose(losses.double().sum() / counted, loss, rtol=1e-6)
    assert torch.allclose(logits[:, :97].double(), leaf.grad, atol=1e-7)
    assert (logits[targets == ignore_index] == 0).all()
    assert (losses[targets == ignore_index] == 0).all()
    assert (logits[:, 97:] == 0).all()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_classifier_of_large_masked_and_broken_rows(version: int) -> None:
    """Logits in the thousands, whole blocks of -inf, a NaN: only its own row shows it."""
    logits = torch.randn(4, 9001) * 500 + 2000
    logits[:2, :4500] = -math.inf
    logits[1, 6000:] = -math.inf
    logits[3, 8000] = math.nan
    targets = torch.tensor([5000, 4501, 0, 17])
    expected = F.cross_entropy(logits[:3].double(), targets[:3], reduction="none")
    slope = logits[:3].double().softmax(-1) - F.one_hot(targets[:3], 9001)
    with use_version(version):
        losses = ops.classifier(logits, targets, 1.0, 9001, -1)
    assert torch.allclose(losses[:3].double(), expected, rtol=1e-6)
    assert torch.allclose(logits[:3].double(), slope, atol=1e-3)
    assert losses[3].isnan()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_classifier_refuses_a_bad_target_and_changes_nothing(version: int) -> None:
    logits = torch.randn(3, 40)
    before = logits.clone()
    with use_version(version), pytest.raises(RunFailed, match="target is neither an index below V nor ignore_index"):
        ops.classifier(logits, torch.tensor([0, 39, 38]), 1.0, 39, -1)
    assert torch.equal(logits, before)
    with pytest.raises(InputError, match="40 columns of logits for 41 words"):
        ops.classifier(logits, torch.tensor([0, 1, 2]), 1.0, 41, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frequent_token_loses_no_digits_in_bf16(version: int) -> None:
    dx = torch.full((1, 1000, 9), 0.01, dtype=torch.bfloat16)
    idx = torch.zeros(1, 1000, dtype=torch.int64)
    with use_version(version):
        dwte, dwpe = ops.encoder_backward(dx, idx, 300, 1000)
    assert torch.allclose(dwte[0].float(), dx[0].float().sum(0), rtol=4e-3)
    assert (dwte[1:] == 0).all()
    assert torch.equal(dwpe, dx[0])


@pytest.mark.parametrize("version", VERSIONS)
def test_tokens_outside_the_vocabulary_and_too_long_rows_are_refused(version: int) -> None:
    wte, wpe = torch.randn(10, 4), torch.randn(3, 4)
    with use_version(version):
        for bad in (-1, 10):
            with pytest.raises(RunFailed, match="not an index into the V rows of wte"):
                ops.encoder_forward(torch.tensor([[0, bad, 1]]), wte, wpe)
            with pytest.raises(RunFailed, match="not an index"):
                ops.encoder_backward(torch.randn(1, 3, 4), torch.tensor([[0, bad, 1]]), 10, 3)
            with pytest.raises(RunFailed, match="not an index into the V rows of weight"):
                ops.embedding_forward(torch.tensor([[0, bad, 1]]), wte)
            with pytest.raises(RunFailed, match="not an index"):
                ops.embedding_backward(torch.randn(1, 3, 4), torch.tensor([[0, bad, 1]]), 10)
        with pytest.raises(InputError, match="3 positions for 4 tokens in a row"):
            ops.encoder_forward(torch.tensor([[0, 1, 2, 3]]), wte, wpe)


def test_sums_have_the_same_bits_on_any_number_of_threads() -> None:
    dy, x = torch.randn(3, 301, 96), torch.randn(200_003)
    idx = torch.randint(0, 50, (3, 301))
    same_bits_on_any_number_of_threads(
        lambda: [ops.bias_gradient(dy), ops.global_norm(x), *ops.encoder_backward(dy, idx, 50, 400)]
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_tensors_without_elements(version: int) -> None:
    none, no_rows = torch.empty(0, 5, 12), torch.empty(0, 7)
    weight = torch.ones(12)
    with use_version(version):
        nobody = torch.empty(0, 5, dtype=torch.int64)
        assert ops.encoder_forward(nobody, torch.ones(3, 12), torch.ones(5, 12)).shape == (0, 5, 12)
        assert ops.embedding_forward(nobody, torch.ones(3, 12)).shape == (0, 5, 12)
        assert torch.equal(ops.embedding_backward(none, nobody, 3), torch.zeros(3, 12))
        dwte, dwpe = ops.encoder_backward(none, nobody, 3, 6)
        assert torch.equal(dwte, torch.zeros(3, 12))
        assert torch.equal(dwpe, torch.zeros(6, 12))
        assert torch.equal(ops.bias_gradient(none), torch.zeros(12))
        assert ops.bias_relu_forward(none, weight).shape == none.shape
        assert ops.residual_forward(none, none).shape == none.shape
        assert ops.residual_layernorm_forward(none, none, weight, weight, 1e-5)[1].shape == none.shape
        assert ops.softmax_forward(no_rows).shape == (0, 7)
        assert ops.global_norm(none) == 0
        assert ops.classifier(no_rows, torch.empty(0, dtype=torch.int64), 1.0, 7, -1).shape == (0,)
        ops.adamw_step(none, none, none, none, 0.1, 0.9, 0.9, 1e-8, 0.0, 1, 1.0)


@pytest.mark.parametrize("offset", [0, 1, 8])
def test_results_larger_than_the_caches_are_written_past_them(offset: int) -> None:
    n = (32 << 20) // 12 + 5
    a, b = torch.randn(n), torch.randn(n)
    y = torch.full((n + 16,), 7.0)
    inside = y[offset : offset + n]
    bind("residual_forward", (a, b), (inside,))()
    assert torch.equal(inside, a + b)
    bind("bias_relu_backward", (a, b), (inside,))()
    assert torch.equal(inside, torch.where(b > 0, a, 0.0))
    assert bool((y[:offset] == 7.0).all())
    assert bool((y[offset + n :] == 7.0).all())
