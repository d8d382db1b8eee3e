from __future__ import annotations

import msgspec
import pytest

from perfkit import backends
from perfkit.errors import UsageError
from tests.backends.conftest import errors, relative_error, worst

torch = pytest.importorskip("torch")


def test_a_training_step_agrees_with_fp64(bench):
    b = bench()
    program = b.program("eager")
    assert program.keeps_modules
    assert worst(errors(b.step(program), b.reference())) < 1e-5


def test_accumulated_gradients_are_those_of_the_mean_loss(bench):
    b = bench(grad_accumulation=3)
    program = b.program("eager", "fp64")
    got = b.step(program).gradients
    model = b.workload.build(b.settings).double()
    sum(model(*batch)[1] for batch in b.batches()).div(3).backward()
    expected = {name: p.grad for name, p in model.named_parameters()}
    assert got.keys() == expected.keys()
    assert max(relative_error(got[name], g) for name, g in expected.items()) < 1e-12


def test_the_optimizer_steps(bench):
    b = bench()
    program = b.program("eager")
    before = {name: p.detach().clone() for name, p in program.model.named_parameters()}
    b.step(program)
    assert all(not torch.equal(before[name], p) for name, p in program.model.named_parameters())


def test_inference_needs_no_gradient_and_gives_no_loss(bench):
    b = bench(training=False)
    result = b.step(b.program("eager"))
    assert result.loss is None
    assert not result.outputs.requires_grad


def test_graphs_are_a_backend_next_to_eager(bench):
    b = bench()
    graphs = backends.get("eager:graphs")
    assert graphs.name == "eager-graphs"
    assert graphs.unavailable(b.settings) == "CUDA graphs need a GPU: choose --device cuda."
    on_a_gpu = msgspec.structs.replace(b.settings, device="cuda")
    assert graphs.unavailable(on_a_gpu) is None
    assert "--cuda-graphs none" in graphs.unavailable(msgspec.structs.replace(on_a_gpu, cuda_graphs="none"))
    assert backends.get("eager").unavailable(b.settings) is None
    program = graphs.prepare(b.workload, b.workload.build(b.settings), b.settings)
    assert program.replay is None
    program.replay_where_asked(on_a_gpu)
    assert program.replay is not None
    eager = b.program("eager")
    eager.replay_where_asked(on_a_gpu)
    assert eager.replay is None
    with pytest.raises(UsageError, match="eager:VARIANT is one of graphs; not 'fast'"):
        backends.get("eager:fast")
