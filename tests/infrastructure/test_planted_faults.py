"""The faults of tools/plant_faults.py can be planted, their tests are there, and CONTRIBUTING lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.plant_faults import FAULTS, Fault, planted

ROOT = Path(__file__).resolve().parents[2]
each = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.words)


@each
def test_it_can_be_planted(fault: Fault) -> None:
    """Its text stands once in its file; planting it, and that its test fails then, is the tool's."""
    text = (ROOT / fault.file).read_text(encoding="utf-8")
    assert planted(text, fault) != text


@each
def test_its_test_is_there(fault: Fault) -> None:
    file, _, name = fault.test.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8") if name else (ROOT / file).is_file()


def test_contributing_lists_each_with_its_test() -> None:
    lines = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()
    listed = [line for line in lines if line.startswith("| ") and "`tests/" in line and line.count("|") == 4]
    assert listed == [f"| {f.room} | {f.words} | `{f.test.partition('::')[0]}` |" for f in FAULTS]


def test_a_source_that_changed_is_said() -> None:
    with pytest.raises(ValueError, match=r"holds 'not there' 0 times: correct FAULTS"):
        planted("text", Fault("cost", "", "cost.py", "not there", "", ""))
