"""Gradients that travel in fp32 while the model computes in 16 bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfkit.ranks.rank_table import RankTable
from perfkit.ranks.results import RanksFinding
from perfkit.ranks.rules.base import SEVERAL, RanksCase, RanksRule
from perfkit.units import text

_LEAST = 256 * 2.0**10  # bytes: losses and norms are smaller
_HALF = ("bf16[", "fp16[")


def _wide(rule: RanksRule, case: RanksCase) -> Iterator[RanksFinding]:
    if not all(_in_half(member) for member in case.members):
        return
    calls = [k for k in range(len(case.matched)) if _of_gradients(case, k)]
    if not calls:
        return
    shorter = np.array([_shorter(case, k) for k in calls])
    saved, column = case.most(np.minimum(case.exposed[calls], (shorter * case.waiting.own[calls])[:, None]))
    own = float(case.waiting.own[calls].sum()) / case.steps
    size = float(case.matched.message_bytes[calls].sum()) / case.steps
    yield rule.finding(
        case,
        f"Gradients travel in fp32: {text(size, 'B')} a step",
        f"The products are in 16 bits, and {len(calls) / case.steps:.0f} collectives a step reduce fp32; their own "
        f"time is {text(own, 'ns')}. Half of the bytes would do.",
        own,
        saved,
        ranks=[case.members[column].rank],
        count=len(calls) / case.steps,
    )


def _of_gradients(case: RanksCase, k: int) -> bool:
    """Return whether a collective sums fp32 in the backward pass, or where no pass is known."""
    operation, size = case.matched.operation[k], case.matched.message_bytes[k]
    if case.dtypes[k] != "fp32" or not size >= _LEAST:
        return False
    return operation in ("reduce_scatter", "all_reduce") and case.column("pass", k) in ("", "backward")


def _in_half(member: RankTable) -> bool:
    """Return whether most of the time in matrix products is in bf16 or fp16."""
    rows = member.frame["family"].isin(("matmul", "attention")).to_numpy(bool, na_value=False)
    time = np.nan_to_num(member.frame["duration_ns"].to_numpy(float)[rows])
    half = np.array([str(s).startswith(_HALF) for s in member.frame["shapes"][rows]], bool)
    return bool(time.sum() > 0 and time[half].sum() > 0.5 * time.sum())


def _shorter(case: RanksCase, k: int) -> float:
    """The share of its own time that a collective would not take with half of its bytes."""
    sweep, size = case.sweep(k), float(case.matched.message_bytes[k])
    return 0.5 if sweep is None else max(1 - sweep.seconds(size / 2) / sweep.seconds(size), 0.0)


RULES = (
    RanksRule(
        name="fp32-gradients",
        summary="gradients are reduced in fp32 while the model computes in 16 bits",
        where=SEVERAL,
        what="fp32 gradients are twice the bytes of bf16 ones. Sums over many ranks are more exact in fp32: "
        "FSDP2 is often set to reduce in it.",
        recognised="reduce_scatter and all_reduce of the backward pass, of fp32 messages of 256 KiB or more, where "
        "most of the time in matrix products is in bf16 or fp16.",
        estimate="What half of the bytes takes less, as `perfkit ceilings --ranks N` measured; without that half of "
        "the own time. No more than what of them is exposed.",
        remedies=(
            "FSDP2: MixedPrecisionPolicy(reduce_dtype=torch.bfloat16). DDP: register_comm_hook with "
            "default_hooks.bf16_compress_hook. Compare the losses: sums of many ranks lose digits.",
        ),
        example="`MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)`.",
        find=_wide,
        rank=4,
    ),
)
