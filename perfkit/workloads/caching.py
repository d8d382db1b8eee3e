"""Keys and values of positions that a language model has seen, kept for the tokens that follow: a static cache.

Legend: B batch, NH heads, NKV heads of keys and values, T new positions, S positions that the cache has room for, HS
head size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from torch import Tensor, nn

from perfkit.functional import cached_attention

KeysValues: TypeAlias = tuple[Tensor, Tensor]  # of one layer, (B, NKV, S, HS) each
Cache: TypeAlias = Sequence[KeysValues]  # one a layer


def attend_cached(
    attend: Callable[[Tensor, Tensor, Tensor], Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    past: KeysValues,
    position: Tensor | None,
) -> Tensor:
    """Keep k and v (B, NKV, T, HS) in `past`, and let q (B, NH, T, HS) attend: → (B, NH, T, HS).

    Without a `position` the T are the first ones, among which `attend` works; with one, (1), T is 1 and all that was
    kept counts.
    """
    keys, values = past
    if position is None:
        keys[:, :, : k.shape[2]] = k
        values[:, :, : v.shape[2]] = v
        return attend(q, k, v)
    keys[:, :, position] = k
    values[:, :, position] = v
    return cached_attention(q, keys, values, position)


class Greedy(nn.Module):
    """Return the most likely token: logits (B, 1, V) → (B, 1)."""

    def forward(self, logits: Tensor) -> Tensor:
        """logits (B, 1, V) → the most likely token (B, 1)."""
        return logits.argmax(-1)
