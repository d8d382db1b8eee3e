"""Profiles of our own (tests/fixtures), read once in a process.

python -m tests.support.analysis.profiles kernels-full.ncu-rep profile.ncu-rep     unpacks one
"""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path

import pytest

from perfkit.analysis.report.analyse import analyse_any
from perfkit.analysis.results import BackendReport, Group, Report
from perfkit.readers import read
from tests.conftest import ROOT
from tests.support.packed import ncu_file

FIXTURES = ROOT / "tests" / "fixtures"


@functools.cache
def ncu(name: str, of: str = "kernels") -> Report:
    """The report of `tests/fixtures/ncu/OF-NAME`, whose NAME has its ending."""
    if name.endswith(".ncu-rep"):
        pytest.importorskip("ncu_report", reason="ncu-report is not installed")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{of}-{name}"
        unpack(path.name, path)
        return _named(analyse_any(read(path), path), path.name)


@functools.cache
def kineto(name: str) -> Report:
    """The report of `tests/fixtures/kineto/NAME.json.gz`."""
    path = FIXTURES / "kineto" / f"{name}.json.gz"
    return _named(analyse_any(read(path), path), path.name)


def unpack(name: str, path: Path) -> None:
    """Write the fixture `tests/fixtures/ncu/NAME` to `path`."""
    path.write_bytes(ncu_file(name))


def _named(report: Report, name: str) -> Report:
    report.source = name  # the same on every machine
    return report


def backend(report: Report) -> BackendReport:
    [one] = report.backends
    return one


def kernel(report: Report, name: str) -> Group:
    [one] = [g for g in backend(report).kernels if g.key == name]
    return one


if __name__ == "__main__":
    unpack(sys.argv[1], Path(sys.argv[2]))
