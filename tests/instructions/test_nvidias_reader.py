"""Hottest instructions, their lines and what is before the loops of every report, against NVIDIA's reader alone."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perfkit.analysis.report.analyse import analyse_any
from perfkit.instructions import faults
from perfkit.instructions.hot import hot_kernel
from perfkit.instructions.products import products
from perfkit.instructions.results import CODE, EXECUTED, FILLED, KernelCode
from perfkit.readers import read
from tests.conftest import ROOT
from tests.support.analysis import profiles
from tests.support.sweeps import rest

# With samples of warps: those of others, in the folder of samples, and our own; and those without.
SAMPLED = ("gh200-full-2025.1-3kernels", rest("a100-full-2025.1-3kernels"), rest("h100pcie-full-2025.1-3kernels"),
           rest("t4-full-2024.2-1kernel"))  # fmt: skip
OWN = ("planted-conflict", rest("kernels-full"), rest("products-full"), *(rest(f"planted-{name}") for name in (
       "atomics", "barrier", "barrier_healthy", "conflict_healthy", "prologue", "stride", "uneven")))  # fmt: skip
WITHOUT = ("rtx3050-basic-2025.1-1kernel", *(rest(name) for name in (
           "gh200-basic-2025.1-2kernels", "gh200-metricsonly-2025.1-3kernels", "gh200-rooflinechart-2025.1-3kernels",
           "gtx1660ti-basic-2022.4-4kernels", "kernels-basic", "kernels-metrics", "kernels-roofline", "products-graph",
           "products-range")))  # fmt: skip
PROLOGUE, PRODUCTS = 0.2, 1 / 3  # of the samples, and of the executed instructions: from there on findings speak
# A third of their instructions are sums of products, but of chains that a kernel computes: no product of matrices.
CHAINS = ("fma_chains", "silu_kernel(")

# Samples by address as NVIDIA's reader has them: without perfkit, in a process of its own.
_COUNT = """
import json, re, sys, ncu_report
found = []
for part in ncu_report.load_report(sys.argv[1]):
    for action in part:
        metric, runs = (action.metric_by_name(n) for n in ("smsp__pcsamp_sample_count", "inst_executed"))
        if metric is None or not metric.num_instances(): continue
        ids, places = metric.correlation_ids(), runs.correlation_ids()
        samples = [(metric.value(i), ids.value(i)) for i in range(metric.num_instances())]
        samples.sort(key=lambda one: (-one[0], one[1]))
        executed = {places.value(i): runs.value(i) for i in range(runs.num_instances())}
        whole, order = sum(count for count, _ in samples), sorted(executed)
        first = order[0]
        sass = {at: " ".join(action.sass_by_pc(at).split()) for at in {*order, *(at for _, at in samples)}}
        loop = next((at for at in order if executed[at] > executed[first]), None)
        before = sum(n for n, at in samples if loop is not None and at < loop) / whole
        sums = sum(n for at, n in executed.items() if any(w in sass[at] for w in ("FFMA", "HFMA2", "DFMA")))
        matrix = sum(n for at, n in executed.items() if re.search("[A-Z]G?MMA[ .]", sass[at]))
        lines = {at: action.source_info(at) for _, at in samples[:3]}
        found.append([action.name(1), action.metric_by_name("gpu__time_duration.sum").value(), before,
                      sums / sum(executed.values()), matrix, [[n / whole, at - first, sass[at],
                      lines[at].file_name() if lines[at] else "", lines[at].line() if lines[at] else 0]
                      for n, at in samples[:3]]])
print(json.dumps(found))
"""


def path_of(name: str, folder: Path, request: pytest.FixtureRequest) -> Path:
    """The report of that name, of our own or of others."""
    pytest.importorskip("ncu_report", reason="ncu-report is not installed")
    if not (ROOT / "tests" / "fixtures" / "ncu" / f"{name}.ncu-rep.xz").exists():
        return Path(request.getfixturevalue("samples")) / "ncu" / f"{name}.ncu-rep"
    profiles.unpack(f"{name}.ncu-rep", folder / f"{name}.ncu-rep")
    return folder / f"{name}.ncu-rep"


def counted(path: Path) -> list[Any]:
    done = subprocess.run([sys.executable, "-c", _COUNT, str(path)], capture_output=True, check=True)
    return list(msgspec.json.decode(done.stdout))


@pytest.mark.parametrize("name", [*SAMPLED, *OWN])
def test_each_report_by_nvidias_reader(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = path_of(name, tmp_path, request)
    theirs, table = counted(path), read(path)
    kernels: list[KernelCode] = [one for one in table.recorded[CODE] if one.samples]
    assert kernels and len(kernels) == len({one[0] for one in theirs})
    [backend] = analyse_any(table, path).backends
    reasons = {group.key: {reason.name for reason in group.reasons} for group in backend.kernels}
    for kernel in kernels:
        called, _, before, sums, matrix, hottest = next(
            one for one in theirs if math.isclose(one[1], kernel.duration_ns)
        )
        if not name.startswith(("planted", "kernels", "products")):
            assert {course.name for course in kernel.courses} >= {FILLED, "device memory"}
        assert all(0 <= at <= 1.05 * kernel.duration_ns for course in kernel.courses for at in course.at_ns)
        spots = hot_kernel(kernel).instructions[:3]
        assert [(spot.share, spot.at, spot.sass) for spot in spots] == [
            (pytest.approx(share), at, sass) for share, at, sass, *_ in hottest
        ]
        lines = {one.at: (one.file, one.line) for one in kernel.instructions}
        assert [lines[at] for _, at, *_ in hottest] == [(file, line) for *_, file, line in hottest]
        mine = faults.share(kernel, faults.before_loops(kernel))
        assert mine in (pytest.approx(before, abs=1e-9), 0.0)  # nothing where what is before does the work
        found = next(names for key, names in reasons.items() if key in called or called in key)
        assert "prologue" not in found or mine >= PROLOGUE
        assert "tensor-idle" not in found
        executed = sum(one.counts.get(EXECUTED, 0.0) for one in kernel.instructions)
        share = sum(products(kernel)) / executed
        assert share <= sums + 1e-9 and (share == 0.0 or not matrix)
        assert share < PRODUCTS
        assert sums < PRODUCTS or matrix or called.startswith(CHAINS)


@pytest.mark.parametrize("name", WITHOUT)
def test_a_report_without_samples_has_no_instructions_here_or_there(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = path_of(name, tmp_path, request)
    table = read(path)
    assert counted(path) == [] and not [one for one in table.recorded.get(CODE, []) if one.samples]
    [backend] = analyse_any(table, path).backends
    assert not {"prologue", "tensor-idle"} & {reason.name for group in backend.kernels for reason in group.reasons}
