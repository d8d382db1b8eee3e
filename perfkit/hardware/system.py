"""What the system's files and small tools say; "" where they are missing, may not be read, or fail."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path("/")


def text_of(path: Path) -> str:
    """Return what a file holds, without white space around it."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def number_of(path: Path) -> float | None:
    """Return the number that a file holds; None where it holds another word."""
    try:
        return float(text_of(path))
    except ValueError:
        return None


def field(path: Path, name: str) -> str:
    """Return the value of the first line `name: value` of a file."""
    pairs = (line.partition(":") for line in text_of(path).splitlines())
    return next((value.strip() for key, _, value in pairs if key.strip() == name), "")


def kibibytes(path: Path, name: str) -> int | None:
    """Return a field such as `MemTotal: 16 kB` in bytes; None where the file lacks it."""
    words = field(path, name).split()
    return int(words[0]) * 1024 if words else None


def printed(command: Sequence[str | Path], seconds: float = 20) -> str:
    """Return what a command prints."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
