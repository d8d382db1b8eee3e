"""Llama on a GPU against what it has to reach: kernels, a training step, and decoding.

    python benchmarks/llama_gpu.py [--preset 1b] [--only kernels,train,decode] [--json FILE]
    python benchmarks/llama_gpu.py --preset tiny --device cpu --dtype fp32     whether it works, without a GPU

Kernels: the fastest of ours at the sizes that Liger shows (RMSNorm with C = 16384, rotary with T = 8192, cross entropy
with V = 131072), with a cold cache: over PyTorch as models write it, which the goals are about ("naive" in `perfkit
bench`), over PyTorch's own operator beside it, and its bandwidth as a share of a large copy's. Train: a step of B = 8,
T = 2048 on each backend. Decode: one sequence, against reading weights and cache once a token. A line says what was
found, what is asked, and whether it is reached. Exit code 1: something is not reached, or a backend is wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PERFKIT = [sys.executable, "-m", "perfkit"]
BACKENDS = "eager,compile,thunder,thunder-llmc,kernels,triton,llmc"
KERNELS = {  # sizes, and how many times the speed of PyTorch as models write it is asked
    "rmsnorm_forward": ("B=1,T=2048,C=16384", 8.0),
    "rmsnorm_backward": ("B=1,T=2048,C=16384", 8.0),
    "rotary_forward": ("B=1,T=8192,NH=32,NKV=8,P=32", 10.0),
    "rotary_backward": ("B=1,T=8192,NH=32,NKV=8,P=32", 10.0),
    "cross_entropy_forward": ("N=4096,V=131072", 2.4),
    "cross_entropy_backward": ("N=4096,V=131072", 2.4),
}
BY_PYTORCH = {"naive", "pytorch", "compile"}
COPY = 0.9  # the share of a large copy's bandwidth that is asked
SMALL = {"C": 256, "T": 64, "N": 16, "V": 1024}  # where it is only to be seen that it works


@dataclass(frozen=True)
class Goal:
    """What was found beside what is asked: `most` tells whether less is better."""

    what: str
    found: float | None
    asked: float
    most: bool = False

    @property
    def reached(self) -> bool:
        return self.found is not None and (self.found <= self.asked if self.most else self.found >= self.asked)

    def __str__(self) -> str:
        found = "none" if self.found is None else f"{self.found:.2f}"
        asked = f"{'≤' if self.most else '≥'} {self.asked}"
        return f"{'reached' if self.reached else 'MISSED ':7}  {self.what}: {found}, asked {asked}"


def main() -> int:
    """Measure what `--only` names; 1 when something is missed or wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--preset", default="1b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--backend", default=BACKENDS)
    parser.add_argument("--only", default="kernels,train,decode")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    parts = {"kernels": kernels, "train": train, "decode": decode}
    goals: list[Goal] = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.only.split(","):
            for goal in parts[name](options, Path(scratch)):
                print(goal, flush=True)
                goals.append(goal)
    if options.json:
        found = [{**asdict(goal), "reached": goal.reached} for goal in goals]
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    missed = sum(not goal.reached for goal in goals)
    print(f"{len(goals) - missed} of {len(goals)} reached")
    return int(missed > 0)


def perfkit(*arguments: str) -> None:
    """Run perfkit; its output is shown. A wrong backend shows in what it wrote."""
    print("$ perfkit", *arguments, flush=True)
    subprocess.run([*PERFKIT, *arguments], check=False)


def kernels(options: Any, scratch: Path) -> Iterator[Goal]:
    """The fastest right kernel of ours over PyTorch as models write it, and beside a copy, with a cold cache."""
    copy = copied(options.device)
    for name, (sizes, asked) in KERNELS.items():
        given = sizes if options.device != "cpu" else small(sizes)
        perfkit("bench", name, "--sizes", given, "--device", options.device, "--dtype", options.dtype,
                "--cache", "cold", "--out", str(scratch))  # fmt: skip
        path = scratch / f"bench-{name}.json"
        rows = json.loads(path.read_text())["points"][0]["rows"] if path.is_file() else []
        timed = {r["way"]: r["cold"] for r in rows if r["status"] == "ok" and r["cold"]}
        times = {way: cold["ns"]["value"] for way, cold in timed.items()}
        best = min(times.keys() - BY_PYTORCH, key=lambda way: times[way], default=None)
        over = {way: times[way] / times[best] for way in BY_PYTORCH & times.keys()} if best else {}
        what = f"{name} ({given}), {best or 'no kernel'}"
        own = f" ({over['pytorch']:.2f} × PyTorch's own operator)" if "pytorch" in over else ""
        yield Goal(f"{what} over PyTorch as models write it{own}", over.get("naive"), asked)
        if copy:
            yield Goal(f"{what}, bandwidth / copy's", timed[best]["bandwidth"] / copy if best else None, COPY)


def copied(device: str) -> float | None:
    """Bytes a second of a large copy on a GPU."""
    if device == "cpu":
        return None
    import torch
    from gpu_kernels import copy_bandwidth  # type: ignore[import-not-found]  # it lies beside this script

    found: float = copy_bandwidth()
    torch.cuda.empty_cache()
    return found


def small(sizes: str) -> str:
    pairs = (part.split("=") for part in sizes.split(","))
    return ",".join(f"{name}={min(int(value), SMALL.get(name, 8))}" for name, value in pairs)


def train(options: Any, scratch: Path) -> Iterator[Goal]:
    """Steps of the backends: right, and beside torch.compile's."""
    out = scratch / "train"
    size = ["--preset", options.preset, "-B", str(options.batch), "-T", str(options.length)]
    perfkit("run", "llama", *size, "--backend", options.backend, "--skip-unavailable", "--out", str(out),
            *where(options))  # fmt: skip
    backends = reported(out)
    yield Goal("share of the backends that are right", right(backends), 1.0)
    steps = {b["name"]: b["step"]["value"] for b in backends if b["status"] == "ok" and b["step"]}
    for name, asked in {"thunder-llmc": 1.0, "llmc": 0.85}.items():
        known = name in steps and "compile" in steps
        yield Goal(f"step of {name} / compile", steps[name] / steps["compile"] if known else None, asked, most=True)


def decode(options: Any, scratch: Path) -> Iterator[Goal]:
    """One sequence: how near the best backend comes to reading weights and cache once a token."""
    out = scratch / "decode"
    perfkit("run", "llama", "--preset", options.preset, "--generate", "64", "--prompt", "64", "-B", "1", "--backend",
            "eager,compile,thunder,kernels", "--skip-unavailable", "--out", str(out), *where(options))  # fmt: skip
    backends = reported(out)
    yield Goal("share of the backends that are right", right(backends), 1.0)
    shares = [p["efficiency"] for b in backends for p in b["phases"] if p["name"] == "decode" and p["efficiency"]]
    yield Goal("decode, the best backend's share of its roof", max(shares, default=None), 0.8)


def where(options: Any) -> list[str]:
    return ["--device", options.device, "--dtype", options.dtype]


def reported(folder: Path) -> list[dict[str, Any]]:
    path = folder / "report.json"
    return json.loads(path.read_text())["backends"] if path.is_file() else []


def right(backends: list[dict[str, Any]]) -> float | None:
    return sum(b["status"] == "ok" for b in backends) / len(backends) if backends else None


if __name__ == "__main__":
    sys.exit(main())
