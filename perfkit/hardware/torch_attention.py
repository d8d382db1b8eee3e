"""Causal attention on a GPU as PyTorch's `scaled_dot_product_attention` chooses it, timed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfkit.hardware.attention import ATTENTION, BACKWARD, FORWARD, flop
from perfkit.hardware.observation import Observation
from perfkit.hardware.torch_operators import TOLERANCE, Timer

SIZES = tuple((head, length) for head in (64, 128) for length in (512, 1024, 2048, 4096))
_ROWS = 131_072  # of queries over batch and heads: enough blocks for every GPU
_PRODUCTS = {FORWARD: 2, BACKWARD: 5}


def attention_observations(
    device: str, seconds: float, best_of: Timer, sizes: Sequence[tuple[int, int]] = SIZES, rows: int = _ROWS
) -> list[Observation]:
    """Rates of causal attention in bf16, forwards and backwards, at `sizes`, which are head sizes and lengths."""
    import torch

    with torch.inference_mode(False), torch.enable_grad():  # a backward pass is timed as well
        right = _is_right(device)
        found = []
        for head, length in sizes:
            timed = _timed(_tensors(device, rows // length, length, head), seconds, best_of)
            found += [
                Observation(
                    resource=ATTENTION, what=direction, how="scaled_dot_product_attention, causal, bf16",
                    rate=flop(rows // length, length, head, products) / timed[direction], by="torch",
                    sizes=(head, length), ok=right,
                )
                for direction, products in _PRODUCTS.items() if timed[direction] > 0
            ]  # fmt: skip
        return found


def _timed(tensors: Sequence[Any], seconds: float, best_of: Timer) -> dict[str, float]:
    """Seconds of a forward and of a backward pass."""
    import torch

    *operands, gradient = tensors

    def both() -> Any:
        return torch.autograd.grad(_attention(*operands), operands, gradient)

    forward = best_of(lambda: _attention(*operands), seconds)
    return {FORWARD: forward, BACKWARD: best_of(both, seconds) - forward}


def _attention(q: Any, k: Any, v: Any) -> Any:
    import torch

    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _tensors(device: str, heads: int, length: int, head: int) -> list[Any]:
    """Queries, keys, values and a gradient (1, heads, length, head), of normally distributed numbers."""
    import torch

    generator = torch.Generator(device).manual_seed(head * length)
    made = [torch.randn(1, heads, length, head, device=device, generator=generator).bfloat16() for _ in range(4)]
    for one in made[:3]:
        one.requires_grad_()
    return made


def _is_right(device: str) -> bool:
    import torch

    q, k, v, _ = _tensors(device, 2, 256, 64)
    got = _attention(q, k, v).double().cpu()
    q, k, v = (one.detach().double().cpu() for one in (q, k, v))
    hidden = torch.ones(256, 256, dtype=torch.bool).triu(1)
    wanted = ((q @ k.mT) / 8).masked_fill(hidden, -torch.inf).softmax(-1) @ v
    return bool((got - wanted).norm() / wanted.norm() < TOLERANCE["bf16"])
