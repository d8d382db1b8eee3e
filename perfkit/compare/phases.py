"""Two serving engines by phase: time and kernel time per token, and kernels of an iteration, each judged.

The unit is an iteration. Those of one capture share its process and its moment, so that the allowance for runs at
different times widens each interval of times; kernels are counted, and need none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from perfkit.compare.iterations import ITERATION, iterations
from perfkit.compare.metrics import VerdictRule, Weighed, untested, weigh
from perfkit.compare.results import PhasePair
from perfkit.compare.sides import Side, Values
from perfkit.engines import PHASES, Iteration
from perfkit.statistics import verdicts

ALIKE = 0.05  # what batches and contexts may differ by and still be called the same
_Amount = Callable[[int], float]  # of a step


def phases(first: Side, second: Side, rule: VerdictRule) -> list[PhasePair]:
    """Return the phases that either side has; none unless both serve."""
    served = iterations(first), iterations(second)
    if not all(served) or not (first.has_times and second.has_times):
        return []
    both = first, second
    found = [_phase(phase, both, served, rule) for phase in PHASES if any(_of(one, phase) for one in served)]
    tested = [w.tested.judgement for _, lines in found for w in lines]
    judged = iter(verdicts.correct(tested, rule.resolution))
    return [
        msgspec.structs.replace(pair, tested=[msgspec.structs.replace(w.tested, judgement=next(judged)) for w in lines])
        for pair, lines in found
    ]


def _of(served: Mapping[int, Iteration], phase: str) -> dict[int, Iteration]:
    return {step: one for step, one in served.items() if one.phase == phase}


def _phase(
    phase: str, sides: Sequence[Side], served: Sequence[Mapping[int, Iteration]], rule: VerdictRule
) -> tuple[PhasePair, list[Weighed]]:
    """One phase, and its metrics, each judged by itself."""
    mine = [_of(one, phase) for one in served]
    tokens = [_mean(_tokens(step) for step in steps.values()) for steps in mine]
    context = [_mean(step.context for step in steps.values()) for steps in mine]
    requests = [_mean(step.requests for step in steps.values()) for steps in mine]
    pair = PhasePair(
        phase=phase, iterations=[len(steps) for steps in mine], requests=requests, tokens=tokens, context=context,
        tested=[], unlike=_unlike(phase, requests, tokens, context),
    )  # fmt: skip
    return pair, list(_metrics(sides, mine, None not in tokens or not all(mine), rule))


def _metrics(
    sides: Sequence[Side], mine: Sequence[Mapping[int, Iteration]], per_token: bool, rule: VerdictRule
) -> Iterator[Weighed]:
    """Time and kernel time, of a token where tokens are known, else of an iteration; and kernels of an iteration."""
    of = "per token" if per_token else "an iteration"
    steps, kernels, counts = ([amount(side) for side in sides] for amount in (_step_time, _kernel_time, _kernels))
    for metric, unit, amounts, divided in (
        (f"time {of}", "ns", steps, per_token),
        (f"kernel time {of}", "ns", kernels, per_token),
        ("kernels an iteration", "count", counts, False),
    ):
        values = [_values(one, amount, divided) for one, amount in zip(mine, amounts, strict=True)]
        shown = tuple(float(np.median(one)) if one else None for one in values)
        if not all(mine):
            yield untested(metric, unit, (shown[0], shown[1]), "only one side has it", ITERATION)
            continue
        own = dataclasses.replace(rule, allowance=0.0) if unit == "count" else rule
        one, other = (Values(found, ITERATION, False, side.source) for found, side in zip(values, sides, strict=True))
        yield weigh(metric, unit, one, other, own, (shown[0], shown[1]))


def _values(mine: Mapping[int, Iteration], amount: _Amount, per_token: bool) -> list[float]:
    return [amount(step) / ((_tokens(one) or 1) if per_token else 1) for step, one in mine.items()]


def _step_time(side: Side) -> _Amount:
    """The time of a step, from its first kernel to the first one of the next."""
    assert side.table is not None
    times = side.table.facts["step_ns"]
    return lambda step: float(times[step])


def _kernel_time(side: Side) -> _Amount:
    return _summed(side, side.frame["duration_ns"].to_numpy(float) if side.frame is not None else np.zeros(0))


def _kernels(side: Side) -> _Amount:
    return _summed(side, np.ones(len(side.frame) if side.frame is not None else 0))


def _summed(side: Side, amounts: np.ndarray) -> _Amount:
    """Amounts of the rows, by step."""
    assert side.frame is not None
    known = side.frame["step"].notna().to_numpy(bool)
    sums = np.bincount(side.frame["step"][known].to_numpy(np.int64), weights=amounts[known])
    return lambda step: float(sums[step]) if step < len(sums) else 0.0


def _tokens(one: Iteration) -> int | None:
    """The tokens of an iteration that are read or fed in."""
    return None if one.prompt_tokens is None or one.new_tokens is None else one.prompt_tokens + one.new_tokens


def _mean(values: Iterator[int | None]) -> float | None:
    found = list(values)
    return float(np.mean([v for v in found if v is not None])) if found and None not in found else None


def _unlike(phase: str, requests: Sequence[float | None], tokens: Sequence[float | None],
            context: Sequence[float | None]) -> str:  # fmt: skip
    """Return how the work that two sides served differs, as a sentence; "" where they served alike."""
    named = (("requests", requests), ("tokens", tokens), ("tokens of context", context))
    found = [
        f"{one:,.4g} and {other:,.4g} {name}"
        for name, (one, other) in named
        if one is not None and other is not None and abs(one - other) > ALIKE * max(one, other)
    ]
    return f"An iteration of {phase} has {', '.join(found)}: the engines did not do the same work." if found else ""
