"""The benchmarks are run by hand, each for minutes; what they import must be there all the same."""

import runpy
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = sorted(str(p.relative_to(BENCHMARKS)) for p in BENCHMARKS.rglob("*.py") if "__main__" in p.read_text())


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_can_be_started(name, monkeypatch):
    monkeypatch.setattr(sys, "path", [str((BENCHMARKS / name).parent), *sys.path])
    assert callable(runpy.run_path(str(BENCHMARKS / name), run_name="imported")["main"])
