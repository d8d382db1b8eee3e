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


def test_the_low_end_of_an_interval_is_not_shown_as_0():
    seconds = units.scale_for([0.63e9, 3e6, 1e9], "ns")
    assert seconds.span(3e6, 1e9) == "< 0.01–1.00"
    assert units.scale_for([141.2e6, 515.3e6], "ns").span(31.2e6, 515.3e6) == "31.2–515.3"
