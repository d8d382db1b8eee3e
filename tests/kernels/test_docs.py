"""The example of docs/kernels.md works as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```(python|c)\n(.*?)```", (ROOT / "docs" / "kernels.md").read_text(), re.DOTALL)
    (declaration, source, use) = blocks
    assert [kind for kind, _ in blocks] == ["python", "c", "python"]
    folder = tmp_path / "my_kernels" / "square"
    folder.mkdir(parents=True)
    (folder / "square.py").write_text(declaration[1])
    (folder / "square.c").write_text(source[1])
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", use[1]], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "perfkit::square_forward version 1 in bf16 (N=1000" in done.stdout
    assert done.stdout.strip().endswith("tensor([2., 4., 6.])")
