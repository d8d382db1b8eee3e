"""One try: of a workload where the program is `perfkit run`, else of any program."""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit.cli.parts import options, output, shown
from perfkit.errors import UsageError
from perfkit.render.output import of_page
from perfkit.run_folder import stamp

if TYPE_CHECKING:
    from perfkit.cli.parts.output import Destination
    from perfkit.compare.metrics import VerdictRule
    from perfkit.compare.stopping import StoppingRule
    from perfkit.tries.interleaved import Progress, TimedCommand
    from perfkit.tries.results import Try
    from perfkit.tries.trees import SideNames, SourceChange, Tree
    from perfkit.tries.workload import TriedWorkload


def tried(
    program: TimedCommand,
    asked: SideNames,
    plan: StoppingRule,
    rule: VerdictRule,
    log: Path | None,
    wanted: Destination,
) -> int:
    """Measure both sides, decide, log and show it; return the exit code.

    Raises `UsageError` for a program that cannot be run or tried.
    """
    from perfkit.render.pages import tries as rendered
    from perfkit.tries import log as logs
    from perfkit.tries.results import ACCEPT
    from perfkit.tries.trees import copies

    with shown.progress() as say, copies(asked, Path.cwd()) as (sides, change):
        done = _measured(program, sides, change, plan, rule, say)
        if asked.keep and done.decision == ACCEPT:
            _keep(done, asked.patch)
        logs.append(log or logs.root(), done, change)
    output.put(of_page(done, rendered.page(done), "try"), wanted)
    return 0 if done.decision == ACCEPT else 1


def _keep(done: Try, patch: str) -> None:
    """Apply an accepted patch to the folder itself, and note it where that cannot be: it changed meanwhile."""
    from perfkit.tries.trees import keep

    try:
        keep(patch, Path.cwd())
        done.kept = True
    except UsageError as error:
        done.notes.append(f"The folder is not changed. {error.message}")


def _measured(
    program: TimedCommand,
    sides: Sequence[Tree],
    change: SourceChange,
    plan: StoppingRule,
    rule: VerdictRule,
    say: Progress,
) -> Try:
    """Measure both sides and decide."""
    from perfkit.tries import decide, interleaved, workload

    run = _of_run(program.command)
    if run is None and shutil.which(sides[0].moved(program.command[0])) is None:
        raise UsageError(f"{program.command[0]} is not a program that can be run.", "perfkit try -- python train.py")
    number = f"{stamp()}-{secrets.token_hex(2)}"
    with tempfile.TemporaryDirectory(prefix="perfkit-try-") as place:
        if run is not None:
            measured = workload.measure(_known(run, sides[0]), sides, plan, Path(place), say)
        else:
            watched = [str(place / file) for side in sides for place in (side.original, side.root)
                       for file in change.files if file.endswith(".py")]  # fmt: skip
            order = dataclasses.replace(program.order, watched=tuple(dict.fromkeys(watched)))
            measured = interleaved.measure(dataclasses.replace(program, order=order), sides, plan, Path(place), say)
    return decide.made(program.command, change, measured, plan, rule, number)


def _of_run(command: Sequence[str]) -> list[str] | None:
    """The arguments of `perfkit run`, or None for any other program."""
    words = list(command)
    if words[1:3] == ["-m", "perfkit"]:
        words = ["perfkit", *words[3:]]
    return words[2:] if Path(words[0]).name == "perfkit" and words[1:2] == ["run"] else None


def _known(arguments: list[str], before: Tree) -> TriedWorkload:
    """The workload that `perfkit run ARGUMENTS` is about, as it is before the change.

    Raises `UsageError` for what a try cannot measure.
    """
    from perfkit.tries.workload import TriedWorkload
    from perfkit.workloads import loader
    from perfkit.workloads.settings import resolve_settings

    given, name, backends = _parsed([before.moved(word) for word in arguments])
    if len(backends) != 1:
        raise UsageError("A try is of one backend.", "Name one with --backend.")
    if given["ranks"] > 1 or given["hosts"] > 1 or given["generate"]:
        raise UsageError("A try of a workload is of a step in one process.", "Leave out --ranks and --generate.")
    here = Path.cwd()
    os.chdir(before.cwd)  # what is named relative to the folder is in the copy
    try:
        chosen = loader.find(name)
        settings = resolve_settings(chosen, **given)
    finally:
        os.chdir(here)
    import perfkit

    in_copy = Path(settings.workload).is_relative_to(before.root)
    if not (in_copy or before.original == Path(perfkit.__file__).resolve().parents[1]):
        raise UsageError(f"{name} is not in {before.original}, so no change of it is seen.", "Start in its folder.")
    return TriedWorkload(settings, backends[0])


def _parsed(arguments: list[str]) -> tuple[dict[str, Any], str, list[str]]:
    """Fields of `Settings`, the workload, and the backends that arguments of `perfkit run` name."""
    import typer

    from perfkit.cli import application
    from perfkit.cli.run import run

    group: Any = typer.main.get_command(application("run"))
    with group.commands["run"].make_context("run", arguments) as context:
        values = dict(context.params)
    given = run.given_of(values)  # type: ignore[attr-defined]
    batch = options.whole_numbers("--batch-size", given.pop("batch_size"))
    given["batch_size"] = batch[0] if batch else None
    return given, values["workload"], options.names(values["backend"])
