"""Results of NVIDIA's own rules, which a report of Nsight Compute stores for its kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from perfkit.analysis.results import Advice, Group
from perfkit.analysis.roofline.excluded import details
from perfkit.analysis.roofline.roof import Integers
from perfkit.analysis.rules.roof_questions import NEAR

if TYPE_CHECKING:
    import pandas as pd

LEAST = 0.05  # of the kernel: estimates below say nothing
LEAST_OF_A_PART = 0.5  # an estimate for a part of the kernel bounds nothing: smaller ones are noise
_LEAST_TIME = 0.02  # of the kernel time: a kernel that takes less is not worth advice
_EACH = 2  # pieces of advice for one kernel
_COMPRESSION = "Memory L2 Compression"  # speaks of every kernel, and helps only memory that was allocated for it


def advice(frame: pd.DataFrame, codes: Integers, groups: Sequence[Group], facts: Mapping[str, Any]) -> list[Advice]:
    """NVIDIA's advice with an estimate, for the longest launch of each group, the largest estimate first.

    The estimates are about the same time and are never added up. Rules that state a measure without an estimate, or
    that all is well, are left out.
    """
    said = details(frame, facts)
    if not said:
        return []
    time = frame["duration_ns"].to_numpy(float)
    found: list[Advice] = []
    for place, group in enumerate(groups):
        if group.share < _LEAST_TIME or (group.efficiency or 0.0) >= NEAR:
            continue
        rows = np.flatnonzero(codes == place)
        longest = int(rows[int(np.argmax(time[rows]))])
        found += _of_kernel(group.key, said[longest].get("rules") or [])
    return found


def _of_kernel(kernel: str, rules: Sequence[Mapping[str, Any]]) -> list[Advice]:
    known = [
        Advice(
            kernel=kernel,
            title=rule.get("title") or rule.get("rule") or "",
            text=rule.get("text") or "",
            speedup=rule["speedup"] / 100,
            scope=rule.get("scope") or "",
        )
        for rule in rules
        if rule.get("speedup") and LEAST <= rule["speedup"] / 100 <= 1 and rule.get("rule") != _COMPRESSION
    ]
    whole = [a for a in known if a.scope == "global"]  # what is said of a part only counts where nothing else is said
    return sorted(whole or [a for a in known if a.speedup >= LEAST_OF_A_PART], key=lambda a: -a.speedup)[:_EACH]
