"""The ranks drawn: one clock, arrows from the late rank to those that wait, the same waits in every view."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest

from perfkit import readers
from perfkit.cli import main
from perfkit.ranks import rank_table
from perfkit.ranks.analyse import of_job
from perfkit.ranks.drawing import draw
from perfkit.ranks.rank_group import together
from perfkit.render.pages import ranks as ranks_page
from perfkit.table import KernelTable
from tests.support.ranks import simulated


@pytest.fixture(scope="module")
def files(samples):
    return [samples / "kineto" / "ranks" / f"ddp.rank{r}.json.gz" for r in (0, 1)]


@pytest.fixture(scope="module")
def job(files):
    return together([rank_table.of_table(readers.read(file)) for file in files])


@pytest.fixture(scope="module")
def drawing(job):
    return draw(job)


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in arguments])
    return ended.value.code or 0


def late(rank, step, layer):
    return {"host": 1e6} if rank == 1 else {}


def test_waits_of_the_tables_are_those_of_the_report(job, drawing):
    report = of_job(job, [], None, None)
    joined = drawing.joined().check().frame
    for part in report.parts:
        mine = joined[(joined["rank"] == part.rank) & (joined["step"] >= 0)]
        waits = part.waiting_ns + part.exposed_ns + part.overlapped_ns - part.transfer_ns  # covered or not
        assert mine["wait_ns"].sum() / part.steps == pytest.approx(waits, rel=1e-6, abs=1)
        assert mine["wait_ns"].notna().sum() == mine["collective"].notna().sum() == 24
    assert (joined["start_ns"].diff().dropna() >= 0).all() and joined["protocol"].dropna().unique().tolist() == ["LL"]


def test_starts_are_on_the_first_clock(job, drawing):
    """A collective ends on both ranks at once, as far as the clocks are aligned."""
    ends = [
        (t.frame["start_ns"] + t.frame["duration_ns"]).to_numpy()[job.matched.rows[:, i]]
        for i, t in enumerate(drawing.tables)
    ]
    assert np.median(np.abs(ends[1] - ends[0])) == pytest.approx(job.clocks[1].residual_ns, abs=50)


def test_ties_lead_from_the_rank_that_comes_last_to_all_that_wait():
    drawing = draw(together(simulated.job(4, late, noise=0.0)))
    count = simulated.STEPS * simulated.LAYERS
    assert len(drawing.ties) == 3 * count and set(drawing.ties[:, 0]) == {1} and set(drawing.ties[:, 2]) == {0, 2, 3}
    for a, i, b, j in drawing.ties[:10].tolist():
        first, other = (drawing.tables[n].frame.iloc[row] for n, row in ((a, i), (b, j)))
        assert first["collective"] == other["collective"] == "all_reduce"
        assert other["start_ns"] < first["start_ns"] and other["wait_ns"] == pytest.approx(1e6)


def test_the_first_step_stands_for_all_where_there_are_too_many(drawing):
    part = drawing.first_step()
    assert {int(s) for t in part.tables for s in t.frame["step"].unique()} == {0} and len(part.ties) == 8
    for a, i, b, j in part.ties.tolist():
        assert part.tables[a].frame["family"].iloc[i] == part.tables[b].frame["family"].iloc[j] == "collective"


@pytest.fixture(scope="module")
def trace(files, tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "out.json"
    assert run("trace", *files, "-o", path) == 0
    return json.loads(path.read_text())["traceEvents"]


def test_a_trace_has_a_process_a_rank_and_a_flow_for_each_wait(trace, drawing):
    names = {e["pid"]: e["args"]["name"] for e in trace if e["name"] == "process_name"}
    assert names == {1: "rank 0", 2: "rank 1"}
    ends = {kind: {e["id"]: e for e in trace if e["ph"] == kind} for kind in "sf"}
    assert len(ends["s"]) == len(ends["f"]) == len(drawing.ties)
    bars = [e for e in trace if e["ph"] == "X" and "nccl" in e["name"]]
    for number, begin in ends["s"].items():
        finish = ends["f"][number]
        assert names[begin["pid"]] != names[finish["pid"]] and begin["ts"] == finish["ts"]
        for end in (begin, finish):
            around = [b for b in bars if (b["pid"], b["tid"]) == (end["pid"], end["tid"])]
            (bar,) = [b for b in around if b["ts"] <= end["ts"] < b["ts"] + b["dur"]]
            assert "collective" in bar["args"] and bar["args"]["message bytes"] > 0
            assert (bar["args"]["waiting ns"] > 0) == (end is finish)


def test_a_trace_of_ranks_has_all_facts_of_their_kernels(trace):
    kernels = [e["args"] for e in trace if e["ph"] == "X" and e.get("cat") == "kernel"]
    assert sum("grid" in args for args in kernels) > 0.9 * len(kernels)
    assert sum("FLOP" in args for args in kernels) > 0.3 * len(kernels)


def test_several_profiles_that_are_of_no_ranks_make_no_trace(files, samples, capsys):
    assert run("trace", files[0], samples / "kineto" / "triton-tiny.json.gz") == 2
    assert "only if they are of ranks" in capsys.readouterr().err


def test_a_report_writes_the_kernel_table_of_all_ranks(files, tmp_path, capsys):
    assert run("report", *files, "--out", tmp_path, "--format", "parquet") == 0
    (path,) = tmp_path.iterdir()
    frame = KernelTable.load(path).frame
    assert set(frame["rank"]) == {0, 1} and frame["wait_ns"].notna().sum() == 48


@pytest.mark.browser
def test_the_page_draws_every_rank_and_its_arrows(job, drawing, open_page, tmp_path):
    path = tmp_path / "ranks.html"
    path.write_text(ranks_page.render_html(ranks_page.page(of_job(job, [], None, None)), drawing), encoding="utf-8")
    page, errors = open_page(path)
    page.wait_for_selector("html[data-ready]")
    page.locator("#ranks").scroll_into_view_if_needed()
    page.wait_for_selector("#ranks .tl-lanes canvas")
    data = page.evaluate(
        """async () => {
          const line = await globalThis.perfkitTimeline.mount(document.createElement("div"),
            JSON.parse(document.getElementById("answers").textContent).timelines.ranks, { hash: false });
          const { data } = line;
          line.select(data.ties.to[0]);
          return { lanes: data.lanes.map((l) => l.name), ties: data.ties.count, said: line.panel.textContent,
            before: data.start[data.ties.to[0]] < data.start[data.ties.from[0]] };
        }"""
    )
    assert [name for name in data["lanes"] if "steps" in name] == [
        "rank 0 · steps and passes",
        "rank 1 · steps and passes",
    ]
    assert data["ties"] == len(drawing.ties) and data["before"]
    assert "waits for rank 0 · cuda:0 stream 17" in data["said"]
    assert errors == []


def test_bandwidth_is_plotted_against_messages_where_there_are_several_sizes(job):
    """Two operations of one size, as FSDP's of equal blocks, were two points above one another."""
    report = of_job(job, [], None, None)
    known = [c for c in report.collectives if c.message_bytes and c.bus_bandwidth]
    assert len({c.message_bytes for c in known}) > 1 and plots(report) == 1
    of_one_size = [msgspec.structs.replace(c, message_bytes=known[0].message_bytes) for c in known]
    assert plots(msgspec.structs.replace(report, collectives=of_one_size)) == 0


def plots(report):
    return sum(len(section.figures) for section in ranks_page.page(report).sections)
