"""`benchmarks/optimizer_faults.py`: an error of 0.1 % in any term of AdamW is found, in C and in Triton."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import optimizer_faults
from benchmarks.optimizer_faults import FAULTS, HIDDEN, NONE, SOURCES, Outcome, outcomes, plant


def of(found: list[Outcome], check: str) -> dict[tuple[str, str], bool]:
    return {(o.fault, o.dtype): o.found for o in found if o.check == check}


ALL = {(fault, dtype): fault != NONE for fault in [NONE, *FAULTS] for dtype in optimizer_faults.DTYPES}


@pytest.mark.full
def test_every_error_in_c_is_found_by_the_kernels_check_and_in_a_run() -> None:
    found = outcomes("c", "cpu")
    assert of(found, "kernel") == ALL
    assert of(found, "run") == ALL
    visible = {key: wrong for key, wrong in ALL.items() if key[0] not in HIDDEN}
    assert of(found, "update").items() >= visible.items()
    assert all(o.right for o in found)
    assert all(o.error > 10 * o.allowed for o in found if o.fault not in (NONE, *HIDDEN))


@pytest.mark.full
def test_every_error_in_triton_is_found_by_the_kernels_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    found = outcomes("triton", "cpu")
    assert of(found, "kernel") == ALL
    assert {o.check for o in found} == {"kernel"}


@pytest.mark.parametrize("language", sorted(SOURCES))
def test_every_error_can_be_planted_and_changes_the_source(language: str, tmp_path: Path) -> None:
    texts = set()
    for number, fault in enumerate([NONE, *FAULTS]):
        folder = plant(tmp_path / str(number), fault, language)
        texts.add((folder / "adamw" / SOURCES[language]).read_text())
    assert len(texts) == 1 + len(FAULTS)


def test_a_source_that_changed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAULTS, "epsilon", {"c": ("not there", "")})
    with pytest.raises(ValueError, match=r"adamw\.c holds 'not there' 0 times"):
        plant(tmp_path / "one", "epsilon", "c")
