"""Reports of profiles of our own in every renderer: golden files, and texts that must not be in them."""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from perfkit.analysis.report.analyse import analyse_any
from perfkit.analysis.results import Report
from perfkit.readers import read
from perfkit.render import csv, html, json, markdown, notebook, terminal
from tests.conftest import CliResult
from tests.support.analysis import profiles
from tests.support.readers.nsys_exports import two_steps, write

Golden = Callable[[str, str], None]


@functools.cache
def nsys() -> Report:
    """An export of Nsight Systems made by hand: two steps with gaps, a copy and a wait."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "two.steps.sqlite"
        write(path, two_steps())
        report = analyse_any(read(path), path)
    report.source = path.name
    return report


PROFILES: dict[str, Callable[[], Report]] = {
    "ncu_full": lambda: profiles.ncu("full.ncu-rep"),
    "ncu_basic": lambda: profiles.ncu("basic.ncu-rep"),
    "ncu_metrics": lambda: profiles.ncu("metrics.ncu-rep"),
    "kineto_eager": lambda: profiles.kineto("eager"),
    "kineto_nccl": lambda: profiles.kineto("nccl-rank0"),
    "nsys": nsys,
}
RENDERERS = {".txt": terminal.render, ".md": markdown.render, ".csv": csv.render, ".json": json.render}
# The JSON and CSV of one profile of each kind: they hold every kernel.
WHOLE = ("ncu_full", "nsys")
CASES = [(name, ending) for name in PROFILES for ending in RENDERERS if ending in (".txt", ".md") or name in WHOLE]


@pytest.mark.parametrize(("name", "ending"), CASES)
def test_golden(golden: Golden, name: str, ending: str) -> None:
    report = PROFILES[name]()
    text = RENDERERS[ending](report).replace(f'"perfkit": "{report.perfkit}"', '"perfkit": "VERSION"')
    golden(f"render/profiles/{name}{ending}", text)


@pytest.mark.parametrize("name", PROFILES)
def test_the_page_holds_the_same_record(name: str) -> None:
    report = PROFILES[name]()
    page = msgspec.json.decode(html.data(report))["report"]
    assert page["backends"][0]["findings"] == msgspec.to_builtins(report.backends[0].findings)
    assert page["backends"][0]["advice"] == msgspec.to_builtins(report.backends[0].advice)


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("render", [terminal.render, markdown.render, notebook.render])
def test_nothing_that_only_a_run_has(name: str, render: Callable[[Report], str]) -> None:
    text = render(PROFILES[name]())
    for noise in ("not checked", "this device", "timed step", "Backends", "speed-up"):
        assert noise not in text, noise
    if name.startswith("ncu"):
        assert not re.search(r"\ba step\b|profiled step|this machine", text)
        assert "Module tree" not in text and "Kernels by headroom" not in text  # they would say nothing new


def test_findings_and_reasons_are_in_every_format() -> None:
    report = PROFILES["ncu_full"]()
    for render in (terminal.render, markdown.render, json.render, html.data, notebook.render):
        assert "uncoalesced, 88 % wasted" in render(report)
    line = next(line for line in csv.render(report).splitlines() if ",copy_strided," in line)
    assert line.endswith('"uncoalesced, 88 % wasted; L2 66 % busy"')


def test_a_profile_without_durations_says_what_is_missing() -> None:
    report = PROFILES["ncu_metrics"]()
    bare = msgspec.structs.replace(report.backends[0], kernels=[], findings=[])
    report = msgspec.structs.replace(report, backends=[bare])
    for render in (terminal.render, markdown.render):
        assert "stall reasons: --section WarpStateStats" in render(report).replace("\\", "")


def test_several_profiles_are_sections_of_their_own(run_cli: Callable[..., CliResult], tmp_path: Path) -> None:
    page, trace = tmp_path / "page.raw.csv", profiles.FIXTURES / "kineto" / "eager.json.gz"
    profiles.unpack("kernels-full.raw.csv", page)
    result = run_cli(["report", page, trace])
    assert result.rc == 0, result.stderr
    first, second = result.stdout.split("\n\ntorch.profiler trace eager")
    assert first.startswith("Nsight Compute report page") and "7 kernel calls take 1.51 ms" in first
    assert "copy_strided" not in second and "kernels             210.7" in second


def test_the_short_form_counts_what_it_leaves_out() -> None:
    report = PROFILES["kineto_eager"]()
    many = [msgspec.structs.replace(report.backends[0].findings[0], title=f"finding {i}") for i in range(9)]
    long = msgspec.structs.replace(report, backends=[msgspec.structs.replace(report.backends[0], findings=many)])
    assert "What to do next (5 of 9)" in terminal.render(long) and "Finding 8" in terminal.render(long, limit=0)
