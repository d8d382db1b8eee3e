"""`perfkit explain`: what a finding means, and what helps."""

from __future__ import annotations

from typing import Annotated

import typer


def explain(
    name: Annotated[
        str, typer.Argument(help="A finding's name, as reports print it; all are listed without one.")
    ] = "",
) -> None:
    """Explain a finding: what it is, how it is recognised, what its estimate assumes, what helps."""
    from perfkit.analysis.rules import RULES, by_name
    from perfkit.render import explanations
    from perfkit.workloads.choices import unknown

    if not name:
        typer.echo(explanations.listing(RULES))
        return
    known = by_name()
    if name not in known:
        raise unknown("finding", name, known)
    typer.echo(explanations.text(known[name]))
