"""Torch's own operators, timed: bandwidth by working set, and matrix products a precision, on a CPU or a GPU."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from perfkit.hardware.ceilings import FUNCTIONS, IN_PLACE, MEMORY
from perfkit.hardware.observation import AGREE, Effort, Observation

# Relative error that a product of this precision may have against fp64, for matrices of N(0, 1) with inner size 128.
# That of fp8 is rounded to bf16, and its operands are numbers of fp8 before they are multiplied.
TOLERANCE = {"fp64": 1e-13, "fp32": 1e-5, "tf32": 2e-3, "fp16": 2e-3, "bf16": 1.5e-2, "fp8": 1.5e-2}
NEAR = 0.85  # of the best shape's rate: shapes that zeros may lift above it

FUNCTION_NUMBERS = 2**17  # 1 MiB with their results

Timer = Callable[[Callable[[], object], float], float]  # (call, seconds to spend) → best seconds of one call
Multiply = Callable[[Any, Any, Any], Any]  # (a, w, out) → their product
Shape = tuple[int, int, int]  # m, k, n


class CeilingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The parent's request. `patterns`: "check" (every second size, next to the C program) or "all" (instead of it)."""

    device: str
    threads: int
    plan: Effort
    patterns: str = "check"


def say(**facts: Any) -> None:
    """Print one line that is not an observation."""
    write(facts)


def write(line: Any) -> None:
    """Write a line of JSON for the process that asked."""
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


IN_PLACE_PATTERN = "torch negate"  # reads and writes its working set


def patterns(device: str, size: int) -> dict[str, Callable[[], object]]:
    """Operators over a working set of `size` bytes of fp32, each touching all of it once a call."""
    import torch

    def tensors(count: int) -> list[Any]:
        return [torch.full((max(1, size // 4 // count),), 1.0, device=device) for _ in range(count)]

    (a, b, c), (x, y), (s,) = tensors(3), tensors(2), tensors(1)
    return {
        "torch add": lambda: torch.add(b, c, out=a),
        "torch triad": lambda: torch.add(b, c, alpha=3.0, out=a),
        "torch mul": lambda: torch.mul(b, c, out=a),
        "torch copy": lambda: x.copy_(y),
        "torch sum": lambda: s.sum(),
        "torch fill": lambda: s.fill_(1.0),
        IN_PLACE_PATTERN: lambda: s.neg_(),
    }


def memory_observations(device: str, sizes: tuple[int, ...], seconds: float, best_of: Timer) -> Iterator[Observation]:
    """Bandwidth of torch's operators at each size."""
    for size in sizes:
        for name, call in patterns(device, size).items():
            in_place = name == IN_PLACE_PATTERN
            yield Observation(
                resource=IN_PLACE if in_place else MEMORY,
                what=name,
                how="torch, fp32",
                rate=(2 if in_place else 1) * size / best_of(call, seconds),
                by="torch",
                working_set=size,
            )


def function_observations(plan: Effort, best_of: Timer) -> Iterator[Observation]:
    """Numbers a second of which fp32 exponentials are taken on a CPU, in a cache: `exp` is MKL's where PyTorch has MKL,
    `exp2` is PyTorch's own code, and as much work."""
    import torch

    x = torch.linspace(0.1, 0.9, FUNCTION_NUMBERS)
    out = torch.empty_like(x)
    for function, number in itertools.product((torch.exp, torch.exp2), range(plan.rounds)):
        rate = len(x) / best_of(partial(function, x, out=out), plan.pattern_s)
        yield Observation(
            resource=FUNCTIONS,
            what=function.__name__,
            how=f"torch.{function.__name__}, fp32",
            rate=rate,
            by="torch",
            round=number,
            ok=torch.allclose(out.double(), function(x.double()), rtol=TOLERANCE["fp32"]),
        )


def matmul_observations(device: str, plan: Effort, precision: str, best_of: Timer) -> Iterator[Observation]:
    """Matrix products of a precision within `plan.matmul_s`, small ones first; then the best shape until it repeats.

    Nothing where this torch has no product of that precision on `device`.
    Where products of zeros count, every shape near the best is measured with them: the power limit reorders the shapes.
    """
    libraries = _libraries(device, precision)
    if not libraries:
        return
    right = {library: _product_is_right(device, precision, multiply) for library, multiply in libraries.items()}
    end = time.perf_counter() + plan.matmul_s
    share = plan.matmul_s / len(plan.shapes) / len(libraries)
    seen: dict[tuple[str, Shape], float] = {}

    def measured(library: str, shape: Shape, number: int, zeros: bool = False) -> Observation:
        rate = _rate(device, precision, shape, libraries[library], share, best_of, zeros)
        return _matmul(precision, shape, library, rate, right[library], number, " of zeros" if zeros else "")

    for shape, library in itertools.product(plan.shapes, libraries):
        guess = 2.5 * _flop(shape) / max(seen.values(), default=plan.least_flop_s)  # one call to warm up, one to time
        if guess > end - time.perf_counter():
            continue
        first = measured(library, shape, 0)
        seen[library, shape] = first.rate
        yield first
    if seen:
        best = max(seen, key=lambda way: seen[way])
        for number in range(1, 4):
            again = measured(*best, number)
            yield again
            if abs(again.rate / seen[best] - 1) < AGREE:
                break
            seen[best] = max(seen[best], again.rate)
        if plan.zeros:
            near = [way for way in seen if seen[way] > NEAR * seen[best]]
            yield from (measured(*way, number, zeros=True) for way in near for number in range(plan.rounds))


def _libraries(device: str, precision: str) -> dict[str, Multiply]:
    """Ways to multiply a (m, k) and w (n, k) transposed, into `out` (m, n) where they can: `torch.mm`, and in fp32 on a
    CPU oneDNN, which `torch.mm` leaves aside there, and which is faster on some processors."""
    import torch

    if precision == "fp8":
        return _fp8_libraries(device)
    ways: dict[str, Multiply] = {"torch.mm": lambda a, w, out: torch.mm(a, w.t(), out=out)}
    if device == "cpu" and precision == "fp32" and torch.backends.mkldnn.is_available():
        linear = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
        if linear is not None:
            ways["oneDNN linear"] = lambda a, w, out: linear(a, w, None, "none", [], "")
    return ways


def _fp8_libraries(device: str) -> dict[str, Multiply]:
    """`torch._scaled_mm` with one scale a tensor and fast accumulation; none where torch has no such product.

    Hopper's tensor cores sum up products of fp8 with fewer bits than fp32 has. Without fast accumulation these sums are
    added up in fp32 now and then: no other unit multiplies, so that what the unit can do shows with it.
    """
    import torch

    product = getattr(torch, "_scaled_mm", None)
    if product is None:
        return {}
    one = torch.ones((), device=device)

    def multiply(a: Any, w: Any, out: Any) -> Any:
        return product(a, w.t(), one, one, out_dtype=out.dtype, use_fast_accum=True, out=out)

    try:
        _product_is_right(device, "fp8", multiply)
    except (RuntimeError, ValueError):  # so it refuses: whether there is a kernel depends on how torch was built
        return {}
    return {"torch._scaled_mm, fast accumulation": multiply}


def _matmul(precision: str, shape: Shape, library: str, rate: float, ok: bool, number: int, data: str) -> Observation:
    return Observation(
        resource=f"matrix_{precision}",
        what="matmul " + "×".join(map(str, shape)) + data,
        how=f"{library}, {precision}",
        rate=rate,
        by="torch",
        round=number,
        ok=ok,
    )


def _rate(
    device: str, precision: str, shape: Shape, multiply: Multiply, seconds: float, best_of: Timer, zeros: bool
) -> float:
    """FLOP/s of (m, k) × (k, n), the second operand stored as (n, k) as a linear layer's weight is."""
    m, k, n = shape
    a, w = _operand(device, precision, m, k), _operand(device, precision, n, k)
    if zeros:
        a.zero_()
        w.zero_()
    out = _result(a, m, n)
    return _flop(shape) / best_of(lambda: multiply(a, w, out), seconds)


def _product_is_right(device: str, precision: str, multiply: Multiply) -> bool:
    a, w = _operand(device, precision, 128, 128), _operand(device, precision, 128, 128)
    exact = a.double().cpu() @ w.double().cpu().t()
    product = multiply(a, w, _result(a, 128, 128))
    error = (product.double().cpu() - exact).norm() / exact.norm()
    return bool(error < TOLERANCE[precision])


def _result(a: Any, rows: int, columns: int) -> Any:
    """An empty tensor for a product of `a`: in its precision, for fp8 in bf16, as training keeps what it computes."""
    import torch

    dtype = torch.bfloat16 if a.dtype == torch.float8_e4m3fn else a.dtype
    return torch.empty(rows, columns, device=a.device, dtype=dtype)


def _operand(device: str, precision: str, rows: int, columns: int) -> Any:
    import torch

    dtypes = {"fp64": torch.float64, "fp16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}
    dtype = dtypes.get(precision, torch.float32)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    generator = torch.Generator(device).manual_seed(rows * 7919 + columns)
    # Drawing millions of normals would take longer than multiplying them: a long block is repeated.
    count = rows * columns
    block = torch.randn(min(count, 2**18 + 1), device=device, generator=generator).to(dtype)
    return block.repeat(-(-count // block.numel()))[:count].view(rows, columns)


def _flop(shape: Shape) -> float:
    m, k, n = shape
    return 2.0 * m * k * n
