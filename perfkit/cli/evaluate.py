"""`perfkit eval`: how well a language model predicts, on each backend."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfkit.cli.parts import options

if TYPE_CHECKING:
    from perfkit.workloads.interface import Workload

NAME = "eval"
_LONGEST = 1024  # T where none is given and the model's context is longer, as in llm.c


def eval_(
    workload: Annotated[str, typer.Argument(help="gpt2 or llama, or a file with a language model of your own.")],
    data: Annotated[
        str, typer.Option(help="Text, llm.c's token file, or its evaluation data (HellaSwag).")
    ] = "synthetic",
    backend: Annotated[str, typer.Option(help="Backends, separated by commas; the first is compared with.")] = "eager",
    preset: options.Preset = None,
    variant: options.Variant = None,
    dim: options.Dimensions = None,
    device: options.Device = "cpu",
    dtype: options.Dtype = "fp32",
    batch_size: options.BatchSize = None,
    sequence_length: options.SequenceLength = None,
    weights: Annotated[str, typer.Option(help="random, a Hugging Face folder, or an llm.c checkpoint.")] = "random",
    batches: Annotated[int, typer.Option(min=0, help="Batches of tokens that count; 0: all of the file.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of random weights and synthetic tokens.")] = 1337,
    out: Annotated[Path | None, typer.Option(help="Folder for eval.html, eval.md and eval.json.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> int:
    """Evaluate a language model: the loss of tokens, or the accuracy of questions with several endings.

    Each backend is held against the first one on the same tokens. Exit code 1: one of them failed.
    """
    from perfkit.cli.parts.output import Wanted, json_of, put
    from perfkit.cli.parts.shown import progress
    from perfkit.evaluation import evaluate
    from perfkit.render.output import of_page
    from perfkit.render.pages import evaluation as rendered
    from perfkit.workloads import loader
    from perfkit.workloads.settings import resolve_settings

    chosen = loader.find(workload)
    settings = resolve_settings(
        chosen, preset=preset, variant=variant, dimensions=options.dimensions(dim or []), device=device, dtype=dtype,
        batch_size=batch_size, sequence_length=sequence_length or _length(chosen, preset), weights=weights, data=data,
        seed=seed, training=False, profiler="none",
    )  # fmt: skip
    named = options.named(options.names(backend))
    options.unavailable_of(named, settings, False)
    with progress() as say:
        found = evaluate(settings, named, batches, lambda text: say(NAME, text))
    put(of_page(found, rendered.page(found), NAME), Wanted(out, as_json=json_of(as_json)))
    return int(found.bad)


def _length(workload: Workload, preset: str | None) -> int | None:
    """T by default: the model's context, at most `_LONGEST`; None of a workload or preset without one."""
    dimensions: dict[str, Any] = dict(workload.presets.get(preset or next(iter(workload.presets)), {}))
    return min(dimensions["context"], _LONGEST) if "context" in dimensions else None
