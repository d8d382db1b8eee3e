"""`perfkit capture` with torch.profiler: the program's streams are its own, so all that is said goes to stderr."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.cli.parts import shown
from perfkit.cli.parts.shown import FURTHER
from perfkit.run_folder import read_manifest, usual_folder

if TYPE_CHECKING:
    import typer

    from perfkit.capture import counted
    from perfkit.capture.agent.order import Order
    from perfkit.cli.parts.output import Destination


def capture(
    command: Sequence[str],
    order: Order,
    out: Path | None,
    backend: str,
    overwrite: bool,
    form: Destination,
    counters: counted.CounterPlan | None = None,
    reported: bool = True,
) -> int:
    """Capture `command` into the run folder `out`, with `counters` under ncu a second time, and report on it if it is
    to be `reported`; the program's own exit code, 1 where that is 0 and nothing was recorded, or counted."""
    from perfkit.capture import failures, program
    from perfkit.cli.parts import memory
    from perfkit.cli.parts.reported import program_report

    folder = out or _folder(command)
    started = program.CapturedProgram(list(command), order, folder, backend, overwrite, counters)
    with said() as say:
        code, problem = program.capture(started, say)
    memory.explain_failures(failures.folder_of(folder))
    if problem is not None:
        shown.complain(str(problem))
        return code or problem.exit_code
    unusable = reported and program_report(folder, form)
    lacking = counters is not None and not read_manifest(folder).backends[0].nsight
    return code or int(unusable or lacking)


def capture_elsewhere(
    context: typer.Context,
    host: str,
    python: str,
    command: Sequence[str],
    out: Path | None,
    overwrite: bool,
    form: Destination,
) -> int:
    """Capture `command` on another machine with our streams, and report here; return the exit code as of `capture`."""
    from perfkit.cli.parts import elsewhere
    from perfkit.cli.parts.reported import program_report

    folder = out or _folder(command)
    code, brought = elsewhere.do(context, host, python, folder, overwrite, heard=True)
    unusable = brought and program_report(folder, form)
    return code or int(unusable)


@contextlib.contextmanager
def said() -> Iterator[Callable[[str, str], None]]:
    """A function `(who, what)` that says on stderr what is being done: a line a stage, on a terminal how far it is too.

    Nothing is drawn while nothing is said: the terminal is the program's.
    """
    begun: set[str] = set()
    live = sys.stderr.isatty()
    drawn = False

    def say(who: str, what: str) -> None:
        """Print a stage once, and on a terminal how far it is."""
        nonlocal drawn
        stage = f"{who}: {what.partition(FURTHER)[0]}"
        if live and FURTHER in what:
            print(f"\r\033[Kperfkit: {who}: {what}", end="", file=sys.stderr, flush=True)
            drawn = True
        elif stage not in begun:
            print("\n" * drawn + f"perfkit: {stage}", file=sys.stderr, flush=True)
            drawn = False
        begun.add(stage)

    yield say
    if drawn:
        print(file=sys.stderr)


def _folder(command: Sequence[str]) -> Path:
    from perfkit.capture import program

    return usual_folder(_word(program.title_of(command)))


def _word(title: str) -> str:
    """A title as the name of a folder."""
    import re

    return re.sub(r"[^\w.-]+", "-", title.removesuffix(".py")).strip(".-") or "program"
