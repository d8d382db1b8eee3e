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
from perfkit import functional
from perfkit.cost.model import Call, TensorSpec
from perfkit.kernels.c import keeping
from perfkit.kernels.dtypes import TORCH_DTYPES, name_of

BATCH, HEADS, CHANNELS, VOCABULARY, POSITIONS = 4, 12, 768, 50257, 1024
PARAMETERS = 16 << 20  # of the optimizer's case: four tensors of 64 MiB
WORST, WORST_SMALL, SMALL_TIME, MEAN, CLASSIFIER = 1.05, 1.25, 64, 0.5, 0.25
BANDWIDTH = {
    **dict.fromkeys(("layernorm_forward", "layernorm_backward", "residual_forward", "adamw_step", "classifier"), 0.75),
    **dict.fromkeys(("gelu_forward", "gelu_backward"), 0.5),
}
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


def attention_cases(length: int, make: Callable[..., torch.Tensor]) -> Iterator[Case]:
    """Split, causal softmax and merge. PyTorch splits into views; the copies are what its matmuls make of them."""
    size = CHANNELS // HEADS
    qkv, merged = make(BATCH, length, 3 * CHANNELS), make(BATCH, length, CHANNELS)
    heads = tuple(make(BATCH, HEADS, length, size) for _ in range(3))
    scores, datt = (make(BATCH, HEADS, length, length) for _ in range(2))
    scale = size**-0.5
    att = functional.causal_softmax(scores, scale)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)

    def softmax() -> Any:
        return torch.softmax((scores * scale).masked_fill(future, -math.inf), dim=-1)

    def softmax_backward() -> Any:
        return aten._softmax_backward_data(datt, att, -1, datt.dtype).masked_fill(future, 0.0) * scale

    def merge_backward() -> Any:
        return merged.unflatten(-1, (HEADS, -1)).transpose(1, 2).contiguous()

    yield Case(
        "split_heads_forward", (qkv, HEADS), lambda: [t.contiguous() for t in functional.split_heads(qkv, HEADS)]
    )
    yield Case("split_heads_backward", heads, lambda: torch.cat([functional.merge_heads(t) for t in heads], dim=-1))
    yield Case("merge_heads_forward", heads[:1], lambda: functional.merge_heads(heads[0]))
    yield Case("merge_heads_backward", (merged, HEADS), merge_backward)
    yield Case("causal_softmax_forward", (scores, scale), softmax)
    yield Case("causal_softmax_backward", (datt, att, scale), softmax_backward)
    yield Case("softmax_forward", (scores,), lambda: torch.softmax(scores, dim=-1))
    yield Case("softmax_backward", (datt, att), lambda: aten._softmax_backward_data(datt, att, -1, datt.dtype))


def layer_cases(length: int, make: Callable[..., torch.Tensor]) -> Iterator[Case]:
    """LayerNorm and the residual over C channels, GELU over 4C, the bias's gradient, the encoder."""
    x, b, dy = (make(BATCH, length, CHANNELS) for _ in range(3))
    weight, bias = make(CHANNELS), make(CHANNELS)
    wide, dwide = (make(BATCH, length, 4 * CHANNELS) for _ in range(2))
    shape, eps = (CHANNELS,), 1e-5
    _, mean, rstd = torch.ops.perfkit.layernorm_forward(x, weight, bias, eps)
    kept = aten.native_layer_norm(x, shape, weight, bias, eps)[1:]
    yield Case("layernorm_forward", (x, weight, bias, eps), lambda: aten.native_layer_norm(x, shape, weight, bias, eps))
    yield Case(
        "layernorm_backward",
        (dy, x, weight, mean, rstd),
        lambda: aten.native_layer_norm_backward(dy, x, shape, *kept, weight, bias, (True, True, True)),
    )
    yield Case("residual_forward", (x, b), lambda: x + b)
    yield Case(
        "residual_layernorm_forward",
        (x, b, weight, bias, eps),
        lambda: aten.native_layer_norm(x + b, shape, weight, bias, eps),
    )
    yield Case("gelu_forward", (wide,), lambda: aten.gelu(wide, approximate="tanh"))
    yield Case("gelu_backward", (dwide, wide), lambda: aten.gelu_backward(dwide, wide, approximate="tanh"))
    yield Case("bias_gradient", (dwide,), lambda: dwide.flatten(0, -2).sum(dim=0))
    idx = torch.randint(0, VOCABULARY, (BATCH, length))
    wte, wpe = make(VOCABULARY, CHANNELS), make(POSITIONS, CHANNELS)

    def encoder_backward() -> Any:
        dwpe = torch.zeros_like(wpe)
        dwpe[:length] = dy.sum(dim=0)
        return aten.embedding_dense_backward(dy, idx, VOCABULARY, -1, False), dwpe

    yield Case("encoder_forward", (idx, wte, wpe), lambda: F.embedding(idx, wte) + wpe[:length])
    yield Case("encoder_backward", (dy, idx, VOCABULARY, POSITIONS), encoder_backward)


def fused_cases(length: int, make: Callable[..., torch.Tensor]) -> Iterator[Case]:
    """Bias + ReLU, and multiply-add-activation, over 4C columns."""
    x, z, dy = (make(BATCH * length, 4 * CHANNELS) for _ in range(3))
    bias, alpha = make(4 * CHANNELS), 0.5
    y = torch.relu(x + bias)
    yield Case("bias_relu_forward", (x, bias), lambda: torch.relu(x + bias))
    yield Case("bias_relu_backward", (dy, y), lambda: aten.threshold_backward(dy, y, 0))
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


def loss_cases(length: int, make: Callable[..., torch.Tensor]) -> Iterator[Case]:
    """Cross entropy: PyTorch's is log_softmax and nll_loss, and their backward operators; the classifier is all."""
    logits = make(BATCH * length, VOCABULARY)
    targets = torch.randint(0, VOCABULARY, (BATCH * length,))
    dloss = torch.ones(())
    _, logsumexp = torch.ops.perfkit.cross_entropy_forward(logits, targets, VOCABULARY, -1)
    kept = aten._log_softmax(logits, 1, False)
    weight = aten.nll_loss_forward(kept, targets, None, 1, -1)[1]

    def forward() -> Any:
        return aten.nll_loss_forward(aten._log_softmax(logits, 1, False), targets, None, 1, -1)

    def backward(kept: torch.Tensor = kept) -> Any:
        picked = aten.nll_loss_backward(dloss.to(kept.dtype), kept, targets, None, 1, -1, weight)
        return aten._log_softmax_backward_data(picked, kept, 1, logits.dtype)

    def both() -> Any:
        values = aten._log_softmax(logits, 1, False)
        aten.nll_loss_forward(values, targets, None, 1, -1)
        return backward(values)

    yield Case("cross_entropy_forward", (logits, targets, VOCABULARY, -1), forward)
    yield Case("cross_entropy_backward", (dloss, logits, targets, logsumexp, VOCABULARY, -1), backward)
    yield Case("classifier", (logits, targets, 1.0 / len(targets), VOCABULARY, -1), both)


def optimizer_cases(length: int, make: Callable[..., torch.Tensor]) -> Iterator[Case]:
    """AdamW beside PyTorch's fused one, and the norm; both over `PARAMETERS` elements whatever the length is."""
    del length
    param, grad = make(PARAMETERS), make(PARAMETERS)
    m, v = torch.zeros(PARAMETERS), torch.zeros(PARAMETERS)
    theirs = [[t.clone()] for t in (param, grad, m.to(param.dtype), v.to(param.dtype))]
    step = [torch.ones(())]
    options: dict[str, Any] = {"lr": 1e-4, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8}
    options |= {"amsgrad": False, "maximize": False}
    adamw: Any = torch._fused_adamw_
    yield Case(
        "adamw_step",
        (param, grad, m, v, 1e-4, 0.9, 0.999, 1e-8, 0.01, 1, 1.0),
        lambda: adamw(*theirs, [], step, **options),
    )
    yield Case("global_norm", (grad,), lambda: torch.linalg.vector_norm(grad))


GROUPS = (attention_cases, layer_cases, fused_cases, loss_cases, optimizer_cases)


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


def least_bytes(case: Case) -> float:
    """Bytes read and written, by the operation's own cost."""
    specs = [TensorSpec(tuple(a.shape), name_of(a.dtype)) if isinstance(a, torch.Tensor) else a for a in case.arguments]
    cost = perfkit.kernels.find(case.name).cost(Call(f"perfkit::{case.name}", tuple(specs)))
    return cost.bytes_read + cost.bytes_written


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
        outputs = operation.allocate(*case.arguments)
        outputs = (outputs,) if isinstance(outputs, torch.Tensor) else outputs
        bound = perfkit.kernels.bind(operation, case.arguments, outputs)
        operator = getattr(torch.ops.perfkit, case.name).default
        ways: list[Callable[[], Any]] = [partial(operator, *case.arguments), case.theirs, bound]
        ours, theirs, kernel = medians_us(ways, self.seconds, self.clock)
        least = least_bytes(case)
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
    dtype = TORCH_DTYPES[arguments.dtype]
    a, b, c = (torch.ones(16 << 20) for _ in range(3))
    clock = time.thread_time_ns if arguments.cpu_time else time.perf_counter_ns
    meter = Meter(clock, arguments.seconds, lambda: torch.add(b, c, alpha=3.0, out=a), 12 * a.numel())
    rows = []
    print(HEAD)
    for length in arguments.time:
        for group in GROUPS:
            if group is optimizer_cases and length != arguments.time[-1]:
                continue  # the same at every length
            for case in group(length, lambda *shape: torch.randn(*shape).to(dtype)):
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
