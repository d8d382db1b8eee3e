"""`perfkit try`: whether a change helps, and whether the results stay right."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfkit.cli.parts import options
from perfkit.cli.parts.output import Destination, json_of
from perfkit.cli.parts.shown import need_torch
from perfkit.errors import UsageError
from perfkit.settings import MEASURE

if TYPE_CHECKING:
    from perfkit.tries.trees import SideNames

_of_change, _of_measurement = options.panel("The change"), options.panel(MEASURE)


def try_(
    program: Annotated[
        list[str], typer.Argument(help="The program and its arguments, after two dashes: -- python train.py.")
    ],
    patch: Annotated[str, _of_change("A diff: measure without and with it. - reads it from stdin.")] = "",
    before: Annotated[
        str,
        _of_change("A revision of git, or a folder. Default: the folder as it is with --patch or --after, else HEAD."),
    ] = "",
    after: Annotated[str, _of_change("The same; default: the folder as it is.")] = "",
    keep: Annotated[bool, _of_change("Apply the patch to the folder itself where it is accepted.", "--keep")] = False,
    steps: Annotated[int, _of_measurement("Timed steps of a run.", min=1)] = 10,
    warmup: Annotated[int, _of_measurement("Steps of a run before them.", min=1)] = 5,
    whole: Annotated[bool, _of_measurement("Time the whole program, to its end.", "--whole")] = False,
    launches: options.Launches = 20,
    early: options.Early = True,
    time_limit: options.TimeLimit = 1800.0,
    resolution: options.Resolution = "5%",
    values: Annotated[
        str, _of_measurement("Names of printed values that must stay equal, or parts of them.")
    ] = "loss,trl",
    tolerance: Annotated[str, _of_measurement("By how much they may differ; default: 0.03% in fp32, 3% in bf16.")] = "",
    log: options.TryLog = None,
    out: Annotated[Path | None, typer.Option(help="Folder for try.html, .md and .json.")] = None,
    as_json: options.AsJson = False,
    brief: options.Brief = None,
) -> int:
    """Try a change: run a program before and after it in turns, check its results, and accept or reject it.

    Both sides run in temporary copies, so your folder stays as it is without --keep. Exit codes: 0 accept; 1 reject,
    cannot tell, or the program does not run before the change; 2 wrong usage. The answer says which.
    """
    from perfkit.capture.agent.order import Order
    from perfkit.cli.parts import measured
    from perfkit.cli.parts.tried import tried
    from perfkit.compare.metrics import VerdictRule
    from perfkit.tries.interleaved import TimedCommand

    need_torch("perfkit try")
    asked, wanted = _asked(patch, before, after, keep), Destination(out, as_json=json_of(as_json, brief))
    plan = measured.plan(launches, None, time_limit, early)
    rule = VerdictRule(options.share(resolution, "--resolution"))
    order = Order(warmup, steps, stop=True, lines=False, whole=whole, timed=True)
    allowed = options.share(tolerance, "--tolerance") if tolerance else None
    return tried(TimedCommand(program, order, options.names(values), allowed), asked, plan, rule, log, wanted)


def _asked(patch: str, before: str, after: str, keep: bool) -> SideNames:
    """Return the sides that are compared. Raises `UsageError` for a patch that cannot be read."""
    from perfkit.tries.trees import SideNames

    if not patch:
        if keep:
            raise UsageError("--keep is about a patch: other changes are in a folder already.", "Give --patch FILE.")
        return SideNames(before or ("" if after else "HEAD"), after)
    if after or (before and keep):
        other = "--after" if after else "--before with --keep"
        raise UsageError(f"--patch and {other} both say what is changed.", "Give one of them.")
    try:
        text = sys.stdin.read() if patch == "-" else Path(patch).read_text()
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or error
        raise UsageError(f"{patch} cannot be read: {said}.", "Give a diff.") from error
    if not text.strip():
        raise UsageError(f"The patch {patch} is empty.", "Make one with `git diff`.")
    return SideNames(before, before, text, keep)
