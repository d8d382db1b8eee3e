"""The program that Nsight profiles: a few steps of one backend, and nothing of perfkit's measuring around them.

    python -m perfkit.run.target ORDER.json

Unlike the workers of a run it speaks to nobody: a profiler starts it, and watches. It warms up as a run does, so that
compilers, autotuners and allocators are done, and marks what is to be profiled twice: by cudaProfilerStart and
cudaProfilerStop, which tools can wait for, and by the ranges of `perfkit.ranges`.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import msgspec

from perfkit import faults, ranges, timing
from perfkit.errors import PerfkitError
from perfkit.run.worker import Worker
from perfkit.run_folder import Settings

WARMUP = 3  # steps before the profiled one: the first compiles, the second and third may compile once more


class TargetOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A backend to run, by its name or file, and the number of steps to profile after `warmup` others.

    With `one_layer` the model keeps the first of its repeated layers only.
    """

    settings: Settings
    backend: str
    steps: int = 1
    warmup: int = WARMUP
    one_layer: bool = False


def run(order: TargetOrder) -> None:
    """Warm up, then run the steps that are to be profiled."""
    worker = Worker(lambda text: print(f"{order.backend}: {text}", flush=True))
    worker.prepare(order.settings, order.backend, one_layer=order.one_layer)
    with ranges.listening_modules(worker.program):
        worker.settle(order.warmup)
        with _profiled(order.settings.device):
            worker.settle(order.steps)


@contextlib.contextmanager
def _profiled(device: str) -> Iterator[None]:
    """Between cudaProfilerStart and cudaProfilerStop, with nothing left running at either end."""
    if device == "cpu":
        yield
        return
    import torch

    synchronize = timing.synchronizer(device) or (lambda: None)
    synchronize()
    torch.cuda.profiler.start()
    try:
        yield
        synchronize()
    finally:
        torch.cuda.profiler.stop()


def main() -> int:
    """Run the order in the file that is the first argument; return 1 with one sentence on failure."""
    try:
        run(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=TargetOrder))
    except PerfkitError as error:
        print(error, flush=True)
        return 1
    except Exception as error:  # whatever a backend or a user's model throws; the log has the rest
        traceback.print_exc()
        print(faults.sentence(error), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
