"""The rule about waiting for a batch: what the workers of the loader do, and how many of them would do."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from perfkit.analysis import loading
from perfkit.analysis.loading_results import COMPUTING, CORES, DISK, WAITING, Loading
from perfkit.analysis.results import Finding
from perfkit.analysis.rules.base import ON_BOTH, Case, Rule
from perfkit.analysis.rules.idle import waiting

_LINES = 3  # of a finding
_CHEAPER = "cheaper samples (decoded and resized once, transforms on the GPU or by batch)"
_LOADED = (
    "The loader has workers already, and they prepare less than the steps take: more of them where cores are free, "
    f"{_CHEAPER}, persistent_workers=True where every epoch starts them again."
)
_BY_LIMIT = {
    CORES: f"No core is free for more workers: {_CHEAPER}, fewer threads elsewhere, or more cores.",
    DISK: "Read less: samples packed into few large files, compressed or kept in memory; else faster storage.",
    WAITING: "Ask for what a batch waits for all at once, or keep it near: few large files, a cache.",
    COMPUTING: f"Or {_CHEAPER}.",
}


def _data(rule: Rule, case: Case) -> Iterator[Finding]:
    said, remedy = ("Waiting for the loader's workers", _LOADED) if case.loader_workers else ("Loading the batch", "")
    known = next(iter(case.report.loading), None)
    for found in waiting(rule, case, "data", said, remedy):
        if known is None or not known.batch:
            yield found
            continue
        yield replace(
            found,
            evidence=" ".join([found.evidence, *loading.sentences(known)]),
            remedy=_remedy(known) or found.remedy,
            lines=known.lines[:_LINES] or found.lines,
        )


def _remedy(known: Loading) -> str:
    """The remedy for what limits; "" where it is not known well enough for more than the rule's."""
    more, rest = loading.helps(known), _BY_LIMIT.get(known.limit, "")
    workers = f"num_workers={more.workers}." if more else ""
    return f"{workers} {rest}".strip() if workers or known.limit != COMPUTING else ""


_DATA = Rule(
    name="data",
    summary="the step waits for its batch",
    where=ON_BOTH,
    what="The data loader runs inside the step, or has nothing ready when the step begins.",
    recognised="Time of the step in which no kernel runs and `enumerate(DataLoader)` is open.",
    estimate="All of it, scaled to the step without the profiler where that was timed.",
    remedies=(
        "Load ahead: DataLoader workers, pin_memory=True, prefetch_factor; or prepare the data once.",
    ),
    example="JPEG decoding in the training process → `DataLoader(..., num_workers=4)`.",
    find=_data,
    rank=3,
)  # fmt: skip
RULES = (_DATA,)
