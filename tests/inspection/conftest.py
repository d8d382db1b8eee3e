"""Kernels for these tests are built into a cache that they share, apart from the user's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("PERFKIT_CACHE", str(folder))
        patch.setenv("TRITON_CACHE_DIR", str(folder / "triton"))
        patch.delenv("PERFKIT_KERNEL_ISA", raising=False)
        yield
