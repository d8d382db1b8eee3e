"""Contents of CUDA graphs that a program captured by itself, from handmade traces: a capture, and its replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perfkit.readers.kineto.trace import read_trace
from perfkit.table import KernelTable
from tests.support.readers.traces import Event, event, mark, node, op, write

MM, MUL, COPY = "sm80_xmma_gemm_x", "vectorized_elementwise_kernel", "Memcpy DtoD (Device -> Device)"
SPLIT = "splitKreduce_kernel"
ORDER = [MM, SPLIT, MUL, COPY, MM]


def call(name: str, at: float, tid: int = 1) -> Event:
    return event("cuda_runtime", name, at, at + 1, tid=tid, correlation=int(1000 + at))


def capture() -> list[Event]:
    """A linear layer of two kernels and a product by elements; a copy; the layer's gradient in a thread of its own."""
    return [
        call("cudaLaunchKernel", 1),  # before it: a seed, which is not a node
        call("cudaStreamBeginCapture", 3),
        mark("perfkit:pass:forward", 5, 90),
        mark("perfkit:module:fc", 10, 40),
        op("aten::mm", 12, 30, [[6, 4], [4, 8]]),
        call("cudaLaunchKernelExC", 14),
        call("cudaLaunchKernel", 20),
        op("aten::mul", 45, 55, [[6, 8], [6, 8]]),
        call("cuLaunchKernel", 50),
        op("aten::copy_", 60, 70, [[6, 8], [6, 8]]),
        call("cudaMemcpyAsync", 62),
        mark("perfkit:pass:backward", 91, 150),
        *node("MmBackward0", 100, 140, tid=2),
        op("aten::mm", 110, 130, [[4, 6], [6, 8]], tid=2),
        call("cudaLaunchKernel", 120, tid=2),
        call("cudaStreamEndCapture", 160),
        call("cudaGraphInstantiate", 170),
    ]


def replays(names: list[str], times: int = 2, graph: int | None = 0) -> list[Event]:
    """Steps that replay the graph once each."""
    events = []
    for number in range(times):
        at = 1000 * number
        events += [mark(f"perfkit:step:{number}", at, at + 990), call("cudaGraphLaunch", at + 20)]
        events += [mark(f"perfkit:graph:{graph}", at + 10, at + 40)] if graph is not None else []
        on_gpu = {"pid": 0, "tid": 7, "device": 0, "stream": 7, "correlation": 1020 + at}
        for i, name in enumerate(names):
            start = at + 50 + 20 * i
            kind = "gpu_memcpy" if name == COPY else "kernel"
            events.append(event(kind, name, start, start + 10, **on_gpu))
    return events


def read(folder: Path, captured: list[Event], replayed: list[Event], **more: Any) -> KernelTable:
    trace = write(folder / "t.json", replayed)
    return read_trace(trace, captures={0: write(folder / "graph-0.json", captured)}, **more)


def test_each_activity_of_a_replay_has_the_place_and_work_of_its_launch(tmp_path: Path) -> None:
    """99 % of the kernel time of a training step captured by hand had no module, no pass and no FLOP."""
    table = read(tmp_path, capture(), replays(ORDER))
    first = table.frame[table.frame["step"] == 0]
    assert first["operator"].tolist() == ["aten::mm", "aten::mm", "aten::mul", "aten::copy_", "aten::mm"]
    assert first["pass"].tolist() == ["forward"] * 4 + ["backward"]
    assert first["module"].tolist()[:3] == ["fc", "fc", "(root)"]
    flop = 2.0 * 6 * 4 * 8
    assert first["flop_matrix_fp32"].tolist()[0] == flop and first["flop_matrix_fp32"].tolist()[4] == 2.0 * 4 * 6 * 8
    assert first["flop_origin"].tolist()[:3] == ["model", "derived", "model"]
    assert first["shapes"].tolist()[0] == "fp32[6×4], fp32[4×8]"
    assert first["bytes_read"].tolist()[3] == first["bytes_written"].tolist()[3] == 4 * 48
    columns = ["operator", "module", "flop_matrix_fp32", "shapes"]
    second = table.frame[table.frame["step"] == 1]
    pd.testing.assert_frame_equal(first[columns].reset_index(drop=True), second[columns].reset_index(drop=True))
    assert any("10 those of their capture; " in warning for warning in table.warnings)


@pytest.mark.parametrize(
    ("captured", "replayed"),
    [
        (capture(), replays([MM, MUL, COPY, MM])),  # a launch less
        (capture(), replays([MM, SPLIT, COPY, MUL, MM])),  # a copy where a kernel was launched
        (capture(), replays([MUL, MUL, MUL, COPY, MM])),  # a product without a product's kernel
        (capture(), replays(ORDER, graph=1)),  # another graph
        (capture(), replays(ORDER, graph=None)),
        ([*capture(), call("cudaStreamWaitEvent", 42)], replays(ORDER)),  # two streams: the order says nothing
        ([e for e in capture() if "EndCapture" not in e["name"]], replays(ORDER)),
    ],
)
def test_a_replay_that_may_be_something_else_is_left_alone(
    tmp_path: Path, captured: list[Event], replayed: list[Event]
) -> None:
    table = read(tmp_path, captured, replayed)
    assert table.frame[["operator", "shapes", "bytes_read"]].isna().all(axis=None)
    assert any("they have the launch's place" in warning for warning in table.warnings)


def test_a_capture_that_was_cut_off_while_it_was_written_tells_nothing(tmp_path: Path) -> None:
    path = tmp_path / "graph-0.json"
    path.write_bytes(write(tmp_path / "whole.json", capture()).read_bytes()[:500])
    table = read_trace(write(tmp_path / "t.json", replays(ORDER)), captures={0: path})
    assert table.frame["operator"].isna().all()


def test_a_custom_operator_has_its_shapes_and_no_cost(tmp_path: Path) -> None:
    """87 % of the time of what vLLM's graphs replay had no shapes: kernels of custom operators."""
    captured = [
        call("cudaStreamBeginCapture", 3),
        op("aten::mm", 5, 9, [[6, 4], [4, 8]]),
        call("cudaLaunchKernel", 6),
        op("vllm::moe_forward", 10, 50, [[6, 4], [3, 4]]),
        op("_moe_C::topk_softmax", 20, 30),  # without dims
        call("cudaLaunchKernel", 22),
        call("cudaLaunchKernel", 40),
        call("cudaLaunchKernel", 55),
        call("cudaStreamEndCapture", 60),
    ]
    frame = read(tmp_path, captured, replays([MM, "topk", "moe", "other"], 1)).frame
    assert frame["shapes"].fillna("").tolist() == ["fp32[6×4], fp32[4×8]", *["fp32[6×4], fp32[3×4]"] * 2, ""]
    assert frame["bytes_read"].notna().tolist() == frame["bytes_written"].notna().tolist() == [True, *[False] * 3]
    assert frame["flop_origin"].tolist()[1:] == frame["bytes_origin"].tolist()[1:] == ["absent"] * 3


def test_long_lists_in_a_capture_are_told_by_the_blocks_of_a_replay(tmp_path: Path) -> None:
    """An optimizer of more than 30 parameters: its kernels had no bytes."""
    sizes = [[300, 1000], [1000]]
    captured = [
        call("cudaStreamBeginCapture", 3),
        op("aten::view", 5, 8, [[4]]),
        *(op("torch::autograd::AccumulateGrad", 10 + 5 * i, 14 + 5 * i, [one], tid=2) for i, one in enumerate(sizes)),
        mark("perfkit:pass:optimizer", 40, 90),
        op("aten::_foreach_mul_", 50, 80, [[], []], types=["TensorList", "Scalar"], values=["0.5"] * 2),
        call("cudaLaunchKernel", 60),
        call("cudaStreamEndCapture", 160),
    ]
    replayed = replays(["multi_tensor_apply_kernel"])
    for one in replayed:
        if one["cat"] == "kernel":
            one["args"] |= {"grid": [6, 1, 1], "block": [512, 1, 1]}
    frame = read(tmp_path, captured, replayed).frame
    assert frame["bytes_read"].tolist() == [4.0 * 301_000] * 2 and set(frame["pass"]) == {"optimizer"}
    for one in replayed:
        if one["cat"] == "kernel":
            one["args"]["grid"] = [7, 1, 1]
    assert read(tmp_path, captured, replayed).frame["bytes_read"].isna().all()
