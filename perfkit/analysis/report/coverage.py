"""Coverage: the share of the kernel time of which place, FLOP, bytes and counters are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perfkit import units
from perfkit.analysis.report.aggregate import LabelledRows, excluded
from perfkit.analysis.results import Coverage
from perfkit.analysis.roofline.excluded import EXCHANGED, HELPER, OVER_LINK, TOO_SMALL, UNCOUNTED
from perfkit.analysis.roofline.roof import BOUNDS, L2, Booleans
from perfkit.analysis.source import NCU, NSYS, RUN, TRACE
from perfkit.analysis.step_results import Gap
from perfkit.analysis.words import capital, number, percent
from perfkit.tree.places import NOT_PLACED

if TYPE_CHECKING:
    import pandas as pd

_NAMED = 10


def coverage(
    rows: LabelledRows, kind: str = RUN, own_code: Gap | None = None, partial: Booleans | None = None
) -> Coverage:
    """Shares of the kernel time, 0 to 1; a module is known where a layer is.

    The line leaves out what a profile of this `kind` (`perfkit.analysis.source`) does not hold by its nature. It names
    the time of `own_code`, which calls no operator and may compute all the same. Of `partial` rows a part of the FLOP
    is known, which is not enough.
    """
    judged = rows.judged
    total, lines = rows.total_ns, rows.places.lines
    whole = np.ones(len(judged.time), bool) if partial is None else ~partial
    shares = {
        "pass": _placed(rows, lines["pass"] != NOT_PLACED),
        "module": _placed(rows, lines["module"].notna() | lines["layer"].notna()),
        "FLOP": _share(judged.time, np.isfinite(judged.flop) & whole, total),
        "bytes": _share(judged.time, np.isfinite(judged.bytes), total),
        "counters": _share(judged.time, judged.counters, total),
    }
    return Coverage(
        pass_=shares["pass"],
        module=shares["module"],
        flop=shares["FLOP"],
        bytes=shares["bytes"],
        counters=shares["counters"],
        text=f"{_text(shares, kind)}{_levels(rows) if kind != NCU else ''}{_opaque(own_code)}",
        not_judged=_not_judged(rows, kind),
        uncosted=_uncosted(rows) if kind not in (NCU, NSYS) else [],
    )


_WHY = {
    TOO_SMALL: "too small to judge (under 5 µs, or less than one wave of blocks)",
    UNCOUNTED: "not judged: the profile does not hold the arithmetic, and memory does not explain the time",
    HELPER: "not judged: another kernel of the same operation carries its work, and efficiency leaves this time out",
    OVER_LINK: "not judged: a copy between host and GPU, whose roof is the link between them",
    EXCHANGED: "not judged: the links between ranks bound a collective, and its time may hold waiting for them",
}


def _not_judged(rows: LabelledRows, kind: str) -> str:
    """Return a sentence on the kernels that are not judged, and why; "" if no kernel is judged."""
    if kind != NCU and not rows.judged.judged.any():
        return ""
    said = [
        f"{number(w.count)} kernel call{'' if w.count == 1 else 's'} ({units.text(w.time_ns, 'ns')}, "
        f"{percent(w.share)} of the kernel time) {'is' if w.count == 1 else 'are'} {_WHY[w.why]}"
        for w in excluded(rows)
    ]
    return capital("; ".join(said)) if said else ""


def _placed(rows: LabelledRows, known: pd.Series) -> float:
    """The share of the kernel time on the lines of the tree that are `known`."""
    time = rows.time_of_lines
    return float(time[known.to_numpy(bool)].sum() / rows.total_ns) if rows.total_ns else 0.0


def _share(time: np.ndarray, known: Booleans, total: float) -> float:
    return float(time[known].sum() / total) if total else 0.0


_ABSENT = {NCU: ("pass", "module"), NSYS: ("pass", "module", "FLOP", "bytes", "counters"), TRACE: ("counters",)}


def _text(shares: dict[str, float], kind: str) -> str:
    parts = [what for what in shares if shares[what] or what not in _ABSENT.get(kind, ())]
    if not parts:
        return "Known of the kernels: when and where they ran, and how they were launched."
    words = {"counters": "hardware counters"}
    said = [f"{words.get(what, what)} {_percent(shares[what]) if shares[what] else 'none'}" for what in parts]
    return f"Known of the kernel time: {', '.join(said)}."


def _levels(rows: LabelledRows) -> str:
    """Return a sentence on time judged by L2, and on time at memory's roof because a cache held a part of the bytes."""
    judged, total = rows.judged, rows.total_ns
    held = _share(judged.time, judged.bound == BOUNDS.index(L2), total)
    helped = _share(judged.time, judged.helped, total)
    parts = [f"{_percent(held)} moves what fits L2, and is judged by L2"] if held else []
    if helped:
        parts.append(
            f"{_percent(helped)} is faster than measured, for a cache held more of its bytes, and counts as at its roof"
        )
    return f" Of it, {'; '.join(parts)}." if parts else ""


def _opaque(own_code: Gap | None) -> str:
    if own_code is None:
        return ""
    return (
        f" In {percent(own_code.share)} of the profiled step no operator is open: what compiled C++ or NumPy computes "
        "there is unknown, and in no sum of FLOP or bytes."
    )


def _percent(share: float) -> str:
    """One digit, and never a rounded 100 % or 0 %."""
    if 0.9995 <= share < 1:
        return "> 99.9 %"
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{share:.0%}".replace("%", " %") if share in (0, 1) else f"{100 * share:.1f} %"


def _uncosted(rows: LabelledRows) -> list[str]:
    """Names of the kernels of unknown FLOP and bytes, largest time first; collectives have none of their own."""
    unknown = ~np.isfinite(rows.judged.flop) & ~np.isfinite(rows.judged.bytes)
    if "collective" in rows.families:
        unknown &= rows.family_code != rows.families.index("collective")
    total: dict[str, float] = {}
    for i in np.flatnonzero(unknown).tolist():
        total[rows.names[i]] = total.get(rows.names[i], 0.0) + float(rows.judged.time[i])
    return sorted(total, key=lambda name: -total[name])[:_NAMED]
