"""The C kernels beside PyTorch's own operators, at GPT-2's shapes, call by call in turn.

    python benchmarks/cpu_kernels.py [--batch 4] [--time 64] [--dtype fp32] [--seconds 1.0] [--json FILE]

Prints median times in microseconds, the ratio ours / PyTorch (below 1: ours is faster), and the geometric mean. Both
sides allocate their results, as they do in a training step. PyTorch's side is what its own autograd runs for the same
function: several operators where it has no single one.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import perfkit.kernels
from perfkit import functional
from perfkit.kernels.dtypes import TORCH_DTYPES

HEADS, CHANNELS, VOCABULARY = 12, 768, 50257
Case = tuple[str, Callable[[], Any], Callable[[], Any]]


def attention_cases(batch: int, length: int, dtype: torch.dtype) -> Iterator[Case]:
    """Split, causal softmax and merge. PyTorch splits into views; the copies are what its matmuls make of them."""
    ours, aten = torch.ops.perfkit, torch.ops.aten
    size = CHANNELS // HEADS
    qkv = torch.randn(batch, length, 3 * CHANNELS, dtype=dtype)
    heads = [torch.randn(batch, HEADS, length, size, dtype=dtype) for _ in range(3)]
    merged = torch.randn(batch, length, CHANNELS, dtype=dtype)
    scores, datt = (torch.randn(batch, HEADS, length, length, dtype=dtype) for _ in range(2))
    scale = size**-0.5
    att = functional.causal_softmax(scores, scale)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)

    def split() -> Any:
        return [t.contiguous() for t in functional.split_heads(qkv, HEADS)]

    def split_backward() -> Any:
        return torch.cat([functional.merge_heads(t) for t in heads], dim=-1)

    def softmax() -> Any:
        return torch.softmax((scores * scale).masked_fill(future, -math.inf), dim=-1)

    def softmax_backward() -> Any:
        return aten._softmax_backward_data(datt, att, -1, dtype).masked_fill(future, 0.0) * scale

    def merge_backward() -> Any:
        return merged.unflatten(-1, (HEADS, -1)).transpose(1, 2).contiguous()

    yield "split_heads_forward", lambda: ours.split_heads_forward(qkv, HEADS), split
    yield "split_heads_backward", lambda: ours.split_heads_backward(*heads), split_backward
    yield "merge_heads_forward", lambda: ours.merge_heads_forward(heads[0]), lambda: functional.merge_heads(heads[0])
    yield "merge_heads_backward", lambda: ours.merge_heads_backward(merged, HEADS), merge_backward
    yield "causal_softmax_forward", lambda: ours.causal_softmax_forward(scores, scale), softmax
    yield "causal_softmax_backward", lambda: ours.causal_softmax_backward(datt, att, scale), softmax_backward


def layer_cases(batch: int, length: int, dtype: torch.dtype) -> Iterator[Case]:
    """LayerNorm over C channels, and GELU over 4C."""
    ours, aten = torch.ops.perfkit, torch.ops.aten
    x, dy = (torch.randn(batch, length, CHANNELS, dtype=dtype) for _ in range(2))
    weight, bias = (torch.randn(CHANNELS, dtype=dtype) for _ in range(2))
    wide, dwide = (torch.randn(batch, length, 4 * CHANNELS, dtype=dtype) for _ in range(2))
    _, mean, rstd = ours.layernorm_forward(x, weight, bias, 1e-5)
    shape, all_gradients = (CHANNELS,), (True, True, True)
    kept = aten.native_layer_norm(x, shape, weight, bias, 1e-5)[1:]
    yield (
        "layernorm_forward",
        lambda: ours.layernorm_forward(x, weight, bias, 1e-5),
        lambda: aten.native_layer_norm(x, shape, weight, bias, 1e-5),
    )
    yield (
        "layernorm_backward",
        lambda: ours.layernorm_backward(dy, x, weight, mean, rstd),
        lambda: aten.native_layer_norm_backward(dy, x, shape, *kept, weight, bias, all_gradients),
    )
    yield "gelu_forward", lambda: ours.gelu_forward(wide), lambda: aten.gelu(wide, approximate="tanh")
    yield (
        "gelu_backward",
        lambda: ours.gelu_backward(dwide, wide),
        lambda: aten.gelu_backward(dwide, wide, approximate="tanh"),
    )


def loss_cases(batch: int, length: int, dtype: torch.dtype) -> Iterator[Case]:
    """Cross entropy: PyTorch's is log_softmax and nll_loss, and their backward operators."""
    ours, aten = torch.ops.perfkit, torch.ops.aten
    logits = torch.randn(batch * length, VOCABULARY, dtype=dtype)
    targets = torch.randint(0, VOCABULARY, (batch * length,))
    dloss = torch.ones((), dtype=dtype)
    _, logsumexp = ours.cross_entropy_forward(logits, targets, -1)
    kept = aten._log_softmax(logits, 1, False)
    weight = aten.nll_loss_forward(kept, targets, None, 1, -1)[1]

    def forward() -> Any:
        return aten.nll_loss_forward(aten._log_softmax(logits, 1, False), targets, None, 1, -1)

    def backward() -> Any:
        picked = aten.nll_loss_backward(dloss, kept, targets, None, 1, -1, weight)
        return aten._log_softmax_backward_data(picked, kept, 1, dtype)

    yield "cross_entropy_forward", lambda: ours.cross_entropy_forward(logits, targets, -1), forward
    yield (
        "cross_entropy_backward",
        lambda: ours.cross_entropy_backward(dloss, logits, targets, logsumexp, -1),
        backward,
    )


def median_us(sides: tuple[Callable[[], Any], Callable[[], Any]], seconds: float) -> tuple[float, float]:
    """Median microseconds a call of each side, called in turn for `seconds`, after three calls to warm up."""
    for side in sides * 3:
        side()
    samples: tuple[list[int], list[int]] = ([], [])
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(samples[0]) < 5:
        for side, taken in zip(sides, samples, strict=True):
            start = time.perf_counter_ns()
            side()
            taken.append(time.perf_counter_ns() - start)
    return statistics.median(samples[0]) / 1e3, statistics.median(samples[1]) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--time", type=int, default=64, help="sequence length")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each pair is measured")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    perfkit.kernels.load()
    shape = (arguments.batch, arguments.time, TORCH_DTYPES[arguments.dtype])
    rows = []
    print(f"{'operation':26} {'ours µs':>10} {'PyTorch µs':>11} {'ratio':>6}", flush=True)
    with torch.no_grad():
        for make in (attention_cases, layer_cases, loss_cases):
            for name, *sides in make(*shape):
                ours, theirs = median_us((sides[0], sides[1]), arguments.seconds)
                rows.append({"operation": name, "ours_us": ours, "pytorch_us": theirs, "ratio": ours / theirs})
                print(f"{name:26} {ours:10.1f} {theirs:11.1f} {ours / theirs:6.2f}", flush=True)
    mean = math.exp(statistics.fmean(math.log(row["ratio"]) for row in rows))
    print(f"geometric mean of the ratios {mean:.2f}, worst {max(row['ratio'] for row in rows):.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"rows": rows, "geometric_mean": mean}, indent=1) + "\n")


if __name__ == "__main__":
    main()
