"""The losses that a program prints, before and after a change.

    step 10 loss 3.2104      a number after a word with `loss` in it; step, epoch and the like say which one it is
    s:250 trl:5.8123         llm.c's own

Without such a word losses are distinguished by their order, and both sides have to print the same number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import msgspec

RIGHT, WRONG, UNKNOWN = "right", "wrong", "unknown"

_VALUE = r"(?P<value>[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?))(?![\w.]*[A-Za-z_])"
_BETWEEN = (
    r"""['"]?\]?\s*(?:(?:at|after|of|in)?\s*\(?(?:step|iteration|epoch)\s*\d+\)?)?\s*(?:is|=|:|->)?\s*(?:tensor\()?"""
)
_PLACE = re.compile(r"\b(step|iter(?:ation)?|epoch|batch|s)\b\W{0,3}(\d+)", re.IGNORECASE)

Place = tuple[tuple[str, ...], ...]  # a value's name, then the words with their numbers before it
Series = dict[Place, tuple[float, float]]  # and half a unit in its last printed place


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on the results: right, wrong or unknown, what they were compared with, and why.

    `error` is the largest relative difference, `allowed` what is allowed, `count` how many values were compared.
    """

    status: str
    how: str
    why: str = ""
    error: float | None = None
    allowed: float | None = None
    count: int = 0


def series_of(text: str, names: Sequence[str] = ("loss", "trl")) -> Series:
    """The printed values whose names hold one of `names`, by name and place."""
    found: Series = {}
    seen: dict[Place, int] = {}
    kind = "|".join(re.escape(name) for name in names)
    form = re.compile(rf"(?P<name>[\w./-]*(?:{kind})[\w./-]*){_BETWEEN}{_VALUE}", re.IGNORECASE)
    for line in text.splitlines():
        places = tuple((word.lower(), number) for word, number in _PLACE.findall(line))
        for match in form.finditer(line):
            key: Place = ((match["name"].lower(),), *places)
            seen[key] = number = seen.get(key, -1) + 1
            own = key if places and not number else (*key, (str(number),))
            found[own] = (float(match["value"]), _half_place(match["value"]))
    return found


def check(before: Sequence[Series], after: Sequence[Series], allowed: float) -> Checked:
    """Hold the losses of the runs after a change against those of the first run before it.

    They are wrong where they differ by more than the share `allowed`, beyond what printing rounds, although the runs
    before the change agree among themselves.
    """
    first, how = before[0], f"printed losses, within {allowed:.2g}"
    if not first:
        why = "the program prints no loss while it is measured: print one, raise --steps, or name a value with --values"
        return Checked(status=UNKNOWN, how=how, why=why)
    if not all(math.isfinite(value) for value, _ in first.values()):
        return Checked(status=UNKNOWN, how=how, why="a loss is not finite before the change")
    ordered = any(len(place) == 2 and len(place[1]) == 1 for place in first)
    if ordered and any(len(one) != len(first) for one in after):
        why = (
            f"before the change {len(first)} losses are printed, after it {len(after[0])}: print the step next to each"
        )
        return Checked(status=UNKNOWN, how=how, why=why)
    common = min(len(set(first) & set(one)) for one in after)
    if not common:
        return Checked(status=UNKNOWN, how=how, why="after the change no loss of the same step is printed")
    spread, _ = _worst(first, before[1:])
    error, where = _worst(first, after)
    status, why = RIGHT, ""
    if error > allowed and spread > allowed:
        status = UNKNOWN
        why = f"the losses before the change differ by {spread:.2g} from run to run: set a seed, or give --tolerance"
    elif error > allowed:
        status, why = WRONG, where
    known = error if math.isfinite(error) else None
    return Checked(status=status, how=how, why=why, error=known, allowed=allowed, count=common)


def _worst(first: Series, others: Sequence[Series]) -> tuple[float, str]:
    """The largest relative difference beyond what printing rounds, and where it is, as words."""
    return max(_differences(first, others), key=lambda one: one[0], default=(0.0, ""))


def _differences(first: Series, others: Sequence[Series]) -> Iterator[tuple[float, str]]:
    for other in others:
        for place in first.keys() & other.keys():
            (a, unit), (b, other_unit) = first[place], other[place]
            beyond = max(0.0, abs(b - a) - unit - other_unit) if math.isfinite(b) else math.inf
            error = beyond / abs(a) if a else beyond
            name = " ".join([*place[0], *(" ".join(words) for words in place[1:])])
            yield error, f"{name}: {a:g} before, {b:g} after"


def _half_place(text: str) -> float:
    """Half a unit in the last place of a number as it is printed; 0 of what is not finite."""
    digits, _, exponent = text.lower().partition("e")
    if not any(c.isdigit() for c in digits) or "inf" in text.lower():
        return 0.0
    return 0.5 * 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
