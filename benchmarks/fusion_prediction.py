"""Check the prediction of fusion: the kernels that Inductor fused against the prediction from eager's operators.

For each workload `perfkit run` profiles eager and compile; the prediction of every fused kernel, by
`perfkit.analysis.fusion.kernels`, is compared with its measured time. Must be reached: |predicted − measured|, weighted
by time, at most 25 % on four of the six workloads, for at least 80 % of the time of the fused kernels. `--device cuda`
runs GPT-2 124M in bf16, sdpa and explicit: at most 15 % on both, for at least 90 %. Ceilings are measured first; each
workload runs `--repeats` times (3), and the run with the median error counts. About 15 minutes on two idle cores. Name
workloads to run only these; `--runs FOLDER …` reads run folders instead; `--json PATH` keeps the figures.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CPU, GPU = (0.25, 0.80, 4), (0.15, 0.90, 2)  # the largest error, the least share of the time, on how many workloads
CHAIN = '''
"""Elementwise operators one after the other, on 4 MiB."""
import torch
from perfkit.workloads import Workload

class Chain(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(width) + 0.5)
        self.shift = torch.nn.Parameter(torch.rand(width))

    def forward(self, x):
        h = torch.relu(x * self.scale + self.shift)
        h = (h - x) * h + 1.0
        return torch.clamp(h * 0.5 + x, max=3.0), None

class ChainWorkload(Workload):
    name, summary = "chain", "elementwise operators one after the other"
    presets = {"main": {"batch_size": 512, "width": 2048}}

    def build(self, settings):
        torch.manual_seed(settings.seed)
        return Chain(self.dimensions(settings)["width"])

    def batch(self, settings, step):
        made = torch.Generator().manual_seed(step)
        return (torch.randn(settings.batch_size, self.dimensions(settings)["width"], generator=made),)
'''
WORKLOADS: dict[str, list[str]] = {
    "GPT-2 tiny, forward": ["gpt2", "--preset", "tiny", "--inference"],
    "GPT-2 124M, forward": ["gpt2", "--preset", "gpt2", "--inference"],
    "DLRM main": ["dlrm", "--preset", "main"],
    "LoRA": ["lora"],
    "MLP": ["mlp"],
    "elementwise chain": ["CHAIN", "--inference"],
}


GPT2 = ["gpt2", "--preset", "gpt2", "--dtype", "bf16", "-B", "16", "-T", "1024", "--device", "cuda", "--variant"]
ON_GPU = {f"GPT-2 124M, {variant}": [*GPT2, variant] for variant in ("sdpa", "explicit")}


def run(arguments: list[str], folder: Path, number: int) -> dict[str, Any] | str:
    """The report of one run, or the last words of one that failed."""
    chain = folder / "chain.py"
    chain.write_text(CHAIN, encoding="utf-8")
    given = [str(chain) if a == "CHAIN" else a for a in arguments]
    out = folder / f"run-{number}"
    return perfkit("run", *given, "--backend", "eager,compile", "--out", str(out), "--overwrite")


def perfkit(*arguments: str) -> dict[str, Any] | str:
    """Return the JSON that the command prints, or its last words."""
    command = [sys.executable, "-m", "perfkit", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()[-300:]


def line(kernel: dict[str, Any]) -> str:
    """One fused kernel: what eager took for the same, the prediction, the measurement, and why they differ."""
    predicted, measured = kernel["predicted_ns"], kernel["measured_ns"]
    shown = f"{predicted / 1e3:10.1f}" if predicted is not None else f"{'–':>10}"
    ratio = f"{predicted / measured:6.2f}" if predicted is not None and measured else f"{'–':>6}"
    operators = f"{kernel['pass_']} {' → '.join(kernel['operators'])}"[:60]
    why = "; ".join(dict.fromkeys(filter(None, (kernel["bound"], kernel["why"], kernel["apart"]))))
    eager = f"{kernel['eager_ns'] / 1e3:10.1f}" if kernel["eager_ns"] is not None else f"{'–':>10}"
    figures = f"{kernel['count']:5.0f} {eager} {shown} {measured / 1e3:10.1f} {ratio}"
    return f"{operators:60} {figures}  {why}"


def show(name: str, fusion: dict[str, Any], limits: tuple[float, float, int]) -> bool:
    """Print one workload's kernels and its error; return whether it is within the limits."""
    steps = [fusion[key] or 0.0 for key in ("step_ns", "predicted_step_ns", "achieved_step_ns")]
    eager, predicted, compiled = (ns / 1e6 for ns in steps)
    print(f"\n{name}: a step takes {eager:.2f} ms in eager, {predicted:.2f} predicted fused, {compiled:.2f} compiled")
    print(f"  compiled − predicted: {', '.join(fusion['step_why'])}")
    print(f"  {'fused kernel':60} {'calls':>5} {'eager':>10} {'predicted':>10} {'measured':>10} {'ratio':>6}  µs")
    for kernel in fusion["kernels"]:
        print(f"  {line(kernel)}")
    error, known = fusion["kernels_error"], fusion["kernels_known"] or 0.0
    ok = error is not None and error <= limits[0] and known >= limits[1]
    told = "nothing predicted" if error is None else f"{error:.0%} off, for {known:.0%} of their time"
    print(f"  {'PASS' if ok else 'MISS'}: {told}")
    return ok


def fusion_of(report: dict[str, Any] | str) -> dict[str, Any] | str:
    """Eager's fusion in a report, or why it is missing."""
    if isinstance(report, str):
        return report
    eager: dict[str, Any] = next((b for b in report["backends"] if b["name"] == "eager"), {})
    return eager.get("fusion") or "eager has no chain of elementwise kernels"


def measured(arguments: list[str], folder: Path, repeats: int) -> dict[str, Any] | str:
    """The fusion of the run with the median error, or why it is missing."""
    found = []
    for number in range(repeats):
        one = fusion_of(run(arguments, folder, number))
        if isinstance(one, str):
            return one
        found.append(one)
    return middle(found)


def middle(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The one with the median error."""
    found.sort(key=lambda fusion: 9.0 if fusion["kernels_error"] is None else fusion["kernels_error"])
    return found[len(found) // 2]


def results_of(given: argparse.Namespace, chosen: dict[str, list[str]]) -> dict[str, Any]:
    """The fusion of each workload, or why it is missing: of run folders, or of runs with new ceilings."""
    if given.runs:
        return {folder: fusion_of(perfkit("report", folder)) for folder in given.runs}
    from perfkit.hardware.store import load_or_measure

    where = {"device": given.device, "refresh": True, "progress": lambda text: print(f"  {text}", file=sys.stderr)}
    ceilings = load_or_measure(**where)
    print(f"{platform.platform()}, {ceilings.device_name}, {ceilings.threads} threads, {ceilings.software}")
    results: dict[str, Any] = {}
    for name, arguments in chosen.items():
        with tempfile.TemporaryDirectory() as folder:
            results[name] = measured(arguments, Path(folder), given.repeats)
    return results


def main() -> int:
    """Measure and print; return 1 when too few workloads are predicted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", help=", ".join([*WORKLOADS, *ON_GPU]))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--runs", nargs="+", default=[], metavar="FOLDER", help="run folders of eager and compile")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    known, limits = (ON_GPU, GPU) if given.device == "cuda" else (WORKLOADS, CPU)
    chosen = {name: known[name] for name in given.workloads or known}
    results = results_of(given, chosen)
    passed = 0
    for name, found in results.items():
        if isinstance(found, str):
            print(f"\n{name}: {found}")
        else:
            passed += show(name, found, limits)
    print(f"\n{passed} of {len(results)} within {limits[0]:.0%} (needed: {limits[2]} of {len(known)})")
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))
    return int(passed < min(limits[2], len(results)))


if __name__ == "__main__":
    sys.exit(main())
