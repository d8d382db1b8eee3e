"""The continuous integration's own rules: which skips are allowed, and how a session is counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.skips import ALLOWED, not_allowed, read_allowed

ROOT = Path(__file__).resolve().parents[2]


def test_patterns_match_node_ids_and_brackets_are_literal():
    allowed = read_allowed("# why\n\ntests/gpu/*: no GPU there\ntests/a.py::test_b[cuda]: no GPU there\n")
    nodes = ["tests/gpu/test_x.py::test_y", "tests/a.py::test_b[cuda]", "tests/a.py::test_b[c]", "tests/a.py::test_c"]
    assert not_allowed(nodes, allowed) == ["tests/a.py::test_b[c]", "tests/a.py::test_c"]


def test_a_skip_without_a_reason_is_refused():
    with pytest.raises(ValueError, match="line 1"):
        read_allowed("tests/gpu/*:\n")


def test_the_list_itself_is_well_formed():
    for pattern in read_allowed(ALLOWED.read_text(encoding="utf-8")):
        assert (ROOT / pattern.partition("::")[0].partition("*")[0]).exists(), pattern


@pytest.mark.parametrize(("strict", "code"), [("0", 0), ("1", 1)])
def test_a_skip_that_is_not_listed_fails_a_strict_session(tmp_path, strict, code):
    (tmp_path / "test_it.py").write_text(
        "import pytest\ndef test_a(): assert True\n@pytest.mark.skip(reason='x')\ndef test_b(): pass\n"
    )
    counts = tmp_path / "counts"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.support.skips",
        "-q",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    variables = {"PYTHONPATH": str(ROOT), "PERFKIT_STRICT_SKIPS": strict, "PERFKIT_TEST_COUNTS": str(counts)}
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **variables}, capture_output=True, text=True)
    assert done.returncode == code, done.stdout
    assert counts.read_text() == "1 passed, 0 failed, 1 skipped\n"
    assert ("not in tests/allowed_skips.txt: test_it.py::test_b" in done.stdout) == (strict == "1")
