"""Peak memory of this process (CPU) or of PyTorch's allocator (GPU)."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


def reset_peak(device: str) -> None:
    """Start a new peak where the system allows it (Linux for the CPU, any GPU)."""
    if device != "cpu":
        import torch

        torch.cuda.reset_peak_memory_stats()
    elif _CLEAR_REFS.exists():
        try:
            _CLEAR_REFS.write_text("5")  # proc(5): resets VmHWM to the current resident size
        except OSError:
            return  # a container may forbid it: `peak` then covers the whole life of the process, and says so


def peak(device: str) -> tuple[float | None, str]:
    """Peak bytes since `reset_peak`, and how they were measured."""
    if device != "cpu":
        import torch

        how = "peak of PyTorch's CUDA allocator during the warm-up and timed steps"
        return float(torch.cuda.max_memory_allocated()), how
    high = _status_bytes("VmHWM")
    if high is not None:
        since = "the warm-up and timed steps" if _CLEAR_REFS.exists() else "the whole run"
        return high, f"peak resident memory of the backend's own process during {since}"
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes on macOS, KiB on Linux
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return float(used), "peak resident memory of the backend's own process, checks included"


def resident_bytes() -> float | None:
    """Resident memory of this process now, in bytes, where the system tells."""
    return _status_bytes("VmRSS")


def available_bytes(device: str = "cpu") -> float | None:
    """Memory that can still be taken without swapping (CPU) or is free on the GPU, in bytes, where the system tells."""
    if device != "cpu":
        import torch

        return float(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith("MemAvailable:")), None)
    return float(found.split()[1]) * 1024 if found else None


def _status_bytes(field: str) -> float | None:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith(f"{field}:")), None)
    return float(found.split()[1]) * 1024 if found else None
