"""Quantities derived from NVIDIA's counters, each by its formula and with its origin; what is missing stays missing."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from perfkit.analysis.report.analyse import analyse_table
from perfkit.analysis.roofline.roof import StoredCeilings, judge
from perfkit.readers.ncu import metrics, missing, roofs, rules, traffic, work
from perfkit.readers.ncu.results import NcuResult, NcuRule, to_base
from perfkit.readers.ncu.rows import make_table
from perfkit.table import KernelTable
from tests.support.readers.ncu_reports import FP, HOPPER, result, with_values

FP32 = {FP.format("fadd"): 2.0, FP.format("fmul"): 1.0, FP.format("ffma"): 3.0}
TENSOR = "sm__ops_path_tensor_{}.sum"


def table(*results: NcuResult) -> KernelTable:
    return make_table(list(results), Path("a.ncu-rep"), "ncu-report", [])


def test_fp32_work_is_rate_times_cycles_a_multiply_add_counting_twice() -> None:
    assert work.flop(result(**FP32)) == {"vector_fp32": (2 + 1 + 2 * 3) * 150_000}


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    assert "vector_fp32" not in work.flop(result(**{FP.format("ffma"): 3.0}))
    assert "vector_fp16" not in work.flop(result(**{FP.format("hfma"): 3.0}))


def test_packed_half_counts_both_lanes() -> None:
    half = {FP.format("hadd"): 1.0, FP.format("hmul"): 1.0, FP.format("hfma"): 1.0}
    assert work.flop(result(**half))["vector_fp16"] == (2 + 2 + 4) * 150_000


def test_counts_and_clock_stand_in_for_cycles() -> None:
    names = {name.removesuffix(".per_cycle_elapsed"): value for name, value in FP32.items()}
    assert work.flop(with_values({**names}))["vector_fp32"] == 9
    values = {k: v for k, v in {**HOPPER, **FP32}.items() if "smsp__cycles" not in k}
    assert work.flop(with_values(values))["vector_fp32"] == pytest.approx(9 * 150_000)


def test_tensor_operations_come_from_one_family() -> None:
    """On 9.0 the src totals and their parts by instruction are both stored: adding them would count twice."""
    total, part = TENSOR.format("src_bf16_dst_fp32"), TENSOR.format("op_hgmma_src_bf16_dst_fp32_sparsity_off")
    assert work.flop(result(**{total: 8e9, part: 8e9}))["matrix_bf16"] == 8e9
    assert work.flop(result(**{part: 8e9}))["matrix_bf16"] == 8e9
    split = {TENSOR.format(f"src_fp16_dst_{d}_sparsity_{s}"): 1e9 for d in ("fp16", "fp32") for s in ("on", "off")}
    assert work.flop(result(**split))["matrix_fp16"] == 4e9
    assert work.flop(result(**{**split, TENSOR.format("src_fp16"): 4e9}))["matrix_fp16"] == 4e9


def test_the_tensor_roof_is_the_dense_one() -> None:
    peaks = {
        f"{TENSOR.format('src_bf16_dst_fp32')}.peak_sustained": 8192.0 * 132,
        f"{TENSOR.format('op_hgmma_src_bf16_dst_fp32_sparsity_off')}.peak_sustained": 4096.0 * 132,
        f"{TENSOR.format('op_hgmma_src_bf16_dst_fp32_sparsity_on')}.peak_sustained": 8192.0 * 132,
        f"{TENSOR.format('op_hmma_src_bf16_dst_fp32_sparsity_off')}.peak_sustained": 2730.0 * 132,
    }
    assert work.roofs(result(**peaks))["matrix_bf16"] == 4096 * 132 * 1.5e9
    only_total = dict([next(iter(peaks.items()))])
    assert work.roofs(result(**only_total))["matrix_bf16"] == 4096 * 132 * 1.5e9
    before_hopper = {**only_total, "device__attribute_compute_capability_major": 8.0}
    assert work.roofs(result(**before_hopper))["matrix_bf16"] == 8192 * 132 * 1.5e9


def test_dram_bytes_of_a_basic_report() -> None:
    columns = traffic.columns(result())
    assert columns["dram_bytes"] == 0.5 * 2 * 5120 / 8 * 260_000
    assert math.isnan(float(columns["dram_read_bytes"])) and columns["dram_origin"] == "derived"


def test_dram_counters_come_first() -> None:
    columns = traffic.columns(result(dram__bytes_read_DOT_sum=3e6, dram__bytes_write_DOT_sum=1e6))
    assert columns["dram_bytes"] == 4e6 and columns["dram_origin"] == "counter"
    columns = traffic.columns(result(dram__bytes_DOT_sum_DOT_per_second=1e12))
    assert columns["dram_bytes"] == 1e8 and columns["dram_origin"] == "derived"


def test_nothing_is_derived_from_nothing() -> None:
    empty = with_values({"launch__waves_per_multiprocessor": 1.0})
    assert {v for k, v in traffic.columns(empty).items() if k.endswith("_origin")} == {"absent"}
    assert work.flop(empty) == {} and roofs.of_kernel(empty) == {}
    row = table(empty).frame.iloc[0]
    assert math.isnan(row["duration_ns"]) and row["time_origin"] == "absent" and row["flop_origin"] == "absent"


def test_a_kernel_whose_measurement_failed_is_named() -> None:
    """It was advised to capture a metric that the report has of the other kernels."""
    lost = with_values({"launch__grid_dim_x": 4.0, "dram__bytes.sum.peak_sustained": 2e3})
    found = table(result(), lost)
    (said,) = [warning for warning in found.warnings if "measurement failed" in warning]
    assert said.startswith("no values were measured of kernel 1 (k): ")
    assert "the duration" not in [line["what"] for line in found.facts["missing"]]
    assert {line["of"] for line in found.facts["missing"]} == {1}


def test_l2_and_l1_traffic() -> None:
    more = {metrics.L2_READ: 10.0, metrics.L2_WRITE: 5.0, metrics.L1[1]: 7.0}
    columns = traffic.columns(result(**more))
    assert (columns["l2_read_bytes"], columns["l2_write_bytes"], columns["l1_bytes"]) == (320.0, 160.0, 896.0)
    assert traffic.columns(result(**{metrics.L2_RATE: 1e9}))["l2_read_bytes"] == pytest.approx(32 * 1e9 * 1e-4)


@pytest.mark.parametrize(
    "name",
    [
        "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",  # up to 8.8, and 9.0
        "sm__pipe_tensor_op_hmma_cycles_active_v2.avg.pct_of_peak_sustained_active",  # 8.9
        "sm__pipe_tensor_subpipe_hmma_cycles_active.avg.pct_of_peak_sustained_active",  # from 10.0
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",  # a basic report
    ],
)
def test_the_tensor_pipe_of_every_generation(name: str) -> None:
    assert metrics.tensor_active(result(**{name: 40.0})) == 0.4
    assert work.tensor_unknown(result(**{name: 40.0})) and not work.tensor_unknown(result(**{name: 1.0}))


def test_stall_reasons_are_sorted_and_selected_is_none() -> None:
    name = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
    found = metrics.stalls(
        result(**{name.format(r): v for r, v in (("wait", 1.0), ("long_scoreboard", 9.0), ("selected", 1.0))})
    )
    assert list(found.items()) == [("long_scoreboard", 9.0), ("wait", 1.0)]


def test_ranges_place_a_kernel() -> None:
    inside = result()
    inside.ranges = ["perfkit:step:2", "perfkit:pass:backward", "perfkit:module:h.0", "perfkit:module:h.0.mlp", "mine"]
    row = table(inside).frame.iloc[0]
    assert (row["step"], row["pass"], row["module"], row["placed_by"]) == (2, "backward", "h.0.mlp", "range")
    assert row["range"].endswith("/mine")


def test_missing_data_names_the_option() -> None:
    found = {line["what"]: line["option"] for line in missing.lines([result()])}
    assert found["fp32 and fp64 work"] == "--section SpeedOfLight_RooflineChart"
    assert found["stall reasons"] == "--section WarpStateStats" and "the duration" not in found
    some = missing.lines([result(), result(**FP32)])
    assert next(line for line in some if line["what"] == "fp32 and fp64 work")["kernels"] == 1
    assert "--section SpeedOfLight_RooflineChart" in " ".join(table(result()).warnings)


def test_markup_of_rules_is_removed() -> None:
    text = "See the @url:Kernel Guide:https://x.y/a#b@ and @section:WarpState:Warp State@.\x1b[31m\n Mail a@b."
    assert rules.clean(text) == "See the Kernel Guide and Warp State.[31m Mail a@b."
    assert rules.as_facts([NcuRule(name="R", message="m", kind=2, speedup=5.0, scope=1)])[0]["scope"] == "local"


@pytest.mark.parametrize(
    ("value", "unit", "base"),
    [
        (2, "usecond", 2e3), (2, "ms", 2e6), (3, "Mbyte", 3e6), (3, "Gbyte/second", 3e9), (1.5, "Ghz", 1.5e9),
        (1.2, "cycle/nsecond", 1.2e9), (7, "%", 7), (7, "", 7), (32, "byte/cycle", 32), (4, "Kbyte/block", 4e3),
    ],
)  # fmt: skip
def test_units(value: float, unit: str, base: float) -> None:
    assert to_base(value, unit) == pytest.approx(base)


def test_every_row_is_judged_by_its_own_ceilings() -> None:
    slow = result(dram__cycles_elapsed_DOT_avg_DOT_per_second=1.3e9)
    made = table(result(), slow)
    stored = StoredCeilings.of(made.facts, made.frame)
    assert stored is not None
    judged = judge(made.frame, stored)
    roof = 2 * 5120 / 8 * 2.6e9
    assert judged.roof == pytest.approx(np.array([1.664e8 / roof, 1.664e8 / (roof / 2)]) * 1e9)
    assert judged.ceilings[judged.ceiling[0]] == "DRAM at the captured clock (2496 GB/s)"


def test_the_report_has_efficiency_and_headroom() -> None:
    group = analyse_table(table(result(**FP32)), None, "a.ncu-rep").backends[0].kernels[0]
    assert group.efficiency == pytest.approx(0.5) and group.headroom_ns == pytest.approx(50_000)
    assert group.bound == "memory" and group.ceiling == "DRAM at the captured clock (3328 GB/s)"


def test_ceilings_at_maximum_clock_and_of_the_datasheet() -> None:
    peak = {"sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": 132 * 128.0}
    facts = table(result(**peak)).facts
    assert facts["max_clock_ceilings"]["vector_fp32"] == pytest.approx(66.9e12, rel=1e-3)
    assert facts["row_ceilings"]["vector_fp32"] == [pytest.approx(2 * 132 * 128 * 1.5e9)]
    assert facts["ceilings"]["datasheet"]["memory"] == pytest.approx(3352e9)


@pytest.mark.parametrize("value", [-1.0, 1e300, math.nan])
def test_values_that_cannot_be_are_unknown(value: float) -> None:
    names = ("gpu__time_duration.sum", "launch__grid_dim_x", "dram__bytes_read.sum", "dram__bytes_write.sum")
    made = table(result(**dict.fromkeys(names, value)), result())
    assert math.isnan(made.frame["duration_ns"][0]) and made.frame["grid_x"].isna()[0]
    made.check()


def test_the_table_survives_parquet(tmp_path: Path) -> None:
    made = table(result(**FP32))
    made.write(tmp_path / "k.parquet")
    assert KernelTable.load(tmp_path / "k.parquet").facts == made.facts


def test_reads_from_l2_have_a_roof_of_their_own() -> None:
    """It also judges where the GPU has no DRAM counters."""
    sm = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
    l2 = {metrics.L2_READ: 4e6, metrics.L2_PEAK: 96.0, metrics.L2_CLOCK: 1.5e9, sm: 10.0}
    without = {k: v for k, v in HOPPER.items() if "dram" not in k}
    for values in ({**HOPPER, metrics.DRAM_SHARE: 5.0, **l2}, {**without, **l2}):
        group = analyse_table(table(with_values(values)), None, "a.ncu-rep").backends[0].kernels[0]
        assert group.bound == "l2" and group.ceiling == "L2 reads at the captured clock (4608 GB/s)"
        assert group.efficiency == pytest.approx(32 * 4e6 / (32 * 96 * 1.5e9) / 1e-4)


TENSOR_PIPE = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
NO_VECTOR_WORK = {FP.format(f"f{op}"): 0.0 for op in ("add", "mul", "fma")}


def test_work_of_which_the_tensor_units_part_is_unknown_is_unknown() -> None:
    """Idle vector units do not mean 0 FLOP of a product, and memory at a few per cent is not its roof."""
    gemm = result(**{TENSOR_PIPE: 27.0, **FP32})
    assert work.flop(gemm) == {} and set(work.counted(gemm)) == {"vector_fp32"}
    assert table(gemm).frame["flop_origin"][0] == "absent"
    assert work.flop(result(**{TENSOR_PIPE: 1.0, **FP32})) == work.counted(gemm)
    counts_of_others = {TENSOR.format("src_fp16"): 0.0, TENSOR.format("src_int4_sparsity_off"): 5e9}
    assert work.flop(result(**{TENSOR_PIPE: 27.0, **NO_VECTOR_WORK, **counts_of_others})) == {}


@pytest.mark.parametrize(
    ("name", "counters", "known"),
    [
        ("cutlass_80_tensorop_s16816gemm_bf16", NO_VECTOR_WORK, False),
        ("cutlass_80_tensorop_s16816gemm_bf16", {**NO_VECTOR_WORK, TENSOR_PIPE: 0.0}, True),
        ("my_sgemm", FP32, True),  # the vector units did the products
        ("my_stencil", NO_VECTOR_WORK, True),
    ],
)
def test_without_the_tensor_pipe_a_products_name_and_idle_vector_units_tell(
    name: str, counters: dict[str, float], known: bool
) -> None:
    busy = {FP.format("ffma"): 600.0} if counters is FP32 else {}
    peak = {"sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": 16896.0}
    one = result(**{**counters, **busy, **peak})
    one.name = one.function = name
    assert ("vector_fp32" in work.flop(one)) is known


def test_local_memory_spills_and_threads_of_a_warp_are_facts() -> None:
    sectors = {
        "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": 120.0,
        "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": 7.0,
    }
    [both] = table(result(**sectors, memory_l2_theoretical_sectors_local=100.0)).facts["kernels"]
    [in_l1] = table(result(**sectors, derived__local_spilling_requests=3.0, **{metrics.THREADS: 9.0})).facts["kernels"]
    [none] = table(result()).facts["kernels"]
    assert [f["local_sectors"] for f in (both, in_l1, none)] == [100.0, 127.0, None]
    assert [f["spills"] for f in (both, in_l1)] == [None, 3.0]
    assert [f["warp_threads"] for f in (in_l1, none)] == [9.0, None]


def test_waves_that_are_not_stored_follow_from_blocks_and_limits() -> None:
    fit = {"device__attribute_multiprocessor_count": 132.0, "launch__occupancy_limit_registers": 4.0}
    one = result(**fit)
    one.values.pop(metrics.WAVES)
    assert table(one).frame["waves"][0] == pytest.approx(128 / (132 * 4))


@pytest.mark.parametrize(("share", "judged"), [(6.0, False), (85.0, True)])
def test_a_product_of_unknown_work_is_judged_by_memory_where_that_explains_its_time(share: float, judged: bool) -> None:
    """It is unknown whether the tensor units worked: memory at 6 % of its peak is not what the kernel waits for."""
    one = result(**{
        metrics.DRAM_SHARE: share, "sm__throughput.avg.pct_of_peak_sustained_elapsed": 20.0, metrics.WAVES: 9.0,
        **NO_VECTOR_WORK,
    })  # fmt: skip
    one.values = {name: value for name, value in one.values.items() if not name.startswith("dram__bytes")}
    one.name = one.function = "nvjet_tst_128x256"
    [kernel] = analyse_table(table(one), None, "a.ncu-rep").backends[0].kernels
    assert kernel.flop is None and (kernel.efficiency is not None) is judged
