"""The GPT-2 model through torch.compile and thunder.jit: one graph, the same results."""

from __future__ import annotations

import pytest
import torch

from tests.support.sweeps import rest

NAMED_TENSORS = ("align_as", "align_to", "has_names", "refine_names", "rename")

pytestmark = pytest.mark.slow


def results(gpt2, s, wrap):
    """Logits, loss and gradients of one step of the model as `wrap` makes it."""
    model = gpt2.build(s)
    logits, loss = wrap(model)(*gpt2.batch(s, 0))
    if loss is not None:
        loss.backward()
    return logits.detach(), loss, {name: p.grad for name, p in model.named_parameters()}


def assert_same(found, expected):
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-5)
    if expected[1] is None:
        assert found[1] is None
        return
    torch.testing.assert_close(found[1], expected[1], rtol=1e-5, atol=1e-6)
    for name, gradient in expected[2].items():
        torch.testing.assert_close(found[2][name], gradient, rtol=1e-3, atol=1e-6, msg=name)


def in_one_graph(model):
    """The model through dynamo and autograd's tracer, which a graph break would stop."""
    torch.compiler.reset()
    return torch.compile(model, fullgraph=True, backend="aot_eager")


@pytest.fixture
def thunder_jit(monkeypatch):
    for name in NAMED_TENSORS:  # Thunder 0.2.6 looks for them; PyTorch 2.13 has them no more
        if not hasattr(torch.Tensor, name):

            def gone(self, *arguments, **keywords):
                raise NotImplementedError

            gone.__name__ = name
            monkeypatch.setattr(torch.Tensor, name, gone, raising=False)
    return pytest.importorskip("thunder").jit


@pytest.mark.parametrize(
    ("recompute", "variant"), [(True, "explicit"), (False, "sdpa"), rest(False, "explicit"), rest(True, "sdpa")]
)
def test_dynamo_takes_the_step_in_one_graph(gpt2, settings, variant, recompute):
    s = settings(variant=variant, recompute=recompute)
    assert_same(results(gpt2, s, in_one_graph), results(gpt2, s, lambda model: model))


def test_dynamo_takes_inference_in_one_graph(gpt2, settings):
    s = settings(training=False)
    assert_same(results(gpt2, s, in_one_graph), results(gpt2, s, lambda model: model))


@pytest.mark.parametrize(
    "options", [rest({}), rest({"variant": "sdpa"}), rest({"recompute": True}), rest({"training": False})], ids=str
)
def test_thunder_takes_the_step(gpt2, settings, thunder_jit, options):
    s = settings(**options)
    assert_same(results(gpt2, s, thunder_jit), results(gpt2, s, lambda model: model))


def test_thunder_keeps_the_loss_in_fp32(gpt2, settings, thunder_jit):
    s = settings(dimensions={"layers": 1})
    _, loss = thunder_jit(gpt2.build(s).to(torch.bfloat16))(*gpt2.batch(s, 0))
    assert loss.dtype == torch.float32
