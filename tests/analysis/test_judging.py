"""Rows that are not judged have no roof, efficiency or headroom, count in no sum of them, and are named."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perfkit import table
from perfkit.analysis.report.analyse import analyse_table
from perfkit.analysis.results import BackendReport
from perfkit.analysis.roofline.excluded import EXCHANGED, HELPER, OVER_LINK, TOO_SMALL, UNCOUNTED
from perfkit.analysis.timeline.layout import timeline
from perfkit.render import sentences
from tests.support.analysis import profiles
from tests.support.analysis.examples import ceilings

# At 10 GB/s a megabyte takes 100 µs.
ROW = {"kind": "gpu_kernel", "device": "cuda:0", "family": "elementwise", "duration_ns": 200e3, "dram_bytes": 1e6,
       "flop_vector_fp32": 1.0, "dram_origin": "counter", "flop_origin": "derived"}  # fmt: skip


def report(*rows: dict[str, Any], facts: dict[str, Any] | None = None) -> BackendReport:
    made = table.build(
        [{**ROW, "name": f"k{i}", "short_name": f"k{i}", "order": i, **row} for i, row in enumerate(rows)], facts=facts
    )
    return analyse_table(made, ceilings(), "x.parquet").backends[0]


def test_short_launches_and_part_waves_are_too_small() -> None:
    made = report({}, {"duration_ns": 4999.0}, {"waves": 0.99}, {"waves": 1.0})
    assert [g.withheld for g in made.kernels] == ["", TOO_SMALL, "", TOO_SMALL]  # by time: k0, k2, k3, k1
    small = [g for g in made.kernels if g.withheld]
    assert all(g.efficiency is g.headroom_ns is g.roof_ns is None and g.bound == g.ceiling == "" for g in small)
    assert {g.key for g in made.headroom} == {"k0", "k3"}
    assert made.efficiency == pytest.approx(0.5) and made.headroom_ns == pytest.approx(200e3)
    [withheld] = made.withheld
    assert (withheld.why, withheld.count, withheld.time_ns) == (TOO_SMALL, 2, 204999.0)


def test_a_block_on_most_multiprocessors_is_a_wave() -> None:
    grid = {"waves": 0.5, "grid_y": 1, "grid_z": 1}
    made = report({**grid, "grid_x": 99}, {**grid, "grid_x": 98}, facts={"gpus": [{"multiprocessors": 132}]})
    assert {g.key: g.withheld for g in made.kernels} == {"k0": "", "k1": TOO_SMALL}


@pytest.mark.parametrize(
    ("name", "why"),
    [("Memcpy HtoD (Pinned -> Device)", OVER_LINK), ("Memcpy DtoH (Device -> Pageable)", OVER_LINK),
     ("Memcpy DtoD (Device -> Device)", UNCOUNTED)],
)  # fmt: skip
def test_copies_between_host_and_gpu_have_the_link_for_a_roof(name: str, why: str) -> None:
    """1.2 ms of a batch's way to the GPU "hold no arithmetic that the profile knows"."""
    copy = {"kind": "memcpy", "family": "copy", "name": name, "short_name": name, "dram_bytes": None,
            "dram_origin": "absent", "flop_vector_fp32": 0.0}  # fmt: skip
    made = report(copy, {})
    assert {g.key: g.withheld for g in made.kernels} == {name: why, "k1": ""}
    assert made.efficiency == pytest.approx(0.5)


def test_on_a_cpu_nothing_is_too_small() -> None:
    made = report({"kind": "cpu_op", "device": "cpu", "duration_ns": 400.0, "dram_bytes": 1e3})
    assert made.withheld == [] and made.efficiency is not None


def test_the_timeline_judges_alike() -> None:
    made = table.build([{**ROW, "name": "k", "order": 0, "start_ns": 0.0, "duration_ns": 1000.0, "dram_bytes": 5.0}])
    [slice_] = list(timeline("x", made, ceilings()).rows())
    assert "% of roof" not in slice_.facts and "headroom ns" not in slice_.facts


@pytest.mark.parametrize(
    ("busy", "nanoseconds", "why"),
    [
        (0.9, 1e6, UNCOUNTED),  # computing, and far from the DRAM roof
        (0.1, 1e6, ""),  # not computing: whatever it waits for, DRAM is its roof
        (None, 1e6, UNCOUNTED),  # the work is unknown, and memory does not explain its time
        (None, 150e3, ""),  # the work is unknown, and memory does
    ],
)
def test_memory_alone_judges_only_what_it_explains(busy: float | None, nanoseconds: float, why: str) -> None:
    facts = {"kernels": [{"busy": {} if busy is None else {"sm": busy}}]}
    row = {"flop_vector_fp32": None, "flop_origin": "absent", "duration_ns": nanoseconds}
    assert report(row, facts=facts).kernels[0].withheld == why


def test_memory_judges_no_kernel_whose_arithmetic_is_unknown() -> None:
    """Flex attention, whose work no call shows, "reached 15 % of memory bandwidth"."""
    absent = {"dram_bytes": None, "dram_origin": "absent", "flop_vector_fp32": None, "flop_origin": "absent"}
    made = report({**absent, "bytes_read": 50e3, "bytes_written": 50e3, "bytes_origin": "model"})
    assert made.kernels[0].withheld == UNCOUNTED and made.kernels[0].efficiency is None and made.headroom == []


@pytest.mark.parametrize("kind", ["gpu_kernel", "cpu_op"])
def test_memory_judges_no_collective(kind: str) -> None:
    """Its bytes are known, and pass through another roof; a short one is not a small kernel either."""
    exchange = {"family": "collective", "kind": kind}
    made = report({"kind": kind}, exchange, {**exchange, "duration_ns": 4000.0})
    assert {g.key: g.withheld for g in made.kernels} == {"k0": "", "k1": EXCHANGED, "k2": EXCHANGED}
    assert [(w.why, w.count, w.time_ns) for w in made.withheld] == [(EXCHANGED, 2, 204e3)]
    assert made.efficiency == pytest.approx(0.5) and made.headroom_ns == pytest.approx(100e3)


def test_no_known_work_is_no_roof() -> None:
    work = {"dram_bytes": None, "dram_origin": "absent", "flop_vector_fp32": None, "flop_origin": "absent"}
    made = report({**work, "bytes_read": 0.0, "bytes_written": 0.0, "bytes_origin": "model"})
    assert made.kernels[0].withheld == UNCOUNTED and made.headroom == []


def test_a_kernel_that_helps_another_is_said_to() -> None:
    """The report said of an attention's backward pass by three kernels that its arithmetic was not in the profile."""
    absent = {"dram_bytes": None, "dram_origin": "absent"}
    helper = {"flop_vector_fp32": 0.0, "flop_origin": "derived", "bytes_read": 0.0, "bytes_written": 0.0}
    made = report({"bytes_origin": "absent"}, {**absent, **helper, "bytes_origin": "derived"})
    assert [(w.why, w.count) for w in made.withheld] == [(HELPER, 1)]
    assert {g.key: g.withheld for g in made.kernels} == {"k0": "", "k1": HELPER}


def test_a_real_report_says_what_it_does_not_judge() -> None:
    full, basic = profiles.ncu("full.ncu-rep"), profiles.ncu("basic.ncu-rep")
    of_full, of_basic = (sentences.coverage(profiles.backend(one)) for one in (full, basic))
    assert "2 kernel calls (137.9 µs, 9.1 % of the kernel time) are too small to judge" in of_full
    assert [w.why for w in profiles.backend(full).withheld] == [TOO_SMALL]
    assert profiles.kernel(full, "fma_chains").efficiency == pytest.approx(0.909, abs=1e-3)
    assert profiles.kernel(basic, "fma_chains").withheld == UNCOUNTED  # its work is not in a basic report
    assert profiles.kernel(basic, "copy_strided").efficiency == pytest.approx(0.548, abs=1e-3)
    assert "1 kernel call (291.5 µs, 19 % of the kernel time) is not judged" in of_basic


def test_kernels_without_a_cost_read_apart() -> None:
    """The instances of one template were listed twice with the same text."""
    backend = profiles.backend(profiles.ncu("full.raw.csv"))
    assert backend.coverage is not None
    names = [f"void at::native::vectorized_elementwise_kernel<4, {one}Functor, std::array<char*, 3>>" for one in "AB"]
    known = msgspec.structs.replace(backend, coverage=msgspec.structs.replace(backend.coverage, uncosted=names))
    listed = sentences.coverage(known).partition("Without a cost: ")[2].partition(" (perfkit.register_cost")[0]
    assert "AFunctor" in listed and "BFunctor" in listed
    assert all(len(name) <= 60 for name in listed.split(", void "))


@pytest.mark.parametrize(("names", "hint"), [(["scale_all", "aten::mm"], True), (["aten::mm"], False)])
def test_a_kernel_of_ones_own_without_a_cost_is_named_with_the_way_to_give_it_one(names: list[str], hint: bool) -> None:
    backend = profiles.backend(profiles.ncu("full.raw.csv"))
    assert backend.coverage is not None
    known = msgspec.structs.replace(backend, coverage=msgspec.structs.replace(backend.coverage, uncosted=names))
    text = sentences.coverage(known)
    assert f"Without a cost: {', '.join(names)}" in text and ("perfkit.register_cost" in text) is hint
