"""Rows of compiled code, placed by what the compiler said of its calls, on traces small enough to check by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfkit.readers.kineto.trace import read_trace
from perfkit.run_folder import DeclaredKernel
from perfkit.table import KernelTable
from perfkit.tree import shares
from perfkit.tree.shares import CallSite, OperatorShare, Work
from tests.support.readers.traces import LAYERS, Event, event, mark, node, op, write

GELU = "graph_0_cpp_fused_gelu_0"


def site(name: str, *served: tuple[str, str, float], line: int = 0) -> CallSite:
    return CallSite(name, line, tuple(OperatorShare("", *s) for s in served))


def layer(i: int) -> list[CallSite]:
    """The calls of one layer: a product, and a fused kernel for its activation and the next sum."""
    block = f"transformer.h.{i}"
    return [
        site("aten::addmm", (f"{block}.fc", "linear", 1.0), line=10 * i + 1),
        site(GELU, (f"{block}.fc", "gelu", 0.25), (block, "add", 0.75), line=10 * i + 2),
    ]


def product(at: float) -> list[Event]:
    return [op("aten::addmm", at, at + 8, [[8], [6, 4], [4, 8]]), op("aten::copy_", at + 1, at + 3, [[6, 8], [6, 8]])]


def forward(calls: list[Event]) -> list[Event]:
    around = [mark("perfkit:step:0", 0, 1000), mark("perfkit:pass:forward", 10, 500)]
    return [*around, mark("## Call CompiledFxGraph abc ##", 20, 490), *calls]


def read(tmp_path: Path, events: list[Event], graphs: list[list[CallSite]], **more: Any) -> KernelTable:
    return read_trace(write(tmp_path / "t.json", events), layers=LAYERS, call_sites=graphs, **more)


def places(table: KernelTable) -> list[tuple[Any, ...]]:
    columns = ("name", "module", "operator", "placed_by")
    return list(zip(*(table.frame[c].astype(object).where(table.frame[c].notna(), None) for c in columns), strict=True))


def test_each_call_of_one_fused_kernel_has_a_place_of_its_own(tmp_path: Path) -> None:
    events = forward([*product(30), op(GELU, 40, 50), *product(60), op(GELU, 70, 80)])
    table = read(tmp_path, events, [[*layer(0), *layer(1)]], passes={"head": ("transformer.h.1.fc",)})
    assert places(table) == [
        ("aten::addmm", "transformer.h.0.fc", "linear", "provenance"),
        ("aten::copy_", "transformer.h.0.fc", "linear", "provenance"),  # inside the call
        (GELU, "transformer.h.0", "add", "provenance"),
        ("aten::addmm", "transformer.h.1.fc", "linear", "provenance"),
        ("aten::copy_", "transformer.h.1.fc", "linear", "provenance"),
        (GELU, "transformer.h.1", "add", "provenance"),
    ]
    frame = table.frame
    assert frame["layer"].tolist() == [0, 0, 0, 1, 1, 1]
    assert frame["range"].tolist()[2] == "## Call CompiledFxGraph abc ##/generated:2"
    assert frame["serves"].isna().tolist() == [True, True, False, True, True, False]
    # Members are split into passes as rows are: the workload calls a part of the last layer's product its head.
    assert [m.pass_ for m in shares.read(frame["serves"][2])] == ["forward", "forward"]
    assert [m.pass_ for m in shares.read(frame["serves"][5])] == ["head", "forward"]
    assert frame["pass"].tolist() == ["forward"] * 3 + ["head"] * 2 + ["forward"]


def test_a_call_between_that_nobody_told_of_does_not_shift_the_others(tmp_path: Path) -> None:
    extra = [*product(45), op("aten::mul", 95, 99, [[6, 8], [6, 8]])]
    events = forward([*product(30), *extra, op(GELU, 60, 70), *product(75), op(GELU, 85, 90)])
    found = places(read(tmp_path, events, [[*layer(0), *layer(1)]]))
    modules = [module for name, module, *_ in found if name in ("aten::addmm", GELU)]
    # Which of the first two products is layer 0's is not certain.
    assert modules == [None, None, "transformer.h.0", "transformer.h.1.fc", "transformer.h.1"]
    assert found[-1] == ("aten::mul", None, "aten::mul", "none")


def test_code_that_several_modules_share_is_not_placed(tmp_path: Path) -> None:
    """One graph that runs twice in a forward serves two modules: the compiler knows the first only."""
    calls = [*product(30), op(GELU, 40, 50)]
    again = [mark("## Call CompiledFxGraph abc ##", 510, 590), *product(530), op(GELU, 540, 550)]
    events = [
        mark("perfkit:step:0", 0, 1000), mark("perfkit:pass:forward", 10, 700),
        mark("## Call CompiledFxGraph abc ##", 20, 490), *calls, *again,
    ]  # fmt: skip
    table = read(tmp_path, events, [layer(0)])
    assert set(table.frame["placed_by"]) == {"none"} and table.frame["module"].isna().all()
    assert any("runs 2 × in one pass" in w for w in table.warnings)


def test_code_that_several_modules_share_is_placed_by_the_module_that_it_runs_in(tmp_path: Path) -> None:
    """As in a program that compiles each block by itself: the compiler saw the first, ranges show the others."""
    events = [mark("perfkit:step:0", 0, 1000), mark("perfkit:pass:forward", 10, 900)]
    for number, at in enumerate((20, 320)):
        around = "## Call CompiledFxGraph abc ##"
        events += [mark(f"perfkit:module:transformer.h.{number}", at, at + 290), mark(around, at + 1, at + 280)]
        events += [*product(at + 10), op(GELU, at + 20, at + 30)]
    events += [mark("perfkit:module:head", 650, 690), mark(around, 651, 689), *product(660), op(GELU, 670, 680)]
    table = read(tmp_path, events, [layer(0)])
    modules = [module for name, module, *_ in places(table) if name != "aten::copy_"]
    assert modules == [
        *("transformer.h.0.fc", "transformer.h.0", "transformer.h.1.fc", "transformer.h.1"),
        "head",
        "head",
    ]
    serves = table.frame["serves"][table.frame["name"] == GELU].tolist()
    assert [m.module for m in shares.read(serves[1])] == ["transformer.h.1.fc", "transformer.h.1"]
    assert any("runs 3 × in one pass" in w for w in table.warnings)  # in a head its part is unknown


def in_a_thread_of_its_own(runs: int) -> list[Event]:
    """A backward whose graphs run in autograd's thread, as on a GPU; the range of the pass is in the other one."""
    events = [mark("perfkit:step:0", 0, 1000), mark("perfkit:pass:backward", 10, 900)]
    for at in range(20, 20 + 100 * runs, 100):
        events += [mark("## Call CompiledFxGraph abc ##", at, at + 90, tid=2)]
        events += [{**call, "tid": 2} for call in (*product(at + 10), op(GELU, at + 20, at + 30))]
    return events


def test_graphs_with_the_same_calls_run_in_the_order_of_their_making(tmp_path: Path) -> None:
    """As the parts of a graph that was divided at DDP's buckets, with two layers each."""
    table = read(tmp_path, in_a_thread_of_its_own(3), [layer(2), layer(1), layer(0)])
    modules = [module for name, module, *_ in places(table) if name == GELU]
    assert modules == ["transformer.h.2", "transformer.h.1", "transformer.h.0"]
    assert not any("in one pass" in w for w in table.warnings)


def test_a_graph_that_runs_several_times_in_autograds_thread_is_not_placed(tmp_path: Path) -> None:
    table = read(tmp_path, in_a_thread_of_its_own(3), [layer(2)])
    assert [module for name, module, *_ in places(table) if name == GELU] == [None] * 3
    assert any("runs 3 × in one pass" in w for w in table.warnings)


def test_micro_batches_of_a_compiled_model_are_placed_in_each_of_its_runs(tmp_path: Path) -> None:
    """As llama2.c trains: a graph of the whole model runs four times a step, in one forward pass as a capture marks it
    and in autograd's thread. It was said to serve four modules, and nothing was placed."""
    around = "## Call CompiledFxGraph abc ##"
    whole = [*layer(0), *layer(1), site("aten::mm", ("lm_head", "linear", 1.0), line=99)]
    calls = [("aten::addmm", 8), (GELU, 4), ("aten::addmm", 8), (GELU, 4), ("aten::mm", 8)]
    events = [mark("perfkit:step:0", 0, 1000), mark("perfkit:pass:forward", 10, 490)]
    events += [mark("perfkit:pass:backward", 500, 990)]
    for tid, at in ((1, 20), (1, 120), (2, 520), (2, 620)):
        events += [mark(around, at, at + 90, tid=tid)]
        for i, (name, length) in enumerate(calls):
            dims = [[8], [6, 4], [4, 8]] if name == "aten::addmm" else [[6, 4], [4, 8]]
            events += [{**op(name, at + 10 + 12 * i, at + 10 + 12 * i + length, dims), "tid": tid}]
    table = read(tmp_path, events, [whole])
    modules = [module for _, module, *_ in places(table)]
    once = ["transformer.h.0.fc", "transformer.h.0", "transformer.h.1.fc", "transformer.h.1", "lm_head"]
    assert modules == 4 * once and not any("in one pass" in w for w in table.warnings)


def replayed(at: float, number: int, names: list[str]) -> list[Event]:
    """The launch of a CUDA graph, and its kernels one after the other."""
    launch = [event("cuda_runtime", "cudaGraphLaunch", at, at + 5, correlation=number)]
    starts = [at + 6 + 4 * i for i in range(len(names))]
    on_gpu = {"pid": 0, "tid": 7, "device": 0, "stream": 7, "correlation": number}
    return [*launch, *(event("kernel", n, t, t + 3, **on_gpu) for n, t in zip(names, starts, strict=True))]


FUSED, NORM = "triton_poi_fused_gelu_0", "triton_red_fused_norm_1"
CODE = [
    site(NORM, ("h.0", "norm", 1.0)), site("aten::mm", ("h.0.fc", "linear", 1.0)), site(FUSED, ("h.0", "gelu", 1.0)),
    site(NORM, ("h.1", "norm", 1.0)), site("aten::mm", ("h.1.fc", "linear", 1.0)), site(FUSED, ("h.1", "gelu", 1.0)),
    site("aten::mm", ("head", "linear", 1.0)),
]  # fmt: skip


def test_what_a_cuda_graph_replays_has_the_places_of_the_compiled_graph(tmp_path: Path) -> None:
    """As gpt-fast decodes: 97 % of the kernel time had no FLOP, and nothing a module. A product of two kernels is that
    of the one call between its neighbours; a copy before the code that nobody reported has no place."""
    kernels = ["copy", NORM, "gemm", "splitKreduce", FUSED, NORM, "gemm", FUSED, "gemm"]
    events = [mark("ProfilerStep#1", 0, 1000), op("Torch-Compiled Region: 0/0", 10, 200), *replayed(20, 1, kernels)]
    work = {NORM: DeclaredKernel(flop={"vector_fp32": 7.0}, bytes_read=8.0, bytes_written=4.0)}
    table = read(tmp_path, events, [CODE], declared=work)
    assert [module for _, module, *_ in places(table)] == [
        None, "h.0", "h.0.fc", "h.0.fc", "h.0", "h.1", "h.1.fc", "h.1", "head",
    ]  # fmt: skip
    norm = table.frame[table.frame["name"] == NORM]
    assert norm["flop_vector_fp32"].tolist() == [7.0, 7.0] and norm["bytes_read"].tolist() == [8.0, 8.0]
    assert set(norm["flop_origin"]) == {"model"} and set(norm["family"]) == {"fused"}
    assert table.frame["flop_vector_fp32"].notna().sum() == 2
    assert any("8 have the places of a compiled graph's calls" in w for w in table.warnings)


def with_work(code: list[CallSite], amounts: dict[str, Work]) -> list[CallSite]:
    return [one._replace(work=amounts.get(one.name)) for one in code]


def test_a_replayed_product_has_the_work_of_its_call_and_what_helps_it_has_none(tmp_path: Path) -> None:
    """A quarter of the kernel time of GPT-2 under CUDA graphs had no FLOP: the library's products."""
    kernels = [NORM, "gemm_bf16", "splitKreduce_kernel", FUSED, NORM, "gemm_bf16", FUSED, "gemm_bf16"]
    events = [mark("ProfilerStep#1", 0, 1000), op("Torch-Compiled Region: 0/0", 10, 200), *replayed(20, 1, kernels)]
    amounts = {"aten::mm": Work({"matrix_bf16": 96.0}, 40.0, 20.0), NORM: Work({"vector_fp32": 7.0}, 8.0, 4.0)}
    by_name = {NORM: DeclaredKernel(flop={"vector_fp32": 1.0}, bytes_read=1.0, bytes_written=1.0)}
    frame = read(tmp_path, events, [with_work(CODE, amounts)], declared=by_name).frame.set_index("name")
    assert frame.loc["gemm_bf16", "flop_matrix_bf16"].tolist() == [96.0] * 3
    assert frame.loc["gemm_bf16", "bytes_read"].tolist() == [40.0] * 3
    assert set(frame.loc["gemm_bf16", "flop_origin"]) == {"model"}
    assert frame.loc["splitKreduce_kernel", ["bytes_read", "flop_origin"]].tolist() == [0.0, "derived"]
    assert frame.loc[NORM, "flop_vector_fp32"].tolist() == [7.0, 7.0]  # the call's own, not that of the name
    assert set(frame.loc[FUSED, "flop_origin"]) == {"absent"}


SDPA, PRODUCT = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop", "nvjet_sm90_tst_128x128_64x6_NNT"
ATTENTION = "aten::_scaled_dot_product_cudnn_attention"


@pytest.mark.parametrize(
    ("kernels", "calls", "modules"),
    [
        # With dropout attention unpacks a seed and clears its memory: its product had no place either.
        (["philox::unpack_cudnn", "Memset", SDPA, PRODUCT], [ATTENTION, "aten::addmm"], [None, None, "0", "1"]),
        (
            [PRODUCT, PRODUCT, "Memset", "compute_dot_do_o", SDPA, "convert_dq"],
            ["aten::mm", "aten::mm", f"{ATTENTION}_backward"],
            ["0", "1", None, "2", "2", "2"],
        ),
        ([PRODUCT, "splitKreduce_kernel", PRODUCT], ["aten::mm", "aten::mm"], [None] * 3),
        (["Memset", PRODUCT, SDPA], [ATTENTION, "aten::addmm"], [None] * 3),
    ],
)
def test_kernels_between_go_to_calls_of_their_kind(
    tmp_path: Path, kernels: list[str], calls: list[str], modules: list[str | None]
) -> None:
    events = [mark("ProfilerStep#1", 0, 1000), *replayed(20, 1, [NORM, *kernels, FUSED])]
    code = [CODE[0], *(site(call, (str(i), "call", 1.0)) for i, call in enumerate(calls)), CODE[2]]
    found = [module for _, module, *_ in places(read(tmp_path, events, [code]))]
    assert found == ["h.0", *modules, "h.0"]


def test_a_product_of_fp32_in_a_replay_runs_on_the_units_that_its_kernel_names(tmp_path: Path) -> None:
    events = [mark("ProfilerStep#1", 0, 1000), *replayed(20, 1, [FUSED, "cutlass_tensorop_s1688gemm"])]
    code = with_work([CODE[2], CODE[6]], {"aten::mm": Work({"matrix_fp32": 96.0}, 40.0, 20.0)})
    frame = read(tmp_path, events, [code]).frame
    assert frame["flop_matrix_tf32"].tolist()[1] == 96.0 and frame["flop_matrix_fp32"].isna().tolist()[1]


def test_kernels_of_one_name_in_two_graphs_have_each_the_work_of_their_call(tmp_path: Path) -> None:
    """Their names say nothing, and both had no FLOP; the calls around them show which graph runs."""
    graph = "## Call CompiledFxGraph {} ##"
    events = [
        mark("ProfilerStep#1", 0, 1000),
        mark(graph.format("a"), 10, 90), op(FUSED, 20, 30, [[8]]), op("aten::mm", 40, 50, [[6, 4], [4, 8]]),
        mark(graph.format("b"), 100, 190), op(FUSED, 120, 130, [[8]]),
    ]  # fmt: skip
    one, other = Work({"vector_fp32": 8.0}, 32.0, 16.0), Work({"vector_fp32": 24.0}, 320.0, 160.0)
    graphs = [[CODE[2]._replace(work=one), CODE[1]], [CODE[2]._replace(work=other)]]
    found = read(tmp_path, events, graphs).frame.set_index("name").loc[FUSED]
    assert found["flop_vector_fp32"].tolist() == [8.0, 24.0] and found["bytes_read"].tolist() == [32.0, 320.0]


@pytest.mark.parametrize("replay", [False, True])
def test_a_function_compiled_again_for_another_shape_has_no_work_where_nothing_tells_which_ran(
    tmp_path: Path, replay: bool
) -> None:
    events = [mark("ProfilerStep#1", 0, 1000), mark("## Call CompiledFxGraph a ##", 10, 90)]
    events += replayed(20, 1, [FUSED, "gemm"]) if replay else [op(FUSED, 20, 30), op("aten::mm", 40, 50)]
    amounts = [{FUSED: Work({"vector_fp32": n}, n, n), "aten::mm": Work({"matrix_fp32": n}, n, n)} for n in (8.0, 9.0)]
    code = [CODE[2], CODE[6]]
    two = read(tmp_path, events, [with_work(code, one) for one in amounts])
    assert set(two.frame["flop_origin"]) == {"absent"}
    same = read(tmp_path, events, [with_work(code, amounts[0])] * 2)
    assert same.frame["flop_vector_fp32"].tolist()[0] == 8.0


def test_replays_that_fit_no_code_or_one_of_several_modules_have_the_launchs_place(tmp_path: Path) -> None:
    """One kernel too many fits nothing; a block's graph, replayed twice in a step, may serve another block."""
    around = [mark("ProfilerStep#1", 0, 1000), op("Torch-Compiled Region: 0/0", 10, 500)]
    other = [*around, *replayed(20, 1, [NORM, "gemm", FUSED, NORM, NORM, "gemm", FUSED, "gemm"])]
    assert set(read(tmp_path, other, [CODE]).frame["placed_by"]) == {"none"}
    block = [NORM, "gemm", FUSED]
    twice = read(tmp_path, [*around, *replayed(20, 1, block), *replayed(100, 2, block)], [CODE[:3]])
    assert twice.frame["module"].isna().all() and any("runs 2 × in one pass" in w for w in twice.warnings)
    once = read(tmp_path, [*around, *replayed(20, 1, block)], [CODE[:3]])
    assert once.frame["module"].tolist() == ["h.0", "h.0.fc", "h.0"]


def test_one_cuda_graph_of_several_compiled_ones_is_read_one_after_the_other(tmp_path: Path) -> None:
    first, second = CODE[:3], [site(FUSED, ("h.1", "gelu", 1.0)), site("aten::mm", ("head", "linear", 1.0))]
    events = [mark("ProfilerStep#1", 0, 1000), *replayed(20, 1, [NORM, "gemm", FUSED, "between", FUSED, "gemm"])]
    table = read(tmp_path, events, [first, second])
    assert [module for _, module, *_ in places(table)] == ["h.0", "h.0.fc", "h.0", None, "h.1", "head"]


def test_a_graph_that_serves_fsdps_units_is_placed_by_their_hooks(tmp_path: Path) -> None:
    """Blocks that `fully_shard` wraps share one graph; all of a group of one's layers were unknown."""
    events = [mark("perfkit:step:0", 0, 1000), mark("perfkit:pass:forward", 10, 490), mark("FSDP::pre_forward", 11, 12)]
    for number, at in enumerate((20, 220)):
        events += [mark(f"FSDP::pre_forward (transformer.h.{number})", at, at + 5)]
        events += [
            mark("## Call CompiledFxGraph None ##", at + 10, at + 90),
            *product(at + 20),
            op(GELU, at + 40, at + 50),
        ]
    events += [mark("perfkit:pass:backward", 500, 990), mark("FSDP::pre_backward", 505, 506, tid=2)]
    for number, at in ((1, 520), (0, 720)):
        events += [mark(f"FSDP::pre_backward (transformer.h.{number})", at, at + 5, tid=2)]
        events += [mark("## Call CompiledFxGraph None ##", at + 10, at + 90, tid=2)]
        events += [{**call, "tid": 2} for call in (*product(at + 20), op("aten::relu", at + 40, at + 50))]
    table = read(tmp_path, events, [layer(0), [layer(0)[0], site("aten::relu", ("transformer.h.0.fc", "gelu", 1.0))]])
    modules = [module for name, module, *_ in places(table) if name in (GELU, "aten::relu")]
    assert modules == ["transformer.h.0", "transformer.h.1", "transformer.h.1.fc", "transformer.h.0.fc"]
    assert table.frame["layer"].isna().sum() == 0 and not any("in one pass" in w for w in table.warnings)


def test_micro_batches_run_a_graph_once_in_each_forward(tmp_path: Path) -> None:
    events = [mark("perfkit:step:0", 0, 1000)]
    for start in (10, 510):
        events += [
            mark("perfkit:pass:forward", start, start + 300),
            *product(start + 5),
            op(GELU, start + 20, start + 30),
        ]
    assert set(read(tmp_path, events, [layer(1)]).frame["placed_by"]) == {"provenance"}


def test_forward_work_beside_the_graphs_is_the_models_own(tmp_path: Path) -> None:
    """Beside an optimizer, whose places rest on ranges too."""
    events = [*forward([*product(30), op(GELU, 40, 50)]), op("aten::mul", 495, 499, [[6, 8], [6, 8]])]
    events += [mark("perfkit:pass:optimizer", 600, 700), op("aten::mul", 610, 620, [[6, 8], [6, 8]])]
    found = places(read(tmp_path, events, [layer(0)]))
    assert found[-2:] == [
        ("aten::mul", "(root)", "aten::mul", "range"), ("aten::mul", "optimizer", "aten::mul", "range"),
    ]  # fmt: skip


def test_backward_work_beside_the_calls_belongs_to_the_model(tmp_path: Path) -> None:
    events = [
        mark("perfkit:step:0", 0, 1000), mark("perfkit:pass:backward", 10, 500),
        *node("CompiledFunctionBackward", 20, 300, seq=4), op("aten::fill_", 30, 40, [[6, 8], []]),
        *product(50), op(GELU, 60, 70), op("aten::fill_", 400, 410, [[6, 8], []]),
    ]  # fmt: skip
    found = read(tmp_path, events, [layer(0)]).frame
    assert found["module"].tolist()[0] == "(root)" and found["placed_by"].tolist()[0] == "autograd"
    assert set(found["pass"]) == {"backward"}
    assert found["module"].isna().tolist()[-1]


def test_a_trace_without_call_sites_is_read_as_before(tmp_path: Path) -> None:
    events = forward([*product(30), op(GELU, 40, 50)])
    plain = read_trace(write(tmp_path / "t.json", events), layers=LAYERS)
    assert set(plain.frame["placed_by"]) == {"none"}
    assert plain.frame["serves"].isna().all()
