"""`perfkit eval`: how well a language model predicts, on each backend."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfkit.cli.parts import options
from perfkit.cli.parts.output import Destination, json_of, put
from perfkit.cli.parts.shown import progress
from perfkit.render.output import of_page

if TYPE_CHECKING:
    from perfkit.workloads.interface import Workload

NAME = "eval"
_LONGEST = 1024  # T where none is given and the model's context is longer, as in llm.c


@options.from_settings(
    ("preset", "variant", "dimensions", "device", "dtype", "batch_size", "sequence_length", "seed", "weights", "data"),
    helps={"data": "Text, llm.c's token file, or its evaluation data (HellaSwag)."},
)
def eval_(
    workload: Annotated[str, typer.Argument(help="gpt2 or llama, or a file with a language model of your own.")],
    backend: Annotated[str, typer.Option(help="Backends, separated by commas; the first is compared with.")] = "eager",
    *,
    given: options.Given,
    batches: Annotated[int, typer.Option(min=0, help="Batches of tokens that count; 0: all of the file.")] = 20,
    out: Annotated[Path | None, typer.Option(help="Folder for eval.html, eval.md and eval.json.")] = None,
    as_json: options.AsJson = False,
) -> int:
    """Evaluate a language model: the loss of tokens, or the accuracy of questions with several endings.

    Each backend is compared with the first one on the same tokens. Exit code 1: one of them failed.
    """
    from perfkit.evaluation import evaluate
    from perfkit.render.pages import evaluation as rendered
    from perfkit.workloads import loader
    from perfkit.workloads.settings import resolve_settings

    chosen = loader.find(workload)
    given["sequence_length"] = given["sequence_length"] or _length(chosen, given["preset"])
    settings = resolve_settings(chosen, **given, training=False, profiler="none")
    named = options.named(options.names(backend))
    options.unavailable_of(named, settings, False)
    with progress() as say:
        found = evaluate(settings, named, batches, lambda text: say(NAME, text))
    put(of_page(found, rendered.page(found), NAME), Destination(out, as_json=json_of(as_json)))
    return int(found.bad)


def _length(workload: Workload, preset: str | None) -> int | None:
    """T by default: the model's context, at most `_LONGEST`; None of a workload or preset without one."""
    dimensions: dict[str, Any] = dict(workload.presets.get(preset or next(iter(workload.presets)), {}))
    return min(dimensions["context"], _LONGEST) if "context" in dimensions else None
