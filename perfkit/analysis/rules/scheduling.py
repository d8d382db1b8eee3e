"""Faults of a serving engine's schedule: gaps between iterations, sampling on the host, prompts that hold others up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from perfkit import units
from perfkit.analysis.results import Finding, Unjudged
from perfkit.analysis.rules.base import ON_A_GPU, ON_BOTH, Case, Rule
from perfkit.analysis.rules.serving import iterations, step_of
from perfkit.analysis.words import percent
from perfkit.engines import DECODE, MIXED, PREFILL, Iteration
from perfkit.intervals import Union

_MODEL = ("matmul", "attention")  # families of kernels that only the model has
_LONG = 2  # iterations of decode: a longer wait is felt
_LOGITS = 4096  # bytes from the GPU for a token: its number and probabilities take less, its logits more
_TO_HOST = "Memcpy DtoH"
_HURTS = 1.1  # times what prompts and decode take by themselves


@dataclass(frozen=True)
class IterationGap:
    """Time between the model's last kernel in an iteration and its first in the next one in which the GPU is idle, and
    in which it copies to the host, ns."""

    idle: float
    to_host: float


def _gaps(case: Case) -> list[IterationGap]:
    """The gaps between iterations, but for those in which an engine waits for requests: longer than an iteration."""
    served, steps = iterations(case), step_of(case)
    start, length = (case.frame[name].to_numpy(float, na_value=np.nan) for name in ("start_ns", "duration_ns"))
    if case.on_cpu or case.frame["device"].nunique() != 1 or not np.isfinite(start).all():
        return []
    end, model = start + length, case.is_in("family", _MODEL)
    copies = case.named(lambda name: name.startswith(_TO_HOST))
    usual, found = float(np.median(case.facts["step_ns"])), []
    for number in range(len(served) - 1):
        last, first = end[model & (steps == number)], start[model & (steps == number + 1)]
        if not len(last) or not len(first) or not 0 < first.min() - last.max() <= usual:
            continue
        begin, until = last.max(), first.min()
        inside = (end > begin) & (start < until)
        busy = Union(np.maximum(start[inside], begin), np.minimum(end[inside], until)).length
        found.append(IterationGap(until - begin - busy, float(length[inside & copies].sum())))
    return found


def _logits_copied(case: Case) -> float:
    """Bytes that go to the host for each token that is made, 0 where they are not logits."""
    made = sum(one.requests for one in iterations(case) if one is not None)
    moved = sum(transfer.bytes or 0.0 for transfer in case.report.transfers if transfer.name.startswith(_TO_HOST))
    return moved / made if made and moved / made >= _LOGITS else 0.0


def _scheduler(rule: Rule, case: Case) -> Iterator[Finding]:
    gaps = _gaps(case)
    idle = case.per_step(sum(gap.idle for gap in gaps))
    if not gaps or _logits_copied(case):
        return
    yield rule.finding(
        case,
        f"The GPU is idle between iterations: {case.of_whole(idle)}",
        f"From the last product or attention of an iteration to the first of the next, {len(gaps)} times, it has "
        f"nothing to do for {units.text(idle * case.steps / len(gaps), 'ns')} in the mean: the host samples, "
        "schedules, and makes the next inputs.",
        idle,
        idle,
    )


def _sampling(rule: Rule, case: Case) -> Iterator[Finding]:
    gaps, moved = _gaps(case), _logits_copied(case)
    if not moved:
        return
    time = case.per_step(sum(gap.idle + gap.to_host for gap in gaps))
    yield rule.finding(
        case,
        f"Logits go to the host, which samples: {case.of_whole(time)}",
        f"{units.text(moved, 'B')} are copied to the host for each token that is made; a token's number takes 8. "
        f"Copies and idle time between iterations take {units.text(time, 'ns')}{case.a_step}.",
        time,
        time,
    )


def _by_phase(case: Case, phase: str) -> list[tuple[int, Iteration, float]]:
    """The iterations of a phase: number, what it served, and time in ns."""
    pairs = zip(iterations(case), case.facts.get("step_ns") or (), strict=False)
    return [(at, one, float(ns)) for at, (one, ns) in enumerate(pairs) if one is not None and one.phase == phase]


def _stalls(rule: Rule, case: Case) -> Iterator[Finding]:
    served, decode = iterations(case), _by_phase(case, DECODE)
    if not decode:
        return
    usual = float(np.median([ns for *_, ns in decode]))
    waits, runs = [], 0
    for at, one, ns in _by_phase(case, PREFILL):
        before, after = (served[i] if 0 <= i < len(served) else None for i in (at - 1, at + 1))
        running = before.requests if before is not None else 0
        if running and after is not None and after.phase != PREFILL and after.generating > one.prompts:
            waits.append(ns)
            runs += min(running, after.generating - one.prompts)
    waiting = case.per_step(sum(waits))
    if not waits or np.median(waits) < _LONG * usual:
        return
    yield rule.finding(
        case,
        f"Prompts hold up requests that generate: {case.of_whole(waiting)}",
        f"{len(waits)} prefill iterations lie between iterations of decode, "
        f"{units.text(float(np.median(waits)), 'ns')} each at the median where a token "
        f"takes {units.text(usual, 'ns')}; {runs / len(waits):,.0f} requests wait.",
        waiting,
        waiting,
    )


def _mixed(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    mixed, decode, prefill = (_by_phase(case, phase) for phase in (MIXED, DECODE, PREFILL))
    if not mixed or not decode:
        return
    read = sum(one.prompt_tokens or 0 for _, one, _ in prefill)
    if any(one.prompt_tokens is None for _, one, _ in [*mixed, *prefill]):
        yield rule.cannot("the names of iterations do not give the tokens of their prompts")
        return
    if not read:
        yield rule.cannot("no iteration shows what prompts take by themselves")
        return
    a_token = sum(ns for *_, ns in prefill) / read
    usual = float(np.median([ns for *_, ns in decode]))
    over = [ns - (usual + a_token * (one.prompt_tokens or 0)) for _, one, ns in mixed]
    time, apart = sum(ns for *_, ns in mixed), sum(ns for *_, ns in mixed) - sum(over)
    if time <= _HURTS * apart:
        return
    yield rule.finding(
        case,
        f"Mixed iterations take {percent(time / apart - 1)} longer than prompts and decode by themselves",
        f"{len(mixed)} of them take {units.text(time / len(mixed), 'ns')} in the mean; an iteration of decode takes "
        f"{units.text(usual, 'ns')}, and a prompt's token by itself {units.text(a_token, 'ns')}.",
        case.per_step(time),
        case.per_step(sum(over)),
    )


RULES = (
    Rule(
        "host-sampling", "logits are copied to the host, which chooses the tokens", ON_A_GPU,
        "The logits of each token, as many numbers as the vocabulary has, go to the host, and the GPU waits until the "
        "host has chosen.",
        f"At least {_LOGITS:,} bytes are copied to the host for each token that is made.",
        "These copies, and the idle time from the model's last kernel in an iteration to its first in the next.",
        ("Sample on the GPU, and copy the chosen numbers alone.",),
        "`logits.cpu()` before softmax and multinomial.",
        _sampling, rank=2, needs="serving",
    ),
    Rule(
        "scheduler-gaps", "the GPU is idle between the iterations of a serving engine", ON_A_GPU,
        "Between two iterations the host samples, detokenises, schedules and makes the next inputs, and the GPU waits.",
        "Time without work on the GPU from the last product or attention of an iteration to the first of the next; a "
        "gap longer than an iteration counts as waiting for requests.",
        "All of that time.",
        ("Prepare the next iteration while this one runs (asynchronous scheduling, `--async-scheduling` of vLLM, the "
         "overlap scheduler of SGLang), detokenise in another process, take more requests an iteration.",),
        "2 ms of Python between iterations of 8 ms.",
        _scheduler, rank=3, needs="serving",
    ),
    Rule(
        "prefill-stalls", "prompts hold up requests that generate", ON_BOTH,
        "An iteration that only reads prompts lies between two of decode: all requests that generate wait for it.",
        f"Prefill between iterations of decode, at the median at least {_LONG} times as long as one of these, while "
        "requests generate before and after it.",
        "The time of these iterations, in which the others wait. The prompts' own work remains, and so the throughput.",
        ("Read prompts in chunks next to decode (chunked prefill, a smaller `max_num_batched_tokens`), or in another "
         "process (disaggregated prefill).",),
        "A prompt of 8,000 tokens while 30 users read their answers.",
        _stalls, rank=55, needs="serving",
    ),
    Rule(
        "mixed-batches", "mixed iterations take longer than their parts by themselves", ON_BOTH,
        "Prompts and decode in one iteration should take no longer than one after the other: weights are read once "
        "for both. These take longer, for attention or graphs that serve neither well.",
        f"Mixed iterations take more than {_HURTS:g} times the median iteration of decode and, for each of their "
        "prompts' tokens, the time that it takes in iterations of prefill alone.",
        "What they take longer.",
        ("Keep prompts and decode apart (prefill first, or disaggregated), or take attention kernels that serve both "
         "in one launch; check that mixed iterations replay graphs as decode does.",),
        "Decode replays a graph, and mixed iterations launch kernel by kernel.",
        _mixed, rank=55, needs="serving",
    ),
)  # fmt: skip
