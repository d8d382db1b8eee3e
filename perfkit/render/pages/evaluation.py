"""An evaluation as a page: losses or accuracies of the backends, and how the others' differ from the first one's."""

from __future__ import annotations

import math
from collections.abc import Iterator

from perfkit import units
from perfkit.evaluation.results import Accuracy, Evaluated, Evaluation, MeanLoss
from perfkit.render.cells import Cell, PageColumn, Table, clean, table, words
from perfkit.render.page import Page, Section


def page(found: Evaluation) -> Page:
    """The page of `perfkit eval`."""
    return Page(
        title=f"How well {clean(found.title)} predicts {clean(found.data)}",
        settings=[
            f"weights {clean(found.weights)}", found.device, found.dtype, f"B = {found.batch_size}",
            f"T = {found.sequence_length}",
        ],
        verdict=list(_verdict(found)),
        bad=found.bad,
        sections=[Section(table=made) for made in (_losses(found), _accuracies(found)) if made],
    )  # fmt: skip


def _verdict(found: Evaluation) -> Iterator[str]:
    first = found.backends[0]
    for backend in found.backends:
        if backend.reason:
            yield f"{backend.name} has no figure: {clean(backend.reason, 400)}"
        elif backend.loss:
            yield f"{backend.name}: val loss {backend.loss.mean.value:.6f}" + _compared(backend.loss, first.name)
        elif backend.accuracy:
            got = backend.accuracy
            yield f"{backend.name}: {got.right}/{got.questions} = {got.share.value:.6f}" + _agrees(got, first.name)


def _compared(loss: MeanLoss, first: str) -> str:
    above = loss.above
    if above is None:
        return "."
    if above.low <= 0 <= above.high:
        return f", no difference from {first} shown ({above.low:+.1e} to {above.high:+.1e})."
    word = "above" if above.value > 0 else "below"
    return f", {abs(above.value):.1e} {word} {first} ({above.low:+.1e} to {above.high:+.1e})."


def _agrees(got: Accuracy, first: str) -> str:
    if got.differs is None:
        return "."
    return f"; {got.differs} of its answers differ from {first}'s." if got.differs else f"; every answer is {first}'s."


def _losses(found: Evaluation) -> Table | None:
    rows = [(backend, backend.loss) for backend in found.backends if backend.loss]
    if not rows:
        return None
    return table(
        "Loss (nats a token)",
        _names([one for one, _ in rows]),
        _column("loss", [f"{loss.mean.value:.6f}" for _, loss in rows]),
        _column("95 % interval", [f"{loss.mean.low:.4f} to {loss.mean.high:.4f}" for _, loss in rows]),
        _column("perplexity", [_perplexity(loss.mean.value) for _, loss in rows]),
        _column("above the first", [f"{loss.above.value:+.1e}" if loss.above else "" for _, loss in rows]),
        _column("tokens", [f"{loss.tokens:,}" for _, loss in rows]),
        notes=["Intervals are over sequences (bootstrap); those of a difference pair the same sequences."],
    )


def _perplexity(loss: float) -> str:
    return f"{math.exp(loss):,.2f}" if loss < 700 else units.ABSENT


def _accuracies(found: Evaluation) -> Table | None:
    rows = [(backend, backend.accuracy) for backend in found.backends if backend.accuracy]
    if not rows:
        return None
    return table(
        "Accuracy",
        _names([one for one, _ in rows]),
        _column("right", [f"{got.right}/{got.questions}" for _, got in rows]),
        _column("accuracy", [f"{got.share.value:.6f}" for _, got in rows]),
        _column("95 % interval", [f"{got.share.low:.3f} to {got.share.high:.3f}" for _, got in rows]),
        _column("by the sum", [f"{got.right_by_sum / got.questions:.6f}" for _, got in rows]),
        notes=[
            "An answer is the ending with the lowest mean loss of its tokens (llm.c's rule, accuracy normalised by "
            "length); by the sum: with the lowest sum. Intervals: Wilson's."
        ],
    )


def _names(rows: list[Evaluated]) -> PageColumn:
    return words("backend", [row.name for row in rows], ["strong"] * len(rows), name=True)


def _column(header: str, cells: list[str]) -> PageColumn:
    return PageColumn(header, tuple(Cell(text) for text in cells))
