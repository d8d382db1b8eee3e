"""The fixture `perfkit_benchmark` in test runs of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Loaded here: a test run inside this process takes out again what it loaded, and numpy does not load twice.
import perfkit.compare.gate
import perfkit.compare.sources
import perfkit.render.brief
import perfkit.render.pages.compare
import perfkit.table  # noqa: F401
from tests.support.render.schema import wrong

pytest_plugins = ["pytester"]

BENCHMARK = """
import time

def test_speed(perfkit_benchmark):
    def work():
        end = time.perf_counter() + {seconds}
        while time.perf_counter() < end:
            pass
    result = perfkit_benchmark(work, seconds=0.05, fail_on="{fail_on}")
    assert len(result.turns_ns) == 10 and result.median_ns > 0
"""
PLUGIN = ("-p", "perfkit.pytest_plugin", "-p", "no:cacheprovider")


@pytest.fixture
def run(pytester, monkeypatch):
    monkeypatch.delenv("PERFKIT_BASELINES", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run_(seconds, *options, fail_on="step>+50%"):
        pytester.makepyfile(test_it=BENCHMARK.format(seconds=seconds, fail_on=fail_on))
        return pytester.runpytest_inprocess(*PLUGIN, *options)

    return run_


def test_without_a_baseline_it_measures_and_says_so(run):
    result = run(0.0005)
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*no baseline test_it.py--test_speed*"])


def test_a_regression_fails_and_the_same_speed_does_not(run, pytester):
    run(0.0005, "--perfkit-save").assert_outcomes(passed=1)
    slower = run(0.005, "--perfkit-brief", "brief.json")
    said = json.loads((pytester.path / "brief.json").read_text())
    assert not list(wrong(said)) and said["conditions"] == [{"text": "step>+50%", "outcome": "regressed"}]
    assert [side["name"] for side in said["sides"]] == ["before", "now"] and said["pairs"][0]["step"]["ratio"][1] > 1.5
    slower.assert_outcomes(failed=1)
    slower.stdout.fnmatch_lines(["*step>+50%: regressed, the whole interval*"])
    run(0.0001).assert_outcomes(passed=1)


def test_undecided_passes_with_a_warning_or_fails_where_asked(run):
    run(0.0005, "--perfkit-save").assert_outcomes(passed=1)
    undecided = "step>+0%"  # twenty times the noise, and in the middle of it
    assert run(0.0005, fail_on=undecided).parseoutcomes().get("failed", 0) == 0
    run(0.0005, "--perfkit-on-cannot-tell", "fail", fail_on=undecided).assert_outcomes(failed=1)


def test_a_condition_that_is_none_is_an_error(run):
    result = run(0.0001, fail_on="speed>1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*UsageError*"])


def test_loading_the_plugin_imports_nothing_heavy():
    heavy = "('torch', 'numpy', 'pandas', 'msgspec')"
    code = f"import sys, perfkit.pytest_plugin; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
