"""Transfer that no computation covers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfkit.analysis.words import listed, percent
from perfkit.ranks.results import RanksFinding
from perfkit.ranks.rules.base import SEVERAL, RanksCase, RanksRule
from perfkit.units import text

_NAMED = 3  # kinds of collectives in the evidence


def _exposed(rule: RanksRule, case: RanksCase) -> Iterator[RanksFinding]:
    part = max(case.report.parts, key=lambda one: one.exposed_ns)
    if not len(case.matched) or part.exposed_ns <= 0:
        return
    column = next(i for i, member in enumerate(case.members) if member.rank == part.rank)
    covered = part.transfer_ns - part.exposed_ns
    free = max(part.compute_ns - covered, 0.0)
    kinds: dict[tuple[str, float], list[int]] = {}
    for k, key in enumerate(zip(case.matched.operation, case.matched.message_bytes.tolist(), strict=True)):
        kinds.setdefault((key[0], -1.0 if key[1] != key[1] else key[1]), []).append(k)
    each = {key: float(np.nansum(case.exposed[calls, column])) / case.steps for key, calls in kinds.items()}
    largest = sorted((key for key in each if each[key] > 0), key=lambda key: -each[key])[:_NAMED]
    yield rule.finding(
        case,
        f"Transfer of {text(part.exposed_ns, 'ns')} a step is exposed on rank {part.rank}",
        f"Of {text(part.transfer_ns, 'ns')} of transfer computation covers {percent(covered / part.transfer_ns)}. "
        f"Exposed are {listed([_called(key, each[key]) for key in largest])}. "
        f"{text(free, 'ns')} of computation is left.",
        part.exposed_ns,
        min(part.exposed_ns, free),
        ranks=[part.rank],
        count=len(case.matched) / case.steps,
    )


def _called(kind: tuple[str, float], ns: float) -> str:
    operation, size = kind
    return f"{text(ns, 'ns')} of {operation}" + (f" of {text(size, 'B')}" if size >= 0 else "")


RULES = (
    RanksRule(
        name="exposed-collective",
        summary="transfer between ranks that no computation covers",
        where=SEVERAL,
        what="While a rank sends and receives, its computation waits, though the two need different hardware.",
        recognised="A collective's own time (waiting for late ranks left out) outside the union of all computation, on "
        "the rank with the most.",
        estimate="All of it, as far as there is computation to overlap it with. Computation next to a collective is a "
        "little slower, which is not counted.",
        remedies=(
            "Start collectives as soon as their data is there: gradients in buckets during the backward pass (DDP), "
            "parameters a block ahead (FSDP2), async_op=True with a wait just before the use.",
            "Send less: bf16 instead of fp32, gradient accumulation with no_sync().",
        ),
        example="One all-reduce of all gradients after the backward pass.",
        find=_exposed,
        rank=2,
    ),
)
