"""Pairs that every longest common subsequence has, held against all of them, enumerated."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.tree import sequences
from perfkit.tree.sequences import align


def aligned(rows: str, columns: str) -> list[int]:
    letters = np.array(list(columns))
    return align(len(rows), len(columns), lambda i: letters == rows[i]).tolist()


@pytest.mark.parametrize(
    ("rows", "columns", "expected"),
    [
        ("abc", "abc", [0, 1, 2]),
        ("aaaa", "aaaa", [0, 1, 2, 3]),
        ("abcb", "abc", [0, 1, 2, -1]),
        ("xabc", "abc", [-1, 0, 1, 2]),
        ("abc", "xaybzc", [1, 3, 5]),
        ("aab", "ab", [-1, -1, 1]),  # which of the two a it is, nobody can know
        ("ab", "aab", [-1, 2]),
        ("abab", "ab", [-1, -1, -1, -1]),  # one of two equal rounds
        ("abc", "cab", [1, 2, -1]),
        ("abc", "xyz", [-1, -1, -1]),
        ("", "abc", []),
        ("abc", "", [-1, -1, -1]),
    ],
)
def test_only_what_is_certain(rows, columns, expected):
    assert aligned(rows, columns) == expected


def best_pairings(rows: str, columns: str) -> list[set[tuple[int, int]]]:
    """Every longest common subsequence as a set of pairs, by trying all."""
    for length in range(min(len(rows), len(columns)), -1, -1):
        found = [
            set(zip(left, right, strict=True))
            for left in itertools.combinations(range(len(rows)), length)
            for right in itertools.combinations(range(len(columns)), length)
            if all(rows[i] == columns[j] for i, j in zip(left, right, strict=True))
        ]
        if found:
            return found
    return [set()]


@given(st.text("abc", max_size=6), st.text("abc", max_size=6))
def test_a_pair_counts_when_every_best_pairing_has_it(rows, columns):
    certain = set.intersection(*best_pairings(rows, columns))
    assert {(i, j) for i, j in enumerate(aligned(rows, columns)) if j >= 0} == certain


def test_more_than_can_be_compared_is_refused(monkeypatch):
    monkeypatch.setattr(sequences, "MOST_CELLS", 5)
    with pytest.raises(ValueError, match="too many"):
        aligned("abc", "abc")
