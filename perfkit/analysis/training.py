"""Results of a training log: the losses, and OpenAI's GPT-2 models for comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

Values = list[tuple[int, float]]

VALIDATION, ACCURACY, LOSS, RATE, NORM = "tel", "eval", "trl", "lr", "norm"
NAMES = {
    VALIDATION: "validation loss",
    ACCURACY: "HellaSwag accuracy",
    LOSS: "training loss",
    RATE: "learning rate",
    NORM: "gradient norm",
}

# OpenAI's checkpoints as llm.c measures them: validation loss on FineWeb, accuracy on HellaSwag.
BASELINES = {
    "124M": (3.424958, 0.294463),
    "350M": (3.083089, 0.375224),
    "774M": (3.000580, 0.431986),
    "1558M": (2.831273, 0.488946),
}


class TrainingCurve(msgspec.Struct, kw_only=True):
    """One quantity: its name, the values by rising step, the best (least loss, greatest accuracy), and bad steps."""

    quantity: str
    name: str
    values: Values
    first: float
    last: float
    best: float | None
    best_step: int | None
    not_finite: list[int] = []


class Baseline(msgspec.Struct, kw_only=True):
    """A model of OpenAI's: its figures, and the first step at which the log is at least as good; None: not reached."""

    model: str
    validation: float
    accuracy: float
    validation_step: int | None
    accuracy_step: int | None


class Training(msgspec.Struct, kw_only=True):
    """A training log, summed up."""

    title: str
    steps: tuple[int, int]
    quantities: list[TrainingCurve]
    baselines: list[Baseline]
    warnings: list[str] = []


def summarise(title: str, series: Mapping[str, Values], warnings: Sequence[str] = ()) -> Training:
    """Sum up `series` (quantity → (step, value) by rising step). Raises `ValueError` when there is nothing."""
    steps = [step for values in series.values() for step, _ in values]
    if not steps:
        raise ValueError("a training log without values")
    quantities = [_summary(q, list(series[q])) for q in NAMES if series.get(q)]
    bad = [
        f"{s.name} is not a finite number at {len(s.not_finite)} of {len(s.values)} steps, first at {s.not_finite[0]}"
        for s in quantities
        if s.not_finite
    ]
    return Training(
        title=title,
        steps=(min(steps), max(steps)),
        quantities=quantities,
        baselines=[_baseline(model, series) for model in BASELINES],
        warnings=[*warnings, *bad],
    )


def _summary(quantity: str, values: Values) -> TrainingCurve:
    finite = [(step, value) for step, value in values if math.isfinite(value)]
    best = None
    if finite and quantity in (VALIDATION, LOSS, ACCURACY):
        best = (max if quantity == ACCURACY else min)(finite, key=lambda pair: pair[1])
    return TrainingCurve(
        quantity=quantity,
        name=NAMES[quantity],
        values=values,
        first=values[0][1],
        last=values[-1][1],
        best=best[1] if best else None,
        best_step=best[0] if best else None,
        not_finite=[step for step, value in values if not math.isfinite(value)],
    )


def _baseline(model: str, series: Mapping[str, Values]) -> Baseline:
    validation, accuracy = BASELINES[model]
    return Baseline(
        model=model,
        validation=validation,
        accuracy=accuracy,
        validation_step=next((step for step, v in series.get(VALIDATION, []) if v <= validation), None),
        accuracy_step=next((step for step, v in series.get(ACCURACY, []) if v >= accuracy), None),
    )
