"""Causal attention of the catalog beside cuDNN's and PyTorch's flash operator, forward and backward, on one GPU.

    python benchmarks/attention_beside.py [--runs 3]

15 seconds on an H200. Goal on Hopper, B = 4, 16 heads, T = 4096, bf16, heads of 64 and 128: forward at most 1.0 of
cuDNN's time, backward 1.1. Each way's result is first compared with cuDNN's. Then the ways take turns, once with
pauses, so that the GPU keeps its clock, and once without, where a large GPU comes to its power limit; medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from perfkit.handwritten.library_attention import OPERATORS
from perfkit.kernels import bind, use_version

B, HEADS, T = 4, 16, 4096
ROUNDS, CALLS = 9, 3
PAUSE_S = 0.02
DIFFERENCE = 1e-2  # of the norm, at most: bf16's rounding leaves some 3e-3
OURS = {"CUDA": "cuda", "Triton": "triton"}

Ways = dict[str, Callable[[], Sequence[Tensor]]]


def ways(size: int) -> tuple[Ways, Ways]:
    """Forward and backward by each way, on tensors of their own, cuDNN's first."""
    q, k, v, dy = (torch.randn(B, HEADS, T, size, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    scale = size**-0.5
    forward: Ways = {}
    backward: Ways = {}
    for one in OPERATORS:
        name = one.name.removeprefix("PyTorch's ").removesuffix(" operator")
        forward[name] = partial(one.forward, q, k, v, scale)
        backward[name] = partial(one.backward, dy, q, k, v, *one.forward(q, k, v, scale), scale)
    for name, language in OURS.items():
        y, lse = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)
        gradients = [torch.empty_like(x) for x in (q, k, v)]
        with use_version(language=language):
            calls = (
                bind("flash_attention_forward", (q, k, v, scale), (y, lse)),
                bind("flash_attention_backward", (dy, q, k, v, y, lse, scale), gradients),
            )
        forward[name] = partial(_run, calls[0], (y,))
        backward[name] = partial(_run, calls[1], gradients)
    return forward, backward


def _run(call: Callable[[], None], results: Sequence[Tensor]) -> Sequence[Tensor]:
    call()
    return results


def agree(found: Ways) -> bool:
    """Return whether every way gives what the first does. lse is not compared: each library has a form of its own."""
    expected, *others = ([x.float() for x in run() if x.dtype == torch.bfloat16] for run in found.values())
    pairs = [pair for results in others for pair in zip(results, expected, strict=False)]
    return all(bool((a - b).norm() <= DIFFERENCE * b.norm()) for a, b in pairs)


def times(found: Ways, pause: float) -> dict[str, float]:
    """Microseconds of a call of each, in turns."""
    taken: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(ROUNDS):
        for name, run in found.items():
            time.sleep(pause)
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            run()
            start.record()
            for _ in range(CALLS):
                run()
            end.record()
            end.synchronize()
            taken[name].append(start.elapsed_time(end) * 1e3 / CALLS)
    return {name: statistics.median(each) for name, each in taken.items()}


def main() -> int:
    """Print a table; 1 when a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    version = torch.backends.cudnn.version()
    print(f"# {torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {version}; B={B} NH={HEADS} T={T}, µs")
    right = True
    for size in (64, 128):
        for direction, products, found in zip(("forward", "backward"), (2, 5), ways(size), strict=True):
            right &= agree(found)
            flop = products * 2 * size * B * HEADS * T * (T + 1) / 2
            for pause in (PAUSE_S, 0.0) * runs:
                taken = times(found, pause)
                row = "  ".join(f"{name} {us:7.1f}" for name, us in taken.items())
                first, ours = next(iter(taken.values())), taken["CUDA"]
                how = "with pauses" if pause else "at once"
                print(
                    f"D={size:3} {direction:8} {how:11}  {row}  CUDA / cuDNN {ours / first:.3f}, "
                    f"{flop / ours / 1e6:.0f} TFLOP/s",
                    flush=True,
                )
    print("every way gives what cuDNN does" if right else "WRONG: a way gives something else than cuDNN")
    return int(not right)


if __name__ == "__main__":
    raise SystemExit(main())
