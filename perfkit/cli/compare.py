"""`perfkit compare`: what differs between runs, profiles, backends or workloads, and whether it is more than noise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfkit.cli.parts import options
from perfkit.cli.parts.output import Destination, Json, json_of, put, write
from perfkit.cli.parts.shown import progress
from perfkit.errors import UsageError
from perfkit.settings import MEASURE, without

if TYPE_CHECKING:
    from perfkit.compare.metrics import VerdictRule
    from perfkit.compare.results import Comparison
    from perfkit.compare.sides import Side

# The launches are in turns, of a process each: what these are does not apply, or is given otherwise.
ASKED = without(
    ("generate", "executors", "ranks", "parallel", "hosts", "steps", "warmup", "profiler", "profile_memory",
     "lines", "launch_blocking")
)  # fmt: skip
_work, _measured, _verdict, _output = map(options.panel, (options.WORK, MEASURE, "Verdict and gate", "Output"))
REGRESSED, CANNOT_TELL = 1, 3
_ON_CANNOT_TELL = {"pass": 0, "fail": 1, "3": CANNOT_TELL}


@options.from_settings(ASKED, panels=dict.fromkeys(("seed", "weights", "data"), options.WORK))
def compare(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="Run folders, profiles or saved baselines (PATH or PATH:BACKEND), with the base first; or "
            "workloads, which are measured now."
        ),
    ] = None,
    backend: Annotated[str, _measured("Backends of workloads that are measured now, separated by commas.")] = "",
    launches: options.Launches = 20,
    early: options.Early = True,
    precision: Annotated[
        str,
        _measured("Continue, after all launches, until every ratio is this precise, such as 1%, or the time limit."),
    ] = "",
    time_limit: options.TimeLimit = 1800.0,
    check: Annotated[bool, _measured("Check results against the reference first.", "--check/--no-check")] = True,
    skip_unavailable: Annotated[
        bool, _measured("Continue without backends that cannot run here.", "--skip-unavailable")
    ] = False,
    self_test: Annotated[
        bool, _measured("Compare a workload with itself, and report false alarms.", "--self-test")
    ] = False,
    tries: Annotated[int, _measured("Number of comparisons in the self-test.")] = 20,
    *,
    given: options.Given,
    executors: Annotated[
        list[str] | None,
        _work(
            "Thunder's executors, by priority, separated by commas; repeated: a side each, on thunder where no backend "
            "is named. default: Thunder's own list."
        ),
    ] = None,
    fail_on: Annotated[
        list[str] | None, _verdict("Exit with 1 if this is proven, such as 'step>+3%' (repeatable, or commas).")
    ] = None,
    on_cannot_tell: Annotated[
        str, _verdict("Exit code when a condition cannot be decided: 3, pass (0) or fail (1).")
    ] = "3",
    anyway: Annotated[bool, _verdict("Compare sides that were measured differently.", "--anyway")] = False,
    resolution: options.Resolution = "5%",
    allow: Annotated[
        str, _verdict("Allowance that widens the intervals; default: by how the sides were measured.")
    ] = "",
    costs: options.Costs = None,
    out: Annotated[Path | None, _output("Folder for the comparison's files.")] = None,
    overwrite: Annotated[bool, _output("Replace an existing comparison.", "--overwrite")] = False,
    limit: options.Limit = None,
    as_json: options.AsJson = False,
    brief: options.Brief = None,
    as_markdown: Annotated[bool, _output("Print Markdown for a pull request.", "--markdown")] = False,
) -> int:
    """Compare runs, profiles, saved baselines, or backends and workloads measured now: what differs, and is it noise?

    The first side is the base of all others. Exit codes with --fail-on: 0 no regression, 1 a proven regression, 2 the
    sides cannot be compared, 3 cannot tell. Without --fail-on: 1 if the results of a side are wrong.
    """
    from perfkit.compare import gate
    from perfkit.compare.metrics import VerdictRule

    options.use_costs(costs)
    texts = list(targets or [])
    limits = gate.parse(fail_on or [])
    if on_cannot_tell not in _ON_CANNOT_TELL:
        raise UsageError(f"--on-cannot-tell {on_cannot_tell} is not one of 3, pass, fail.", "Leave it out for 3.")
    rule = VerdictRule(options.share(resolution, "--resolution"), options.share(allow, "--allow") if allow else None)
    asked = {**given, "executors": executors or []}
    from perfkit.cli.parts import measured
    from perfkit.compare.sources import check_comparable, sides_of

    answer = json_of(as_json, brief)
    wished = options.share(precision, "--precision") if precision else None
    plan = measured.plan(launches, wished, time_limit, early, rule.resolution)
    if self_test:
        return measured.self_test(texts, backend or "eager", asked, plan, tries, as_json)
    if not texts:
        raise UsageError("Nothing to compare was named.", "Give two run folders, or a workload with --backend.")
    backend = backend or ("thunder" if executors else "")
    if measured.wanted(texts, backend):
        of_each = max(1, len(options.names(backend))) * max(1, len(executors or []))
        _need_two(limits, len(texts) * of_each)
        folder = measured.folder_for(out, texts)
        measured.measure_into(folder, texts, backend or "eager", asked, plan, check, skip_unavailable, overwrite)
        texts = [str(folder)]
        out = folder
    with progress() as say:
        sides = sides_of(texts, say)
        differs = check_comparable(sides, anyway) if len(texts) > 1 else []
        _need_two(limits, len(sides))
        found = _compared(sides, rule, differs, say)
    found.conditions = [c for other in sides[1:] for c in gate.check(sides[0], other, limits, rule)]
    _put(found, out, limit, answer, as_markdown)
    return _exit_code(found, bool(limits), on_cannot_tell)


def _need_two(limits: Sequence[object], sides: int) -> None:
    """Raise `UsageError` for conditions without anything to compare with, before anything is measured."""
    if limits and sides < 2:
        raise UsageError("--fail-on needs two sides.", "Name a baseline and a run, or two backends.")


def _compared(
    sides: Sequence[Side], rule: VerdictRule, differs: list[str], say: Callable[[str, str], None]
) -> Comparison:
    from perfkit.compare.judge import compare as compare_sides
    from perfkit.compare.sources import how_of

    found = compare_sides(sides, rule, how_of(sides, rule), say=say)
    found.created = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    found.command = ["perfkit", *sys.argv[1:]]
    found.differs = differs
    return found


def _put(found: Comparison, out: Path | None, limit: int | None, as_json: Json | None, as_markdown: bool) -> None:
    """Write the comparison where a folder is given, and show it."""
    from perfkit.render.pages import compare as rendered

    rows = rendered.LIMIT if limit is None else limit or None
    made, wanted = rendered.output(found, rows), Destination(out, ("html", "md", "txt", "json"), as_json)
    if as_markdown and not as_json:
        write(made, wanted)
        sys.stdout.write(rendered.render_markdown(found, rows))
    else:
        put(made, wanted)


def _exit_code(found: Comparison, gated: bool, on_cannot_tell: str) -> int:
    if any(side.status in ("wrong", "failed") or side.unusable for side in found.sides):
        return REGRESSED
    outcomes = {c.outcome for c in found.conditions}
    if "regressed" in outcomes:
        return REGRESSED
    return _ON_CANNOT_TELL[on_cannot_tell] if gated and "cannot tell" in outcomes else 0
