"""Attention in one kernel: the fastest of PyTorch's operators and the catalog's on this machine, measured once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from perfkit import kernels
from perfkit.handwritten import library_attention
from perfkit.handwritten.arena import Arena
from perfkit.handwritten.attention import Attention, Shapes
from perfkit.handwritten.calls import Kernels
from perfkit.handwritten.library_attention import LibraryAttention, Operators
from perfkit.kernels.measured import kept, replayed_ns

OWN = "perfkit's kernel"
ALIKE = 0.05  # the largest difference of two right results in bf16, of the largest number

Times = dict[str, float]  # ns of forward and backward by name; what does not run has no entry


def fastest(plain: Attention, at_once: bool, like: Tensor) -> tuple[Attention | LibraryAttention, list[str]]:
    """The attention of a step, and what a report says of it: `plain`, or PyTorch's operator where one is faster.

    `at_once`: q, k and v are one projection. `like` has the step's precision and device. What splits and merges heads
    around a way is counted with it.
    """
    if not plain.flash:
        return plain, []
    times = measured(like.new_empty(plain.queries), plain.kv_heads, at_once)
    operators = best(times)
    chosen = plain if operators is None else LibraryAttention(operators, plain.queries, plain.keys, at_once)
    return chosen, [note(times)]


def best(times: Times) -> Operators | None:
    """The operators that took least; None for the catalog's kernel."""
    name = min(times, key=lambda way: times[way])
    return next((one for one in library_attention.OPERATORS if one.name == name), None)


def measured(q: Tensor, kv_heads: int, at_once: bool | None = None) -> Times:
    """Forward and backward in ns of each way on tensors like `q` (B, NH, T, HS), with `kv_heads` heads of keys and
    values; kept for this machine. With `at_once` from projections and back to these, as a step by hand goes."""
    operators = library_attention.OPERATORS
    facts = [torch.cuda.get_device_name(q.device), torch.__version__, torch.backends.cudnn.version()]
    ours = [f"{i.language}:{i.version}" for i in kernels.find("flash_attention_forward").implementations]
    facts += [[one.name for one in operators], ours, str(q.dtype), list(q.shape), kv_heads, at_once]
    measure = partial(_measure, q, kv_heads) if at_once is None else partial(_measure_step, q, kv_heads, at_once)
    found: Times = kept("attention", facts, measure)
    return found


def note(times: Times) -> str:
    """The report's sentence on the choice."""
    ways = ", ".join(f"{name} {ns / 1e3:.0f} µs" for name, ns in times.items())
    wrong = [f"{one.name} gives no right result here" for one in library_attention.OPERATORS if one.name not in times]
    found = "; ".join([ways, *wrong])
    return f"Attention of a layer, forward and backward, measured once on this machine: {found}. The fastest runs."


def _measure(q: Tensor, kv_heads: int) -> Times:
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

    return _right(own, {one.name: partial(library, one) for one in library_attention.OPERATORS})


def _measure_step(q: Tensor, kv_heads: int, at_once: bool) -> Times:
    batch, heads, time, size = q.shape
    rows, channels, of_keys = batch * time, heads * size, kv_heads * size
    widths = {"q": channels, "k": of_keys, "v": of_keys, "qkv": 3 * channels, "narrow": channels}
    drawn = {name: q.new_empty(rows, width).normal_() for name, width in widths.items()}
    bias = q.new_empty(3 * channels)
    of_a_step = ("qkv",) if at_once else ("q", "k", "v")

    def project(places: Mapping[str, Tensor]) -> None:
        for name, place in places.items():
            place.copy_(drawn[name])

    def way(attention: Attention | LibraryAttention) -> Callable[[], Sequence[Tensor]]:
        """From projections to z, and from z's gradient to theirs, in memory of its own."""
        shapes: Shapes = {name: (rows, width) for name, width in widths.items()}
        shared = Arena(shapes | attention.scratch(True), q.dtype, q.device)
        shared["narrow"].copy_(drawn["narrow"])
        layer = Arena(attention.kept(), q.dtype, q.device)
        statistics = [torch.empty(shape, device=q.device) for shape in attention.statistics().values()]
        places = {"qkv": attention.projection(layer, shared)} if at_once else attention.projections(layer, shared)

        def run() -> Sequence[Tensor]:
            project(places)  # a gradient may have taken the place of a projection
            (attention.split if at_once else attention.split_parts)(layer, shared)
            attention.mix(layer, shared, statistics)
            z = attention.result(layer)
            attention.mix_backward(layer, shared, statistics)
            if not at_once:
                return z, *attention.join_parts(shared)
            attention.join(shared, bias, False)
            return z, shared["qkv"]

        return run

    own = Attention(Kernels(), batch, time, heads, kv_heads, size, flash=True)
    keys = batch, kv_heads, time, size
    others = {one.name: LibraryAttention(one, q.shape, keys, at_once) for one in library_attention.OPERATORS}
    found = _right(way(own), {name: way(attention) for name, attention in others.items()})
    (copies,) = replayed_ns([partial(project, {name: torch.empty_like(drawn[name]) for name in of_a_step})])
    return {name: ns - copies for name, ns in found.items()}


def _right(own: Callable[[], Sequence[Tensor]], others: Mapping[str, Callable[[], Sequence[Tensor]]]) -> Times:
    """The time of perfkit's way, and of those that give what it gives."""
    times = {OWN: replayed_ns([own])[0]}
    for name, run in others.items():
        try:
            if all(_alike(a, b) for a, b in zip(run(), own(), strict=True)):
                times[name] = replayed_ns([run])[0]
        except RuntimeError:  # not for this precision, head size or GPU
            pass
    return times


def _alike(a: Tensor, b: Tensor) -> bool:
    return bool((a.float() - b.float()).abs().max() <= ALIKE * b.float().abs().max())
