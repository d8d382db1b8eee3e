"""`perfkit explain`: what a finding means, and what helps."""

from __future__ import annotations

from typing import Annotated

import typer

from perfkit.workloads.choices import unknown


def explain(
    name: Annotated[
        str, typer.Argument(help="Name of a finding, as reports print it; without one, all are listed.")
    ] = "",
) -> None:
    """Explain a finding: what it means, how it is recognised, what its estimate assumes, and what helps."""
    from perfkit.render import explanations

    if not name:
        typer.echo(explanations.listing(explanations.RULES))
        return
    known = {rule.name: rule for rule in explanations.RULES}
    if name not in known:
        raise unknown("finding", name, known)
    typer.echo(explanations.text(known[name]))
