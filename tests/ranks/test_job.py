"""The report of a captured job: its ranks together, then the rank whose own work decides the step."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from perfkit.cli import main
from perfkit.errors import InputError
from perfkit.ranks import rank_table as members_of
from perfkit.ranks.analyse import of_job
from perfkit.ranks.rank_group import together
from perfkit.ranks.rank_table import of_table
from perfkit.readers import read
from perfkit.run_folder import KERNELS, BackendRun, Manifest, Settings, WorkloadFacts, read_manifest, write_manifest
from tests.support.readers.traces import mark, op, write

STEPS, STEP, LATE = 3, 10_000.0, 4_000.0  # µs
OWN = 500.0  # of an all-reduce


def trace(path: Path, rank: int, late: float, first: int = 0, name: str = "perfkit:step:") -> None:
    """A rank that computes for 2 ms, and then comes `late` µs later to an all-reduce, in which the other one waits; it
    recorded from step `first` of the job on."""
    events = []
    for step in range(first, first + STEPS):
        at = 1.0 + step * STEP
        begun, last = at + 3_000 + late, at + 3_000 + LATE
        events += [
            mark(f"{name}{step - first}", at, at + STEP - 1),
            op("aten::mul", at + 1_000, at + 3_000, [[1 << 14], [1 << 14]]),
            op("c10d::allreduce_", begun - 5, begun), mark("gloo:all_reduce", begun, last + OWN, tid=9),
            op("aten::add", last + OWN + 100, last + OWN + 600, [[1 << 14], [1 << 14]]),
        ]  # fmt: skip
    write(path, events, distributedInfo={"rank": rank, "world_size": 2, "backend": "gloo"})


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    """A run folder of two ranks, of which rank 1 is late in every step."""
    folder = tmp_path / "run"
    records = []
    for rank in (0, 1):
        own = folder / f"program-rank{rank}"
        own.mkdir(parents=True)
        trace(own / "one.pt.trace.json", rank, LATE * rank)
        read(own / "one.pt.trace.json").write(own / KERNELS)
        records.append(
            BackendRun(
                name=own.name, own=True, trace="one.pt.trace.json", samples_ns=[9e6 + rank * 1e5] * 4, turns=[4],
                profiled_ns=[STEP * 1e3] * STEPS,
            )
        )  # fmt: skip
    write_manifest(
        folder,
        Manifest(
            perfkit="1", created="2026-11-27T00:00:00", command=["perfkit", "capture"], backends=records,
            settings=Settings(workload="train.py", preset="", batch_size=4),
            workload=WorkloadFacts(title="train.py", parameters=10, samples_per_step=None, program="torchrun train.py"),
        ),
    )  # fmt: skip
    return folder


def report(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["report", *map(str, words)])
    return int(ended.value.code or 0)


def test_the_report_of_a_job_is_that_of_its_ranks_then_of_one(captured, capsys):
    assert report(captured) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("train.py: training step, fp32 on cpu, 2 ranks of one job")
    assert "9.10 ms without the profiler (median)" in said
    assert "Rank 1 is late by 4.00 ms" in said
    first, second = said.index("Ranks: where a step goes"), said.index("Rank 1 in detail: the others wait for it")
    assert first < second < said.index("Accounting of the step")
    assert "backend" not in said.lower().replace("--backend", "")
    assert f"perfkit report {captured}/program-rank0/{KERNELS}" in said


def test_every_format_has_the_ranks_and_the_one(captured):
    assert report(captured) == 0
    markdown, text = ((captured / f"report.{kind}").read_text() for kind in ("md", "txt"))
    for page in (markdown, text):
        assert "Rank 1 is late" in page and "Ranks: where a step goes" in page and "Rank 1 in detail" in page
        assert "Accounting of the step" in page
    found = json.loads((captured / "report.json").read_text())
    assert found["detail_rank"] == 1 and [one["rank"] for one in found["stragglers"]] == [1]
    assert found["detail"]["backends"][0]["name"] == "program-rank1" and found["timed_step_ns"] == 9.1e6
    waits = {part["rank"]: part["waiting_ns"] for part in found["parts"]}
    assert waits == {0: pytest.approx(LATE * 1e3), 1: 0.0}
    assert (captured / "report.csv").read_text().count("\n") == 3


def test_one_rank_alone_waits_in_collectives(captured, capsys):
    assert report(captured / "program-rank0" / KERNELS, "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)["backends"]
    waits = next(one for one in found["findings"] if one["name"] == "collectives")
    assert waits["time_ns"] == pytest.approx((LATE + OWN) * 1e3, rel=0.03)
    assert found["exposed"] == []  # a request for a collective is not one


def test_json_on_stdout_is_the_job(captured, capsys):
    assert report(captured, "--json", "--format", "none") == 0
    assert json.loads(capsys.readouterr().out)["detail"]["title"].startswith("train.py")


def test_ranks_that_share_no_collective_are_reported_with_the_reason(captured, capsys):
    for rank in (0, 1):
        path = captured / f"program-rank{rank}" / KERNELS
        table = read(path)
        for one in table.facts["cpu_collectives"]:
            one["step"] = -1
        table.write(path)
    assert report(captured) == 0
    assert "The ranks are not compared. No collective in the steps" in " ".join(capsys.readouterr().out.split())


def test_a_run_of_one_rank_names_the_others(captured, capsys):
    manifest = read_manifest(captured)
    write_manifest(captured, msgspec.structs.replace(manifest, backends=manifest.backends[:1]))
    assert report(captured) == 0
    assert "Of 2 ranks this run has rank 0 alone." in " ".join(capsys.readouterr().out.split())


def of_traces(folder: Path, *firsts: int):
    paths = [folder / f"rank{rank}.pt.trace.json" for rank in range(len(firsts))]
    for rank, (path, first) in enumerate(zip(paths, firsts, strict=True)):
        trace(path, rank, LATE * rank, first)
    return together([of_table(read(path)) for path in paths], one_host=True)


def test_steps_are_the_same_by_the_clock_of_the_host(tmp_path):
    """A rank that took one step more before: its first recorded step is the second one of the others."""
    job = of_traces(tmp_path, 0, 1)
    assert [member.steps for member in job.ranks] == [STEPS - 1] * 2
    assert abs(job.clocks[1].offset_ns) < 0.1 * STEP * 1e3 and "the 2 that all of them have" in " ".join(job.said)
    assert job.waiting.wait[:, 0] == pytest.approx(LATE * 1e3)


def test_ranks_that_recorded_other_steps_are_not_compared(tmp_path):
    with pytest.raises(InputError, match=r"those of rank 1 lie 50\.00 ms after rank 0's"):
        of_traces(tmp_path, 0, 5)


def test_ranks_that_number_their_steps_differently_are_compared_by_the_clocks(tmp_path):
    paths = [tmp_path / f"rank{rank}.pt.trace.json" for rank in (0, 1)]
    for rank, path in enumerate(paths):
        trace(path, rank, LATE * rank, name=f"ProfilerStep#{7 * rank}")
    tables = [of_table(read(path)) for path in paths]
    job = together(tables)
    assert job.waiting.wait[:, 0] == pytest.approx(LATE * 1e3) and "number their steps differently" in job.said[-1]
    tables[1].facts["origin_ns"] = tables[0].facts["origin_ns"] + 1e9
    with pytest.raises(InputError, match="recorded different steps: rank 0 ProfilerStep#0"):
        together(tables)


def test_savings_are_of_the_step_without_the_profiler(tmp_path):
    job = of_traces(tmp_path, 0, 0)
    profiled = of_job(job, [], None, None)
    timed = of_job(job, [], None, None, [[2e6], [4e6, 4e6]])
    assert timed.timed_step_ns == 4e6 and timed.step_ns == profiled.step_ns
    factor = 4e6 / profiled.step_ns.value
    assert [one.saves_ns for one in timed.what_ifs] == pytest.approx(
        [one.saves_ns * factor for one in profiled.what_ifs]
    )
    for one in (*timed.what_ifs, *timed.findings):
        assert getattr(one, "saves_ns", getattr(one, "saving_ns", 0)) <= 4e6
    assert "2.5 times as long as those without the profiler (4.00 ms)" in timed.problems[-1]


@pytest.mark.browser
def test_the_page_of_a_job_has_both(captured, open_page):
    assert report(captured) == 0
    page, errors = open_page(captured / "report.html")
    page.wait_for_selector("html[data-ready]")
    said = page.locator("main").inner_text()
    assert said.index("Rank 1 is late") < said.index("Ranks: where a step goes") < said.index("Rank 1 in detail")
    assert page.locator("h1").inner_text() == "train.py: training step, fp32 on cpu, 2 ranks of one job"
    assert page.locator("#backends-title").inner_text() == "Program" and page.locator("#ranks .timeline-card").count()
    assert errors == []


def test_steps_of_one_name_are_distinguished(tmp_path: Path) -> None:
    """Iterations of a serving engine are called alike: of two ranks one has an iteration more."""
    names = ["step[DECODE bs=8]", "step[DECODE bs=8]", "step[EXTEND bs=1 toks=5]"]
    members = []
    for rank in (0, 1):
        path = tmp_path / f"{rank}.json"
        trace(path, rank, LATE * rank)
        member = of_table(read(path))
        member.facts["step_names"] = names
        members.append(member)
    shorter = members_of._cut(members[1], [0, 2])
    cut, said = members_of.same_steps([members[0], shorter])
    assert [member.steps for member in cut] == [2, 2] and said
    kept = [member.facts["step_ns"] for member in cut]
    assert kept[0] == [members[0].facts["step_ns"][i] for i in (0, 2)]
    assert members_of.same_steps(members) == (members, [])
