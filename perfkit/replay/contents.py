"""Other contents of a call's tensors: their values decide the time too, and a trace does not record them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

Values = Mapping[str, Any]  # name → value of a recipe

_SOFTMAX = ("aten::_softmax", "aten::softmax", "aten::_safe_softmax")


def zeros(values: Values) -> dict[str, Any]:
    """Return the values with zeros for every number that is not whole."""
    return {name: _zeros(value) for name, value in values.items()}


def _zeros(value: Any) -> Any:
    if isinstance(value, list):
        return [_zeros(one) for one in value]
    return torch.zeros_like(value) if _is_real(value) else value


def masked(operator: str, values: Values) -> dict[str, Any] | None:
    """Return the values of a softmax over square scores (… × T × T) with -inf above the diagonal; None of other calls.

    Exponentials that are 0 take longer: the scores of causal attention took 114 µs where normal numbers took 91 µs
    (48 × 1024 × 1024 in bf16 on an H100; with -10,000 in place of -inf 114 µs too).
    """
    if operator not in _SOFTMAX:
        return None
    scores = {name: value for name, value in values.items() if _is_real(value) and _is_square(value)}
    return {**values, **{name: _causal(value) for name, value in scores.items()}} if scores else None


def _is_real(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _is_square(scores: torch.Tensor) -> bool:
    return scores.dim() >= 2 and scores.shape[-1] == scores.shape[-2] > 1


def _causal(scores: torch.Tensor) -> torch.Tensor:
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(hidden, float("-inf"))
