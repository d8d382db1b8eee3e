"""The rule about a GPU whose clock is held down, by its power limit or by its temperature."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfkit import units
from perfkit.analysis.results import Finding
from perfkit.analysis.roofline.roof import ARITHMETIC
from perfkit.analysis.rules.base import ON_A_GPU, Case, Rule
from perfkit.analysis.words import clock_limited

_LOWER = 0.97  # of the highest clock: less is worth a word
_COOL = "Look at the machine's cooling: fans, airflow, the room. A hot GPU gives another figure at every hour."


def _low_clock(rule: Rule, case: Case) -> Iterator[Finding]:
    power = case.about.power
    held = clock_limited(power)
    if not held or power is None or not power.clock_hz or not power.max_clock_hz:
        return
    share = power.clock_hz / power.max_clock_hz
    if share > _LOWER:
        return
    rows = case.judged.judged & np.isin(case.judged.bound, ARITHMETIC)
    time = case.time(rows)
    clocks = f"{units.text(power.clock_hz, 'Hz')} of {units.text(power.max_clock_hz, 'Hz')}"
    hot = (power.hot or 0.0) > (power.capped or 0.0)
    yield rule.finding(
        case,
        f"The {'temperature' if hot else 'power limit'} holds the GPU's clock at {clocks}",
        f"{held} Kernels bound by arithmetic take {units.text(time, 'ns')} a step, and their rate is the clock's. "
        "Ceilings were measured in short bursts, and may be of a higher clock.",
        time,
        time * (1 - share),
        kernels=case.main_kernels(rows),
        remedy=_COOL if hot else "",
    )


LOW_CLOCK = Rule(
    name="low-clock",
    summary="the power limit or the temperature holds the GPU's clock down",
    where=ON_A_GPU,
    what="A GPU lowers its clock when it would draw more than its limit, or gets too hot. Matrix products draw most: "
    "on large boards a long series of them does not run at the highest clock, whoever wrote the kernel. What a kernel "
    "reaches then depends on the energy of an operation, and on the numbers: products of zeros are faster.",
    recognised="The clock and the driver's reasons for it (NVML), read while steps are timed: the limit or the "
    "temperature held it down for a tenth of the time or more, and its median is below 97 % of the highest.",
    estimate="The time of the kernels bound by arithmetic, as if they ran at the highest clock. No remedy reaches all "
    "of it while the limit stays.",
    remedies=(
        "Save energy and the clock rises: fewer bytes moved, fused epilogues, a lower precision, no work on padding. "
        "Raise the limit where the board allows it (nvidia-smi -pl). To compare two versions of a kernel, lock the "
        "clock below the limit (nvidia-smi -lgc 1400) and measure the ceilings again at it.",
    ),
    example="An H200 of 700 W makes the weight gradient of 16384 × 3072 × 2048 in bf16 at 801 TFLOP/s in bursts, and "
    "at 674 over and over, with the clock at 1,470 of 1,980 MHz.",
    find=_low_clock,
    needs="power",
)
RULES = (LOW_CLOCK,)
