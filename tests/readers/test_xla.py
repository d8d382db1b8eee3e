"""Profiles of JAX: rows of GPUs and of the CPU, places, work from HLO modules, steps, and damage."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest

from perfkit.cli import main
from perfkit.readers import read
from perfkit.readers.xla.places import place_of
from perfkit.table import KernelTable
from tests.support.readers import mutations
from tests.support.readers.xspaces import (
    calls,
    contracts,
    field,
    instruction,
    module,
    operands,
    plane,
    programs,
    shape,
    space,
)

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "xla"
BOTH = ("block.xplane.pb.gz", "block.trace.json.gz")
B, T, C = 2, 64, 128  # of the block in the fixtures


def _table(path: Path) -> KernelTable:
    found = read(path)
    assert isinstance(found, KernelTable)
    return found


def _operations() -> list[dict[str, Any]]:
    """The operations that plain JSON shows in the fixture."""
    events = json.loads(gzip.decompress((FIXTURES / BOTH[1]).read_bytes()))["traceEvents"]
    return [e for e in events if "hlo_op" in e.get("args", {})]


@pytest.mark.parametrize("name", BOTH)
def test_the_cpu_s_time_is_a_plain_sum_of_the_file(name: str) -> None:
    table, operations = _table(FIXTURES / name), _operations()
    assert len(table.frame) == len(operations) == 3 * 89
    assert set(table.frame["kind"]) == {"cpu_op"} and set(table.frame["device"]) == {"cpu"}
    assert table.frame["duration_ns"].sum() == round(sum(e["dur"] for e in operations) * 1e3)  # none is inside another
    assert table.facts["steps"] == 3
    assert table.frame.groupby("step").size().tolist() == [89] * 3
    assert sum(table.facts["busy_ns"]) + sum(g["ns"] for g in table.facts["gaps"]) == sum(table.facts["step_ns"])


def test_the_modules_give_places_and_work() -> None:
    table = _table(FIXTURES / BOTH[0])
    frame = table.frame
    forward = 2 * B * T * C * (3 * C + C + 4 * C + 4 * C) + 2 * 2 * B * T * T * C
    flop = frame.groupby(["step", "pass"], observed=True)["flop_matrix_fp32"].sum()
    assert flop.xs("forward", level="pass").tolist() == [forward] * 3
    assert flop.xs("backward", level="pass").tolist() == [2 * forward] * 3
    assert frame["module"].dropna().isin(["attn", "mlp", "mul"]).all()
    product = frame[frame["name"] == "dot.13"].iloc[0]
    assert (product["family"], product["pass"], product["module"]) == ("matmul", "backward", "mlp")
    assert product["bytes_read"] == 4 * (B * T * C + B * T * 4 * C)
    assert product["bytes_written"] == 4 * (C * 4 * C)


def test_the_trace_alone_knows_no_work() -> None:
    table = _table(FIXTURES / BOTH[1])
    assert table.flop.isna().all() and table.frame["bytes_read"].isna().all()
    assert any("holds no HLO modules" in text for text in table.warnings)
    assert set(table.frame["family"][table.frame["name"].str.startswith("ynn_fusion")]) == {"other"}


def _gpu() -> bytes:
    """Two runs of a product by a library (two kernels), of a fusion, and of one that reads a part of its input."""
    f32, scopes = "fp32", "jit(step)/transpose(jvp(h0))/mlp/dot_general"
    settings = json.dumps({"gemm_backend_config": {"dot_dimension_numbers": {"lhs_contracting_dimensions": ["1"]}}})
    result = field(4, shape("bf16", 256, 512)) + field(4, shape("uint8", 9))  # and room for the library to work in
    hlo = module(
        (1, [
            instruction(1, "x", "parameter", shape("bf16", 256, 128)),
            instruction(2, "w", "parameter", shape("bf16", 128, 512)),
            instruction(3, "cublas-gemm.1", "custom-call", result, operands(1, 2),
                        field(28, "__cublas$gemm"), field(43, settings), scopes=scopes),
            instruction(12, "product", "get-tuple-element", shape("bf16", 256, 512), operands(3)),
            instruction(4, "loop_add_fusion", "fusion", shape("bf16", 256, 512), operands(12, 12), calls(2),
                        scopes="jit(step)/jvp(h0)/mlp/add"),
            instruction(5, "loop_slice_fusion", "fusion", shape("bf16", 8, 128), operands(1), calls(3)),
            instruction(6, "gemm_fusion_dot.2", "fusion", shape(f32, 256, 512), operands(1, 2), calls(4)),
        ]),
        (2, [instruction(7, "add", "add", shape("bf16", 256, 512))]),
        (3, [instruction(8, "slice", "slice", shape("bf16", 8, 128))]),
        (4, [
            instruction(9, "a", "parameter", shape(f32, 256, 128)),
            instruction(10, "b", "parameter", shape(f32, 128, 512)),
            instruction(11, "dot", "dot", shape(f32, 256, 512), operands(9, 10), contracts(1, 0)),
        ]),
    )  # fmt: skip
    launch = "regs:32 static_shared:1024 dynamic_shared:1024 grid:16,2,1 block:128,1,1 occ_pct:50"
    kernels, launches = [], []
    for run in range(2):
        for i, (name, operation) in enumerate((
            ("sm90_xmma_gemm_bf16", "cublas-gemm.1"), ("splitKreduce_kernel", "cublas-gemm.1"),
            ("loop_add_fusion", "loop_add_fusion"), ("loop_slice_fusion", "loop_slice_fusion"),
            ("gemm_fusion_dot_2", "gemm_fusion_dot.2"),
        )):  # fmt: skip
            number, start = 10 * run + i + 1, 10_000 * run + 1000 * i + 2000
            said = {"hlo_op": operation, "hlo_module": "jit_f", "program_id": 7, "correlation_id": number}
            kernels.append((name, start, start + 900 - 100 * i, {**said, "kernel_details": launch}))
            launches.append(("cuLaunchKernel", start - 1500, start - 1400, {"correlation_id": number}))
    copy = {"memcpy_details": "kind_src:pinned kind_dst:device size:4096 dest:0 async:1", "correlation_id": 99}
    steps = [("train", 10_000 * run, 10_000 * run + 9000, {"step_num": run + 5}) for run in range(2)]
    return space(
        programs({7: hlo}),
        plane("/device:GPU:1", {
            "Stream #13(Compute)": kernels, "Stream #14(MemcpyH2D)": [("MemcpyH2D", 100, 300, copy)],
            "XLA Ops": [("cublas-gemm.1", 2000, 2900, {"hlo_op": "cublas-gemm.1"})],
        }, device_vendor="Nvidia", core_count=132),
        plane("/host:CPU", {"python": [*steps, *launches, ("$train.py:1 step", 0, 9000, {})]}),
    )  # fmt: skip


def test_rows_of_a_gpu(tmp_path: Path) -> None:
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(_gpu())
    table = _table(path)
    frame = table.frame[table.frame["kind"] == "gpu_kernel"]
    assert len(frame) == 10 and len(table.frame) == 11  # XProf's own line of operations says nothing new
    assert frame["duration_ns"].sum() == 2 * (900 + 800 + 700 + 600 + 500)
    assert table.frame["name"].tolist()[0] == "Memcpy HtoD (Pinned -> Device)"
    assert table.facts["copies"][0]["bytes"] == 4096 and table.facts["gpus"][0]["smCount"] == 132
    first = frame.iloc[0]
    assert (first["device"], first["stream"], first["grid_y"], first["registers"]) == ("cuda:1", 13, 2, 32)
    assert (first["shared_bytes"], first["occupancy"]) == (2048, 0.5)
    assert frame["step"].tolist() == [0] * 5 + [1] * 5 and table.facts["step_names"] == ["5", "6"]
    assert (first["pass"], first["module"], first["operator"]) == ("backward", "h0.mlp", "dot_general")
    flop = frame["flop_matrix_bf16"].tolist()[:5]
    assert flop[:2] == [2 * 256 * 128 * 512, 0]  # of two kernels the longest does the product
    assert all(map(math.isnan, flop[2:4]))  # of what is no product the work is not counted
    assert math.isnan(frame["flop_matrix_fp32"].iloc[4])  # XLA's own kernel may run in TF32, and does not say so
    read_, written = frame["bytes_read"].tolist()[:4], frame["bytes_written"].tolist()[:4]
    assert read_[:3] == [2 * (256 * 128 + 128 * 512), 0, 2 * 256 * 512] and written[0] == 2 * 256 * 512
    assert math.isnan(read_[3])  # a slice may read a part
    assert frame["family"].tolist()[:4] == ["matmul", "matmul", "elementwise", "copy"]


def test_a_command_buffer_s_kernels_are_known_by_their_nodes() -> None:
    """GPT-2's block on an H200, B = 8, T = 1024, C = 768 (JAX 0.11.2): all of a step is one CUDA graph."""
    table = _table(FIXTURES / "gpu_block.xplane.pb.gz")
    frame = table.frame
    assert len(frame) == 249 and frame["duration_ns"].sum() == 10_551_004  # what jax.profiler.ProfileData sums up
    linear = 2 * 8 * 1024 * 768 * (3 + 1 + 4 + 4) * 768
    one_of_attention = 2 * 8 * 12 * 1024 * 1024 * 64  # by cuBLAS; the other five are XLA's own kernels, see below
    flop = frame.groupby(["step", "pass"], observed=True)["flop_matrix_tf32"].sum()
    assert flop.xs("forward", level="pass").tolist() == [linear] * 3
    assert flop.xs("backward", level="pass").tolist() == [2 * linear + one_of_attention] * 3
    kernels = frame[frame["kind"] == "gpu_kernel"]
    assert kernels["operator"].notna().all() and not kernels["operator"].str.startswith("command_buffer").any()
    again = kernels[kernels["name"] == "fusion_124"]  # the kernel of fusion.124, which fusion.126 runs as well
    assert again["module"].tolist() == ["attn", "mlp"] * 3
    assert kernels[kernels["name"].str.startswith("gemm_fusion")]["flop_matrix_fp32"].isna().all()


def test_remedies_for_jax_are_of_jax(capsys: pytest.CaptureFixture[str]) -> None:
    """The step that waits for its host was told to call torch.compile."""
    with pytest.raises(SystemExit) as ended:
        main(["report", str(FIXTURES / "gpu_block.xplane.pb.gz"), "--format", "none"])
    assert not ended.value.code
    said = " ".join(capsys.readouterr().out.split())
    assert "several steps in one jitted function (jax.lax.scan)" in said
    assert "torch" not in said.split("Accounting of the step")[0]


def _graph(nodes: int = 0, unlike: bool = False) -> bytes:
    """Two launches of a graph of five commands: a product by two kernels and one by one, between XLA's own kernels.

    `nodes` moves the numbers of the commands; with `unlike` a kernel is named after an instruction of another shape.
    """
    product = json.dumps({"gemm_backend_config": {"dot_dimension_numbers": {"lhs_contracting_dimensions": ["1"]}}})
    wide, square = shape("bf16", 256, 512), shape("bf16", 256, 256)

    def gemm(number: int, name: str, scopes: str) -> bytes:
        settings = field(28, "__cublas$gemm"), field(43, product)
        return instruction(number, name, "custom-call", wide, operands(1, 2), *settings, scopes=scopes)

    hlo = module(
        (1, [
            instruction(1, "x", "parameter", shape("bf16", 256, 128)),
            instruction(2, "w", "parameter", shape("bf16", 128, 512)),
            instruction(3, "add_fusion", "fusion", wide, operands(1), calls(2), scopes="jit(f)/a/add"),
            gemm(4, "cublas-gemm.1", "jit(f)/b/dot_general"),
            instruction(5, "product", "bitcast", wide, operands(4)),
            instruction(6, "add_fusion.1", "fusion", wide, operands(1), calls(2), scopes="jit(f)/c/add"),
            gemm(7, "cublas-gemm.2", "jit(f)/d/dot_general"),
            instruction(8, "last_fusion", "fusion", square, operands(1), calls(2), scopes="jit(f)/e/add"),
        ]),
        (2, [instruction(9, "add", "add", wide)]),
        order=[1, 2, 3, 4, 5, 6, 7, 8],
    )  # fmt: skip
    ran = (
        ("add_fusion", 0), ("Memset 0", 5), ("sm90_xmma_gemm_bf16", 6), ("splitKreduce_kernel", 7),
        ("last_fusion" if unlike else "add_fusion", 2), ("nvjet_tst", 8), ("last_fusion", 4),
    )  # fmt: skip
    kernels, launches = [], []
    for run in range(2):
        for i, (name, node) in enumerate(ran):
            said = {"hlo_op": "command_buffer", "program_id": 7, "correlation_id": run + 1, "cuda_graph_id": 3}
            start = 10_000 * run + 1000 * i
            kernels.append((name, start, start + 900, {**said, "cuda_graph_node_id": (3 << 32) + node + nodes}))
        launches.append(("cuGraphLaunch", 10_000 * run, 10_000 * run + 10, {"correlation_id": run + 1}))
    return space(
        programs({7: hlo}),
        plane("/device:GPU:0", {"Stream #13(Compute)": kernels}, device_vendor="Nvidia", core_count=132),
        plane("/host:CPU", {"python": launches}),
    )


@pytest.mark.parametrize("nodes", [0, 4])
def test_a_library_s_kernels_in_a_command_buffer_are_one_call_s(nodes: int, tmp_path: Path) -> None:
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(_graph(nodes))
    frame = _table(path).frame
    assert frame["module"].tolist() == ["a", "b", "b", "b", "c", "d", "e"] * 2
    flop = 2 * 256 * 128 * 512
    expected = [None, None, flop, 0, None, flop, None] * 2
    assert [None if math.isnan(f) else f for f in frame["flop_matrix_bf16"]] == expected


def test_a_command_buffer_that_fits_no_schedule_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(_graph(unlike=True))
    table = _table(path)
    assert table.frame["module"].isna().all() and table.flop.isna().all()


def test_registers_that_cannot_be_are_unknown(tmp_path: Path) -> None:
    said = {"kernel_details": "regs:2191500840 static_shared:32462 dynamic_shared:0 grid:8,1,1 block:256,1,1 occ_pct:0"}
    path = tmp_path / "amd.xplane.pb"
    path.write_bytes(space(plane("/device:GPU:0", {"Stream #1(Kernel)": [("Im3d2Col.kd", 0, 90, said)]})))
    row = _table(path).frame.iloc[0]
    assert (row["name"], row["grid_x"]) == ("Im3d2Col", 8)
    assert [str(row[name]) for name in ("registers", "shared_bytes", "occupancy")] == ["<NA>", "nan", "nan"]


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("jit(f)/jit(main)/dot_general", ("dot_general", None, None)),
        ("jit(f)/jvp(GPT)/h_0/attn/add", ("add", "GPT.h_0.attn", "forward")),
        ("jit(f)/transpose(jvp(GPT))/h_0/rematted_computation/mul", ("mul", "GPT.h_0", "backward")),
        ("jit(f)/jvp(attn)/jit(_where)/select_n;jit(f)/mlp/add", ("select_n", "attn", "forward")),
        ("jit(f)/while/body/bsd,de->bse/dot_general", ("dot_general", None, None)),
        ("kernel", (None, None, None)),
    ],
)
def test_places(name: str, place: tuple[str | None, str | None, str | None]) -> None:
    assert tuple(place_of(name)) == place


def test_a_profile_of_a_tpu_says_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tpu.xplane.pb"
    path.write_bytes(space(plane("/device:TPU:0", {"XLA Ops": [("fusion.1", 0, 90, {})]})))
    with pytest.raises(SystemExit) as ended:
        main(["report", str(path)])
    assert ended.value.code == 2 and "ran on a TPU" in capsys.readouterr().err


@pytest.mark.parametrize("count", [15, pytest.param(100, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", [*BOTH, "gpu", "graph"])
def test_damage_is_a_sentence(name: str, count: int, tmp_path: Path) -> None:
    """Bytes changed anywhere: a table or an `InputError`, nothing else."""
    made = {"gpu": _gpu, "graph": _graph}.get(name)
    whole = made() if made else gzip.decompress((FIXTURES / name).read_bytes())
    mutations.sentences(tmp_path / "damaged", whole, count, seed=1)
