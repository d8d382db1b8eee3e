"""The difference of two reports, worked out by hand."""

from __future__ import annotations

import pytest

from perfkit.analysis.difference import PartChange, difference
from perfkit.analysis.report.analyse import analyse
from perfkit.analysis.results import BackendReport, Group, Report
from tests.support.analysis.examples import backend, run


def report(*kernels: Group, **more: object) -> Report:
    one = BackendReport(name="b", status="ok", kernels=list(kernels), kernel_ns=sum(g.time_ns for g in kernels), **more)
    return Report(perfkit="0", title="t", source="s", backends=[one])


def group(key: str, ns: float, shapes: str = "", roof: float | None = None) -> Group:
    judged = ns if roof else 0.0
    eff = roof / ns if roof else None
    return Group(key=key, count=2, time_ns=ns, share=0.5, shapes=shapes, roof_ns=roof, judged_ns=judged, efficiency=eff)


def changes(first: Report, second: Report) -> dict[tuple[str, str], PartChange]:
    return {(c.key, c.shapes): c for c in difference(first, second, ("b", "b")).kernels}


def test_parts_in_both_in_one_and_in_the_other() -> None:
    found = changes(report(group("mm", 100), group("add", 10)), report(group("mm", 80), group("fused", 15)))
    assert [c.key for c in found.values()] == ["mm", "fused", "add"], "the largest difference first"
    mm, fused, add = found.values()
    assert (mm.first_ns, mm.second_ns, mm.difference_ns, mm.ratio) == (100, 80, -20, pytest.approx(0.8))
    assert (add.first_ns, add.second_ns, add.difference_ns, add.ratio) == (10, None, -10, None)
    assert (fused.first_ns, fused.second_ns, fused.difference_ns, fused.ratio) == (None, 15, 15, None)
    assert fused.first_count is None and fused.second_count == 2


def test_the_same_name_with_other_shapes_is_another_kernel() -> None:
    found = changes(report(group("mm", 1, "a"), group("mm", 2, "b")), report(group("mm", 4, "b")))
    assert found["mm", "b"].ratio == 2
    assert found["mm", "a"].second_ns is None


def test_templates_of_one_name_and_shapes_are_taken_together() -> None:
    found = changes(report(group("k", 10, roof=8), group("k", 30, roof=2)), report(group("k", 20)))
    assert found["k", ""].first_ns == 40
    assert found["k", ""].first_efficiency == pytest.approx(0.25), "a ratio of sums"
    assert found["k", ""].second_efficiency is None


def test_the_total_is_kernel_time() -> None:
    made = difference(report(group("mm", 100)), report(), ("b", "b"))
    assert (made.total.first_ns, made.total.second_ns, made.total.ratio) == (100, 0, 0)
    assert difference(report(), report(), ("b", "b")).total.ratio is None


def test_what_is_not_comparable_is_said() -> None:
    notes = difference(report(per="step", device="cpu"), report(per="profile", device="cuda"), ("b", "b")).notes
    assert notes == [
        "times of the first are of a step, those of the second of a profile",
        "the first ran on a CPU, the second on a GPU",
    ]
    made = analyse(run(backend("eager", 100), backend("fast", 50, ok=False)))
    assert "the second (fast) is wrong" in difference(made, made, ("eager", "fast")).notes[0]
    with pytest.raises(KeyError):
        difference(made, made, ("eager", "none"))
