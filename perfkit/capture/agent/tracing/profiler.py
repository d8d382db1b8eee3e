"""torch.profiler as perfkit uses it: one way to start it, to export its trace, and to tell what it costs."""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit.capture.agent.tracing.quiet import without_notices_of_kineto

if TYPE_CHECKING:
    import torch

_ASK_DRIVER = "PYTORCH_NVML_BASED_CUDA_CHECK"


def recording(on_gpu: bool, memory: bool) -> torch.profiler.profile:
    """A profiler that records from its first `step()` on; what came before warms it up."""
    from torch.profiler import ProfilerActivity, schedule

    activities = [ProfilerActivity.CPU]
    if on_gpu:
        activities.append(ProfilerActivity.CUDA)
    recorder: torch.profiler.profile = _quiet_profile()(
        activities=activities,
        record_shapes=True,
        profile_memory=memory,
        schedule=schedule(wait=0, warmup=1, active=1_000_000),
    )
    return recorder


def of_threads(on_gpu: bool, memory: bool, every: bool) -> Any:
    """A profiler of `every` thread, else of the calling one and those that work for it.

    `prepare_trace` warms it up, and it records from `start_trace` to `stop_trace`.

    With `memory` it is never of all, as where this PyTorch has no such option: a profiler of all threads records no
    allocations (seen with torch 2.13).
    """
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity

    try:
        config = _ExperimentalConfig(profile_all_threads=True) if every and not memory else None
    except TypeError:
        config = None
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    return _light_profile()(
        activities=activities, record_shapes=True, profile_memory=memory, experimental_config=config
    )


@functools.cache
def _light_profile() -> Any:
    """A profiler that does not import Inductor, for a second or more, to ask whether its graphs are on."""
    import torch
    from torch.profiler import ProfilerActivity, _KinetoProfile

    class Light(_KinetoProfile):
        def prepare_trace(self) -> None:
            """Warm the profiler up."""
            if "torch._inductor" in sys.modules:
                super().prepare_trace()
                return
            self.profiler = torch.autograd.profiler.profile(
                use_cpu=True,
                use_device="cuda" if ProfilerActivity.CUDA in self.activities else None,
                record_shapes=self.record_shapes,
                profile_memory=self.profile_memory,
                use_kineto=True,
                experimental_config=self.experimental_config,
            )
            self.profiler._prepare_trace()

    return Light


@functools.cache
def _quiet_profile() -> Any:
    """torch.profiler's class, which does not warn of several cycles in a program that asked for none: there is one.

    Its `acc_events=True` would be silent too, and turn all events into objects when it stops.
    """
    from torch.profiler import profile

    class Quiet(profile):
        def prepare_trace(self) -> None:
            """Warm the profiler up, without its warning."""
            with silent():
                super().prepare_trace()

    return Quiet


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Have torch.profiler's own functions warn of nothing. Filters of warnings stay as they are: to change them would
    let warnings of the program that were shown once be shown again."""
    module = sys.modules["torch.profiler.profiler"]
    kept = {name: getattr(module, name) for name in ("warn", "_warn_once") if hasattr(module, name)}
    for name in kept:
        setattr(module, name, lambda *_, **__: None)
    try:
        yield
    finally:
        for name, function in kept.items():
            setattr(module, name, function)


def gpu_there() -> bool:
    """Return whether torch can use a GPU; asked so that processes which fork can use it too."""
    import torch

    before = os.environ.get(_ASK_DRIVER)
    os.environ[_ASK_DRIVER] = "1"
    try:
        return bool(torch.cuda.is_available())
    finally:
        if before is None:
            del os.environ[_ASK_DRIVER]
        else:
            os.environ[_ASK_DRIVER] = before


def export(profiler: Any, path: Path) -> bool:
    """Write the trace of a stopped profiler as plain JSON; return whether it wrote anything.

    Before any other profiler starts: its session clears the GPU's records of this one, and leaves zeros behind.
    """
    # Called by C: cProfile of CPython 3.12 and 3.13 miscounts a Python function that calls a bound method written in C.
    operator.methodcaller("save", str(path))(profiler.profiler.kineto_results)
    return path.is_file() and path.stat().st_size > 0


def rename(trace: Path, name: str, other: str) -> None:
    """Give the events of a trace that are called `name` another name, such as the range of a step that was cut off."""
    changed = trace.with_suffix(".renamed")
    with open(trace, "rb") as source, open(changed, "wb") as target:
        target.writelines(line.replace(f'"{name}"'.encode(), f'"{other}"'.encode()) for line in source)
    changed.replace(trace)


def event_cost_ns(events: int = 2000, repeats: int = 5) -> float:
    """Return the ns that recording one operator with its shapes adds to it: the least of `repeats`, measured here.

    The operator is an in-place relu of one element, so that nearly all of its time is dispatch. What else runs on the
    machine only lengthens a loop, so the shortest with and without a profiler are compared.
    """
    import torch

    tensor = torch.ones(1, device="cpu", dtype=torch.float32)

    def loop() -> float:
        started = time.perf_counter_ns()
        for _ in range(events):
            tensor.relu_()
        return (time.perf_counter_ns() - started) / events

    def recorded() -> float:
        profiler = _light_profile()(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True)
        with silent(), without_notices_of_kineto():
            profiler.start()
        try:
            return loop()
        finally:
            with without_notices_of_kineto():
                profiler.stop()

    recorded()  # the profiler's first use in a process loads and allocates
    pairs = [(recorded(), loop()) for _ in range(repeats)]
    return max(0.0, min(a for a, _ in pairs) - min(b for _, b in pairs))
