"""The time of a step in fp8 that makes its numbers: scales, casts and transposes in front of the products."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit import units
from perfkit.analysis.report.aggregate import LabelledRows

# Operators of a linear layer that are there in any precision: its products, and the gradient of its bias.
ALWAYS = ("linear", "sum")


def said(rows: LabelledRows, layers: Sequence[str]) -> list[str]:
    """The sentence on it, of the `layers` (module paths) that multiply fp8: all of their kernels but products and sums.

    Of a fused kernel the share of these layers counts. Nothing without layers, or where no kernel is placed in them.
    """
    lines = rows.places.lines
    inside = lines["module"].isin(list(layers)).to_numpy(bool)
    if not inside.any():
        return []
    product = lines["operator"].isin(ALWAYS).to_numpy(bool)
    times = rows.time_of_lines
    made, multiplied = (float(times[inside & part].sum()) / rows.steps for part in (~product, product))
    whole = rows.total_ns / rows.steps
    return [
        f"scales, casts and transposes of fp8 take {units.text(made, 'ns')} a step, {made / whole:.1%} of the kernel "
        f"time; the products that they are for take {units.text(multiplied, 'ns')}"
    ]
