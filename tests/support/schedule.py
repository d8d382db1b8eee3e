"""A pytest plugin: with `--dist loadfile` a file's tests run in one worker, but for files whose tests share nothing.

Each test of `APART` is long and independent of its neighbours: they go to whichever worker is free. The files in `LONG`
begin first, so that no worker is alone with one of them at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling
    from xdist.workermanage import WorkerController

APART = ("tests/programs/test_unharmed.py", "tests/docs/test_commands.py", "tests/backends/test_documentation.py")
# By the CPU time that `--cpu-durations` shows, longest first; what is not here takes less than all of these.
LONG = (
    "tests/whole/test_one_tree.py",
    "tests/programs/test_programs.py",
    "tests/programs/test_unharmed.py",
    "tests/docs/test_commands.py",
    "tests/remote/test_from_afar.py",
    "tests/backends/test_compile.py",
    "tests/kernels/test_triton.py",
    "tests/backends/test_thunder_places.py",
    "tests/backends/test_thunder_losses.py",
    "tests/backends/test_thunder.py",
    "tests/backends/test_thunder_llmc.py",
    "tests/render/test_html_browser.py",
    "tests/tensorboard/test_page.py",
    "tests/capture/test_session.py",
    "tests/programs/test_troubles.py",
    "tests/backends/test_parallel.py",
    "tests/compare/test_cli.py",
    "tests/kernels/test_results.py",
    "tests/render/test_html_controls_browser.py",
    "tests/backends/test_provenance.py",
    "tests/backends/test_llmc_on_a_gpu.py",
    "tests/packaging/test_wheel.py",
    "tests/hardware/test_measure.py",
    "tests/backends/test_replay.py",
    "tests/kernels/test_cuda_compile.py",
    "tests/cli/test_mistakes.py",
    "tests/workloads/test_compilers.py",
    "tests/cli/test_sweep.py",
    "tests/kernels/test_keeping.py",
    "tests/analysis/test_own_workloads.py",
    "tests/capture/test_ranks.py",
    "tests/readers/test_real_traces.py",
    "tests/docs/test_site.py",
    "tests/workloads/test_own_models.py",
    "tests/compare/test_pytest_plugin.py",
    "tests/backends/test_documentation.py",
    "tests/kernels/test_docs.py",
    "tests/whole/test_broken_kernel.py",
)


def scope(node: str) -> str:
    """What runs in one worker with the test of this node id."""
    path = node.partition("::")[0]
    return node if path in APART else path


def turn(unit: str) -> int:
    """When what runs in one worker has its turn, among others with a number: the least first."""
    path = unit.partition("::")[0]
    return LONG.index(path) if path in LONG else len(LONG)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """The scheduler of `--dist loadfile`; xdist's own otherwise."""
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
