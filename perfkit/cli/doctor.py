"""`perfkit doctor`: what this machine can do."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from perfkit.hardware.doctor import Diagnosis

_MARKS = {"ok": "[green]✓[/green]", "limited": "[yellow]~[/yellow]", "missing": "[red]✗[/red]"}


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """Show what this machine has, what is missing and how to get it, and which reports are possible.

    Always exits with 0: a missing part is not an error.
    """
    from perfkit.hardware.doctor import diagnose
    from perfkit.render import json

    diagnosis = diagnose()
    if as_json:
        sys.stdout.write(json.render(diagnosis))
    else:
        _print(diagnosis)


def _print(diagnosis: Diagnosis) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for finding in diagnosis.findings:
        lines = [f"{escape(finding.detail)}  [dim]{finding.purpose}[/dim]".strip()]
        if finding.remedy:
            lines.append(f"[dim]→[/dim] {escape(finding.remedy)}")
        table.add_row(_MARKS[finding.state], finding.name, "\n".join(lines))
    console.print(table, "")
    console.print("Reports possible here", style="bold")
    for level in diagnosis.levels:
        lacks = f"  [dim]lacks {', '.join(level.lacks)}[/dim]" if level.lacks else ""
        console.print(f" {_MARKS['ok' if level.possible else 'missing']} {level.name}{lacks}")
