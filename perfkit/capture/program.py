"""From what armed processes recorded to a run folder like that of a workload."""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import perfkit
from perfkit.capture import counted, failures, folders, launched, loading, packing
from perfkit.capture.agent.order import CUT, LINES, STARTED, TRACE, Order, ProcessResult, captures, read_results
from perfkit.cost import TensorSpec
from perfkit.errors import PerfkitError, RunFailed
from perfkit.hardware import identity, store
from perfkit.hardware.ceilings import to_json
from perfkit.hardware.cpu import read_cpu
from perfkit.hardware.power import Watch
from perfkit.readers.unusable import UnusableProfile
from perfkit.run_folder import (
    CEILINGS,
    GENERATED,
    KERNELS,
    BackendRun,
    DeclaredKernel,
    Manifest,
    Settings,
    WorkloadFacts,
    write_manifest,
    write_whole,
)
from perfkit.tree.shares import CallSite, OperatorShare, Work

if TYPE_CHECKING:
    from perfkit.table import KernelTable

BACKEND = "program"
NO_COUNTERS = "There are no hardware counters in this report."
_MATRIX = "flop_matrix_"
BESIDE = 4  # of the timed steps those right before the profiled ones
NO_TORCH = "Nothing was recorded: no Python process of this program imported torch."
NO_PYTHON = "Nothing was recorded: no Python process of this program loaded perfkit."
WITH_PERFKIT = "Run it by a Python without the options -I, -E and -S, and with PYTHONPATH as `perfkit capture` sets it."
Progress = Callable[[str, str], None]


@dataclass(frozen=True)
class CapturedProgram:
    """A program to capture into the run folder `out`, as backend `name`."""

    command: Sequence[str]
    order: Order
    out: Path
    name: str = BACKEND
    overwrite: bool = False
    counters: counted.CounterPlan | None = None  # of a second run under ncu


def capture(program: CapturedProgram, progress: Progress) -> tuple[int, PerfkitError | None]:
    """Run the program and make the run folder; return the program's exit code, and why there is no run folder.

    Raises `UsageError` for a program that cannot be run, or a folder that cannot be written, `Unavailable` where it is
    to be counted and ncu does not work here.
    """
    launched.check(program.command)
    problem = counted.impossible() if program.counters else None
    if problem:  # before the program runs, not hours later
        raise problem
    folders.check_out(program.out, program.overwrite)
    code = 0
    try:
        with folders.made(program.out) as folder:
            processes = folder / ".processes"
            with Watch() as watch:
                code = launched.run(program.command, program.order, processes)
            failures.keep(processes, failures.folder_of(program.out))
            results, command = read_results(processes), list(program.command)
            if not results and not (processes / STARTED).is_file():
                raise RunFailed(NO_PYTHON, WITH_PERFKIT)
            count = partial(_counted, program, folder, progress) if program.counters else None
            assemble(folder, results, program.name, command, progress, count, watch)
            shutil.rmtree(processes)
    except RunFailed as error:
        return code, error
    return code, None


def assemble(
    folder: Path,
    results: Sequence[tuple[Path, ProcessResult]],
    name: str,
    command: Sequence[str],
    progress: Progress,
    count: Callable[[list[BackendRun]], list[str]] | None = None,
    watch: Watch | None = None,
) -> None:
    """Write the run folder of `results`, each with the folder of its trace; `count` adds counters to what was recorded,
    and returns warnings; `watch` looked at the GPUs meanwhile. Raises `RunFailed` when none recorded."""
    recorded = [(path, one) for path, one in results if one.recorded]
    if not recorded:
        raise RunFailed(*_why_nothing([one for _, one in results]))
    first = recorded[0][1]
    records = []
    for own, (path, result) in zip(names(name, [one for _, one in recorded]), recorded, strict=True):
        progress(own, "reading the trace")
        records.append(_record(own, path / TRACE, result, folder))
        records[-1].power = watch.during(result.gpu, result.timed_spans) if watch else None
    notes = [note for _, one in recorded for note in [*one.notes, *filter(None, [one.problem])]]
    notes += count(records) if count else []
    environment = identity.environment()
    environment["threads"] |= {**first.threads, "processes": len(recorded)}
    fingerprint, lacking = _ceilings(first, folder, progress)
    manifest = Manifest(
        perfkit=perfkit.__version__,
        created=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        command=["perfkit", *sys.argv[1:]],
        settings=_settings(first, command),
        workload=_facts(first, command),
        environment=environment,
        fingerprint=fingerprint,
        backends=records,
        warnings=[*dict.fromkeys(notes), *lacking],
    )
    write_manifest(folder, manifest)


def names(name: str, results: Sequence[ProcessResult]) -> list[str]:
    """The name of each process that recorded: by its rank, else by its number, where there are several."""
    found: list[str] = []
    for number, result in enumerate(results, 1):
        rank = f"{name}-rank{result.rank}"
        alone = len(results) == 1 or (result.rank is None and number == 1)
        found.append(name if alone else f"{name}-{number}" if result.rank is None or rank in found else rank)
    return found


def _counted(program: CapturedProgram, folder: Path, progress: Progress, records: list[BackendRun]) -> list[str]:
    """Add the counters of a second run; return why they are missing."""
    assert program.counters is not None
    show = partial(progress, records[0].name)
    try:
        counted.add(program.counters, program.command, program.order, records, folder, show)
    except PerfkitError as error:
        return [f"{NO_COUNTERS} {error}"]
    return []


def _why_nothing(results: Sequence[ProcessResult]) -> tuple[str, str]:
    """Why no process recorded anything, and what to do."""
    failed = max((one for one in results if one.problem), key=lambda one: one.found, default=None)
    if failed is None:
        return NO_TORCH, "The program has to run a Python that imports torch; `perfkit doctor` shows what is there."
    if failed.problem == CUT:
        return f"Nothing was recorded. {failed.problem}", "Fewer --warmup and --steps are recorded earlier."
    if failed.hint:
        return f"Nothing was recorded. {failed.problem}", failed.hint
    if failed.found:
        return f"Nothing was recorded. {failed.problem}", "Lower --warmup, or record the whole program: --whole."
    return f"Nothing was recorded. {failed.problem}", "Record the whole program as one step: --whole."


def _record(name: str, plain: Path, result: ProcessResult, folder: Path) -> BackendRun:
    own = folder / name
    own.mkdir()
    record = BackendRun(
        name=name,
        own=True,
        warmup_ns=result.warmup_ns,
        samples_ns=result.samples_ns,
        turns=[len(result.samples_ns)] if result.samples_ns else [],
        beside_ns=result.samples_ns[-BESIDE:],
        profiled_ns=result.step_ns,
        peak_memory_bytes=result.peak_memory_bytes,
        memory_how=result.memory_how,
        fresh_bytes=result.fresh_bytes,
        system_ns=result.system_ns,
    )
    try:
        trace = packing.packed(plain, own)
    except OSError as error:
        raise RunFailed(f"{own} could not be written: {error.strerror}.", "Free space or choose --out.") from error
    record.trace = trace.name
    record.warnings += result.compiled.get("warnings", [])
    record.compiler = result.compiled.get("compiler")
    if (plain.parent / GENERATED).is_file():
        shutil.move(plain.parent / GENERATED, own / GENERATED)
        record.generated = GENERATED
    if (plain.parent / LINES).is_file():
        packing.packed_lines(plain.parent / LINES, own)
    try:
        table = _table(trace, result, plain.parent)
        if result.cpu_ns is not None and result.profiled_cpu_ns:
            table.facts["cpu_ns"] = [result.cpu_ns, statistics.fmean(result.profiled_cpu_ns)]
        if loaders := loading.loading(plain.parent, len(result.samples_ns)):
            table.facts["loading"] = loaders
        table.write(own / KERNELS)
        result.dtype = multiplied_in(table) or result.dtype
    except UnusableProfile as error:
        record.unusable, record.trace_checks = f"{error.reason}. {error.hint}", error.checks
    return record


def _table(trace: Path, result: ProcessResult, plain: Path) -> KernelTable:
    """The kernel table of `trace`; `plain` is the folder in which the process left what else it recorded."""
    from perfkit import kernels
    from perfkit.capture.agent.recording import own_costs
    from perfkit.cost import own
    from perfkit.readers.kineto.checks import Expected
    from perfkit.readers.kineto.trace import read_trace

    compiled, costs = result.compiled, kernels.cost_model()
    recorded, problems = own.of_recorded(result.costs, own_costs.call_of)
    costs.own, costs.problems = {**recorded, **costs.own}, problems
    timed = statistics.median(result.samples_ns) if result.samples_ns else None
    return read_trace(
        trace,
        costs=costs,
        layers=result.layers or "-",
        matmul_precision="tf32" if result.tf32 else "fp32",
        declared={name: DeclaredKernel(**work) for name, work in compiled.get("kernels", {}).items()},
        call_sites=[[_site(*site) for site in graph] for graph in compiled.get("call_sites", [])],
        event_cost_ns=result.event_cost_ns,
        captures=captures(plain),
        lines=plain / LINES if (plain / LINES).is_file() else None,
        stepped=[[TensorSpec(tuple(shape), dtype) for shape, dtype in group] for group in result.stepped],
        expected=Expected(len(result.step_ns), result.device != "cpu", timed),
    )


def multiplied_in(table: KernelTable) -> str:
    """The precision of most FLOP of matrix products, "" where there are none.

    Autocast within a model, as Hugging Face's Accelerate has it, is seen in no call from outside.
    """
    work = table.frame.filter(like=_MATRIX).sum()
    return str(work.idxmax()).removeprefix(_MATRIX) if work.max() > 0 else ""


def _site(name: str, line: int, members: list[list[Any]], work: list[Any] | None, source: str = "") -> CallSite:
    """A call site out of JSON."""
    done = Work(*work) if work is not None else None
    return CallSite(name, line, tuple(OperatorShare(*one) for one in members), done, source)


def _ceilings(result: ProcessResult, folder: Path, progress: Progress) -> tuple[str, list[str]]:
    """Write the ceilings of the program's device into `folder`, those of a CPU with as many threads as the program has;
    return their fingerprint, or why they are missing."""
    count = result.threads.get("count") if result.device == "cpu" else None
    threads = min(count, read_cpu().usable) if count else None  # more threads than cores reach no more
    try:
        ceilings = store.load_or_measure(
            result.device, progress=lambda text: progress("ceilings", str(text)), threads=threads
        )
    except PerfkitError as error:
        return "", [f"Without ceilings nothing is judged: {error}"]
    write_whole(folder / CEILINGS, to_json(ceilings))
    return ceilings.fingerprint, []


def _settings(result: ProcessResult, command: Sequence[str]) -> Settings:
    dtype = "tf32" if result.tf32 and result.dtype == "fp32" else result.dtype
    return Settings(
        workload=title_of(command),
        preset="",
        device=result.device,
        dtype=dtype,
        batch_size=result.batch_size,
        steps=len(result.samples_ns),
        warmup=len(result.warmup_ns),
        training=result.training,
        data="its own",
        weights="its own",
    )


def _facts(result: ProcessResult, command: Sequence[str]) -> WorkloadFacts:
    return WorkloadFacts(
        title=title_of(command),
        parameters=result.parameters,
        samples_per_step=None,
        program=" ".join(command),
        steps_are=result.steps_are,
        notes=[f"The steps: {result.steps_are}; {result.found} were seen until the recording ended."],
    )


def title_of(command: Sequence[str]) -> str:
    """The program in a word or two: its script or module, without the interpreter that runs it."""
    words = list(command)
    for number, word in enumerate(words):
        if word == "-m" and number + 1 < len(words) and not words[number + 1].startswith("torch.distributed"):
            return words[number + 1]
    scripts = [Path(word).name for word in words if word.endswith(".py")]
    return scripts[0] if scripts else Path(words[0]).name if words else BACKEND
