"""The work of GPU kernels in hand-made traces: how an operator's FLOP and bytes are divided, and which units run it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfkit.cost import CostModel
from perfkit.readers.kineto.trace import read_trace
from perfkit.table import KernelTable
from tests.support.readers.traces import Event, event, mark, op, write


def read(folder: Path, events: list[Event], **more: Any) -> KernelTable:
    return read_trace(write(folder / "t.json", events), **more)


def test_an_operator_that_says_so_is_divided_over_its_kernels(tmp_path: Path) -> None:
    """Two calls of one operator; in the second one of the two kernels is missing: the other one represents the call."""
    launches = [(11, 20, "keys", 30), (12, 60, "queries", 10), (13, 75, "prepares", 1), (41, 80, "queries", 10)]
    events = [
        mark("ProfilerStep#1", 0, 100),
        op("aten::mm", 10, 30, [[4, 2], [2, 8]]),
        op("aten::mm", 40, 50, [[4, 2], [2, 8]]),
    ]
    for number, (call, start, name, took) in enumerate(launches):
        events.append(event("cuda_runtime", "cudaLaunchKernel", call, call + 0.5, correlation=number))
        events.append(event("kernel", name, start, start + took, pid=0, tid=7, device=0, stream=7, correlation=number))
    flop, read_ = 2 * 4 * 2 * 8, 4 * (4 * 2 + 2 * 8)
    divided = CostModel(parts={"aten::mm": {"keys": 0.75, "queries": 0.25}})
    frame = read(tmp_path, events, costs=divided).frame
    assert frame["name"].tolist() == ["keys", "queries", "prepares", "queries"]
    assert frame["bytes_read"].tolist() == [0.75 * read_, 0.25 * read_, 0, read_]
    assert frame["flop_matrix_fp32"].fillna(0).tolist() == [0.75 * flop, 0.25 * flop, 0, flop]
    assert frame["flop_origin"].tolist() == ["model", "model", "derived", "model"]
    whole = read(tmp_path, events).frame
    assert whole["flop_matrix_fp32"].fillna(0).tolist() == [flop, 0, 0, flop]


def test_what_many_kernels_do_together_is_divided_by_their_time(tmp_path: Path) -> None:
    """As of cuDNN's LSTM, whose products are dozens of kernels: each name that multiplies has its part."""
    events = [mark("ProfilerStep#1", 0, 200), op("aten::mm", 10, 60, [[4, 2], [2, 8]])]
    launched = [("gemm_nn", 30), ("elementWise", 40), ("gemm_nn", 30), ("gemm_nt", 5)]
    for number, (name, took) in enumerate(launched):
        start = 20 + 42 * number
        events.append(event("cuda_runtime", "cudaLaunchKernel", 11 + number, 11.5 + number, correlation=number))
        events.append(event("kernel", name, start, start + took, pid=0, tid=7, device=0, stream=7, correlation=number))
    frame = read(tmp_path, events, costs=CostModel(parts={"aten::mm": {"gemm": 1.0}})).frame
    flop = frame["flop_matrix_fp32"].fillna(0) / (2 * 4 * 2 * 8)
    assert flop.tolist() == pytest.approx([30 / 65, 0, 30 / 65, 5 / 65])
    assert frame["bytes_read"].sum() == pytest.approx(4 * (4 * 2 + 2 * 8))


def _backward(tmp_path: Path, kernels: list[tuple[str, float]], mask: str) -> list[float]:
    """The FLOP that each kernel of a convolution's backward pass carries, over those of one gradient."""
    names = ["Input Dims", "Input type", "Input Strides", "Concrete Inputs"]
    dims = [[2, 8, 4, 4], [2, 3, 4, 4], [8, 3, 1, 1], [], [], [], [], [], [], [], []]
    strides = [[128, 16, 4, 1], [48, 16, 4, 1], [3, 1, 1, 1], *[[]] * 8]
    types = ["float"] * 3 + ["ScalarList"] * 4 + ["Scalar", "ScalarList", "Scalar", ""]
    values = ["", "", "", "[0]", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1", mask]
    arguments = dict(zip(names, [dims, types, strides, values], strict=True))
    arguments["Input type"][10] = "ScalarList"
    events = [mark("ProfilerStep#1", 0, 100), event("cpu_op", "aten::convolution_backward", 1, 20, **arguments)]
    for i, (name, took) in enumerate(kernels):
        events.append(event("cuda_runtime", "cudaLaunchKernel", 2 + i, 2.5 + i, correlation=i))
        events.append(event("kernel", name, 20 + 10 * i, 20 + 10 * i + took, pid=0, tid=7, stream=7, correlation=i))
    frame = read(tmp_path, events).frame
    one = 2 * 2 * 16 * 8 * 3
    flop = frame[["flop_matrix_fp32", "flop_matrix_tf32"]].sum(axis=1) if "flop_matrix_tf32" in frame else None
    return [round(value / one, 6) for value in (flop if flop is not None else frame["flop_matrix_fp32"].fillna(0))]


@pytest.mark.parametrize(
    ("kernels", "mask", "expected"),
    [
        ([("sm90_xmma_dgrad_x", 5), ("sm90_xmma_wgrad_x", 8)], "[True, True, False]", [1, 1]),
        ([("conv_wgrad", 8), ("gemm", 5), ("computeOffsetsKernel", 2)], "[True, True, False]", [1, 1, 0]),
        ([("gemm_a", 8), ("gemm_b", 5), ("small", 0.1)], "[True, True, False]", [1, 1, 0]),
        ([("nchwToNhwcKernel", 9), ("conv_wgrad", 5)], "[False, True, False]", [0, 1]),
        ([("implicit_gemm", 5), ("reduce_wgrad_nchw_helper", 1)], "[False, True, False]", [1, 0]),
        ([("gemm", 5), ("gemm", 5)], "[True, True, False]", [1, 1]),
        ([("batched_transpose_32x32_half", 9), ("igemm_wrw_gtcx3", 5)], "[False, True, False]", [0, 1]),
        ([("grouped_conv_bwd_weight", 8), ("grouped_conv_bwd_data", 3)], "[True, True, False]", [1, 1]),
        ([("transpose_NCHW2CNHW_V2_2D", 6), ("gemm_a", 3), ("gemm_b", 2)], "[True, True, False]", [0, 1, 1]),
        ([("Im2d2Col_v2", 9), ("Cijk_Ailk_Bljk", 5)], "[False, True, False]", [0, 1]),
        ([("gemm", 5), ("splitKreduce", 1)], "[True, True, False]", [2, 0]),
        ([("gemm_a", 3), ("reduce_kernel", 5), ("gemm_b", 2)], "[True, True, True]", [1, 0, 1]),
    ],
)
def test_a_convolutions_gradients_are_work_of_a_kernel_each(
    tmp_path: Path, kernels: list[tuple[str, float]], mask: str, expected: list[float]
) -> None:
    assert _backward(tmp_path, kernels, mask) == expected


@pytest.mark.parametrize(
    ("kernel", "precision", "unit"),
    [
        ("sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc", "fp32", "tf32"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4>", "fp32", "tf32"),
        ("cutlass_tensorop_s1688dgrad_optimized_tf32_64x128", "fp32", "tf32"),
        ("turing_fp16_s1688gemm_fp16_128x128", "fp32", "fp32"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_tilesize128x32x8", "tf32", "fp32"),
        ("void gemm<float>(int)", "fp32", "fp32"),
        ("void gemm<float>(int)", "tf32", "tf32"),
    ],
)
def test_a_kernels_name_tells_its_units(tmp_path: Path, kernel: str, precision: str, unit: str) -> None:
    events = [
        mark("ProfilerStep#1", 0, 100),
        op("aten::mm", 10, 30, [[4, 2], [2, 8]]),
        event("cuda_runtime", "cudaLaunchKernel", 15, 20, correlation=1),
        event("kernel", kernel, 25, 65, pid=0, tid=7, stream=7, correlation=1),
    ]
    frame = read(tmp_path, events, matmul_precision=precision).frame
    flop = {name: value for name in ("fp32", "tf32") if (value := frame[f"flop_matrix_{name}"].fillna(0)[0])}
    assert flop == {unit: 2 * 4 * 2 * 8}


def _attends(flag: str, number: int, concrete: bool = True) -> list[Event]:
    """cuDNN's attention with the flag of a causal mask among its numbers, and its kernel."""
    start = 40.0 * number + 1
    values = ["", "", "", "", "False", "0.", flag, "False", ""] if concrete else [""] * 9
    shapes = [[2, 3, 8, 16]] * 3 + [[]] * 6
    types = ["c10::BFloat16"] * 3 + ["", "Scalar", "Scalar", "Scalar", "Scalar", ""]
    launch = {"pid": 0, "tid": 7, "device": 0, "stream": 7, "correlation": number}
    return [
        op("aten::_scaled_dot_product_cudnn_attention", start, start + 9, shapes, types=types, values=values),
        event("cuda_runtime", "cudaLaunchKernel", start + 1, start + 2, correlation=number),
        event("kernel", "cudnn_sdpa_fprop", start + 10, start + 30, **launch),
    ]


def test_causal_attention_is_half_the_work_and_a_row_of_its_own(tmp_path: Path) -> None:
    table = read(tmp_path, [mark("ProfilerStep#1", 0, 100), *_attends("False", 0), *_attends("True", 1)])
    each = 2 * 2 * 16 * 2 * 3  # two products, D = 16, of B·H heads
    assert table.frame["flop_matrix_bf16"].tolist() == [each * 64, each * 36]
    square, causal = table.frame["shapes"]
    assert causal == f"{square}, causal"
    assert not any("not record" in warning for warning in table.warnings)


def test_attention_whose_mask_was_not_recorded_has_unknown_work(tmp_path: Path) -> None:
    table = read(tmp_path, [mark("ProfilerStep#1", 0, 100), *_attends("", 0, concrete=False)])
    assert table.frame["flop_matrix_bf16"].isna().all() if "flop_matrix_bf16" in table.frame else True
    assert table.frame["flop_origin"].tolist() == ["absent"] and table.frame["bytes_read"].tolist() == [3 * 768 * 2.0]
    assert any("FLOP are unknown for 100.0%" in warning for warning in table.warnings)
