"""Fixtures of the workloads' tests: GPT-2, settings for it, and a cache of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfkit.run_folder import Settings
from perfkit.workloads import Workload, find, resolve_settings


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("PERFKIT_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def gpt2() -> Workload:
    """The built-in GPT-2."""
    return find("gpt2")


@pytest.fixture(scope="session")
def settings(gpt2: Workload) -> Callable[..., Settings]:
    """`settings(**options)` resolves options for GPT-2; preset tiny unless given."""

    def resolve(**options: object) -> Settings:
        return resolve_settings(gpt2, **{"preset": "tiny", **options})

    return resolve
