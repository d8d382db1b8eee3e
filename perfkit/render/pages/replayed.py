"""An operator of a trace that was run again: what the trace says of it, and how its arguments were rebuilt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from perfkit import units
from perfkit.render.cells import Cell, PageColumn, clean, figures, table, words
from perfkit.render.page import Section

if TYPE_CHECKING:
    from perfkit.bench.results import Bench, RecordedCalls

_NAMED = 3  # kernels of a call


def sections(bench: Bench) -> Iterator[Section]:
    """The time in the trace, and the arguments."""
    said = bench.recorded
    if said is None:
        return
    if said.ns:
        scale = units.scale_for([said.ns.value], "ns")
        yield Section(
            table=table(
                "In the trace",
                words("recorded on", [clean(said.device, 60)], ["strong"], name=True),
                figures("one call", [said.ns.value], "ns", scale=scale),
                PageColumn("95 % CI", (Cell(scale.span(said.ns.low, said.ns.high), "dim"),), scale.suffix),
                figures("calls", [said.ns.n], "count"),
                words("module", [clean(said.module, 60) or units.ABSENT], priority=2),
                words("pass", [clean(said.pass_name, 30) or units.ABSENT], priority=3),
                notes=_notes(said),
            )
        )
    yield Section(
        table=table(
            "Arguments",
            words("argument", [clean(argument.name, 40) for argument in said.arguments], name=True),
            words("recorded", [clean(argument.text, 200) for argument in said.arguments]),
            words("filled with", [argument.filled for argument in said.arguments], ["dim"] * len(said.arguments)),
            notes=[clean(text, 300) for text in said.stated],
        )
    )


def comparison(bench: Bench) -> Iterator[str]:
    """A sentence about the trace's time next to the same operator here, or why the two do not compare."""
    said = bench.recorded
    if said is None or said.ns is None:
        return
    time = units.text(said.ns.value, "ns")
    if not said.comparable:
        yield f"The trace has {time} for one call on {clean(said.device, 60)}, another device: the two do not compare."
        return
    own = next((row for point in bench.points for row in point.rows if row.way == "pytorch" and row.of_trace), None)
    if own is not None and own.of_trace is not None:
        ratio = own.of_trace
        span = f"{ratio.value:.2f}× ({ratio.low:.2f}–{ratio.high:.2f})"
        yield f"The trace has {time} for one call: {span} of PyTorch's own operator here, on the same kind of device."
    if said.zeros is not None:
        zeros = units.text(said.zeros.value, "ns")
        yield f"With zeros for all values it takes {zeros} here: the clock follows the power, and the power the values."
    if said.masked is not None:
        masked = units.text(said.masked.value, "ns")
        yield f"With -inf above the diagonal it takes {masked} here: exponentials that are 0 take longer."


def _notes(said: RecordedCalls) -> list[str]:
    notes = []
    if said.kernels:
        more = f" and {len(said.kernels) - _NAMED} more" if len(said.kernels) > _NAMED else ""
        shown = ", ".join(clean(units.cropped(name, 70), 80) for name in said.kernels[:_NAMED])
        notes.append(f"One call is the time of all kernels that it launched: {shown}{more}.")
    if said.others:
        kinds = "1 more kind of call" if said.others == 1 else f"{said.others} more kinds of calls"
        notes.append(f"{kinds} with other arguments took less time together.")
    return notes
