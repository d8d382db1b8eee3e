"""The kernels are loaded before the first test."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import perfkit.kernels


@pytest.fixture(scope="session", autouse=True)
def loaded(shared_cache: Path) -> None:
    perfkit.kernels.load()


@pytest.fixture(autouse=True)
def same_numbers_each_time() -> None:
    torch.manual_seed(20240517)
