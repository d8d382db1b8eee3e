"""The example of docs/writing-a-backend.md, run as it stands there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perfkit import backends
from tests.support import forks
from tests.support.docs.commands import blocks, example_files

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "writing-a-backend.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    for name, text in example_files(PAGE).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_the_example_runs_as_the_page_says(folder):
    code = next(b for b in blocks(PAGE) if b.language == "python" and b.lines[0].startswith("from perfkit"))
    done = forks.run([sys.executable, "-c", "\n".join(code.lines)], cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tensor(6.")


@pytest.mark.slow
def test_the_example_backend_agrees_with_fp64(folder, bench, fresh_dynamo):
    from tests.backends.conftest import errors, worst

    b = bench(grad_accumulation=2)
    backend = backends.get(str(folder / "my_backend.py"))
    assert backend.unavailable(b.settings) is None
    program = backend.prepare(b.workload, b.workload.build(b.settings), b.settings)
    assert worst(errors(b.step(program), b.reference())) < 1e-5
    assert "recompute" in backend.unavailable(bench(recompute=True).settings)
