"""Losses that read the head's product in place, and gradients that nobody gave."""

from __future__ import annotations

import copy
import itertools

import pytest

from perfkit import kernels
from perfkit.backends.thunder import support
from tests.backends.conftest import ONE_LAYER, errors, relative_error, worst
from tests.support.sweeps import rest

torch = pytest.importorskip("torch")
if missing := support.unavailable(None) or kernels.unavailable("cpu"):
    pytest.skip(missing, allow_module_level=True)

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

N, K, V, PADDED = 6, 16, 37, 48


@pytest.fixture
def padded(monkeypatch):
    """Heads of `V` words have `PADDED` columns, as long vocabularies have them on a GPU."""
    support.load()
    kernels.load()
    from perfkit.backends.thunder.executor import library

    plain = library.padded
    monkeypatch.setattr(library, "padded", lambda weight: PADDED if weight.shape[0] == V else plain(weight))


class Head(nn.Module):
    """A head and its loss, as language models have them: x (N, K) → logits (2, N / 2, V), loss ()."""

    def __init__(self, bias: bool, ignored: int, convert: bool) -> None:
        super().__init__()
        self.head = nn.Linear(K, V, bias=bias)
        self.ignored, self.convert = ignored, convert

    def forward(self, x, targets):
        logits = self.head(x.view(2, -1, K))
        exact = logits.float() if self.convert and logits.element_size() < 4 else logits
        return logits, F.cross_entropy(exact.view(-1, V), targets, ignore_index=self.ignored)


def compiled(model):
    """The model as thunder-llmc compiles it, and its executed traces once it ran: text by direction."""
    thunder = support.load()
    kernels.load()
    from perfkit.backends.thunder.executor.executor import executor
    from perfkit.backends.thunder.executor.rewriting import Rewriting

    call = thunder.jit(model, executors=[executor, *thunder.get_default_executors()], transforms=[Rewriting()])

    def executed() -> tuple[str, str]:
        return str(thunder.last_traces(call)[-1]), str(thunder.last_backward_traces(call)[-1])

    return call, executed


def inputs(ignored: int):
    generator = torch.Generator().manual_seed(5)
    targets = torch.randint(0, V, (N,), generator=generator)
    targets[1::3] = ignored
    return torch.randn(N, K, generator=generator), targets


def results(call, model, x, targets, total):
    """Logits and loss, and the gradients of what `total` makes of both."""
    from perfkit.backends.thunder.executor.none_gradients import expect_none

    model.zero_grad(set_to_none=True)
    leaf = x.clone().requires_grad_()
    logits, loss = call(leaf, targets)
    if call is not model:
        expect_none(loss)
    total(logits, loss).backward()
    return [logits, loss, leaf.grad, *(p.grad for p in model.parameters())]


TOTALS = {
    "the loss": lambda logits, loss: loss,
    "1.7 times the loss": lambda logits, loss: 1.7 * loss,
    "the loss and the logits": lambda logits, loss: loss + (logits * logits).sum().float(),
    "the logits": lambda logits, loss: (logits * logits).sum().float(),
}


# In `make test`: every total through the padded head, and a bias and a plain head once or twice.
FEW = [("the loss", False, True), ("the loss and the logits", True, True), ("the logits", False, True),
       ("the loss", True, False), ("the loss and the logits", False, False)]  # fmt: skip
ALL = itertools.product(TOTALS, (False, True), (True, False))


@pytest.mark.parametrize(("total", "bias", "pad"), [case if case in FEW else rest(*case) for case in ALL])
def test_results_are_those_of_pytorch_whatever_is_differentiated(request, total, bias, pad):
    if pad:
        request.getfixturevalue("padded")
    torch.manual_seed(1)
    for ignored in (-100, 3):
        model = Head(bias, ignored, True)
        x, targets = inputs(ignored)
        call, executed = compiled(model)
        got = results(call, model, x, targets, TOTALS[total])
        want = results(model.double(), model, x.double(), targets, TOTALS[total])
        assert max(relative_error(g, w) for g, w in zip(got, want, strict=True)) < 1e-5
        assert ("wide" in executed()[0] or "pad_rows" in executed()[0]) == pad


@pytest.mark.parametrize("convert", [True, False])
def test_bf16_logits_are_read_in_place_and_their_gradient_is_made_once(padded, convert):
    torch.manual_seed(2)
    model = Head(False, -1, convert).bfloat16()
    x, targets = inputs(-1)
    call, executed = compiled(model)
    got = results(call, model, x.bfloat16(), targets, TOTALS["the loss"])
    forward, backward = executed()
    lines = [line.strip() for text in (forward, backward) for line in text.splitlines() if " = " in line]
    calls = [line for line in lines if not line.startswith("#")]
    made = " ".join(calls)
    assert "torch.zeros" not in made and "residual_add" not in made and "first_columns" in made
    conversions = [line for line in calls if ".to(" in line or "convert_element_type" in line]
    assert all(line.endswith(('bf16[]"', 'f32[]"')) for line in conversions), "only the loss itself is converted"
    assert bool(conversions) != convert
    assert f"{V}, -1)" in next(line for line in lines if "cross_entropy_backward(" in line)
    assert got[1].dtype == (torch.float32 if convert else torch.bfloat16), "as PyTorch gives it"
    want = results(model.double(), model, x.bfloat16().double(), targets, TOTALS["the loss"])
    assert max(relative_error(g, w) for g, w in zip(got, want, strict=True)) < 2e-2


def test_a_step_makes_two_tensors_as_large_as_the_logits(padded):
    """The head's product, and its gradient, which the loss's kernel writes: any other pass over logits is avoidable."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Large(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            made = isinstance(result, torch.Tensor) and result.numel() >= rows * V
            name = str(function).removeprefix("aten.")
            if made and not function.is_view and not name.startswith(("empty", "detach")):
                passes.append(name)
            return result

    rows, passes = 60, []
    model = Head(False, -1, True).bfloat16()
    x, targets = torch.randn(rows, K).bfloat16(), torch.arange(rows) % V
    call, _ = compiled(model)
    results(call, model, x, targets, TOTALS["the loss"])
    with Large():
        results(call, model, x, targets, TOTALS["the loss"])
    assert passes == ["mm.out"], "the kernels' own passes do not come here: they read logits twice, and write once"


@pytest.mark.parametrize("capturing", [False, True])
def test_an_absent_gradient_is_not_materialised(padded, monkeypatch, capturing):
    """Autograd gives None, and the trace makes no zeros of it: neither by a fill nor by padding.

    Thunder makes other autograd nodes while a CUDA graph is captured.
    """
    from perfkit.backends.thunder.executor import none_gradients, products

    support.load()
    monkeypatch.setattr("thunder.executors.torch_autograd.is_cudagraph_capturing", lambda: capturing)
    model, (x, targets) = Head(False, -1, True), inputs(-1)
    call, executed = compiled(model)
    results(call, model, x, targets, TOTALS["the loss"])
    assert "sum_of_gradients" in executed()[1]
    thunder = support.load()
    entry = thunder.compile_stats(call).interpreter_cache[0]
    seen = []
    for name in ("sum_of_gradients", "pad_columns"):
        real = getattr(none_gradients if name == "sum_of_gradients" else products, name)

        def watched(*given, name=name, real=real):
            seen.append((name, any(g is None for g in given)))
            return real(*given)

        monkeypatch.setitem(entry.backward_fn.__wrapped__.__wrapped__.__globals__, name, watched)
    results(call, model, x, targets, TOTALS["the loss"])
    assert seen == [("pad_columns", True), ("sum_of_gradients", True)]


def test_without_the_request_for_none_zeros_are_taken(padded):
    """A user's own call of the compiled model, whose node autograd hands zeros to."""
    model, (x, targets) = Head(True, -1, True), inputs(-1)
    call, _ = compiled(model)
    for _ in range(2):
        model.zero_grad()
        call(x, targets)[1].backward()
        found = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        model(x, targets)[1].backward()
        assert all(relative_error(a, p.grad) < 1e-5 for a, p in zip(found, model.parameters(), strict=True))


def test_any_other_use_of_a_gradient_gets_zeros():
    """An output that goes through more than a sum: its absent gradient is made, and the rest is right."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(K, 8)

        def forward(self, x, targets):
            hidden = torch.tanh(self.a(x))
            return hidden * 2.0, hidden.square().mean()

    model, (x, _) = Two(), inputs(-1)
    call, executed = compiled(model)
    got = results(call, model, x, None, TOTALS["the loss"])
    assert "gradient_or_zeros" in executed()[1]
    want = results(model.double(), model, x.double(), None, TOTALS["the loss"])
    assert max(relative_error(g, w) for g, w in zip(got, want, strict=True)) < 1e-5


def test_inference_reads_the_padded_product_too(padded):
    model, (x, targets) = Head(True, -1, True).bfloat16(), inputs(-1)
    call, _ = compiled(model)
    with torch.no_grad():
        logits, loss = call(x.bfloat16(), targets)
        right = model(x.bfloat16(), targets)
    assert logits.shape == (2, N // 2, V) and torch.equal(logits, right[0])
    assert loss.dtype == torch.float32 and relative_error(loss, right[1]) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", rest("fp32")])
def test_gpt2_with_a_padded_head_agrees_with_fp64(bench, monkeypatch, dtype):
    support.load()
    kernels.load()
    from perfkit.backends.thunder.executor import library

    b = bench(**ONE_LAYER, dtype=dtype, grad_accumulation=2)
    reference = b.reference()
    eager = worst(errors(b.step(b.program("eager")), reference))
    plain = library.padded
    monkeypatch.setattr(library, "padded", lambda weight: 576 if weight.shape[0] == 512 else plain(weight))
    program = b.program("thunder-llmc")
    assert worst(errors(b.step(program), reference)) <= 3 * eager
    assert program.problems() == []
    assert {"sum_of_gradients", "first_columns"} <= {s.name for s in program.symbols()}


@pytest.mark.parametrize("form", ["q @ k.transpose(-2, -1)", "q @ k.mT", "q @ k.permute(0, 1, 3, 2)", "q @ v"])
def test_products_take_what_is_transposed_for_them_as_it_is(form):
    """And give gradients in the layout of what they belong to: nothing is transposed or copied."""
    generator = torch.Generator().manual_seed(4)
    q, k, v = (torch.randn(2, 3, *s, generator=generator) for s in ((5, 8), (7, 8), (8, 7)))
    function = eval(f"lambda q, k, v: {form}")
    call, executed = compiled(function)
    given = [[x.clone().requires_grad_() for x in (q, k, v)] for _ in range(2)]
    upstream = torch.randn(2, 3, 5, 7, generator=generator)
    call(*given[0]).backward(upstream)
    function(*given[1]).backward(upstream)
    for got, want in zip(*given, strict=True):
        assert (got.grad is None) == (want.grad is None)
        assert got.grad is None or (relative_error(got.grad, want.grad) < 1e-6 and got.grad.is_contiguous())
    traces = "\n".join(executed())
    assert ("matmul_nt" in executed()[0]) == ("k" in form) and "permute(" not in traces and "transpose(" not in traces


@pytest.mark.parametrize("where", ["the head", "the conversion", "the transposition"])
def test_no_gradient_goes_through_what_is_under_no_grad(padded, where):
    class Detached(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(K, V)

        def forward(self, x, targets):
            if where == "the head":
                with torch.no_grad():
                    rows = self.head(x)
            elif where == "the conversion":
                with torch.no_grad():
                    rows = self.head(x).view(-1, V)
            else:
                pairs = x.view(2, N // 2, K)
                with torch.no_grad():
                    turned = pairs.transpose(-2, -1)
                rows = (pairs @ turned).view(N, N // 2) @ self.head.weight[:, : N // 2].t()
            return F.cross_entropy(rows, targets) + 0.1 * self.head(x * 2.0).square().mean()

    torch.manual_seed(3)
    model, (x, targets) = Detached(), inputs(-100)
    exact, found = copy.deepcopy(model).double(), []
    for function, form, given in ((compiled(model)[0], model, x.clone()), (exact, exact, x.double())):
        leaf = given.requires_grad_()
        function(leaf, targets).backward()
        found.append([leaf.grad, *(p.grad for p in form.parameters())])
    assert all(relative_error(got, want) < 1e-5 for got, want in zip(*found, strict=True))
