"""Rates of a GPU, driven through torch: bandwidth by working set, matrix products a precision, multiply-add chains.

Calls are captured into a CUDA graph and replayed, so that the time of launching them from Python does not count; events
on the stream take the time. Working sets that fit the L2 cache show its bandwidth, larger ones the main memory's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from perfkit.hardware.gpu import gpu_of_torch
from perfkit.hardware.observation import Observation, gpu_plan
from perfkit.hardware.torch_attention import attention_observations
from perfkit.hardware.torch_operators import CeilingRequest, matmul_observations, memory_observations, say

_LONG_S = 1e-3  # a graph's launch takes µs: of a product of 160 µs alone it took 2 %
_STEPS = 2048  # of each chain; eight chains a thread hide the latency of the multiply-add
_CHAINS = """
template <typename T> T multiply_add_chains(T x) {
  T a = x, b = x + T(1), c = x + T(2), d = x + T(3), e = x + T(4), f = x + T(5), g = x + T(6), h = x + T(7);
  const T m = T(0.5), n = T(1);
  #pragma unroll 8
  for (int i = 0; i < STEPS; ++i) {
    a = a * m + n; b = b * m + n; c = c * m + n; d = d * m + n;
    e = e * m + n; f = f * m + n; g = g * m + n; h = h * m + n;
  }
  return a + b + c + d + e + f + g + h;
}
""".replace("STEPS", str(_STEPS))


def run_cuda(request: CeilingRequest) -> Iterator[Observation]:
    """All that torch is asked for on `request.device`; its plan is made here, from the memory of the device."""
    import torch

    device = torch.device(request.device)
    torch.cuda.set_device(device)
    gpu = gpu_of_torch(torch.cuda.get_device_properties, device.index or 0)
    free, _ = torch.cuda.mem_get_info(device)
    plan = gpu_plan(free, gpu.l2_bytes)
    say(gpu=gpu)
    for number in range(plan.rounds):
        say(progress=f"GPU memory · round {number + 1}")
        for seen in memory_observations(request.device, plan.sizes, plan.pattern_s, best_of):
            yield msgspec.structs.replace(seen, round=number)
        torch.cuda.empty_cache()
    known = precisions(gpu.compute_capability or "0.0", torch.version.hip is not None)
    for precision in known:
        say(progress=f"matrix product, {precision}")
        yield from matmul_observations(request.device, plan, precision, best_of)
    if "bf16" in known:
        say(progress="causal attention")
        yield from attention_observations(request.device, plan.pattern_s, best_of)
    for number in range(plan.rounds):
        say(progress="vector units")
        yield from _vector(request.device, number)


def best_of(call: Callable[[], object], seconds: float) -> float:
    """Best time of one call in s, from replays of a graph that holds it often enough to be long against a launch."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):  # libraries choose and load their kernels here, which a capture does not allow
            call()
    torch.cuda.current_stream().wait_stream(stream)
    once = _event_seconds(call)
    batch = max(1, min(200, int(_LONG_S / max(once, 1e-7))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(batch):
            call()
    replays = max(5, min(500, math.ceil(seconds / max(once * batch, 1e-6))))
    return min(_event_seconds(graph.replay) for _ in range(replays)) / batch


def _event_seconds(call: Callable[[], object]) -> float:
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def precisions(capability: str, amd: bool = False) -> tuple[str, ...]:
    """Return the precisions that the units of this generation multiply.

    AMD's GPUs number their generations otherwise, and some have fp8 of another kind: it is left out.
    """
    version = tuple(int(number) for number in capability.split("."))
    since = {"fp16": (7, 0), "bf16": (8, 0), "tf32": (8, 0), "fp8": (8, 9)}
    return ("fp32", "fp64", *(p for p, first in since.items() if version >= first and not (amd and p == "fp8")))


def _vector(device: str, number: int) -> Iterator[Observation]:
    """Multiply-add chains in registers, compiled at run time by torch's own elementwise machinery."""
    import torch
    from torch.cuda.jiterator import _create_jit_fn

    chains = _create_jit_fn(_CHAINS)
    for dtype, resource in ((torch.float32, "vector_fp32"), (torch.float64, "vector_fp64")):
        x = torch.zeros(1 << 20, device=device, dtype=dtype)
        result = chains(x)

        def call(x: Any = x) -> Any:
            return chains(x)

        flop = 2.0 * 8 * _STEPS * x.numel()
        yield Observation(
            resource=resource,
            what="multiply-add",
            how="CUDA, eight chains of multiply-add a thread, in registers",
            rate=flop / min(_event_seconds(call) for _ in range(10)),
            by="torch",
            round=number,
            ok=bool(((result - 16).abs() < 1e-3).all()),  # each chain ends at 2
        )
