"""Results of the jobs of `gpu_all.py`, as the file that is committed and as the tables of docs/benchmarks.md."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

HEAD = (
    "| backend | result | step, ms | 95 % interval | × eager | memory, GiB | MFU | efficiency |",
    "|---|---|--:|--:|--:|--:|--:|--:|",
)
LAST = 100  # lines of a job's output that are kept where it makes no report


class Results:
    """The file of results: for each job its command, how it ended, on what, and what it found."""

    def __init__(self, file: Path, commit: str) -> None:
        self.file, self.commit = file, commit
        self.done: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.is_file() else {}
        self.lock = threading.Lock()

    def due(self, name: str) -> bool:
        """Return whether the job has not run yet, or went wrong."""
        return not self.done.get(name, {}).get("right")

    def told(self, name: str) -> str:
        """How a job ended, on what and when, in a line."""
        known = self.done.get(name)
        if known is None:
            return "not run"
        how = "done" if known["right"] else f"FAILED ({known['code']})"
        return f"{how} in {known['seconds']} s, {known['when']}, {known['device']}, {known['commit'][:7]}"

    def add(self, name: str, command: str, right: bool, code: int, seconds: float, output: Path, report: Path) -> None:
        """Keep what came of a job. Where it made a `report` that is the rows of its table, else its last lines."""
        entry = {
            "command": command, "right": right, "code": code, "seconds": round(seconds),
            "when": time.strftime("%Y-%m-%d"), "commit": self.commit, "device": device(),
            "rows": rows(report) if report.is_file() else [],
        }  # fmt: skip
        if not entry["rows"]:
            entry["said"] = output.read_text(errors="replace").splitlines()[-LAST:]
        with self.lock:
            self.done[name] = entry
            temporary = self.file.with_suffix(".new")
            temporary.write_text(json.dumps(self.done, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
            os.replace(temporary, self.file)

    def markdown(self, names: Iterable[str]) -> str:
        """The tables of docs/benchmarks.md: a section a job that made a report, in the order of `names`."""
        entries = (self.done[name] for name in names if name in self.done)
        return "\n\n".join(section(entry) for entry in entries if entry["rows"])


def device() -> str:
    """The GPU that nvidia-smi names first; "unknown" without one."""
    try:
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        said = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said[0].strip() if said else "unknown"


def rows(report: Path) -> list[list[str]]:
    """The table of a run's report: step with its interval, speed-up, memory, MFU and efficiency of each backend."""
    backends = json.loads(report.read_text()).get("backends", [])
    return [cells(b) for b in backends if b["timed"] or b["status"] != "ok"]  # eager may be the reference alone


def section(entry: Mapping[str, Any]) -> str:
    """One run as Markdown: its command, where it was measured, and its table."""
    where = f"{entry['device']}, {entry['when']}, {entry['commit'][:7]}:"
    return "\n".join([f"### `{entry['command']}`", "", where, "", *HEAD, *map(line, entry["rows"])])


def line(found: Sequence[str]) -> str:
    """Cells as a row of a Markdown table."""
    return f"| {' | '.join(found)} |"


def cells(backend: Mapping[str, Any]) -> list[str]:
    """A backend's row: times in ms, memory in GiB, MFU and efficiency in percent, – where unknown."""
    step, speedup = backend.get("step"), backend.get("speedup")
    if not step:
        return [backend["name"], backend["status"], backend.get("reason") or "–", *["–"] * 5]
    return [
        backend["name"],
        "correct" if backend["status"] == "ok" else backend["status"],
        f"{step['value'] / 1e6:.2f}",
        f"{step['low'] / 1e6:.2f}–{step['high'] / 1e6:.2f}",
        f"{speedup['value']:.2f}" if speedup else "–",
        f"{backend['peak_memory_bytes'] / 2**30:.2f}" if backend.get("peak_memory_bytes") else "–",
        f"{backend['mfu']:.0%}" if backend.get("mfu") else "–",
        f"{backend['efficiency']:.0%}" if backend.get("efficiency") else "–",
    ]
