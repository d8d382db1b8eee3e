"""Two serving engines compared by phase: figures by hand, verdicts, and what was served otherwise is said."""

from __future__ import annotations

import pytest

from perfkit.compare.gate import REGRESSED, check, parse
from perfkit.compare.judge import compare
from perfkit.compare.metrics import VerdictRule
from perfkit.compare.sides import Side, of_table
from perfkit.engines import iteration_of
from perfkit.render.pages.compare import render_text
from perfkit.statistics.verdicts import BETTER, SAME, UNKNOWN, WORSE
from perfkit.table import build
from tests.support.analysis import serving

DECODES = 20


def side(label: str, decode_us: float, extra: int = 0, generating: int = 8, prefills: int = 10) -> Side:
    """Decode of `generating` requests by a product and an attention of 55 µs, and `extra` kernels of 1 µs; prefill of
    4000 tokens in 1000 µs. Each iteration is a little longer than the one before, and 2 µs of gap follow."""
    rows, names, times, at = [], list[str](), list[float](), 0.0
    more = [serving.gather(1, 1e6)] * extra
    planned = [serving.prefill(1000)] * prefills + [
        serving.decode(*more, us=decode_us, generating=generating) for _ in range(DECODES)
    ]
    for step, (name, kernels, gap) in enumerate(planned):
        one = iteration_of(name)
        assert one is not None
        names.append(name)
        begin, slower = at, 1 + step / 10_000
        for row in kernels:
            time = row["duration_ns"] * slower
            rows.append(
                {**row, "duration_ns": time, "step": step, "pass": one.phase, "start_ns": at, "order": len(rows)}
            )
            at += time
        at += gap * 1e3
        times.append(at - begin)
    facts = {"steps": len(names), "step_ns": times, "busy_ns": times, "step_names": names, "gaps": []}
    return of_table(build(rows, facts=facts), f"{label}.parquet", label)


def test_time_per_token_and_kernels_of_a_phase_are_those_by_hand() -> None:
    found = compare([side("old", 210), side("new", 155, extra=2)], VerdictRule())
    (pair,) = found.pairs
    phases = {one.phase: one for one in pair.phases}
    assert list(phases) == ["prefill", "decode"] and phases["decode"].iterations == [DECODES, DECODES]
    assert phases["decode"].tokens == [8, 8] and phases["prefill"].tokens == [4000, 4000]
    time, kernel, count = phases["decode"].tested
    assert (time.metric, kernel.metric, count.metric) == (
        "time per token", "kernel time per token", "kernels an iteration",
    )  # fmt: skip
    # The median iteration is the 20th of 30: 10 prefills, and half of the decodes.
    slower = 1 + 19.5 / 10_000
    assert time.first == pytest.approx((265e3 * slower + 2e3) / 8, rel=1e-9)
    assert time.second == pytest.approx((212e3 * slower + 2e3) / 8, rel=1e-9)
    assert kernel.first == pytest.approx(265e3 * slower / 8, rel=1e-9)
    assert (count.first, count.second) == (2, 4)
    assert [one.judgement.verdict for one in (time, kernel, count)] == [BETTER, BETTER, WORSE]
    assert kernel.judgement.ratio == pytest.approx(212 / 265, rel=1e-3) and kernel.judgement.unit == "iteration"
    assert count.judgement.low == count.judgement.high == pytest.approx(2)
    assert [one.judgement.verdict for one in phases["prefill"].tested] == [UNKNOWN, UNKNOWN, SAME]  # 5 % are allowed
    text = render_text(found)
    assert "Serving, by phase" in text and "time per token" in text and "the same work" not in text


def test_other_batches_and_a_missing_phase_are_said() -> None:
    (pair,) = compare([side("wide", 210), side("narrow", 210, generating=4, prefills=0)], VerdictRule()).pairs
    phases = {one.phase: one for one in pair.phases}
    assert phases["decode"].unlike == (
        "An iteration of decode has 8 and 4 requests, 8 and 4 tokens: the engines did not do the same work."
    )
    assert {one.judgement.why for one in phases["prefill"].tested} == {"only one side has it"}
    assert phases["decode"].tested[0].judgement.verdict == WORSE  # a token has its part of the weights to read


def test_kernel_time_of_a_phase_is_that_of_its_iterations() -> None:
    """Iterations of other phases have none of it: they made it untestable."""
    first, second = side("old", 210), side("new", 310)
    (pair,) = compare([first, second], VerdictRule()).pairs
    tested = {one.metric: one for one in pair.tested}
    slower = 1 + 19.5 / 10_000
    assert tested["pass:decode"].first == pytest.approx(265e3 * slower, rel=1e-9)
    assert tested["pass:decode"].judgement.verdict == WORSE
    assert [one.outcome for one in check(first, second, parse(["pass:decode>+10%"]), VerdictRule())] == [REGRESSED]


def test_sides_that_do_not_serve_have_no_phases() -> None:
    from tests.support.compare import sample

    assert all(not pair.phases for pair in sample.measured().pairs)
