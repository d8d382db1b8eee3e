"""A GPU's power in a report: draw, energy of a step, reasons for a low clock, and roofs at another clock."""

from __future__ import annotations

import pytest

from perfkit.analysis.report.analyse import analyse
from perfkit.analysis.results import Report
from perfkit.render import run as of_run
from perfkit.render import terminal
from perfkit.run_folder import Power
from tests.support.analysis import faults
from tests.support.analysis.examples import backend, run


def report(power: Power | None, tflop: float = 1e-3) -> Report:
    """A run whose step of 2 ms holds one product of 1 ms, of 1e-3 TFLOP at its roof."""
    rows = [{**faults.product(1000), "flop_matrix_fp32": tflop * 1e12}]
    source = run(
        backend("eager", 2.0, power=power), tables={"eager": faults.made(rows, 2000)},
        ceilings=faults.msgspec.to_builtins(faults.CEILINGS),
    )  # fmt: skip
    return analyse(source)


CAPPED = Power(watts=650, limit_w=700, clock_hz=1.5e9, max_clock_hz=1.98e9, capped=0.97, hot=0.0)


def test_the_energy_of_a_step_is_its_time_at_the_draw() -> None:
    (eager,) = report(CAPPED).backends
    assert eager.energy_j == pytest.approx(650 * 2e-3)
    titles = [column.title for column in of_run.backends(report(CAPPED)).columns]
    assert {"power (W)", "energy (J)"} <= set(titles)


@pytest.mark.parametrize("power", [None, Power(clock_hz=1.98e9)])
def test_nothing_is_said_of_what_was_not_measured(power: Power | None) -> None:
    made = report(power)
    assert made.backends[0].energy_j is None and not made.backends[0].held
    assert not {"power (W)", "energy (J)"} & {column.title for column in of_run.backends(made).columns}


def test_what_held_the_clock_down_is_told_where_it_did_for_long() -> None:
    said = terminal.render(report(CAPPED), width=200)
    assert (
        "eager: The GPU drew 650.0 W while steps were timed, its limit is 700.0 W. The power limit held the clock down "
        "for 97 % of the time (median 1,500 MHz of 1,980 MHz)." in said.replace("\n", " ")
    )
    assert "held the clock" not in terminal.render(report(Power(watts=650, capped=0.05, hot=0.0)))
    assert "The temperature held the clock down for 50 %" in report(Power(capped=0.2, hot=0.5)).backends[0].held


def test_products_above_their_roof_at_the_power_limit_had_another_clock() -> None:
    fast = 1.2e-3
    (limited,) = [w for w in report(CAPPED, fast).backends[0].warnings if "faster than the roof" in w]
    (free,) = [w for w in report(None, fast).backends[0].warnings if "faster than the roof" in w]
    assert "may have run at a higher one than when their ceiling was measured" in limited
    assert "That cannot be" in free
