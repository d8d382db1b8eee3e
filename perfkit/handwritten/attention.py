"""Causal attention of a step by hand: NH heads of queries over NKV heads of keys and values.

Legend: B batch, T time, NH heads, NKV heads of keys and values, G = NH / NKV of queries to each, HS head size.

The products and the softmax take the queries in blocks, each with the keys up to its last query: what lies right of the
diagonal's blocks is neither computed nor kept. Of T = 1024 in four blocks that leaves ten of sixteen parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from perfkit.handwritten.arena import Arena
from perfkit.handwritten.calls import Kernels

Shapes = dict[str, tuple[int, ...]]

QUERIES = 256  # of a block: fewer leave less out, and give products too small for a GPU


def alike(names: Iterable[str], *shape: int) -> Shapes:
    """Each of `names` in this shape."""
    return dict.fromkeys(names, shape)


class Attention:
    """From q (B, NH, T, HS), k and v (B, NKV, T, HS) in a layer's arena to (B, NH, T, HS), and back.

    In its parts (products, causal softmax, products), whose weights are kept, block by block; or with `flash` in one
    kernel, which keeps its result instead.
    """

    moves = False  # whether z lies elsewhere each time

    def __init__(self, call: Kernels, batch: int, time: int, heads: int, kv_heads: int, size: int, flash: bool) -> None:
        self.call = call
        self.flash = flash
        self.heads, self.kv_heads, self.size = heads, kv_heads, size
        self.scale = 1.0 / math.sqrt(size)
        self.queries: tuple[int, ...] = (batch, heads, time, size)
        self.keys: tuple[int, ...] = (batch, kv_heads, time, size)
        # G heads that share keys are one product, for which all their queries must lie together.
        rows = QUERIES if heads == kv_heads else time
        self._blocks = [(first, min(first + rows, time)) for first in range(0, time, rows)]

    def kept(self) -> Shapes:
        """Tensors of each layer that the backward needs."""
        squares = {f"att {i}": self._square(*block) for i, block in enumerate(self._blocks)}
        weights = {"o": self.queries} if self.flash else squares
        z = self.queries[0] * self.queries[2], self.heads * self.size
        return weights | {"q": self.queries, "k": self.keys, "v": self.keys, "z": z}

    def statistics(self) -> Shapes:
        """Tensors of each layer in fp32 that the backward needs."""
        return {"lse": self.queries[:3]} if self.flash else {}

    def scratch(self, training: bool) -> Shapes:
        """Tensors that all layers share."""
        largest = max((self._square(*block) for block in self._blocks), key=math.prod, default=(0,))
        shapes: Shapes = {"heads": self.queries} | ({} if self.flash else {"scores": largest})
        if training:
            shapes |= {"dq": self.queries, "dk": self.keys, "dv": self.keys}
            shapes |= {} if self.flash else {"datt": largest}
        return shapes

    def projection(self, kept: Arena, shared: Arena) -> Tensor:
        """The tensor for a projection (N, 3·C) to q, k and v: `qkv`, which all layers share."""
        return shared["qkv"]

    def split(self, kept: Arena, shared: Arena) -> None:
        """q, k and v of a layer, from its projection."""
        out = [kept["q"], kept["k"], kept["v"]]
        self.call("split_heads_forward", self._of_tokens(shared["qkv"]), self.heads, out=out)

    def projections(self, kept: Arena, shared: Arena) -> dict[str, Tensor]:
        """Tensors for the projections to q (N, NH·HS), k and v (N, NKV·HS), which all layers share."""
        return {part: shared[part] for part in "qkv"}

    def split_parts(self, kept: Arena, shared: Arena) -> None:
        """q, k and v of a layer, from projections of their own."""
        for part in "qkv":  # merging heads backwards is taking them apart
            arguments = self._of_tokens(shared[part]), kept[part].shape[1]
            self.call("merge_heads_backward", *arguments, out=[kept[part]])

    def mix(self, kept: Arena, shared: Arena, statistics: list[Tensor]) -> None:
        """z (N, C) of a layer, from its q, k and v; what `statistics` names is kept in these tensors."""
        heads = self.forward(kept, shared, statistics)
        self.call("merge_heads_forward", heads, out=[self._of_tokens(kept["z"])])

    def result(self, kept: Arena) -> Tensor:
        """z (N, C) of a layer, once it is mixed."""
        return kept["z"]

    def mix_backward(self, kept: Arena, shared: Arena, statistics: list[Tensor]) -> None:
        """From the gradient of z in `narrow` (N, C) those of q, k and v in `dq`, `dk` and `dv`."""
        self.call("merge_heads_backward", self._of_tokens(shared["narrow"]), self.heads, out=[shared["heads"]])
        self.backward(kept, shared, statistics)

    def join(self, shared: Arena, bias: Tensor, add: bool) -> None:
        """The gradient of the projection, in `qkv` (N, 3·C), and that of its bias (3·C)."""
        parts, out = (shared["dq"], shared["dk"], shared["dv"]), [self._of_tokens(shared["qkv"]), bias]
        self.call("split_heads_bias_backward", *parts, out=out, add=["db"] if add else [])

    def join_parts(self, shared: Arena) -> list[Tensor]:
        """The gradients of projections to q, k and v, in `q`, `k` and `v`."""
        for part in "qkv":
            self.call("merge_heads_forward", shared[f"d{part}"], out=[self._of_tokens(shared[part])])
        return [shared[part] for part in "qkv"]

    def _of_tokens(self, x: Tensor) -> Tensor:
        """(N, M) as (B, T, M)."""
        return x.view(self.queries[0], self.queries[2], -1)

    def forward(self, kept: Arena, shared: Arena, statistics: list[Tensor]) -> Tensor:
        """att · v (B, NH, T, HS) of a layer; what `statistics` names is kept in these tensors."""
        q, k, v = kept["q"], kept["k"], kept["v"]
        if self.flash:
            self.call("flash_attention_forward", q, k, v, self.scale, out=[kept["o"], *statistics])
            return kept["o"]
        for i, (first, end) in enumerate(self._blocks):
            scores, att = self._of_block(shared["scores"], first, end), kept[f"att {i}"]
            self._product(q[:, :, first:end], _turned(k[:, :, :end]), scores)
            self.call("causal_softmax_forward", scores, self.scale, out=[att])
            self._product(att, v[:, :, :end], shared["heads"][:, :, first:end])
        return shared["heads"]

    def backward(self, kept: Arena, shared: Arena, statistics: list[Tensor]) -> None:
        """From the gradient of att · v in `heads`, those of q, k and v in `dq`, `dk` and `dv`."""
        q, k, v, upstream = kept["q"], kept["k"], kept["v"], shared["heads"]
        if self.flash:
            arguments = upstream, q, k, v, kept["o"], *statistics, self.scale
            self.call("flash_attention_backward", *arguments, out=[shared[name] for name in ("dq", "dk", "dv")])
            return
        for i, (first, end) in reversed(list(enumerate(self._blocks))):
            datt, dscores = (self._of_block(shared[name], first, end) for name in ("datt", "scores"))
            att, own, past = kept[f"att {i}"], slice(first, end), slice(end)
            added = i + 1 < len(self._blocks)  # to what the last block wrote, whose queries see all keys
            self._product(upstream[:, :, own], _turned(v[:, :, past]), datt)
            self._sum_product(att, upstream[:, :, own], shared["dv"][:, :, past], added)
            self.call("causal_softmax_backward", datt, att, self.scale, out=[dscores])
            self._product(dscores, k[:, :, past], shared["dq"][:, :, own])
            self._sum_product(dscores, q[:, :, own], shared["dk"][:, :, past], added)

    def _square(self, first: int, end: int) -> tuple[int, ...]:
        """The shape of a block's scores: queries from `first` to `end`, keys up to there."""
        return *self.queries[:2], end - first, end

    def _of_block(self, memory: Tensor, first: int, end: int) -> Tensor:
        """The scores of a block, in memory that all blocks share."""
        shape = self._square(first, end)
        return memory.view(-1)[: math.prod(shape)].view(shape)

    def _product(self, a: Tensor, b: Tensor, out: Tensor) -> None:
        """out = a · b of each head: (B, NH, M, K), (B, NKV, K, N) → (B, NH, M, N); one product for G heads."""
        torch.bmm(self._grouped(a), b.flatten(0, 1), out=self._grouped(out))

    def _sum_product(self, a: Tensor, b: Tensor, out: Tensor, add: bool) -> None:
        """out (+)= Σ aᵀ · b over the G heads that share: (B, NH, M, K), (B, NH, M, N) → (B, NKV, K, N)."""
        a, b, out = _turned(self._grouped(a)), self._grouped(b), out.flatten(0, 1)
        if add:
            out.baddbmm_(a, b)
        else:
            torch.bmm(a, b, out=out)

    def _grouped(self, x: Tensor) -> Tensor:
        """(B, NH, M, N) as (B · NKV, G · M, N): heads that share keys lie one after the other."""
        return x.view(x.shape[0] * self.kv_heads, -1, x.shape[-1])


def _turned(x: Tensor) -> Tensor:
    """(…, M, N) as (…, N, M)."""
    return x.transpose(-2, -1)
