"""Which pairs of a query and a key attention has to compute, as far as the recorded arguments know its mask.

A causal mask lets query i see the keys up to its own: key i where it is aligned at the upper left (PyTorch's SDPA, on
CPUs, by cuDNN and by the efficient kernels), key i + K − Q where it is aligned at the lower right (flash attention). A
sliding window leaves a few keys to the left and right of that one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perfkit.cost.model import Argument, Call
from perfkit.cost.shapes import tensor_at

NOT_RECORDED = "not recorded"
_UPPER_LEFT, _LOWER_RIGHT = 1, 2  # the efficient kernels' kinds of mask; 0: without a mask


@dataclass(frozen=True)
class ArgumentPositions:
    """Positions of the arguments of an attention; None: it has no such argument.

    `query` is followed by key and value, `sequences` (ends of the queries' packed sequences) by those of the keys and
    by the longest of both, a window's `left` side by its right one; `given` are tensors of lengths or pages that hide
    keys. `kinds`: a number says which mask it is, in place of a flag. `block_mask` is that of flex attention, which has
    no other.
    """

    causal: int | Callable[[Call], int]
    bias: int | None = None
    query: int = 0
    output: int = 0
    sums: int = 0
    sequences: int | None = None
    left: int | None = None
    width: int | None = None  # of a window that ends at the query's own key
    given: tuple[int, ...] = ()
    block_mask: int | None = None
    kinds: bool = False
    lower_right: bool = False
    time_first: bool = False


@dataclass(frozen=True)
class Mask:
    """The number of keys that a query sees to the left and right of its own; None: all."""

    left: int | None = None
    right: int | None = None
    lower_right: bool = False

    def pairs(self, queries: int, keys: int) -> int:
        """Return the number of pairs that it leaves of a matrix of scores."""
        own = keys - queries if self.lower_right else 0
        until = queries * keys if self.right is None else _clipped(own + self.right + 1, queries, keys)
        return until - (0 if self.left is None else _clipped(own - self.left, queries, keys))

    def text(self, square: bool) -> str:
        """The mask in words, empty where it hides nothing."""
        if self.left is None and self.right is None:
            return ""
        words = "causal" if self.right == 0 else ""
        if self.left is not None or self.right != 0:
            sides = ("all" if side is None else side for side in (self.left, self.right))
            words += f"{', ' if words else ''}window {'|'.join(map(str, sides))}"
        return words + ("" if square or not self.lower_right else ", lower right")


def _clipped(first: int, count: int, limit: int) -> int:
    """The sum over i < count of first + i, each held between 0 and `limit`."""
    below = min(max(-first, 0), count)  # how many are under 0
    rising = min(max(limit - first, 0), count)  # and how many under the limit
    return (rising - below) * (2 * first + below + rising - 1) // 2 + (count - rising) * limit


def mask_of(call: Call, places: ArgumentPositions) -> Mask | None:
    """The mask of a call; None where it was not recorded."""
    at = places.causal if isinstance(places.causal, int) else places.causal(call)
    causal = _at(call, at)
    if places.kinds and isinstance(causal, bool):  # PyTorch 2.1 has one argument less before it
        causal = _at(call, at - 1)
    window = [_at(call, places.left + i) for i in range(2)] if places.left is not None else [None, None]
    width = _at(call, places.width) if places.width is not None else None
    if not isinstance(causal, int) or not all(side is None or isinstance(side, int) for side in (*window, width)):
        return None
    left, right = (side if isinstance(side, int) and side >= 0 else None for side in window)
    if isinstance(width, int) and width > 0:
        left = width - 1
    return Mask(left, 0 if causal else right, causal == _LOWER_RIGHT if places.kinds else places.lower_right)


def is_packed(call: Call, places: ArgumentPositions) -> bool:
    """Return whether sequences of several lengths are packed one after another."""
    return _sequences(call, places) > 0


def pairs(call: Call, places: ArgumentPositions, batch: int, queries: int, keys: int) -> float | None:
    """Pairs of all batches of one head; None where the mask, or the lengths of sequences, are not recorded.

    Of packed sequences they are known where all are as long as the longest.
    """
    if places.block_mask is not None:
        kept = _kept_by(_at(call, places.block_mask), queries * keys)
        return None if kept is None else batch * kept
    mask, count = mask_of(call, places), _sequences(call, places)
    if mask is None or any(tensor_at(call, at) is not None for at in places.given):
        return None
    if not count or places.sequences is None:
        return batch * mask.pairs(queries, keys)
    longest_q, longest_k = _at(call, places.sequences + 2), _at(call, places.sequences + 3)
    if not isinstance(longest_q, int) or not isinstance(longest_k, int):
        return None
    equal = batch * queries == count * longest_q and batch * keys == count * longest_k
    return count * mask.pairs(longest_q, longest_k) if equal else None


def text(call: Call, places: ArgumentPositions) -> str:
    """The words that distinguish calls of the same shapes: `causal`, `window 128|0`, or what was not recorded."""
    query, key = call.tensor(places.query), call.tensor(places.query + 1)
    time = -3 if places.time_first or is_packed(call, places) else -2
    mask = mask_of(call, places)
    words = f"mask {NOT_RECORDED}" if mask is None else mask.text(query.shape[time] == key.shape[time])
    if mask is not None and pairs(call, places, 1, query.shape[time], key.shape[time]) is None:
        words += f"{', ' if words else ''}lengths {NOT_RECORDED}"
    return words


def _sequences(call: Call, places: ArgumentPositions) -> int:
    ends = tensor_at(call, places.sequences) if places.sequences is not None else None
    return ends.shape[0] - 1 if ends is not None and len(ends.shape) == 1 and ends.shape[0] > 1 else 0


def _at(call: Call, place: int) -> Argument | str:
    return call.arguments[place] if place < len(call.arguments) else None


def _kept_by(block_mask: object, dense: int) -> float | None:
    """Pairs of one head that a block mask keeps: a number where it was read from the mask's tensors."""
    if isinstance(block_mask, float):
        return block_mask
    return dense if is_dense(block_mask) else None


def is_dense(block_mask: object) -> bool:
    """Return whether a block mask of flex attention hides nothing: one huge block, PyTorch's where none is given.

    What another hides is in its tensors, which no call records; `perfkit.inductor.block_masks` reads them.
    """
    return isinstance(block_mask, tuple) and any(isinstance(size, int) and size >= 1 << 30 for size in block_mask)


def after_number(place: int, then: int, otherwise: int) -> Callable[[Call], int]:
    """`then` where the argument at `place` is a number, else `otherwise`: schemas of different versions."""
    return lambda call: then if isinstance(_at(call, place), int | float) else otherwise
