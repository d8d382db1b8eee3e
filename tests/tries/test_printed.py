"""The losses that programs print, and what becomes of them after a change."""

from __future__ import annotations

import pytest

from perfkit.tries.printed import RIGHT, UNKNOWN, WRONG, check, series_of

FORMS = {
    "step 10 loss 3.2104": {(("loss",), ("step", "10")): 3.2104},
    "Epoch 2, step 5/100 | train_loss: 1.5e-2, lr 0.1": {(("train_loss",), ("epoch", "2"), ("step", "5")): 0.015},
    "{'loss': 3.21, 'epoch': 2}": {(("loss",), ("epoch", "2")): 3.21},
    "loss=tensor(0.5000, grad_fn=<X>)": {(("loss",), ("0",)): 0.5},
    "Loss at step 3: 2.1": {(("loss",), ("step", "3")): 2.1},
    "s:250 trl:5.8123 lr:1e-4": {(("trl",), ("s", "250")): 5.8123},
    "loss: nan": {(("loss",), ("0",)): float("nan")},
    "lossless mode, 3 files": {},
    "loss 3d": {},
    "no losses yet": {},
}


@pytest.mark.parametrize("text", FORMS)
def test_forms_of_a_line(text: str) -> None:
    found = {place: value for place, (value, _) in series_of(text).items()}
    assert found == pytest.approx(FORMS[text], nan_ok=True)


def test_losses_without_steps_are_told_apart_by_their_order() -> None:
    found = series_of("loss 3\nloss 2\nval loss 5\n")
    assert [value for value, _ in found.values()] == [3, 2, 5]


def _lines(*values: float, digits: int = 6, every: int = 1) -> str:
    return "\n".join(f"step {i} loss {v:.{digits}f}" for i, v in enumerate(values) if i % every == 0)


def _status(before: list[str], after: list[str], allowed: float = 3e-4) -> str:
    return check([series_of(text) for text in before], [series_of(text) for text in after], allowed).status


SERIES = (3.0, 2.5, 2.2, 2.0)
OFF = (3.0, 2.5, 2.2, 2.01)


def test_what_becomes_of_losses() -> None:
    same, off = _lines(*SERIES), _lines(*OFF)
    assert _status([same], [same]) == RIGHT
    assert _status([same, same], [same, off]) == WRONG
    assert _status([same, off], [off]) == UNKNOWN  # they differ before the change already
    assert _status([same], [_lines(*SERIES, every=2)]) == RIGHT  # fewer are printed
    assert _status([_lines(*SERIES, digits=1)], [_lines(*OFF, digits=1)]) == RIGHT  # as far as it is printed
    assert _status([same], [same.replace("2.000000", "nan")]) == WRONG
    assert _status([same.replace("2.000000", "nan")], [same]) == UNKNOWN
    assert _status([same], [off], allowed=0.01) == RIGHT


def test_what_cannot_be_compared() -> None:
    assert _status(["nothing"], [_lines(*SERIES)]) == UNKNOWN
    assert _status([_lines(*SERIES)], ["nothing"]) == UNKNOWN
    assert _status(["loss 3\nloss 2"], ["loss 3"]) == UNKNOWN  # which of them is it?


def test_the_worst_difference_is_named() -> None:
    found = check([series_of(_lines(*SERIES))] * 2, [series_of(_lines(*OFF))], 3e-4)
    assert found.why == "loss step 3: 2 before, 2.01 after"
    assert found.error == pytest.approx(0.005, rel=1e-3) and found.count == 4
