"""From measurements of two sides to a verdict: better, worse, no difference shown, cannot tell.

The unit is a *launch* (one fresh process for each side), a *round* or a *turn* (a few steps in a row), never a single
step: steps that follow each other share the machine's mood, and would count one burst of it many times. The values are
compared as ratios, by ranks of their logarithms (`perfkit.statistics.ranks`), with intervals of 95 %:

    better, worse         the interval of the ratio leaves out 1, and p, after its correction for many, is 2 % at most
    no difference shown   it holds 1, and a difference of `resolution` would have been shown four times out of five
    cannot tell           it holds 1, and such a difference could have stayed hidden; or there was too little to test

What the values do not show, because they were measured in one process or at different times, is allowed for: the
interval is widened by the factor 1 + `allowance` on both sides. Where launches may stop early, each number of launches
at which they may has a `share` of the error: p is divided by it, and the interval leaves out that share of 5 %. The
shares sum to 1, so whatever stops the launches, all looks together are wrong no more often than one would be. With an
allowance, which keeps false verdicts rare by itself, p may be 5 %. Why 2 % without one: at 5 % a hundred comparisons of
equal programs would often hold more than five false verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import msgspec

from perfkit.statistics import ranks
from perfkit.statistics.corrections import holm, together
from perfkit.statistics.estimates import LEVEL

BETTER, WORSE, SAME, UNKNOWN = "better", "worse", "no difference shown", "cannot tell"
RESOLUTION = 0.05
ALONE = 0.02  # p at most, where no allowance guards the verdict


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The second side over the first: `ratio` in [`low`, `high`], and what may be said of it.

    None where nothing is known. `p` is of the rank test, `adjusted_p` after the correction for many tests; `detectable`
    the least change, as a share, that would have been shown four times out of five; `n` the number of `unit`s.
    """

    verdict: str
    why: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    adjusted_p: float | None = None
    detectable: float | None = None
    n: int = 0
    unit: str = "launch"
    method: str = ""
    allowance: float = 0.0
    share: float = 1.0  # of the error, spent at this number of launches


def judge(
    first: Sequence[float],
    second: Sequence[float],
    *,
    pairs: bool,
    unit: str,
    differences: Sequence[float] | None = None,
    allowance: float = 0.0,
    share: float = 1.0,
    resolution: float = RESOLUTION,
    higher_is_better: bool = False,
) -> Judgement:
    """The verdict on `second` against `first`: positive values, one a `unit`; with `pairs` they belong together.

    `differences` are the log ratios of the pairs, where more is known of them than the values show; `share` the part of
    the error that this look may spend.

    Raises `ValueError` for values that are not positive and finite, or for pairs of unequal number.
    """
    if not first or not second:
        return Judgement(verdict=UNKNOWN, why="nothing was measured", unit=unit, allowance=allowance)
    if min(*first, *second) <= 0:
        raise ValueError("ratios need positive values")
    a, b = [math.log(v) for v in first], [math.log(v) for v in second]
    level = 1 - (1 - LEVEL) * share
    if pairs:
        shift = ranks.paired([y - x for x, y in zip(a, b, strict=True)] if differences is None else differences, level)
    else:
        shift = ranks.groups(a, b, level)
    p = min(1.0, shift.p / share)
    known = math.isfinite(shift.low)
    made = Judgement(
        verdict=UNKNOWN,
        why="" if known else f"{_counted(shift.n, unit)} too few for any verdict",
        ratio=math.exp(shift.value),
        low=math.exp(shift.low) / (1 + allowance) if known else None,
        high=math.exp(shift.high) * (1 + allowance) if known else None,
        p=p,
        detectable=math.exp(shift.detectable) * (1 + allowance) - 1 if known else None,
        n=shift.n,
        unit=unit,
        method=shift.method,
        allowance=allowance,
        share=share,
    )
    return decide(made, p, resolution, higher_is_better)


def _counted(n: int, unit: str) -> str:
    return f"1 {unit} is" if n == 1 else f"{n} {plural(unit)} are"


def decide(
    found: Judgement, adjusted_p: float, resolution: float = RESOLUTION, higher_is_better: bool = False
) -> Judgement:
    """`found` with the verdict that belongs to a p value after correction."""
    if found.low is None or found.high is None or found.detectable is None:
        return msgspec.structs.replace(found, adjusted_p=adjusted_p)
    verdict, why = UNKNOWN, ""
    beyond = found.low > 1 or found.high < 1
    needed = 1 - LEVEL if found.allowance else ALONE
    if beyond and adjusted_p <= needed:
        verdict = BETTER if (found.high < 1) != higher_is_better else WORSE
    elif beyond:
        many = " after the correction for many tests" if found.p is not None and found.p <= needed else ""
        why = f"p is {adjusted_p:.3f}{many}, and a verdict needs {needed:.0%}{_more(found, adjusted_p, needed)}"
    elif found.detectable <= resolution:
        verdict = SAME
    else:
        why = f"a change under {found.detectable:.1%} could have stayed hidden"
    return msgspec.structs.replace(found, verdict=verdict, why=why, adjusted_p=adjusted_p)


def _more(found: Judgement, adjusted_p: float, needed: float) -> str:
    """Return the number of units needed if these could not have shown even the clearest difference.

    The least p of n signed ranks is 2^(1 − n); the correction multiplies it.
    """
    if found.method != ranks.SIGNED_RANK or not found.p or found.p * found.share > 2.0 ** (1 - found.n) * (1 + 1e-9):
        return ""
    least = 1 + math.ceil(math.log2(adjusted_p / found.p / found.share / needed) - 1e-9)
    return f", for which {least} {plural(found.unit)} are the fewest" if least > found.n else ""


def plural(unit: str) -> str:
    """`unit` in the plural: launches, rounds."""
    return f"{unit}es" if unit.endswith("ch") else f"{unit}s"


def correct(
    found: Sequence[Judgement],
    resolution: float = RESOLUTION,
    higher_is_better: Collection[int] = (),
    differences: Sequence[Sequence[float] | None] | None = None,
) -> list[Judgement]:
    """The judgements of one family of tests with their p values corrected, and the verdicts made again.

    Where all tests are of the `differences` of the same launches (log ratios, one line a test) they are corrected
    together (`corrections.together`), else by Holm's method. `higher_is_better` holds the places in `found` of what
    gains by growing.
    """
    tested = [i for i, one in enumerate(found) if one.p is not None]
    lines = [differences[i] if differences else None for i in tested]
    if tested and all(line is not None and len(line) == len(lines[0] or ()) for line in lines):
        shares = [found[i].share for i in tested]
        raised = [min(1.0, p / share) for p, share in zip(together(lines), shares, strict=True)]  # type: ignore[arg-type]
    else:
        raised = holm([found[i].p or 0.0 for i in tested])
    adjusted = dict(zip(tested, raised, strict=True))
    return [
        decide(one, adjusted[i], resolution, i in higher_is_better) if i in adjusted else one
        for i, one in enumerate(found)
    ]
