"""Check that the report of a run and the comparison of its backends show one tree, which sums to the kernel time."""

from __future__ import annotations

import math
from collections import Counter

from perfkit.analysis.report.analyse import analyse
from perfkit.analysis.results import BackendReport, ModuleNode, Report
from perfkit.compare import sides
from perfkit.compare.judge import compare
from perfkit.compare.results import TreeLine
from perfkit.readers.run import Run

NEAR_NS = 1e-3  # times are in ns: sums of shares are off in the last digits only


def assert_one_tree(run: Run) -> Report:
    """The report of `run`, whose trees are those of the comparison, to the ns, at every pass, layer and operator."""
    report = analyse(run)
    found = compare([sides.of_report(run, report, name, name, "run") for name in run.tables])
    for place, name in enumerate(run.tables):
        backend = next(b for b in report.backends if b.name == name)
        assert_sums(backend)
        passes, layers, operators = _levels(found.tree, place)
        _assert_same(passes, {g.key if g.key != "unknown" else "not placed": g.time_ns for g in backend.passes})
        _assert_same(operators, {g.key: g.time_ns for g in backend.operators})
        below = _layers_of(backend.tree) if backend.tree else {}
        _assert_same({name: ns for name, ns in layers.items() if name != "outside the layers"}, below)
    return report


def assert_sums(backend: BackendReport) -> None:
    """Passes, operators and modules each hold all kernel time, and all calls."""
    whole = sum(g.time_ns for g in backend.kernels)
    calls = sum(g.count for g in backend.kernels)
    for groups in (backend.passes, backend.operators, [child.total for child in backend.tree.children]):
        assert math.isclose(math.fsum(g.time_ns for g in groups), whole, abs_tol=NEAR_NS)
        assert math.isclose(math.fsum(g.count for g in groups), calls, rel_tol=1e-9)
    told = math.fsum(ns for families in backend.pass_families.values() for ns in families.values())
    assert math.isclose(told, whole, abs_tol=NEAR_NS) and math.isclose(backend.kernel_ns, whole, abs_tol=NEAR_NS)


def _levels(lines: list[TreeLine], place: int) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Time by pass, by layer and by operator in the tree of a comparison, of one side."""
    passes, layers, operators = Counter[str](), Counter[str](), Counter[str]()
    for line in lines:
        if (cell := line.cells[place]) is None or line.level == 0:
            continue
        layer = line.level == 2 and (line.name.startswith("layer ") or line.name == "outside the layers")
        (passes if line.level == 1 else layers if layer else operators)[line.name] += cell.time_ns
    return passes, layers, operators


def _layers_of(node: ModuleNode) -> dict[str, float]:
    """Time of the blocks of the model, the list `h`: `layer N` → ns."""
    if node.name == "h":
        return {f"layer {child.name}": child.total.time_ns for child in node.children if child.name.isdecimal()}
    return {name: ns for child in node.children for name, ns in _layers_of(child).items()}


def _assert_same(one: dict[str, float], other: dict[str, float]) -> None:
    assert one.keys() == other.keys()
    assert all(math.isclose(one[key], other[key], abs_tol=NEAR_NS) for key in one), (one, other)
