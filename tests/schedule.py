"""A pytest plugin: with `--dist loadfile` a file's tests run in one worker, but for files whose tests share nothing.

Each test of `APART` is long and independent of its neighbours: they go to whichever worker is free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

APART = ("tests/docs/test_commands.py", "tests/backends/test_documentation.py")


def scope(node: str) -> str:
    """What runs in one worker with the test of this node id."""
    path = node.partition("::")[0]
    return node if path in APART else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """The scheduler of `--dist loadfile`; xdist's own otherwise."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

    return ByFile(config, log)
