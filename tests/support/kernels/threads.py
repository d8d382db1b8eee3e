"""The same results whatever the number of threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def same_bits_on_any_number_of_threads(make: Callable[[], Sequence[Tensor]]) -> None:
    """Assert that `make()` gives the same on one, two and three threads."""
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(make())
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
