"""Options that several commands share: what is run, with the words that `--help` has for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

WORK = "Workload"

Preset = Annotated[str | None, typer.Option(help="Named dimensions of the model.", rich_help_panel=WORK)]
Variant = Annotated[str | None, typer.Option(help="Alternative form of the model.", rich_help_panel=WORK)]
Dimensions = Annotated[
    list[str] | None,
    typer.Option(help="A dimension of the preset as NAME=VALUE (repeatable), such as layers=4.", rich_help_panel=WORK),
]
Config = Annotated[
    str,
    typer.Option(help="hf: the folder of a config.json, for a model with random weights.", rich_help_panel=WORK),
]
Device = Annotated[str, typer.Option(help="cpu, cuda or cuda:N.", rich_help_panel=WORK)]
Dtype = Annotated[str, typer.Option(help="fp32, tf32 or bf16.", rich_help_panel=WORK)]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", "-B", help="B, samples per batch.", rich_help_panel=WORK)
]
SequenceLength = Annotated[
    int | None, typer.Option("--sequence-length", "-T", help="T, tokens per sample.", rich_help_panel=WORK)
]
GradAccumulation = Annotated[int, typer.Option(help="Batches per training step.", rich_help_panel=WORK)]
Recompute = Annotated[
    bool, typer.Option(help="Recompute the activations of the blocks in the backward pass.", rich_help_panel=WORK)
]
Optimizer = Annotated[
    str,
    typer.Option(
        help="How PyTorch runs the optimizer: default (its own choice), foreach or fused.", rich_help_panel=WORK
    ),
]
Inference = Annotated[bool, typer.Option("--inference", help="Forward only, no gradients.", rich_help_panel=WORK)]
CompileMode = Annotated[
    str, typer.Option(help="Mode of torch.compile: default, reduce-overhead, max-autotune.", rich_help_panel=WORK)
]
Executors = Annotated[
    str, typer.Option(help="Thunder's executors, by priority, separated by commas.", rich_help_panel=WORK)
]
KernelFolders = Annotated[
    list[Path] | None, typer.Option(help="A folder of your own kernels (repeatable).", rich_help_panel=WORK)
]
