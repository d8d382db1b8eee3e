"""`perfkit skill`: a guide for code agents."""

from __future__ import annotations

import typer


def skill() -> None:
    """Print a guide for code agents: when to use which command, how to read answers, and what never to claim."""
    from perfkit.agents.guide import GUIDE

    typer.echo(GUIDE, nl=False)
