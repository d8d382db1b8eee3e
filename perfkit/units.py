"""Base units inside, scaled when printed.

Inside perfkit a time is in nanoseconds, an amount in bytes, work in FLOP and a rate in bytes/s or FLOP/s. Only printing
scales, and one scale serves a whole column: it is chosen from all of its values, so that rows compare at a glance.
Absent values (NaN or None) print as a dash, never as zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

NAME = 48  # characters of a name in a sentence
ABSENT = "–"

# Unit name → the ladder of (factor, suffix), smallest first. Times are given in ns; decimal prefixes elsewhere, except
# memory capacity, which people read in binary units.
LADDERS: dict[str, tuple[tuple[float, str], ...]] = {
    "ns": ((1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")),
    "B": ((1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")),
    "iB": ((1.0, "B"), (2.0**10, "KiB"), (2.0**20, "MiB"), (2.0**30, "GiB"), (2.0**40, "TiB")),
    "B/s": ((1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s"), (1e12, "TB/s")),
    "FLOP": ((1.0, "FLOP"), (1e3, "kFLOP"), (1e6, "MFLOP"), (1e9, "GFLOP"), (1e12, "TFLOP"), (1e15, "PFLOP")),
    "FLOP/s": ((1.0, "FLOP/s"), (1e3, "kFLOP/s"), (1e6, "MFLOP/s"), (1e9, "GFLOP/s"), (1e12, "TFLOP/s")),
    "W": ((1.0, "W"), (1e3, "kW")),
    "J": ((1e-3, "mJ"), (1.0, "J"), (1e3, "kJ")),
    "cycles": ((1.0, "cycles"), (1e3, "k cycles"), (1e6, "M cycles"), (1e9, "G cycles")),
    "Hz": ((1e6, "MHz"),),
    "FLOP/B": ((1.0, "FLOP/B"),),
    "%": ((0.01, "%"),),
    "": ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")),
    "count": ((1.0, ""),),
    "×": ((1.0, "×"),),
}


@dataclass(frozen=True)
class Scale:
    """One scale for a column: `factor` base units make one `suffix`."""

    factor: float
    suffix: str
    digits: int | None = None

    def number(self, value: float | None) -> str:
        """The scaled number without its unit; a dash where the value is absent."""
        if value is None or math.isnan(value):
            return ABSENT
        scaled = value / self.factor
        digits = self.digits
        if digits is None:
            digits = 0 if abs(scaled) >= 1000 or scaled == 0 else max(0, 2 - math.floor(math.log10(abs(scaled))))
        return f"{scaled:,.{min(digits, 6)}f}"

    def nonzero(self, value: float | None) -> str:
        """As `number`, but what rounds to 0 and is not 0 is shown as below the least number: `< 0.01`."""
        number = self.number(value)
        if not value or number == ABSENT or number.strip("-0.,"):
            return number
        least = self.number(10 ** -(self.digits or 0) * self.factor)
        return f"< {least}" if value > 0 else f"> -{least}"

    def span(self, low: float, high: float) -> str:
        """Return `low–high` without the unit; neither is shown as 0 unless it is 0."""
        return f"{self.nonzero(low)}–{self.nonzero(high)}"

    def text(self, value: float | None) -> str:
        """The scaled number with its unit; a dash where the value is absent."""
        number = self.number(value)
        if number == ABSENT or not self.suffix:
            return number
        return f"{number}{self.suffix}" if self.suffix in "%×" else f"{number} {self.suffix}"


def scale_for(values: Iterable[float | None], unit: str) -> Scale:
    """Choose one scale for all `values` (base units) of a column, from the largest magnitude, with fitting digits.

    `unit` is one of ns, B, iB, B/s, FLOP, FLOP/s, FLOP/B, W, J, Hz, cycles, %, ×, count, or ""
    (a plain number, scaled by k, M, G).
    """
    known = [abs(v) for v in values if v is not None and math.isfinite(v)]
    largest = max(known, default=0.0)
    ladder = LADDERS[unit]
    factor, suffix = ladder[0]
    for step_factor, step_suffix in ladder[1:]:
        if largest >= step_factor:
            factor, suffix = step_factor, step_suffix
    if unit == "count":
        return Scale(factor, suffix, 0)
    if unit == "%":
        return Scale(factor, suffix, 1)
    top = largest / factor
    digits = 0 if top >= 1000 else 1 if top >= 100 else 2
    return Scale(
        factor, suffix, 0 if factor == 1.0 and unit in ("ns", "cycles", "B", "iB", "") and top >= 10 else digits
    )


def many(count: int, what: str) -> str:
    """Return a count with its noun: `many(124_400_000, "parameter")` is `124.4 M parameters`, that of 1 is `1
    parameter`."""
    return f"{text(float(count), '' if count >= 1000 else 'count')} {what}{'' if count == 1 else 's'}"


def text(value: float | None, unit: str) -> str:
    """One value, scaled on its own, with its unit: `text(1.5e6, "ns")` is `1.50 ms`."""
    return scale_for([value], unit).text(value)


def cropped(text: str, most: int = NAME) -> str:
    """At most `most` characters of a text, with … for what is left out of the middle: names of kernels differ at the
    end as at the beginning."""
    if len(text) <= most:
        return text
    tail = max(0, (most - 1) * 2 // 5)
    return f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}" if most > 1 else "…"
