"""Calls that need no Python: which those are, that they give the same, and that all others still find their way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from perfkit.errors import RunFailed, UsageError
from perfkit.kernels import register, use_version
from perfkit.kernels.c import calls
from perfkit.kernels.dispatch import Runner

ops = torch.ops.perfkit
ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(not calls.available(), reason="needs a C++ compiler and PyTorch's headers")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """The operations that Python served since it was last asked."""
    names: list[str] = []
    original = Runner.__call__

    def call(self: Runner, *arguments: object) -> object:
        names.append(self.operation.name)
        return original(self, *arguments)

    def since() -> list[str]:
        found = list(names)
        names.clear()
        return found

    monkeypatch.setattr(Runner, "__call__", call)
    register.forget()
    yield since
    register.forget()


def test_python_serves_the_first_call_of_a_kind(served) -> None:
    x, scores = torch.randn(3, 5), torch.randn(1, 2, 4, 4)
    first = ops.gelu_forward(x)
    assert served() == ["gelu_forward"]
    again = ops.gelu_forward(x.clone())
    assert served() == []
    assert torch.equal(first, again)
    ops.gelu_forward(torch.randn(5, 3))
    ops.gelu_forward(x.bfloat16())
    assert served() == ["gelu_forward"] * 2
    for _ in range(2):
        assert torch.equal(ops.gelu_forward(x.t()), first.t().contiguous())
    assert served() == ["gelu_forward"] * 2  # a tensor that must be copied first
    half, third = ops.causal_softmax_forward(scores, 0.5), ops.causal_softmax_forward(scores, 0.3)
    assert served() == ["causal_softmax_forward"] * 2
    assert torch.equal(ops.causal_softmax_forward(scores, 0.5), half)
    assert torch.equal(ops.causal_softmax_forward(scores, 0.3), third)
    assert served() == []
    assert not torch.equal(half, third)


def test_every_kind_of_argument_and_several_outputs(served) -> None:
    x, weight, bias = torch.randn(2, 3, 8), torch.randn(8), torch.randn(8)
    idx = torch.tensor([[1, 0, 4], [2, 2, 1]])
    calls_made = [
        lambda: ops.layernorm_forward(x, weight, bias, 1e-5),
        lambda: ops.layernorm_backward(x, x, weight, torch.zeros(2, 3), torch.ones(2, 3)),
        lambda: ops.split_heads_forward(x.repeat(1, 1, 3), 4),
        lambda: ops.encoder_backward(x, idx, 5, 9),
        lambda: ops.cross_entropy_backward(torch.tensor(2.0), x[0], idx[0], torch.logsumexp(x[0], -1), -1),
        lambda: (ops.global_norm(x),),
    ]
    by_python = [call() for call in calls_made]
    assert len(served()) == len(calls_made)
    without = [call() for call in calls_made]
    assert served() == []
    for ours, theirs in zip(without, by_python, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    y, mean, rstd = without[0]
    assert (y.stride(), mean.dtype, mean.shape, rstd.shape) == (x.stride(), torch.float32, (2, 3), (2, 3))


def test_gradients_are_found_where_they_are_wanted(served) -> None:
    x = torch.randn(4, 8)
    leaf = x.clone().requires_grad_()
    for _ in range(2):
        leaf.grad = None
        ops.gelu_forward(leaf).backward(torch.ones(4, 8))
        expected = torch.autograd.grad(F.gelu(leaf, approximate="tanh").sum(), leaf)[0]
        torch.testing.assert_close(leaf.grad, expected)
    assert served() == ["gelu_forward", "gelu_backward"]
    with torch.no_grad():
        assert not ops.gelu_forward(leaf).requires_grad
    assert not ops.gelu_forward(x).requires_grad
    assert served() == []


def test_modes_see_the_calls(served) -> None:
    ops.gelu_forward(torch.randn(4, 8))
    with FakeTensorMode() as mode:
        fake = ops.gelu_forward(mode.from_tensor(torch.randn(4, 8)))
    assert (type(fake).__name__, fake.shape) == ("FakeTensor", (4, 8))
    assert ops.gelu_forward(torch.empty(4, 8, device="meta")).device.type == "meta"
    assert served() == ["gelu_forward"]


def test_a_failure_is_told_after_calls_that_went_well() -> None:
    logits, good = torch.randn(3, 7), torch.tensor([0, 6, 2])
    for _ in range(2):
        ops.cross_entropy_forward(logits, good, -1)
        with pytest.raises(RunFailed, match="target"):
            ops.cross_entropy_forward(logits, torch.tensor([0, 7, 2]), -1)


def test_another_version_is_chosen_at_once(served) -> None:
    x = torch.randn(1000)
    fast = [ops.gelu_forward(x) for _ in range(2)][1]
    with use_version(1):
        naive = [ops.gelu_forward(x) for _ in range(2)][1]
    assert not torch.equal(fast, naive)  # they round differently
    assert torch.equal(ops.gelu_forward(x), fast)
    assert served() == ["gelu_forward"] * 3


def test_more_shapes_than_are_remembered_and_many_threads() -> None:
    shapes = [(1, n) for n in range(1, 60)]

    def run(shape: tuple[int, int]) -> bool:
        x = torch.full(shape, 0.5)
        return all(torch.equal(ops.residual_forward(x, x), torch.ones(shape)) for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, shapes))


def test_without_it_python_serves_every_call() -> None:
    program = """
import torch, perfkit.kernels
from perfkit.kernels.c import calls
assert not calls.available()
perfkit.kernels.load()
x = torch.linspace(-3, 3, 24, requires_grad=True)
y = torch.ops.perfkit.gelu_forward(x)
y.sum().backward()
torch.testing.assert_close(y, torch.nn.functional.gelu(x, approximate="tanh"))
assert x.grad is not None
"""
    for change in ({"CXX": "no-such-compiler"}, {"PERFKIT_KERNEL_CALLS": "python"}):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **change}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_another_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFKIT_KERNEL_CALLS", "c++")
    with pytest.raises(UsageError, match="PERFKIT_KERNEL_CALLS is 'c\\+\\+'"):
        calls.available()
