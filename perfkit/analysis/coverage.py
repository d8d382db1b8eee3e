"""Coverage: the share of the kernel time of which place, FLOP, bytes and counters are known."""

from __future__ import annotations

import numpy as np

from perfkit.analysis.aggregate import Rows
from perfkit.analysis.results import Coverage
from perfkit.analysis.roofline import Booleans

_NAMED = 10


def coverage(rows: Rows, has_pass: Booleans, has_module: Booleans) -> Coverage:
    """Shares of the kernel time, 0 to 1; `has_module` counts a layer or module."""
    judged = rows.judged
    total = rows.total_ns
    shares = {
        "pass": _share(judged.time, has_pass, total),
        "module": _share(judged.time, has_module, total),
        "FLOP": _share(judged.time, np.isfinite(judged.flop), total),
        "bytes": _share(judged.time, np.isfinite(judged.bytes), total),
        "counters": _share(judged.time, judged.counters, total),
    }
    return Coverage(
        pass_=shares["pass"],
        module=shares["module"],
        flop=shares["FLOP"],
        bytes=shares["bytes"],
        counters=shares["counters"],
        text=_text(shares),
        uncosted=_uncosted(rows),
    )


def _share(time: np.ndarray, known: Booleans, total: float) -> float:
    return float(time[known].sum() / total) if total else 0.0


def _text(shares: dict[str, float]) -> str:
    said = ", ".join(f"{what} {_percent(shares[what])}" for what in ("pass", "module", "FLOP", "bytes"))
    counters = _percent(shares["counters"]) if shares["counters"] else "none"
    return f"Known of the kernel time: {said}, hardware counters {counters}."


def _percent(share: float) -> str:
    """One digit, and never a rounded 100 % or 0 % that is none."""
    if 0.9995 <= share < 1:
        return "> 99.9 %"
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{share:.0%}".replace("%", " %") if share in (0, 1) else f"{100 * share:.1f} %"


def _uncosted(rows: Rows) -> list[str]:
    """Names of the kernels of unknown FLOP and bytes, largest time first."""
    unknown = ~np.isfinite(rows.judged.flop) & ~np.isfinite(rows.judged.bytes)
    total: dict[str, float] = {}
    for i in np.flatnonzero(unknown).tolist():
        total[rows.names[i]] = total.get(rows.names[i], 0.0) + float(rows.judged.time[i])
    return sorted(total, key=lambda name: -total[name])[:_NAMED]
