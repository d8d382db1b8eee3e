"""Which rows are judged by their roof, and which cannot be.

Five kinds of row have a roof by the formula that says nothing about them, the last four on a GPU alone:

    exchanged   a collective: its roof is the link between the ranks, and its time holds waiting for the others. Reports
                of ranks judge it (`perfkit.ranks`)
    over link   a copy between the host and a GPU: its roof is the link between them, which the ceilings do not have
    too small   under 5 µs, or less than one wave of blocks: launch, ramp and tail are most of its time. Blocks for most
                of the multiprocessors are a wave: that many a persistent kernel launches, a library's product for one
    helper      another kernel of its operation carries the work, so that it has none (split-K's reduction; what
                prepares attention's backward pass)
    uncounted   its bytes are known, and nobody counted its arithmetic: it may well be computing, unless counters that
                saw its traffic show that memory is what bounds it; or no work of it is known

They keep their time and their work; they have no roof, no efficiency and no headroom, and count in no sum of these.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from perfkit.analysis.roofline.roof import Booleans, Integers, Judged, Reals, StoredCeilings, judge
from perfkit.columns import matching
from perfkit.table import FLOP_COLUMNS

if TYPE_CHECKING:
    import pandas as pd

    from perfkit.hardware.ceilings import Ceilings

ON_GPU = ("gpu_kernel", "memcpy", "memset", "graph")  # kinds of rows
TOO_SHORT_NS = 5000.0
FULL = 0.75  # of the multiprocessors: blocks for this part occupy the GPU, however many would fit
BUSY = 0.6  # of its peak: a level that is this busy is what a kernel uses, not what it waits for (NVIDIA's own line)
PRODUCTS = 0.05  # of the cycles: matrix units active for longer did products (vector arithmetic reads up to 3 %)
BY_MEMORY = 0.5  # of the DRAM roof: from here on memory explains the time even where nothing else is known
TOO_SMALL, UNCOUNTED, EXCHANGED, HELPER = "too small", "work not counted", "between ranks", "helper"
OVER_LINK = "over the link"
EXCLUDED = (TOO_SMALL, UNCOUNTED, EXCHANGED, HELPER, OVER_LINK)
_LINK = re.compile(r"HtoD|DtoH|HtoH")  # in the names of copies, as profilers have them


def judge_rows(
    frame: pd.DataFrame, ceilings: Ceilings | None, facts: Mapping[str, Any]
) -> tuple[Judged, dict[str, Booleans]]:
    """The rows judged by the ceilings that the profile holds, else by `ceilings`; and by why, which are withheld."""
    judged = judge(frame, StoredCeilings.of(facts, frame) or ceilings)
    exchanged = (frame["family"] == "collective").to_numpy(bool, na_value=False)
    small = ~exchanged & too_small(frame, multiprocessors(facts))
    nothing = _on_gpu(frame) & (judged.roof == 0)
    linked = ~exchanged & ~small & nothing & _over_link(frame)
    helper = ~exchanged & ~small & ~linked & nothing & _derived(frame)
    uncounted = ~exchanged & ~small & ~linked & ~helper & (_uncounted(frame, judged, facts) | nothing)
    withheld = exchanged | small | linked | helper | uncounted
    if withheld.any():
        judged = dataclasses.replace(
            judged,
            roof=np.where(withheld, np.nan, judged.roof),
            bound=np.where(withheld, -1, judged.bound),
            ceiling=np.where(withheld, -1, judged.ceiling),
            above=judged.above & ~withheld,
            helped=judged.helped & ~withheld,
        )
    why = {TOO_SMALL: small, UNCOUNTED: uncounted, EXCHANGED: exchanged, HELPER: helper, OVER_LINK: linked}
    return judged, why


def _over_link(frame: pd.DataFrame) -> Booleans:
    """Copies between the host and a GPU."""
    copies: Booleans = (frame["kind"] == "memcpy").to_numpy(bool, copy=True)
    return copies & matching(frame["name"], lambda name: bool(_LINK.search(name))) if copies.any() else copies


def too_small(frame: pd.DataFrame, multiprocessors: int | None = None) -> Booleans:
    """Launches on a GPU under 5 µs, or under one wave and on few of the multiprocessors, where their number is known.

    What ran on a CPU has neither launch nor waves.
    """
    blocks = np.prod([frame[f"grid_{axis}"].to_numpy(float, na_value=np.nan) for axis in "xyz"], axis=0)
    with np.errstate(invalid="ignore"):
        few = ~(blocks >= FULL * (multiprocessors or np.inf))
        part = (frame["waves"].to_numpy(float) < 1) & few
        small = (frame["duration_ns"].to_numpy(float) < TOO_SHORT_NS) | part
    return _on_gpu(frame) & small


def multiprocessors(facts: Mapping[str, Any]) -> int | None:
    """Return those of the GPU that was counted; a trace that counters were joined onto keeps its facts apart."""
    for gpus in (facts.get("counters_gpus"), facts.get("gpus")):
        for gpu in gpus or []:
            count = gpu.get("multiprocessors") or gpu.get("smCount") or gpu.get("numSms")
            if count:
                return int(count)
    return None


def _on_gpu(frame: pd.DataFrame) -> Booleans:
    on_gpu: Booleans = frame["kind"].isin(ON_GPU).to_numpy(bool)
    return on_gpu


def details(frame: pd.DataFrame, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the facts of a report of Nsight Compute for each row of `frame`, found by launch order; else empty."""
    if not (kernels := facts.get("kernels") or []):
        return []
    orders = frame["order"].tolist()
    return [kernels[order] for order in orders] if max(orders, default=0) < len(kernels) else []


def _derived(frame: pd.DataFrame) -> Booleans:
    """Rows that have no work of their own by the rule that one kernel of an operation carries it."""
    both: Booleans = ((frame["flop_origin"] == "derived") & (frame["bytes_origin"] == "derived")).to_numpy(bool)
    return both


def _uncounted(frame: pd.DataFrame, judged: Judged, facts: Mapping[str, Any]) -> Booleans:
    """Rows judged by memory alone, without knowing their arithmetic, that memory does not explain."""
    without = ~np.isfinite(frame[list(FLOP_COLUMNS)].to_numpy(float)).any(axis=1)
    by_model = without & judged.judged & ~judged.counters & np.isfinite(judged.bytes)
    doubtful: Booleans = without & judged.judged & judged.counters
    if not doubtful.any():
        return by_model
    computing = _busy_multiprocessors(frame, facts)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = judged.roof / judged.time
    waiting = (computing < BUSY) | (computing < share)
    active = frame["tensor_active"].to_numpy(float, na_value=np.nan)
    products = (active > PRODUCTS) | (np.isnan(active) & _products(frame))
    explained = np.where(np.isfinite(computing) & ~products, waiting, share >= BY_MEMORY)
    return by_model | (doubtful & ~explained)


def _products(frame: pd.DataFrame) -> Booleans:
    """Rows of families whose work matrix units do."""
    named: Booleans = frame["family"].isin(("matmul", "attention", "convolution")).to_numpy(bool)
    return named


def _busy_multiprocessors(frame: pd.DataFrame, facts: Mapping[str, Any]) -> Reals:
    found = [one.get("busy", {}).get("sm") for one in details(frame, facts)]
    return np.array(found, dtype=float) if found else np.full(len(frame), np.nan)


def codes(withheld: Mapping[str, Booleans], rows: int) -> Integers:
    """For each row the place of its reason in `EXCLUDED`, −1 for a row that is judged or has no roof anyway."""
    code = np.full(rows, -1, np.int64)
    for place, why in enumerate(EXCLUDED):
        code[withheld[why]] = place
    return code
