"""Estimates with intervals, rank tests, corrections, verdicts, and what series of measurements give away. Numpy alone.

estimates     medians, means and ratios by the bootstrap; shares; exponents of a power law
ranks         two groups, or pairs, compared by ranks: exact p values, and the intervals that belong to them
corrections   many tests at once
verdicts      from samples to a verdict: better, worse, no difference shown, cannot tell
turns         two series that were recorded in turns, part by part
series        warm-up, drift, outliers, and steps in a history
"""

from perfkit.statistics.estimates import (
    BOOTSTRAP,
    DRAWS,
    LEVEL,
    RANGE,
    SEED,
    SMALL,
    Estimate,
    exponent,
    mean,
    median,
    ratio_of_medians,
    share,
)

__all__ = [
    "BOOTSTRAP",
    "DRAWS",
    "LEVEL",
    "RANGE",
    "SEED",
    "SMALL",
    "Estimate",
    "exponent",
    "mean",
    "median",
    "ratio_of_medians",
    "share",
]
