"""`--on USER@HOST`: a command that is done on another machine, and reported here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

from perfkit.errors import UsageError

HERE = (
    "on",
    "remote_python",
    "out",
    "overwrite",
    "as_json",
    "brief",
    "limit",
    "annotate",
    "no_report",
)  # what is done here


def do(
    context: typer.Context, host: str, python: str, out: Path, overwrite: bool, heard: bool = False
) -> tuple[int, bool]:
    """Do the command of `context` on `host`; its exit code there, and whether there is a run folder at `out` now.

    With `heard` it is given our input. Raises `UsageError` for `python` without a host.
    """
    from perfkit.remote import session
    from perfkit.remote.agent import OUT

    if not host:
        raise UsageError("--remote-python belongs to --on.", "Write --on user@host.")
    given, positional = _given(context)
    arguments = [str(context.command.name), *given, "--no-report", "--out", OUT, *positional]
    return session.do(session.RemoteCommand(host, arguments, out, overwrite, python, heard), _say)


def _given(context: typer.Context) -> tuple[list[str], list[str]]:
    """The options that were typed, and the arguments after them, as they are written there."""
    options: list[str] = []
    arguments: list[str] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in HERE or source is None or source.name != "COMMANDLINE":
            continue
        value = context.params[name]
        values = [value] if isinstance(value, str) or not isinstance(value, list | tuple) else list(value)
        if parameter.param_type_name == "argument":
            arguments += map(_below_here, values)
        elif value is True:
            options.append(parameter.opts[0])
        else:
            options += [f"{parameter.opts[0]}={_below_here(one)}" for one in values]
    return options, ["--", *arguments]


def _below_here(value: Any) -> str:
    """A path below this folder lies below another there."""
    return str(value).removeprefix(f"{Path.cwd()}/")


def _say(who: str, what: str) -> None:
    print(f"perfkit: {who}: {what}", file=sys.stderr, flush=True)
