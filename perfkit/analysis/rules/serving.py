"""Faults of a serving engine's kernels: decode below its roof, copies of the cache, graphs padded to a larger batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from perfkit import units
from perfkit.analysis import tensors
from perfkit.analysis.model_bytes import product_time
from perfkit.analysis.results import Finding, Unjudged
from perfkit.analysis.roofline.roof import Booleans, Integers
from perfkit.analysis.rules.base import ON_BOTH, Case, Rule
from perfkit.analysis.step_results import ServingPhase
from perfkit.analysis.words import listed, percent
from perfkit.engines import DECODE, Iteration, iteration_of

_FAR = 0.6  # of its time in kernels is decode's roof: from here on it is near
_COPIES = ("copy", "index", "elementwise")  # families of kernels that may copy keys and values
_NAMED = 3


def iterations(case: Case) -> list[Iteration | None]:
    """Return what each step of an engine served."""
    return [iteration_of(name) for name in case.facts.get("step_names") or []]


def step_of(case: Case) -> Integers:
    """Return the step of each row, −1 for none."""
    found: Integers = case.frame["step"].fillna(-1).to_numpy(np.int64)
    return found


def _decode(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    for phase in case.report.serving:
        if phase.name != DECODE or phase.busy is None:
            continue
        if phase.roof_ns is None:
            yield rule.cannot("the bandwidth, or the shapes of all products and attention, are unknown")
            continue
        working = phase.busy * phase.time_ns / phase.iterations
        if phase.roof_ns >= _FAR * working:
            continue
        over = (working - phase.roof_ns) * phase.iterations
        yield rule.finding(
            case,
            f"Decode reaches {percent(phase.roof_ns / working)} of the roof of its bytes",
            f"An iteration works for {units.text(working, 'ns')}; reading its weights and cache "
            f"({units.text((phase.weight_bytes or 0) + (phase.cache_bytes or 0), 'B')}) once takes "
            f"{units.text(phase.roof_ns, 'ns')}.{_larger(case, phase)}",
            case.per_step(phase.busy * phase.time_ns),
            case.per_step(over),
        )


def _larger(case: Case, phase: ServingPhase) -> str:
    """A sentence on the batch from which products take longer than reading the weights; "" where that is unknown."""
    if case.ceilings is None or phase.bound != "memory" or not phase.weight_bytes:
        return ""
    rows = case.is_in("pass", [DECODE]) & case.is_in("family", ["matmul"])
    products = product_time(case.frame[rows], case.ceilings) / phase.iterations
    reading = case.ceilings.memory_time(phase.weight_bytes, 0.0, phase.weight_bytes)[0] * 1e9
    served = [one.generating for one in iterations(case) if one is not None and one.phase == DECODE]
    if not products or reading <= products:
        return ""
    batch = float(np.mean(served)) * reading / products
    return f" Products would take as long as reading the weights at a batch of about {batch:,.0f}."


def _copied(rule: Rule, case: Case) -> Iterator[Finding]:
    rows = _cache_copies(case)
    time = case.time(rows)
    if not rows.any():
        return
    names = listed(
        list(dict.fromkeys(name for name, mine in zip(case.operators(), rows, strict=True) if mine))[:_NAMED]
    )
    written = case.per_step(float(case.frame["bytes_written"].to_numpy(float, na_value=np.nan)[rows].sum()))
    yield rule.finding(
        case,
        f"Keys and values are copied before attention reads them: {case.of_whole(time)}",
        f"{names} write {units.text(written, 'B')}{case.a_step} of the same size as what attention then reads.",
        time,
        time,
        rows=rows,
    )


def _cache_copies(case: Case) -> Booleans:
    """The rows of decode that write as many bytes as the keys that an attention of their step reads."""
    rows = np.zeros(len(case.frame), bool)
    steps, families, shapes = step_of(case), case.text("family"), case.text("shapes")
    decode = case.is_in("pass", [DECODE])
    keys: dict[int, set[int]] = {}
    for at in np.flatnonzero(decode).tolist():
        sizes = tensors.sizes(shapes[at])
        if families[at] == "attention" and len(sizes) >= 3 and len(tensors.shapes(shapes[at])[1][1]) >= 3:
            keys.setdefault(int(steps[at]), set()).add(sizes[1])
    written = case.frame["bytes_written"].to_numpy(float, na_value=np.nan)
    for at in np.flatnonzero(decode & np.isfinite(written)).tolist():
        rows[at] = families[at] in _COPIES and written[at] > 0 and written[at] in keys.get(int(steps[at]), ())
    return rows


def _padded(rule: Rule, case: Case) -> Iterator[Finding]:
    served, steps, time = iterations(case), step_of(case), np.nan_to_num(case.judged.time)
    product = case.is_in("family", ["matmul"])
    pairs, saves = Counter[tuple[int, int]](), np.zeros(len(case.frame))
    for number, rows in _rows_of_products(case, steps, product).items():
        iteration = served[number] if 0 <= number < len(served) else None
        if iteration is None or iteration.prompt_tokens is None or iteration.new_tokens is None:
            continue
        tokens = iteration.prompt_tokens + iteration.new_tokens
        if 0 < tokens < rows:
            pairs[tokens, rows] += 1
            saves[(steps == number) & ~product] = 1 - tokens / rows
    saves *= time
    whole = case.per_step(float(saves.sum()))
    if not pairs:
        return
    named = listed([f"{count} × {tokens} as {rows}" for (tokens, rows), count in pairs.most_common(_NAMED)])
    yield rule.finding(
        case,
        f"{pairs.total()} of {len(served)} iterations are padded to a larger batch",
        f"Their products have more rows than the iteration has tokens: {named}. Reading the weights takes as long for "
        "fewer; the part of all other kernels that padding has is counted.",
        case.time(saves > 0),
        whole,
        rows=saves > 0,
        saves=saves,
    )


def _rows_of_products(case: Case, steps: Integers, product: Booleans) -> dict[int, int]:
    """The rows of the first matrix of most products, by step."""
    counts: dict[int, Counter[int]] = {}
    shapes = case.text("shapes")
    for at in np.flatnonzero(product).tolist():
        matrices = [shape for _, shape in tensors.shapes(shapes[at]) if len(shape) == 2]
        if len(matrices) == 2:
            counts.setdefault(int(steps[at]), Counter())[matrices[0][0]] += 1
    return {step: found.most_common(1)[0][0] for step, found in counts.items()}


RULES = (
    Rule(
        "decode-below-roof", "decode takes longer than reading its weights and cache", ON_BOTH,
        "To generate a token for each request, weights and cache have to be read once. The kernels take much longer.",
        f"The time in which an iteration of decode has kernels is more than 1/{_FAR:g} of its roof.",
        "The time of decode's kernels beyond the roof.",
        ("Fuse small kernels (CUDA graphs do not shorten them), take attention that reads the cache in place, quantise "
         "weights or cache. Larger batches share the reading of weights, until products bound.",),
        "A batch of 4 whose attention gathers the pages of the cache by single kernels.",
        _decode, rank=58, needs="serving",
    ),
    Rule(
        "cache-copies", "keys and values are copied before attention reads them", ON_BOTH,
        "Attention could read the pages of the cache where they are. They are gathered, concatenated or repeated into "
        "one tensor first, for each layer and token.",
        "Copies, gathers and concatenations in decode that write exactly as many bytes as the keys that an attention "
        "of the iteration reads.",
        "All of their time.",
        ("Use attention that reads pages (FlashAttention's and FlashInfer's paged kernels, FlexAttention with a "
         "block mask), a static cache in the place of torch.cat, and `enable_gqa` in the place of repeated heads.",),
        "`cache[pages]` before scaled_dot_product_attention.",
        _copied, rank=5, needs="serving",
    ),
    Rule(
        "graph-padding", "iterations are padded to the batch size of a CUDA graph", ON_BOTH,
        "A graph is captured for some batch sizes. An iteration between two of them computes for requests that are not "
        "there.",
        "The products of an iteration have more rows than it has tokens.",
        "The padding's part of all kernels in each padded iteration, without the products, which read their weights "
        "for any batch.",
        ("Capture graphs for the sizes that occur (`cuda_graph_sizes` of vLLM, `--cuda-graph-bs` of SGLang), and let "
         "attention skip the padding.",),
        "Nine requests in a graph for 16.",
        _padded, rank=57, needs="serving",
    ),
)  # fmt: skip
