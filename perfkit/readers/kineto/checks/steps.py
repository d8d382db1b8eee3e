"""Checks that all steps are in the trace, and that the GPU worked in the steps that launched the work."""

from __future__ import annotations

import numpy as np

from perfkit import units
from perfkit.columns import Booleans, Integers
from perfkit.numbers import numbered, unique
from perfkit.profile_names import PASS, PROFILER_STEP, STEP
from perfkit.readers.kineto.checks.evidence import CLOCKS, DOES_NOT_APPLY, ROUNDING, CheckOutcome, Evidence

_OWN_OUTSIDE = 0.01  # of it, where each step ended with a wait for the GPU
_AROUND_ALL = f"{PROFILER_STEP}1"  # in a trace that perfkit captured this mark is around all of its own
_CUT = 0.95  # of the other steps: a last step this short lacks the wait for a step after it
_MARKED = (STEP, PROFILER_STEP)
MARK_STEPS = "Capture it again, and end each step with the profiler's step()."


def in_steps(e: Evidence) -> CheckOutcome:
    """Check that the steps are there, and that kernels ran in the steps that launched them."""
    missing = _missing(e)
    if missing or not e.steps.marked:
        return missing or DOES_NOT_APPLY
    length, of = e.steps.end - e.steps.start, len(e.steps.start)
    empty = int((length <= 0).sum())
    if empty:
        return CheckOutcome(
            holds=False, figure=empty / of, events=empty, of=of, sentence=f"{empty} of {of} steps have no time"
        )
    return _outside(e) if len(e.device) else CheckOutcome(holds=True, figure=0.0, of=of)


def _missing(e: Evidence) -> CheckOutcome | None:
    """Check for missing steps, by what the capture recorded, else by other marks that show them.

    A trace that never had steps passes: all of it counts as one.
    """
    own = any(name.startswith(STEP) for name in e.host.names)
    if e.expected:
        found = len(e.steps.start) if own else 0
        return None if found == e.expected.steps else _not_as_recorded(found, e.expected.steps)
    if not own and any(name.startswith(PASS) for name in e.host.names) and set(_profiler_steps(e)) <= {_AROUND_ALL}:
        words = "its steps are missing, and the passes inside them are there"
        return CheckOutcome(holds=False, figure=1.0, events=1, of=1, sentence=words, hint=MARK_STEPS)
    if e.steps.marked:
        return None
    names = np.array(e.device.names, object)[unique(e.device.marks.name)].tolist()
    echoed = len({name for name in names if name.startswith(_MARKED)})
    if echoed:
        steps = "1 step" if echoed == 1 else f"{echoed} steps"
        words = f"the marks of {steps} are missing on the host, and those on the GPU are there"
        return CheckOutcome(holds=False, figure=1.0, events=echoed, of=echoed, sentence=words, hint=MARK_STEPS)
    return None


def _profiler_steps(e: Evidence) -> list[str]:
    return [name for name in e.host.names if name.startswith(PROFILER_STEP)]


def _not_as_recorded(found: int, recorded: int) -> CheckOutcome:
    off = abs(recorded - found)
    words = f"{off} of the {recorded} recorded steps {'is' if off == 1 else 'are'} missing"
    if found > recorded:
        words = f"it holds {found} steps, and {recorded} were recorded"
    return CheckOutcome(holds=False, figure=off / recorded, events=off, of=recorded, sentence=words)


def _two_views(e: Evidence, share: float, late: float) -> str:
    """A sentence about the steps of host and GPU where they are others, by the `share` of the GPU's time outside of the
    marks, and the share that ends after them."""
    if e.on_gpu is None or not e.on_gpu.behind:
        return ""
    steps = (e.on_gpu.steps, e.steps)
    gpu, host = (units.text(float(np.mean(one.end - one.start)), "ns") for one in steps)
    *others, last = (e.on_gpu.steps.end - e.on_gpu.steps.start).tolist()
    whole = float(np.mean(others)) if others else 0.0
    cut = f" (the last ends with its work, the others take {units.text(whole, 'ns')})" if last < _CUT * whole else ""
    why = "the host runs ahead" if 2 * late >= share else "the clocks are apart"
    return (
        f"{why}, and {share:.0%} of the GPU's time lies outside of the host's mark of the step that launched it: "
        f"a step is the GPU's, {gpu} from its first kernel to the next step's first{cut}; the host's mark takes {host}"
    )


def _outside(e: Evidence) -> CheckOutcome:
    """Return how much of the GPU's time is outside of the step that launched it."""
    device, steps, activities = e.device, e.steps, len(e.device)
    known = np.flatnonzero(e.launch >= 0)
    step = steps.at(e.host.start[e.launch[known]])
    known, step = known[step >= 0], step[step >= 0]
    of = len(known)
    inside = (steps.at(device.start) >= 0) | (steps.at(np.maximum(device.end - 1, device.start)) >= 0)
    if not inside.any() and (e.expected is not None or not of):
        words = f"none of the {activities} activities of the GPU is in a step"
        return CheckOutcome(holds=False, figure=1.0, events=activities, of=activities, sentence=words, hint=CLOCKS)
    if not of:
        return DOES_NOT_APPLY
    start, end = device.start[known], device.end[known]
    out = (start < steps.start[step] - ROUNDING) | (end > steps.end[step] + ROUNDING)
    time = (end - start).astype(float)
    share, events = float(time[out].sum() / max(time.sum(), 1.0)), int(out.sum())
    late = float(time[end > steps.end[step] + ROUNDING].sum() / max(time.sum(), 1.0))
    if e.expected is None:
        # A program that does not wait for the GPU in each step launches ahead: that does not make the trace wrong.
        return CheckOutcome(holds=True, figure=share, events=events, of=of, sentence=_two_views(e, share, late))
    without, recorded = len(steps.start) - len(unique(step)), len(steps.start)
    if without:
        words = f"{without} of the {recorded} recorded steps launched nothing on the GPU"
        return CheckOutcome(holds=False, figure=share, events=without, of=recorded, sentence=words)
    words = f"{events} of {of} activities of the GPU lie outside of the step that launched them" if events else ""
    return CheckOutcome(holds=share <= _OWN_OUTSIDE, figure=share, events=events, of=of, sentence=words, hint=CLOCKS)


_MOST_WRONG = 0.05  # of the annotations: those at the ends of a capture lack some of their activities


def agree(e: Evidence) -> CheckOutcome:
    """They begin and end with an activity of their stream."""
    marks, device, of = e.device.marks, e.device, len(e.device.marks)
    if not of or not len(device):
        return DOES_NOT_APPLY
    lanes, lane = numbered(_lane(device.device, device.stream))
    wanted, wrong = _lane(marks.device, marks.stream), np.ones(of, bool)
    for code, value in enumerate(lanes.tolist()):
        mine, own = wanted == value, lane == code
        begin = _known(marks.start[mine], np.sort(device.start[own]))
        wrong[mine] = ~(begin & _known(marks.end[mine], np.sort(device.end[own])))
    events = int(wrong.sum())
    words = f"{events} of {of} annotations of the GPU begin or end where no activity of their stream does"
    return CheckOutcome(
        holds=events <= _MOST_WRONG * of, figure=events / of, events=events, of=of, needed=False,
        sentence=words if events else "",
    )  # fmt: skip


def _lane(device: Integers, stream: Integers) -> Integers:
    """One number a stream of a device."""
    return (device.astype(np.int64) << 32) + stream


def _known(moments: Integers, sorted_: Integers) -> Booleans:
    """For each moment whether one of the `sorted_` is as good as the same."""
    found: Booleans = np.searchsorted(sorted_, moments + ROUNDING, "right") > np.searchsorted(
        sorted_, moments - ROUNDING
    )
    return found
