"""The environment there in which perfkit runs: it sees every package of the Python that was chosen, and takes what
perfkit needs besides. The user's program runs in the chosen Python itself, with nothing added.

Standard library only: this runs before perfkit can."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import site
import subprocess
import sys
import venv
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from perfkit.errors import Unavailable

_WHOLE = "whole"  # a file in an environment that has all its parts
_PROGRAM = "program"  # a folder in it with a `python` that is the chosen one


def folder(root: Path) -> Path:
    """The environment of the Python that runs this, made where it is missing."""
    key = hashlib.sha256(f"{sys.executable} {sys.version}".encode()).hexdigest()[:12]
    place = root / "env" / key
    if not (place / _WHOLE).exists():
        shutil.rmtree(place, ignore_errors=True)
        venv.EnvBuilder(symlinks=True).create(place)
        seen = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
        lines = "".join(f"import site; site.addsitedir({path!r})\n" for path in seen)
        (_packages(place) / "perfkit.pth").write_text(lines)
        _name_program(place / _PROGRAM)
        (place / _WHOLE).touch()
    return place


def python(place: Path) -> str:
    """The interpreter of an environment."""
    return str(place / "bin" / "python")


def variables(place: Path, engine: Path) -> dict[str, str]:
    """This process's environment with perfkit importable, and with `python` being the one that was chosen."""
    path, own = os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)
    folders = [str(place / _PROGRAM), *([] if own in path.split(os.pathsep) else [own]), path]
    paths = [str(engine), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PATH": os.pathsep.join(folders), "PYTHONPATH": os.pathsep.join(paths)}


def lacking(place: Path, requirements: Sequence[str]) -> list[str]:
    """Return the `requirements` that the environment does not meet, such as "NAME>=VERSION,<VERSION"."""
    places = [str(_packages(place)), *sys.path]
    found = []
    for text in requirements:
        name = name_of(text)
        known = next(iter(metadata.Distribution.discover(name=name, path=places)), None)
        if known is None or not _lies_in(known.version, text.removeprefix(name)):
            found.append(text)
    return found


def name_of(requirement: str) -> str:
    """Return the name of the package that is required."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def _lies_in(version: str, bounds: str) -> bool:
    """Return whether a version is at least that after ">=" and below that after "<"."""
    own = _numbers(version)
    limits = dict(re.findall(r"(>=|<)\s*([\w.]+)", bounds))
    return own >= _numbers(limits.get(">=", "")) and ("<" not in limits or own < _numbers(limits["<"]))


def install(place: Path, wanted: Sequence[str]) -> None:
    """Install `wanted` into the environment by pip. Raises `Unavailable` with what pip said."""
    pip = [python(place), "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode:
        subprocess.run([python(place), "-m", "ensurepip"], capture_output=True, check=False)
    done = subprocess.run(
        [*pip, "install", "--quiet", "--disable-pip-version-check", *wanted],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        said = [line.strip() for line in done.stdout.splitlines() if line.strip()] or ["pip failed"]
        error = next((line for line in reversed(said) if "ERROR" in line), said[-1]).rstrip(".")
        raise Unavailable(
            f"{', '.join(wanted)} cannot be installed there: {error}.",
            f"Install it there for {sys.executable}, or name a Python that has it by --remote-python.",
        )


def _packages(place: Path) -> Path:
    return place / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def _name_program(place: Path) -> None:
    """Make `python` and `python3` the chosen Python; a link would lose the environment that it is of."""
    place.mkdir()
    for name in ("python", "python3"):
        (place / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (place / name).chmod(0o755)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])[:3]))
