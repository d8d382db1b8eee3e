from __future__ import annotations

import sys
import types

import pytest

from perfkit.hardware import gpu as module
from perfkit.hardware.gpu import (
    counters_need_admin,
    driver_version,
    gpu_names,
    gpu_of_torch,
    gpu_use,
    is_admin,
    read_gpus,
)
from tests.support.hardware.fakes import H100_NVML, FakeNvml, write

USES = (("GPU-a", 10), ("GPU-b", 80))


@pytest.fixture
def without_nvml(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)


def test_nvml_tells_all(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(H100_NVML))
    (gpu,) = read_gpus(tmp_path)
    assert (gpu.name, gpu.compute_capability, gpu.multiprocessors) == ("NVIDIA H100 80GB HBM3", "9.0", 132)
    assert (gpu.max_clock_hz, gpu.clock_hz, gpu.memory_clock_hz) == (1980e6, 1755e6, 2619e6)
    assert (gpu.memory_bus_bits, gpu.memory_bytes, gpu.power_limit_w) == (5120, 85520809984, 700.0)
    assert gpu.throttling == ("power cap", "software thermal slowdown")
    assert (gpu.driver, gpu.told_by) == ("550.54.15", "nvml")


@pytest.mark.parametrize(
    ("visible", "index", "share"), [(None, 1, 0.8), ("1", 0, 0.8), ("1, 0", 1, 0.1), ("GPU-b", 0, 0.8), ("0", 1, None)]
)
def test_how_busy_a_gpu_is_by_cudas_number(monkeypatch, visible, index, share):
    gpus = ({"uuid": uuid, "nvmlDeviceGetUtilizationRates": types.SimpleNamespace(gpu=g)} for uuid, g in USES)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(*gpus))
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_use(index) == share


def test_no_driver_tells_how_busy_a_gpu_is(monkeypatch, without_nvml):
    assert gpu_use(0) is None
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml({}))
    assert gpu_use(0) is None
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    assert gpu_use(0) is None


def test_what_a_driver_does_not_know_is_none(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml({"nvmlDeviceGetName": "Tesla T4"}))
    (gpu,) = read_gpus(tmp_path)
    assert gpu.name == "Tesla T4"
    assert (gpu.multiprocessors, gpu.max_clock_hz, gpu.memory_bytes, gpu.throttling) == (None,) * 4


def test_older_drivers_name_the_throttle_reasons_differently(monkeypatch, tmp_path):
    facts = {"nvmlDeviceGetName": "Tesla T4", "nvmlDeviceGetCurrentClocksThrottleReasons": 0x40}
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(facts))
    assert read_gpus(tmp_path)[0].throttling == ("hardware thermal slowdown",)


def test_without_nvml_or_driver_there_is_no_gpu(monkeypatch, tmp_path, without_nvml):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert read_gpus(tmp_path) == []
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    assert read_gpus(tmp_path) == []


def test_proc_gives_names_without_any_package(monkeypatch, tmp_path, without_nvml):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    write(
        tmp_path,
        {
            "proc/driver/nvidia/gpus/0000:3b:00.0/information": "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ: 1\n",
            "proc/driver/nvidia/gpus/0000:af:00.0/information": "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ: 2\n",
            "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n",
        },
    )
    assert gpu_names(tmp_path) == ["NVIDIA A100-SXM4-40GB"] * 2
    assert [g.driver for g in read_gpus(tmp_path)] == ["535.183.01"] * 2


def test_the_fingerprint_does_not_depend_on_what_is_imported(monkeypatch, tmp_path, without_nvml):
    properties = types.SimpleNamespace(name="A", major=9, minor=0, multi_processor_count=132, total_memory=1)
    cuda = types.SimpleNamespace(
        is_available=lambda: True, device_count=lambda: 1, get_device_properties=lambda i: properties
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    assert [g.name for g in module.read_gpus(tmp_path)] == ["A"]
    assert gpu_names(tmp_path) == []


def test_torch_gives_clocks_in_kilohertz_where_it_gives_them():
    bare = types.SimpleNamespace(name="A", major=8, minor=0, multi_processor_count=108, total_memory=42)
    rich = types.SimpleNamespace(
        **vars(bare), clock_rate=1410000, memory_clock_rate=1215000, memory_bus_width=5120, L2_cache_size=41943040
    )
    assert gpu_of_torch(lambda i: bare, 0).max_clock_hz is None
    gpu = gpu_of_torch(lambda i: rich, 1)
    assert (gpu.index, gpu.max_clock_hz, gpu.memory_clock_hz, gpu.l2_bytes) == (1, 1.41e9, 1.215e9, 41943040)


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build\n", "550.54.15"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024\n", "470.256.02"),
        ("", None),
    ],
)
def test_driver_version(tmp_path, line, version):
    assert driver_version(write(tmp_path, {"proc/driver/nvidia/version": line})) == version


def test_counter_permission(tmp_path):
    assert counters_need_admin(tmp_path) is None
    assert counters_need_admin(write(tmp_path, {"proc/driver/nvidia/params": "A: 1\nRmProfilingAdminOnly: 1\n"}))
    write(tmp_path, {"proc/driver/nvidia/params": "RmProfilingAdminOnly: 0\n"})
    assert counters_need_admin(tmp_path) is False
    assert is_admin(write(tmp_path, {"proc/self/status": "CapEff:\t000001fffeffffff\n"}))
    assert not is_admin(write(tmp_path, {"proc/self/status": "CapEff:\t00000000a80425fb\n"}))
