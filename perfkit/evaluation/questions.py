"""Questions with several endings (HellaSwag): rows of tokens, and which ending a model finds most likely.

Legend: B rows, T time (sequence length).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from perfkit.errors import InputError
from perfkit.workloads.llmc import Example

PADDING = 0  # any token: nothing after a row's end is looked at


@dataclass(frozen=True)
class TokenRows:
    """Inputs and targets (B, T), and where the targets are tokens of an ending."""

    tokens: np.ndarray
    targets: np.ndarray
    scored: np.ndarray


def longest(examples: Sequence[Example]) -> int:
    """The T that the longest context with its longest ending needs. Raises `InputError` for questions without either,
    since the first token of an ending is predicted from the context's last."""
    for number, one in enumerate(examples):
        if not one.context or not all(one.completions):
            raise InputError(f"Question {number} has an empty context or ending.", "Leave it out.")
    return max(len(e.context) + max(map(len, e.completions)) - 1 for e in examples)


def batches(examples: Sequence[Example], rows: int, length: int) -> Iterator[TokenRows]:
    """The endings of all questions in order, a row each, in batches of `rows`; the last one is filled up."""
    pairs = [(e.context, ending) for e in examples for ending in e.completions]
    for first in range(0, len(pairs), rows):
        made = TokenRows(*(np.full((rows, length), PADDING, kind) for kind in (np.int64, np.int64, bool)))
        for row, (context, ending) in enumerate(pairs[first : first + rows]):
            whole = np.array([*context, *ending])
            made.tokens[row, : len(whole) - 1] = whole[:-1]
            made.targets[row, : len(whole) - 1] = whole[1:]
            made.scored[row, len(context) - 1 : len(whole) - 1] = True
        yield made


def answers(examples: Sequence[Example], losses: Sequence[float], counts: Sequence[int]) -> tuple[list[int], list[int]]:
    """The ending of each question that is most likely: by the mean loss of its tokens, and by the sum.

    `losses` has the sum of each ending's tokens and `counts` their number, in the order of `batches`.
    """
    by_mean, by_sum, at = [], [], 0
    for example in examples:
        endings = range(at, at + len(example.completions))
        by_mean.append(min(endings, key=lambda i: losses[i] / counts[i]) - at)
        by_sum.append(min(endings, key=lambda i: losses[i]) - at)
        at = endings.stop
    return by_mean, by_sum
