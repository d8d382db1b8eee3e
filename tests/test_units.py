"""Numbers as people read them."""

import pytest

from perfkit import units
from perfkit.analysis.words import percent


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 parameters"), (1, "1 parameter"), (5, "5 parameters"), (2810, "2.81 k parameters")],
)
def test_few_things_are_counted_and_many_scaled(count, said):
    assert units.many(count, "parameter") == said


@pytest.mark.parametrize(
    ("share", "said"), [(None, "–"), (0.0, "0 %"), (1e-5, "< 0.1 %"), (0.0006, "0.1 %"), (0.05, "5.0 %"), (0.5, "50 %")]
)
def test_a_small_share_is_not_none(share, said):
    assert percent(share) == said
