"""From a run or a kernel table to the `Report` that renderers show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import perfkit
from perfkit.analysis import source
from perfkit.analysis.report import points, verdict
from perfkit.analysis.report.backend import missing, of_record, profiled
from perfkit.analysis.report.rows import ceilings_of
from perfkit.analysis.results import BackendReport, Report
from perfkit.analysis.roofline_results import RoofLine
from perfkit.analysis.rules import Circumstances
from perfkit.hardware.ceilings import Ceilings
from perfkit.hardware.peaks import ceilings_on_paper
from perfkit.run_folder import Manifest
from perfkit.table import KernelTable

if TYPE_CHECKING:
    from perfkit.readers.run import Run


def analyse(run: Run, findings: bool = True) -> Report:
    """The report of a run folder: with all backends; without `findings` no rule is asked."""
    from perfkit.analysis.fusion import predict

    manifest = run.manifest
    ceilings, problems = ceilings_of(run.ceilings)
    made = [of_record(record, run, ceilings, findings) for record in manifest.backends]
    cases = {report.name: case for report, case in made if case is not None}
    backends = predict.compared_with_achieved([report for report, _ in made], cases)
    return Report(
        perfkit=manifest.perfkit,
        title=_title(manifest),
        source=str(run.folder),
        created=manifest.created,
        command=manifest.command,
        verdict=verdict.of_run(backends, manifest),
        settings=manifest.settings,
        world=manifest.world,
        workload=manifest.workload,
        backends=backends,
        roofs=points.roofs(ceilings, drawn=[point for report in backends for point in report.points]),
        ceilings=run.ceilings if ceilings else None,
        environment=manifest.environment,
        warnings=[*manifest.warnings, *run.problems.get("", []), *problems, *_incomplete(manifest)],
    )


def analyse_table(table: KernelTable, ceilings: Ceilings | None, path: str | Path) -> Report:
    """The report of one kernel table that belongs to no run.

    It is judged by the ceilings that the profile itself holds, else by `ceilings`, else by the datasheet of the device
    that it names; without any of them nothing is.
    """
    ceilings = ceilings or ceilings_of(table.facts.get("ceilings"))[0]
    ceilings = ceilings or ceilings_on_paper(table.facts.get("gpus") or [])
    what = source.of(table, path)
    bare = BackendReport(
        name=what.name, status="ok", timed=False, kind=what.kind, per=what.per, warnings=_unsaid(table)
    )
    report, _ = profiled(bare, table, ceilings, Circumstances())
    return Report(
        perfkit=perfkit.__version__,
        title=what.title,
        source=str(path),
        verdict=verdict.of_profile(report) if report.kernels else verdict.without_times(table.frame),
        backends=[report],
        roofs=_stored_roofs(table, ceilings, report),
        ceilings_are=f"stored in the profile, {table.facts.get('ceilings_hold', '')}".strip(", ")
        if ceilings is None or not ceilings.on_paper
        else f"of {ceilings.device_name}, datasheet",
        ceilings=msgspec.to_builtins(ceilings) if ceilings else None,
        warnings=[_on_paper(ceilings)] if ceilings and report.datasheet else [],
    )


def analyse_any(source: Run | KernelTable, path: str | Path) -> Report:
    """The report of whatever `perfkit.readers.read` gave for `path`."""
    return analyse_table(source, None, path) if isinstance(source, KernelTable) else analyse(source)


def _stored_roofs(table: KernelTable, ceilings: Ceilings | None, report: BackendReport) -> list[RoofLine]:
    """The ceilings of a profile, with those at maximum clock: rates of the hardware, without a working set."""
    drawn = [] if table.facts.get("row_ceilings") else report.points  # else each row's own ceilings judge it
    roofs = points.roofs(ceilings, table.facts.get("max_clock_ceilings"), drawn)
    return [msgspec.structs.replace(roof, working_set=None) for roof in roofs]


def _on_paper(ceilings: Ceilings) -> str:
    """The meaning of the mark of an efficiency by a datasheet."""
    return (
        f"† is of the {ceilings.datasheet_source}: dense peak rates on paper, which no kernel reaches; nothing was "
        "measured on that device. `perfkit ceilings` measures this machine"
    )


def _unsaid(table: KernelTable) -> list[str]:
    """The warnings of a table but those that repeat what is missing, which the report lists by itself."""
    lacking = missing(table)
    return [w for w in table.warnings if not any(m.what in w and m.option in w for m in lacking)]


def _title(manifest: Manifest) -> str:
    of_tokens = "generation" if manifest.settings.generate else "inference"
    kind = "training step" if manifest.settings.training else of_tokens
    return f"{manifest.workload.title}: {kind}, {manifest.settings.dtype} on {manifest.settings.device}"


def _incomplete(manifest: Manifest) -> list[str]:
    return [] if manifest.complete else ["the run was stopped before it was complete"]
