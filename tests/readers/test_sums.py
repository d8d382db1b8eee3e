"""Sums of kernels by name, of `nsys stats`, rocprofv3 and Proton: launches with means, and no timeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfkit.cli import main
from perfkit.errors import InputError
from perfkit.readers import read
from perfkit.table import KernelTable
from tests.support.readers import mutations

KERNELS = """\
Processing [step.sqlite] with [cuda_gpu_kern_sum.py]...
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),GridXYZ,BlockXYZ,Name
70.0,9000,3,3000.0,2900.0,2000,4100,216.4,16    2    1,128    1    1,"void scale<float, 4>(float *, int)"
30.0,4001,2,2000.5,2000.5,2000,2001,0.7, 896    1    1,256    1    1,ampere_sgemm_128x64_nn
"""
CALLS = """\
Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
60.0,7000,5,1400.0,1000.0,500,4000,100.0,cudaLaunchKernel
"""
COPIES = """\
Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation
99.0,500,2,250.0,250.0,200,300,10.0,[CUDA memcpy Host-to-Device]
1.0,5,1,5.0,5.0,5,5,0.0,[CUDA memset]
"""
ROCPROF = '"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n"Cijk_Ailk_SB_MT64x64.kd",4,8000,2000.0,100.0\n'


def _node(name: str, metrics: dict[str, Any], *children: dict[str, Any]) -> dict[str, Any]:
    return {"frame": {"name": name, "type": "function"}, "metrics": metrics, "children": list(children)}


def _proton() -> str:
    gpu = {"device_id": "1", "device_type": "CUDA"}
    declared = {"flops16": 4e6, "bytes": 8000.0, "count": 2, "time (ns)": 5000, **gpu}
    metadata = _node("__proton_launch_metadata", {}, _node("sum_kernel", {"count": 1, "time (ns)": 9999, **gpu}))
    inside = _node("perfkit:module:mlp", {}, _node("matmul_kernel", declared), metadata)
    plain = _node("copy_kernel", {"count": 3, "time (ns)": 600, **gpu})
    root = _node("ROOT", {"count": 0, "time (ns)": 0}, _node("forward", {"flops16": 1.0}, inside), plain)
    return json.dumps([root, {"CUDA": {"1": {"arch": "90", "num_sms": 132}}}])


def _read(path: Path, content: str) -> KernelTable:
    path.write_text(content)
    found = read(path)
    assert isinstance(found, KernelTable)
    return found


def test_sums_of_nsys_with_calls_and_copies_next_to_them(tmp_path: Path) -> None:
    (tmp_path / "step_cuda_api_sum.csv").write_text(CALLS)
    (tmp_path / "step_cuda_gpu_mem_time_sum.csv").write_text(COPIES)
    table = _read(tmp_path / "step_cuda_gpu_kern_sum.csv", KERNELS)
    frame = table.frame
    assert frame.groupby("kind", observed=True)["duration_ns"].sum().to_dict() == {
        "gpu_kernel": 13_001, "memcpy": 500, "memset": 5,
    }  # fmt: skip
    assert frame.groupby("name")["duration_ns"].agg(["size", "mean"]).loc["ampere_sgemm_128x64_nn"].tolist() == [
        2,
        2000.5,
    ]
    assert frame["start_ns"].isna().all() and frame["bytes_read"].isna().all() and table.flop.isna().all()
    assert (frame["grid_y"].iloc[0], frame["block_x"].iloc[0]) == (2, 128)
    assert table.facts["api"] == [{"name": "cudaLaunchKernel", "count": 5, "ns": 7000}]
    assert "step_ns" not in table.facts and any("no timeline" in text for text in table.warnings)


def test_other_units_of_time(tmp_path: Path) -> None:
    text = "Time (%),Total Time (ms),Instances,Name\n100.0,1.5,3,k\n"
    assert _read(tmp_path / "a.csv", text).frame["duration_ns"].tolist() == [500_000.0] * 3


def test_sums_of_rocprofv3(tmp_path: Path) -> None:
    table = _read(tmp_path / "7_kernel_stats.csv", ROCPROF)
    assert table.frame["duration_ns"].tolist() == [2000.0] * 4
    assert table.frame["name"].iloc[0] == "Cijk_Ailk_SB_MT64x64" and table.source["reader"] == "rocprofv3"


def test_sums_of_the_host_s_calls_alone_say_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="calls of the host, and no kernels"):
        _read(tmp_path / "step_cuda_api_sum.csv", CALLS)


def test_proton(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "step.hatchet"
    table = _read(path, _proton())
    frame = table.frame
    assert frame["name"].value_counts().to_dict() == {"copy_kernel": 3, "matmul_kernel": 2}  # not what declares work
    product = frame[frame["name"] == "matmul_kernel"]
    assert product["duration_ns"].tolist() == [2500.0] * 2 and product["flop_matrix_fp16"].tolist() == [2e6] * 2
    assert product["bytes_read"].tolist() == [4000.0] * 2
    assert set(product["pass"]) == {"forward"} and set(product["module"]) == {"mlp"}
    assert set(product["device"]) == {"cuda:1"} and table.facts["gpus"][0]["smCount"] == 132
    other = frame[frame["name"] == "copy_kernel"]
    assert other["bytes_read"].isna().all() and other["flop_matrix_fp16"].isna().all()
    with pytest.raises(SystemExit):
        main(["report", str(path), "--format", "none"])
    assert "no timeline" in " ".join(capsys.readouterr().out.split())


def test_proton_without_times_says_so(tmp_path: Path) -> None:
    root = _node("ROOT", {}, _node("kernel", {"cycles": 100, "kernel_id": "0"}))
    with pytest.raises(InputError, match="without times of kernels"):
        _read(tmp_path / "cycles.hatchet", json.dumps([root, {}]))


@pytest.mark.parametrize("count", [15, pytest.param(100, marks=pytest.mark.full)])
@pytest.mark.parametrize("source", [KERNELS, _proton(), ROCPROF], ids=["nsys", "proton", "rocprof"])
def test_damage_is_a_sentence(source: str, count: int, tmp_path: Path) -> None:
    mutations.sentences(tmp_path / "damaged", source.encode(), count, seed=2)
