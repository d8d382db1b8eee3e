"""Saved baselines: runs, profiles and measured comparisons kept under a name, each whole in itself.

    FOLDER/                    PERFKIT_BASELINES, else .perfkit/baselines below the working directory
      NAME/
        20260101-120000-000000-a1b2/  one record a `perfkit baseline save` (UTC to the µs), the newest last
          baseline.json               when, from where, and what may be plotted
          content/ or content.parquet

A record is made under a temporary name and renamed: it is whole or not there. Traces and event files are left
out; what a comparison needs is kept.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from perfkit.errors import InputError, RunFailed, UsageError
from perfkit.run_folder import read_record

RECORD, CONTENT = "baseline.json", "content"
SCHEMA_VERSION = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_KEPT = {".json", ".parquet"}


class Record(msgspec.Struct, kw_only=True):
    """One saved baseline. `metrics` are its values by side and metric: `{"eager": {"step": 1.2e7}}`, base units."""

    schema: int = SCHEMA_VERSION
    name: str
    saved: str
    source: str
    content: str
    metrics: dict[str, dict[str, float]] = {}
    machine: str = ""  # the fingerprint of the machine that was measured


@dataclass(frozen=True)
class Saved:
    """A record and its folder."""

    record: Record
    folder: Path

    @property
    def content(self) -> Path:
        """The saved folder or kernel table."""
        return self.folder / self.record.content


def root() -> Path:
    """The folder of all baselines."""
    return Path(os.environ.get("PERFKIT_BASELINES") or Path(".perfkit") / "baselines")


def is_name(text: str) -> bool:
    """Return whether `text` can be the name of a baseline."""
    return bool(_NAME.fullmatch(text)) and not text.endswith(".")


def save(name: str, path: Path, metrics: dict[str, dict[str, float]], machine: str = "") -> Saved:
    """Keep the folder or table at `path` as the newest record of `name`.

    Raises `UsageError` for a name that cannot be one, `RunFailed` where it cannot be written.
    """
    if not is_name(name):
        raise UsageError(
            f"{name!r} cannot be the name of a baseline.", "Use letters, digits, dots, dashes and underscores."
        )
    now = datetime.now(UTC)  # to the µs: records are in order of their names
    stamp = f"{now:%Y%m%d-%H%M%S-%f}-{secrets.token_hex(2)}"
    final = root() / name / stamp
    partial = final.with_name(f".{stamp}.partial")
    content = CONTENT if path.is_dir() else f"{CONTENT}.parquet"
    record = Record(
        name=name, saved=f"{now.astimezone():%Y-%m-%dT%H:%M:%S%z}", source=str(path), content=content, metrics=metrics,
        machine=machine,
    )  # fmt: skip
    try:
        partial.mkdir(parents=True)
        _copy(path, partial / content)
        (partial / RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1))
        partial.rename(final)
    except OSError as error:
        raise RunFailed(
            f"{final} could not be written: {error.strerror}.", "Free space, or set PERFKIT_BASELINES."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Saved(record, final)


def _copy(source: Path, target: Path) -> None:
    """A folder's manifests and kernel tables; a single profile as a kernel table, whatever its format."""
    if not source.is_dir():
        from perfkit import readers

        next(iter(readers.tables_of(readers.read(source)).values())).write(target)
        return
    for path in sorted(source.rglob("*")):
        below = path.relative_to(source)
        hidden = any(part.startswith(".") for part in below.parts)
        kept = path.suffix in _KEPT and ".trace." not in path.name and not path.name.startswith(("report.", "sweep."))
        if path.is_file() and kept and not hidden:
            (target / below).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / below)


def names() -> list[str]:
    """The names of all baselines, in order."""
    folder = root()
    return sorted(p.name for p in folder.iterdir() if p.is_dir() and records(p.name)) if folder.is_dir() else []


def records(name: str) -> list[Saved]:
    """Return the records of `name`, the oldest first; [] for an unknown name. Damaged ones raise `InputError`."""
    if not is_name(name) or not (root() / name).is_dir():
        return []
    folders = sorted(p for p in (root() / name).iterdir() if (p / RECORD).is_file() and not p.name.startswith("."))
    return [Saved(_read(folder / RECORD), folder) for folder in folders]


def latest(name: str) -> Saved | None:
    """Return the newest record of `name`; None without one."""
    found = records(name)
    return found[-1] if found else None


def remove(name: str) -> int:
    """Delete every record of `name` and return their number. Raises `InputError` for an unknown baseline."""
    found = records(name)
    if not found:
        raise InputError(f"There is no baseline {name}.", "`perfkit baseline list` shows them.")
    shutil.rmtree(root() / name)
    return len(found)


def _read(path: Path) -> Record:
    record = read_record(path, Record, SCHEMA_VERSION, "Remove its folder, and save the baseline again.")
    if record.content not in (CONTENT, f"{CONTENT}.parquet"):
        raise InputError(f"{path} is damaged: it names {record.content!r}.", "Save the baseline again.")
    return record
