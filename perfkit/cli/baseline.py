"""`perfkit baseline`: runs kept under a name, to compare with later, and what became of them over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfkit.cli.parts import options
from perfkit.cli.parts.output import Destination, json_of, put
from perfkit.errors import CheckFailed, InputError
from perfkit.render.output import of_page

if TYPE_CHECKING:
    from perfkit.compare.sides import Side

app = typer.Typer(help="Save a run under a name and compare later runs with it.", no_args_is_help=True)


@app.command("save")
def save(
    name: Annotated[str, typer.Argument(help="Letters, digits, dots, dashes and underscores.")],
    run: Annotated[str, typer.Argument(help="A run folder, a profile, or a measured comparison.")],
) -> None:
    """Save a run as the newest record of NAME, which `perfkit compare NAME …` compares with.

    Records are stored in .perfkit/baselines or in the folder that PERFKIT_BASELINES names. Traces are not copied.
    """
    from perfkit.compare import baselines, sources

    target = sources.find(run)
    if target is None:
        raise InputError(f"{run} is not a run folder, profile or saved baseline.", "Give what `perfkit run` printed.")
    if target.wanted:
        raise InputError(
            f"A baseline keeps all of {target.path}.", f"Save it, then compare with {name}:{target.wanted}."
        )
    sides = sources.load(target)
    wrong = next((side for side in sides if side.backend.status in ("wrong", "failed")), None)
    if wrong:
        raise CheckFailed(
            f"{wrong.label} is {wrong.backend.status}: it cannot be a baseline.", "Mend it, and run again."
        )
    manifest = sides[0].manifest
    path = target.path.parent if target.path.name == "run.json" else target.path
    saved = baselines.save(name, path, {side.label: _metrics(side) for side in sides},
                           manifest.fingerprint if manifest else "")  # fmt: skip
    typer.echo(f"Saved {name} ({', '.join(side.label for side in sides)}): {saved.folder}")


def _metrics(side: Side) -> dict[str, float]:
    """Return the values of a side that may be plotted, by metric, in base units."""
    import numpy as np

    found: dict[str, float | None] = {
        "step": float(np.median(side.step.values)) if side.step and side.step.values else None,
        "memory": float(np.median(side.memory.values)) if side.memory else None,
        "efficiency": side.backend.efficiency,
        "kernels": side.backend.kernel_ns or None,
    }
    found |= {f"pass:{g.key}": g.time_ns for g in side.backend.passes}
    found |= {f"family:{g.key}": g.time_ns for g in side.backend.families}
    return {name: value for name, value in found.items() if value is not None}


@app.command("list")
def list_() -> None:
    """List the saved baselines: name, records, and age and sides of the newest record."""
    from perfkit.compare import baselines
    from perfkit.render import page
    from perfkit.render.cells import figures, table, words

    names = baselines.names()
    if not names:
        typer.echo(f"No baselines in {baselines.root()}: `perfkit baseline save NAME RUN` saves one.")
        return
    found = [baselines.records(name) for name in names]
    made = table(
        f"Baselines in {baselines.root()}",
        words("name", names, ["strong"] * len(names), name=True),
        figures("records", [float(len(r)) for r in found], "count"),
        words("newest", [r[-1].record.saved[:16].replace("T", " ") for r in found]),
        words("sides", [", ".join(r[-1].record.metrics) for r in found]),
        words("from", [r[-1].record.source for r in found], least=16, priority=1),
    )
    page.show(page.Page(title="", sections=[page.Section(table=made)]))


@app.command("rm")
def rm(names: Annotated[list[str], typer.Argument(help="Baselines to delete, with all their records.")]) -> None:
    """Delete baselines."""
    from perfkit.compare import baselines

    for name in names:
        if not baselines.records(name):
            raise InputError(f"There is no baseline {name}.", "`perfkit baseline list` shows them.")
    for name in names:
        typer.echo(f"Deleted {name}: {baselines.remove(name)} records")


@app.command("history")
def history(
    names: Annotated[list[str], typer.Argument(help="Baselines to plot, with one line per side.")],
    metric: Annotated[str, typer.Option(help="step, memory, efficiency, kernels, pass:NAME or family:NAME.")] = "step",
    out: Annotated[Path | None, typer.Option(help="Folder for history.html and history.md.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Plot a metric over the records of baselines, and mark its steps.

    A step is where the values before and after differ by rank, at 5 % corrected for the places tried, and by 2 %.
    """
    from perfkit.compare import baselines, history
    from perfkit.render.pages import history as rendered

    saved = {name: baselines.records(name) for name in names}
    for name, found in saved.items():
        if not found:
            raise InputError(f"There is no baseline {name}.", "`perfkit baseline list` shows them.")
    known = [(name, [(r.record.saved, r.record.metrics, r.record.machine) for r in saved[name]]) for name in saved]
    lines = history.lines(known, metric)
    put(of_page(lines, rendered.page_of(metric, lines), "history"), Destination(out, ("html", "md"), json_of(as_json)))
