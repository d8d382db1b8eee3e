"""Is an implementation right? Its results, into poisoned outputs, against the fp64 reference on fresh random inputs."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from perfkit.correctness import half_unit
from perfkit.errors import CheckFailed
from perfkit.kernels import mkl, selection
from perfkit.kernels.declare import Operation
from perfkit.kernels.dispatch import Kernel
from perfkit.kernels.dtypes import TORCH_DTYPES
from perfkit.kernels.families import find
from perfkit.kernels.register import runner
from perfkit.kernels.selection import WantedVersion, use_version

FEW = 32  # numbers of a case, by the product of its sizes: six means of five, say
DRAWS = 32  # of inputs, whose results have the scale of such a case's


class Inputs:
    """Random tensors for a check, in one precision, the same for the same seed on the same kind of device."""

    def __init__(self, dtype: str, seed: int, device: str = "cpu") -> None:
        self.dtype = TORCH_DTYPES[dtype]
        self._generator = torch.Generator(device).manual_seed(seed)

    def normal(self, *shape: int, scale: float = 1.0, mean: float = 0.0) -> Tensor:
        """Normally distributed numbers in the working precision."""
        made = torch.randn(shape, generator=self._generator, device=self._generator.device)
        return (made * scale + mean).to(self.dtype)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """int64 in [low, high)."""
        return torch.randint(low, high, shape, generator=self._generator, device=self._generator.device)


@dataclass(frozen=True)
class OutputError:
    """The largest error of one output, |y - reference| / (|reference| + rms of the reference), and what is allowed.

    The rms of a case of few numbers is that of many draws (`result_scales`).
    """

    output: str
    error: float
    tolerance: float

    @property
    def ok(self) -> bool:
        """Return whether the error is a number within the tolerance."""
        return self.error <= self.tolerance


@dataclass(frozen=True)
class CheckResult:
    """The errors of one implementation on one set of inputs. `seed` makes the same inputs again."""

    operation: str
    version: int
    dtype: str
    sizes: Mapping[str, int]
    seed: int
    errors: tuple[OutputError, ...]
    language: str = "c"

    @property
    def ok(self) -> bool:
        """Return whether every output is within its tolerance."""
        return all(e.ok for e in self.errors)

    def __str__(self) -> str:
        sizes = ", ".join(f"{k}={v}" for k, v in self.sizes.items()) or "given inputs"
        errors = ", ".join(f"{e.output} {e.error:.1e} (allowed {e.tolerance:.0e})" for e in self.errors)
        verdict = "right" if self.ok else "wrong"
        written = "" if self.language == "c" else f" in {self.language}"
        what = f"{self.operation} version {self.version}{written} in {self.dtype}"
        return f"{what} ({sizes}, seed {self.seed}) is {verdict}: {errors}"

    def require(self) -> CheckResult:
        """Return self when right; raise `CheckFailed` otherwise."""
        if not self.ok:
            raise CheckFailed(f"{self}.", "Compare with version 1, the naive one.")
        return self


def check(
    operation: Operation | str,
    version: int | None = None,
    dtype: str = "fp32",
    sizes: Mapping[str, int] | None = None,
    inputs: Sequence[Any] | None = None,
    seed: int | None = None,
    extra_dirs: Iterable[str | Path] = (),
    device: str = "cpu",
    language: str | None = None,
) -> list[CheckResult]:
    """Check one implementation over the operation's cases, over `sizes` alone, or on `inputs` (arguments in order).

    `version` and `language` None mean the one that would run on `device`. Raises `Unavailable` or `RunFailed` when it
    cannot be built; a wrong result raises nothing: look at `ok`, or call `require()`.
    """
    mkl.choose_vector_functions()
    operation = find(operation, extra_dirs) if isinstance(operation, str) else operation
    seed = secrets.randbits(32) if seed is None else seed
    wanted = WantedVersion(version, language) if version or language else selection.wanted()
    chosen = selection.choose(operation, device, dtype, wanted)
    cases: Sequence[Mapping[str, int]] = [{}] if inputs is not None else [sizes] if sizes else operation.cases

    results = []
    for case in cases:
        arguments = inputs if inputs is not None else operation.inputs(Inputs(dtype, seed), **case)
        placed = [a.to(device) if isinstance(a, Tensor) else a for a in arguments]
        scales = result_scales(operation, dtype, seed, {} if inputs is not None else case)
        same = WantedVersion(chosen.version, chosen.language)
        errors = _errors(operation, same, dtype, placed, device, scales, operation.growth(case))
        results.append(
            CheckResult(operation.qualified_name, chosen.version, dtype, case, seed, errors, chosen.language)
        )
    return results


def _errors(
    operation: Operation,
    wanted: WantedVersion,
    dtype: str,
    arguments: Sequence[Any],
    device: str,
    scales: Sequence[float],
    growth: float,
) -> tuple[OutputError, ...]:
    got = poisoned_run(operation, wanted.version, arguments, device, wanted.language)
    expected = as_tuple(operation.reference(*(to_fp64(a) for a in arguments)))
    allowed = operation.tolerance["fp32" if operation.rounded_once else dtype] * growth
    interpreted = wanted.language == "triton" and device == "cpu"  # whose bf16 is cut off, not rounded
    hidden = (2 if interpreted else 1) if operation.rounded_once else 0
    return tuple(
        OutputError(name, largest_error(g, e, hidden, scale), allowed)
        for name, g, e, scale in zip(operation.signature.results, got, expected, scales, strict=True)
    )


def result_scales(operation: Operation, dtype: str, seed: int, case: Mapping[str, int]) -> list[float]:
    """The root mean square of each result over many draws of inputs, where a case has few numbers; 0 where it has many.

    A few numbers may all be close to 0 by chance; then no error is small in comparison.
    """
    if not case or math.prod(case.values()) > FEW:
        return [0.0] * len(operation.signature.results)
    drawn = (operation.inputs(Inputs(dtype, seed + i), **case) for i in range(DRAWS))
    results = [as_tuple(operation.reference(*map(to_fp64, arguments))) for arguments in drawn]
    squares = ([root_mean_square(r).square() for r in same] for same in zip(*results, strict=True))
    return [float(torch.stack(each).mean().sqrt()) for each in squares]


def poisoned_run(
    operation: Operation,
    version: int | None,
    arguments: Sequence[Any],
    device: str = "cpu",
    language: str | None = None,
) -> tuple[Tensor, ...]:
    """Run one implementation into outputs that hold NaN before, so that an element it forgets shows.

    Gives what the operation changes in place (of copies: the arguments stay as they are), then its outputs.
    """
    with use_version(version, language):
        plan = runner(operation, device).plan(arguments)
    return poisoned_launch(operation, plan.kernel, plan.scalars, arguments)


def poisoned_launch(
    operation: Operation, kernel: Kernel, scalars: tuple[int | float, ...], arguments: Sequence[Any]
) -> tuple[Tensor, ...]:
    """`poisoned_run` of a kernel that is bound already, with the scalars that belong to these arguments."""
    outputs = as_tuple(operation.allocate(*arguments))
    for output in outputs:
        output.fill_(math.nan if output.is_floating_point() else -1)
    signature = operation.signature
    tensors = {name: a.contiguous() for name, a in zip(signature.inputs, arguments, strict=True) if _is_tensor(a)}
    changed = {name: tensors[name].clone() for name in signature.mutated}
    kernel.launch([*(tensors | changed).values(), *outputs], scalars)
    return *changed.values(), *outputs


def _is_tensor(argument: Any) -> bool:
    return isinstance(argument, Tensor)


def as_tuple(result: Any) -> tuple[Tensor, ...]:
    """One tensor or several, as a tuple."""
    return (result,) if isinstance(result, Tensor) else tuple(result)


def to_fp64(argument: Any) -> Any:
    """A floating-point tensor in fp64; anything else as it is."""
    floating = isinstance(argument, Tensor) and argument.is_floating_point()
    return argument.double() if floating else argument


def root_mean_square(numbers: Tensor) -> Tensor:
    """Return the root mean square of the finite numbers, in fp64; 0 without any."""
    finite = numbers.double()[numbers.isfinite()]
    return finite.square().mean().sqrt() if finite.numel() else finite.new_zeros(())


def largest_error(got: Tensor, expected: Tensor, hidden: int = 0, scale: float = 0.0) -> float:
    """The largest error relative to |expected| + its root mean square, or `scale` where that is more.

    Infinite when shapes differ, or NaN and infinity are in different places. A difference of at most `hidden` halves of
    a unit in the last place is not an error.
    """
    if got.shape != expected.shape:
        return math.inf
    g, e = got.double(), expected.double()
    finite = e.isfinite()
    if not torch.equal(g.isfinite(), finite) or not torch.equal(g[~finite].nan_to_num(), e[~finite].nan_to_num()):
        return math.inf
    g, e = g[finite], e[finite]
    if e.numel() == 0:
        return 0.0
    size = e.abs() + root_mean_square(e).clamp_min(scale)
    size = torch.where(size == 0, 1.0, size)  # a result that is 0 throughout: the error itself
    difference = (g - e).abs()
    if hidden:
        difference = (difference - hidden * half_unit(g, got.dtype)).clamp_min(0.0)
    error = torch.where(g == e, 0.0, difference / size)
    return float(error.max())
