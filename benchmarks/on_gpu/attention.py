"""Attention on one GPU, many kinds: python attention.py capture|ncu

Kinds: flash, cudnn, efficient and flex, causal and full, T = 1024 and 4096, D = 64 and 128, in bf16; a forward and a
backward pass of each. `capture`: steps that call each kind as a module of its own, for `perfkit capture`. `ncu`: one
forward and one backward pass of each between `cudaProfilerStart` and `cudaProfilerStop`; a triangular copy (a kernel
called `triu_tril`) follows each pass, so that the order of kernels says whose they are.

Legend: B batch, H heads, T tokens, D channels of a head.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

TOKENS, HEADS = 16384, 16  # B · T, and H
SDPA = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
WAYS = (*SDPA, "flex")
KINDS = [(way, causal, T, D) for T in (1024, 4096) for D in (64, 128) for way in WAYS for causal in (True, False)]


def by_hand(kind: tuple[str, bool, int, int]) -> tuple[int, int]:
    """FLOP of a forward and a backward pass that have to be done: two products and five, over the pairs of tokens.

    Flex knows no more of a mask than its blocks of 128 tokens, and computes each that holds a pair.
    """
    way, causal, T, D = kind
    size = 128 if way == "flex" else 1
    blocks = T // size
    pairs = TOKENS // T * HEADS * size**2 * (blocks * (blocks + 1) // 2 if causal else blocks**2)
    return 4 * D * pairs, 10 * D * pairs


def name_of(kind: tuple[str, bool, int, int]) -> str:
    """The name of a kind's module."""
    way, causal, T, D = kind
    return f"{way}_{'causal' if causal else 'full'}_{T}_{D}"


class Attention(nn.Module):
    """Attention of one kind over fixed queries, keys and values (B, H, T, D)."""

    def __init__(self, kind: tuple[str, bool, int, int]) -> None:
        super().__init__()
        self.way, self.causal, T, D = kind
        self.q, self.k, self.v = (
            nn.Parameter(torch.randn(TOKENS // T, HEADS, T, D, device="cuda", dtype=torch.bfloat16)) for _ in range(3)
        )
        if self.way == "flex":
            self.flex: Any = torch.compile(flex_attention, dynamic=False)
            self.mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, T, T) if self.causal else None

    def forward(self) -> torch.Tensor:
        """Return the outputs (B, H, T, D)."""
        if self.way == "flex":
            return self.flex(self.q, self.k, self.v, block_mask=self.mask)
        with sdpa_kernel(SDPA[self.way]):
            return F.scaled_dot_product_attention(self.q, self.k, self.v, is_causal=self.causal)


class Everything(nn.Module):
    """One module a kind."""

    def __init__(self) -> None:
        super().__init__()
        self.each = [Attention(kind) for kind in KINDS]
        self.kinds = nn.ModuleDict({name_of(kind): one for kind, one in zip(KINDS, self.each, strict=True)})

    def forward(self) -> list[torch.Tensor]:
        """Return the outputs of all kinds."""
        return [one() for one in self.each]


def main() -> None:
    """Run the steps."""
    torch.manual_seed(0)
    torch._dynamo.config.recompile_limit = 4 * len(KINDS)  # type: ignore[attr-defined]
    model = Everything()
    gradient = {one.q.shape: torch.randn_like(one.q) for one in model.each}
    if sys.argv[1] == "capture":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        for _ in range(9):
            outputs = model()
            torch.autograd.backward(outputs, [gradient[one.shape] for one in outputs])
            optimizer.step()
            optimizer.zero_grad()
        torch.cuda.synchronize()
        return
    marked = torch.ones(4, 4, device="cuda")
    for recorded in (False, True):
        if recorded:
            torch.cuda.synchronize()
            torch.cuda.profiler.start()
        for one in model.each:
            output = one()
            marked.tril()
            output.backward(gradient[output.shape])
            marked.tril()
            one.zero_grad()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    main()
