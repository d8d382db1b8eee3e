from __future__ import annotations

import functools
import subprocess
import sys

import pytest

from perfkit import backends
from perfkit.backends.thunder import standins, support
from perfkit.cli.parts import options
from perfkit.errors import Unavailable, UsageError
from perfkit.workloads import find, resolve_settings
from tests.backends.conftest import ONE_LAYER, errors, worst
from tests.support.sweeps import rest

torch = pytest.importorskip("torch")
if missing := support.unavailable(None):
    pytest.skip(missing, allow_module_level=True)


@pytest.fixture(scope="module")
def stepped(bench):
    """A bench with two micro-batches, Thunder's program of it, and what its first step gave."""
    b = bench(**ONE_LAYER, grad_accumulation=2)
    program = b.program("thunder")
    return b, program, b.step(program)


@pytest.mark.slow
def test_accumulated_training_agrees_with_fp64(stepped):
    b, program, result = stepped
    assert worst(errors(result, b.reference())) < 1e-5
    assert result.gradients.keys() == {name for name, _ in program.model.named_parameters()}
    assert program.problems() == []


@pytest.mark.slow
def test_symbols_of_both_directions_with_executor_and_count(stepped):
    _, program, _ = stepped
    symbols = {(s.trace, s.name): s for s in program.symbols()}
    layers = 1
    assert symbols["forward", "linear"].count == 4 * layers + 1
    assert symbols["forward", "linear"].kernel == "torch"
    assert symbols["backward", "matmul"].count > symbols["forward", "matmul"].count == 2 * layers
    assert not any(name in ("del", "python_return", "unpack_trivial") for _, name in symbols)


@pytest.mark.slow
def test_generated_text_holds_both_traces(stepped):
    _, program, _ = stepped
    assert "def computation(" in program.generated()
    assert "def backward_fn(" in program.generated()


@pytest.mark.slow
def test_the_traces_of_training_stand_after_an_inference_call(stepped):
    b, program, _ = stepped
    before = program.symbols()
    outputs, loss = program.forward(b.batches()[0][:1])
    assert loss is None
    assert not outputs.requires_grad
    assert program.symbols() == before
    b.step(program, first=2)
    assert program.symbols() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"recompute": True}, rest({"training": False}), rest({"variant": "sdpa"}), rest({"dtype": "bf16"})]
)
def test_other_modes_agree_with_fp64(bench, settings):
    b = bench(**ONE_LAYER, **settings)
    reference = b.reference()
    eager = worst(errors(b.step(b.program("eager")), reference))
    program = b.program("thunder")
    assert worst(errors(b.step(program), reference)) <= 3 * eager
    assert any(s.trace == "backward" for s in program.symbols()) == b.settings.training
    if b.settings.recompute:
        assert any(s.trace == "backward" and s.name == "linear" for s in program.symbols()), "nothing is recomputed"


@pytest.mark.parametrize("name", ["thunder", "thunder-llmc"])
def test_an_unknown_executor_is_refused_with_those_that_exist(bench, name):
    b = bench(executors=("torhc",))
    with pytest.raises(UsageError) as caught:
        backends.get(name).unavailable(b.settings)
    assert "Thunder executor called 'torhc'" in caught.value.message
    assert "Did you mean torch?" in caught.value.message
    assert "sdpa" in caught.value.hint


@pytest.mark.slow
def test_named_executors_are_used_in_their_order():
    mlp = find("mlp")
    settings = resolve_settings(mlp, executors=("torchcompile_cat", "torch"), training=False)
    program = backends.get("thunder").prepare(mlp, mlp.build(settings), settings)
    program.forward(mlp.batch(settings, 0))
    names = [e.name for e in program.call._lc_cd.executors_list]
    assert names.index("torchcompile_cat") < names.index("torch")


def test_without_thunder(monkeypatch):
    real = support.importlib.util.find_spec
    monkeypatch.setattr(support.importlib.util, "find_spec", lambda n: None if n == "thunder" else real(n))
    assert (
        backends.get("thunder").unavailable() == "lightning-thunder is not installed: pip install 'perfkit[thunder]'."
    )


def test_on_a_python_that_thunder_does_not_support(monkeypatch):
    monkeypatch.setattr(support.sys, "version_info", (3, 14, 0, "final", 0))
    assert (
        backends.get("thunder")
        .unavailable()
        .startswith("lightning-thunder needs a Python before 3.14, and this is 3.14")
    )


def test_an_import_that_fails_is_one_sentence(monkeypatch, bench, tmp_path):
    """It is tried until it succeeds, and not again with the same versions: it takes seconds."""
    tried = []

    def broken():
        tried.append(1)
        raise Unavailable("lightning-thunder cannot be imported with torch 9.9: AttributeError: no such thing.")

    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path))
    monkeypatch.setattr(support, "load", broken)
    backend, settings = backends.get("thunder"), bench().settings
    for _ in range(2):
        assert backend.unavailable(settings).startswith("lightning-thunder cannot be imported")
    assert len(tried) == 2
    monkeypatch.setattr(support, "load", lambda: tried.append(1))
    assert [backend.unavailable(settings) for _ in range(2)] == [None, None]
    assert len(tried) == 3


@pytest.fixture
def imported_anew(monkeypatch):
    """Without what the import of Thunder came to in this process."""
    monkeypatch.setattr(support, "_imported", functools.cache(support._imported.__wrapped__))


def test_a_broken_package_becomes_unavailable(monkeypatch, tmp_path, imported_anew):
    (tmp_path / "thunder.py").write_text("raise AttributeError('type object Tensor has no attribute flip')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(support.sys.modules, "thunder", raising=False)
    with pytest.raises(Unavailable, match=r"cannot be imported with torch .*: AttributeError: .*flip\.$"):
        support.load()
    monkeypatch.delitem(support.sys.modules, "thunder", raising=False)


def test_an_import_that_failed_once_keeps_its_first_cause(monkeypatch, tmp_path, imported_anew):
    """A second import meets leftovers of the first: its message then is not the cause."""
    (tmp_path / "thunder.py").write_text(
        "import sys\n"
        "if hasattr(sys, 'perfkit_test_tried'):\n"
        "    raise ValueError('already registered')\n"
        "sys.perfkit_test_tried = True\n"
        "raise AttributeError('the cause')\n"
    )
    monkeypatch.setattr(sys, "perfkit_test_tried", True, raising=False)
    monkeypatch.delattr(sys, "perfkit_test_tried")
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "thunder", raising=False)
    settings = resolve_settings(find("gpt2"), preset="tiny")
    named = {"thunder": "thunder", "thunder-llmc": "thunder-llmc"}
    reasons = options.unavailable_of(named, settings, skip=True)
    assert reasons.keys() == named.keys()
    assert all(reason.endswith(": AttributeError: the cause.") for reason in reasons.values())
    with pytest.raises(Unavailable, match=r"^Backends thunder and thunder-llmc cannot run here: .*: the cause\.") as e:
        options.unavailable_of(named, settings, skip=False)
    assert "goes on without them" in e.value.hint
    monkeypatch.delitem(sys.modules, "thunder", raising=False)


def test_what_torch_dropped_is_defined_only_where_it_is_missing(monkeypatch):
    support.load()
    for name in standins.DROPPED:
        assert getattr(torch.Tensor, name).__name__ == name
    if hasattr(torch._C.TensorBase, "rename"):
        return  # PyTorch's own
    with pytest.raises(NotImplementedError, match=r"torch\.Tensor\.rename"):
        torch.zeros(1).rename("x")


OWN_BACKWARD = """
import torch
from torch.autograd import Function

if hasattr(Function.apply, "__func__"):
    Function.apply = vars(torch._C._FunctionBase)["apply"]
own = vars(Function)["apply"]
from perfkit.backends.thunder import support

thunder = support.load()
assert vars(Function)["apply"] is own, "PyTorch is as it was"

class Squared(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * x * factor

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x * 7 * ctx.factor, None  # not the derivative: it shows who computed it

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        return Squared.apply(self.linear(x), 3.0)

model, x = Model(), torch.ones(2, 3)
expected = model(x)
expected.sum().backward()
gradient, model.linear.weight.grad = model.linear.weight.grad, None
call = thunder.jit(model)
made = call(x)
made.sum().backward()
torch.testing.assert_close(made, expected)
torch.testing.assert_close(model.linear.weight.grad, gradient)
assert "Squared" in str(thunder.last_traces(call)[0])
"""


@pytest.mark.slow
def test_a_function_with_its_own_backward_is_traced_where_torch_applies_it_in_c():
    """As from torch 2.14 on: an older torch is given the built-in `apply` that it has beneath its own."""
    done = subprocess.run([sys.executable, "-c", OWN_BACKWARD], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_traced_model_may_write_a_modulus() -> None:
    import torch

    numbers = torch.arange(-9, 9)

    assert torch.equal(support.load().jit(lambda x: (x + 1) % 7)(numbers), (numbers + 1) % 7)
