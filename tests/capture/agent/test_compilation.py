"""Records of the kernels that torch.compile generates in a program; nothing is left afterwards."""

import collections
import json

import pytest
import torch
import torch._dynamo.utils
from torch import nn

from perfkit.capture.agent.models.compilation import GENERATED, Compilation
from perfkit.capture.agent.models.outermost import Models
from perfkit.capture.agent.patches import Patches
from perfkit.profile_names import ROOT

WRAPPER = torch._TorchCompileInductorWrapper


@pytest.fixture
def noted():
    """Models, and a compilation that is noted until the test is over."""
    models, patches = Models(), Patches()
    compilation = Compilation(models)
    compilation.install(patches)
    yield models, compilation
    patches.restore()
    compilation.close()


def served(compilation):
    """The module paths that the kernels of each graph serve."""
    return [
        {member.module for site in graph for member in site.members} for graph in compilation.content()["call_sites"]
    ]


def test_a_function_that_calls_a_model_tells_its_modules(noted, tmp_path):
    """No module is called from outside: its modules are known from the graph alone."""
    models, compilation = noted
    model = nn.Sequential(nn.LayerNorm(16), nn.Sequential(nn.Linear(16, 8), nn.Tanh()))
    compiled = torch.compile(lambda x: model(x).sum(-1).exp(), dynamic=False)
    x = torch.randn(4, 16)
    expected = model(x).sum(-1).exp()
    assert torch.allclose(compiled(x), expected, atol=1e-5)
    (modules,) = served(compilation)
    assert {"0", "1.0", "1.1"} <= modules <= {"0", "1.0", "1.1", ROOT}
    assert models.found() == [model]
    content = json.loads(json.dumps(compilation.content()))
    assert any(work["flop"] for work in content["kernels"].values()) and not content["warnings"]
    compilation.write(tmp_path / "process")
    assert "cpp_fused" in (tmp_path / "process" / GENERATED).read_text()


def test_what_is_not_compiled_tells_nothing(noted, tmp_path, monkeypatch):
    """Nor does a look leave a count that Dynamo has not: programs print them."""
    _, compilation = noted
    counters = collections.defaultdict(collections.Counter)
    monkeypatch.setattr(torch._dynamo.utils, "counters", counters)
    assert compilation.content() == {} and not counters
    compilation.write(tmp_path / "process")
    assert not (tmp_path / "process").exists()


def test_options_hold_while_a_graph_is_compiled_and_no_longer(noted, monkeypatch):
    """The program's own comparison of two backends finds them as it made them."""
    seen = []
    monkeypatch.setattr(
        "torch._inductor.compile_fx.compile_fx", lambda *_, config_patches, **__: seen.append(config_patches)
    )
    backend = WRAPPER("default", {"max_autotune": False}, False)
    before = dict(backend.config)
    graph = torch.fx.symbolic_trace(nn.ReLU())
    backend(graph, [])
    assert backend.config == before
    assert seen == [
        {**before, "cpp.enable_kernel_profile": True, "fx_graph_cache": False, "fx_graph_remote_cache": False}
    ]


def test_nothing_stays():
    models, patches = Models(), Patches()
    before = WRAPPER.__call__
    compilation = Compilation(models)
    compilation.install(patches)
    assert WRAPPER.__call__ is not before
    patches.restore()
    compilation.close()
    assert WRAPPER.__call__ is before
