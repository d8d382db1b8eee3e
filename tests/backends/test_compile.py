from __future__ import annotations

import re

import pytest

from perfkit import backends
from perfkit.backends import compile as compile_backend
from perfkit.backends.compile import DESCRIBED, CompiledProgram, mode_options
from perfkit.errors import UsageError
from perfkit.inductor import recording as inductor
from perfkit.inductor.recording import CPU_OPTIONS
from perfkit.inductor.work import work_of
from perfkit.workloads import find
from tests.backends.conftest import ONE_LAYER, errors, worst
from tests.support.sweeps import rest

torch = pytest.importorskip("torch")
if missing := backends.get("compile").unavailable():
    pytest.skip(missing, allow_module_level=True)

pytestmark = pytest.mark.usefixtures("fresh_dynamo")
PLAIN = find("mlp")  # a workload whose model returns its loss
needs_linux = pytest.mark.skipif(compile_backend.sys.platform != "linux", reason="kernel records exist on Linux only")


class Chain(torch.nn.Module):
    """tanh(2·x + w) with x (64, 96), w (96): three operations an element."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.linspace(-1, 1, 96))

    def forward(self, x):
        return torch.tanh(x * 2 + self.w), None


class Gather(torch.nn.Module):
    """Rows of a table (1000, 32) at i (50), times 3."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.ones(1000, 32))

    def forward(self, i):
        return torch.nn.functional.embedding(i, self.table) * 3, None


class Normalise(torch.nn.Module):
    """x (16, 128) less its row's mean: the row's sum, its division by 128 and the subtraction."""

    def forward(self, x):
        return x - x.sum(-1, keepdim=True) / 128, None


class Breaks(torch.nn.Module):
    def forward(self, x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2, None


def compiled(model, mode: str = "default") -> CompiledProgram:
    options = compile_backend.CPU_OPTIONS | mode_options(mode)
    return CompiledProgram(PLAIN, model, torch.compile(model, dynamic=False, options=options), None)


def profiled_names(run) -> set[str]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run()
    return {event.name for event in profile.events() if event.name.startswith("graph_")}


@needs_linux
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "batch", "flop", "read", "written"),
    [
        (Chain(), torch.ones(64, 96), 3 * 64 * 96, 4 * (64 * 96 + 96), 4 * 64 * 96),
        # Each chosen row once, with its index; never the table.
        (Gather(), torch.arange(50), 50 * 32, 4 * 50 * 32 + 8 * 50, 4 * 50 * 32),
        # The row sums are made and used inside the kernel: written, as they have a buffer, but not read from outside.
        (Normalise(), torch.ones(16, 128), 16 * 128 + 16 * 128 + 16 * 128, 4 * 16 * 128, 4 * (16 * 128 + 16)),
    ],
)
def test_the_work_of_one_kernel_by_hand(model, batch, flop, read, written):
    program = compiled(model)
    program.forward((batch,))
    assert program.warnings() == []
    ((name, kernel),) = program.declared_kernels().items()
    assert {name} == profiled_names(lambda: program.forward((batch,)))
    assert kernel.flop == {"vector_fp32": flop}
    assert (kernel.bytes_read, kernel.bytes_written) == (read, written)
    assert kernel.family == "fused"


@needs_linux
@pytest.mark.slow
def test_a_reduction_of_several_results_counts_once():
    """Welford's mean and squares are two loop nests of one reduction; rows this long are reduced so on a CPU too."""
    into = inductor.Recording()
    with inductor.recording(into):
        torch.compile(lambda x: sum(torch.var_mean(x, -1)), dynamic=False, options=DESCRIBED)(torch.ones(8, 65536))

    calls = [call.name for kernel in into.kernels.values() for call in kernel.calls]
    assert calls.count("aten::var_mean") == 1


@needs_linux
@pytest.mark.slow
def test_what_an_index_chooses_is_read_by_all_loops_that_it_depends_on():
    """Swin's backward pass rolls its windows by two indices: 13 kB of the 38 MB that a sum read were reported. Inductor
    names only the variables of the index itself, not those that the loaded part of it depends on."""
    rows, order = torch.ones(64, 48, 48), torch.arange(40)
    for choose, read, written in (
        (lambda: torch.compile(lambda x, i: x[:, i][:, :, i] * 2, dynamic=False, options=CPU_OPTIONS)(rows, order),
         4 * 64 * 40 * 40 + 8 * 40, 4 * 64 * 40 * 40),
        (lambda: torch.compile(lambda x, i: x[i] * 2, dynamic=False, options=CPU_OPTIONS)(rows[0, 0], order),
         4 * 40 + 8 * 40, 4 * 40),
    ):  # fmt: skip
        into = inductor.Recording()
        with inductor.recording(into), torch.no_grad():
            choose()
        (kernel,) = into.kernels.values()
        assert (kernel.bytes_read, kernel.bytes_written) == (read, written)


@needs_linux
@pytest.mark.slow
def test_flex_attention_without_a_block_mask_has_its_products_and_a_move_has_none():
    """Flex attention was judged by its bytes alone, as if it computed nothing: "at 15 %, bound by memory"."""
    from torch.nn.attention.flex_attention import flex_attention

    into = inductor.Recording()
    inputs = [torch.ones(1, 2, 64, 16) for _ in range(3)]  # torch 2.11 refuses the same tensor twice on a CPU
    with inductor.recording(into), torch.no_grad():
        torch.compile(flex_attention, dynamic=False, options=CPU_OPTIONS)(*inputs)
        torch.compile(lambda x: x.t().contiguous(), dynamic=False, options=CPU_OPTIONS)(torch.ones(8, 16))
    works = {name: work_of(kernel) for name, kernel in into.kernels.items()}
    assert works["graph_0_kernel"]["flop"]["matrix_fp32"] == 2 * (2 * 64 * 64) * (2 * 16)  # two products of all pairs
    assert works["graph_0_kernel"]["bytes_read"] > 0
    (move,) = (work for name, work in works.items() if name.startswith("graph_1"))
    assert move["flop"] == {"vector_fp32": 0.0} and move["bytes_read"] == move["bytes_written"] == 512


@needs_linux
@pytest.mark.slow
def test_flex_attention_has_the_flop_of_the_blocks_that_its_mask_keeps():
    """320 positions are blocks of 128, 128 and 64: a causal mask keeps 6 of 9. Which blocks is known when it runs."""
    from torch._inductor.output_code import CompiledFxGraph
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    into, inputs = inductor.Recording(), [torch.ones(1, 2, 320, 16) for _ in range(3)]
    mask, other, wider = (
        create_block_mask(lambda b, h, q, k, more=more: q + more >= k, None, None, 320, 320, device="cpu")
        for more in (torch.tensor(0), torch.tensor(0), torch.tensor(150))
    )
    attend = torch.compile(flex_attention, dynamic=False, options=CPU_OPTIONS)
    original = CompiledFxGraph.__call__
    with inductor.recording(into), torch.no_grad():
        attend(*inputs, block_mask=mask)
        attend(*inputs, block_mask=other)  # another mask that keeps as much
    pairs = 128 * 128 + 128 * 256 + 64 * 320
    hand = 2 * 2 * 2 * 16 * pairs  # two products of two heads
    assert work_of(into.known()["graph_0_kernel"])["flop"]["matrix_fp32"] == hand
    assert work_of(into.known()["graph_0_kernel"])["family"] == "attention"
    assert [s.work.flop["matrix_fp32"] for s in into.graphs()[0] if s.name == "graph_0_kernel"] == [hand]
    assert any("(6 of 9, of 128 × 128 scores each)" in said for said in into.said())
    assert CompiledFxGraph.__call__ is original

    with inductor.recording(into), torch.no_grad():
        attend(*inputs, block_mask=wider)
    assert work_of(into.known()["graph_0_kernel"])["flop"] == {}
    assert "The FLOP of graph_0_kernel are unknown: its block mask differs from call to call." in into.said()


@needs_linux
@pytest.mark.slow
def test_a_block_mask_made_inside_the_compiled_graph_leaves_the_flop_unknown():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def attend(q, k, v):
        mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256, device="cpu")
        return flex_attention(q, k, v, block_mask=mask)

    into = inductor.Recording()
    with inductor.recording(into), torch.no_grad():
        torch.compile(attend, dynamic=False, options=CPU_OPTIONS)(*(torch.ones(1, 2, 256, 16) for _ in range(3)))
    unknown = [said for said in into.said() if said.endswith("is made inside the compiled graph.")]
    assert len(unknown) == 1
    assert work_of(into.known()[unknown[0].split()[3]])["flop"] == {}


@needs_linux
@pytest.mark.slow
def test_a_training_step_agrees_with_fp64_and_declares_what_the_profiler_shows(bench):
    b = bench(**ONE_LAYER, grad_accumulation=2)
    program = b.program("compile")
    assert worst(errors(b.step(program), b.reference())) < 1e-5
    assert program.warnings() == []
    declared = program.declared_kernels()
    assert profiled_names(lambda: b.step(program, first=2)) == set(declared)
    assert all(kernel.bytes_read + kernel.bytes_written > 0 for kernel in declared.values())
    gelu = next(k for name, k in declared.items() if re.match(r"graph_\d+_cpp_fused_gelu_view", name))
    rows, width = 2 * 16, 4 * b.workload.presets["tiny"]["channels"]
    assert gelu.flop == {"vector_fp32": 9.0 * rows * width}  # as many as the cost model counts for aten::gelu
    assert gelu.bytes_read == gelu.bytes_written == 4 * rows * width
    assert "cpp_fused" in program.generated()


@needs_linux
@pytest.mark.slow
def test_what_is_known_of_the_kernels_survives_inductors_caches(fresh_dynamo):
    first = compiled(Chain())
    first.forward((torch.ones(64, 96),))
    torch._dynamo.reset()
    again = compiled(Chain())
    again.forward((torch.ones(64, 96),))
    assert [k.flop for k in again.declared_kernels().values()] == [k.flop for k in first.declared_kernels().values()]
    assert again.declared_kernels()


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"training": False}, rest({"recompute": True})])
def test_other_modes_agree_with_fp64(bench, settings):
    b = bench(**ONE_LAYER, **settings)
    assert worst(errors(b.step(b.program("compile")), b.reference())) < 1e-5


@needs_linux
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_the_modes_of_torch_compile_declare_their_kernels_too(mode):
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU())
    model.forward = lambda x, forward=model.forward: (forward(x), None)
    program = compiled(model, mode)
    x = torch.ones(32, 64)
    program.forward((x,))
    assert profiled_names(lambda: program.forward((x,))) == set(program.declared_kernels()) != set()


def test_an_unknown_mode_is_refused_with_those_that_exist(bench):
    with pytest.raises(UsageError) as caught:
        backends.get("compile").unavailable(bench(compile_mode="max-autotun").settings)
    assert "reduce-overhead" in caught.value.message
    assert caught.value.hint == "Did you mean max-autotune?"


def test_each_mode_is_a_backend_of_its_own(bench):
    made = backends.get("compile:max-autotune-no-cudagraphs")
    assert (made.name, made.mode) == ("compile-max-autotune-no-cudagraphs", "max-autotune-no-cudagraphs")
    assert made.unavailable(bench(compile_mode="default").settings) == backends.get("compile").unavailable()
    assert (backends.get("compile").name, backends.get("compile").mode) == ("compile", "")
    with pytest.raises(UsageError, match=r"compile:MODE is one of default, .*; not 'max-autotun'"):
        backends.get("compile:max-autotun")
    with pytest.raises(UsageError, match="thunder has no variants"):
        backends.get("thunder:fast")


@pytest.mark.slow
def test_graph_breaks_are_counted():
    program = compiled(Breaks())
    program.forward((torch.ones(4),))
    (warning,) = program.warnings()
    assert warning.startswith("The graph breaks 1 × (")


def test_what_dynamo_counted_is_kept():
    """Another shape compiles both halves again, for the guard that failed; a program made later knows nothing of it."""
    model = Breaks()
    program = CompiledProgram(PLAIN, model, torch.compile(model, backend="eager", dynamic=False), None)
    program.forward((torch.ones(4),))
    program.forward((torch.ones(5),))
    counted = program.compiler()
    assert counted["graphs"] == 4 and sum(counted["graph_breaks"].values()) == 2
    assert [again["function"] for again in counted["recompilations"]][:1] == ["forward"]
    assert all(again["ns"] > 0 and "size mismatch" in again["reason"] for again in counted["recompilations"])
    assert CompiledProgram(PLAIN, model, None, None).compiler() == {
        "graphs": 0,
        "graph_breaks": {},
        "break_lines": [],
        "recompilations": [],
    }


def test_without_a_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    reason = backends.get("compile").unavailable()
    assert reason.startswith("torch.compile needs a C++ compiler, and ")
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    assert "no-such-compiler is not installed" in backends.get("compile").unavailable()


def test_without_pythons_headers(monkeypatch, tmp_path):
    monkeypatch.setattr(compile_backend.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    assert "Python.h" in backends.get("compile").unavailable()


def test_on_windows(monkeypatch):
    monkeypatch.setattr(compile_backend.sys, "platform", "win32")
    assert backends.get("compile").unavailable() == "torch.compile is not supported by perfkit on Windows."


@pytest.mark.slow
def test_an_inductor_without_the_names_is_a_warning_and_nothing_else(monkeypatch):
    from torch._inductor.codegen.cpp import CppScheduling

    # The name is found on the base class then, as Inductor itself needs it.
    class Older(CppScheduling):
        pass

    monkeypatch.setattr("torch._inductor.codegen.cpp.CppScheduling", Older)
    program = compiled(Chain())
    outputs, _ = program.forward((torch.ones(64, 96),))
    assert outputs.shape == (64, 96)
    assert program.declared_kernels() == {}
    assert program.warnings() == [
        "The fused kernels are not fully described: this torch's Inductor has no Older.define_kernel."
    ]


@pytest.mark.slow
def test_a_structure_that_changed_is_a_warning_and_nothing_else(monkeypatch):
    def changed(*arguments):
        raise AttributeError("no such field")

    monkeypatch.setattr(inductor, "describe", changed)
    program = compiled(Chain())
    program.forward((torch.ones(64, 96),))
    (warning,) = program.warnings()
    assert "AttributeError: no such field" in warning


def test_a_name_that_two_different_kernels_share_tells_nothing():
    def kernel(size: float) -> inductor.GeneratedKernel:
        return inductor.GeneratedKernel(size, size, (), ("aten::add",))

    recorded = inductor.Recording()
    for size in (8.0, 8.0, 16.0):
        recorded.add("graph_0_same", kernel(size))
    recorded.add("graph_0_other", kernel(4.0))
    assert set(recorded.known()) == {"graph_0_other"}
    assert recorded.said() == [
        "Two different fused kernels are called graph_0_same: where the call in its graph was not found in the trace, "
        "their FLOP and bytes are left out."
    ]
    for size in (4.0, 8.0):
        recorded.add("graph_0_other", kernel(size))
    assert recorded.said() == [
        "Two different fused kernels are called graph_0_other, and so it is with 1 other name: where the call in its "
        "graph was not found in the trace, their FLOP and bytes are left out."
    ]
