"""Rates of torch's own operators: run as `python -m perfkit.hardware.torch_bench`, a process of its own.

It reads a JSON object {"device", "threads", "plan", "patterns"} from its one argument and prints one JSON line an
observation (`perfkit.hardware.observation.Observation`); lines {"progress": …}, {"device_name": …, …} lie between.
A process of its own, so that memory and settings of the program that asks stay as they are.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import msgspec

from perfkit.hardware.access import no_gpu
from perfkit.hardware.observation import Observation
from perfkit.hardware.torch_operators import (
    CeilingRequest,
    function_observations,
    matmul_observations,
    memory_observations,
    say,
    write,
)

PRECISIONS = ("fp32", "bf16", "fp64", "fp16")


def cpu_best_of(call: Callable[[], object], seconds: float) -> float:
    """Best time of one call, in s, after two to warm up; short calls are timed in batches, long ones once at least."""
    call()
    begin = time.perf_counter()
    call()
    batch = max(1, int(1e-4 / max(time.perf_counter() - begin, 1e-7)))
    best, count = float("inf"), 0
    while count < 1 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        for _ in range(batch):
            call()
        best = min(best, (time.perf_counter() - start) / batch)
        count += 1
    return best


def run_cpu(request: CeilingRequest) -> Iterator[Observation]:
    """All that torch is asked for on the CPU."""
    import torch

    torch.set_num_threads(request.threads)
    plan = request.plan
    end = time.perf_counter() + plan.torch_s
    say(progress="memory, torch's operators")
    sizes = plan.sizes if request.patterns == "all" else plan.sizes[::2]
    yield from memory_observations("cpu", sizes, plan.pattern_s, cpu_best_of)
    if request.patterns == "all" and plan.main_memory:
        yield from memory_observations("cpu", (plan.main_memory,), plan.pattern_s, cpu_best_of)
    yield from function_observations(plan, cpu_best_of)
    for precision in PRECISIONS:
        if time.perf_counter() > end:
            return
        say(progress=f"matrix product, {precision}")
        yield from matmul_observations("cpu", plan, precision, cpu_best_of)


def main() -> None:
    """Answer the request in the one argument."""
    import torch

    request = msgspec.json.decode(sys.argv[1], type=CeilingRequest)
    if request.device == "cpu":
        observations = run_cpu(request)
    elif not torch.cuda.is_available():
        none = no_gpu(request.device)
        return say(unavailable=none.message, hint=none.hint)
    elif int(request.device.partition(":")[2]) >= torch.cuda.device_count():
        return say(unavailable=f"This machine has no {request.device}: torch finds {torch.cuda.device_count()} GPU(s).")
    else:
        from perfkit.hardware.torch_cuda import run_cuda

        observations = run_cuda(request)
    with torch.inference_mode():
        for observation in observations:
            write(observation)


if __name__ == "__main__":
    main()
