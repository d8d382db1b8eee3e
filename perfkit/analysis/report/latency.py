"""Inter-token latency of a serving engine, from what its iterations served and how long they took.

The names of iterations count requests and do not name them. Where each running request is served in every iteration
that generates, as continuous batching does, that is enough: a request's token follows its last one by this iteration,
and by the iterations before it that only read prompts, since that last one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfkit.engines import Iteration

Waits = list[tuple[float, int]]  # ns between two tokens of a request, and of how many requests
SLOW = 0.99


def token_waits(served: Sequence[Iteration | None], times: Sequence[float]) -> list[Waits]:
    """Return for each iteration how long after their last token its requests got one; none where that is unknown.

    Unknown are the first iteration that generates, whose requests have their last token from before the recording,
    that after one whose name does not split prompts from the rest, iterations that generate several tokens a request
    (speculation), and those that lack requests whose prompts were read just before.
    """
    found: list[Waits] = []
    is_known, stalled, fresh = False, 0.0, Waits()  # since the last iteration that generated: time, and prompts read
    for iteration, time in zip(served, times, strict=False):
        waits = Waits()
        if iteration is None or iteration.unsplit:
            is_known = False
        elif iteration.generating:
            earlier = iteration.generating - sum(requests for _, requests in fresh)
            if is_known and earlier >= 0 and iteration.new_tokens == iteration.generating:
                waits = [(wait + time, n) for wait, n in [(stalled, earlier), *fresh] if n]
            is_known, stalled, fresh = True, 0.0, Waits()
        else:
            stalled, fresh = stalled + time, [*((wait + time, n) for wait, n in fresh), (0.0, iteration.prompts)]
        found.append(waits)
    return found


def median_and_slow(waits: Sequence[Waits]) -> tuple[float | None, float | None]:
    """Return the median and the 99th percentile over all tokens: the least wait that so many do not exceed."""
    pairs = sorted(pair for wait in waits for pair in wait)
    if not pairs:
        return None, None
    counts = np.cumsum([n for _, n in pairs])
    median, slow = (pairs[int(np.searchsorted(counts, share * counts[-1]))][0] for share in (0.5, SLOW))
    return median, slow
