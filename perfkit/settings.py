"""Options of a run. `Settings` declares each option once: help, panel, flags, and the values it takes.

`perfkit.cli.parts.options` makes the options of `run`, `compare`, `sweep` and `eval` from it,
`perfkit.workloads.settings` the checks.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

WORK, MEASURE, DATA = "Workload", "Measurement", "Data and output"
DTYPES = ("fp32", "tf32", "bf16", "fp8")
# The precision of parameters and of all but matrix products, where these have one of their own.
HELD_IN = {"tf32": "fp32", "fp8": "bf16"}
COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@dataclass(frozen=True)
class Declared:
    """How a field of `Settings` is given: its option's name, help, panel and flags, and which values it takes.

    `takes_part`: it does nothing unless the workload takes it. `training`: it is of a training step.
    """

    help: str
    panel: str = WORK
    name: str = ""
    flags: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    least: int | None = None
    takes_part: bool = False
    training: bool = False


def option(help: str, panel: str = WORK, **more: Any) -> msgspec.Meta:
    """The metadata of a field."""
    return msgspec.Meta(description=help, extra={"declared": Declared(help, panel, **more)})


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a run. Sizes that a workload does not have are None."""

    workload: str
    preset: Annotated[str, option("Named dimensions of the model.")]
    variant: Annotated[str, option("Alternative form of the model.")] = ""
    # Dimensions of the preset that are given otherwise: `--dim layers=4`.
    dimensions: Annotated[
        dict[str, int | float | str],
        option("A dimension of the preset as NAME=VALUE (repeatable), such as layers=4.", name="dim"),
    ] = {}
    # A folder with the config.json of a model of transformers.
    config: Annotated[
        str, option("hf: the folder of a config.json, for a model with random weights.", takes_part=True)
    ] = ""
    device: Annotated[str, option("cpu, cuda or cuda:N.")] = "cpu"
    dtype: Annotated[
        str, option("fp32, tf32, bf16 or fp8 (linear layers' products; the rest in bf16).", choices=DTYPES)
    ] = "fp32"
    batch_size: Annotated[int, option("B, samples per batch.", flags=("--batch-size", "-B"), least=1)]
    sequence_length: Annotated[
        int | None, option("T, tokens per sample.", flags=("--sequence-length", "-T"), least=1)
    ] = None
    # Tokens that a step generates after a prompt of `sequence_length` tokens; 0: none.
    generate: Annotated[
        int, option("Tokens to generate in each step after a prompt: inference.", least=0, takes_part=True)
    ] = 0
    grad_accumulation: Annotated[int, option("Batches per training step.", least=1, training=True)] = 1
    recompute: Annotated[
        bool,
        option("Recompute the activations of the blocks in the backward pass.", takes_part=True, training=True),
    ] = False
    optimizer: Annotated[
        str,
        option(
            "How PyTorch runs the optimizer: default (its own choice), foreach or fused.",
            choices=("default", "foreach", "fused"), takes_part=True, training=True,
        ),
    ] = "default"  # fmt: skip
    # keep: what is freed serves the next tensor of its size.
    allocator: Annotated[
        str,
        option(
            "Of CPU tensors: default (PyTorch's), or keep (freed memory serves the next step).",
            choices=("default", "keep"),
        ),
    ] = "default"
    cuda_graphs: Annotated[
        str,
        option(
            "Backends that replay their steps on a GPU: default (llmc, thunder-llmc; of a step that generates tokens "
            "all but eager and compile), all but compile, or none.",
            choices=("default", "all", "none"),
        ),
    ] = "default"
    training: Annotated[bool, option("Forward only, no gradients.", name="inference")] = True
    compile_mode: Annotated[
        str, option("Mode of the backend compile; --backend compile:MODE is one of its own.", choices=COMPILE_MODES)
    ] = "default"
    executors: Annotated[
        tuple[str, ...],
        option("Thunder's executors by priority, separated by commas; default: its own list."),
    ] = ()
    kernel_dirs: Annotated[tuple[str, ...], option("A folder of your own kernels (repeatable).", name="kernels")] = ()
    # Processes that train together, on all hosts; `batch_size` is of all of them together.
    ranks: Annotated[int, option("Processes that train together, each on a GPU or a share of the CPU.", least=1)] = 1
    # How they share the work.
    parallel: Annotated[
        str,
        option(
            "How they do: ddp, fsdp (FSDP2), zero1 (only the optimizer sharded), or the workload's own way. With "
            "--ranks 1: what that costs a rank before anything is sent."
        ),
    ] = ""
    hosts: Annotated[int, option("Hosts; --ranks counts those of all.", name="nnodes", least=1)] = 1
    steps: Annotated[int, option("Timed steps.", MEASURE, least=1)] = 10
    warmup: Annotated[int, option("Steps between the ten checked ones and the timed ones.", MEASURE, least=0)] = 2
    seed: Annotated[int, option("Seed of weights and data.", MEASURE, least=0)] = 1337
    profiler: Annotated[
        str,
        option(
            "torch; ncu: also hardware counters; nsys: also a timeline; none: only timings.", MEASURE,
            choices=("torch", "ncu", "nsys", "none"),
        ),
    ] = "torch"  # fmt: skip
    profile_memory: Annotated[
        bool,
        option("Record allocations: who holds the memory.", MEASURE, flags=("--memory", "--profile-memory")),
    ] = False
    # None: where that costs little.
    lines: Annotated[
        bool | None,
        option(
            "Record source lines, in a step of their own; by default where that costs under 2 s.", MEASURE,
            flags=("--lines/--no-lines",),
        ),
    ] = None  # fmt: skip
    launch_blocking: Annotated[bool, option("Wait for each GPU kernel (CUDA_LAUNCH_BLOCKING=1).", MEASURE)] = False
    weights: Annotated[str, option("random, a Hugging Face folder, or an llm.c checkpoint.", DATA, takes_part=True)] = (
        "random"
    )
    data: Annotated[str, option("synthetic, a text file or folder, or an llm.c token file.", DATA, takes_part=True)] = (
        "synthetic"
    )

    @property
    def in_group(self) -> bool:
        """Return whether the work is done as ranks share it, even by a group of one."""
        return self.ranks > 1 or bool(self.parallel)

    def alone(self) -> Settings:
        """Return the settings of the same work in one process."""
        return msgspec.structs.replace(self, ranks=1, parallel="", hosts=1)


@dataclass(frozen=True)
class Field:
    """A field of `Settings` that has an option: its name, type, default (None: the preset's) and declaration."""

    name: str
    type: Any
    default: Any
    declared: Declared

    @property
    def option(self) -> str:
        """The option's long flag."""
        return f"--{(self.declared.name or self.name).replace('_', '-')}"


@functools.cache
def fields() -> dict[str, Field]:
    """The fields that have an option, by name, in their order."""
    hints = typing.get_type_hints(Settings, include_extras=True)
    found = {}
    for one in msgspec.structs.fields(Settings):
        if typing.get_origin(hints[one.name]) is Annotated:
            kind, meta = typing.get_args(hints[one.name])
            default = None if one.default is msgspec.NODEFAULT else one.default
            found[one.name] = Field(one.name, kind, default, meta.extra["declared"])
    return found


def without(names: Sequence[str]) -> list[str]:
    """The names of the fields that have an option, but `names`."""
    return [name for name in fields() if name not in names]
