"""Which launches have no kernel in the trace, and which kernels no launch."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from perfkit import units
from perfkit.columns import Booleans, Integers
from perfkit.intervals import Steps
from perfkit.numbers import among
from perfkit.readers.kineto.checks.evidence import DOES_NOT_APPLY, LESS_AT_ONCE, CheckOutcome, Evidence
from perfkit.readers.kineto.decode.events import RUNTIME, DeviceEvents, HostEvents

_KERNEL = re.compile(r"^(cuda|cu|hip)(?!.*HostFunc)(Ext|Module)*(Launch(?!Host)|GraphLaunch)")
_MOVE = re.compile(r"^(cuda|cu|hip)Mem(cpy|set)")
_BEGIN, _END = re.compile(r"^(cuda|cu|hip)StreamBeginCapture"), re.compile(r"^(cuda|cu|hip)StreamEndCapture")
_MOST_LOST, _MOST_TRIMMED = 0.05, 0.1  # of the launches: anywhere, and with those at either end of the capture
_MOST_MOVES = 0.5  # of copies and fills, unless every step has as many without an activity
_MOST_UNLAUNCHED = 0.25  # of the activities; in sound traces up to 11 % were launched before the capture


@dataclass(frozen=True)
class Pairs:
    """Launches of kernels and graphs in the steps, those of them without an activity (`lost`, of which `trimmed` at
    either end of the capture), copies and fills likewise, and activities without a launch with their share of time."""

    launches: int
    lost: int
    trimmed: int
    moves: int
    still: int  # moves without an activity: those of no bytes, and between two places of the host, leave none
    steady: bool  # every step has some moves with an activity, and as many without one as the others
    activities: int
    unlaunched: int
    unlaunched_share: float
    before: int  # of them launched before the capture
    before_ns: int

    @property
    def too_many_lost(self) -> bool:
        """Return whether the times are too small by more than numbers allow."""
        inner = self.lost - self.trimmed
        return inner > _MOST_LOST * self.launches or self.lost > _MOST_TRIMMED * self.launches

    @property
    def too_few_known(self) -> bool:
        """Return whether places are known of too few activities, or copies and fills were not recorded."""
        return self.lost_moves or (self.launches > 0 and self.unlaunched > _MOST_UNLAUNCHED * self.activities)

    @property
    def lost_moves(self) -> bool:
        """Return whether more copies and fills lack an activity than were recorded."""
        return self.moves >= 4 and self.still > _MOST_MOVES * self.moves and not self.steady

    def lost_words(self) -> str:
        """A sentence's part about launches without an activity; "" without any."""
        said = []
        if self.lost:
            share = self.lost / self.launches
            where = " at the ends of the capture" if self.trimmed == self.lost and not self.too_many_lost else ""
            said.append(f"{self.lost} of {self.launches} launches ({share:.1%}){where} have no kernel in the trace")
        if self.lost_moves:
            said.append(f"{self.still} of {self.moves} copies and fills were called and have no activity in the trace")
        return "; ".join(said)

    def unlaunched_words(self) -> str:
        """A sentence about activities without a launch; "" without any."""
        said = []
        if self.before:
            said.append(
                f"{_activities(self.before)} launched before the capture ({units.text(self.before_ns, 'ns')}): "
                f"{'it counts' if self.before == 1 else 'they count'} in no step"
            )
        if self.unlaunched:
            said.append(
                f"{self.unlaunched} of {self.activities} GPU activities ({self.unlaunched_share:.1%} of their time) "
                f"{'was' if self.unlaunched == 1 else 'were'} launched by calls that are not in the trace: pass, "
                "module and operator are unknown"
            )
        return "; ".join(said)


def _activities(count: int) -> str:
    return "1 activity of the GPU was" if count == 1 else f"{count} activities of the GPU were"


def launches(e: Evidence) -> CheckOutcome:
    """Every launch has its kernel, and every kernel its launch."""
    before = e.on_gpu.before if e.on_gpu is not None else np.zeros(0, bool)
    found = pairs(e.host, e.device, e.launch, before, e.steps)
    wrong, of = found.lost + found.unlaunched, found.launches + found.activities
    if e.expected and e.expected.on_gpu and not found.activities:
        words = "the run was on a GPU, and the trace holds no work of it"
        return CheckOutcome(holds=False, figure=1.0, events=found.lost, of=found.launches, sentence=words)
    if not found.launches and not (e.launch >= 0).any():  # of a trace that records no calls
        return replace(DOES_NOT_APPLY, sentence=found.unlaunched_words())
    said = [found.lost_words(), "" if found.too_many_lost else found.unlaunched_words()]
    return CheckOutcome(
        holds=not (found.too_many_lost or found.too_few_known), figure=wrong / of, events=wrong, of=of,
        needed=found.too_many_lost or not found.too_few_known, sentence="; ".join(filter(None, said)),
        hint=LESS_AT_ONCE,
    )  # fmt: skip


def pairs(host: HostEvents, device: DeviceEvents, launch: Integers, before: Booleans, steps: Steps) -> Pairs:
    """Count them. `launch` is the call that launched each activity, −1 for none; `before` marks what was launched
    before the capture."""
    calls = np.flatnonzero((host.category == RUNTIME) & (host.correlation >= 0))
    calls = calls[np.argsort(host.start[calls], kind="stable")]
    names = [bool(_KERNEL.match(n)) for n in host.names], [bool(_MOVE.match(n)) for n in host.names]
    kernel, move = (host.named(test)[calls] for test in names)
    counts = ~_captured(host, calls)
    known = among(host.correlation[calls], device.correlation)
    within = steps.at(host.start[calls]) >= 0 if steps.marked else np.ones(len(calls), bool)
    kernels = kernel & counts & within
    # A driver's call inside one of the runtime is the same launch, by whichever of the two ids.
    lost = kernels & ~known & ~_done_inside(host, calls, known)
    first, last = _ends(known & kernel & counts)
    outer = np.arange(len(calls))
    time = (device.end - device.start).astype(float)
    unlaunched = (launch < 0) & ~before
    return Pairs(
        launches=int(kernels.sum()),
        lost=int(lost.sum()),
        trimmed=int((lost & ((outer < first) | (outer > last))).sum()),
        moves=int((move & counts).sum()),
        still=int((move & counts & ~known).sum()),
        steady=_steady(steps, host.start[calls], move & counts, known),
        activities=len(device) - int(before.sum()),
        unlaunched=int(unlaunched.sum()),
        unlaunched_share=float(time[unlaunched].sum() / time[~before].sum()) if time[~before].sum() else 0.0,
        before=int(before.sum()),
        before_ns=int(time[before].sum()),
    )


def _steady(steps: Steps, moments: Integers, moves: Booleans, known: Booleans) -> bool:
    """Return whether every step has as many moves with an activity and as many without: a profiler that
    loses records does not do so alike."""
    if not steps.marked or len(steps.start) < 2:
        return False
    step = steps.at(moments)
    have, lack = (
        np.bincount(step[moves & which & (step >= 0)], minlength=len(steps.start)) for which in (known, ~known)
    )
    return bool(have.min() > 0 and (have == have[0]).all() and (lack == lack[0]).all())


def _captured(host: HostEvents, calls: Integers) -> Booleans:
    """Return whether each call fell into the capture of a graph: what is launched there runs when the graph does."""
    begin, end = (
        np.sort(host.start[(host.category == RUNTIME) & host.named([bool(e.match(n)) for n in host.names])])
        for e in (_BEGIN, _END)
    )
    if not len(begin):
        return np.zeros(len(calls), bool)
    at = host.start[calls]
    return np.searchsorted(begin, at) > np.searchsorted(end, at)


def _done_inside(host: HostEvents, calls: Integers, known: Booleans) -> Booleans:
    """Return whether a call contains another that launched an activity."""
    inner = calls[known]
    done = np.zeros(len(host), bool)
    around = host.parent[inner]
    done[around[around >= 0]] = True
    return done[calls]


def _ends(known: Booleans) -> tuple[int, int]:
    """The first and the last call that has its activity; where none has, all lie between."""
    found = np.flatnonzero(known)
    return (int(found[0]), int(found[-1])) if len(found) else (0, len(known))
