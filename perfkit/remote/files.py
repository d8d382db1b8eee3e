"""Files to send: those of the working folder, and perfkit's own."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import IO, Any

from perfkit.errors import UsageError
from perfkit.remote.bootstrap import fingerprint
from perfkit.remote.environment import name_of
from perfkit.run_folder import MANIFEST

# Files that a program leaves or that can be made again: never sent unless git tracks them.
JUNK = (
    ".git", ".hg", ".venv", "venv", "__pycache__", "node_modules", "runs", ".mypy_cache", ".pytest_cache",
    ".ruff_cache", ".tox", ".ipynb_checkpoints", ".DS_Store",
)  # fmt: skip
LARGEST = 1_000_000_000  # bytes of a working folder: more is data, or the wrong folder
# Beside perfkit's own requirements: small, and a GPU's clocks and a machine's memory are unknown without them.
_BESIDES = ("nvtx", "psutil", "nvidia-ml-py")


def working(folder: Path) -> dict[str, str]:
    """Path → fingerprint of each file to send: what git tracks, and what it neither tracks nor ignores; of a folder
    that is not a checkout everything but `JUNK`. Run folders stay here. Raises `UsageError` for more than `LARGEST`."""
    found = [path for path in _of_git(folder) or _of_folder(folder) if _is_sent(folder / path)]
    size = sum((folder / path).lstat().st_size for path in found)
    if size > LARGEST:
        raise UsageError(
            f"{folder} holds {size / 1e9:.1f} GB in {len(found)} files to send.",
            "Let git ignore the data, or work in the program's own folder.",
        )
    return {path: fingerprint(folder / path) for path in found}


def _is_sent(path: Path) -> bool:
    return path.is_symlink() or path.is_file()


def _of_git(folder: Path, within: str = "") -> list[str]:
    """Return the paths that git knows below `folder`, in inner checkouts too; [] where it is not a checkout."""
    tracked = _git(folder, "--cached")
    others = _git(folder, "--others", "--exclude-standard")
    runs = {path.rpartition("/")[0] for path in others if path.endswith(f"/{MANIFEST}")}
    others = [p for p in others if not set(p.split("/")) & set(JUNK) and runs.isdisjoint(_above(p))]
    found = []
    for path in dict.fromkeys([*tracked, *others]):
        if (folder / path / ".git").exists():  # a submodule, or a checkout inside this one
            found += _of_git(folder / path, f"{within}{path.rstrip('/')}/")
        else:
            found.append(within + path)
    return found


def _above(path: str) -> set[str]:
    return {str(folder) for folder in PurePosixPath(path).parents}


def _git(folder: Path, *which: str) -> list[str]:
    try:
        done = subprocess.run(
            ["git", "ls-files", "-z", *which], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except OSError:  # git is missing
        return []
    return [os.fsdecode(path) for path in done.stdout.split(b"\0") if path]


def _of_folder(folder: Path) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        here = Path(place)
        if MANIFEST in names and here != folder:
            folders.clear()
            continue
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = sorted(name for name in folders if name not in JUNK)
        for name in sorted([*names, *links]):
            if name not in JUNK and not name.endswith(".pyc"):
                yield (here / name).relative_to(folder).as_posix()


def engine() -> dict[str, Path]:
    """Path → file of the perfkit that runs here, laid out as a wheel lays it out."""
    import perfkit
    from perfkit.content import KINDS, content_dir

    package = Path(perfkit.__file__).resolve().parent
    trees = {"perfkit": package, **{f"perfkit/content/{kind}": content_dir(kind) for kind in KINDS}}
    return {
        f"{prefix}/{path.relative_to(tree).as_posix()}": path
        for prefix, tree in trees.items()
        for path in sorted(tree.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def digest(files: Mapping[str, Path]) -> str:
    """Twelve hex digits of the names and contents of files."""
    whole = hashlib.sha256()
    for name, path in files.items():
        whole.update(f"{name}\0{fingerprint(path)}\n".encode())
    return whole.hexdigest()[:12]


def requirements() -> list[str]:
    """Return perfkit's requirements there besides torch, as its own installation lists them."""
    try:
        said = metadata.requires("perfkit") or []
    except metadata.PackageNotFoundError:
        raise UsageError("This perfkit is not installed.", "Install it: pip install .") from None
    pairs = [(text.partition(";")[0].strip(), text.partition(";")[2]) for text in said]
    return [text for text, marker in pairs if "extra" not in marker or name_of(text) in _BESIDES]


def pack(file: IO[bytes], order: Mapping[str, Any], members: Mapping[str, Path]) -> None:
    """Write `order`, then each member's file, as the stream that `bootstrap.receive` unpacks."""
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as packed:
        text = json.dumps(order).encode()
        head = tarfile.TarInfo("order.json")
        head.size = len(text)
        packed.addfile(head, io.BytesIO(text))
        for name, path in members.items():
            packed.add(path, name, recursive=False)
