"""A pytest plugin: with `--dist loadfile` a file's tests run in one worker, except in files whose tests share nothing.

Of the parts of `SAMPLED` `make test` runs every third test, evenly spread; the others are marked `full`. Each test of
`APART` is long and independent of its neighbours: they go to whichever worker is free. The files of tests/long.txt
begin first, so that no worker is alone with one of them at the end.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling
    from xdist.workermanage import WorkerController

APART = ("tests/capture/agent/test_unharmed.py", "tests/docs/test_commands.py", "tests/backends/test_documentation.py")
# Written by `pytest --cpu-durations=N` of all tests: the files of more than ten seconds of CPU time, longest first.
LONG_FILES = Path(__file__).resolve().parents[1] / "long.txt"
LONG = tuple(LONG_FILES.read_text().split())


SAMPLED = (
    "tests/capture/agent/test_programs.py",
    "tests/capture/agent/test_unharmed.py",
    "tests/docs/test_commands.py::test_commands_run",
    "tests/capture/agent/test_kinds_of_steps.py",
    "tests/capture/agent/test_troubles.py",
    "tests/run/test_session.py",
    "tests/compare/test_cli.py",
    "tests/packaging/test_wheel.py",
    "tests/backends/test_replay.py",
    "tests/analysis/test_own_workloads.py",
    "tests/backends/test_thunder_losses.py",
    "tests/kernels/test_triton.py",
    "tests/kernels/test_results.py",
    "tests/kernels/test_cuda_compile.py",
    "tests/remote/test_from_afar.py",
    "tests/render/test_html_browser.py",
    "tests/render/test_html_controls_browser.py",
    "tests/tensorboard/test_page.py",
    "tests/workloads/test_compilers.py",
    "tests/workloads/test_own_models.py",
    "tests/backends/test_parallel.py",
    "tests/backends/test_documentation.py",
    "tests/cli/test_sweep.py",
    "tests/lines/test_planted.py",
    "tests/lines/test_views.py",
    "tests/readers/test_kineto_damaged.py",
    "tests/memory/test_traces.py",
    "tests/cli/test_mistakes.py",
    "tests/bench/test_run.py",
    "tests/hardware/test_measure.py",
    "tests/tries/test_try.py",
)
EVERY = 3


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test` leaves out of the parts of `SAMPLED`."""
    seen: dict[str, int] = {}
    for item in items:
        part = next((part for part in SAMPLED if item.nodeid.startswith(part)), None)
        if part is not None and item.get_closest_marker("full") is None:
            seen[part] = seen.get(part, -1) + 1
            if seen[part] % EVERY:
                item.add_marker(pytest.mark.full)


def scope(node: str) -> str:
    """Return the unit of work that holds the test of this node id."""
    path = node.partition("::")[0]
    return node if path in APART else path


def turn(unit: str) -> int:
    """Return the place of a unit of work in the order of work, the least first."""
    path = unit.partition("::")[0]
    return LONG.index(path) if path in LONG else len(LONG)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Return the scheduler of `--dist loadfile`; xdist's own otherwise."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

        def _assign_work_unit(self, node: WorkerController) -> None:
            self.workqueue.move_to_end(min(self.workqueue, key=turn), last=False)
            super()._assign_work_unit(node)

    return ByFile(config, log)
