"""Why kernels are far from their roof: of real reports, and each rule at both sides of its evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from perfkit.analysis.results import Group
from perfkit.analysis.roofline.counters import Counters
from perfkit.analysis.rules import reasons
from tests.support.analysis import profiles

# Faults planted in tests/fixtures/ncu/kernels.py. `busy` and `stall` say what a kernel uses or waits for: no trouble.
TROUBLES = {
    "copy_coalesced": [],
    "copy_strided": ["uncoalesced"],
    "gelu_forward": [],
    "smem_limited": ["occupancy"],
    "fma_chains": [],
    "reduce_one_block": ["few-blocks"],
    "tiny": [],
}
STATES = ("busy", "stall")


@pytest.mark.parametrize("page", ["full.ncu-rep", "full.raw.csv"])
def test_a_full_report_gives_exactly_the_planted_troubles(page: str) -> None:
    report = profiles.ncu(page)
    found = {g.key: [r.name for r in g.reasons if r.name not in STATES] for g in profiles.backend(report).kernels}
    assert found == TROUBLES


@pytest.mark.parametrize("page", ["basic.ncu-rep", "roofline.ncu-rep", "basic.details.csv"])
def test_smaller_sets_give_what_their_evidence_supports(page: str) -> None:
    report = profiles.ncu(page)
    found = {g.key: [r.name for r in g.reasons if r.name not in STATES] for g in profiles.backend(report).kernels}
    assert found == {**TROUBLES, "copy_strided": []}  # without SourceCounters nobody knows its access pattern


def test_the_evidence_has_its_numbers() -> None:
    report = profiles.ncu("full.ncu-rep")
    [strided, busy] = profiles.kernel(report, "copy_strided").reasons
    assert "29.36 M of 33.55 M sectors of 32 bytes (88 %)" in strided.text and busy.label == "L2 66 % busy"
    [occupancy, stall] = profiles.kernel(report, "smem_limited").reasons
    assert "allows 2 blocks a multiprocessor where 8 would fit" in occupancy.text
    assert "occupancy is 25 % at most, 21 % achieved" in occupancy.text
    assert stall.text.startswith("60 % of its stalled cycles wait for data from L2 or device memory (long scoreboard)")
    [blocks] = profiles.kernel(report, "reduce_one_block").reasons
    assert blocks.label == "1 block on 132 SMs"


def test_savings_are_bounds_that_can_be_worked_out() -> None:
    report = profiles.ncu("full.ncu-rep")
    strided, reduce_ = profiles.kernel(report, "copy_strided"), profiles.kernel(report, "reduce_one_block")
    asked = (33554432 - 29360128) * 32  # the bytes that threads asked for, in sectors
    least = asked / (strided.bytes / (strided.roof_ns * 1e-9)) * 1e9
    assert strided.reasons[0].saving_ns == pytest.approx(strided.time_ns - least)
    assert reduce_.reasons[0].saving_ns == pytest.approx(reduce_.time_ns * (1 - 1 / 132 / 8))  # 8 blocks would fit
    occupancy = profiles.kernel(report, "smem_limited")
    assert occupancy.reasons[0].saving_ns == occupancy.headroom_ns


GROUP = Group(
    key="k", count=1, time_ns=1e6, share=1.0, bytes=1e8, roof_ns=3e5, judged_ns=1e6, efficiency=0.3, headroom_ns=7e5,
    bound="memory", ceiling="DRAM", family="other",
)  # fmt: skip
IDLE = {"DRAM": 0.3, "L2": 0.2, "multiprocessors": 0.1}
LIMITS = {"registers": 2.0, "warps": 8.0, "shared_mem": 16.0, "blocks": 32.0}
QUIET = Counters(blocks=1e5, waves=100.0, multiprocessors=132, busy=IDLE)


def names(group: dict[str, Any] | None = None, **counters: Any) -> list[str]:
    """The reasons of a kernel at 30 % of its DRAM roof on which nothing is known to be wrong, but for what is given."""
    return [r.name for r in reasons(Group(**{**_fields(GROUP), **(group or {})}), replace(QUIET, **counters))]


def _fields(group: Group) -> dict[str, Any]:
    return {name: getattr(group, name) for name in group.__struct_fields__}


def test_without_evidence_there_is_no_reason() -> None:
    assert names() == []
    assert [r.name for r in reasons(GROUP, Counters())] == []


def test_few_blocks_need_idle_multiprocessors_and_time() -> None:
    assert names(blocks=66.0) == ["few-blocks"]
    assert names(blocks=132.0) == []
    assert names({"time_ns": 4000.0}, blocks=1.0) == []


def test_less_than_a_wave_is_too_few_blocks_whatever_limits_them() -> None:
    few = {"blocks": 120.0, "waves": 0.45, "theoretical": 0.125, "occupancy": 0.06, "limits": LIMITS}
    assert names(**few) == ["few-blocks"]
    assert names({"efficiency": 0.7}, **few) == []
    assert names(**{**few, "waves": 1.0}) == ["occupancy", "imbalance"]
    [reason] = reasons(GROUP, replace(QUIET, **few))
    assert reason.label == "120 blocks on 132 SMs, 0.45 waves" and "maxrregcount" not in reason.remedy
    assert reason.saving_ns == pytest.approx(0.55e6)


def test_uncoalesced_needs_wasted_sectors_and_a_bound_by_memory() -> None:
    assert names(sectors=100.0, excessive=50.0) == ["uncoalesced"]
    assert names(sectors=100.0, excessive=10.0) == []
    assert names({"bound": "vector_fp32"}, sectors=100.0, excessive=50.0) == []
    assert names(sectors=100.0) == []


def test_local_memory_is_no_access_pattern() -> None:
    """6.2 GB of local memory were "uncoalesced, 71 % wasted, saves 99 %": by 3.6 of 199 million sectors."""
    kernel = {"sectors": 5072864.0, "excessive": 3580448.0, "local": 194368160.0}
    assert names(**kernel) == ["spills"]
    [reason] = reasons(GROUP, replace(QUIET, **kernel))
    assert reason.label == "local memory, 97 % of sectors" and "6.22 GB" in reason.text
    assert reason.saving_ns == pytest.approx(1e6 * 194368160 / (194368160 + 5072864))
    assert reasons(GROUP, replace(QUIET, **kernel, spills=1e6))[0].label.startswith("spills")
    assert names(sectors=100.0, excessive=0.0, local=10.0) == []
    low = {"theoretical": 0.25, "limits": LIMITS}
    occupancy = reasons(GROUP, replace(QUIET, **kernel, **low))[1]
    assert occupancy.name == "occupancy" and "-maxrregcount" not in occupancy.remedy


def test_warps_diverge_where_threads_idle_and_the_kernel_is_far_from_its_roof() -> None:
    assert names(warp_threads=12.0) == ["divergence"]
    assert names(warp_threads=31.5) == [] and names({"efficiency": 0.9}, warp_threads=12.0) == []
    [reason] = reasons(GROUP, replace(QUIET, warp_threads=16.0))
    assert reason.saving_ns == pytest.approx(0.5e6) and "16.0 of 32 threads" in reason.text


def test_occupancy_needs_a_tight_limit_and_nothing_busy() -> None:
    low = {"theoretical": 0.25, "limits": LIMITS}
    assert names(**low) == ["occupancy"]
    assert names(**{**low, "theoretical": 0.75}) == []
    assert names(**{**low, "busy": {"DRAM": 0.3, "L2": 0.7}}) == ["busy"]
    assert names({"efficiency": 0.7}, **low) == []
    [reason] = reasons(GROUP, replace(QUIET, **low, registers=255.0))
    assert reason.text.startswith("registers (255 a thread) allows 2 blocks a multiprocessor where 8 would fit")
    assert "-maxrregcount" in reason.remedy


def test_a_limit_that_all_resources_share_is_none() -> None:
    assert names(theoretical=0.25, limits={"blocks": 2.0, "warps": 2.0}) == []


def test_a_tail_needs_few_waves_and_an_empty_last() -> None:
    assert names(waves=1.1) == ["tail"]
    assert names(waves=2.0) == [] and names(waves=1.9) == [] and names(waves=30.1) == []
    assert names({"efficiency": 0.9}, waves=1.1) == []
    [reason] = reasons(GROUP, replace(QUIET, waves=1.5))
    assert reason.saving_ns == pytest.approx(0.25e6)


def test_the_tensor_pipe_is_missed_in_matrix_products_only() -> None:
    product = {"family": "matmul", "bound": "vector_fp32", "flop": 1e10, "efficiency": 0.95}
    idle = {"tensor_active": 0.0, "ceilings": {"matrix_tf32": 1e14, "memory": 1e12}}
    assert names(product, **idle) == ["tensor-idle"]
    assert names(product, **{**idle, "tensor_active": 0.6}) == []
    assert names(product, **{**idle, "ceilings": {"memory": 1e12}}) == []  # a GPU without such units
    assert names({**product, "family": "elementwise"}, **idle) == []
    assert names({**product, "bound": "matrix_bf16"}, **idle) == []
    [reason] = reasons(Group(**{**_fields(GROUP), **product}), replace(QUIET, **idle))
    assert reason.saving_ns == pytest.approx(1e6 - 1e5)  # 10 GFLOP at 100 TFLOP/s, and 100 MB at 1 TB/s: 100 µs each


def test_stalls_count_where_nothing_is_busy_or_memory_stays_below_its_roof() -> None:
    stalls = {"long_scoreboard": 0.8, "wait": 0.2}
    assert names(stalls=stalls) == ["stall"]
    assert names(stalls={"wait": 0.2, "barrier": 0.2}) == []
    assert names({"efficiency": 0.7}, stalls=stalls, busy={"DRAM": 0.7, "L2": 0.5}) == ["stall"]
    assert names({"efficiency": 0.9}, stalls=stalls, busy={"DRAM": 0.9}) == []
    assert names({"efficiency": 0.5}, stalls=stalls, busy={"L2": 0.9, "DRAM": 0.5}) == ["busy"]


def test_a_reason_of_nvidia_that_perfkit_does_not_know_keeps_its_name() -> None:
    [reason] = reasons(GROUP, replace(QUIET, stalls={"new_kind": 0.9}))
    assert "wait for new kind" in reason.text and reason.remedy.startswith("It depends on the reason")


def test_uneven_work_shows_in_the_achieved_occupancy() -> None:
    assert names(occupancy=0.3, theoretical=1.0) == ["imbalance"]
    assert names(occupancy=0.9, theoretical=1.0) == []


def test_causes_stand_before_symptoms() -> None:
    found = names(theoretical=0.25, limits=LIMITS, sectors=4.0, excessive=2.0, stalls={"long_scoreboard": 0.8})
    assert found == ["uncoalesced", "occupancy", "stall"]
