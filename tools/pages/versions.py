"""The table of docs/versions.md, made from what `tools/torch_versions.py` found."""

from __future__ import annotations

from perfkit.tested import Outcome, TestedEnvironment, read
from tools.torch_versions import GROUPS


def markdown() -> str:
    """A row an environment, a column a group of tests; then each test that failed."""
    names = list(GROUPS)
    lines = [f"| torch | Python | {' | '.join(names)} | from |", "|---" * (len(names) + 3) + "|"]
    environments = read()
    for tested in environments:
        cells = [_cell(tested.groups.get(name)) for name in names]
        lines.append(f"| {tested.torch} | {tested.python} | {' | '.join(cells)} | {_dates(tested)} |")
    for tested in environments:
        failed = [test for name in names if (outcome := tested.groups.get(name)) for test in outcome.failed]
        if failed:
            lines += ["", f"torch {tested.torch}, Python {tested.python}, failed:", ""]
            lines += [f"- `{test}`" for test in failed]
    return "\n".join(lines)


def _cell(outcome: Outcome | None) -> str:
    if outcome is None:
        return "–"
    count = outcome.passed + len(outcome.failed)
    return f"{len(outcome.failed)} of {count} fail" if outcome.failed else f"{count} pass"


def _dates(tested: TestedEnvironment) -> str:
    return min(outcome.date for outcome in tested.groups.values())
