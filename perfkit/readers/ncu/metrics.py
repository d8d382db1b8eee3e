"""The names of NVIDIA's metrics that perfkit uses, over the generations from Turing to Blackwell.

What a section or set holds changes with the tool's version: everything is looked for by metric.
"""

from __future__ import annotations

import re

from perfkit.readers.ncu.results import NcuResult

DURATION = "gpu__time_duration.sum"
DRAM_READ, DRAM_WRITE = "dram__bytes_read.sum", "dram__bytes_write.sum"
DRAM_RATE = "dram__bytes.sum.per_second"
DRAM_SHARE = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
DRAM_PEAK = "dram__bytes.sum.peak_sustained"
DRAM_CLOCK, DRAM_CYCLES = "dram__cycles_elapsed.avg.per_second", "dram__cycles_elapsed.avg"
BUS_WIDTH = "device__attribute_fb_bus_width"
# An average over multiprocessors of a counter that all of them have, first the one that NVIDIA's own charts use.
SM_CLOCKS = ("sm__cycles_elapsed.avg.per_second", "smsp__cycles_elapsed.avg.per_second")
GPC_CLOCK = "gpc__cycles_elapsed.avg.per_second"
SMSP_CYCLES = ("smsp__cycles_elapsed.avg", "sm__cycles_elapsed.avg")
L2_READ, L2_WRITE = "lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_write.sum"
L2_RATE, L2_PEAK = "lts__lts2xbar_cycles_active.sum.per_second", "lts__lts2xbar_cycles_active.sum.peak_sustained"
L2_CLOCK = "lts__cycles_elapsed.avg.per_second"
L1 = ("l1tex__lsu_writeback_active_mem_lg.sum", "l1tex__lsu_writeback_active_mem_lgds.sum")  # up to 8.9; from 9.0
INSTRUCTIONS = ("smsp__inst_executed.sum", "sm__inst_executed.sum")
ACHIEVED_OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
THEORETICAL_OCCUPANCY = "sm__maximum_warps_per_active_cycle_pct"
WAVES = "launch__waves_per_multiprocessor"
OCCUPANCY_LIMIT = "launch__occupancy_limit_"
SECTOR_BYTES, L1_LINE_BYTES = 32, 128
LEVELS = ("sm", "l1tex", "lts")  # whose activity a report contains

# Sectors that coalesced accesses would not have moved, and shared-memory wavefronts that conflict-free ones would not.
EXCESSIVE_SECTORS = "derived__memory_l2_theoretical_sectors_global_excessive"
IDEAL_SECTORS = "memory_l2_theoretical_sectors_global_ideal"
SECTORS = "memory_l2_theoretical_sectors_global"
EXCESSIVE_WAVEFRONTS = "derived__memory_l1_wavefronts_shared_excessive"
# Sectors of local memory (spilled registers, and arrays that are indexed at run time): those that global memory's are
# counted with, else those that passed through L1; and the requests that are known to be spills.
LOCAL_SECTORS = "memory_l2_theoretical_sectors_local"
LOCAL_IN_L1 = tuple(f"l1tex__t_sectors_pipe_lsu_mem_local_op_{op}.sum" for op in ("ld", "st"))
SPILLS = "derived__local_spilling_requests"
# Threads of a warp, of 32, that take part in its instructions, and that are not switched off by a predicate besides.
THREADS = "smsp__thread_inst_executed_per_inst_executed.ratio"
SM_ACTIVE, SM_ACTIVE_MOST = "sm__cycles_active.avg", "sm__cycles_active.max"
THREADS_ON = "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio"

_STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+?)_per_issue_active\.ratio")
_TENSOR_PIPE = re.compile(r"sm__(?:inst_executed_)?pipe_tensor_\w+\.avg\.pct_of_peak_sustained_(active|elapsed)")

# In every report, or only read where a set brought them: nobody has to ask for them.
_STORED = (
    r"device__attribute_(display_name|compute_capability_m\w+|multiprocessor_count|max_\w+_frequency_khz|fb_bus_width"
    r"|l2_cache_size|max_threads_per_multiprocessor)",
    r"launch__(grid_dim_.|block_dim_.|registers_per_thread|shared_mem_per_block\w*|waves_per_multiprocessor"
    r"|occupancy_limit_\w+|cluster_size|stream_id|device_id|thread_count|grid_size|block_size|sm_count)",
    r"gpc__cycles_elapsed\.(avg|avg\.per_second|max)",
    r"(dram|sm|smsp|lts)__cycles_elapsed\.max",
    r"gpu__compute_memory_throughput\.avg\.pct_of_peak_sustained_elapsed",
    r"sm__maximum_warps_per_active_cycle_pct",
    r"smsp__thread_inst_executed(_pred_on)?_per_inst_executed\.ratio",
    rf"{LOCAL_SECTORS}|l1tex__t_sectors_pipe_lsu_mem_local_op_(ld|st)\.sum|{SPILLS}",
    r"sm__cycles_active\.(avg|max)",
    r"smsp__(warps_eligible|issue_active)\.avg\.per_cycle_active",
    r"profiler__replayer_passes",
)
# The metrics that a report of perfkit uses, and so those that `perfkit capture` asks the tool for.
COLLECTED = (
    r"gpu__time_duration\.sum",
    r"dram__bytes_(read|write)\.sum",
    r"dram__bytes\.sum(\.per_second|\.peak_sustained)?",
    r"(dram|sm|smsp|lts)__cycles_elapsed\.avg(\.per_second)?",
    r"(sm|lts|l1tex)__throughput\.avg\.pct_of_peak_sustained_(elapsed|active)",
    r"gpu__dram_throughput\.avg\.pct_of_peak_sustained_elapsed",
    r"lts__t_sectors_srcunit_tex_op_(read|write)\.sum",
    r"lts__lts2xbar_cycles_active\.sum(\.per_second|\.peak_sustained)?",
    r"l1tex__lsu_writeback_active_mem_lg(ds)?\.sum(\.per_second)?",
    r"sm(sp)?__inst_executed\.sum",
    r"sm__warps_active\.avg\.pct_of_peak_sustained_active",
    r"sm(sp)?__sass_thread_inst_executed_op_[dfh](add|mul|fma)_pred_on\.sum(\.per_cycle_elapsed|\.peak_sustained)?",
    r"sm__ops_path_tensor_\w+\.sum(\.peak_sustained)?",
    _TENSOR_PIPE.pattern,
    _STALL.pattern,
    rf"{EXCESSIVE_SECTORS}|{IDEAL_SECTORS}|{SECTORS}|{EXCESSIVE_WAVEFRONTS}",
)
WANTED = "|".join((*_STORED, *COLLECTED))


def stalls(result: NcuResult) -> dict[str, float]:
    """Warps stalled for each reason, a warp issue (`selected` and `not_selected` are not stalls), the largest first."""
    found = {m[1]: result.number(name) for name in result.values if (m := _STALL.fullmatch(name))}
    reasons = {name: value for name, value in found.items() if name not in ("selected", "not_selected") and value > 0}
    return dict(sorted(reasons.items(), key=lambda item: -item[1]))


def busy(result: NcuResult) -> dict[str, float]:
    """How busy each level was, a share of its peak from 0 to 1: `sm` (instructions and pipes), `l1tex`, `lts` (L2)."""
    shares = {unit: result.number(f"{unit}__throughput.avg.pct_of_peak_sustained_elapsed") for unit in LEVELS}
    shares["l1tex"] = result.number(
        "l1tex__throughput.avg.pct_of_peak_sustained_elapsed", "l1tex__throughput.avg.pct_of_peak_sustained_active"
    )
    return {unit: share / 100 for unit, share in shares.items() if share == share}


def tensor_active(result: NcuResult) -> float:
    """Share of cycles in which the busiest tensor pipe was active, 0 to 1; NaN where the report does not say.

    The names vary: `sm__pipe_tensor_op_hmma_cycles_active` up to 8.8 and on 9.0, `…_active_v2` on 8.9,
    `sm__pipe_tensor_subpipe_hmma_cycles_active` from 10.0; other operations (fp64, integer) have pipes of their own.
    """
    found: dict[str, list[float]] = {"active": [], "elapsed": []}
    for name in result.values:
        if match := _TENSOR_PIPE.fullmatch(name):
            found[match[1]].append(result.number(name))
    return max(found["active"] or found["elapsed"], default=float("nan")) / 100
