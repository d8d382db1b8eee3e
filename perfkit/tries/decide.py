"""Accept, reject or cannot tell: from the results, and the verdict of `perfkit.compare` on the step.

accept        the results are right, and the step is better
reject        the results are wrong, or it failed; or the step is worse, or no difference is shown
cannot tell   the results are unknown though the step is better; or the interval is too wide for a verdict
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

import perfkit
from perfkit.compare import judge
from perfkit.compare.metrics import VerdictRule
from perfkit.compare.record import MeasuredSide, Measurement
from perfkit.compare.results import Comparison, JudgedMetric
from perfkit.compare.sides import of_launches
from perfkit.compare.sources import how_of
from perfkit.compare.stopping import StoppingRule
from perfkit.hardware.cpu import read_cpu
from perfkit.hardware.gpu import gpu_names
from perfkit.hardware.identity import fingerprint, version_of
from perfkit.statistics import verdicts
from perfkit.tries.interleaved import MeasuredSides
from perfkit.tries.printed import RIGHT, WRONG
from perfkit.tries.results import ACCEPT, CANNOT_TELL, REJECT, Try
from perfkit.tries.trees import SourceChange


def made(
    command: Sequence[str],
    change: SourceChange,
    measured: MeasuredSides,
    plan: StoppingRule,
    rule: VerdictRule,
    number: str,
) -> Try:
    """The result of what was `measured`, called `number`."""
    compared = compare(command, measured, plan, rule) if measured.launches else None
    decision, reason = decide(measured, compared.pairs[0].step if compared else None)
    return Try(
        perfkit=perfkit.__version__,
        id=number,
        created=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        command=list(command),
        decision=decision,
        reason=reason,
        change=change.digest,
        files=list(change.files),
        checked=measured.checked,
        comparison=compared,
        stopped=measured.stopped,
        steps_are=measured.steps_are,
        machine=fingerprint(read_cpu().usable),
        machine_is=", ".join([read_cpu().model or "unknown processor", *gpu_names()]),
        torch=version_of("torch") or "",
    )


def compare(command: Sequence[str], measured: MeasuredSides, plan: StoppingRule, rule: VerdictRule) -> Comparison:
    """The launches as a comparison of two sides, `before` and `after`."""
    labels = ("before", "after")
    record = Measurement(
        perfkit=perfkit.__version__, created="", command=list(command),
        sides=[MeasuredSide(label=label, run="", backend=label) for label in labels],
        launches=measured.launches, stopped=measured.stopped, share=plan.share(len(measured.launches)),
    )  # fmt: skip
    sides = [of_launches(record, place, None, [], "try") for place in range(2)]
    found = judge.compare(sides, rule, measured.how or how_of(sides, rule), title="after against before")
    right = measured.checked.status == RIGHT
    found.sides = [msgspec.structs.replace(side, source="", checked=right) for side in found.sides]
    return found


def decide(measured: MeasuredSides, step: JudgedMetric | None) -> tuple[str, str]:
    """The decision, and the reason as a sentence."""
    checked = measured.checked
    if measured.elsewhere:
        return CANNOT_TELL, f"The program did not run the change: it took {measured.elsewhere[0]} from your folder."
    if measured.failed:
        return REJECT, f"It fails after the change: {measured.failed}."
    if checked.status == WRONG:
        return REJECT, f"The results are wrong after the change: {checked.why.rstrip('.')}."
    if step is None:
        return CANNOT_TELL, "Nothing was measured."
    verdict, interval = step.judgement.verdict, said(step)
    if verdict == verdicts.WORSE:
        return REJECT, f"The step is slower: it takes {interval}."
    if verdict == verdicts.SAME:
        return REJECT, f"No difference is shown: the step takes {interval}."
    if verdict == verdicts.UNKNOWN:
        why = step.judgement.why or "the interval holds 1"
        return CANNOT_TELL, f"The step takes {interval}: {why}."
    if checked.status != RIGHT:
        return CANNOT_TELL, f"The step takes {interval}, but its results are unknown: {checked.why.rstrip('.')}."
    return ACCEPT, f"The results are right, and the step takes {interval}."


def said(step: JudgedMetric) -> str:
    """The ratio of the steps with its interval, in words."""
    found = step.judgement
    if found.ratio is None:
        return "an unknown time"
    if found.low is None or found.high is None:
        return f"{found.ratio:.3f} of its time before (no interval)"
    return f"{found.ratio:.3f} of its time before (95 % interval {found.low:.3f} to {found.high:.3f})"
