"""The report on several ranks, made whole from their members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from perfkit.hardware.collectives.results import sweep_for
from perfkit.ranks import causes, collectives, headline, late, matching, parts, timed
from perfkit.ranks.collectives import Roofs
from perfkit.ranks.late import Lateness
from perfkit.ranks.rank_group import RankGroup, together
from perfkit.ranks.rank_table import RankTable
from perfkit.ranks.results import (
    EQUAL_RANKS,
    Collective,
    Imbalance,
    RanksReport,
    RankStep,
    StepInterval,
    Straggler,
    WhatIf,
)
from perfkit.ranks.rules import RanksCase, answers
from perfkit.ranks.saving import Savings
from perfkit.ranks.waiting import Waiting

_UNEVEN = 0.05  # of the most, and 1 % of the step: less is noise


def analyse(
    traces: Sequence[RankTable],
    problems: Sequence[str] = (),
    roofs: Roofs | None = None,
    environment: Mapping[str, Any] | None = None,
) -> RanksReport:
    """Return the report of the `traces` of one job; `problems` are sentences about unreadable traces, `roofs`
    sweeps of collectives measured where they were recorded, `environment` that of their run where it is known.

    Raises `InputError` where they are not two ranks of one job, recorded different steps, or share no collective.
    """
    return of_job(together(traces), problems, roofs, environment)


def of_job(
    job: RankGroup,
    problems: Sequence[str],
    roofs: Roofs | None,
    environment: Mapping[str, Any] | None,
    samples_ns: Sequence[Sequence[float]] = (),
) -> RanksReport:
    """Return the report of a job; `samples_ns` are steps of each rank that were timed without the profiler."""
    ranks, matched, waits = job.ranks, job.matched, job.waiting
    lateness = late.judge(ranks, matched, waits)
    rows = [_part(m, i, matched, waits, lateness[i]) for i, m in enumerate(ranks)]
    talks = collectives.table(ranks, matched, waits, roofs)
    savings = Savings(ranks, matched, waits)
    report = RanksReport(
        title=f"{len(ranks)} of {ranks[0].world_size} ranks"
        if len(ranks) < ranks[0].world_size
        else f"{len(ranks)} ranks",
        world_size=ranks[0].world_size,
        backend=str(ranks[0].facts["distributed"].get("backend") or "unknown"),
        paths={m.rank: m.path for m in ranks},
        steps=ranks[0].steps,
        step_ns=late.mean(np.max([m.step_ns for m in ranks], axis=0)),
        headline=[],
        parts=rows,
        collectives=talks,
        stragglers=_stragglers(ranks, lateness, savings),
        what_ifs=_what_ifs(ranks, rows, talks, savings.of_all()),
        imbalance=_imbalance(ranks),
        clocks=job.clocks,
        problems=[*problems, *job.said],
        roofs=[s for s in roofs or () if any(sweep_for([s], c.operation, c.ranks) for c in talks)],
    )
    found, unjudged = answers(RanksCase(report, ranks, matched, waits, roofs or (), environment or {}))
    report = timed.with_timed_steps(msgspec.structs.replace(report, findings=found, unjudged=unjudged), samples_ns)
    report.headline.extend(headline.sentences(report))
    return report


def _part(member: RankTable, column: int, matched: matching.Matched, waits: Waiting, lateness: Lateness) -> RankStep:
    device = next((str(d) for d in member.frame["device"].dropna().unique()), "")
    return RankStep(
        rank=member.rank,
        device=device,
        late_ns=lateness.interval,
        late_steps=int(lateness.late.sum()),
        steps=member.steps,
        **parts.divide(member, column, matched, waits),
    )


def _stragglers(ranks: Sequence[RankTable], lateness: Sequence[Lateness], savings: Savings) -> list[Straggler]:
    found = []
    for i, (member, one) in enumerate(zip(ranks, lateness, strict=True)):
        if not one.named:
            continue
        why = causes.explain(ranks, i, one.late, one.interval.value)
        found.append(
            Straggler(
                rank=member.rank,
                late_ns=one.interval,
                mean_ns=late.mean(one.ns[one.late]).value,
                exposed_ns=_exposed(one, savings.of_rank(i)),
                late_steps=int(one.late.sum()),
                steps=member.steps,
                causes=why,
            )
        )
    return sorted(found, key=lambda s: -s.late_ns.value * s.late_steps)


def _exposed(lateness: Lateness, saved: np.ndarray) -> StepInterval:
    """Return the part of a delay that no computation covers, in the steps that count: on the rank that saves least."""
    least = int(saved[lateness.late].mean(axis=0).argmin())
    return late.mean(np.minimum(lateness.ns, saved[:, least])[lateness.late])


def _what_ifs(
    ranks: Sequence[RankTable], rows: Sequence[RankStep], talks: Sequence[Collective], equal: float
) -> list[WhatIf]:
    """Bounds, each by itself: they are about the same time and do not add up."""
    length = float(np.mean(np.max([m.step_ns for m in ranks], axis=0)))
    exposed = max(row.exposed_ns for row in rows)
    ideas = [
        (EQUAL_RANKS, equal, "no rank later at a collective than the median one"),
        ("perfect overlap", exposed, "computation covers every transfer; waiting stays"),
    ]
    if any(c.roof and c.bus_bandwidth for c in talks):
        saved = sum(c.count * c.latency_ns * _below_roof(c) for c in talks)
        ideas.append(("collectives at their roof", saved, "each at the bus bandwidth measured for its size"))
    return [WhatIf(name=n, step_ns=max(length - s, 0.0), saves_ns=min(s, length), how=how) for n, s, how in ideas]


def _below_roof(one: Collective) -> float:
    """The share of a collective's own time that it would not take at its roof; 0 without one."""
    return max(1 - one.bus_bandwidth / one.roof, 0.0) if one.bus_bandwidth and one.roof else 0.0


def _imbalance(ranks: Sequence[RankTable]) -> list[Imbalance]:
    """Passes and layers whose computation differs between ranks, the largest difference first."""
    length = float(np.median([m.step_ns for m in ranks]))
    found = []
    for column, label in (("pass", "{}"), ("layer", "layer {}")):
        times = [_by(member, column) for member in ranks]
        for value in dict.fromkeys(v for one in times for v in one):
            each = [one.get(value, 0.0) for one in times]
            most, least = int(np.argmax(each)), int(np.argmin(each))
            if each[most] - each[least] > max(_UNEVEN * each[most], 0.01 * length):
                found.append(
                    Imbalance(
                        what=label.format(value),
                        most_rank=ranks[most].rank,
                        most_ns=each[most],
                        least_rank=ranks[least].rank,
                        least_ns=each[least],
                    )
                )
    return sorted(found, key=lambda one: one.least_ns - one.most_ns)[:10]


def _by(member: RankTable, column: str) -> dict[object, float]:
    """Computation a step by the values of `column`."""
    chosen = member.is_compute & (member.step >= 0)
    part = member.frame.loc[chosen]
    sums = part.groupby(column, observed=True)["duration_ns"].sum() / max(member.steps, 1)
    return {key: float(value) for key, value in sums.items()}
