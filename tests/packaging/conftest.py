"""Shared parts of the packaging tests: a copy of the checkout, and the distributions built from it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TREE = ("perfkit", "kernels", "workloads", "reports", "examples", "tests", "tools", "docs", "benchmarks")


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    """A copy of the tree without its caches, with one file of each kind and depth that content may have."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in TREE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.got"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, copy)
    for suffix in ("c", "cu", "py", "html", "css", "js", "toml", "md"):
        for folder in ("kernels/family", "workloads/deep/er", "reports/odd-name.v1[a]"):
            (copy / folder).mkdir(parents=True, exist_ok=True)
            (copy / folder / f"sample.{suffix}").write_text("\n")
    return copy


@pytest.fixture(scope="session")
def distributions(checkout):
    """The sdist and the wheel built from it, as `python -m build` makes them."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (sdist,) = (checkout / "dist").glob("*.tar.gz")
    (wheel,) = (checkout / "dist").glob("*.whl")
    return sdist, wheel
