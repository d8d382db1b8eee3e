"""A backend's results against the reference in higher precision.

The reference is eager execution in fp64 (fp32 where fp64 does not fit in memory). It writes its outputs, loss and
gradients of the first step into a folder; every backend, eager included, measures its own error against those files:
the relative error ‖a − r‖ / ‖r‖ in the Euclidean norm, computed in fp64.

What its optimizer changes it measures by itself, step by step on its own gradients: `update_error`.

The limit of a backend's error is the rounding error of eager in the same precision, times `SLACK`. Errors below
`FLOOR`, the rounding unit of that precision, do not count, nor, in a sum over the samples, what adding them up in
another order does (`rounding_of_a_sum`). A value that is not finite never passes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfkit.run_folder import Check, Correctness
from perfkit.settings import HELD_IN

if TYPE_CHECKING:
    import torch

SLACK = 3.0

# The unit roundoff of the arithmetic: what a single correctly rounded result may be off by. Of fp8 it is that of e4m3.
FLOOR = {"fp32": 2.0**-23, "tf32": 2.0**-10, "bf16": 2.0**-8, "fp8": 2.0**-4}

# No error of an output or gradient may be larger, nor eager's: in fp8 its products are perfkit's own. One by one they
# are held to a narrower limit (`perfkit.fp8.checks`).
MOST = {"fp8": 0.5}

# Sums are accumulated in fp32 whatever they are sums of: each addition is off by at most this, of the partial sum.
_ADDITION = 2.0**-24

# When the reference is no more precise than the run, its own rounding is in every difference.
COARSE_FLOOR = {"fp32": 1e-5, "tf32": 1e-3, "bf16": 2.0**-7, "fp8": 2.0**-4}

# Relative error allowed to the loss of each of the first training steps: rounding differences grow as training goes on,
# because AdamW's first steps turn the sign of a gradient near zero into a full step.
LOSS_FLOOR = {"fp32": 1e-4, "tf32": 1e-3, "bf16": 1e-2, "fp8": 1e-2}

# Relative error of an update beyond what rounding hides of it: 0.1 % of a second moment is 0.05 % of an update, and the
# dozen fp32 roundings of an AdamW are off by 1e-6. In bf16 ten steps add up to 0.4 % of an element (one standard
# deviation), and in a small tensor all may hang on one element.
UPDATE_FLOOR = {"fp32": 1e-5, "bf16": 2.0**-7}

# Roundings of a parameter itself in fp32, relative to it: the decay's factor, the product with it, the difference.
_ROUNDINGS = 3 * 2.0**-24

CHECKED_STEPS = 10
_LOSSES = "losses of the first"
OUTPUTS = "outputs"

_INDEX = "reference.json"
_EXPONENT = 0x7FF << 52  # of an fp64 number, as bits
# Elements compared at a time: on a CPU what is made of them stays in the caches, a GPU is asked seldom for a sum.
_CHUNK = {"cpu": 1 << 18, "cuda": 1 << 24}
_WHOLE = 1 << 28  # elements of an output that are all compared: of a longer one, every k-th position


@dataclass(frozen=True)
class FirstSteps:
    """Results of a backend's first steps: losses, `errors_against` the reference, `update_error` by name.

    `updates_in` is the precision in which its optimizer computes; "" for that of the parameters. `parts` are checks
    that it made of parts of itself, `problems` its complaints.
    """

    losses: list[float] = field(default_factory=list)
    errors: dict[str, float | None] = field(default_factory=dict)
    updates: dict[str, float | None] = field(default_factory=dict)
    updates_in: str = ""
    parts: list[Check] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def write_reference(folder: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write `tensors` by name into `folder`, in fp64.

    Of an output (…, T, C) of more than `_WHOLE` elements it writes every k-th position T, the last among them, of each
    sample: logits (8, 2048, 128256) would be 17 GB.
    """
    import torch

    index = {}
    for number, (name, tensor) in enumerate(tensors.items()):
        every = math.ceil(tensor.numel() / _WHOLE) if _is_output(name) and tensor.ndim > 2 else 1
        index[name] = {"file": f"{number}.npy", "every": every}
        np.save(folder / f"{number}.npy", _positions(_dense(tensor), every).to("cpu", torch.float64).numpy())
    (folder / _INDEX).write_text(json.dumps(index))


def _is_output(name: str) -> bool:
    return name.partition(".")[0] == OUTPUTS


def _positions(tensor: torch.Tensor, every: int) -> torch.Tensor:
    """Each `every`-th of the positions T of (…, T, C), the last among them."""
    return tensor if every == 1 else tensor[..., (tensor.shape[-2] - 1) % every :: every, :]


def errors_against(
    folder: Path, tensors: Mapping[str, torch.Tensor], rank: int = 0, ranks: int = 1
) -> dict[str, float | None]:
    """Relative error of each tensor of the reference; None where it is missing, misshapen or not finite.

    Of several ranks each has its share of the outputs' rows.
    """
    index: dict[str, dict[str, Any]] = json.loads((folder / _INDEX).read_text())
    errors: dict[str, float | None] = {}
    for name, written in index.items():
        reference = np.load(folder / written["file"], mmap_mode="r")
        if ranks > 1 and _is_output(name) and reference.ndim:
            each = reference.shape[0] // ranks
            reference = reference[rank * each : (rank + 1) * each]
        tensor = tensors.get(name)
        if tensor is None or (written["every"] > 1 and tensor.ndim != reference.ndim):
            errors[name] = None
        else:
            errors[name] = relative_error(_positions(tensor, written["every"]), reference)
    return errors


def relative_error(actual: torch.Tensor, reference: np.ndarray) -> float | None:
    """‖actual − reference‖ / ‖reference‖ in fp64 (the absolute error where the reference is all zero).

    Computed where `actual` is: with a GPU several backends are checked at once, and their threads on the CPU would
    wait for each other. None when the shapes differ or a value is not finite.
    """
    import torch

    if tuple(actual.shape) != reference.shape:
        return None
    flat, expected = _dense(actual).reshape(-1), reference.reshape(-1)
    difference, norm, chunk = 0.0, 0.0, _CHUNK[flat.device.type]
    for start in range(0, flat.numel(), chunk):
        # A copy, because torch refuses to promise that it will not write into a read-only memory map.
        r = torch.from_numpy(np.array(expected[start : start + chunk])).to(flat.device)
        a = flat[start : start + chunk].to(torch.float64)
        difference += float(torch.sum((a - r) ** 2))
        norm += float(torch.sum(r**2))
    error = math.sqrt(difference / norm) if norm else math.sqrt(difference)
    return error if math.isfinite(error) else None


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """The values alone; of a sparse gradient (COO) with its zeros, entries of the same row added up."""
    return tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()


def update_error(held: torch.Tensor, before: torch.Tensor, expected: torch.Tensor) -> float | None:
    """Return the error of an update beyond what rounding hides; None when shapes differ or a value is not finite.

    `held` are the parameters after a step as the optimizer holds them, in any precision; `before` and `expected` what
    they were and should be, in fp64. An element's error is what |held − expected| exceeds half a unit in the last place
    of `held`, and three roundings in fp32 of the parameter itself. The result is the root mean square of these errors
    over the elements with an error, relative to the expected change, or to the root mean square of all changes where an
    element's is smaller. (In bf16 an error of 0.1 % shows in few elements, those that nearly rounded the other way.)
    Parameters that should stay as they are have errors relative to their own size.
    """
    import torch

    if held.shape != before.shape:
        return None
    moves = bool(torch.any(before != expected))
    pairs = list(_chunks(held, before, expected))
    whole = sum(float(torch.sum(_scale(b, e, moves) ** 2)) for _, b, e in pairs)
    usual = math.sqrt(whole / held.numel()) if whole else 1.0
    wrong = size = 0.0
    for h, b, e in pairs:
        exact = h.to(e.device, torch.float64)
        error = ((exact - e).abs() - half_unit(exact, h.dtype) - _ROUNDINGS * b.abs()).clamp_min(0.0)
        wrong += float(torch.sum(error**2))
        size += float(torch.sum(_scale(b, e, moves)[error > 0].clamp_min(usual) ** 2))
    relative = math.sqrt(wrong / size) if size else wrong
    return relative if math.isfinite(relative) else None


def _chunks(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Pieces of tensors of one shape, of the same elements each."""
    flat = [tensor.detach().reshape(-1) for tensor in tensors]
    chunk = _CHUNK[flat[-1].device.type]
    for start in range(0, flat[0].numel(), chunk):
        yield tuple(tensor[start : start + chunk] for tensor in flat)


def _scale(before: torch.Tensor, expected: torch.Tensor, moves: bool) -> torch.Tensor:
    return (expected - before if moves else before).abs()


def half_unit(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Half a unit in the last place of `values` (fp64), as numbers of the precision `dtype`; 0 of 0."""
    import torch

    powers = (values.view(torch.int64) & _EXPONENT).view(torch.float64)  # of 2, the largest that are not above |value|
    return powers * (torch.finfo(dtype).eps / 2)


def judge(
    dtype: str,
    reference: str,
    found: FirstSteps,
    eager: FirstSteps,
    reference_losses: Sequence[float],
    samples: int = 1,
) -> Correctness:
    """The verdict on one backend from what it and eager found.

    `reference` is the precision of the reference, "fp64" or "fp32"; loss and gradients are sums over `samples`. Losses
    of steps that `reference_losses` lacks are held against eager's own.
    """
    floor = FLOOR[dtype] if reference == "fp64" else COARSE_FLOOR[dtype]
    summed = floor + rounding_of_a_sum(samples)
    checks = [
        _check(name, error, eager.errors.get(name), floor if _is_output(name) else summed, MOST.get(dtype, math.inf))
        for name, error in found.errors.items()
    ]
    checks += _update_checks(dtype, found, eager)
    losses = [*reference_losses, *eager.losses[len(reference_losses) :]] if reference_losses else []
    if losses:
        checks.append(_loss_check(dtype, found.losses, eager.losses, losses))
    checks += found.parts
    wrong = [c for c in checks if not c.ok]
    return Correctness(
        reference=f"eager in {reference}",
        ok=not wrong and not found.problems,
        checks=checks,
        reference_losses=losses,
        problems=[*found.problems, *_in_words(wrong)],
    )


def _update_checks(dtype: str, found: FirstSteps, eager: FirstSteps) -> list[Check]:
    """Eager's error counts where both optimizers compute in the same precision, and that of its worst tensor for all:
    an optimizer does the same with every tensor, and how much rounding hides of it is chance."""
    usual = HELD_IN.get(dtype, dtype)
    own = found.updates_in or usual
    worst = max((error for error in eager.updates.values() if error is not None), default=0.0)
    allowed = SLACK * max(UPDATE_FLOOR[own], worst if own == (eager.updates_in or usual) else 0.0)
    return [
        Check(name, error, allowed, eager.updates.get(name), error is not None and error <= allowed)
        for name, error in found.updates.items()
    ]


def rounding_of_a_sum(terms: int) -> float:
    """Return the relative error of adding `terms` numbers one after the other in fp32: √(n / 6) · 2⁻²⁴.

    Each addition is off by up to 2⁻²⁴ of the partial sum, evenly spread: 1/√3 of that in the root mean square. Partial
    sums grow as √k where signs are mixed, so that their squares add up to n/2 times that of the last: √(n / 2) · 1/√3.
    PyTorch's own sums add in a tree and are better; a compiled loop adds in order and is as right. Errors of
    independent roundings grow as their root mean square: Higham and Mary, A New Approach to Probabilistic Rounding
    Error Analysis, 2019.
    """
    return math.sqrt(terms / 6) * _ADDITION if terms > 1 else 0.0


def _check(name: str, error: float | None, eager_error: float | None, floor: float, most: float) -> Check:
    allowed = min(SLACK * max(eager_error or 0.0, floor), most)
    return Check(name, error, allowed, eager_error, error is not None and error <= allowed)


def _loss_check(
    dtype: str, losses: Sequence[float], eager_losses: Sequence[float], reference_losses: Sequence[float]
) -> Check:
    name = f"{_LOSSES} {len(reference_losses)} steps"
    eager_error = _worst(eager_losses, reference_losses)
    allowed = max(SLACK * (eager_error or 0.0), LOSS_FLOOR[dtype])
    error = _worst(losses, reference_losses)
    return Check(name, error, allowed, eager_error, error is not None and error <= allowed)


def losses_differ(verdict: Correctness) -> bool:
    """Return whether the losses of the first steps failed the check."""
    return any(check.name.startswith(_LOSSES) and not check.ok for check in verdict.checks)


def _worst(losses: Sequence[float], reference: Sequence[float]) -> float | None:
    """Largest relative difference; None when a loss is missing or not finite."""
    if len(losses) < len(reference) or not all(math.isfinite(v) for v in losses):
        return None
    return max(abs(a - r) / abs(r) if r else abs(a) for a, r in zip(losses, reference, strict=False))


def _in_words(wrong: Sequence[Check]) -> list[str]:
    """The worst three of the failed checks, as sentences."""
    ranked = sorted(wrong, key=lambda c: math.inf if c.error is None else c.error / c.allowed, reverse=True)
    sentences = [
        f"{c.name}: not comparable (missing, of another shape, or not finite)."
        if c.error is None
        else f"{c.name}: relative error {c.error:.2g}, allowed {c.allowed:.2g}."
        for c in ranked[:3]
    ]
    return sentences + ([f"{len(wrong) - 3} further tensors are wrong."] if len(wrong) > 3 else [])
