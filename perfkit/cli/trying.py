"""`perfkit try`: whether a change helps, and whether the results stay right."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfkit.cli.parts import options

if TYPE_CHECKING:
    from perfkit.tries.trees import Asked

CHANGE, MEASURE, OUTPUT = "The change", "Measurement", "Output"


def try_(
    program: Annotated[
        list[str], typer.Argument(help="The program and its arguments, after two dashes: -- python train.py.")
    ],
    patch: Annotated[
        str, typer.Option(help="A diff: measure without and with it. - reads it from stdin.", rich_help_panel=CHANGE)
    ] = "",
    before: Annotated[
        str,
        typer.Option(
            help="A revision of git, or a folder. Default: the folder as it is with --patch or --after, else HEAD.",
            rich_help_panel=CHANGE,
        ),
    ] = "",
    after: Annotated[str, typer.Option(help="The same; default: the folder as it is.", rich_help_panel=CHANGE)] = "",
    steps: Annotated[int, typer.Option(min=1, help="Timed steps of a run.", rich_help_panel=MEASURE)] = 10,
    warmup: Annotated[int, typer.Option(min=1, help="Steps of a run before them.", rich_help_panel=MEASURE)] = 5,
    whole: Annotated[
        bool, typer.Option("--whole", help="Time the whole program, to its end.", rich_help_panel=MEASURE)
    ] = False,
    launches: Annotated[
        int, typer.Option(help="Launches, each a fresh process of either side.", rich_help_panel=MEASURE)
    ] = 20,
    early: Annotated[
        bool,
        typer.Option("--early/--no-early", help="Stop after 8 where the verdict is clear.", rich_help_panel=MEASURE),
    ] = True,
    time_limit: Annotated[
        float, typer.Option(help="Start no further launch after this many seconds.", rich_help_panel=MEASURE)
    ] = 1800.0,
    resolution: Annotated[
        str, typer.Option(help='The change that "no difference shown" would have found.', rich_help_panel=MEASURE)
    ] = "5%",
    values: Annotated[
        str,
        typer.Option(help="Names of printed values that must stay equal, or parts of them.", rich_help_panel=MEASURE),
    ] = "loss,trl",
    tolerance: Annotated[
        str,
        typer.Option(help="By how much they may differ; default: 0.03% in fp32, 3% in bf16.", rich_help_panel=MEASURE),
    ] = "",
    log: Annotated[
        Path | None,
        typer.Option(help="Folder of the log; default: PERFKIT_TRIES, else .perfkit/tries.", rich_help_panel=OUTPUT),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for try.html, .md and .json.", rich_help_panel=OUTPUT)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.", rich_help_panel=OUTPUT)] = False,
    brief: options.Brief = False,
) -> int:
    """Try a change: run a program before and after it in turns, check its results, and accept or reject it.

    Both sides run in temporary copies, so your folder stays as it is. Exit codes: 0 accept; 1 reject, cannot tell, or
    the program does not run before the change; 2 wrong usage. The answer says which.
    """
    from perfkit.cli.compare import share
    from perfkit.cli.parts import measured
    from perfkit.cli.parts.output import Wanted, json_of, put
    from perfkit.cli.parts.shown import need_torch, progress
    from perfkit.cli.parts.tried import tried
    from perfkit.compare.metrics import Rule
    from perfkit.programs.order import Order
    from perfkit.render.output import of_page
    from perfkit.render.pages import tries as rendered
    from perfkit.tries import log as logs
    from perfkit.tries.trees import copies
    from perfkit.tries.turns import Program

    need_torch("perfkit try")
    answer = json_of(as_json, brief)
    plan = measured.plan(launches, None, time_limit, early)
    rule = Rule(share(resolution, "--resolution"))
    order = Order(warmup, steps, stop=True, lines=False, whole=whole, timed=True)
    allowed = share(tolerance, "--tolerance") if tolerance else None
    asked = Program(program, order, options.names(values), allowed)
    with progress() as say, copies(_asked(patch, before, after), Path.cwd()) as (sides, change):
        done = tried(asked, sides, change, plan, rule, say)
        logs.append(log or logs.root(), done, change)
    put(of_page(done, rendered.page(done), "try"), Wanted(out, as_json=answer))
    return 0 if done.decision == "accept" else 1


def _asked(patch: str, before: str, after: str) -> Asked:
    """The sides that are compared. Raises `UsageError` for a patch that cannot be read."""
    from perfkit.errors import UsageError
    from perfkit.tries.trees import Asked

    if not patch:
        return Asked(before or ("" if after else "HEAD"), after)
    if after:
        raise UsageError("--patch and --after both say what is after.", "Give one of them.")
    try:
        text = sys.stdin.read() if patch == "-" else Path(patch).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{patch} cannot be read: {getattr(error, 'strerror', None) or error}.", "Give a diff."
        ) from error
    if not text.strip():
        raise UsageError(f"The patch {patch} is empty.", "Make one with `git diff`.")
    return Asked(before, before, text)
