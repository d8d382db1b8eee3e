"""Calls that need no Python: which those are, that they give the same, and that all others still find their way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from perfkit.errors import RunFailed, UsageError
from perfkit.kernels import register, use_version
from perfkit.kernels.c import calls, entry
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


@pytest.mark.skipif(not entry.available(), reason="needs Python's headers")
class TestEntry:
    """The shortened way from Python to the dispatcher: what it serves, and that all else is as PyTorch has it."""

    def general(self, overload: torch._ops.OpOverload) -> Callable[..., object]:
        return torch._C._get_operation_overload(overload._schema.name, overload._schema.overload_name)[0]

    def test_operators_of_tensors_and_numbers_have_it(self) -> None:
        kinds = {name: type(getattr(ops, name).default._op).__name__ for name in ("gelu_forward", "layernorm_forward")}
        assert kinds == {"gelu_forward": "Entry", "layernorm_forward": "Entry"}
        assert type(ops.adamw_step.default._op).__name__ != "Entry"  # Python serves it

    def test_pytorch_finds_the_operator_as_before(self) -> None:
        x = torch.randn(2, 8)
        table = {ops.gelu_forward.default: "found"}
        assert table[torch.ops.perfkit.gelu_forward.default] == "found"
        graph = torch.fx.symbolic_trace(lambda x: ops.gelu_forward.default(x))
        assert torch.equal(graph(x), ops.gelu_forward(x))
        compiled = torch.compile(lambda x: ops.gelu_forward.default(x) + 1, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), ops.gelu_forward(x) + 1)

    def test_results_are_those_of_the_general_way(self) -> None:
        x, weight, bias = torch.randn(2, 3, 8), torch.nn.Parameter(torch.randn(8)), torch.randn(8)
        scores = torch.randn(1, 2, 4, 4)
        for name, arguments in (
            ("residual_forward", (x, x)),
            ("layernorm_forward", (x, weight, bias, 1e-5)),
            ("layernorm_forward", (x, weight, bias, 1)),  # an integer for a float: not plainly of its type
            ("split_heads_forward", (x.repeat(1, 1, 3), 4)),
            ("split_heads_forward", (x.repeat(1, 1, 3), True + 3)),
            ("causal_softmax_forward", (scores, 0.5)),
        ):
            overload = getattr(ops, name).default
            ours, theirs = overload(*arguments), self.general(overload)(*arguments)
            assert type(ours) is type(theirs)
            for a, b in zip(ours, theirs, strict=True):
                assert torch.equal(a, b)
                assert a.requires_grad == b.requires_grad
        by_name = ops.causal_softmax_forward.default(scale=0.5, scores=scores)
        assert torch.equal(by_name, ops.causal_softmax_forward.default(scores, 0.5))

    def test_errors_are_those_of_the_general_way(self) -> None:
        x, huge = torch.randn(2, 3, 24), 1 << 70
        for name, arguments in (
            ("residual_forward", (x, x[:1])),
            ("residual_forward", (x,)),
            ("residual_forward", (x, x, x)),
            ("residual_forward", (x, 3)),
            ("residual_forward", (x, None)),
            ("split_heads_forward", (x, 5)),
            ("split_heads_forward", (x, huge)),
            ("split_heads_forward", (x, "4")),
            ("split_heads_forward", (x, 4.0)),
            ("gelu_forward", (x.long(),)),
            ("cross_entropy_forward", (x[0], torch.tensor([0, 99, 2]), -1)),
        ):
            overload = getattr(ops, name).default
            ours, general = (raised(way, arguments) for way in (overload, self.general(overload)))
            assert ours == general
            assert ours is not None, name

    def test_tensor_subclasses_and_modes_are_seen(self) -> None:
        class Loud(torch.Tensor):
            heard: ClassVar[list[str]] = []

            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                cls.heard.append(str(func))
                return super().__torch_function__(func, types, args, kwargs or {})

        class Mode(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                heard.append(str(func))
                return func(*args, **(kwargs or {}))

        heard: list[str] = []
        x = torch.randn(8)
        ops.gelu_forward.default(x.as_subclass(Loud))
        with Mode():
            ops.gelu_forward.default(x)
        assert Loud.heard == heard == ["perfkit.gelu_forward.default"]

    def test_the_profiler_and_other_threads_see_the_calls(self) -> None:
        x = torch.randn(2, 8)
        expected = ops.gelu_forward(x)
        with torch.profiler.profile() as profiler:
            ops.gelu_forward.default(x)
        assert [e.key for e in profiler.key_averages()].count("perfkit::gelu_forward") == 1
        with ThreadPoolExecutor(4) as pool:
            results = pool.map(lambda _: ops.gelu_forward.default(x), range(200))
            assert all(torch.equal(y, expected) for y in results)

    def test_a_call_keeps_nothing_alive(self) -> None:
        x = torch.randn(2, 3, 8)
        before = sys.getrefcount(x)
        for _ in range(100):
            ops.residual_forward.default(x, x)
            with pytest.raises(Exception, match="shape"):
                ops.residual_forward.default(x, x[:1])
        assert sys.getrefcount(x) == before


def raised(way: Callable[..., object], arguments: Sequence[object]) -> tuple[type, str] | None:
    """What a call raises; None when it raises nothing."""
    try:
        way(*arguments)
    except Exception as error:
        return type(error), str(error)
    return None


def test_another_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFKIT_KERNEL_CALLS", "c++")
    with pytest.raises(UsageError, match="PERFKIT_KERNEL_CALLS is 'c\\+\\+'"):
        calls.available()
