"""Conditions that fail a comparison: `step>+3%`, `pass:backward>+5%`, `family:matmul>+5%`, `efficiency<-5%`.

    condition = metric sign percentage           several are separated by commas, or given one by one
    metric    = step | memory | efficiency | pass:NAME | family:NAME
    sign      = > for what costs (step, memory, pass, family); < for efficiency, where less is worse

A condition asks whether the metric got worse by more than the percentage of the first side's value. *Regressed*: all
of the 95 % interval is beyond it. *Passed*: none of it is. *Cannot tell*: it holds the limit, or is missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from perfkit.compare import metrics
from perfkit.compare.results import Condition, JudgedMetric
from perfkit.compare.sides import Side
from perfkit.errors import UsageError

REGRESSED, PASSED, UNKNOWN = "regressed", "passed", "cannot tell"
_FORM = re.compile(r"\s*(?P<metric>[^<>]+?)\s*(?P<sign>[<>])\s*(?P<by>[+-]?\d+(?:\.\d+)?)\s*%\s*")
_PLAIN = ("step", "memory", "efficiency")
_PREFIXES = ("pass:", "family:")
_EXAMPLE = "Write it as in --fail-on 'step>+3%'; docs/compare.md has the grammar."


@dataclass(frozen=True)
class Limit:
    """A condition: the metric, and the ratio to the first side from which on it is a regression."""

    text: str
    metric: str
    ratio: float
    higher_is_better: bool


def parse(texts: Sequence[str]) -> list[Limit]:
    """The conditions in `texts`. Raises `UsageError` for one that is not of the grammar."""
    return [_limit(part) for text in texts for part in text.split(",") if part.strip()]


def _limit(text: str) -> Limit:
    found = _FORM.fullmatch(text)
    if found is None:
        raise UsageError(f"--fail-on {text.strip()!r} is not METRIC>+PERCENT%.", _EXAMPLE)
    metric, sign, share = found["metric"], found["sign"], float(found["by"]) / 100
    named = next((p for p in _PREFIXES if metric.startswith(p) and len(metric) > len(p)), "")
    if metric not in _PLAIN and not named:
        known = ", ".join((*_PLAIN, *(f"{p}NAME" for p in _PREFIXES)))
        raise UsageError(f"--fail-on has no metric {metric!r}.", f"It knows {known}.")
    better = metric == "efficiency"
    if better and (sign == ">" or share > 0 or share <= -1):
        raise UsageError(f"--fail-on {text.strip()!r}: efficiency is worse when it falls.", "Write efficiency<-5%.")
    if not better and (sign == "<" or share < 0):
        raise UsageError(f"--fail-on {text.strip()!r}: {metric} is worse when it grows.", f"Write {metric}>+3%.")
    return Limit(text.strip(), metric, 1 + share, better)


def check(first: Side, second: Side, limits: Sequence[Limit], rule: metrics.VerdictRule) -> list[Condition]:
    """Return the outcome of each condition for `second` against `first`."""
    return [_condition(limit, _tested(first, second, limit, rule)) for limit in limits]


def _tested(first: Side, second: Side, limit: Limit, rule: metrics.VerdictRule) -> JudgedMetric | str:
    """Return the metric of both sides, or why it is missing."""
    kind, _, name = limit.metric.partition(":")
    if kind == "step":
        return metrics.step_test(first, second, rule)
    if kind == "memory":
        measured = first.memory is not None and second.memory is not None
        return metrics.memory(first, second, rule).tested if measured else "a side has no peak memory"
    if first.frame is None or second.frame is None:
        return "a side was not profiled"
    if first.untimed_calls or second.untimed_calls:
        return "a side's profile holds no durations"
    if kind == "efficiency":
        judged = first.backend.efficiency is not None and second.backend.efficiency is not None
        return metrics.efficiency(first, second, rule).tested if judged else "a side's ceilings are unknown"
    groups = [{g.key: g.time_ns for g in (s.backend.passes if kind == "pass" else s.backend.families)}
              for s in (first, second)]  # fmt: skip
    if not any(name in group for group in groups):
        known = ", ".join(dict.fromkeys([*groups[0], *groups[1]])) or "none"
        raise UsageError(f"--fail-on {limit.text!r}: no side has a {kind} {name!r}.", f"There are: {known}.")
    return metrics.kernel_time(first, second, kind, name, rule, (groups[0].get(name), groups[1].get(name))).tested


def _condition(limit: Limit, tested: JudgedMetric | str) -> Condition:
    if isinstance(tested, str):
        return Condition(text=limit.text, outcome=UNKNOWN, why=tested)
    j = tested.judgement
    if j.low is None or j.high is None:
        return Condition(text=limit.text, outcome=UNKNOWN, why=j.why or "there is no interval")
    least, most = (1 / j.high, 1 / j.low) if limit.higher_is_better else (j.low, j.high)
    bound = 1 / limit.ratio if limit.higher_is_better else limit.ratio
    outcome = REGRESSED if least > bound else PASSED if most <= bound else UNKNOWN
    interval = f"{j.low - 1:+.1%} to {j.high - 1:+.1%}"
    why = {
        REGRESSED: f"the whole interval, {interval}, lies beyond it",
        PASSED: f"none of the interval, {interval}, lies beyond it",
        UNKNOWN: f"the interval, {interval}, holds it",
    }[outcome]
    return Condition(text=limit.text, outcome=outcome, why=why)
