"""A pytest plugin: `--cpu-durations=N` lists the files and tests that take most CPU time, child processes included.

On a machine that others use, CPU time says what a test costs; `--durations` says how long it waited. A child counts
when it was waited for, so a browser counts for the last test of the session. A session of all tests writes the files
that take long to tests/long.txt, which orders the next sessions (tests/support/schedule.py).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping

import pytest

from tests.support import forks
from tests.support.schedule import LONG_FILES

PROPERTY = "cpu_s"
LONG_S = 10.0


def cpu_s() -> float:
    """Seconds of CPU time of this process, of the children that it waited for, and of their forks."""
    return sum(os.times()[:4]) + forks.cpu_s()


class Watch:
    """Give each phase of a test (setup, call, teardown) the CPU time since the phase before."""

    def __init__(self) -> None:
        self.last = cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report = yield
        now = cpu_s()
        report.user_properties.append((PROPERTY, now - self.last))
        self.last = now
        return report


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    text = "list the N files and the N tests that take most CPU time (0: all)"
    parser.addoption("--cpu-durations", type=int, default=None, metavar="N", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Watch the tests where the option asks for it."""
    if config.getoption("--cpu-durations") is not None:
        config.pluginmanager.register(Watch())


def long_files(files: Mapping[str, float]) -> str:
    """Return the paths of the files that take longer than `LONG_S`, a line each, longest first."""
    found = sorted((name for name, seconds in files.items() if seconds > LONG_S), key=lambda name: -files[name])
    return "".join(f"{name}\n" for name in found)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print both lists and the sum."""
    most = config.getoption("--cpu-durations")
    if most is None:
        return
    tests: dict[str, float] = defaultdict(float)
    files: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in (r for r in reports if isinstance(r, pytest.TestReport)):
            seconds = sum(value for name, value in report.user_properties if name == PROPERTY)
            tests[f"{report.nodeid} ({report.when})"] += seconds
            files[report.nodeid.partition("::")[0]] += seconds
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        LONG_FILES.write_text(long_files(files))
    terminalreporter.section(f"CPU time: {sum(files.values()):.1f} s")
    for found in (files, tests):
        for name, seconds in sorted(found.items(), key=lambda pair: -pair[1])[: most or None]:
            terminalreporter.write_line(f"{seconds:8.2f} s  {name}")
        terminalreporter.write_line("")
