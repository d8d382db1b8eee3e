"""`perfkit data`: data for workloads, made here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfkit import units
from perfkit.cli.parts.shown import progress
from perfkit.errors import UsageError

app = typer.Typer(help="Make data for workloads.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass  # so that `criteo` stays a command of its own while it is the only one


@app.command("criteo")
def criteo(
    out: Annotated[Path, typer.Option(help="The parquet file to write, with its metadata next to it as JSON.")],
    rows: Annotated[int, typer.Option(min=1, help="Rows to write.")] = 1_000_000,
    largest: Annotated[int, typer.Option(min=1, help="Maximum number of values of a categorical feature.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same rows.")] = 1337,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
) -> None:
    """Write click data in Criteo's schema for `perfkit run dlrm --data FILE`.

    The values are synthetic. They are skewed within each feature like real ones, have the cardinalities of Criteo's
    Kaggle data up to --largest, and influence the click.
    """
    from perfkit.workloads.criteo import metadata_path, write_clicks

    if out.suffix == ".json":
        raise UsageError(f"{out} would be its own metadata.", "Name it with .parquet.")
    there = [path for path in (out, metadata_path(out)) if path.exists()]
    if there and not overwrite:
        raise UsageError(f"{there[0]} is there already.", "--overwrite replaces it.")
    out.parent.mkdir(parents=True, exist_ok=True)
    with progress() as say:
        write_clicks(out, rows, largest, seed, lambda done: say("criteo", f"writing · {done:,} of {rows:,} rows"))
    for path in (out, metadata_path(out)):
        typer.echo(f"{units.text(path.stat().st_size, 'B'):>10}  {path}")
