"""The operations as PyTorch operators: shapes for tracing, gradients, names in a profile, choice of version."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import perfkit.kernels
from perfkit import functional
from perfkit.errors import InputError, RunFailed, UsageError
from perfkit.kernels import catalog, find, use_version
from perfkit.kernels.checking import Inputs
from perfkit.kernels.dtypes import FP8

ops = torch.ops.perfkit
OPERATIONS = [operation.name for family in catalog() for operation in family.operations]

TOKENS = torch.tensor([[1, 8, 1, 0, 3], [1, 2, 1, 1, 5]])
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "gelu": lambda u: F.gelu(u, approximate="tanh"),
    "silu": F.silu,
}

ANGLES = [f(torch.arange(5.0)[:, None] * torch.rand(6)) for f in (torch.cos, torch.sin)]
# Name → (inputs, ours, the same in plain PyTorch); gradients flow to every floating-point input.
DIFFERENTIABLE: dict[str, tuple[Callable[[], list[Tensor]], Callable[..., Any], Callable[..., Any]]] = {
    "split_heads": (
        lambda: [torch.randn(2, 5, 36)],
        lambda x: torch.cat([t * (i + 1) for i, t in enumerate(ops.split_heads_forward(x, 3))]),
        lambda x: torch.cat([t * (i + 1) for i, t in enumerate(functional.split_heads(x, 3))]),
    ),
    "merge_heads": (lambda: [torch.randn(2, 3, 5, 4)], lambda x: ops.merge_heads_forward(x), functional.merge_heads),
    "causal_softmax": (
        lambda: [torch.randn(2, 3, 9, 9)],
        lambda x: ops.causal_softmax_forward(x, 0.4),
        lambda x: functional.causal_softmax(x, 0.4),
    ),
    "layernorm": (
        lambda: [torch.randn(2, 5, 36), torch.randn(36), torch.randn(36)],
        lambda x, w, b: ops.layernorm_forward(x, w, b, 1e-5)[0],
        lambda x, w, b: F.layer_norm(x, (36,), w, b, 1e-5),
    ),
    "gelu": (lambda: [torch.randn(5, 7) * 3], lambda x: ops.gelu_forward(x), lambda x: F.gelu(x, approximate="tanh")),
    "encoder": (
        lambda: [torch.randn(9, 20), torch.randn(7, 20)],
        lambda wte, wpe: ops.encoder_forward(TOKENS, wte, wpe),
        lambda wte, wpe: wte[TOKENS] + wpe[:5],
    ),
    "embedding": (
        lambda: [torch.randn(9, 20)],
        lambda weight: ops.embedding_forward(TOKENS, weight),
        lambda weight: weight[TOKENS],
    ),
    "bias_relu": (
        lambda: [torch.randn(6, 19), torch.randn(19)],
        lambda x, b: ops.bias_relu_forward(x, b),
        lambda x, b: (x + b).relu(),
    ),
    **{
        f"multiply_add_{name}": (
            lambda: [torch.randn(6, 19), torch.randn(6, 19), torch.randn(19)],
            lambda x, z, b, name=name: getattr(ops, f"multiply_add_{name}_forward")(x, z, 0.5, b),
            lambda x, z, b, act=act: act(x + 0.5 * z + b),
        )
        for name, act in ACTIVATIONS.items()
    },
    "residual_layernorm": (
        lambda: [torch.randn(2, 5, 36), torch.randn(2, 5, 36), torch.randn(36), torch.randn(36)],
        lambda a, b, w, c: torch.cat(ops.residual_layernorm_forward(a, b, w, c, 1e-5)[:2]),
        lambda a, b, w, c: torch.cat([a + b, F.layer_norm(a + b, (36,), w, c, 1e-5)]),
    ),
    "rmsnorm": (
        lambda: [torch.randn(2, 5, 36), torch.randn(36)],
        lambda x, w: ops.rmsnorm_forward(x, w, 1e-5)[0],
        lambda x, w: functional.rms_norm(x, w, 1e-5),
    ),
    "residual_rmsnorm": (
        lambda: [torch.randn(2, 5, 36), torch.randn(2, 5, 36), torch.randn(36)],
        lambda a, b, w: torch.cat(ops.residual_rmsnorm_forward(a, b, w, 1e-5)[:2]),
        lambda a, b, w: torch.cat(functional.residual_rms_norm(a, b, w, 1e-5)),
    ),
    "swiglu": (
        lambda: [torch.randn(5, 7) * 3, torch.randn(5, 7)],
        lambda g, u: ops.swiglu_forward(g, u),
        functional.swiglu,
    ),
    "rotary": (
        lambda: [torch.randn(2, 5, 4, 12), torch.randn(2, 5, 2, 12)],
        lambda q, k: torch.cat(ops.rotary_forward(q, k, *ANGLES), dim=2),
        lambda q, k: torch.cat(functional.rotary(q, k, *(a.to(q.dtype) for a in ANGLES)), dim=2),
    ),
    "softmax": (lambda: [torch.randn(6, 40)], lambda x: ops.softmax_forward(x), lambda x: x.softmax(dim=-1)),
    "cross_entropy": (
        lambda: [torch.randn(6, 40)],
        lambda x: ops.cross_entropy_forward(x, torch.tensor([1, -1, 39, 0, 5, -1]), 40, -1)[0],
        lambda x: F.cross_entropy(x, torch.tensor([1, -1, 39, 0, 5, -1]), ignore_index=-1),
    ),
}


def gradients(function: Callable[..., Tensor], inputs: list[Tensor], weigh: Callable[[Tensor], Tensor]) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in inputs]
    return list(torch.autograd.grad(weigh(function(*leaves)), leaves))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_those_of_the_same_function_in_fp64(name: str, version: int) -> None:
    make, ours, plain = DIFFERENTIABLE[name]
    inputs = make()
    weights = torch.randn_like(plain(*inputs))
    with use_version(version):
        got = gradients(ours, inputs, lambda y: (y * weights).sum())
    expected = gradients(plain, [x.double() for x in inputs], lambda y: (y * weights.double()).sum())
    for g, e in zip(got, expected, strict=True):
        assert torch.allclose(g.double(), e, rtol=1e-5, atol=1e-6)


def drawn(name: str, dtype: str, seed: int) -> Inputs:
    """Inputs in `dtype`, or in the precision that the operation has."""
    return Inputs(dtype if dtype in find(name).tolerance else "e4m3", seed)


# Those of PyTorch's own checks that compare no numbers, which they cannot in fp8.
CHECKS = ("test_autograd_registration", "test_faketensor")


@pytest.mark.parametrize("name", OPERATIONS)
def test_operators_pass_the_checks_of_torch_library(name: str) -> None:
    """Schema, autograd registration, shapes under fake tensors, and tracing with dynamic shapes."""
    operation = find(name)
    arguments = operation.inputs(drawn(name, "fp32", 3), **operation.cases[1 if "V" in operation.cases[0] else 0])
    floating = [a for a in arguments if isinstance(a, Tensor) and a.is_floating_point()]
    if operation.gradient is not None:
        for tensor in floating:
            tensor.requires_grad_()
    # An output may be exactly symmetric in its inputs only by rounding: compiled and eager agree to fp32.
    fp8 = {*operation.dtypes.values(), *operation.tolerance} & {*FP8}
    checks = CHECKS if fp8 else (*CHECKS, "test_schema", "test_aot_dispatch_dynamic")
    torch.library.opcheck(getattr(ops, name).default, arguments, test_utils=checks, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", OPERATIONS)
def test_shapes_on_the_meta_device_are_the_real_ones(name: str, dtype: torch.dtype) -> None:
    operation = find(name)
    arguments = operation.inputs(drawn(name, "bf16" if dtype == torch.bfloat16 else "fp32", 5), **operation.cases[0])
    real = getattr(ops, name)(*arguments)
    meta = getattr(ops, name)(*(a.to("meta") if isinstance(a, Tensor) else a for a in arguments))
    pairs = zip(*((o,) if isinstance(o, Tensor) else o or () for o in (real, meta)), strict=True)
    for r, m in pairs:
        assert (r.shape, r.dtype, r.stride()) == (m.shape, m.dtype, m.stride())


@pytest.mark.parametrize("heads_of_keys", [6, 2, 1])
def test_flash_attention_has_the_gradients_of_attention(heads_of_keys: int) -> None:
    inputs = [torch.randn(2, heads, 9, 16) for heads in (6, heads_of_keys, heads_of_keys)]

    def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3, enable_gqa=True)

    got = gradients(lambda q, k, v: ops.flash_attention_forward(q, k, v, 0.3)[0], inputs, torch.sum)
    expected = gradients(plain, [x.double() for x in inputs], torch.sum)
    for g, e in zip(got, expected, strict=True):
        assert torch.allclose(g.double(), e, rtol=1e-5, atol=1e-5)


def test_saved_statistics_take_no_gradient() -> None:
    x = torch.randn(2, 3, 8, requires_grad=True)
    y, mean, rstd = ops.layernorm_forward(x, torch.ones(8), torch.zeros(8), 1e-5)
    assert y.requires_grad
    assert not mean.requires_grad
    assert not rstd.requires_grad


def test_an_unused_output_counts_as_a_gradient_of_zero() -> None:
    x = torch.randn(1, 2, 12, requires_grad=True)
    _, k, _ = ops.split_heads_forward(x, 2)
    (gradient,) = torch.autograd.grad(k.sum(), x)
    expected = torch.zeros(1, 2, 12)
    expected[..., 4:8] = 1
    assert torch.equal(gradient, expected)


def test_an_operator_called_directly_is_the_same_and_a_profiler_sees_it() -> None:
    call, x = perfkit.kernels.direct("gelu_forward"), torch.randn(3, 40)
    assert torch.equal(call(x), ops.gelu_forward(x))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        assert torch.equal(call(x), ops.gelu_forward(x))
    assert {e.key: e.count for e in profile.key_averages()}["perfkit::gelu_forward"] == 2
    with pytest.raises(InputError, match="weight has shape"):
        perfkit.kernels.direct("layernorm_forward")(x, torch.ones(7), torch.ones(40), 1e-5)


def test_the_upstream_gradient_of_the_loss_is_honoured() -> None:
    logits = torch.randn(4, 30, requires_grad=True)
    targets = torch.tensor([1, 2, -1, 3])
    (one,) = torch.autograd.grad(ops.cross_entropy_forward(logits, targets, 30, -1)[0], logits)
    (three,) = torch.autograd.grad(3 * ops.cross_entropy_forward(logits, targets, 30, -1)[0], logits)
    assert torch.allclose(3 * one, three)


@pytest.mark.slow
def test_torch_compile_keeps_the_operators() -> None:
    def step(x: Tensor, w: Tensor) -> Tensor:
        return ops.gelu_forward(ops.layernorm_forward(x, w, w, 1e-5)[0]).sum()

    x, w = torch.randn(3, 20), torch.randn(20)
    compiled = torch.compile(step, fullgraph=True)
    for a, b in zip(gradients(step, [x, w], torch.sum), gradients(compiled, [x, w], torch.sum), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_a_profile_shows_the_operators_by_name() -> None:
    x = torch.randn(4, 64, requires_grad=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        ops.gelu_forward(x).sum().backward()
    assert {"perfkit::gelu_forward", "perfkit::gelu_backward"} <= {event.key for event in profile.key_averages()}


def test_a_version_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(1000)
    fast = ops.gelu_forward(x)
    with use_version(1):
        naive = ops.gelu_forward(x)
        assert not torch.equal(fast, naive)  # they round differently
        with use_version(2):
            assert torch.equal(ops.gelu_forward(x), fast)
    monkeypatch.setenv("PERFKIT_KERNEL_VERSION", "1")
    assert perfkit.kernels.load()["perfkit::gelu_forward"].version == 1
    assert torch.equal(ops.gelu_forward(x), naive)
    monkeypatch.delenv("PERFKIT_KERNEL_VERSION")
    assert perfkit.kernels.load()["perfkit::gelu_forward"].version == 2
    assert torch.equal(ops.gelu_forward(x), fast)
    monkeypatch.setenv("PERFKIT_KERNEL_VERSION", "fast")
    with pytest.raises(UsageError, match="PERFKIT_KERNEL_VERSION is 'fast'"):
        perfkit.kernels.load()


def test_another_version_is_chosen_at_once() -> None:
    x = torch.randn(1000)
    fast = ops.gelu_forward(x)
    with use_version(1):
        naive = ops.gelu_forward(x)
    assert not torch.equal(fast, naive)  # they round differently
    assert torch.equal(ops.gelu_forward(x), fast)


def test_many_shapes_from_many_threads() -> None:
    def run(length: int) -> bool:
        x = torch.full((1, length), 0.5)
        return all(torch.equal(ops.residual_forward(x, x), torch.ones(1, length)) for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(1, 60)))


def test_a_failed_call_says_why_after_calls_that_went_well() -> None:
    logits, good = torch.randn(3, 7), torch.tensor([0, 6, 2])
    for _ in range(2):
        ops.cross_entropy_forward(logits, good, 7, -1)
    with pytest.raises(RunFailed, match="target"):
        ops.cross_entropy_forward(logits, torch.tensor([0, 99, 2]), 7, -1)
    ops.cross_entropy_forward(logits, good, 7, -1)
