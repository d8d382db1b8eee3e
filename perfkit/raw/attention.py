"""Causal attention of a step by hand: NH heads of queries over NKV heads of keys and values.

Legend: B batch, T time, NH heads, NKV heads of keys and values, G = NH / NKV of queries to each, HS head size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from perfkit.raw.arena import Arena
from perfkit.raw.calls import Kernels

Shapes = dict[str, tuple[int, ...]]


def alike(names: Iterable[str], *shape: int) -> Shapes:
    """Each of `names` in this shape."""
    return dict.fromkeys(names, shape)


class Attention:
    """From q (B, NH, T, HS), k and v (B, NKV, T, HS) in a layer's arena to (B, NH, T, HS), and back.

    In its parts (products, causal softmax, products), whose weights (B, NH, T, T) are kept; or with `flash` in one
    kernel, which keeps its result instead.
    """

    def __init__(self, call: Kernels, batch: int, time: int, heads: int, kv_heads: int, size: int, flash: bool) -> None:
        self.call = call
        self.flash = flash
        self.heads, self.kv_heads = heads, kv_heads
        self.scale = 1.0 / math.sqrt(size)
        self.queries: tuple[int, ...] = (batch, heads, time, size)
        self.keys: tuple[int, ...] = (batch, kv_heads, time, size)
        self._square: tuple[int, ...] = (batch, heads, time, time)

    def kept(self) -> Shapes:
        """What the backward needs of each layer."""
        weights = {"o": self.queries} if self.flash else {"att": self._square}
        return weights | {"q": self.queries, "k": self.keys, "v": self.keys}

    def statistics(self) -> Shapes:
        """What the backward needs of each layer, in fp32."""
        return {"lse": self.queries[:3]} if self.flash else {}

    def scratch(self, training: bool) -> Shapes:
        """What all layers share."""
        shapes: Shapes = {"heads": self.queries} | ({} if self.flash else {"scores": self._square})
        if training:
            shapes |= {"dq": self.queries, "dk": self.keys, "dv": self.keys}
            shapes |= {} if self.flash else {"datt": self._square}
        return shapes

    def forward(self, kept: Arena, shared: Arena, statistics: list[Tensor]) -> Tensor:
        """att · v (B, NH, T, HS) of a layer; what `statistics` names is kept in these tensors."""
        q, k, v = kept["q"], kept["k"], kept["v"]
        if self.flash:
            self.call("flash_attention_forward", q, k, v, self.scale, out=[kept["o"], *statistics])
            return kept["o"]
        self._product(q, _turned(k), shared["scores"])
        self.call("causal_softmax_forward", shared["scores"], self.scale, out=[kept["att"]])
        self._product(kept["att"], v, shared["heads"])
        return shared["heads"]

    def backward(self, kept: Arena, shared: Arena, statistics: list[Tensor]) -> None:
        """From the gradient of att · v in `heads`, those of q, k and v in `dq`, `dk` and `dv`."""
        q, k, v, upstream = kept["q"], kept["k"], kept["v"], shared["heads"]
        if self.flash:
            arguments = upstream, q, k, v, kept["o"], *statistics, self.scale
            self.call("flash_attention_backward", *arguments, out=[shared[name] for name in ("dq", "dk", "dv")])
            return
        self._product(upstream, _turned(v), shared["datt"])
        self._sum_product(kept["att"], upstream, shared["dv"])
        self.call("causal_softmax_backward", shared["datt"], kept["att"], self.scale, out=[shared["scores"]])
        self._product(shared["scores"], k, shared["dq"])
        self._sum_product(shared["scores"], q, shared["dk"])

    def _product(self, a: Tensor, b: Tensor, out: Tensor) -> None:
        """out = a · b of each head: (B, NH, M, K), (B, NKV, K, N) → (B, NH, M, N); one product for G heads."""
        torch.bmm(self._grouped(a), b.flatten(0, 1), out=self._grouped(out))

    def _sum_product(self, a: Tensor, b: Tensor, out: Tensor) -> None:
        """out = Σ aᵀ · b over the G heads that share: (B, NH, M, K), (B, NH, M, N) → (B, NKV, K, N)."""
        torch.bmm(self._grouped(a).transpose(1, 2), self._grouped(b), out=out.flatten(0, 1))

    def _grouped(self, x: Tensor) -> Tensor:
        """(B, NH, M, N) as (B · NKV, G · M, N): heads that share keys lie one after the other."""
        return x.view(x.shape[0] * self.kv_heads, -1, x.shape[-1])


def _turned(x: Tensor) -> Tensor:
    """(…, M, N) as (…, N, M)."""
    return x.transpose(-2, -1)
