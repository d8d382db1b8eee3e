"""Ranks of a made-up job: kernels, copies and host delays as given; collectives end when the last rank came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from perfkit.ranks.rank_table import RankTable

LAYERS, STEPS = 4, 12
KERNEL_NS, COPY_NS, HOST_NS, OWN_NS = 1.5e6, 0.2e6, 0.1e6, 0.4e6
Plan = Callable[[int, int, int], dict[str, Any]]  # of rank, step, layer: what differs from the usual


def job(ranks: int, plan: Plan = lambda rank, step, layer: {}, noise: float = 0.02, seed: int = 0) -> list[RankTable]:
    """Members of a job of `ranks` ranks: in each layer the host waits, a copy and kernels run, an all-reduce ends it.

    `plan` gives changed values: host (ns more), cause (of it), longer (factor of the first kernel), clock (of all
    kernels), copies (ns more), shape (of the first kernel), extra (kernels more).
    """
    random = np.random.default_rng(seed)
    rows: list[list[dict[str, Any]]] = [[] for _ in range(ranks)]
    facts: list[list[dict[str, float]]] = [[] for _ in range(ranks)]
    idle: list[dict[str, float]] = [{} for _ in range(ranks)]
    now = 0.0
    for step in range(STEPS):
        begin, clock = now, np.full(ranks, now)
        for rank in range(ranks):
            facts[rank].append(dict.fromkeys(("compute_ns", "copy_ns", "communication_ns", "idle_ns"), 0.0))
        for layer in range(LAYERS):
            for rank in range(ranks):
                change, sums = plan(rank, step, layer), facts[rank][-1]
                wait = HOST_NS * random.lognormal(0, noise) + change.get("host", 0.0)
                cause = change.get("cause", "dispatch")
                idle[rank][cause] = idle[rank].get(cause, 0.0) + wait
                sums["idle_ns"] += wait
                at = clock[rank] + wait
                work = [("copy", "Memcpy HtoD", COPY_NS + change.get("copies", 0.0), "", "memcpy")]
                first = KERNEL_NS * change.get("longer", 1.0)
                work.append(("matmul", "gemm", first, change.get("shape", "bf16[512×768]"), "gpu_kernel"))
                work += [("elementwise", "gelu", KERNEL_NS / 3, "bf16[512×3072]", "gpu_kernel")] * (
                    1 + change.get("extra", 0)
                )
                for family, name, ns, shapes, kind in work:
                    ns = ns * random.lognormal(0, noise) * (change.get("clock", 1.0) if kind == "gpu_kernel" else 1.0)
                    sums["copy_ns" if kind == "memcpy" else "compute_ns"] += ns
                    rows[rank].append(_row(name, family, kind, rank, step, layer, shapes, at, ns))
                    at += ns
                clock[rank] = at
            end = clock.max() + OWN_NS * random.lognormal(0, noise)
            for rank in range(ranks):
                row = _row("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "collective", "gpu_kernel", rank, step, layer, "",
                           clock[rank], end - clock[rank])  # fmt: skip
                rows[rank].append(row | {"collective": "all_reduce", "group": f"dp {list(range(ranks))}",
                                         "message_bytes": 2.0**20, "shapes": "all_reduce fp32[262144]"})  # fmt: skip
                facts[rank][-1]["communication_ns"] += end - clock[rank]
            clock[:] = end
        now = clock.max()
        for rank in range(ranks):
            facts[rank][-1]["step_ns"] = now - begin
    return [_member(rank, ranks, rows[rank], facts[rank], idle[rank]) for rank in range(ranks)]


def _row(
    name: str, family: str, kind: str, rank: int, step: int, layer: int, shapes: str, start: float, ns: float
) -> dict:
    return {"name": name, "short_name": name, "family": family, "kind": kind, "device": f"cuda:{rank}", "step": step,
            "stream": 7, "pass": "forward", "layer": layer, "shapes": shapes, "start_ns": start, "duration_ns": ns,
            "collective": None, "group": None, "message_bytes": np.nan, "algorithm": None,
            "protocol": None}  # fmt: skip


def _member(rank: int, world: int, rows: list[dict], steps: list[dict], idle: dict[str, float]) -> RankTable:
    frame = pd.DataFrame(rows)
    frame["order"] = np.arange(len(frame))
    frame["step"] = frame["step"].astype("Int64")
    facts = {
        "step_ns": [one["step_ns"] for one in steps],
        "per_step": steps,
        "idle": [{"cause": cause, "ns": ns, "count": 1} for cause, ns in idle.items()],
        "origin_ns": 0,
        "step_names": [f"ProfilerStep#{i}" for i in range(len(steps))],
        "distributed": {"rank": rank, "world_size": world, "backend": "nccl"},
    }
    return RankTable(rank, world, f"rank{rank}.json", frame, facts)
