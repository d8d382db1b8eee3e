"""The part of a stand-alone script that checks and times; `perfkit.replay.script` puts a recipe before it.

It sees `RECIPE` and `TRACE`, what `rebuilt` defines, and `largest_error` of `perfkit.kernels.checking`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

import torch

from perfkit.kernels.checking import largest_error
from perfkit.replay.rebuilt import Maker, call_of, expected, fresh, outputs

RECIPE: dict[str, Any] = {}
TRACE: dict[str, Any] = {}

ALLOWED = {torch.float64: 1e-11, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-1}
SAMPLES, LEAST_SECONDS, CHANGING = 30, 1e-4, 20


def seconds(call: Any, device: str) -> list[float]:
    """Seconds of one call, with warm caches, several times: by events on a GPU, by the clock on a CPU."""
    call()
    begin = time.perf_counter()
    call()
    repeat = max(1, min(CHANGING, int(LEAST_SECONDS / max(time.perf_counter() - begin, 1e-9))))
    found = []
    for _ in range(SAMPLES):
        if device == "cpu":
            begin = time.perf_counter()
            for _ in range(repeat):
                call()
            found.append((time.perf_counter() - begin) / repeat)
            continue
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(1_000_000)  # the launches are in the queue before their turn comes
        start.record()
        for _ in range(repeat):
            call()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) / 1e3 / repeat)
    return found


def check(maker: Maker, arguments: dict[str, Any]) -> bool:
    """Hold the results against fp64, print their errors, and return whether all are small enough."""
    if RECIPE["random"] or "source" in RECIPE:
        print("not checked: the results are random, or those of a generated kernel")
        return True
    got = outputs(RECIPE, arguments)
    try:
        wanted = expected(RECIPE, arguments, maker)
    except (RuntimeError, NotImplementedError) as error:
        print(f"not checked: PyTorch does not compute it in fp64 ({str(error).splitlines()[0]})")
        return True
    right = True
    for name in (name for name in got if name in wanted):
        largest = largest_error(got[name].reshape(wanted[name].shape), wanted[name])
        fine = largest <= ALLOWED.get(got[name].dtype, 0.0)
        right = right and fine
        print(f"{name}: largest error {largest:.1e}, {'right' if fine else 'WRONG'}")
    return right


def main() -> int:
    """Rebuild, check and time the call; 1 where a result is wrong."""
    parser = argparse.ArgumentParser(description=str(TRACE["operator"]))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    device = parser.parse_args().device
    name = torch.cuda.get_device_name(device) if device != "cpu" else "CPU"
    print(f"{TRACE['operator']} on {name}, torch {torch.__version__}")
    for line in [*TRACE["arguments"], *TRACE["not recorded"]]:
        print(f"  {line}")
    with torch.no_grad():
        maker = Maker(device, RECIPE["seed"])
        arguments = maker.arguments(RECIPE)
        right = check(maker, arguments)
        found = seconds(call_of(RECIPE, fresh(RECIPE, arguments)), device)
    middle = statistics.median(found) * 1e6
    print(f"here: {middle:.2f} us (median of {len(found)}; {min(found) * 1e6:.2f} to {max(found) * 1e6:.2f})")
    if TRACE["median ns"]:
        other = "" if TRACE["device"] == name else ", another device: the two do not compare"
        on = TRACE["device"] or "a device that it does not name"
        print(f"trace: {TRACE['median ns'] / 1e3:.2f} us (median of {TRACE['calls']}) on {on}{other}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
