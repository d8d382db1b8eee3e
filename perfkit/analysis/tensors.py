"""Shapes as the table writes them (`fp32[64×1], int64[1000]`), read back."""

from __future__ import annotations

import functools
import math
import re

_TENSOR = re.compile(r"\b([a-z]\w*)\[([\d×]*)\]")  # \b: a long word is tried once, not at each of its letters
Shape = tuple[int, ...]


@functools.lru_cache(maxsize=4096)
def shapes(text: str) -> tuple[tuple[str, Shape], ...]:
    """Dtype and shape of each tensor: `fp32[64×1], int64[]` → (("fp32", (64, 1)), ("int64", ()))."""
    return tuple((dtype, tuple(map(int, filter(None, dims.split("×"))))) for dtype, dims in _TENSOR.findall(text))


def elements(shape: Shape) -> int:
    """Return the number of elements of a tensor of that shape."""
    return math.prod(shape)


@functools.lru_cache(maxsize=4096)
def broadcast(text: str) -> Shape | None:
    """The shape that the tensors of `text` broadcast to; None if they do not, or without tensors."""
    found = [shape for _, shape in shapes(text)]
    if not found:
        return None
    result: list[int] = []
    for place in range(1, max(map(len, found)) + 1):
        sizes = {s[-place] for s in found if len(s) >= place} - {1}
        if len(sizes) > 1:
            return None
        result.insert(0, sizes.pop() if sizes else 1)
    return tuple(result)


@functools.lru_cache(maxsize=4096)
def sizes(text: str) -> tuple[int, ...]:
    """Bytes of each tensor, by the bits in its dtype's name: `bf16[64×2], bool[8]` → (256, 8)."""
    return tuple(_bits(dtype) * elements(shape) // 8 for dtype, shape in shapes(text))


def _bits(dtype: str) -> int:
    """Bits of a number: those in the name of its dtype, and a byte for `bool`."""
    return int("".join(filter(str.isdigit, dtype)) or 8)
