"""Messages of commands on stderr: progress, and what went wrong."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from perfkit.errors import Unavailable, torch_installed

FURTHER = " · "  # in what is being done, between the stage and how far it is: "timing · round 2 of 8"


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str, str], None]]:
    """A function `(who, what)` that shows what is being done: a live line on a terminal, elsewhere a line a stage.

    `what` is a stage, or a stage, `FURTHER` and how far it is.
    """
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    started = time.monotonic()
    if console.is_terminal:
        with console.status("starting") as status:
            yield lambda who, what: status.update(f"[bold]{who}[/bold] {what}  [dim]{time.monotonic() - started:.0f} s")
        return
    begun: set[str] = set()

    def line(who: str, what: str) -> None:
        stage = f"{who}: {what.partition(FURTHER)[0]}"
        if stage not in begun:
            begun.add(stage)
            print(f"[{time.monotonic() - started:5.0f} s] {stage}", file=sys.stderr, flush=True)

    yield line


def need_torch(command: str) -> None:
    """Raise `Unavailable` where PyTorch is not installed, which `command` runs."""
    if not torch_installed():
        raise Unavailable(
            f"PyTorch is not installed, and `{command}` runs it.", "Install it: pip install 'perfkit[run]'."
        )


def complain(sentence: str) -> None:
    """Print what went wrong on stderr, as errors are printed, where the command goes on."""
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True, highlight=False, soft_wrap=True).print(Text.assemble(("perfkit: ", "bold red"), sentence))
