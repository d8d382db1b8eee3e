"""The file with the results of a check of a GPU: what was checked, of which files, and which have changed since."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.checking.judges import Check

CHECKED = (
    "perfkit/capture", "perfkit/backends", "perfkit/readers", "perfkit/kernels", "perfkit/workloads", "kernels",
    "workloads",
)  # fmt: skip


def digests(root: Path) -> dict[str, str]:
    """The digest of each file of the folders that a GPU check is about, by path from the repository's `root`."""
    files = (path for folder in CHECKED for path in sorted((root / folder).rglob("*")))
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in files
        if path.is_file() and "__pycache__" not in path.parts
    }


def changed_since(result: Mapping[str, Any], root: Path) -> list[str]:
    """Files that were added, changed or removed since `result` was written."""
    before, now = result["files"], digests(root)
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))


def write_result(
    file: Path, commit: str, only: Sequence[str], seconds: float, checks: Sequence[Check], root: Path
) -> None:
    """Write the checks, the machine they were made on, and the digests of what they were made of. Needs a GPU."""
    import torch

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True).stdout.split()
    result = {
        "commit": commit, "date": time.strftime("%Y-%m-%d"), "device": torch.cuda.get_device_name(),
        "driver": driver[0] if driver else "unknown", "torch": torch.__version__, "only": list(only),
        "seconds": round(seconds), "ok": all(check.ok for check in checks),
        "checks": [asdict(check) for check in checks], "files": digests(root),
    }  # fmt: skip
    file.write_text(json.dumps(result, indent=1) + "\n")


def commit_of_checkout(root: Path) -> str:
    """The commit that is checked out, with "+" where files differ from it; "unknown" without git."""
    try:
        head = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed else "")


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout.strip()
