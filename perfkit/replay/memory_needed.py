"""Memory that a replay takes on a CPU, where too much of it ends the process, or another one, without a word."""

from __future__ import annotations

import torch

from perfkit.errors import RunFailed
from perfkit.replay import fitting, rebuilt
from perfkit.replay.rebuilt import Recipe
from perfkit.units import text

_WIDE = 8  # bytes of an element in fp64


def require(recipe: Recipe, available: float | None) -> None:
    """Raise `RunFailed` where checking the call against fp64 takes more than the `available` bytes (None: unknown)."""
    if available is None or (least := least_bytes(recipe)) <= available:
        return
    raise RunFailed(
        f"{recipe['operator']} with these shapes takes at least {text(least, 'B')} to be checked against fp64, and "
        f"{text(available, 'B')} are free.",
        "Choose another with --kernel or --operator, or a machine with more memory.",
    )


def least_bytes(recipe: Recipe) -> float:
    """Return the least that a checked replay holds at one time: inputs, results of two calls, and all of it in fp64
    with the difference. A softmax of 101 million elements in bf16 peaked at 7.3 GB; this says 3.8."""
    recipe = fitting.without_forward(recipe)
    given = rebuilt.Maker("meta", 0).arguments(recipe)
    inputs = [one for value in given.values() for one in (value if isinstance(value, list) else [value])]
    inputs = [one for one in inputs if isinstance(one, torch.Tensor)]
    try:
        results = list(rebuilt.outputs(recipe, given).values())
    except (RuntimeError, NotImplementedError, ValueError, TypeError):
        results = []  # not every operator computes shapes alone
    return float(
        sum(one.numel() * (one.itemsize + _WIDE) for one in inputs)
        + sum(result.numel() * (2 * result.itemsize + 3 * _WIDE) for result in results)
    )
