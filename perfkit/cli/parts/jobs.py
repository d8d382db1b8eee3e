"""The report of a job: a run folder whose processes are ranks that talk to each other.

It is the report of the ranks together (`perfkit.ranks`), then that of the rank whose own work decides the step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from perfkit.ranks import analyse, beside, detail, members
from perfkit.ranks.drawing import draw
from perfkit.ranks.job import Job as RanksJob
from perfkit.ranks.job import together
from perfkit.run_folder import KERNELS

if TYPE_CHECKING:
    from perfkit.analysis.results import Report
    from perfkit.ranks.members import Member
    from perfkit.ranks.results import RanksReport
    from perfkit.readers.run import Run
    from perfkit.table import KernelTable


@dataclass(frozen=True)
class Job:
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


def of(source: Run | KernelTable) -> Job | None:
    """The job that a captured run is of; None where it is none.

    Where its ranks cannot be compared, the run gets a warning that gives the reason.
    """
    from perfkit.errors import InputError
    from perfkit.readers.run import Run

    if not isinstance(source, Run) or not all(one.own for one in source.manifest.backends):
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
    roofs = beside.roofs(job.ranks, source.folder)
    samples = [one.samples_ns for one in source.manifest.backends]
    report = analyse.of_job(job, problems, roofs, source.manifest.environment, samples)
    names = {member.rank: name for name, member in reversed(found)}
    return Job(source, job, _with_detail(report, source, names), names)


def _warn_of_others(run: Run, member: Member) -> None:
    """Say in a run of one rank that the job has others."""
    if member.world_size > 1:
        run.problems.setdefault("", []).append(
            f"Of {member.world_size} ranks this run has rank {member.rank} alone. `perfkit report` of the traces "
            "of all of them says who waits for whom."
        )


def _members(run: Run) -> tuple[list[tuple[str, Member]], list[str]]:
    """Of each process that is a rank its name and member, and a sentence for each rank that cannot be compared."""
    from perfkit.errors import InputError

    found, problems = [], []
    for record in run.manifest.backends:
        table = run.tables.get(record.name)
        if table is None:
            problems.append(f"{record.name} has no kernel table: {record.unusable or 'it is missing or damaged.'}")
        elif table.facts.get("distributed"):
            try:
                member = members.of_table(table)
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
    kept = [one for one in run.manifest.backends if one.name == name]
    manifest = msgspec.structs.replace(run.manifest, backends=kept)
    return dataclasses.replace(run, manifest=manifest, tables={name: run.tables[name]})


def write(job: Job, out: Path, wanted: Iterable[str], name: str = "report") -> list[Path]:
    """Write the report's files into `out`; what was written."""
    from perfkit.cli.parts import pages, shown
    from perfkit.render import TABLE_FORMATS, csv, markdown, terminal
    from perfkit.render.pages import ranks as ranks_page

    heading = detail.heading(job.report)
    made, drawing, formats = ranks_page.page(job.report), draw(job.ranks), tuple(wanted)
    written = pages.write(
        made, job.report, out, name, formats,
        html=lambda: ranks_page.render_job(made, job.report, drawing, shown.answers(job.detail, job.of_one)),
        md=lambda: f"{pages.page.render_markdown(made)}\n# {heading}\n\n{markdown.render(job.detail)}",
        txt=lambda: f"{pages.page.render_text(made)}\n━━ {heading} ━━\n\n{terminal.render(job.detail)}",
        csv=lambda: "\n".join(ranks_page.summary_rows(job.report.parts)) + "\n",
    )  # fmt: skip
    tables = [out / f"{name}.kernels{TABLE_FORMATS[one]}" for one in formats if one in TABLE_FORMATS]
    for path in tables:
        csv.write_table(drawing.joined(), path)
    return [*written, *tables]


def show(job: Job, as_json: bool = False, limit: int | None = None, on_stderr: bool = False) -> None:
    """Print the report: the ranks, then one in detail, and where the others are."""
    from perfkit import render
    from perfkit.cli.parts import pages
    from perfkit.render import terminal
    from perfkit.render.pages import ranks as ranks_page

    if as_json:
        pages.show(ranks_page.page(job.report), job.report, True)
        return
    console = terminal.console(on_stderr)
    pages.page.show(ranks_page.page(job.report), console)
    console.print(f"\n━━ {detail.heading(job.report)} ━━\n", style="bold")
    render.print_terminal(job.detail, limit, on_stderr)
    others = [name for rank, name in sorted(job.names.items()) if rank != job.report.detail_rank]
    for name in others[:1]:
        more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
        console.print(f"Other ranks: perfkit report {job.run.folder / name / KERNELS}{more}", soft_wrap=True)
