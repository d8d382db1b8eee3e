"""Traces of other versions, devices and programs: old categories, other runtimes, numbers that JSON lacks, modes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfkit.readers.kineto.trace import read_trace
from perfkit.table import KernelTable
from tests.support.readers.traces import Event, event, mark, node, op, write


def steps(runtime: str = "cuda_runtime", call: str = "cudaLaunchKernel", device: int = 0) -> list[Event]:
    """Two steps of 9,900 µs with five products each, each a kernel of 900 µs."""
    found = []
    for s in range(2):
        found.append(mark(f"ProfilerStep#{s}", 10_000 * s, 10_000 * s + 9900))
        for k in range(5):
            at, number = 10_000 * s + 100 + 1500 * k, 10 * s + k + 1
            found.append(op("aten::mm", at, at + 60, [[1024, 1024], [1024, 1024]]))
            found.append(event(runtime, call, at + 20, at + 30, correlation=number))
            found.append(
                event("kernel", "gemm", at + 40, at + 940, pid=0, tid=7, device=device, stream=7, correlation=number)
            )
    return found


def as_of_2021(events: list[Event]) -> list[Event]:
    """The same as PyTorch 1.8 wrote it."""
    words = {"cpu_op": "Operator", "user_annotation": "Operator", "cuda_runtime": "Runtime", "kernel": "Kernel"}
    old = [{**e, "cat": words[e["cat"]], "tid": str(e["tid"])} for e in events]
    arrows = [
        {"ph": "s", "cat": "async", "name": "launch", "id": 1, "pid": 1, "tid": "1", "ts": 1e6 + 120},
        {"ph": "f", "cat": "async", "name": "launch", "id": 1, "pid": 0, "tid": "7", "ts": 1e6 + 140, "bp": "e"},
    ]
    return old + arrows


FORMATS = {
    "1.8": as_of_2021(steps()),
    "XPU": steps("xpu_runtime", "urEnqueueKernelLaunch"),
    "XPU's driver": steps("xpu_driver", "zeCommandListAppendLaunchKernel"),
    "MTIA": steps("mtia_runtime", "runFunction"),
    "another device": steps("privateuse1_runtime", "aclrtLaunchKernel"),
    "another driver": steps("privateuse1_driver", "Launch"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_launches_of_every_runtime_are_found(tmp_path: Path, name: str) -> None:
    found = read_trace(write(tmp_path / "t.json", FORMATS[name]))
    kernels = found.frame[found.frame["kind"] == "gpu_kernel"]
    assert kernels["operator"].tolist() == ["aten::mm"] * 10
    assert kernels["step"].tolist() == [0] * 5 + [1] * 5
    assert kernels["flop_matrix_fp32"].tolist() == [2 * 1024**3] * 10
    assert found.facts["step_ns"] == [9_900_000] * 2 and found.facts["busy_ns"] == [4_500_000] * 2
    assert found.facts["before_capture"]["activities"] == found.facts["unattributed"]["activities"] == 0


def gpu(number: int, name: str = "AMD Instinct MI300X", units: int = 304) -> dict[str, Any]:
    return {"id": number, "name": name, "numSms": units, "totalGlobalMem": 2**37}


@pytest.mark.parametrize(
    ("devices", "device", "expected"),
    [
        ([gpu(0)], 9, [(9, "AMD Instinct MI300X", 304)]),
        ([gpu(n) for n in range(8)], 2, [(2, "AMD Instinct MI300X", 304)]),
        ([gpu(0), gpu(1, "AMD Instinct MI250X", 110)], 1, [(1, "AMD Instinct MI250X", 110)]),
        ([gpu(0), gpu(1, "AMD Instinct MI250X", 110)], 9, []),
        ([], 0, []),
    ],
)
def test_a_gpu_that_the_trace_numbers_otherwise(tmp_path: Path, devices: Any, device: int, expected: Any) -> None:
    trace = write(tmp_path / "t.json", steps(device=device), deviceProperties=devices)
    assert [(g["id"], g["name"], g["smCount"]) for g in read_trace(trace).facts["gpus"]] == expected


@pytest.mark.parametrize("indent", [None, 1])
def test_numbers_that_json_lacks_are_no_damage(tmp_path: Path, indent: int | None) -> None:
    events = [
        {**e, "name": e["name"].replace("mm", "mm NaN, x"), "args": {**e["args"], "loss": float("nan"), "x": [1e999]}}
        for e in steps()
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": events, "schemaVersion": 1, "loss": -1e999}, indent=indent))
    found = read_trace(path)
    assert found.frame["operator"].unique().tolist() == ["aten::mm NaN, x"] and len(found.frame) == 10
    assert "repaired" not in " ".join(found.warnings)


def test_thunders_forward_runs_before_its_connection_to_autograd(tmp_path: Path) -> None:
    """Its operators have no numbers; those of the loader, and of the loss after them, are as ever."""
    events: list[Event] = []
    for s in range(2):
        at = 10_000 * s
        events += [
            mark(f"ProfilerStep#{s}", at, at + 9900),
            mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 10, at + 500),
            op("aten::stack", at + 100, at + 400, [[64, 8]]),
            op("aten::linear", at + 600, at + 900),
            op("aten::addmm", at + 610, at + 890, [[64], [64, 8], [8, 64]]),
            op("aten::relu", at + 1000, at + 1100, [[64, 64]]),
            op("ThunderFunction", at + 1200, at + 1300, seq=8 + s),
            op("aten::mean", at + 1400, at + 1500, [[64, 64]], seq=20 + s),
            *node("MeanBackward0", at + 2000, at + 2100, seq=20 + s),
            *node("ThunderFunctionBackward", at + 2200, at + 4000, seq=8 + s),
            op("aten::mm", at + 2300, at + 3900, [[64, 64], [64, 8]]),
            mark("Optimizer.step#SGD.step", at + 5000, at + 6000),
            op("aten::add_", at + 5100, at + 5900, [[64], [64]]),
        ]
    frame = read_trace(write(tmp_path / "t.json", events)).frame
    passes = dict(zip(frame["name"], frame["pass"].astype(object).where(frame["pass"].notna(), None), strict=True))
    assert passes == {
        "aten::stack": None, "aten::addmm": "forward", "aten::relu": "forward", "aten::mean": "forward",
        "aten::mm": "backward", "aten::add_": "optimizer",
    }  # fmt: skip


def recorded(path: Path, mode: Any) -> KernelTable:
    """A small training loop, recorded by torch.profiler alone, each step in a `mode`."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function, schedule

    net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer, batch = torch.optim.SGD(net.parameters(), 0.01), torch.randn(8, 64)
    how = schedule(wait=0, warmup=1, active=3, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=how, record_shapes=True, with_stack=True) as profiler:
        for _ in range(4):
            with mode():
                with record_function("forward"):
                    loss = net(batch).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                profiler.step()
    profiler.export_chrome_trace(str(path))
    return read_trace(path)


def test_ranges_under_a_dispatch_mode(tmp_path: Path) -> None:
    """The mode's event around the call that opens a range ends before the range does."""
    import contextlib

    from torch.utils.flop_counter import FlopCounterMode

    plain = recorded(tmp_path / "plain.json", contextlib.nullcontext).frame
    mode = recorded(tmp_path / "mode.json", lambda: FlopCounterMode(display=False))
    assert mode.facts["steps"] == 3 and mode.warnings == []
    columns = ["step", "pass", "module", "name", "range"]
    assert mode.frame[columns].astype(str).to_numpy().tolist() == plain[columns].astype(str).to_numpy().tolist()
    assert (plain["module"] == "Linear_0").any() and (plain["pass"] == "backward").any()


def test_events_of_a_category_that_nothing_reads_are_named(tmp_path: Path) -> None:
    """The work of another device was passed over without a word."""
    unread = [event("npu_events", "exe", 100 + k, 101 + k, pid=17) for k in range(4)]
    said = read_trace(write(tmp_path / "t.json", steps() + unread)).warnings
    assert [w for w in said if '4 of 36 events in the trace have the category "npu_events"' in w]
    few = read_trace(write(tmp_path / "few.json", steps())).warnings
    assert not [w for w in few if "category" in w]


def test_what_an_mtia_device_does_is_work(tmp_path: Path) -> None:
    """Its operators' time on the host was reported as that of kernels, and its kernels were not read."""
    kernels = [
        {
            **e,
            "cat": "mtia_ccp_events",
            "pid": 9,
            "args": {"stream": 1, "row": "0", "correlation": e["args"]["correlation"]},
        }
        if e["cat"] == "kernel"
        else e
        for e in steps("mtia_runtime", "runFunction")
    ]
    others = [
        event("mtia_ccp_events", "dma_request", 5600, 5700, pid=9, tid=801, size=4096, direction="DEVICE_TO_HOST")
    ]
    others += [event("mtia_ccp_events", "event_wait", 10, 9000, pid=9, tid=4, stream=1)]
    found = read_trace(write(tmp_path / "t.json", kernels + others))
    frame = found.frame
    assert frame["kind"].tolist().count("gpu_kernel") == 10 and set(frame["device"]) == {"cuda:9"}
    assert frame[frame["kind"] == "gpu_kernel"]["operator"].tolist() == ["aten::mm"] * 10
    [copies] = found.facts["copies"]
    assert (copies["count"], copies["bytes"], copies["ns"]) == (1, 4096, 100_000)
    assert found.facts["busy_ns"] == [4_600_000, 4_500_000]


def test_the_span_of_the_profiler_itself_is_no_unread_category(tmp_path: Path) -> None:
    events = [op("aten::mm", 0, 10, [[4, 4], [4, 4]]), event("Trace", "PyTorch Profiler (0)", 0, 20)]
    assert not [text for text in read_trace(write(tmp_path / "t.json", events)).warnings if "does not read" in text]
