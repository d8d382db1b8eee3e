"""Comparisons of tables and runs worked out by hand: sums of the waterfall and the tree, verdicts, what is refused."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit import table
from perfkit.analysis.results import BackendReport
from perfkit.analysis.step_results import Accounting, Gap
from perfkit.compare import sides
from perfkit.compare.gate import check, parse
from perfkit.compare.judge import compare, incomparable
from perfkit.compare.metrics import VerdictRule
from perfkit.compare.results import Comparison, Waterfall
from perfkit.compare.side_by_side import exchanges
from perfkit.compare.sides import LAUNCH, Side, Values
from perfkit.compare.waterfall import waterfall
from perfkit.compare.winners import Amounts, why
from perfkit.render.pages.compare import render_markdown, render_text
from perfkit.statistics.verdicts import BETTER, UNKNOWN, WORSE
from tests.support.analysis.examples import backend, run
from tests.support.compare import sample

PARTS = st.dictionaries(
    st.sampled_from(["forward", "backward", "optimizer", "unknown"]),
    st.dictionaries(st.sampled_from(["matmul", "copy", "fused", "<b>"]), st.floats(1, 1e8), min_size=1),
)
GAPS = st.dictionaries(st.sampled_from(["Python", "dispatch", "profiler"]), st.floats(1, 1e8))
STEP = st.none() | st.floats(1e3, 1e9)


def profiled(parts: dict[str, dict[str, float]], gaps: dict[str, float], rest: float, overlap: float) -> BackendReport:
    kernels = sum(ns for families in parts.values() for ns in families.values())
    account = Accounting(
        profiled_step_ns=kernels * (1 - overlap) + sum(gaps.values()) + rest, kernel_ns=kernels * (1 - overlap),
        gaps=[Gap(cause, ns, 0.0) for cause, ns in gaps.items()], other_ns=rest, timed_step_ns=None,
        profiler_overhead=None,
    )  # fmt: skip
    return BackendReport(name="b", status="ok", pass_families=parts, kernel_ns=kernels, accounting=account)


def assert_sums(found: Waterfall) -> None:
    near = {"rel": 1e-9, "abs": 1e-6 * max(found.first_ns, found.second_ns, 1.0)}
    top = [line for line in found.lines if line.level == 0]
    assert math.fsum(line.difference_ns for line in top) == pytest.approx(found.difference_ns, **near)
    assert math.fsum(line.first_ns for line in top) == pytest.approx(found.first_ns, **near)
    assert math.fsum(line.second_ns for line in top) == pytest.approx(found.second_ns, **near)
    for number, line in enumerate(found.lines):
        below = []
        for other in found.lines[number + 1 :]:
            if other.level == 0:
                break
            below.append(other.difference_ns)
        if line.level == 0 and below:
            assert math.fsum(below) == pytest.approx(line.difference_ns, **near)


@given(PARTS, PARTS, GAPS, GAPS, st.tuples(STEP, STEP), st.floats(0, 1e7), st.floats(0, 0.9))
def test_the_waterfall_sums_to_the_difference_whatever_is_in_it(one, other, gaps, gaps_2, timed, rest, overlap):
    assert_sums(waterfall(profiled(one, gaps, rest, overlap), profiled(other, gaps_2, 0.0, 0.0), timed))


def test_the_waterfall_says_what_it_sums() -> None:
    one, other = profiled({"forward": {"matmul": 50.0}}, {"Python": 20.0}, 0, 0), profiled({}, {}, 5.0, 0)
    timed = waterfall(one, other, (60.0, 4.0))
    assert (timed.basis, timed.difference_ns) == ("timed", -56.0)
    named = {line.name: line.difference_ns for line in timed.lines if line.level == 0}
    assert named == {
        "forward": -50.0, "no kernel running": -20.0, "not explained": 5.0, "timed steps minus the profiled ones": 9.0,
    }  # fmt: skip
    assert waterfall(one, other, (60.0, None)).basis == "profiled"
    one.accounting = None
    assert waterfall(one, other, (60.0, 4.0)).basis == "kernels"


def side(name: str, run_: Any, **more: Any) -> Side:
    made = sides.of_run(run_, name, name, "runs/toy")
    for key, value in more.items():
        setattr(made, key, value)
    return made


def pair(first: float = 100, second: float = 80, **more: Any) -> list[Side]:
    both = run(backend("eager", first, **more), backend("fast", second, **more))
    return [side("eager", both), side("fast", both)]


def test_two_backends_of_a_run() -> None:
    found = compare(pair())
    step = found.pairs[0].step.judgement
    assert step.verdict == BETTER and step.ratio == pytest.approx(0.8, rel=0.01) and step.unit == "turn"
    assert step.allowance == 0.03, "one process each"
    assert_sums(found.pairs[0].waterfall)
    assert found.verdict[0].startswith("fast against eager: better. The step takes -20.")
    assert [s.checked for s in found.sides] == [True, True]
    assert compare(list(reversed(pair()))).pairs[0].step.judgement.verdict == WORSE


def test_the_tree_sums_to_the_kernel_time_at_every_level() -> None:
    found = compare(pair())
    whole = found.tree[0]
    assert whole.name == "step" and whole.cells[0].time_ns == pytest.approx(360e3)
    passes = [line for line in found.tree if line.level == 1]
    operators = [line for line in found.tree if line.name == "no operator"]
    for lines in (passes, operators):
        assert sum(c.time_ns for line in lines for c in line.cells[:1] if c) == pytest.approx(360e3)
        assert all(line.cells[0] == line.cells[1] for line in lines)
    assert found.pairs[0].exchanges == [], "the same kernels serve the same parts"


def test_kernels_that_swap_places_by_time_became_nothing_else() -> None:
    def lines(*times: float) -> pd.DataFrame:
        names = {"kernel": ["copy_", "addmm"], "pass": "forward", "module": "h", "operator": "linear"}
        return pd.DataFrame({**names, "time": times, "whole": [2.0, 2.0], "fused": 0})

    assert exchanges(lines(2.0, 1.0), lines(1.0, 2.0)) == []
    assert len(exchanges(lines(2.0, 1.0), lines(1.0, 2.0).assign(kernel=["copy_", "mm"]))) == 1


def test_wrong_results_have_no_speed_verdict() -> None:
    both = run(backend("eager", 100), backend("fast", 50, ok=False))
    found = compare([side("eager", both), side("fast", both)])
    assert found.pairs[0].step.judgement.verdict == UNKNOWN
    assert "fast is wrong: logits differ" in found.pairs[0].step.judgement.why


def test_launches_are_pairs_and_need_no_allowance() -> None:
    first = Values([100.0 + i for i in range(10)], LAUNCH, True, "here")
    second = Values([1.02 * v for v in first.values], LAUNCH, True, "here")
    one, other = pair()
    one.step, other.step = first, second
    found = compare([one, other]).pairs[0].step.judgement
    assert (found.verdict, found.n, found.allowance) == (WORSE, 10, 0.0)
    other.step = msgspec_replace(second, origin="elsewhere")
    apart = compare([one, other]).pairs[0].step.judgement
    assert apart.verdict == UNKNOWN and apart.allowance == 0.05 and apart.method == "rank sum"


def test_memory_is_corrected_together_with_passes_and_families() -> None:
    """Every one of them may call equals different, so each more that is tested needs more to be shown."""
    one, other = pair()
    one.memory = Values([1e9 + 1e6 * i for i in range(12)], LAUNCH, True, "here")
    other.memory = Values([1.01 * v for v in one.memory.values], LAUNCH, True, "here")
    tested = {t.metric: t.judgement for t in compare([one, other]).pairs[0].tested}
    counted = [j.p for j in tested.values() if j.p is not None]
    assert len(counted) > 1 and tested["memory"].verdict == WORSE
    assert tested["memory"].p == min(counted) and tested["memory"].adjusted_p == pytest.approx(
        len(counted) * tested["memory"].p
    )


def msgspec_replace(values: Values, **changes: Any) -> Values:
    import dataclasses

    return dataclasses.replace(values, **changes)


def test_pooled_tables_keep_their_sums_and_tell_their_launches() -> None:
    from tests.support.analysis.examples import kernel_table

    whole, launch = sides.pooled([kernel_table(), kernel_table(), kernel_table()])
    assert launch == [0, 0, 1, 1, 2, 2] and len(whole) == 24
    assert whole.check() is whole
    assert whole.facts["steps"] == 6 and len(whole.facts["step_ns"]) == 6
    assert whole.frame["duration_ns"].sum() == pytest.approx(6 * 360e3)


def test_what_must_not_be_compared_is_named() -> None:
    one, other = pair()
    assert incomparable(one, other) == []
    assert other.manifest is not None
    other.manifest = msgspec.structs.replace(
        other.manifest,
        settings=msgspec.structs.replace(other.manifest.settings, batch_size=4, device="cuda", allocator="keep"),
        environment={"versions": {"torch": "2.7.1"}},
    )
    assert one.manifest is not None
    one.manifest = msgspec.structs.replace(one.manifest, environment={"versions": {"torch": "2.13.0"}})
    assert incomparable(one, other) == [
        "device: cpu and cuda", "batch size: 2 and 4", "allocator: default and keep", "torch: 2.13.0 and 2.7.1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("gpu", "reasons"),
    [
        ({"name": "NVIDIA H200", "smCount": 132}, []),
        ({"name": "NVIDIA A100", "smCount": 108}, ["GPUs: Nvidia GPU and NVIDIA A100"]),
        ({"name": "AMD Instinct MI300X", "smCount": 132}, ["GPUs: Nvidia GPU and AMD Instinct MI300X"]),
    ],
)
def test_a_gpu_of_unknown_model_is_compared_with_one_that_it_may_be(gpu: dict[str, Any], reasons: list[str]) -> None:
    rows = [{"name": "k", "family": "matmul", "kind": "gpu_kernel", "order": 0, "duration_ns": 1000.0}]
    jax = sides.of_table(table.build(rows), "a.xplane.pb", "a")
    torch = sides.of_table(table.build(rows), "b.pt.trace.json", "b")
    assert jax.table is not None and torch.table is not None
    jax.table.facts["gpus"] = [{"name": "Nvidia GPU", "vendor": "Nvidia", "smCount": 132}]
    torch.table.facts["gpus"] = [gpu]
    assert incomparable(jax, torch) == reasons and incomparable(torch, jax) == [
        f"GPUs: {gpu['name']} and Nvidia GPU" for _ in reasons
    ]


def test_profiles_without_steps_or_timings_are_compared_by_their_kernels() -> None:
    rows = [{"name": "k", "family": "matmul", "kind": "gpu_kernel", "order": 0, "duration_ns": 1000.0}]
    one = sides.of_table(table.build(rows), "a.sqlite", "a")
    other = sides.of_table(table.build([{**rows[0], "duration_ns": 1500.0}]), "b.sqlite", "b")
    found: Comparison = compare([one, other], VerdictRule())
    assert found.pairs[0].waterfall.basis == "kernels" and found.pairs[0].waterfall.difference_ns == 500.0
    assert found.pairs[0].step.judgement.verdict == UNKNOWN and "was not timed" in found.verdict[0]


def test_unknown_durations_are_no_durations_of_nothing() -> None:
    """Unknown times: they are not zero, and differ from nothing by no amount."""
    rows = [
        {"name": "k", "family": "matmul", "kind": "gpu_kernel", "order": n, "step": n // 2, "duration_ns": 1000.0}
        for n in range(4)
    ]
    known = sides.of_table(table.build(rows), "a.ncu-rep", "known")
    unknown = sides.of_table(table.build([{**row, "duration_ns": None} for row in rows]), "b.ncu-rep", "unknown")
    for both in ([known, unknown], [unknown, known]):
        found = compare(both, VerdictRule())
        [one] = found.pairs
        assert (one.waterfall, one.tested, one.exchanges, one.operators, one.kernels) == (None, [], [], [], [])
        said = [sentence for sentence in found.verdict if "without durations" in sentence]
        assert said == [
            "The profile of unknown holds 4 kernel calls without durations: its kernel time is unknown, and no "
            "difference of times is shown."
        ]
        shown = {side.label: (side.kernel_ns, side.launches) for side in found.sides}
        assert shown == {"known": (2000.0, 2.0), "unknown": (None, 2.0)}
        text = render_text(found)
        assert "Where the difference comes from" not in text and "What became of what" not in text
        [line] = [" ".join(line.split()) for line in text.splitlines() if line.startswith("unknown  ")]
        assert line.removesuffix(" –").endswith("– 2")  # kernels and launches
    [gate] = check(known, unknown, parse(["family:matmul>+3%"]), VerdictRule())
    assert (gate.outcome, gate.why) == ("cannot tell", "a side's profile holds no durations")


def test_a_profile_without_kernels_is_known_to_take_no_time() -> None:
    rows = [{"name": "k", "family": "matmul", "kind": "gpu_kernel", "order": 0, "duration_ns": 1000.0}]
    one, other = (sides.of_table(table.build(made), "a.sqlite", name) for name, made in (("a", rows), ("b", [])))
    found = compare([one, other], VerdictRule())
    assert found.sides[1].kernel_ns == 0.0 and found.pairs[0].waterfall.difference_ns == -1000.0


def by_executors(label: str, factor: float, executors: tuple[str, ...], **more: Any) -> Side:
    made = sample.side(label, factor, **more)
    assert made.manifest is not None
    settings = msgspec.structs.replace(made.manifest.settings, executors=executors)
    made.manifest = msgspec.structs.replace(made.manifest, settings=settings)
    return made


def test_sides_that_differ_in_executors_say_which_serves_each_part_best():
    slower = by_executors("torch", 1.2, ("torch",))
    [pair] = compare([by_executors("own", 1.0, ()), slower]).pairs
    matmul = next(s for s in pair.served if s.kernels == [["mm"], ["mm"]])
    assert (matmul.best, matmul.why) == ("own", "the same kernels, which run faster there")
    assert matmul.tested.judgement.ratio == pytest.approx(1.2)
    others = [s for s in pair.served if s is not matmul]
    assert others and {(s.best, s.why) for s in others} == {("", "the same kernels")}, "their times are the same"
    assert "Which executors serve which part best: own" not in render_markdown(compare([sample.side("a", 1.0), slower]))
    assert "the same kernels, which run faster there" in render_markdown(
        compare([by_executors("own", 1.0, ()), slower])
    )


def test_alike_executors_serve_alike():
    assert compare([by_executors("a", 1.0, ("torch",)), by_executors("b", 1.2, ("torch",))]).pairs[0].served == []


@pytest.mark.parametrize(
    ("best", "other", "words"),
    [
        ({"calls": 1.0}, {"calls": 4.0}, "1 calls in the place of 4"),
        ({"moved": 1e6}, {"moved": 3e6}, "moves 1.00 MB in the place of 3.00 MB"),
        ({"fused": 1.0}, {}, "fused with other parts into best"),
        ({"moved": math.nan}, {"moved": 3e6}, "best is faster at the same work than other"),
    ],
)
def test_why_a_part_is_served_better(best, other, words):
    plain = {"time": 1.0, "calls": 1.0, "moved": 1e6, "fused": 0.0, "values": Values([], LAUNCH)}
    made = [Amounts(kernels=[name], **{**plain, **own}) for name, own in (("best", best), ("other", other))]
    assert why(*made) == words
