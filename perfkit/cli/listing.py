"""`perfkit list`: workloads and presets, backends and why one is unavailable, kernels."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from perfkit.cli.parts import options
from perfkit.errors import UsageError


def list_(
    what: Annotated[str, typer.Argument(help="workloads, backends, kernels, or all.")] = "all",
    kernels: options.OwnKernels = None,
    as_json: options.AsJson = False,
) -> None:
    """List what perfkit can run here: workloads with their presets, backends, and hand-written kernels."""
    sections = {"workloads": _workloads, "backends": _backends, "kernels": lambda: _kernels(kernels or [])}
    if what != "all" and what not in sections:
        raise UsageError(f"There is nothing called {what!r} to list.", f"Known: {', '.join(sections)}, all.")
    found = {name: rows() for name, rows in sections.items() if what in ("all", name)}
    if as_json:
        json.dump(found, sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        for name, rows in found.items():
            _print(name, rows)


def _workloads() -> list[dict[str, Any]]:
    from perfkit.workloads import loader

    return [
        {"name": w.name, "presets": list(w.presets), "variants": list(w.variants), "summary": w.reason or w.summary}
        for w in loader.names()
    ]


def _backends() -> list[dict[str, Any]]:
    from perfkit import backends

    return [
        {"name": name, "available": reason is None, "summary": summary, "why not": reason or ""}
        for name, summary, reason in backends.available()
    ]


def _kernels(directories: list[Path]) -> list[dict[str, Any]]:
    from perfkit import kernels

    return [
        {
            "name": operation.name,
            "family": family.name,
            "versions": [f"{i.language} v{i.version}" for i in operation.implementations],
            "formula": operation.formula,
        }
        for family in kernels.catalog([str(d) for d in directories])
        for operation in family.operations
    ]


def _print(title: str, rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for column in rows[0] if rows else ():
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row.values()))
    Console(highlight=False).print(table, "")


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "✓" if value else "✗"
    return ", ".join(value) if isinstance(value, list) else str(value)
