"""Content files import only perfkit's public names: what a user's own file may rely on."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path for kind in ("kernels", "workloads", "reports") for path in (ROOT / kind).rglob("*.py"))
PUBLIC = {"cost", "errors", "functional", "handwritten", "kernels", "ranges", "run_folder", "units", "workloads"}


def perfkit_imports(source: str) -> set[str]:
    """The dotted names that a file imports from perfkit, such as `perfkit.workloads.Workload`."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "content is loaded by path: relative imports do not work"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.split(".")[0] == "perfkit"}


def test_imports_are_found():
    source = "import torch\nimport perfkit.cost\ndef f():\n    from perfkit.run import worker\n"
    assert perfkit_imports(source) == {"perfkit.cost", "perfkit.run.worker"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_only_public_names_are_imported(path):
    imported = perfkit_imports(path.read_text(encoding="utf-8"))
    private = {name for name in imported if any(part.startswith("_") for part in name.split("."))}
    assert not private
    assert {name.split(".")[1] for name in imported} <= PUBLIC
