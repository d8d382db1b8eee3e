"""A pytest plugin: counts for the continuous integration, and the check that only allowed tests are skipped.

With PERFKIT_STRICT_SKIPS=1 a skipped (or expectedly failing) test that no line of tests/allowed_skips.txt names makes
the session fail. With PERFKIT_TEST_COUNTS=FILE the line `N passed, N failed, N skipped` is written to FILE.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ALLOWED = Path(__file__).resolve().parents[1] / "allowed_skips.txt"

PASSED, FAILED, SKIPPED = ("passed", "xpassed"), ("failed", "error"), ("skipped", "xfailed")


def read_allowed(text: str) -> dict[str, str]:
    """Node-id pattern → reason, from lines `PATTERN: reason`. Raises `ValueError` for a line without a reason."""
    allowed = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, _, reason = line.partition(": ")
        if not reason.strip():
            raise ValueError(f"{ALLOWED.name}, line {number}: a skip needs a reason after `: `")
        allowed[pattern.strip()] = reason.strip()
    return allowed


def not_allowed(skipped: list[str], allowed: dict[str, str]) -> list[str]:
    """Return the `skipped` (node ids) that no pattern of `allowed` matches; `*` matches anything, `[` is literal."""
    patterns = [pattern.replace("[", "[[]") for pattern in allowed]
    return [node for node in skipped if not any(fnmatchcase(node, pattern) for pattern in patterns)]


def _nodes(reporter: pytest.TerminalReporter, outcomes: tuple[str, ...]) -> list[str]:
    return [report.nodeid for outcome in outcomes for report in reporter.stats.get(outcome, [])]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the counts and judge the skips, once, in the process that sees all reports."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if hasattr(session.config, "workerinput") or reporter is None:
        return
    skipped = _nodes(reporter, SKIPPED)
    surplus = []
    if os.environ.get("PERFKIT_STRICT_SKIPS") == "1":
        surplus = not_allowed(skipped, read_allowed(ALLOWED.read_text(encoding="utf-8")))
        for node in surplus:
            reporter.write_line(f"skipped, but not in tests/{ALLOWED.name}: {node}", red=True)
    if surplus and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    counts = os.environ.get("PERFKIT_TEST_COUNTS")
    if counts:
        passed, failed = len(_nodes(reporter, PASSED)), len(_nodes(reporter, FAILED))
        Path(counts).write_text(f"{passed} passed, {failed} failed, {len(skipped)} skipped\n", encoding="utf-8")
