"""The roofline and the sums over it, against figures worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfkit import table
from perfkit.analysis.report.accounting import accounting, incomparable
from perfkit.analysis.report.analyse import analyse_table
from perfkit.analysis.report.backend import _slowed
from perfkit.analysis.results import BackendReport, Group, ModuleNode
from perfkit.analysis.roofline.roof import BOUNDS, judge, unit_name
from tests.support.analysis.examples import ceilings, kernel_table


@pytest.fixture(scope="module")
def report() -> BackendReport:
    return analyse_table(kernel_table(), ceilings(), "some/profile.json").backends[0]


def test_roof_time_is_the_largest_of_work_over_ceiling() -> None:
    judged = judge(kernel_table(1).frame, ceilings())
    # mm: 1 MFLOP / 100 GFLOP/s = 10 µs against 40 kB / 100 GB/s = 0.4 µs.
    # add: 8 MB / 50 GB/s = 160 µs (8 MB lies between 1 and 64 MiB: the smaller's rate) against 50 µs.
    # exp: 1 MFLOP / 20 GFLOP/s = 50 µs; its memory takes no time.
    np.testing.assert_allclose(judged.roof, [10e3, 160e3, np.nan, 50e3])
    assert [BOUNDS[b] if b >= 0 else None for b in judged.bound] == ["matrix_fp32", "memory", None, "vector_fp32"]
    np.testing.assert_allclose(judged.headroom, [10e3, 40e3, np.nan, 0])
    assert judged.above.tolist() == [False, False, False, True]
    texts = [judged.ceilings[c] if c >= 0 else "" for c in judged.ceiling]
    assert texts[0] == "fp32 matmul, 100.0 GFLOP/s"
    assert texts[1] == "triad, 1 MiB working set (fits L2), 50.00 GB/s"


def test_work_in_place_has_a_roof_of_its_own() -> None:
    two = ceilings()
    two.in_place = [(2.0**16, 400e9), (2.0**20, 200e9), (2.0**26, 40e9)]
    rows = [
        {"name": name, "family": family, "order": i, "duration_ns": 1e6, "bytes_read": 4e6, "bytes_written": 4e6}
        for i, (name, family) in enumerate(
            [
                ("aten::add", "elementwise"),
                ("aten::add_", "elementwise"),
                ("aten::copy_", "copy"),
                ("perfkit::adamw_step", "optimizer"),
            ]
        )
    ]
    # add touches 8 MB, of its own and in place 4 MB: between 1 and 64 MiB. copy_ overwrites what it does not read.
    np.testing.assert_allclose(judge(table.build(rows).frame, two).roof, [8e6 / 50, 8e6 / 200, 8e6 / 50, 8e6 / 200])
    np.testing.assert_allclose(judge(table.build(rows).frame, ceilings()).roof, [8e6 / 50] * 4)


def test_what_mostly_reads_is_judged_by_reading() -> None:
    read = ceilings()
    read.reading = [(2.0**16, 300e9), (2.0**20, 32e9), (2.0**26, 8e9)]
    rows = [
        {"name": "aten::sum", "order": i, "duration_ns": 1e6, "bytes_read": r * 1e6, "bytes_written": (8 - r) * 1e6}
        for i, r in enumerate((8, 6, 4))
    ]
    counted = {"dram_bytes": 8e6}
    frame = table.build([*rows, {**rows[0], "order": 3, **counted}]).frame
    judged = judge(frame, read)
    # 8 MB lie between 1 and 64 MiB: 50 GB/s, and 32 of reading. Of 6 MB read 188 µs remain, of 4 MB less than of all 8.
    by_counter = 8e6 / ceilings().envelope()[-1][1] * 1e9
    np.testing.assert_allclose(judged.roof, [8e6 / 32, 6e6 / 32, 8e6 / 50, by_counter])
    assert judged.bound.tolist() == [BOUNDS.index("memory")] * 4
    texts = [judged.ceilings[c] for c in judged.ceiling]
    assert texts[0] == texts[1] == "bandwidth, 1 MiB working set (fits L2), 32.00 GB/s"
    assert texts[2] == "triad, 1 MiB working set (fits L2), 50.00 GB/s"


def test_efficiency_is_a_ratio_of_sums_over_judged_rows(report: BackendReport) -> None:
    assert report.efficiency == pytest.approx((10 + 160 + 50) / (20 + 200 + 40))
    assert report.headroom_ns == pytest.approx(50e3)  # a step; the row above its roof saves nothing


def test_a_row_above_its_roof_is_flagged_and_not_clamped(report: BackendReport) -> None:
    exp = next(g for g in report.kernels if g.key == "exp")
    assert exp.above_roof and exp.efficiency == pytest.approx(1.25)
    assert any("2 kernel calls are more than 5% faster than the roof" in w and "exp" in w for w in report.warnings)
    assert not next(g for g in report.kernels if g.key == "mm").above_roof


def test_within_the_tolerance_nothing_is_flagged() -> None:
    rows = [{"name": "a", "order": 0, "duration_ns": 48e3, "flop_vector_fp32": 1e6}]
    judged = judge(table.build(rows).frame, ceilings())
    assert judged.roof.tolist() == [50e3]
    assert not judged.above.any()
    assert judged.headroom.tolist() == [0]


def test_an_unknown_ceiling_judges_nothing() -> None:
    rows = [
        {"name": "a", "order": 0, "duration_ns": 1e3, "flop_vector_fp64": 1e6},
        {"name": "b", "order": 1, "duration_ns": 1e3, "flop_vector_fp64": 1e6, "bytes_read": 1e3, "bytes_written": 0.0},
    ]
    frame = table.build(rows).frame
    judged = judge(frame, ceilings())
    assert math.isnan(judged.roof[0]) and judged.roof[1] == pytest.approx(10)  # memory alone judges the second
    without = judge(frame, None)
    assert np.isnan(without.roof).all() and np.isnan(without.headroom).all()


def test_a_product_without_a_ceiling_for_its_unit_is_not_judged_by_memory() -> None:
    moved = {"bytes_read": 1e3, "bytes_written": 0.0, "duration_ns": 1e3}
    rows = [
        {"name": "fp8 product", "order": 0, "flop_matrix_fp8": 1e6, **moved},
        {"name": "no product", "order": 1, "flop_matrix_fp8": 0.0, **moved},
    ]
    judged = judge(table.build(rows).frame, ceilings())
    assert judged.judged.tolist() == [False, True]
    assert judged.bound[0] == -1


def test_an_fp8_product_is_judged_by_the_measured_ceiling_else_by_the_datasheet() -> None:
    """Ceilings of an older perfkit lack matrix_fp8; the report then says that its roof is the vendor's."""
    moved = {"bytes_read": 1e3, "bytes_written": 0.0, "duration_ns": 20e3, "family": "matmul", "kind": "kernel"}
    made = table.build([{"name": "fp8 product", "order": 0, "flop_matrix_fp8": 16e6, **moved}])
    of_vendor = ceilings(datasheet={"matrix_fp8": 2e12, "matrix_fp32": 200e9})
    measured = ceilings(datasheet=of_vendor.datasheet)
    measured.compute["matrix_fp8"] = 1.6e12
    for known, roof, name in (
        (of_vendor, 8e3, "fp8 matmul (datasheet), 2.00 TFLOP/s"),
        (measured, 10e3, "fp8 matmul, 1.60 TFLOP/s"),
    ):
        report = analyse_table(made, known, "p")
        (group,) = report.backends[0].kernels
        assert (group.roof_ns, group.efficiency) == (pytest.approx(roof), pytest.approx(roof / 20e3)), name
        assert (group.bound, group.ceiling) == ("matrix_fp8", name)
        lines = {r.label: r.value for r in report.roofs if r.kind == "compute"}
        assert lines[name.partition(",")[0]] == known.compute.get("matrix_fp8", 2e12)
        assert lines["fp32 matmul"] == 100e9 and len(lines) == 3
        assert [p.resource for p in report.backends[0].points] == ["matrix_fp8"]


def test_the_datasheet_draws_no_line_of_a_unit_without_a_product() -> None:
    roofs = analyse_table(kernel_table(), ceilings(datasheet={"matrix_fp8": 2e12}), "p").roofs
    assert [r.resource for r in roofs if r.kind == "compute"] == ["matrix_fp32", "vector_fp32"]


def test_bytes_that_counters_saw_are_judged_by_main_memory() -> None:
    row = {
        "name": "a", "order": 0, "duration_ns": 1e6, "bytes_read": 1e3, "bytes_written": 1e3, "dram_read_bytes": 5e5,
        "dram_write_bytes": 5e5,
    }  # fmt: skip
    judged = judge(table.build([row]).frame, ceilings())
    assert judged.bytes.tolist() == [1e6]
    assert judged.roof.tolist() == [1e5]  # 1 MB / 10 GB/s
    assert judged.counters.tolist() == [True]


def test_names_of_units() -> None:
    assert [unit_name(r) for r in ("matrix_fp32", "vector_int")] == ["fp32 matmul", "int vector"]


def test_groups_are_sums_per_step(report: BackendReport) -> None:
    forward, backward = report.passes
    assert (forward.key, forward.count, forward.time_ns, forward.share) == (
        "forward",
        2,
        220e3,
        pytest.approx(220 / 360),
    )
    assert (forward.flop, forward.bytes) == (2e6, pytest.approx(8.04e6))
    assert forward.intensity == pytest.approx(2e6 / 8.04e6)
    assert forward.flop_rate == pytest.approx(2e6 / 220e-6)
    assert forward.bandwidth == pytest.approx(8.04e6 / 220e-6)
    assert (forward.roof_ns, forward.judged_ns, forward.headroom_ns) == (170e3, 220e3, 50e3)
    assert forward.bound == "memory"
    assert forward.passes == ("forward",)
    assert (backward.time_ns, backward.judged_ns, backward.flop_known_ns) == (140e3, 40e3, 40e3)
    assert backward.flop == 1e6  # of the rows that know


def test_what_nobody_knows_is_absent_and_not_zero(report: BackendReport) -> None:
    unknown = next(g for g in report.kernels if g.key == "op")
    for value in (
        unknown.flop,
        unknown.bytes,
        unknown.roof_ns,
        unknown.efficiency,
        unknown.headroom_ns,
        unknown.intensity,
    ):
        assert value is None
    assert (unknown.bound, unknown.ceiling, unknown.above_roof) == ("", "", False)


def test_kernels_by_time_and_by_headroom(report: BackendReport) -> None:
    assert [g.key for g in report.kernels] == ["add", "op", "exp", "mm"]
    assert [g.key for g in report.headroom] == ["add", "mm"]
    assert [(g.key, g.time_ns) for g in report.families] == [("elementwise", 240e3), ("other", 100e3), ("matmul", 20e3)]
    assert report.kernels[0].example == "aten::add" and report.kernels[0].shapes == "fp32[4]"


def test_passes_and_families_fill_the_stacked_chart(report: BackendReport) -> None:
    assert report.pass_families == {
        "forward": {"matmul": 20e3, "elementwise": 200e3},
        "backward": {"other": 100e3, "elementwise": 40e3},
    }
    assert sum(ns for line in report.pass_families.values() for ns in line.values()) == pytest.approx(360e3)


def test_coverage(report: BackendReport) -> None:
    coverage = report.coverage
    assert coverage is not None
    assert (coverage.pass_, coverage.module, coverage.counters) == (1, pytest.approx(260 / 360), 0)
    assert (coverage.flop, coverage.bytes) == (pytest.approx(260 / 360), pytest.approx(260 / 360))
    assert coverage.uncosted == ["my::op"]
    assert (
        coverage.text
        == "Known of the kernel time: pass 100 %, module 72.2 %, FLOP 72.2 %, bytes 72.2 %, hardware counters none."
    )


def by_path(node: ModuleNode) -> dict[str, Group]:
    return {node.path: node.total, **{k: v for child in node.children for k, v in by_path(child).items()}}


def test_the_tree_adds_up(report: BackendReport) -> None:
    assert report.tree is not None
    times = {path: group.time_ns for path, group in by_path(report.tree).items()}
    assert times == {
        "": 360e3, "h": 260e3, "h.0": 220e3, "h.0.fc": 20e3, "h.1": 40e3, "no module": 100e3,
    }  # fmt: skip
    assert [child.name for child in report.tree.children] == ["h", "no module"]
    assert by_path(report.tree)["h.0"].efficiency == pytest.approx(170 / 220)


def test_points_of_the_chart(report: BackendReport) -> None:
    points = {p.label: p for p in report.points}
    assert set(points) == {"mm fp32[4]", "add fp32[4]"}  # no bytes, no intensity: no point
    add = points["add fp32[4]"]
    assert (add.intensity, add.flop_rate, add.resource) == (0.125, pytest.approx(5e9), "vector_fp32")
    assert (add.pass_, add.family, add.time_ns, add.count) == ("forward", "elementwise", 200e3, 1)


def test_roofs_of_the_chart() -> None:
    roofs = analyse_table(kernel_table(), ceilings(), "p").roofs
    assert [(r.label, r.kind, r.value) for r in roofs] == [
        ("L1d bandwidth", "bandwidth", 100e9),
        ("L2 bandwidth", "bandwidth", 50e9),
        ("main memory bandwidth", "bandwidth", 10e9),
        ("fp32 matmul", "compute", 100e9),
        ("fp32 vector", "compute", 20e9),
    ]
    assert analyse_table(kernel_table(), None, "p").roofs == []


def test_accounting_adds_up_per_step(report: BackendReport) -> None:
    account = report.accounting
    assert account is not None
    assert (account.profiled_step_ns, account.kernel_ns, account.other_ns) == (420e3, 360e3, 5e3)
    assert [(g.cause, g.time_ns) for g in account.gaps] == [("Python", 40e3), ("dispatch", 15e3)]
    assert account.gaps[0].share == pytest.approx(40 / 420)
    assert account.kernel_ns + sum(g.time_ns for g in account.gaps) + account.other_ns == account.profiled_step_ns
    assert account.timed_step_ns is None and account.profiler_overhead is None


def test_rows_outside_the_steps_do_not_count() -> None:
    rows = [{"name": "a", "order": i, "duration_ns": 10.0, "step": s} for i, s in enumerate([None, 0, 1, None])]
    report = analyse_table(table.build(rows), None, "p").backends[0]
    assert report.kernels[0].time_ns == 10 and report.kernels[0].count == 1


def test_a_table_without_rows_says_nothing() -> None:
    report = analyse_table(table.build({"name": [], "order": []}), ceilings(), "p").backends[0]
    assert report.kernels == [] and report.tree is None and report.efficiency is None and report.coverage is None


def test_a_profiled_step_much_slower_than_a_timed_one_is_said_to_be_so() -> None:
    facts = {"steps": 1, "step_ns": [130.0], "busy_ns": [90.0], "gaps": []}
    slow, same = (accounting(facts, [timed] * 5) for timed in (100.0, 120.0))
    assert "30% longer" in _slowed(slow)[0]
    assert _slowed(same) == _slowed(None) == []


def test_a_profiled_step_shorter_than_a_timed_one_is_another_step() -> None:
    """An overhead of −83.8 % was reported for a timed step that was cold."""
    facts = {"steps": 1, "step_ns": [130.0], "busy_ns": [130.0], "gaps": []}
    assert "35% less than the timed one" in incomparable(facts, [200.0] * 5)
    account = accounting(facts, [200.0] * 5)
    assert account is not None and account.profiler_overhead is account.timed_step_ns is None
    assert incomparable(facts, [135.0] * 5) == incomparable(facts, []) == ""


def test_the_overhead_is_that_of_the_mean_step_in_the_rows() -> None:
    """Rows of a step of 19.1 ms, where the timed one took 1.65 ms, stood above an overhead of 80 %: the median's."""
    facts = {"step_ns": [90.0, 100.0, 140.0], "busy_ns": [90.0, 100.0, 140.0], "gaps": []}
    account = accounting(facts, [100.0] * 3)
    assert account is not None
    assert account.profiler_overhead == pytest.approx(account.profiled_step_ns / 100.0 - 1) == pytest.approx(0.1)


def test_uneven_steps_are_compared_where_the_profiler_adds_more() -> None:
    """The first profiled step of a small program is cold: 259, 124 and 84 µs, where others take 39."""
    facts = {"step_ns": [259.0, 124.0, 84.0], "busy_ns": [30.0] * 3, "gaps": []}
    assert incomparable(facts, [36.0, 56.0, 43.0, 34.0]) == ""
    assert "uneven" in incomparable(facts, [100.0, 120.0, 110.0])


def test_a_timed_step_shorter_than_the_gpu_is_busy_is_another_step() -> None:
    facts = {"step_ns": [130.0], "busy_ns": [100.0], "trace_checks": [{"name": "timed", "holds": False}]}
    assert "busy for longer" in incomparable(facts, [100.0] * 5)
    assert incomparable({**facts, "trace_checks": [{"name": "timed", "holds": True}]}, [100.0] * 5) == ""
    assert "its kernels alone take 120 ns" in incomparable({**facts, "busy_ns": [120.0]}, [100.0] * 5)


def test_two_measurements_without_a_profiler_that_lie_apart_are_compared_with_nothing() -> None:
    """A busy machine: 16 ms when timed, 0.07 right before the profile; the profiler "added 15297.7 %"."""
    facts = {"step_ns": [15.6e6, 7.0e6], "busy_ns": [7e6] * 2, "gaps": []}
    timed, beside = [14.9e6, 15.9e6, 16.0e6, 19.9e6], [0.116e6, 0.079e6, 0.066e6, 0.068e6]
    assert "took 15.95 ms when they were timed and 73.50 µs before" in incomparable(facts, timed, beside)
    account = accounting(facts, timed, beside)
    assert account is not None and account.timed_step_ns is None and account.profiler_overhead is None
    assert incomparable({**facts, "step_ns": [17e6] * 3}, timed, [12e6] * 4) == ""
