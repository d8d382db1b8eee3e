"""Collectives below what their links reach."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfkit.analysis.results import Unjudged
from perfkit.analysis.words import listed, percent
from perfkit.hardware.collectives.formulas import bus_bandwidth
from perfkit.hardware.peaks import find_row
from perfkit.ranks.results import RanksFinding
from perfkit.ranks.rules.base import SEVERAL, RanksCase, RanksRule
from perfkit.units import text

_OF_ROOF = 0.7  # of what was measured for the size
_OF_WIRE = 0.3  # of the datasheet: large messages reach 55 % and more of NVLink
_LARGE = 32 * 2.0**20  # bytes from which latency does not count


def _slow(rule: RanksRule, case: RanksCase) -> Iterator[RanksFinding | Unjudged]:
    calls = [k for k in range(len(case.matched)) if case.matched.message_bytes[k] >= _LARGE]
    if not calls:
        return
    roofs = {k: _roof(case, k) for k in calls}
    judged = [k for k in calls if roofs[k][0] is not None]
    if not judged:
        yield rule.cannot(
            "nobody measured the links (`perfkit ceilings --ranks N`), and their kind is not known for these ranks"
        )
        return
    rates = {k: bus_rate(case, k) for k in judged}
    slow = [k for k in judged if rates[k] and rates[k] < roofs[k][1] * (roofs[k][0] or 0.0)]
    if 2 * len(slow) < len(judged):
        return
    own = float(case.waiting.own[slow].sum()) / case.steps
    needed = np.array([1 - rates[k] / _reached(roofs[k]) for k in slow])
    saved, _ = case.most(np.minimum(case.exposed[slow], (needed * case.waiting.own[slow])[:, None]))
    median = float(np.median([rates[k] for k in slow]))
    reached = float(np.median([rates[k] / (roofs[k][0] or 1.0) for k in slow]))
    _, share, words = roofs[slow[0]]
    operations = listed(sorted({case.matched.operation[k] for k in slow}))
    yield rule.finding(
        case,
        f"Large messages ({operations}) run at {text(median, 'B/s')}, {percent(reached)} of {words}",
        f"{len(slow)} of {len(judged)} collectives of 32 MiB and more stay below {percent(share)} of it: "
        f"{_range([roofs[k][0] or 0.0 for k in slow])}. Their own time is {text(own, 'ns')} a step.",
        own,
        saved,
        count=len(slow) / case.steps,
    )


def _range(rates: list[float]) -> str:
    least, most = text(min(rates), "B/s"), text(max(rates), "B/s")
    return least if least == most else f"{least} to {most}, by their size"


def datasheet_rate(case: RanksCase, k: int) -> float | None:
    """Return the rate of a large message by the datasheet of its link, bytes/s; None where the link is not known."""
    roof = _roof(case, k)
    return _reached(roof) if roof[0] is not None and roof[1] == _OF_WIRE else None


def bus_rate(case: RanksCase, k: int) -> float:
    """The bus bandwidth of one collective, bytes/s; 0 if it has no formula."""
    size, own = float(case.matched.message_bytes[k]), float(case.waiting.own[k])
    return bus_bandwidth(case.matched.operation[k], case.group_size(k), size, own * 1e-9) or 0.0


def _reached(roof: tuple[float | None, float, str]) -> float:
    """Return the rate of a sound link: all that was measured, or 55 % of the datasheet."""
    return (roof[0] or 0.0) * (1.0 if roof[1] == _OF_ROOF else 0.55)


def _roof(case: RanksCase, k: int) -> tuple[float | None, float, str]:
    """Return the reference of a collective: a bandwidth, the required share of it, and words for it."""
    sweep = case.sweep(k)
    if sweep is not None:
        return sweep.bus_bandwidth(float(case.matched.message_bytes[k])), _OF_ROOF, "what was measured for their size"
    gpus = [gpu for member in case.members for gpu in member.facts.get("gpus") or []]
    rows = {row.name: row for row in (find_row(str(gpu.get("name"))) for gpu in gpus) if row}
    if len(rows) != 1 or not _one_host(case):
        return None, _OF_WIRE, ""
    (row,) = rows.values()
    if row.link_gb_s is None:
        return None, _OF_WIRE, ""
    return row.link_gb_s * 1e9, _OF_WIRE, f"the datasheet's NVLink of {row.name}"


def _one_host(case: RanksCase) -> bool:
    """Return whether all ranks of the job surely share a host: each has a GPU of another number."""
    numbers = [{gpu.get("id") for gpu in member.facts.get("gpus") or []} for member in case.members]
    different = len(set().union(*numbers)) == sum(map(len, numbers)) == len(case.members)
    return different and len(case.members) == case.report.world_size


RULES = (
    RanksRule(
        name="slow-link",
        summary="large messages stay far below what their link reaches",
        where=SEVERAL,
        what="A message of many MiB takes its bytes over the bandwidth of the slowest link on its way. Where that is "
        "far below the link's kind, the way is another one: PCIe or the host's memory instead of NVLink, one network "
        "card instead of eight, a link that runs narrower than it should.",
        recognised="At least half of the collectives of 32 MiB and more run below 70 % of what `perfkit ceilings "
        "--ranks N` measured for their size. Without that, on a host's GPUs with NVLink, below 30 % of its datasheet.",
        estimate="Their own time less that at the measured bandwidth (or at 55 % of the datasheet), as far as it is "
        "exposed.",
        remedies=(
            "Look at `nvidia-smi topo -m` and at NCCL_DEBUG=INFO: which way do the rings take? Undo NCCL_P2P_DISABLE, "
            "NCCL_SHM_DISABLE and NCCL_ALGO; between hosts see NCCL_IB_HCA, NCCL_NET_GDR_LEVEL and the ports' rate.",
            "Computation next to a collective takes bandwidth and multiprocessors from it: compare with the sweep.",
        ),
        example="`NCCL_P2P_DISABLE=1`, left in a container's environment.",
        find=_slow,
        rank=7,
    ),
)
