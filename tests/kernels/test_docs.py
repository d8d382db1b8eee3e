"""The example of docs/kernels.md works as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import forks

ROOT = Path(__file__).parents[2]


def blocks_of(section: str) -> list[tuple[str, str]]:
    """The language and the text of each block of code in a section of the page."""
    page = (ROOT / "docs" / "kernels.md").read_text()
    (text,) = [part for part in page.split("\n## ") if part.startswith(section + "\n")]
    return re.findall(r"```(python|c)\n(.*?)```", text, re.DOTALL)


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    blocks = blocks_of("Adding one")
    (declaration, source, use) = blocks
    assert [kind for kind, _ in blocks] == ["python", "c", "python"]
    folder = tmp_path / "my_kernels" / "square"
    folder.mkdir(parents=True)
    (folder / "square.py").write_text(declaration[1])
    (folder / "square.c").write_text(source[1])
    done = forks.run([sys.executable, "-c", use[1]], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "perfkit::square_forward version 1 in bf16 (N=1000" in done.stdout
    assert done.stdout.strip().endswith("tensor([2., 4., 6.])")


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_example_in_triton_runs(tmp_path: Path) -> None:
    (_, declaration), *_ = blocks_of("Adding one")
    (_, source), (_, line) = blocks_of("A version in Triton")
    folder = tmp_path / "my_kernels" / "square"
    folder.mkdir(parents=True)
    in_c = 'Implementation(1, "c", "square.c", "square_forward", "a loop"),'
    assert in_c in declaration
    (folder / "square.py").write_text(declaration.replace(in_c, f"{in_c} {line.strip()},"))
    (folder / "square.c").write_text("")
    (folder / "square_triton.py").write_text(source)
    program = (
        "from perfkit.kernels import check\n"
        "for dtype in ('fp32', 'bf16'):\n"
        "    for result in check('square_forward', dtype=dtype, extra_dirs=['my_kernels'], language='triton'):\n"
        "        print(result.require())"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "perfkit::square_forward version 1 in triton in bf16 (N=1000" in done.stdout
