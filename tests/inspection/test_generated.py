"""The programs that backends make of a workload."""

from __future__ import annotations

import json

import pytest

from perfkit.errors import InputError
from perfkit.inspection import generated
from tests.support.compiled import fresh_graphs

INDUCTOR = """
cpp_fused_add_0 = async_compile.cpp_pybinding(['float*'], '''
#pragma omp for
auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0);
''')
triton_poi_fused_gelu_1 = async_compile.triton('triton_poi_fused_gelu_1', '''...''')
def call(args):
    extern_kernels.addmm(arg0, arg1)
    extern_kernels.addmm(arg0, arg1)
    torch.ops.perfkit.gelu_forward.default(x)
"""
THUNDER = """# forward
def computation(x):
  [t0, t1] = layernorm_forward(x, w)
    # t0 = something(x)
  t2 = torch.matmul(t0, w)
  del t0
  return t2

# backward
def backward(x):
  t9 = torch.matmul(x, w)
"""


def test_inductor_s_code():
    facts = dict(generated.described("t", INDUCTOR, []).facts)
    assert facts["fused kernels"] == "C++ ×1, Triton ×1"
    assert facts["library calls"] == "addmm ×2, perfkit.gelu_forward ×1"
    assert facts["vectors"] == "float ×1" and facts["parallel loops"] == "1"
    assert facts["kernels"] == "cpp_fused_add_0, triton_poi_fused_gelu_1"


def test_thunder_s_trace():
    facts = dict(generated.described("t", THUNDER, []).facts)
    assert facts["calls"] == "3: matmul ×2, layernorm_forward ×1"
    assert facts["traces"] == "forward, backward"


@pytest.fixture
def run_folder(tmp_path):
    """The least of a run folder that keeps a program."""
    settings = {"workload": "gpt2", "preset": "tiny", "batch_size": 1}
    facts = {"title": "GPT-2 tiny", "parameters": 1, "samples_per_step": 1}
    members = [{"name": "eager"}, {"name": "compile", "generated": "generated.txt"}]
    manifest = {
        "perfkit": "0", "created": "", "command": [], "settings": settings, "workload": facts, "backends": members,
    }  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps(manifest))
    (tmp_path / "compile").mkdir()
    (tmp_path / "compile" / "generated.txt").write_text(INDUCTOR)
    return tmp_path


def test_the_program_of_a_run(run_folder):
    found = generated.inspect_run(run_folder, "")
    assert found.title == "GPT-2 tiny on compile" and found.listing == INDUCTOR
    with pytest.raises(InputError, match=r"holds no program of eager\. It has those of compile\."):
        generated.inspect_run(run_folder, "eager")
    (run_folder / "compile" / "generated.txt").unlink()
    with pytest.raises(InputError, match="cannot be read"):
        generated.inspect_run(run_folder, "compile")


def test_the_command(run_folder, run_cli, tmp_path):
    done = run_cli(["inspect", run_folder, "--out", tmp_path / "code.txt"])
    assert done.rc == 0, done.stderr
    assert "fused kernels" in done.stdout and "C++ ×1, Triton ×1" in done.stdout
    assert (tmp_path / "code.txt").read_text().startswith("# GPT-2 tiny on compile\n")
    done = run_cli(["inspect", "gpt2"])
    assert done.rc == 2 and "Name a backend: perfkit inspect gpt2 --backend compile." in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "fact"), [("compile", "fused kernels"), ("thunder", "calls")])
def test_a_program_made_now(backend, fact):
    from perfkit import backends
    from perfkit.workloads import find, resolve_settings

    mlp = find("mlp")
    settings = resolve_settings(mlp, dimensions={"layers": 1, "width": 16}, batch_size=4)
    reason = backends.get(backend).unavailable(settings)
    if reason:
        pytest.skip(reason)
    with fresh_graphs():
        found = generated.inspect_backend(mlp, settings, backend)
    assert dict(found.facts)[fact]
    assert len(found.listing.splitlines()) > 100
    with pytest.raises(InputError, match="The backend eager generates no program"):
        generated.inspect_backend(mlp, settings, "eager")
