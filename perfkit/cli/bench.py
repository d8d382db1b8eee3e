"""`perfkit bench`: operations by themselves, every implementation next to PyTorch's own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfkit.cli.parts import options
from perfkit.cli.parts.output import Destination, Json, json_of, make_folder, put, write
from perfkit.cli.parts.shown import need_torch, progress
from perfkit.render.output import of_page

if TYPE_CHECKING:
    from perfkit.bench.results import Bench
    from perfkit.bench.run import BenchOptions
    from perfkit.hardware.ceilings import Ceilings

_what, _of_trace, _how, _output = map(options.panel, ("What", "An operator of a trace", "Measurement", "Output"))


def bench(
    operations: Annotated[
        list[str],
        typer.Argument(
            help="Kernels or families (see `perfkit list kernels`), matmul, gelu, softmax or cdist; or a trace.",
            metavar="OP...",
        ),
    ],
    kernel: Annotated[
        int | None, _of_trace("Of a trace: the operator of this row of the report's kernel table.")
    ] = None,
    operator: Annotated[str, _of_trace("Of a trace: this operator, such as aten::addmm.")] = "",
    module: Annotated[str, _of_trace("Of a trace: --operator in this module, such as h.3.")] = "",
    script: Annotated[Path | None, _of_trace("Of a trace: write a Python file that runs it with torch alone.")] = None,
    implementation: Annotated[
        list[str] | None, _what("Such as c:2, triton, pytorch, compile (repeatable, or commas); default: all.")
    ] = None,
    language: Annotated[list[str] | None, _what("All implementations in c, cuda or triton.")] = None,
    sizes: Annotated[str, _what("Such as B=4,T=1024,C=768; default: the sizes of GPT-2.")] = "",
    sweep: Annotated[str, _what("C=64..4096 or C=64,256,1024; M,N,K=64..2048 changes all three together.")] = "",
    dtype: Annotated[str, _what("fp32 (default), bf16, tf32; separate several by commas.")] = "",
    device: Annotated[str, _what("cpu, cuda or cuda:N; default: cpu, for a trace a GPU if there is one.")] = "",
    blocks: Annotated[bool, _what("Time every block size that an implementation offers.", "--blocks")] = False,
    kernels: options.OwnKernels = None,
    seconds: Annotated[float, _how("Seconds to time each implementation in each cache state.")] = 0.5,
    cache: Annotated[str, _how("warm, cold or both.")] = "both",
    seed: Annotated[int | None, _how("Seed of the inputs; default: a new one each time.")] = None,
    no_ceilings: Annotated[bool, _how("Do not measure the machine: no efficiencies.", "--no-ceilings")] = False,
    out: Annotated[Path | None, _output("Folder for bench-OP.html, .md and .json.")] = None,
    as_json: options.AsJson = False,
    brief: options.Brief = None,
) -> int:
    """Check every implementation of an operation against fp64, then time it next to PyTorch, with warm and cold caches.

    With --kernel or --operator: run an operator of a trace again, from its recorded arguments.

    A wrong implementation gets no speed, and the exit code is 1. Times have 95 % intervals. Efficiency refers to the
    ceilings measured on this machine (`perfkit ceilings`).
    """
    from perfkit.cli.parts import replayed

    asked = replayed.asked(operations, kernel, operator, module, script, (sizes, sweep, dtype, blocks, kernels))
    need_torch("perfkit bench")
    from perfkit.bench import setup

    how = setup.options(device or (replayed.best_device() if asked else "cpu"), seconds, cache, seed)
    folders = [str(k) for k in kernels or ()]
    wanted = (
        [n for text in implementation or () for n in options.names(text)],
        [n for text in language or () for n in options.names(text)],
    )
    if asked:
        measured = None if no_ceilings else lambda say: _ceilings(how, say)
        found = [replayed.run(asked, how, wanted, measured)]
        _show(found, out, json_of(as_json, brief))
        return 1 if found[0].wrong else 0
    benchmarks = [s for name in operations for s in setup.benchmarks(name, how.device, blocks, folders)]
    dtypes = options.names(dtype) or ["fp32"]
    plans = [setup.plan(benchmark, sizes, sweep, *wanted, how.device) for benchmark in benchmarks]
    if out:
        make_folder(out)
    with progress() as say:
        ceilings = None if no_ceilings else _ceilings(how, say)
        found = [setup.run(s, plan, dtypes, how, ceilings, say) for s, plan in zip(benchmarks, plans, strict=True)]
    _show(found, out, json_of(as_json, brief))
    return 1 if any(one.wrong for one in found) else 0


def _ceilings(options: BenchOptions, say: Callable[[str, str], None]) -> Ceilings:
    from perfkit.hardware.store import load_or_measure

    return load_or_measure(options.device, progress=lambda text: say("ceilings", text))


def _show(found: list[Bench], out: Path | None, as_json: Json | None) -> None:
    from perfkit.render import json
    from perfkit.render.pages import bench as rendered

    made = [of_page(one, rendered.page(one), f"bench-{one.operation}") for one in found]
    if as_json is None or as_json.brief:
        for number, one in enumerate(made):
            print("\n" * bool(number and not as_json), end="")
            put(one, Destination(out, as_json=as_json))
        return
    for one in made:
        write(one, Destination(out))
    sys.stdout.write(json.render(found if len(found) > 1 else found[0]))
