"""`.nsys-rep` reports of Nsight Systems: their format is the tool's own, so that the tool itself has to export them."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from perfkit.errors import InputError, Unavailable
from perfkit.readers.nsys.capture import read_export
from perfkit.table import KernelTable

TIME_LIMIT_S = 1800


def read_report(path: Path) -> KernelTable:
    """Export the report at `path` to sqlite in a temporary folder and read that.

    Raises `Unavailable` without `nsys`, `InputError` where it cannot read the report or takes too long.
    """
    tool = shutil.which("nsys")
    by_hand = f"nsys export --type sqlite --output profile.sqlite {path.name}"
    if tool is None:
        raise Unavailable(
            f"{path} is a report of Nsight Systems, which only its own tool `nsys` opens: it is not installed.",
            f"Where it was captured, run `{by_hand}`, and give perfkit profile.sqlite.",
        )
    with tempfile.TemporaryDirectory(prefix="perfkit-nsys-") as folder:
        export = Path(folder) / "profile.sqlite"
        said = _export(tool, path, export)
        if not export.is_file():
            raise InputError(f"{path}: `nsys export` made no file{said}.", f"Try it by hand: `{by_hand}`.")
        return read_export(export, source=path)


def _export(tool: str, path: Path, export: Path) -> str:
    """Run the tool; returns the last thing it said, in brackets."""
    command = [
        tool,
        "export",
        "--type",
        "sqlite",
        "--force-overwrite",
        "true",
        "--output",
        str(export),
        str(path.resolve()),
    ]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=TIME_LIMIT_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise InputError(f"{path}: `nsys export` did not end within {TIME_LIMIT_S} s.") from error
    except OSError as error:
        raise Unavailable(f"`{tool}` cannot be started: {error.strerror or error}.") from error
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    said = f" ({lines[-1].strip()[:200]})" if lines else ""
    if done.returncode:
        raise InputError(
            f"{path}: `nsys export` failed with exit code {done.returncode}{said}.", "Is the report whole?"
        )
    return said
