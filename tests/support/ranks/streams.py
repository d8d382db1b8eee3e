"""Ranks of a made-up job whose streams are written out: each kernel with its stream, start and length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from perfkit.ranks.rank_table import RankTable

COMPUTE, TALK = 7, 17
Kernel = dict[str, Any]


def compute(start: float, us: float, **changes: Any) -> Kernel:
    """A matrix product in bf16; times in µs."""
    return _kernel("gemm", "matmul", COMPUTE, start, us, shapes="bf16[512×768], bf16[768×768]") | changes


def talk(start: float, us: float, operation: str = "all_reduce", dtype: str = "fp32", size: float = 2.0**26,
         **changes: Any) -> Kernel:  # fmt: skip
    """A collective of `size` bytes in the backward pass."""
    row = _kernel(f"ncclDevKernel_{operation}", "collective", TALK, start, us, shapes=f"{operation} {dtype}[1]")
    return row | {"collective": operation, "message_bytes": size, "algorithm": "RING", "protocol": "LL"} | changes


def job(
    kernels: list[Kernel], step_us: float, ranks: int = 2, steps: int = 4, gpu: str = "NVIDIA H200"
) -> list[RankTable]:
    """Ranks that all do the same in every step; kernels are given in the order of their launch."""
    return [member(rank, ranks, kernels, step_us * 1e3, steps, gpu) for rank in range(ranks)]


def _kernel(name: str, family: str, stream: int, start: float, us: float, shapes: str) -> Kernel:
    return {"name": name, "short_name": name, "family": family, "kind": "gpu_kernel", "stream": stream, "layer": 0,
            "pass": "backward", "shapes": shapes, "start_ns": start * 1e3, "duration_ns": us * 1e3, "collective": None,
            "message_bytes": np.nan, "algorithm": None, "protocol": None}  # fmt: skip


def member(rank: int, world: int, kernels: list[Kernel], step_ns: float, steps: int, gpu: str) -> RankTable:
    group = f"default_pg {list(range(world))}"
    rows = [
        one | {"step": step, "start_ns": one["start_ns"] + step * step_ns, "device": f"cuda:{rank}",
               "group": group if one["collective"] else None}
        for step in range(steps) for one in kernels
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    frame["order"] = np.arange(len(frame))
    frame["step"] = frame["step"].astype("Int64")
    busy = {"compute_ns": 0.0, "copy_ns": 0.0, "idle_ns": 0.0}
    facts = {
        "step_ns": [step_ns] * steps, "per_step": [busy] * steps, "idle": [], "origin_ns": 0,
        "step_names": [f"ProfilerStep#{i}" for i in range(steps)], "gpus": [{"name": gpu, "id": rank}],
        "distributed": {"rank": rank, "world_size": world, "backend": "nccl"},
    }  # fmt: skip
    return RankTable(rank, world, f"rank{rank}.json", frame, facts)
