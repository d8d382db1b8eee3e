"""The front end's pure parts, tested in JavaScript (units.test.mjs), without a browser."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def test_units_in_node() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    tests = Path(__file__).parent / "units.test.mjs"
    done = subprocess.run([node, "--test", tests], capture_output=True, encoding="utf-8", timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
