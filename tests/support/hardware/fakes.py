"""Fake machines: trees of /proc and /sys files, an NVML, and ceilings with round numbers."""

from __future__ import annotations

import errno
import os
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfkit.hardware.ceilings import Ceiling, Ceilings
from perfkit.hardware.observation import KIB, METHOD, MIB

XEON_CPUINFO = """\
processor\t: {cpu}
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8480+
stepping\t: 8
cpu MHz\t\t: 2000.000
flags\t\t: fpu sse2 avx avx2 fma f16c avx512f avx512bw avx512vl avx512_bf16 avx512_fp16 amx_tile amx_bf16

"""


def write(root: Path, files: Mapping[str, str]) -> Path:
    """Write `files` (path under `root` → text)."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def refuse(monkeypatch: Any, *paths: Path) -> None:
    """Let opening `paths` fail for want of permission, which a test that runs as root cannot have."""
    real = os.open

    def opened(path: Any, flags: int, *more: Any, **given: Any) -> int:
        if Path(path) in paths:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, flags, *more, **given)

    monkeypatch.setattr(os, "open", opened)


def xeon(root: Path) -> Path:
    """Two sockets of two cores with two threads each: CPUs 0–7, CPU n and n + 4 on one core; L3 a socket."""
    files = {
        "proc/cpuinfo": "".join(XEON_CPUINFO.format(cpu=cpu) for cpu in range(8)),
        "proc/meminfo": "MemTotal:       263856740 kB\nMemFree:  1000 kB\n",
        "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3800000\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "2100000\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
        "sys/devices/system/node/node0/cpulist": "0-1,4-5\n",
        "sys/devices/system/node/node1/cpulist": "2-3,6-7\n",
    }
    for cpu in range(8):
        core = cpu % 4
        socket = core // 2
        folder = f"sys/devices/system/cpu/cpu{cpu}"
        files[f"{folder}/topology/physical_package_id"] = f"{socket}\n"
        files[f"{folder}/topology/core_id"] = f"{core % 2}\n"
        own, shared = f"{core},{core + 4}", f"{2 * socket}-{2 * socket + 1},{2 * socket + 4}-{2 * socket + 5}"
        for index, (level, kind, size, cpus) in enumerate(
            [("1", "Data", "48K", own), ("1", "Instruction", "32K", own), ("2", "Unified", "2048K", own),
             ("3", "Unified", "105M", shared)]
        ):  # fmt: skip
            cache = f"{folder}/cache/index{index}"
            files |= {
                f"{cache}/level": level,
                f"{cache}/type": kind,
                f"{cache}/size": size,
                f"{cache}/shared_cpu_list": cpus,
            }
    return write(root, files)


H100_NVML = {
    "nvmlDeviceGetName": b"NVIDIA H100 80GB HBM3",
    "nvmlDeviceGetCudaComputeCapability": (9, 0),
    "nvmlDeviceGetNumGpuCores": 16896,
    "nvmlDeviceGetMemoryInfo": types.SimpleNamespace(total=85520809984),
    "nvmlDeviceGetMemoryBusWidth": 5120,
    "nvmlDeviceGetEnforcedPowerLimit": 700000,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x4 | 0x20,
    "max sm": 1980,
    "now sm": 1755,
    "max mem": 2619,
}


class FakeNvml(types.ModuleType):
    """As much of pynvml as perfkit asks; a fact that is missing raises as a driver that lacks it does."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    class NVMLError(Exception):
        pass

    def __init__(self, *gpus: Mapping[str, Any], driver: str = "550.54.15") -> None:
        super().__init__("pynvml")
        self._gpus, self._driver = gpus, driver

    def nvmlInit(self) -> None:
        if not self._gpus:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return len(self._gpus)

    def nvmlSystemGetDriverVersion(self) -> str:
        return self._driver

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Mapping[str, Any]:
        return self._gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Mapping[str, Any]:
        return next(gpu for gpu in self._gpus if gpu.get("uuid") == uuid)

    def nvmlDeviceGetMaxClockInfo(self, handle: Mapping[str, Any], kind: int) -> int:
        return self._of(handle, "max sm" if kind == self.NVML_CLOCK_SM else "max mem")

    def nvmlDeviceGetClockInfo(self, handle: Mapping[str, Any], kind: int) -> int:
        return self._of(handle, "now sm")

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)
        return lambda handle: self._of(handle, name)

    def _of(self, handle: Mapping[str, Any], name: str) -> Any:
        if name not in handle:
            raise self.NVMLError("Not Supported")
        return handle[name]


def made_ceilings(**changes: Any) -> Ceilings:
    """Four working sets, the second slower than the third as small ones on many threads are, and two units."""
    curve = [(64.0 * KIB, 400e9), (1.0 * MIB, 150e9), (16.0 * MIB, 200e9), (256.0 * MIB, 50e9)]
    details = [
        Ceiling(name="triad", resource="memory", unit="B/s", value=rate, how="C", spread=0.01, working_set=size)
        for size, rate in curve
    ]
    units = {"matrix_fp32": 200e9, "vector_fp32": 240e9}
    details += [Ceiling(name="x", resource=name, unit="FLOP/s", value=rate, how="y") for name, rate in units.items()]
    facts: dict[str, Any] = {
        "fingerprint": "abc",
        "device": "cpu",
        "device_name": "Fake CPU",
        "measured_at": "2026-01-01T00:00:00+00:00",
        "threads": 2,
        "bandwidth": curve,
        "compute": units,
        "details": details,
        "caches": {"L1d": 64.0 * KIB, "L2": 2.0 * MIB, "L3": 32.0 * MIB},
        "software": {"torch": "2.13.0", "compiler": "cc 12", "perfkit": "0.1.0", "method": METHOD},
        "load": 0.1,
    }
    return Ceilings(**{**facts, **changes})
