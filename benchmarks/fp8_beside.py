"""Training in fp8 beside bf16: step times in turns, joules, kernels, and losses of many steps.

    python benchmarks/fp8_beside.py llama --preset 1b -B 8 -T 2048 --variant sdpa --backend compile,llmc --device cuda
    python benchmarks/fp8_beside.py gpt2 --preset tiny --losses 50 --backend eager

Both sides live in one process, of the same weights and batches, and take turns of a few steps. Weights of models on a
GPU are drawn there. With `--losses` each side, and fp32, trains so many steps from the same start instead.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from perfkit import backends, fp8
from perfkit.backends.interface import AutogradProgram
from perfkit.settings import HELD_IN, Settings
from perfkit.timing import collector_off
from perfkit.workloads import find, resolve_settings

TURNS, STEPS, SETTLE, BATCHES = 6, 4, 3, 4
ENERGY_S = 1.5  # the counter moves ten times a second
CASTS = re.compile(r"fp8_(cast|amax)")  # in names of perfkit's kernels
PRODUCTS = re.compile(
    r"e4m3|e5m2|_[qr][qr]tst|fp8(?!_cast|_amax)|f8f8|_scaled_mm", re.IGNORECASE
)  # of kernels that multiply fp8
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Side:
    """A program of one precision on one backend, with its batches."""

    def __init__(self, settings: Settings, backend: str) -> None:
        self.name = f"{backend} {settings.dtype}"
        self.settings, self.workload = settings, find(settings.workload)
        model = self._model()
        self.program = backends.get(backend).prepare(self.workload, model, settings)
        self.program.outputs_wanted = False
        if isinstance(self.program, AutogradProgram):
            self.program.replay_where_asked(settings)
        self._step = 0
        self._batches: list[Any] = []  # of timed steps, which repeat

    def _model(self) -> torch.nn.Module:
        settings, held = self.settings, DTYPES[HELD_IN.get(self.settings.dtype, self.settings.dtype)]
        torch.manual_seed(settings.seed)
        if settings.device == "cpu" or not hasattr(self.workload, "fill"):
            model = self.workload.build(settings)
        else:
            model = _drawn(self.workload, settings)
        model = model.to(settings.device, held).train()
        if settings.dtype == "fp8":
            fp8.convert(model, self.workload.layers)
        return model

    def step(self) -> torch.Tensor:
        """One training step of the next batch; its loss."""
        batch = self._batch(self._step)
        self._step += 1
        _, loss = self.program.train_step([batch])
        assert loss is not None
        return loss

    def _batch(self, step: int) -> Any:
        return tuple(t.to(self.settings.device) for t in self.workload.batch(self.settings, step))

    def timed(self, steps: int) -> list[float]:
        """Times of steps in ms."""
        self._batches = self._batches or [self._batch(i) for i in range(BATCHES)]
        found = []
        for i in range(steps):
            self._wait()
            begun = time.perf_counter()
            self.program.train_step([self._batches[i % BATCHES]])
            self._wait()
            found.append((time.perf_counter() - begun) * 1e3)
        return found

    def joules(self) -> float | None:
        """Energy of a step by the driver's counter; None without a GPU."""
        if self.settings.device == "cpu":
            return None
        import pynvml

        pynvml.nvmlInit()
        uuid = torch.cuda.get_device_properties(self.settings.device).uuid
        device = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        self.timed(1)
        start, begun, steps = pynvml.nvmlDeviceGetTotalEnergyConsumption(device), time.time(), 0
        while time.time() - begun < ENERGY_S:
            self.timed(1)
            steps += 1
        return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(device) - start) / 1e3 / steps

    def kernels(self, steps: int = 1) -> dict[str, tuple[float, float]]:
        """Time in ms and calls of each kernel of a step, the longest first."""
        on_gpu = self.settings.device != "cpu"
        kinds = [torch.profiler.ProfilerActivity.CUDA if on_gpu else torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=kinds) as profile:
            self.timed(steps)
        found: dict[str, tuple[float, float]] = {}
        for event in profile.key_averages():
            us = event.self_device_time_total if on_gpu else event.self_cpu_time_total
            found[event.key] = us / 1e3 / steps, event.count / steps
        return dict(sorted(found.items(), key=lambda item: -item[1][0]))

    def _wait(self) -> None:
        if self.settings.device != "cpu":
            torch.cuda.synchronize()


def _drawn(workload: Any, settings: Settings) -> torch.nn.Module:
    """The model with weights of N(0, 0.02) drawn on the GPU, norms 1 and biases 0: a CPU draws 10⁹ in half a minute."""
    with torch.device("meta"):
        model: torch.nn.Module = workload.model(settings)
    model.to_empty(device=settings.device)
    workload.fill(model, settings)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, 0.02)
            else:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
    return model


def turns(sides: list[Side]) -> dict[str, list[float]]:
    """Step times of each side in ms, all in turns, forwards and backwards, without Python's garbage collector."""
    times: dict[str, list[float]] = {side.name: [] for side in sides}
    with collector_off():
        for turn in range(TURNS):
            for side in sides if turn % 2 == 0 else reversed(sides):
                side.timed(1)
                times[side.name] += side.timed(STEPS)
    return times


def in_turns(sides: list[Side]) -> dict[str, Any]:
    """Times of all sides in turns, then the energy and kernels of each."""
    for side in sides:
        begun = time.perf_counter()
        side.timed(SETTLE)  # compiles
        print(f"{side.name}: first {SETTLE} steps in {time.perf_counter() - begun:.0f} s", flush=True)
    times = turns(sides)
    for name, ms in times.items():
        print(f"{name}: {statistics.median(ms):.2f} ms ({min(ms):.2f} to {max(ms):.2f})", flush=True)
    found: dict[str, Any] = {}
    for side in sides:
        joules = side.joules()
        print(f"{side.name}: {joules or math.nan:.1f} J a step", flush=True)
        kernels = side.kernels()
        found[side.name] = {
            "ms": statistics.median(times[side.name]),
            "all_ms": times[side.name],
            "joules": joules,
            "kernels_ms": sum(ms for ms, _ in kernels.values()),
            "fp8_products_ms": sum(ms for name, (ms, _) in kernels.items() if PRODUCTS.search(name)),
            "casts_ms": sum(ms for name, (ms, _) in kernels.items() if CASTS.search(name)),
            "kernels": [(name[:110], round(ms, 3), calls) for name, (ms, calls) in list(kernels.items())[:14]],
        }
    return found


def checked(side: Side) -> list[tuple[str, float | None, float, bool]]:
    """The program's own checks: of fp8 each shape of layer by itself."""
    return [(check.name, check.error, check.allowed, check.ok) for check in side.program.checks()]


def losses(sides: Iterator[Side], steps: int) -> dict[str, list[float]]:
    """Losses of each side's first steps, one side after the other."""
    found = {}
    for side in sides:
        found[side.name] = [float(side.step()) for _ in range(steps)]
    return found


def apart(losses: list[float], reference: list[float]) -> float:
    """The largest relative difference of two curves of losses."""
    return max(abs(a - b) / b for a, b in zip(losses, reference, strict=True))


def main() -> int:
    """Measure, print, and write the figures as JSON where asked. 1 where a check fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload")
    for flag, kind in (("--preset", str), ("-B", int), ("-T", int), ("--variant", str), ("--out", Path)):
        parser.add_argument(flag, type=kind, default=None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", default="compile")
    parser.add_argument("--losses", type=int, default=0)
    parser.add_argument("--dim", action="append", default=[], help="a dimension of the preset, as NAME=VALUE")
    options = parser.parse_args()
    given = {
        "preset": options.preset, "variant": options.variant, "batch_size": options.B, "sequence_length": options.T,
        "device": options.device, "optimizer": "fused" if options.device != "cpu" else None,
        "dimensions": dict(one.split("=") for one in options.dim),
    }  # fmt: skip
    workload = find(options.workload)

    def made(dtypes: tuple[str, ...]) -> Iterator[Side]:
        for name in options.backend.split(","):
            for dtype in dtypes:
                yield Side(resolve_settings(workload, dtype=dtype, **given), name)
                gc.collect()

    torch.set_float32_matmul_precision("highest")
    found = _losses(made, options.losses) if options.losses else _times(list(made(("bf16", "fp8"))))
    found["torch"] = torch.__version__
    found["device"] = torch.cuda.get_device_name() if options.device != "cpu" else "cpu"
    if options.out:
        options.out.write_text(json.dumps(found, indent=1))
    return 0 if all(ok for *_, ok in found.get("checks", [])) else 1


def _losses(made: Callable[[tuple[str, ...]], Iterator[Side]], steps: int) -> dict[str, Any]:
    curves = losses(made(("fp32", "bf16", "fp8")), steps)
    exact = next(iter(curves.values()))
    for name, curve in curves.items():
        tail = statistics.fmean(curve[-10:])
        print(f"{name}: loss {curve[0]:.4f} → {tail:.4f}, at most {apart(curve, exact):.2%} off fp32's")
    return {"losses": curves}


def _times(sides: list[Side]) -> dict[str, Any]:
    found = in_turns(sides)
    checks = [check for side in sides for check in checked(side)]
    for name, error, allowed, ok in checks:
        print(f"{'ok' if ok else 'WRONG'}  {name}: {math.nan if error is None else error:.2g}, allowed {allowed:.2g}")
    for name, one in found.items():
        parts = f"products of fp8 {one['fp8_products_ms']:.2f}, perfkit's casts {one['casts_ms']:.2f}"
        print(f"{name}: {one['ms']:.2f} ms, kernels {one['kernels_ms']:.2f}, of these {parts}")
        for kernel, ms, calls in one["kernels"]:
            print(f"    {ms:9.3f} ms {calls:6.0f} × {kernel}")
    for low, high in zip(sides[1::2], sides[::2], strict=True):
        a, b = found[low.name], found[high.name]
        joules = a["joules"] / b["joules"] if a["joules"] else math.nan
        print(f"{low.name} / {high.name}: {a['ms'] / b['ms']:.3f} of the time, {joules:.3f} of the energy")
    return {**found, "checks": checks}


if __name__ == "__main__":
    sys.exit(main())
