"""Training steps of backends beside torch.compile in each of its modes, in turns in one process.

    python benchmarks/modes_beside.py gpt2 -B 4 -T 1024 --runs 3

Each side is a backend or a variant of one, `NAME` in bf16 or `NAME@fp8`, of the same weights and batches. A step is
timed as `perfkit run` times it: it ends when the GPU has ended. A run is six turns of four steps of each side; the
figure is the median, and its ratio is to the fastest mode of torch.compile in bf16 in that run. GPT-2 124M takes two to
three minutes on an H200, nearly all of it compilation; compile:max-autotune alone takes more than four, and is a side
only where `--sides` names it. A side that fails is named, and the others go on.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.fp8_beside import SETTLE, Side, turns
from perfkit.settings import COMPILE_MODES
from perfkit.workloads import find, resolve_settings

COMPILE = ("compile", *(f"compile:{mode}" for mode in COMPILE_MODES[1:]))
SIDES = (
    "eager", "eager:graphs", "compile", "compile:reduce-overhead",
    "thunder-llmc", "llmc", "thunder-llmc@fp8", "llmc@fp8",
)  # fmt: skip


def prepared(names: list[str], given: dict[str, Any]) -> list[Side]:
    """The sides that run here, compiled and captured."""
    sides = []
    for name in names:
        backend, _, dtype = name.partition("@")
        begun = time.perf_counter()
        try:
            side = Side(resolve_settings(find(given["workload"]), dtype=dtype or "bf16", **given["settings"]), backend)
            side.timed(SETTLE)
        except Exception as error:
            print(f"{name} does not run: {type(error).__name__}: {str(error)[:200]}", flush=True)
            continue
        side.name = name
        print(f"{name}: first {SETTLE} steps in {time.perf_counter() - begun:.0f} s", flush=True)
        sides.append(side)
        gc.collect()
    return sides


def main() -> int:
    """Measure and print; write the figures as JSON where asked. 1 where no mode of torch.compile ran."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload")
    for flag, kind in (("--preset", str), ("-B", int), ("-T", int), ("--out", Path)):
        parser.add_argument(flag, type=kind, default=None)
    parser.add_argument("--variant", default="sdpa")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--sides", default=",".join(SIDES))
    options = parser.parse_args()
    settings = {
        "preset": options.preset, "variant": options.variant, "batch_size": options.B, "sequence_length": options.T,
        "device": options.device, "optimizer": "fused" if options.device != "cpu" else None,
    }  # fmt: skip
    # Each mode compiles the same functions once more.
    torch._dynamo.config.recompile_limit = 64
    sides = prepared(options.sides.split(","), {"workload": options.workload, "settings": settings})
    found: dict[str, Any] = {"torch": torch.__version__, "runs": [], "joules": {}}
    if options.device != "cpu":
        found["device"] = torch.cuda.get_device_name()
    modes = [side.name for side in sides if side.name in COMPILE]
    if not modes:
        return 1
    for number in range(options.runs):
        ms = {name: statistics.median(each) for name, each in turns(sides).items()}
        found["runs"].append(ms)
        best = min(modes, key=ms.__getitem__)
        print(f"run {number + 1}, against {best}:", flush=True)
        for name, value in ms.items():
            print(f"    {name:34} {value:9.2f} ms  {value / ms[best]:.3f}", flush=True)
    for side in sides:
        found["joules"][side.name] = joules = side.joules()
        if joules:
            print(f"    {side.name:34} {joules:9.2f} J a step", flush=True)
    wrong = [check for side in sides for check in side.program.checks() if not check.ok]
    for check in wrong:
        print(f"WRONG  {check.name}: {check.error}, allowed {check.allowed}")
    if options.out:
        options.out.write_text(json.dumps(found, indent=1))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
