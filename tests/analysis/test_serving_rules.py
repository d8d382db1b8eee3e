"""Every rule about serving engines finds its planted fault, with the saving worked out by hand, and no healthy twin."""

from __future__ import annotations

import pytest

from tests.support.analysis.faults import named
from tests.support.analysis.serving import FAULTS, decode, engine

BESIDE = {"host-sampling": {"copies-dtoh"}}  # the copies themselves


@pytest.mark.parametrize("rule", FAULTS)
def test_a_planted_fault_is_found_by_its_rule_alone(rule: str) -> None:
    planted, _, saving_us = FAULTS[rule]
    found = named(planted())
    assert found[rule].saving_ns == pytest.approx(saving_us * 1e3, rel=1e-3)
    assert set(found) - {rule, "below-roof"} <= BESIDE.get(rule, set())


@pytest.mark.parametrize("rule", FAULTS)
def test_a_healthy_engine_has_no_finding(rule: str) -> None:
    assert set(named(FAULTS[rule][1]())) - {"below-roof"} == set()


def test_the_batch_at_which_products_would_bound() -> None:
    """200 µs of weights, and 160 MFLOP at 4 TFLOP/s for a batch of 8: 40 µs."""
    assert "at a batch of about 40." in named(FAULTS["decode-below-roof"][0]())["decode-below-roof"].evidence


def test_what_a_trace_does_not_hold_is_not_judged() -> None:
    report = engine((name, [{**row, "shapes": None} for row in rows], gap) for name, rows, gap in [decode(us=800)] * 5)
    assert "decode-below-roof" in {one.rule for one in report.unjudged} and not report.serving[0].roof_ns
