"""Causal attention of a step by hand by an operator of PyTorch's, which reads q, k and v where they were projected to.

Legend: B batch, T time, NH heads, NKV heads of keys and values, HS head size, C = NH·HS; N = B·T rows. Nothing is split
into heads or merged: a head is a stride. What the operator gives is kept where it put it. A projection
to all three gets the gradients of q, k and v apart, and they are joined like heads, of size C.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from perfkit import kernels, ranges
from perfkit.handwritten.arena import Arena
from perfkit.handwritten.attention import Shapes, alike

aten = torch.ops.aten


@dataclass(frozen=True)
class Operators:
    """forward(q, k, v, scale) → y and lse; backward(dy, q, k, v, y, lse, scale) → dq, dk, dv.

    All (B, NH, T, HS), k and v of NKV heads, with any strides, and lse (B, NH, T) in fp32.
    """

    name: str
    forward: Callable[..., tuple[Tensor, Tensor]]
    backward: Callable[..., Sequence[Tensor]]


@functools.cache
def _seed(device: torch.device) -> Tensor:
    """Return a seed for the dropout, which is off."""
    return torch.zeros((), dtype=torch.int64, device=device)


def _captures(tensor: Tensor) -> bool:
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def _cudnn_forward(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    y, lse, *_ = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, True, False, scale=scale)
    return y, lse.view(q.shape[:3])


def _cudnn_backward(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, lse: Tensor, scale: float
) -> Sequence[Tensor]:
    seed, time = _seed(q.device), q.shape[2]
    rest = seed, seed, None, None, None, time, time, 0.0, True
    found: Sequence[Tensor] = aten._scaled_dot_product_cudnn_attention_backward(
        dy, q, k, v, y, lse.unsqueeze(-1), *rest, scale=scale
    )
    return found


def _flash_forward(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    y, lse, *_ = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True, False, scale=scale)
    return y, lse


def _flash_backward(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, lse: Tensor, scale: float
) -> Sequence[Tensor]:
    seed, time = _seed(q.device), q.shape[2]
    rest = None, None, time, time, 0.0, True, seed, seed
    found: Sequence[Tensor] = aten._scaled_dot_product_flash_attention_backward(dy, q, k, v, y, lse, *rest, scale=scale)
    return found


# The operators that a GPU may have, by the name that a report shows.
OPERATORS = (
    Operators("PyTorch's cuDNN operator", _cudnn_forward, _cudnn_backward),
    Operators("PyTorch's flash operator", _flash_forward, _flash_backward),
)


class LibraryAttention:
    """From projections, which are kept as they are, to z (N, C), and back.

    With `at_once` q, k and v are one projection (N, 3·C), else (N, NH·HS) and twice (N, NKV·HS).
    """

    flash = True
    moves = True

    def __init__(self, operators: Operators, queries: Sequence[int], keys: Sequence[int], at_once: bool) -> None:
        """`queries`: B, NH, T and HS; `keys`: B, NKV, T and HS."""
        self.batch, self.heads, self.time, self.size = queries
        self.kv_heads = keys[1]
        self.scale = 1.0 / math.sqrt(self.size)
        self._operators, self._at_once = operators, at_once
        self._gradients: Sequence[Tensor] = ()
        self._captured: set[Arena] = set()  # layers whose results lie where graphs read them
        # y and lse of each layer's arena, and those of a watched step, which replays nothing.
        self._results: dict[Arena, tuple[Tensor, Tensor]] = {}
        self._watched: dict[Arena, tuple[Tensor, Tensor]] = {}

    def kept(self) -> Shapes:
        """Tensors of each layer that the backward needs, without the operator's results."""
        rows = self.batch * self.time
        if self._at_once:
            return {"qkv": (rows, 3 * self.heads * self.size)}
        return {"q": (rows, self.heads * self.size)} | alike(("k", "v"), rows, self.kv_heads * self.size)

    def statistics(self) -> Shapes:
        """Nothing: the operator's results are in no arena."""
        return {}

    def scratch(self, training: bool) -> Shapes:
        """Nothing that all layers share."""
        return {}

    def projection(self, kept: Arena, shared: Arena) -> Tensor:
        """The tensor for the projection (N, 3·C)."""
        return kept["qkv"]

    def projections(self, kept: Arena, shared: Arena) -> dict[str, Tensor]:
        """Tensors for the projections to q, k and v."""
        return {part: kept[part] for part in "qkv"}

    def split(self, kept: Arena, shared: Arena) -> None:
        """Nothing: the operator reads the projection itself."""

    def split_parts(self, kept: Arena, shared: Arena) -> None:
        """Nothing either."""

    def mix(self, kept: Arena, shared: Arena, statistics: list[Tensor]) -> None:
        """z of a layer, from what was projected.

        Graphs write and read the results where they lay at the layer's first capture. So there they stay: where a step
        computes them again (recomputation), or does not replay all of its parts yet, they are copied there.
        """
        found = self._operators.forward(*self._parts(kept), self.scale)
        if kept in self._captured and not ranges.listening():
            for place, result in zip(self._results[kept], found, strict=True):
                place.copy_(result)
            return
        self._of_step()[kept] = found
        if _captures(found[0]):
            self._captured.add(kept)

    def result(self, kept: Arena) -> Tensor:
        """z (N, C) of a layer, once it is mixed."""
        return self._of_step()[kept][0].transpose(1, 2).reshape(self.batch * self.time, -1)

    def mix_backward(self, kept: Arena, shared: Arena, statistics: list[Tensor]) -> None:
        """From the gradient of z in `narrow` those of q, k and v, which `join` or `join_parts` gives."""
        dy = self._in_heads(shared["narrow"])
        self._gradients = self._operators.backward(dy, *self._parts(kept), *self._of_step()[kept], self.scale)
        self._watched.pop(kept, None)

    def join(self, shared: Arena, bias: Tensor, add: bool) -> None:
        """The gradient of the projection, in `qkv` (N, 3·C), and that of its bias (3·C)."""
        parts = [d.reshape(self.batch, 1, self.time, -1) for d in self._of_tokens()]
        out = [shared["qkv"].view(self.batch, self.time, -1), bias]
        # Bound for this call alone: the operator's results lie somewhere else each time.
        kernels.bind("split_heads_bias_backward", parts, out, ["db"] if add else [])()

    def join_parts(self, shared: Arena) -> list[Tensor]:
        """The gradients of q, k and v: (N, NH·HS) and twice (N, NKV·HS)."""
        return [d.reshape(self.batch * self.time, -1) for d in self._of_tokens()]

    def _of_step(self) -> dict[Arena, tuple[Tensor, Tensor]]:
        return self._watched if ranges.listening() else self._results

    def _of_tokens(self) -> list[Tensor]:
        """The gradients (B, T, heads, HS), once."""
        found, self._gradients = [d.transpose(1, 2) for d in self._gradients], ()
        return found

    def _parts(self, kept: Arena) -> tuple[Tensor, ...]:
        """q (B, NH, T, HS), k and v (B, NKV, T, HS)."""
        if not self._at_once:
            return tuple(self._in_heads(kept[part]) for part in "qkv")
        return kept["qkv"].view(self.batch, self.time, 3, self.heads, self.size).permute(2, 0, 3, 1, 4).unbind()

    def _in_heads(self, x: Tensor) -> Tensor:
        """(N, heads·HS) as (B, heads, T, HS)."""
        return x.view(self.batch, self.time, -1, self.size).transpose(1, 2)
