"""Peak memory of this process (CPU) or of PyTorch's allocator (GPU)."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

from perfkit.errors import Unavailable
from perfkit.hardware import cgroup
from perfkit.hardware.system import ROOT, kibibytes

_CLEAR_REFS = Path("/proc/self/clear_refs")
_SHARED_POOL = (0, 0)  # the id of the pool that belongs to no graph


def keep_freed() -> None:
    """Keep the memory that CPU tensors free for those of later steps, from here on (`--allocator keep`).

    Raises `Unavailable` where this machine cannot.
    """
    from perfkit.kernels.c import keeping

    if not keeping.keep_freed():
        raise Unavailable("--allocator keep needs Linux and a C++ compiler.", "Install g++, or leave it out.")


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
        graphs = private_bytes(torch.cuda.memory_snapshot())
        if graphs:
            how += ", with what CUDA graphs hold in pools of their own"
        return float(torch.cuda.max_memory_allocated()) + graphs, how
    high = kibibytes(ROOT / "proc/self/status", "VmHWM")
    if high is not None:
        since = "the warm-up and timed steps" if _CLEAR_REFS.exists() else "the whole run"
        return float(high), f"peak resident memory of the backend's own process during {since}"
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes on macOS, KiB on Linux
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return float(used), "peak resident memory of the backend's own process, checks included"


def private_bytes(segments: list[dict[str, Any]]) -> float:
    """Bytes that CUDA graphs hold reserved and the allocator's peak does not count.

    A graph's tensors were freed in the allocator's books when it had been captured, but each replay writes them in the
    graph's private pool, which nobody else can use. `segments` are those of `torch.cuda.memory_snapshot`.
    """
    private = [s for s in segments if tuple(s.get("segment_pool_id", _SHARED_POOL)) != _SHARED_POOL]
    return float(sum(s["total_size"] - s["allocated_size"] for s in private))


def available_bytes(device: str = "cpu") -> float | None:
    """Memory that can still be taken without swapping (CPU) or is free on the GPU, in bytes, where the system reports
    it.

    In a container with a limit of its own that counts too.
    """
    if device != "cpu":
        import torch

        return float(torch.cuda.mem_get_info(device)[0])
    known = [kibibytes(ROOT / "proc/meminfo", "MemAvailable"), cgroup.free_bytes(ROOT)]
    return min((amount for amount in known if amount is not None), default=None)
