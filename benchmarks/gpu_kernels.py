"""Every GPU kernel of the catalog, CUDA and Triton, checked and then timed in turns with PyTorch's own operators.

    python benchmarks/gpu_kernels.py [--only TEXT] [--dtype fp32] [--batch 8] [--time 1024] [--json FILE]
    python benchmarks/gpu_kernels.py --show FILE

The check: fresh random inputs, every output poisoned before, over each operation's odd cases and at the timed sizes,
against its reference in fp64. A wrong kernel is named and not timed, and the exit code is 1.

The time: GPT-2's sizes. Calls are captured into a CUDA graph, so that nothing is counted but the GPU's work; they take
turns over several sets of inputs and outputs, together several times the L2 cache, so that every call finds it cold.
Medians over replays. GB/s are the least bytes that the operation must move (its cost model) over the time; the last
columns are its share of the bandwidth of a large copy, measured in the same process, and PyTorch's time over ours.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from perfkit.bench.catalog import cost_of
from perfkit.bench.sizes import gpt2
from perfkit.errors import PerfkitError
from perfkit.kernels import Implementation, Operation, catalog, find, replaced
from perfkit.kernels.checking import Inputs, as_tuple, largest_error, result_scales, to_fp64
from perfkit.kernels.languages import candidates, language

DEVICE = "cuda"
WORKERS = 12  # processes that check, and so compile, at once
COLD_BYTES = 4  # all sets of a call together, in sizes of the L2 cache
LONG_ROW, ROWS_CHECKED = 10_000, 512
REPLAYS = 15
LEAST_NS = 300_000  # what one replay lasts at least


@dataclass(frozen=True)
class Checked:
    """The largest error of one implementation over its cases, as a share of what is allowed; `problem` if wrong."""

    operation: str
    dtype: str
    implementation: str
    share: float
    problem: str = ""


@dataclass(frozen=True)
class Timed:
    """One way to compute one operation. `bandwidth` in bytes/s, `of_copy` and `speedup` (PyTorch = 1) as ratios."""

    operation: str
    dtype: str
    implementation: str
    sizes: dict[str, int]
    ns: float
    bandwidth: float
    of_copy: float
    speedup: float | None
    share_of_tolerance: float | None
    best: bool = False


def label(implementation: Implementation) -> str:
    """Language and version, as `cuda:2`."""
    return f"{implementation.language}:{implementation.version}"


def implementations(operation: Operation, dtype: str) -> list[Implementation]:
    """Return the implementations of every language that runs on the GPU, naive first."""
    return sorted(candidates(operation, DEVICE, dtype), key=lambda i: (i.language, i.version))


def timed_sizes(operation: Operation, family: str, batch: int, length: int) -> dict[str, int]:
    """GPT-2's sizes; attention's T × T matrices of a full batch are 12 · `batch` of them."""
    names = list(operation.cases[0])
    sizes = gpt2(family, names, DEVICE, operation.cases[-1])
    tokens = {"B": batch, "T": length}
    scaled = {name: size * batch * length // (8 * 1024) if name == "N" else size for name, size in sizes.items()}
    return scaled | {name: size for name, size in tokens.items() if name in names}


# ---- checking -------------------------------------------------------------------------------------------------------


def check_all(name: str, dtype: str, family: str, batch: int, length: int) -> list[Checked]:
    """Check all implementations of one operation, in a process of its own."""
    operation = find(name)
    large = timed_sizes(operation, family, batch, length)
    if "N" in large and max(large.get("V", 0), large.get("M", 0)) > LONG_ROW:
        large["N"] = ROWS_CHECKED  # in fp64, and along with other processes
    cases = [*map(dict, operation.cases), large]
    found = []
    for implementation in implementations(operation, dtype):
        try:
            run = language(implementation).launcher(operation, implementation, dtype)
            shares = [share_of_tolerance(operation, implementation, run, dtype, case) for case in cases]
            worst = max(shares)
            problem = "" if worst <= 1 else f"wrong at {cases[shares.index(worst)]}"
        except Exception as error:  # a compiler's or a driver's too: the other kernels are still worth checking
            worst, problem = math.inf, str(error)
        found.append(Checked(name, dtype, label(implementation), worst, problem))
    return found


def share_of_tolerance(operation: Operation, implementation: Implementation, run: Any, dtype: str, case: Any) -> float:
    """The largest error over all results, over the tolerance; also where it adds to what its outputs hold, 1."""
    seed = time.time_ns() % (1 << 32)
    arguments = operation.inputs(Inputs(dtype, seed, DEVICE), **case)
    scales = result_scales(operation, dtype, seed, case)
    expected = as_tuple(operation.reference(*(to_fp64(a) for a in arguments)))
    errors = []
    for held in (0.0, 1.0) if implementation.accumulates else (0.0,):
        tensors, scalars = prepared(operation, arguments, implementation, held)
        run(tensors, scalars)
        torch.cuda.synchronize()
        by_name = dict(zip(tensor_names(operation), tensors, strict=True))
        named = zip(operation.signature.results, expected, scales, strict=True)
        errors += [largest_error(by_name[n], e + held, scale=scale) for n, e, scale in named]
    return max(errors) / operation.tolerance[dtype]


def tensor_names(operation: Operation) -> list[str]:
    """The input tensors, then the outputs, in the order in which a kernel takes them."""
    signature = operation.signature
    return [signature.inputs[i] for i in signature.tensors] + list(signature.outputs)


def prepared(
    operation: Operation, arguments: Sequence[Any], implementation: Implementation, held: float = 0.0
) -> tuple[list[Tensor], tuple[int | float, ...]]:
    """Return the arguments of a launch: copies of the tensors that it changes, the others, and outputs; its scalars.

    The outputs are poisoned; or they are `held`, which is not 0, and the launch adds to each.
    """
    signature = operation.signature
    outputs = as_tuple(operation.allocate(*arguments))
    for output in outputs:
        output.fill_(held or (math.nan if output.is_floating_point() else -1))
    named = [(signature.inputs[i], arguments[i]) for i in signature.tensors]
    tensors = [a.clone() if name in signature.mutated else a.contiguous() for name, a in named]
    every = (1 << len(outputs)) - 1
    scalars = implementation.numbers(tuple(operation.scalars(*arguments)), every if held else 0)
    return [*tensors, *outputs], scalars


# ---- timing ---------------------------------------------------------------------------------------------------------


def median_ns(calls: Sequence[Callable[[], Any]]) -> float:
    """Median GPU time of one call, over replays of a graph that makes them all in turn, several times over."""
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    try:
        once = _replay_ns(_captured(calls, 1), 3) / len(calls)
    except RuntimeError:  # what cannot be captured: launched as it is, with the gaps that Python leaves
        torch.cuda.synchronize()
        return _events_ns(lambda: [call() for call in calls], 5) / len(calls)
    rounds = max(1, math.ceil(LEAST_NS / max(once * len(calls), 1)))
    graph = _captured(calls, rounds)
    replays = REPLAYS if once * len(calls) * rounds < 20e6 else 4
    return _replay_ns(graph, replays) / len(calls) / rounds


def _captured(calls: Sequence[Callable[[], Any]], rounds: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [call() for call in calls]  # alive together, so that each has results of its own
        for _ in range(rounds - 1):
            for i, call in enumerate(calls):
                kept[i] = None
                kept[i] = call()
    return graph


def _replay_ns(graph: torch.cuda.CUDAGraph, replays: int) -> float:
    return _events_ns(graph.replay, replays)


def _events_ns(call: Callable[[], Any], times: int) -> float:
    """Median GPU time between events around a call, after one to warm up."""
    call()
    samples = []
    for _ in range(times):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) * 1e6)
    return statistics.median(samples)


def copy_bandwidth() -> float:
    """Bytes read and written a second by copies of 2 GiB; the best of a few, as a ceiling should be."""
    source = torch.randn(1 << 29, device=DEVICE)
    target = torch.empty_like(source)
    best = 0.0
    for _ in range(5):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(4):
            target.copy_(source)
        end.record()
        end.synchronize()
        best = max(best, 4 * 2 * source.nbytes * 1e3 / start.elapsed_time(end))
    return best


def time_all(
    operation: Operation, dtype: str, sizes: dict[str, int], checked: dict[str, Checked], copy: float
) -> Iterator[Timed]:
    """Time what is right, and PyTorch's way first."""
    arguments = operation.inputs(Inputs(dtype, 1, DEVICE), **sizes)
    moved = cost_of(operation, arguments).bytes
    count = max(1, min(64, math.ceil(COLD_BYTES * l2_bytes() / moved)))
    sets = [arguments, *(operation.inputs(Inputs(dtype, 2 + i, DEVICE), **sizes) for i in range(count - 1))]
    theirs = pytorch_ns(operation, sets)
    rows: list[tuple[str, float, float | None]] = [("pytorch", theirs, None)] if theirs else []
    for implementation in implementations(operation, dtype):
        check = checked[label(implementation)]
        if check.problem:
            continue
        run = language(implementation).launcher(operation, implementation, dtype)
        launches = [prepared(operation, arguments, implementation) for arguments in sets]
        ns = median_ns([partial(run, tensors, scalars) for tensors, scalars in launches])
        rows.append((label(implementation), ns, check.share))
    if not rows:
        return
    best = min((ns for name, ns, _ in rows if name != "pytorch"), default=None)
    for name, ns, share in rows:
        speedup = theirs / ns if theirs and name != "pytorch" else None
        rate = moved * 1e9 / ns
        yield Timed(operation.name, dtype, name, sizes, ns, rate, rate / copy, speedup, share, ns == best)


def pytorch_ns(operation: Operation, sets: Sequence[Sequence[Any]]) -> float | None:
    """PyTorch's own way, or None where it has none for these arguments."""
    own = replaced.own(operation)
    try:
        calls = [own(*a) if own else partial(operation.reference, *a) for a in sets]
        return median_ns(calls)
    except (PerfkitError, RuntimeError) as error:
        print(f"# PyTorch has no {operation.name}: {str(error).splitlines()[0]}", flush=True)
        return None


def l2_bytes() -> int:
    """The size of the GPU's L2 cache."""
    return torch.cuda.get_device_properties(0).L2_cache_size


# ---- the table ------------------------------------------------------------------------------------------------------

HEADER = f"{'operation':30} {'type':4} {'way':10} {'µs':>9} {'GB/s':>6} {'of copy':>7} {'speed-up':>8} {'error':>6}"


def row(timed: Timed) -> str:
    """A line below `HEADER`."""
    speedup = "" if timed.speedup is None else f"{timed.speedup:.2f} ×"
    known = timed.share_of_tolerance is not None and not math.isnan(timed.share_of_tolerance)
    share = f"{100 * (timed.share_of_tolerance or 0):.0f} %" if known else ""
    mark = " ←" if timed.best else ""
    figures = f"{timed.ns / 1e3:9.1f} {timed.bandwidth / 1e9:6.0f} {100 * timed.of_copy:5.0f} % {speedup:>8} {share:>6}"
    return f"{timed.operation:30} {timed.dtype:4} {timed.implementation:10} {figures}{mark}"


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """A line an operation and precision: µs of PyTorch, the last CUDA version and Triton; the rates of the best."""
    names = " ".join(f"{name:>9}" for name in ("PyTorch", "CUDA", "Triton", "best"))
    lines = [f"{'operation':30} {'type':4} {names} {'GB/s':>6} {'copy':>6} {'×':>5}"]
    by_operation: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for timed in sorted(rows, key=lambda r: r["implementation"]):  # a later version replaces an earlier one
        ways = by_operation.setdefault((timed["operation"], timed["dtype"]), {})
        ways[timed["implementation"].partition(":")[0]] = timed
    for (operation, dtype), ways in sorted(by_operation.items()):
        best = min((w for name, w in ways.items() if name != "pytorch"), key=lambda w: w["ns"], default=None)
        if best is None:  # each of ours was wrong, and not timed
            lines.append(f"{operation:30} {dtype:4} none of ours is right")
            continue
        times = " ".join(
            f"{ways[n]['ns'] / 1e3:9.1f}" if n in ways else f"{'–':>9}" for n in ("pytorch", "cuda", "triton")
        )
        speedup = "–" if best["speedup"] is None else f"{best['speedup']:.2f}"
        rates = f"{best['bandwidth'] / 1e9:6.0f} {100 * best['of_copy']:4.0f} % {speedup:>5}"
        lines.append(f"{operation:30} {dtype:4} {times} {best['implementation']:>9} {rates}")
    return "\n".join(lines)


def show(file: Path) -> int:
    """Print the summary of a file that `--json` wrote."""
    read = json.loads(file.read_text())
    print(f"# {read['device']}; a copy moves {read['copy_bytes_per_s'] / 1e9:.0f} GB/s; times in µs")
    print(summary(read["rows"]))
    return 0


def check_everything(tasks: Sequence[tuple[str, str, str]], batch: int, length: int) -> list[Checked]:
    """Check (family, operation, precision) in `WORKERS` processes, so that compilers work side by side.

    Operations that found too little memory along with others are checked again alone.
    """
    found = _checked(tasks, batch, length, WORKERS)
    short = [task for task, results in found.items() if any(out_of_memory(r.problem) for r in results)]
    if short:
        print(f"# {len(short)} operations found too little memory along with others: again, one by one", flush=True)
        found |= _checked(short, batch, length, 1)
    return [result for results in found.values() for result in results]


def _checked(
    tasks: Sequence[tuple[str, str, str]], batch: int, length: int, workers: int
) -> dict[tuple[str, str, str], list[Checked]]:
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = {t: pool.submit(check_all, t[1], t[2], t[0], batch, length) for t in tasks}
        return {task: future.result() for task, future in futures.items()}


def out_of_memory(problem: str) -> bool:
    """Return whether a check failed because memory was short: PyTorch's sentence, or cuBLAS's."""
    return "out of memory" in problem or "ALLOC_FAILED" in problem


def main() -> int:
    """Check and time the kernels (µs, GB/s of minimal bytes, share of a copy); return 1 when one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="operations whose name holds this")
    parser.add_argument("--dtype", choices=["fp32", "bf16", "e4m3"], action="append", help="one (fp32, bf16)")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--time", type=int, default=1024, help="sequence length")
    parser.add_argument("--no-check", action="store_true", help="time without checking, while tuning")
    parser.add_argument("--check-only", action="store_true", help="check without timing")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    parser.add_argument(
        "--show", type=Path, metavar="FILE", help="print the summary of an earlier --json FILE, no more"
    )
    arguments = parser.parse_args()
    if arguments.show:
        return show(arguments.show)
    if not torch.cuda.is_available():
        print("PyTorch finds no CUDA GPU on this machine.", file=sys.stderr)
        return 2
    dtypes = arguments.dtype or ["fp32", "bf16"]
    tasks = [
        (family.name, operation.name, dtype)
        for family in catalog()
        for operation in family.operations
        for dtype in dtypes
        if arguments.only in operation.name and implementations(operation, dtype)
    ]
    began = time.time()
    checked: list[Checked] = []
    if not arguments.no_check:
        checked = check_everything(tasks, arguments.batch, arguments.time)
        wrong = [c for c in checked if c.problem]
        for c in wrong:
            print(f"WRONG {c.operation} {c.dtype} {c.implementation} ({c.share:.3g} of the tolerance): {c.problem}")
        print(
            f"# {len(checked)} implementations checked, {len(wrong)} wrong, in {time.time() - began:.0f} s", flush=True
        )
        if arguments.check_only:
            return int(bool(wrong))
    copy = copy_bandwidth()
    device = torch.cuda.get_device_name()
    print(f"# {device}, L2 {l2_bytes() >> 20} MiB, PyTorch {torch.__version__}; a copy moves {copy / 1e9:.0f} GB/s")
    print(HEADER, flush=True)
    rows: list[Timed] = []
    for family, name, dtype in tasks:
        operation = find(name)
        known = {c.implementation: c for c in checked if (c.operation, c.dtype) == (name, dtype)}
        known = known or {label(i): Checked(name, dtype, label(i), math.nan) for i in implementations(operation, dtype)}
        with torch.no_grad():
            sizes = timed_sizes(operation, family, arguments.batch, arguments.time)
            for timed in time_all(operation, dtype, sizes, known, copy):
                rows.append(timed)
                print(row(timed), flush=True)
        torch.cuda.empty_cache()
    print(summary([asdict(t) for t in rows]))
    print(f"# {time.time() - began:.0f} s")
    if arguments.json:
        content = {"device": device, "copy_bytes_per_s": copy, "checked": [asdict(c) for c in checked]}
        arguments.json.write_text(json.dumps(content | {"rows": [asdict(t) for t in rows]}, indent=1) + "\n")
    return int(any(c.problem for c in checked))


if __name__ == "__main__":
    sys.exit(main())
