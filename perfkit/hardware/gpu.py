"""The GPUs of this machine, their clocks now, and whether their counters may be read.

NVML (package nvidia-ml-py) knows most; without it, torch where the program has loaded it anyway; without that, the
names in /proc. What none of them knows is None.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from perfkit.hardware.system import ROOT, field, text_of

# FP32 lanes of one multiprocessor by compute capability (CUDA programming guide, arithmetic instructions table): NVML
# counts lanes, everybody else multiprocessors.
FP32_LANES = {
    "7.0": 64, "7.5": 64, "8.0": 64, "8.6": 128, "8.7": 128, "8.9": 128,
    "9.0": 128, "10.0": 128, "10.3": 128, "12.0": 128, "12.1": 128,
}  # fmt: skip

# Bits of nvmlDeviceGetCurrentClocksEventReasons that mean the GPU runs slower than it could (nvml.h).
THROTTLE_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU. Clocks in Hz, power in W, memory in bytes. `throttling` is None if unknown."""

    index: int
    name: str
    compute_capability: str | None = None
    multiprocessors: int | None = None
    memory_bytes: int | None = None
    memory_bus_bits: int | None = None
    l2_bytes: int | None = None
    max_clock_hz: float | None = None
    clock_hz: float | None = None
    memory_clock_hz: float | None = None  # the maximum, as NVML gives it: two transfers a cycle
    driver: str | None = None
    power_limit_w: float | None = None
    throttling: tuple[str, ...] | None = None
    told_by: str = "nvml"


def read_gpus(root: Path = ROOT) -> list[Gpu]:
    """All GPUs of this machine, from the best source; an empty list without any."""
    return _from_nvml() or _from_torch() or _from_proc(root)


def gpu_names(root: Path = ROOT) -> list[str]:
    """Names only, from sources that do not depend on what the program has imported: fit for a fingerprint."""
    return [gpu.name for gpu in _from_nvml() or _from_proc(root)]


def driver_version(root: Path = ROOT) -> str | None:
    """Version of NVIDIA's kernel driver, or None where it is not loaded."""
    text = text_of(root / "proc/driver/nvidia/version")
    words = text.partition("Kernel Module")[2].split()
    # "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build": the first such word is it.
    return next((word for word in words if word[0].isdigit() and "." in word), None)


def gpu_use(index: int) -> float | None:
    """Share of the time of NVML's last period, up to a second, in which kernels ran on CUDA's device `index`, 0 to 1,
    whoever launched them; None if NVML does not report it."""
    nvml = started_nvml()
    if nvml is None:
        return None
    try:
        return float(nvml.nvmlDeviceGetUtilizationRates(_nvml_handle(nvml, index)).gpu) / 100
    except (nvml.NVMLError, IndexError):
        return None
    finally:
        nvml.nvmlShutdown()


def started_nvml() -> Any | None:
    """Return NVML, initialised; None where it is missing or does not work. Each user shuts it down or keeps it."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _nvml_handle(nvml: Any, index: int) -> Any:
    """NVML's handle of CUDA's device `index`: it does not heed CUDA_VISIBLE_DEVICES, which lists indices or UUIDs."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    entry = str(index) if visible is None else visible.split(",")[index].strip()
    return nvml.nvmlDeviceGetHandleByIndex(int(entry)) if entry.isdigit() else nvml.nvmlDeviceGetHandleByUUID(entry)


def counters_need_admin(root: Path = ROOT) -> bool | None:
    """Return whether the driver lets only administrators read performance counters; None where it does not say."""
    value = field(root / "proc/driver/nvidia/params", "RmProfilingAdminOnly")
    return value == "1" if value else None


def is_admin(root: Path = ROOT) -> bool:
    """Return whether this process has CAP_SYS_ADMIN (bit 21 of its effective capabilities)."""
    return bool(int(field(root / "proc/self/status", "CapEff") or "0", 16) >> 21 & 1)


def _from_nvml() -> list[Gpu]:
    nvml = started_nvml()
    if nvml is None:
        return []
    try:
        return [_nvml_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return []
    finally:
        nvml.nvmlShutdown()


def _nvml_gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(function: str, *arguments: Any) -> Any:
        """The answer, or None: old drivers lack functions, some boards lack sensors."""
        try:
            return getattr(nvml, function)(handle, *arguments)
        except (nvml.NVMLError, AttributeError):
            return None

    capability = ask("nvmlDeviceGetCudaComputeCapability")
    name = ".".join(map(str, capability)) if capability else None
    lanes, memory, limit = (
        ask("nvmlDeviceGetNumGpuCores"),
        ask("nvmlDeviceGetMemoryInfo"),
        ask("nvmlDeviceGetEnforcedPowerLimit"),
    )
    reasons = ask("nvmlDeviceGetCurrentClocksEventReasons")
    if reasons is None:
        reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    return Gpu(
        index=index,
        name=_string(ask("nvmlDeviceGetName")),
        compute_capability=name,
        multiprocessors=lanes // FP32_LANES[name] if lanes and name in FP32_LANES else None,
        memory_bytes=int(memory.total) if memory else None,
        memory_bus_bits=ask("nvmlDeviceGetMemoryBusWidth"),
        max_clock_hz=_hertz(ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM)),
        clock_hz=_hertz(ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM)),
        memory_clock_hz=_hertz(ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_MEM)),
        driver=_string(nvml.nvmlSystemGetDriverVersion()),
        power_limit_w=limit / 1000 if limit else None,
        throttling=None if reasons is None else tuple(_reasons(reasons)),
    )


def _reasons(bits: int) -> Iterable[str]:
    return (text for bit, text in THROTTLE_REASONS.items() if bits & bit)


def _from_torch() -> list[Gpu]:
    """From torch, only where the program has already loaded it."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return []
    return [gpu_of_torch(torch.cuda.get_device_properties, index) for index in range(torch.cuda.device_count())]


def gpu_of_torch(properties_of: Callable[[int], Any], index: int) -> Gpu:
    """A `Gpu` from `torch.cuda.get_device_properties`; clocks, where this torch has them, are in kHz there."""
    p = properties_of(index)
    clock, memory_clock = getattr(p, "clock_rate", None), getattr(p, "memory_clock_rate", None)
    return Gpu(
        index=index,
        name=p.name,
        compute_capability=f"{p.major}.{p.minor}",
        multiprocessors=p.multi_processor_count,
        memory_bytes=p.total_memory,
        memory_bus_bits=getattr(p, "memory_bus_width", None),
        l2_bytes=getattr(p, "L2_cache_size", None),
        max_clock_hz=clock * 1e3 if clock else None,
        memory_clock_hz=memory_clock * 1e3 if memory_clock else None,
        told_by="torch",
    )


def _from_proc(root: Path) -> list[Gpu]:
    """Names that the kernel driver lists in /proc."""
    gpus = []
    for index, path in enumerate(sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))):
        model = field(path, "Model") or "NVIDIA GPU"
        gpus.append(Gpu(index=index, name=model, driver=driver_version(root), told_by="proc"))
    return gpus


def _hertz(megahertz: int | None) -> float | None:
    return megahertz * 1e6 if megahertz else None


def _string(text: str | bytes | None) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else text or ""
