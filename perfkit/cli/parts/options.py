"""Options that several commands share: what is run, with the words that `--help` has for it, and what they mean."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

WORK, AFAR = "Workload", "On another machine"
MEASURE, DATA = "Measurement", "Data and output"

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
Generate = Annotated[
    int, typer.Option(help="Generate so many tokens a step behind a prompt: inference.", rich_help_panel=WORK)
]
Prompt = Annotated[
    str, typer.Option(help="Tokens of the prompt for --generate; --data says which.", rich_help_panel=WORK)
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
Allocator = Annotated[
    str,
    typer.Option(
        help="Of CPU tensors: default (PyTorch's), or keep (freed memory serves the next step).", rich_help_panel=WORK
    ),
]
Brief = Annotated[bool, typer.Option("--brief", help="Print at most 4 KB of JSON: verdict and largest findings.")]
Inference = Annotated[bool, typer.Option("--inference", help="Forward only, no gradients.", rich_help_panel=WORK)]
CudaGraphs = Annotated[
    str,
    typer.Option(
        help="Backends that replay their steps on a GPU: default (llmc, thunder-llmc; of a step that generates tokens "
        "all but eager and compile), all but compile, or none.",
        rich_help_panel=WORK,
    ),
]
CompileMode = Annotated[
    str, typer.Option(help="Mode of torch.compile: default, reduce-overhead, max-autotune.", rich_help_panel=WORK)
]
Executors = Annotated[
    str,
    typer.Option(
        help="Thunder's executors by priority, separated by commas; default: its own list.", rich_help_panel=WORK
    ),
]
Ranks = Annotated[
    int, typer.Option(help="Processes that train together, each on a GPU or a share of the CPU.", rich_help_panel=WORK)
]
Parallel = Annotated[
    str,
    typer.Option(
        help="How they do: ddp, fsdp (FSDP2), zero1 (only the optimizer sharded), or the workload's own way. With "
        "--ranks 1: what that costs a rank before anything is sent.",
        rich_help_panel=WORK,
    ),
]
Hosts = Annotated[int, typer.Option("--nnodes", help="Hosts; --ranks counts those of all.", rich_help_panel=WORK)]
HostNumber = Annotated[
    int, typer.Option("--node-rank", help="The number of this host; the report is made on 0.", rich_help_panel=WORK)
]
Endpoint = Annotated[
    str, typer.Option("--rdzv-endpoint", help="HOST:PORT of host 0, where hosts meet.", rich_help_panel=WORK)
]
KernelFolders = Annotated[
    list[Path] | None, typer.Option(help="A folder of your own kernels (repeatable).", rich_help_panel=WORK)
]

Seed = Annotated[int, typer.Option(help="Seed of weights and data.", rich_help_panel=MEASURE)]
SkipUnavailable = Annotated[
    bool,
    typer.Option("--skip-unavailable", help="Continue without backends that cannot run here.", rich_help_panel=MEASURE),
]
Weights = Annotated[
    str, typer.Option(help="random, a Hugging Face folder, or an llm.c checkpoint.", rich_help_panel=DATA)
]
Data = Annotated[
    str, typer.Option(help="synthetic, a text file or folder, or an llm.c token file.", rich_help_panel=DATA)
]

On = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="USER@HOST",
        help="Work on this machine, over ssh, with the files of this folder; the report is made here.",
        rich_help_panel=AFAR,
    ),
]
RemotePython = Annotated[
    str, typer.Option(help="The Python to use there, or its environment's folder.", rich_help_panel=AFAR)
]
NoReport = Annotated[bool, typer.Option("--no-report", hidden=True, help="Only record: `perfkit report` reports.")]


def dimensions(given: list[str]) -> dict[str, str]:
    """Name → value of `NAME=VALUE`; raises `UsageError` for anything else."""
    from perfkit.errors import UsageError

    pairs = [text.partition("=") for text in given]
    for name, sign, value in pairs:
        if not (name and sign and value):
            raise UsageError(f"--dim {name}{sign}{value} is not of the form NAME=VALUE.", "Write --dim layers=4.")
    return {name.strip(): value.strip() for name, _, value in pairs}


def prompt_length(prompt: str, generate: int, sequence_length: int | None) -> int | None:
    """T: the tokens of `--prompt`, or of `--sequence-length`. Raises `UsageError` where they make no sense together."""
    from perfkit.errors import UsageError

    if not prompt:
        return sequence_length
    if not generate:
        raise UsageError("--prompt is for a step that generates tokens.", "Give --generate 128 as well.")
    if sequence_length is not None:
        raise UsageError("--prompt and --sequence-length are the same here.", "Leave one of them out.")
    if not prompt.isdecimal():
        raise UsageError(
            f"--prompt {prompt} is no number of tokens.",
            "Give a number; --data FILE says what text or tokens the prompts are cut from.",
        )
    return int(prompt)


def whole_numbers(option: str, text: str) -> list[int]:
    """The numbers of a list, each once. Raises `UsageError` for what is none."""
    from perfkit.errors import UsageError

    given = list(dict.fromkeys(names(text)))
    for one in given:
        if not one.isdecimal() or not int(one):
            raise UsageError(f"{option} must be a whole number of at least 1; it is {one}.")
    return [int(one) for one in given]


def alone(given: dict[str, Any]) -> None:
    """Raise `UsageError` for the first option that is given beside several batch sizes."""
    from perfkit.errors import UsageError

    for name, value in given.items():
        if value:
            raise UsageError(f"--{name} does not go with several batch sizes.", "Give one size.")


def names(text: str) -> list[str]:
    """The names in a list separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def executors(text: str) -> tuple[str, ...]:
    """Thunder's executors by priority; () for its own list, which is `default` as well."""
    return () if text.strip() == "default" else tuple(names(text))


def named(given: list[str]) -> dict[str, str]:
    """Backend name → what it was given as: its name, or a file. Raises `UsageError` for none, or an odd name."""
    from perfkit import backends
    from perfkit.errors import UsageError

    if not given:
        raise UsageError("No backend was named.", "Give --backend eager, or several separated by commas.")
    named = {backends.get(text).name: text for text in given}
    for name, text in named.items():
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise UsageError(f"{text} calls its backend {name!r}.", "Name it with letters, digits, dots and dashes.")
    return named


def unavailable_of(named: dict[str, str], settings: Any, skip: bool) -> dict[str, str]:
    """The reason of each backend that cannot run here, by name; raises `Unavailable` for the first unless `skip`."""
    from perfkit import backends
    from perfkit.errors import Unavailable

    reasons = {name: reason for name, text in named.items() if (reason := backends.get(text).unavailable(settings))}
    if not reasons or skip:
        return reasons
    from perfkit.analysis.words import listed

    first = next(iter(reasons.values()))
    which = [name for name, reason in reasons.items() if reason == first]
    backend, it = ("Backend", "it") if len(which) == 1 else ("Backends", "them")
    raise Unavailable(
        f"{backend} {listed(which)} cannot run here: {first}", f"--skip-unavailable goes on without {it}."
    )
