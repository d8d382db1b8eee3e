"""The report of a job: a run folder whose processes are ranks that talk to each other.

It is the report of the ranks together (`perfkit.ranks`), then that of the rank whose own work decides the step.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from perfkit.errors import InputError
from perfkit.ranks import analyse, detail, link_context, rank_table
from perfkit.ranks.drawing import draw
from perfkit.ranks.rank_group import RankGroup as RanksJob
from perfkit.ranks.rank_group import together
from perfkit.render.output import Output
from perfkit.run_folder import KERNELS

if TYPE_CHECKING:
    from perfkit.analysis.results import Report
    from perfkit.ranks.rank_table import RankTable
    from perfkit.ranks.results import RanksReport
    from perfkit.readers.run import Run
    from perfkit.table import KernelTable


@dataclass(frozen=True)
class GroupReport:
    """The ranks that a run folder holds: their report, with one of them in detail, and what it was made of."""

    run: Run
    ranks: RanksJob
    report: RanksReport
    names: dict[int, str]  # of each rank its folder in the run

    @property
    def detail(self) -> Report:
        """The report of the rank that is looked at in detail."""
        assert self.report.detail is not None
        return self.report.detail

    @property
    def of_one(self) -> Run:
        """The run as if only that rank had been recorded."""
        assert self.report.detail_rank is not None
        return _only(self.run, self.names[self.report.detail_rank])


def of(source: Run | KernelTable) -> GroupReport | None:
    """The job that a captured run is of; None where it is not of a job.

    Where its ranks cannot be compared, the run gets a warning that gives the reason.
    """
    from perfkit.readers.run import Run

    if not isinstance(source, Run) or not all(backend.own for backend in source.manifest.backends):
        return None
    found, problems = _members(source)
    if len(found) + len(problems) < 2:
        for _, member in found:
            _warn_of_others(source, member)
        return None
    try:
        job = together([member for _, member in found], one_host=True)
    except InputError as error:
        source.problems.setdefault("", []).append(f"The ranks are not compared. {error}")
        return None
    roofs = link_context.roofs(job.ranks, source.folder)
    samples = [backend.samples_ns for backend in source.manifest.backends]
    report = analyse.of_job(job, problems, roofs, source.manifest.environment, samples)
    names = {member.rank: name for name, member in reversed(found)}
    return GroupReport(source, job, _with_detail(report, source, names), names)


def _warn_of_others(run: Run, member: RankTable) -> None:
    """Say in a run of one rank that the job has others."""
    if member.world_size > 1:
        run.problems.setdefault("", []).append(
            f"Of {member.world_size} ranks this run has rank {member.rank} alone. `perfkit report` of the traces "
            "of all of them says who waits for whom."
        )


def _members(run: Run) -> tuple[list[tuple[str, RankTable]], list[str]]:
    """Return name and member of each process that is a rank, and a sentence for each that cannot be compared."""
    found, problems = [], []
    for record in run.manifest.backends:
        table = run.tables.get(record.name)
        if table is None:
            problems.append(f"{record.name} has no kernel table: {record.unusable or 'it is missing or damaged.'}")
        elif table.facts.get("distributed"):
            try:
                member = rank_table.of_table(table)
            except InputError as error:
                problems.append(str(error))
            else:
                path = str(run.folder / record.name / (record.trace or KERNELS))
                found.append((record.name, dataclasses.replace(member, path=path)))
    return found, problems if found else []


def _with_detail(report: RanksReport, run: Run, names: dict[int, str]) -> RanksReport:
    from perfkit.analysis.report.analyse import analyse as analyse_run

    rank, why = detail.chosen(report.parts, report.stragglers)
    one = analyse_run(_only(run, names[rank]))
    return msgspec.structs.replace(
        report,
        title=f"{one.title}, {report.title}",
        detail=one,
        detail_rank=rank,
        detail_why=why,
    )


def _only(run: Run, name: str) -> Run:
    """The run with the process `name` alone."""
    kept = [backend for backend in run.manifest.backends if backend.name == name]
    manifest = msgspec.structs.replace(run.manifest, backends=kept)
    return dataclasses.replace(run, manifest=manifest, tables={name: run.tables[name]})


def output_of(job: GroupReport) -> Output:
    """The report of the ranks, then of one in detail, and where the others are."""
    from perfkit.cli.parts.reported import answers
    from perfkit.render.page import below
    from perfkit.render.pages import ranks as ranks_page
    from perfkit.render.report import report_page

    of_ranks = ranks_page.page(job.report)
    heading = detail.heading(job.report)
    files = {
        "html": lambda: ranks_page.render_job(of_ranks, job.report, draw(job.ranks), answers(job.detail, job.of_one)),
        "csv": lambda: "\n".join(ranks_page.summary_rows(job.report.parts)) + "\n",
    }
    return Output(
        job.report, lambda form: below(of_ranks, heading, report_page(job.detail, form)), "report", files,
        lambda: {"": draw(job.ranks).joined()}, job.detail, _others(job),
    )  # fmt: skip


def _others(job: GroupReport) -> list[tuple[str, str]]:
    """The command for the first of the ranks that are not in detail; nothing where all are."""
    others = [name for rank, name in sorted(job.names.items()) if rank != job.report.detail_rank]
    more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
    return [("Other ranks", f"perfkit report {job.run.folder / others[0] / KERNELS}{more}")] if others else []
