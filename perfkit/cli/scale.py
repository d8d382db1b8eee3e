"""`perfkit scale`: predict a step on more ranks from a run of one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfkit.cli.parts import options
from perfkit.cli.parts.output import Destination, json_of, put
from perfkit.errors import UsageError
from perfkit.render.output import of_page

if TYPE_CHECKING:
    from perfkit.hardware.collectives.results import CollectiveSweep
    from perfkit.scale.one_rank import OneRank

NAME = "scale"


def scale(
    run: Annotated[Path, typer.Argument(help="A run folder of one rank that trains, or FOLDER:BACKEND.")],
    ranks: Annotated[str, typer.Option(help="Numbers of ranks, separated by commas.")] = "2,4,8",
    parallel: Annotated[
        str,
        typer.Option(help="How they share the work: ddp, fsdp, zero1, separated by commas; default: as the run did."),
    ] = "",
    link: Annotated[
        str,
        typer.Option(
            help="Links inside a host, then between hosts: nvlink4,ndr. Kinds: nvlink3 to 5, pcie4, pcie5, hdr, ndr, "
            "ethernet, or a rate and a latency (50GB/s:5us). Inside a host by default as measured by "
            "`perfkit ceilings --ranks N`, else of the GPU's kind."
        ),
    ] = "",
    per_host: Annotated[int, typer.Option(help="Ranks of a host.")] = 8,
    scaling: Annotated[
        str, typer.Option(help="weak (the batch of each rank stays), strong (of all), or both.")
    ] = "both",
    backend: Annotated[str, typer.Option(help="The run's backend to predict from; default: its first.")] = "",
    out: Annotated[Path | None, typer.Option(help="Folder for scale.html, scale.md and scale.json.")] = None,
    as_json: options.AsJson = False,
    brief: options.Brief = None,
) -> int:
    """Foretell step time, throughput, efficiency and memory on more ranks, from the kernels of one.

    Collectives take what was measured here or what a model of the links says, and overlap with computation as far as
    the schedule of ddp, fsdp or zero1 allows. A run with --parallel and --ranks 1 has what sharing costs the rank
    itself in its step; without it is assumed. Every assumption is printed. Needs no torch and no GPU.
    """
    from perfkit.render.pages import scale as rendered
    from perfkit.scale import links, one_rank, predict

    if scaling not in (*predict.SCALINGS, "both"):
        raise UsageError(f"--scaling {scaling} is not known.", "Choose weak, strong or both.")
    wanted = [_number(text) for text in options.names(ranks)]
    one = one_rank.read_one_rank(*_chosen(run, backend))
    device = one.manifest.settings.device
    network = links.network(link, per_host, device, one.ceilings.device_name, _sweeps(one))
    scalings = predict.SCALINGS if scaling == "both" else (scaling,)
    found = predict.predict(one, network, wanted, options.names(parallel or one.way or "ddp,fsdp"), scalings)
    put(of_page(found, rendered.page(found), NAME), Destination(out, as_json=json_of(as_json, brief)))
    return 0


def _chosen(run: Path, backend: str) -> tuple[Path, str]:
    """The folder and the backend of it: FOLDER:BACKEND names both, as for `perfkit compare`."""
    folder, _, named = str(run).rpartition(":")
    if run.exists() or not folder or not Path(folder).exists():
        return run, backend
    if backend and backend != named:
        raise UsageError(f"{run} and --backend {backend} name two backends.", "Name one.")
    return Path(folder), named


def _number(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"--ranks: {text!r} is not a whole number.", "Write --ranks 8,64.")
    return int(text)


def _sweeps(one: OneRank) -> list[CollectiveSweep]:
    """The sweeps of collectives that the run keeps, else those of this machine, if it is of the same kind."""
    from perfkit.hardware.store import kept_ceilings

    if one.ceilings.collectives:
        return one.ceilings.collectives
    kept = kept_ceilings(one.manifest.settings.device)
    return kept.collectives if kept and kept.device_name == one.ceilings.device_name else []
