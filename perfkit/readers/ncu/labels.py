"""The details page's labels of metrics, and the name of a kernel without template arguments and parameters."""

from __future__ import annotations

import re

from perfkit.readers.ncu import metrics

_LIMIT = metrics.OCCUPANCY_LIMIT
_METRICS = {
    "Duration": metrics.DURATION,
    "DRAM Frequency": metrics.DRAM_CLOCK,
    "SM Frequency": metrics.GPC_CLOCK,
    "Elapsed Cycles": "gpc__cycles_elapsed.max",
    "DRAM Throughput": metrics.DRAM_SHARE,
    "Compute (SM) Throughput": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "L1/TEX Cache Throughput": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "L2 Cache Throughput": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "Grid Size": "launch__grid_size",
    "Block Size": "launch__block_size",
    "Threads": "launch__thread_count",
    "Registers Per Thread": "launch__registers_per_thread",
    "Driver Shared Memory Per Block": "launch__shared_mem_per_block_driver",
    "Dynamic Shared Memory Per Block": "launch__shared_mem_per_block_dynamic",
    "Static Shared Memory Per Block": "launch__shared_mem_per_block_static",
    "Waves Per SM": metrics.WAVES,
    "# SMs": "launch__sm_count",
    "Theoretical Occupancy": metrics.THEORETICAL_OCCUPANCY,
    "Achieved Occupancy": metrics.ACHIEVED_OCCUPANCY,
    "Block Limit SM": f"{_LIMIT}blocks",
    "Block Limit Registers": f"{_LIMIT}registers",
    "Block Limit Shared Mem": f"{_LIMIT}shared_mem",
    "Block Limit Warps": f"{_LIMIT}warps",
    "Block Limit Barriers": f"{_LIMIT}barriers",
    "Executed Instructions": "smsp__inst_executed.sum",
    "Avg. Active Threads Per Warp": metrics.THREADS,
    "Avg. Not Predicated Off Threads Per Warp": metrics.THREADS_ON,
    "Local Memory Spilling Requests": metrics.SPILLS,
}


def metric(label: str, unit: str) -> str:
    """Return the metric of a label of the details page; "" for one that perfkit does not use.

    "Memory Throughput" means two: a share of the peak (%), and the rate of device memory.
    """
    if label == "Memory Throughput":
        return metrics.DRAM_RATE if "byte" in unit.lower() else ""
    return _METRICS.get(label, "")


def function_name(name: str) -> str:
    """`void at::native::add<float>(int, T)` → `add`; any other name stays."""
    name = re.sub(r"\((anonymous namespace|unnamed)\)|<unnamed>", "anonymous", name)
    depth, plain = 0, []
    for character in name:
        if character == "(" and depth == 0:
            break
        depth += (character == "<") - (character == ">")
        if depth == 0 and character != ">":
            plain.append(character)
    words = "".join(plain).split()
    return words[-1].split("::")[-1] if words else name
