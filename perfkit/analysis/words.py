"""Figures and names as sentences of a report have them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from os.path import commonprefix

from perfkit import units
from perfkit.analysis.results import Group
from perfkit.run_folder import Power
from perfkit.units import NAME, cropped

PLAIN = {"memory": "memory bandwidth", "l2": "L2 bandwidth"}
SHAPES = 60  # characters of shapes in a sentence
_HELD = 0.1  # of the time: that long a clock was held down before it is said


def percent(share: float | None) -> str:
    """A share as a percentage with two digits; a dash for an unknown one, no 0 for what is only small, and no whole
    for what lacks a little of it: "> 99 %"."""
    if share is None:
        return units.ABSENT
    if 0 < share < 0.0005:
        return "< 0.1 %"
    if 0.995 <= share < 1 - 1e-9:
        return "> 99 %"
    return f"{100 * share:.0f} %" if share >= 0.0995 or share == 0 else f"{100 * share:.1f} %"


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return "".join(names) if len(names) < 2 else f"{', '.join(names[:-1])} and {names[-1]}"


def number(amount: float) -> str:
    """A number without an exponent: `1,500`, `2.5`, `0.333`."""
    return f"{amount:,.0f}" if amount >= 100 or round(amount) == amount else f"{amount:,.3g}"


def call(group: Group) -> str:
    """A kind of kernel call with the shapes it works on."""
    return f"{cropped(group.key)} of {operands(group.shapes)}" if group.shapes else cropped(group.key)


def operands(shapes: str, most: int = SHAPES) -> str:
    """Shapes as a table has them; of a long text the operands in the middle are left out, and equal ones counted."""
    if len(shapes) <= most:
        return shapes
    parts = [(text, len(list(same))) for text, same in groupby(re.split(r", (?![^(]*\))", shapes))]
    texts = [text if count == 1 else f"{count} × {text}" for text, count in parts]
    for kept in range(len(texts), 2, -1):
        some = texts if kept == len(texts) else [*texts[: kept - 1], "…", texts[-1]]
        if len(", ".join(some)) <= most:
            return ", ".join(some)
    return cropped(", ".join(texts), most)


def apart(names: Sequence[str], most: int = NAME) -> list[str]:
    """Names without their middles where they are long; those that would read alike keep the place where they part."""
    short = {name: cropped(name, most) for name in names}
    for text in set(short.values()):
        alike = [name for name, its in short.items() if its == text]
        if len(alike) > 1:
            short.update(zip(alike, _parting(alike, most), strict=True))
    return [short[name] for name in names]


def _parting(names: Sequence[str], most: int) -> list[str]:
    """Distinct names in `most` characters: how they begin, and from where they part; numbered where that is too far."""
    head = most // 3
    begin = max(len(commonprefix(names)) - most // 6, head)  # noqa: RUF071  # of names, not of paths
    found = [f"{name[:head]}…{cropped(name[begin:], most - head - 1)}" for name in names]
    if len(set(found)) == len(found):
        return found
    return [f"{cropped(name, most - 4)} #{number}" for number, name in enumerate(names, 1)]


def bound(name: str) -> str:
    """A resource in words: `memory bandwidth`, `fp32 vector units`, `bf16 matrix units`."""
    kind, _, dtype = name.partition("_")
    return PLAIN.get(name) or (f"the {dtype} {kind} units" if dtype else name)


def capital(text: str) -> str:
    """`text` as a whole sentence: begun with a capital unless a name begins it, and ended."""
    name = "_" in text.partition(" ")[0] or ":" in text.partition(" ")[0]
    text = text if name else f"{text[:1].upper()}{text[1:]}"
    return text if text.endswith((".", "!", "?")) or not text else f"{text}."


def clock_limited(power: Power | None) -> str:
    """Return a sentence on a GPU's power and on what held its clock down while steps were timed; "" if nothing did."""
    if power is None or max(power.capped or 0.0, power.hot or 0.0) < _HELD:
        return ""
    hot = (power.hot or 0.0) > (power.capped or 0.0)
    why, share = ("temperature", power.hot) if hot else ("power limit", power.capped)
    limit = f", its limit is {units.text(power.limit_w, 'W')}" if power.limit_w else ""
    drew = f"The GPU drew {units.text(power.watts, 'W')} while steps were timed{limit}. " if power.watts else ""
    most = f" of {units.text(power.max_clock_hz, 'Hz')}" if power.max_clock_hz else ""
    clock = f" (median {units.text(power.clock_hz, 'Hz')}{most})" if power.clock_hz else ""
    return f"{drew}The {why} held the clock down for {percent(share)} of the time{clock}."
