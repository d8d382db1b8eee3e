"""GPT-2's training step (124M, B = 4, T = 64, fp32, CPU) on four backends in turn, and the least that one can take.

Must be reached on a quiet machine: llmc at most 0.75 of eager's time with PyTorch's default AdamW and 0.9 with its
fused one; thunder-llmc no slower than eager, and 1.5 × as fast as thunder. The last is held against a bound, measured
beside them: the step's matrix products as thunder-llmc has them, into memory that is there already, and the same
optimizer over the same parameters. Everything else a step does is taken to cost nothing. Where thunder's time over this
bound is less than 1.5, no kernel can make thunder-llmc 1.5 × as fast as thunder, and the last column says what could be
at most.

    python benchmarks/gpt2_step.py        # default AdamW, then fused; about three minutes, 10 GB of memory
    python benchmarks/gpt2_step.py --optimizer fused --turns 20
    python benchmarks/gpt2_step.py -B 1 -T 1024 --turns 4
    python benchmarks/gpt2_step.py --allocator keep      # all four keep what they free

Correctness and memory are the affair of `perfkit run gpt2 --backend eager,thunder,thunder-llmc,llmc`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from perfkit import backends
from perfkit.backends.thunder import support
from perfkit.kernels.c import keeping
from perfkit.run_folder import Settings
from perfkit.workloads import Workload, find, resolve_settings

EAGER, THUNDER, THUNDER_LLMC, LLMC = NAMES = ("eager", "thunder", "thunder-llmc", "llmc")
LLMC_OF_EAGER = {"default": 0.75, "fused": 0.9}
SPEEDUP = 1.5
PRODUCTS, OPTIMIZER = "matrix products", "optimizer"

Size = dict[str, Any]  # preset, batch_size and sequence_length, as of `resolve_settings`


def products(sizes: dict[str, Any], batch: int, length: int) -> Callable[[], None]:
    """All matrix products of a step: forward, and for each the gradients of both factors; results into fixed memory."""
    channels, heads, rows = sizes["channels"], sizes["heads"], batch * length
    shapes = [(3 * channels, channels), (channels, channels), (4 * channels, channels), (channels, 4 * channels)]
    layers = [linear(rows, *shape) for shape in shapes]
    head = linear(rows, sizes["vocabulary"], channels)
    size = channels // heads
    scores = batched(batch * heads, length, length, size)
    mixed = batched(batch * heads, length, size, length)

    def run() -> None:
        for _ in range(sizes["layers"]):
            for part in (*layers, scores, mixed):
                part()
        head()

    return run


def linear(rows: int, outputs: int, inputs: int) -> Callable[[], None]:
    """y = x · Wᵀ, dx = dy · W, dW = dyᵀ · x for x (rows, inputs) and W (outputs, inputs)."""
    support.load()  # products imports it
    from perfkit.backends.thunder.executor import products

    x, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs)

    def run() -> None:
        y = products.linear_forward(x, weight)
        products.linear_input_gradient(y, weight)
        products.linear_weight_gradient(y, x)

    return run


def batched(count: int, m: int, n: int, k: int) -> Callable[[], None]:
    """c (count, m, n) = a (count, m, k) · b (count, k, n), and the gradients of a and b."""
    a, b = torch.randn(count, m, k), torch.randn(count, k, n)
    c, da, db = torch.randn(count, m, n), torch.empty_like(a), torch.empty_like(b)

    def run() -> None:
        torch.bmm(a, b, out=c)
        torch.bmm(c, b.transpose(1, 2), out=da)
        torch.bmm(a.transpose(1, 2), c, out=db)

    return run


def step_of(name: str, form: str, size: Size) -> Callable[[], Any]:
    """A training step of a backend, the same batch each time."""
    workload, settings = chosen(form, size)
    if settings.allocator == "keep":
        keeping.keep_freed()
    backend = backends.get(name)
    if reason := backend.unavailable(settings):
        sys.exit(f"{name} cannot run here: {reason}")
    program = backend.prepare(workload, workload.build(settings), settings)
    program.outputs_wanted = False
    batch = [workload.batch(settings, 0)]
    return lambda: program.train_step(batch)


def products_of(name: str, form: str, size: Size) -> Callable[[], Any]:
    """The products of a step, in a process that keeps what is freed: the least that they can take."""
    keeping.keep_freed()
    workload, settings = chosen(form, size)
    assert settings.sequence_length is not None
    return products(workload.dimensions(settings), settings.batch_size, settings.sequence_length)


def optimizer_of(name: str, form: str, size: Size) -> Callable[[], Any]:
    """The optimizer of a step by itself, in such a process too."""
    keeping.keep_freed()
    workload, settings = chosen(form, size)
    program: Any = backends.get(EAGER).prepare(workload, workload.build(settings), settings)
    program.train_step([workload.batch(settings, 0)])  # leaves gradients
    for parameter in program.model.parameters():
        parameter.grad = torch.randn_like(parameter)
    return program.optimizer.step


def chosen(form: str, size: Size) -> tuple[Workload, Settings]:
    """GPT-2 with the settings of a step whose optimizer has `form`: default, foreach or fused."""
    workload = find("gpt2")
    return workload, resolve_settings(workload, optimizer=form, **size)


def size_of(arguments: argparse.Namespace) -> Size:
    """Preset, B, T and allocator, as `resolve_settings` takes them."""
    return {"preset": arguments.preset, "batch_size": arguments.batch, "sequence_length": arguments.length,
            "allocator": arguments.allocator}  # fmt: skip


MAKERS = {**dict.fromkeys(NAMES, step_of), PRODUCTS: products_of, OPTIMIZER: optimizer_of}


def serve(pipe: Connection, name: str, form: str, size: Size, cpu_time: bool) -> None:
    """The child's side: answer each message with the seconds of one call; None ends it."""
    call = MAKERS[name](name, form, size)
    clock = time.process_time if cpu_time else time.perf_counter
    with torch.set_grad_enabled(name != PRODUCTS):
        while pipe.recv() is not None:
            start = clock()
            call()
            pipe.send(clock() - start)


def medians_s(form: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Median seconds of each call, in turn (A B C C B A …), each in a process of its own: how one uses memory is
    nothing to the others. The first two calls build and warm up, and one before each that counts finds cold caches."""
    context = multiprocessing.get_context("spawn")
    pipes = {}
    for name in MAKERS:
        pipes[name], theirs = context.Pipe()
        given = (theirs, name, form, size_of(arguments), arguments.cpu_time)
        context.Process(target=serve, args=given, daemon=True).start()
        theirs.close()
    samples: dict[str, list[float]] = {name: [] for name in MAKERS}
    for turn in range(arguments.turns + 1):
        for name in list(MAKERS) if turn % 2 else list(MAKERS)[::-1]:
            taken = [_one(pipes[name]) for _ in range(2)]
            samples[name] += taken[1:] if turn else []
    for pipe in pipes.values():
        pipe.send(None)
    return {name: statistics.median(taken) for name, taken in samples.items()}


def _one(pipe: Any) -> float:
    pipe.send("call")
    return float(pipe.recv())


def measure(form: str, arguments: argparse.Namespace) -> list[tuple[str, str, bool]]:
    """Measure and print one form of the optimizer; each figure to be reached, what it is, and whether it is."""
    took = medians_s(form, arguments)
    print(f"\nAdamW: {form}\n{'':16} {'ms':>8} {'of eager':>9} {'× thunder':>10}")
    for name, seconds in took.items():
        shares = f"{seconds / took[EAGER]:9.2f} {took[THUNDER] / seconds:10.2f}" if name in NAMES else ""
        print(f"{name:16} {seconds * 1e3:8.1f} {shares}")
    bound = took[PRODUCTS] + took[OPTIMIZER]
    most = took[THUNDER] / bound
    print(f"{'least of a step':16} {bound * 1e3:8.1f} {bound / took[EAGER]:9.2f} {most:10.2f}   products + optimizer")
    print(f"thunder-llmc spends {(took[THUNDER_LLMC] - bound) * 1e3:.0f} ms on everything else")
    speedup, of_eager = took[THUNDER] / took[THUNDER_LLMC], took[THUNDER_LLMC] / took[EAGER]
    limit = LLMC_OF_EAGER[form]
    possible = "" if most >= SPEEDUP else f"; at most {most:.2f} is possible here"
    return [
        (
            f"llmc ≤ {limit} × eager ({form} AdamW)",
            f"{took[LLMC] / took[EAGER]:.2f}",
            took[LLMC] <= limit * took[EAGER],
        ),
        (f"thunder-llmc no slower than eager ({form} AdamW)", f"{of_eager:.2f}", of_eager <= 1.0),
        (f"thunder-llmc ≥ {SPEEDUP} × thunder ({form} AdamW)", f"{speedup:.2f}{possible}", speedup >= SPEEDUP),
    ]


def main() -> int:
    """Measure each form of the optimizer, then say which figures are reached; 1 when one is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--optimizer", choices=list(LLMC_OF_EAGER), action="append", help="one form (both by default)")
    parser.add_argument("--preset", default="gpt2", help="another size of the model, to try the script")
    parser.add_argument("-B", "--batch", type=int, default=4)
    parser.add_argument("-T", "--length", type=int, default=64)
    parser.add_argument("--allocator", choices=("default", "keep"), default="default", help="of all four backends")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument(
        "--cpu-time", action="store_true", help="the process's own time: for a busy machine, one thread"
    )
    arguments = parser.parse_args()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    print(f"{arguments.allocator} allocator, PyTorch {torch.__version__}, {torch.get_num_threads()} threads, "
          f"{arguments.preset}, B = {arguments.batch}, T = {arguments.length}, load {load:.1f}")  # fmt: skip
    wanted = [figure for form in arguments.optimizer or LLMC_OF_EAGER for figure in measure(form, arguments)]
    print()
    for name, measured, reached in wanted:
        print(f"{'pass' if reached else 'miss'}  {name}: {measured}")
    return int(not all(reached for *_, reached in wanted))


if __name__ == "__main__":
    sys.exit(main())
