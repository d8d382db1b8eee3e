"""`perfkit ceilings`: the roofs of this machine, as measured here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from perfkit import units
from perfkit.cli.parts import options
from perfkit.cli.parts.shown import progress

if TYPE_CHECKING:
    from rich.console import Console

    from perfkit.hardware.ceilings import Ceilings
    from perfkit.hardware.collectives.results import CollectiveSweep


def ceilings(
    device: Annotated[str, typer.Option(help="cpu, cuda, or cuda:N.")] = "cpu",
    ranks: Annotated[
        int, typer.Option(help="Also of collectives between this many processes: NCCL on GPUs, gloo on the CPU.")
    ] = 1,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Measure again, even if the stored figures are still valid.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show the limits of this machine: bandwidth by working set, FLOP/s by arithmetic unit, and their uncertainty.

    Measured once (about 20 seconds) and stored. Every efficiency that perfkit prints refers to these figures. With
    --ranks also latency and bandwidth of each collective by message size, which `perfkit report` of ranks and
    `perfkit scale` refer to.
    """
    from perfkit.hardware.ceilings import to_json
    from perfkit.hardware.store import load_or_measure, load_or_measure_collectives

    def tell(text: str) -> None:
        say("ceilings", text)

    with progress() as say:
        if ranks == 1:
            found = load_or_measure(device, refresh, tell)
        else:
            found = load_or_measure_collectives(ranks, device, refresh, tell)
    if as_json:
        sys.stdout.write(to_json(found).decode() + "\n")
    else:
        from rich.console import Console

        _print(found, Console(highlight=False))


def _print(found: Ceilings, console: Console) -> None:
    took = f", {found.duration_s:.0f} s" if found.duration_s else ""
    console.print(f"[bold]{found.device_name or found.device}[/bold], {found.threads} threads")
    console.print(f"measured {found.measured_at}{took}; fingerprint {found.fingerprint}", style="dim")
    console.print()
    _print_memory(found, console)
    _print_compute(found, console)
    for rate in found.attention:
        each = (
            f"{units.text(one, 'FLOP/s')} {way}"
            for way, one in (("forward", rate.forward), ("backward", rate.backward))
        )
        console.print(f"causal attention in bf16, heads of {rate.head}, T = {rate.length}: {', '.join(each)}")
    if found.region_s:
        console.print(f"an empty parallel region of {found.threads} threads takes {found.region_s * 1e6:.2f} µs")
    if found.handover:
        console.print(f"what other threads wrote is read at {units.text(found.handover, 'B/s')}")
    for check in found.checks:
        mark = {True: "[green]✓[/green]", False: "[red]✗[/red]", None: "[dim]–[/dim]"}[check.ok]
        console.print(f"{mark} {check.name}: {check.text}")
    _print_collectives(found, console)
    told = {check.text for check in found.checks}
    for warning in found.warnings:
        if warning not in told:
            console.print(f"[yellow]![/yellow] {warning}")


def _print_memory(found: Ceilings, console: Console) -> None:
    """One row a working set: what was reached there, and the roofs that follow (never below a larger set's)."""
    from rich.table import Table

    table = Table(title="Memory", title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for column in ("working set", "fits", "measured", "roof", "in place", "read", "spread"):
        table.add_column(column, justify="left" if column == "fits" else "right")
    table.add_column("reached by")
    scale = units.scale_for([rate for _, rate in found.bandwidth], "B/s")
    in_place = dict(found.envelope(in_place=True)) if found.in_place else {}
    reading = dict(found.reading_envelope())
    for (size, rate), (_, roof) in zip(found.bandwidth, found.envelope(), strict=True):
        made = next((c for c in found.details if c.working_set == size), None)
        level = found.level_of(size)
        table.add_row(
            units.text(size, "iB"),
            level if level in found.caches else "–",
            scale.text(rate),
            scale.text(roof),
            scale.text(in_place.get(size)),
            scale.text(reading.get(size)),
            units.text(made.spread, "%") if made else units.ABSENT,
            f"{made.name}: {made.how}" if made else units.ABSENT,
        )
    console.print(table)
    paper = found.datasheet.get("memory")
    beside = scale.text(paper) if paper else "unknown"
    alone = f", {scale.text(found.reading_envelope()[-1][1])} of reads alone" if found.reading else ""
    console.print(f"main memory {scale.text(found.dram_bandwidth)}{alone}, datasheet {beside}\n")


def _print_compute(found: Ceilings, console: Console) -> None:
    from rich.table import Table

    from perfkit.hardware.ceilings import FUNCTIONS

    table = Table(title="Arithmetic", title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for column in ("unit", "measured", "datasheet", "of it", "spread"):
        table.add_column(column, justify="left" if column == "unit" else "right")
    table.add_column("reached by")
    scale = units.scale_for(found.compute.values(), "FLOP/s")
    for resource, rate in found.compute.items():
        made, datasheet = found.compute_for(resource), found.datasheet.get(resource)
        table.add_row(
            resource.replace("_", " "),
            scale.text(rate),
            scale.text(datasheet) if datasheet else "unknown",
            units.text(rate / datasheet if datasheet else None, "%"),
            units.text(made.spread, "%") if made else units.ABSENT,
            f"{made.name}: {made.how}" if made else units.ABSENT,
        )
    console.print(table)
    for resource, rates in found.libraries.items():
        many = resource == FUNCTIONS
        each = [f"{name} {f'{rate / 1e9:.1f} G/s' if many else scale.text(rate)}" for name, rate in rates.items()]
        console.print(f"{'exponentials' if many else resource.replace('_', ' ')} by library: {', '.join(each)}")
    console.print()


def _print_collectives(found: Ceilings, console: Console) -> None:
    """Return for each number of ranks two tables by message size: bus bandwidth, and the time of a call."""
    for ranks in dict.fromkeys(sweep.ranks for sweep in found.collectives):
        sweeps = [sweep for sweep in found.collectives if sweep.ranks == ranks]
        named = f"between {ranks} ranks, {sweeps[0].carrier}, {sweeps[0].measured_at}"
        rates = [[sweep.bus_bandwidth(point.bytes) for point in sweep.points] for sweep in sweeps]
        times = [[point.seconds * 1e9 for point in sweep.points] for sweep in sweeps]
        scale = units.scale_for([rate for of_one in rates for rate in of_one if rate], "B/s")
        console.print()
        _print_by_size(f"Bus bandwidth {named}", sweeps, [[scale.text(r) for r in of_one] for of_one in rates], console)
        console.print()
        _print_by_size("Time of a call", sweeps, [[units.text(ns, "ns") for ns in of_one] for of_one in times], console)


def _print_by_size(title: str, sweeps: list[CollectiveSweep], columns: list[list[str]], console: Console) -> None:
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for name in ("message", *(sweep.operation for sweep in sweeps)):
        table.add_column(name.replace("_", " "), justify="right")
    for point, *cells in zip(sweeps[0].points, *columns, strict=True):
        table.add_row(units.text(point.bytes, "iB"), *cells)
    console.print(table)
