"""`perfkit report RANK0 RANK1 …`: traces of several ranks among what is reported on."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.cli.parts import shown
from perfkit.cli.parts.output import Destination, put
from perfkit.errors import InputError
from perfkit.render.output import Output

if TYPE_CHECKING:
    from perfkit.ranks.drawing import Drawing
    from perfkit.ranks.rank_group import RankGroup
    from perfkit.ranks.rank_table import RankTable
    from perfkit.ranks.results import RanksReport
    from perfkit.table import KernelTable

NAME = "report-ranks"


def report_ranks(paths: list[Path], wanted: Destination) -> list[Path]:
    """Report on the traces of ranks among `paths`, if there are two or more; return the other paths, in order.

    A folder that is not a run folder means the traces in it.
    """
    files, ranks = _ranks_among(paths)
    if len(ranks) < 2:
        return files
    members, problems = _read(ranks)
    if len(members) < 2:
        for problem in problems:
            print(f"Not compared with other ranks: {problem}", file=sys.stderr)
        return files
    from perfkit.ranks import link_context
    from perfkit.ranks.analyse import of_job
    from perfkit.ranks.rank_group import together

    job, run = together(members), link_context.run_of(members)
    found = of_job(job, problems, link_context.roofs(members, run), link_context.environment(run))
    put(_output(found, job), replace(wanted, name=NAME))
    return [file for file in files if file not in ranks]


def _ranks_among(paths: list[Path]) -> tuple[list[Path], list[Path]]:
    """The files that `paths` mean, and those of them that are traces of ranks, where there are several files."""
    from perfkit.readers import several

    files = [file for path in paths for file in several.traces_of(path)]
    return files, [file for file in files if several.is_of_a_rank(file)] if len(files) > 1 else []


def _output(found: RanksReport, job: RankGroup) -> Output:
    from perfkit.ranks.drawing import draw
    from perfkit.render.pages import ranks as ranks_page

    made = ranks_page.page(found)
    files = {
        "html": lambda: ranks_page.render_html(made, draw(job)),
        "csv": lambda: "\n".join(ranks_page.summary_rows(found.parts)) + "\n",
    }
    return Output(found, lambda form: made, NAME, files, lambda: {"": draw(job).joined()})


def _read(paths: list[Path]) -> tuple[list[RankTable], list[str]]:
    """The ranks whose traces could be read, and a sentence for each other."""
    from perfkit.ranks.rank_table import of_table
    from perfkit.readers import several

    with shown.progress() as say:
        return several.read_all(paths, of_table, lambda text: say("ranks", f"reading{shown.FURTHER}{text}"))


def drawn(paths: list[Path]) -> tuple[Drawing, list[str]] | None:
    """The ranks whose traces are among `paths`, with all columns of their tables, and what is left out of them.

    None where there are not two. Raises `InputError` where they are not of one job, or one of them can be read at most.
    """
    from perfkit.ranks.drawing import draw
    from perfkit.ranks.rank_group import together
    from perfkit.readers import several

    _, ranks = _ranks_among(paths)
    if len(ranks) < 2:
        return None
    with shown.progress() as say:
        read, problems = several.read_all(
            ranks, _with_table, lambda text: say("ranks", f"reading{shown.FURTHER}{text}")
        )
    if len(read) < 2:
        raise InputError(" ".join(problems), "Give traces of several ranks of one job.")
    job = together([member for member, _ in read])
    return draw(job, {member.rank: table for member, table in reversed(read)}), [*problems, *job.said]


def _with_table(table: KernelTable) -> tuple[RankTable, KernelTable]:
    from perfkit.ranks.rank_table import of_table

    return of_table(table), table
