"""Two ranks' real traces (DDP and FSDP2 on two H200): known facts, and what happens to damaged or foreign ones."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from perfkit import readers
from perfkit.errors import InputError
from perfkit.hardware.collectives.results import CollectiveSweep, SizeTime
from perfkit.ranks import clocks, matching, parts, rank_table
from perfkit.ranks.analyse import analyse
from perfkit.render import page
from perfkit.render.pages import ranks as ranks_page


@pytest.fixture(scope="module")
def folder(samples):
    return samples / "kineto" / "ranks"


@pytest.fixture(scope="module")
def pairs(folder):
    return {
        kind: [rank_table.of_table(readers.read(folder / f"{kind}.rank{r}.json.gz")) for r in (0, 1)]
        for kind in ("ddp", "fsdp")
    }


COLLECTIVES = {
    "ddp": {("all_reduce", 154533888.0): 1, ("all_reduce", 28342272.0): 1, ("all_reduce", 28351488.0): 5,
            ("all_reduce", 156122112.0): 1},
    "fsdp": {("all_gather", 155323392.0): 1, ("all_gather", 14175744.0): 12, ("reduce_scatter", 310646784.0): 1,
             ("reduce_scatter", 28351488.0): 6},
}  # fmt: skip


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_collectives_bytes_and_groups_are_those_of_the_files(pairs, folder, kind):
    report = analyse(pairs[kind])
    assert {(c.operation, c.message_bytes): c.count for c in report.collectives} == COLLECTIVES[kind]
    assert {c.group for c in report.collectives} == {"default_pg [0, 1]"} and {c.ranks for c in report.collectives} == {
        2
    }
    with gzip.open(folder / f"{kind}.rank0.json.gz") as file:
        events = json.load(file)["traceEvents"]
    stated = [e["args"] for e in events if e.get("cat") == "kernel" and "nccl" in e["name"]]
    assert len(stated) == 3 * sum(COLLECTIVES[kind].values())


@pytest.mark.parametrize(("kind", "expected"), [("ddp", (28.85, 16.89)), ("fsdp", (3.10, 15.08))], ids=["ddp", "fsdp"])
def test_the_overlap_is_that_of_holistic_trace_analysis(pairs, kind, expected):
    found = [100 * parts.hta_overlap(member) for member in pairs[kind]]
    assert found == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_rank_0_is_late_because_of_its_host(pairs, kind):
    report = analyse(pairs[kind])
    assert [s.rank for s in report.stragglers] == [0]
    late = report.stragglers[0]
    assert late.late_steps == late.steps == 3 and late.causes[0].kind == "host"
    for part, member in zip(report.parts, pairs[kind], strict=True):
        talks = parts.Union(member.start[member.is_collective], member.end[member.is_collective])
        assert 3 * (part.waiting_ns + part.exposed_ns + part.overlapped_ns) == pytest.approx(talks.length, abs=2)
        step = part.compute_ns + part.waiting_ns + part.exposed_ns + part.copy_ns + part.idle_ns
        assert step == pytest.approx(part.step_ns, abs=2)


def test_the_bandwidth_of_the_large_all_reduce_is_that_of_a_sweep(pairs):
    """Measured along with the traces: 264 GB/s at 64 MiB, 299 at 256 MiB."""
    large = max(analyse(pairs["ddp"]).collectives, key=lambda c: c.message_bytes)
    sweep = np.interp(np.log2(large.message_bytes / 2**20), [6, 8], [264e9, 299e9])
    assert large.bus_bandwidth == pytest.approx(sweep, rel=0.1)


def test_collectives_are_held_against_a_sweep_by_the_size_of_their_message(pairs):
    """The sweep that was measured along with the traces, as `perfkit ceilings --ranks 2` keeps it."""
    measured = {1: 11.9e9, 4: 61e9, 16: 169e9, 64: 264e9, 256: 299e9}  # MiB: bus bandwidth, that of two ranks
    points = [SizeTime(bytes=s * 2.0**20, seconds=s * 2**20 / rate, calls=20) for s, rate in measured.items()]
    sweep = CollectiveSweep(operation="all_reduce", ranks=2, carrier="nccl", measured_at="", points=points)
    other = msgspec.structs.replace(sweep, ranks=4)
    found = analyse(pairs["ddp"], roofs=[other, sweep])
    large = max(found.collectives, key=lambda c: c.message_bytes)
    assert found.roofs == [sweep] and large.bus_bandwidth / large.roof == pytest.approx(1, abs=0.1)
    assert "collectives at their roof" in {what.name for what in found.what_ifs}
    figure = next(s for s in ranks_page.page(found).sections if s.figures).figures[0]
    assert {line.name: line.line for line in figure.series} == {
        "all_reduce": "points", "all_reduce, 2 ranks, measured": "dash",
    }  # fmt: skip
    assert "perfkit ceilings" not in page.render_text(ranks_page.page(found))
    assert "perfkit ceilings --ranks" in page.render_text(ranks_page.page(analyse(pairs["fsdp"], roofs=[sweep])))


def changed(folder, tmp_path, name, change):
    """A copy of rank 1's trace of DDP, its JSON changed."""
    with gzip.open(folder / "ddp.rank1.json.gz") as file:
        trace = json.load(file)
    change(trace)
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(trace))
    return path


def shift(trace):
    """A clock that is 3 s ahead and gains 50 ppm, on another host."""
    for event in trace["traceEvents"]:
        if "ts" in event:
            event["ts"] = event["ts"] * (1 + 50e-6) + 3e6
            event["dur"] = event.get("dur", 0) * (1 + 50e-6)


def test_another_clock_changes_no_verdict(pairs, folder, tmp_path):
    other = rank_table.of_table(readers.read(changed(folder, tmp_path, "shifted", shift)))
    usual, found = analyse(pairs["ddp"]), analyse([pairs["ddp"][0], other])
    assert [s.rank for s in found.stragglers] == [0] and found.stragglers[0].causes[0].kind == "host"
    assert found.stragglers[0].late_ns.value == pytest.approx(usual.stragglers[0].late_ns.value, rel=0.01)
    assert found.clocks[1].offset_ns > 3e9 and found.clocks[1].residual_ns < 10e3


def test_a_drift_is_found_where_there_is_one(pairs):
    first = pairs["ddp"][0]
    other = rank_table.RankTable(1, 2, "other", first.frame.copy(), first.facts)
    other.frame["start_ns"] = other.frame["start_ns"] * (1 + 500e-6) + 2e6
    matched, _ = matching.match([first, other])
    found = clocks.align([first, other], matched)[1]
    assert found.drift == pytest.approx(500e-6, rel=0.01) and found.offset_ns == pytest.approx(2e6, rel=0.01)
    moments = other.end[matched.rows[:, 1]]
    assert np.allclose(clocks.on_first(other, first, found, moments), first.end[matched.rows[:, 0]], atol=1e3)


def test_ranks_that_do_not_belong_together_are_left_out_with_a_sentence(pairs):
    first, second = pairs["ddp"]
    alien = rank_table.RankTable(3, 8, "alien", second.frame, second.facts)
    report = analyse([first, second, second, alien])
    said = " ".join(report.problems)
    assert "is of rank 1, as" in said and "of a job of 8 ranks" in said and len(report.parts) == 2
    wide = [rank_table.RankTable(m.rank, 4, m.path, m.frame, m.facts) for m in pairs["ddp"]]
    assert "2 of 4 ranks are not here (2, 3)" in " ".join(analyse(wide).problems)
    with pytest.raises(InputError, match="not two ranks of one job"):
        analyse([first, first])


def test_different_steps_are_cut_to_the_shared_ones_or_refused(pairs):
    first, second = pairs["ddp"]
    later = {**second.facts, "step_names": ["ProfilerStep#3", "ProfilerStep#4", "ProfilerStep#5"]}
    report = analyse([first, rank_table.RankTable(1, 2, "later", second.frame, later)])
    assert report.steps == 2 and "the 2 that all of them have" in " ".join(report.problems)
    never = {**second.facts, "step_names": ["ProfilerStep#7", "ProfilerStep#8", "ProfilerStep#9"]}
    report = analyse([first, rank_table.RankTable(1, 2, "never", second.frame, never)])
    assert report.steps == 3 and "they are the same by the clocks" in " ".join(report.problems)
    never = {**never, "origin_ns": second.facts["origin_ns"] + 10**12}
    with pytest.raises(InputError, match="rank 0 ProfilerStep#2 to ProfilerStep#4; rank 1 ProfilerStep#7"):
        analyse([first, rank_table.RankTable(1, 2, "never", second.frame, never)])


def test_a_collective_that_one_rank_lacks_ends_the_matching_of_its_step(pairs):
    first, second = pairs["ddp"]
    missing = second.frame.index[second.is_collective & (second.step == 1)][3]
    report = analyse(
        [first, rank_table.RankTable(1, 2, "cut", second.frame.drop(missing).reset_index(drop=True), second.facts)]
    )
    assert any(p.startswith("Step 1: the ranks of default_pg [0, 1] do not have the same") for p in report.problems)


def test_report_reads_a_folder_of_ranks_and_says_which_cannot_be_read(run_cli, folder, tmp_path):
    for rank in (0, 1):
        (tmp_path / f"ddp.rank{rank}.json.gz").write_bytes((folder / f"ddp.rank{rank}.json.gz").read_bytes())
    (tmp_path / "ddp.rank2.json").write_text('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "na')
    done = run_cli(["report", str(tmp_path), "--out", str(tmp_path / "out")])
    assert done.rc == 0, done.stderr
    assert "Rank 0 is late" in done.stdout and "ddp.rank2.json" in done.stdout
    page = (tmp_path / "out" / "report-ranks.html").read_text()
    assert "Ranks: where a step goes" in page
    kept = json.loads((tmp_path / "out" / "report-ranks.json").read_text())
    assert kept["parts"][1]["waiting_ns"] > 15e6 and kept["stragglers"][0]["rank"] == 0


def test_what_a_profiler_delays_is_no_straggler():
    """A healthy job on two H100: in one step CUPTI worked for 3.1 ms on rank 0; there are hiccups too."""
    fixtures = Path(__file__).parents[1] / "fixtures" / "kineto" / "ranks"
    pair = [rank_table.of_table(readers.read(fixtures / f"healthy-h100.rank{r}.json.gz")) for r in (0, 1)]
    own = [round(one["profiler_ns"] / 1e6, 1) for one in pair[0].facts["per_step"]]
    assert own == [3.1, *[0.0] * 8]
    report = analyse(pair)
    assert report.stragglers == [] and [part.late_steps for part in report.parts] == [1, 1]
