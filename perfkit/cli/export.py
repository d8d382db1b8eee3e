"""`perfkit export`: a model and one batch as the files of another system."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfkit import units
from perfkit.cli.parts.shown import progress
from perfkit.errors import UsageError


def export(
    workload: Annotated[str, typer.Argument(help="gpt2, or for --hf llama.")],
    llmc: Annotated[Path | None, typer.Option(help="Folder for llm.c's files, of gpt2.")] = None,
    hf: Annotated[Path | None, typer.Option(help="Folder for a checkpoint that transformers reads.")] = None,
    preset: Annotated[str | None, typer.Option(help="Named dimensions of the model.")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", "-B", help="B of the batch.")] = None,
    sequence_length: Annotated[int | None, typer.Option("--sequence-length", "-T", help="T of the batch.")] = None,
    weights: Annotated[str, typer.Option(help="random, a Hugging Face folder, or an llm.c checkpoint.")] = "random",
    data: Annotated[str, typer.Option(help="synthetic, a text file or folder, or an llm.c token file.")] = "synthetic",
    tokenizer: Annotated[
        Path | None, typer.Option(help="Folder with a vocabulary: vocab.json and merges.txt, or tokenizer.json.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where the batch runs: cpu, cuda or cuda:N.")] = "cpu",
    seed: Annotated[int, typer.Option(help="Seed of weights and data.")] = 1337,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files of llm.c.")] = False,
) -> None:
    """Write a model as files of another system: llm.c's (--llmc), or a Hugging Face folder (--hf).

    llm.c's are checkpoint, debug state, tokenizer and token data. The debug state holds one batch with the model's
    logits, loss and gradients in fp32. llm.c's test_gpt2 compares its results with them.
    """
    from perfkit.workloads import huggingface, loader
    from perfkit.workloads.llmc.export import export as write
    from perfkit.workloads.settings import resolve_settings

    if llmc is None and hf is None:
        raise UsageError("Nothing says which files to write.", "Give --llmc FOLDER or --hf FOLDER.")
    chosen = loader.find(workload)
    settings = resolve_settings(
        chosen,
        preset=preset,
        batch_size=batch_size,
        sequence_length=sequence_length,
        weights=weights,
        data=data,
        device=device,
        seed=seed,
    )
    files, notes = [], []
    with progress() as say:
        if llmc is not None:
            done = write(chosen, settings, llmc, tokenizer, overwrite, lambda what: say("export", what))
            files, notes = done.files, [f"Loss of the batch: {done.loss:.6f}", *done.notes]
        if hf is not None:
            say("export", "building the model")
            files = files + huggingface.export(chosen, settings, hf, overwrite)
    _print(files, notes)


def _print(files: list[Path], notes: list[str]) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    for path in files:
        console.print(f"{units.text(path.stat().st_size, 'B'):>10}  {path}")
    for note in notes:
        console.print(note)
