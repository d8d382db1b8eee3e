"""The difference between the clocks of host and GPU, as far as a trace shows it.

Three things cannot be where they agree: a kernel starts before the call that launched it; all kernels start long after
their launch, those too that the idle GPU had only to begin (pauses of a GPU that works off a queue do not count); a
kernel ends after the host's wait for it did.

An excerpt may lack what the GPU did before its first kernel. So a late first kernel alone proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit import units
from perfkit.columns import Integers
from perfkit.numbers import median
from perfkit.profile_names import waits_for_device
from perfkit.readers.kineto.checks.evidence import CLOCKS, DOES_NOT_APPLY, NS, CheckOutcome, Evidence
from perfkit.readers.kineto.decode.events import RUNTIME, DeviceEvents, HostEvents
from perfkit.readers.kineto.measure.gpu import LATE

_EARLY = 20_000  # ns before the launch that count as early: whole µs, and how well clocks are matched
_FEW = 0.01  # of the activities may be early: ids that collide pair kernels with the launches of others
_PAUSE = 20_000  # ns: longer than what a GPU takes from one piece of queued work to the next
_ALIKE = 200_000  # ns: so far apart may be waits that are the difference of two clocks
_AFTER_WAIT = 100_000  # ns
_WITNESSES = 3  # as many activities must end after the wait, or all where they are fewer
_FAR, _FAR_IN_STEP = 10_000_000, 0.1  # ns; and share of a step from which `LATE` is too far already


@dataclass(frozen=True)
class Skew:
    """`ns` is how far the GPU's clock is ahead of the host's at least, negative where it is behind; `events` of `of`
    activities show it, in the way that `how` says."""

    ns: float
    events: int
    of: int
    holds: bool
    how: str = ""


def clocks(e: Evidence) -> CheckOutcome:
    """No kernel starts before its launch, nor long after it on an idle GPU, nor ends after a wait for it."""
    found = skew(e.host, e.device, e.launch)
    if found is None:
        return DOES_NOT_APPLY
    step = median(e.steps.end - e.steps.start) if len(e.steps.start) else 0.0
    words = found.how if found.holds else ""
    if not found.holds:
        apart, way = units.text(abs(found.ns), "ns"), "behind" if found.ns < 0 else "ahead of"
        words = f"the GPU's clock is {apart} {way} the host's: {found.events} of {found.of} activities {found.how}"
    return CheckOutcome(
        holds=found.holds, figure=found.ns, unit=NS, events=found.events, of=found.of,
        needed=found.holds or _far(found, step), sentence=words, hint=CLOCKS,
    )  # fmt: skip


def skew(host: HostEvents, device: DeviceEvents, launch: Integers) -> Skew | None:
    """Return what the trace shows; None without a launch and its activity."""
    known = np.flatnonzero(launch >= 0)
    if not len(known):
        return None
    call, start, of = launch[known], device.start[known], len(known)
    delay = start - host.start[call]
    early = delay < -_EARLY
    if early.mean() > _FEW:
        ns = float(np.percentile(delay, 1, method="lower"))
        return Skew(ns, int(early.sum()), of, False, "start before their launch")
    after = _after_waits(host, device, known, call)
    if len(after) and after[min(_WITNESSES, len(after)) - 1] > _AFTER_WAIT:
        count = int((after > _AFTER_WAIT).sum())
        return Skew(float(after[0]), count, of, False, "end after the host's wait for them")
    waited = np.maximum(start - host.end[call], 0)
    ns, first = int(waited.min()), int(waited[0])
    agree = len(after) and after[0] > -_AFTER_WAIT  # the host waited until the last of them had ended
    if ns > LATE and not agree and _on_idle_gpu(device, known, waited):
        return Skew(float(ns), of, of, False, "start at least that long after their launch on an idle GPU")
    how = ""
    if known[0] == 0 and first > LATE:
        apart = units.text(float(first), "ns")
        how = f"the first activity starts {apart} after its launch: the GPU's work before it is not in the trace"
    return Skew(float(min(0, delay.min())), int(early.sum()), of, True, how)


def _on_idle_gpu(device: DeviceEvents, known: Integers, waited: Integers) -> bool:
    """Return whether some of the `known` activities `waited` although the GPU had nothing else to do.

    Some were launched when all before them had ended; or those that end a pause of the GPU all waited for as long.
    """
    later = known > 0  # before the first activity the GPU may have worked
    ended = np.maximum.accumulate(device.end)[known[later] - 1]
    pause, waited = device.start[known[later]] - ended, waited[later]
    if (pause >= waited).any():
        return True
    alike = waited[pause > _PAUSE]
    return len(alike) >= _WITNESSES and bool(np.ptp(np.percentile(alike, [10, 90])) <= _ALIKE)


def _far(found: Skew, step_ns: float) -> bool:
    """Return whether that is too far for numbers about steps of `step_ns`."""
    apart = abs(found.ns)
    return apart > _FAR or (apart > LATE and apart > _FAR_IN_STEP * step_ns)


def _after_waits(host: HostEvents, device: DeviceEvents, known: Integers, call: Integers) -> Integers:
    """Return by how much activities end after the next wait for the whole device does, the latest first; none with
    several devices, for a wait is for one of them."""
    waits = np.flatnonzero((host.category == RUNTIME) & host.named([waits_for_device(n) for n in host.names]))
    if not len(waits) or device.device.min() != device.device.max():
        return np.empty(0, np.int64)
    waits = waits[np.argsort(host.start[waits], kind="stable")]
    following = np.searchsorted(host.start[waits], host.end[call])
    waited = following < len(waits)
    over = device.end[known[waited]] - host.end[waits[following[waited]]]
    return -np.sort(-over)
