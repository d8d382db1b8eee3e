"""`tools/torch_versions.py`: what pytest said becomes a row, and which rows are from other sources than these."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from perfkit import tested
from tools import torch_versions
from tools.pages import versions

PRINTED = """
tests/a/test_x.py:12: AssertionError
=========================== short test summary info ============================
FAILED tests/a/test_x.py::test_one[a - b] - assert 1 == 2
FAILED tests/a/test_x.py::test_two
ERROR tests/a/test_y.py - ModuleNotFoundError: No module named 'x'
2 failed, 5 passed, 1 skipped, 1 error in 3.21s
"""


def test_which_rows_are_of_other_sources() -> None:
    """Prints, and never fails: an environment takes gigabytes, and its tests an hour."""
    now = torch_versions.sources()
    rows = tested.read()
    assert rows and all(row.groups for row in rows)
    old = [f"{row.torch} on {row.python}" for row in rows if any(g.sources != now for g in row.groups.values())]
    if old:
        warnings.warn(f"changed since python -m tools.torch_versions: {', '.join(old)}", stacklevel=1)


def test_every_test_file_is_in_one_group() -> None:
    found = [name for group in torch_versions.GROUPS for name in torch_versions.files(group)]
    assert len(found) == len(set(found))
    assert all(torch_versions.files(group) for group in torch_versions.GROUPS)
    assert {"tests/backends/test_thunder.py", "tests/capture/agent/test_programs.py"} <= {*found}


def test_the_outcome_of_a_session() -> None:
    found = torch_versions.outcome(PRINTED, "5 passed, 3 failed, 1 skipped\n")
    assert (found.passed, found.skipped) == (5, 1)
    assert found.failed == ("tests/a/test_x.py::test_one[a - b]", "tests/a/test_x.py::test_two", "tests/a/test_y.py")
    with pytest.raises(ValueError, match="nothing is kept"):
        torch_versions.outcome(PRINTED, "")


def outcome(*failed: str, date: str = "2026-11-01") -> tested.Outcome:
    return tested.Outcome(passed=7, skipped=0, failed=failed, date=date, sources="")


def test_a_group_replaces_what_the_environment_gave_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tested.json"
    torch_versions.keep("2.14.0", "3.11.7", {"cost": outcome("t.py::a"), "kernels": outcome()}, file)
    torch_versions.keep("2.14.1", "3.11.7", {"cost": outcome(date="2026-11-09")}, file)
    torch_versions.keep("2.9.1", "3.12.1", {"cost": outcome("t.py::b")}, file)
    rows = tested.read(file)
    assert [(row.torch, row.python, sorted(row.groups)) for row in rows] == [
        ("2.9.1", "3.12.1", ["cost"]),
        ("2.14.1", "3.11.7", ["cost", "kernels"]),
    ]
    monkeypatch.setattr(versions, "read", lambda: rows)
    table = versions.markdown()
    assert "| 2.14.1 | 3.11.7 | – | – | – | – | – | – | 7 pass | 7 pass | 2026-11-01 |" in table
    assert "torch 2.9.1, Python 3.12.1, failed:\n\n- `t.py::b`" in table
