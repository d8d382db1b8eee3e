"""One backend of a run, or one profile: all of its record and its kernel table."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from perfkit.analysis import exposed, source
from perfkit.analysis.report import aggregate, generation, points, speed
from perfkit.analysis.report.accounting import accounting, incomparable, ranges, transfers, waits
from perfkit.analysis.report.coverage import coverage
from perfkit.analysis.report.rows import counted, marked_for, module_tree, rows_of
from perfkit.analysis.results import Advice, BackendReport, Group, Interval, Missing
from perfkit.analysis.roofline.excluded import ON_GPU
from perfkit.analysis.roofline.roof import ARITHMETIC, TOLERANCE, Booleans, Integers
from perfkit.analysis.rules import Case, Circumstances, of_case, reasons
from perfkit.analysis.source import NCU
from perfkit.analysis.step_results import Accounting, CounterUse
from perfkit.analysis.words import clock_limited
from perfkit.engines import iteration_of
from perfkit.hardware.ceilings import Ceilings
from perfkit.instructions.results import CODE
from perfkit.run_folder import ANNOTATED_PAGE, BackendRun, Manifest, TraceCheck
from perfkit.table import KernelTable

if TYPE_CHECKING:
    import pandas as pd

    from perfkit.readers.run import Run

Made = tuple[BackendReport, Case | None]  # a report, and what the rules saw of a backend that is right


def of_record(record: BackendRun, run: Run, ceilings: Ceilings | None, findings: bool) -> Made:
    """The report of one backend of a run; without `findings` no rule is asked."""
    report, table = _timed(record, run, ceilings), run.tables.get(record.name)
    if table is None:
        return report, None
    about = _circumstances(record, run.manifest) if findings else None
    eights, marked = run.manifest.workload.fp8_layers, marked_for(run, record.name)
    return profiled(report, table, ceilings, about, record.beside_ns, marked, eights)


def _timed(record: BackendRun, run: Run, ceilings: Ceilings | None) -> BackendReport:
    """Return the report of the record alone."""
    manifest, table = run.manifest, run.tables.get(record.name)
    step = speed.step_time(record.samples_ns)
    mfu, step_flop, mfu_ceiling = speed.model_flops_utilization(record, manifest, ceilings)
    return BackendReport(
        name=record.name,
        status=record.status,
        reason=record.reason,
        timed=record.timed,
        correctness=record.correctness,
        step=step,
        speedup=speed.speedup(record, manifest),
        samples_per_second=_rate(manifest.workload.samples_per_step, step),
        prepare_ns=record.prepare_ns,
        peak_memory_bytes=record.peak_memory_bytes,
        memory_how=record.memory_how,
        power=record.power,
        energy_j=record.power.watts * step.value / 1e9 if record.power and record.power.watts and step else None,
        held=clock_limited(record.power),
        mfu=mfu,
        mfu_ceiling=mfu_ceiling,
        step_flop=step_flop,
        symbols=record.symbols,
        losses=record.losses,
        samples_ns=record.samples_ns,
        phases=generation.phases(record, manifest, ceilings),
        ranks=record.ranks,
        generated=record.generated,
        annotated=_annotated(run.folder, record.name),
        trace=record.trace,
        unusable=record.unusable,
        trace_checks=record.trace_checks,
        warnings=[*record.warnings, *run.problems.get(record.name, []), *(table.warnings if table else [])],
    )


def _rate(samples: int | None, step: Interval | None) -> float | None:
    """Samples a second, where it is known how many a step has."""
    return samples / step.value * 1e9 if samples and step and step.value else None


def _annotated(folder: Path, backend: str) -> str:
    """Return the path in the run folder of a backend's annotated listing; "" for none."""
    return f"{backend}/{ANNOTATED_PAGE}" if (folder / backend / ANNOTATED_PAGE).is_file() else ""


def _circumstances(record: BackendRun, manifest: Manifest) -> Circumstances:
    steps = len(record.warmup_ns) + len(record.samples_ns) + len(record.profiled_ns) + len(record.losses)
    return Circumstances(
        manifest.settings, manifest.environment, record.compiler, steps, record.fresh_bytes, record.system_ns,
        record.replays, record.power,
    )  # fmt: skip


def profiled(
    report: BackendReport,
    table: KernelTable,
    ceilings: Ceilings | None,
    about: Circumstances | None,
    beside_ns: Sequence[float] | None = None,
    marked: pd.DataFrame | None = None,
    eights: Sequence[str] = (),
) -> Made:
    """Return `report` with the results of the kernel table.

    Without `about` no rule is asked. Kernels that the table does not place are placed by `marked` in the tree. `eights`
    are the modules that multiply fp8.
    """
    device, account = _device(table), accounting(table.facts, report.samples_ns, beside_ns or ())
    report = msgspec.structs.replace(
        report,
        device=device,
        trace_checks=msgspec.convert(table.facts.get("trace_checks") or [], list[TraceCheck]),
        accounting=account,
        warnings=[*report.warnings, *_incomparable(table, report, beside_ns or ()), *_slowed(account, device)],
        missing=missing(table),
        ranges=ranges(table.facts),
        transfers=transfers(table.facts),
        waits=waits(table.facts),
        counters=msgspec.convert(table.facts.get("counter_tracks") or [], list[CounterUse]),
    )
    _of_few(report, table)
    frame = counted(table)
    if any(map(iteration_of, table.facts.get("step_names") or [])):
        from perfkit.analysis.report.serving import serving

        report.serving = serving(table.facts, frame, ceilings)
    if not len(frame):
        return report, None
    rows = rows_of(frame, ceilings, table, marked)
    report = _with_kernels(report, rows, frame, table)
    if table.facts.get("memory"):
        from perfkit.analysis.report.memory import holders

        report.memory = holders(table.facts, frame)
    if eights:
        from perfkit.analysis.report import casts

        report.warnings = [*report.warnings, *casts.said(rows, eights)]
    if report.status != "ok" or about is None:
        return report, None
    case = Case(report, frame, rows.judged, table.facts, ceilings, rows.steps, about)
    found, unjudged = of_case(case)
    report = msgspec.structs.replace(report, findings=found, unjudged=unjudged)
    if report.kind == source.RUN:
        from perfkit.analysis.fusion import predict

        report = msgspec.structs.replace(report, fusion=predict.predict(case), compiled=predict.achieve(case))
    return report, dataclasses.replace(case, report=report)


def _of_few(report: BackendReport, table: KernelTable) -> None:
    """Add to `report` what few profiles hold; what makes it is imported only then."""
    if table.facts.get("lines"):
        from perfkit.analysis import source_lines

        report.lines = source_lines.table(table.facts, len(table.facts.get("step_ns") or []) or 1)
    if table.facts.get("loading"):
        from perfkit.analysis.loading import loadings

        report.loading = loadings(table.facts)
    if table.recorded.get(CODE):
        from perfkit.instructions.hot import hot_kernel

        report.hot = [hot_kernel(code) for code in table.recorded[CODE]]


def _half_unknown(frame: pd.DataFrame, kind: str, table: KernelTable) -> Booleans:
    """The rows of an ncu report that worked in half precision by an amount that it does not count."""
    found = np.array([bool(own.get("half_unknown")) for own in table.facts.get("kernels") or [] if kind == NCU])
    return found[frame["order"].to_numpy(int)] if len(found) else np.zeros(len(frame), bool)


def _with_kernels(
    report: BackendReport, rows: aggregate.LabelledRows, frame: pd.DataFrame, table: KernelTable
) -> BackendReport:
    """`report` with the sums of the rows: in all, by place, by kind of kernel."""
    whole = aggregate.by_label(rows, np.zeros(len(frame), np.int64), ["step"])[0]
    kernels, kernel_code = aggregate.by_kind_of_call(rows)
    account = report.accounting if report.device == "cpu" else None
    own_code = account.own_code(len(frame) / rows.steps) if account else None
    advice = _counted(frame, kernel_code, kernels, table) if table.facts.get("kernels") else []
    return msgspec.structs.replace(
        report,
        counted_flop=whole.flop,
        counted_bytes=whole.bytes,
        efficiency=whole.efficiency,
        headroom_ns=whole.headroom_ns,
        kernel_ns=whole.time_ns,
        datasheet=whole.datasheet,
        above_roof=whole.above_roof,
        above_ns=whole.above_ns,
        above_kernels=whole.above_kernels,
        withheld=aggregate.excluded(rows),
        coverage=coverage(rows, report.kind, own_code, _half_unknown(frame, report.kind, table)),
        passes=aggregate.by_pass(rows),
        families=sorted(aggregate.by_label(rows, rows.family_code, rows.families), key=lambda g: -g.time_ns),
        pass_families=aggregate.pass_by_family(rows),
        kernels=kernels,
        headroom=aggregate.largest_headroom(kernels),
        operators=aggregate.by_operator(rows),
        exposed=exposed.of_frame(frame, rows.steps),
        advice=advice,
        points=points.points(rows, kernels, kernel_code),
        tree=module_tree(rows),
        warnings=[*report.warnings, *_above_roof(rows, kernels, report)],
    )


def _counted(frame: pd.DataFrame, codes: Integers, kernels: list[Group], table: KernelTable) -> list[Advice]:
    """Give `kernels` the reasons that their counters give; return NVIDIA's advice on them."""
    from perfkit.analysis.report import nvidia
    from perfkit.analysis.roofline import counters

    facts = counters.of_groups(frame, codes, len(kernels), table.facts, table.recorded.get(CODE) or ())
    for group, own in zip(kernels, facts or (), strict=False):
        group.reasons = reasons(group, own)
    return nvidia.advice(frame, codes, kernels, table.facts)


def missing(table: KernelTable) -> list[Missing]:
    """Return the facts that the profile lacks, and the options that supply them."""
    return [
        Missing(what=m["what"], option=m["option"], kernels=m["kernels"], of=m["of"], for_roof=m["for_roof"])
        for m in table.facts.get("missing") or []
    ]


def _device(table: KernelTable) -> str:
    """cuda where any row ran on a GPU, else cpu; "" for a table that names no device."""
    kinds = set(map(str, table.rows["kind"].factorize()[1])) if len(table) else set()
    return "cuda" if kinds & set(ON_GPU) else "cpu" if kinds else ""


def _incomparable(table: KernelTable, report: BackendReport, beside_ns: Sequence[float]) -> list[str]:
    """A warning when the timed steps say nothing about the profiled ones: no number of the profile uses them."""
    why = incomparable(table.facts, report.samples_ns, beside_ns)
    return [f"the timed steps are not compared with the profiled ones, of which savings are: {why}"] if why else []


def _slowed(account: Accounting | None, device: str = "cpu") -> list[str]:
    """A warning when the profiled step is not the step that was timed.

    On a CPU the profiler lengthens the kernels that are judged. On a GPU only gaps grow.
    """
    if account is None or not account.is_slowed:
        return []
    overhead = account.profiler_overhead or 0.0
    if device == "cuda":
        return [
            f"the profiled step took {overhead:.0%} longer than one without it: the profiler slows the host, so the "
            "idle time of the GPU is overstated; the times of its kernels are its own"
        ]
    return [
        f"the profiled step took {overhead:.0%} longer than one without it: efficiency and headroom, which come from "
        "it, are too pessimistic"
    ]


def _above_roof(rows: aggregate.LabelledRows, kernels: list[Group], report: BackendReport) -> list[str]:
    """A warning when kernels are faster than their ceiling: a broken measurement or model, never a success.

    On a GPU at its power limit the ceiling of its arithmetic may have been measured at another clock.
    """
    above = rows.judged.above
    if not above.any():
        return []
    share = float(rows.judged.time[above].sum() / rows.total_ns) if rows.total_ns else 0.0
    most = sorted((g for g in kernels if g.above_ns), key=lambda g: -g.above_ns)
    named = ", ".join(dict.fromkeys(g.key for g in most))
    shown = named if len(named) <= 160 else f"{named[:159]}…"
    calls = "1 kernel call is" if above.sum() == 1 else f"{above.sum()} kernel calls are"
    why = (
        "That cannot be: the ceiling, or the model of their work, is wrong for them. Were the ceilings measured while "
        "the machine was busy? Measure them again: `perfkit ceilings --refresh`"
    )
    if report.datasheet:
        why = "That cannot be, by a datasheet: the device runs at a higher clock, or the model of their work is wrong"
    capped = report.held and report.power is not None and report.power.capped
    if capped and bool(np.isin(rows.judged.bound[above], ARITHMETIC).all()):
        why = (
            "The power limit sets this GPU's clock: they may have run at a higher one than when their ceiling was "
            "measured, or the model of their work is wrong for them"
        )
    return [f"{calls} more than {TOLERANCE:.0%} faster than the roof ({share:.1%} of the kernel time: {shown}). {why}"]
