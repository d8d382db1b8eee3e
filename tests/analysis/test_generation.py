"""The phases of generating tokens against their roof, and in a report's text and a sweep's page."""

from __future__ import annotations

import msgspec
import pytest

from perfkit.analysis.report.generation import phases, roof_of
from perfkit.analysis.results import BackendReport, Report
from perfkit.analysis.sweep import summarise
from perfkit.hardware.ceilings import Ceilings
from perfkit.render import terminal
from perfkit.render.pages import sweep as rendered
from perfkit.run_folder import BackendRun, Correctness, Manifest, Phase, Settings, WorkloadFacts
from tests.support.analysis.examples import ceilings

# A pass over 8 prompts of 100 tokens, and 3 passes for one further token of each.
PREFILL = Phase(name="prefill", runs=1, tokens=800, flop=8e9, weight_bytes=1e6, cache_bytes=1e5)
DECODE = Phase(name="decode", runs=3, tokens=8, flop=8e7, weight_bytes=1e9, cache_bytes=5e8)
TOKENS = [[9e6, 2e6, 1e6, 1e6], [8e6, 1e6, 3e6, 1e6]]  # ns, of two steps


def made(status: str = "ok", **more: object) -> tuple[BackendRun, Manifest]:
    right = Correctness(reference="eager in fp64", ok=status == "ok", checks=[], reference_losses=[])
    run = BackendRun(name="eager", status=status, samples_ns=[13e6, 13e6], correctness=right, tokens_ns=TOKENS)
    manifest = Manifest(
        perfkit="1",
        created="",
        command=[],
        settings=Settings(workload="llama", preset="tiny", batch_size=8, generate=4, training=False, **more),
        workload=WorkloadFacts(title="llama", parameters=1, samples_per_step=32, phases=[PREFILL, DECODE]),
        backends=[run],
    )
    return run, manifest


def known() -> Ceilings:
    return msgspec.structs.replace(
        ceilings(), bandwidth=[(1e3, 1e12), (1e9, 1e11)], in_place=[], compute={"matrix_fp32": 1e12}
    )


def test_times_and_rates_of_both_phases():
    first, later = phases(*made(), known())
    assert (first.name, first.runs, first.time.value) == ("prefill", 1, 8.5e6)
    assert first.tokens_per_second == pytest.approx(800 / 8.5e-3)
    assert first.user_tokens_per_second is None
    assert (later.name, later.runs, later.time.value) == ("decode", 3, 1e6)
    assert 2e6 < later.slow_ns <= 3e6
    assert later.tokens_per_second == pytest.approx(8e3)
    assert later.user_tokens_per_second == pytest.approx(1e3)


def test_the_roof_is_bytes_once_or_the_flop_where_they_take_longer():
    assert roof_of(PREFILL, "fp32", known())[:2] == (pytest.approx(8e6), "fp32 matmul")
    roof, bound, ceiling = roof_of(DECODE, "fp32", known())
    assert (roof, bound, ceiling) == (pytest.approx(1.5e9 / 1e11 * 1e9), "memory", "100.0 GB/s")
    assert roof_of(DECODE, "bf16", known())[1] == "memory"  # no ceiling of bf16 is known
    assert roof_of(DECODE, "fp32", msgspec.structs.replace(known(), bandwidth=[], in_place=[])) == (None, "", "")


def test_decode_reads_the_cache_and_prefill_writes_it():
    slow = msgspec.structs.replace(known(), reading=[(1e3, 1e12), (1e9, 5e10)], compute={})
    assert roof_of(DECODE, "fp32", slow) == (pytest.approx(1.5e9 / 5e10 * 1e9), "memory", "50.00 GB/s")
    written = msgspec.structs.replace(PREFILL, weight_bytes=1e9, cache_bytes=5e9)
    assert roof_of(written, "fp32", slow) == (pytest.approx(6e9 / 1e11 * 1e9), "memory", "100.0 GB/s")
    fast = msgspec.structs.replace(slow, reading=[(1e3, 1e12)])
    assert roof_of(DECODE, "fp32", fast)[0] == pytest.approx(1.5e9 / 1e11 * 1e9)


def test_efficiency_and_headroom():
    first, later = phases(*made(), known())
    assert first.efficiency == pytest.approx(8 / 8.5)
    assert first.headroom_ns == pytest.approx(0.5e6)
    assert later.efficiency == pytest.approx(15.0)  # faster than its roof allows: shown as it is
    unknown = phases(*made(), None)
    assert [phase.efficiency for phase in unknown] == [None, None]


def test_what_cannot_be_trusted_has_no_phases():
    assert phases(*made("wrong"), known()) == []
    run, manifest = made()
    run.tokens_ns = []
    assert phases(run, manifest, known()) == []


def reported() -> Report:
    run, manifest = made(sequence_length=100)
    backend = BackendReport(name="eager", status="ok", phases=phases(run, manifest, known()), samples_ns=run.samples_ns)
    return Report(
        perfkit="1", title="llama", source="run", settings=manifest.settings, workload=manifest.workload,
        backends=[backend],
    )  # fmt: skip


def test_the_table_in_the_terminal():
    text = terminal.render(reported())
    assert "4 tokens generated" in text
    lines = [line.split() for line in text[text.index("Generation") :].splitlines()[3:5]]
    assert [line[:3] for line in lines] == [["eager", "prefill", "1"], ["eager", "decode", "3"]]


def test_a_sweep_plots_the_tokens_against_the_batch():
    sweep = summarise({"batch_size": ["1", "8"]}, [({"batch_size": n}, reported()) for n in ("1", "8")])
    member = sweep.points[0].members[0]
    assert (member.first_token_ns, member.token_ns, member.token_efficiency) == (8.5e6, 1e6, pytest.approx(15.0))
    page = rendered.page(sweep)
    headers = [column.header for column in page.sections[0].table.columns]
    assert headers[-3:] == ["first token", "a token", "of its roof"]
