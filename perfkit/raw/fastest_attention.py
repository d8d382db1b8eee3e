"""Attention in one kernel: the fastest of PyTorch's operators and the catalog's on this machine, measured once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from perfkit import kernels
from perfkit.kernels.measured import kept, replayed_ns
from perfkit.raw import library_attention
from perfkit.raw.attention import Attention
from perfkit.raw.library_attention import LibraryAttention, Operators

OWN = "perfkit's kernel"
ALIKE = 0.05  # the largest difference of two right results in bf16, of the largest number

Times = dict[str, float]  # ns of forward and backward by name; what does not run has no entry


def fastest(plain: Attention, at_once: bool, like: Tensor) -> tuple[Attention | LibraryAttention, list[str]]:
    """The attention of a step, and what a report says of it: `plain`, or PyTorch's operator where one is faster.

    `at_once`: q, k and v are one projection. `like` has the step's precision and device.
    """
    if not plain.flash:
        return plain, []
    times = measured(like.new_empty(plain.queries), plain.kv_heads)
    operators = best(times)
    chosen = plain if operators is None else LibraryAttention(operators, plain.queries, plain.keys, at_once)
    return chosen, [note(times)]


def best(times: Times) -> Operators | None:
    """The operators that took least; None for the catalog's kernel."""
    name = min(times, key=lambda way: times[way])
    return next((one for one in library_attention.OPERATORS if one.name == name), None)


def measured(q: Tensor, kv_heads: int) -> Times:
    """Forward and backward in ns of each way on tensors like `q` (B, NH, T, HS), with so many heads of keys and values;
    kept for this machine."""
    operators = library_attention.OPERATORS
    facts = [torch.cuda.get_device_name(q.device), torch.__version__, torch.backends.cudnn.version()]
    facts += [[one.name for one in operators], str(q.dtype), list(q.shape), kv_heads, "replayed"]
    found: Times = kept("attention", facts, lambda: _measure(q, kv_heads, operators))
    return found


def note(times: Times) -> str:
    """What a report says of the choice."""
    ways = ", ".join(f"{name} {ns / 1e3:.0f} µs" for name, ns in times.items())
    wrong = [f"{one.name} gives no right result here" for one in library_attention.OPERATORS if one.name not in times]
    found = "; ".join([ways, *wrong])
    return f"Attention of a layer, forward and backward, measured once on this machine: {found}. The fastest runs."


def _measure(q: Tensor, kv_heads: int, operators: Sequence[Operators]) -> Times:
    scale = q.shape[-1] ** -0.5
    q, dy = (torch.randn_like(q) for _ in range(2))
    k, v = (torch.randn_like(q[:, :kv_heads]) for _ in range(2))
    y, lse = torch.empty_like(q), torch.empty(q.shape[:3], device=q.device)
    gradients = [torch.empty_like(x) for x in (q, k, v)]
    forward = kernels.bind("flash_attention_forward", (q, k, v, scale), (y, lse))
    backward = kernels.bind("flash_attention_backward", (dy, q, k, v, y, lse, scale), gradients)

    def own() -> Sequence[Tensor]:
        forward()
        backward()
        return y, *gradients

    def library(one: Operators) -> Sequence[Tensor]:
        result, sums = one.forward(q, k, v, scale)
        return result, *one.backward(dy, q, k, v, result, sums, scale)

    times = {OWN: replayed_ns([own])[0]}
    for one in operators:
        try:
            if all(_alike(a, b) for a, b in zip(library(one), own(), strict=True)):
                times[one.name] = replayed_ns([partial(library, one)])[0]
        except RuntimeError:  # not for this precision, head size or GPU
            pass
    return times


def _alike(a: Tensor, b: Tensor) -> bool:
    return bool((a.float() - b.float()).abs().max() <= ALIKE * b.float().abs().max())
