"""The kernels are loaded before the first test."""

from __future__ import annotations

from pathlib import Path

import pytest

import perfkit.kernels


@pytest.fixture(scope="session", autouse=True)
def loaded(shared_cache: Path) -> None:
    perfkit.kernels.load()
