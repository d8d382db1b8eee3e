"""Graphs of a serving engine: a replay next to traces of captures gets operators, shapes and work of its own one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfkit.readers import read
from perfkit.table import KernelTable

Event = dict[str, Any]
GEMM, GELU = "Cijk_Ailk_Bljk_BBH_MT64x64", "void at::native::vectorized_elementwise_kernel<4, GeluCUDAKernelImpl>(int)"


def _event(cat: str, name: str, ts: float, dur: float, **args: Any) -> Event:
    on_gpu = cat == "kernel"
    return {"ph": "X", "cat": cat, "name": name, "pid": 0 if on_gpu else 1, "tid": 3 if on_gpu else 1, "ts": ts,
            "dur": dur, "args": args}  # fmt: skip


def _write(path: Path, events: list[Event]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def _captured(at: float, tokens: int, width: int, named: bool) -> list[Event]:
    """The capture of a product and a GELU for so many tokens; `named`: launches record their kernels, as HIP's do."""

    def launch(name: str, ts: float, number: int) -> Event:
        said = {"kernel": name, "grid": [1, 1, 1], "block": [64, 1, 1]} if named else {}
        return _event(
            "cuda_runtime", "hipLaunchKernel" if named else "cudaLaunchKernel", ts, 1, correlation=number, **said
        )

    run, number = "hip" if named else "cuda", int(at) * 10
    dims = {"Input Dims": [[tokens, 64], [64, width]], "Input type": ["c10::BFloat16"] * 2}
    return [
        _event("cuda_runtime", f"{run}StreamBeginCapture", at + 1, 1, correlation=number),
        _event("cpu_op", "aten::mm", at + 10, 10, **dims),
        launch(GEMM, at + 12, number + 1),
        _event(
            "cpu_op", "aten::gelu", at + 30, 10, **{"Input Dims": [[tokens, width]], "Input type": ["c10::BFloat16"]}
        ),
        launch(GELU, at + 32, number + 2),
        _event("cuda_runtime", f"{run}StreamEndCapture", at + 60, 1, correlation=number + 3),
    ]


def _capture(folder: Path, name: str, tokens: int, *widths: int, named: bool = True) -> None:
    pieces = [e for i, width in enumerate(widths) for e in _captured(200.0 * (i + 1), tokens, width, named)]
    mark = _event("user_annotation", f"capture_{tokens}_FULL", 100, 100 + 200 * len(widths))
    _write(folder / "capture_traces" / name, [mark, *pieces])


def _replay(folder: Path, requests: int, replays: int = 1, kernels: tuple[str, ...] = (GEMM, GELU)) -> KernelTable:
    events = [_event("user_annotation", f"execute_context_0(0)_generation_{requests}({requests})", 0, 100)]
    for i in range(replays):
        events.append(_event("cuda_runtime", "hipGraphLaunch", 10 + 10 * i, 5, correlation=7 + i))
        for k, name in enumerate(kernels):
            events.append(_event("kernel", name, 200 + 100 * i + 20 * k, 10, device=0, stream=3, correlation=7 + i))
    found = read(_write(folder / "replay.json", events))
    assert isinstance(found, KernelTable)
    return found


def test_of_several_batch_sizes_the_smallest_that_holds_the_iteration(tmp_path: Path) -> None:
    for tokens in (8, 16, 32):
        _capture(tmp_path, f"bs_{tokens}.json", tokens, 128)
    for requests, tokens in ((8, 8), (9, 16), (32, 32)):
        frame = _replay(tmp_path, requests).frame
        assert frame["flop_matrix_bf16"].iloc[0] == 2 * tokens * 64 * 128
        assert frame["operator"].tolist() == ["aten::mm", "aten::gelu"] and set(frame["pass"]) == {"decode"}
        assert frame["shapes"].iloc[0] == f"bf16[{tokens}×64], bf16[64×128]"


def test_more_tokens_than_any_capture_holds(tmp_path: Path) -> None:
    _capture(tmp_path, "8.json", 8, 128)
    assert _replay(tmp_path, 64).flop.isna().all()
    _capture(tmp_path, "16.json", 16, 128)
    assert _replay(tmp_path, 64).flop.isna().all()


def test_of_equal_pieces_each_replay_is_the_next_one(tmp_path: Path) -> None:
    _capture(tmp_path, "pieces.json", 8, 128, 256, 512)
    flop = _replay(tmp_path, 8, replays=3).frame["flop_matrix_bf16"].tolist()[::2]
    assert flop == [2 * 8 * 64 * width for width in (128, 256, 512)]


@pytest.mark.parametrize("kernels", [(GEMM,), (GELU, GEMM), (GEMM, "another_kernel")])
def test_a_replay_of_another_graph_keeps_its_place(tmp_path: Path, kernels: tuple[str, ...]) -> None:
    _capture(tmp_path, "8.json", 8, 128)
    table = _replay(tmp_path, 8, kernels=kernels)
    assert table.flop.isna().all() and table.frame["operator"].isna().all()


def test_launches_without_names_fit_by_their_kinds_and_families(tmp_path: Path) -> None:
    _capture(tmp_path, "8.json", 8, 128, named=False)
    assert _replay(tmp_path, 8).frame["flop_matrix_bf16"].iloc[0] == 2 * 8 * 64 * 128
    assert _replay(tmp_path, 8, kernels=(GELU, GEMM)).flop.isna().all()  # a GELU is no product's kernel


def test_equal_pieces_without_names_are_not_certain(tmp_path: Path) -> None:
    _capture(tmp_path, "8.json", 8, 128, 256, named=False)
    assert _replay(tmp_path, 8, replays=2).flop.isna().all()


def test_a_damaged_capture_is_left_out(tmp_path: Path) -> None:
    _capture(tmp_path, "8.json", 8, 128)
    path = tmp_path / "capture_traces" / "8.json"
    path.write_text(path.read_text()[:400])
    assert _replay(tmp_path, 8).flop.isna().all()
