"""The C kernels beside PyTorch's own operators, at GPT-2's shapes, call by call in turn. About four minutes.

Must be reached, in fp32 on a quiet machine with AVX-512: every ratio ours / PyTorch at most 1.05 (1.25 at T = 64, where
a call takes as long as a kernel), their geometric mean over all shapes at most 0.5, the classifier's at most 0.25;
and at T = 1024, of the triad's bandwidth, 75 % by LayerNorm and its gradient, the residual, AdamW and classifier, 50 %
by GELU and its gradient. Each of these figures is printed at the end with "pass" or "miss"; the exit code is 1 when one
is missed.

Both sides allocate their results, as they do in a training step: each pays for the pages of its own, freed before the
other's turn. Whether a result of a few MiB finds room on the heap or has to ask for new pages at every call is drawn by
lot for as long as a process lives, and makes a call several times as long; so all is measured in several processes, and
each figure is the median of theirs. Results from 16 MiB on lie on huge pages where the operator is perfkit's, which
belongs to what it does. PyTorch's side is what its own autograd runs for the same function: several operators where it
has no single one, the fused AdamW. AdamW and the norm work on 16 Mi parameters at every T, and count once in the mean.

The bandwidth is that of the kernel bound to memory that is there already: the least bytes of the operation over its
time, as a share of a triad (a = b + 3c over 192 MiB). An operation that moves as many bytes takes turns with the triad;
one of fewer is measured before it, because the triad empties the caches. Flash attention is left out: its C form is a
reference, not a fast kernel.

A share above 100 % is no error: PyTorch's triad reads the lines that it then overwrites, which in-place kernels and
stores past the caches do not, and what fits a last-level cache is faster than memory.

With --keep-freed the memory of freed tensors is kept, as thunder-llmc's process has it: neither side pays for pages,
and what is left is the kernels.

With --cpu-time a thread's own time is taken in the place of the clock's, for a busy machine: with --threads 1 its
ratios are fair, those of several threads are not.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

import perfkit.kernels
from perfkit.bench.catalog import cost_of
from perfkit.bench.pytorch import OWN
from perfkit.bench.sizes import gpt2
from perfkit.kernels import Operation
from perfkit.kernels.c import keeping
from perfkit.kernels.checking import Inputs, as_tuple

BATCH, CHANNELS = 4, 768
PARAMETERS = 16 << 20  # of the optimizer's case: four tensors of 64 MiB
WORST, WORST_SMALL, SMALL_TIME, MEAN, CLASSIFIER = 1.05, 1.25, 64, 0.5, 0.25
BANDWIDTH = {
    **dict.fromkeys(("layernorm_forward", "layernorm_backward", "residual_forward", "adamw_step", "classifier"), 0.75),
    **dict.fromkeys(("gelu_forward", "gelu_backward"), 0.5),
}
# What GPT-2's training step calls; the multiply-add-activations and the optimizer have cases of their own.
OPERATIONS = (
    "split_heads_forward", "split_heads_backward", "merge_heads_forward", "merge_heads_backward",
    "causal_softmax_forward", "causal_softmax_backward", "softmax_forward", "softmax_backward",
    "layernorm_forward", "layernorm_backward", "residual_forward", "residual_layernorm_forward",
    "gelu_forward", "gelu_backward", "bias_gradient", "bias_relu_forward", "bias_relu_backward",
    "encoder_forward", "encoder_backward", "cross_entropy_forward", "cross_entropy_backward", "classifier",
)  # fmt: skip
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "gelu": lambda u: F.gelu(u, approximate="tanh"),
    "silu": F.silu,
}


@dataclass(frozen=True)
class Case:
    """An operation with its arguments, and what PyTorch runs for the same."""

    name: str
    arguments: tuple[Any, ...]
    theirs: Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """Medians in microseconds, and the bound kernel's share of the triad's bandwidth."""

    operation: str
    time: int
    ours_us: float
    pytorch_us: float
    ratio: float
    bound_us: float
    triad_share: float


aten = torch.ops.aten
Clock = Callable[[], int]  # nanoseconds


def catalog_cases(length: int, dtype: str) -> Iterator[Case]:
    """`OPERATIONS` at GPT-2's sizes, each beside what `perfkit bench` calls PyTorch's own."""
    for family in perfkit.kernels.catalog():
        for operation in family.operations:
            if operation.name in OPERATIONS:
                yield catalog_case(family.name, operation, length, dtype)


def optimizer_cases(length: int, dtype: str) -> Iterator[Case]:
    """AdamW beside PyTorch's fused one, and the norm; both over `PARAMETERS` elements whatever the length is."""
    del length
    step, norm = perfkit.kernels.find("adamw_step"), perfkit.kernels.find("global_norm")
    if dtype == "fp32":  # PyTorch's keeps its moments in the precision of the parameters
        yield own_case(step, step.inputs(Inputs(dtype, 1), N=PARAMETERS))
    arguments = norm.inputs(Inputs(dtype, 1), N=PARAMETERS)
    yield Case(norm.name, arguments, partial(torch.linalg.vector_norm, *arguments))


def catalog_case(family: str, operation: Operation, length: int, dtype: str) -> Case:
    """One operation with random arguments for `BATCH` rows of `length` tokens."""
    fallback = operation.cases[-1]
    sizes = gpt2(family, list(fallback), "cpu", fallback, {"B": BATCH, "T": length})
    return own_case(operation, operation.inputs(Inputs(dtype, 1), **sizes))


def own_case(operation: Operation, arguments: tuple[Any, ...]) -> Case:
    """The operation beside PyTorch's own operator, or its reference where that is one."""
    own = OWN.get(operation.name)
    return Case(operation.name, arguments, own(*arguments) if own else partial(operation.reference, *arguments))


def fused_cases(length: int, dtype: str) -> Iterator[Case]:
    """Multiply-add-activation over 4C columns."""
    make = Inputs(dtype, 1).normal
    x, z, dy = (make(BATCH * length, 4 * CHANNELS) for _ in range(3))
    bias, alpha = make(4 * CHANNELS), 0.5
    for name, activate in ACTIVATIONS.items():
        u = torch.add(x, z, alpha=alpha) + bias
        y = activate(u)
        slopes: dict[str, Callable[..., Any]] = {
            "relu": lambda y=y: aten.threshold_backward(dy, y, 0),
            "sigmoid": lambda y=y: aten.sigmoid_backward(dy, y),
            "gelu": lambda u=u: aten.gelu_backward(dy, u, approximate="tanh"),
            "silu": lambda u=u: aten.silu_backward(dy, u),
        }

        def forward(activate: Any = activate) -> Any:
            return activate(torch.add(x, z, alpha=alpha) + bias)

        def backward(slope: Any = slopes[name]) -> Any:
            du = slope()
            return du, du * alpha

        saved = (y, alpha) if name in ("relu", "sigmoid") else (x, z, bias, alpha)
        yield Case(f"multiply_add_{name}_forward", (x, z, alpha, bias), forward)
        yield Case(f"multiply_add_{name}_backward", (dy, *saved), backward)


GROUPS = (catalog_cases, fused_cases, optimizer_cases)


def medians_us(calls: list[Callable[[], Any]], seconds: float, clock: Clock) -> list[float]:
    """Median microseconds of each call, made in turn (A B C C B A …) for `seconds` and at least four times."""
    for call in calls * 2:
        call()
    samples: list[list[int]] = [[] for _ in calls]
    turns = list(zip(calls, samples, strict=True))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(samples[0]) < 4:
        for call, taken in turns + turns[::-1]:
            start = clock()
            call()
            taken.append(clock() - start)
    return [statistics.median(taken) / 1e3 for taken in samples]


@dataclass(frozen=True)
class Meter:
    """How calls are measured: by which clock, how long each case, and beside which triad of so many bytes."""

    clock: Clock
    seconds: float
    triad: Callable[[], Any]
    triad_bytes: int

    def measure(self, case: Case, length: int) -> Row:
        """Operator, PyTorch and bound kernel in turn; the triad in turn with a kernel of as many bytes, or after."""
        operation = perfkit.kernels.find(case.name)
        outputs = as_tuple(operation.allocate(*case.arguments))
        bound = perfkit.kernels.bind(operation, case.arguments, outputs)
        operator = getattr(torch.ops.perfkit, case.name).default
        ways: list[Callable[[], Any]] = [partial(operator, *case.arguments), case.theirs, bound]
        ours, theirs, kernel = medians_us(ways, self.seconds, self.clock)
        least = cost_of(operation, case.arguments).bytes
        if least >= self.triad_bytes:
            kernel, reference = medians_us([bound, self.triad], self.seconds / 2, self.clock)
        else:
            (reference,) = medians_us([self.triad], self.seconds / 4, self.clock)
        share = least / kernel / (self.triad_bytes / reference)
        return Row(case.name, length, ours, theirs, ours / theirs, kernel, share)


@dataclass(frozen=True)
class Figure:
    """Something that must be reached: what was measured, and whether it is enough."""

    name: str
    measured: str
    reached: bool


def worst_allowed(row: Row) -> float:
    """The limit of a single ratio: larger where the call itself takes as long as the kernel."""
    return WORST_SMALL if row.time <= SMALL_TIME else WORST


def figures(rows: list[Row]) -> list[Figure]:
    """All that must be reached, in the order of the first lines of this file."""
    worst = max(rows, key=lambda r: r.ratio)
    slow = [r for r in rows if r.ratio > worst_allowed(r)]
    found = [
        Figure(
            f"every ratio ≤ {WORST} (T = {SMALL_TIME}: {WORST_SMALL})",
            f"worst {worst.ratio:.2f} ({worst.operation}, T = {worst.time}), {len(slow)} of {len(rows)} above",
            not slow,
        )
    ]
    found += [Figure(f"{r.operation}, T = {r.time}: ratio ≤ {worst_allowed(r)}", f"{r.ratio:.2f}", False) for r in slow]
    mean = geometric_mean(rows)
    by_time = (
        f"{geometric_mean([r for r in rows if r.time == time]):.2f} at T = {time}"
        for time in sorted({r.time for r in rows})
    )
    found.append(Figure(f"geometric mean ≤ {MEAN}", f"{mean:.3f} ({', '.join(by_time)})", mean <= MEAN))
    for row in rows:
        if row.operation == "classifier":
            faster = f"{1 / row.ratio:.1f} × as fast"
            found.append(Figure(f"classifier, T = {row.time}: ≥ 4 ×", faster, row.ratio <= CLASSIFIER))
    for row in rows:
        wanted = BANDWIDTH.get(row.operation, 0.0) if row.time >= 1024 or row.operation == "adamw_step" else 0.0
        if wanted:
            name = f"{row.operation}, T = {row.time}: of triad ≥ {wanted:.0%}"
            found.append(Figure(name, f"{row.triad_share:.0%}", row.triad_share >= wanted))
    return found


def geometric_mean(rows: list[Row]) -> float:
    """Of the ratios."""
    return math.exp(statistics.fmean(math.log(row.ratio) for row in rows))


HEAD = f"{'operation':30} {'T':>5} {'ours µs':>10} {'PyTorch µs':>11} {'ratio':>6} {'bound µs':>10} {'of triad':>9}"


def show(row: Row) -> None:
    """Print a row below `HEAD`."""
    print(
        f"{row.operation:30} {row.time:5} {row.ours_us:10.1f} {row.pytorch_us:11.1f} {row.ratio:6.2f} "
        f"{row.bound_us:10.1f} {row.triad_share:9.0%}",
        flush=True,
    )


def run(arguments: argparse.Namespace) -> list[Row]:
    """Measure and print every case, in this process."""
    a, b, c = (torch.ones(16 << 20) for _ in range(3))
    clock = time.thread_time_ns if arguments.cpu_time else time.perf_counter_ns
    meter = Meter(clock, arguments.seconds, lambda: torch.add(b, c, alpha=3.0, out=a), 12 * a.numel())
    rows = []
    print(HEAD)
    for length in arguments.time:
        for group in GROUPS:
            if group is optimizer_cases and length != arguments.time[-1]:
                continue  # the same at every length
            for case in group(length, arguments.dtype):
                if arguments.only and not any(word in case.name for word in arguments.only):
                    continue
                row = meter.measure(case, length)
                rows.append(row)
                show(row)
    return rows


def run_apart(arguments: argparse.Namespace) -> list[Row]:
    """Measure every case in processes of their own, one after another; print and return the medians."""
    found: list[list[Row]] = []
    own = ["--processes", "1", "--seconds", str(arguments.seconds / arguments.processes)]
    for number in range(arguments.processes):
        print(f"process {number + 1} of {arguments.processes}", flush=True)
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            done = subprocess.run(
                [sys.executable, __file__, *sys.argv[1:], *own, "--json", file.name], stdout=subprocess.DEVNULL
            )
            if done.returncode not in (0, 1):
                sys.exit(done.returncode)
            found.append([Row(**row) for row in json.load(file)["rows"]])
    print(HEAD)
    rows = [median_row(same) for same in zip(*found, strict=True)]
    for row in rows:
        show(row)
    return rows


def median_row(rows: Sequence[Row]) -> Row:
    """The median of each figure of one case over the processes."""
    figures = {
        field.name: statistics.median(getattr(row, field.name) for row in rows)
        for field in fields(Row)
        if field.name not in ("operation", "time")
    }
    return Row(rows[0].operation, rows[0].time, **figures)


def main() -> int:
    """Measure the kernels and print each beside PyTorch (µs, ratio, share of triad); 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", type=int, nargs="+", default=[64, 1024], help="sequence lengths")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--threads", type=int, help="threads of both sides (default: PyTorch's)")
    parser.add_argument("--seconds", type=float, default=1.5, help="how long each case is measured at least, in all")
    parser.add_argument("--processes", type=int, default=3, help="fresh processes that share the time")
    parser.add_argument("--cpu-time", action="store_true", help="a thread's own time, on a busy machine")
    parser.add_argument("--keep-freed", action="store_true", help="no fresh pages for either side")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="operations whose name contains one of these")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.keep_freed and not keeping.keep_freed():
        sys.exit("Keeping freed tensors needs Linux and a C++ compiler: leave --keep-freed out.")
    perfkit.kernels.load()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan
    threads = torch.get_num_threads()
    print(f"PyTorch {torch.__version__}, {threads} threads, {arguments.dtype}, load {load:.1f}")
    with torch.no_grad():
        rows = run(arguments) if arguments.processes == 1 else run_apart(arguments)
    wanted = figures(rows) if arguments.dtype == "fp32" else []  # bf16 is only shown
    print(f"\ngeometric mean of the ratios {geometric_mean(rows):.3f}")
    for figure in wanted:
        print(f"{'pass' if figure.reached else 'miss'}  {figure.name}: {figure.measured}")
    if arguments.json:
        result = {"rows": [asdict(row) for row in rows], "figures": [asdict(figure) for figure in wanted]}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    return int(not all(figure.reached for figure in wanted))


if __name__ == "__main__":
    sys.exit(main())
