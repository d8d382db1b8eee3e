from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import types

import pytest

from perfkit.hardware import doctor
from perfkit.hardware.doctor import LIMITED, MISSING, OK, diagnose, find_tool
from perfkit.hardware.identity import torch_cuda
from tests.support.hardware.fakes import H100_NVML, FakeNvml, refuse, write

DRIVER = {
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Sun\n",
    "proc/driver/nvidia/params": "RmProfilingAdminOnly: 1\n",
    "proc/self/status": "CapEff:\t0000000000000000\n",
}
VERSIONS = {"torch": "2.13.0+cu126", "lightning-thunder": "0.2.6", "pandas": "3.0", "pyarrow": "26"}


def tool(root, place, version):
    path = root / place
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'NVIDIA (R) Tool'\necho 'Version {version} (build 1)'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine whose files lie under a folder, with what `VERSIONS` names installed, nothing on the PATH, no GPU."""
    versions = dict(VERSIONS)
    monkeypatch.setattr(doctor, "version_of", versions.get)
    monkeypatch.setattr(doctor, "torch_cuda", lambda: "CUDA 12.6")
    monkeypatch.setattr(doctor, "find_compiler", lambda: None)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    return types.SimpleNamespace(root=tmp_path, versions=versions)


def possible(diagnosis):
    return [level.name for level in diagnosis.levels if level.possible]


def test_without_torch_reports_can_be_read(machine):
    del machine.versions["torch"]
    found = diagnose(machine.root)
    assert found.finding("torch").state == MISSING
    assert "perfkit[run]" in found.finding("torch").remedy
    assert possible(found) == ["read reports"]
    assert found.levels[1].lacks == ("torch",)


def test_torch_without_a_compiler_runs_but_has_no_kernels_of_its_own(machine):
    found = diagnose(machine.root)
    assert possible(found) == ["read reports", "run on CPU"]
    assert found.levels[2].lacks == ("compiler",)
    assert "apt install gcc" in found.finding("compiler").remedy


def test_an_old_torch_is_not_enough(machine):
    machine.versions["torch"] = "2.6.0"
    found = diagnose(machine.root).finding("torch")
    assert found.state == MISSING
    assert "too old" in found.detail
    assert "torch>=2.7.1" in found.remedy


def test_versions_that_no_test_ran_with_are_said(machine, monkeypatch):
    monkeypatch.setattr(doctor.tested, "torches", lambda: ["2.12.1", "2.13.0"])
    monkeypatch.setattr(doctor.tested, "pythons", lambda: ["3.11", "3.13"])
    monkeypatch.setattr(doctor.platform, "python_version", lambda: "3.13.9")
    assert (diagnose(machine.root).finding("torch").remedy, diagnose(machine.root).finding("Python").remedy) == ("", "")
    machine.versions["torch"] = "2.15.0+cu130"
    monkeypatch.setattr(doctor.platform, "python_version", lambda: "3.14.0")
    found = diagnose(machine.root)
    said = "Not tested with this one, but with 2.12.1, 2.13.0. If something fails: pip install 'torch==2.13.0'"
    assert (found.finding("torch").state, found.finding("torch").remedy) == (OK, said)
    assert found.finding("Python").remedy.endswith("make an environment with Python 3.13.")


def test_thunder_is_missing_on_a_python_that_it_does_not_support(machine, monkeypatch):
    del machine.versions["lightning-thunder"]
    assert diagnose(machine.root).finding("thunder").remedy == "pip install 'perfkit[thunder]'"
    monkeypatch.setattr(doctor.sys, "version_info", (3, 14, 0, "final", 0))
    found = diagnose(machine.root).finding("thunder")
    assert (found.state, found.remedy) == (MISSING, "It needs a Python before 3.14: make an environment with 3.13.")


def test_a_gpu_with_tools_but_without_permission(machine, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(H100_NVML | {"nvmlDeviceGetCurrentClocksEventReasons": 0}))
    write(machine.root, DRIVER)
    tool(machine.root, "opt/nvidia/nsight-compute/2025.1.1/ncu", "2025.1.1.0")
    found = diagnose(machine.root)
    assert found.finding("GPU").detail == "NVIDIA H100 80GB HBM3"
    assert found.finding("driver").detail == "550.54.15"
    assert found.finding("ncu").detail.startswith("2025.1.1.0 at ")
    permission = found.finding("counter permission")
    assert permission.state == MISSING
    assert "NVreg_RestrictProfilingToAdminUsers=0" in permission.remedy
    assert possible(found) == ["read reports", "run on CPU", "GPU traces"]
    assert found.levels[-1].lacks == ("counter permission",)


def test_a_gpu_whose_device_files_are_closed(machine, monkeypatch):
    write(machine.root, {**DRIVER, "proc/driver/nvidia/gpus/0000:3b:00.0/information": "Model: \t NVIDIA H200\n"})
    write(machine.root, {"dev/nvidia0": "", "dev/nvidiactl": ""})
    assert diagnose(machine.root).finding("GPU").state == OK
    refuse(monkeypatch, machine.root / "dev/nvidia0")
    found = diagnose(machine.root)
    assert found.finding("GPU").state == MISSING
    assert found.finding("GPU").detail == "NVIDIA H200 (this user may not open /dev/nvidia0)"
    assert "ls -l /dev/nvidia*" in found.finding("GPU").remedy
    assert "GPU traces" not in possible(found) and "GPU counters" not in possible(found)


@pytest.mark.parametrize(
    "change",
    [{"proc/driver/nvidia/params": "RmProfilingAdminOnly: 0\n"}, {"proc/self/status": "CapEff:\t0000000000200000\n"}],
)
def test_permission_by_the_driver_or_by_capability(machine, monkeypatch, change):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(H100_NVML | {"nvmlDeviceGetCurrentClocksEventReasons": 0}))
    write(machine.root, {**DRIVER, **change})
    tool(machine.root, "usr/local/cuda/bin/ncu", "2024.1")
    assert "GPU counters" in possible(diagnose(machine.root))


def test_a_throttled_gpu_and_a_cpu_build_are_limits(machine, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(H100_NVML))
    monkeypatch.setattr(doctor, "torch_cuda", lambda: None)
    write(machine.root, DRIVER)
    found = diagnose(machine.root)
    assert found.finding("GPU").state == LIMITED
    assert "power cap" in found.finding("GPU").detail
    assert found.finding("torch").state == LIMITED
    assert "CUDA build" in found.finding("torch").remedy
    assert "GPU traces" not in possible(found)
    assert "run on CPU" in possible(found)


def test_the_newest_of_several_tools_is_taken_and_the_path_goes_first(machine, monkeypatch):
    tool(machine.root, "opt/nvidia/nsight-compute/2023.3.0/ncu", "2023.3.0")
    newest = tool(machine.root, "opt/nvidia/nsight-compute/2025.10.0/ncu", "2025.10.0")
    tool(machine.root, "opt/nvidia/nsight-compute/2025.2.0/ncu", "2025.2.0")
    assert find_tool("ncu", machine.root) == newest
    assert find_tool("nsys", machine.root) is None
    own = tool(machine.root, "home/bin/ncu", "1.0")
    monkeypatch.setenv("PATH", str(own.parent))
    assert find_tool("ncu", machine.root) == own


def test_every_missing_thing_says_how_to_get_it(machine):
    for finding in diagnose(machine.root).findings:
        assert finding.purpose
        assert finding.state == OK or finding.remedy, finding.name


def test_the_version_file_of_torch_tells_its_build(monkeypatch, tmp_path):
    version = tmp_path / "version.py"
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: types.SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    )
    version.write_text("__version__ = '2.13.0'\ncuda: Optional[str] = '12.6'\nhip: Optional[str] = None\n")
    assert torch_cuda() == "CUDA 12.6"
    version.write_text("cuda: Optional[str] = None\nhip: Optional[str] = '6.3'\n")
    assert torch_cuda() == "ROCm 6.3"
    version.write_text("cuda: Optional[str] = None\nhip: Optional[str] = None\n")
    assert torch_cuda() is None


def test_the_command_prints_findings_and_levels_and_exits_with_zero(run_cli):
    done = run_cli(["doctor"])
    assert done.rc == 0, done.stderr
    for words in ("Python", "torch", "compiler", "Reports possible here", "read reports", "GPU counters"):
        assert words in done.stdout
    machine_readable = run_cli(["doctor", "--json"])
    found = json.loads(machine_readable.stdout)
    assert {level["name"] for level in found["levels"]} >= {"read reports", "run on CPU"}
    assert all(f["state"] in (OK, LIMITED, MISSING) for f in found["findings"])


def test_looking_imports_no_torch():
    code = "import sys; from perfkit.hardware.doctor import diagnose; diagnose(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
