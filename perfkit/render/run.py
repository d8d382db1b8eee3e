"""Sections of a run that show all backends together: speed, phases of generating tokens, ranks, shared rows."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from perfkit import units
from perfkit.analysis.results import BackendReport, Group, Report
from perfkit.analysis.words import percent
from perfkit.render import sentences
from perfkit.render.cells import Cell, PageColumn, Table, clean, column_scale, figures, table, words
from perfkit.render.efficiencies import efficiencies, flags
from perfkit.render.page import SCREEN, Section
from perfkit.render.tables import FAULTY, label, spread, step
from perfkit.run_folder import RankRun

_STATUS = {
    "ok": ("✓ correct", "good"),
    "wrong": ("✗ wrong", "bad"),
    "failed": ("✗ failed", "bad"),
    "unavailable": ("– not here", "dim"),
}
_HOST_BOUND = 0.1  # share of a timed step without a kernel from which CUDA graphs are worth a try
_PASSES = (
    "A pass is one run of the model: over the prompt, or for one token. Its roof reads weights and cache once; "
    "slow is the 99th percentile."
)


def sections(report: Report, captured: list[BackendReport]) -> Iterator[Section]:
    """Yield the sections; `captured` are the backends with kernels."""
    note = sentences.mfu(report)
    yield Section(table=backends(report), notes=[note] if note else [], view="backends")
    if any(backend.phases for backend in report.backends):
        yield Section(table=phases(report))
    if any(rank.steps_ns for backend in report.backends for rank in backend.ranks):
        yield Section(table=ranks(report))
    if len(captured) > 1:
        for made in (step.accounting(captured), *_shared(captured)):
            if made is not None:
                yield Section(table=made, fold=SCREEN, view="where")


def _shared(captured: list[BackendReport]) -> Iterator[Table]:
    """Yield the tables with the same rows for every backend."""
    if any(b.passes for b in captured):
        yield side_by_side("Passes", "pass", captured, lambda b: b.passes)
    yield side_by_side("Kernel types", "type", captured, lambda b: b.families)


def _status(backend: BackendReport) -> Cell:
    """A backend's standing in a word: what its figures are worth."""
    if backend.status == "ok" and backend.correctness is None:
        return Cell("not checked", "dim")
    return Cell(*_STATUS.get(backend.status, (clean(backend.status, 20), "bad")))


def _only_reference(report: Report, backend: BackendReport) -> bool:
    """Return whether a run used this backend as the reference alone: it ran, and was not timed."""
    return report.settings is not None and not backend.timed and backend.status != "unavailable"


def backends(report: Report) -> Table:
    """Correctness and speed of every backend, and why one has no figures."""
    rows = report.backends
    tones = ["bad" if b.status in FAULTY else "strong" for b in rows]
    figure_tones = [t if t == "bad" else "" for t in tones]
    sample = report.workload.sample_name if report.workload else "samples"
    steps = units.scale_for([v for b in rows if b.step for v in (b.step.low, b.step.high)], "ns")
    own = bool(report.workload and report.workload.program)
    return table(
        "Program" if own else "Backends",
        words(
            "process" if own else "backend",
            [f"{b.name} (reference)" if _only_reference(report, b) else b.name for b in rows],
            tones,
            name=True,
        ),
        PageColumn("result", tuple(_status(b) for b in rows), numeric=False),
        figures("step", [b.step.value if b.step else None for b in rows], "ns", figure_tones, scale=steps),
        spread("95 % CI", [b.step for b in rows], steps),
        PageColumn("speed-up", tuple(_speedup(b) for b in rows)),
        figures(f"{sample}/s", [b.samples_per_second for b in rows], ""),
        figures("memory", [b.peak_memory_bytes for b in rows], "iB", priority=1),
        figures("power", [b.power.watts if b.power else None for b in rows], "W", priority=3),
        figures("energy", [b.energy_j for b in rows], "J", priority=2),
        figures("MFU", [b.mfu for b in rows], "%"),
        efficiencies(rows),
        figures("prepare", [b.prepare_ns for b in rows], "ns", priority=2),
        notes=[
            *(f"{clean(b.name)}: {clean(b.reason, 400)}" for b in rows if b.reason),
            *few_samples(rows),
            *without_graphs(report),
            *(f"{clean(b.name)}: {b.held}" for b in rows if b.held),
            *flags((b.name, b, b.kernel_ns) for b in rows),
        ],
    )


def few_samples(rows: Sequence[BackendReport]) -> list[str]:
    """Return notes on backends with too few timed steps for an interval."""
    few = [(clean(b.name), b.step.samples) for b in rows if b.step and b.step.is_range]
    return [
        f"{name}: one step was timed, which has no interval" if count == 1
        else f"{name}: {count} steps were timed, and the interval is their range"
        for name, count in few
    ]  # fmt: skip


def without_graphs(report: Report) -> Iterator[str]:
    """Yield notes on backends whose timed step waits for the host where the same one with CUDA graphs was not run."""
    settings, names = report.settings, {backend.name for backend in report.backends}
    if settings is None or settings.cuda_graphs == "all":
        return
    replaying = {"eager": ("eager:graphs", {"eager-graphs"})}
    if settings.compile_mode == "default":
        replaying["compile"] = ("compile:reduce-overhead", {"compile-reduce-overhead", "compile-max-autotune"})
    for backend in report.backends:
        graphs, those = replaying.get(backend.name, ("", names))
        account = backend.accounting
        if names & those or backend.device == "cpu" or account is None or not account.timed_step_ns:
            continue
        idle = 1 - account.kernel_ns / account.timed_step_ns
        if idle >= _HOST_BOUND:
            yield (
                f"{backend.name} is not in its fastest mode: no kernel runs during {percent(idle)} of its timed step. "
                f"CUDA graphs take the host out: add {graphs} to --backend"
            )


def _speedup(backend: BackendReport) -> Cell:
    """Return the speed-up over eager in this run: no verdict, for that takes launches. A wrong backend has none."""
    if backend.status in FAULTY:
        return Cell("none", "bad")
    if backend.speedup is None:
        return Cell(units.ABSENT)
    return Cell(f"{backend.speedup.value:.2f}×")


def phases(report: Report) -> Table:
    """The phases of all backends whose steps generate tokens: the first token, each further one, and their bounds."""
    rows = [(backend.name, phase) for backend in report.backends for phase in backend.phases]
    phases = [phase for _, phase in rows]
    return table(
        "Generation",
        words("backend", [name for name, _ in rows], name=True),
        words("phase", [phase.name for phase in phases]),
        figures("passes", [phase.runs for phase in phases], "count"),
        figures("pass", [phase.time.value for phase in phases], "ns"),
        figures("slow", [phase.slow_ns for phase in phases], "ns"),
        figures("tokens/s", [phase.tokens_per_second for phase in phases], ""),
        figures("a user", [phase.user_tokens_per_second for phase in phases], "", priority=1),
        figures("weights", [phase.weight_bytes for phase in phases], "B", priority=3),
        figures("cache", [phase.cache_bytes for phase in phases], "B", priority=2),
        figures("work", [phase.flop for phase in phases], "FLOP", priority=2),
        figures("roof", [phase.roof_ns for phase in phases], "ns", priority=1),
        words("bound by", [phase.bound for phase in phases], priority=3),
        figures("eff.", [phase.efficiency for phase in phases], "%"),
        figures("headroom", [phase.headroom_ns for phase in phases], "ns", priority=2),
        notes=[_PASSES],
    )


def ranks(report: Report) -> Table:
    """How long each of several ranks took for its part of a step, and how much memory it held.

    All ranks begin a timed step together. One that is done earlier waited less, or in none of its collectives.
    """
    rows = [(backend, rank) for backend in report.backends for rank in backend.ranks if rank.steps_ns]
    return table(
        "Ranks",
        words("backend", [backend.name for backend, _ in rows], name=True),
        words("rank", [str(rank.rank) for _, rank in rows]),
        words("device", [f"{rank.host} {rank.device}".strip() for _, rank in rows]),
        figures("step", [statistics.median(rank.steps_ns) for _, rank in rows], "ns"),
        figures("last in", [_last(backend, rank) for backend, rank in rows], "%"),
        figures("memory", [rank.peak_bytes for _, rank in rows], "iB"),
        notes=["A step is as long as its slowest rank; `last in` is the share of steps in which that was this one."],
    )


def _last(backend: BackendReport, rank: RankRun) -> float:
    """The share of timed steps in which this rank was the last one to be done."""
    latest = [max(times) for times in zip(*(r.steps_ns for r in backend.ranks), strict=True)]
    return sum(own == last for own, last in zip(rank.steps_ns, latest, strict=True)) / len(rank.steps_ns)


def side_by_side(
    title: str, header: str, chosen: Sequence[BackendReport], pick: Callable[[BackendReport], list[Group]]
) -> Table:
    """Time and efficiency of the same parts in every backend; the least time among correct ones stands out."""
    known = [(b, {g.key: g for g in pick(b)}) for b in chosen if pick(b)]
    keys = list(dict.fromkeys(key for _, by_key in known for key in by_key))
    scale = column_scale([g.time_ns for _, by_key in known for g in by_key.values()], "ns")
    columns = [words(header, keys, name=True)]
    for backend, by_key in known:
        parts = [by_key.get(key) for key in keys]
        tones = ["good" if _is_best(backend, key, known) else "" for key in keys]
        columns.append(figures(label(backend), [p.time_ns if p else None for p in parts], "ns", tones, scale=scale))
        columns.append(efficiencies(parts, priority=1))
    notes = flags((f"{b.name}: {g.key}", g, g.time_ns) for b, by_key in known for g in by_key.values())
    return table(title, *columns, notes=notes)


def _is_best(backend: BackendReport, key: str, known: Sequence[tuple[BackendReport, dict[str, Group]]]) -> bool:
    times = [by_key[key].time_ns for b, by_key in known if b.status == "ok" and key in by_key]
    mine = next(by_key for b, by_key in known if b is backend).get(key)
    return backend.status == "ok" and len(times) > 1 and mine is not None and mine.time_ns <= min(times)
