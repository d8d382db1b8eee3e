"""The packages and content files of the distribution, found by looking into the folders.

`kernels/`, `workloads/` and `reports/` travel inside the package as data (`perfkit.content.kernels` and so on), so
nothing generic lands in site-packages. Everything else about the project is in pyproject.toml.
"""

from __future__ import annotations

import glob
from pathlib import Path

from setuptools import find_namespace_packages, setup

ROOT = Path(__file__).parent
CONTENT = ("kernels", "workloads", "reports")
LEFT_OUT = ("__pycache__",)


def content_files(kind: str) -> list[str]:
    """Every file under a content folder, sources and templates in subfolders included, as setuptools patterns."""
    folder = ROOT / kind
    names = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    kept = [name for name in names if not any(part in LEFT_OUT or part.startswith(".") for part in name.parts)]
    return [glob.escape(name.as_posix()) for name in kept]


kinds = [kind for kind in CONTENT if (ROOT / kind).is_dir()]
setup(
    packages=[
        *find_namespace_packages(include=["perfkit", "perfkit.*"]),
        *(f"perfkit.content.{kind}" for kind in kinds),
    ],
    package_dir={f"perfkit.content.{kind}": kind for kind in kinds},
    package_data={"": ["*"], **{f"perfkit.content.{kind}": content_files(kind) for kind in kinds}},
    exclude_package_data={"": ["*.pyc", "*.pyo"]},
)
