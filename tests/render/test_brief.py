"""Answers of at most 4 KB and parts of a report by path: nothing in them that the report does not say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perfkit.analysis.results import Finding, Report
from perfkit.cli import main
from perfkit.errors import UsageError
from perfkit.render import brief
from perfkit.render import json as plain
from perfkit.render.brief import texts
from perfkit.render.cells import figures, table, words
from perfkit.render.output import of_page, of_report
from perfkit.render.page import Page, Section
from perfkit.render.select import select
from tests.support.readers.traces import event, write
from tests.support.render import sample


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _numbers(one)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)
    elif isinstance(value, str):
        yield value


def _data(report: Report) -> dict[str, Any]:
    return json.loads(plain.render(report))


def _found() -> Report:
    """A report whose first backend has three findings, and its last one a larger one."""
    report = sample.report()

    def finding(name: str, saving: float) -> Finding:
        return Finding(
            name=name, title=f"{name} takes time", evidence="Measured. " * 20, remedy="Change it.", time_ns=2 * saving,
            saving_ns=saving, share=0.1,
        )  # fmt: skip

    first, *between, last = report.backends
    first = msgspec.structs.replace(first, findings=[finding("gpu-idle", 3e6), finding("tiny-kernels", 1e6)])
    last = msgspec.structs.replace(last, findings=[finding("below-roof", 9e6)])
    return msgspec.structs.replace(report, backends=[first, *between, last])


def _many(report: Report, backends: int) -> Report:
    """The same report with so many backends, all with long names, reasons and findings."""
    one = report.backends[0]
    made = [
        msgspec.structs.replace(one, name=f"{'b' * 50}{i}", reason="why " * 100, findings=one.findings * 3)
        for i in range(backends)
    ]
    return msgspec.structs.replace(
        report, backends=made, warnings=["a long warning " * 40] * 9, verdict=["word " * 200] * 4
    )


REPORTS = {"run": _found, "hostile": sample.hostile, "many": lambda: _many(_found(), 40)}


@pytest.mark.parametrize("name", REPORTS)
def test_an_answer_is_short_and_says_nothing_else(name: str) -> None:
    report = REPORTS[name]()
    text = brief.render(of_report(report))
    assert len(text.encode()) <= brief.LARGEST and text.count("\n") == 1
    said = json.loads(text)
    left = said.pop("left_out", {})
    assert said.pop("schema") == brief.SCHEMA
    assert set(_numbers(said)) <= set(_numbers(_data(report)))
    assert len(said["backends"]) + left.get("backends", 0) == len(report.backends)
    assert all(one.isprintable() for one in _texts(said))
    plain = brief.render(of_report(report), as_text=True)
    assert len(plain.encode()) <= brief.LARGEST and plain.count("\n") > 10
    assert all(line.isprintable() for line in plain.splitlines())
    values = [line.rpartition(": ")[2] for line in plain.splitlines() if "_ns: " in line]
    assert values and {float(one) for line in values for one in line.split(", ")} <= set(_numbers(_data(report)))


def test_the_largest_savings_come_first() -> None:
    report = _found()
    found = json.loads(brief.render(of_report(report)))["findings"]
    savings = sorted((f.saving_ns for b in report.backends for f in b.findings), reverse=True)
    assert found and [one["saves_at_most_ns"] for one in found] == savings[: len(found)]
    assert all(one["more"] == f"perfkit explain {one['rule']}" for one in found)


@pytest.mark.parametrize(
    ("length", "kept"),
    [
        (80, "It takes 123.45 ms. Saves 67.89 ms, 12 % of the step."),
        (35, "It takes 123.45 ms."),
        (16, "It takes…"),
        (4, "It…"),
    ],
)
def test_a_crop_keeps_numbers_whole(length: int, kept: str) -> None:
    assert texts.cropped("It takes 123.45 ms. Saves 67.89 ms, 12 % of the step.", length) == kept


def test_parts_of_a_report() -> None:
    report = _found()
    data, first = _data(report), report.backends[0].name
    parts = select(data, "kernels[:2], findings, title, ceilings_are")
    assert parts["kernels[:2]"][first] == data["backends"][0]["kernels"][:2]
    assert parts["findings"][first] == data["backends"][0]["findings"]
    assert parts["title"] == report.title
    rule = data["backends"][0]["findings"][0]["name"]
    assert {one["name"] for one in select(data, f"findings.{rule}")[f"findings.{rule}"][first]} == {rule}
    assert select(data, "findings.no-such-rule")["findings.no-such-rule"][first] is None
    assert select(data, "kernels[-1]")["kernels[-1]"][first] == data["backends"][0]["kernels"][-1]
    assert select(data, "kernels[9999]")["kernels[9999]"][first] is None


def test_modules_by_their_path() -> None:
    data = _data(sample.report())
    tree, first = data["backends"][0]["tree"], data["backends"][0]["name"]
    child = tree["children"][0]
    name = child["name"].rpartition(".")[2]
    assert select(data, f"modules.{name}")[f"modules.{name}"][first]["total"] == child["total"]
    inside = select(data, f"modules.{name}.*")[f"modules.{name}.*"][first]
    assert [one["name"] for one in inside] == [one["name"] for one in child["children"]]
    assert select(data, "modules.no.such")["modules.no.such"][first] is None


@pytest.mark.parametrize("path", ["kernels[", "no_such_field", "a b", "kernels[1:2:3]"])
def test_a_path_that_is_none(path: str) -> None:
    with pytest.raises(UsageError):
        select(_data(sample.report()), path)


def test_the_structure_of_answers_is_that_of_the_docs() -> None:
    said = json.loads(brief.render(of_report(sample.report())))
    assert set(said) <= {"schema", "of", "measured", "verdict", "backends", "findings", "unknown", "more", "left_out"}


def _traces(folder: Path) -> list[str]:
    """Two traces of six kernels each, those of the second half as long."""
    for name, length in (("before.json", 200), ("after.json", 100)):
        events = []
        for i in range(6):
            start = 200 + i * length
            events.append(event("cuda_runtime", "cudaLaunchKernel", 100 + i, 100.5 + i, correlation=i + 1))
            events.append(
                event("kernel", "gemm", start, start + length - 2, pid=0, tid=7, device=0, stream=7, correlation=i + 1)
            )
        write(folder / name, events)
    return [str(folder / "before.json"), str(folder / "after.json")]


def _printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*words])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_a_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = _traces(tmp_path)
    full = json.loads(_printed(capsys, "compare", *sides, "--json"))
    text = _printed(capsys, "compare", *sides, "--brief")
    said = json.loads(text)
    assert len(text.encode()) <= brief.LARGEST and said["of"] == "comparison"
    assert said.pop("schema") == brief.SCHEMA
    assert set(_numbers(said)) <= set(_numbers(full))
    assert [side["name"] for side in said["sides"]] == [side["label"] for side in full["sides"]]
    assert said["pairs"][0]["step"]["metric"] and said["verdict"] == full["verdict"]


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = _traces(tmp_path)[0]
    full = json.loads(_printed(capsys, "report", profile, "--json"))
    part = json.loads(_printed(capsys, "report", profile, "--select", "kernels[:1]"))
    assert part == {"kernels[:1]": {"before": full["backends"][0]["kernels"][:1]}}
    with pytest.raises(SystemExit) as ended:
        main(["report", profile, "--brief", "--json"])
    assert ended.value.code == 2


@pytest.mark.parametrize("rows", [3, 500])
def test_a_result_with_a_page_alone(rows: int) -> None:
    made = table(
        "Ways", words("way", [f"cuda:{i}" for i in range(rows)], name=True), figures("time", [1e3] * rows, "ns")
    )
    page = Page(title="gelu", verdict=["All are right."], sections=[Section(table=made)], warnings=["noisy " * 200])
    text = brief.render(of_page({}, page, "bench-gelu"))
    said = json.loads(text)
    shown = said["tables"][0]["rows"]
    assert len(text.encode()) <= brief.LARGEST and said["of"] == "bench-gelu" and said["verdict"] == ["All are right."]
    assert len(shown) + said.get("left_out", {}).get("rows", 0) == rows
    assert said["tables"][0]["columns"] == ["way", "time (µs)"] and shown[0] == ["cuda:0", "1.00"]
