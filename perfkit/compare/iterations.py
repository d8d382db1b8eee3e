"""The iterations of a side that is a serving engine's, by its profiled steps."""

from __future__ import annotations

import dataclasses

import numpy as np

from perfkit.compare.sides import STEP, Side, Values
from perfkit.engines import Iteration, iteration_of

ITERATION = "iteration"


def iterations(side: Side) -> dict[int, Iteration]:
    """Return what each profiled step served, by its number; none of a side whose steps are no iterations."""
    names = (side.table.facts.get("step_names") or []) if side.table is not None else []
    found = ((number, iteration_of(name)) for number, name in enumerate(names))
    return {number: one for number, one in found if one is not None}


def of_phase(side: Side, values: Values, phase: str) -> Values:
    """Return of values by profiled step those of the iterations of `phase`; of other sides, and passes, all."""
    served = iterations(side)
    if side.frame is None or values.unit != STEP or phase not in {one.phase for one in served.values()}:
        return values
    steps = np.unique(side.frame["step"].dropna().to_numpy(np.int64)).tolist()
    kept = [v for step, v in zip(steps, values.values, strict=True) if step in served and served[step].phase == phase]
    return dataclasses.replace(values, values=kept, unit=ITERATION)
