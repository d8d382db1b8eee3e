"""From a run or a kernel table to the `Report` that renderers show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

import perfkit
from perfkit.analysis import (
    aggregate,
    counters,
    exposed,
    fusion,
    nvidia,
    points,
    ranges,
    source,
    speed,
    verdict,
)
from perfkit.analysis.accounting import accounting
from perfkit.analysis.coverage import coverage
from perfkit.analysis.judging import ON_GPU, judge_rows
from perfkit.analysis.results import Accounting, BackendReport, Group, Missing, Report, Roof
from perfkit.analysis.roofline import TOLERANCE
from perfkit.analysis.rules import Case, Circumstances, answers
from perfkit.analysis.tree import module_tree
from perfkit.hardware.ceilings import Ceilings
from perfkit.run_folder import ANNOTATED_PAGE, BackendRun, Manifest, TraceCheck
from perfkit.table import KernelTable
from perfkit.tree.aligned import align_places
from perfkit.tree.places import places_of

if TYPE_CHECKING:
    import pandas as pd

    from perfkit.readers.run import Run

MUCH_OVERHEAD = 0.15  # of the timed step: from here on the profiled step is another one, and the report says so


def analyse(run: Run, findings: bool = True) -> Report:
    """The report of a run folder: every backend beside the others; without `findings` no rule is asked."""
    manifest = run.manifest
    ceilings, problems = ceilings_of(run.ceilings)
    cases: dict[str, Case] = {}
    backends = [_backend(b, run, ceilings, cases, findings) for b in manifest.backends]
    fusion.compare(backends, cases)
    return Report(
        perfkit=manifest.perfkit,
        title=_title(manifest),
        source=str(run.folder),
        created=manifest.created,
        command=manifest.command,
        verdict=verdict.of_run(backends, manifest),
        settings=manifest.settings,
        workload=manifest.workload,
        backends=backends,
        roofs=points.roofs(ceilings),
        ceilings=run.ceilings if ceilings else None,
        environment=manifest.environment,
        warnings=[*manifest.warnings, *run.problems.get("", []), *problems, *_incomplete(manifest)],
    )


def analyse_table(table: KernelTable, ceilings: Ceilings | None, path: str | Path) -> Report:
    """The report of one kernel table that belongs to no run.

    It is judged by the ceilings that the profile itself holds, else by `ceilings`; without either nothing is.
    """
    ceilings = ceilings or ceilings_of(table.facts.get("ceilings"))[0]
    what = source.of(table, path)
    report = BackendReport(name=what.name, status="ok", timed=False, kind=what.kind, per=what.per)
    report.warnings = _unsaid(table)
    _fill(report, table, ceilings, [], Circumstances())
    return Report(
        perfkit=perfkit.__version__,
        title=what.title,
        source=str(path),
        verdict=verdict.of_profile(report) if report.kernels else verdict.without_times(table.frame),
        backends=[report],
        roofs=_stored_roofs(table, ceilings),
        ceilings_are=f"stored in the profile, {table.facts.get('ceilings_hold', '')}".strip(", "),
        ceilings=msgspec.to_builtins(ceilings) if ceilings else None,
    )


def analyse_any(source: Run | KernelTable, path: str | Path) -> Report:
    """The report of whatever `perfkit.readers.read` gave for `path`."""
    return analyse_table(source, None, path) if isinstance(source, KernelTable) else analyse(source)


def _stored_roofs(table: KernelTable, ceilings: Ceilings | None) -> list[Roof]:
    """The ceilings of a profile, with those at maximum clock: rates of the hardware, without a working set."""
    roofs = points.roofs(ceilings, table.facts.get("max_clock_ceilings"))
    return [msgspec.structs.replace(roof, working_set=None) for roof in roofs]


def _missing(table: KernelTable) -> list[Missing]:
    return [
        Missing(what=m["what"], option=m["option"], kernels=m["kernels"], of=m["of"], for_roof=m["for_roof"])
        for m in table.facts.get("missing") or []
    ]


def _unsaid(table: KernelTable) -> list[str]:
    """The warnings of a table but those that repeat what is missing, which the report lists by itself."""
    missing = _missing(table)
    return [w for w in table.warnings if not any(m.what in w and m.option in w for m in missing)]


def _title(manifest: Manifest) -> str:
    kind = "training step" if manifest.settings.training else "inference"
    return f"{manifest.workload.title}: {kind}, {manifest.settings.dtype} on {manifest.settings.device}"


def _incomplete(manifest: Manifest) -> list[str]:
    return [] if manifest.complete else ["the run was stopped before it was complete"]


def ceilings_of(content: dict[str, Any] | None) -> tuple[Ceilings | None, list[str]]:
    """The ceilings of a run, or why there are none."""
    if content is None:
        return None, []
    try:
        ceilings = msgspec.convert(content, Ceilings)
    except msgspec.ValidationError as error:
        return None, [f"the run's ceilings are damaged: efficiency and headroom are unknown ({error})"]
    return (ceilings, list(ceilings.warnings)) if ceilings.bandwidth else (None, ["the run's ceilings are empty"])


def _backend(
    record: BackendRun, run: Run, ceilings: Ceilings | None, cases: dict[str, Case], wanted: bool
) -> BackendReport:
    """Everything about one backend of a run; what rules saw of it goes into `cases`."""
    manifest, table = run.manifest, run.tables.get(record.name)
    step = speed.step_time(record.samples_ns)
    mfu, step_flop, mfu_ceiling = speed.model_flops_utilization(record, manifest, ceilings)
    report = BackendReport(
        name=record.name,
        status=record.status,
        reason=record.reason,
        timed=record.timed,
        correctness=record.correctness,
        step=step,
        speedup=speed.speedup(record, manifest),
        samples_per_second=manifest.workload.samples_per_step / step.value * 1e9 if step and step.value else None,
        prepare_ns=record.prepare_ns,
        peak_memory_bytes=record.peak_memory_bytes,
        memory_how=record.memory_how,
        mfu=mfu,
        mfu_ceiling=mfu_ceiling,
        step_flop=step_flop,
        symbols=record.symbols,
        losses=record.losses,
        samples_ns=record.samples_ns,
        generated=record.generated,
        annotated=_annotated(run.folder, record.name),
        trace=record.trace,
        unusable=record.unusable,
        trace_checks=record.trace_checks,
        warnings=[*record.warnings, *run.problems.get(record.name, []), *(table.warnings if table else [])],
    )
    if table is not None:
        about = _circumstances(record, manifest) if wanted else None
        case = _fill(report, table, ceilings, record.samples_ns, about, record.beside_ns, marked_for(run, record.name))
        if case is not None:
            cases[record.name] = case
    return report


def marked_for(run: Run, backend: str) -> pd.DataFrame | None:
    """Rows by which those of `backend` that have no module are placed: eager's of the same run."""
    eager = run.tables.get("eager")
    return in_steps(eager) if eager is not None and backend != "eager" else None


def _annotated(folder: Path, backend: str) -> str:
    """Where in the run folder the annotated listing of a backend's program lies; "" for none."""
    return f"{backend}/{ANNOTATED_PAGE}" if (folder / backend / ANNOTATED_PAGE).is_file() else ""


def _circumstances(record: BackendRun, manifest: Manifest) -> Circumstances:
    steps = len(record.warmup_ns) + len(record.samples_ns) + len(record.profiled_ns) + len(record.losses)
    return Circumstances(
        manifest.settings, manifest.environment, record.compiler, steps, record.fresh_bytes, record.system_ns
    )


def _fill(
    report: BackendReport,
    table: KernelTable,
    ceilings: Ceilings | None,
    samples_ns: list[float],
    about: Circumstances | None,
    beside_ns: list[float] | None = None,
    marked: pd.DataFrame | None = None,
) -> Case | None:
    """Add to `report` what the kernel table says; returns what the rules saw, of a backend that is right.

    Without `about` no rule is asked. Kernels that the table does not place are placed by `marked` in the tree.
    """
    report.device = _device(table)
    report.trace_checks = msgspec.convert(table.facts.get("trace_checks") or [], list[TraceCheck])
    report.accounting = accounting(table.facts, samples_ns, beside_ns or ())
    report.warnings += _slowed(report.accounting, report.device)
    report.missing = _missing(table)
    report.ranges, report.transfers = ranges.ranges(table.facts), ranges.transfers(table.facts)
    report.waits = ranges.waits(table.facts)
    frame = in_steps(table)
    if not len(frame):
        return None
    rows = rows_of(frame, ceilings, table, marked)
    whole = aggregate.by_label(rows, np.zeros(len(frame), np.int64), ["step"])[0]
    report.counted_flop, report.counted_bytes = whole.flop, whole.bytes
    report.efficiency, report.headroom_ns, report.kernel_ns = whole.efficiency, whole.headroom_ns, whole.time_ns
    report.above_roof, report.above_ns, report.above_kernels = whole.above_roof, whole.above_ns, whole.above_kernels
    report.withheld = aggregate.withheld(rows)
    report.coverage = coverage(rows, report.kind)
    report.passes = aggregate.by_pass(rows)
    report.families = sorted(aggregate.by_label(rows, rows.family_code, rows.families), key=lambda g: -g.time_ns)
    report.pass_families = aggregate.pass_by_family(rows)
    report.kernels, kernel_code = aggregate.by_kind_of_call(rows)
    _explain(report.kernels, counters.of_groups(frame, kernel_code, len(report.kernels), table.facts))
    report.headroom = aggregate.largest_headroom(report.kernels)
    report.operators = aggregate.by_operator(rows)
    report.exposed = exposed.of_frame(frame, rows.steps)
    report.advice = nvidia.advice(frame, kernel_code, report.kernels, table.facts)
    report.points = points.points(rows, report.kernels, kernel_code)
    report.tree = module_tree(rows)
    report.warnings += _above_roof(rows, report.kernels)
    if report.status != "ok" or about is None:
        return None
    case = Case(report, frame, rows.judged, table.facts, ceilings, rows.steps, about)
    report.findings, report.unjudged = answers.of_case(case)
    if report.kind == source.RUN:
        report.fusion, report.compiled = fusion.predict(case), fusion.achieve(case)
    return case


def _explain(groups: list[Group], facts: list[counters.Counters] | None) -> None:
    for group, own in zip(groups, facts or [], strict=False):
        group.reasons = answers.reasons(group, own)


def _device(table: KernelTable) -> str:
    """cuda where any row ran on a GPU, else cpu; "" for a table that names no device."""
    kinds = set(table.frame["kind"].dropna().astype(str).unique()) if len(table.frame) else set()
    return "cuda" if kinds & set(ON_GPU) else "cpu" if kinds else ""


def in_steps(table: KernelTable) -> pd.DataFrame:
    """The rows that count: with a duration, and in a marked step where any row is in one."""
    frame = table.frame[table.frame["duration_ns"].notna()]
    marked = frame["step"].notna()
    return frame[marked] if marked.any() else frame


def rows_of(
    frame: pd.DataFrame, ceilings: Ceilings | None, table: KernelTable, marked: pd.DataFrame | None = None
) -> aggregate.Rows:
    """The rows of `frame`, a part of `table`, judged by `ceilings`, with their labels and places.

    Rows without a module are placed by `marked`, rows of a run of the same step, where it is given.
    """
    family_code, families = _codes(frame["family"].astype(object).fillna("other"))
    judged, withheld = judge_rows(frame, ceilings, table.facts)
    return aggregate.Rows(
        judged=judged,
        withheld=withheld,
        steps=steps_of(frame, table),
        places=places_of(frame if marked is None else align_places(frame, marked), ("family",)),
        family_code=family_code,
        families=families,
        names=frame["name"].tolist(),
        short_names=frame["short_name"].fillna(frame["name"]).tolist(),
        shapes=frame["shapes"].fillna("").tolist(),
    )


def steps_of(frame: pd.DataFrame, table: KernelTable) -> int:
    """The steps that the rows are of: as the reader says, else as many as are marked."""
    stated = table.facts.get("steps")
    return int(stated) if stated else max(int(frame["step"].nunique()), 1)


def _codes(values: pd.Series) -> tuple[np.ndarray, list[str]]:
    """Codes and labels of a column of text."""
    import pandas as pd

    code, labels = pd.factorize(values)
    return code, [str(label) for label in labels]


def _slowed(account: Accounting | None, device: str = "cpu") -> list[str]:
    """A warning when the profiled step is not the step that was timed.

    On a CPU the profiler lengthens the kernels that are judged. Those of a GPU run beside it: only gaps grow.
    """
    overhead = account.profiler_overhead if account else None
    if overhead is None or overhead <= MUCH_OVERHEAD:
        return []
    if device == "cuda":
        return [
            f"the profiled step took {overhead:.0%} longer than one without it: the profiler slows the host, so the "
            "idle time of the GPU is overstated; the times of its kernels are its own"
        ]
    return [
        f"the profiled step took {overhead:.0%} longer than one without it: efficiency and headroom, which come from "
        "it, are too pessimistic"
    ]


def _above_roof(rows: aggregate.Rows, kernels: list[Group]) -> list[str]:
    """A warning when kernels are faster than their ceiling: a broken measurement or model, never a success."""
    above = rows.judged.above
    if not above.any():
        return []
    share = float(rows.judged.time[above].sum() / rows.total_ns) if rows.total_ns else 0.0
    most = sorted((g for g in kernels if g.above_ns), key=lambda g: -g.above_ns)
    named = ", ".join(dict.fromkeys(g.key for g in most))
    shown = named if len(named) <= 160 else f"{named[:159]}…"
    calls = "1 kernel call is" if above.sum() == 1 else f"{above.sum()} kernel calls are"
    return [
        f"{calls} more than {TOLERANCE:.0%} faster than the roof ({share:.1%} of the kernel time: {shown}). That "
        "cannot be: the ceiling, or the model of their work, is wrong for them. Were the ceilings measured while the "
        "machine was busy? Measure them again: `perfkit ceilings --refresh`"
    ]
