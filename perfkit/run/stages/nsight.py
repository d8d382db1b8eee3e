"""Counters and timelines of Nsight's tools, once everything else of a run is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from perfkit.capture.nsight import joining
from perfkit.errors import PerfkitError, Unavailable
from perfkit.run import counters
from perfkit.run.backends import Progress, RunningBackend
from perfkit.run_folder import KERNELS, Settings


def add_nsight(
    plan: counters.NsightPlan,
    members: Sequence[RunningBackend],
    settings: Settings,
    backend_of: Callable[[RunningBackend], str],
    progress: Progress,
) -> list[PerfkitError]:
    """Profile each backend with a trace again under ncu or nsys, while nothing else runs; return what did not work.

    A tool that does not work here is asked once; what fails with one backend only does not end the others.
    """
    problems: list[PerfkitError] = []
    problem = counters.impossible(plan, settings)
    for member in members:
        profiled = member.record.trace and not member.record.unusable
        if problem is not None or not (profiled and member.record.status in ("ok", "wrong")):
            continue
        try:
            member.record.nsight = counters.add(
                plan,
                settings,
                backend_of(member),
                member.folder,
                partial(progress, member.name),
                partial(joining.layers_of, member.folder / KERNELS),
            )
        except Unavailable as error:
            problem = error
        except PerfkitError as error:
            problems.append(type(error)(f"{member.name}: {error.message}", error.hint))
    return problems if problem is None else [*problems, problem]
