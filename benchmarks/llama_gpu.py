"""Llama on a GPU against what it has to reach: kernels, a training step, and decoding.

    python benchmarks/llama_gpu.py [--preset 1b] [--only kernels,head,train,decode] [--json FILE] [--limit SECONDS]
    python benchmarks/llama_gpu.py --preset tiny --device cpu --dtype fp32     whether it works, without a GPU

Kernels: the fastest of ours at the sizes that Liger shows (RMSNorm with C = 16384, rotary with T = 8192, cross entropy
with V = 131072), with a cold cache: over PyTorch as models write it, which the goals are about ("naive" in `perfkit
bench`), over PyTorch's own operator, and its bandwidth over that of a copy that moves as many bytes, half of
them read and half written, timed as the kernel is. (On an H100 a copy that moves 84 MB has 0.79 of the bandwidth of one
that moves 2 GB, one of 201 MB 0.89: kernels of these sizes do not reach a large copy's. Its share is shown too.) Head:
the head with its cross entropy, forward and backward, at 32768 rows of Llama 3.2's sizes, by chunks against PyTorch
with whole logits (which models convert to fp32): peak memory, and time against the faster of with and without the
conversion. Train: a step of B = 8, T = 2048 with fused attention; of half the batch where memory runs out, and so on.
Decode: one sequence, against reading weights and cache once a token. A line says what was found, what is asked, and
whether it is reached. Exit code 1: something is not reached, wrong, or failed; with --measure a figure that misses its
goal is not a failure.

A session on a GPU is short. Train and decode run the backends that their goals name, and time them without a profile
(--profile torch makes one); --backend chooses others, --out keeps the runs. Thunder needs minutes to trace a model for
decoding, so that it has to be asked for: --only decode --backend compile,kernels,thunder. Figures are printed, and
written to --json, as they come: a part that fails, or is ended by --limit, leaves those before it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

PERFKIT = [sys.executable, "-m", "perfkit"]
TRAIN, DECODE = "compile,thunder-llmc,llmc", "compile,kernels,llmc"  # eager checks them, named or not
KERNELS = {  # sizes, and how many times the speed of PyTorch as models write it is asked
    "rmsnorm_forward": ("B=1,T=2048,C=16384", 8.0),
    "rmsnorm_backward": ("B=1,T=2048,C=16384", 8.0),
    "rotary_forward": ("B=1,T=8192,NH=32,NKV=8,P=32", 10.0),
    "rotary_backward": ("B=1,T=8192,NH=32,NKV=8,P=32", 10.0),
    "cross_entropy_forward": ("N=4096,V=131072,Vp=131072", 2.4),
    "cross_entropy_backward": ("N=4096,V=131072,Vp=131072", 2.4),
}
BY_PYTORCH = {"naive", "pytorch", "compile"}
HEAD = {"rows": 32768, "channels": 2048, "vocabulary": 128256}
COPY = 0.9  # the share of the bandwidth of a copy of the same bytes that is asked
LARGE = float(1 << 31)  # bytes that a large copy moves
SMALL = {"C": 256, "T": 64, "N": 16, "V": 1024, "Vp": 1024}  # where it is only to be seen that it works


@dataclass(frozen=True)
class Goal:
    """A figure and its goal; `most` says whether less is better."""

    what: str
    found: float | None
    asked: float
    most: bool = False

    @property
    def reached(self) -> bool:
        """Return whether the figure is known and on the right side of the goal."""
        return self.found is not None and (self.found <= self.asked if self.most else self.found >= self.asked)

    def __str__(self) -> str:
        found = "none" if self.found is None else f"{self.found:.2f}"
        asked = f"{'≤' if self.most else '≥'} {self.asked}"
        return f"{'reached' if self.reached else 'MISSED ':7}  {self.what}: {found}, asked {asked}"


def main() -> int:
    """Measure what `--only` names; return 1 when something is missed, wrong or failed."""
    options = parsed()
    found: list[tuple[str, Goal]] = []
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        for part in options.only:
            say(f"{part} begins, {time.monotonic() - options.began:.0f} s after the start")
            try:
                for goal in PARTS[part](options, options.out or Path(scratch)):
                    say(goal)
                    found.append((part, goal))
                    write(options.json, found)
            except Exception as error:  # whatever it is, the other parts are worth having
                say(f"FAILED   {part}: {type(error).__name__}: {error}")
                failed.append(part)
    missed = sum(not goal.reached for _, goal in found)
    say(f"{len(found) - missed} of {len(found)} reached{', failed: ' * bool(failed)}{', '.join(failed)}")
    lacking = sum(goal.found is None for _, goal in found)
    return int(bool(failed) or (lacking if options.measure else missed) > 0)


def parsed() -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--preset", default="1b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--backend", help=f"of train and decode; without it {TRAIN} and {DECODE}")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--generate", type=int, default=32, help="tokens of a step that decodes, after a prompt of 64")
    parser.add_argument("--steps", type=int, default=6, help="timed steps of train and decode")
    parser.add_argument("--profile", default="none", help="--profiler of train and decode")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which nothing more runs")
    parser.add_argument("--measure", action="store_true", help="a missed goal is not a failure")
    parser.add_argument("--out", type=Path, help="keep the runs in this folder")
    parser.add_argument("--json", type=Path, help="write the figures here, as they come")
    options = parser.parse_args()
    options.only, options.began = options.only.split(","), time.monotonic()
    if unknown := set(options.only) - PARTS.keys():
        parser.error(f"--only knows no {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}.")
    return options


def say(text: object) -> None:
    """Print at once."""
    print(text, flush=True)


def write(path: Path | None, found: Sequence[tuple[str, Goal]]) -> None:
    """The figures so far, as a whole file at any moment."""
    if path:
        rows = [{"part": part, **asdict(goal), "reached": goal.reached} for part, goal in found]
        partial_file = path.with_name(f"{path.name}.part")
        partial_file.write_text(json.dumps(rows, indent=1) + "\n")
        partial_file.replace(path)


def perfkit(options: Any, *arguments: str) -> str:
    """Run perfkit; its output is shown, and its messages besides the report are returned. A wrong backend shows in what
    it wrote. Raises `TimeoutError` at the limit."""
    say(f"$ perfkit {' '.join(arguments)}")
    end = options.began + options.limit
    said = []
    with subprocess.Popen([*PERFKIT, *arguments], stderr=subprocess.PIPE, text=True) as process:
        limit = threading.Timer(min(max(end - time.monotonic(), 0.0), threading.TIMEOUT_MAX), process.kill)
        limit.start()
        try:
            assert process.stderr is not None
            for line in process.stderr:
                said.append(line)
                print(line, end="", file=sys.stderr, flush=True)
        finally:
            limit.cancel()
    if process.returncode < 0 and time.monotonic() >= end:
        raise TimeoutError(f"ended by --limit {options.limit:g}")
    return "".join(said)


def kernels(options: Any, scratch: Path) -> Iterator[Goal]:
    """The fastest right kernel of ours over PyTorch as models write it, and against a copy, with a cold cache."""
    largest = copied(options.device, LARGE)
    if largest:
        say(f"a large copy moves {largest / 1e12:.2f} TB/s, smaller ones less: a kernel is judged by one of its size")
    for name, (sizes, asked) in KERNELS.items():
        given = sizes if options.device != "cpu" else small(sizes)
        perfkit(options, "bench", name, "--sizes", given, "--device", options.device, "--dtype", options.dtype,
                "--cache", "cold", "--out", str(scratch))  # fmt: skip
        path = scratch / f"bench-{name}.json"
        point = json.loads(path.read_text())["points"][0] if path.is_file() else {"rows": [], "bytes": None}
        timed = {r["way"]: r["cold"] for r in point["rows"] if r["status"] == "ok" and r["cold"]}
        times = {way: cold["ns"]["value"] for way, cold in timed.items()}
        best = min(times.keys() - BY_PYTORCH, key=lambda way: times[way], default=None)
        over = {way: times[way] / times[best] for way in BY_PYTORCH & times.keys()} if best else {}
        what = f"{name} ({given}), {best or 'no kernel'}"
        own = f" ({over['pytorch']:.2f} × PyTorch's own operator)" if "pytorch" in over else ""
        yield Goal(f"{what} over PyTorch as models write it{own}", over.get("naive"), asked)
        if largest and best:
            rate, alike = timed[best]["bandwidth"], copied(options.device, point["bytes"])
            of = f"of the {point['bytes'] / 1e6:.0f} MB that it moves ({rate / largest:.2f} of a large copy's)"
            yield Goal(f"{what}, bandwidth / that of a copy {of}", rate / alike if alike else None, COPY)
        elif largest:
            yield Goal(f"{what}, bandwidth / that of a copy", None, COPY)


def copied(device: str, moved: float) -> float | None:
    """Bytes a second of a copy on a GPU that reads and writes `moved` together, with a cold cache; None on a CPU."""
    if device == "cpu":
        return None
    from statistics import median

    import torch

    from perfkit.bench.measure import clock_for, in_turns
    from perfkit.bench.results import COLD

    source = torch.randn(max(int(moved) // 8, 1), device=device)  # 4 bytes an element, read once and written once
    target = torch.empty_like(source)
    clock = clock_for(device, torch.cuda.get_device_properties(device).L2_cache_size)
    (samples,) = in_turns(clock, [partial(target.copy_, source)], [1], COLD, seconds=0.5)
    found = 2 * source.nbytes * 1e9 / median(samples)
    del source, target, clock
    torch.cuda.empty_cache()
    return found


def head(options: Any, scratch: Path) -> Iterator[Goal]:
    """Forward and backward of head and loss, whole and by chunks: peak memory and time."""
    from statistics import median

    import torch
    from torch.nn.functional import cross_entropy, linear

    from perfkit import functional, kernels
    from perfkit.kernels.dtypes import TORCH_DTYPES

    kernels.load()
    fused = torch.ops.perfkit.linear_cross_entropy_forward
    rows, channels, vocabulary = HEAD.values() if options.device != "cpu" else (64, 32, 1000)
    made = {"dtype": TORCH_DTYPES[options.dtype], "device": options.device, "requires_grad": True}
    x, weight = torch.randn(rows, channels, **made), torch.empty(vocabulary, channels, **made)  # type: ignore[arg-type]
    torch.nn.init.normal_(weight, std=0.02)
    targets = torch.randint(0, vocabulary, (rows,), device=options.device)
    ways = {
        "as models write it": lambda: functional.linear_cross_entropy(x, weight, targets, -1),
        "without conversion": lambda: cross_entropy(linear(x, weight), targets, ignore_index=-1),
        "by chunks": lambda: fused(x, weight, targets, vocabulary, -1)[0],
    }
    found = {name: measured(partial(gradients, loss, (x, weight))) for name, loss in ways.items()}
    for name, (samples, peak) in found.items():
        memory = "unknown" if peak is None else f"{peak / 2**30:.2f} GiB"
        print(f"head {name}: {median(samples):.2f} ms, {memory} above its arguments", flush=True)
    models, own = found["as models write it"][1], found["by chunks"][1]
    ratio = own / models if own is not None and models else None
    yield Goal(f"head by chunks at {rows} rows, memory / PyTorch's", ratio, 0.21, most=True)
    times = {name: median(samples) for name, (samples, _) in found.items()}
    theirs = min(time for name, time in times.items() if name != "by chunks")
    yield Goal(f"head by chunks at {rows} rows, time / PyTorch's", times["by chunks"] / theirs, 1.0, most=True)


def gradients(loss: Callable[[], Any], leaves: Any) -> Any:
    """The gradients of `loss()` for `leaves`."""
    import torch

    return torch.autograd.grad(loss(), leaves)


def measured(call: Callable[[], Any], samples: int = 7) -> tuple[list[float], float | None]:
    """Times in ms of `call`, and on a GPU the most bytes that it had at once on top of those before."""
    import torch

    gpu = torch.cuda.is_available()
    call()
    taken = []
    before = torch.cuda.memory_allocated() if gpu else 0
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(samples):
        wait()
        start = time.perf_counter()
        call()
        wait()
        taken.append((time.perf_counter() - start) * 1e3)
    peak = float(torch.cuda.max_memory_allocated() - before) if gpu else None
    if gpu:
        torch.cuda.empty_cache()
    return taken, peak


def wait() -> None:
    """Wait for the GPU, where there is one."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def small(sizes: str) -> str:
    """Return sizes by letter for a trial on a CPU."""
    pairs = (part.split("=") for part in sizes.split(","))
    return ",".join(f"{name}={min(int(value), SMALL.get(name, 8))}" for name, value in pairs)


def train(options: Any, scratch: Path) -> Iterator[Goal]:
    """Check steps of the backends, and compare them with torch.compile's, at the largest batch that fits."""
    batch = options.batch
    while True:
        work = ["--variant", "sdpa", "-B", str(batch), "-T", str(options.length)]
        backends, said = ran(options, scratch / f"train-{batch}", TRAIN, *work)
        if batch == 1 or not ran_out(backends, said):
            break
        say(f"B = {batch} does not fit: B = {batch // 2}")
        batch //= 2
    yield Goal(f"share of the backends that are right at B = {batch}", right(backends), 1.0)
    steps = {b["name"]: b["step"]["value"] for b in backends if b["status"] == "ok" and b["step"]}
    for name, time_ns in steps.items():
        say(f"train {name}: {time_ns / 1e6:.2f} ms a step")
    for name, asked in {"thunder-llmc": 1.0, "llmc": 0.85}.items():
        known = name in steps and "compile" in steps
        yield Goal(f"step of {name} / compile", steps[name] / steps["compile"] if known else None, asked, most=True)


def decode(options: Any, scratch: Path) -> Iterator[Goal]:
    """One sequence: how near the best backend comes to reading weights and cache once a token."""
    work = ["--generate", str(options.generate), "--prompt", "64", "-B", "1"]
    backends, _ = ran(options, scratch / "decode", DECODE, *work)
    yield Goal("share of the backends that are right", right(backends), 1.0)
    phases = [(b["name"], p) for b in backends for p in b["phases"] if p["name"] == "decode" and p["efficiency"]]
    for name, phase in phases:
        say(f"decode {name}: {phase['time']['value'] / 1e6:.3f} ms a token, {phase['efficiency']:.0%} of its roof")
    best = max((phase["efficiency"] for _, phase in phases), default=None)
    yield Goal("decode, the best backend's share of its roof", best, 0.8)


def ran(options: Any, out: Path, backends: str, *work: str) -> tuple[list[dict[str, Any]], str]:
    """A run of llama on `--backend`, or else on `backends`: its report of each of them, and its messages."""
    said = perfkit(options, "run", "llama", "--preset", options.preset, *work, "--backend", options.backend or backends,
            "--skip-unavailable", "--device", options.device, "--dtype", options.dtype, "--steps", str(options.steps),
            "--profiler", options.profile, "--out", str(out), "--overwrite")  # fmt: skip
    return reported(out), said


def ran_out(backends: list[dict[str, Any]], said: str) -> bool:
    """Return whether memory ran out for a backend, or for the whole run, which then has no report."""
    return any("emory ran out" in text for text in (said, *(b["reason"] for b in backends)))


def reported(folder: Path) -> list[dict[str, Any]]:
    """The backends of a run's report; none when it wrote none."""
    path = folder / "report.json"
    return json.loads(path.read_text())["backends"] if path.is_file() else []


def right(backends: list[dict[str, Any]]) -> float | None:
    """The share of backends that are right; None without any."""
    return sum(b["status"] == "ok" for b in backends) / len(backends) if backends else None


PARTS = {"kernels": kernels, "head": head, "train": train, "decode": decode}

if __name__ == "__main__":
    sys.exit(main())
