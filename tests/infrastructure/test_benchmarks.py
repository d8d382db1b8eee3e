"""The benchmarks are run by hand, each for minutes; what they import must be there all the same."""

import runpy
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = sorted(path.name for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text())


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_can_be_started(name, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    assert callable(runpy.run_path(str(BENCHMARKS / name), run_name="imported")["main"])
