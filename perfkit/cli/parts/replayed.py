"""`perfkit bench TRACE`: an operator of a trace, run again here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit.cli.parts.shown import progress
from perfkit.errors import UsageError

if TYPE_CHECKING:
    from perfkit.bench.results import Bench
    from perfkit.bench.run import BenchOptions
    from perfkit.hardware.ceilings import Ceilings

HOW = "Name one: --kernel 1, or --operator aten::addmm."


@dataclass(frozen=True)
class ReplayRequest:
    """The row of the kernel table, or the operator, of a trace that runs again, and where its script goes."""

    trace: Path
    kernel: int | None
    operator: str
    module: str
    script: Path | None


def asked(
    operations: Sequence[str], kernel: int | None, operator: str, module: str, script: Path | None,
    others: Sequence[Any],
) -> ReplayRequest | None:  # fmt: skip
    """Return what is asked of a trace; None where no trace is meant. Raises `UsageError` for options that do not fit.

    `others` are sizes, sweep, dtype, blocks and kernels, which the trace decides.
    """
    traces = [name for name in operations if Path(name).exists() or name.endswith((".json", ".json.gz"))]
    named = kernel is not None or bool(operator)
    if not traces and not named and not module and script is None:
        return None
    if not traces:
        raise UsageError(
            "--kernel, --operator, --module and --script are of a trace.", "Give its path, or a run folder."
        )
    if len(operations) > 1:
        raise UsageError("Operators of one trace run at a time.", "Give one trace and no other name.")
    if not named:
        raise UsageError(f"{traces[0]} is a trace, and no operator of it is named.", HOW)
    if kernel is not None and operator:
        raise UsageError("--kernel and --operator both choose an operator.", "Give one of them.")
    if module and not operator:
        raise UsageError("--module goes with --operator.", "Name the operator too.")
    options = ("--sizes", "--sweep", "--dtype", "--blocks", "--kernels")
    for option, value in zip(options, others, strict=True):
        if value:
            raise UsageError(f"{option} does not go with a trace, which has the shapes and dtypes.", "Leave it out.")
    return ReplayRequest(Path(traces[0]), kernel, operator, module, script)


def best_device() -> str:
    """A GPU where PyTorch has one, else the CPU."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def run(
    asked: ReplayRequest,
    how: BenchOptions,
    wanted: tuple[Sequence[str], Sequence[str]],
    ceilings: Callable[[Callable[[str, str], None]], Ceilings] | None,
) -> Bench:
    """Find the operator, write its script where one is asked for, and check and time every way to run it here."""
    from perfkit.replay import recorded, replay, script
    from perfkit.run.memory import available_bytes

    with progress() as say:
        say("trace", "reading")
        trace = recorded.TraceTable(asked.trace)
        if asked.kernel is not None:
            found = trace.by_kernel(asked.kernel)
        else:
            found = trace.by_operator(asked.operator, asked.module)
        say(found.levels[0].operator, "rebuilding")
        free = available_bytes() if how.device == "cpu" else None  # a GPU says by itself when it is full
        chosen = replay.choose(found, how.device, how.seed, free)
        if asked.script:
            script.write(asked.script, found, chosen, how.seed)
        return replay.replay(found, chosen, how, ceilings(say) if ceilings else None, wanted, say)
